package outage

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(0, c.at.Load()) }
func (c *clock) pass(d time.Duration) { c.at.Add(int64(d)) }
func newClock() *clock                { c := &clock{}; c.at.Store(1e18); return c }
func times(n int, f func() bool) (k int) { // how many of n calls say true
	for range n {
		if f() {
			k++
		}
	}
	return k
}

func TestBreaker_lets_one_caller_through_per_rest(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := New(Config{Failures: 3, Rest: time.Second, Now: c.now})
	b.Fail()
	b.Fail()
	if n := times(10, b.Allow); n != 10 {
		t.Errorf("after two failures of three, %d of 10 may try", n)
	}
	began := c.now()
	b.OK()
	c.pass(time.Minute)
	for i, want := range []bool{false, false, true, false} {
		if got := b.Fail(); got != want {
			t.Errorf("failure %d opened: %v, want %v: an answer between ends the row", i+1, got, want)
		}
	}
	if since, away := b.Away(); !away || since != began.Add(time.Minute) {
		t.Errorf("away %v since %v", away, since)
	}
	if n := times(100, b.Allow); n != 0 {
		t.Errorf("%d may try at once", n)
	}
	c.pass(time.Second)
	if n := times(100, b.Allow); n != 1 {
		t.Errorf("%d may try after a rest, want 1", n)
	}
	c.pass(time.Second) // that one never said how it went
	if n := times(100, b.Allow); n != 1 {
		t.Errorf("%d may try after another rest, want 1", n)
	}
	b.Fail()
	if n := times(100, b.Allow); n != 0 {
		t.Errorf("%d may try after it failed again", n)
	}
	c.pass(time.Second)
	if !b.Allow() {
		t.Error("nobody may try")
	}
	b.OK()
	if _, away := b.Away(); away || times(10, b.Allow) != 10 {
		t.Error("still away after an answer")
	}
}

func TestBreaker_believes_no_stall(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := New(Config{Failures: 2, Over: 300 * time.Millisecond, Rest: time.Second, Now: c.now})
	if times(50, b.Fail) != 0 {
		t.Error("failures at one instant opened it")
	}
	c.pass(300 * time.Millisecond)
	if !b.Fail() {
		t.Error("failures over 300 ms did not")
	}
}

func TestBreaker_asks_by_itself_where_it_has_a_probe(t *testing.T) {
	t.Parallel()
	c := newClock()
	probes, pauses := make(chan error), make(chan time.Duration, 10)
	b := New(Config{Rest: time.Second, Now: c.now, Probe: func(context.Context) error { return <-probes }})
	b.wait = func(ctx context.Context, d time.Duration) bool { pauses <- d; return ctx.Err() == nil }
	defer b.Close()
	if !b.Fail() || b.Allow() {
		t.Fatal("one failure did not open it")
	}
	b.OK() // an answer from before
	c.pass(time.Hour)
	if n := times(10, b.Allow); n != 0 {
		t.Errorf("%d callers may try in place of the probe", n)
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
	for !b.Allow() { // the probe's goroutine is on its way
		time.Sleep(time.Millisecond)
	}
}

func TestBreaker_ends_its_probes(t *testing.T) {
	t.Parallel()
	b := New(Config{Rest: time.Hour, Probe: func(ctx context.Context) error { return errors.New("away") }})
	b.Fail()
	b.Close() // waits for the goroutine
	if b.Fail() {
		t.Error("a closed breaker begins to probe")
	}
}

func BenchmarkBreaker_Allow(b *testing.B) {
	x := New(Config{})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			x.Allow()
		}
	})
}
