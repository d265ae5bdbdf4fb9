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

// janitorTick is how often a replica tries to claim the next bucket search.
const janitorTick = 10 * time.Minute

// RunJanitor searches the whole bucket for orphans every JanitorEvery until ctx is done. It finds
// objects that no record refers to, such as those of deleted videos. [Pipeline.Sweep] removes the
// objects that an existing video no longer needs. If JanitorEvery is 0, RunJanitor does nothing.
// It returns an error if the bucket belongs to another database.
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
			if !p.janitorOff() && p.o.Seen.First(ctx, "videos-janitor", p.o.JanitorEvery*9/10) {
				err := p.Tidy(ctx)
				if errors.Is(err, objectstore.ErrForeign) {
					return foreign(err)
				}
				p.report(ctx, "janitor", err)
			}
		}
	}
}

func (p *Pipeline) janitorOff() bool { return p.o.JanitorOff != nil && p.o.JanitorOff() }

// Tidy searches the whole bucket and removes dead objects immediately. An object that no record
// accounts for is a stray. Tidy removes a stray only after two sightings at least [strayAge]
// apart. This is longer than Firestore keeps data for point-in-time recovery, so if a database was
// restored to the wrong time, it can be restored again and its videos will still play.
// [Pipeline.tidyStrays] describes when strays are kept.
//
// Tidy lists an object before it reads the object's video. Otherwise, it could mistake an object
// that a worker has just published for an orphan.
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
	// An interrupted search has not counted every object, so it must not remove strays. Errors on
	// individual objects do not count as interruptions.
	if !found.cut {
		outcome, err := p.tidyStrays(ctx, found)
		turn, errs = outcome, append(errs, err)
	}
	return errors.Join(errs...)
}

// tidyVideo removes the orphans of one video: replaced media, and sources that are no longer
// needed. While the janitor is off, tidyVideo does nothing, and the first search after it is turned
// back on finds these orphans.
func (p *Pipeline) tidyVideo(ctx context.Context, id video.ID) error {
	if p.janitorOff() {
		return nil
	}
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

// strayGrace is how long an object that was not written by a job may exist before its video's
// record refers to it. Such objects are caption files and new posters.
const strayGrace = time.Hour

// verdict is the janitor's decision about an object.
type verdict int

const (
	inUse verdict = iota // needed, or possibly needed
	dead                 // certainly not needed
	stray                // no record accounts for it
)

type judgeFunc func(v *video.Video, keep map[string]bool, o objectstore.Object) verdict

// judgeMedia judges an object that was made for a video. Some objects are in use even though the
// record does not refer to them. These are objects from a job that may still be running, replaced
// media while one of its URLs may still be valid, and objects so new that the record may not refer
// to them yet. A running job's objects include finished parts, which a worker that takes over the
// job reuses.
//
// An object that is newer than the record's last change is a stray, never dead: the record may
// have been restored to a time before the object existed.
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
	case !made: // not written by a job: a caption file or a poster
		if now.Sub(o.Created) <= strayGrace {
			return inUse
		}
		return of
	// A ready video does not accept another file, so media from a different generation was never
	// shown.
	case generation != v.Source.Generation:
		return of
	case v.InWork(), v.Status == video.Ready && now.Before(v.DecidedAt().Add(p.o.Plan.Replaced)):
		return inUse
	}
	return of
}

// judgeUpload judges a source. A rejected or late source is dead immediately. Any other source is
// dead once its video has been ready or failed for longer than the retention period.
func (p *Pipeline) judgeUpload(v *video.Video, _ map[string]bool, o objectstore.Object) verdict {
	if v == nil {
		return stray
	}
	if late(v, o) {
		return dead
	}
	// The cases below also require the object to be older than the retention period because the
	// pipeline may not have noticed a new file for a video that failed long ago.
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
		// After an error, the next search will handle the objects listed since the last flush.
		if err != nil {
			strays.end()
			return errors.Join(append(errs, err)...)
		}
		strays.seen++
		id, ok := videoOf(prefix, o.Name)
		if !ok {
			continue
		}
		// The listing is sorted by name, so a video's objects are all in the same batch.
		if len(batch) == 100 && batch[id] == nil {
			errs = append(errs, flush())
		}
		batch[id] = append(batch[id], o)
	}
	return errors.Join(append(errs, flush())...)
}

// tidyBatch removes the dead objects for a batch of videos and adds their strays to strays, which
// is nil except in a search of the whole bucket.
func (p *Pipeline) tidyBatch(ctx context.Context, batch map[video.ID][]objectstore.Object, judge judgeFunc, strays *turnStrays) error {
	ids := make([]video.ID, 0, len(batch))
	for id := range batch {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil
	}
	// A search may take hours, and the bucket's owner can change during that time.
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
		// If the record exists but cannot be read, it may refer to any of these objects.
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

// removeOrphan removes an object, unless the janitor has since been turned off. A search can take
// hours, and a restore during that time may have replaced the records used to judge the remaining
// objects.
func (p *Pipeline) removeOrphan(ctx context.Context, o objectstore.Object) error {
	if p.janitorOff() {
		return nil // the first search after the janitor is turned back on will find the object
	}
	p.o.Log.InfoContext(ctx, "orphan removed", "object", o.Name)
	// Delete only this generation: a newer file with the same name was not judged.
	return gone(p.o.Bucket.Delete(ctx, o.Name, o.Generation))
}

// gone returns nil if err means that the object no longer exists, and err otherwise.
func gone(err error) error {
	if errors.Is(err, objectstore.ErrNotFound) || apierr.CodeOf(err) == apierr.VideoNotFound {
		return nil
	}
	return err
}

// named returns the set of objects that v refers to.
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
	// If the video has no media, it has not been transcoded successfully yet. judgeMedia itself
	// keeps the objects of a running job.
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
