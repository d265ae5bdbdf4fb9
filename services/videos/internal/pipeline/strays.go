package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// strayAge is the minimum time between the first sighting of a stray and its removal.
const strayAge = 7 * 24 * time.Hour

// straysObject stores when each stray was first seen. It is in the bucket rather than in the
// database because the list is needed after the database is restored.
const straysObject = "linkreel/strays.json"

// maxStrays bounds the list to a few MB, in memory and in the bucket. Any additional strays will be
// recorded by a later search, after those on the list have been removed.
const maxStrays = 20_000

// sighting records when a stray was first seen, and its generation at that time.
type sighting struct {
	Generation int64     `json:"generation"`
	Seen       time.Time `json:"seen"`
}

// turnStrays collects the strays that one search of the whole bucket finds.
type turnStrays struct {
	cut    bool // the search was interrupted
	seen   int  // number of objects, including strays
	count  int  // number of strays
	listed []strayObject
}

type strayObject struct {
	objectstore.Object
	video video.ID // the video according to the object's name
	judge judgeFunc
}

// end records that the search was interrupted.
func (t *turnStrays) end() {
	if t != nil {
		t.cut = true
	}
}

func (t *turnStrays) note(id video.ID, judge judgeFunc, o objectstore.Object) {
	if t == nil {
		return
	}
	t.count++
	if len(t.listed) < maxStrays {
		t.listed = append(t.listed, strayObject{o, id, judge})
	}
}

// awaitBucket waits until it has confirmed that this database owns the bucket. The check needs
// Firestore and storage, so awaitBucket retries while they are unavailable. It returns an error if
// another database owns the bucket.
func (p *Pipeline) awaitBucket(ctx context.Context) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := p.o.Claim(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, objectstore.ErrForeign) {
			return foreign(err)
		}
		p.o.Log.WarnContext(ctx, "cannot read which database owns the bucket; sweeps wait", "error", err)
		if !outage.Pause(ctx, pause) {
			return nil
		}
	}
}

// foreign wraps the error for a bucket that another database owns, and tells the operator what to
// do.
func foreign(err error) error {
	return fmt.Errorf("%w. No object was removed. Use this database's own bucket. To move this bucket to this database permanently, "+
		"stop the other installation, delete the bucket's object %s and start again", err, objectstore.OwnerObject)
}

// claimedFor is how long a replica trusts its last check of the bucket's owner. The owner can
// change while a process is running because an operator who restores a database assigns the bucket
// to the restored database.
const claimedFor = time.Minute

// ours returns nil while the bucket belongs to this database.
func (p *Pipeline) ours(ctx context.Context) error {
	// Use the wall clock because the monotonic clock stops while a machine sleeps.
	now := p.o.Now().Round(0)
	p.mu.Lock()
	age := now.Sub(p.claimed)
	p.mu.Unlock()
	if age >= 0 && age < claimedFor {
		return nil
	}
	if err := p.o.Claim(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claimed = now
	return nil
}

// tidyStrays removes the strays that were first seen long enough ago, and records the others.
// If there are more than JanitorMost strays and they make up more than 1% of all objects,
// tidyStrays does not remove any. In that case, this is probably the wrong database for the bucket.
func (p *Pipeline) tidyStrays(ctx context.Context, found *turnStrays) (outcome string, err error) {
	before, generation, err := p.sightings(ctx)
	if err != nil {
		return turnFailed, err
	}
	stopped := found.count > p.o.JanitorMost && found.count*100 > found.seen
	if stopped {
		p.o.Log.ErrorContext(ctx, "janitor stopped: too many objects belong to no record; no unknown object was removed", "unknown", found.count, "objects", found.seen, "most", p.o.JanitorMost)
	}
	now, after := p.o.Now(), map[string]sighting{}
	var due []strayObject
	for _, o := range found.listed {
		s, known := before[o.Name]
		if !known || s.Generation != o.Generation {
			s = sighting{o.Generation, now}
		}
		after[o.Name] = s
		if !stopped && now.Sub(s.Seen) >= strayAge {
			due = append(due, o)
		}
	}
	// Write the list first: if it cannot be written, nothing may be removed.
	if err := p.keepSightings(ctx, before, after, generation); err != nil {
		return turnFailed, err
	}
	if stopped {
		return turnStopped, nil
	}
	if err := p.removeStrays(ctx, due); err != nil {
		return turnFailed, err
	}
	return turnDone, nil
}

// removeStrays judges every stray again before removing it because the search may have taken a long
// time.
func (p *Pipeline) removeStrays(ctx context.Context, due []strayObject) error {
	if len(due) == 0 {
		return nil
	}
	if err := p.o.Claim(ctx); err != nil {
		return err
	}
	var errs []error
	for batch := range slices.Chunk(due, 100) {
		ids := make([]video.ID, len(batch))
		for i, o := range batch {
			ids[i] = o.video
		}
		slices.Sort(ids)
		known, unreadable, err := p.o.Store.Known(ctx, slices.Compact(ids))
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, o := range batch {
			keep, err := named(known[o.video])
			switch {
			case err != nil || unreadable[o.video] != nil:
				errs = append(errs, err, unreadable[o.video])
			case o.judge(known[o.video], keep, o.Object) != inUse:
				errs = append(errs, p.removeOrphan(ctx, o.Object))
			}
		}
	}
	return errors.Join(errs...)
}

// sightings reads the list. It returns none if the bucket has no list. It also returns none if the
// owner has changed since the list was written: in that case, a different database found those
// strays.
func (p *Pipeline) sightings(ctx context.Context) (map[string]sighting, int64, error) {
	var raw bytes.Buffer
	o, err := p.o.Bucket.Download(ctx, straysObject, 0, &raw)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	owner, err := p.o.Bucket.Stat(ctx, objectstore.OwnerObject)
	if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		return nil, 0, err
	}
	if owner.Created.After(o.Created) {
		return nil, o.Generation, nil
	}
	list := map[string]sighting{}
	if err := json.Unmarshal(raw.Bytes(), &list); err != nil {
		// Without the list, each stray is kept for another strayAge, so nothing is removed
		// too early.
		p.o.Log.WarnContext(ctx, "cannot read the list of strays; starting a new one", "error", err)
		return nil, o.Generation, nil
	}
	return list, o.Generation, nil
}

func (p *Pipeline) keepSightings(ctx context.Context, before, after map[string]sighting, generation int64) error {
	if sameSightings(before, after) {
		return nil
	}
	raw, err := json.Marshal(after)
	if err != nil {
		return err
	}
	// Overwrite only the list that was read: if two replicas search at once, one fails and
	// removes nothing.
	_, err = p.o.Bucket.Upload(ctx, straysObject, bytes.NewReader(raw), objectstore.UploadOptions{ContentType: "application/json", IfGeneration: &generation})
	if err != nil {
		return fmt.Errorf("note strays: %w", err)
	}
	return nil
}

func sameSightings(a, b map[string]sighting) bool {
	if len(a) != len(b) {
		return false
	}
	for name, s := range a {
		if t, ok := b[name]; !ok || s.Generation != t.Generation || !s.Seen.Equal(t.Seen) {
			return false
		}
	}
	return true
}
