package pipeline

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Purge makes this replica look for purge tasks now: one was just committed.
func (p *Pipeline) Purge() {
	// One kick waits at most: it covers everything that was committed before it is taken.
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// purgeTime is for how long one call of PurgeDue begins with further tasks, and
// purgesAtOnce how many it works on: a tenant who deletes thousands of videos must not
// keep the sweeps, which share the loop, from everybody else's.
const (
	purgeTime    = 10 * time.Second
	purgesAtOnce = 8
)

// PurgeDue works off the tasks whose time has come. What is left after a while has its
// turn soon. Nothing goes while it is not known that the bucket is still ours: a
// database that was restored to an older time has the same ids, and may be in charge
// of the bucket by now.
func (p *Pipeline) PurgeDue(ctx context.Context) error {
	if err := p.ours(ctx); err != nil {
		return err
	}
	due, err := p.o.Store.DuePurges(ctx)
	errs := make([]error, len(due), len(due)+1)
	end := time.Now().Add(purgeTime)
	var g errgroup.Group
	g.SetLimit(purgesAtOnce)
	for i, task := range due {
		if ctx.Err() != nil {
			break
		}
		if time.Now().After(end) {
			p.Purge()
			break
		}
		g.Go(func() error {
			errs[i] = guarded(func() error { return p.purge(ctx, *task) })
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	return errors.Join(append(errs, err)...)
}

// purge removes what there is now. The task stays until nothing can come after.
func (p *Pipeline) purge(ctx context.Context, task video.Purge) error {
	now := p.o.Now()
	err := p.purgeNow(ctx, &task, now)
	switch {
	case errors.Is(err, errAlive), err == nil && !now.Before(task.Until) && !now.Before(task.Late):
		return p.o.Store.Purged(ctx, task.Video)
	case err == nil && !now.Before(task.Until):
		task = task.Tombstone()
	}
	task.Due = task.Next(now)
	return errors.Join(err, p.o.Store.PutOffPurge(ctx, &task))
}

// errAlive says that the video of a task is there.
var errAlive = errors.New("the video was created again")

// purgeNow is one look of a task.
func (p *Pipeline) purgeNow(ctx context.Context, task *video.Purge, now time.Time) error {
	// A create whose answer was lost can be repeated after the video was deleted, and makes
	// it again by the same id. Its objects are in use then.
	_, alive := p.o.Store.Get(ctx, task.Video)
	if code := apierr.CodeOf(alive); alive != nil && code != apierr.VideoNotFound {
		return alive
	}
	if task.IsTombstone() && now.Before(task.Late) && alive != nil {
		// The one object that the upload address can write, without a listing.
		return p.o.Bucket.Delete(ctx, video.UploadObject(task.Video), 0)
	}
	var errs []error
	// Jobs first: a worker must not start to write what is being removed.
	for _, id := range task.JobIDs {
		// A worker that holds the job finds out at its next heartbeat.
		errs = append(errs, p.o.Jobs.Delete(ctx, id))
	}
	// Before the objects: a session that is still open could become one.
	var open []string
	for _, session := range task.Sessions {
		if err := p.o.Bucket.EndResumable(ctx, session); err != nil {
			open, errs = append(open, session), append(errs, err)
		}
	}
	task.Sessions = open
	if err := errors.Join(errs...); alive == nil {
		return cmp.Or(err, errAlive)
	}
	errs = append(errs,
		p.o.Bucket.DeletePrefix(ctx, video.UploadPrefix(task.Video)),
		p.o.Bucket.DeletePrefix(ctx, transcode.VideoPrefix(string(task.Video))))
	return errors.Join(errs...)
}
