package clicks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Config says where clicks go.
type Config struct {
	// Redis is host:port or a redis:// address.
	Redis string
	// SpoolDir keeps clicks while Redis is away. It must outlive the process.
	SpoolDir string
	// SpoolMax bounds the spool in bytes; clicks beyond it are lost and metered.
	SpoolMax int64
	// Budget is how long a redirect waits for Redis before its click is spooled.
	Budget time.Duration
	// Keep is how long batches are kept in memory, to be sent again when Redis has
	// lost its data. It should exceed the time that clicks wait for the flusher.
	Keep time.Duration
	Now  func() time.Time
}

// Targets is the process's memory of links, which hears of invalidations here.
type Targets interface {
	Invalidate(keys ...string)
	// Doubt: some invalidations were missed.
	Doubt()
	// SetSynced tells whether invalidations are heard from now on.
	SetSynced(bool)
	// Suspect is SetSynced(false) when it is not clear yet whether the silence is
	// more than a hiccup. Other replicas may be heard and obeyed meanwhile.
	Suspect()
}

// Answer is a redirect that is ready but for the confirmation.
type Answer interface {
	// Current reports whether no invalidation has overtaken the answer.
	Current() bool
	// TooOld reports whether the answer may not be given without hearing
	// invalidations.
	TooOld() bool
}

// Outcome is what [Log.Confirm] says about an answer.
type Outcome struct {
	// Again asks the caller to resolve once more: the answer is out of date.
	Again bool
	// Counted means that the click is durable and must not be handed in again.
	Counted bool
}

// position is how far this process has heard the log of invalidations.
type position struct {
	epoch string
	heard int64
}

// keepBytes bounds the batches kept in memory.
const keepBytes = 16 << 20

// maxBatch bounds the clicks of one batch, and with it the size of a stream
// entry; more wait for the next call.
const maxBatch = 1024

// Log gathers clicks and confirms answers. It is safe for concurrent use.
type Log struct {
	cfg      Config
	targets  Targets
	producer string
	fast     *redis.Client // within the redirect's budget
	slow     *redis.Client // for what nobody waits for
	now      func() time.Time

	mu   sync.Mutex // guards open and quit
	open *batch     // takes the next answers
	wake chan struct{}
	quit bool

	state struct {
		sync.Mutex
		at       position
		spooling bool
		spool    *spool
		next     int64 // number of the next batch
		total    int64 // clicks in all batches so far
		force    bool  // the next batch may leave a gap
		kept     []kept
		keptSize int
	}
	sums sums // used by run alone

	announcer announcer
	stopped   chan struct{}
}

type kept struct {
	batch   int64
	payload []byte
	at      time.Time
}

// batch is the answers that travel together.
type batch struct {
	items []item
	done  chan struct{}
}

type item struct {
	answer  Answer
	click   *link.Click // nil: confirm only
	out     Outcome
	settled bool
}

// Open makes a log. Redis need not be there.
func Open(cfg Config, targets Targets) (*Log, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Budget <= 0 {
		cfg.Budget = 50 * time.Millisecond
	}
	if cfg.Keep <= 0 {
		cfg.Keep = 15 * time.Second
	}
	if cfg.SpoolMax <= 0 {
		cfg.SpoolMax = 64 << 20
	}
	if err := os.MkdirAll(cfg.SpoolDir, 0o700); err != nil {
		return nil, fmt.Errorf("click spool directory: %w", err)
	}
	fast, err := openRedis(cfg.Redis, cfg.Budget, 2)
	if err != nil {
		return nil, err
	}
	slow, err := openRedis(cfg.Redis, time.Second, 4)
	if err != nil {
		return nil, err
	}
	l := &Log{cfg: cfg, targets: targets, producer: identity.NewNonce(), fast: fast, slow: slow, now: cfg.Now,
		open: newBatch(), wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	l.state.next = 1
	if l.state.spool, err = openSpool(cfg.SpoolDir, l.producer, cfg.SpoolMax); err != nil {
		return nil, err
	}
	l.announcer.wake = make(chan struct{}, 1)
	go l.run()
	return l, nil
}

// Ping connects to Redis.
func (l *Log) Ping(ctx context.Context) error {
	if err := l.fast.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ping click log: %w", err)
	}
	return nil
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

// Confirm makes click (nil for a visit that does not count) durable and says
// whether answer may be given.
func (l *Log) Confirm(answer Answer, click *link.Click) Outcome {
	l.mu.Lock()
	if l.quit {
		l.mu.Unlock()
		return l.afterClose(answer, click)
	}
	b := l.open
	i := len(b.items)
	b.items = append(b.items, item{answer: answer, click: click})
	l.mu.Unlock()
	if i == 0 {
		l.wake <- struct{}{} // never blocks: there is one first item per batch, and run takes both
	}
	<-b.done
	return b.items[i].out
}

// afterClose serves the few requests that a stopping server still finishes.
func (l *Log) afterClose(answer Answer, click *link.Click) Outcome {
	b := newBatch()
	b.items = append(b.items, item{answer: answer, click: click})
	l.settle(b.items, &sums{})
	return b.items[0].out
}

// run takes one batch after the other.
func (l *Log) run() {
	defer close(l.stopped)
	for range l.wake {
		l.mu.Lock()
		b := l.open
		l.open = newBatch()
		l.open.items = make([]item, 0, cap(b.items))
		l.mu.Unlock()
		for items := b.items; len(items) > 0; {
			n := min(len(items), maxBatch)
			l.settle(items[:n], &l.sums)
			items = items[n:]
		}
		close(b.done)
	}
}

// settle decides every item.
func (l *Log) settle(items []item, s *sums) {
	l.state.Lock()
	defer l.state.Unlock()
	if !l.state.spooling && l.viaRedis(items, s) {
		return
	}
	l.viaSpool(items, s)
}

// viaRedis reports false when Redis is away and items are left to the spool.
func (l *Log) viaRedis(items []item, s *sums) bool {
	st := &l.state
	for tries := 0; ; tries++ {
		payload, number := l.compose(items, s, func(a Answer) bool { return a.Current() })
		// The budget is the client's own time-out: a context per call would cost more
		// than the rest of this loop.
		r, err := send(context.Background(), l.fast, st.at, l.producer, number, payload, st.force)
		if err != nil || tries > 8 {
			// The batch may have been appended. It goes to the spool under its number,
			// so that it counts once.
			l.toSpool(err)
			if number != 0 {
				l.spoolPayload(number, payload, s.total)
				l.count(items)
			}
			return number != 0 && l.allSettled(items)
		}
		switch r.verdict {
		case accepted:
			if number != 0 {
				l.keep(number, payload)
				st.next, st.total, st.force = number+1, st.total+s.total, false
				l.count(items)
			}
			l.finish(items)
			return true
		case gap:
			l.resend(l.fast, st.at, st.kept, r.last, l.hear)
			st.force = true // whatever is missing now is not to be had
		default:
			l.hear(r)
		}
	}
}

// compose drops items whose answer is no longer good and writes the clicks of
// the rest. Without any click there is no batch number.
func (l *Log) compose(items []item, s *sums, good func(Answer) bool) (payload []byte, number int64) {
	s.reset()
	for i := range items {
		it := &items[i]
		switch {
		case it.settled:
		case !good(it.answer):
			it.out.Again, it.settled = true, true
		case it.click != nil:
			s.add(*it.click)
		}
	}
	if s.total == 0 {
		return nil, 0
	}
	return s.encode(l.state.total + s.total), l.state.next
}

// count marks the clicks of the open items as durable.
func (l *Log) count(items []item) {
	for i := range items {
		if it := &items[i]; !it.settled && it.click != nil {
			it.out.Counted = true
		}
	}
}

func (l *Log) finish(items []item) {
	for i := range items {
		items[i].settled = true
	}
}

// allSettled settles what was counted in a batch that went to the spool after
// Redis failed: an answer that is too old by now is to be resolved again, but
// its click is in the batch. It reports whether nothing is left over.
func (l *Log) allSettled(items []item) bool {
	for i := range items {
		if it := &items[i]; !it.settled {
			it.out.Again, it.settled = it.answer.TooOld(), true
		}
	}
	return true
}

// viaSpool serves while Redis is away.
func (l *Log) viaSpool(items []item, s *sums) {
	payload, number := l.compose(items, s, func(a Answer) bool { return a.Current() && !a.TooOld() })
	if number != 0 {
		l.spoolPayload(number, payload, s.total)
		l.count(items)
	}
	l.finish(items)
}

// spoolPayload writes a batch to the spool. When even that fails the visitor is
// answered all the same: a lost click is metered, a lost visitor is gone.
func (l *Log) spoolPayload(number int64, payload []byte, clicks int64) {
	st := &l.state
	st.next, st.total = number+1, st.total+clicks
	if err := st.spool.append(number, payload); err != nil {
		lost.Add(float64(clicks))
		slog.Error("click spool", "error", err, "lost", clicks)
		return
	}
	spooled.Add(float64(clicks))
}

func (l *Log) toSpool(err error) {
	if l.state.spooling {
		return
	}
	l.state.spooling = true
	if refused(err) {
		l.targets.SetSynced(false)
	} else {
		l.targets.Suspect()
	}
	spooling.Set(1)
	slog.Warn("clicks go to the spool", "error", err)
	// A Redis that dies may take its last moments along: it writes its file up to
	// two seconds late when the disk is busy. Should this process end as well
	// before it can send them again, its successor finds them in the spool.
	for _, k := range l.state.kept {
		if l.now().Sub(k.at) <= 3*time.Second {
			if err := l.state.spool.append(k.batch, k.payload); err != nil {
				slog.Error("click spool", "error", err)
				break
			}
		}
	}
	l.announcer.nudge()
}

// refused reports whether there is certainly no Redis to be heard.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// hear takes in invalidations and returns the position reached. The first
// position that a process learns makes it doubt too: it may have loaded links
// before.
func (l *Log) hear(r reply) position {
	st := &l.state
	switch r.verdict {
	case reset:
		st.at = position{r.epoch, r.heard}
		l.targets.Doubt()
	case news:
		st.at.heard = r.heard
		l.targets.Invalidate(r.keys...)
		if r.missed {
			l.targets.Doubt()
		}
	}
	return st.at
}

// keep remembers a batch for some seconds, in case Redis forgets it.
func (l *Log) keep(number int64, payload []byte) {
	st := &l.state
	now := l.now()
	if n := len(st.kept); n > 0 && st.kept[n-1].batch >= number {
		return // it went to Redis before and is still here
	}
	st.kept = append(st.kept, kept{number, payload, now})
	st.keptSize += len(payload)
	drop := 0
	for drop < len(st.kept) && (now.Sub(st.kept[drop].at) > l.cfg.Keep || st.keptSize > keepBytes) {
		st.keptSize -= len(st.kept[drop].payload)
		st.kept[drop].payload = nil
		drop++
	}
	st.kept = st.kept[drop:]
}

// resend appends again what Redis has lost: everything of list behind batch
// last. What is not in the list any more shows to the flusher as a gap. hear
// takes in what the script says on the way.
func (l *Log) resend(client *redis.Client, at position, list []kept, last int64, hear func(reply) position) {
	n := 0
	for _, k := range list {
		if k.batch <= last {
			continue
		}
		for range 4 {
			r, err := send(context.Background(), client, at, l.producer, k.batch, k.payload, true)
			if err != nil {
				return
			}
			if r.verdict == accepted {
				n++
				break
			}
			at = hear(r)
		}
	}
	slog.Warn("redis has lost clicks; sent again what was kept", "batches", n)
}
