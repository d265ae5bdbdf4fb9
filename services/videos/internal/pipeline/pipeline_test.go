package pipeline

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// shelf is a Store and a Bucket in memory. Methods that a test does not need are
// those of the nil interfaces.
type shelf struct {
	Store
	Jobs

	mu      sync.Mutex
	now     time.Time
	videos  map[video.ID]*video.Video
	objects map[string]objectstore.Object
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

// bucket and jobs are other faces of the same shelf: their methods share names.
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
		defer b.mu.Unlock()
		for name, o := range b.objects {
			if len(name) >= len(prefix) && name[:len(prefix)] == prefix && !yield(o, nil) {
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

func (b bucket) DeletePrefix(context.Context, string) error { return nil }

type jobs struct{ *shelf }

func (jobs) Create(context.Context, transcode.Job) (bool, error) { return true, nil }
func (jobs) Get(context.Context, string) (transcode.Record, error) {
	return transcode.Record{}, transcode.ErrNotFound
}
func (jobs) Delete(context.Context, string) error { return nil }

func newShelf() (*shelf, *Pipeline) {
	s := &shelf{
		now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), videos: map[video.ID]*video.Video{},
		objects: map[string]objectstore.Object{}, failing: map[string]error{},
	}
	return s, New(Options{
		Store: s, Bucket: bucket{s}, Jobs: jobs{s}, Now: func() time.Time { return s.now }, Log: slog.New(slog.DiscardHandler),
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
	if v := s.videos["here"]; v.Status != video.Processing {
		t.Errorf("the upload was not noticed: %s", v.Status)
	}
	for _, id := range []video.ID{"not", "broken"} {
		if due := s.videos[id].DueAt.Sub(s.now); due < 10*time.Second || due > 15*time.Second {
			t.Errorf("%s is due in %v", id, due)
		}
	}
	s.now = s.now.Add(20 * time.Hour)
	_ = p.Sweep(t.Context()) // what is broken stays broken
	if due := s.videos["not"].DueAt.Sub(s.now); due != time.Hour {
		t.Errorf("after 20 hours it is due in %v, want an hour", due)
	}
	s.now = s.now.Add(28 * time.Hour)
	_ = p.Sweep(t.Context())
	if v := s.videos["not"]; v.Status != video.Failed || v.Failure.Code != video.UploadExpired {
		t.Errorf("after 48 hours: %s", v.Status)
	}
}

// An hour of sweeps with 100,000 videos whose upload never comes. Release 0.2 read
// every one of them in every sweep: 360 times an hour.
func TestForgottenUploadsCostLittle(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	n := 1_000
	if os.Getenv("LINKREEL_FULL") != "" {
		n = 100_000
	}
	for i := range n { // they came in over a day
		s.await(p, video.ID("vid_"+strconv.Itoa(i)))
		s.now = s.now.Add(24 * time.Hour / time.Duration(n))
	}
	for range 2 * 360 { // the looks that their creation has put off
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
		return &video.Video{ID: id, Status: video.Ready, Source: video.Source{Generation: 7}, Media: &video.Media{Final: final}, PublishedAt: s.now, ReadyAt: s.now}
	}
	object := func(name string, age time.Duration) objectstore.Object {
		return objectstore.Object{Name: name, Created: s.now.Add(-age)}
	}
	current, part, other, caption := transcode.Prefix(id, 7, 2)+"720p.mp4", transcode.PartsPrefix(id, 7)+"3-1/x.mp4", transcode.Prefix(id, 6, 1)+"720p.mp4", "videos/vid_1/captions/en-x.vtt"
	late := ready(true)
	late.PublishedAt, late.ReadyAt = s.now.Add(-8*time.Hour), s.now.Add(-8*time.Hour)
	for name, tt := range map[string]struct {
		v    *video.Video
		keep bool
		o    objectstore.Object
		want bool
	}{
		"of no video":                     {nil, false, object(current, 0), true},
		"named by its video":              {late, true, object(current, 9*time.Hour), false},
		"written by a job in work":        {ready(false), false, object(current, 9*time.Hour), false},
		"a part of a job in work":         {&video.Video{ID: id, Status: video.Processing, Source: video.Source{Generation: 7}}, false, object(part, 30*time.Hour), false},
		"replaced just now":               {ready(true), false, object(current, time.Minute), false},
		"replaced long ago":               {late, false, object(current, 9*time.Hour), true},
		"a part of a job that ended":      {late, false, object(part, 9*time.Hour), true},
		"of an upload that was replaced":  {ready(true), false, object(other, time.Minute), true},
		"captions that are not named yet": {late, false, object(caption, time.Minute), false},
		"captions that nobody names":      {late, false, object(caption, 2*time.Hour), true},
		"of a video whose job failed":     {&video.Video{ID: id, Status: video.Failed, Source: video.Source{Generation: 7}}, false, object(current, 0), true},
	} {
		if got := p.mediaOrphan(tt.v, map[string]bool{tt.o.Name: tt.keep}, tt.o); got != tt.want {
			t.Errorf("%s: orphan %v, want %v", name, got, tt.want)
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
	v := &video.Video{ID: "v", Status: video.Ready, Source: video.Source{Generation: 7}, Media: &video.Media{Version: 2, Final: true, Outcome: packed}, PublishedAt: s.now, ReadyAt: s.now}
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

func TestTidy_keeps_the_objects_of_an_unreadable_video(t *testing.T) {
	t.Parallel()
	s, p := newShelf()
	s.unreadable = map[video.ID]error{"vid_bad": errors.New("cannot be read")}
	for _, id := range []string{"vid_bad", "vid_gone"} {
		s.put(transcode.Prefix(id, 7, 1)+"720p.mp4", 1)
	}
	if err := p.Tidy(t.Context()); err == nil {
		t.Error("nobody is told of the unreadable one")
	}
	if _, kept := s.objects[transcode.Prefix("vid_bad", 7, 1)+"720p.mp4"]; !kept || len(s.objects) != 1 {
		t.Errorf("left: %v, want those of the unreadable one", s.objects)
	}
}

// done are jobs that have all ended with a picture.
type done struct{ jobs }

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
	// Its owner has gone back to our own picture since it was read.
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

func TestMediaOf_counts_every_object(t *testing.T) {
	t.Parallel()
	o := transcode.Outcome{Renditions: []transcode.Rendition{{Size: 100}, {Size: 40}}, Audio: &transcode.Rendition{Size: 5}, Download: "x", Poster: "y"}
	for _, tt := range []struct {
		said, want int64
	}{{0, 145}, {400, 400}} { // an older worker says nothing
		o.Bytes = tt.said
		m, err := mediaOf(transcode.Record{Outcome: &o})
		if err != nil || m.Bytes != tt.want {
			t.Errorf("of %d: %d bytes, %v; want %d", tt.said, m.Bytes, err, tt.want)
		}
	}
}
