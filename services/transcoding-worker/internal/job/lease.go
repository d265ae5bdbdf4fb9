package job

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
)

// leaseKeeper keeps the lease on a claimed job: it sends heartbeats for the lease and for the
// message, and cancels its context when the job is lost. Only the lease in Firestore matters.
// If the message is lost, Redis was emptied or delivered the message to another worker, and
// that worker cannot claim the job.
type leaseKeeper struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	progress atomic.Int64
	wg       sync.WaitGroup
}

// progressEvery is the minimum time between writes that only report progress. Firestore sustains
// one write per second for each document, and charges for each write.
const progressEvery = 2 * time.Second

func (w *Worker) keepLease(ctx context.Context, t jobs.Token, m *queue.Message, log *slog.Logger) *leaseKeeper {
	k := new(leaseKeeper)
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	k.wg.Go(func() {
		tick := time.NewTicker(min(progressEvery, w.o.Heartbeat))
		defer tick.Stop()
		var written int64
		last := w.o.Now()
		for {
			select {
			case <-k.ctx.Done():
				return
			case <-tick.C:
			}
			progress := k.progress.Load()
			if w.o.Now().Sub(last) < w.o.Heartbeat && progress == written {
				continue
			}
			// Continue while Firestore is down: no other worker can claim the job, and
			// publishing checks the token.
			err := w.o.Jobs.Heartbeat(k.ctx, t, w.o.Lease, int(progress))
			switch {
			case errors.Is(err, jobs.ErrLost):
				k.cancel(jobs.ErrLost)
				return
			case err != nil && k.ctx.Err() == nil:
				log.WarnContext(k.ctx, "cannot extend the lease; retrying", "error", err)
			case err == nil:
				written, last = progress, w.o.Now()
			}
			if m != nil {
				_ = m.Heartbeat(k.ctx) // losing the message has no effect
			}
		}
	})
	return k
}

// release stops the heartbeats and waits for an in-flight heartbeat. Call it before recording that
// the job ended: a late heartbeat would extend the lease of a finished job.
func (k *leaseKeeper) release() {
	k.cancel(nil)
	k.wg.Wait()
}

// report records the progress in percent. The progress never decreases.
func (k *leaseKeeper) report(percent float64) {
	k.progress.Store(max(k.progress.Load(), int64(percent)))
}
