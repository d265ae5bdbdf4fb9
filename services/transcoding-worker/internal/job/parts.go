package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ladder"
)

// A long source is encoded in parts. Each part is a small job with its own record, lease and queue
// entry. The worker that runs the whole job creates the records, encodes parts like any helper, and
// joins them at the end. This means that a single worker can finish the job alone. Finished parts
// are in storage, so they remain available if the worker that encoded them crashes.

// partSpec describes a part to a helper. It includes the plan, so helpers always use the same plan
// and do not have to probe the source again.
type partSpec struct {
	Plan ladder.Plan
	Part ladder.Part
}

// encodeParts encodes the plan in parts with the help of free workers.
func (a *attempt) encodeParts(ctx context.Context, p ladder.Plan, parts []ladder.Part, sound bool) (ladder.Tracks, error) {
	if err := a.offer(ctx, p, parts); err != nil {
		return ladder.Tracks{}, err
	}
	if sound && p.Source.Audio != nil {
		err := a.span(ctx, "sound", func(ctx context.Context) error { return a.maker.Sound(ctx, a.dir, p) })
		if err != nil {
			return ladder.Tracks{}, err
		}
	}
	files := make([][]string, len(parts))
	offers := make([]int, len(parts))
	for left := len(parts); left > 0; {
		idle := true
		for i, part := range parts {
			if files[i] != nil {
				continue
			}
			made, err := a.part(ctx, p, part, i, len(parts)-left, len(parts))
			if errors.Is(err, jobs.ErrHeld) {
				continue // another worker is encoding it
			}
			if errors.Is(err, errPartGone) && offers[i] < maxOffers {
				// Encode the part again in this attempt. Otherwise, each missing part would
				// use up one of the job's few attempts.
				offers[i]++
				a.log.WarnContext(ctx, "a finished part is missing; offering it again", "part", i)
				if err = a.offerPart(ctx, p, part, i); err == nil {
					idle = false
					continue
				}
			}
			if err != nil {
				return ladder.Tracks{}, err
			}
			files[i] = made
			left--
			idle = false
			a.lease.report(downloaded + float64(len(parts)-left)/float64(len(parts))*(encoded-downloaded))
		}
		if !idle || left == 0 {
			continue
		}
		if !outage.Pause(ctx, time.Second) {
			return ladder.Tracks{}, context.Cause(ctx)
		}
	}
	a.dropSource(p)
	return a.maker.Join(a.dir, p, files, sound)
}

// maxOffers limits how many times an attempt offers a part again because its objects are missing.
const maxOffers = 3

// errPartGone means that objects of a part recorded as done are missing.
var errPartGone = errors.New("objects of a finished part are missing")

// offer creates the parts' records. It keeps the records from an earlier attempt, including
// finished parts, unless their objects are missing. It offers all parts before this worker
// starts on one, so helpers can share the work.
func (a *attempt) offer(ctx context.Context, p ladder.Plan, parts []ladder.Part) error {
	a.parts = len(parts)
	there := map[string]bool{}
	if a.record.Attempt > 1 {
		for o, err := range a.w.o.Bucket.List(ctx, transcode.PartsPrefix(a.record.VideoID, a.record.Generation)) {
			if err != nil {
				return fmt.Errorf("list parts: %w", err)
			}
			there[o.Name] = true
		}
	}
	for i, part := range parts {
		if a.record.Attempt > 1 {
			if err := a.dropIncomplete(ctx, transcode.PartID(a.record.ID, i), there); err != nil {
				return err
			}
		}
		if err := a.offerPart(ctx, p, part, i); err != nil {
			return err
		}
	}
	return nil
}

// dropIncomplete removes the record for a part that is done but has missing objects.
func (a *attempt) dropIncomplete(ctx context.Context, id string, there map[string]bool) error {
	record, err := a.w.o.Jobs.Get(ctx, id)
	if errors.Is(err, jobs.ErrNotFound) || err == nil && record.State != transcode.Done {
		return nil
	}
	if err != nil {
		return err
	}
	for _, object := range record.Outcome.Objects() {
		if !there[object] {
			a.log.WarnContext(ctx, "objects of a finished part are missing; offering the part again", "part", id)
			return a.w.o.Jobs.Delete(ctx, id)
		}
	}
	return nil
}

// offerPart creates a part's record unless it already exists, and wakes a helper.
func (a *attempt) offerPart(ctx context.Context, p ladder.Plan, part ladder.Part, index int) error {
	source := *p.Source
	// Helpers use their own path, and only the planning step needs the keyframe times.
	source.Path, source.Video.KeyTimes = "", nil
	p.Source = &source
	spec, err := json.Marshal(partSpec{Plan: p, Part: part})
	if err != nil {
		return err
	}
	trace := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, trace)
	j := a.record.Job
	j.ID, j.Parent, j.Spec, j.Trace, j.CreatedAt = transcode.PartID(a.record.ID, index), a.record.ID, spec, trace, a.w.o.Now()
	if _, err := a.w.o.Jobs.Create(ctx, j); err != nil {
		return err
	}
	// If this wake-up is lost, the sweep repeats it.
	_, err = a.w.o.Queue.Add(ctx, jobs.Item(j))
	a.w.note(ctx, "offer", err)
	return nil
}

// part provides the files for one part: it encodes the part, or downloads it if it is already
// done. ErrHeld means that another worker is encoding the part.
func (a *attempt) part(ctx context.Context, p ladder.Plan, part ladder.Part, index, done, total int) ([]string, error) {
	id := transcode.PartID(a.record.ID, index)
	dir := filepath.Join(a.dir, fmt.Sprintf("part-%d", index))
	record, err := a.w.o.Jobs.Claim(ctx, id, a.record.Worker, a.w.o.Lease)
	if errors.Is(err, jobs.ErrFinal) {
		return a.collect(ctx, p, id, dir)
	}
	if err != nil {
		return nil, err
	}
	helper := &attempt{
		w: a.w, record: record, token: jobs.Token{JobID: id, Attempt: record.Attempt},
		maker: a.maker, log: a.log.With("part", index), dir: dir, prefix: prefixOf(record), stored: map[string]int64{},
	}
	if err := helper.unused(ctx); err != nil {
		a.w.note(ctx, "return", a.w.o.Jobs.Nack(context.WithoutCancel(ctx), helper.token))
		if errors.Is(err, errUsed) {
			err = jobs.ErrHeld // the part will be claimed again for the next attempt
		}
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	// ffmpeg can access only the part's own folder.
	source := *p.Source
	source.Path = filepath.Join(dir, "source")
	if err := os.Link(p.Source.Path, source.Path); err != nil {
		return nil, err
	}
	p.Source = &source
	helper.lease = a.w.keepLease(ctx, helper.token, nil, helper.log)
	files, err := helper.encodePart(helper.lease.ctx, p, part, func(share float64) {
		a.lease.report(downloaded + (float64(done)+share)/float64(total)*(encoded-downloaded))
	})
	helper.lease.release()
	_ = os.Remove(source.Path)
	if err != nil && ctx.Err() != nil {
		a.w.note(ctx, "return", a.w.o.Jobs.Nack(context.WithoutCancel(ctx), helper.token))
		return nil, context.Cause(ctx)
	}
	if errors.Is(err, jobs.ErrLost) {
		err = jobs.ErrHeld // another worker took over the part; its result is collected later
		_ = os.RemoveAll(dir)
	}
	return files, err
}

// collect downloads a part that another worker finished.
func (a *attempt) collect(ctx context.Context, p ladder.Plan, id, dir string) ([]string, error) {
	record, err := a.w.o.Jobs.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if record.Failure != nil && record.Failure.Code != transcode.Internal {
		return nil, record.Failure
	}
	if record.Outcome == nil || len(record.Outcome.Renditions) != len(p.Rungs) {
		// The helpers failed to encode this part, and this worker may fail too, so count this as
		// a failed attempt at the whole job. The next attempt offers the part again.
		return nil, errors.Join(fmt.Errorf("helpers did not finish part %s: its state is %s", id, record.State), a.w.o.Jobs.Delete(ctx, id))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var files []string
	for _, r := range record.Outcome.Renditions {
		path := filepath.Join(dir, filepath.Base(r.Object))
		_, err := a.w.o.Bucket.DownloadFile(ctx, r.Object, 0, path)
		if errors.Is(err, objectstore.ErrNotFound) {
			_ = os.RemoveAll(dir)
			if err := a.w.o.Jobs.Delete(ctx, id); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("part %s: %w", id, errPartGone)
		}
		if err != nil {
			return nil, err
		}
		files = append(files, path)
	}
	return files, nil
}

// encodePart encodes, stores and publishes one part.
func (a *attempt) encodePart(ctx context.Context, p ladder.Plan, part ladder.Part, progress func(float64)) (files []string, err error) {
	err = a.span(ctx, "part", func(ctx context.Context) error {
		files, err = a.maker.Part(ctx, a.dir, p, part, progress)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := a.upload(ctx, files...); err != nil {
		return nil, err
	}
	o := transcode.Outcome{Version: 1, Final: true, Path: transcode.PathTranscode, Prefix: a.prefix}
	for i, r := range p.Rungs {
		o.Renditions = append(o.Renditions, transcode.Rendition{Name: r.Name, Object: a.object(files[i])})
	}
	return files, a.w.insist(ctx, func() error { return a.w.o.Jobs.Publish(ctx, a.token, &o) })
}

// help encodes one part of another worker's job.
func (a *attempt) help(ctx context.Context) error {
	parent, err := a.w.o.Jobs.Get(ctx, a.record.Parent)
	if errors.Is(err, jobs.ErrNotFound) || err == nil && parent.State.Final() {
		// The parent job no longer needs this part, and nothing else would remove it.
		return errors.Join(jobs.ErrLost, a.w.o.Jobs.Delete(ctx, a.record.ID))
	}
	if err != nil {
		return err
	}
	var spec partSpec
	if err := json.Unmarshal(a.record.Spec, &spec); err != nil {
		return fmt.Errorf("part spec: %w", err)
	}
	if spec.Plan.Source == nil {
		return errors.New("the part spec does not name a source")
	}
	path, err := a.fetchOnce(ctx, max(a.record.Size, spec.Plan.PartSpace(spec.Part)))
	if err != nil {
		return err
	}
	spec.Plan.Source.Path = path
	_, err = a.encodePart(ctx, spec.Plan, spec.Part, func(share float64) { a.lease.report(share * 99) })
	return err
}

// dropParts removes the part records and objects for a job that has ended.
func (a *attempt) dropParts(ctx context.Context) {
	if a.parts == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for i := range a.parts {
		a.w.note(ctx, "drop part", a.w.o.Jobs.Delete(ctx, transcode.PartID(a.record.ID, i)))
	}
	a.w.note(ctx, "drop parts", a.w.o.Bucket.DeletePrefix(ctx, transcode.PartsPrefix(a.record.VideoID, a.record.Generation)))
}
