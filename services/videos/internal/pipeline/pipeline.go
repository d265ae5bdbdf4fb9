// Package pipeline moves videos along their table: it notices finished uploads,
// hands them to the workers, applies what the workers publish, and removes what
// deleted videos leave behind.
//
// Nothing here depends on a message arriving. An upload is noticed by storage's
// notification, by a sweep every few seconds and when somebody asks, and any one
// of the three suffices; outcomes of the workers are noticed by a worker's hint
// and by the last two.
// Every step may be done twice, by several replicas at once, and be cut off
// anywhere: the record decides, in a transaction, and the next sweep goes on
// from it.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/videos/internal/store"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Bucket is what the pipeline asks of object storage. *objectstore.Store is the
// one in use.
type Bucket interface {
	Stat(ctx context.Context, object string) (objectstore.Object, error)
	List(ctx context.Context, prefix string) iter.Seq2[objectstore.Object, error]
	Delete(ctx context.Context, object string, generation int64) error
	DeletePrefix(ctx context.Context, prefix string) error
}

// Jobs is what the pipeline asks of the job records. *transcode.Store is the one
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

// Hints are the workers' messages that a job's record has something to apply.
// Next waits a moment for one and answers "" when there is none; ctx carries the
// trace that the hint came with.
type Hints interface {
	Next(ctx context.Context) (hinted context.Context, jobID string, err error)
}

// Options are what a pipeline works with.
type Options struct {
	Store  *store.Store
	Bucket Bucket
	Jobs   Jobs
	Queue  Queue // nil: workers find jobs by themselves
	Hints  Hints // nil: outcomes are found by sweeping
	Now    func() time.Time
	Log    *slog.Logger

	Upload video.UploadLimits
	Job    transcode.Limits

	SweepEvery      time.Duration // how often waiting videos are looked at
	JanitorEvery    time.Duration // how often storage is searched for orphans
	SourceRetention time.Duration // how long uploads are kept once their video is decided; 0 is for ever

	// Mine reports whether this replica does the next sweep; nil means it does.
	Mine func(ctx context.Context, what string, life time.Duration) bool
}

// Pipeline is safe for concurrent use.
type Pipeline struct {
	o       Options
	kick    chan struct{} // a purge is due
	measure measures

	mu     sync.Mutex
	looked map[video.ID]time.Time
}

// New makes a pipeline; [Pipeline.Run] makes it work by itself.
func New(o Options) *Pipeline {
	if o.Mine == nil {
		o.Mine = func(context.Context, string, time.Duration) bool { return true }
	}
	return &Pipeline{o: o, kick: make(chan struct{}, 1), looked: map[video.ID]time.Time{}, measure: newMeasures()}
}

// UploadObject is where the file of a video is uploaded.
func UploadObject(id video.ID) string { return uploadPrefix(id) + "source" }

// CaptionObject is where a caption file is kept; each upload has its own name.
func CaptionObject(id video.ID, lang, nonce string) string {
	return transcode.VideoPrefix(string(id)) + "captions/" + lang + "-" + nonce + ".vtt"
}

func uploadPrefix(id video.ID) string { return "uploads/" + string(id) + "/" }

// uploadedFor reads the video out of the name that UploadObject gave.
func uploadedFor(object string) (video.ID, bool) {
	rest, ok := strings.CutPrefix(object, "uploads/")
	id, _, found := strings.Cut(rest, "/")
	return video.ID(id), ok && found && id != ""
}

// lookAgain is how soon the same video is looked at again because somebody asks.
const lookAgain = time.Second

// Look brings a video up to date before it is shown: an upload that has arrived
// is noticed, an outcome is applied, and the progress is that of now. Trouble on the
// way leaves the video as it is, since the sweep will do the same; callers who
// ask often cost one look a second.
func (p *Pipeline) Look(ctx context.Context, v *video.Video) *video.Video {
	if v.Status == video.Ready || !p.mayLook(v) {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	seen, err := p.advance(ctx, v)
	if err != nil {
		p.o.Log.DebugContext(ctx, "look", "video", v.ID, "error", err)
		return v
	}
	return seen
}

// mayLook spaces out looks for an upload. While processing, every caller may
// see the progress.
func (p *Pipeline) mayLook(v *video.Video) bool {
	if v.Status == video.Processing {
		return true
	}
	now := p.o.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.looked[v.ID]) < lookAgain {
		return false
	}
	if len(p.looked) > 10_000 {
		clear(p.looked)
	}
	p.looked[v.ID] = now
	return true
}

// Uploaded is storage's hint that something was put at object. Hints about
// videos that are gone remove the object.
func (p *Pipeline) Uploaded(ctx context.Context, object string) error {
	id, ok := uploadedFor(object)
	if !ok {
		return nil
	}
	v, err := p.o.Store.Get(ctx, id)
	if apierr.CodeOf(err) == apierr.VideoNotFound {
		return p.o.Bucket.Delete(ctx, object, 0)
	}
	if err != nil {
		return err
	}
	_, err = p.advance(ctx, v)
	return err
}

// advance does what there is to do for v, which may be a sweep's partial read:
// decisions are made on the whole record, in a transaction.
func (p *Pipeline) advance(ctx context.Context, v *video.Video) (*video.Video, error) {
	switch v.Status {
	case video.Uploading, video.Failed:
		return p.notice(ctx, v)
	case video.Processing, video.Ready:
		return p.apply(ctx, v)
	}
	return v, nil
}

// notice looks whether a new file is at the upload address.
func (p *Pipeline) notice(ctx context.Context, v *video.Video) (*video.Video, error) {
	o, err := p.o.Bucket.Stat(ctx, v.Upload.Object)
	if errors.Is(err, objectstore.ErrNotFound) {
		return p.expire(ctx, v)
	}
	if err != nil {
		return v, err
	}
	if o.Generation <= v.Source.Generation {
		return v, nil
	}
	source := video.Source{
		Generation: o.Generation, Size: o.Size, ContentType: o.ContentType,
		JobID: transcode.JobID(string(v.ID), o.Generation),
	}
	var former string
	arrived, changed, err := p.step(ctx, v.ID, func(v *video.Video) error {
		former = v.Source.JobID
		return v.FileArrived(source, p.o.Upload, p.o.Now())
	})
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
			p.measure.became(ctx, video.Processing, "")
		}
		return arrived, p.start(ctx, arrived)
	case video.Failed:
		if changed {
			p.o.Log.InfoContext(ctx, "upload refused", "video", v.ID, "bytes", source.Size, "code", arrived.Failure.Code)
			p.measure.became(ctx, video.Failed, arrived.Failure.Code)
		}
		return arrived, p.o.Bucket.Delete(ctx, arrived.Upload.Object, source.Generation)
	}
	return arrived, nil
}

// expire ends the waiting for a file that did not come in time.
func (p *Pipeline) expire(ctx context.Context, v *video.Video) (*video.Video, error) {
	if v.Status != video.Uploading || p.o.Now().Sub(v.CreatedAt) < p.o.Upload.MaxAge {
		return v, nil
	}
	expired, _, err := p.step(ctx, v.ID, func(v *video.Video) error { return v.Expire(p.o.Upload, p.o.Now()) })
	return orOld(expired, v), err
}

// start makes sure that the video's job exists and that a worker hears of it.
func (p *Pipeline) start(ctx context.Context, v *video.Video) error {
	trace := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, trace)
	job := transcode.Job{
		ID: v.Source.JobID, AccountID: v.AccountID, VideoID: string(v.ID), Object: v.Upload.Object,
		Generation: v.Source.Generation, Size: v.Source.Size,
		Limits: p.o.Job, Trace: trace, CreatedAt: p.o.Now(),
	}
	made, err := p.o.Jobs.Create(ctx, job)
	if err != nil {
		return fmt.Errorf("start job of video %s: %w", v.ID, err)
	}
	if !made || p.o.Queue == nil {
		return nil
	}
	if err := p.o.Queue.Add(ctx, job); err != nil {
		p.o.Log.WarnContext(ctx, "no worker was woken; one will find the job by itself", "job", v.Source.JobID, "error", err)
	}
	return nil
}

// apply takes over what the job has come to.
func (p *Pipeline) apply(ctx context.Context, v *video.Video) (*video.Video, error) {
	job, err := p.o.Jobs.Get(ctx, v.Source.JobID)
	if errors.Is(err, transcode.ErrNotFound) {
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
		failed, changed, err := p.step(ctx, v.ID, func(v *video.Video) error { return v.Fail(job.ID, f, p.o.Now()) })
		if changed {
			p.o.Log.InfoContext(ctx, "video failed", "video", v.ID, "code", f.Code)
			p.measure.became(ctx, video.Failed, f.Code)
		}
		return orOld(failed, v), err
	}
	v.ReportProgress(job.Progress)
	return v, nil
}

func (p *Pipeline) publish(ctx context.Context, v *video.Video, job transcode.Record) (*video.Video, error) {
	media, err := mediaOf(job)
	if err != nil {
		return v, err
	}
	published, changed, err := p.step(ctx, v.ID, func(v *video.Video) error { return v.Publish(job.ID, media, p.o.Now()) })
	if changed {
		p.o.Log.InfoContext(ctx, "video published", "video", v.ID, "version", media.Version, "final", media.Final,
			"path", media.Path, "renditions", len(media.Renditions))
		if published.ReadyAt.Equal(published.UpdatedAt) {
			p.measure.became(ctx, video.Ready, "")
		}
	}
	return orOld(published, v), err
}

// finish notes that nothing will be added to a ready video, so that sweeps leave
// it alone.
func (p *Pipeline) finish(ctx context.Context, v *video.Video) (*video.Video, error) {
	done, err := p.o.Store.Update(ctx, v.ID, func(v *video.Video) error {
		if v.Media == nil || v.Media.Final {
			return video.ErrUnchanged
		}
		v.Media.Final = true
		return nil
	})
	return orOld(done, v), err
}

// step moves a video along its table and says whether it did: sweeps, hints and
// askers come upon the same thing at once, and one of them is first.
func (p *Pipeline) step(ctx context.Context, id video.ID, move func(*video.Video) error) (v *video.Video, changed bool, err error) {
	v, err = p.o.Store.Update(ctx, id, func(v *video.Video) error {
		err := move(v)
		changed = err == nil
		if errors.Is(err, video.ErrTransition) {
			return video.ErrUnchanged
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
		Poster: o.Poster, Download: o.Download, Storyboard: o.Storyboard != nil, Outcome: packed,
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

// Run sweeps until ctx ends.
func (p *Pipeline) Run(ctx context.Context) error {
	every := time.NewTicker(p.o.SweepEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.kick:
			p.report(ctx, "purge", p.PurgeDue(ctx))
		case <-every.C:
			if p.o.Mine(ctx, "videos-sweep", p.o.SweepEvery*9/10) {
				p.report(ctx, "sweep", p.Sweep(ctx))
				if p.o.Queue != nil {
					p.report(ctx, "sweep of jobs", p.o.Queue.Sweep(ctx))
				}
				p.report(ctx, "purge", p.PurgeDue(ctx))
			}
		}
	}
}

// RunHints applies what workers hint at until ctx ends. A hint that is lost on
// the way, or whose video cannot be read just now, leaves the video to the sweep.
func (p *Pipeline) RunHints(ctx context.Context) error {
	if p.o.Hints == nil {
		return nil
	}
	away := false
	for ctx.Err() == nil {
		hinted, jobID, err := p.o.Hints.Next(ctx)
		switch {
		case err != nil:
			if !away && ctx.Err() == nil {
				p.o.Log.WarnContext(ctx, "no hints from the workers; outcomes are found by sweeping", "error", err)
			}
			away = true
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		case jobID != "":
			p.report(hinted, "hint", p.Hinted(hinted, jobID))
		}
		away = false
	}
	return nil
}

// Hinted applies what has become of a job, if its video still waits for that.
func (p *Pipeline) Hinted(ctx context.Context, jobID string) error {
	v, err := p.o.Store.Get(ctx, video.ID(transcode.VideoOf(jobID)))
	switch {
	case apierr.CodeOf(err) == apierr.VideoNotFound:
		return nil
	case err != nil:
		return err
	case v.Source.JobID != jobID:
		return nil
	}
	_, err = p.advance(ctx, v)
	return err
}

func (p *Pipeline) report(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		p.o.Log.WarnContext(ctx, what+" did not end well; the next one goes on", "error", err)
	}
}

// Sweep looks once at every video that waits for something. Errors of single
// videos do not keep it from the others.
func (p *Pipeline) Sweep(ctx context.Context) error {
	inWork, err := p.o.Store.InWork(ctx)
	errs := []error{err, p.each(ctx, inWork, p.apply)}
	waiting, err := p.o.Store.Waiting(ctx)
	p.measure.waiting(ctx, len(inWork), len(waiting))
	errs = append(errs, err, p.each(ctx, p.dueForALook(waiting), p.notice))
	overdue, err := p.o.Store.Overdue(ctx, p.o.Now().Add(-p.o.Upload.MaxAge))
	errs = append(errs, err, p.each(ctx, overdue, func(ctx context.Context, v *video.Video) (*video.Video, error) {
		v.Upload.Object = UploadObject(v.ID)
		return p.notice(ctx, v)
	}))
	return errors.Join(errs...)
}

// dueForALook thins out the ones that have waited long: a record of the last hour is looked at in every sweep, an
// older one about every minute.
func (p *Pipeline) dueForALook(waiting []*video.Video) []*video.Video {
	now := p.o.Now()
	tick := now.UnixNano() / int64(max(p.o.SweepEvery, 1))
	due := waiting[:0]
	for i, v := range waiting {
		if now.Sub(v.CreatedAt) < time.Hour || (int64(i)+tick)%6 == 0 {
			due = append(due, v)
		}
	}
	return due
}

func (p *Pipeline) each(ctx context.Context, vs []*video.Video, do func(context.Context, *video.Video) (*video.Video, error)) error {
	var mu sync.Mutex
	var first error
	failures := 0
	g := new(errgroup.Group)
	g.SetLimit(8)
	for _, v := range vs {
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			mu.Lock()
			hopeless := failures >= 8 // storage or the database is down; no need to hear it from each video
			mu.Unlock()
			if hopeless {
				return nil
			}
			if _, err := do(ctx, v); err != nil && apierr.CodeOf(err) != apierr.VideoNotFound {
				mu.Lock()
				defer mu.Unlock()
				if failures++; first == nil {
					first = fmt.Errorf("video %s: %w", v.ID, err)
				}
			}
			return nil
		})
	}
	return errors.Join(g.Wait(), first)
}
