package job

import (
	"context"
	"errors"
	"time"

	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ladder"
)

// Encoding a ladder takes minutes, but a copy takes a second. A video that only needs a copy must
// never wait for a ladder, so each worker has a fast lane in addition to its slots. The fast lane
// inspects jobs that no slot has taken. It publishes video tracks that can be copied, rejects files
// that cannot be played, and returns all other jobs so that a slot can take them.

// errInspected ends the fast lane's work on a job.
var errInspected = errors.New("inspected")

// headStart is how long the fast lane leaves a new job for free slots in this or another worker.
// Slots have priority because a slot can continue with the ladder without fetching the source
// again.
const headStart = 250 * time.Millisecond

// laneMemory is the memory limit for the fast lane's programs, in addition to the memory for the
// slots' programs. It is enough for copying but not for encoding.
const laneMemory = 112 << 20

// fastLane inspects one waiting job after another.
func (w *Worker) fastLane(ctx context.Context, name string) {
	for ctx.Err() == nil {
		id, added, err := w.o.Queue.Peek(ctx, patience)
		switch {
		case errors.Is(err, queue.ErrEmpty):
			continue
		case err != nil:
			outage.Pause(ctx, patience) // the slots already log that the queue is down
			continue
		case id == "" || transcode.IsPart(id):
			continue
		}
		// added was read from Redis's clock, which may differ from ours.
		if wait := headStart - w.o.Now().Sub(added); wait > 0 {
			outage.Pause(ctx, min(wait, headStart))
		}
		record, err := w.o.Jobs.ClaimNew(ctx, id, name, w.o.Lease)
		if err != nil {
			continue // a slot has taken the job or will take it
		}
		w.claimed(ctx, record, nil, (*attempt).inspect)
	}
}

// inspect does the quick parts of a job.
func (a *attempt) inspect(ctx context.Context) error {
	dir, remove, err := a.w.o.Scratch.Job()
	if err != nil {
		return err
	}
	defer remove()
	a.dir = dir
	a.maker = a.w.o.Maker(func(t *ffmpeg.Tools) { t.Used, t.Memory, t.Threads = a.used.add, laneMemory, 1 })
	if a.record.Still != nil {
		return a.still(ctx) // a poster takes a second, and a caller is waiting for it
	}
	src, err := a.source(ctx)
	if err == nil {
		p := ladder.Make(src)
		a.begin(p)
		space, _ := p.Space()
		if err = a.reserve(ctx, space); err == nil {
			_, err = a.copySource(ctx, &p)
		}
	}
	var failure *transcode.Failure
	// A slot's programs have more memory, so running out of memory here does not make the job
	// fail.
	judged := errors.As(err, &failure) && !errors.Is(err, ffmpeg.ErrMemory)
	if ctx.Err() != nil || judged || errors.Is(err, jobs.ErrLost) {
		return err
	}
	if err != nil {
		// A slot will get the same error, and attempts in slots are limited.
		a.log.WarnContext(ctx, "cannot inspect the job; a slot retries", "error", err)
	}
	// Do not return nil: that would mark the job as done even though the ladder is missing.
	return errInspected
}
