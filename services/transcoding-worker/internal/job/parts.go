package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ladder"
)

// A long source is encoded in parts, each a small job of its own with a record,
// a lease and a place in the queue. The worker that holds the whole job makes
// the records, works on parts like everybody else, and joins them in the end, so
// one worker alone finishes too. Finished parts lie in storage and outlive
// whoever made them.

// partSpec is what a helper needs to know: the plan, so that nobody has to probe
// again or could plan differently, and which part of it.
type partSpec struct {
	Plan ladder.Plan
	Part ladder.Part
}

// encodeParts encodes the plan in parts together with whoever is free.
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
	for left := len(parts); left > 0; {
		idle := true
		for i, part := range parts {
			if files[i] != nil {
				continue
			}
			made, err := a.part(ctx, p, part, i, len(parts)-left, len(parts))
			if errors.Is(err, transcode.ErrHeld) {
				continue // somebody is at it
			}
			if err != nil {
				return ladder.Tracks{}, err
			}
			files[i] = made
			left--
			idle = false
			a.hold.report(downloaded + float64(len(parts)-left)/float64(len(parts))*(encoded-downloaded))
		}
		if !idle || left == 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ladder.Tracks{}, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
	return a.maker.Join(a.dir, p, files, sound)
}

// offer makes the parts' records; those of an earlier attempt are kept, with
// what is finished of them.
func (a *attempt) offer(ctx context.Context, p ladder.Plan, parts []ladder.Part) error {
	source := *p.Source
	source.Path, source.Video.KeyTimes = "", nil
	p.Source = &source
	trace := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, trace)
	a.parts = len(parts)
	for i, part := range parts {
		spec, err := json.Marshal(partSpec{Plan: p, Part: part})
		if err != nil {
			return err
		}
		j := a.record.Job
		j.ID, j.Parent, j.Spec, j.Trace, j.CreatedAt = transcode.PartID(a.record.ID, i), a.record.ID, spec, trace, a.o.Now()
		if _, err := a.o.Jobs.Create(ctx, j); err != nil {
			return err
		}
		// A wake-up that is lost is made up for by the sweep.
		a.note(ctx, "offer", a.o.Queue.Add(ctx, j.ID, trace))
	}
	return nil
}

// part brings one part's files here: encodes it, or fetches it when it is done
// already. ErrHeld means that another worker is at it.
func (a *attempt) part(ctx context.Context, p ladder.Plan, part ladder.Part, index, done, total int) ([]string, error) {
	id := transcode.PartID(a.record.ID, index)
	dir := filepath.Join(a.dir, fmt.Sprintf("part-%d", index))
	record, err := a.o.Jobs.Claim(ctx, id, a.record.Worker, a.o.Lease)
	if errors.Is(err, transcode.ErrFinal) {
		return a.collect(ctx, p, id, dir)
	}
	if err != nil {
		return nil, err
	}
	helper := &attempt{
		Worker: a.Worker, record: record, token: transcode.Token{JobID: id, Attempt: record.Attempt},
		maker: a.maker, log: a.log.With("part", index), dir: dir, prefix: prefixOf(record), stored: map[string]bool{},
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	// ffmpeg sees only the part's own folder.
	source := *p.Source
	source.Path = filepath.Join(dir, "source")
	if err := os.Link(p.Source.Path, source.Path); err != nil {
		return nil, err
	}
	p.Source = &source
	helper.hold = a.Worker.hold(ctx, helper.token, nil, helper.log)
	files, err := helper.encodePart(helper.hold.ctx, p, part, func(share float64) {
		a.hold.report(downloaded + (float64(done)+share)/float64(total)*(encoded-downloaded))
	})
	helper.hold.release()
	_ = os.Remove(source.Path)
	if err != nil && ctx.Err() != nil {
		a.note(ctx, "hand back", a.o.Jobs.HandBack(context.WithoutCancel(ctx), helper.token))
		return nil, context.Cause(ctx)
	}
	if errors.Is(err, transcode.ErrLost) {
		err = transcode.ErrHeld // taken over while we were slow; it will be collected
		_ = os.RemoveAll(dir)
	}
	return files, err
}

// collect downloads a part that somebody else finished.
func (a *attempt) collect(ctx context.Context, p ladder.Plan, id, dir string) ([]string, error) {
	record, err := a.o.Jobs.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if record.Failure != nil && record.Failure.Code != transcode.Internal {
		return nil, record.Failure
	}
	if record.Outcome == nil || len(record.Outcome.Renditions) != len(p.Rungs) {
		// Its helpers died of it; the next attempt offers it anew.
		return nil, errors.Join(fmt.Errorf("part %s ended as %s", id, record.State), a.o.Jobs.Delete(ctx, id))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var files []string
	for _, r := range record.Outcome.Renditions {
		path := filepath.Join(dir, filepath.Base(r.Object))
		_, err := a.o.Bucket.DownloadFile(ctx, r.Object, 0, path)
		if errors.Is(err, objectstore.ErrNotFound) {
			return nil, errors.Join(fmt.Errorf("part %s: %w", id, err), a.o.Jobs.Delete(ctx, id))
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
	return files, a.insist(ctx, func() error { return a.o.Jobs.Publish(ctx, a.token, &o) })
}

// help does one part of another worker's job.
func (a *attempt) help(ctx context.Context) error {
	parent, err := a.o.Jobs.Get(ctx, a.record.Parent)
	if errors.Is(err, transcode.ErrNotFound) || err == nil && parent.State.Final() {
		// Nobody wants it any more, and nobody else would remove it.
		return errors.Join(transcode.ErrLost, a.o.Jobs.Delete(ctx, a.record.ID))
	}
	if err != nil {
		return err
	}
	var spec partSpec
	if err := json.Unmarshal(a.record.Spec, &spec); err != nil {
		return fmt.Errorf("spec of part: %w", err)
	}
	path, err := a.fetchOnce(ctx)
	if err != nil {
		return err
	}
	spec.Plan.Source.Path = path
	_, err = a.encodePart(ctx, spec.Plan, spec.Part, func(share float64) { a.hold.report(share * 99) })
	return err
}

// dropParts removes the records and objects of the parts of a job that has come
// to an end.
func (a *attempt) dropParts(ctx context.Context) {
	if a.parts == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for i := range a.parts {
		a.note(ctx, "drop part", a.o.Jobs.Delete(ctx, transcode.PartID(a.record.ID, i)))
	}
	a.note(ctx, "drop parts", a.o.Bucket.DeletePrefix(ctx, transcode.PartsPrefix(a.record.VideoID, a.record.Generation)))
}

// sourceCache keeps the source of the last job, since the next one is likely to
// be a part of it or what a scout has left of it. The files in it are links, so dropping one never
// takes it from a job that uses it.
type sourceCache struct {
	mu   sync.Mutex
	key  sourceKey
	path string
}

type sourceKey struct {
	object     string
	generation int64
}

// link gives a job's folder the kept source; the path is empty when another one
// is kept, or none.
func (c *sourceCache) link(dir string, key sourceKey) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path == "" || c.key != key {
		return "", nil
	}
	path := filepath.Join(dir, "source")
	return path, os.Link(c.path, path)
}

func (c *sourceCache) keep(root, path string, key sourceKey) {
	c.clear()
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := filepath.Join(root, "kept-source")
	if c.path != "" || os.Link(path, kept) != nil {
		return
	}
	c.key, c.path = key, kept
}

func (c *sourceCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path != "" {
		_ = os.Remove(c.path)
		c.path = ""
	}
}
