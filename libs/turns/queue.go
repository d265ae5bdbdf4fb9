// Package turns limits how much work runs in one process at the same time, in total and for each
// account. [Slots] refuses work when no slot is free. A [Queue] makes work wait for its turn.
package turns

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/linkreel/linkreel/libs/identity"
)

// ErrFull means that too many jobs are already waiting.
var ErrFull = errors.New("too many are already waiting")

// QueueOptions are the limits on a [Queue]. Zero means no limit.
type QueueOptions struct {
	Name       string // name of the queue in metrics; if empty, there are no metrics
	Parallel   int    // how many jobs run at the same time
	Each       int    // how many jobs with the same name run at the same time
	Waiting    int    // how many jobs with the same name wait
	AllWaiting int    // how many jobs wait in total
}

// Queue limits how much of one kind of work runs at the same time in this process, in total and for
// each name (for example an account). Unlike [Slots], it makes the remaining work wait.
//
// Jobs with the same name run in order. Names take turns, so a new name waits for at most one job
// from each other name, and never for another name's whole backlog. A name at its own limit waits
// without delaying other names.
type Queue struct {
	opt  QueueOptions
	wait prometheus.Observer // nil without a name

	mu      sync.Mutex
	names   map[string]*inLine
	turns   list.List // of *inLine: names that could run a job if a slot were free
	running int
	waiting int
}

// inLine is a name with running or waiting jobs.
type inLine struct {
	name    string
	running int
	waiting list.List     // of *waiter
	turn    *list.Element // the name's turn; nil if it has none
}

type waiter struct {
	place *list.Element // in inLine.waiting; nil after removal
	done  chan error    // nil means that the job may run
}

var queueWait = promauto.NewHistogramVec(prometheus.HistogramOpts{Name: "linkreel_queue_wait_seconds",
	Help:    "Time that work waited in a queue of this process before it ran or gave up.",
	Buckets: []float64{.001, .005, .02, .1, .5, 1, 2, 5, 10, 30}}, []string{"queue"})

// NewQueue returns an empty queue.
func NewQueue(o QueueOptions) *Queue {
	o.Parallel, o.Each = cmp.Or(o.Parallel, math.MaxInt), cmp.Or(o.Each, math.MaxInt)
	o.Waiting, o.AllWaiting = cmp.Or(o.Waiting, math.MaxInt), cmp.Or(o.AllWaiting, math.MaxInt)
	q := &Queue{opt: o, names: map[string]*inLine{}}
	if o.Name != "" {
		q.wait = queueWait.WithLabelValues(o.Name)
	}
	return q
}

// Enter waits until one of name's jobs may run. release ends the job and must be called once.
//
// The error is ctx's or [ErrFull]. If too many of name's jobs are waiting, Enter returns
// ErrFull immediately. If too many jobs are waiting in total, the last job from the name with the
// longest backlog gets ErrFull instead, if that backlog is longer than name's new backlog.
//
// The time spent here is added to the request's Queued; see [identity.Request].
func (q *Queue) Enter(ctx context.Context, name string) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l, w, err := q.line(name)
	if err != nil {
		return nil, err
	}
	var waited time.Duration
	if w != nil {
		began := time.Now()
		select {
		case err = <-w.done:
		case <-ctx.Done():
			err = q.leave(ctx, l, w)
		}
		waited = time.Since(began)
		identity.RequestOf(ctx).Queued.Add(int64(waited))
	}
	if q.wait != nil {
		q.wait.Observe(waited.Seconds())
	}
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { q.end(l) }), nil
}

// line starts one of name's jobs and returns a nil waiter, or adds the job to the waiting jobs.
func (q *Queue) line(name string) (*inLine, *waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.names[name]
	if l == nil {
		l = &inLine{name: name}
	}
	if l.running < q.opt.Each && q.running < q.opt.Parallel {
		l.running++
		q.running++
		q.names[name] = l
		return l, nil, nil
	}
	if l.waiting.Len() >= q.opt.Waiting || q.waiting >= q.opt.AllWaiting && !q.pushOut(l.waiting.Len()) {
		return nil, nil, ErrFull
	}
	w := &waiter{done: make(chan error, 1)}
	w.place = l.waiting.PushBack(w)
	q.waiting++
	q.names[name] = l
	q.takeTurn(l)
	return l, w, nil
}

// pushOut removes the last job from the longest backlog to make room for a new job. have is the
// length of the new job's backlog. Only a backlog longer than have+1 loses a job.
func (q *Queue) pushOut(have int) bool {
	var longest *inLine
	for _, l := range q.names {
		if l.waiting.Len() > have+1 && (longest == nil || l.waiting.Len() > longest.waiting.Len()) {
			longest = l
		}
	}
	if longest == nil {
		return false
	}
	w := longest.waiting.Back().Value.(*waiter)
	q.takeOut(longest, w)
	w.done <- ErrFull
	return true
}

// takeTurn gives l a turn if it can use one.
func (q *Queue) takeTurn(l *inLine) {
	if l.turn == nil && l.waiting.Len() > 0 && l.running < q.opt.Each {
		l.turn = q.turns.PushBack(l)
	}
}

// takeOut removes w from the waiting jobs, and drops the name if it has no jobs left.
func (q *Queue) takeOut(l *inLine, w *waiter) {
	l.waiting.Remove(w.place)
	w.place = nil
	q.waiting--
	if l.waiting.Len() > 0 {
		return
	}
	if l.turn != nil {
		q.turns.Remove(l.turn)
		l.turn = nil
	}
	if l.running == 0 {
		delete(q.names, l.name)
	}
}

// leave removes a waiter after its context is done. If the waiter has since been allowed to run,
// its job ends immediately, so that its slot is not lost.
func (q *Queue) leave(ctx context.Context, l *inLine, w *waiter) error {
	q.mu.Lock()
	waits := w.place != nil
	if waits {
		q.takeOut(l, w)
	}
	q.mu.Unlock()
	if !waits && <-w.done == nil {
		q.end(l)
	}
	return ctx.Err()
}

// end frees a slot and gives it to the next job.
func (q *Queue) end(l *inLine) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.running--
	q.running--
	if q.waiting > 0 {
		q.takeTurn(l)
		q.passOn()
	}
	if l.running == 0 && l.waiting.Len() == 0 {
		delete(q.names, l.name)
	}
}

// passOn starts jobs from names with a turn while slots are free.
func (q *Queue) passOn() {
	for q.turns.Len() > 0 && q.running < q.opt.Parallel {
		next := q.turns.Remove(q.turns.Front()).(*inLine)
		next.turn = nil
		w := next.waiting.Front().Value.(*waiter)
		next.running++
		q.running++
		q.takeOut(next, w)
		q.takeTurn(next)
		w.done <- nil
	}
}

// Waiting returns the total number of waiting jobs.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}
