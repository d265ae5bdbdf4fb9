package events_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gcp "cloud.google.com/go/firestore"

	libevents "github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/seal"
	"github.com/linkreel/linkreel/services/events"
)

func TestTheFeed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	key, other := w.key("acc_a", identity.Free), w.key("acc_b", identity.Free)
	for i := range 5 {
		w.change("acc_a", libevents.LinkCreated, fmt.Sprint("lnk_", i), map[string]any{"id": fmt.Sprint("lnk_", i), "url": "https://e.example/?a=1&b=<2>"})
	}
	w.change("acc_a", libevents.LinkDeleted, "lnk_2", map[string]any{"id": "lnk_2"})
	w.change("acc_b", libevents.VideoReady, "vid_1", map[string]any{"id": "vid_1"})

	t.Run("all changes, newest first", func(t *testing.T) {
		p := r.feed(key, "")
		if got, want := p.objects(), "lnk_2 lnk_4 lnk_3 lnk_2 lnk_1 lnk_0"; got != want {
			t.Errorf("the feed is %q, want %q", got, want)
		}
		e := p.Data[0]
		if e.Type != "link.deleted" || e.Actor.Type != "key" || e.Actor.ID != "key_1" || e.RequestID != "req-1" || !strings.HasPrefix(e.ID, "evt_") || time.Since(time.UnixMilli(e.CreatedAt)).Abs() > time.Minute {
			t.Errorf("the event is %+v, want the link.deleted event of key_1 and req-1", e)
		}
		if got := string(p.Data[1].Data); got != `{"id":"lnk_4","url":"https://e.example/?a=1&b=<2>"}` {
			t.Errorf("the data is %s, want the link's fields unchanged", got)
		}
		if p.HasMore || p.NextCursor != nil {
			t.Errorf("hasMore is %v and nextCursor %v, want false and null", p.HasMore, p.NextCursor)
		}
	})
	t.Run("pages and filters", func(t *testing.T) {
		p := r.feed(key, "limit=2")
		q := r.feed(key, "limit=10&cursor="+*p.NextCursor)
		if got := p.objects() + " | " + q.objects(); got != "lnk_2 lnk_4 | lnk_3 lnk_2 lnk_1 lnk_0" {
			t.Errorf("the pages are %q, want all events once", got)
		}
		for query, want := range map[string]string{
			"type=link.deleted": "lnk_2", "object=lnk_2": "lnk_2 lnk_2", "object=lnk_2&type=link.created": "lnk_2",
			"type=link.deleted&type=link.created&limit=2": "lnk_2 lnk_4", "type=link.deleted&type=video.ready&object=lnk_2": "lnk_2", "object=nothing": "",
		} {
			if got := r.feed(key, query).objects(); got != want {
				t.Errorf("with %s, the feed is %q, want %q", query, got, want)
			}
		}
		if got := r.feed(other, "").objects(); got != "vid_1" {
			t.Errorf("the other account reads %q, want vid_1", got)
		}
	})
	t.Run("forwards without a gap", func(t *testing.T) {
		var got []string
		cursor := ""
		for range 10 {
			p := r.feed(key, "limit=2&after="+cursor)
			if len(p.Data) == 0 {
				break
			}
			got = append(got, p.objects())
			cursor = *p.NextCursor
		}
		if s := strings.Join(got, " "); s != "lnk_0 lnk_1 lnk_2 lnk_3 lnk_4 lnk_2" {
			t.Errorf("reading forwards returned %q, want all events in order", s)
		}
		if p := r.feed(key, "after="+r.feed(key, "").Data[2].ID); p.objects() != "lnk_4 lnk_2" {
			t.Errorf("after an event's ID, the feed is %q, want lnk_4 lnk_2", p.objects())
		}
		if p := r.feed(key, "limit=1&after="+cursor); len(p.Data) != 0 || p.NextCursor == nil || *p.NextCursor != cursor || p.HasMore {
			t.Errorf("at the end, the page is %+v, want no events and the same cursor", p)
		}
	})
	t.Run("invalid parameters", func(t *testing.T) {
		foreign := r.feed(other, "after=").NextCursor
		for query, want := range map[string]string{
			"type=link.clicked": "VALIDATION_ERROR", "limit=0": "VALIDATION_ERROR", "wait=26": "VALIDATION_ERROR", "wait=x": "VALIDATION_ERROR", "wait=-1": "VALIDATION_ERROR",
			"cursor=abc": "INVALID_CURSOR", "after=17": "INVALID_CURSOR", "after=evt_none": "INVALID_CURSOR", "after=" + *foreign: "INVALID_CURSOR",
			"after=&cursor=x": "VALIDATION_ERROR",
		} {
			if a := r.want(400, key, "GET", "/api/v1/events?"+query, nil); a.code() != want {
				t.Errorf("%s returned %s, want %s", query, a.code(), want)
			}
		}
		narrow := w.key("acc_a", identity.Enterprise, identity.LinksRead)
		if a := r.want(403, narrow, "GET", "/api/v1/events", nil); a.code() != "INSUFFICIENT_SCOPE" {
			t.Error(a.code())
		}
	})
	t.Run("after thirty days", func(t *testing.T) {
		w.forward(31 * 24 * time.Hour)
		defer w.forward(-31 * 24 * time.Hour)
		if p := r.feed(key, ""); len(p.Data) != 0 {
			t.Errorf("after thirty days, the feed is %q, want no events", p.objects())
		}
	})
	t.Run("expired pages that the database has not deleted yet", func(t *testing.T) {
		doc := w.db.Collection("feeds").Doc("acc_a")
		snap, err := doc.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		recent := snap.Data()["recent"].([]any)
		for i := range 5 { // more than fit on a page of two
			recent[i].(map[string]any)["at"] = time.Now().Add(-libevents.Kept - time.Hour)
		}
		if _, err := doc.Update(t.Context(), []gcp.Update{{Path: "recent", Value: recent}}); err != nil {
			t.Fatal(err)
		}
		if p := r.feed(key, "after=&limit=2"); p.objects() != "lnk_2" || p.HasMore {
			t.Errorf("from the beginning, the feed is %q with hasMore %v, want lnk_2 and false", p.objects(), p.HasMore)
		}
		if p := r.feed(key, "limit=2"); p.objects() != "lnk_2" || p.HasMore {
			t.Errorf("from the end, the feed is %q with hasMore %v, want lnk_2 and false", p.objects(), p.HasMore)
		}
		if p := r.feed(key, "after=&limit=2&type=video.ready"); len(p.Data) != 0 || p.HasMore {
			t.Errorf("for a type without events, the feed is %q with hasMore %v, want no events and false", p.objects(), p.HasMore)
		}
	})
}

// An event is stored in its account's feed document at first, and later in a page with many
// others. Readers of the feed must not notice the difference.
func TestALongFeedReadsAsAShortOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	key := w.key("acc_a", identity.Free)
	types := []libevents.Type{libevents.LinkCreated, libevents.LinkUpdated, libevents.LinkDeleted}
	const changes = 330
	for i := range changes {
		w.change("acc_a", types[i%3], fmt.Sprint("lnk_", i/3), map[string]int{"n": i})
		if i%110 == 0 {
			r.feed(key, "limit=1")
		}
	}
	// walk reads all results of a query, page by page.
	walk := func(query, cursor string) (objects, ids []string) {
		t.Helper()
		place := ""
		for more := true; more; {
			p := r.feed(key, "limit=23&"+query+"&"+place)
			for _, e := range p.Data {
				objects, ids = append(objects, e.Object+" "+e.Type), append(ids, e.ID)
			}
			if more = p.HasMore; more {
				place = cursor + *p.NextCursor
				query = strings.TrimPrefix(query, "after=&")
			}
		}
		return objects, ids
	}
	var all []string
	for i := range changes {
		all = append(all, fmt.Sprint("lnk_", i/3, " ", types[i%3]))
	}
	forwards, ids := walk("after=&", "after=")
	if !slices.Equal(forwards, all) {
		t.Errorf("the events read forwards are %v, want all", forwards)
	}
	backwards, _ := walk("", "cursor=")
	if slices.Reverse(backwards); !slices.Equal(backwards, all) {
		t.Errorf("the events read backwards are %v, want all", backwards)
	}
	for _, n := range []int{0, 51, 200, changes - 2} {
		if p := r.feed(key, "limit=1&after="+ids[n]); p.Data[0].ID != ids[n+1] {
			t.Errorf("after event %d, the feed is %v, want the next event", n, p.objects())
		}
	}
	for query, want := range map[string][]string{
		"type=link.deleted":                   every(all, "link.deleted"),
		"type=link.deleted&type=link.created": every(all, "link.deleted", "link.created"),
		"object=lnk_7":                        every(all, "lnk_7 "), "object=lnk_109&type=link.updated": {"lnk_109 link.updated"},
		"object=lnk_7&type=video.ready": nil, "type=video.ready": nil,
	} {
		if got, _ := walk("after=&"+query, "after="); !slices.Equal(got, want) {
			t.Errorf("%s forwards returned %v, want %v", query, got, want)
		}
		got, _ := walk(query, "cursor=")
		if slices.Reverse(got); !slices.Equal(got, want) {
			t.Errorf("%s backwards returned %v, want %v", query, got, want)
		}
	}
	if waiting, err := w.db.Collection(outbox.Collection).Documents(t.Context()).GetAll(); err != nil || len(waiting) != 0 {
		t.Errorf("%d events are still in the outbox (error %v), want 0", len(waiting), err)
	}
	pages, err := w.db.Collection("feedPages").Documents(t.Context()).GetAll()
	if err != nil || len(pages) < 2 || len(pages) > 7 {
		t.Errorf("the feed has %d pages (error %v), want 2 to 7", len(pages), err)
	}

	t.Run("after expired pages", func(t *testing.T) {
		for _, p := range pages[:len(pages)-1] {
			list := p.Data()["events"].([]any)
			old := time.Now().Add(-libevents.Kept - time.Hour)
			for _, e := range list {
				e.(map[string]any)["at"] = old
			}
			if _, err := p.Ref.Update(t.Context(), []gcp.Update{{Path: "events", Value: list}, {Path: "newest", Value: old}}); err != nil {
				t.Fatal(err)
			}
		}
		left := int(pages[len(pages)-1].Data()["first"].(int64)) - 1
		if got, _ := walk("after=&", "after="); !slices.Equal(got, all[left:]) {
			t.Errorf("the events read forwards are %v, want those that have not expired", got)
		}
		if got, _ := walk("", "cursor="); len(got) != changes-left {
			t.Errorf("the events read backwards are %v, want those that have not expired", got)
		}
	})
}

// Placing many events takes one write, and two reads in addition to reading the events. Another
// test counts the writes to the outbox.
func TestWhatPlacesCost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Replicas are not notified, so events are placed when the feed is read.
	r := w.start(func(c *events.Config) { c.Redis.URL, c.SweepEvery = "127.0.0.1:1", time.Hour })
	key := w.key("acc_a", identity.Free)
	for _, step := range []struct {
		changes       int
		writes, reads int64
	}{
		{1, 1, 2}, {1, 1, 2}, {150, 2, 151}, {1, 1, 2},
	} {
		for range step.changes {
			w.change("acc_a", libevents.LinkUpdated, "lnk_1", map[string]any{"id": "lnk_1"})
		}
		w.Firestore.ResetStats()
		if p := r.feed(key, "limit=1"); len(p.Data) != 1 {
			t.Fatalf("after %d changes, the page is %+v, want one event", step.changes, p)
		}
		got := w.Firestore.Stats()
		got.Writes -= int64(step.changes)                         // one write removes each event from the outbox
		if got.Writes > step.writes || got.Reads > step.reads+4 { // building the response also reads a few of the newest pages
			t.Errorf("%d changes took %d writes and %d reads, want at most %d writes and about %d reads", step.changes, got.Writes, got.Reads, step.writes, step.reads)
		}
	}
}

// every returns all lines that contain at least one of the words.
func every(lines []string, words ...string) (out []string) {
	for _, line := range lines {
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(line, word) }) {
			out = append(out, line)
		}
	}
	return out
}

func TestAHeldRequestEndsWithTheNextEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Hold a request at each replica: one of them places the event and must inform the other.
	r, second := w.start(), w.start()
	key := w.key("acc_a", identity.Free)
	w.change("acc_a", libevents.LinkCreated, "lnk_0", map[string]any{})
	for name, replica := range map[string]*replica{"one": r, "the other": second} {
		last := r.feed(key, "limit=1").Data[0].ID
		at := time.Now()
		answered := make(chan feedPage, 1)
		go func() { answered <- replica.feed(key, "wait=20&after="+last) }()
		time.Sleep(100 * time.Millisecond) // the request may arrive before or after the change
		w.change("acc_a", libevents.LinkUpdated, "lnk_"+name[:3], map[string]any{})
		p := <-answered
		if p.objects() != "lnk_"+name[:3] {
			t.Errorf("%s: the held request returned %q, want the new event", name, p.objects())
		}
		if took := time.Since(at); took > 10*time.Second {
			t.Errorf("%s: the request was held for %v, want at most 10 s", name, took)
		}
	}
	t.Run("a wait without a cursor ends with the next event", func(t *testing.T) {
		answered := make(chan feedPage, 1)
		go func() { answered <- r.feed(key, "wait=20") }()
		for {
			select {
			case p := <-answered:
				if len(p.Data) == 0 || p.Data[0].Type != "video.ready" {
					t.Errorf("the held request returned %+v, want the video.ready event", p)
				}
				return
			case <-time.After(200 * time.Millisecond):
				w.change("acc_a", libevents.VideoReady, "vid_1", map[string]any{})
			}
		}
	})
	t.Run("a wait without events times out", func(t *testing.T) {
		p := r.feed(key, "wait=1")
		if len(p.Data) != 0 || p.NextCursor == nil {
			t.Errorf("the response is %+v, want no events and a cursor", p)
		}
	})
	t.Run("a stopping service ends the wait", func(t *testing.T) {
		answered := make(chan feedPage, 1)
		go func() { answered <- second.feed(key, "wait=25") }()
		time.Sleep(200 * time.Millisecond)
		at := time.Now()
		second.stop()
		if p := <-answered; len(p.Data) != 0 || time.Since(at) > 10*time.Second {
			t.Errorf("the response is %+v after %v, want no events within 10 s", p, time.Since(at))
		}
	})
	t.Run("an account may hold twenty requests", func(t *testing.T) {
		var wg sync.WaitGroup
		refused := make(chan answer, 30)
		for range 25 {
			wg.Go(func() {
				if a := r.call(key, "GET", "/api/v1/events?wait=3", nil); a.status != 200 {
					refused <- a
				}
			})
		}
		wg.Wait()
		close(refused)
		n := 0
		for a := range refused {
			if n++; a.status != 429 || a.header.Get("Retry-After") == "" {
				t.Errorf("a request above the limit returned %d, want 429 with Retry-After: %s", a.status, a.body)
			}
		}
		if n != 5 {
			t.Errorf("%d of 25 requests returned 429, want 5", n)
		}
	})
}

func TestFeedSkipsNothingWhileManyWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.start(), w.start()
	key := w.key("acc_a", identity.Free)
	const writers, each = 8, 40
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range each {
				w.change("acc_a", libevents.LinkUpdated, fmt.Sprint("lnk_", i), map[string]int{"n": n})
			}
		})
	}
	last := map[string]int{}
	seen := map[string]bool{}
	cursor := ""
	total := 0
	for end := time.Now().Add(60 * time.Second); total < writers*each && time.Now().Before(end); {
		r := one
		if total%2 == 1 {
			r = two
		}
		p := r.feed(key, "limit=37&wait=5&after="+cursor)
		cursor = *p.NextCursor
		for _, e := range p.Data {
			var d struct{ N int }
			if err := json.Unmarshal(e.Data, &d); err != nil {
				t.Fatal(err)
			}
			if seen[e.ID] {
				t.Errorf("the feed returned %s twice", e.ID)
			}
			seen[e.ID] = true
			if d.N != last[e.Object] {
				t.Fatalf("%s: the feed returned change %d, want %d", e.Object, d.N, last[e.Object])
			}
			last[e.Object]++
			total++
		}
	}
	wg.Wait()
	if total != writers*each {
		t.Errorf("the feed has %d events, want %d", total, writers*each)
	}
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	key, other := w.key("acc_a", identity.Creator), w.key("acc_b", identity.Creator)
	rec := newReceiver(t, nil)

	t.Run("each operation and its event", func(t *testing.T) {
		a := r.want(201, key, "POST", "/api/v1/webhooks", map[string]any{"url": rec.URL + "/x", "events": []string{"link.created", "link.created"}, "description": "One"})
		var h hook
		a.into(t, &h)
		if !strings.HasPrefix(h.ID, "whk_") || !strings.HasPrefix(h.Secret, "whsec_") || !h.Enabled || h.Description != "One" || len(h.Events) != 1 || a.header.Get("Location") != "/api/v1/webhooks/"+h.ID {
			t.Errorf("the created webhook is %+v with the headers %v, want an enabled webhook with its ID, secret and Location", h, a.header)
		}
		for _, path := range []string{"/api/v1/webhooks", "/api/v1/webhooks/" + h.ID} {
			if b := r.want(200, key, "GET", path, nil); strings.Contains(string(b.body), "whsec_") || !strings.Contains(string(b.body), h.ID) {
				t.Errorf("%s returned %s, want the webhook without its secret", path, b.body)
			}
		}
		if b := r.want(400, key, "PATCH", "/api/v1/webhooks/"+h.ID, map[string]any{"description": nil, "event": []string{"*"}}); !strings.Contains(string(b.body), "Did you mean events?") {
			t.Errorf("a misspelt field returned %s, want a suggestion", b.body)
		}
		if b := r.want(200, key, "PATCH", "/api/v1/webhooks/"+h.ID, map[string]any{"description": nil, "events": []string{"*"}, "id": h.ID}); !strings.Contains(string(b.body), `"ignoredFields":["id"]`) {
			t.Errorf("the response is %s, want ignoredFields with id", b.body)
		}
		r.want(200, key, "PATCH", "/api/v1/webhooks/"+h.ID, map[string]any{"events": []string{"*"}}) // changes nothing
		r.want(204, key, "DELETE", "/api/v1/webhooks/"+h.ID, nil)
		r.want(404, key, "GET", "/api/v1/webhooks/"+h.ID, nil)
		p := r.feed(key, "object="+h.ID)
		var types []string
		for _, e := range p.Data {
			types = append(types, e.Type)
			if strings.Contains(string(e.Data), "whsec") || strings.Contains(string(e.Data), "sealed") {
				t.Errorf("the event is %s, want no secret in it", e.Data)
			}
			if e.Actor.ID != "key_acc_a" {
				t.Errorf("the event's actor is %+v, want key_acc_a", e.Actor)
			}
		}
		if got := strings.Join(types, " "); got != "webhook.deleted webhook.updated webhook.created" {
			t.Errorf("the events are %q, want webhook.deleted webhook.updated webhook.created", got)
		}
	})
	t.Run("invalid webhooks", func(t *testing.T) {
		h := r.hook(key, rec.URL)
		defer r.want(204, key, "DELETE", "/api/v1/webhooks/"+h.ID, nil)
		for name, body := range map[string]map[string]any{
			"no url": {"events": []string{"*"}}, "no events": {"url": rec.URL}, "empty events": {"url": rec.URL, "events": []string{}},
			"unknown event": {"url": rec.URL, "events": []string{"link.clicked"}}, "other scheme": {"url": "ftp://a.example/", "events": []string{"*"}},
			"link-local": {"url": "http://169.254.169.254/", "events": []string{"*"}}, "low port": {"url": "https://a.example:25/", "events": []string{"*"}},
			"user": {"url": "https://a:b@a.example/", "events": []string{"*"}}, "zero": {"url": "http://0.0.0.0:8080/", "events": []string{"*"}},
			"long description": {"url": rec.URL, "events": []string{"*"}, "description": strings.Repeat("x", 501)},
		} {
			if a := r.want(400, key, "POST", "/api/v1/webhooks", body); a.code() != "VALIDATION_ERROR" {
				t.Errorf("%s returned %s, want VALIDATION_ERROR", name, a.body)
			}
		}
		for _, path := range []string{"", "/deliveries", "/test", "/replay", "/roll-secret", "/deliveries/whd_x/retry"} {
			method := "POST"
			if path == "" || path == "/deliveries" {
				method = "GET"
			}
			mine := r.call(other, method, "/api/v1/webhooks/"+h.ID+path, nil)
			none := r.call(other, method, "/api/v1/webhooks/whk_none"+path, nil)
			if mine.status != 404 || none.status != 404 || mine.code() != none.code() {
				t.Errorf("%s: another account's webhook returned %d %s and a missing one %d %s, want 404 with the same code", path, mine.status, mine.code(), none.status, none.code())
			}
		}
		if a := r.want(404, key, "POST", "/api/v1/webhooks/"+h.ID+"/deliveries/whd_none/retry", nil); a.code() != "DELIVERY_NOT_FOUND" {
			t.Error(a.code())
		}
		free := w.key("acc_c", identity.Free)
		if a := r.want(403, free, "POST", "/api/v1/webhooks", map[string]any{"url": rec.URL, "events": []string{"*"}}); a.code() != "PLAN_REQUIRED" {
			t.Error(a.code())
		}
		r.want(200, free, "GET", "/api/v1/webhooks", nil)
		if a := r.want(412, key, "DELETE", "/api/v1/webhooks/"+h.ID, nil, "If-Match", `"r9"`); a.code() != "PRECONDITION_FAILED" {
			t.Error(a.code())
		}
	})
	t.Run("at most twenty despite concurrent creates", func(t *testing.T) {
		busy := w.key("acc_busy", identity.Creator)
		var wg sync.WaitGroup
		var mu sync.Mutex
		count := map[int]int{}
		for range 30 {
			wg.Go(func() {
				a := r.call(busy, "POST", "/api/v1/webhooks", map[string]any{"url": rec.URL, "events": []string{"key.rolled"}})
				mu.Lock()
				defer mu.Unlock()
				count[a.status]++
			})
		}
		wg.Wait()
		var list struct{ Data []hook }
		r.want(200, busy, "GET", "/api/v1/webhooks", nil).into(t, &list)
		if count[201] != len(list.Data) || len(list.Data) > 20 || count[201]+count[403]+count[503] != 30 {
			t.Errorf("the statuses are %v with %d webhooks, want at most 20 successes", count, len(list.Data))
		}
		for len(list.Data) < 20 {
			list.Data = append(list.Data, r.hook(busy, rec.URL, "key.rolled"))
		}
		if a := r.want(403, busy, "POST", "/api/v1/webhooks", map[string]any{"url": rec.URL, "events": []string{"*"}}); a.code() != "QUOTA_EXCEEDED" {
			t.Error(a.code())
		}
	})
	t.Run("a replay with an Idempotency-Key", func(t *testing.T) {
		k := w.key("acc_i", identity.Creator)
		body := map[string]any{"url": rec.URL, "events": []string{"*"}}
		var first, again hook
		r.want(201, k, "POST", "/api/v1/webhooks", body, "Idempotency-Key", "one").into(t, &first)
		a := r.want(201, k, "POST", "/api/v1/webhooks", body, "Idempotency-Key", "one")
		a.into(t, &again)
		if first.ID != again.ID || first.Secret != again.Secret || a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the first response is %+v and the replay %+v, want the same ID and secret", first, again)
		}
	})
}

func TestSecretsAreSealed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	key := w.key("acc_a", identity.Creator)
	rec := newReceiver(t, nil)
	h := r.hook(key, rec.URL)
	snaps, err := w.db.Collection("webhooks").Documents(t.Context()).GetAll()
	if err != nil || len(snaps) != 1 {
		t.Fatalf("the database has %d webhooks (error %v), want 1", len(snaps), err)
	}
	if text := fmt.Sprint(snaps[0].Data()); strings.Contains(text, h.Secret) || strings.Contains(text, "whsec_") {
		t.Errorf("the document is %s, want no secret in it", text)
	}
	t.Run("an old key that only decrypts", func(t *testing.T) {
		rotated := w.start(func(c *events.Config) { c.WebhookSecretKey = strings.Repeat("n", 40) + ", " + c.WebhookSecretKey })
		rotated.want(200, key, "GET", "/api/v1/webhooks/"+h.ID, nil)
		var rolled hook
		rotated.want(200, key, "POST", "/api/v1/webhooks/"+h.ID+"/roll-secret", nil).into(t, &rolled)
		only := w.start(func(c *events.Config) { c.WebhookSecretKey = strings.Repeat("n", 40) })
		only.want(200, key, "GET", "/api/v1/webhooks/"+h.ID, nil)
	})
	t.Run("a short key", func(t *testing.T) {
		cfg := w.cfg
		cfg.WebhookSecretKey = "short"
		if _, err := events.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "LINKREEL_WEBHOOK_SECRET_KEY") {
			t.Errorf("New returned %v, want an error about LINKREEL_WEBHOOK_SECRET_KEY", err)
		}
	})
}

// TestAWebhookWhoseSecretDoesNotOpen tests what happens if an operator removes a key too early.
func TestAWebhookWhoseSecretDoesNotOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key("acc_a", identity.Creator)
	rec := newReceiver(t, nil)
	before := w.start()
	h, other := before.hook(key, rec.URL, "link.created"), before.hook(key, rec.URL, "link.created")
	before.stop()
	r := w.start(func(c *events.Config) { c.WebhookSecretKey = strings.Repeat("n", 40) })
	path := "/api/v1/webhooks/" + h.ID

	t.Run("read, change and export", func(t *testing.T) {
		var list struct{ Data []hook }
		r.want(200, key, "GET", "/api/v1/webhooks", nil).into(t, &list)
		if len(list.Data) != 2 {
			t.Errorf("the list has %d webhooks, want 2", len(list.Data))
		}
		r.want(200, key, "GET", path, nil)
		r.want(200, key, "PATCH", path, map[string]any{"description": "mine"})
		var text strings.Builder
		if err := r.holder.Export(t.Context(), "acc_a", &text); err != nil || !strings.Contains(text.String(), h.ID) {
			t.Errorf("the export is %q (error %v), want the webhook in it", text.String(), err)
		}
	})
	t.Run("ten failed attempts with a reason", func(t *testing.T) {
		r.want(202, key, "POST", path+"/test", nil)
		for n := range 10 {
			var d deliveryPage
			eventually(t, fmt.Sprint("attempt ", n+1), func() bool {
				d = r.deliveries(key, h.ID, "")
				return len(d.Data) == 1 && len(d.Data[0].Attempts) == n+1
			})
			if a := d.Data[0].Attempts[n]; a.Status != nil || !strings.Contains(deref(a.Error), "Roll the secret") {
				t.Errorf("the attempt is %+v with the error %q, want no status and advice to roll the secret", a, deref(a.Error))
			}
			if n == 9 {
				if d.Data[0].Status != "failed" || d.Data[0].NextTryAt != nil {
					t.Errorf("after ten attempts, the delivery is %+v, want it failed", d.Data[0])
				}
				break
			}
			w.forward(time.UnixMilli(*d.Data[0].NextTryAt).Sub(w.now()))
		}
		// The receiver was not at fault, so the webhook must remain enabled.
		var now hook
		if r.want(200, key, "GET", path, nil).into(t, &now); !now.Enabled || len(rec.messages()) != 0 {
			t.Errorf("the webhook is %+v and got %d messages, want it enabled and 0 messages", now, len(rec.messages()))
		}
	})
	t.Run("a roll with an overlap", func(t *testing.T) {
		var rolled hook
		r.want(200, key, "POST", path+"/roll-secret", map[string]any{"overlapSeconds": 3600}).into(t, &rolled)
		r.want(202, key, "POST", path+"/test", nil)
		eventually(t, "the event is delivered", func() bool { return len(rec.messages()) == 1 })
		if err := verifiedLater(t, rolled.Secret, rec.messages()[0]); err != nil {
			t.Error(err)
		}
	})
	t.Run("no fallback to an empty secret", func(t *testing.T) {
		doc := w.db.Collection("webhooks").Doc(other.ID)
		if _, err := doc.Update(t.Context(), []gcp.Update{{Path: "secrets", Value: []any{map[string]any{"until": nil}}}}); err != nil {
			t.Fatal(err)
		}
		r.want(200, key, "PATCH", "/api/v1/webhooks/"+other.ID, map[string]any{"description": "empty"})
		r.want(202, key, "POST", "/api/v1/webhooks/"+other.ID+"/test", nil)
		eventually(t, "an attempt is recorded", func() bool {
			d := r.deliveries(key, other.ID, "")
			return len(d.Data) == 1 && len(d.Data[0].Attempts) == 1 && strings.Contains(deref(d.Data[0].Attempts[0].Error), "Roll the secret")
		})
	})
	t.Run("delete", func(t *testing.T) {
		r.want(204, key, "DELETE", "/api/v1/webhooks/"+other.ID, nil)
	})
}

// This test rotates the key as operations.md describes. The sweep reseals all secrets that the
// old key sealed. Afterwards, the old key is no longer needed.
func TestTheWebhookSecretKeyIsRotated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key("acc_a", identity.Creator)
	rec := newReceiver(t, nil)
	next := strings.Repeat("n", 40)
	keys := func(text string) func(*events.Config) {
		return func(c *events.Config) { c.WebhookSecretKey = text }
	}
	id := func(text string) string {
		k, err := seal.New("linkreel webhook secret 1", text)
		if err != nil {
			t.Fatal(err)
		}
		return k.ID()
	}
	r := w.start()
	var hooks []hook
	for range 3 {
		hooks = append(hooks, r.hook(key, rec.URL, "link.created"))
	}
	var rolled hook
	r.want(200, key, "POST", "/api/v1/webhooks/"+hooks[1].ID+"/roll-secret", map[string]any{"overlapSeconds": 3600}).into(t, &rolled)
	r.stop()
	sealedBy := func(want string) bool {
		snaps, err := w.db.Collection("webhooks").Documents(t.Context()).GetAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, snap := range snaps {
			if ids, _ := snap.Data()["keyIds"].([]any); len(ids) != 1 || ids[0] != want {
				return false
			}
			for _, s := range snap.Data()["secrets"].([]any) {
				if seal.IDOf(s.(map[string]any)["sealed"].([]byte)) != want {
					return false
				}
			}
		}
		return true
	}
	both := w.start(keys(next + "," + w.cfg.WebhookSecretKey))
	eventually(t, "the new key seals all secrets", func() bool { return sealedBy(id(next)) })
	if p := both.feed(key, "type=webhook.updated"); len(p.Data) != 1 {
		t.Errorf("the feed has %d webhook.updated events, want only the roll's", len(p.Data))
	}
	// Another replica still seals with the old key. Later rounds must find that secret too.
	former := w.start(keys(w.cfg.WebhookSecretKey))
	late := former.hook(key, rec.URL, "link.created")
	eventually(t, "the new key also seals the latest secret", func() bool { return sealedBy(id(next)) })
	both.stop()
	former.stop() // it can no longer decrypt the secrets and must not claim the deliveries below

	alone := w.start(keys(next))
	for _, h := range append(hooks, late) {
		n := len(rec.messages())
		alone.want(202, key, "POST", "/api/v1/webhooks/"+h.ID+"/test", nil)
		eventually(t, "the event is delivered", func() bool { return len(rec.messages()) > n })
		if err := verified(t, h.Secret, rec.messages()[n]); err != nil {
			t.Errorf("verifying the message to webhook %s returned %v, want nil", h.ID, err)
		}
	}
}

var _ = http.StatusOK
