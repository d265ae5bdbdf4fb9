package store_test

import (
	"testing"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// spoil makes a stored record unreadable.
func (b *world) spoil(collection, id string, fields ...string) {
	b.t.Helper()
	var updates []firestore.Update
	for _, f := range fields {
		updates = append(updates, firestore.Update{Path: f, Value: map[string]any{"not": "this"}})
	}
	if _, err := b.client.Collection(collection).Doc(id).Update(b.t.Context(), updates); err != nil {
		b.t.Fatal(err)
	}
}

func (b *world) remove(v *video.Video) {
	b.t.Helper()
	if err := b.Delete(b.t.Context(), v.ID, func(*video.Video) error { return nil }); err != nil {
		b.t.Fatal(err)
	}
}

func TestDuePurgesSetsAsideWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	for i := range 20 { // every bucket of due times contains unreadable tasks
		b.remove(b.make(i, nil))
	}
	b.spoil("videoPurges", "vid_3", "jobIds")
	if due, err := b.DuePurges(t.Context()); err == nil || len(due) != 19 {
		t.Errorf("DuePurges returned %d tasks and error %v, want 19 and an error for the unreadable tasks", len(due), err)
	}
	if due, err := b.DuePurges(t.Context()); err != nil || len(due) != 19 {
		t.Errorf("the second DuePurges returned %d tasks and error %v, want 19 and no error", len(due), err)
	}
	b.now = b.now.Add(2 * time.Hour)
	if _, err := b.DuePurges(t.Context()); err == nil {
		t.Error("a later DuePurges returned no error, want an error for the unreadable tasks")
	}
}

func TestKnownTellsTheUnreadableFromTheGone(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	good, bad := b.make(1, nil), b.make(2, nil)
	b.spoil("videos", string(bad.ID), "title")
	known, unreadable, err := b.Known(t.Context(), []video.ID{good.ID, bad.ID, "vid_gone"})
	if err != nil || len(known) != 1 || known[good.ID] == nil || len(unreadable) != 1 || unreadable[bad.ID] == nil {
		t.Errorf("Known returned %v and unreadable %v (error %v), want one readable and one unreadable video", known, unreadable, err)
	}
}

// erase calls EraseSome until no records are left, and returns the number of calls.
func (b *world) erase() int {
	b.t.Helper()
	for n := 1; n < 100; n++ {
		more, err := b.EraseSome(b.t.Context(), "acc_a")
		if err != nil {
			b.t.Fatal(err)
		}
		if !more {
			return n
		}
	}
	b.t.Fatal("EraseSome still reports more records after 99 calls, want none")
	return 0
}

func TestEraseSomeRemovesWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.make(1, nil)
	named := func(v *video.Video) {
		v.ExternalID, v.Tags, v.Source.JobID = "x-"+string(v.ID), []string{"a"}, string(v.ID)+"-1"
	}
	b.make(2, named)
	b.spoil("videos", "vid_2", "title")
	b.make(3, named)
	b.spoil("videos", "vid_3", "slug", "externalId", "tags", "jobId")
	for i := 4; i < 7; i++ {
		b.remove(b.make(i, nil))
	}
	b.spoil("videoPurges", "vid_4", "since")
	b.spoil("videoPurges", "vid_5", "until", "jobIds")
	b.erase()
	b.now = b.now.Add(20 * time.Minute)
	due, err := b.DuePurges(t.Context())
	if err != nil || len(due) != 6 {
		t.Fatalf("DuePurges returned %d tasks and error %v, want one for each of the six videos", len(due), err)
	}
	for _, p := range due {
		if p.Until.After(b.now) {
			t.Errorf("the purge of video %s ends at %v, in %v; want it to end immediately", p.Video, p.Until, p.Until.Sub(b.now))
		}
		if p.Video == "vid_2" && len(p.JobIDs) != 1 {
			t.Errorf("the purge of video %s has jobs %v, want one job", p.Video, p.JobIDs)
		}
		if err := b.Purged(t.Context(), p.Video); err != nil {
			t.Fatal(err)
		}
	}
	if remains, err := b.Remains(t.Context(), "acc_a"); err != nil || remains {
		t.Errorf("Remains returned %v and error %v, want false", remains, err)
	}
}

func TestEraseSomeShortensAllOlderPurges(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	const older = 170
	for i := range older {
		b.remove(b.make(i, nil))
	}
	if n := b.erase(); n > older/20+2 {
		t.Errorf("the erasure of %d tasks took %d calls, want at most %d", older, n, older/20+2)
	}
	b.now = b.now.Add(15*time.Minute + time.Second)
	due, err := b.DuePurges(t.Context())
	if err != nil || len(due) != older {
		t.Fatalf("DuePurges returned %d tasks and error %v, want %d", len(due), err, older)
	}
	late := 0
	for _, p := range due {
		if p.Until.After(b.now) {
			late++
		}
	}
	if late > 0 {
		t.Errorf("%d of %d tasks end more than 15 minutes from now, want none", late, older)
	}
}
