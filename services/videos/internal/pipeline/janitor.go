package pipeline

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// janitorTick is how often a replica offers to search storage.
const janitorTick = 10 * time.Minute

// RunJanitor searches all of storage for orphans until ctx ends. It is for what
// no record tells of: objects of videos that are gone. What a video itself leaves
// behind is removed when the video is due ([Pipeline.Sweep]). With JanitorEvery 0 it
// does nothing. It ends with an error when the bucket belongs to another database.
func (p *Pipeline) RunJanitor(ctx context.Context) error {
	if p.o.JanitorEvery <= 0 {
		return nil
	}
	if err := p.awaitBucket(ctx); err != nil {
		return err
	}
	every := time.NewTicker(min(janitorTick, p.o.JanitorEvery))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			if p.o.Seen.First(ctx, "videos-janitor", p.o.JanitorEvery*9/10) {
				err := p.Tidy(ctx)
				if errors.Is(err, objectstore.ErrForeign) {
					return foreign(err)
				}
				p.report(ctx, "janitor", err)
			}
		}
	}
}

// Tidy goes through storage once. What is certain to be of no use goes at once. What
// no record explains is a stray: it goes once it has been seen twice, [strayAge]
// apart. That time is longer than Firestore's point-in-time recovery reaches back, so a
// database that was restored to the wrong time can be restored again, and its videos
// still play. See [Pipeline.tidyStrays] for what stops it.
//
// It reads an object's video after it has seen the object, so what a worker
// publishes meanwhile is never an orphan.
func (p *Pipeline) Tidy(ctx context.Context) error {
	turn := turnFailed
	defer func() { turns.WithLabelValues(turn).Inc() }()
	if err := p.o.Claim(ctx); err != nil {
		return err
	}
	found := &turnStrays{}
	errs := []error{
		p.tidy(ctx, "videos/", p.judgeMedia, found),
		p.tidy(ctx, "uploads/", p.judgeUpload, found),
	}
	// A turn that has not seen everything says nothing about what is left. Objects that one cannot judge or
	// remove are no reason to leave the strays.
	if !found.cut {
		outcome, err := p.tidyStrays(ctx, found)
		turn, errs = outcome, append(errs, err)
	}
	return errors.Join(errs...)
}

// tidyVideo removes the orphans of one video: media that was replaced, sources
// that have been of no use for long.
func (p *Pipeline) tidyVideo(ctx context.Context, id video.ID) error {
	var errs []error
	for prefix, judge := range map[string]judgeFunc{
		transcode.VideoPrefix(string(id)): p.judgeMedia, video.UploadPrefix(id): p.judgeUpload,
	} {
		objects, err := collect(p.o.Bucket.List(ctx, prefix))
		if err != nil {
			return err
		}
		errs = append(errs, p.tidyBatch(ctx, map[video.ID][]objectstore.Object{id: objects}, judge, nil))
	}
	return errors.Join(errs...)
}

func collect(list iter.Seq2[objectstore.Object, error]) (objects []objectstore.Object, err error) {
	for o, err := range list {
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// strayGrace is how long an object that no job wrote may be there before its
// video names it: a caption file, or a picture that is being taken.
const strayGrace = time.Hour

// verdict is what is known about an object.
type verdict int

const (
	inUse verdict = iota // or may be
	dead                 // certain to be of no use
	stray                // no record explains it
)

type judgeFunc func(v *video.Video, keep map[string]bool, o objectstore.Object) verdict

// judgeMedia judges what was made for a video. Three things are in use although
// the record does not name them: everything that a job which may still run has
// written, finished parts included, since whoever takes the job over relies on
// them; media that was replaced, as long as an address of it may be valid; and
// what was written so recently that its video may not name it yet.
//
// An object that is younger than the record's last change is a stray at worst: the
// record may be one that was restored from before the object.
func (p *Pipeline) judgeMedia(v *video.Video, keep map[string]bool, o objectstore.Object) verdict {
	if v == nil {
		return stray
	}
	now, of := p.o.Now(), dead
	if o.Created.After(v.UpdatedAt) {
		of = stray
	}
	generation, _, made := transcode.ParsePrefix(string(v.ID), o.Name)
	switch {
	case keep[o.Name]:
		return inUse
	case !made:
		if now.Sub(o.Created) <= strayGrace {
			return inUse
		}
		return of
	// A video that was ready takes no other file, so media of another generation never showed.
	case generation != v.Source.Generation:
		return of
	case v.InWork(), v.Status == video.Ready && now.Before(v.DecidedAt().Add(p.o.Plan.Replaced)):
		return inUse
	}
	return of
}

// judgeUpload judges a source: one that was refused or came too late is of no use at
// once, one whose video is decided after the retention.
func (p *Pipeline) judgeUpload(v *video.Video, _ map[string]bool, o objectstore.Object) verdict {
	if v == nil {
		return stray
	}
	if late(v, o) {
		return dead
	}
	// Below, the object's own age counts too: a new file for a video that failed long ago may not
	// have been noticed yet.
	refused := v.Status == video.Failed && v.Source.JobID == "" && o.Generation == v.Source.Generation
	decided := v.Status == video.Failed || v.Status == video.Ready && !v.InWork()
	now, keep := p.o.Now(), p.o.Plan.Retention
	switch {
	case refused:
		return dead
	case !decided || keep <= 0 || now.Sub(v.DecidedAt()) < keep || now.Sub(o.Created) < keep:
		return inUse
	case o.Generation > v.Source.Generation:
		return stray
	}
	return dead
}

func (p *Pipeline) tidy(ctx context.Context, prefix string, judge judgeFunc, strays *turnStrays) error {
	batch := map[video.ID][]objectstore.Object{}
	flush := func() error {
		defer clear(batch)
		return p.tidyBatch(ctx, batch, judge, strays)
	}
	var errs []error
	for o, err := range p.o.Bucket.List(ctx, prefix) {
		// What was gathered since the last flush is left to the next round.
		if err != nil {
			strays.end()
			return errors.Join(append(errs, err)...)
		}
		strays.seen++
		id, ok := videoOf(prefix, o.Name)
		if !ok {
			continue
		}
		// Names come in order, so all objects of a video end up in one batch.
		if len(batch) == 100 && batch[id] == nil {
			errs = append(errs, flush())
		}
		batch[id] = append(batch[id], o)
	}
	return errors.Join(append(errs, flush())...)
}

// tidyBatch removes what is of no use of some videos and notes their strays, which
// only a search of all of storage has a place for.
func (p *Pipeline) tidyBatch(ctx context.Context, batch map[video.ID][]objectstore.Object, judge judgeFunc, strays *turnStrays) error {
	ids := make([]video.ID, 0, len(batch))
	for id := range batch {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil
	}
	// A turn may take hours, in which the bucket can change hands.
	if err := p.ours(ctx); err != nil {
		strays.end()
		return err
	}
	known, unreadable, err := p.o.Store.Known(ctx, ids)
	if err != nil {
		strays.end()
		return err
	}
	var errs []error
	for id, objects := range batch {
		// Its record is there and may name any of them.
		if err := unreadable[id]; err != nil {
			errs = append(errs, err)
			continue
		}
		keep, err := named(known[id])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, o := range objects {
			switch judge(known[id], keep, o) {
			case dead:
				errs = append(errs, p.removeOrphan(ctx, o))
			case stray:
				strays.note(id, judge, o)
			case inUse:
			}
		}
	}
	return errors.Join(errs...)
}

func (p *Pipeline) removeOrphan(ctx context.Context, o objectstore.Object) error {
	p.o.Log.InfoContext(ctx, "orphan removed", "object", o.Name)
	// By its generation: a file that was uploaded since under the same name was not judged.
	return gone(p.o.Bucket.Delete(ctx, o.Name, o.Generation))
}

// gone takes an object that is not there for one that was removed.
func gone(err error) error {
	if errors.Is(err, objectstore.ErrNotFound) || apierr.CodeOf(err) == apierr.VideoNotFound {
		return nil
	}
	return err
}

// named lists the objects that v refers to.
func named(v *video.Video) (map[string]bool, error) {
	keep := map[string]bool{}
	if v == nil {
		return keep, nil
	}
	for _, c := range v.Captions {
		keep[c.Object] = true
	}
	if v.Still != nil {
		keep[v.Still.Object] = true
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
