package store_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events/eventstest"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/search"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/videos"
	"github.com/linkreel/linkreel/services/videos/internal/store"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// world is a store with a real Firestore server and a settable clock.
type world struct {
	*store.Store
	t *testing.T
	*cloudtest.Cloud
	client *firestore.Client
	now    time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{videos.Indexes(), tags.Indexes, outbox.Indexes}, Complete: true,
		Rare: []string{"videoAccounts.lookAt"}})
	b := &world{Cloud: cloud, t: t, client: cloud.Client(t), now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	db, clock := firestoredb.Use(b.client, 10*time.Second), func() time.Time { return b.now }
	b.Store = store.New(record.Open(db, record.Options{Outbox: outbox.New(db, nil, clock), Now: clock}), func(v *video.Video) any {
		return map[string]any{"id": v.ID, "title": v.Title, "tags": v.Tags, "views": v.Views, "progress": v.Progress}
	})
	return b
}

var plan = video.Plan{Upload: video.UploadLimits{MaxAge: 48 * time.Hour}, Replaced: time.Hour, Retention: 24 * time.Hour}

func (b *world) make(n int, change func(*video.Video)) *video.Video {
	b.t.Helper()
	id := video.ID(fmt.Sprintf("vid_%d", n))
	v := video.New(video.Identity{ID: id, AccountID: "acc_a", Slug: video.Slug(fmt.Sprintf("slug%d", n)), UploadObject: video.UploadObject(id)},
		video.Checked{Access: video.Access{Privacy: video.Public}}, "", b.now)
	v.Upload.ExpiresAt = b.now.Add(24 * time.Hour)
	if change != nil {
		change(v)
	}
	v.Schedule(plan, b.now)
	stored, err := b.Create(b.t.Context(), v, identity.Quotas{})
	if err != nil {
		b.t.Fatal(err)
	}
	return stored
}

func TestASweepReadsOnlyWhatIsDue(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	for i := range 400 {
		b.make(i, nil)
	}
	b.now = b.now.Add(5 * time.Second)
	b.Firestore.ResetStats()
	if due, err := b.Due(t.Context()); err != nil || len(due) != 0 {
		t.Fatalf("Due returned %d videos and error %v, want none", len(due), err)
	}
	if r := b.Firestore.Stats().Reads; r > 8 {
		t.Errorf("got %d reads with 400 waiting videos and none due, want at most 8", r)
	}
	b.now = b.now.Add(6 * time.Second)
	due, err := b.Due(t.Context())
	if err != nil || len(due) != 400 {
		t.Fatalf("Due returned %d videos and error %v, want 400 videos", len(due), err)
	}
	b.Firestore.ResetStats()
	for _, v := range due {
		v.Schedule(plan, b.now)
		if err := b.PutOff(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	if s := b.Firestore.Stats(); s.Reads > 0 || s.Writes != 400 {
		t.Errorf("PutOff of 400 videos cost %d reads and %d writes, want 0 reads and 400 writes", s.Reads, s.Writes)
	}
	if due, err := b.Due(t.Context()); err != nil || len(due) != 0 {
		t.Errorf("Due after PutOff returned %d videos and error %v, want none", len(due), err)
	}
}

// Older releases read every video that was waiting for its upload in every sweep, every ten
// seconds. Now a sweep reads such a video whenever its waiting time has doubled, and eventually
// once an hour.
func TestWaitingVideosCostLittle(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	v := video.New(video.Identity{ID: "vid_1"}, video.Checked{}, "", created)
	v.Upload.ExpiresAt = created.Add(24 * time.Hour)
	looks := 0
	v.Schedule(plan, created)
	for v.Status == video.Uploading && v.DueAt.Before(created.Add(24*time.Hour)) {
		looks++
		v.Schedule(plan, v.DueAt)
	}
	const before = 24 * 60 * 6
	t.Logf("a waiting video is read %d times on its first day; in older releases, it was read %d times: %.2f %%", looks, before, float64(looks)/before*100)
	if looks*100 > before {
		t.Errorf("a waiting video is read %d times a day, want at most 1 %% of %d", looks, before)
	}
}

func TestAPoisonedRecordIsSetAside(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	good, bad := b.make(1, nil), b.make(2, nil)
	if _, err := b.client.Collection("videos").Doc(string(bad.ID)).Update(t.Context(), []firestore.Update{{Path: "media", Value: "not a map"}, {Path: "status", Value: 7}}); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(time.Minute)
	due, err := b.Due(t.Context())
	if err == nil || len(due) != 1 || due[0].ID != good.ID {
		t.Fatalf("Due returned %d videos and error %v, want only the readable video and an error for the other video", len(due), err)
	}
	if due, err = b.Due(t.Context()); err != nil || len(due) != 1 {
		t.Errorf("the second Due returned %d videos and error %v, want only the readable video", len(due), err)
	}
}

func TestAnAccountsTagsAreThoseOfItsVideos(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	names := func() []string {
		found, _, err := tags.New(firestoredb.Use(b.client, 10*time.Second), tags.Links, time.Now).List(t.Context(), "acc_a", "", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	v := b.make(1, func(v *video.Video) { v.Tags = []string{"Spring", "sale"} })
	b.make(2, func(v *video.Video) { v.Tags = []string{"SALE"} })
	if _, err := b.Update(t.Context(), v.ID, func(v *video.Video) error { v.Tags = []string{"sale", "autumn"}; return nil }); err != nil {
		t.Fatal(err)
	}
	if got := names(); !slices.Equal(got, []string{"autumn", "sale", "Spring"}) {
		t.Errorf("got tags %v, want autumn, sale and Spring", got)
	}
	if err := b.Delete(t.Context(), v.ID, func(*video.Video) error { return nil }); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(24 * time.Hour) // a tag that is no longer used by any video must be removed within a day
	if err := b.SweepTags(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := names(); !slices.Equal(got, []string{"sale"}) {
		t.Errorf("got tags %v, want only sale", got)
	}
}

func TestPutOffUndoesNothingNewer(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	v := b.make(1, nil)
	b.now = b.now.Add(time.Minute)
	due, err := b.Due(t.Context())
	if err != nil || len(due) != 1 {
		t.Fatal(err, len(due))
	}
	soon := b.now.Add(time.Second)
	if _, err := b.Update(t.Context(), v.ID, func(v *video.Video) error { v.DueAt = soon; return nil }); err != nil {
		t.Fatal(err)
	}
	due[0].DueAt = b.now.Add(time.Hour)
	if err := b.PutOff(t.Context(), due[0]); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Get(t.Context(), v.ID); err != nil || !got.DueAt.Equal(soon) {
		t.Errorf("the video is due at %v (error %v), want %v", got.DueAt, err, soon)
	}
}

func TestAReplicaThatSleptBringsNoPurgeBack(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	for i := range 2 {
		b.remove(b.make(i, nil))
	}
	asleep, err := b.DuePurges(t.Context())
	if err != nil || len(asleep) != 2 {
		t.Fatalf("DuePurges returned %v and error %v, want two tasks", asleep, err)
	}
	ended, buried := asleep[0], asleep[1]
	if err := b.Purged(t.Context(), ended.Video); err != nil {
		t.Fatal(err)
	}
	tombstone := buried.Tombstone()
	if err := b.PutOffPurge(t.Context(), &tombstone); err != nil {
		t.Fatal(err)
	}
	for _, p := range asleep {
		if err := b.PutOffPurge(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	snaps, err := b.client.Collection("videoPurges").Documents(t.Context()).GetAll()
	if err != nil || len(snaps) != 1 || snaps[0].Ref.ID != string(buried.Video) || snaps[0].Data()["accountId"] != nil {
		t.Errorf("the store has %d tasks (error %v), want only the tombstone, without an account", len(snaps), err)
	}
}

func TestTheSameCreateTwiceIsOneVideo(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	v := b.make(1, func(v *video.Video) { v.ExternalID = "x" })
	again := *v
	if got, err := b.Create(t.Context(), &again, identity.Quotas{Videos: 1}); err != nil || got.ID != v.ID {
		t.Errorf("creating the same video again returned %v, want the stored video", err)
	}
	other := *v
	other.ID, other.ExternalID = "vid_2", "y"
	if _, err := b.Create(t.Context(), &other, identity.Quotas{}); !errors.Is(err, video.ErrSlugTaken) {
		t.Errorf("creating another video with the same slug returned %v, want %v", err, video.ErrSlugTaken)
	}
	other.Slug, other.ExternalID = "free", "x"
	if _, err := b.Create(t.Context(), &other, identity.Quotas{}); apierr.CodeOf(err) != apierr.ExternalIDTaken {
		t.Errorf("creating another video with the same external id returned %v, want %s", err, apierr.ExternalIDTaken)
	}
	other.ExternalID = ""
	if _, err := b.Create(t.Context(), &other, identity.Quotas{Videos: 1}); apierr.CodeOf(err) != apierr.QuotaExceeded {
		t.Errorf("creating a video above the quota returned %v, want %s", err, apierr.QuotaExceeded)
	}
}

func TestASearchFindsWhatANaiveOneDoes(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	words := []string{"spring", "sprint", "sale", "Sálé", "report", "Quartal", "straße", "2026", "q4"}
	var all []*video.Video
	for i := range 120 {
		b.now = b.now.Add(time.Millisecond)
		all = append(all, b.make(i, func(v *video.Video) {
			v.Title = words[i%len(words)] + " " + words[(i*7+3)%len(words)]
			v.Tags = []string{words[(i*5)%len(words)]}
			if i%3 == 0 {
				v.Privacy = video.Unlisted
			}
		}))
	}
	slices.Reverse(all)
	for _, q := range []string{"", "spri", "sal", "sale rep", "STRASSE", "2 q", "nothing", "r s", "quart sprin"} {
		for _, privacy := range []video.Privacy{"", video.Unlisted} {
			f := video.Filter{Query: search.Parse(q), Privacy: privacy}
			var want, got []video.ID
			for _, v := range all {
				if f.Matches(v) {
					want = append(want, v.ID)
				}
			}
			var after *video.Position
			for {
				found, next, err := b.List(t.Context(), "acc_a", f, after, 7)
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range found {
					got = append(got, v.ID)
				}
				if next == nil {
					break
				}
				after = next
			}
			if !slices.Equal(got, want) {
				t.Errorf("search for %q with privacy %q found %d videos, want %d", q, privacy, len(got), len(want))
			}
		}
	}
}

// TestEveryWriteHasItsEvent calls every store method that writes. Add each new method
// with its event.
func TestEveryWriteHasItsEvent(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	ctx := t.Context()
	seen := 0
	tells := func(what string, err error, want ...string) {
		t.Helper()
		all := eventstest.Types(t, b.client)
		if err != nil || !slices.Equal(all[seen:], want) {
			t.Errorf("%s wrote the events %v, want %v (error %v)", what, all[seen:], want, err)
		}
		seen = len(all)
	}
	v := b.make(1, nil)
	tells("Create", nil, "video.created")
	_, err := b.Create(ctx, v, identity.Quotas{})
	tells("Create of the same video", err)
	update := func(fn func(*video.Video)) error {
		_, err := b.Update(ctx, v.ID, func(v *video.Video) error { fn(v); return nil })
		return err
	}
	tells("Update of the title", update(func(v *video.Video) { v.Title, v.UpdatedAt = "New", b.now.Add(time.Second) }), "video.updated")
	if got, err := b.Get(ctx, v.ID); err != nil || got.Rev != v.Rev+1 {
		t.Errorf("after a change with an event, the revision is %d (error %v), want %d", got.Rev, err, v.Rev+1)
	}
	tells("Update of the schedule", update(func(v *video.Video) { v.DueAt = b.now.Add(time.Hour) }))
	tells("Update of progress", update(func(v *video.Video) { v.Progress = 5 }))
	if got, err := b.Get(ctx, v.ID); err != nil || got.Rev != v.Rev+1 {
		t.Errorf("after one event and changes without events, the revision is %d (error %v), want %d", got.Rev, err, v.Rev+1)
	}
	for _, status := range []video.Status{video.Processing, video.Failed, video.Ready} {
		tells("Update of the status", update(func(v *video.Video) { v.Status, v.UpdatedAt = status, v.UpdatedAt.Add(time.Second) }), "video."+string(status))
	}
	tells("AddViews", b.AddViews(ctx, v.ID, 3))
	fresh, err := b.Get(ctx, v.ID)
	tells("Get", err)
	tells("PutOff", b.PutOff(ctx, fresh))
	tells("Delete", b.Delete(ctx, v.ID, func(*video.Video) error { return nil }), "video.deleted")
	gone := b.make(2, nil)
	tells("Create", nil, "video.created")
	tells("Erase, which writes no event", b.Erase(ctx, gone.ID))

	// Every method is either called above or does not change anything that the API shows.
	known := strings.Fields("Create Update AddViews Get PutOff Delete Erase " +
		"BySlug List Usage Reserved Known Due Remains DuePurges Deleted Waits " + // reads
		"SweepTags PutOffPurge Purged EraseSome") // housekeeping
	of := reflect.TypeOf(b.Store)
	for m := range of.NumMethod() {
		if name := of.Method(m).Name; !slices.Contains(known, name) {
			t.Errorf("method %s is missing from this test; add it with the event that it writes", name)
		}
	}
}

func TestWaitsTellsWhatVideosWaitFor(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	want := func(when string, depths map[string]string) {
		t.Helper()
		for _, l := range b.Waits() {
			d, err := l.Depth(t.Context())
			got := fmt.Sprint(d.N)
			if d.N > 0 && !d.Ageless {
				got += " for " + b.now.Sub(d.Oldest).String()
			}
			if err != nil || got != depths[l.For] {
				t.Errorf("%s: backlog %s = %s (error %v), want %s", when, l.For, got, err, depths[l.For])
			}
		}
	}
	want("no videos", map[string]string{"sweep": "0", "removal": "0", "upload": "0"})
	for n := range 3 {
		b.make(n, nil)
	}
	gone := b.make(3, func(v *video.Video) { v.Status = video.Ready })
	if err := b.Delete(t.Context(), gone.ID, func(*video.Video) error { return nil }); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(time.Minute) // a new video is due ten seconds after its creation
	want("three videos without a file", map[string]string{"sweep": "3 for 50s", "removal": "1 for 1m0s", "upload": "3"})
}
