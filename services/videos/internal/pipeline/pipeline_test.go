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

// shelf is a Store and a Bucket in memory. Methods that no test needs come from the nil
// interfaces.
type shelf struct {
	Store
	Jobs

	mu      sync.Mutex
	now     time.Time
	videos  map[video.ID]*video.Video
	objects map[string]objectstore.Object
	content map[string][]byte
	failing map[string]error // by object name

	unreadable map[video.ID]error

	read, written, stats int // calls of the store and of the bucket, by record
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

// bucket is the same shelf as a Bucket. It is a type of its own, since methods of Store
// and Bucket share names.
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

// noQueue leaves workers to find jobs by themselves.
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
	s.failing[video.UploadObject("broken")] = errors.New("storage says no")
	s.now = s.now.Add(11 * time.Second)
	if err := p.Sweep(t.Context()); err == nil {
		t.Error("the sweep says nothing of what failed")
	}
	if v := s.videos["here"]; v.Status != video.Processing || !v.Source.StoredAt.Equal(s.now.Add(-11*time.Second)) {
		t.Errorf("the upload was not noticed: %s, stored at %v", v.Status, v.Source.StoredAt)
	}
	for _, id := range []video.ID{"not", "broken"} {
		if due := s.videos[id].DueAt.Sub(s.now); due < 10*time.Second || due > 15*time.Second {
			t.Errorf("%s is due in %v", id, due)
		}
	}
	s.now = s.now.Add(20 * time.Hour)
	_ = p.Sweep(t.Context()) // the broken video fails again
	if due := s.videos["not"].DueAt.Sub(s.now); due != time.Hour {
		t.Errorf("after 20 hours it is due in %v, want an hour", due)
	}
	s.now = s.now.Add(28 * time.Hour)
	_ = p.Sweep(t.Context())
	if v := s.videos["not"]; v.Status != video.Failed || v.Failure.Code != video.UploadExpired {
		t.Errorf("after 48 hours: %s", v.Status)
	}
}

// The test runs an hour of sweeps over 100,000 videos whose upload never comes. Release
// 0.2 read each of them in every sweep: 360 times an hour.
func TestForgottenUploadsCostLittle(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	n := 1_000
	if os.Getenv("LINKREEL_FULL") != "" {
		n = 100_000
	}
	for i := range n { // they were created over a day
		s.await(p, video.ID("vid_"+strconv.Itoa(i)))
		s.now = s.now.Add(24 * time.Hour / time.Duration(n))
	}
	for range 2 * 360 { // the checks that are still due after their creation
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
	const emptyQueries = 8 // one a bucket; Firestore counts each as a read
	reads, before := s.read+sweeps*emptyQueries, n*sweeps
	t.Logf("%d videos wait: %d reads, %d writes and %d looks at storage an hour, %d reads a day; without due times %d a day (%.2f %%)",
		n, reads, s.written, s.stats, reads*24, before*24, 100*float64(reads)/float64(before))
	if s.read > n*3/2 || s.read < n/2 {
		t.Errorf("%d reads of %d videos in an hour, want about one each", s.read, n)
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
		"of no video":                        {nil, false, object(current, 0), stray},
		"named by its video":                 {late, true, object(current, 9*time.Hour), inUse},
		"written by a job in work":           {ready(false), false, object(current, 9*time.Hour), inUse},
		"a part of a job in work":            {&video.Video{ID: id, Status: video.Processing, Source: video.Source{Generation: 7}}, false, object(part, 30*time.Hour), inUse},
		"replaced just now":                  {ready(true), false, object(current, time.Minute), inUse},
		"replaced long ago":                  {late, false, object(current, 9*time.Hour), dead},
		"a part of a job that ended":         {late, false, object(part, 9*time.Hour), dead},
		"of an upload that was replaced":     {failed, false, object(other, time.Minute), dead},
		"captions that are not named yet":    {late, false, object(caption, time.Minute), inUse},
		"captions that nobody names":         {late, false, object(caption, 9*time.Hour), dead},
		"captions from after the record":     {late, false, object(caption, 2*time.Hour), stray},
		"a generation from after it":         {late, false, object(other, time.Hour), stray},
		"an attempt from after it":           {late, false, object(current, time.Hour), stray},
		"of a video whose job failed":        {failed, false, object(current, time.Minute), dead},
		"of a video that failed before it":   {&video.Video{ID: id, Status: video.Failed, UpdatedAt: late.UpdatedAt}, false, object(current, time.Hour), stray},
		"of a video that waits for its file": {&video.Video{ID: id, Status: video.Uploading, UpdatedAt: late.UpdatedAt}, false, object(current, time.Hour), stray},
	} {
		if got := p.judgeMedia(tt.v, map[string]bool{tt.o.Name: tt.keep}, tt.o); got != tt.want {
			t.Errorf("%s: verdict %v, want %v", name, got, tt.want)
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
			t.Errorf("after %v: %d objects, want %d", step.after, len(s.objects), step.left)
		}
	}
	if !s.videos["v"].DueAt.IsZero() {
		t.Errorf("still due at %v", s.videos["v"].DueAt)
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
			t.Error("nobody is told of the unreadable one")
		}
		s.now = s.now.Add(strayAge)
	}
	if got, want := s.stored(), []string{transcode.Prefix("vid_bad", 7, 1) + "720p.mp4"}; !slices.Equal(got, want) {
		t.Errorf("left: %v, want %v", got, want)
	}
}

// stored lists the objects of videos.
func (s *shelf) stored() (names []string) {
	for name := range s.objects {
		if name != straysObject {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// orphans puts n objects that no record explains.
func (s *shelf) orphans(n int) {
	for i := range n {
		s.put(transcode.Prefix("vid_"+strconv.Itoa(i), 7, 1)+"720p.mp4", 1)
	}
}

func TestAStrayGoesOnceItWasSeenTwiceSevenDaysApart(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	s.orphans(100) // as many as one turn may find, in a bucket that has nothing else
	for turn, want := range []int{100, 100, 100, 0} {
		if err := p.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(s.stored()); got != want {
			t.Fatalf("after turn %d: %d objects, want %d", turn+1, got, want)
		}
		s.now = s.now.Add(strayAge * 2 / 5)
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
		t.Errorf("left: %v, want both", got)
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
		t.Fatalf("%d of 101 objects are left: the janitor went on", got)
	}
	// A hundredth of a large bucket may be strays.
	for i := range 101 * 99 {
		name := "videos/vid_own/captions/" + strconv.Itoa(i)
		s.put(name, 1)
	}
	s.videos["vid_own"] = &video.Video{ID: "vid_own", Status: video.Uploading, UpdatedAt: s.now}
	if err := p.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(s.stored()); got != 101*99 {
		t.Errorf("%d objects are left, want the %d that have a record", got, 101*99)
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
	s.put(video.UploadObject("vid_new"), 1) // a new stray, so that the list has to be written
	s.failing[straysObject] = errors.New("storage says no")
	if err := p.Tidy(t.Context()); err == nil {
		t.Error("nobody is told")
	}
	if got := s.stored(); len(got) != 2 {
		t.Errorf("left: %v, want both", got)
	}
}

// An operator restores the database to the wrong time, notices days later, and restores
// it to the right one.
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
				t.Fatalf("left with the older records: %v, want %v", got, objects)
			}
		}
	}
	// After ten more turns with the right records, the objects that these explain are still
	// there.
	for id := range newer {
		if _, ok := s.objects[transcode.Prefix(string(id), 7, 1)+"720p.mp4"]; !ok {
			t.Errorf("the media of %s is gone", id)
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
		t.Errorf("a turn says %v", err)
	}
	p.o.SweepEvery, p.o.JanitorEvery = time.Hour, time.Hour
	for name, loop := range map[string]func(context.Context) error{"sweep": p.Run, "janitor": p.RunJanitor} {
		if err := loop(t.Context()); !errors.Is(err, objectstore.ErrForeign) {
			t.Errorf("the loop %s says %v", name, err)
		}
	}
	if got := s.stored(); len(got) != 3 {
		t.Errorf("left: %v, want all three", got)
	}
}

// graves is a shelf with some deleted videos.
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

// yard is a bucket that can remove prefixes.
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

// A restored database has the same ids as the original one, whose processes may still
// run.
func TestABucketThatChangesHandsIsLeftAlone(t *testing.T) {
	t.Parallel()
	g, p := newGraves("vid_1")
	owner := error(nil)
	p.o.Claim = func(context.Context) error { return owner }
	p.o.SweepEvery = time.Millisecond
	if _, err := p.PurgeDue(t.Context()); err != nil || len(g.stored()) != 0 {
		t.Fatalf("left while the bucket is ours: %v, %v", g.stored(), err)
	}
	owner = objectstore.ErrForeign
	g.now = g.now.Add(2 * time.Minute)
	g.put(video.UploadObject("vid_1"), 2)
	for what, try := range map[string]func() error{
		"a purge":        func() error { _, err := p.PurgeDue(t.Context()); return err },
		"a notification": func() error { return p.Uploaded(t.Context(), video.UploadObject("vid_1")) },
		"a look at one":  func() error { return p.tidyVideo(t.Context(), "vid_1") },
		"the loop":       func() error { return p.Run(t.Context()) },
	} {
		if err := try(); !errors.Is(err, objectstore.ErrForeign) {
			t.Errorf("%s says %v", what, err)
		}
	}
	if got := g.stored(); len(got) != 1 {
		t.Errorf("left: %v, want the file of the bucket's new owner", got)
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
		t.Errorf("asked %d times, want 3: at first, after a minute, after the step", asked)
	}
}

func TestATombstoneRemovesLateUploadsOfDeletedVideosOnly(t *testing.T) {
	t.Parallel()
	g, p := newGraves("vid_gone", "vid_again")
	g.await(p, "vid_again") // its create was repeated after the deletion
	g.put(video.UploadObject("vid_unknown"), 1)
	for _, id := range []video.ID{"vid_gone", "vid_again", "vid_unknown"} {
		if err := p.Uploaded(t.Context(), video.UploadObject(id)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.o.Bucket.Stat(t.Context(), video.UploadObject("vid_gone")); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("a notified file of a deleted video: %v", err)
	}
	for range 60 {
		if _, err := p.PurgeDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		if task, ok := g.tasks["vid_gone"]; ok && g.now.After(task.Since.Add(2*time.Hour)) && (task.Account != "" || !task.IsTombstone()) {
			t.Fatalf("two hours later the task is %+v", task)
		}
		g.put(video.UploadObject("vid_gone"), 7)
		g.now = g.now.Add(time.Hour)
	}
	if got := g.stored(); !slices.Equal(got, []string{video.UploadObject("vid_again"), video.UploadObject("vid_gone"), video.UploadObject("vid_unknown"), "videos/vid_again/1-1/720p.mp4"}) {
		t.Errorf("left: %v", got)
	}
	if len(g.tasks) != 0 {
		t.Errorf("tasks of addresses that have ended: %v", g.tasks)
	}
}

// A stray that another database noted does not count as seen by this one.
func TestSightingsOfAnotherDatabaseDoNotCount(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	s.orphans(3)
	for turn, want := range []int{3, 3 + 1, 3 + 1, 1} { // with the object that names the owner
		if turn == 1 {
			s.now = s.now.Add(strayAge)
			s.objects[objectstore.OwnerObject] = objectstore.Object{Name: objectstore.OwnerObject, Generation: 1, Created: s.now}
			s.now = s.now.Add(time.Minute)
		}
		if err := p.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(s.stored()); got != want {
			t.Fatalf("after turn %d: %d objects, want %d", turn+1, got, want)
		}
		s.now = s.now.Add(strayAge / 2)
	}
}

// done are jobs that have all ended with a picture.
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
	// The owner has gone back to the automatic picture since asked was read.
	if after, err := p.applyStill(t.Context(), &asked); err != nil || after.Still != nil {
		t.Errorf("picture %+v, %v; want none", after.Still, err)
	}
}

// trapped panics over one object.
type trapped struct {
	bucket
	object string
}

func (b trapped) Stat(ctx context.Context, object string) (objectstore.Object, error) {
	if object == b.object {
		panic("a fault of ours")
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
		t.Error("nobody is told of the panic")
	}
	if due := s.videos["bad"].DueAt; !due.After(s.now) {
		t.Errorf("the bad one is due at %v, and it is %v", due, s.now)
	}
	if status := s.videos["good"].Status; status != video.Processing {
		t.Errorf("the good one is %s", status)
	}
}

// An account has many videos that fail, each for its own reason.
func TestVideosThatFailKeepNothingFromTheOthers(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	for i := range 200 {
		id := video.ID("bad" + strconv.Itoa(i))
		s.await(p, id)
		s.failing[video.UploadObject(id)] = errors.New("storage refuses this one")
	}
	s.await(p, "good")
	s.put(video.UploadObject("good"), 1)
	s.now = s.now.Add(time.Minute)
	if err := p.Sweep(t.Context()); err == nil {
		t.Error("nobody is told of what failed")
	}
	if status := s.videos["good"].Status; status != video.Processing {
		t.Errorf("the good one is %s", status)
	}
}

// lines counts the videos that waited for a busy account's ledger, instead of updating
// them.
type lines struct {
	*shelf
	waited atomic.Int64
}

func (l *lines) Update(ctx context.Context, id video.ID, fn func(*video.Video) error) (*video.Video, error) {
	if strings.HasPrefix(string(id), "busy") {
		l.waited.Add(1)
		return nil, apierr.Contended(errors.New("its ledger is written once a second"))
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
		t.Errorf("%d videos of the busy account waited, want those that began together", n)
	}
	if status := s.videos["good"].Status; status != video.Processing {
		t.Errorf("the good one is %s", status)
	}
	for id, v := range s.videos {
		if !v.DueAt.After(s.now) {
			t.Fatalf("%s is due again at once", id)
		}
	}
}

// deleted is a store of many purge tasks.
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

// slow is a bucket that takes a second for each task.
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
				t.Fatalf("round %d took %v", rounds, took)
			}
			select {
			case <-p.kick:
			default:
				if d.left > 0 {
					t.Fatalf("%d tasks wait for the next sweep", d.left)
				}
			}
		}
	})
}

// searched counts how often a bucket is searched.
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

// Every replica tries to start the search many times a day, including the one that did
// it last.
func TestStorageIsSearchedOncePerPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, p := newShelf()
		b := &searched{Bucket: p.o.Bucket}
		p.o.Bucket, p.o.JanitorEvery, p.o.Seen = b, 24*time.Hour, dedup.New(nil, time.Now)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Hour)
		defer cancel()
		if err := p.RunJanitor(ctx); err != nil || b.times != 1 {
			t.Errorf("error %v; searched %d times in 20 hours, want once", err, b.times)
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
			t.Errorf("error %v; searched %d times while it is off", err, b.times)
		}
		cancel()
		b.Bucket = nil // a look at one video would fail
		if err := p.tidyVideo(t.Context(), "vid_1"); err != nil {
			t.Errorf("a look at one video: %v", err)
		}
		_, fresh := newShelf()
		b.Bucket = fresh.o.Bucket
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Hour)
		defer cancel()
		if err := p.RunJanitor(ctx); err != nil || b.times != 1 {
			t.Errorf("error %v; searched %d times after it was turned on, want once", err, b.times)
		}
	})
}

// The wait begins when the file is in storage, not when the video is made or a sweep notices the file.
func TestTheTimeToReadyIsMeteredByLength(t *testing.T) {
	t.Parallel()
	uploaded := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, seconds := range []float64{1, 60, 61, 600, 601} { // no other test of this package publishes
		v := &video.Video{Status: video.Processing, CreatedAt: uploaded.Add(-time.Hour), Source: video.Source{JobID: "job", StoredAt: uploaded}}
		if err := v.Publish("job", video.Media{Duration: seconds}, uploaded.Add(20*time.Second)); err != nil {
			t.Fatal(err)
		}
		observeReady(v)
	}
	observeReady(&video.Video{Media: &video.Media{}, ReadyAt: uploaded}) // nobody knows when its file came
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
				t.Errorf("%s: %d videos in %v s, want %d in 20 s each", length, h.GetSampleCount(), h.GetSampleSum(), want[length])
			}
			delete(want, length)
		}
	}
	if len(want) > 0 {
		t.Errorf("no series for %v", want)
	}
}
