package redirect

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/links/internal/clicks"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/localcloud/procstat"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

const phone = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Mobile/15E148 Safari/604.1"

// numbered returns a user agent with version n.
func numbered(n int) []byte {
	return fmt.Appendf(nil, "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%09d.0 Safari/537.36", n)
}

func TestBeyondTheBudgetANewAgentIsUnknown(t *testing.T) {
	t.Parallel()
	a, now := newAgentCache(), time.Unix(1_790_000_000, 0)
	iPhone, desktop := link.Agent{Device: link.Mobile, System: link.IOS}, link.Agent{Device: link.Desktop, System: link.Windows}
	check := func(ua []byte, want link.Agent) {
		t.Helper()
		if got := a.read(ua, now); got != want {
			t.Errorf("read(%q) = %+v, want %+v", ua, got, want)
		}
	}
	check([]byte(phone), iPhone)
	for n := range agentsAtOnce - 1 {
		check(numbered(n), desktop)
	}
	next := agentsAtOnce - 1
	check(numbered(next), link.Agent{})
	check([]byte("SomeBot/1.0"), link.Agent{Robot: true})
	check([]byte(phone), iPhone)
	check(numbered(0), desktop)
	for range 3 { // an agent that was not parsed was not cached, so it is parsed now
		now = now.Add(time.Second)
		for range newAgents {
			check(numbered(next), desktop)
			next++
		}
		check(numbered(next), link.Agent{})
	}
	now = now.Add(-time.Hour) // a clock that is set back must not add to the budget
	check(numbered(next), link.Agent{})
	now = now.Add(time.Minute)
	for range agentsAtOnce {
		check(numbered(next), desktop)
		next++
	}
	check(numbered(next), link.Agent{})
}

// A client sends new agents as fast as they are parsed. The agents of real visitors, who arrive
// only occasionally, must stay cached, and memory use must stay bounded. The test is not parallel
// because it measures the heap.
func TestAFloodOfAgentsPushesOutNobodyAndTakesNoMemory(t *testing.T) {
	a, before, now := newAgentCache(), procstat.Heap(), time.Unix(1_790_000_000, 0)
	a.read([]byte(phone), now)
	for n := range 5 * agentsKept {
		if n%newAgents == 0 {
			now = now.Add(time.Second)
		}
		if got := a.read(numbered(n), now); got.System != link.Windows {
			t.Fatalf("read of new agent %d = %+v, want Windows", n, got)
		}
		if n%agentsKept == agentsKept-1 {
			if a.left.Store(0); a.read([]byte(phone), now).System != link.IOS {
				t.Fatalf("after %d new agents, the phone is no longer cached, want it kept", n)
			}
			now = now.Add(time.Second)
		}
	}
	if len(a.young) > agentsKept || len(a.old) > agentsKept {
		t.Errorf("%d young and %d old agents, want at most %d each", len(a.young), len(a.old), agentsKept)
	}
	if used := procstat.Heap() - before; used > 1<<20 {
		t.Errorf("the cache takes %d KiB, want at most 1024", used>>10)
	}
	runtime.KeepAlive(a)
}

// BenchmarkAgents measures redirects with a cached agent (warm), with new agents and an unlimited
// budget for parsing them (new), and with a flood of new agents (flood).
func BenchmarkAgents(b *testing.B) {
	for _, redis := range []bool{false, true} {
		for _, kind := range []string{"warm", "new", "flood"} {
			b.Run(fmt.Sprintf("redis=%v/%s", redis, kind), func(b *testing.B) {
				m := invalidation.NewMemory(invalidation.Options{Target: generated{}.Target, Host: generated{}.Host, Suspended: nobody, Capacity: 64 << 20})
				c := Confirmer(confirmed{})
				if redis {
					log, err := clicks.Open(clicks.Config{Redis: redisdb.Config{URL: redistest.Start(b)}, SpoolDir: b.TempDir(), Budget: time.Second}, m)
					if err != nil {
						b.Fatal(err)
					}
					ctx, cancel := context.WithCancel(context.Background())
					done := make(chan error, 1)
					go func() { done <- log.Run(ctx) }()
					b.Cleanup(func() { cancel(); <-done })
					c = log
				}
				h := New(m, c, Options{ShortBaseURL: "http://lrl.example"})
				var agent atomic.Int64
				b.ReportAllocs()
				b.SetParallelism(32)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					var ctx fasthttp.RequestCtx
					ctx.Request.SetRequestURI("/hot")
					ctx.Request.Header.SetHost("lrl.example")
					ua := numbered(0)
					begin := len(ua) - len("000000000.0 Safari/537.36")
					for pb.Next() {
						n := agent.Add(1) // also done in the warm case, so the cases only differ in their agents
						if kind != "warm" {
							strconv.AppendInt(ua[:begin], 100_000_000+n, 10)
						}
						if kind == "new" {
							h.agents.left.Store(newAgents)
						}
						ctx.Request.Header.SetUserAgentBytes(ua)
						h.Serve(&ctx)
						ctx.Response.Reset()
					}
				})
			})
		}
	}
}
