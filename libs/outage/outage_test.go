package outage

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
)

type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(0, c.at.Load()) }
func (c *clock) pass(d time.Duration) { c.at.Add(int64(d)) }
func newClock() *clock                { c := &clock{}; c.at.Store(1e18); return c }
func times(n int, f func() bool) (k int) { // counts how many of n calls return true
	for range n {
		if f() {
			k++
		}
	}
	return k
}

func TestBreakerLetsOneCallerThroughPerRest(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := New(Config{Failures: 3, Rest: time.Second, Now: c.now})
	b.Fail()
	b.Fail()
	if n := times(10, b.Allow); n != 10 {
		t.Errorf("after two of three failures, %d of 10 calls are allowed, want all", n)
	}
	began := c.now()
	b.OK()
	c.pass(time.Minute)
	for i, want := range []bool{false, false, true, false} {
		if got := b.Fail(); got != want {
			t.Errorf("Fail returned %[2]v for failure %[1]d, want %[3]v because a success in between resets the count", i+1, got, want)
		}
	}
	if since, away := b.Away(); !away || since != began.Add(time.Minute) {
		t.Errorf("Away = %v since %v, want true since the last failure", away, since)
	}
	if n := times(100, b.Allow); n != 0 {
		t.Errorf("%d calls are allowed before the rest is over, want 0", n)
	}
	c.pass(time.Second)
	if n := times(100, b.Allow); n != 1 {
		t.Errorf("%d calls are allowed after a rest, want 1", n)
	}
	c.pass(time.Second) // the caller has not reported the outcome
	if n := times(100, b.Allow); n != 1 {
		t.Errorf("%d calls are allowed after another rest, want 1", n)
	}
	b.Fail()
	if n := times(100, b.Allow); n != 0 {
		t.Errorf("%d calls are allowed after another failure, want 0", n)
	}
	c.pass(time.Second)
	if !b.Allow() {
		t.Error("Allow = false after the rest, want true")
	}
	b.OK()
	if _, away := b.Away(); away || times(10, b.Allow) != 10 {
		t.Error("the breaker is still open after a success, want it closed")
	}
}

func TestBreakerBelievesNoStall(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := New(Config{Failures: 2, Over: 300 * time.Millisecond, Rest: time.Second, Now: c.now})
	if times(50, b.Fail) != 0 {
		t.Error("simultaneous failures opened the breaker, want it closed")
	}
	c.pass(300 * time.Millisecond)
	if !b.Fail() {
		t.Error("failures that span 300 ms did not open the breaker, want it open")
	}
}

func TestBreakerAsksByItselfWhereItHasAProbe(t *testing.T) {
	t.Parallel()
	c := newClock()
	probes, pauses := make(chan error), make(chan time.Duration, 10)
	b := New(Config{Rest: time.Second, Now: c.now, Probe: func(context.Context) error { return <-probes }})
	b.wait = func(ctx context.Context, d time.Duration) bool { pauses <- d; return ctx.Err() == nil }
	defer b.Close()
	if !b.Fail() || b.Allow() {
		t.Fatal("one failure did not open the breaker, want it open")
	}
	b.OK() // a success from a call that began before the outage
	c.pass(time.Hour)
	if n := times(10, b.Allow); n != 0 {
		t.Errorf("%d calls are allowed with a probe, want 0", n)
	}
	for range 5 {
		probes <- errors.New("away")
	}
	probes <- nil
	for i, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		if got := <-pauses; got != want*time.Millisecond {
			t.Errorf("pause %d = %v, want %v ms", i+1, got, want)
		}
	}
	for !b.Allow() { // until the probe's goroutine has closed the breaker
		time.Sleep(time.Millisecond)
	}
}

func TestBreakerEndsItsProbes(t *testing.T) {
	t.Parallel()
	probe := func(context.Context) error { return errors.New("away") }
	b := New(Config{Rest: time.Hour, Probe: probe})
	b.Fail()
	b.Close() // waits for the goroutine
	never := New(Config{Rest: time.Hour, Probe: probe})
	never.Close()
	if never.Fail() {
		t.Error("Fail opened the breaker after Close, want it closed")
	}
}

func TestCallJudgesWhatAnErrorSaysOfTheDependency(t *testing.T) {
	t.Parallel()
	away := apierr.Down(errors.New("503"))
	for name, c := range map[string]struct {
		call func(ctx context.Context, c *clock) error
		left func(ctx context.Context) context.Context // the caller's context
		want bool                                      // whether it opens a breaker with Failures: 1
	}{
		"success":                           {call: func(context.Context, *clock) error { return nil }},
		"error from the caller":             {call: func(context.Context, *clock) error { return errors.New("no such thing") }},
		"unavailable dependency":            {call: func(context.Context, *clock) error { return away }, want: true},
		"timeout":                           {call: func(ctx context.Context, _ *clock) error { <-ctx.Done(); return ctx.Err() }, want: true},
		"cancelled caller":                  {call: func(context.Context, *clock) error { return away }, left: canceled},
		"cancelled call":                    {call: func(context.Context, *clock) error { return context.Canceled }},
		"caller with a very short deadline": {call: func(context.Context, *clock) error { return away }, left: late},
		"caller after its deadline":         {call: func(context.Context, *clock) error { return away }, left: unnoticed},
		"caller with a sufficient deadline": {call: func(_ context.Context, c *clock) error { c.pass(2 * time.Second); return away }, left: late, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c2 := newClock()
			b := New(Config{Rest: time.Second, Now: c2.now})
			ctx, timeout := t.Context(), time.Millisecond
			if c.left != nil {
				ctx, timeout = c.left(ctx), time.Minute
			}
			_ = b.Call(ctx, timeout, func(ctx context.Context) error { return c.call(ctx, c2) }) // only its effect on the breaker matters
			if _, got := b.Away(); got != c.want {
				t.Errorf("Away = %v, want %v", got, c.want)
			}
		})
	}
}

func canceled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func late(ctx context.Context) context.Context {
	ctx, cancel := context.WithDeadline(ctx, time.Unix(1, 0))
	cancel()
	return ctx
}

// unnoticed is a context past its deadline, with a timer that has not fired yet. A client that sets
// the deadline on its connection can return in this state.
func unnoticed(ctx context.Context) context.Context { return overdue{ctx} }

type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now(), true }

// When one read in a sweep fails, the sweep's other reads are cancelled. A cancelled call must not
// close the breaker.
func TestCallIsNotClosedByWhoLeaves(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := New(Config{Rest: time.Second, Now: c.now})
	b.Fail()
	c.pass(time.Second)
	g, ctx := errgroup.WithContext(t.Context())
	for range 8 {
		g.Go(func() error {
			return b.Call(ctx, time.Minute, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		})
	}
	if err := g.Wait(); apierr.CodeOf(err) != apierr.Unavailable {
		t.Errorf("seven of eight calls returned %v, want UNAVAILABLE", err)
	}
	if _, away := b.Away(); !away {
		t.Error("a cancelled call closed the breaker, want it open")
	}
}

func TestCallIgnoresWhatBeganBeforeTheLastChange(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := New(Config{Name: "the dependency", Rest: time.Second, Now: c.now})
	began, end := make(chan struct{}, 4), make(chan error)
	done := make(chan error, 4)
	for range 4 {
		go func() {
			done <- b.Call(t.Context(), time.Minute, func(context.Context) error { began <- struct{}{}; return <-end })
		}()
	}
	for range 4 {
		<-began
	}
	finish := func(err error) { end <- err; <-done }
	finish(apierr.Down(errors.New("503")))
	c.pass(900 * time.Millisecond)
	finish(apierr.Down(errors.New("503"))) // must not postpone the next attempt
	finish(nil)                            // began before the outage, so it must not close the breaker
	if b.Allow() {
		t.Error("a successful call that began before the outage closed the breaker, want it open")
	}
	c.pass(100 * time.Millisecond)
	if err := b.Call(t.Context(), time.Minute, func(context.Context) error { return nil }); err != nil {
		t.Errorf("Call after a late failure: got %v, want it allowed", err)
	}
	finish(apierr.Down(errors.New("503")))
	if _, away := b.Away(); away {
		t.Error("a failed call that began before the outage opened the breaker again, want it closed")
	}
}

func BenchmarkBreakerAllow(b *testing.B) {
	x := New(Config{})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			x.Allow()
		}
	})
}

// A breaker that only observes is updated by Note and Open.
func TestNoteAndOpenWatchCallsOfOthers(t *testing.T) {
	t.Parallel()
	c := newClock()
	var opened error
	b := New(Config{Failures: 2, Over: time.Second, Rest: time.Second, Now: c.now, Opened: func(err error) { opened = err }})
	first := errors.New("first")
	b.Note(first)
	c.pass(2 * time.Second)
	b.Note(nil)
	b.Note(first)
	if _, away := b.Away(); away {
		t.Error("a success in between did not reset the count, want it reset")
	}
	b.Open(first)
	if since, away := b.Away(); !away || since != c.now() || !errors.Is(opened, first) {
		t.Errorf("Away = %v since %v, Opened was called with %v; want true since now with the first error", away, since, opened)
	}
	b.Note(nil)
	if _, away := b.Away(); away {
		t.Error("the breaker is open after a success, want it closed")
	}
}

// Not parallel: the whole process shares the logger.
func TestADependencyThatComesAndGoesWritesALineAMinute(t *testing.T) {
	var log bytes.Buffer
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(former)
	c := newClock()
	b := New(Config{Name: "a test store", Failures: 1, Rest: time.Second, Now: c.now})
	for range 30 { // two minutes
		b.Note(errors.New("i/o timeout"))
		c.pass(3 * time.Second)
		b.Note(nil)
		c.pass(time.Second)
	}
	// The third line is due, and this outage continues.
	b.Note(errors.New("i/o timeout"))
	c.pass(time.Minute)
	b.Note(errors.New("i/o timeout"))
	b.Note(nil)
	away, back := strings.Count(log.String(), "does not answer"), strings.Count(log.String(), "answers again")
	if away != 3 || back != 3 || strings.Count(log.String(), "times=15") != 2 || strings.Count(log.String(), "away=3s") != 2 || !strings.Contains(log.String(), "away=1m0s") {
		t.Errorf("%d lines about outages and %d about recoveries, want 3 and 3:\n%s", away, back, &log)
	}
}

// Probes decide whether a dependency has recovered. Other calls may succeed in between, but the
// start of the outage does not change.
func TestAnAnswerDuringAnOutageDoesNotShortenIt(t *testing.T) {
	t.Parallel()
	c := newClock()
	probe := func(context.Context) error { return errors.New("away") }
	b := New(Config{Failures: 1, Rest: time.Hour, Now: c.now, Probe: probe})
	defer b.Close()
	began := c.now()
	b.Note(errors.New("i/o timeout"))
	for range 5 {
		c.pass(10 * time.Second)
		b.Note(nil)
		b.Note(errors.New("i/o timeout"))
	}
	if since, away := b.Away(); !away || !since.Equal(began) {
		t.Errorf("Away = %v since %v, want true since %v", away, since, began)
	}
}
