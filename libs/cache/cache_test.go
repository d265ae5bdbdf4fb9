package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
)

// world is a loader whose values, failures and speed the test controls.
type world struct {
	mu     sync.Mutex
	values map[string]string
	err    error
	gate   chan struct{} // if set, loads wait until it is closed
	loads  atomic.Int64
	clock  time.Time
}

func (w *world) load(ctx context.Context, key string) (string, bool, error) {
	w.loads.Add(1)
	w.mu.Lock()
	v, ok := w.values[key]
	err, gate := w.err, w.gate
	w.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return "", false, ctx.Err()
		}
	}
	return v, ok, err
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *world) change(fn func(w *world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn(w)
}

func (w *world) pass(d time.Duration) { w.change(func(w *world) { w.clock = w.clock.Add(d) }) }

func (w *world) set(key, value string) { w.change(func(w *world) { w.values[key] = value }) }

func (w *world) fail(err error) { w.change(func(w *world) { w.err = err }) }

func newWorld(t *testing.T) (*world, *Cache[string]) {
	t.Helper()
	w := &world{values: map[string]string{"a": "1"}, clock: time.Unix(1_790_000_000, 0)}
	return w, New(Options[string]{Load: w.load, Now: w.now, Weigh: func(v string) int { return len(v) }})
}

func get(t *testing.T, c *Cache[string], key string) string {
	t.Helper()
	l, err := c.Get(t.Context(), key)
	switch {
	case err != nil:
		return "error"
	case !l.Found:
		return "absent"
	case l.Stale:
		return l.Value + " stale"
	}
	return l.Value
}

func expect(t *testing.T, c *Cache[string], key, want string) {
	t.Helper()
	if got := get(t, c, key); got != want {
		t.Fatalf("Get(%s) = %s, want %s", key, got, want)
	}
}

func TestGetLoadsWithTheValuesOfTheCallerWhoWaits(t *testing.T) {
	t.Parallel()
	type name struct{}
	c := New(Options[string]{Load: func(ctx context.Context, _ string) (string, bool, error) {
		who, _ := ctx.Value(name{}).(string)
		return who, true, ctx.Err()
	}})
	if _, ok := c.Peek("a", time.Now()); ok {
		t.Error("Peek found a value in an empty cache")
	}
	if l, err := c.Get(context.WithValue(t.Context(), name{}, "first"), "a"); err != nil || l.Value != "first" {
		t.Errorf("Get = %q, %v, want the value from the caller's context", l.Value, err)
	}
	if l, ok := c.Peek("a", time.Now()); !ok || l.Value != "first" {
		t.Errorf("Peek = %q, %t after a load, want first, true", l.Value, ok)
	}
}

func TestGetEndsAValueAfterItsLoadWhateverItsHits(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	expect(t, c, "a", "1")
	w.set("a", "2")
	for range 20 {
		w.pass(time.Second)
		expect(t, c, "a", "1")
	}
	w.pass(10 * time.Second)
	expect(t, c, "a", "2")
	if n := w.loads.Load(); n != 2 {
		t.Errorf("%d loads, want 2", n)
	}
}

func TestGetReloadsBeforeTheEndWithoutWaiting(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	expect(t, c, "a", "1")
	w.set("a", "2")
	w.pass(25 * time.Second)
	expect(t, c, "a", "1")
	for get(t, c, "a") != "2" { // wait until the background load has finished
		time.Sleep(time.Millisecond)
	}
}

func TestGetLivesShorterWhileInvalidationsAreNotHeard(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	expect(t, c, "a", "1")
	w.set("a", "2")
	w.pass(5 * time.Second)
	expect(t, c, "a", "1")
	c.SetSynced(false)
	expect(t, c, "a", "2")
}

func TestGetRemembersForAMomentThatThereIsNothing(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	for range 10 {
		expect(t, c, "b", "absent")
	}
	if n := w.loads.Load(); n != 1 {
		t.Errorf("%d loads, want 1", n)
	}
	w.set("b", "new")
	w.pass(2 * time.Second)
	expect(t, c, "b", "new")
}

func TestGetServesTheLastValueWhileTheLoaderFailsAndGuessesNone(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	expect(t, c, "a", "1")
	expect(t, c, "b", "absent")
	w.fail(apierr.Down(errors.New("down")))
	w.pass(time.Hour)
	expect(t, c, "a", "1 stale")
	expect(t, c, "b", "error")
	tries := w.loads.Load()
	for range 100 {
		expect(t, c, "a", "1 stale")
	}
	if n := w.loads.Load() - tries; n != 0 {
		t.Errorf("%d more loads during the pause after a failure, want 0", n)
	}
	c.Invalidate("a")
	expect(t, c, "a", "error") // an invalidated value is never served again, even if the loader fails
	w.fail(nil)
	expect(t, c, "a", "1")
}

// An error that affects one key does not count as a store outage.
func TestGetLoadsOthersWhileOneKeyCannotBeRead(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	expect(t, c, "a", "1")
	w.pass(time.Hour)
	w.fail(errors.New("broken record"))
	expect(t, c, "b", "error")
	w.fail(nil)
	w.set("a", "2")
	expect(t, c, "a", "2")
}

func TestGetDropsAValueTooOldToStandIn(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	expect(t, c, "a", "1")
	w.fail(apierr.Down(errors.New("down")))
	w.pass(25 * time.Hour)
	expect(t, c, "a", "error")
}

func TestGetLoadsOnceForManyCallers(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	gate := make(chan struct{})
	w.change(func(w *world) { w.gate = gate })
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if l, err := c.Get(t.Context(), "a"); err != nil || l.Value != "1" {
				t.Errorf("Get = %+v, %v, want 1", l, err)
			}
		})
	}
	for w.loads.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	close(gate)
	wg.Wait()
	if n := w.loads.Load(); n > 2 { // a caller may start just after the first load has ended
		t.Errorf("%d loads for 200 callers, want at most 2", n)
	}
}

func TestInvalidateWinsAgainstALoadThatReadBeforeTheChange(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	gate := make(chan struct{})
	w.change(func(w *world) { w.gate = gate })
	got := make(chan string, 1)
	go func() { got <- get(t, c, "a") }()
	for w.loads.Load() == 0 { // wait until the load has read "1" and is blocked
		time.Sleep(time.Millisecond)
	}
	w.change(func(w *world) { w.values["a"], w.gate = "2", nil })
	c.Invalidate("a")
	close(gate)
	if v := <-got; v != "2" {
		t.Errorf("the waiting caller got %s, want 2", v)
	}
	expect(t, c, "a", "2")
}

func TestCurrentKnowsAnAnswerThatWasOvertaken(t *testing.T) {
	t.Parallel()
	_, c := newWorld(t)
	a, err := c.Get(t.Context(), "a")
	if err != nil || !c.Current(a) {
		t.Fatalf("Get = %+v, %v with current = %v, want a current entry", a, err, c.Current(a))
	}
	c.Invalidate("other")
	if !c.Current(a) {
		t.Error("Current = false after another key was invalidated, want true")
	}
	c.Invalidate("a")
	if c.Current(a) {
		t.Error("Current = true after the key was invalidated, want false")
	}
}

func TestInvalidateAllReloadsEverythingButKeepsALastResort(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	before, err := c.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	w.set("a", "2")
	c.InvalidateAll()
	if c.Current(before) {
		t.Error("Current = true for an entry from before InvalidateAll, want false")
	}
	w.fail(apierr.Down(errors.New("down")))
	stale, err := c.Get(t.Context(), "a")
	if err != nil || !stale.Stale || !c.Current(stale) {
		t.Errorf("Get with a failing loader = %+v, %v with current = %v, want a current stale entry", stale, err, c.Current(stale))
	}
	w.fail(nil)
	w.pass(time.Second)
	expect(t, c, "a", "2")
}

func TestMarkUncertainReadsEveryAnswerAnewForASecond(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	before, err := c.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	w.pass(time.Millisecond)
	c.MarkUncertain()
	if !c.Expired(before) {
		t.Error("Expired = false for an entry from before the uncertainty, want true")
	}
	for i := range 5 {
		w.set("a", fmt.Sprint("v", i)) // no invalidations are sent
		expect(t, c, "a", fmt.Sprint("v", i))
		w.pass(time.Millisecond)
	}
	after, err := c.Get(t.Context(), "a")
	if err != nil || c.Expired(after) {
		t.Errorf("entry loaded during the uncertainty: Expired = %v, want false; error %v", c.Expired(after), err)
	}
	w.fail(apierr.Down(errors.New("down")))
	expect(t, c, "a", "v4 stale")
	w.fail(nil)
	w.pass(time.Second)
	w.set("a", "later")
	expect(t, c, "a", "v4") // the uncertainty is over, so entries live for Unsynced again
	w.pass(5 * time.Second)
	expect(t, c, "a", "later")
}

func TestMarkUncertainJoinsNoLoadThatBeganBefore(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	c.MarkUncertain()
	gate := make(chan struct{})
	w.change(func(w *world) { w.gate = gate })
	first := make(chan string, 1)
	go func() { first <- get(t, c, "a") }()
	for w.loads.Load() == 0 { // wait until the load has read "1" and is blocked
		time.Sleep(time.Millisecond)
	}
	w.change(func(w *world) { w.values["a"], w.gate = "2", nil })
	second := make(chan string, 1)
	go func() { second <- get(t, c, "a") }()
	time.AfterFunc(20*time.Millisecond, func() { close(gate) })
	if a, b := <-first, <-second; a != "1" || b != "2" {
		t.Errorf("got %s and %s, want 1 and 2", a, b)
	}
}

func TestInvalidateForgetsWhatNobodyCanHoldAndGuessesNothing(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	held, err := c.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	c.Invalidate("a")
	for i := range 3 * rememberMax / 1000 {
		keys := make([]string, 1000)
		for k := range keys {
			keys[k] = fmt.Sprint(i, "-", k)
		}
		c.Invalidate(keys...)
	}
	if c.Current(held) {
		t.Error("Current = true after the invalidation was forgotten, want false")
	}
	if len(c.recent) > rememberMax+1000 {
		t.Errorf("%d invalidations are remembered, want at most about rememberMax", len(c.recent))
	}
	w.set("a", "2")
	expect(t, c, "a", "2")
	fresh, err := c.Get(t.Context(), "a")
	if err != nil || !c.Current(fresh) {
		t.Errorf("fresh entry: error %v, Current = %v, want true", err, c.Current(fresh))
	}
	w.pass(remember + time.Second)
	c.Invalidate("b")
	if len(c.recent) != 1 {
		t.Errorf("%d invalidations are remembered after %v, want only the last", len(c.recent), remember)
	}
}

func TestGetGivesUpOnALoadThatHangs(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	c := New(Options[string]{Patience: 40 * time.Millisecond, Load: func(ctx context.Context, _ string) (string, bool, error) {
		<-gate
		return "late", true, nil
	}})
	_, err := c.Get(t.Context(), "a")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the store has not answered") {
		t.Errorf("Get while the load hangs: got %v, want a DeadlineExceeded that names the store", err)
	}
	close(gate)
	l, err := c.Get(t.Context(), "a")
	for errors.Is(err, context.DeadlineExceeded) { // wait until the load's goroutine has finished
		l, err = c.Get(t.Context(), "a")
	}
	if err != nil || l.Value != "late" {
		t.Errorf("Get = %q, %v, want late", l.Value, err)
	}
}

func TestCapacityBoundsWhatIsKept(t *testing.T) {
	t.Parallel()
	c := New(Options[string]{Capacity: 100 * 140, Load: func(_ context.Context, key string) (string, bool, error) { return key, true, nil }})
	for i := range 1000 {
		expect(t, c, fmt.Sprint(i), fmt.Sprint(i))
	}
	c.entries.CleanUp()
	if n := c.Len(); n > 150 {
		t.Errorf("%d entries are kept, want at most 150", n)
	}
}

func BenchmarkGetHit(b *testing.B) {
	c := New(Options[string]{Load: func(_ context.Context, key string) (string, bool, error) { return key, true, nil }})
	c.Invalidate("other")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Get(b.Context(), "a"); err != nil {
				b.Error(err)
			}
		}
	})
}
