package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// hardy retries a request until it gets a response, even while the process is being killed and
// restarted. It also returns the number of attempts.
func (a *tenantOf) hardy(c *caller, method, path string, body any, headers ...string) (got hardAnswer, tries int) {
	var text string
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			a.t.Error(err)
			return got, 0
		}
		text = string(b)
	}
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			a.t.Errorf("%s %s got no final response in time; the last response was %d %s", method, path, got.status, got.raw)
			return got, tries
		}
		req, err := http.NewRequestWithContext(a.t.Context(), method, c.base+path, strings.NewReader(text))
		if err != nil {
			a.t.Error(err)
			return got, tries
		}
		req.Header.Set("Authorization", "Bearer "+c.key)
		if body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := c.http.Do(req)
		if err != nil {
			tries++ // the service may have received this request
			continue
		}
		raw, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		got = hardAnswer{res.StatusCode, raw}
		switch {
		case err != nil, got.status >= 500:
			tries++
		case got.status == http.StatusTooManyRequests, got.status == http.StatusConflict && strings.Contains(string(raw), "IDEMPOTENCY_IN_PROGRESS"):
		default:
			return got, tries + 1
		}
	}
}

type hardAnswer struct {
	status int
	raw    []byte
}

func (h hardAnswer) str(field string) string {
	var m map[string]any
	_ = json.Unmarshal(h.raw, &m)
	s, _ := m[field].(string)
	return s
}

// history lists the events that one object must have, in order. Each event occurs at least once and
// at most as often as its request was sent. If the test gave up on a request, the service may or
// may not have received it, so its events occur at most once.
type history struct {
	types       []string
	least, most []int
}

// ledger records the changes that a run makes.
type ledger struct {
	mu       sync.Mutex
	objects  map[string]*history
	changes  int
	uploaded []string // videos with a file that the worker will reject
}

func (l *ledger) note(id, kind string, most int) { l.add(id, kind, 1, most) }

func (l *ledger) add(id, kind string, least, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.objects[id]
	if h == nil {
		h = &history{}
		l.objects[id] = h
	}
	h.types, h.least, h.most = append(h.types, kind), append(h.least, least), append(h.most, most)
	l.changes++
}

// The test kills the whole process (events, links, videos, auth and Redis) while it makes changes
// through many routes. Afterwards the feed must contain each change once, in order for each object,
// and a webhook must have received each event at least once. With LINKREEL_FULL there are 50 kills
// and 10,000 changes.
func TestEventsAreTheChangesOverKills(t *testing.T) {
	t.Parallel()
	kills, changes := 1, 60
	if os.Getenv("LINKREEL_FULL") != "" {
		kills, changes = 50, 10_000
	}
	var mu sync.Mutex
	received := map[string]int{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		received[r.Header.Get("webhook-id")]++
		mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(receiver.Close)

	i := install(t)
	i.env = append(i.env, "DNS_RESOLVER=127.0.0.1:9", "LINKREEL_FIRESTORE_TIMEOUT=9s")
	p, s := i.up()
	a := newTenant(t, s, "Killed")
	hook := a.want(201, "POST", "/api/v1/webhooks", map[string]any{"url": receiver.URL, "events": []string{"*"}}).str("id")
	l := &ledger{objects: map[string]*history{}}
	l.note(a.ids[1], "key.created", 1)
	l.note(hook, "webhook.created", 1)

	var next atomic.Int64
	var workers sync.WaitGroup
	for range 6 {
		workers.Go(func() {
			for n := next.Add(1); !t.Failed(); n = next.Add(1) {
				l.mu.Lock()
				enough := l.changes >= changes
				l.mu.Unlock()
				if enough {
					return
				}
				a.change(l, int(n))
			}
		})
	}
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	killed := 0
	for ; killed < kills; killed++ {
		at := func() int { l.mu.Lock(); defer l.mu.Unlock(); return l.changes }
		eventually(t, 10*time.Minute, "enough changes before the next kill", func() bool { return at() >= (killed+1)*changes/(kills+1) })
		p.kill()
		p, _ = i.up()
	}
	<-done
	for _, id := range l.uploaded {
		eventually(t, 10*time.Minute, "the worker has rejected "+id, func() bool {
			return a.surely(200, "GET", "/api/v1/videos/"+id, nil).str("status") == "failed"
		})
	}

	got := a.feed()
	seen, twice, sure := map[string][]string{}, 0, 0
	ids := map[string]bool{}
	for _, e := range got {
		seen[e.Object] = append(seen[e.Object], e.Type)
		if ids[e.ID] {
			t.Errorf("the feed has event %s twice", e.ID)
		}
		ids[e.ID] = true
	}
	for object, h := range l.objects {
		list := seen[object]
		for n := 0; n < len(h.types); {
			// Consecutive changes of the same kind cannot be distinguished. Each occurs at least
			// once, and in total they occur at most as often as their requests were sent.
			kind, least, most := h.types[n], 0, 0
			for ; n < len(h.types) && h.types[n] == kind; n++ {
				least, most = least+h.least[n], most+h.most[n]
			}
			times := 0
			for len(list) > 0 && list[0] == kind && times < most {
				list, times = list[1:], times+1
			}
			if times < least {
				t.Errorf("%s: the feed has %v, want %v", object, seen[object], h.types)
				break
			}
			twice, sure = twice+times-least, sure+least
		}
		if len(list) > 0 {
			t.Errorf("%s: the feed has %v, want at most %v", object, seen[object], h.types)
		}
	}
	for object, list := range seen {
		if l.objects[object] == nil {
			t.Errorf("%s: the feed has %v, want no events, because the test did not change it", object, list)
		}
	}
	eventually(t, 5*time.Minute, "the webhook has every event", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for id := range ids {
			if received[id] == 0 && !slices.Contains(before(got, hook), id) {
				return false
			}
		}
		return true
	})
	mu.Lock()
	defer mu.Unlock()
	again := 0
	for id, n := range received {
		again += n - 1
		if !ids[id] {
			t.Errorf("the webhook got the message %s, which is not an event in the feed", id)
		}
	}
	t.Logf("%d kills, %d changes with a response, %d without one, %d events (%d more than responses, from requests that arrived twice or got no response), %d messages resent",
		killed, sure, l.changes-sure, len(got), twice, again)
}

// before returns the events that predate the webhook.
func before(all []told, hook string) (ids []string) {
	for _, e := range all {
		if e.Object == hook {
			return ids
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// upload creates a video with a file that the worker rejects. If a kill loses the file's
// notification, the videos service's sweep finds the file.
func (a *tenantOf) upload(l *ledger, once string) {
	made, _ := a.hardy(a.caller, "POST", "/api/v1/videos", map[string]any{"title": once}, "Idempotency-Key", once)
	id := made.str("videoId")
	if made.status != 201 || id == "" {
		a.t.Errorf("POST /api/v1/videos returned %d, want 201: %s", made.status, made.raw)
		return
	}
	l.note(id, "video.created", 1)
	least := 0
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPut, made.str("uploadUrl"), strings.NewReader("no video"))
	if err != nil {
		a.t.Error(err)
		return
	}
	if res, err := a.http.Do(req); err == nil {
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			least = 1
		}
	}
	l.add(id, "video.processing", least, 1)
	l.add(id, "video.failed", least, 1)
	if least == 1 {
		l.mu.Lock()
		l.uploaded = append(l.uploaded, id)
		l.mu.Unlock()
	}
}

// change makes a few changes of one kind, selected by n.
func (a *tenantOf) change(l *ledger, n int) {
	once := fmt.Sprintf("%s-%d", a.id, n)
	create := func(path string, body map[string]any, field, kind string) string {
		got, _ := a.hardy(a.caller, "POST", path, body, "Idempotency-Key", once)
		id := got.str(field)
		if got.status != 201 || id == "" {
			a.t.Errorf("POST %s returned %d, want 201: %s", path, got.status, got.raw)
			return ""
		}
		l.note(id, kind, 1)
		return id
	}
	change := func(c *caller, method, path string, body map[string]any, id, kind string) {
		if id == "" {
			return
		}
		got, tries := a.hardy(c, method, path, body)
		// A retried delete gets 404 if the first attempt deleted the record.
		if got.status/100 != 2 && !(method == "DELETE" && got.status == 404 && tries > 1) {
			a.t.Errorf("%s %s returned %d, want success: %s", method, path, got.status, got.raw)
		}
		if method == "DELETE" {
			tries = 1
		}
		l.note(id, kind, tries)
	}
	switch n % 10 {
	case 0:
		var items []map[string]any
		for i := range 5 {
			items = append(items, map[string]any{"url": fmt.Sprintf("https://example.com/bulk/%d/%d", n, i)})
			if n%20 == 0 {
				items[i]["importedClicks"], items[i]["createdAt"] = i, 1_700_000_000_000+n
			}
		}
		got, _ := a.hardy(a.caller, "POST", "/api/v1/links/bulk", map[string]any{"urls": items}, "Idempotency-Key", once)
		var made struct {
			Results []struct{ Data struct{ ID string } }
		}
		if err := json.Unmarshal(got.raw, &made); err != nil || len(made.Results) != 5 {
			a.t.Errorf("the bulk request returned %d, want 5 results: %s", got.status, got.raw)
			return
		}
		var ids []string
		for _, r := range made.Results {
			ids = append(ids, r.Data.ID)
			l.note(r.Data.ID, "link.created", 1)
		}
		_, tries := a.hardy(a.caller, "PATCH", "/api/v1/links/bulk", map[string]any{"ids": ids, "set": map[string]any{"addTags": []string{"bulk"}}})
		for _, id := range ids {
			l.note(id, "link.updated", tries)
		}
	case 1:
		id := create("/api/v1/domains", map[string]any{"hostname": fmt.Sprintf("d%d.example.org", n)}, "id", "domain.created")
		change(a.caller, "DELETE", "/api/v1/domains/"+id, nil, id, "domain.deleted")
	case 2:
		id := create("/api/v1/videos", map[string]any{"title": "Clip"}, "videoId", "video.created")
		change(a.caller, "PATCH", "/api/v1/videos/"+id, map[string]any{"title": once}, id, "video.updated")
		change(a.caller, "PUT", "/api/v1/videos/"+id+"/access", map[string]any{"privacy": "unlisted"}, id, "video.updated")
		change(a.caller, "DELETE", "/api/v1/videos/"+id, nil, id, "video.deleted")
	case 3:
		id := create("/api/v1/invitations", map[string]any{"name": once, "role": "viewer"}, "id", "invitation.created")
		change(a.caller, "DELETE", "/api/v1/invitations/"+id, nil, id, "invitation.revoked")
	case 4:
		id := create("/api/v1/webhooks", map[string]any{"url": "https://receiver.example/", "events": []string{"key.rolled"}}, "id", "webhook.created")
		change(a.caller, "PATCH", "/api/v1/webhooks/"+id, map[string]any{"description": once}, id, "webhook.updated")
		change(a.caller, "DELETE", "/api/v1/webhooks/"+id, nil, id, "webhook.deleted")
	case 5:
		id := create("/api/v1/keys", map[string]any{"name": once}, "id", "key.created")
		change(a.caller, "DELETE", "/api/v1/keys/"+id, nil, id, "key.revoked")
	case 6:
		id := create("/api/v1/links", map[string]any{"url": "https://example.com/" + once}, "id", "link.created")
		got, tries := a.hardy(a.admin, "POST", "/admin/v1/takedowns", map[string]any{"linkId": id, "reason": once}, "Idempotency-Key", once)
		if got.status != 201 {
			a.t.Errorf("the takedown returned %d, want 201: %s", got.status, got.raw)
			return
		}
		l.note(id, "link.updated", tries)
	case 7:
		a.upload(l, once)
	default:
		id := create("/api/v1/links", map[string]any{"url": "https://example.com/" + once, "tags": []string{"one"}}, "id", "link.created")
		change(a.caller, "PATCH", "/api/v1/links/"+id, map[string]any{"title": once}, id, "link.updated")
		if n%2 == 0 {
			change(a.caller, "DELETE", "/api/v1/links/"+id, nil, id, "link.deleted")
		}
	}
}
