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

// Purge wakes this replica's loop for purge tasks. Call it after committing a task.
func (p *Pipeline) Purge() {
	// At most one kick is pending. It covers every task committed before the loop receives
	// it.
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// purgeTime is how long one PurgeDue call keeps starting tasks, and purgesAtOnce is how many
// run at the same time. Sweeps share the loop, so an account that deletes thousands of videos
// must not delay the other accounts.
const (
	purgeTime    = 10 * time.Second
	purgesAtOnce = 8
)

// PurgeDue runs the due tasks and reports whether there were any. After purgeTime, it leaves the
// remaining tasks for the next call, which comes soon after. It removes objects only if the bucket
// is known to be ours: a restored copy of this database has the same IDs and may now own the
// bucket.
func (p *Pipeline) PurgeDue(ctx context.Context) (found bool, err error) {
	if err := p.ours(ctx); err != nil {
		return false, err
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
	_ = g.Wait() // every error is in errs
	return len(due) > 0, errors.Join(append(errs, err)...)
}

// purge removes the video's current objects. The task is kept until nobody can write to the video's
// objects any more.
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

// errAlive reports that a purge task's video exists again.
var errAlive = errors.New("the video was created again")

// purgeNow runs a task once.
func (p *Pipeline) purgeNow(ctx context.Context, task *video.Purge, now time.Time) error {
	// A client that lost the response to its create may repeat the create after the video was
	// deleted. That creates the video again with the same ID, and its objects are in use.
	_, absent := p.o.Store.Get(ctx, task.Video)
	if code := apierr.CodeOf(absent); absent != nil && code != apierr.VideoNotFound {
		return absent
	}
	if task.IsTombstone() && now.Before(task.Late) && absent != nil {
		// There is no need to list objects because the upload URL can only write this one. The last
		// round, after Late, lists the objects again to find any that a suspended worker wrote.
		return p.o.Bucket.Delete(ctx, video.UploadObject(task.Video), 0)
	}
	var errs []error
	// Delete jobs first so that workers do not start writing objects while they are being removed.
	for _, id := range task.JobIDs {
		// The worker that holds the job will notice the deletion at its next heartbeat.
		errs = append(errs, p.o.Jobs.Delete(ctx, id))
	}
	// End sessions before removing objects because an open session could still create one.
	var open []string
	for _, session := range task.Sessions {
		if err := p.o.Bucket.EndResumable(ctx, session); err != nil {
			open, errs = append(open, session), append(errs, err)
		}
	}
	task.Sessions = open
	// Keep the objects of a video that exists again. errAlive ends the task, but only after
	// the old video's jobs and sessions have been deleted.
	if err := errors.Join(errs...); absent == nil {
		return cmp.Or(err, errAlive)
	}
	errs = append(errs,
		p.o.Bucket.DeletePrefix(ctx, video.UploadPrefix(task.Video)),
		p.o.Bucket.DeletePrefix(ctx, transcode.VideoPrefix(string(task.Video))))
	return errors.Join(errs...)
}
