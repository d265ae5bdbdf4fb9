package links_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

// visits requests a path n times and returns the number of redirects. A 503 with Retry-After is
// retried. All other responses must be 410.
func (r *replica) visits(path string, n int) (led int) {
	r.t.Helper()
	for range n {
		var v answer
		eventually(r.t, "the visit gets 302 or 410", func() bool {
			v = r.visit(path)
			return v.status != 503 || v.header.Get("Retry-After") == ""
		})
		switch v.status {
		case 302:
			led++
		case 410:
		default:
			r.t.Fatalf("visit: %v, want 302 or 410", v)
		}
	}
	return led
}

func (r *replica) shows(key, id string) (status string, clicks int) {
	a := r.api(key, "GET", "/api/v1/links/"+id, nil)
	n, _ := a.json["clicks"].(float64)
	return a.str("status"), int(n)
}

// places returns the number of [link.Places] records.
func (c *world) places(t testing.TB) int {
	t.Helper()
	found, err := c.Client(t).Collection("clickPlaces").Documents(t.Context()).GetAll()
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

func TestALinkLeadsOnAsManyVisitsAsItMay(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	a, b := c.replica(t), c.replica(t)
	id := a.create(key, map[string]any{"url": "https://example.com/", "slug": "ten", "maxClicks": 10}).str("id")
	if led := a.visits("/ten", 4) + b.visits("/ten", 4); led != 8 {
		t.Errorf("%d of 8 visits were redirected, want 8", led)
	}
	if status, _ := a.shows(key, id); status != "active" {
		t.Errorf("status with two slots left = %s, want active", status)
	}
	if led := b.visits("/ten", 5); led != 2 {
		t.Errorf("%d visits were redirected, want the last 2 slots used", led)
	}
	if led := a.visits("/ten", 3); led != 0 {
		t.Errorf("%d visits over the limit were redirected, want 0", led)
	}
	if status, _ := a.shows(key, id); status != "exhausted" {
		t.Errorf("status = %s, want exhausted", status)
	}
	eventually(t, "10 clicks are shown", func() bool { _, n := a.shows(key, id); return n == 10 })
	why := a.api(key, "GET", "/api/v1/links/"+id+"/explain", nil)
	if why.json["status"] != 410.0 || !strings.Contains(why.str("why"), "used up") {
		t.Errorf("explain: %v, want 410 because the limit is used up", why)
	}
	list := a.api(key, "GET", "/api/v1/links?slug=ten", nil).json["data"].([]any)[0].(map[string]any)
	if list["status"] != "exhausted" || list["maxClicks"] != 10.0 {
		t.Errorf("list item = %v, want exhausted with maxClicks 10", list)
	}
	if v := a.api(key, "PATCH", "/api/v1/links/"+id, map[string]any{"expiredUrl": "https://example.com/over"}); v.status != 200 {
		t.Fatal(v)
	}
	if v := b.visit("/ten"); v.status != 302 || v.header.Get("Location") != "https://example.com/over" {
		t.Errorf("visit to an exhausted link with expiredUrl: %v, want 302 to it", v)
	}
}

func TestALimitThatChangesCountsAllClicks(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	a, b := c.replica(t), c.replica(t)
	id := a.create(key, map[string]any{"url": "https://example.com/", "slug": "s", "maxClicks": 3}).str("id")
	set := func(limit any) {
		t.Helper()
		if v := b.api(key, "PATCH", "/api/v1/links/"+id, map[string]any{"maxClicks": limit}); v.status != 200 {
			t.Fatal(v)
		}
	}
	is := func(want string) {
		t.Helper()
		if got, _ := a.shows(key, id); got != want {
			t.Errorf("status = %s, want %s", got, want)
		}
	}
	lead := func(n, want int) {
		t.Helper()
		if led := a.visits("/s", n); led != want {
			t.Errorf("%d of %d visits were redirected, want %d", led, n, want)
		}
	}
	lead(5, 3)
	set(5)
	is("active")
	lead(1, 1)
	set(4)
	is("exhausted")
	lead(2, 0)
	set(2)
	is("exhausted")
	set(6)
	is("active")
	lead(4, 2)
	set(nil)
	is("active")
	lead(4, 4)
	if n := c.places(t); n != 0 {
		t.Errorf("got %d slot records for a link without a limit, want 0", n)
	}
	// There have been ten clicks by now, but the most recent ones have not been counted yet.
	set(12)
	lead(6, 2)
	is("exhausted")
	eventually(t, "12 clicks are shown", func() bool { _, n := a.shows(key, id); return n == 12 })
	set(nil)
	set(12)
	is("exhausted")
	lead(1, 0)
}

// Two clients change the limit while both replicas receive visits. In the end, the number of
// redirects must equal the last limit.
func TestEditsOfTheLimitRaceWithVisits(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	replicas := []*replica{c.replica(t), c.replica(t)}
	id := replicas[0].create(key, map[string]any{"url": "https://example.com/", "slug": "s", "maxClicks": 5}).str("id")
	set := func(r *replica, limit int) {
		if v := r.api(key, "PATCH", "/api/v1/links/"+id, map[string]any{"maxClicks": limit}); v.status != 200 {
			t.Errorf("set the limit to %d: %v, want 200", limit, v)
		}
	}
	var led atomic.Int64
	var edits, visits sync.WaitGroup
	stop := make(chan struct{})
	for i := range 16 {
		visits.Go(func() {
			for {
				switch v := replicas[i%2].visit("/s"); v.status {
				case 302:
					led.Add(1)
				case 410:
					select {
					case <-stop:
						return
					default:
					}
				case 503:
				default:
					t.Errorf("visit: %v, want 302, 410 or 503", v)
				}
				time.Sleep(pause)
			}
		})
	}
	for i, r := range replicas {
		edits.Go(func() {
			for n := range 15 {
				set(r, 5+(7*n+3*i)%30)
			}
		})
	}
	edits.Wait()
	if n := led.Load(); n > 34 {
		t.Errorf("%d visits were redirected, want at most 34, the highest limit", n)
	}
	set(replicas[0], 60)
	eventually(t, "the last limit is reached", func() bool { return led.Load() >= 60 })
	close(stop)
	visits.Wait()
	if n := led.Load(); n != 60 {
		t.Errorf("%d visits were redirected, want 60", n)
	}
	eventually(t, "60 clicks are shown", func() bool { status, n := replicas[1].shows(key, id); return n == 60 && status == "exhausted" })
}

// Clicks made before the limit was set are still in the spool of a replica that lost its connection
// to Redis.
func TestALimitWaitsForClicksThatNobodyHasCounted(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	a := c.replica(t)
	line := newEdge(t, c.redis)
	cut := c.replica(t, func(cfg *links.Config) { cfg.Redis.URL = line.addr })
	id := a.create(key, map[string]any{"url": "https://example.com/", "slug": "s"}).str("id")
	eventually(t, "both replicas are registered", func() bool {
		return redistest.Do(t, c.redis, "HLEN", "{lr:links}:producers") == "2"
	})
	if led := cut.visits("/s", 3); led != 3 {
		t.Fatalf("%d visits were redirected, want 3", led)
	}
	line.kill()
	if led := cut.visits("/s", 4); led != 4 {
		t.Fatalf("%d visits were redirected without Redis, want 4", led)
	}
	if v := a.api(key, "PATCH", "/api/v1/links/"+id, map[string]any{"maxClicks": 9}); v.status != 200 {
		t.Fatal(v)
	}
	for range 3 {
		c.forward(time.Second)
		if v := a.visit("/s"); v.status != 503 || v.header.Get("Retry-After") == "" {
			t.Fatalf("visit while clicks are in a spool: %v, want 503 with Retry-After", v)
		}
	}
	line.lead(c.redis)
	if led := a.visits("/s", 5); led != 2 {
		t.Errorf("%d visits were redirected, want the remaining 2", led)
	}
}

func TestVisitsThatDoNotCountTakeNoPlaceAndSeeNoDestination(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	r := c.replica(t)
	soon := c.now().Add(time.Hour)
	r.create(key, map[string]any{
		"url": "https://secret.example/", "slug": "one", "maxClicks": 1, "startsAt": soon.UnixMilli(), "ogTitle": "A title",
	})
	silent := map[string]func() answer{
		"crawler":      func() answer { return r.visit("/one", "User-Agent", "Twitterbot/1.0") },
		"robot":        func() answer { return r.visit("/one", "User-Agent", "somebot/2") },
		"prefetch":     func() answer { return r.visit("/one", "Sec-Purpose", "prefetch") },
		"HEAD":         func() answer { return r.do("redirect", "HEAD", shortBase+"/one", nil, "User-Agent", windows) },
		"preview page": func() answer { return r.visit("/one+") },
	}
	get := func(when string, status int) {
		t.Helper()
		for name, visit := range silent {
			v := visit()
			if v.status != status || v.header.Get("Location") != "" || strings.Contains(v.text, "secret.example") ||
				strings.Contains(v.text, "A title") || status == 200 && !strings.Contains(v.header.Get("Cache-Control"), "no-store") {
				t.Errorf("%s, %s: %v %v, want %d without link data", name, when, v, v.header, status)
			}
		}
	}
	get("before the start", 404)
	c.forward(2 * time.Hour)
	get("while active", 200)
	if led := r.visits("/one", 2); led != 1 {
		t.Errorf("%d visits were redirected, want 1", led)
	}
	get("when exhausted", 410)
}

func TestOnlyTheRightPasswordTakesAPlace(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	r := c.replica(t)
	r.create(key, map[string]any{"url": "https://example.com/", "slug": "both", "password": "the right one", "maxClicks": 2})
	for _, v := range []struct {
		give   string
		status int
	}{{"", 200}, {"wrong", 403}, {"the right one", 303}, {"", 200}, {"the right one", 303}, {"the right one", 410}, {"", 410}} {
		got := r.visit("/both")
		if v.give != "" {
			got = r.give("/both", v.give)
		}
		if got.status != v.status {
			t.Errorf("password %q: %v, want %d", v.give, got, v.status)
		}
	}
}

func TestPlacesGoWithTheirLink(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	r := c.replica(t)
	body := map[string]any{"url": "https://example.com/", "slug": "again", "maxClicks": 2}
	for range 2 {
		id := r.create(key, body).str("id")
		if led := r.visits("/again", 4); led != 2 {
			t.Errorf("%d visits were redirected, want 2", led)
		}
		if v := r.api(key, "DELETE", "/api/v1/links/"+id, nil); v.status != 204 {
			t.Fatal(v)
		}
		if n := c.places(t); n != 0 {
			t.Errorf("got %d slot records after the delete, want 0", n)
		}
	}
	r.create(key, body)
	auth := r.holder()
	eventually(t, "erased", func() bool {
		_ = auth.SetState(t.Context(), "acc_a", tenant.Standing{State: tenant.Deleting, Version: 2})
		c.forward(time.Minute)
		done, err := auth.Erased(t.Context(), "acc_a")
		return done && err == nil
	})
	if n := c.places(t); n != 0 {
		t.Errorf("got %d slot records for an erased account, want 0", n)
	}
}

func TestATakedownKeepsThePlaces(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	r := c.replica(t)
	auth := r.holder()
	id := r.create(key, map[string]any{"url": "https://example.com/", "slug": "down", "maxClicks": 2}).str("id")
	if led := r.visits("/down", 1); led != 1 {
		t.Fatalf("%d visits were redirected, want 1", led)
	}
	for _, left := range []int{1, 0} {
		down, err := auth.TakeDown(t.Context(), tenant.Order{ID: fmt.Sprint("tkd_", left), Target: tenant.Target{ID: id}, Reason: "r", At: c.now()})
		if err != nil {
			t.Fatal(err)
		}
		if led := r.visits("/down", 2); led != 0 {
			t.Errorf("%d visits to a link that is taken down were redirected, want 0", led)
		}
		if err := auth.Lift(t.Context(), down); err != nil {
			t.Fatal(err)
		}
		if v := r.api(key, "PATCH", "/api/v1/links/"+id, map[string]any{"title": fmt.Sprint("edited ", left)}); v.status != 200 {
			t.Fatal(v)
		}
		if led := r.visits("/down", 2); led != left {
			t.Errorf("%d visits after the takedown was lifted were redirected, want %d", led, left)
		}
	}
}

func TestALinkWithoutALimitNeedsNoPlace(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	r := c.replica(t, func(cfg *links.Config) { cfg.Flush = false })
	r.create(key, map[string]any{"url": "https://example.com/", "slug": "plain"})
	id := r.create(key, map[string]any{"url": "https://example.com/", "slug": "one", "maxClicks": 1}).str("id")
	r.visits("/plain", 1)
	r.visits("/one", 2)
	r.visits("/one", 1)
	before := c.Firestore.Stats()
	for range 20 {
		r.visits("/plain", 1)
		if led := r.visits("/one", 1); led != 0 {
			t.Fatalf("%d visits over the limit were redirected, want 0", led)
		}
	}
	after := c.Firestore.Stats()
	if after.Calls["Commit"] != before.Calls["Commit"] || after.Reads != before.Reads {
		t.Errorf("calls to Firestore after cached visits to %s = %v, want %v", id, after.Calls, before.Calls)
	}
}

// A commit succeeds but its response is lost. No process dies. The visits that share this commit
// fail, and later visits get their slots.
func TestPlacesOfLostAnswersAreFound(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	r := c.replica(t, func(cfg *links.Config) { cfg.Flush = false })
	r.create(key, map[string]any{"url": "https://example.com/", "slug": "s", "maxClicks": 5})
	r.visits("/s", 1)
	remove := c.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Code: codes.Unavailable, LoseAnswer: true, Times: 1})
	defer remove()
	if v := r.visit("/s"); v.status != 503 || v.header.Get("Retry-After") == "" {
		t.Errorf("visit with an uncertain slot: %v, want 503 with Retry-After", v)
	}
	if led := r.visits("/s", 10); led != 4 {
		t.Errorf("%d visits were redirected, want 4", led)
	}
}

// home runs a replica that can be killed. Killing it closes its connections to Firestore and Redis,
// and its visitors do not get a response.
type home struct {
	mu           sync.Mutex
	r            *replica
	cloud, redis *edge
	ctx          context.Context
	kill         context.CancelFunc
	spool        string
	world        *world
	slowed       *redistest.Proxy
	flying       atomic.Int64
	led          *atomic.Int64 // redirects from all replicas
}

func (h *home) start(t *testing.T) {
	t.Helper()
	cloud, redis := newEdge(t, h.world.Endpoint), newEdge(t, h.slowed.Addr())
	r := h.world.replica(t, func(cfg *links.Config) {
		cfg.Firestore.Endpoint, cfg.Redis.URL, cfg.SpoolDir, cfg.ClickBudget = cloud.addr, redis.addr, h.spool, 100*time.Millisecond
	})
	ctx, kill := context.WithCancel(context.Background())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.r, h.cloud, h.redis, h.ctx, h.kill = r, cloud, redis, ctx, kill
}

// die kills the replica, starts its successor, and returns the number of visits that were in
// flight.
func (h *home) die(t *testing.T) (flying int64) {
	t.Helper()
	h.mu.Lock()
	old, cloud, redis, kill := h.r, h.cloud, h.redis, h.kill
	flying = h.flying.Load()
	h.mu.Unlock()
	cloud.kill()
	redis.kill()
	kill()
	old.stop()
	h.start(t)
	return flying
}

// visit visits the limited link and returns the status, or 0 if there is no response.
func (h *home) visit() int {
	h.mu.Lock()
	r, ctx := h.r, h.ctx
	h.flying.Add(1)
	h.mu.Unlock()
	defer h.flying.Add(-1)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, shortBase+"/limited", nil)
	if err != nil {
		return 0
	}
	req.Header.Set("User-Agent", windows)
	res, err := r.clients["redirect"].Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body)
	if res.StatusCode == 302 {
		h.led.Add(1)
	}
	return res.StatusCode
}

// pause is the interval between two visits by the same visitor.
const pause = 5 * time.Millisecond

func flood(t *testing.T, limit, visitors, kills int) {
	t.Helper()
	c := newWorld(t)
	server := redistest.Server(t)
	c.redis = server.Addr()
	slowed := redistest.NewProxy(t, c.redis)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	owner := c.replica(t)
	id := owner.create(key, map[string]any{"url": "https://example.com/", "slug": "limited", "maxClicks": limit}).str("id")
	owner.create(key, map[string]any{"url": "https://example.com/", "slug": "beside"})
	homes, led := make([]*home, 3), new(atomic.Int64)
	for i := range homes {
		homes[i] = &home{spool: t.TempDir(), world: c, slowed: slowed, led: led}
		homes[i].start(t)
	}
	var lost atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range visitors {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			for {
				switch status := homes[r.IntN(len(homes))].visit(); status {
				case 0, 302, 503:
				case 410:
					select {
					case <-stop:
						return
					default:
					}
				default:
					t.Errorf("visit: status %d, want 302, 410, 503 or no response", status)
				}
				time.Sleep(pause) // paces the visitor; it does not wait for a condition
			}
		})
	}
	for i := range kills {
		// Spread the kills evenly over the visits.
		eventually(t, "more visits are redirected", func() bool { return int(led.Load()) >= i*limit/(kills+1) || homes[0].visit() == 410 })
		switch i % 5 {
		case 1:
			if err := server.Kill(); err != nil {
				t.Error(err)
			}
			if err := server.Restart(t.Context()); err != nil {
				t.Error(err)
			}
		case 2:
			redistest.Do(t, c.redis, "FLUSHALL")
		case 3:
			slowed.Delay(150 * time.Millisecond)
		default:
			lost.Add(homes[i%3].die(t))
			slowed.Delay(0)
		}
	}
	slowed.Delay(0)
	eventually(t, "every replica returns 410", func() bool {
		for _, h := range homes {
			if h.visit() != 410 {
				return false
			}
		}
		return true
	})
	close(stop)
	wg.Wait()
	n := int(led.Load())
	t.Logf("redirected %d of %d visits, %d in flight at the kills", n, limit, lost.Load())
	if n > limit || n < limit-int(lost.Load()) {
		t.Errorf("%d visits were redirected, want %d to %d", n, limit-int(lost.Load()), limit)
	}
	if status, _ := owner.shows(key, id); status != "exhausted" {
		t.Errorf("status = %s, want exhausted", status)
	}
	// If Redis is emptied while a replica is killed, that replica's clicks can be lost. If a kill
	// prevents a response, its click is still counted, so there can be more clicks than redirects.
	eventually(t, "the clicks are shown", func() bool { _, shown := owner.shows(key, id); return shown == n || kills > 0 && shown <= limit })
	if _, shown := owner.shows(key, id); shown > limit {
		t.Errorf("got %d clicks, want at most %d", shown, limit)
	}
	if led := owner.visits("/beside", 3); led != 3 {
		t.Errorf("%d of 3 visits to another link were redirected, want 3", led)
	}
}

func TestNoVisitTooMany(t *testing.T) {
	t.Parallel()
	limits, visitors, kills := []int{1, 10, 100}, 64, 6
	if os.Getenv("LINKREEL_FULL") != "" {
		limits, visitors, kills = []int{1, 10, 1000}, 256, 20
	}
	for _, limit := range limits {
		t.Run(fmt.Sprint(limit, " without kills"), func(t *testing.T) { t.Parallel(); flood(t, limit, visitors, 0) })
		t.Run(fmt.Sprint(limit, " with kills"), func(t *testing.T) { t.Parallel(); flood(t, limit, visitors, kills) })
	}
}
