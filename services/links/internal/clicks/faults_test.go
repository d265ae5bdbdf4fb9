package clicks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

func (p process) confirm(t testing.TB, n int, id string) {
	t.Helper()
	for range n {
		if out := p.Confirm(&good{}, click(id)); !out.Counted || out.Again {
			t.Fatalf("Confirm = %+v, want a counted click", out)
		}
	}
}

func (p process) spooled() bool {
	for _, l := range p.lanes {
		l.state.Lock()
		empty := l.spool.empty()
		l.state.Unlock()
		if !empty {
			return true
		}
	}
	return false
}

func TestAFullRedisConfirmsAnswersAndDrainsByItself(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	p.confirm(t, 10, "l")
	// Another client fills Redis.
	redistest.Do(t, addr, "CONFIG", "SET", "maxmemory", "1mb")
	if got := redistest.Do(t, addr, "SET", "x", "y"); !strings.HasPrefix(got, "OOM") {
		t.Fatalf("SET on a full Redis = %s, want OOM", got)
	}
	p.confirm(t, 20, "l")
	if !p.Synced() {
		t.Error("Synced() = false while Redis is full, want true")
	}
	answer := p.resolve(t, "k")
	p.Announce(t.Context(), link.SlugKey("", "k"))
	if out := p.Confirm(answer, nil); !out.Again {
		t.Errorf("Confirm after an announcement on a full Redis = %+v, want it superseded", out)
	}
	f := NewFlusher(patient(t, addr), 0, b, nil)
	if err := f.Cycle(t.Context()); err != nil || b.of("l") != 10 {
		t.Fatalf("clicks counted while Redis is full = %d, %v; want 10", b.of("l"), err)
	}
	redistest.Do(t, addr, "CONFIG", "SET", "maxmemory", "0") // counting has freed memory, and now the limit is removed
	eventually(t, "the spool is drained", func() bool { return !p.spooled() })
	_ = f.Cycle(t.Context())
	if b.of("l") != 30 {
		t.Errorf("counted %d clicks, want 30", b.of("l"))
	}
}

// The spools hold many times more clicks than will fit in Redis because other clients have nearly
// filled it.
func TestARedisWithLittleLeftTakesClicksInSmallPieces(t *testing.T) {
	t.Parallel()
	addr, dir := redistest.Start(t), t.TempDir()
	spoolDir := func(c *Config) { c.SpoolDir = dir }
	p, b := start(t, addr, spoolDir), newBook()
	p.confirm(t, 1, "l")
	redistest.Do(t, addr, "CONFIG", "SET", "maxmemory", "1mb")
	long := strings.Repeat("l", 2000)
	p.confirm(t, 300, long)
	dead := start(t, addr, spoolDir)
	dead.confirm(t, 300, long)
	dead.stop()
	var used int
	for line := range strings.Lines(redistest.Do(t, addr, "INFO", "memory")) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			used, _ = strconv.Atoi(text)
		}
	}
	redistest.Do(t, addr, "CONFIG", "SET", "maxmemory", strconv.Itoa(used+200<<10))
	f := NewFlusher(patient(t, addr), 0, b, nil)
	eventually(t, "all clicks are counted", func() bool {
		if err := f.Cycle(t.Context()); err != nil {
			t.Fatal(err)
		}
		return b.of(long) == 600
	})
}

func TestTheClickLogIsBoundedAndPushesBack(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr, func(c *Config) { c.Bytes = 2000 }), newBook()
	p.confirm(t, 200, "l")
	size, err := strconv.Atoi(redistest.Do(t, addr, "HGET", invalidation.HeadKey(0), "c"))
	if err != nil || size > 2500 || size < 1500 {
		t.Errorf("the log is %d bytes long, %v; want about 2000", size, err)
	}
	f := NewFlusher(patient(t, addr), 0, b, nil)
	eventually(t, "all clicks are counted", func() bool {
		if err := f.Cycle(t.Context()); err != nil {
			t.Fatal(err)
		}
		return b.of("l") == 200
	})
	if got := redistest.Do(t, addr, "HGET", invalidation.HeadKey(0), "c"); got != "0" {
		t.Errorf("size of an empty log = %s bytes, want 0", got)
	}
}

// The backlog metric must cover the whole backlog, not only the part that one cycle reads, because
// an alert uses it.
func TestTheBacklogIsMeteredBeyondWhatACycleReads(t *testing.T) {
	t.Parallel()
	const part, waiting = 61, readMax + 2*readPage // not used by any other test because the whole process shares its metrics
	client := patient(t, redistest.Start(t))
	pipe := client.Pipeline()
	for range waiting {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: streamKey(part), Values: []string{"c", ""}})
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := NewFlusher(client, part, newBook(), nil).Cycle(t.Context()); err != nil {
		t.Fatal(err)
	}
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []float64
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if l := m.GetLabel(); f.GetName() == "linkreel_clicks_backlog_batches" && l[0].GetValue() == strconv.Itoa(part) {
				got = append(got, m.GetGauge().GetValue())
			}
		}
	}
	if len(got) != 1 || got[0] != waiting {
		t.Errorf("backlog metrics = %v batches, want %d", got, waiting)
	}
}

func TestAFlusherThatLostItsLeaseMetersNothing(t *testing.T) {
	t.Parallel()
	const part = 62 // not used by any other test because the whole process shares its metrics
	client := patient(t, redistest.Start(t))
	metered := func() (series int) {
		families, err := prometheus.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if l := m.GetLabel(); f.GetName() == "linkreel_clicks_backlog_batches" && l[0].GetValue() == strconv.Itoa(part) {
					series++
				}
			}
		}
		return series
	}
	f := NewFlusher(client, part, newBook(), nil)
	if err := f.Cycle(t.Context()); err != nil || metered() != 1 {
		t.Errorf("series while the flusher has the lease = %d, %v; want 1", metered(), err)
	}
	if err := client.Set(t.Context(), flusherKey(part), "another", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if err := f.Cycle(t.Context()); err != nil || metered() != 0 {
		t.Errorf("series after another flusher took the lease = %d, %v; want 0", metered(), err)
	}
}

func TestAStallIsOverSoonAndLosesNothing(t *testing.T) {
	t.Parallel()
	for _, distance := range []time.Duration{1300 * time.Microsecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		t.Run(distance.String(), func(t *testing.T) {
			t.Parallel()
			stalls(t, distance)
		})
	}
}

// stalls makes a distant Redis stall three times, at a load of about 4,000 visits per second. Under
// this load, the spool grows during each call that drains it.
func stalls(t *testing.T, distance time.Duration) {
	t.Helper()
	addr := redistest.Start(t)
	by := redistest.NewProxy(t, addr)
	by.Delay(distance)
	p, b := start(t, by.Addr(), func(c *Config) { c.Budget = 50 * time.Millisecond }), newBook()
	stop, visits := make(chan struct{}), new(atomic.Int64)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if out := p.Confirm(&good{}, click("l")); out.Counted {
					visits.Add(1)
				}
				time.Sleep(15 * time.Millisecond) // about 4,000 per second
			}
		})
	}
	for round := range 3 {
		eventually(t, "clicks are sent to Redis", p.Synced)
		end := by.Stall()
		eventually(t, "the stall is detected", func() bool { return !p.Synced() })
		time.Sleep(200 * time.Millisecond)
		end()
		ended := time.Now()
		eventually(t, "the process uses Redis again", p.Synced)
		eventually(t, "the spool is empty", func() bool { return !p.spooled() })
		if took := time.Since(ended); took > 2*time.Second {
			t.Errorf("round %d: recovered after %v, want at most 2s", round, took)
		} else {
			t.Logf("round %d: recovered after %v", round, took)
		}
	}
	close(stop)
	wg.Wait()
	eventually(t, "the spool is empty", func() bool { return !p.spooled() })
	flush(t, addr, b)
	if n := b.of("l"); n != visits.Load() {
		t.Errorf("counted %d clicks, want %d", n, visits.Load())
	}
}

func TestAnnounceIsHeardFromAProcessWhoseClicksAreTooSlow(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	by := redistest.NewProxy(t, addr)
	by.Delay(60 * time.Millisecond)
	far, near := start(t, by.Addr(), func(c *Config) { c.Budget = 5 * time.Millisecond }), start(t, addr)
	far.Confirm(&good{}, click("l"))
	if far.Synced() {
		t.Fatal("Synced() = true for the distant process, want spool mode")
	}
	for near.Confirm(near.resolve(t, "other"), nil).Again { // the first call looks up the position in the log
	}
	for i := range 20 {
		slug := fmt.Sprint("k", i)
		answer := near.resolve(t, slug)
		far.Announce(t.Context(), link.SlugKey("", slug))
		if out := near.Confirm(answer, nil); !out.Again {
			t.Fatalf("Confirm after announcement %d from the distant process = %+v, want it superseded", i, out)
		}
	}
}

// A Redis that takes longer to answer than the pause between two probes must still get the clicks.
func TestAVerySlowRedisGetsTheClicksOfTheSpool(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	by := redistest.NewProxy(t, addr)
	by.Delay(300 * time.Millisecond) // a round trip takes 0.6 s
	p, b := start(t, by.Addr(), func(c *Config) { c.Budget = 50 * time.Millisecond }), newBook()
	for range 20 {
		if out := p.Confirm(&good{}, click("l")); !out.Counted {
			t.Fatalf("Confirm = %+v, want the click in the spool", out)
		}
	}
	if !p.lanes[0].tellSpooling(true) { // true: the metric shows it already
		t.Error("tellSpooling returned false with clicks in the spool, want true")
	}
	eventually(t, "the clicks are counted while Redis is slow", func() bool {
		flush(t, addr, b)
		return b.of("l") == 20
	})
	if p.Synced() {
		t.Error("Synced() = true, want a Redis that is too slow for redirects")
	}
}

func TestAnEmptiedRedisAndALateAnswerLoseNoClick(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	by := redistest.NewProxy(t, addr)
	p, b := start(t, by.Addr(), func(c *Config) { c.Budget = 100 * time.Millisecond }), newBook()
	p.confirm(t, 50, "l")
	for range 3 {
		end := by.Stall()
		empty(t, addr)
		p.Confirm(&good{}, click("l")) // Redis answers this call and the calls that resend batches too late
		end()
		eventually(t, "the process uses Redis again", p.Synced)
	}
	p.confirm(t, 3, "l")
	eventually(t, "the spool is empty", func() bool { return !p.spooled() })
	// If Redis held clicks from the spool when it was emptied, the process notices that within a
	// second and sends them again.
	eventually(t, "56 clicks are counted", func() bool {
		flush(t, addr, b)
		return b.of("l") >= 56
	})
	if n := b.of("l"); n != 56 {
		t.Errorf("counted %d clicks, want 56", n)
	}
}

func TestAnIdleProcessSendsAgainWhatRedisLost(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	p.confirm(t, 5, "l")
	empty(t, addr)
	eventually(t, "the lost clicks are sent again", func() bool {
		flush(t, addr, b)
		return b.of("l") == 5
	})
}

// rolledBack returns a function that resets a server to its current state, as if the server had
// lost the end of its append-only file.
func rolledBack(t *testing.T, s interface {
	Kill() error
	Restart(context.Context) error
}, dir string) func() {
	t.Helper()
	saved := t.TempDir()
	if err := os.CopyFS(filepath.Join(saved, "aof"), os.DirFS(filepath.Join(dir, "appendonlydir"))); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.RemoveAll(filepath.Join(dir, "appendonlydir")), os.CopyFS(filepath.Join(dir, "appendonlydir"), os.DirFS(filepath.Join(saved, "aof")))); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAServerThatLostItsEndIsFoundOutByEveryReplica(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	redistest.Do(t, server.Addr(), "CONFIG", "SET", "appendfsync", "always")
	writer, idle, busy := start(t, server.Addr()), start(t, server.Addr()), start(t, server.Addr())
	for _, p := range []process{idle, busy} {
		for p.Confirm(p.resolve(t, "other"), nil).Again {
		}
	}
	back := rolledBack(t, server, server.Dir())
	answers := map[string]*invalidation.Answer{}
	for i := range 3 {
		answers[fmt.Sprint("k", i)] = idle.resolve(t, fmt.Sprint("k", i))
	}
	for slug := range answers {
		writer.Announce(t.Context(), link.SlugKey("", slug))
	}
	busy.Confirm(&good{}, nil)
	heard := busy.lanes[0].follower.At().Number
	back()
	eventually(t, "all processes use Redis again", func() bool { return idle.Synced() && busy.Synced() && writer.Synced() })
	for slug, a := range answers {
		if out := idle.Confirm(a, nil); !out.Again {
			t.Errorf("Confirm for %s after its announcement was lost = %+v, want it superseded", slug, out)
		}
	}
	writer.Announce(t.Context(), link.SlugKey("", "new"))
	busy.Confirm(&good{}, nil)
	if n := busy.lanes[0].follower.At().Number; n <= heard {
		t.Errorf("number after the loss = %[2]d, want more than %[1]d", heard, n)
	}
}

func TestTheLogOfChangesIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, sleeper := start(t, addr), start(t, addr)
	for sleeper.Confirm(sleeper.resolve(t, "other"), nil).Again {
	}
	sleeper.stop() // a stopped process receives no changes
	long := strings.Repeat("x", 90)
	for i := range 100 {
		keys := make([]string, 1000)
		for k := range keys {
			keys[k] = fmt.Sprintf("|%s%d-%d", long, i, k)
		}
		p.Announce(t.Context(), keys...)
	}
	n, err := strconv.Atoi(redistest.Do(t, addr, "MEMORY", "USAGE", invalidation.LogKey(0), "SAMPLES", "0"))
	if err != nil || n > 8<<20 || n < 2<<20 {
		t.Errorf("100,000 changes take %d bytes, %v; want 2 to 8 MiB", n, err)
	}
	answer := sleeper.resolve(t, "other")
	r, err := sleeper.lanes[0].caller.call(t.Context(), patient(t, addr), "x", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	sleeper.lanes[0].follower.Hear(r.news)
	if answer.Current() {
		t.Error("a cached answer is current even though the process missed trimmed changes, want it stale")
	}
}

func TestAProcessThatNeverSignsOffIsMetered(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	client, b := patient(t, addr), newBook()
	p := start(t, addr)
	eventually(t, "the process is registered", func() bool { return client.HLen(t.Context(), producersKey).Val() == 1 })
	p.confirm(t, 1, "l")
	p.stop()
	if n := client.HLen(t.Context(), producersKey).Val(); n != 0 {
		t.Errorf("%d processes are registered after a shutdown, want 0", n)
	}
	client.HSet(t.Context(), producersKey, "dead", fmt.Sprint(time.Now().Add(-time.Hour).Unix(), " node-7"), "living", fmt.Sprint(time.Now().Unix(), " node-8"))
	flush(t, addr, b)
	if all := client.HGetAll(t.Context(), producersKey).Val(); len(all) != 1 || all["living"] == "" {
		t.Errorf("registered processes = %v, want only the running one", all)
	}
}

func TestPartitionsCountEverythingAndMayChange(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	visit := func(p process, from, to int) {
		for i := from; i < to; i++ {
			a := p.resolve(t, fmt.Sprint("s", i))
			for p.Confirm(a, nil).Again {
				a = p.resolve(t, fmt.Sprint("s", i))
			}
			if out := p.Confirm(a, click(fmt.Sprint("l", i))); !out.Counted || out.Again {
				t.Fatalf("Confirm = %+v, want a counted click", out)
			}
		}
	}
	four := startParts(t, addr, 4)
	four.heard(t)
	visit(four, 0, 100)
	used := map[int]bool{}
	for i := range 100 {
		used[invalidation.Partition(fmt.Sprint("|s", i), 4)] = true
	}
	if len(used) != 4 {
		t.Errorf("100 links use the partitions %v, want 4 partitions", used)
	}
	four.stop()
	one := start(t, addr)
	one.heard(t)
	visit(one, 100, 120)
	books := []*book{}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var mu sync.Mutex
	go func() {
		done <- NewFlushers(patient(t, addr), 1, func(int) Counts {
			mu.Lock()
			defer mu.Unlock()
			books = append(books, newBook())
			return books[len(books)-1]
		}, nil).Run(ctx)
	}()
	eventually(t, "clicks from removed partitions are counted", func() bool {
		mu.Lock()
		defer mu.Unlock()
		sum := 0
		for _, x := range books {
			sum += x.links()
		}
		return sum == 120
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestHostsAndAccountsAreAnnouncedToEveryPartition(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	a := startParts(t, addr, 4)
	a.Announce(t.Context(), "go.example.com", invalidation.AccountKey("acc"), "|slug")
	for part := range 4 {
		if got := redistest.Do(t, addr, "XLEN", invalidation.LogKey(part)); got != "1" {
			t.Errorf("partition %d has %s entries, want 1", part, got)
		}
	}
}

func TestAClusterCountsOverAFailover(t *testing.T) {
	t.Parallel()
	servers := redistest.Cluster(t, 3, true)
	addrs := make([]string, 3)
	for i := range addrs {
		addrs[i] = servers[i].Addr()
	}
	url := "redis://" + strings.Join(addrs, ",")
	const parts = 8
	p, q := startParts(t, url, parts), startParts(t, url, parts)
	var books [parts]*book
	for i := range books {
		books[i] = newBook()
	}
	counted := func() (n int64) {
		for _, b := range books {
			n += b.of("l")
		}
		return n
	}
	visit := func(p process, n int) (counted int64) {
		for i := range n {
			a := p.resolve(t, fmt.Sprint("s", i%40))
			for range 50 {
				out := p.Confirm(a, click("l"))
				if out.Counted {
					counted++
					break
				}
				a = p.resolve(t, fmt.Sprint("s", i%40))
			}
		}
		return counted
	}
	total := visit(p, 200) + visit(q, 200)
	a := q.resolve(t, "s7")
	p.Announce(t.Context(), "|s7")
	if out := q.Confirm(a, nil); !out.Again {
		t.Errorf("Confirm after an announcement on a cluster = %+v, want it superseded", out)
	}
	if err := servers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	total += visit(p, 200) + visit(q, 200)
	eventually(t, "the processes use the cluster again", func() bool { return p.Synced() && q.Synced() })
	total += visit(p, 100)
	eventually(t, "the spools are empty", func() bool { return !p.spooled() && !q.spooled() })
	client, err := redisdb.Open(redisdb.Config{URL: url, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	eventually(t, "all clicks are counted", func() bool {
		for part := range parts {
			f := NewFlusher(client, part, books[part], nil)
			_ = f.Cycle(t.Context()) // the next round will retry
			_ = releaseScript.Run(t.Context(), client, []string{flusherKey(part)}, f.id).Err()
		}
		return counted() >= total
	})
	if n := counted(); n != total {
		t.Errorf("counted %d clicks, want %d", n, total)
	}
}

func TestASentinelsFailoverIsFoundOut(t *testing.T) {
	t.Parallel()
	primary := redistest.Server(t)
	replica := redistest.Replica(t, primary)
	sentinel := redistest.Sentinel(t, "links", primary)
	url := "redis://" + sentinel.Addr() + "?master=links"
	p, b := start(t, url), newBook()
	for p.Confirm(p.resolve(t, "s"), nil).Again {
	}
	p.confirm(t, 20, "l")
	answer := p.resolve(t, "s")
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	p.confirm(t, 20, "l")
	eventually(t, "the process uses the new primary", p.Synced)
	if out := p.Confirm(answer, nil); !out.Again {
		t.Errorf("Confirm for an answer loaded before the failover = %+v, want it superseded", out)
	}
	p.confirm(t, 20, "l")
	eventually(t, "the spool is empty", func() bool { return !p.spooled() })
	flush(t, replica.Addr(), b)
	if n := b.of("l"); n != 60 {
		t.Errorf("counted %d clicks, want 60", n)
	}
}
