// Package outage stops calls to a dependency that is not responding. Without it, every request
// would wait for its deadline, and thousands of waiting requests would exhaust the process's
// resources.
//
// [Breaker.Call] makes a call, and only counts outcomes that the dependency may have caused.
// If the caller cancels, or reaches its own deadline first, the outcome does not count. A caller
// that decides which outcomes count calls [Breaker.Allow] first and then reports the outcome. After
// enough consecutive failures, the breaker opens and refuses calls immediately. After each rest,
// one caller may try again. If there is a probe, the breaker calls it instead.
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
	"github.com/linkreel/linkreel/libs/lograte"
)

// Config defines when a dependency counts as unreachable, and how often to retry while it is
// unreachable.
type Config struct {
	// Name is the dependency's name for the log and the metric. If it is empty, the breaker neither
	// logs nor reports a metric.
	Name string
	// Says follows the name in the log line written when the breaker opens. The default says that
	// calls are refused.
	Says string
	// Failures is the number of consecutive failures that open the breaker, at least one.
	Failures int
	// Over is the minimum time between the first and the last of these failures. Several
	// simultaneous failures may only mean that the machine stalled.
	Over time.Duration
	// Rest is the time between attempts while the dependency is unreachable.
	Rest time.Duration
	// Down reports whether an error from a call means that the dependency is not responding. If
	// it is nil, the breaker uses the function [Down].
	Down func(error) bool
	// Probe checks whether the dependency has recovered, with pauses that increase up to Rest. If
	// it is nil, one caller per Rest may try instead.
	Probe func(context.Context) error
	// Opened, if set, is called with the error that opened the breaker. It must not call
	// the breaker.
	Opened func(error)
	// Now returns the time; nil means the system clock.
	Now func() time.Time
}

var awayNow = promauto.NewGaugeVec(prometheus.GaugeOpts{Name: "linkreel_dependency_away",
	Help: "How many breakers in this process are open because a dependency does not answer, or because Redis refuses writes."}, []string{"dependency"})

// Down is the default for [Config.Down]: an error means an outage if it is UNAVAILABLE
// or an exceeded deadline.
func Down(err error) bool {
	return apierr.CodeOf(err) == apierr.Unavailable || errors.Is(err, context.DeadlineExceeded)
}

// fair is how long a call must have run before its caller's deadline counts as a failure. After a
// shorter time, the dependency may not be the cause.
const fair = time.Second

// probeFirst is the pause before the first probe.
const probeFirst = 100 * time.Millisecond

// Breaker tracks one dependency's state in one process. It is safe for concurrent use.
type Breaker struct {
	cfg  Config
	wait func(ctx context.Context, d time.Duration) bool // waits before a probe
	away atomic.Bool                                     // read without the lock by every caller

	lines lograte.State // limits the log lines

	mu     sync.Mutex
	round  uint64 // counts openings and closings
	fails  int
	since  time.Time // first of the consecutive failures, or of the current outage
	next   time.Time // when a caller may try again
	closed bool      // [Breaker.Close] was called
	cancel context.CancelFunc
	done   chan struct{}
}

// New returns a closed breaker, which allows every call.
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

// Call runs a call for at most timeout, or returns UNAVAILABLE immediately while the dependency is
// unreachable. The outcome does not count if the caller cancelled, or if the call began before the
// breaker last opened or closed.
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

// ended returns why the caller has stopped waiting, or nil if it is still waiting. A client that
// sets the deadline on its connection may return just before the context is done, so ended also
// checks the clock.
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

// Note counts the outcome of a call that the breaker did not control. It is for a breaker that only
// observes.
func (b *Breaker) Note(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.ok()
		return
	}
	b.fail(err)
}

// Open opens the breaker immediately. Call it after an error that can only mean an outage.
func (b *Breaker) Open(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.away.Load() && !b.closed {
		b.since = b.cfg.Now()
		b.open(err)
	}
}

// Allow reports whether the caller may try now. If it returns true, the caller must report the
// outcome with OK or Fail. Without a report, other callers must wait for another rest.
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

// Away reports whether the dependency is known to be unreachable, and since when.
func (b *Breaker) Away() (since time.Time, away bool) {
	if !b.away.Load() {
		return time.Time{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since, b.away.Load()
}

// OK records that the dependency has answered.
func (b *Breaker) OK() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ok()
}

func (b *Breaker) ok() {
	b.fails = 0
	if b.cfg.Probe == nil { // with a probe, only the probe closes the breaker: this response may predate the outage
		b.turn(false, nil)
	}
}

// turn opens or closes the breaker.
func (b *Breaker) turn(away bool, err error) {
	if b.away.Swap(away) == away {
		return
	}
	b.round++
	if b.cfg.Name == "" {
		return
	}
	now := b.cfg.Now()
	if away {
		awayNow.WithLabelValues(b.cfg.Name).Inc()
		b.tellAway(err, b.lines.Failed(now))
		return
	}
	awayNow.WithLabelValues(b.cfg.Name).Dec()
	if _, told := b.lines.Worked(now); told {
		slog.Warn(b.cfg.Name+" answers again", "away", now.Sub(b.since).Round(time.Millisecond).String())
	}
}

// tellAway logs that the dependency is unreachable. times is the number of outages that the line
// represents; 0 means that it is too early for another line. As a result, an unstable dependency
// causes only one line a minute.
func (b *Breaker) tellAway(err error, times int64) {
	if times > 0 {
		slog.Warn(b.cfg.Name+" "+cmp.Or(b.cfg.Says, "does not answer; calls are refused until it does"), "error", err, "times", times)
	}
}

// tellStillAway writes the line for an outage that began too soon after the previous line.
func (b *Breaker) tellStillAway(err error) {
	if b.cfg.Name != "" {
		b.tellAway(err, b.lines.StillFailing(b.cfg.Now()))
	}
}

// Fail counts a failure and reports whether it opened the breaker.
func (b *Breaker) Fail() (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fail(nil)
}

func (b *Breaker) fail(err error) (opened bool) {
	now := b.cfg.Now()
	away := b.away.Load()
	if b.fails == 0 && !away { // a success during the outage resets the count, but the outage began earlier
		b.since = now
	}
	b.fails++
	if away {
		b.tellStillAway(err)
	}
	if away || b.closed || b.fails < b.cfg.Failures || now.Sub(b.since) < b.cfg.Over {
		return false
	}
	b.open(err)
	return true
}

func (b *Breaker) open(err error) {
	b.next = b.cfg.Now().Add(b.cfg.Rest)
	b.turn(true, err)
	if b.cfg.Opened != nil {
		b.cfg.Opened(err)
	}
	if b.cfg.Probe != nil {
		ctx, cancel := context.WithCancel(context.Background())
		b.cancel, b.done = cancel, make(chan struct{})
		go b.heal(ctx, b.done)
	}
}

func (b *Breaker) heal(ctx context.Context, done chan struct{}) {
	defer close(done)
	for pause := min(probeFirst, b.cfg.Rest); b.wait(ctx, pause); pause = min(2*pause, b.cfg.Rest) {
		err := b.cfg.Probe(ctx)
		b.mu.Lock()
		if err == nil {
			b.turn(false, nil)
			b.fails = 0
			b.mu.Unlock()
			return
		}
		b.tellStillAway(err)
		b.mu.Unlock()
	}
}

// Close stops the probes.
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

// Pause waits until d has passed or ctx is done, and reports whether d has passed.
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
