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

// leaseKeeper keeps a claimed job ours: it sends heartbeats for the lease and for
// the message, and ends its context when the job was lost. The lease in Firestore
// decides. A message that is gone only means that Redis was emptied or gave it to
// somebody who will find the lease held.
type leaseKeeper struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	progress atomic.Int64
	wg       sync.WaitGroup
}

// progressEvery bounds how often progress alone is worth a write: Firestore takes
// one sustained write a second to a document, and each is paid for.
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
			// Firestore being away is no reason to stop: nobody else can claim the
			// job either, and what we publish is checked against the token.
			err := w.o.Jobs.Heartbeat(k.ctx, t, w.o.Lease, int(progress))
			switch {
			case errors.Is(err, jobs.ErrLost):
				k.cancel(jobs.ErrLost)
				return
			case err != nil && k.ctx.Err() == nil:
				log.WarnContext(k.ctx, "lease could not be extended", "error", err)
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

// release ends the heartbeats and waits for one in flight. The job's end is
// written after that: a late heartbeat would set a finished job's lease again.
func (k *leaseKeeper) release() {
	k.cancel(nil)
	k.wg.Wait()
}

// report says how far the work is, in percent.
func (k *leaseKeeper) report(percent float64) {
	k.progress.Store(max(k.progress.Load(), int64(percent)))
}
