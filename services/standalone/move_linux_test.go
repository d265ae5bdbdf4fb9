package standalone

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// killedMove, if set, makes this test binary move the data directory LINKREEL_DATA_DIR and kill
// itself at the step whose number or name it contains.
const killedMove = "LINKREEL_TEST_KILLED_MOVE"

func TestMain(m *testing.M) {
	if at := os.Getenv(killedMove); at != "" {
		moveAndDie(at)
	}
	if at := strings.Fields(os.Getenv(restoreEnv)); len(at) == 3 {
		restoreAndExit(at)
	}
	os.Exit(m.Run())
}

func moveAndDie(at string) {
	var steps atomic.Int64
	o := target(nil)
	o.step = func(what string) {
		if strconv.FormatInt(steps.Add(1), 10) == at || what == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	if err := Move(context.Background(), os.Stdout, o); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// target returns the options for the tests' moves. A stack can open their target afterwards.
func target(settings map[string]string) MoveOptions {
	return MoveOptions{Project: project, Bucket: bucket, Env: settings}
}

// elsewhere is an empty Firestore and an empty object store in a folder, which stand in for
// Google's services.
type elsewhere struct {
	dir     string
	records *firestore.Server
	objects *storage.Server
	env     map[string]string // settings with which `linkreel move` finds it
	close   func()
}

func startElsewhere(t *testing.T) *elsewhere {
	t.Helper()
	e := &elsewhere{dir: t.TempDir()}
	token := randomHex()
	indexes, err := parsedIndexes()
	if err != nil {
		t.Fatal(err)
	}
	if e.records, err = firestore.Open(firestore.Options{Path: filepath.Join(e.dir, recordsFile), Indexes: indexes, Token: token, TTLInterval: -1}); err != nil {
		t.Fatal(err)
	}
	addr, err := e.records.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if e.objects, err = storage.Open(storage.Options{Dir: filepath.Join(e.dir, objectsDir), Buckets: []string{bucket}, Token: token}); err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(e.objects.APIHandler())
	e.close = sync.OnceFunc(func() {
		api.Close()
		if err := errors.Join(e.records.Close(), e.objects.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(e.close)
	e.env = map[string]string{
		"LINKREEL_FIRESTORE_ENDPOINT": addr.String(), "LINKREEL_STORAGE_ENDPOINT": api.URL, "LINKREEL_LOCALCLOUD_TOKEN": token,
	}
	return e
}

// from returns the settings for moving a data directory to e.
func (e *elsewhere) from(data string) map[string]string {
	settings := on(data)
	maps.Copy(settings, e.env)
	return settings
}

// contents returns all documents and objects by name. It omits times.
func contents(t *testing.T, records *firestore.Server, objects *storage.Server) map[string]string {
	t.Helper()
	var lines bytes.Buffer
	if err := records.Export(t.Context(), &lines); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for dec := json.NewDecoder(&lines); dec.More(); {
		var d struct {
			Name   string
			Fields json.RawMessage
		}
		if err := dec.Decode(&d); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(d.Name, "/installation/move") {
			found[d.Name] = string(d.Fields)
		}
	}
	sn, err := objects.Snapshot(func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	var all []storage.Object
	err = sn.Entries(func(e storage.Entry) error {
		o, ok, err := e.Object()
		if ok && o.Name != "linkreel/owner" {
			all = append(all, o)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		f, err := sn.Open(o.Blob)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		found["object "+o.Name] = fmt.Sprintf("%s %x", o.ContentType, sum.Sum(nil))
	}
	return found
}

// diff describes the differences between two contents.
func diff(a, b map[string]string) (names []string) {
	for name, v := range a {
		if b[name] != v {
			names = append(names, fmt.Sprintf("%s: %.200s, %.200s", name, v, b[name]))
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name+" is only in the target")
		}
	}
	return names
}

// fill adds copies of the stack's links and videos, and ten objects of up to size bytes for each
// video.
func (s *Stack) fill(t *testing.T, links, objects, size int) {
	t.Helper()
	db, err := s.Firestore.Client(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	records, err := firestoredb.OpenDocuments(t.Context(), firestoredb.Config{Project: project, Endpoint: s.firestore, Token: s.cloudToken, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	for collection, n := range map[string]int{"links": links, "slugs": links, "videos": objects / 10, "videoSlugs": objects / 10} {
		some, err := db.Collection(collection).Limit(1).Documents(t.Context()).GetAll()
		if err != nil || len(some) != 1 {
			t.Fatalf("the %s collection contains %v (error %v), want a document", collection, some, err)
		}
		first, err := records.Get(t.Context(), collection+"/"+some[0].Ref.ID)
		if err != nil {
			t.Fatal(err)
		}
		var writes []*pb.Write
		for i := range n {
			name := fmt.Sprintf("%s-copy-%d", first.GetName(), i)
			writes = append(writes, &pb.Write{Operation: &pb.Write_Update{Update: &pb.Document{Name: name, Fields: first.GetFields()}}})
		}
		if err := records.Commit(t.Context(), writes...); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.NewChaCha8([32]byte{1})
	for i := range objects {
		b := make([]byte, 1+size*(i%10)/10)
		_, _ = random.Read(b) // never fails
		path := fmt.Sprintf("/upload/storage/v1/b/%s/o?uploadType=media&name=videos/vid_%d/7-1/%d.mp4", bucket, i/10, i%10)
		if put := s.storageAPI(t, "POST", path, string(b), s.cloudToken); put.StatusCode != http.StatusOK {
			t.Fatalf("store an object: %s", put.Status)
		}
	}
}

// traffic visits a link and creates new links until stop is called.
type traffic struct {
	visits, refused atomic.Int64
	failed          atomic.Pointer[string]
	mu              sync.Mutex
	made            []string // slugs of the created links
	stop            func()
}

func (s *Stack) traffic(t *testing.T, slug string) *traffic {
	t.Helper()
	w := &traffic{}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	loop := func(every time.Duration, do func(i int)) {
		group.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					do(i)
				}
			}
		})
	}
	loop(5*time.Millisecond, func(int) {
		w.visits.Add(1)
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.ShortBaseURL+"/"+slug, http.NoBody)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			text := err.Error()
			w.failed.Store(&text)
			return
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusFound {
			w.failed.Store(&resp.Status)
		}
	})
	loop(20*time.Millisecond, func(i int) {
		made := fmt.Sprintf("made-%d", i)
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.BaseURL+"/api/v1/links",
			strings.NewReader(`{"url":"https://example.com/made","slug":"`+made+`"}`))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+s.Keys["business"])
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		_ = resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusCreated:
			w.mu.Lock()
			w.made = append(w.made, made)
			w.mu.Unlock()
		case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
			w.refused.Add(1)
		case resp.StatusCode != http.StatusTooManyRequests:
			t.Errorf("creating a link during the move returned %s, want 201, 429 or 503", resp.Status)
		}
	})
	w.stop = sync.OnceFunc(func() { cancel(); group.Wait() })
	t.Cleanup(w.stop)
	return w
}

// The test moves a running stack into an empty cloud. It kills each attempt at some step, and the
// next attempt resumes. During the move, links must redirect, and the target must receive every
// acknowledged write. If LINKREEL_FULL is set, the test moves 100,000 links and 200 videos.
func TestAStackMovesThroughKills(t *testing.T) {
	t.Parallel()
	links, objects, size, kills := 1500, 40, 300<<10, 4
	if os.Getenv("LINKREEL_FULL") != "" {
		links, objects, size, kills = 100_000, 2000, 600<<10, 10
	}
	data := t.TempDir()
	s, e := up(t, data), startElsewhere(t)
	settings := e.from(data)
	own := s.Keys["business"]
	id := must(t, "id", http.MethodPost, s.BaseURL+"/api/v1/links", own, `{"url":"https://example.com/kept","slug":"kept"}`)
	must(t, "", http.MethodPost, s.BaseURL+"/api/v1/webhooks", own, `{"url":"http://127.0.0.1:65000/hook","events":["key.created"]}`)
	// The file of this video is not a video. If the file looked new in the target, the video would
	// be processed again.
	status := func(s *Stack, id string) string {
		_, text := ask(t, http.MethodGet, s.BaseURL+"/api/v1/videos/"+id, own, "")
		var v struct{ Status string }
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return v.Status
	}
	_, text := ask(t, http.MethodPost, s.BaseURL+"/api/v1/videos", own, `{"title":"No film"}`)
	var noFilm struct{ ID, UploadURL string }
	if err := json.Unmarshal([]byte(text), &noFilm); err != nil || noFilm.ID == "" {
		t.Fatalf("creating a video returned %s (%v), want an ID", text, err)
	}
	if code, text := ask(t, http.MethodPut, noFilm.UploadURL, "", strings.Repeat("no film ", 1000)); code != http.StatusOK {
		t.Fatalf("the upload returned %d %s, want 200", code, text)
	}
	eventually(t, func() string {
		if got := status(s, noFilm.ID); got != "failed" {
			return "the video should have failed, but its status is " + got
		}
		return ""
	})
	s.fill(t, links, objects, size)
	if put := s.storageAPI(t, "POST", "/upload/storage/v1/b/"+bucket+"/o?uploadType=media&name=videos/large", strings.Repeat("large ", 1<<20), s.cloudToken); put.StatusCode != http.StatusOK {
		t.Fatalf("store an object: %s", put.Status)
	}
	w := s.traffic(t, "kept")

	attempt := func(at string) (string, error) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), killedMove+"="+at)
		for name, value := range settings {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	died := 0
	for i := range kills {
		// Together, the first attempts copy about half of the data. The last one copies the rest.
		at := strconv.Itoa(1 + i*(2*links/250+objects)/kills/kills + rand.IntN(5))
		if i == kills-1 {
			at = "finish"
		}
		out, err := attempt(at)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			died++
		} else if err != nil {
			t.Fatalf("attempt %d failed: %v\n%s", i, err, out)
		}
		if i == 0 { // delete an object that may already be in the target
			if put := s.storageAPI(t, "DELETE", "/storage/v1/b/"+bucket+"/o/videos%2Fvid_0%2F7-1%2F3.mp4", "", s.cloudToken); put.StatusCode/100 != 2 {
				t.Fatalf("delete an object: %s", put.Status)
			}
		}
	}
	if died < kills {
		t.Errorf("%d attempts were killed before they finished, want %d", died, kills)
	}
	out, err := attempt("never")
	if err != nil || !strings.Contains(out, "Verified: ") {
		t.Fatalf("the last attempt returned %v, want success and a verification:\n%s", err, out)
	}
	t.Logf("%d kills, then:\n%s", died, out)

	refused := w.refused.Load()
	eventually(t, func() string {
		if w.refused.Load() == refused {
			return "no changes have been refused since the move"
		}
		return ""
	})
	w.stop()
	if text := w.failed.Load(); text != nil {
		t.Errorf("a redirect failed: %s", *text)
	}
	t.Logf("%d successful redirects, %d links created, %d requests refused", w.visits.Load(), len(w.made), w.refused.Load())
	if names := diff(contents(t, s.Firestore, s.Storage), contents(t, e.records, e.objects)); len(names) > 0 {
		t.Fatalf("%d records and objects differ between the source and the target: %.1000v", len(names), names)
	}

	// The source must remain read-only after a restart, and the same command must say that the move
	// is finished.
	down(t, s)
	s = up(t, data)
	if code, text := ask(t, http.MethodPost, s.BaseURL+"/api/v1/links", own, `{"url":"https://example.com/","slug":"late"}`); code != http.StatusServiceUnavailable || !strings.Contains(text, "UNAVAILABLE") {
		t.Errorf("creating a link after a restart returned %d %s, want 503", code, text)
	}
	if to := s.visit(t, "kept"); to != "https://example.com/kept" {
		t.Errorf("after a restart, the link redirects to %q, want https://example.com/kept", to)
	}
	var said strings.Builder
	if err := Move(t.Context(), &said, target(settings)); err != nil || !strings.Contains(said.String(), "This move is finished") {
		t.Errorf("repeating the command returned %v, want a message that the move is finished:\n%s", err, said.String())
	}

	// The target must work.
	e.close()
	secrets, err := os.ReadFile(filepath.Join(data, secretsFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.dir, secretsFile), secrets, 0o600); err != nil {
		t.Fatal(err)
	}
	moved := up(t, e.dir)
	for _, slug := range slices.Concat([]string{"kept"}, w.made[:min(3, len(w.made))], w.made[max(0, len(w.made)-3):]) {
		if to := moved.visit(t, slug); !strings.HasPrefix(to, "https://example.com/") {
			t.Errorf("in the target, the link %s redirects to %q, want its destination", slug, to)
		}
	}
	must(t, "", http.MethodPost, moved.BaseURL+"/api/v1/links", own, `{"url":"https://example.com/","slug":"new"}`)
	if got := status(moved, noFilm.ID); got != "failed" { // reading a video makes the service check for a new file
		t.Errorf("in the target, the video has status %s, want failed", got)
	}
	if code, text := ask(t, http.MethodGet, moved.BaseURL+"/api/v1/webhooks", own, ""); code != http.StatusOK || !strings.Contains(text, "65000") {
		t.Errorf("in the target, listing the webhooks returned %d %s, want 200 with the webhook", code, text)
	}

	// After the move is aborted, the source must count the clicks that it recorded during the move.
	clicks := func() string {
		_, text := ask(t, http.MethodGet, s.BaseURL+"/api/v1/links/"+id, own, "")
		return text
	}
	before := clicks()
	if err := Move(t.Context(), io.Discard, MoveOptions{Abort: true, Env: settings}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if clicks() == before {
			return "no clicks have been counted since the move was aborted: " + before
		}
		return ""
	})
	must(t, "", http.MethodPost, s.BaseURL+"/api/v1/links", own, `{"url":"https://example.com/","slug":"again"}`)
}

// The test aborts a move of a stopped stack and then moves the stack to a database with a different
// name.
func TestAStoppedStackMovesToo(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s, e := up(t, data), startElsewhere(t)
	settings := e.from(data)
	own := s.Keys["business"]
	must(t, "", http.MethodPost, s.BaseURL+"/api/v1/links", own, `{"url":"https://example.com/kept","slug":"kept"}`)
	down(t, s)
	var said strings.Builder
	wrong := MoveOptions{Project: project, Bucket: "missing", Env: settings}
	if err := Move(t.Context(), &said, wrong); err == nil {
		t.Fatal("a move into a missing bucket succeeded, want an error")
	}
	if _, err := os.Stat(filepath.Join(data, readOnlyFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the failed move left the file %s (%v), want no such file", readOnlyFile, err)
	}
	right := MoveOptions{Project: "elsewhere", Database: "second", Bucket: bucket, Env: settings}
	if err := Move(t.Context(), &said, right); err == nil || !strings.Contains(err.Error(), "linkreel move --abort") {
		t.Errorf("a move to a different target returned %v, want an error about --abort", err)
	}
	if err := Move(t.Context(), &said, MoveOptions{Abort: true, Env: settings}); err != nil {
		t.Fatal(err)
	}
	if err := Move(t.Context(), &said, right); err != nil || !strings.Contains(said.String(), "Verified: ") {
		t.Fatalf("the move returned %v, want success and a verification:\n%s", err, said.String())
	}
	moved := contents(t, e.records, e.objects)
	for _, path := range []string{"installation/database", "slugs/"} {
		name := "projects/elsewhere/databases/second/documents/" + path
		if !slices.ContainsFunc(slices.Collect(maps.Keys(moved)), func(n string) bool { return strings.HasPrefix(n, name) }) {
			t.Errorf("the target does not contain %s", name)
		}
	}
	s = up(t, data)
	if code, _ := ask(t, http.MethodPost, s.BaseURL+"/api/v1/links", own, `{"url":"https://example.com/","slug":"late"}`); code != http.StatusServiceUnavailable {
		t.Errorf("creating a link after the move returned %d, want 503", code)
	}
	began := time.Now()
	for _, path := range []string{"/api/v1/links", "/api/v1/account", "/app", "/docs"} {
		if code, text := ask(t, http.MethodGet, s.BaseURL+path, own, ""); code >= 500 {
			t.Errorf("GET %s returned %d %s, want no server error", path, code, text)
		}
	}
	t.Logf("reads took %v", time.Since(began))
	if err := Move(t.Context(), &said, MoveOptions{Abort: true, Env: settings}); err != nil {
		t.Fatal(err)
	}
	if err := Move(t.Context(), &said, right); err == nil || !strings.HasSuffix(err.Error(), "Move to a new database and a new bucket") {
		t.Errorf("a move to the target of a finished and aborted move returned %v, want an error that does not advise resuming", err)
	}
}
