// Package outage keeps callers away from a dependency that does not answer: from
// Redis, Firestore, storage or a service of ours. Without it every request waits
// for its deadline, and thousands that wait fill the process.
//
// Callers ask [Breaker.Allow] first and report afterwards. When enough failures
// came in a row the breaker opens: callers are refused at once, and either one of
// them tries again every rest, or a probe does, so that no request has to.
package outage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Config says when a dependency counts as away and how often it is tried then.
type Config struct {
	// Failures in a row, at least one, that open the breaker.
	Failures int
	// Over is the least time from the first to the last of them: a few failures at
	// one instant may be a machine that stalled.
	Over time.Duration
	// Rest passes between two tries while the dependency is away.
	Rest time.Duration
	// Probe asks whether it is back, in pauses that grow to Rest, in place of
	// callers; with nil one caller per Rest may try.
	Probe func(context.Context) error
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// probeFirst is the pause before the first probe.
const probeFirst = 100 * time.Millisecond

// Breaker is the state of one dependency as one process sees it. It is safe for
// concurrent use.
type Breaker struct {
	cfg  Config
	wait func(ctx context.Context, d time.Duration) bool // of probes
	away atomic.Bool                                     // read without the lock by every caller

	mu     sync.Mutex
	fails  int
	since  time.Time // first failure in a row
	next   time.Time // when a caller may try again
	closed bool      // for good
	cancel context.CancelFunc
	done   chan struct{}
}

// New makes a breaker that lets everybody through.
func New(cfg Config) *Breaker {
	cfg.Failures = max(cfg.Failures, 1)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Breaker{cfg: cfg, wait: Pause}
}

// Allow reports whether the caller may try now. Whoever may, reports how it went
// by OK or Fail; one that never does costs the others one rest.
func (b *Breaker) Allow() bool {
	if !b.away.Load() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.away.Load() {
		return true
	}
	now := b.cfg.Now()
	if b.cfg.Probe != nil || now.Before(b.next) {
		return false
	}
	b.next = now.Add(b.cfg.Rest)
	return true
}

// Away reports whether the dependency is known to be away, and since when.
func (b *Breaker) Away() (since time.Time, away bool) {
	if !b.away.Load() {
		return time.Time{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since, b.away.Load()
}

// OK notes that the dependency has answered.
func (b *Breaker) OK() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails = 0
	if b.cfg.Probe == nil { // else the answer may be one from before the outage, and the probe decides
		b.away.Store(false)
	}
}

// Fail counts a failure and reports whether it opened the breaker.
func (b *Breaker) Fail() (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Now()
	if b.fails == 0 {
		b.since = now
	}
	b.fails++
	b.next = now.Add(b.cfg.Rest)
	if b.away.Load() || b.closed || b.fails < b.cfg.Failures || now.Sub(b.since) < b.cfg.Over {
		return false
	}
	b.away.Store(true)
	if b.cfg.Probe != nil {
		ctx, cancel := context.WithCancel(context.Background())
		b.cancel, b.done = cancel, make(chan struct{})
		go b.heal(ctx, b.done)
	}
	return true
}

func (b *Breaker) heal(ctx context.Context, done chan struct{}) {
	defer close(done)
	for pause := min(probeFirst, b.cfg.Rest); b.wait(ctx, pause); pause = min(2*pause, b.cfg.Rest) {
		if b.cfg.Probe(ctx) == nil {
			b.mu.Lock()
			b.away.Store(false)
			b.fails = 0
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

// Pause waits for d or the end of ctx, and reports whether d has passed.
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
