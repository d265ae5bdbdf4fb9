package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/videos/internal/store"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Remove deletes a video whatever its status. When it has answered, record and
// access are gone; the objects follow at once if storage answers, else as soon
// as it does. fn decides on the video as it is.
func (p *Pipeline) Remove(ctx context.Context, id video.ID, fn func(*video.Video) error) error {
	if _, err := p.o.Store.Delete(ctx, id, fn); err != nil {
		return err
	}
	select {
	case p.kick <- struct{}{}:
	default:
	}
	return nil
}

// PurgeDue works off the tasks whose time has come.
func (p *Pipeline) PurgeDue(ctx context.Context) error {
	due, err := p.o.Store.DuePurges(ctx)
	errs := []error{err}
	for _, task := range due {
		if ctx.Err() != nil {
			break
		}
		errs = append(errs, p.purge(ctx, task))
	}
	return errors.Join(errs...)
}

// purge removes what there is now. The task stays until nothing can come after.
func (p *Pipeline) purge(ctx context.Context, task store.Purge) error {
	err := errors.Join(
		p.deleteJob(ctx, task.JobID),
		p.o.Bucket.DeletePrefix(ctx, uploadPrefix(task.Video)),
		p.o.Bucket.DeletePrefix(ctx, transcode.VideoPrefix(string(task.Video))),
	)
	now := p.o.Now()
	if err == nil && !now.Before(task.Until) {
		return p.o.Store.Purged(ctx, task.Video)
	}
	task.Next = now.Add(purgePause(now.Sub(task.Since)))
	return errors.Join(err, p.o.Store.Repurge(ctx, task))
}

func (p *Pipeline) deleteJob(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	return p.o.Jobs.Delete(ctx, id)
}

// purgePause spaces out the rounds: what comes late comes soon after the delete,
// from an upload or a worker that was at it.
func purgePause(since time.Duration) time.Duration {
	switch {
	case since < 2*time.Minute:
		return 9 * time.Second // less than a sweep, so that each sweep finds it due
	case since < time.Hour:
		return 2 * time.Minute
	case since < 24*time.Hour:
		return time.Hour
	}
	return 12 * time.Hour
}

// RunJanitor looks for orphans until ctx ends.
func (p *Pipeline) RunJanitor(ctx context.Context) error {
	every := time.NewTicker(p.o.JanitorEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			if p.o.Mine(ctx, "videos-janitor", p.o.JanitorEvery*9/10) {
				p.report(ctx, "janitor", p.Tidy(ctx))
			}
		}
	}
}

// Tidy goes through storage once and removes what no video refers to: objects of
// attempts that were superseded, of videos that are gone, and sources that have been
// of no use for long. It reads an object's video after it has seen the object,
// so what a worker publishes meanwhile is never an orphan.
func (p *Pipeline) Tidy(ctx context.Context) error {
	return errors.Join(
		p.tidy(ctx, "videos/", p.mediaOrphan),
		p.tidy(ctx, "uploads/", p.uploadOrphan),
	)
}

// captionGrace is how long a caption file may be there before its video names it.
const captionGrace = time.Hour

func (p *Pipeline) mediaOrphan(v *video.Video, keep map[string]bool, o objectstore.Object) bool {
	if v == nil {
		return true
	}
	generation, _, made := transcode.ParsePrefix(string(v.ID), o.Name)
	switch {
	case keep[o.Name]:
		return false
	case !made:
		return p.o.Now().Sub(o.Created) > captionGrace
	case generation != v.Source.Generation:
		return true
	}
	inWork := v.Status == video.Processing || v.Media != nil && !v.Media.Final
	return !inWork
}

// uploadOrphan judges a source: one that was refused is of no use at once, one
// whose video is decided after the retention.
func (p *Pipeline) uploadOrphan(v *video.Video, _ map[string]bool, o objectstore.Object) bool {
	if v == nil {
		return true
	}
	refused := v.Status == video.Failed && v.Source.JobID == "" && o.Generation == v.Source.Generation
	decided := v.Status == video.Failed || v.Status == video.Ready && v.Media.Final
	now, keep := p.o.Now(), p.o.SourceRetention
	return refused || decided && keep > 0 && now.Sub(v.UpdatedAt) > keep && now.Sub(o.Created) > keep
}

func (p *Pipeline) tidy(ctx context.Context, prefix string, orphan func(*video.Video, map[string]bool, objectstore.Object) bool) error {
	batch := map[video.ID][]objectstore.Object{}
	flush := func() error {
		defer clear(batch)
		return p.tidyBatch(ctx, batch, orphan)
	}
	var errs []error
	for o, err := range p.o.Bucket.List(ctx, prefix) {
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		id, ok := videoOf(prefix, o.Name)
		if !ok {
			continue
		}
		if len(batch) == 100 && batch[id] == nil {
			errs = append(errs, flush())
		}
		batch[id] = append(batch[id], o)
	}
	return errors.Join(append(errs, flush())...)
}

func (p *Pipeline) tidyBatch(ctx context.Context, batch map[video.ID][]objectstore.Object, orphan func(*video.Video, map[string]bool, objectstore.Object) bool) error {
	ids := make([]video.ID, 0, len(batch))
	for id := range batch {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil
	}
	known, err := p.o.Store.Known(ctx, ids)
	if err != nil {
		return err
	}
	var errs []error
	for id, objects := range batch {
		keep, err := kept(known[id])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, o := range objects {
			if orphan(known[id], keep, o) {
				p.o.Log.InfoContext(ctx, "orphan removed", "object", o.Name)
				errs = append(errs, p.o.Bucket.Delete(ctx, o.Name, o.Generation))
			}
		}
	}
	return errors.Join(errs...)
}

// kept names the objects that v refers to.
func kept(v *video.Video) (map[string]bool, error) {
	keep := map[string]bool{}
	if v == nil {
		return keep, nil
	}
	for _, c := range v.Captions {
		keep[c.Object] = true
	}
	if v.Media == nil {
		return keep, nil
	}
	o, err := transcode.UnmarshalOutcome(v.Media.Outcome)
	if err != nil {
		return nil, err
	}
	for _, name := range o.Objects() {
		keep[name] = true
	}
	return keep, nil
}

func videoOf(prefix, object string) (video.ID, bool) {
	rest := object[len(prefix):]
	for i := range len(rest) {
		if rest[i] == '/' && i > 0 {
			return video.ID(rest[:i]), true
		}
	}
	return "", false
}
