// Package pipeline notices finished uploads and applies what the workers publish.
// It moves videos along their table, and removes what deleted videos leave behind.
//
// Nothing here depends on a message arriving. An upload is noticed by storage's
// notification, by a sweep, and when somebody asks, and any one of the three
// suffices; outcomes of the workers are noticed by a worker's hint and by the
// last two. Every step may be done twice, by several replicas at once, and be cut
// off anywhere: the record decides, in a transaction, and the next sweep resumes
// from it.
//
// A sweep reads only what is due. A video's due time is stored with it
// ([video.Video.Schedule]), in buckets, and pauses grow with what waits for long.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Store is what the pipeline asks of the records. *store.Store is the one in use.
type Store interface {
	Get(ctx context.Context, id video.ID) (*video.Video, error)
	Update(ctx context.Context, id video.ID, fn func(*video.Video) error) (*video.Video, error)
	// Known tells which of ids are videos. Of those that are unreadable it knows only that.
	Known(ctx context.Context, ids []video.ID) (known map[video.ID]*video.Video, unreadable map[video.ID]error, err error)

	// Due lists videos whose time has come. It may answer some together with an error.
	Due(ctx context.Context) ([]*video.Video, error)
	// PutOff stores when a video is due next, unless it was changed since it was read.
	PutOff(ctx context.Context, v *video.Video) error
	DuePurges(ctx context.Context) ([]*video.Purge, error)
	PutOffPurge(ctx context.Context, p *video.Purge) error
	// Deleted reports whether id was a video that was deleted, as long as anybody may
	// still write to its objects.
	Deleted(ctx context.Context, id video.ID) (bool, error)
	Purged(ctx context.Context, id video.ID) error
}

// Bucket is what the pipeline asks of object storage. *objectstore.Store is the
// one in use.
type Bucket interface {
	Stat(ctx context.Context, object string) (objectstore.Object, error)
	Received(ctx context.Context, session string) (n int64, whole bool, err error)
	FinishResumable(ctx context.Context, session string, size int64) (whole bool, err error)
	EndResumable(ctx context.Context, session string) error
	List(ctx context.Context, prefix string) iter.Seq2[objectstore.Object, error]
	Download(ctx context.Context, object string, generation int64, w io.Writer) (objectstore.Object, error)
	Upload(ctx context.Context, object string, r io.Reader, o objectstore.UploadOptions) (objectstore.Object, error)
	Delete(ctx context.Context, object string, generation int64) error
	DeletePrefix(ctx context.Context, prefix string) error
}

// Jobs is what the pipeline asks of the job records. *jobs.Store is the one
// in use.
type Jobs interface {
	Create(ctx context.Context, j transcode.Job) (bool, error)
	Get(ctx context.Context, id string) (transcode.Record, error)
	Delete(ctx context.Context, id string) error
}

// Queue wakes a worker for a job. Sweep does so again for jobs whose wake-up was
// lost or whose back-off is over: the workers sweep too, but an autoscaler may have
// taken away the last of them.
type Queue interface {
	Add(ctx context.Context, j transcode.Job) error
	Sweep(ctx context.Context) error
}

// Options are what a pipeline works with.
type Options struct {
	Store  Store
	Bucket Bucket
	Jobs   Jobs
	Queue  Queue
	// Hint waits a moment for a worker's message that a job's record has something to
	// apply, and answers "" when there is none; hinted carries the trace that it came
	// with.
	Hint func(ctx context.Context) (hinted context.Context, jobID string, err error)
	Now  func() time.Time
	Log  *slog.Logger

	Plan video.Plan
	Job  transcode.Limits

	SweepEvery   time.Duration // how often due videos are looked at
	JanitorEvery time.Duration // how often all of storage is searched for orphans; 0 is never
	JanitorMost  int           // strays in a turn above which none goes, if they are more than a hundredth too

	// Claim makes the bucket this database's, or answers [objectstore.ErrForeign] when it is another's.
	Claim func(ctx context.Context) error

	// Seen is what replicas share: one of them does each round.
	Seen *dedup.Seen
}

// Pipeline is safe for concurrent use.
type Pipeline struct {
	o    Options
	kick chan struct{} // a purge is due

	mu     sync.Mutex
	looked map[video.ID]time.Time

	claimed time.Time // when the bucket was last seen to be ours
}

// New makes a pipeline; [Pipeline.Run] makes it work by itself.
func New(o Options) *Pipeline {
	return &Pipeline{o: o, kick: make(chan struct{}, 1), looked: map[video.ID]time.Time{}}
}

// refreshEvery is how soon the same video is looked at again because somebody asks.
const refreshEvery = time.Second

// Refresh picks up a finished upload or transcode before the video is returned.
// Trouble on the way leaves the video as it is, since the sweep will do the same;
// callers who ask often cost one look a second.
func (p *Pipeline) Refresh(ctx context.Context, v *video.Video) *video.Video {
	if v.Status == video.Ready && (v.Still == nil || v.Still.JobID == "") || !p.mayRefresh(v) {
		return v
	}
	// Whoever happens to look is not who did it.
	// Short, since the caller waits. What takes longer is left to the sweep.
	ctx, cancel := context.WithTimeout(events.WithActor(ctx, events.System), 2*time.Second)
	defer cancel()
	seen, err := p.advance(ctx, v)
	if err != nil {
		p.o.Log.DebugContext(ctx, "refresh", "video", v.ID, "error", err)
		return v
	}
	return seen
}

// mayRefresh spaces out looks for an upload. While processing, every caller may
// see the progress.
func (p *Pipeline) mayRefresh(v *video.Video) bool {
	if v.Status == video.Processing {
		return true
	}
	now := p.o.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.looked[v.ID]) < refreshEvery {
		return false
	}
	if len(p.looked) > 10_000 {
		clear(p.looked)
	}
	p.looked[v.ID] = now
	return true
}

// Uploaded is storage's hint that something was put at object. Hints about videos
// that were deleted remove the object. What no record explains is left to the janitor:
// this database may have been restored to a time before the video.
func (p *Pipeline) Uploaded(ctx context.Context, object string) error {
	id, ok := video.UploadedFor(object)
	if !ok {
		return nil
	}
	v, err := p.o.Store.Get(ctx, id)
	if apierr.CodeOf(err) == apierr.VideoNotFound {
		deleted, err := p.o.Store.Deleted(ctx, id)
		if err != nil || !deleted {
			return err
		}
		if err := p.ours(ctx); err != nil {
			return err
		}
		return p.o.Bucket.Delete(ctx, object, 0)
	}
	if err != nil {
		return err
	}
	if v, err = p.advance(ctx, v); err != nil {
		return err
	}
	return p.refuseLate(ctx, v)
}

// refuseLate removes a file that was put over the source of a ready video: nobody
// will look at it, and no limit or quota counts it. A lost hint leaves it to the
// janitor.
func (p *Pipeline) refuseLate(ctx context.Context, v *video.Video) error {
	if v.Status != video.Ready {
		return nil
	}
	o, err := p.o.Bucket.Stat(ctx, v.Upload.Object)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	if err != nil || !late(v, o) {
		return err
	}
	p.o.Log.InfoContext(ctx, "upload removed that came after the video was ready", "video", v.ID, "bytes", o.Size)
	return gone(p.o.Bucket.Delete(ctx, o.Name, o.Generation))
}

// late reports whether an upload came after that of a ready video.
func late(v *video.Video, o objectstore.Object) bool {
	return v.Status == video.Ready && o.Generation > v.Source.Generation
}

// advance does what there is to do for v, which may be a sweep's partial read:
// decisions are made on the whole record, in a transaction.
func (p *Pipeline) advance(ctx context.Context, v *video.Video) (*video.Video, error) {
	switch {
	case v.AwaitsUpload():
		return p.detectUpload(ctx, v)
	case v.Status == video.Processing, v.Status == video.Ready && (v.Media == nil || !v.Media.Final):
		return p.applyOutcome(ctx, v)
	case v.Still != nil && v.Still.JobID != "":
		return p.applyStill(ctx, v)
	}
	return v, nil
}

// detectUpload looks whether a new file is at the upload address.
func (p *Pipeline) detectUpload(ctx context.Context, v *video.Video) (*video.Video, error) {
	seen, err := p.arrive(ctx, v)
	// Now and not with the next sweep, since the account's next upload may need the room. Trouble
	// leaves it to the sweep.
	if err == nil && seen.StorageLimit > 0 && len(seen.Upload.Ended) > 0 {
		seen, err = p.endSessions(ctx, seen)
		if err != nil {
			p.o.Log.DebugContext(ctx, "a session stays until the next sweep", "video", seen.ID, "error", err)
		}
		return seen, nil
	}
	return seen, err
}

// arrive takes notice of a new file.
func (p *Pipeline) arrive(ctx context.Context, v *video.Video) (*video.Video, error) {
	o, err := p.o.Bucket.Stat(ctx, v.Upload.Object)
	if errors.Is(err, objectstore.ErrNotFound) {
		return p.expire(ctx, v)
	}
	if err != nil {
		return v, err
	}
	if o.Generation <= v.Source.Generation {
		return p.expire(ctx, v)
	}
	source := video.Source{
		Generation: o.Generation, Size: o.Size, ContentType: o.ContentType, Encoded: o.Encoded(),
		JobID: transcode.JobID(string(v.ID), o.Generation),
	}
	var former string
	arrived, changed, err := p.move(ctx, v.ID, func(v *video.Video) error {
		former = v.Source.JobID
		return v.FileArrived(source, p.o.Plan.Upload, p.o.Now())
	})
	// A newer file was noticed meanwhile, or the video waits for none: this one needs no more.
	if err != nil || arrived.Source.Generation != source.Generation {
		return orOld(arrived, v), err
	}
	if former != "" && former != arrived.Source.JobID {
		// It has failed, and nobody will ask for it again.
		if err := p.o.Jobs.Delete(ctx, former); err != nil {
			p.o.Log.WarnContext(ctx, "former job stays", "job", former, "error", err)
		}
	}
	// Whoever was faster may have come no further, so what follows is done in any case.
	switch arrived.Status {
	case video.Processing:
		if changed {
			p.o.Log.InfoContext(ctx, "upload arrived", "video", v.ID, "bytes", source.Size)
			became(video.Processing, "")
		}
		return arrived, p.start(ctx, arrived)
	case video.Failed:
		if changed {
			p.o.Log.InfoContext(ctx, "upload refused", "video", v.ID, "bytes", source.Size, "code", arrived.Failure.Code)
			became(video.Failed, arrived.Failure.Code)
		}
		// By its generation: a better file may have been put there since.
		return arrived, p.o.Bucket.Delete(ctx, arrived.Upload.Object, source.Generation)
	}
	return arrived, nil
}

// expire ends the waiting for a file that did not come in time, and the session of
// a failed video that nobody sends a file to any more.
func (p *Pipeline) expire(ctx context.Context, v *video.Video) (*video.Video, error) {
	if v.Status == video.Failed && v.Upload.ResumableURL != "" && !p.o.Now().Before(v.Upload.ExpiresAt.Add(video.UploadGrace)) {
		return p.note(ctx, v, func(v *video.Video) error { return v.Retire(p.o.Now()) })
	}
	// Only spares a transaction. Expire decides again, on the record as it is then.
	if v.Status != video.Uploading || p.o.Now().Sub(v.CreatedAt) < p.o.Plan.Upload.MaxAge {
		return v, nil
	}
	gone, _, err := p.move(ctx, v.ID, func(v *video.Video) error { return v.Expire(p.o.Plan.Upload, p.o.Now()) })
	return orOld(gone, v), err
}

// start makes sure that the video's job exists, and wakes a worker for it.
func (p *Pipeline) start(ctx context.Context, v *video.Video) error {
	return p.startJob(ctx, transcode.Job{
		ID: v.Source.JobID, AccountID: v.AccountID, VideoID: string(v.ID), Object: v.Upload.Object,
		Generation: v.Source.Generation, Size: v.Source.Size,
	})
}

func (p *Pipeline) startJob(ctx context.Context, j transcode.Job) error {
	trace := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, trace)
	j.Limits, j.Trace, j.CreatedAt = p.o.Job, trace, p.o.Now()
	made, err := p.o.Jobs.Create(ctx, j)
	if err != nil {
		return fmt.Errorf("start job of video %s: %w", j.VideoID, err)
	}
	// Whoever made the job wakes a worker. If that is lost, the sweep of jobs does it again.
	if !made {
		return nil
	}
	if err := p.o.Queue.Add(ctx, j); err != nil {
		p.o.Log.WarnContext(ctx, "cannot wake a worker; a sweep will find the job", "job", j.ID, "error", err)
	}
	return nil
}

// applyOutcome takes over what the job has come to.
func (p *Pipeline) applyOutcome(ctx context.Context, v *video.Video) (*video.Video, error) {
	job, err := p.o.Jobs.Get(ctx, v.Source.JobID)
	if errors.Is(err, jobs.ErrNotFound) {
		// Whoever noticed the upload died between the record's commit and the job's.
		if v.Status == video.Processing {
			return v, p.start(ctx, v)
		}
		return p.finish(ctx, v)
	}
	if err != nil {
		return v, err
	}
	switch {
	case job.Outcome != nil && (v.Status == video.Processing || v.Media == nil || job.Outcome.Version > v.Media.Version):
		return p.publish(ctx, v, job)
	case v.Status == video.Ready && job.State.Final():
		return p.finish(ctx, v)
	case v.Status == video.Processing && job.State.Final():
		f := video.Failure{Code: video.Internal, Message: "The video could not be prepared. Upload it again."}
		if job.Failure != nil {
			f = video.Failure{Code: video.Code(job.Failure.Code), Message: job.Failure.Message}
		}
		failed, changed, err := p.move(ctx, v.ID, func(v *video.Video) error { return v.Fail(job.ID, f, p.o.Now()) })
		if changed {
			p.o.Log.InfoContext(ctx, "video failed", "video", v.ID, "code", f.Code)
			became(video.Failed, f.Code)
		}
		return orOld(failed, v), err
	}
	// Only on the copy that is shown. The job's record has the progress, and a write for each look
	// would be too many for one document.
	v.ReportProgress(job.Progress)
	return v, nil
}

func (p *Pipeline) publish(ctx context.Context, v *video.Video, job transcode.Record) (*video.Video, error) {
	media, err := mediaOf(job)
	if err != nil {
		return v, err
	}
	published, changed, err := p.move(ctx, v.ID, func(v *video.Video) error { return v.Publish(job.ID, media, p.o.Now()) })
	if changed {
		p.o.Log.InfoContext(ctx, "video published", "video", v.ID, "version", media.Version, "final", media.Final,
			"path", media.Path, "renditions", len(media.Renditions))
		// Only the first publication is a change of status.
		if published.ReadyAt.Equal(published.UpdatedAt) {
			became(video.Ready, "")
		}
	}
	return orOld(published, v), err
}

// finish notes that nothing will be added to a ready video, so that sweeps leave
// it alone.
func (p *Pipeline) finish(ctx context.Context, v *video.Video) (*video.Video, error) {
	done, _, err := p.move(ctx, v.ID, func(v *video.Video) error {
		if v.Media == nil || v.Media.Final {
			return video.ErrUnchanged
		}
		v.Media.Final = true
		return nil
	})
	return orOld(done, v), err
}

// move changes a video, sets when it is due next, and says whether it did: sweeps,
// hints and askers come upon the same thing at once, and one of them is first.
func (p *Pipeline) move(ctx context.Context, id video.ID, step func(*video.Video) error) (v *video.Video, changed bool, err error) {
	v, err = p.o.Store.Update(ctx, id, func(v *video.Video) error {
		err := step(v)
		// Set by every try of the transaction; the last one counts.
		changed = err == nil
		if errors.Is(err, video.ErrTransition) {
			return video.ErrUnchanged
		}
		if err == nil {
			v.Schedule(p.o.Plan, p.o.Now())
		}
		return err
	})
	return v, changed && err == nil, err
}

func orOld(updated, old *video.Video) *video.Video {
	if updated != nil {
		return updated
	}
	return old
}

// mediaOf is what the product knows of an outcome.
func mediaOf(job transcode.Record) (video.Media, error) {
	o := job.Outcome
	packed, err := transcode.MarshalOutcome(o)
	if err != nil {
		return video.Media{}, err
	}
	m := video.Media{
		Version: o.Version, Final: o.Final || job.State.Final(), Path: string(o.Path),
		Duration: o.Duration, Width: o.Width, Height: o.Height, HasAudio: o.HasAudio,
		Bytes: o.Bytes, Poster: o.Poster, Download: o.Download, Storyboard: o.Storyboard != nil, Outcome: packed,
	}
	for _, r := range o.Renditions {
		bandwidth, codecs := r.Bandwidth, r.Codecs
		if o.Audio != nil {
			bandwidth += o.Audio.Bandwidth
			codecs += "," + o.Audio.Codecs
		}
		m.Renditions = append(m.Renditions, video.Rendition{
			Name: r.Name, Width: r.Width, Height: r.Height, FrameRate: r.FrameRate, Bandwidth: bandwidth, Codecs: codecs,
		})
	}
	return m, nil
}
