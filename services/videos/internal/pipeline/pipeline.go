// Package pipeline detects finished uploads and applies the results that workers publish. It
// changes videos' statuses and removes deleted videos' objects.
//
// The pipeline does not depend on messages. It learns about an upload from a storage notification,
// and about a worker's outcome from the worker's hint. It also detects both in a sweep, or when
// somebody requests the video. Any one of these is enough. Every step may run twice, run on several
// replicas at once, or be interrupted at any point. A transaction on the record decides which run
// takes effect, and the next sweep resumes from there.
//
// A sweep only reads videos that are due. Each video's record stores its due time (see
// [video.Video.Schedule]). Due times are grouped into buckets. The longer a video waits, the longer
// the pauses between checks become.
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

// Store is the part of the record store that the pipeline uses. *store.Store
// implements it.
type Store interface {
	Get(ctx context.Context, id video.ID) (*video.Video, error)
	Update(ctx context.Context, id video.ID, fn func(*video.Video) error) (*video.Video, error)
	// Known returns the videos with the given ids. unreadable contains the ids of records that
	// exist but cannot be read.
	Known(ctx context.Context, ids []video.ID) (known map[video.ID]*video.Video, unreadable map[video.ID]error, err error)

	// Due lists the videos that are due. It may return some of them along with an error.
	Due(ctx context.Context) ([]*video.Video, error)
	// PutOff stores when a video is due next, unless the video was changed after it was read.
	PutOff(ctx context.Context, v *video.Video) error
	DuePurges(ctx context.Context) ([]*video.Purge, error)
	PutOffPurge(ctx context.Context, p *video.Purge) error
	// Deleted reports whether id is a deleted video. The result is reliable for as long as anyone
	// can still write to the video's objects.
	Deleted(ctx context.Context, id video.ID) (bool, error)
	Purged(ctx context.Context, id video.ID) error
}

// Bucket is the part of object storage that the pipeline uses. *objectstore.Store
// implements it.
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

// Jobs is the part of the job records that the pipeline uses. *jobs.Store implements
// it.
type Jobs interface {
	Create(ctx context.Context, j transcode.Job) (bool, error)
	Get(ctx context.Context, id string) (transcode.Record, error)
	Delete(ctx context.Context, id string) error
}

// Queue wakes a worker for a job. Sweep wakes workers again for jobs whose wake-up was lost or
// whose backoff has expired. The workers sweep too, but an autoscaler may have removed the last
// worker.
type Queue interface {
	Add(ctx context.Context, j transcode.Job) error
	Sweep(ctx context.Context) error
}

// Options configures a [Pipeline].
type Options struct {
	Store  Store
	Bucket Bucket
	Jobs   Jobs
	Queue  Queue
	// Hint waits briefly for a worker's message that a job has a result to apply. jobID is ""
	// if no message arrived. hinted carries the message's trace.
	Hint func(ctx context.Context) (hinted context.Context, jobID string, err error)
	Now  func() time.Time
	Log  *slog.Logger

	Plan video.Plan
	Job  transcode.Limits

	SweepEvery   time.Duration // how often due videos are checked
	JanitorEvery time.Duration // how often the whole bucket is searched for orphans; 0 means never
	JanitorMost  int           // a search that finds more strays than this, and more than 1% of all objects, removes none

	// JanitorOff reports whether the janitor is off. A restore turns it off until the operator
	// turns it back on. While it is off, objects that no record refers to are never removed. The
	// objects of deleted videos are still removed because a deletion record refers to them. If
	// JanitorOff is nil, the janitor is on.
	JanitorOff func() bool

	// Claim records this database as the bucket's owner, or returns [objectstore.ErrForeign] if
	// another database owns it.
	Claim func(ctx context.Context) error

	// Seen is shared by all replicas, so only one replica does each round.
	Seen *dedup.Seen
}

// Pipeline is safe for concurrent use.
type Pipeline struct {
	o    Options
	kick chan struct{} // a purge is due

	mu     sync.Mutex
	looked map[video.ID]time.Time

	claimed time.Time // when a check last confirmed that the bucket belongs to this database
}

// New returns a pipeline. [Pipeline.Run] does its background work.
func New(o Options) *Pipeline {
	return &Pipeline{o: o, kick: make(chan struct{}, 1), looked: map[video.ID]time.Time{}}
}

// refreshEvery is the minimum time between checks on the same waiting video.
const refreshEvery = time.Second

// Refresh picks up a finished upload or transcode before the video is returned. If that fails,
// Refresh returns the video unchanged and leaves the work to the sweep. A video that is waiting for
// its upload is checked at most once a second, no matter how many requests arrive.
func (p *Pipeline) Refresh(ctx context.Context, v *video.Video) *video.Video {
	if v.Status == video.Ready && (v.Still == nil || v.Still.JobID == "") || !p.mayRefresh(v) {
		return v
	}
	// The system is the actor because the caller only requested the video. The caller is waiting,
	// so the timeout is short. Anything that takes longer is left to the sweep.
	ctx, cancel := context.WithTimeout(events.WithActor(ctx, events.System), 2*time.Second)
	defer cancel()
	seen, err := p.advance(ctx, v)
	if err != nil {
		p.o.Log.DebugContext(ctx, "refresh", "video", v.ID, "error", err)
		return v
	}
	return seen
}

// mayRefresh limits how often a video is checked for an upload. While the video is
// processing, every caller gets the current progress.
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

// Uploaded handles a storage notification that object was written. It removes the object if the
// video was deleted. An object that no record accounts for is left to the janitor because this
// database may have been restored to a time before the video was created.
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

// refuseLate removes a file that overwrote the source of a ready video. The file is never used and
// does not count towards any limit or quota. If the notification is lost, the janitor removes the
// file.
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
	p.o.Log.InfoContext(ctx, "removed an upload that arrived after the video was ready", "video", v.ID, "bytes", o.Size)
	return gone(p.o.Bucket.Delete(ctx, o.Name, o.Generation))
}

// late reports whether v is ready and o was uploaded after its source.
func late(v *video.Video, o objectstore.Object) bool {
	return v.Status == video.Ready && o.Generation > v.Source.Generation
}

// advance takes the next step for v. v may be a partial record read by a sweep, so decisions are
// made in a transaction on the whole record.
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

// detectUpload checks whether a new file has been uploaded.
func (p *Pipeline) detectUpload(ctx context.Context, v *video.Video) (*video.Video, error) {
	seen, err := p.arrive(ctx, v)
	// End old sessions now rather than in the next sweep because the account's next upload may need
	// the storage that they reserve. If that fails, the next sweep will retry. endSessions returns
	// the video even if it fails.
	if err == nil && seen.StorageLimit > 0 && len(seen.Upload.Ended) > 0 {
		seen, err = p.endSessions(ctx, seen)
		if err != nil {
			p.o.Log.DebugContext(ctx, "cannot end a session; the next sweep retries", "video", seen.ID, "error", err)
		}
		return seen, nil
	}
	return seen, err
}

// arrive records a new file in the video. If there is none, arrive checks whether the upload
// deadline has passed.
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
		JobID: transcode.JobID(string(v.ID), o.Generation), StoredAt: o.Created,
	}
	var former string
	arrived, changed, err := p.move(ctx, v.ID, func(v *video.Video) error {
		former = v.Source.JobID
		return v.FileArrived(source, p.o.Plan.Upload, p.o.Now())
	})
	// If the record has a different generation, a newer file has since been recorded, or the video
	// is not waiting for a file. Either way, there is nothing left to do for this file.
	if err != nil || arrived.Source.Generation != source.Generation {
		return orOld(arrived, v), err
	}
	if former != "" && former != arrived.Source.JobID {
		// The previous job has failed, and its record is no longer needed.
		if err := p.o.Jobs.Delete(ctx, former); err != nil {
			p.o.Log.WarnContext(ctx, "cannot delete the previous job's record", "job", former, "error", err)
		}
	}
	// Another replica may have crashed after recording the file, so do the remaining steps even
	// if nothing changed here.
	switch arrived.Status {
	case video.Processing:
		if changed {
			p.o.Log.InfoContext(ctx, "upload arrived", "video", v.ID, "bytes", source.Size)
			became(video.Processing, "")
		}
		return arrived, p.start(ctx, arrived)
	case video.Failed:
		if changed {
			p.o.Log.InfoContext(ctx, "upload rejected", "video", v.ID, "bytes", source.Size, "code", arrived.Failure.Code)
			became(video.Failed, arrived.Failure.Code)
		}
		// Delete only this generation: a newer file may exist by now.
		return arrived, p.o.Bucket.Delete(ctx, arrived.Upload.Object, source.Generation)
	}
	return arrived, nil
}

// expire fails a video if its file did not arrive in time. If the video has failed and its upload
// URL has expired, expire ends the session.
func (p *Pipeline) expire(ctx context.Context, v *video.Video) (*video.Video, error) {
	if v.Status == video.Failed && v.Upload.ResumableURL != "" && !p.o.Now().Before(v.Upload.ExpiresAt.Add(video.UploadGrace)) {
		return p.note(ctx, v, func(v *video.Video) error { return v.Retire(p.o.Now()) })
	}
	// This check only avoids an unnecessary transaction. Expire checks the current record again.
	if v.Status != video.Uploading || p.o.Now().Sub(v.CreatedAt) < p.o.Plan.Upload.MaxAge {
		return v, nil
	}
	gone, _, err := p.move(ctx, v.ID, func(v *video.Video) error { return v.Expire(p.o.Plan.Upload, p.o.Now()) })
	return orOld(gone, v), err
}

// start creates the video's job if it does not exist, and wakes a worker for it.
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
		return fmt.Errorf("start job for video %s: %w", j.VideoID, err)
	}
	// Only the replica that created the job wakes a worker. If the wake-up is lost, the job sweep
	// will repeat it.
	if !made {
		return nil
	}
	if err := p.o.Queue.Add(ctx, j); err != nil {
		p.o.Log.WarnContext(ctx, "cannot wake a worker; a sweep will find the job", "job", j.ID, "error", err)
	}
	return nil
}

// applyOutcome applies the job's result to the video.
func (p *Pipeline) applyOutcome(ctx context.Context, v *video.Video) (*video.Video, error) {
	job, err := p.o.Jobs.Get(ctx, v.Source.JobID)
	if errors.Is(err, jobs.ErrNotFound) {
		// If the video is still processing, the process that detected the upload crashed after
		// committing the video and before creating the job.
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
	// Set the progress only on the returned copy. The job's record stores the progress, and
	// writing it on every check would exceed a document's write rate.
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
		// Only the first publication is a status change.
		if published.ReadyAt.Equal(published.UpdatedAt) {
			became(video.Ready, "")
			observeReady(published)
		}
	}
	return orOld(published, v), err
}

// finish marks a ready video as complete, so sweeps no longer read it.
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

// move changes a video and sets when it is due next. changed is false if there was nothing to
// change, for example because another sweep, hint or request made the change first.
func (p *Pipeline) move(ctx context.Context, id video.ID, step func(*video.Video) error) (v *video.Video, changed bool, err error) {
	v, err = p.o.Store.Update(ctx, id, func(v *video.Video) error {
		err := step(v)
		// Every attempt at the transaction sets this variable. The last attempt counts.
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

// mediaOf converts a job's outcome to the video's media.
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
