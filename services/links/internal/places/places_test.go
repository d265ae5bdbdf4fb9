package places

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

// shelf is an in-memory store. A channel in hold delays every ask for a link until the channel is
// closed.
type shelf struct {
	mu      sync.Mutex
	places  map[string]*link.Places
	calls   atomic.Int64
	flying  atomic.Int64
	most    atomic.Int64 // largest number of concurrent calls to Take
	hold    map[string]chan struct{}
	fail    atomic.Int64 // number of calls that should take effect but return an error
	settled atomic.Int64
}

func newShelf(limits map[string]int64) *shelf {
	s := &shelf{places: map[string]*link.Places{}, hold: map[string]chan struct{}{}}
	for id, limit := range limits {
		s.places[id] = &link.Places{Key: "|" + id, Max: limit, Settled: true}
	}
	return s
}

func (s *shelf) Take(ctx context.Context, linkID string, ask link.Ask) (int64, link.Places, error) {
	s.calls.Add(1)
	if n := s.flying.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	defer s.flying.Add(-1)
	if hold := s.hold[linkID]; hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return 0, link.Places{}, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[linkID]
	if p == nil {
		return 0, link.Places{}, link.ErrNoLimit
	}
	var granted int64
	if p.Settled {
		granted, _ = p.Take(ask)
	}
	if s.fail.Add(-1) >= 0 {
		return granted, *p, errors.New("the response is lost")
	}
	return granted, *p, nil
}

func (s *shelf) Settle(_ context.Context, linkID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places[linkID].Settle(7)
	s.settled.Add(1)
	return nil
}

func (s *shelf) used(linkID string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places[linkID].Used
}

func start(t *testing.T, s *shelf) (*Gate, *atomic.Int64) {
	t.Helper()
	forgotten := new(atomic.Int64)
	g := New(Options{
		Store: s, Forget: func(...string) { forgotten.Add(1) }, Announce: func(context.Context, ...string) {},
		Counted: func() func(context.Context) (bool, error) {
			asked := 0
			return func(context.Context) (bool, error) { asked++; return asked > 2, nil }
		},
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return g, forgotten
}

// crowd runs n concurrent visits, each of which takes a slot, and counts the outcomes.
func crowd(g *Gate, account, id string, n int) (placed, changed, failed int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			err := g.Take(account, id, "|"+id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				placed++
			case errors.Is(err, ErrChanged):
				changed++
			default:
				failed++
			}
		})
	}
	wg.Wait()
	return placed, changed, failed
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met after a minute: %s", what)
		}
	}
}

func TestWaitingVisitsShareACommit(t *testing.T) {
	t.Parallel()
	s := newShelf(map[string]int64{"l": 900})
	g, forgotten := start(t, s)
	if placed, changed, failed := crowd(g, "a", "l", 1000); placed != 900 || changed != 100 || failed != 0 {
		t.Errorf("%d placed, %d changed, %d failed; want 900, 100, 0", placed, changed, failed)
	}
	if calls, most := s.calls.Load(), s.most.Load(); calls > 20 || most != 1 {
		t.Errorf("%d commits, %d concurrent; want at most 20, 1", calls, most)
	}
	if forgotten.Load() == 0 {
		t.Error("the replica still caches the link after its slots were used up, want it forgotten")
	}
}

func TestOneLinksFloodDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := newShelf(map[string]int64{"slow": 1e9, "beside": 10, "other": 10})
	release := make(chan struct{})
	s.hold["slow"] = release
	g, _ := start(t, s)
	var failed atomic.Int64
	var wg sync.WaitGroup
	for range waitingEach + 100 {
		wg.Go(func() {
			if g.Take("a", "slow", "|slow") != nil {
				failed.Add(1)
			}
		})
	}
	eventually(t, "visits over the limit fail immediately", func() bool { return failed.Load() > 0 })
	for _, l := range [][2]string{{"a", "beside"}, {"b", "other"}} {
		if err := g.Take(l[0], l[1], "|"+l[1]); err != nil {
			t.Errorf("Take for %v: %v", l, err)
		}
	}
	close(release)
	wg.Wait()
}

func TestOneAccountsLinksDoNotTakeAllRoom(t *testing.T) {
	t.Parallel()
	limits := map[string]int64{"other": 1}
	release := make(chan struct{})
	s := newShelf(nil)
	for i := range linesEach + 4 {
		id := fmt.Sprint("l", i)
		limits[id], s.hold[id] = 1, release
	}
	s.places = newShelf(limits).places
	g, _ := start(t, s)
	var refused atomic.Int64
	var wg sync.WaitGroup
	for i := range linesEach + 4 {
		wg.Go(func() {
			if g.Take("a", fmt.Sprint("l", i), "") != nil {
				refused.Add(1)
			}
		})
	}
	eventually(t, "asks for an account's links over the limit fail", func() bool { return refused.Load() == 4 })
	if err := g.Take("b", "other", "|other"); err != nil {
		t.Errorf("Take for another account: %v", err)
	}
	close(release)
	wg.Wait()
}

func TestPlacesOfALostAnswerAreFoundWithoutAVisit(t *testing.T) {
	t.Parallel()
	s := newShelf(map[string]int64{"l": 2})
	g, _ := start(t, s)
	s.fail.Store(1)
	if placed, _, failed := crowd(g, "a", "l", 1); placed != 0 || failed != 1 {
		t.Errorf("%d placed, %d failed; want 0, 1", placed, failed)
	}
	eventually(t, "the slot is free again", func() bool { return s.used("l") == 0 })
	if placed, changed, _ := crowd(g, "a", "l", 5); placed != 2 || changed != 3 {
		t.Errorf("%d placed, %d changed; want 2, 3", placed, changed)
	}
}

func TestAPlaceThatIsGivenBackIsTakenByAnother(t *testing.T) {
	t.Parallel()
	s := newShelf(map[string]int64{"l": 1})
	g, _ := start(t, s)
	if err := g.Take("a", "l", "|l"); err != nil {
		t.Fatal(err)
	}
	g.Back("a", "l", "|l")
	eventually(t, "another visit gets the slot", func() bool { return g.Take("a", "l", "|l") == nil })
	if placed, changed, _ := crowd(g, "a", "l", 3); placed != 0 || changed != 3 {
		t.Errorf("%d placed, %d changed; want 0, 3", placed, changed)
	}
}

func TestALinkGivesNoPlaceBeforeItsClicksAreCounted(t *testing.T) {
	t.Parallel()
	s := newShelf(nil)
	s.places["l"] = &link.Places{Key: "|l", Max: 9}
	g, _ := start(t, s)
	if placed, _, failed := crowd(g, "a", "l", 3); placed != 0 || failed != 3 {
		t.Errorf("%d placed, %d failed; want 0, 3", placed, failed)
	}
	eventually(t, "the link is settled", func() bool { return s.settled.Load() == 1 })
	if placed, changed, _ := crowd(g, "a", "l", 5); placed != 2 || changed != 3 {
		t.Errorf("%d placed, %d changed; want 2, 3", placed, changed)
	}
}

func TestALinkWithoutALimitAnyMoreIsLookedUpAgain(t *testing.T) {
	t.Parallel()
	g, forgotten := start(t, newShelf(nil))
	if err := g.Take("a", "l", "|l"); !errors.Is(err, ErrChanged) || forgotten.Load() != 1 {
		t.Errorf("Take = %v, forgotten %d times; want ErrChanged, once", err, forgotten.Load())
	}
}

func TestAStoppedGateLetsNobodyWait(t *testing.T) {
	t.Parallel()
	g := New(Options{Store: newShelf(map[string]int64{"l": 1})})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := g.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if err := g.Take("a", "l", "|l"); err == nil {
		t.Error("Take on a stopped gate succeeded, want an error")
	}
}
