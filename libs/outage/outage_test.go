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
		t.Errorf("after two failures of three, %d of 10 callers may try", n)
	}
	began := c.now()
	b.OK()
	c.pass(time.Minute)
	for i, want := range []bool{false, false, true, false} {
		if got := b.Fail(); got != want {
			t.Errorf("failure %d opened: %v, want %v: an answer in between resets the count", i+1, got, want)
		}
	}
	if since, away := b.Away(); !away || since != began.Add(time.Minute) {
		t.Errorf("away %v since %v", away, since)
	}
	if n := times(100, b.Allow); n != 0 {
		t.Errorf("%d callers may try before the rest is over", n)
	}
	c.pass(time.Second)
	if n := times(100, b.Allow); n != 1 {
		t.Errorf("%d callers may try after a rest, want 1", n)
	}
	c.pass(time.Second) // the caller never reported the outcome
	if n := times(100, b.Allow); n != 1 {
		t.Errorf("%d callers may try after another rest, want 1", n)
	}
	b.Fail()
	if n := times(100, b.Allow); n != 0 {
		t.Errorf("%d callers may try after another failure", n)
	}
	c.pass(time.Second)
	if !b.Allow() {
		t.Error("no caller may try after the rest")
	}
	b.OK()
	if _, away := b.Away(); away || times(10, b.Allow) != 10 {
		t.Error("the breaker is still open after an answer")
	}
}

func TestBreakerBelievesNoStall(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := New(Config{Failures: 2, Over: 300 * time.Millisecond, Rest: time.Second, Now: c.now})
	if times(50, b.Fail) != 0 {
		t.Error("failures at one instant opened the breaker")
	}
	c.pass(300 * time.Millisecond)
	if !b.Fail() {
		t.Error("failures that span 300 ms did not open the breaker")
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
		t.Fatal("one failure did not open the breaker")
	}
	b.OK() // an answer to a call from before the outage
	c.pass(time.Hour)
	if n := times(10, b.Allow); n != 0 {
		t.Errorf("%d callers may try although there is a probe", n)
	}
	for range 5 {
		probes <- errors.New("away")
	}
	probes <- nil
	for i, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		if got := <-pauses; got != want*time.Millisecond {
			t.Errorf("pause %d is %v, want %v ms", i+1, got, want)
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
		t.Error("the breaker started a probe after Close")
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
		"an answer":                  {call: func(context.Context, *clock) error { return nil }},
		"an error of the caller's":   {call: func(context.Context, *clock) error { return errors.New("no such thing") }},
		"away":                       {call: func(context.Context, *clock) error { return away }, want: true},
		"out of time":                {call: func(ctx context.Context, _ *clock) error { <-ctx.Done(); return ctx.Err() }, want: true},
		"the caller left":            {call: func(context.Context, *clock) error { return away }, left: canceled},
		"the call was canceled":      {call: func(context.Context, *clock) error { return context.Canceled }},
		"the caller had no time":     {call: func(context.Context, *clock) error { return away }, left: late},
		"the caller's time is over":  {call: func(context.Context, *clock) error { return away }, left: unnoticed},
		"the caller had enough time": {call: func(_ context.Context, c *clock) error { c.pass(2 * time.Second); return away }, left: late, want: true},
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
				t.Errorf("away: %v, want %v", got, c.want)
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

// unnoticed is past its deadline although its timer has not fired yet. A client that sets
// the deadline on its connection can return that early.
func unnoticed(ctx context.Context) context.Context { return overdue{ctx} }

type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now(), true }

// When one read of a sweep fails, its other reads are cancelled. A cancelled call must
// not close the breaker.
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
		t.Errorf("seven of eight calls got %v", err)
	}
	if _, away := b.Away(); !away {
		t.Error("a call that was cancelled closed the breaker")
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
		t.Error("an answer to a call from before the outage closed the breaker")
	}
	c.pass(100 * time.Millisecond)
	if err := b.Call(t.Context(), time.Minute, func(context.Context) error { return nil }); err != nil {
		t.Errorf("a late failure postponed the next attempt: %v", err)
	}
	finish(apierr.Down(errors.New("503")))
	if _, away := b.Away(); away {
		t.Error("a failure of a call from the outage opened the breaker again")
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

// A breaker that only watches learns about calls from Note and Open.
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
		t.Error("an answer in between did not reset the count")
	}
	b.Open(first)
	if since, away := b.Away(); !away || since != c.now() || !errors.Is(opened, first) {
		t.Errorf("away %v since %v, Opened got %v", away, since, opened)
	}
	b.Note(nil)
	if _, away := b.Away(); away {
		t.Error("an answer did not close the breaker")
	}
}

// Not parallel: the whole process shares the logger.
func TestADependencyThatComesAndGoesWritesALineAMinute(t *testing.T) {
	var log bytes.Buffer
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(former)
	c := newClock()
	b := New(Config{Name: "a store of the test", Failures: 1, Rest: time.Second, Now: c.now})
	for range 30 { // two minutes
		b.Note(errors.New("i/o timeout"))
		c.pass(3 * time.Second)
		b.Note(nil)
		c.pass(time.Second)
	}
	// The third line's time has come, and this outage lasts.
	b.Note(errors.New("i/o timeout"))
	c.pass(time.Minute)
	b.Note(errors.New("i/o timeout"))
	b.Note(nil)
	away, back := strings.Count(log.String(), "does not answer"), strings.Count(log.String(), "answers again")
	if away != 3 || back != 3 || strings.Count(log.String(), "times=15") != 2 || strings.Count(log.String(), "away=3s") != 2 || !strings.Contains(log.String(), "away=1m0s") {
		t.Errorf("%d lines of outages, %d of their ends; want 3 and 3:\n%s", away, back, &log)
	}
}

// Probes decide that a dependency is back, but calls of others may work now and then. The
// outage began before them.
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
		t.Errorf("away %v since %v, want %v", away, since, began)
	}
}
