package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ladder"
)

// Shares of the progress bar, in percent.
const (
	downloaded = 5
	encoded    = 94
	uploaded   = 98
)

// attempt is the work on one claimed job.
type attempt struct {
	w      *Worker
	record transcode.Record
	token  jobs.Token
	lease  *leaseKeeper
	maker  Maker
	used   usage // the resource usage of its programs
	log    *slog.Logger
	dir    string
	prefix string
	owned  bool // the prefix was empty at the start, so all its objects belong to this attempt

	patient bool // the attempt runs in a slot, so it may wait for space
	retain  bool // the first published rendition is kept when the ladder is done
	parts   int  // number of parts for which this attempt created records
	outcome transcode.Outcome
	stored  map[string]int64 // sizes of the objects that this attempt has uploaded
}

// usage is the resource usage of an attempt's programs.
type usage struct {
	mu     sync.Mutex
	cpu    time.Duration
	memory int64 // the highest peak of any program
}

func (u *usage) add(x ffmpeg.Usage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cpu += x.CPU
	u.memory = max(u.memory, x.Memory)
}

func (u *usage) LogValue() slog.Value {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slog.GroupValue(slog.Float64("cpuSeconds", u.cpu.Seconds()), slog.Int64("memoryMiB", u.memory>>20))
}

// work runs the job from the download to the last publication.
func (a *attempt) work(ctx context.Context) error {
	dir, remove, err := a.w.o.Scratch.Job()
	if err != nil {
		return err
	}
	defer remove()
	// Only a whole job may wait for scratch space. A waiting part would delay the parent's
	// worker, which could encode the part itself.
	a.dir, a.patient = dir, a.record.Parent == ""
	switch {
	case a.record.Still != nil:
		return a.still(ctx)
	case a.record.Parent != "":
		return a.help(ctx)
	}
	src, err := a.source(ctx)
	if err != nil {
		return err
	}
	p := ladder.Make(src)
	// Reserve all space at the start, so a job does not fail on a full disk after an hour of
	// encoding.
	_, space := p.Space()
	if err := a.reserve(ctx, space); err != nil {
		return err
	}
	return a.prepare(ctx, p)
}

// longWait is the minimum age of a job that waits for scratch space in its slot. Such a job takes
// precedence over jobs that begin later. A younger job is postponed because another worker may have
// space. If jobs were always postponed, a continuous series of small jobs on the other slots could
// block a large job indefinitely.
const longWait = time.Minute

// reserve reserves scratch space for the job before it writes. If there is too little space,
// reserve drops any other job's retained source.
func (a *attempt) reserve(ctx context.Context, bytes int64) error {
	err := a.w.o.Scratch.reserve(a.dir, bytes)
	if (errors.Is(err, errReserved) || errors.Is(err, errNoSpace)) && a.w.o.Scratch.idle() > 0 {
		a.w.sources.clear()
		err = a.w.o.Scratch.reserve(a.dir, bytes)
	}
	if errors.Is(err, errReserved) && a.patient && a.w.o.Now().Sub(a.record.CreatedAt) > longWait {
		a.log.InfoContext(ctx, "job waits for scratch space in its slot", "error", err)
		err = a.w.o.Scratch.await(ctx, a.dir, bytes, a.w.sources.clear)
	}
	if errors.Is(err, errTooLarge) && a.record.Parent != "" {
		// The worker that created the part has space for the whole job. A helper with a
		// smaller disk must not fail that job.
		return fmt.Errorf("%w: %w", errReserved, err)
	}
	if errors.Is(err, errTooLarge) {
		a.log.ErrorContext(ctx, "the job does not fit in this worker's scratch space; raise LINKREEL_SCRATCH_BYTES "+
			"(worker.scratch.sizeLimit in the chart) or use a larger disk", "error", err)
		return &transcode.Failure{Code: transcode.FileTooLarge, Message: "Preparing this video takes more disk space than this " +
			"installation allows for a single video. Upload a shorter or smaller file."}
	}
	return err
}

// source fetches the upload and identifies it.
func (a *attempt) source(ctx context.Context) (src *ffmpeg.Source, err error) {
	path, err := a.fetchOnce(ctx, a.record.Size)
	if err != nil {
		return nil, err
	}
	a.lease.report(downloaded)
	err = a.span(ctx, "probe", func(ctx context.Context) (err error) {
		src, err = a.maker.Probe(ctx, a.dir, path, a.record.Limits)
		return err
	})
	return src, err
}

// fetchOnce reserves space, and uses the retained source or downloads it.
func (a *attempt) fetchOnce(ctx context.Context, space int64) (string, error) {
	key := sourceKey{a.record.Object, a.record.Generation}
	path, err := a.w.sources.link(a.dir, key)
	there := err == nil && path != ""
	if err := a.reserve(ctx, space); err != nil || there {
		return path, err
	}
	if path, err = a.fetch(ctx); err == nil {
		a.w.sources.retain(a.w.o.Scratch.retained(), path, key)
	}
	return path, err
}

// fetch downloads exactly the generation of the upload that the job specifies.
func (a *attempt) fetch(ctx context.Context) (string, error) {
	r := a.record
	if r.Limits.MaxBytes > 0 && r.Size > r.Limits.MaxBytes {
		return "", &transcode.Failure{Code: transcode.FileTooLarge, Message: "The file is larger than allowed."}
	}
	path := filepath.Join(a.dir, "source")
	err := a.span(ctx, "download", func(ctx context.Context) error {
		_, err := a.w.o.Bucket.DownloadFile(ctx, r.Object, r.Generation, path)
		return err
	})
	if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, objectstore.ErrStale) {
		return "", &transcode.Failure{Code: transcode.Internal, Message: "The uploaded file was removed or replaced before it was transcoded."}
	}
	if errors.Is(err, objectstore.ErrEncoded) {
		// The videos service rejects such uploads now, but older releases accepted them.
		return "", &transcode.Failure{Code: transcode.UnsupportedFormat, Message: "The file was uploaded with a Content-Encoding, " +
			"such as gzip. Upload it again, uncompressed and without that header."}
	}
	if err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	return path, nil
}

// prepare publishes up to three versions: first one playable rendition (the source's own
// video track if players can decode it), then all renditions, and finally the storyboard and
// the download file.
func (a *attempt) prepare(ctx context.Context, p ladder.Plan) error {
	a.begin(p)
	tracks, err := a.copySource(ctx, &p)
	if err == nil && tracks == nil {
		tracks, err = a.encodeFirst(ctx, &p)
	}
	if err != nil {
		return err
	}
	if tracks != nil && !a.retain {
		remove(tracks.Video...) // only the copy's audio is still needed
	}
	if tracks == nil || len(p.Rungs) > 0 {
		made, err := a.encode(ctx, p, tracks == nil)
		if err != nil {
			return err
		}
		switch {
		case tracks == nil:
		case a.retain:
			if made, err = tracks.With(made); err != nil {
				return err
			}
		default:
			made.Audio = tracks.Audio
		}
		tracks = &made
		a.dropSource(p)
		if err := a.publish(ctx, *tracks); err != nil {
			return err
		}
	}
	a.dropSource(p)
	if last := len(tracks.Video) - 1; last > 1 {
		remove(tracks.Video[1:last]...) // extras are produced from the first and the last rendition
	}
	a.extras(ctx, *tracks)
	a.outcome.Final = true
	return a.publish(ctx, *tracks)
}

// dropSource removes the upload from the disk when it is no longer needed. A later attempt
// downloads it again.
func (a *attempt) dropSource(p ladder.Plan) {
	_ = os.Remove(p.Source.Path) // the job's folder is removed anyway
	a.w.sources.forget(sourceKey{a.record.Object, a.record.Generation})
}

// remove removes files from the disk once they have been uploaded and are no longer needed.
func remove(files ...ladder.File) {
	for _, f := range files {
		_ = os.Remove(f.Path) // the job's folder is removed anyway
	}
}

// begin sets the outcome fields that are known before any rendition exists.
func (a *attempt) begin(p ladder.Plan) {
	v := p.Source.Video
	a.outcome = transcode.Outcome{
		Prefix: a.prefix, Path: transcode.PathTranscode, Duration: p.Duration,
		Width: v.DisplayWidth, Height: v.DisplayHeight, FrameRate: p.Rate.Float(),
	}
	if old := a.record.Outcome; old != nil {
		a.outcome.Version, a.outcome.Path = old.Version, old.Path
	}
}

// copySource repackages and publishes the source's own video track if possible, and adapts
// the plan to it. It returns nil if the video track cannot be copied.
func (a *attempt) copySource(ctx context.Context, p *ladder.Plan) (*ladder.Tracks, error) {
	copyable, retain := p.Copyable()
	if !copyable {
		return nil, nil
	}
	var tracks ladder.Tracks
	err := a.span(ctx, "copy", func(ctx context.Context) (err error) {
		tracks, err = a.maker.Copy(ctx, a.dir, *p)
		return err
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		a.log.InfoContext(ctx, "cannot repackage the source; encoding it", "error", err)
		return nil, nil
	}
	p.Cuts = tracks.Cuts
	if a.retain = retain; retain {
		p.Rungs = p.Rungs[1:]
	}
	a.outcome.Path = transcode.PathCopy
	if a.record.Outcome != nil {
		return &tracks, nil // an earlier attempt has already published this
	}
	return &tracks, a.publish(ctx, tracks)
}

// encodeFirst encodes and publishes one rendition and the audio of a source that cannot be copied.
// It does so before the other renditions because people often share the link to a recording
// immediately. It returns nil if this would not save time.
func (a *attempt) encodeFirst(ctx context.Context, p *ladder.Plan) (*ladder.Tracks, error) {
	first, rest, ok := p.First()
	if !ok || a.record.Outcome != nil { // an earlier attempt has already published a playable rendition
		return nil, nil
	}
	tracks, err := a.encode(ctx, first, true)
	if err != nil {
		return nil, err
	}
	*p, a.retain = rest, true
	return &tracks, a.publish(ctx, tracks)
}

func (a *attempt) encode(ctx context.Context, p ladder.Plan, sound bool) (ladder.Tracks, error) {
	if parts := p.Parts(); len(parts) > 1 {
		return a.encodeParts(ctx, p, parts, sound)
	}
	var tracks ladder.Tracks
	err := a.span(ctx, "ladder", func(ctx context.Context) (err error) {
		tracks, err = a.maker.Ladder(ctx, a.dir, p, sound, func(share float64) {
			a.lease.report(downloaded + share*(encoded-downloaded))
		})
		return err
	})
	return tracks, err
}

// publish uploads the new files of tracks and makes them visible as the next version.
func (a *attempt) publish(ctx context.Context, tracks ladder.Tracks) error {
	if a.outcome.Poster == "" {
		a.poster(ctx, tracks.Video[0])
	}
	o := a.outcome
	o.Renditions = nil
	var files []string
	for _, f := range tracks.Video {
		o.Renditions = append(o.Renditions, f.Track.Rendition(f.Name, a.object(f.Path), tracks.Cuts))
		files = append(files, f.Path)
	}
	if tracks.Audio != nil {
		r := tracks.Audio.Track.Rendition(tracks.Audio.Name, a.object(tracks.Audio.Path), tracks.Cuts)
		o.Audio, o.HasAudio = &r, true
		files = append(files, tracks.Audio.Path)
	}
	o.Duration = tracks.Video[0].Track.Duration()
	if err := a.upload(ctx, files...); err != nil {
		return err
	}
	a.lease.report(uploaded)
	// Count from zero again because each version lists all of its objects.
	o.Bytes = 0
	for _, object := range o.Objects() {
		o.Bytes += a.stored[object]
	}
	o.Version++
	err := a.span(ctx, "publish", func(ctx context.Context) error {
		return a.w.insist(ctx, func() error { return a.w.o.Jobs.Publish(ctx, a.token, &o) })
	})
	if err != nil {
		return err
	}
	a.outcome = o
	a.w.hint(ctx, a.record.ID)
	a.log.InfoContext(ctx, "published", "version", o.Version, "renditions", len(o.Renditions), "path", o.Path, "final", o.Final)
	return nil
}

// poster adds the automatic poster.
func (a *attempt) poster(ctx context.Context, from ladder.File) {
	var picture ladder.Picture
	a.extra(ctx, "poster", func(ctx context.Context) (_ string, err error) {
		picture, err = a.maker.Poster(ctx, a.dir, from)
		return picture.Path, err
	}, func(object string) {
		a.outcome.Poster, a.outcome.PosterWidth, a.outcome.PosterHeight = object, picture.Width, picture.Height
	})
}

// extras adds the storyboard and the download file.
func (a *attempt) extras(ctx context.Context, tracks ladder.Tracks) {
	last := len(tracks.Video) - 1
	var board *transcode.Storyboard
	a.extra(ctx, "storyboard", func(ctx context.Context) (_ string, err error) {
		var sheet ladder.Picture
		board, sheet, err = a.maker.Storyboard(ctx, a.dir, tracks.Video[last])
		return sheet.Path, err
	}, func(object string) {
		board.Objects = []string{object}
		a.outcome.Storyboard = board
	})
	if last > 0 {
		remove(tracks.Video[last])
	}
	a.extra(ctx, "download file", func(ctx context.Context) (string, error) {
		return a.maker.Download(ctx, a.dir, tracks.Video[0], tracks.Audio)
	}, func(object string) { a.outcome.Download = object })
}

// extra produces and uploads an optional file. If that fails, the video is still playable, so
// the job does not fail.
func (a *attempt) extra(ctx context.Context, what string, file func(context.Context) (path string, err error), made func(object string)) {
	err := a.span(ctx, what, func(ctx context.Context) error {
		path, err := file(ctx)
		if err != nil {
			return err
		}
		if err := a.upload(ctx, path); err != nil {
			return err
		}
		made(a.object(path))
		return nil
	})
	if err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "cannot make the "+what, "error", err)
	}
}

func (a *attempt) object(path string) string { return a.prefix + filepath.Base(path) }

// upload stores each file once under the attempt's prefix. A file that is already stored no longer
// has to exist locally.
func (a *attempt) upload(ctx context.Context, paths ...string) error {
	paths = slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		_, done := a.stored[a.object(path)]
		return done
	})
	return a.span(ctx, "upload", func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(4) // each upload keeps a chunk of its file in memory
		for _, path := range paths {
			object := a.object(path)
			g.Go(func() error {
				// Immutable: the prefix contains the attempt, so nothing overwrites the object.
				// Private: access is checked for each viewer. A day is longer than the lifetime of
				// any signed URL.
				_, err := a.w.o.Bucket.UploadFile(ctx, object, path, objectstore.UploadOptions{
					ContentType:  contentType(path),
					CacheControl: "private, max-age=86400, immutable",
				})
				if err != nil {
					return fmt.Errorf("upload %s: %w", filepath.Base(path), err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		// Record the sizes after all uploads because the goroutines above must not write to the
		// map.
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			a.stored[a.object(path)] = info.Size()
		}
		return nil
	})
}

func contentType(path string) string {
	switch {
	case strings.HasSuffix(path, ".jpg"):
		return "image/jpeg"
	case strings.HasSuffix(path, "audio.mp4"):
		return "audio/mp4"
	}
	return "video/mp4"
}

func (a *attempt) span(ctx context.Context, name string, fn func(context.Context) error) error {
	ctx, span := a.w.tracer.Start(ctx, name)
	defer span.End()
	err := fn(ctx)
	if err != nil {
		span.SetStatus(codes.Error, "failed")
		var failure *transcode.Failure
		if errors.As(err, &failure) {
			span.SetAttributes(attribute.String("job.failure", string(failure.Code)))
		}
	}
	return err
}
