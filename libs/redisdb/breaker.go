package redisdb

import (
	"context"
	"sync"
	"time"
)

// Breaker keeps requests away from a Redis that does not answer. A few failures
// at one instant are no outage: a busy machine can stall for 100 ms, and
// believing in an outage weakens revocation to 5 seconds.
type Breaker struct {
	now   func() time.Time
	probe func(context.Context) error
	wait  func(ctx context.Context, d time.Duration) bool // false: stop

	mu     sync.Mutex
	fails  int
	since  time.Time // first failure in a row
	open   bool
	closed bool // for good
	cancel context.CancelFunc
	done   chan struct{}
}

const (
	tripFails  = 5
	tripAfter  = 300 * time.Millisecond
	probeFirst = 100 * time.Millisecond
	probeMax   = time.Second
)

// NewBreaker makes a closed breaker. probe asks whether Redis is back; wait waits
// for d and reports false when ctx has ended, nil is a timer.
func NewBreaker(now func() time.Time, probe func(context.Context) error, wait func(ctx context.Context, d time.Duration) bool) *Breaker {
	if wait == nil {
		wait = Pause
	}
	return &Breaker{now: now, probe: probe, wait: wait}
}

// Away reports whether Redis is known to be away, and since when.
func (b *Breaker) Away() (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since, b.open
}

// OK notes that Redis has answered.
func (b *Breaker) OK() {
	b.mu.Lock()
	b.fails = 0
	b.mu.Unlock()
}

// Fail counts a failure and reports whether it made the difference.
func (b *Breaker) Fail() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if b.fails == 0 {
		b.since = now
	}
	b.fails++
	if b.open || b.closed || b.fails < tripFails || now.Sub(b.since) < tripAfter {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.open, b.cancel, b.done = true, cancel, make(chan struct{})
	go b.heal(ctx, b.done)
	return true
}

// heal asks until Redis answers, so that no request has to be the one that tries.
func (b *Breaker) heal(ctx context.Context, done chan struct{}) {
	defer close(done)
	for pause := probeFirst; b.wait(ctx, pause); pause = min(2*pause, probeMax) {
		if b.probe(ctx) == nil {
			b.mu.Lock()
			b.open, b.fails = false, 0
			b.mu.Unlock()
			return
		}
	}
}

// Close ends the probes.
func (b *Breaker) Close() {
	b.mu.Lock()
	b.closed = true
	cancel, done := b.cancel, b.done
	b.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}

// Pause waits for d or the end of ctx.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
