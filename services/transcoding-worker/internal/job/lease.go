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

// leaseKeeper keeps hold of a claimed job: it sends heartbeats for the lease and for
// the message, and cancels its context when the job is lost. The lease in Firestore
// decides. If the message is gone, Redis was emptied or gave it to another worker. That
// worker will find the lease held.
type leaseKeeper struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	progress atomic.Int64
	wg       sync.WaitGroup
}

// progressEvery is the minimum time between two writes that only report progress:
// Firestore takes one sustained write a second per document, and charges for each.
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
			// Keep going while Firestore is down: no other worker can claim the job either, and
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
				_ = m.Heartbeat(k.ctx) // a lost message changes nothing
			}
		}
	})
	return k
}

// release ends the heartbeats and waits for one in flight. Call it before writing the
// job's end: a late heartbeat would set a finished job's lease again.
func (k *leaseKeeper) release() {
	k.cancel(nil)
	k.wg.Wait()
}

// report records the progress in percent. The progress never decreases.
func (k *leaseKeeper) report(percent float64) {
	k.progress.Store(max(k.progress.Load(), int64(percent)))
}
