package job

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/transcode"
)

// hold keeps a claimed job ours: it beats for the lease and for the message, and
// ends its context when the job was lost. The lease in Firestore decides; a
// message that is gone only means that Redis was emptied or gave it to somebody
// who will find the lease held.
type hold struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	progress atomic.Int64
	wg       sync.WaitGroup
}

// progressEvery bounds how often progress alone is worth a write.
const progressEvery = 2 * time.Second

func (w *Worker) hold(ctx context.Context, t transcode.Token, m *queue.Message, log *slog.Logger) *hold {
	h := new(hold)
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	h.wg.Go(func() {
		tick := time.NewTicker(min(progressEvery, w.o.Beat))
		defer tick.Stop()
		var written int64
		last := w.o.Now()
		for {
			select {
			case <-h.ctx.Done():
				return
			case <-tick.C:
			}
			progress := h.progress.Load()
			if w.o.Now().Sub(last) < w.o.Beat && progress == written {
				continue
			}
			// Firestore being away is no reason to stop: nobody else can claim the
			// job either, and what we publish is checked against the token.
			err := w.o.Jobs.Beat(h.ctx, t, w.o.Lease, int(progress))
			switch {
			case errors.Is(err, transcode.ErrLost):
				h.cancel(transcode.ErrLost)
				return
			case err != nil && h.ctx.Err() == nil:
				log.WarnContext(h.ctx, "lease could not be extended", "error", err)
			case err == nil:
				written, last = progress, w.o.Now()
			}
			if m != nil {
				_ = m.Beat(h.ctx) // a lost message changes nothing
			}
		}
	})
	return h
}

// release stops the beating, after which the job's end can be written without
// a beat crossing it.
func (h *hold) release() {
	h.cancel(nil)
	h.wg.Wait()
}

// report says how far the work is, in percent.
func (h *hold) report(percent float64) {
	h.progress.Store(max(h.progress.Load(), int64(percent)))
}
