package pipeline

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// shelf is an in-memory Store and Bucket. Methods that the tests do not call come from the embedded
// nil interfaces.
type shelf struct {
	Store
	Jobs

	mu      sync.Mutex
	now     time.Time
	videos  map[video.ID]*video.Video
	objects map[string]objectstore.Object
	content map[string][]byte
	failing map[string]error // errors from Stat and Upload, by object name

	unreadable map[video.ID]error

	read, written, stats int // records read and written, and Stat calls
}

func (s *shelf) Get(_ context.Context, id video.ID) (*video.Video, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.videos[id]; ok {
		whole := *v
		return &whole, nil
	}
	return nil, video.NotFound()
}

func (s *shelf) Update(ctx context.Context, id video.ID, fn func(*video.Video) error) (*video.Video, error) {
	v, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := fn(v); errors.Is(err, video.ErrUnchanged) {
		return s.Get(ctx, id)
	} else if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := *v
	s.videos[id] = &stored
	return v, nil
}

func (s *shelf) Due(context.Context) (due []*video.Video, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.videos {
		if !v.DueAt.IsZero() && !v.DueAt.After(s.now) {
			whole := *v
			due = append(due, &whole)
		}
	}
	s.read += len(due)
	return due, nil
}

func (s *shelf) PutOff(_ context.Context, v *video.Video) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.videos[v.ID].DueAt = v.DueAt
	s.written++
	return nil
}

func (s *shelf) Known(ctx context.Context, ids []video.ID) (known map[video.ID]*video.Video, unreadable map[video.ID]error, err error) {
	known = map[video.ID]*video.Video{}
	for _, id := range ids {
		if v, err := s.Get(ctx, id); err == nil {
			known[id] = v
		}
	}
	return known, s.unreadable, nil
}

// bucket is the Bucket side of a shelf. It is a separate type because Store and Bucket have
// methods with the same names.
type bucket struct{ *shelf }

func (b bucket) Stat(_ context.Context, object string) (objectstore.Object, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats++
	if err := b.failing[object]; err != nil {
		return objectstore.Object{}, err
	}
	if o, ok := b.objects[object]; ok {
		return o, nil
	}
	return objectstore.Object{}, objectstore.ErrNotFound
}

func (b bucket) Received(context.Context, string) (int64, bool, error) {
	return 0, false, objectstore.ErrNotFound
}

func (b bucket) FinishResumable(context.Context, string, int64) (bool, error) {
	return false, objectstore.ErrNotFound
}

func (b bucket) EndResumable(context.Context, string) error { return nil }

func (b bucket) List(_ context.Context, prefix string) iter.Seq2[objectstore.Object, error] {
	return func(yield func(objectstore.Object, error) bool) {
		b.mu.Lock()
		names := slices.Sorted(maps.Keys(b.objects))
		b.mu.Unlock()
		for _, name := range names {
			b.mu.Lock()
			o, ok := b.objects[name]
			b.mu.Unlock()
			if ok && strings.HasPrefix(name, prefix) && !yield(o, nil) {
				return
			}
		}
	}
}

func (b bucket) Delete(_ context.Context, object string, _ int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects, object)
	return nil
}

func (b bucket) Download(_ context.Context, object string, _ int64, w io.Writer) (objectstore.Object, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[object]
	if !ok {
		return o, objectstore.ErrNotFound
	}
	_, err := w.Write(b.content[object])
	return o, err
}

func (b bucket) Upload(_ context.Context, object string, r io.Reader, opt objectstore.UploadOptions) (objectstore.Object, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.objects[object]
	if err := b.failing[object]; err != nil {
		return objectstore.Object{}, err
	}
	if opt.IfGeneration != nil && *opt.IfGeneration != before.Generation {
		return objectstore.Object{}, objectstore.ErrStale
	}
	raw, err := io.ReadAll(r)
	o := objectstore.Object{Name: object, Generation: before.Generation + 1, Size: int64(len(raw)), Created: b.now}
	b.objects[object], b.content[object] = o, raw
	return o, err
}

func (b bucket) DeletePrefix(context.Context, string) error { return nil }

type noJobs struct{ *shelf }

func (noJobs) Create(context.Context, transcode.Job) (bool, error) { return true, nil }
func (noJobs) Get(context.Context, string) (transcode.Record, error) {
	return transcode.Record{}, jobs.ErrNotFound
}
func (noJobs) Delete(context.Context, string) error { return nil }

// noQueue is a Queue that does not wake any workers.
type noQueue struct{}

func (noQueue) Add(context.Context, transcode.Job) error { return nil }
func (noQueue) Sweep(context.Context) error              { return nil }

func ours(context.Context) error { return nil }

func newShelf() (*shelf, *Pipeline) {
	s := &shelf{
		now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), videos: map[video.ID]*video.Video{},
		objects: map[string]objectstore.Object{}, content: map[string][]byte{}, failing: map[string]error{},
	}
	return s, New(Options{
		Store: s, Bucket: bucket{s}, Jobs: noJobs{s}, Now: func() time.Time { return s.now }, Log: slog.New(slog.DiscardHandler), JanitorMost: 100,
		Queue: noQueue{}, Claim: ours, Seen: dedup.New(nil, time.Now),
		Plan: video.Plan{Upload: video.UploadLimits{MaxAge: 48 * time.Hour}, Replaced: 7 * time.Hour, Retention: 168 * time.Hour},
	})
}

func (s *shelf) await(p *Pipeline, id video.ID) *video.Video {
	v := video.New(video.Identity{ID: id, UploadObject: video.UploadObject(id)}, video.Checked{}, "", s.now)
	v.Upload.ExpiresAt = s.now.Add(24 * time.Hour)
	v.Schedule(p.o.Plan, s.now)
	s.videos[id] = v
	return v
}

func (s *shelf) put(name string, generation int64) {
	s.objects[name] = objectstore.Object{Name: name, Generation: generation, Size: 10, Created: s.now}
}

func TestASweepNoticesUploadsAndPutsOffTheRest(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	s.await(p, "here")
	s.await(p, "not")
	s.await(p, "broken")
	s.put(video.UploadObject("here"), 5)
	s.failing[video.UploadObject("broken")] = errors.New("storage failed")
	s.now = s.now.Add(11 * time.Second)
	if err := p.Sweep(t.Context()); err == nil {
		t.Error("Sweep returned nil, want the broken video's error")
	}
	if v := s.videos["here"]; v.Status != video.Processing || !v.Source.StoredAt.Equal(s.now.Add(-11*time.Second)) {
		t.Errorf("after the sweep, the uploaded video is %s, stored at %v; want %s, stored at %v",
			v.Status, v.Source.StoredAt, video.Processing, s.now.Add(-11*time.Second))
	}
	for _, id := range []video.ID{"not", "broken"} {
		if due := s.videos[id].DueAt.Sub(s.now); due < 10*time.Second || due > 15*time.Second {
			t.Errorf("video %q is due in %v, want 10 to 15 seconds", id, due)
		}
	}
	s.now = s.now.Add(20 * time.Hour)
	_ = p.Sweep(t.Context()) // the broken video fails again
	if due := s.videos["not"].DueAt.Sub(s.now); due != time.Hour {
		t.Errorf("after 20 hours without an upload, the video is due in %v, want an hour", due)
	}
	s.now = s.now.Add(28 * time.Hour)
	_ = p.Sweep(t.Context())
	if v := s.videos["not"]; v.Status != video.Failed || v.Failure.Code != video.UploadExpired {
		t.Errorf("after 48 hours without an upload, the video is %s, want failed with %s", v.Status, video.UploadExpired)
	}
}

// This test runs one hour of sweeps over 100,000 videos that are never uploaded. Release 0.2 read
// each video in every sweep, 360 times an hour.
func TestForgottenUploadsCostLittle(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	n := 1_000
	if os.Getenv("LINKREEL_FULL") != "" {
		n = 100_000
	}
	for i := range n { // spread over one day
		s.await(p, video.ID("vid_"+strconv.Itoa(i)))
		s.now = s.now.Add(24 * time.Hour / time.Duration(n))
	}
	for range 2 * 360 { // run the checks that are due soon after creation
		_ = p.Sweep(t.Context())
		s.now = s.now.Add(10 * time.Second)
	}
	s.read, s.written, s.stats = 0, 0, 0
	const sweeps = 360
	for range sweeps {
		if err := p.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(10 * time.Second)
	}
	const emptyQueries = 8 // one for each bucket of due times; Firestore counts each as a read
	reads, before := s.read+sweeps*emptyQueries, n*sweeps
	t.Logf("%d waiting videos: %d reads, %d writes and %d storage requests per hour, %d reads per day; without due times, %d reads per day (%.2f %%)",
		n, reads, s.written, s.stats, reads*24, before*24, 100*float64(reads)/float64(before))
	if s.read > n*3/2 || s.read < n/2 {
		t.Errorf("got %d reads of %d waiting videos in an hour, want about one for each video", s.read, n)
	}
}

func TestWhatIsAnOrphan(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	const id = "vid_1"
	ready := func(final bool) *video.Video {
		return &video.Video{ID: id, Status: video.Ready, Source: video.Source{Generation: 7}, Media: &video.Media{Final: final}, PublishedAt: s.now, ReadyAt: s.now, UpdatedAt: s.now}
	}
	object := func(name string, age time.Duration) objectstore.Object {
		return objectstore.Object{Name: name, Created: s.now.Add(-age)}
	}
	current, part, other, caption := transcode.Prefix(id, 7, 2)+"720p.mp4", transcode.PartsPrefix(id, 7)+"3-1/x.mp4", transcode.Prefix(id, 6, 1)+"720p.mp4", "videos/vid_1/captions/en-x.vtt"
	late, failed := ready(true), &video.Video{ID: id, Status: video.Failed, Source: video.Source{Generation: 7}, UpdatedAt: s.now}
	late.PublishedAt, late.ReadyAt, late.UpdatedAt = s.now.Add(-8*time.Hour), s.now.Add(-8*time.Hour), s.now.Add(-8*time.Hour)
	for name, tt := range map[string]struct {
		v    *video.Video
		keep bool
		o    objectstore.Object
		want verdict
	}{
		"object from an unknown video":         {nil, false, object(current, 0), stray},
		"object that the record refers to":     {late, true, object(current, 9*time.Hour), inUse},
		"object from a running job":            {ready(false), false, object(current, 9*time.Hour), inUse},
		"part from a running job":              {&video.Video{ID: id, Status: video.Processing, Source: video.Source{Generation: 7}}, false, object(part, 30*time.Hour), inUse},
		"media replaced a minute ago":          {ready(true), false, object(current, time.Minute), inUse},
		"media replaced hours ago":             {late, false, object(current, 9*time.Hour), dead},
		"part from a finished job":             {late, false, object(part, 9*time.Hour), dead},
		"object from a replaced upload":        {failed, false, object(other, time.Minute), dead},
		"new captions not in the record":       {late, false, object(caption, time.Minute), inUse},
		"old captions not in the record":       {late, false, object(caption, 9*time.Hour), dead},
		"captions newer than the record":       {late, false, object(caption, 2*time.Hour), stray},
		"generation newer than the record":     {late, false, object(other, time.Hour), stray},
		"attempt newer than the record":        {late, false, object(current, time.Hour), stray},
		"object from a failed job":             {failed, false, object(current, time.Minute), dead},
		"object newer than the failure":        {&video.Video{ID: id, Status: video.Failed, UpdatedAt: late.UpdatedAt}, false, object(current, time.Hour), stray},
		"object for a video without an upload": {&video.Video{ID: id, Status: video.Uploading, UpdatedAt: late.UpdatedAt}, false, object(current, time.Hour), stray},
	} {
		if got := p.judgeMedia(tt.v, map[string]bool{tt.o.Name: tt.keep}, tt.o); got != tt.want {
			t.Errorf("%s: judgeMedia returned %v, want %v", name, got, tt.want)
		}
	}
}

func TestAReplacedObjectGoesWhenItsVideoIsDue(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	packed, err := transcode.MarshalOutcome(&transcode.Outcome{Version: 2, Renditions: []transcode.Rendition{{Object: transcode.Prefix("v", 7, 1) + "new.mp4"}}})
	if err != nil {
		t.Fatal(err)
	}
	v := &video.Video{ID: "v", Status: video.Ready, Source: video.Source{Generation: 7}, Media: &video.Media{Version: 2, Final: true, Outcome: packed}, PublishedAt: s.now, ReadyAt: s.now, UpdatedAt: s.now}
	v.Schedule(p.o.Plan, s.now)
	s.videos["v"] = v
	for _, name := range []string{"new.mp4", "old.mp4"} {
		s.put(transcode.Prefix("v", 7, 1)+name, 1)
	}
	s.put(video.UploadObject("v"), 7)
	for _, step := range []struct {
		after time.Duration
		left  int
	}{{time.Hour, 3}, {7 * time.Hour, 2}, {168 * time.Hour, 1}} {
		s.now = v.ReadyAt.Add(step.after)
		if err := p.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.objects) != step.left {
			t.Errorf("%v after the video became ready, storage has %d objects, want %d", step.after, len(s.objects), step.left)
		}
	}
	if !s.videos["v"].DueAt.IsZero() {
		t.Errorf("after the last sweep, the video is due at %v, want never", s.videos["v"].DueAt)
	}
}

func TestTidyKeepsTheObjectsOfAnUnreadableVideo(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	s.unreadable = map[video.ID]error{"vid_bad": errors.New("cannot be read")}
	for _, id := range []string{"vid_bad", "vid_gone"} {
		s.put(transcode.Prefix(id, 7, 1)+"720p.mp4", 1)
	}
	for range 2 {
		if err := p.Tidy(t.Context()); err == nil {
			t.Error("Tidy returned nil, want the unreadable record's error")
		}
		s.now = s.now.Add(strayAge)
	}
	if got, want := s.stored(), []string{transcode.Prefix("vid_bad", 7, 1) + "720p.mp4"}; !slices.Equal(got, want) {
		t.Errorf("after Tidy, storage has %v, want %v", got, want)
	}
}

// stored returns the names of the videos' objects.
func (s *shelf) stored() (names []string) {
	for name := range s.objects {
		if name != straysObject {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// orphans adds n objects that no record accounts for.
func (s *shelf) orphans(n int) {
	for i := range n {
		s.put(transcode.Prefix("vid_"+strconv.Itoa(i), 7, 1)+"720p.mp4", 1)
	}
}

func TestAStrayGoesOnceItWasSeenTwiceSevenDaysApart(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	s.orphans(100) // the most that one search may remove from a bucket with no other objects
	for turn, want := range []int{100, 100, 100, 0} {
		if err := p.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(s.stored()); got != want {
			t.Fatalf("after search %d, storage has %d objects, want %d", turn+1, got, want)
		}
		s.now = s.now.Add(strayAge * 2 / 5)
	}
}

// A restore during a search turns the janitor off. From then on, the search must not remove any
// more objects.
func TestASearchThatARestoreInterruptsRemovesNothing(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	s.orphans(10)
	off, looks := false, 0
	p.o.JanitorOff = func() bool { looks++; return off && looks > 5 }
	for _, want := range []int{10, 5, 5} {
		if err := p.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(s.stored()); got != want {
			t.Fatalf("storage has %d objects, want %d", got, want)
		}
		s.now, off = s.now.Add(strayAge), true
	}
	off = false
	if err := p.Tidy(t.Context()); err != nil || len(s.stored()) != 0 {
		t.Errorf("after the pause, Tidy returned %v and storage has %v, want nil and no objects", err, s.stored())
	}
}

func TestAStrayThatIsReplacedOrExplainedMeanwhileStays(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	replaced, explained := transcode.Prefix("vid_1", 7, 1)+"720p.mp4", video.UploadObject("vid_2")
	s.put(replaced, 1)
	s.put(explained, 1)
	if err := p.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.now = s.now.Add(strayAge)
	s.put(replaced, 2)
	s.await(p, "vid_2")
	if err := p.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.stored(); len(got) != 2 {
		t.Errorf("after Tidy, storage has %v, want both objects", got)
	}
}

func TestTooManyStraysStopTheJanitor(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	s.orphans(101)
	for range 3 {
		if err := p.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(strayAge)
	}
	if got := len(s.stored()); got != 101 {
		t.Fatalf("after three searches, storage has %d objects, want all 101", got)
	}
	// In a large bucket, up to 1% of the objects may be strays.
	for i := range 101 * 99 {
		name := "videos/vid_own/captions/" + strconv.Itoa(i)
		s.put(name, 1)
	}
	s.videos["vid_own"] = &video.Video{ID: "vid_own", Status: video.Uploading, UpdatedAt: s.now}
	if err := p.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(s.stored()); got != 101*99 {
		t.Errorf("after Tidy, storage has %d objects, want the %d of known videos", got, 101*99)
	}
}

func TestAStrayStaysWhenItsSightingCannotBeNoted(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	s.orphans(1)
	if err := p.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.now = s.now.Add(strayAge)
	s.put(video.UploadObject("vid_new"), 1) // a new stray, so Tidy must write the list
	s.failing[straysObject] = errors.New("storage failed")
	if err := p.Tidy(t.Context()); err == nil {
		t.Error("Tidy returned nil, want the error from writing the list")
	}
	if got := s.stored(); len(got) != 2 {
		t.Errorf("after Tidy, storage has %v, want both objects", got)
	}
}

// An operator restores the database to the wrong time, notices the mistake days later, and
// restores the database to the right time.
func TestARestoreToTheWrongTimeCanBeCorrected(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	ready := func(id video.ID) *video.Video {
		packed, err := transcode.MarshalOutcome(&transcode.Outcome{Version: 2, Renditions: []transcode.Rendition{{Object: transcode.Prefix(string(id), 7, 1) + "720p.mp4"}}})
		if err != nil {
			t.Fatal(err)
		}
		s.put(transcode.Prefix(string(id), 7, 1)+"720p.mp4", 1)
		s.put(video.UploadObject(id), 7)
		return &video.Video{ID: id, Status: video.Ready, Source: video.Source{Generation: 7}, Media: &video.Media{Version: 2, Final: true, Outcome: packed}, PublishedAt: s.now, ReadyAt: s.now, UpdatedAt: s.now}
	}
	older := map[video.ID]*video.Video{"old": ready("old"), "waited": s.await(p, "waited"), "failed": {
		ID: "failed", Status: video.Failed, Source: video.Source{Generation: 3}, Failure: &video.Failure{Code: "CORRUPT_FILE"}, UpdatedAt: s.now}}
	s.now = s.now.Add(24 * time.Hour)
	newer := map[video.ID]*video.Video{"old": older["old"], "waited": ready("waited"), "failed": ready("failed"), "new": ready("new")}
	s.put("videos/old/captions/en-1.vtt", 1)
	objects := s.stored()

	for _, records := range []map[video.ID]*video.Video{older, newer} {
		s.videos = records
		for range 10 {
			s.now = s.now.Add(10 * time.Hour)
			if err := p.Tidy(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if records["new"] == nil {
			if got := s.stored(); !slices.Equal(got, objects) {
				t.Fatalf("with the older records, storage has %v, want %v", got, objects)
			}
		}
	}
	// After ten more searches with the right records, storage still contains the objects that
	// these records refer to.
	for id := range newer {
		if _, ok := s.objects[transcode.Prefix(string(id), 7, 1)+"720p.mp4"]; !ok {
			t.Errorf("storage does not have any media for video %s, want 720p.mp4", id)
		}
	}
}

func TestAnotherDatabasesBucketIsLeftAlone(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	s.orphans(3)
	if err := p.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.now = s.now.Add(strayAge)
	p.o.Claim = func(context.Context) error { return objectstore.ErrForeign }
	if err := p.Tidy(t.Context()); !errors.Is(err, objectstore.ErrForeign) {
		t.Errorf("Tidy returned %v, want %v", err, objectstore.ErrForeign)
	}
	p.o.SweepEvery, p.o.JanitorEvery = time.Hour, time.Hour
	for name, loop := range map[string]func(context.Context) error{"sweep": p.Run, "janitor": p.RunJanitor} {
		if err := loop(t.Context()); !errors.Is(err, objectstore.ErrForeign) {
			t.Errorf("the %s loop returned %v, want %v", name, err, objectstore.ErrForeign)
		}
	}
	if got := s.stored(); len(got) != 3 {
		t.Errorf("after Tidy, storage has %v, want all three objects", got)
	}
}

// graves is a shelf with purge tasks for deleted videos.
type graves struct {
	*shelf
	tasks map[video.ID]*video.Purge
}

func (g *graves) DuePurges(context.Context) ([]*video.Purge, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.tasks)), nil
}

func (g *graves) PutOffPurge(_ context.Context, p *video.Purge) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tasks[p.Video] = p
	return nil
}

func (g *graves) Purged(_ context.Context, id video.ID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.tasks, id)
	return nil
}

func (g *graves) Deleted(_ context.Context, id video.ID) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.tasks[id]
	return ok, nil
}

// yard is a bucket that can delete all objects under a prefix.
type yard struct{ bucket }

func (y yard) DeletePrefix(_ context.Context, prefix string) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	maps.DeleteFunc(y.objects, func(name string, _ objectstore.Object) bool { return strings.HasPrefix(name, prefix) })
	return nil
}

func newGraves(ids ...video.ID) (*graves, *Pipeline) {
	s, p := newShelf()
	g := &graves{shelf: s, tasks: map[video.ID]*video.Purge{}}
	p.o.Store, p.o.Bucket = g, yard{bucket{s}}
	for _, id := range ids {
		v := &video.Video{ID: id, AccountID: "acc_a", Upload: video.Upload{ExpiresAt: s.now.Add(24 * time.Hour)}}
		task := video.PurgeOf(v, false, s.now)
		g.tasks[id] = &task
		s.put(video.UploadObject(id), 1)
		s.put(transcode.Prefix(string(id), 1, 1)+"720p.mp4", 1)
	}
	return g, p
}

// A restored database has the same ids as the original. Processes from the original installation
// may still be running.
func TestABucketThatChangesHandsIsLeftAlone(t *testing.T) {
	t.Parallel()
	g, p := newGraves("vid_1")
	owner := error(nil)
	p.o.Claim = func(context.Context) error { return owner }
	p.o.SweepEvery = time.Millisecond
	if _, err := p.PurgeDue(t.Context()); err != nil || len(g.stored()) != 0 {
		t.Fatalf("PurgeDue with our own bucket left %v and returned %v, want no objects and nil", g.stored(), err)
	}
	owner = objectstore.ErrForeign
	g.now = g.now.Add(2 * time.Minute)
	g.put(video.UploadObject("vid_1"), 2)
	for what, try := range map[string]func() error{
		"PurgeDue":  func() error { _, err := p.PurgeDue(t.Context()); return err },
		"Uploaded":  func() error { return p.Uploaded(t.Context(), video.UploadObject("vid_1")) },
		"tidyVideo": func() error { return p.tidyVideo(t.Context(), "vid_1") },
		"Run":       func() error { return p.Run(t.Context()) },
	} {
		if err := try(); !errors.Is(err, objectstore.ErrForeign) {
			t.Errorf("%s returned %v, want %v", what, err, objectstore.ErrForeign)
		}
	}
	if got := g.stored(); len(got) != 1 {
		t.Errorf("storage has %v, want only the file that belongs to the bucket's new owner", got)
	}
}

func TestAClockThatStepsBackMakesAReplicaAskWhoseTheBucketIs(t *testing.T) {
	t.Parallel()
	g, p := newGraves()
	asked := 0
	p.o.Claim = func(context.Context) error { asked++; return nil }
	for _, step := range []time.Duration{0, claimedFor / 2, claimedFor, -time.Hour, 0} {
		g.now = g.now.Add(step)
		if err := p.ours(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 3 {
		t.Errorf("got %d checks of the owner, want 3: the first, one after a minute, and one after the clock step", asked)
	}
}

func TestATombstoneRemovesLateUploadsOfDeletedVideosOnly(t *testing.T) {
	t.Parallel()
	g, p := newGraves("vid_gone", "vid_again")
	g.await(p, "vid_again") // a client repeated the create after the deletion
	g.put(video.UploadObject("vid_unknown"), 1)
	for _, id := range []video.ID{"vid_gone", "vid_again", "vid_unknown"} {
		if err := p.Uploaded(t.Context(), video.UploadObject(id)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.o.Bucket.Stat(t.Context(), video.UploadObject("vid_gone")); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Stat of a deleted video's file after its notification returned %v, want %v", err, objectstore.ErrNotFound)
	}
	for range 60 {
		if _, err := p.PurgeDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		if task, ok := g.tasks["vid_gone"]; ok && g.now.After(task.Since.Add(2*time.Hour)) && (task.Account != "" || !task.IsTombstone()) {
			t.Fatalf("two hours later, the task is %+v, want a tombstone without an account", task)
		}
		g.put(video.UploadObject("vid_gone"), 7)
		g.now = g.now.Add(time.Hour)
	}
	if got := g.stored(); !slices.Equal(got, []string{video.UploadObject("vid_again"), video.UploadObject("vid_gone"), video.UploadObject("vid_unknown"), "videos/vid_again/1-1/720p.mp4"}) {
		t.Errorf("storage has %v, want the last late upload for vid_gone and all objects for the other videos", got)
	}
	if len(g.tasks) != 0 {
		t.Errorf("the tasks after all upload URLs have expired are %v, want none", g.tasks)
	}
}

// A stray that was recorded by a different database does not count as seen by this one.
func TestSightingsOfAnotherDatabaseDoNotCount(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	s.orphans(3)
	for turn, want := range []int{3, 3 + 1, 3 + 1, 1} { // the owner's object counts too
		if turn == 1 {
			s.now = s.now.Add(strayAge)
			s.objects[objectstore.OwnerObject] = objectstore.Object{Name: objectstore.OwnerObject, Generation: 1, Created: s.now}
			s.now = s.now.Add(time.Minute)
		}
		if err := p.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(s.stored()); got != want {
			t.Fatalf("after search %d, storage has %d objects, want %d", turn+1, got, want)
		}
		s.now = s.now.Add(strayAge / 2)
	}
}

// done is a Jobs in which every job has finished with a poster.
type done struct{ noJobs }

func (done) Get(context.Context, string) (transcode.Record, error) {
	return transcode.Record{State: transcode.Done, Outcome: &transcode.Outcome{Poster: "taken.jpg"}}, nil
}

func TestAPictureThatNobodyWaitsForAnyMoreIsLeft(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	p.o.Jobs = done{}
	s.await(p, "v")
	asked := *s.videos["v"]
	asked.Still = &video.Still{JobID: "job", Time: 1}
	// The owner has restored the automatic poster since asked was read.
	if after, err := p.applyStill(t.Context(), &asked); err != nil || after.Still != nil {
		t.Errorf("applyStill returned poster %+v and error %v, want neither", after.Still, err)
	}
}

// trapped is a bucket that panics when Stat is called for one object.
type trapped struct {
	bucket
	object string
}

func (b trapped) Stat(ctx context.Context, object string) (objectstore.Object, error) {
	if object == b.object {
		panic("bug in Stat")
	}
	return b.bucket.Stat(ctx, object)
}

func TestAPanicOverOneVideoPutsItOffAndKeepsNothingFromTheOthers(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	p.o.Bucket = trapped{bucket{s}, video.UploadObject("bad")}
	s.await(p, "bad")
	s.await(p, "good")
	s.put(video.UploadObject("good"), 1)
	s.now = s.now.Add(time.Minute)
	if err := p.Sweep(t.Context()); err == nil {
		t.Error("Sweep returned nil, want an error with the panic")
	}
	if due := s.videos["bad"].DueAt; !due.After(s.now) {
		t.Errorf("the video with the panic is due at %v, want a time after %v", due, s.now)
	}
	if status := s.videos["good"].Status; status != video.Processing {
		t.Errorf("the other video is %s, want %s", status, video.Processing)
	}
}

// An account has many videos, and checking each one fails with a different error.
func TestVideosThatFailKeepNothingFromTheOthers(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	for i := range 200 {
		id := video.ID("bad" + strconv.Itoa(i))
		s.await(p, id)
		s.failing[video.UploadObject(id)] = errors.New("storage rejects this request")
	}
	s.await(p, "good")
	s.put(video.UploadObject("good"), 1)
	s.now = s.now.Add(time.Minute)
	if err := p.Sweep(t.Context()); err == nil {
		t.Error("Sweep returned nil, want the errors from the failed checks")
	}
	if status := s.videos["good"].Status; status != video.Processing {
		t.Errorf("the other video is %s, want %s", status, video.Processing)
	}
}

// lines is a store that counts the updates to a busy account's videos and rejects them.
type lines struct {
	*shelf
	waited atomic.Int64
}

func (l *lines) Update(ctx context.Context, id video.ID, fn func(*video.Video) error) (*video.Video, error) {
	if strings.HasPrefix(string(id), "busy") {
		l.waited.Add(1)
		return nil, apierr.Contended(errors.New("the ledger allows one write a second"))
	}
	return l.shelf.Update(ctx, id, fn)
}

func TestABusyAccountsUploadsHoldNoPlaceOfOthers(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	l := &lines{shelf: s}
	p.o.Store = l
	for i := range 200 {
		id := video.ID("busy" + strconv.Itoa(i))
		s.await(p, id).AccountID = "acc_busy"
		s.put(video.UploadObject(id), 1)
	}
	s.await(p, "good").AccountID = "acc_good"
	s.put(video.UploadObject("good"), 1)
	s.now = s.now.Add(time.Minute)
	_ = p.Sweep(t.Context())
	if n := l.waited.Load(); n == 0 || n > 16 {
		t.Errorf("got %d updates to the busy account's videos, want 1 to 16: only those that started together", n)
	}
	if status := s.videos["good"].Status; status != video.Processing {
		t.Errorf("the other account's video is %s, want %s", status, video.Processing)
	}
	for id, v := range s.videos {
		if !v.DueAt.After(s.now) {
			t.Fatalf("%s is due at %v, want a time after %v", id, v.DueAt, s.now)
		}
	}
}

// deleted is a store with many due purge tasks.
type deleted struct {
	Store
	mu   sync.Mutex
	left int
}

func (d *deleted) DuePurges(context.Context) ([]*video.Purge, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	due := make([]*video.Purge, d.left)
	for i := range due {
		due[i] = &video.Purge{Video: video.ID(strconv.Itoa(i))}
	}
	return due, nil
}

func (d *deleted) Get(context.Context, video.ID) (*video.Video, error) { return nil, video.NotFound() }

func (d *deleted) Purged(context.Context, video.ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left--
	return nil
}

// slow is a bucket that takes about a second per task.
type slow struct{ Bucket }

func (slow) DeletePrefix(context.Context, string) error {
	time.Sleep(500 * time.Millisecond)
	return nil
}

func TestThousandsOfPurgesDelayNoSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deleted{left: 2_000}
		p := New(Options{Store: d, Bucket: slow{}, Jobs: noJobs{}, Queue: noQueue{}, Claim: ours, Seen: dedup.New(nil, time.Now), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		for rounds := 0; d.left > 0; rounds++ {
			begun := time.Now()
			if _, err := p.PurgeDue(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > purgeTime+2*time.Second {
				t.Fatalf("PurgeDue in round %d took %v, want at most %v", rounds, took, purgeTime+2*time.Second)
			}
			select {
			case <-p.kick:
			default:
				if d.left > 0 {
					t.Fatalf("%d tasks would wait for the next sweep, want another round immediately", d.left)
				}
			}
		}
	})
}

// searched is a bucket that counts how many times it is listed.
type searched struct {
	Bucket
	times int
}

func (b *searched) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Object, error] {
	if prefix == "videos/" {
		b.times++
	}
	return b.Bucket.List(ctx, prefix)
}

// Every replica tries to start a search many times a day, including the replica that ran the last
// one.
func TestStorageIsSearchedOncePerPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, p := newShelf()
		b := &searched{Bucket: p.o.Bucket}
		p.o.Bucket, p.o.JanitorEvery, p.o.Seen = b, 24*time.Hour, dedup.New(nil, time.Now)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Hour)
		defer cancel()
		if err := p.RunJanitor(ctx); err != nil || b.times != 1 {
			t.Errorf("RunJanitor returned %v after %d searches in 20 hours, want nil and 1", err, b.times)
		}
	})
}

func TestTheJanitorRestsUntilItIsTurnedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, p := newShelf()
		began := time.Now()
		b := &searched{Bucket: p.o.Bucket}
		p.o.Bucket, p.o.JanitorEvery, p.o.Seen = b, 24*time.Hour, dedup.New(nil, time.Now)
		p.o.JanitorOff = func() bool { return time.Since(began) < 90*time.Hour }
		ctx, cancel := context.WithTimeout(t.Context(), 80*time.Hour)
		if err := p.RunJanitor(ctx); err != nil || b.times != 0 {
			t.Errorf("RunJanitor returned %v after %d searches while the janitor is off, want nil and 0", err, b.times)
		}
		cancel()
		b.Bucket = nil // tidyVideo would fail if it listed objects
		if err := p.tidyVideo(t.Context(), "vid_1"); err != nil {
			t.Errorf("tidyVideo while the janitor is off returned %v, want nil", err)
		}
		_, fresh := newShelf()
		b.Bucket = fresh.o.Bucket
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Hour)
		defer cancel()
		if err := p.RunJanitor(ctx); err != nil || b.times != 1 {
			t.Errorf("RunJanitor returned %v after %d searches since the janitor was turned on, want nil and 1", err, b.times)
		}
	})
}

// The measured time begins when the file arrives in storage, not when the video is created or
// when a sweep detects the file.
func TestTheTimeToReadyIsMeteredByLength(t *testing.T) {
	t.Parallel()
	uploaded := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, seconds := range []float64{1, 60, 61, 600, 601} { // none of the other tests in this package publish a video
		v := &video.Video{Status: video.Processing, CreatedAt: uploaded.Add(-time.Hour), Source: video.Source{JobID: "job", StoredAt: uploaded}}
		if err := v.Publish("job", video.Media{Duration: seconds}, uploaded.Add(20*time.Second)); err != nil {
			t.Fatal(err)
		}
		observeReady(v)
	}
	observeReady(&video.Video{Media: &video.Media{}, ReadyAt: uploaded}) // the arrival of its file was not recorded
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"1m": 2, "10m": 2, "longer": 1}
	for _, f := range families {
		if f.GetName() != "linkreel_videos_ready_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			length := m.GetLabel()[0].GetValue()
			if h := m.GetHistogram(); h.GetSampleCount() != want[length] || h.GetSampleSum() != float64(20*want[length]) {
				t.Errorf("length %s has %d samples with a sum of %v s, want %d samples of 20 s", length, h.GetSampleCount(), h.GetSampleSum(), want[length])
			}
			delete(want, length)
		}
	}
	if len(want) > 0 {
		t.Errorf("the metric has no series for %v", want)
	}
}
