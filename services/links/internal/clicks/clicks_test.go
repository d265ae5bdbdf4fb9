package clicks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/localcloud/redistest"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// ear records what a process hears.
type ear struct {
	mu     sync.Mutex
	keys   []string
	doubts int
	synced atomic.Bool
}

func (e *ear) Invalidate(keys ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keys = append(e.keys, keys...)
}

func (e *ear) Doubt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubts++
}

func (e *ear) SetSynced(s bool) { e.synced.Store(s) }
func (e *ear) Suspect()         { e.synced.Store(false) }

func (e *ear) heard(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, k := range e.keys {
		if k == key {
			return true
		}
	}
	return false
}

func (e *ear) doubted() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.doubts
}

// good is an answer whose state a test sets.
type good struct{ overtaken, old atomic.Bool }

func (g *good) Current() bool { return !g.overtaken.Load() }
func (g *good) TooOld() bool  { return g.old.Load() }

// follow is an answer that is overtaken when its key is heard.
type follow struct {
	e   *ear
	key string
}

func (f follow) Current() bool { return !f.e.heard(f.key) }
func (f follow) TooOld() bool  { return false }

func click(id string) *link.Click { return &link.Click{LinkID: id, Day: 20_000, Referrer: "r.example"} }

// book is a Counts in memory that can lose answers and be overtaken.
type book struct {
	mu       sync.Mutex
	progress link.Progress
	total    map[string]int64
	lose     int // answers to lose after the deed
	refuse   int // calls to fail before the deed
}

func newBook() *book { return &book{total: map[string]int64{}} }

var errDown = errors.New("down")

func (b *book) Progress(context.Context) (link.Progress, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return link.Progress{Cycle: b.progress.Cycle, Producers: maps.Clone(b.progress.Producers)}, nil
}

func (b *book) Count(_ context.Context, from link.Progress, marks map[string]link.Mark, tallies []*link.Tally) (link.Progress, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse > 0 {
		b.refuse--
		return from, errDown
	}
	if from.Cycle != b.progress.Cycle {
		return from, ErrOvertaken
	}
	next := link.Progress{Cycle: from.Cycle + 1, Producers: maps.Clone(from.Producers)}
	if next.Producers == nil {
		next.Producers = map[string]link.Mark{}
	}
	maps.Copy(next.Producers, marks)
	for _, t := range tallies {
		b.total[t.LinkID] += t.Clicks
	}
	b.progress = next
	if b.lose > 0 {
		b.lose--
		return from, errDown
	}
	return next, nil
}

func (b *book) of(id string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total[id]
}

func (b *book) links() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.total)
}

type process struct {
	*Log
	ear  *ear
	stop func()
}

func start(t *testing.T, addr string, edit ...func(*Config)) process {
	t.Helper()
	cfg := Config{Redis: addr, SpoolDir: t.TempDir(), Budget: 300 * time.Millisecond}
	for _, e := range edit {
		e(&cfg)
	}
	e := &ear{}
	e.synced.Store(true)
	l, err := Open(cfg, e)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	t.Cleanup(stop)
	return process{l, e, stop}
}

// flush counts everything that waits.
func flush(t *testing.T, addr string, b *book) {
	t.Helper()
	f, err := NewFlusher(addr, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.redis.Close() }()
	for range 10 {
		if err := f.Cycle(t.Context()); err != nil && !errors.Is(err, errDown) && !errors.Is(err, ErrOvertaken) {
			t.Fatal(err)
		}
		if n, err := f.redis.XLen(t.Context(), keyClicks).Result(); err == nil && n == 0 {
			_ = releaseScript.Run(t.Context(), f.redis, []string{keyFlusher}, f.id).Err()
			return
		}
	}
	t.Fatal("the click log does not empty")
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func TestConfirm_makes_clicks_of_many_visitors_durable(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for range 20 {
				if out := p.Confirm(&good{}, click(fmt.Sprint("l", i%3))); !out.Counted || out.Again {
					t.Errorf("Confirm = %+v", out)
				}
			}
		})
	}
	wg.Wait()
	if out := p.Confirm(&good{}, nil); out.Counted || out.Again {
		t.Errorf("Confirm without a click = %+v", out)
	}
	flush(t, addr, b)
	if b.of("l0") != 340 || b.of("l1") != 340 || b.of("l2") != 320 {
		t.Errorf("counted %v", b.total)
	}
}

func TestConfirm_hears_a_change_before_it_answers(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	a, b := start(t, addr), start(t, addr)
	b.Confirm(&good{}, nil)
	doubts := b.ear.doubted()
	for i := range 100 {
		key := fmt.Sprint("|k", i)
		a.Announce(t.Context(), key)
		if out := b.Confirm(follow{b.ear, key}, click("x")); !out.Again || out.Counted {
			t.Fatalf("after the announcement of %s Confirm = %+v", key, out)
		}
		if out := b.Confirm(&good{}, click("y")); out.Again || !out.Counted {
			t.Fatalf("another answer is %+v", out)
		}
	}
	if n := b.ear.doubted(); n != doubts {
		t.Errorf("%d doubts without a reason", n-doubts)
	}
}

func TestConfirm_doubts_when_the_log_of_changes_is_another(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p := start(t, addr)
	p.Announce(t.Context(), "|a")
	p.Confirm(&good{}, nil)
	before := p.ear.doubted()
	if before == 0 {
		t.Error("a process that has just begun trusts what it loaded before")
	}
	empty(t, addr)
	p.Confirm(&good{}, nil)
	if p.ear.doubted() != before+1 {
		t.Errorf("%d doubts after Redis was emptied", p.ear.doubted()-before)
	}
}

func empty(t *testing.T, addr string) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = c.Close() }()
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestAnEmptiedRedisLosesNoClickThatIsStillKept(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	confirm := func(n int) {
		for range n {
			p.Confirm(&good{}, click("l"))
		}
	}
	confirm(10)
	flush(t, addr, b)
	confirm(10) // waiting when Redis is emptied
	empty(t, addr)
	confirm(10)
	flush(t, addr, b)
	if n := b.of("l"); n != 30 {
		t.Errorf("counted %d of 30", n)
	}
}

func TestTheFlusherCountsOnceWhateverAnswersAreLost(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	for i := range 20 {
		p.Confirm(&good{}, click("l"))
		b.mu.Lock()
		b.lose, b.refuse = i%3, i%2
		b.mu.Unlock()
		flush(t, addr, b)
	}
	if n := b.of("l"); n != 20 {
		t.Errorf("counted %d of 20", n)
	}
}

func TestTwoFlushersCountOnce(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	var flushers []*Flusher
	for range 2 {
		f, err := NewFlusher(addr, b, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.redis.Close() })
		flushers = append(flushers, f)
	}
	for i := range 30 {
		p.Confirm(&good{}, click("l"))
		f := flushers[i%2]
		f.redis.Del(t.Context(), keyFlusher) // the lease has gone astray
		// A flusher with old progress finds itself overtaken and reads it again.
		for range 2 {
			_ = f.Cycle(t.Context())
		}
	}
	flush(t, addr, b)
	if n := b.of("l"); n != 30 {
		t.Errorf("counted %d of 30", n)
	}
}

func TestALeaseKeepsASecondFlusherAway(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	first, err := NewFlusher(addr, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := NewFlusher(addr, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Cycle(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Confirm(&good{}, click("l"))
	if err := second.Cycle(t.Context()); err != nil || b.of("l") != 0 {
		t.Errorf("the second flusher counted %d, %v", b.of("l"), err)
	}
	if err := first.Cycle(t.Context()); err != nil || b.of("l") != 1 {
		t.Errorf("the first flusher counted %d, %v", b.of("l"), err)
	}
}

func TestAfterManyLinksAFlusherRestsAndKeepsItsLease(t *testing.T) {
	t.Parallel()
	for links, want := range map[int]time.Duration{0: time.Second, 2000: time.Second, 5000: 2500 * time.Millisecond, 1_000_000: 4 * time.Second} {
		if got := rest(links); got != want {
			t.Errorf("rest(%d) = %v, want %v", links, got, want)
		}
	}
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	var all sync.WaitGroup
	for i := range 8000 {
		all.Go(func() { p.Confirm(&good{}, click(fmt.Sprint(i))) })
	}
	all.Wait()
	resting, err := NewFlusher(addr, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewFlusher(addr, newBook(), nil) // what it counts would be missing
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- resting.Run(ctx) }()
	eventually(t, "all links are counted", func() bool { return b.links() == 8000 })
	p.Confirm(&good{}, click("late"))
	eventually(t, "a click in the rest is counted", func() bool {
		if err := other.Cycle(t.Context()); err != nil {
			t.Fatal(err)
		}
		return b.of("late") == 1
	})
	if took := time.Since(began); took < restMax {
		t.Errorf("the click was counted after %v already", took)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestASpoolBridgesRedisAndKeepsOrder(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	p, b := start(t, server.Addr()), newBook()
	n := 0
	confirm := func() {
		for range 20 {
			if out := p.Confirm(&good{}, click("l")); !out.Counted {
				t.Fatalf("Confirm = %+v", out)
			}
			n++
		}
	}
	for round := range 3 {
		confirm()
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		confirm()
		if p.Synced() || p.ear.synced.Load() {
			t.Fatal("the process believes that it hears changes")
		}
		stale := &good{}
		stale.old.Store(true)
		if out := p.Confirm(stale, click("l")); !out.Again || out.Counted {
			t.Fatalf("an old answer without Redis is %+v", out)
		}
		p.Announce(t.Context(), fmt.Sprint("|k", round))
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		confirm()
		eventually(t, "back to Redis", func() bool { return p.Synced() && p.ear.synced.Load() })
	}
	confirm()
	other := start(t, server.Addr())
	other.Confirm(&good{}, nil)
	flush(t, server.Addr(), b)
	if got := b.of("l"); got != int64(n) {
		t.Errorf("counted %d of %d", got, n)
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = c.Close() }()
	eventually(t, "announcements made without Redis are made up for", func() bool {
		n, err := c.HGet(t.Context(), keyHead, "n").Int()
		return err == nil && n >= 1 && n <= 3
	})
}

func TestASuccessorTakesOverTheSpoolOfADeadProcess(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	dir := t.TempDir()
	in := func(c *Config) { c.SpoolDir = dir }
	dead, b := start(t, server.Addr(), in), newBook()
	dead.Confirm(&good{}, click("l"))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		dead.Confirm(&good{}, click("l"))
	}
	dead.stop() // cannot drain; leaves the spool
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { t.Logf("counted %d", b.of("l")) })
	next := start(t, server.Addr(), in)
	next.Confirm(&good{}, click("l"))
	eventually(t, "the dead process's clicks", func() bool {
		flush(t, server.Addr(), b)
		return b.of("l") == 7
	})
	left, _ := os.ReadDir(dir)
	if len(left) != 1 {
		t.Errorf("%d files are left, want the living process's", len(left))
	}
}

func TestASuccessorHasWhatRedisTookAlong(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	dir := t.TempDir()
	in := func(c *Config) { c.SpoolDir = dir }
	dead, b := start(t, server.Addr(), in), newBook()
	for range 5 {
		dead.Confirm(&good{}, click("l"))
	}
	empty(t, server.Addr()) // as if its last moments were never written
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	dead.Confirm(&good{}, click("l"))
	dead.stop()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	start(t, server.Addr(), in)
	eventually(t, "the dead process's clicks", func() bool {
		flush(t, server.Addr(), b)
		return b.of("l") == 6
	})
}

func TestAFullSpoolLosesClicksButNoVisitor(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	p, b := start(t, server.Addr(), func(c *Config) { c.SpoolMax = 200 }), newBook()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if out := p.Confirm(&good{}, click("l")); out.Again {
			t.Fatalf("Confirm = %+v", out)
		}
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "back to Redis", p.Synced)
	p.Confirm(&good{}, click("l"))
	flush(t, server.Addr(), b)
	if n := b.of("l"); n < 2 || n > 10 {
		t.Errorf("counted %d: what fitted into the spool and the one after", n)
	}
}

func TestSpool_survives_a_torn_end(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openSpool(dir, "p", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := s.append(int64(i+1), []byte(fmt.Sprint("payload ", i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openSpool(dir, "p", 1<<20); err == nil {
		t.Error("a living process's spool was opened by another")
	}
	if err := s.file.Truncate(s.size - 3); err != nil {
		t.Fatal(err)
	}
	if err := s.file.Close(); err != nil {
		t.Fatal(err)
	}
	left, producers := leftSpools(dir, "other")
	if len(left) != 1 || producers[0] != "p" {
		t.Fatalf("left %v", producers)
	}
	records, err := left[0].next(1 << 20)
	if err != nil || len(records) != 2 || records[1].batch != 2 || string(records[1].payload) != "payload 1" {
		t.Errorf("read %v, %v", records, err)
	}
	if err := left[0].drained(records[0].size + records[1].size); err != nil || !left[0].empty() {
		t.Errorf("drained: %v", err)
	}
}

func TestPayload_keeps_clicks(t *testing.T) {
	t.Parallel()
	var s sums
	a := link.Click{LinkID: "lnk_a", Day: 20_000, Referrer: "x.example", Country: "DE", Device: link.Mobile}
	b := link.Click{LinkID: "lnk_b", Day: 20_001}
	for _, c := range []link.Click{a, a, b, a} {
		s.add(c)
	}
	got := map[link.Click]int64{}
	total, err := decode(s.encode(104), func(c link.Click, n int64) { got[c] += n })
	if diff := cmp.Diff(map[link.Click]int64{a: 3, b: 1}, got); diff != "" || total != 104 || err != nil {
		t.Errorf("decode = %d, %v (-want +got):\n%s", total, err, diff)
	}
	s.reset()
	if s.add(b); s.total != 1 || len(s.list) != 1 {
		t.Errorf("after reset the sums are %+v", s)
	}
}

func FuzzDecode(f *testing.F) {
	var s sums
	s.add(link.Click{LinkID: "l", Day: 3, Referrer: "r", Country: "DE", Device: link.Bot})
	f.Add(s.encode(1))
	f.Add([]byte{payloadVersion, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := decode(b, func(_ link.Click, n int64) {
			if n <= 0 {
				t.Fatalf("decode(%x) counts %d", b, n)
			}
		})
		if err == nil && len(b) == 0 {
			t.Fatal("nothing is a payload")
		}
	})
}
