// Package job runs transcoding jobs: it takes them from the queue, extends their lease,
// produces the ladder, publishes the results and cleans up.
//
// It guarantees that a job's result becomes visible exactly once, regardless of repeated deliveries
// and crashes. Every object is stored under the attempt's own prefix, and a single transaction
// checks the attempt and makes the result visible. A worker that has lost its lease kills its
// ffmpeg and does not publish anything. The job for a file that cannot be played fails immediately,
// with the reason. Temporary errors are retried a limited number of times.
package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/linkreel/linkreel/libs/lograte"
	"github.com/linkreel/linkreel/libs/metrics"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
)

// Bucket is the part of object storage that a worker uses. *objectstore.Store
// implements it.
type Bucket interface {
	DownloadFile(ctx context.Context, object string, generation int64, path string) (objectstore.Object, error)
	DownloadRange(ctx context.Context, object string, offset, size int64, w io.Writer) error
	UploadFile(ctx context.Context, object, path string, o objectstore.UploadOptions) (objectstore.Object, error)
	DeletePrefix(ctx context.Context, prefix string) error
	List(ctx context.Context, prefix string) iter.Seq2[objectstore.Object, error]
}

// Options configures a [Worker].
type Options struct {
	Jobs     *jobs.Store
	Queue    *queue.Queue
	Outcomes *queue.Queue // hints for the videos service about outcomes
	Bucket   Bucket
	Maker    func(change func(*ffmpeg.Tools)) Maker // returns a Maker with the tools adjusted for one job
	Scratch  *Scratch
	Name     string // this worker's name, unique among all workers
	Slots    int    // number of concurrent jobs

	Lease     time.Duration // how long a job remains reserved for a worker that sends no heartbeats
	Heartbeat time.Duration // the interval between heartbeats
	Sweep     time.Duration // how often to look for jobs whose wake-up was lost
	Now       func() time.Time
	Log       *slog.Logger
}

var duration = metrics.NewHistogram(prometheus.HistogramOpts{
	Name: "linkreel_job_duration_seconds", Help: "Time from claim to end of a job, by how it ended.",
	Buckets: []float64{0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600},
}, []string{"result"}, slices.Concat(metrics.Each("done", "inspected", "waiting", "lost", "returned", "retried"), metrics.Each(transcode.Codes...))...)

// Worker runs jobs until it is stopped.
type Worker struct {
	o       Options
	direct  chan string // ids found by sweeps while Redis is down
	sources sourceCache
	tracer  trace.Tracer
	unread  lograte.Limit // lines about a queue that cannot be read
}

// New returns a worker.
func New(o Options) *Worker {
	return &Worker{o: o, direct: make(chan string), tracer: otel.Tracer("transcoding-worker")}
}

// patience is how long a slot waits for a message before it checks for other work.
const patience = 2 * time.Second

// Run runs jobs until ctx is done. It returns only after it has put every unfinished job back in
// the queue.
func (w *Worker) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { w.sweep(ctx) })
	wg.Go(func() { w.fastLane(ctx, w.o.Name+"-fast") })
	for slot := range max(1, w.o.Slots) {
		wg.Go(func() { w.slot(ctx, fmt.Sprintf("%s-%d", w.o.Name, slot)) })
	}
	wg.Wait()
	return nil
}

// slot handles one message after another.
func (w *Worker) slot(ctx context.Context, consumer string) {
	for ctx.Err() == nil {
		m, err := w.o.Queue.Next(ctx, consumer, patience)
		switch {
		case err == nil:
			w.do(ctx, consumer, m.ID, m)
			continue
		case ctx.Err() != nil:
			return
		case errors.Is(err, queue.ErrEmpty):
			w.sources.clear() // more parts of the cached source are unlikely to arrive soon
		default:
			if times := w.unread.Due(time.Now(), 1); times > 0 {
				w.o.Log.WarnContext(ctx, "cannot read from the queue; sweeps find the jobs", "error", err, "times", times)
			}
			// The queue failed immediately, so wait here. Until it recovers, only the sweep finds
			// jobs.
			select {
			case <-ctx.Done():
				return
			case id := <-w.direct:
				w.do(ctx, consumer, id, nil)
			case <-time.After(patience):
			}
			continue
		}
		select {
		case id := <-w.direct:
			w.do(ctx, consumer, id, nil)
		default:
		}
	}
}

// sweep adds due jobs that are missing from the queue. While Redis is down, it passes them
// directly to a free slot.
func (w *Worker) sweep(ctx context.Context) {
	sweeper := jobs.Sweeper{Jobs: w.o.Jobs, Queue: w.o.Queue, Direct: w.handOver}
	for {
		// A turn lasts as long as the minimum pause below. With a shorter turn, every worker
		// would sweep.
		if w.o.Queue.Turn(ctx, w.o.Sweep/2) {
			if err := sweeper.Sweep(ctx); err != nil && ctx.Err() == nil {
				w.o.Log.WarnContext(ctx, "sweep for due jobs failed; the next sweep retries", "error", err)
			}
		}
		// The pause is random, so workers do not sweep at the same time.
		if !outage.Pause(ctx, w.o.Sweep/2+rand.N(w.o.Sweep)) {
			return
		}
	}
}

// handOver offers a job to this worker's slots. If all slots are busy, the job is left for other
// workers.
func (w *Worker) handOver(ctx context.Context, id string) error {
	select {
	case w.direct <- id:
	case <-ctx.Done():
	case <-time.After(patience):
	}
	return nil
}

// errStopping ends a job when the worker itself is stopped.
var errStopping = errors.New("worker is stopping")

// errUsed ends an attempt if its prefix contains objects from another attempt with the same number.
var errUsed = errors.New("objects from an earlier attempt with this number exist")

// unused returns errUsed if there are objects under the attempt's prefix. After older records are
// restored, attempt numbers repeat, but the bucket still contains the objects from the attempts
// that the restore undid. Those objects must not be overwritten: an operator may restore the newer
// records again, and players and caches treat objects as immutable. The next attempt gets the next
// number.
func (a *attempt) unused(ctx context.Context) error {
	for _, err := range a.w.o.Bucket.List(ctx, a.prefix) {
		if err != nil {
			return fmt.Errorf("look for earlier objects: %w", err)
		}
		return errUsed
	}
	return nil
}

// do claims and runs one job. message is nil for a job from a sweep.
func (w *Worker) do(ctx context.Context, consumer, id string, message *queue.Message) {
	record, err := w.o.Jobs.Claim(ctx, id, consumer, w.o.Lease)
	if err != nil {
		w.unclaimed(context.WithoutCancel(ctx), id, message, err)
		return
	}
	w.claimed(ctx, record, message, (*attempt).work)
}

// claimed runs work on a claimed job and records the result.
func (w *Worker) claimed(ctx context.Context, record transcode.Record, message *queue.Message, work func(*attempt, context.Context) error) {
	// The result must be written even if the worker is stopping.
	after, id := context.WithoutCancel(ctx), record.ID
	linked := otel.GetTextMapPropagator().Extract(context.Background(), propagation.MapCarrier(record.Trace))
	ctx, span := w.tracer.Start(ctx, "transcode", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithLinks(trace.LinkFromContext(linked)),
		trace.WithAttributes(attribute.Int("job.attempt", record.Attempt), attribute.Int64("job.source.bytes", record.Size)))
	defer span.End()
	after = trace.ContextWithSpan(after, span)
	log := w.o.Log.With("job", id, "video", record.VideoID, "attempt", record.Attempt)
	log.InfoContext(ctx, "job claimed")
	begun := w.o.Now()

	token := jobs.Token{JobID: id, Attempt: record.Attempt}
	lease := w.keepLease(ctx, token, message, log)
	a := &attempt{w: w, record: record, token: token, lease: lease, log: log, prefix: prefixOf(record), stored: map[string]int64{}}
	a.maker = w.o.Maker(func(t *ffmpeg.Tools) { t.Used = a.used.add })
	err := a.unused(lease.ctx)
	if err == nil {
		a.owned = true
		err = work(a, lease.ctx)
	}
	// If the lease was lost, the program's error says only that it was killed. The context's
	// cause gives the reason.
	if cause := context.Cause(lease.ctx); err != nil && cause != nil {
		err = cause
	}
	lease.release()
	if err != nil && ctx.Err() != nil && !errors.Is(err, jobs.ErrLost) {
		err = errStopping
	}

	result := a.end(after, message, err)
	if err != nil {
		span.SetStatus(codes.Error, result)
	}
	span.SetAttributes(attribute.String("job.result", result))
	duration.WithLabelValues(result).Observe(w.o.Now().Sub(begun).Seconds())
}

// unclaimed handles a job that could not be claimed, and its message if there is one.
func (w *Worker) unclaimed(ctx context.Context, id string, m *queue.Message, err error) {
	delay := w.o.Heartbeat
	switch {
	case errors.Is(err, jobs.ErrFinal), errors.Is(err, jobs.ErrNotFound):
		// The claim may have marked the job as failed after its last attempt, or the worker
		// that ended the job may have crashed before it sent its hint.
		w.hint(ctx, id)
		w.message(ctx, m, (*queue.Message).Done)
		return
	case errors.Is(err, jobs.ErrHeld):
		// Another worker has the job, or the job is in backoff. Half a heartbeat is much
		// shorter than a lease, so the job is taken over soon if that worker crashes.
		delay /= 2
	default:
		w.o.Log.WarnContext(ctx, "cannot claim a job; retrying soon", "job", id, "error", err)
	}
	w.message(ctx, m, func(m *queue.Message, ctx context.Context) error { return m.Delay(ctx, w.o.Now().Add(delay)) })
}

// end records the result of working on a job and returns it as a label for metrics.
func (a *attempt) end(ctx context.Context, m *queue.Message, err error) string {
	w, r, t, log := a.w, a.record, a.token, a.log.With("used", &a.used)
	var failure *transcode.Failure
	switch {
	case err == nil:
		log.InfoContext(ctx, "job done")
		a.dropParts(ctx)
		w.message(ctx, m, (*queue.Message).Done)
		return "done"

	case errors.Is(err, errInspected):
		log.InfoContext(ctx, "job inspected; a slot continues")
		w.note(ctx, "return inspected", w.o.Jobs.Nack(ctx, t, jobs.Inspected))
		return "inspected"

	case errors.Is(err, errUsed):
		log.WarnContext(ctx, "objects from an earlier attempt exist, as happens after a restore; returning the job for the next attempt")
		w.note(ctx, "return", w.o.Jobs.Nack(ctx, t))
		w.message(ctx, m, (*queue.Message).Nack)
		return "returned"

	case errors.Is(err, errReserved):
		// This worker will have space once its other jobs end, and another worker may have space
		// now.
		at := w.o.Now().Add(roomEvery + rand.N(roomEvery))
		if r.Parent != "" {
			// Return the part immediately, so the worker that created it or another helper
			// can encode it.
			log.DebugContext(ctx, "no scratch space for a part of another worker's job", "error", err)
			w.note(ctx, "return", w.o.Jobs.Nack(ctx, t))
		} else {
			log.InfoContext(ctx, "job waits for scratch space", "error", err)
			w.note(ctx, "postpone", w.o.Jobs.Nack(ctx, t, jobs.NotBefore(at)))
		}
		w.message(ctx, m, func(m *queue.Message, ctx context.Context) error { return m.Delay(ctx, at) })
		return "waiting"

	case errors.Is(err, jobs.ErrLost):
		log.WarnContext(ctx, "job lost to another worker or cancelled")
		w.message(ctx, m, (*queue.Message).Done)
		a.tidy(ctx)
		return "lost"

	case errors.Is(err, errStopping):
		// Return the job before removing leftovers. A worker on a preempted node has only
		// 15 s in total, and storage may be slow.
		log.InfoContext(ctx, "worker is stopping; returning its job")
		w.note(ctx, "return", w.o.Jobs.Nack(ctx, t))
		w.message(ctx, m, (*queue.Message).Nack)
		a.tidy(ctx)
		return "returned"

	case errors.As(err, &failure):
		log.InfoContext(ctx, "job failed", "code", failure.Code, "error", err)
		a.tidy(ctx)
		err := w.insist(ctx, func() error { return w.o.Jobs.Fail(ctx, t, *failure) })
		w.note(ctx, "fail", err)
		w.hint(ctx, r.ID)
		a.dropParts(ctx)
		w.message(ctx, m, (*queue.Message).Done)
		return string(failure.Code)
	}

	log.ErrorContext(ctx, "job failed; retrying if it has attempts left", "error", err)
	a.tidy(ctx)
	at := w.o.Now().Add(backOff(r.Tries))
	var failed bool
	noted := w.insist(ctx, func() (err error) {
		failed, err = w.o.Jobs.Retry(ctx, t, at, transcode.Failure{
			Code: transcode.Internal, Message: "The video could not be prepared. Upload it again, or try another file.",
		})
		return err
	})
	w.note(ctx, "retry", noted)
	if failed {
		w.hint(ctx, r.ID)
		a.dropParts(ctx)
		reason := err.Error()
		w.message(ctx, m, func(m *queue.Message, ctx context.Context) error { return m.Bury(ctx, reason[:min(len(reason), 500)]) })
		return string(transcode.Internal)
	}
	w.message(ctx, m, func(m *queue.Message, ctx context.Context) error { return m.Delay(ctx, at) })
	return "retried"
}

// roomEvery is roughly how often a job that is waiting for scratch space is claimed again.
const roomEvery = 5 * time.Second

// backOff returns how long a job waits after its n-th failed attempt.
func backOff(tries int) time.Duration {
	return 5 * time.Second << min(3*max(0, tries-1), 6)
}

// hint tells the videos service that a job has a result to apply. If the hint is lost,
// the service's next sweep finds the result.
func (w *Worker) hint(ctx context.Context, id string) {
	if transcode.IsPart(id) {
		return
	}
	trace := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, trace)
	_, err := w.o.Outcomes.Add(ctx, queue.Item{ID: id, Trace: trace})
	w.note(ctx, "hint", err)
}

// message updates the queue, which contains only hints. If the update fails, the sweep repairs
// the queue.
func (w *Worker) message(ctx context.Context, m *queue.Message, change func(*queue.Message, context.Context) error) {
	if m != nil {
		w.note(ctx, "message", change(m, ctx))
	}
}

func (w *Worker) note(ctx context.Context, what string, err error) {
	if err != nil && !errors.Is(err, queue.ErrLost) && !errors.Is(err, jobs.ErrLost) {
		w.o.Log.WarnContext(ctx, "cannot update the queue; the next sweep repairs it", "what", what, "error", err)
	}
}

// insist retries a write for up to two minutes because otherwise finished work would be lost. It
// stops early if the job is lost.
func (w *Worker) insist(ctx context.Context, write func() error) error {
	pause := 200 * time.Millisecond
	for end := w.o.Now().Add(2 * time.Minute); ; {
		err := write()
		if err == nil || errors.Is(err, jobs.ErrLost) || errors.Is(err, jobs.ErrFinal) || w.o.Now().After(end) {
			return err
		}
		if !outage.Pause(ctx, pause) {
			return context.Cause(ctx)
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// tidyTime bounds the removal of leftovers. A stopping worker does this last, and it must
// exit within the chart's grace period of 10 s.
const tidyTime = 5 * time.Second

// prefixOf returns the prefix for an attempt's objects.
func prefixOf(r transcode.Record) string {
	if r.Still != nil {
		return transcode.StillPrefix(r.ID, r.Attempt)
	}
	if r.Parent == "" {
		return transcode.Prefix(r.VideoID, r.Generation, r.Attempt)
	}
	index := strings.TrimPrefix(r.ID, r.Parent+".")
	return fmt.Sprintf("%s%s-%d/", transcode.PartsPrefix(r.VideoID, r.Generation), index, r.Attempt)
}

// tidy removes the objects that an attempt uploaded, unless the job's outcome refers to them. An
// attempt whose prefix was not empty at the start does not remove anything, because the objects may
// belong to an attempt that a restore undid.
func (a *attempt) tidy(ctx context.Context) {
	if !a.owned {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tidyTime)
	defer cancel()
	now, err := a.w.o.Jobs.Get(ctx, a.record.ID)
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return // the janitor removes the objects
	}
	if now.Outcome.Uses(a.prefix) {
		return
	}
	if err := a.w.o.Bucket.DeletePrefix(ctx, a.prefix); err != nil {
		a.log.WarnContext(ctx, "cannot remove leftovers; the janitor retries", "error", err)
	}
}
