// Package outage keeps callers away from a dependency that does not answer.
// Without it every request waits for its deadline, and thousands that wait fill
// the process.
//
// [Breaker.Call] makes a call and judges it, so that only what the dependency did counts:
// a caller that hangs up, or reaches its own deadline first, has found out nothing. A
// caller that has to judge by itself asks [Breaker.Allow] first and reports the outcome.
// After enough failures in a row the breaker opens and refuses callers at once. After
// each rest one caller tries again, or a probe does so that no request has to.
package outage

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/linkreel/linkreel/libs/apierr"
)

// Config says when a dependency counts as away and how often it is tried then.
type Config struct {
	// Name is the dependency's, for the log and the metric; without one neither
	// tells of it.
	Name string
	// Failures in a row, at least one, that open the breaker.
	Failures int
	// Over is the least time from the first to the last of them: a few failures at
	// one instant may be a machine that stalled.
	Over time.Duration
	// Rest passes between two tries while the dependency is away.
	Rest time.Duration
	// Down tells errors of a call that say the dependency does not answer from those
	// that are an answer; nil is [Down].
	Down func(error) bool
	// Probe asks whether it is back, in pauses that grow to Rest, in place of
	// callers; with nil one caller per Rest may try.
	Probe func(context.Context) error
	// Opened gets the error that opened the breaker; nil where the log by Name is enough.
	// It must not call the breaker.
	Opened func(error)
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

var awayNow = promauto.NewGaugeVec(prometheus.GaugeOpts{Name: "linkreel_dependency_away",
	Help: "Whether calls to a dependency are refused at once because it did not answer."}, []string{"dependency"})

// Down is how an error is judged where a dependency has no rule of its own: it says
// UNAVAILABLE, or that time ran out.
func Down(err error) bool {
	return apierr.CodeOf(err) == apierr.Unavailable || errors.Is(err, context.DeadlineExceeded)
}

// fair is the least time of a call whose caller's deadline counts as a failure: who
// asks with less has not waited for an answer.
const fair = time.Second

// probeFirst is the pause before the first probe.
const probeFirst = 100 * time.Millisecond

// Breaker is the state of one dependency as one process sees it. It is safe for
// concurrent use.
type Breaker struct {
	cfg  Config
	wait func(ctx context.Context, d time.Duration) bool // of probes
	away atomic.Bool                                     // read without the lock by every caller

	mu     sync.Mutex
	round  uint64 // of openings and closings
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
	if cfg.Down == nil {
		cfg.Down = Down
	}
	if cfg.Name != "" {
		awayNow.WithLabelValues(cfg.Name).Add(0)
	}
	return &Breaker{cfg: cfg, wait: Pause}
}

// Call makes a call of at most timeout, or says UNAVAILABLE at once while the
// dependency is away. A caller that left has found out nothing, nor has a call that began
// before the dependency was found to be away or back.
func (b *Breaker) Call(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	if !b.Allow() {
		return apierr.Down(errors.New(cmp.Or(b.cfg.Name, "a dependency") + " does not answer"))
	}
	b.mu.Lock()
	round := b.round
	b.mu.Unlock()
	began := b.cfg.Now()
	short, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := f(short)
	switch left := ended(ctx); {
	case err != nil && (errors.Is(left, context.Canceled) || errors.Is(err, context.Canceled)):
	case err == nil || !b.cfg.Down(err):
		b.report(nil, round)
	case left != nil && b.cfg.Now().Sub(began) < min(fair, timeout):
	default:
		b.report(err, round)
	}
	return err
}

// ended is why the caller does not wait any longer. A client that sets the deadline on
// its connection may return before the context has noticed that it is over.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && time.Until(d) <= 0 {
		return context.DeadlineExceeded
	}
	return nil
}

func (b *Breaker) report(err error, round uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case round != b.round:
	case err != nil:
		b.fail(err)
	default:
		b.ok()
	}
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
	b.ok()
}

func (b *Breaker) ok() {
	b.fails = 0
	if b.cfg.Probe == nil { // else the answer may be one from before the outage, and the probe decides
		b.turn(false, nil)
	}
}

// turn opens or closes.
func (b *Breaker) turn(away bool, err error) {
	if b.away.Swap(away) == away {
		return
	}
	b.round++
	if b.cfg.Name == "" {
		return
	}
	if away {
		awayNow.WithLabelValues(b.cfg.Name).Inc()
		slog.Warn(b.cfg.Name+" does not answer; calls of it are refused until it does", "error", err)
		return
	}
	awayNow.WithLabelValues(b.cfg.Name).Dec()
	slog.Warn(b.cfg.Name+" answers again", "away", b.cfg.Now().Sub(b.since).Round(time.Millisecond).String())
}

// Fail counts a failure and reports whether it opened the breaker.
func (b *Breaker) Fail() (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fail(nil)
}

func (b *Breaker) fail(err error) (opened bool) {
	now := b.cfg.Now()
	if b.fails == 0 {
		b.since = now
	}
	b.fails++
	if b.away.Load() || b.closed || b.fails < b.cfg.Failures || now.Sub(b.since) < b.cfg.Over {
		return false
	}
	b.next = now.Add(b.cfg.Rest)
	b.turn(true, err)
	if b.cfg.Opened != nil {
		b.cfg.Opened(err)
	}
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
			b.turn(false, nil)
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
