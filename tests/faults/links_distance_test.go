package faults_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/procstat"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

// The tests add delay to the connection to Redis. 1.3 ms corresponds to a different zone, 5 ms to a
// nearby region, and 50 ms to a different continent. A delay of 2 s is longer than a redirect ever
// waits. By default the tests use one delay and a low rate.

func TestADistantRedis(t *testing.T) {
	t.Parallel()
	for _, far := range []struct {
		distance time.Duration
		back     time.Duration // maximum time from the end of a stall to normal operation; 0 means no bound
		stale    time.Duration // maximum time from the response to a change until the last stale response
	}{
		{1300 * time.Microsecond, 2 * time.Second, 0},
		{5 * time.Millisecond, 2 * time.Second, 0},
		{50 * time.Millisecond, 0, 5 * time.Second},
		{2 * time.Second, 0, 5 * time.Second},
	}[:authFull(1, 4)] {
		t.Run(far.distance.String(), func(t *testing.T) {
			b := newLinksWorld(t)
			by := redistest.NewProxy(t, b.redis.Addr())
			by.Delay(far.distance)
			b.env = []string{"LINKREEL_REDIS_URL=redis://" + by.Addr()}
			a, z := b.start(true), b.start(false)
			slugs := linksSlugs("far", 40)
			ids := a.create(slugs...)
			load := startLinksLoad(authFull(200, 4000), slugs[20:], z) // links that do not change
			defer load.stop()
			reached := ping(t, by.Addr())

			// Change links through one replica and visit them through the other, without a pause.
			stop := make(chan struct{})
			var wg sync.WaitGroup
			end := sync.OnceFunc(func() { close(stop); wg.Wait() })
			defer end()
			var changes, old, visits atomic.Int64
			var oldest time.Duration
			wg.Go(func() {
				c := &linksConn{addr: z.redirect}
				defer c.close()
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					slug, version := slugs[i%20], i/20+1
					target := fmt.Sprintf("https://example.com/%s/%d", slug, version)
					if _, _, err := c.visit("/" + slug); err == nil {
						visits.Add(1)
					}
					if p := a.call("PATCH", "/api/v1/links/"+ids[slug], fmt.Sprintf(`{"url":%q}`, target)); p.status != 200 {
						if p.status == 503 {
							continue // Redis is too slow for rate limits and idempotency, so the API returns 503
						}
						t.Errorf("the PATCH returned %d, want 200: %s %v", p.status, p.body, p.err)
						return
					}
					changes.Add(1)
					answered := time.Now()
					for {
						asked := time.Since(answered)
						_, got, err := c.visit("/" + slug)
						if err == nil {
							visits.Add(1)
						}
						if err == nil && got == target {
							break
						}
						if err == nil {
							old.Add(1)
							oldest = max(oldest, asked)
						}
						if asked > 10*time.Second {
							t.Errorf("%s still redirects to %q (%v) %v after its change", slug, got, err, asked)
							return
						}
					}
				}
			})
			time.Sleep(time.Duration(authFull(1, 10)) * time.Second)

			var slowest time.Duration
			for range authFull(1, 3) {
				resume := reached.pause()
				must(t, b.redis.Signal(syscall.SIGSTOP))
				time.Sleep(200 * time.Millisecond)
				must(t, b.redis.Signal(syscall.SIGCONT))
				ended := time.Now()
				if far.back > 0 {
					authUntil(t, "clicks are written to Redis again", 20*time.Second, func() bool { return z.metric("linkreel_clicks_spooling") == 0 })
					slowest = max(slowest, time.Since(ended))
				}
				resume()
				time.Sleep(time.Second)
			}
			end()
			load.stop()
			if far.distance >= time.Second {
				by.Delay(time.Millisecond) // until then Redis counts as unreachable, and clicks cannot be counted
			}
			t.Logf("Redis with a delay of %v: %d changes and %d stale responses, the last one %v after the change; normal operation %v after a stall of 200 ms", far.distance, changes.Load(), old.Load(), oldest, slowest)
			// The bounds assume that Redis responds within 50 ms. They do not apply on a machine
			// that is too busy for that.
			if slow := reached.slowest(); far.stale == 0 && slow > 50*time.Millisecond {
				t.Logf("Redis took up to %v to respond, so stale responses are allowed for 5 s, and the time until normal operation is not checked", slow)
				far.stale, far.back = 5*time.Second, 0
			}
			if oldest > far.stale || far.stale == 0 && old.Load() > 0 {
				t.Errorf("there were %d stale responses, the last one %v after the change, want at most %v", old.Load(), oldest, far.stale)
			}
			if far.back > 0 && slowest > far.back {
				t.Errorf("normal operation resumed %v after the stall, want at most %v", slowest, far.back)
			}
			load.balance(t, a, nil)
			if others := load.others(); len(others) > 0 {
				t.Errorf("visits got unexpected responses: %v", others)
			}
			var counted int64
			authUntil(t, "the visits between changes are counted", 30*time.Second, func() bool {
				now, err := a.clicks()
				if err != nil {
					return false
				}
				counted = 0
				for _, s := range slugs[:20] {
					counted += now[s]
				}
				return counted >= visits.Load()
			})
			if counted != visits.Load() {
				t.Errorf("there were %d visits between changes, but %d were counted", visits.Load(), counted)
			}
		})
	}
}

// pings measures Redis's response times during a test.
type pings struct {
	pauses atomic.Int64 // odd while paused
	most   atomic.Int64
}

// ping calls Redis at addr repeatedly until the test ends.
func ping(t *testing.T, addr string) *pings {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	p, done := &pings{}, make(chan struct{})
	t.Cleanup(func() { _ = conn.Close(); <-done })
	go func() {
		defer close(done)
		answers := bufio.NewReader(conn)
		for {
			pauses, asked := p.pauses.Load(), time.Now()
			if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
				return
			}
			if _, err := answers.ReadString('\n'); err != nil {
				return
			}
			if took := time.Since(asked); pauses%2 == 0 && p.pauses.Load() == pauses {
				p.most.Store(max(p.most.Load(), int64(took)))
			}
			time.Sleep(5 * time.Millisecond) // limits the rate
		}
	}()
	return p
}

// pause discards the measurements until the caller calls resume.
func (p *pings) pause() (resume func()) {
	p.pauses.Add(1)
	return func() { p.pauses.Add(1) }
}

func (p *pings) slowest() time.Duration { return time.Duration(p.most.Load()) }

// Clicks fill Redis while Firestore is unreachable. When Firestore is back, Redis must drain
// without help.
func TestARedisFilledWhileFirestoreWasAwayDrains(t *testing.T) {
	t.Parallel()
	b := newLinksWorld(t)
	p := b.start(true)
	slugs := linksSlugs("full", authFull(50, 400))
	p.create(slugs...)
	c := &linksConn{addr: p.redirect}
	defer c.close()
	before := map[string]int64{}
	for _, s := range slugs {
		if status, _, err := c.visit("/" + s); status != 302 {
			t.Fatalf("filling the cache returned %d, want 302; %v", status, err)
		}
		before[s] = 1
	}
	authUntil(t, "the first visits are counted", time.Minute, func() bool {
		now, err := p.clicks()
		return err == nil && sum(now) == int64(len(slugs))
	})
	var used int
	for line := range strings.Lines(redistest.Do(t, b.redis.Addr(), "INFO", "memory")) {
		if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
			var err error
			used, err = strconv.Atoi(strings.TrimSpace(text))
			must(t, err)
		}
	}
	b.firestoreBy.Stop()
	redistest.Do(t, b.redis.Addr(), "CONFIG", "SET", "maxmemory", strconv.Itoa(used+256<<10))
	load := startLinksLoad(authFull(300, 2000), slugs, p)
	defer load.stop()
	authUntil(t, "Redis is full", 60*time.Second, func() bool {
		return strings.HasPrefix(redistest.Do(t, b.redis.Addr(), "SET", "full", "?"), "OOM") && p.metric("linkreel_clicks_spooled_total") > 0
	})
	away := func() bool { return p.metric(`linkreel_dependency_away{dependency="Redis"}`) == 1 }
	authUntil(t, "the metric shows that Redis rejects writes", 20*time.Second, away)
	time.Sleep(time.Duration(authFull(1, 15)) * time.Second)
	must(t, b.firestoreBy.Start())
	back := time.Now()
	authUntil(t, "clicks are written only to Redis again", 60*time.Second, func() bool {
		spooled := p.metric("linkreel_clicks_spooled_total")
		time.Sleep(200 * time.Millisecond)
		return p.metric("linkreel_clicks_spooled_total") == spooled
	})
	t.Logf("clicks were written only to Redis again %v after Firestore came back", time.Since(back))
	authUntil(t, "the metric shows that Redis accepts writes", 30*time.Second, func() bool { return !away() })
	load.stop()
	load.balance(t, p, before)
	if others := load.others(); len(others) > 0 {
		t.Errorf("visits got unexpected responses: %v", others)
	}
}

// The test clicks 300,000 distinct links within a minute while Firestore is unreachable. When
// Firestore is back, all clicks must be counted. Firestore rejects requests larger than 10 MiB, so
// the flusher must stay below that. The process must stay within the chart's memory limit.
func TestManyDistinctLinksAreAllCounted(t *testing.T) {
	t.Parallel()
	b := newLinksWorld(t)
	podMemory := linksPodMemory(t)
	b.env = []string{fmt.Sprint("GOMEMLIMIT=", podMemory/10*9)} // the service sets this in a container
	p := b.start(true)
	slugs := linksSlugs("many", authFull(3_000, 300_000))
	p.create(slugs...)
	// Requests that do not count as clicks first load every link into memory. The test does not
	// measure how fast this machine reads links from Firestore.
	if failed := p.each("HEAD", slugs); failed > 0 {
		t.Fatalf("filling the cache: %d requests failed, want 0", failed)
	}
	b.firestoreBy.Stop()
	started := time.Now()
	failed := p.each("GET", slugs)
	clicked := time.Since(started)
	must(t, b.firestoreBy.Start())
	back := time.Now()
	var once, other int
	authUntil(t, "all clicks are counted", 10*time.Minute, func() bool {
		now, err := p.clicks()
		if err != nil {
			return false
		}
		once, other = 0, 0
		for _, s := range slugs {
			switch now[s] {
			case 0:
			case 1:
				once++
			default:
				other++
			}
		}
		return once+other == len(slugs)-failed
	})
	t.Logf("%d links clicked in %v; %v after Firestore came back, %d were counted once and %d more than once (late responses, so the visits were retried), %.0f clicks set aside, refused commits %v",
		len(slugs), clicked, time.Since(back), once, other, p.metric("linkreel_clicks_set_aside_total"), b.firestore.Stats().Errors)
	if peak, err := procstat.Peak(p.cmd.Process.Pid); err != nil || peak > podMemory {
		t.Errorf("the process used %d MiB, want at most the chart's %d; %v", peak>>20, podMemory>>20, err)
	} else {
		t.Logf("the process used at most %d MiB", peak>>20)
	}
	if aside, lost := p.metric("linkreel_clicks_set_aside_total"), p.metric("linkreel_clicks_lost_total"); failed > 0 || aside > 0 || lost > 0 {
		t.Errorf("%d visits failed, %v clicks were set aside and %v were lost, want 0", failed, aside, lost)
	}
	if clicked > time.Minute {
		t.Errorf("the visits took %v, want at most a minute", clicked)
	}
}

// each requests every slug once, 32 at a time. It returns the number of failures.
func (p *linksProcess) each(method string, slugs []string) (failed int) {
	const visitors = 32
	var n atomic.Int64
	var wg sync.WaitGroup
	for v := range visitors {
		wg.Go(func() {
			c := &linksConn{addr: p.redirect}
			defer c.close()
			for i := v; i < len(slugs); i += visitors {
				status, _, err := c.ask(method, "/"+slugs[i])
				for tries := 0; (err != nil || status != 302) && tries < 20; tries++ { // a machine with two processors may load a link slowly
					time.Sleep(100 * time.Millisecond)
					status, _, err = c.ask(method, "/"+slugs[i])
				}
				if err != nil || status != 302 {
					n.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return int(n.Load())
}
