package clicks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// shelf is a store in which every link exists.
type shelf struct{ loads atomic.Int64 }

func (s *shelf) Target(_ context.Context, key string) (link.Target, bool, error) {
	s.loads.Add(1)
	return link.Target{LinkID: key, Slug: link.Slug(key)}, true, nil
}

func (s *shelf) Host(context.Context, string) (link.Site, bool, error) {
	return link.Site{}, false, nil
}

func (s *shelf) Suspended(context.Context, string) (bool, error) { return false, nil }

// good is an answer. Tests choose whether it is superseded or too old.
type good struct{ overtaken, old atomic.Bool }

func (g *good) Partition() int { return 0 }
func (g *good) Current() bool  { return !g.overtaken.Load() }
func (g *good) Expired() bool  { return g.old.Load() }

func click(id string) *link.Click {
	return &link.Click{LinkID: id, Day: 20_000, Referrer: "r.example", Rule: ruleOf(id)}
}

// ruleOf returns the rule that redirects all visitors to a link. Only links with an ID that starts
// with l have a rule.
func ruleOf(id string) string {
	if strings.HasPrefix(id, "l") {
		return "rule of " + id
	}
	return ""
}

// book is an in-memory Counts. It can lose responses and report that it was overtaken.
type book struct {
	mu       sync.Mutex
	progress link.Progress
	total    map[string]int64
	rules    map[string]map[string]int64 // by link and rule
	lose     int                         // number of responses to lose after storing the counts
	refuse   int                         // number of calls that fail before storing the counts
}

func newBook() *book { return &book{total: map[string]int64{}, rules: map[string]map[string]int64{}} }

var errDown = errors.New("down")

func (b *book) Progress(context.Context) (link.Progress, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return link.Progress{Cycle: b.progress.Cycle, Producers: maps.Clone(b.progress.Producers)}, nil
}

func (b *book) Count(_ context.Context, from link.Progress, marks map[string]link.Mark, tallies []*link.Tally) (link.Progress, int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse > 0 {
		b.refuse--
		return from, 0, errDown
	}
	if from.Cycle != b.progress.Cycle {
		return from, 0, ErrOvertaken
	}
	next := link.Progress{Cycle: from.Cycle + 1, Producers: maps.Clone(from.Producers)}
	if next.Producers == nil {
		next.Producers = map[string]link.Mark{}
	}
	maps.Copy(next.Producers, marks)
	for _, t := range tallies {
		b.total[t.LinkID] += t.Clicks
		if b.rules[t.LinkID] == nil {
			b.rules[t.LinkID] = map[string]int64{}
		}
		for rule, n := range t.Rules {
			b.rules[t.LinkID][rule] += n
		}
	}
	b.progress = next
	if b.lose > 0 {
		b.lose--
		return from, 0, errDown
	}
	return next, 0, nil
}

// of returns a link's clicks, or -1 if they differ from its rule's clicks; see [ruleOf].
func (b *book) of(id string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rule := ruleOf(id); rule != "" && b.rules[id][rule] != b.total[id] {
		return -1
	}
	return b.total[id]
}

func (b *book) links() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.total)
}

// process is a replica with its cache of links, its click log and its announcer.
type process struct {
	*Log
	shelf    *shelf
	memory   *invalidation.Memory
	announce *invalidation.Announcer
	stop     func()
}

func start(t testing.TB, addr string, edit ...func(*Config)) process {
	t.Helper()
	return startParts(t, addr, 1, edit...)
}

func startParts(t testing.TB, addr string, parts int, edit ...func(*Config)) process {
	t.Helper()
	p := open(t, addr, parts, edit...)
	p.run(t)
	return p
}

// open creates a process without starting it.
func open(t testing.TB, addr string, parts int, edit ...func(*Config)) process {
	t.Helper()
	cfg := Config{Redis: redisdb.Config{URL: addr}, SpoolDir: t.TempDir(), Budget: 300 * time.Millisecond}
	for _, e := range edit {
		e(&cfg)
	}
	p := process{shelf: &shelf{}}
	p.memory = invalidation.NewMemory(invalidation.Options{Target: p.shelf.Target, Host: p.shelf.Host, Suspended: p.shelf.Suspended, Partitions: parts})
	client := patient(t, addr)
	p.announce = invalidation.NewAnnouncer(client, p.memory, "test")
	var err error
	if p.Log, err = Open(cfg, p.memory); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 2)
	go func() { done <- p.Run(ctx) }()
	go func() { done <- p.announce.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Errorf("stop the process: %v", err)
		}
	})
	t.Cleanup(p.stop)
}

// heard waits until an idle process has looked up its position in every log. After that, only the
// test's redirects look up positions. Otherwise a redirect and the process might both detect a new
// server, and the second of them would start another epoch. Answers loaded in between would be
// stale.
func (p process) heard(t *testing.T) {
	t.Helper()
	for _, l := range p.lanes {
		eventually(t, "the position is looked up", func() bool { return l.follower.At() != invalidation.Position{} })
	}
}

func patient(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	c, err := OpenPatient(redisdb.Config{URL: addr}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Announce notifies the other processes of changed keys.
func (p process) Announce(ctx context.Context, keys ...string) { p.announce.Announce(ctx, keys...) }

// resolve reads a link from memory as a redirect does.
func (p process) resolve(t testing.TB, slug string) *invalidation.Answer {
	t.Helper()
	var a invalidation.Answer
	if err := p.memory.Resolve(&a, func(bool) (context.Context, error) { return t.Context(), nil }, "", slug); err != nil {
		t.Fatal(err)
	}
	return &a
}

// flush counts all pending clicks.
func flush(t testing.TB, addr string, b *book, parts ...int) {
	t.Helper()
	client := patient(t, addr)
	if len(parts) == 0 {
		parts = []int{0}
	}
	for _, part := range parts {
		f := NewFlusher(client, part, b, nil)
		for round := 0; ; round++ {
			if err := f.Cycle(t.Context()); err != nil && !errors.Is(err, errDown) && !errors.Is(err, ErrOvertaken) {
				t.Fatal(err)
			}
			if n, err := client.XLen(t.Context(), streamKey(part)).Result(); err == nil && n == 0 {
				_ = releaseScript.Run(t.Context(), client, []string{flusherKey(part)}, f.id).Err()
				break
			}
			if round == 10 {
				t.Fatal("the click log is not empty after 10 rounds of flushing, want it empty")
			}
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met after a minute: %s", what)
		}
	}
}

func TestConfirmMakesClicksOfManyVisitorsDurable(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for range 20 {
				if out := p.Confirm(&good{}, click(fmt.Sprint("l", i%3))); !out.Counted || out.Again {
					t.Errorf("Confirm = %+v, want a counted click", out)
				}
			}
		})
	}
	wg.Wait()
	if out := p.Confirm(&good{}, nil); out.Counted || out.Again {
		t.Errorf("Confirm without a click = %+v, want no click counted", out)
	}
	flush(t, addr, b)
	if b.of("l0") != 340 || b.of("l1") != 340 || b.of("l2") != 320 {
		t.Errorf("counted %v, want 340 for l0 and l1, 320 for l2", b.total)
	}
}

func TestConfirmHearsAChangeBeforeItAnswers(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	a, b := start(t, addr), start(t, addr)
	a.heard(t)
	b.heard(t)
	for b.Confirm(b.resolve(t, "other"), nil).Again { // look up the position in the log, in case a has started a new epoch
	}
	other := b.resolve(t, "other")
	for i := range 100 {
		slug := fmt.Sprint("k", i)
		answer := b.resolve(t, slug)
		a.Announce(t.Context(), link.SlugKey("", slug))
		if out := b.Confirm(answer, click("x")); !out.Again || !out.Counted {
			t.Fatalf("Confirm after the announcement of %s = %+v, want it superseded and counted", slug, out)
		}
		if out := b.Confirm(other, click("y")); out.Again || !out.Counted {
			t.Fatalf("Confirm for another link = %+v, want it counted and not superseded", out)
		}
	}
	loads := b.shelf.loads.Load()
	for i := range 100 {
		a.Announce(t.Context(), link.SlugKey("", fmt.Sprint("unrelated", i)))
		if out := b.Confirm(b.resolve(t, "other"), click("y")); out.Again || !out.Counted {
			t.Fatalf("Confirm after a change to another link = %+v, want it counted and not superseded", out)
		}
	}
	if n := b.shelf.loads.Load() - loads; n != 0 {
		t.Errorf("changes to other links caused %d reads, want 0", n)
	}
}

func TestConfirmReloadsWhenTheLogOfChangesIsAnother(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p := open(t, addr, 1)
	answer := p.resolve(t, "a")
	p.run(t)
	p.heard(t)
	if out := p.Confirm(answer, nil); !out.Again {
		t.Errorf("Confirm for an answer loaded before the process started = %+v, want it superseded", out)
	}
	answer = p.resolve(t, "a")
	if out := p.Confirm(answer, nil); out.Again {
		t.Errorf("Confirm for a reloaded answer = %+v, want it not superseded", out)
	}
	empty(t, addr)
	if out := p.Confirm(answer, nil); !out.Again {
		t.Errorf("Confirm for an answer loaded before Redis was emptied = %+v, want it superseded", out)
	}
}

func TestUndoTakesAClickBack(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	for range 3 {
		p.Confirm(&good{}, click("a"))
	}
	p.Undo(&good{}, *click("a"))
	p.Confirm(&good{}, click("b"))
	flush(t, addr, b)
	if b.of("a") != 2 || b.of("b") != 1 {
		t.Errorf("counted %v, want 2 for a and 1 for b", b.total)
	}
}

// A batch that contains only undone clicks has a negative sum, which must not be added to a
// counter.
func TestUndoTakesAClickBackWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	p, b := start(t, server.Addr()), newBook()
	p.confirm(t, 3, "l")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	p.confirm(t, 1, "l")
	p.Undo(&good{}, *click("l"))
	p.Undo(&good{}, *click("l"))
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the spool is empty", func() bool { return p.Synced() && !p.spooled() })
	flush(t, server.Addr(), b)
	if n := b.of("l"); n != 2 {
		t.Errorf("counted %d, want 2", n)
	}
}

func empty(t testing.TB, addr string) {
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
	confirm(10) // still pending when Redis is emptied
	empty(t, addr)
	confirm(10)
	flush(t, addr, b)
	if n := b.of("l"); n != 30 {
		t.Errorf("counted %d clicks, want 30", n)
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
		t.Errorf("counted %d clicks, want 20", n)
	}
}

func TestTwoFlushersCountOnce(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	var flushers []*Flusher
	for range 2 {
		flushers = append(flushers, NewFlusher(patient(t, addr), 0, b, nil))
	}
	for i := range 30 {
		p.Confirm(&good{}, click("l"))
		f := flushers[i%2]
		f.redis.Del(t.Context(), flusherKey(0)) // make the flusher lose its lease
		// A flusher with stale progress detects that it was overtaken and reads the progress again.
		for range 2 {
			_ = f.Cycle(t.Context())
		}
	}
	flush(t, addr, b)
	if n := b.of("l"); n != 30 {
		t.Errorf("counted %d clicks, want 30", n)
	}
}

func TestALeaseKeepsASecondFlusherAway(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	first := NewFlusher(patient(t, addr), 0, b, nil)
	second := NewFlusher(patient(t, addr), 0, b, nil)
	if err := first.Cycle(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Confirm(&good{}, click("l"))
	if err := second.Cycle(t.Context()); err != nil || b.of("l") != 0 || second.mine || !first.mine {
		t.Errorf("second flusher: %d clicks counted, %v; want none and no lease", b.of("l"), err)
	}
	if err := first.Cycle(t.Context()); err != nil || b.of("l") != 1 {
		t.Errorf("first flusher: %d clicks counted, %v; want 1", b.of("l"), err)
	}
}

// A flusher that has lost its lease does not count anything, so it must not log that counting has
// resumed. The test is not parallel because the whole process shares the logger.
func TestOnlyAFlusherThatCountsSaysThatItCanAgain(t *testing.T) {
	var log bytes.Buffer
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(former)
	f := NewFlusher(nil, 0, newBook(), nil)
	for range 3 {
		f.tell(t.Context(), errDown, true)
		f.tell(t.Context(), nil, false)
	}
	if strings.Count(log.String(), "cannot count clicks") != 1 || strings.Contains(log.String(), "again") {
		t.Errorf("log without the lease, want one line and no recovery:\n%s", &log)
	}
	f.tell(t.Context(), nil, true)
	f.tell(t.Context(), nil, true)
	if strings.Count(log.String(), "resumed counting clicks") != 1 {
		t.Errorf("log after a cycle, want one line about the recovery:\n%s", &log)
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
	resting := NewFlusher(patient(t, addr), 0, b, nil)
	other := NewFlusher(patient(t, addr), 0, newBook(), nil) // if it counted any clicks, b would be missing them
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan bool)
	began := time.Now()
	go func() { resting.run(ctx); close(done) }()
	eventually(t, "all links are counted", func() bool { return b.links() == 8000 })
	p.Confirm(&good{}, click("late"))
	eventually(t, "a click during the rest is counted", func() bool {
		if err := other.Cycle(t.Context()); err != nil {
			t.Fatal(err)
		}
		return b.of("late") == 1
	})
	if took := time.Since(began); took < restMax {
		t.Errorf("the click was counted after %v, want at least %v", took, restMax)
	}
	stop()
	<-done
}

func TestASpoolBridgesRedisAndKeepsOrder(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	p, b := start(t, server.Addr()), newBook()
	n := 0
	confirm := func() {
		for range 20 {
			if out := p.Confirm(&good{}, click("l")); !out.Counted {
				t.Fatalf("Confirm = %+v, want a counted click", out)
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
		if p.Synced() {
			t.Fatal("Synced() = true without Redis, want false")
		}
		stale := &good{}
		stale.old.Store(true)
		if out := p.Confirm(stale, click("l")); !out.Again || out.Counted {
			t.Fatalf("Confirm for a stale answer without Redis = %+v, want it superseded and not counted", out)
		}
		p.Announce(t.Context(), fmt.Sprint("|k", round))
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		confirm()
		eventually(t, "the process uses Redis again", p.Synced)
	}
	confirm()
	eventually(t, "the spool is empty", func() bool { return !p.spooled() })
	other := start(t, server.Addr())
	other.Confirm(&good{}, nil)
	flush(t, server.Addr(), b)
	if got := b.of("l"); got != int64(n) {
		t.Errorf("counted %d clicks, want %d", got, n)
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = c.Close() }()
	eventually(t, "the announcements made without Redis arrive", func() bool {
		n, err := c.XLen(t.Context(), invalidation.LogKey(0)).Result()
		return err == nil && n >= 1 && n <= 3
	})
}

// Visitors to one link are redirected by two rules or by no rule. At the same time, Redis is killed
// and emptied and the flusher loses responses. The counts of all three groups must be exact.
func TestClicksByRuleAreExactOverKills(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	p, b := start(t, server.Addr()), newBook()
	rules, want := []string{"", "phones", "rest"}, map[string]int64{}
	visit := func(n int) {
		for i := range n {
			c := link.Click{LinkID: "split", Day: link.Day(20_000 + i%2), Rule: rules[i%3]}
			if out := p.Confirm(&good{}, &c); !out.Counted {
				t.Fatalf("Confirm = %+v, want a counted click", out)
			}
			if i%7 == 0 { // as if the response had not been sent
				p.Undo(&good{}, c)
				want[c.Rule]--
			}
			want[c.Rule]++
		}
	}
	for round := range 4 {
		visit(30)
		empty(t, server.Addr())
		visit(10)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		visit(31)
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		visit(32)
		eventually(t, "the process uses Redis again", p.Synced)
		b.mu.Lock()
		b.lose, b.refuse = round%3, round%2
		b.mu.Unlock()
		flush(t, server.Addr(), b)
	}
	eventually(t, "the spool is empty", func() bool { return !p.spooled() })
	flush(t, server.Addr(), b)
	got := maps.Clone(b.rules["split"])
	got[""] = b.total["split"] - got["phones"] - got["rest"]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("clicks by rule (-want +got):\n%s", diff)
	}
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
	dead.stop() // leaves the spool behind because it cannot drain it
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { t.Logf("counted %d clicks", b.of("l")) })
	next := start(t, server.Addr(), in)
	next.Confirm(&good{}, click("l"))
	eventually(t, "the dead process's clicks are counted", func() bool {
		flush(t, server.Addr(), b)
		return b.of("l") == 7
	})
	eventually(t, "the dead process's spool file is removed", func() bool {
		left, _ := os.ReadDir(dir)
		return len(left) == 1
	})
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
	empty(t, server.Addr()) // as if Redis had not written its latest data to disk
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	dead.Confirm(&good{}, click("l"))
	dead.stop()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	start(t, server.Addr(), in)
	eventually(t, "the dead process's clicks are counted", func() bool {
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
			t.Fatalf("Confirm = %+v, want it not superseded", out)
		}
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process uses Redis again", p.Synced)
	p.Confirm(&good{}, click("l"))
	eventually(t, "the spool is empty", func() bool { return !p.spooled() })
	flush(t, server.Addr(), b)
	if n := b.of("l"); n < 2 || n > 10 {
		t.Errorf("counted %d clicks, want 2 to 10: those that fit into the spool, and the next one", n)
	}
}

// With a full disk, every batch is lost, and there may be hundreds per second. The test is not
// parallel because the whole process shares the logger.
func TestLostClicksWriteALineASecond(t *testing.T) {
	var log bytes.Buffer
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(former)
	now := time.Unix(1_700_000_000, 0)
	l := &lane{log: &Log{cfg: Config{Now: func() time.Time { return now }}}}
	for range 250 {
		l.tellLost(errors.New("no space left on device"), 2)
		now = now.Add(10 * time.Millisecond)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "no space left") || !strings.Contains(lines[1], "lost=200") {
		t.Errorf("log for 250 lost batches in 2.5 s, want 3 lines:\n%s", &log)
	}
}

// A slow Redis becomes unavailable and recovers many times. The test is not parallel because the
// whole process shares the logger.
func TestARedisThatComesAndGoesWritesALineAMinute(t *testing.T) {
	var log bytes.Buffer
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(former)
	now := time.Unix(1_700_000_000, 0)
	l := &lane{log: &Log{cfg: Config{Now: func() time.Time { return now }}}, caller: &caller{part: 3}}
	lose := func() { l.cause = errors.New("i/o timeout"); l.tellAway(l.lines.Failed(now)) }
	for range 10 {
		lose()
		l.tellBack()
		now = now.Add(5 * time.Second)
	}
	lose() // this time Redis does not recover quickly
	for range 15 {
		l.tellAway(l.lines.StillFailing(now))
		now = now.Add(time.Second)
	}
	l.tellBack()
	away, back := strings.Count(log.String(), "writing clicks to the local disk"), strings.Count(log.String(), "answers again")
	if away != 2 || back != 2 || !strings.Contains(log.String(), "times=10") {
		t.Errorf("%d lines about the loss, %d about the recovery; want 2 and 2:\n%s", away, back, &log)
	}
}

// TestADeadRedisIsTriedAtItsProbesOnly checks that a failed attempt to drain the spool does not
// request an immediate retry. Each attempt reads up to half a megabyte of the spool.
func TestADeadRedisIsTriedAtItsProbesOnly(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	p := open(t, server.Addr(), 1)
	for range 20 {
		if out := p.Confirm(&good{}, click("l")); !out.Counted {
			t.Fatalf("Confirm = %+v, want a counted click", out)
		}
	}
	lane := p.lanes[0]
	if lane.spool.empty() || !lane.away.Load() {
		t.Fatalf("the spool is empty, away = %v; want a click in the spool and away = true", lane.away.Load())
	}
	if lane.drain(t.Context(), time.Now().Add(time.Hour)) {
		t.Error("drain = true, want false: no retry before the next probe")
	}
	if lane.spool.empty() {
		t.Error("the spool is empty even though Redis cannot have received its clicks, want them kept")
	}
}

func TestSpoolSurvivesATornEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openSpool(dir, "p", 3, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := s.append(record{late: i > 0, number: int64(i + 1), payload: []byte(fmt.Sprint("payload ", i))}); err != nil {
			t.Fatal(err)
		}
	}
	f := s.files[0]
	if _, err := openSpoolFile(f.path, f.seq); err == nil {
		t.Error("openSpoolFile opened a running process's spool, want an error")
	}
	if err := f.file.Truncate(f.size - 3); err != nil {
		t.Fatal(err)
	}
	if err := f.file.Close(); err != nil {
		t.Fatal(err)
	}
	left := anyLeft(dir)
	if len(left) != 1 || left[0].id != "p" || left[0].part != 3 {
		t.Fatalf("dead processes' spools = %+v, want one from process p, partition 3", left)
	}
	for i := range 2 {
		run, err := left[0].next(1 << 20)
		if err != nil || len(run) != 1 || run[0].number != int64(i+1) || run[0].late != (i > 0) || string(run[0].payload) != fmt.Sprint("payload ", i) {
			t.Errorf("record %d = %+v, %v; want payload %d", i+1, run, err, i)
		}
		if err := left[0].drained(run); err != nil {
			t.Error(err)
		}
	}
	if run, err := left[0].next(1 << 20); len(run) > 0 || err != nil || !left[0].empty() {
		t.Errorf("read after the end = %+v, %v; want nothing", run, err)
	}
}

func TestSpoolGivesTheDiskBackWhileItIsWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openSpool(dir, "p", 0, 10<<20)
	if err != nil {
		t.Fatal(err)
	}
	payload, written, read := make([]byte, 100<<10), int64(0), int64(0)
	for range 400 { // writes 40 MiB into a 10 MiB spool
		written++
		if err := s.append(record{late: true, number: written, payload: payload}); err != nil {
			t.Fatalf("record %d: %v", written, err)
		}
		if written-read < 30 {
			continue
		}
		run, err := s.next(1)
		if err != nil || len(run) != 1 || run[0].number != read+1 {
			t.Fatalf("read %d records, %v; want record %d", len(run), err, read+1)
		}
		if err := s.drained(run); err != nil {
			t.Fatal(err)
		}
		read++
	}
	if names, _ := os.ReadDir(dir); len(names) > 3 {
		t.Errorf("got %d files, want at most 3", len(names))
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	left := anyLeft(dir)
	if len(left) != 1 || left[0].empty() {
		t.Error("the closed process's spool is empty, want the records that were not drained")
	}
}

// anyLeft finds dead processes' spools. It retries because the child process of any program that
// another test starts holds this process's locks until it calls exec.
func anyLeft(dir string) (left []*spool) {
	for end := time.Now().Add(30 * time.Second); len(left) == 0 && time.Now().Before(end); {
		left = leftSpools(dir, "other")
	}
	return left
}

func TestPayloadKeepsClicks(t *testing.T) {
	t.Parallel()
	var s sums
	a := link.Click{LinkID: "lnk_a", Day: 20_000, Referrer: "x.example", Country: "DE", Device: link.Mobile}
	b := link.Click{LinkID: "lnk_b", Day: 20_001}
	for _, c := range []link.Click{a, a, b, a} {
		s.add(c, 1)
	}
	taken, ruled := link.Click{LinkID: "lnk_c", Day: 20_001}, a
	ruled.Rule = "Käufer, 50 %"
	s.add(taken, -1)
	s.add(ruled, 2)
	got := map[link.Click]int64{}
	total, err := decode(s.encode(104), func(c link.Click, n int64) { got[c] += n })
	if diff := cmp.Diff(map[link.Click]int64{a: 3, b: 1, taken: -1, ruled: 2}, got); diff != "" || total != 104 || err != nil {
		t.Errorf("decode = %d, %v (-want +got):\n%s", total, err, diff)
	}
	s.reset()
	if s.add(b, 1); s.total != 1 || len(s.list) != 1 {
		t.Errorf("sums after the reset = %+v, want one click on one link", s)
	}
}

// A payload for a link without rules does not contain any bytes for rules, even if other links have
// rules.
func TestPayloadOfAPlainLinkHasNoByteForRules(t *testing.T) {
	t.Parallel()
	var s sums
	s.add(link.Click{LinkID: "l", Day: 3, Referrer: "r", Country: "DE", Device: link.Tablet}, 1)
	want := []byte{payloadVersion, 2, 2, 3, byte(link.Tablet), 1, 'l', 1, 'r', 2, 'D', 'E'}
	if got := s.encode(1); !bytes.Equal(got, want) {
		t.Errorf("payload = %v, want %v", got, want)
	}
}

func FuzzDecode(f *testing.F) {
	var s sums
	s.add(link.Click{LinkID: "l", Day: 3, Referrer: "r", Country: "DE", Device: link.Tablet}, 1)
	s.add(link.Click{LinkID: "l", Day: 3, Rule: "r"}, 1)
	f.Add(s.encode(1))
	f.Add([]byte{payloadVersion, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := decode(b, func(link.Click, int64) {})
		if err == nil && len(b) == 0 {
			t.Fatal("decoding an empty payload succeeded, want an error")
		}
	})
}

// Synced reports whether the process uses Redis rather than its spool for all partitions.
func (l *Log) Synced() bool {
	for _, lane := range l.lanes {
		if lane.away.Load() {
			return false
		}
	}
	return true
}
