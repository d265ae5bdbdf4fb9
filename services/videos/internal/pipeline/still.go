package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// stillPatience is how long a caller waits for a new poster. A free worker takes about one
// second.
const stillPatience = 4 * time.Second

// TakeStill has a worker take the poster that v requests, and waits briefly for it. If anything
// fails here, the sweep will do the work.
func (p *Pipeline) TakeStill(ctx context.Context, v *video.Video) (*video.Video, error) {
	if _, err := p.startStill(ctx, v); err != nil {
		return v, err
	}
	for end := time.Now().Add(stillPatience); time.Now().Before(end); {
		if !outage.Pause(ctx, 150*time.Millisecond) {
			return v, nil // the request is stored, so the sweep will take the poster later
		}
		// The system is the actor, just as when a worker's hint arrives first.
		seen, err := p.applyStill(events.WithActor(ctx, events.System), v)
		if err != nil || seen.Still == nil || seen.Still.JobID == "" {
			return seen, nil
		}
	}
	return v, nil
}

// stillSide is the minimum short side of the rendition that posters are taken from. It is enough
// for a poster that is 1280 pixels wide.
const stillSide = 720

// startStill creates the job if the video still needs it, and returns the current video. The job
// reads one of our own renditions because they have a frame at every point in the video.
func (p *Pipeline) startStill(ctx context.Context, v *video.Video) (*video.Video, error) {
	whole, err := p.o.Store.Get(ctx, v.ID)
	if err != nil {
		return v, err
	}
	if whole.Still == nil || whole.Still.JobID == "" || whole.Media == nil {
		return whole, nil // a hint was applied first, or the owner no longer wants this poster
	}
	o, err := transcode.UnmarshalOutcome(whole.Media.Outcome)
	if err != nil || o == nil || len(o.Renditions) == 0 {
		return whole, err
	}
	from := o.Renditions[0]
	for _, r := range o.Renditions { // tallest first
		// Take the smallest rendition that is large enough, so the worker downloads less.
		if min(r.Width, r.Height) >= stillSide {
			from = r
		}
	}
	still, ok := transcode.StillOf(from, whole.Still.Time)
	if !ok {
		return whole, nil
	}
	return whole, p.startJob(ctx, transcode.Job{
		ID: whole.Still.JobID, AccountID: whole.AccountID, VideoID: string(v.ID), Object: from.Object,
		Size: still.Init.Size + still.Segment.Size, Still: &still,
	})
}

// applyStill applies the poster that a job has taken.
func (p *Pipeline) applyStill(ctx context.Context, v *video.Video) (*video.Video, error) {
	job, err := p.o.Jobs.Get(ctx, v.Still.JobID)
	if errors.Is(err, jobs.ErrNotFound) {
		return p.startStill(ctx, v)
	}
	if err != nil || !job.State.Final() {
		return v, err
	}
	former := ""
	after, changed, err := p.move(ctx, v.ID, func(v *video.Video) error {
		if job.Outcome == nil || job.Outcome.Poster == "" {
			return v.FailStill(job.ID, p.o.Now())
		}
		if v.Still != nil { // the owner may have restored the automatic poster since then
			former = v.Still.Object
		}
		return v.TakeStill(job.ID, job.Outcome.Poster, p.o.Now())
	})
	if err != nil {
		return orOld(after, v), err
	}
	if changed {
		// Leave the previous poster to the janitor because a page may still be showing it.
		p.o.Log.InfoContext(ctx, "poster taken", "video", v.ID, "replaced", former != "")
	}
	return after, p.o.Jobs.Delete(ctx, job.ID)
}
