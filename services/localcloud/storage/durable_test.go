package storage_test

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gcs "cloud.google.com/go/storage"
	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// again stops the server and starts another one on the same directory.
func (e *env) again(t testing.TB, o storage.Options) *env {
	t.Helper()
	e.stop()
	o.Dir = e.dir
	n := start(t, o)
	n.ahead.Store(e.ahead.Load())
	return n
}

// rebase changes a session URI to point to a new server's listener.
func rebase(t testing.TB, session, base string) string {
	t.Helper()
	u, err := url.Parse(session)
	if err != nil {
		t.Fatal(err)
	}
	b, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = b.Host
	return u.String()
}

func files(t testing.TB, dir, sub string) int {
	t.Helper()
	l, err := os.ReadDir(filepath.Join(dir, sub))
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

func TestObjectsMetadataAndGenerationsSurviveARestart(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	a := e.put(t, "keep", "bytes")
	if _, err := e.object("keep").Update(t.Context(), gcs.ObjectAttrsToUpdate{Metadata: map[string]string{"k": "v"}}); err != nil {
		t.Fatal(err)
	}
	e = e.again(t, storage.Options{Clock: func() time.Time { return time.Now().Add(-time.Hour) }})
	b, err := e.object("keep").Attrs(t.Context())
	if err != nil || b.Generation != a.Generation || b.Metadata["k"] != "v" || e.read(t, "keep") != "bytes" {
		t.Errorf("after the restart, the object is %+v (error %v), want no change", b, err)
	}
	if c := e.put(t, "keep", "new"); c.Generation <= a.Generation {
		t.Errorf("with the clock set back, the generation %d follows %d, want a greater one", c.Generation, a.Generation)
	}
}

func TestTheKeyFileIsMadeOnceAndPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(api string) []byte {
		s, err := storage.Open(storage.Options{Dir: dir, APIURL: api})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.ServiceAccountKey()
	}
	var a, b map[string]any
	json.Unmarshal(open("http://127.0.0.1:1"), &a)
	json.Unmarshal(open("http://127.0.0.1:2/"), &b)
	if a["private_key"] != b["private_key"] || b["token_uri"] != "http://127.0.0.1:2/token" {
		t.Errorf("the second key file has a different key or the wrong token_uri: %v", b["token_uri"])
	}
	fi, err := os.Stat(filepath.Join(dir, "service-account.json"))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the key file has mode %v (error %v), want 0600", fi.Mode(), err)
	}
}

func TestASessionSurvivesARestart(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	body := random(3*unit + 9)
	s := e.startSession(t, "res", "Content-Type", "video/mp4")
	call(t, "PUT", s, body[:unit], "Content-Range", span(0, unit-1, "*")).want(t, 308, "")
	call(t, "PUT", s, body[unit:2*unit], "Content-Range", span(unit, 2*unit-1, "*")).want(t, 308, "")

	e = e.again(t, storage.Options{})
	s = rebase(t, s, e.public.URL)
	a := call(t, "PUT", s, nil, "Content-Range", "bytes */*")
	if a.status != 308 || a.header.Get("Range") != fmt.Sprintf("bytes=0-%d", 2*unit-1) {
		t.Fatalf("after the restart, the session returned %+v, want 308 with two units", a)
	}
	call(t, "PUT", s, body[2*unit:], "Content-Range", span(2*unit, len(body)-1, fmt.Sprint(len(body)))).want(t, 200, "")
	if e.read(t, "res") != string(body) { // the client also checks the CRC32C
		t.Error("the object's bytes differ from the uploaded ones")
	}
	attrs, err := e.object("res").Attrs(t.Context())
	if err != nil || attrs.ContentType != "video/mp4" {
		t.Errorf("the attributes are %+v (error %v), want video/mp4", attrs, err)
	}

	e = e.again(t, storage.Options{})
	a = call(t, "PUT", rebase(t, s, e.public.URL), nil, "Content-Range", "bytes */*")
	if a.status != 200 || a.header.Get("X-Goog-Generation") != fmt.Sprint(attrs.Generation) {
		t.Errorf("after the restart, a finished session returned %+v, want 200 with the generation", a)
	}
	if n := files(t, e.dir, "tmp"); n != 0 {
		t.Errorf("tmp contains %d files, want 0", n)
	}
}

func TestBytesThatWereNotAcknowledgedAreCutOffAfterACrash(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	body := random(2 * unit)
	s := e.startSession(t, "res")
	call(t, "PUT", s, body[:unit], "Content-Range", span(0, unit-1, "*")).want(t, 308, "")
	e.stop()
	tmp, err := os.ReadDir(filepath.Join(e.dir, "tmp"))
	if err != nil || len(tmp) != 1 {
		t.Fatalf("tmp contains %v (error %v), want one file", tmp, err)
	}
	f, err := os.OpenFile(filepath.Join(e.dir, "tmp", tmp[0].Name()), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("a torn write")
	f.Close()
	e = e.again(t, storage.Options{})
	call(t, "PUT", rebase(t, s, e.public.URL), body[unit:], "Content-Range", span(unit, 2*unit-1, fmt.Sprint(2*unit))).want(t, 200, "")
	if e.read(t, "res") != string(body) {
		t.Error("the object's bytes differ from the uploaded ones")
	}
}

func TestACutChunkKeepsWhatArrived(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	body := random(3 * unit)
	s := e.startSession(t, "res")
	e.srv.Faults().Inject(storage.Fault{Call: "xml.session", CutRequest: 2*unit + 5, Times: 1})
	if a, err := tryCall(t.Context(), "PUT", s, strings.NewReader(string(body)), "Content-Range", span(0, len(body)-1, fmt.Sprint(len(body)))); err == nil {
		t.Fatalf("the interrupted request returned %+v, want an error", a)
	}
	a := call(t, "PUT", s, nil, "Content-Range", "bytes */*")
	var last int
	if _, err := fmt.Sscanf(a.header.Get("Range"), "bytes=0-%d", &last); err != nil || last+1 < unit {
		t.Fatalf("the session has the range %q, want at least one unit", a.header.Get("Range"))
	}
	call(t, "PUT", s, body[last+1:], "Content-Range", span(last+1, len(body)-1, fmt.Sprint(len(body)))).want(t, 200, "")
	if e.read(t, "res") != string(body) {
		t.Error("the object's bytes differ from the uploaded ones")
	}
}

// However a client splits and repeats its bytes, the object must contain each byte once and in
// order.
func TestAnySequenceOfChunksMakesTheSameObject(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	for run := range 15 {
		name := fmt.Sprintf("seq-%d", run)
		body := random(rand.IntN(6*unit) + 1)
		s := e.startSession(t, name)
		have := 0
		for steps := 0; ; steps++ {
			first := max(0, have-rand.IntN(2*unit)) // sometimes the client repeats bytes
			last := first + rand.IntN(3*unit)       // sometimes the chunk extends past the object
			total := []string{"*", fmt.Sprint(len(body))}[rand.IntN(2)]
			if last >= len(body)-1 || steps > 30 {
				last, total = len(body)-1, fmt.Sprint(len(body))
			}
			a := call(t, "PUT", s, body[first:last+1], "Content-Range", span(first, last, total))
			if a.status == 200 {
				break
			}
			if a.status != 308 {
				t.Fatalf("the chunk %d-%d/%s, after %d stored bytes, returned %d, want 308: %s", first, last, total, have, a.status, a.body)
			}
			kept := 0
			if _, err := fmt.Sscanf(a.header.Get("Range"), "bytes=0-%d", &kept); err == nil {
				kept++
			}
			if kept < have || kept > max(have, last+1) {
				t.Fatalf("the session has %d bytes, which does not match %d earlier bytes and the chunk %d-%d", kept, have, first, last)
			}
			have = kept
		}
		if e.read(t, name) != string(body) {
			t.Errorf("run %d: the object's bytes differ from the uploaded ones", run)
		}
	}
}

// A client whose connection was silently closed must be able to resume on a new one.
func TestANewRequestTakesASessionOver(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	s := e.startSession(t, "res")
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go tryCall(ctx, "PUT", s, r, "Content-Range", span(0, 4*unit-1, fmt.Sprint(4*unit)))
	w.Write(random(unit)) // then sends nothing more
	eventually(t, "the first request holds the session", func() bool { return e.srv.Faults().Calls()["xml.session"] == 1 })
	done := make(chan answer, 1)
	go func() {
		a, _ := tryCall(t.Context(), "PUT", s, nil, "Content-Range", "bytes */*")
		done <- a
	}()
	select {
	case a := <-done:
		if a.status != 308 {
			t.Errorf("the response is %+v, want 308", a)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the dead connection still holds the session after 20 s")
	}
}

func TestSessionsEndAfterAWeek(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	s := e.startSession(t, "res")
	e.ahead.Store(int64(7*24*time.Hour + time.Minute))
	call(t, "PUT", s, []byte("x")).want(t, 404, "")
	old := e
	e = e.again(t, storage.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(old.ahead.Load())) }})
	eventually(t, "the session's file is deleted", func() bool { return files(t, e.dir, "tmp") == 0 })
}

func TestFilesThatACrashLeftAreRemovedAndObjectsAreNot(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	e.put(t, "keep", "bytes")
	s := e.startSession(t, "open")
	call(t, "PUT", s, random(unit), "Content-Range", span(0, unit-1, "*")).want(t, 308, "")
	e.stop()
	for _, f := range []string{"tmp/0123", "data/4567"} {
		if err := os.WriteFile(filepath.Join(e.dir, f), []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e = e.again(t, storage.Options{})
	eventually(t, "only the object's and the session's files remain", func() bool { return files(t, e.dir, "data") == 1 && files(t, e.dir, "tmp") == 1 })
	if got := e.read(t, "keep"); got != "bytes" {
		t.Errorf("the object is %q, want bytes", got)
	}
}

// Without its index, the server would treat every file as a leftover and delete it.
func TestALostIndexDeletesNoFile(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	e.put(t, "keep", "bytes")
	e.stop()
	if err := os.Remove(filepath.Join(e.dir, "index.db")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first attempt must not leave an index for the second one
		s, err := storage.Open(storage.Options{Dir: e.dir})
		if err == nil {
			_ = s.Close()
			t.Fatal("the server started without its index although there is a stored file")
		}
		if !strings.Contains(err.Error(), "index.db is missing") {
			t.Errorf("the error is %q, want it to name the missing index", err)
		}
	}
	if n := files(t, e.dir, "data"); n != 1 {
		t.Errorf("data contains %d files after the index was lost, want 1", n)
	}
}

func TestOverwritesAndDeletesFreeTheirSpace(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	for range 5 {
		e.put(t, "a", "x")
	}
	e.put(t, "b", "x")
	if err := e.object("b").Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := files(t, e.dir, "data"); n != 1 {
		t.Errorf("data contains %d files for one object, want 1", n)
	}
	if n := files(t, e.dir, "tmp"); n != 0 {
		t.Errorf("tmp contains %d files, want 0", n)
	}
}

func TestTwoServersDoNotShareADirectory(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	if s, err := storage.Open(storage.Options{Dir: e.dir}); err == nil {
		s.Close()
		t.Error("Open of a directory in use succeeded, want an error")
	}
}

// receiver is the endpoint for a push subscription. It records messages with their tokens.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []push
	errs   []string
}

type push struct {
	Message struct {
		Data       []byte
		Attributes map[string]string
		MessageID  string
		Publish    time.Time `json:"publishTime"`
	}
	Subscription string
}

func receive(t *testing.T) *receiver {
	r := &receiver{status: 204}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		var p push
		if err := json.NewDecoder(req.Body).Decode(&p); err != nil {
			r.errs = append(r.errs, err.Error())
		}
		p.Message.Attributes["token"] = strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		r.got = append(r.got, p)
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// seen returns the distinct messages by "EVENT object generation".
func (r *receiver) seen() map[string]push {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := map[string]push{}
	for _, p := range r.got {
		m[p.Message.Attributes["eventType"]+" "+p.Message.Attributes["objectId"]+" "+p.Message.Attributes["objectGeneration"]] = p
	}
	return m
}

func TestChangesArePushedWithAVerifiableToken(t *testing.T) {
	t.Parallel()
	r := receive(t)
	e := start(t, storage.Options{Notify: &storage.Notify{URL: r.URL + "/hook", Audience: "https://api.example/hook", Email: "push@local", Subscription: "projects/p/subscriptions/s"}})
	a := e.put(t, "videos/1", "one")
	b := e.put(t, "videos/1", "two")
	if _, err := e.object("videos/1").Update(t.Context(), gcs.ObjectAttrsToUpdate{ContentType: "a/b"}); err != nil {
		t.Fatal(err)
	}
	if err := e.object("videos/1").Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	key := func(event string, gen int64) string { return fmt.Sprintf("%s videos/1 %d", event, gen) }
	want := []string{key("OBJECT_FINALIZE", a.Generation), key("OBJECT_DELETE", a.Generation), key("OBJECT_FINALIZE", b.Generation), key("OBJECT_METADATA_UPDATE", b.Generation), key("OBJECT_DELETE", b.Generation)}
	eventually(t, "all five events have arrived", func() bool { return len(r.seen()) == 5 })
	got := r.seen()
	for _, k := range want {
		if _, ok := got[k]; !ok {
			t.Errorf("the messages are %[2]v, want one for %[1]s", k, got)
		}
	}
	p := got[want[2]]
	if p.Subscription != "projects/p/subscriptions/s" || p.Message.MessageID == "" || time.Since(p.Message.Publish) > time.Minute ||
		p.Message.Attributes["bucketId"] != "b-1" || p.Message.Attributes["overwroteGeneration"] != fmt.Sprint(a.Generation) || p.Message.Attributes["payloadFormat"] != "JSON_API_V1" {
		t.Errorf("the message is %+v, want the attributes of an overwritten object", p)
	}
	var resource struct{ Kind, Name, Size string }
	if err := json.Unmarshal(p.Message.Data, &resource); err != nil || resource.Kind != "storage#object" || resource.Name != "videos/1" || resource.Size != "3" {
		t.Errorf("the message's data is %s (error %v), want the object videos/1 with 3 bytes", p.Message.Data, err)
	}
	claims := verifyToken(t, e, p.Message.Attributes["token"])
	delete(claims, "iat")
	delete(claims, "exp")
	if d := cmp.Diff(map[string]any{"iss": "https://accounts.google.com", "aud": "https://api.example/hook", "sub": "push@local", "azp": "push@local", "email": "push@local", "email_verified": true}, claims); d != "" {
		t.Error(d)
	}
}

// verifyToken verifies an RS256 token with the server's JWK set and returns its claims.
func verifyToken(t *testing.T, e *env, token string) (claims map[string]any) {
	t.Helper()
	var set struct {
		Keys []struct{ Kid, N, E, Alg string }
	}
	if err := json.Unmarshal([]byte(call(t, "GET", e.api.URL+"/oauth2/v3/certs", nil).body), &set); err != nil || len(set.Keys) != 1 {
		t.Fatalf("the JWK set is %+v (error %v), want one key", set, err)
	}
	dec := func(s string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	part := strings.Split(token, ".")
	if len(part) != 3 {
		t.Fatalf("the token %q does not have three parts", token)
	}
	key := &rsa.PublicKey{N: new(big.Int).SetBytes(dec(set.Keys[0].N)), E: int(new(big.Int).SetBytes(dec(set.Keys[0].E)).Int64())}
	sum := sha256.Sum256([]byte(part[0] + "." + part[1]))
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], dec(part[2])); err != nil {
		t.Fatalf("the token's signature is invalid: %v", err)
	}
	if err := json.Unmarshal(dec(part[1]), &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

func TestANotificationIsSentUntilItIsAccepted(t *testing.T) {
	t.Parallel()
	r := receive(t)
	r.answer(500)
	n := &storage.Notify{URL: r.URL, Events: []string{"OBJECT_FINALIZE"}, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond}
	e := start(t, storage.Options{Notify: n})
	e.put(t, "a", "x")
	sent := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.got)
	}
	eventually(t, "the notification is sent three times", func() bool { return sent() >= 3 })
	e = e.again(t, storage.Options{Notify: n}) // rejected messages must survive a restart
	before := sent()
	eventually(t, "the notification is sent after the restart", func() bool { return sent() > before })
	r.answer(200)
	before = sent()
	eventually(t, "the notification is accepted", func() bool { return sent() > before })
	e.put(t, "b", "x")
	eventually(t, "the next notification arrives", func() bool { return len(r.seen()) == 2 })
	ids := map[string]bool{}
	for _, p := range r.seen() {
		ids[p.Message.MessageID] = true
	}
	if len(ids) != 2 {
		t.Errorf("the message IDs are %v, want 2 distinct ones", ids)
	}
}

// edit changes the index of a stopped server.
func (e *env) edit(t *testing.T, f func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(e.dir, "index.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(f), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestNotificationsThatCannotBeReadStopNoOther(t *testing.T) {
	t.Parallel()
	r := receive(t)
	o := storage.Options{Notify: &storage.Notify{URL: r.URL}, Log: slog.New(slog.DiscardHandler)}
	e := start(t, o)
	e.stop()
	e.edit(t, func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("outbox"))
		for range 1001 { // more than one batch
			id, err := b.NextSequence()
			if err := errors.Join(err, b.Put(binary.BigEndian.AppendUint64(nil, id), []byte("damaged"))); err != nil {
				return err
			}
		}
		return nil
	})
	e = e.again(t, o)
	e.put(t, "a", "x")
	eventually(t, "the notification for a arrives", func() bool { return len(r.seen()) == 1 })
}

func TestASessionThatCannotBeReadStopsNoOther(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	s := e.startSession(t, "res")
	call(t, "PUT", s, random(unit), "Content-Range", span(0, unit-1, "*")).want(t, 308, "")
	e.stop()
	e.edit(t, func(tx *bolt.Tx) error { return tx.Bucket([]byte("sessions")).Put([]byte("0"), []byte("damaged")) })
	e = e.again(t, storage.Options{Log: slog.New(slog.DiscardHandler)})
	s = rebase(t, s, e.public.URL)
	call(t, "PUT", s, nil, "Content-Range", "bytes */*").want(t, 308, "")
	e.ahead.Store(int64(7*24*time.Hour + time.Minute))
	if err := e.srv.ExpireSessions(); err == nil {
		t.Error("ExpireSessions ignored the damaged session, want an error")
	}
	if n := files(t, e.dir, "tmp"); n != 0 {
		t.Errorf("tmp contains %d files from the expired session, want 0", n)
	}
}

func TestWithoutAReceiverNothingIsRecorded(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	e.put(t, "a", "x")
	r := receive(t)
	e = e.again(t, storage.Options{Notify: &storage.Notify{URL: r.URL}})
	e.put(t, "b", "x")
	eventually(t, "the notification for b arrives", func() bool { return len(r.seen()) == 1 })
	for k := range r.seen() {
		if !strings.Contains(k, " b ") {
			t.Errorf("the receiver got %s, want only b", k)
		}
	}
}

func TestRulesGivenAtOpenReplaceTheBuckets(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{CORS: []storage.CORS{{Origin: []string{"*"}, Method: []string{"GET"}, MaxAgeSeconds: 60}}})
	allowed := func() string {
		return call(t, "OPTIONS", e.public.URL+"/b-1/x", nil, "Origin", "https://a.example", "Access-Control-Request-Method", "GET").header.Get("Access-Control-Allow-Origin")
	}
	if got := allowed(); got != "*" {
		t.Errorf("the allowed origin is %q, want *", got)
	}
	e = e.again(t, storage.Options{})
	if got := allowed(); got != "*" {
		t.Errorf("after a restart without rules, the allowed origin is %q, want the previous *", got)
	}
	e = e.again(t, storage.Options{CORS: []storage.CORS{}})
	if got := allowed(); got != "" {
		t.Errorf("with an empty rule set, the allowed origin is %q, want none", got)
	}
}
