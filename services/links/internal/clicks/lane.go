package clicks

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/lograte"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

const (
	// maxBatch limits the clicks in one batch, and therefore the size of a stream entry. The rest
	// are sent in the next call.
	maxBatch = 1024
	// lastMoments bounds the data that Redis may lose when it dies. If the disk is busy, Redis
	// writes its file up to two seconds late.
	lastMoments = 3 * time.Second
	// gather is how long a batch collects clicks before they are written to disk. This pause is not
	// needed while clicks are sent to Redis, because a batch collects clicks during the in-flight
	// call.
	gather = 2 * time.Millisecond
)

// lane carries clicks to one partition.
type lane struct {
	log      *Log
	caller   *caller
	follower *invalidation.Follower
	away     atomic.Bool // Redis does not answer in time; changed only with state locked
	wakeTend chan struct{}
	usedAt   atomic.Int64 // time of the last response from Redis, ns
	refused  atomic.Bool  // Redis had no memory for clicks; see check

	mu      sync.Mutex // guards open and quit
	open    *batch     // the batch that collects the next responses
	wake    chan struct{}
	quit    bool
	stopped chan struct{}

	state sync.Mutex // guards the fields below; locked during the redirects' calls
	live  producer   // batches sent directly
	late  producer   // batches that went through the spool
	spool *spool
	sums  sums
	list  []numbered // scratch space for settle

	lost  lograte.Limit // rate limit for log lines about lost clicks
	cause error         // why Redis was last lost
	lines lograte.State // state of the log lines about losing Redis

	ctx func() (context.Context, context.CancelFunc)
}

// batch is a group of responses that are settled together.
type batch struct {
	items  []item
	done   chan struct{}
	unread atomic.Int64 // outcomes that callers have not taken yet, once the batch is finished
}

// batches is a pool of batches. The last caller to take an outcome returns the batch to it. Without
// reuse, batch items would account for a third of a redirect's allocations.
var batches = sync.Pool{New: func() any { return &batch{} }}

func newBatch() *batch {
	b := batches.Get().(*batch)
	b.done = make(chan struct{})
	return b
}

// finish wakes all waiting callers.
func (b *batch) finish() {
	b.unread.Store(int64(len(b.items)))
	close(b.done)
}

// outcome returns the outcome for item i in a finished batch.
func (b *batch) outcome(i int) Outcome {
	out := b.items[i].out
	if b.unread.Add(-1) == 0 {
		if cap(b.items) > maxBatch {
			b.items = nil // release the memory from a burst
		}
		clear(b.items)
		b.items = b.items[:0]
		batches.Put(b)
	}
	return out
}

type item struct {
	answer  Answer // nil if there is only a click to be counted
	click   *link.Click
	undo    bool
	out     Outcome
	settled bool
}

func (it *item) current() bool { return it.answer == nil || it.answer.Current() }
func (it *item) expired() bool { return it.answer != nil && it.answer.Expired() }

func newLane(l *Log, part, parts int, f *invalidation.Follower) (*lane, error) {
	s, err := openSpool(l.cfg.SpoolDir, l.id, part, l.cfg.SpoolMax/int64(parts))
	if err != nil {
		return nil, err
	}
	lane := &lane{log: l, caller: newCaller(part, l.id, l.cfg.Bytes/int64(parts), f), follower: f,
		wakeTend: make(chan struct{}, 1), open: newBatch(), wake: make(chan struct{}, 1), stopped: make(chan struct{}),
		live: producer{name: sequenceName(l.id, false), next: 1}, late: producer{name: sequenceName(l.id, true), next: 1}, spool: s}
	if _, ok := l.fast.(*redis.ClusterClient); ok {
		lane.ctx = func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), l.cfg.Budget)
		}
	}
	return lane, nil
}

// sequenceName returns the name of one of a process's two sequences.
func sequenceName(id string, late bool) string {
	if late {
		return id + "~"
	}
	return id
}

func (l *lane) confirm(it item) Outcome {
	l.mu.Lock()
	if l.quit {
		l.mu.Unlock()
		// This request is one of the few that a stopping server still finishes.
		items := []item{it}
		l.settle(items)
		return items[0].out
	}
	b := l.open
	i := len(b.items)
	b.items = append(b.items, it)
	l.mu.Unlock()
	if i == 0 {
		l.wake <- struct{}{} // never blocks: only the first item in a batch sends
	}
	<-b.done
	return b.outcome(i)
}

// run settles batches one after another.
func (l *lane) run() {
	defer close(l.stopped)
	for range l.wake {
		if l.away.Load() {
			time.Sleep(gather)
		}
		l.mu.Lock()
		b := l.open
		l.open = newBatch()
		l.mu.Unlock()
		for items := b.items; len(items) > 0; {
			n := min(len(items), maxBatch)
			l.settle(items[:n])
			items = items[n:]
		}
		b.finish()
	}
}

// settle decides every item's outcome.
func (l *lane) settle(items []item) {
	l.state.Lock()
	defer l.state.Unlock()
	if !l.away.Load() && l.viaRedis(items) {
		return
	}
	l.viaSpool(items)
}

// errBehind means that the invalidation log is growing faster than this replica can read it.
var errBehind = errors.New("cannot keep up with the invalidation log")

// viaRedis appends the items' clicks and confirms their responses, usually in one call. It needs
// more calls only if Redis has lost data or if many invalidations are pending. It returns false if
// Redis does not answer, in which case the caller spools the unsettled items.
func (l *lane) viaRedis(items []item) bool {
	now := l.log.cfg.Now()
	// A call returns at most 1000 invalidations. If 32 calls are not enough to catch up, use the
	// spool, so that visitors do not wait any longer.
	for tries := 0; tries < 32; tries++ {
		payload, clicks := l.compose(items, &l.live, (*item).current)
		list, all := l.live.missing(l.list[:0], l.caller.room())
		// own is the number of this batch in the call. It is 0 if the batch is not in the call,
		// either because there are no clicks or because older batches fill the call and must be
		// appended first.
		own := int64(0)
		if all && payload != nil {
			own = l.live.next
			list = append(list, numbered{own, payload, now})
		}
		l.list = list[:0]
		r, err := l.call(list)
		if err != nil {
			if own != 0 {
				// The batch may have been appended. It keeps its number, so it is counted only
				// once.
				l.live.add(list[len(list)-1], clicks)
				count(items)
			}
			l.lose(err)
			return false
		}
		caughtUp := l.follower.Hear(r.news)
		if own != 0 && r.last >= own {
			l.live.add(list[len(list)-1], clicks)
			count(items)
		}
		l.live.acked = r.last
		switch {
		case r.code == full && payload != nil && (own == 0 || r.last < own):
			l.refused.Store(true)
			l.spoolClicks(items) // in either case, the call has confirmed the responses
		case r.code == gap, !all:
			continue // resend the missing batches, then the clicks
		}
		if !caughtUp {
			continue
		}
		for i := range items {
			if it := &items[i]; !it.settled {
				it.out.Again, it.settled = !it.current(), true
			}
		}
		return true
	}
	l.lose(errBehind)
	return false
}

// call takes no longer than the redirects' budget. The client's own timeout enforces that because a
// context for each call would cost more than everything else in the loop. Only a Cluster client
// needs a context because it follows redirections between servers.
func (l *lane) call(list []numbered) (reply, error) {
	ctx := context.Background()
	if l.ctx != nil {
		bounded, cancel := l.ctx()
		defer cancel()
		ctx = bounded
	}
	r, err := l.caller.call(ctx, l.log.fast, l.live.name, list, l.live.skips(list))
	if err == nil {
		l.usedAt.Store(time.Now().UnixNano())
	}
	return r, err
}

// compose encodes the clicks for the items that good accepts, and marks the other items to be
// resolved again. payload is nil if there are no clicks.
func (l *lane) compose(items []item, p *producer, good func(*item) bool) (payload []byte, clicks int64) {
	s := &l.sums
	s.reset()
	for i := range items {
		it := &items[i]
		switch {
		case it.settled, it.out.Counted:
		case !good(it):
			it.out.Again, it.settled = true, true
		case it.click == nil:
		case it.undo:
			s.add(*it.click, -1)
		default:
			s.add(*it.click, 1)
		}
	}
	if len(s.list) == 0 {
		return nil, 0
	}
	return s.encode(p.total + s.total), s.total
}

// count marks the unsettled items' clicks as durable.
func count(items []item) {
	for i := range items {
		if it := &items[i]; !it.settled && it.click != nil {
			it.out.Counted = true
		}
	}
}

// viaSpool settles items while Redis is unreachable.
func (l *lane) viaSpool(items []item) {
	for i := range items {
		if it := &items[i]; !it.settled && (!it.current() || it.expired()) {
			it.out.Again, it.settled = true, true
		}
	}
	l.spoolClicks(items)
	for i := range items {
		items[i].settled = true
	}
}

// spoolClicks writes the unsettled items' clicks to the spool. If that also fails, the
// visitors still get their responses, and a metric counts the lost clicks.
func (l *lane) spoolClicks(items []item) {
	payload, clicks := l.compose(items, &l.late, func(*item) bool { return true })
	if payload == nil {
		return
	}
	count(items)
	if l.away.Load() {
		l.tellAway(l.lines.StillFailing(l.log.cfg.Now()))
	}
	if err := l.spool.append(record{late: true, number: l.late.next, payload: payload}); err != nil {
		// The next batch reuses this number, so the flusher does not see a gap or count these
		// clicks as lost a second time.
		lost.Add(float64(max(0, clicks))) // a batch of undone clicks has a negative sum, and a counter panics if it is decreased
		l.tellLost(err, clicks)
		return
	}
	l.late.next, l.late.total, l.late.at = l.late.next+1, l.late.total+clicks, l.log.cfg.Now()
	spooled.Add(float64(max(0, clicks)))
	l.nudge()
}

// tellLost logs that clicks are lost. It writes at most one line per second because hundreds of
// batches per second may fail. The metric also includes losses that are not logged.
func (l *lane) tellLost(err error, clicks int64) {
	if lost := l.lost.DueAfter(time.Second, l.log.cfg.Now(), clicks); lost > 0 {
		slog.Error("cannot write clicks to the spool; they are lost", "error", err, "lost", lost)
	}
}

// lose switches from Redis to the spool.
func (l *lane) lose(err error) {
	if l.away.Load() {
		return
	}
	l.away.Store(true)
	l.follower.Lose(errors.Is(err, syscall.ECONNREFUSED))
	l.cause = err
	l.tellAway(l.lines.Failed(l.log.cfg.Now()))
	// Also spool the batches that Redis may have lost, so that a successor finds them if this
	// process dies before it can resend them.
	now := l.log.cfg.Now()
	for _, b := range l.live.kept {
		if b.number > l.live.acked || now.Sub(b.at) <= lastMoments {
			if err := l.spool.append(record{number: b.number, payload: b.payload}); err != nil {
				slog.Error("cannot write unconfirmed clicks to the spool; keeping them in memory", "error", err)
				break
			}
		}
	}
	l.nudge()
}

// regain switches back to Redis. The caller must have applied every pending invalidation.
func (l *lane) regain() {
	l.away.Store(false)
	l.follower.Regain()
	l.tellBack()
}

// tellAway logs the loss of Redis. A slow Redis may be lost and recover many times. times is the
// number of losses that the line reports, or 0 if it is too early for another line. If the outage
// is still in progress when the next line is due, a later batch logs it.
func (l *lane) tellAway(times int64) {
	if times > 0 {
		slog.Warn("Redis does not answer or refuses writes; writing clicks to the local disk",
			"partition", l.caller.part, "error", l.cause, "times", times)
	}
}

// tellBack logs that Redis has recovered, if its loss was logged.
func (l *lane) tellBack() {
	if away, told := l.lines.Worked(l.log.cfg.Now()); told {
		slog.Warn("Redis answers again; sending clicks to Redis", "partition", l.caller.part, "away", away.Round(time.Millisecond).String())
	}
}

func (l *lane) nudge() {
	select {
	case l.wakeTend <- struct{}{}:
	default:
	}
}
