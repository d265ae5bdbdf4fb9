package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
)

// everyScope lists all scopes that a key can have.
var everyScope = []string{
	"links:read", "links:write", "videos:read", "videos:write", "domains:read", "domains:write", "keys:read", "keys:write",
	"events:read", "webhooks:read", "webhooks:write", "members:read", "members:write", "account:write",
}

// tenantOf is an account under test.
type tenantOf struct {
	*caller
	admin *caller
	id    string
	short []string // its short URLs
	ids   []string // ids of its records, which must not appear in any stored data after the erasure
}

// operatorOf returns a client for the operator's API.
func operatorOf(t testing.TB, s stackFile) *caller {
	return &caller{t: t, base: s.AdminURL, key: s.AdminToken, http: &http.Client{Timeout: 60 * time.Second}}
}

func newTenant(t testing.TB, s stackFile, name string) *tenantOf {
	t.Helper()
	admin := operatorOf(t, s)
	id := admin.want(201, "POST", "/admin/v1/accounts", map[string]any{"name": name, "plan": "enterprise"}).str("id")
	made := admin.want(201, "POST", "/admin/v1/accounts/"+id+"/keys", map[string]any{"name": "all", "scopes": everyScope}, "Idempotency-Key", "key of "+name)
	c := &caller{t: t, base: s.BaseURL, key: made.str("key"), http: &http.Client{Timeout: 60 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	return &tenantOf{caller: c, admin: admin, id: id, ids: []string{id, made.str("id"), idempotency.Owner(id)}}
}

// note records the ID from a field in the response.
func (a *tenantOf) note(made *answer, field string) *answer {
	a.t.Helper()
	if made.str(field) == "" {
		a.t.Fatalf("the response has no %s: %s", field, made.raw)
	}
	a.ids = append(a.ids, made.str(field))
	return made
}

// surely is like want, but it retries a call if a very busy machine responds with 503.
func (a *tenantOf) surely(status int, method, path string, body any, headers ...string) *answer {
	a.t.Helper()
	got, _ := a.hardy(a.caller, method, path, body, headers...)
	if got.status != status {
		a.t.Fatalf("%s %s = %d %s, want %d", method, path, got.status, got.raw, status)
	}
	out := &answer{status: got.status, raw: got.raw}
	_ = json.Unmarshal(got.raw, &out.json)
	return out
}

// fill gives the account records of every kind.
func (a *tenantOf) fill(links, videos, domains int, receiver string) {
	t := a.t
	t.Helper()
	tag := "tag-" + a.id[4:12]
	one := a.note(a.surely(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/" + a.id, "tags": []string{tag}, "externalId": "ext-" + a.id}, "Idempotency-Key", "l-"+a.id), "id")
	a.short = append(a.short, one.str("shortUrl"))
	hook := a.note(a.surely(201, "POST", "/api/v1/webhooks", map[string]any{"url": receiver, "events": []string{"*"}}, "Idempotency-Key", "w-"+a.id), "id")
	for done := 0; done < links; {
		var items []map[string]any
		for ; len(items) < 100 && done < links; done++ {
			items = append(items, map[string]any{"url": fmt.Sprintf("https://example.com/%s/%d", a.id, done), "title": "bulk", "tags": []string{tag}})
		}
		made := a.surely(201, "POST", "/api/v1/links/bulk", map[string]any{"urls": items}, "Idempotency-Key", fmt.Sprintf("b-%s-%d", a.id, done))
		for _, r := range regexp.MustCompile(`"shortUrl":"([^"]+)"`).FindAllSubmatch(made.raw, -1) {
			a.short = append(a.short, string(r[1]))
		}
	}
	for i := range domains {
		a.note(a.surely(201, "POST", "/api/v1/domains", map[string]any{"hostname": fmt.Sprintf("d%d.%s.example.com", i, strings.ToLower(a.id[4:]))}, "Idempotency-Key", fmt.Sprintf("d-%s-%d", a.id, i)), "id")
	}
	if videos > 0 {
		file := clip(t, 1, "160x120")
		for i := range videos {
			v := a.note(a.surely(201, "POST", "/api/v1/videos", map[string]any{"title": a.id, "tags": []string{tag}, "externalId": fmt.Sprint(a.id, i)}, "Idempotency-Key", fmt.Sprintf("v-%s-%d", a.id, i)), "videoId")
			if got := put(t, v.str("uploadUrl"), file, "video/mp4"); got.status != 200 {
				t.Fatalf("the upload returned %d, want 200", got.status)
			}
		}
	}
	// Create members: an owner who signs in, an invitation, and a program that requests a key.
	link := a.admin.want(201, "POST", "/admin/v1/accounts/"+a.id+"/sign-in-links", map[string]any{"name": "Owner of " + a.id, "role": "owner"})
	a.note(link, "memberId")
	b := newPlainBrowser(t)
	opened := b.get(link.str("url"))
	u, err := url.Parse(link.str("url"))
	check(t, err)
	req, err := http.NewRequestWithContext(t.Context(), "POST", a.base+"/app/sign-in", strings.NewReader(url.Values{"csrf": {opened.csrf()}, "link": {u.Query().Get("link")}}.Encode()))
	check(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if home := b.do(req); home.status != 200 || home.url.Path != "/app" {
		t.Fatalf("after signing in, the status is %d at %s, want 200 at /app", home.status, home.url)
	}
	a.note(a.want(201, "POST", "/api/v1/invitations", map[string]any{"name": "Guest of " + a.id, "role": "viewer"}, "Idempotency-Key", "i-"+a.id), "id")
	a.admin.want(201, "POST", "/admin/v1/takedowns", map[string]any{"linkId": one.str("id"), "reason": "for " + a.id})
	// Create pending deliveries and a replay.
	a.want(202, "POST", "/api/v1/webhooks/"+hook.str("id")+"/replay", map[string]any{"from": 0, "to": time.Now().UnixMilli()})
	for _, address := range a.short[1:min(len(a.short), 20)] {
		if got := visit(t, address, "Referer", "https://from."+strings.ToLower(a.id[4:])+".example/"); got.status != 302 {
			t.Errorf("the visit returned %d, want 302", got.status)
		}
	}
}

// The test erases one of two accounts that have records of every kind, and then reads all stored
// data. With LINKREEL_FULL, the account has 10,000 links and 50 videos, and the test kills the
// process five times during the erasure. That takes half an hour because the service keeps looking
// for late files from an erased account for 15 minutes.
func TestErasureLeavesNothing(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(receiver.Close)
	if os.Getenv("LINKREEL_FULL") != "" {
		eraseWhole(t, receiver.URL)
		return
	}
	if stack.Firestore == nil {
		return // the test cannot read the stored data of a remote stack
	}
	s := stackFile{BaseURL: stack.BaseURL, ShortBaseURL: stack.ShortBaseURL, AdminURL: stack.AdminURL, AdminToken: stack.AdminToken}
	gone, neighbour := newTenant(t, s, "Erased"), newTenant(t, s, "Neighbour")
	gone.fill(30, 0, 1, receiver.URL)
	neighbour.fill(5, 0, 1, receiver.URL)
	gone.exports()
	var dump bytes.Buffer
	check(t, stack.Firestore.Export(t.Context(), &dump))
	before := naming(t, dump.Bytes(), neighbour.id)

	gone.erase(func() {})
	gone.refuses(t)
	dump.Reset()
	check(t, stack.Firestore.Export(t.Context(), &dump))
	gone.left(t, dump.Bytes())
	rdb := redis.NewClient(&redis.Options{Addr: stack.Redis.Addr()})
	defer rdb.Close()
	// An account's hash contains a version but no data. It expires five minutes after the last
	// request.
	key := "lr:acct:{" + gone.id + "}"
	if life := rdb.PTTL(t.Context(), key).Val(); life > 5*time.Minute {
		t.Errorf("Redis keeps %s for %v, want at most 5 minutes", key, life)
	}
	check(t, rdb.Del(t.Context(), key).Err())
	gone.leftInRedis(t, rdb)
	if after := naming(t, dump.Bytes(), neighbour.id); len(after) < len(before) {
		t.Errorf("the neighbour has %d documents after the erasure, want at least %d", len(after), len(before))
	}
	neighbour.want(200, "GET", "/api/v1/account", nil)
	if got := visit(t, neighbour.short[1]); got.status != 302 {
		t.Errorf("the neighbour's link returned %d, want 302", got.status)
	}
}

// exports downloads all data and checks that it contains records of each type.
func (a *tenantOf) exports() {
	a.t.Helper()
	types := map[string]int{}
	got := a.want(200, "GET", "/api/v1/account/export", nil)
	for line := range bytes.Lines(got.raw) {
		var l struct {
			Type string
			Data json.RawMessage
		}
		if err := json.Unmarshal(line, &l); err != nil {
			a.t.Fatalf("cannot parse the export line %s: %v", line, err)
		}
		types[l.Type]++
	}
	for _, want := range []string{"account", "key", "member", "invitation", "domain", "link", "webhook", "event"} {
		if types[want] == 0 {
			a.t.Errorf("the export has no records of type %s, only of %v", want, types)
		}
	}
	for _, secret := range []string{a.key, "whsec_", "lr_live_", "lr_sess_"} {
		if bytes.Contains(got.raw, []byte(secret)) && secret != "lr_live_" { // exports show a key's prefix
			a.t.Errorf("the export contains a secret: %s", secret[:8])
		}
	}
}

// erase suspends and erases the account, and waits until the operator's API no longer returns it.
// While waiting, it calls meanwhile repeatedly.
func (a *tenantOf) erase(meanwhile func()) {
	t := a.t
	t.Helper()
	path := "/admin/v1/accounts/" + a.id
	a.admin.want(200, "PATCH", path, map[string]any{"suspended": true})
	if got := visit(t, a.short[1]); got.status != 410 {
		t.Errorf("a short URL of the suspended account returned %d, want 410", got.status)
	}
	a.admin.want(202, "DELETE", path, nil)
	eventually(t, time.Hour, "the account no longer exists", func() bool {
		meanwhile()
		return a.admin.do("GET", path, nil).status == 404
	})
}

// refuses checks that the account's URLs and keys no longer work.
func (a *tenantOf) refuses(t testing.TB) {
	t.Helper()
	if got := a.do("GET", "/api/v1/account", nil); got.status != 401 {
		t.Errorf("a request with the erased account's key returned %d, want 401", got.status)
	}
	for _, address := range a.short[:min(len(a.short), 50)] {
		var got *answer
		// The visits to the erased URLs may have used up this network's limit for unknown URLs.
		// Wait until the network can visit such URLs again.
		eventually(t, 5*time.Minute, "the network can visit unknown URLs again", func() bool {
			got = visit(t, address)
			return got.status != 429
		})
		if got.status != 404 && got.status != 410 {
			t.Errorf("%s returned %d, want 404 or 410", address, got.status)
		}
	}
}

// naming returns the documents that contain id, by path.
func naming(t testing.TB, dump []byte, id string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for line := range bytes.Lines(dump) {
		if bytes.Contains(line, []byte(id)) {
			var d struct{ Name string }
			check(t, json.Unmarshal(line, &d))
			_, path, _ := strings.Cut(d.Name, "/documents/")
			found[path] = string(line)
		}
	}
	return found
}

// left reports each document that contains an ID of the account or its records. Only the tombstone
// may remain, with the account's ID and the time.
func (a *tenantOf) left(t testing.TB, dump []byte) {
	t.Helper()
	stays := map[string]bool{}
	for _, collection := range []string{"tombstones", "linkAccounts", "videoAccounts", "eventAccounts"} {
		stays[collection+"/"+a.id] = true
	}
	if len(naming(t, dump, a.id)) == 0 {
		t.Error("the erased account has no tombstone")
	}
	for _, id := range a.ids {
		for path, text := range naming(t, dump, id) {
			if !stays[path] && !heldFor30Days(t, path, text) && !awaitsLateUploads(t, path, text) {
				t.Errorf("a document still contains %s: %s", id, text)
			}
		}
	}
}

// awaitsLateUploads reports whether a document is the tombstone for a video with an upload URL that
// has not expired. It contains only the object's name and times.
func awaitsLateUploads(t testing.TB, path, text string) bool {
	t.Helper()
	var d struct{ Fields map[string]any }
	check(t, json.Unmarshal([]byte(text), &d))
	return strings.HasPrefix(path, "videoPurges/") && slices.Equal(slices.Sorted(maps.Keys(d.Fields)), []string{"bucket", "dueAt", "late", "since", "until"})
}

// heldFor30Days reports whether a document reserves the slug of a deleted link. Other accounts
// cannot use the slug for 30 days.
func heldFor30Days(t testing.TB, path, text string) bool {
	t.Helper()
	var d struct {
		Fields struct {
			ReleasedUntil struct{ TimestampValue time.Time }
			LinkID        struct{ StringValue string }
			Takedown      any
		}
	}
	check(t, json.Unmarshal([]byte(text), &d))
	until := time.Until(d.Fields.ReleasedUntil.TimestampValue)
	return strings.HasPrefix(path, "slugs/") && d.Fields.LinkID.StringValue == "" && d.Fields.Takedown == nil && until > 29*24*time.Hour && until < 31*24*time.Hour
}

// leftInRedis checks every key and value. The logs of changed names and clicks may still contain
// names because they are limited by size and not by age.
func (a *tenantOf) leftInRedis(t testing.TB, rdb *redis.Client) {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*").Result()
	check(t, err)
	for _, key := range keys {
		text, err := rdb.Dump(t.Context(), key).Result()
		if err != nil {
			continue // the key has expired since the scan
		}
		for _, id := range a.ids {
			if strings.Contains(key, id) || strings.Contains(text, id) && !strings.HasSuffix(key, ":inv") && !strings.HasSuffix(key, ":clicks") {
				t.Errorf("Redis still contains %s in key %s", id, key)
			}
		}
	}
}

// eraseWhole runs the long form of the test against a separate process.
func eraseWhole(t *testing.T, receiver string) {
	i := install(t)
	i.env = append(i.env, "DNS_RESOLVER=127.0.0.1:9", "LINKREEL_FIRESTORE_TIMEOUT=9s")
	p, s := i.up()
	gone, neighbour := newTenant(t, s, "Erased"), newTenant(t, s, "Neighbour")
	gone.fill(10_000, 50, 3, receiver)
	neighbour.fill(100, 2, 1, receiver)
	eventually(t, 20*time.Minute, "the videos are ready", func() bool {
		return !bytes.Contains(gone.want(200, "GET", "/api/v1/videos", nil).raw, []byte(`"status":"processing"`))
	})
	gone.exports()

	// Visitors send requests during the erasure.
	ctx, stop := context.WithCancel(t.Context())
	var visitors sync.WaitGroup
	for range 4 {
		visitors.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, "GET", gone.short[rand.IntN(len(gone.short))], nil)
				if err != nil {
					return
				}
				res, err := http.DefaultTransport.RoundTrip(req)
				if err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	kills, last := 0, time.Now()
	began := time.Now()
	gone.erase(func() {
		if kills < 5 && time.Since(last) > 3*time.Second {
			p.kill()
			p, _ = i.up()
			kills, last = kills+1, time.Now()
		}
	})
	stop()
	visitors.Wait()
	took := time.Since(began)
	if took > time.Hour {
		t.Errorf("the erasure took %v, want at most 1 h", took)
	}
	gone.refuses(t)
	neighbour.want(200, "GET", "/api/v1/account", nil)
	check(t, p.cmd.Process.Signal(syscall.SIGTERM))
	<-p.done

	data := filepath.Join(i.dir, ".local", "data")
	server, err := firestore.Open(firestore.Options{Path: filepath.Join(data, "firestore.db"), TTLInterval: -1})
	check(t, err)
	defer server.Close()
	var dump bytes.Buffer
	check(t, server.Export(t.Context(), &dump))
	gone.left(t, dump.Bytes())
	if n := len(naming(t, dump.Bytes(), neighbour.id)); n < 100 {
		t.Errorf("the neighbour has %d documents after the erasure, want at least 100", n)
	}
	// Objects are stored as files. Only the neighbour's two videos may remain.
	var size int64
	check(t, filepath.WalkDir(filepath.Join(data, "objects", "data"), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			info, err := e.Info()
			if err == nil {
				size += info.Size()
			}
			return err
		}
		return err
	}))
	videos := slices.Collect(maps.Keys(naming(t, dump.Bytes(), neighbour.id)))
	t.Logf("erased in %v with %d kills; %d bytes of objects and %d of the neighbour's documents remain", took, kills, size, len(videos))
	if size > 10<<20 {
		t.Errorf("%d bytes of objects remain, want at most 10 MiB", size)
	}
	rs, err := redisproc.Start(t.Context(), redisproc.Options{Dir: filepath.Join(data, "redis")})
	check(t, err)
	defer func() { _ = rs.Stop() }()
	rdb := redis.NewClient(&redis.Options{Addr: rs.Addr()})
	defer rdb.Close()
	check(t, rdb.Del(t.Context(), "lr:acct:{"+gone.id+"}").Err()) // without this, the key expires only after five minutes
	gone.leftInRedis(t, rdb)
}
