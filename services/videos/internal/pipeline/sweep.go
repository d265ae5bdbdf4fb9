package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Run sweeps at intervals until ctx is done.
func (p *Pipeline) Run(ctx context.Context) error {
	if err := p.awaitBucket(ctx); err != nil {
		return err
	}
	every := time.NewTicker(p.o.SweepEvery)
	defer every.Stop()
	purges := dedup.Pace{What: "videos-purges", Every: p.o.SweepEvery, Idle: 3 * p.o.SweepEvery}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.kick:
			p.report(ctx, "purge", p.o.Seen.AtOnce(ctx, purges, p.PurgeDue))
		case <-every.C:
			if err := p.ours(ctx); errors.Is(err, objectstore.ErrForeign) {
				return foreign(err)
			}
			// The claim is slightly shorter than a round, so it has expired by the time the next
			// round begins.
			if !p.o.Seen.First(ctx, "videos-sweep", p.o.SweepEvery*9/10) {
				continue
			}
			p.report(ctx, "sweep", p.Sweep(ctx))
			p.report(ctx, "job sweep", p.o.Queue.Sweep(ctx))
			p.report(ctx, "purge", p.o.Seen.Round(ctx, purges, p.PurgeDue))
		}
	}
}

// RunHints receives the workers' hints and applies the results until ctx is done. If a hint is lost
// or its video cannot be read, a sweep will apply the result.
func (p *Pipeline) RunHints(ctx context.Context) error {
	// away limits the log to one warning per outage.
	away := false
	for ctx.Err() == nil {
		hinted, jobID, err := p.o.Hint(ctx)
		switch {
		case err != nil:
			if !away && ctx.Err() == nil {
				p.o.Log.WarnContext(ctx, "cannot read the workers' hints; sweeps find the outcomes", "error", err)
			}
			away = true
			outage.Pause(ctx, time.Second)
			continue
		case jobID != "":
			p.report(hinted, "hint", guarded(func() error { return p.Hinted(hinted, jobID) }))
		}
		away = false
	}
	return nil
}

// Hinted applies a job's result if its video is still waiting for it.
func (p *Pipeline) Hinted(ctx context.Context, jobID string) error {
	v, err := p.o.Store.Get(ctx, video.ID(transcode.VideoOf(jobID)))
	switch {
	case apierr.CodeOf(err) == apierr.VideoNotFound:
		return nil
	case err != nil:
		return err
	case v.Still != nil && v.Still.JobID == jobID:
		_, err = p.applyStill(ctx, v)
		return err
	case v.Source.JobID != jobID:
		return nil
	}
	_, err = p.advance(ctx, v)
	return err
}

func (p *Pipeline) report(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		p.o.Log.WarnContext(ctx, what+" failed; the next one retries", "error", err)
	}
}

// Sweep visits every due video once. After an error on one video, it continues with the
// others.
func (p *Pipeline) Sweep(ctx context.Context) error {
	due, err := p.o.Store.Due(ctx)
	// While an account's ledger of stored bytes is contended, each update to its videos takes
	// seconds, and all accounts share these few goroutines. In that case, postpone the account's
	// other videos without trying them.
	var busy sync.Map
	return errors.Join(err, p.each(ctx, due, func(ctx context.Context, v *video.Video) error {
		if _, full := busy.Load(v.AccountID); full {
			return p.putOff(ctx, v)
		}
		err := p.visit(ctx, v)
		if apierr.CodeOf(err) == apierr.RateLimited {
			busy.Store(v.AccountID, true)
		}
		return err
	}))
}

// visit does the pending work of v, and postpones v if nothing changed.
func (p *Pipeline) visit(ctx context.Context, v *video.Video) error {
	ctx, span := boot.Work(ctx, "due video")
	defer span.End()
	due, tidy := v.DueAt, !v.InWork() && !v.AwaitsUpload()
	after := v
	err := guarded(func() (err error) {
		if after, err = p.advance(ctx, v); err == nil && after != nil && after.Measured() {
			after, err = p.follow(ctx, after)
		}
		if err == nil && after != nil && len(after.Upload.Ended) > 0 {
			after, err = p.endSessions(ctx, after)
		}
		if err == nil && tidy {
			err = p.tidyVideo(ctx, v.ID)
		}
		return err
	})
	if apierr.CodeOf(err) == apierr.VideoNotFound {
		return nil // already deleted
	}
	if after == nil || !after.DueAt.Equal(due) {
		return err // another change has set when it is due
	}
	if err == nil {
		v.Schedule(p.o.Plan, p.o.Now())
		return p.o.Store.PutOff(ctx, v)
	}
	return errors.Join(err, p.putOff(ctx, v))
}

// putOff schedules a video with unfinished work for a later sweep, so it does not delay the
// others. The pauses between attempts grow longer as usual.
func (p *Pipeline) putOff(ctx context.Context, v *video.Video) error {
	v.Schedule(p.o.Plan, p.o.Now())
	if v.DueAt.IsZero() {
		v.DueAt = p.o.Now().Add(time.Hour)
	}
	return p.o.Store.PutOff(ctx, v)
}

// guarded converts a panic in do to an error. The same process serves viewers, and the same video
// would cause the same panic after a restart.
func guarded(do func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	return do()
}

func (p *Pipeline) each(ctx context.Context, vs []*video.Video, do func(context.Context, *video.Video) error) error {
	var mu sync.Mutex
	var first error
	away := 0
	g := new(errgroup.Group)
	g.SetLimit(8)
	for _, v := range vs {
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			mu.Lock()
			hopeless := away >= 8 // storage or the database is down, so the other videos would fail too
			mu.Unlock()
			if hopeless {
				return nil
			}
			err := do(ctx, v)
			if err == nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			// Unavailable affects all videos. Any other error affects only one video and must not
			// stop the others, no matter how often such errors occur.
			if apierr.CodeOf(err) == apierr.Unavailable {
				away++
			}
			if first == nil {
				first = fmt.Errorf("video %s: %w", v.ID, err)
			}
			return nil
		})
	}
	return errors.Join(g.Wait(), first)
}
