package job

import (
	"context"
	"errors"
	"time"

	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ladder"
)

// A ladder takes minutes, a copy a second. So that a video which only needs
// the one never waits behind another's, each worker has a scout beside its slots:
// it looks into jobs that no slot has taken, publishes what can be copied, fails
// what cannot be played, and puts the rest back for a slot.

// errLooked ends a scout's work on a job.
var errLooked = errors.New("looked into")

// grace is what free slots, here or elsewhere, have to take a job before a scout
// does: they go on to the ladder without fetching the source a second time.
const grace = 250 * time.Millisecond

// scoutMemory is what a scout's programs may have, beside those of the slots:
// enough for copying, and not for encoding.
const scoutMemory = 112 << 20

// scout looks into one waiting job after the other.
func (w *Worker) scout(ctx context.Context, name string) {
	pause := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	for ctx.Err() == nil {
		id, added, err := w.o.Queue.Scout(ctx, name, patience)
		switch {
		case errors.Is(err, queue.ErrEmpty):
			continue
		case err != nil:
			pause(patience) // the slots say that the queue is away
			continue
		case id == "" || transcode.IsPart(id):
			continue
		}
		// By the clock of Redis, which may differ.
		if wait := grace - w.o.Now().Sub(added); wait > 0 {
			pause(min(wait, grace))
		}
		record, err := w.o.Jobs.ClaimNew(ctx, id, name, w.o.Lease)
		if err != nil {
			continue // a slot was faster, or will do it
		}
		w.claimed(ctx, record, nil, (*attempt).look)
	}
}

// look does what can be done with a job at once.
func (a *attempt) look(ctx context.Context) error {
	dir, remove, err := a.o.Scratch.Job()
	if err != nil {
		return err
	}
	defer remove()
	a.dir = dir
	a.maker = a.maker.With(func(t *ffmpeg.Tools) { t.Memory, t.Threads = scoutMemory, 1 })
	src, err := a.source(ctx)
	if err == nil {
		p := ladder.Make(src)
		a.begin(p)
		_, err = a.copySource(ctx, &p)
	}
	var failure *transcode.Failure
	judged := errors.As(err, &failure) && !errors.Is(err, ffmpeg.ErrMemory) // a slot's programs may have more
	if ctx.Err() != nil || judged || errors.Is(err, transcode.ErrLost) {
		return err
	}
	if err != nil {
		// A slot will meet the same trouble, and knows what to do about it.
		a.log.WarnContext(ctx, "could not look into the job", "error", err)
	}
	return errLooked
}
