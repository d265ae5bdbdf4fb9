package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/fmp4"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ladder"
)

// world is a worker with real queues and records, a maker without ffmpeg, and an in-memory bucket.
type world struct {
	t       *testing.T
	w       *Worker
	jobs    *jobs.Store
	queue   *queue.Queue
	redis   *redis.Client
	bucket  *memory
	maker   *fakeMaker
	stopped chan struct{}
	stop    context.CancelFunc
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{jobs.Indexes}, Complete: true})
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	t.Cleanup(func() { _ = rdb.Close() })
	scratch, err := OpenScratch(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = scratch.Close() })
	b := &world{
		t: t, redis: rdb, jobs: jobs.New(firestoredb.Use(cloud.Client(t), 5*time.Second), time.Now),
		queue:  queue.New(rdb, queue.Options{Name: transcode.QueueName}),
		bucket: &memory{objects: map[string]objectstore.Object{}}, maker: &fakeMaker{source: shortClip()},
	}
	b.w = New(Options{
		Jobs: b.jobs, Queue: b.queue, Outcomes: queue.New(rdb, queue.Options{Name: transcode.OutcomeQueueName}),
		Bucket: b.bucket, Maker: func(func(*ffmpeg.Tools)) Maker { return b.maker }, Scratch: scratch,
		Name: "worker", Slots: 1, Lease: 20 * time.Second, Heartbeat: 100 * time.Millisecond, Sweep: 200 * time.Millisecond,
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	return b
}

// run starts the worker, which stops when the test ends unless the test stops it first.
func (b *world) run() {
	ctx, stop := context.WithCancel(context.Background())
	b.stop, b.stopped = stop, make(chan struct{})
	go func() { defer close(b.stopped); _ = b.w.Run(ctx) }()
	b.t.Cleanup(func() { stop(); <-b.stopped })
}

// submit creates a job for an uploaded object, as the videos service does.
func (b *world) submit(account, video string) transcode.Job {
	b.t.Helper()
	j := transcode.Job{ID: transcode.JobID(video, 7), AccountID: account, VideoID: video, Object: "uploads/" + video + "/source", Generation: 7, Size: 9}
	b.bucket.put(j.Object)
	if _, err := b.jobs.Create(b.t.Context(), j); err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.queue.Add(b.t.Context(), jobs.Item(j)); err != nil {
		b.t.Fatal(err)
	}
	return j
}

func (b *world) await(id string, ok func(transcode.Record) bool) transcode.Record {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r, err := b.jobs.Get(context.Background(), id)
		if err == nil && ok(r) {
			return r
		}
		if time.Now().After(end) {
			b.t.Fatalf("the record of job %s is %+v (error %v), which does not meet the condition", id, r, err)
		}
	}
}

func (b *world) awaitGone(id string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := b.jobs.Get(context.Background(), id); errors.Is(err, jobs.ErrNotFound) {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("record %s still exists, want it removed", id)
		}
	}
}

func final(r transcode.Record) bool { return r.State.Final() }

// TestAnAttemptLeavesEarlierObjectsAlone starts from records that were restored to a time before
// the first attempt, and a bucket with the objects from two attempts.
func TestAnAttemptLeavesEarlierObjectsAlone(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	earlier := map[string]objectstore.Object{}
	for attempt := range 2 {
		name := transcode.Prefix("vid", 7, attempt+1) + "720p.mp4"
		b.bucket.put(name)
		earlier[name] = b.bucket.objects[name]
	}
	b.run()
	r := b.await(b.submit("a", "vid").ID, final)
	if want := transcode.Prefix("vid", 7, 3); r.State != transcode.Done || r.Tries != 1 || r.Outcome.Prefix != want {
		t.Errorf("record = %+v, want a job that is done with the prefix %s", r, want)
	}
	for name, was := range earlier {
		if now, ok := b.bucket.objects[name]; !ok || now.Size != was.Size {
			t.Errorf("object %s changed from %+v to %+v, want no change", name, was, now)
		}
	}
}

// In TestAnAttemptThatCannotListRemovesNothing, the bucket contains an object from an undone
// attempt with the same number. Listing the prefix fails, so the new attempt cannot tell whether
// the object is its own.
func TestAnAttemptThatCannotListRemovesNothing(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	earlier := transcode.Prefix("vid", 7, 1) + "720p.mp4"
	b.bucket.put(earlier)
	b.bucket.blind.Store(1)
	b.run()
	r := b.await(b.submit("a", "vid").ID, final)
	if want := transcode.Prefix("vid", 7, 2); r.State != transcode.Done || r.Outcome.Prefix != want {
		t.Errorf("record = %+v, want a job that is done with the prefix %s", r, want)
	}
	if left := b.bucket.under(transcode.Prefix("vid", 7, 1)); !slices.Equal(left, []string{earlier}) {
		t.Errorf("objects from the undone attempt = %q, want %s", left, earlier)
	}
}

func TestAJobIsPublishedAndItsObjectsAreAllThatIsLeft(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.run()
	j := b.submit("a", "vid")
	r := b.await(j.ID, final)
	if r.State != transcode.Done || r.Tries != 1 || !r.Outcome.Final || len(r.Outcome.Renditions) != 1 {
		t.Fatalf("record = %+v, want a job that is done after one try with one rendition", r)
	}
	if diff := cmp.Diff(r.Outcome.Objects(), b.bucket.under(transcode.VideoPrefix("vid"))); diff != "" {
		t.Errorf("objects (-in the outcome +in the bucket):\n%s", diff)
	}
	var bytes int64
	for _, name := range r.Outcome.Objects() {
		bytes += b.bucket.objects[name].Size
	}
	if r.Outcome.Bytes != bytes || bytes == 0 {
		t.Errorf("the outcome's size is %d bytes, want %d, the total size of its objects", r.Outcome.Bytes, bytes)
	}
}

func TestAPictureIsTakenOfOneSegmentAndTheVideosObjectsStay(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.run()
	video := transcode.Prefix("vid", 7, 1) + "720p.mp4"
	b.bucket.put(video)
	r := transcode.Rendition{Object: video, Init: transcode.Range{Size: 10}, Segments: transcode.Segments{
		{Range: transcode.Range{Offset: 10, Size: 100}, Duration: 6}, {Range: transcode.Range{Offset: 110, Size: 50}, Duration: 4},
	}}
	submit := func(nonce string, seconds float64, object string) transcode.Record {
		still, ok := transcode.StillOf(r, seconds)
		if !ok {
			t.Fatal("the outcome has no rendition with a segment")
		}
		j := transcode.Job{ID: transcode.StillID("vid", nonce), AccountID: "a", VideoID: "vid", Object: object, Still: &still}
		if _, err := b.jobs.Create(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if _, err := b.queue.Add(t.Context(), jobs.Item(j)); err != nil {
			t.Fatal(err)
		}
		return b.await(j.ID, final)
	}
	for nonce, tt := range map[string]struct {
		seconds float64
		want    transcode.Still
	}{
		"a": {7.5, transcode.Still{At: 1.5, Init: transcode.Range{Size: 10}, Segment: transcode.Range{Offset: 110, Size: 50}}},
		"b": {10, transcode.Still{At: 4, Init: transcode.Range{Size: 10}, Segment: transcode.Range{Offset: 110, Size: 50}}},
		"c": {0, transcode.Still{Init: transcode.Range{Size: 10}, Segment: transcode.Range{Offset: 10, Size: 100}}},
	} {
		r := submit(nonce, tt.seconds, video)
		if r.State != transcode.Done || r.Outcome.Poster != transcode.StillPrefix(r.ID, r.Attempt)+"still.jpg" || len(r.Outcome.Renditions) != 0 || *r.Still != tt.want {
			t.Errorf("still at %g s: got request %+v and outcome %+v, want only a poster", tt.seconds, r.Still, r.Outcome)
		}
	}
	if r := submit("d", 1, "videos/vid/7-1/gone.mp4"); r.State != transcode.Failed {
		t.Errorf("the state of a still from a missing object is %s, want failed", r.State)
	}
	if got := b.bucket.under(transcode.Prefix("vid", 7, 1)); len(got) != 1 {
		t.Errorf("the video's objects are %v, want one rendition", got)
	}
}

func TestWhatCannotBeCopiedPlaysBeforeItsLadderIsDone(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.maker.source.Video.Width, b.maker.source.Video.Height = 1920, 1080
	b.maker.source.Video.DisplayWidth, b.maker.source.Video.DisplayHeight = 1920, 1080
	b.maker.blockAfter, b.maker.block = 1, make(chan struct{})
	b.run()
	j := b.submit("a", "vid")
	names := func(r transcode.Record) (names []string) {
		for _, v := range r.Outcome.Renditions {
			names = append(names, v.Name)
		}
		return names
	}
	r := b.await(j.ID, func(r transcode.Record) bool { return r.Outcome != nil })
	if diff := cmp.Diff([]string{"720p"}, names(r)); diff != "" || r.Outcome.Final || r.Outcome.Poster == "" {
		t.Errorf("renditions published first (-want +got):\n%s", diff)
	}
	close(b.maker.block)
	r = b.await(j.ID, final)
	if diff := cmp.Diff([]string{"1080p", "720p", "480p", "360p"}, names(r)); diff != "" || !r.Outcome.Final {
		t.Errorf("renditions at the end (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(r.Outcome.Objects(), b.bucket.under(transcode.VideoPrefix("vid"))); diff != "" {
		t.Errorf("objects (-in the outcome +in the bucket):\n%s", diff)
	}
}

// TestADiskHasOnlyWhatIsNeededYet checks which files are in the worker's scratch folder at
// each stage of a job, including the retained source.
func TestADiskHasOnlyWhatIsNeededYet(t *testing.T) {
	t.Parallel()
	large := func(s *ffmpeg.Source) {
		s.Video.Width, s.Video.Height, s.Video.DisplayWidth, s.Video.DisplayHeight = 1920, 1080, 1920, 1080
	}
	for name, tt := range map[string]struct {
		edit func(*ffmpeg.Source)
		want map[string][]string
	}{
		"encoded in one pass": {large, map[string][]string{
			"ladder":     {"../retained-source", "source"}, // the first of two parts
			"storyboard": {"1080p.mp4", "360p.mp4", "poster.jpg"},
			"download":   {"1080p.mp4", "poster.jpg", "storyboard.jpg"},
		}},
		"copied, then encoded": {func(s *ffmpeg.Source) {
			large(s)
			s.Video.Codec, s.Video.Tag, s.Video.Profile, s.Video.PixelFormat, s.Video.Level = "h264", "avc1", "High", "yuv420p", 40
			s.Size, s.Video.Bytes = 2<<20, 7e6/8*2
		}, map[string][]string{
			"ladder":     {"../retained-source", "poster.jpg", "source"},
			"storyboard": {"1080p.mp4", "360p.mp4", "poster.jpg"},
			"download":   {"1080p.mp4", "poster.jpg", "storyboard.jpg"},
		}},
		"encoded in parts": {func(s *ffmpeg.Source) { s.Video.Span, s.Video.Frames = 150, 4500 }, map[string][]string{
			"join":       {"part-0/180p.mp4", "part-1/180p.mp4", "part-2/180p.mp4"},
			"storyboard": {"180p.mp4", "poster.jpg"},
			"download":   {"180p.mp4", "poster.jpg", "storyboard.jpg"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWorld(t)
			tt.edit(b.maker.source)
			b.maker.copies = true
			var mu sync.Mutex
			got := map[string][]string{}
			b.maker.look = func(stage string, files []string) {
				mu.Lock()
				defer mu.Unlock()
				slices.Sort(files)
				if got[stage] == nil {
					got[stage] = files
				}
			}
			b.run()
			if r := b.await(b.submit("a", "vid").ID, final); r.State != transcode.Done || r.Outcome.Download == "" || r.Outcome.Storyboard == nil {
				t.Fatalf("record = %+v, want a job that is done, with a download and a storyboard", r)
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARefusedFileFailsAtOnceWithItsReason(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.maker.refuse = &transcode.Failure{Code: transcode.NotAVideo, Message: "m"}
	b.run()
	r := b.await(b.submit("a", "vid").ID, final)
	if r.State != transcode.Failed || r.Tries != 1 || r.Failure.Code != transcode.NotAVideo {
		t.Errorf("record = %+v, want the failure NOT_A_VIDEO after one try", r)
	}
	if left := b.bucket.under(transcode.VideoPrefix("vid")); len(left) > 0 {
		t.Errorf("objects left behind = %v, want none", left)
	}
}

func TestAFileWithAContentEncodingFailsAtOnceAndIsNotDownloaded(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.bucket.encoding = "gzip"
	b.run()
	r := b.await(b.submit("a", "vid").ID, final)
	if r.State != transcode.Failed || r.Tries != 1 || r.Failure.Code != transcode.UnsupportedFormat {
		t.Errorf("record = %+v, want the failure UNSUPPORTED_FORMAT after one try", r)
	}
}

// scratch limits the worker's scratch space to limit bytes.
func (b *world) scratch(limit int64) *Scratch {
	b.t.Helper()
	s, err := openScratch(b.t, limit)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = s.Close() })
	b.w.o.Scratch = s
	return s
}

// TestAJobThatFitsOnNoDiskFailsAtOnce checks that such a job fails on its first attempt. Otherwise,
// the job would exceed the volume's limit on every attempt, and three pods would be evicted.
func TestAJobThatFitsOnNoDiskFailsAtOnce(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.maker.source = longFilm()
	b.maker.source.Video.Span, b.maker.source.Video.Frames = 7200, 7200*30
	b.scratch(100 << 20)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	b.w.o.Log = slog.New(slog.NewTextHandler(log, nil))
	b.run()
	r := b.await(b.submit("a", "vid").ID, final)
	if r.State != transcode.Failed || r.Tries != 1 || r.Failure.Code != transcode.FileTooLarge || !strings.Contains(r.Failure.Message, "disk space") {
		t.Errorf("record = %+v, failure %+v, want FILE_TOO_LARGE because of disk space", r, r.Failure)
	}
	if n := b.maker.made(); n != 0 {
		t.Errorf("%d parts were encoded, want 0", n)
	}
	if text, err := os.ReadFile(log.Name()); err != nil || !bytes.Contains(text, []byte("level=ERROR")) || !bytes.Contains(text, []byte("worker.scratch.sizeLimit")) {
		t.Errorf("want an error in the log that names the limit to raise; got read error %v and log:\n%s", err, text)
	}
}

func TestAJobWaitsForTheScratchOfAnotherWithoutLosingTries(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	s := b.scratch(1 << 30)
	dir, remove, err := s.Job()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.reserve(dir, 900<<20); err != nil {
		t.Fatal(err)
	}
	b.maker.source = longFilm()
	b.maker.source.Video.Span, b.maker.source.Video.Frames = 7200, 7200*30
	b.run()
	j := b.submit("a", "vid")
	r := b.await(j.ID, func(r transcode.Record) bool { return r.State == transcode.Queued && r.Attempt > 0 })
	if r.Tries != 0 {
		t.Errorf("after waiting, the job has %d tries, want 0", r.Tries)
	}
	remove()
	if r := b.await(j.ID, final); r.State != transcode.Done || r.Tries != 1 {
		t.Errorf("record = %+v, failure %v, want a job that is done after one try", r, r.Failure)
	}
}

// Small jobs run one after another on the worker's other slot, so there is never space for a large
// job. After the large job has waited for a minute, it takes precedence over jobs that start later.
func TestALargeJobRunsBesideSteadySmallOnes(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	s := b.scratch(1 << 30)
	b.w.o.Now = func() time.Time { return time.Now().Add(2 * longWait) } // makes every job look as if it had waited that long
	small := func() (remove func(), err error) {
		dir, remove, err := s.Job()
		if err != nil {
			t.Fatal(err)
		}
		return remove, s.reserve(dir, 300<<20)
	}
	end, err := small()
	if err != nil {
		t.Fatal(err)
	}
	b.maker.source = longFilm()
	b.maker.source.Video.Span, b.maker.source.Video.Frames = 7200, 7200*30
	b.run()
	j := b.submit("a", "vid")
	began := 0
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		next, err := small()
		if errors.Is(err, errReserved) {
			next()
			break
		}
		end() // the next small job has begun
		end = next
		if began++; time.Now().After(deadline) {
			t.Fatalf("%d small jobs began while the large job waited, want the large job to take precedence", began)
		}
	}
	end()
	if r := b.await(j.ID, final); r.State != transcode.Done || r.Tries != 1 {
		t.Errorf("record = %+v, failure %v, want a job that is done after one try", r, r.Failure)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		next, err := small()
		next()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a small job still fails with %v after the large job, want nil", err)
		}
	}
}

func TestARetainedSourceGivesWayToAJob(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	s := b.scratch(1 << 30)
	old := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.w.sources.retain(s.retained(), old, sourceKey{"uploads/another/source", 1})
	if err := errors.Join(os.Truncate(old, 1000<<20), os.Remove(old)); err != nil {
		t.Fatal(err)
	}
	b.maker.source = longFilm()
	b.maker.source.Video.Span, b.maker.source.Video.Frames = 7200, 7200*30
	j := b.submit("a", "vid")
	b.run()
	if r := b.await(j.ID, final); r.State != transcode.Done || r.Tries != 1 {
		t.Errorf("record = %+v, failure %v, want a job that is done after one try", r, r.Failure)
	}
}

func TestAHelperWithTooSmallADiskLeavesThePartToOthers(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.scratch(100 << 20)
	ctx := t.Context()
	leader := transcode.Job{ID: transcode.JobID("vid", 7), AccountID: "a", VideoID: "vid", Object: "uploads/vid/source", Generation: 7}
	b.bucket.put(leader.Object)
	if _, err := b.jobs.Create(ctx, leader); err != nil {
		t.Fatal(err)
	}
	if _, err := b.jobs.Claim(ctx, leader.ID, "elsewhere", time.Hour); err != nil {
		t.Fatal(err)
	}
	part := leader
	part.ID, part.Parent, part.Size, part.Spec = transcode.PartID(leader.ID, 0), leader.ID, 1<<30, []byte(`{"Plan": {"Source": {}}}`)
	if _, err := b.jobs.Create(ctx, part); err != nil {
		t.Fatal(err)
	}
	if _, err := b.queue.Add(ctx, jobs.Item(part)); err != nil {
		t.Fatal(err)
	}
	b.run()
	r := b.await(part.ID, func(r transcode.Record) bool { return r.Attempt > 0 && r.State != transcode.Running })
	if r.State != transcode.Queued || r.Tries != 0 || r.Failure != nil {
		t.Errorf("part = %+v, failure %v; want it queued", r, r.Failure)
	}
	if _, err := b.jobs.Claim(ctx, part.ID, "elsewhere", time.Hour); err != nil {
		t.Errorf("Claim by the worker that created the part returned %v, want nil", err)
	}
}

func TestTroubleThatMayPassIsTriedAgainLater(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.maker.trouble = errors.New("no space left on device")
	b.run()
	j := b.submit("a", "vid")
	r := b.await(j.ID, func(r transcode.Record) bool { return r.State == transcode.Queued && r.Tries == 1 })
	if r.Failure != nil || r.Outcome != nil {
		t.Errorf("record = %+v, want a queued job without failure or outcome", r)
	}
	if left := b.bucket.under(transcode.VideoPrefix("vid")); len(left) > 0 {
		t.Errorf("objects left behind = %v, want none", left)
	}
}

// Storage hangs in this test. A worker on a preempted node has only 15 s, and another worker
// must not wait for the lease to end.
func TestAStoppedWorkerReturnsItsJobBeforeItTidiesUp(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.maker.block = make(chan struct{})
	b.bucket.hang = true
	b.run()
	j := b.submit("a", "vid")
	<-b.maker.entered()
	begun := time.Now()
	b.stop()
	r := b.await(j.ID, func(r transcode.Record) bool { return r.State == transcode.Queued })
	if b.bucket.gaveUp.Load() {
		t.Error("the job was returned after the attempt to remove leftovers, want it returned first")
	}
	if r.Tries != 0 {
		t.Errorf("after the stop, the job has %d tries, want 0", r.Tries)
	}
	if n, err := b.queue.Length(t.Context()); err != nil || n != 1 {
		t.Errorf("the queue has %d messages (error %v), want 1", n, err)
	}
	<-b.stopped
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("the worker took %v to stop, want at most 15s", took)
	}
}

func TestAJobWithoutAMessageThatCannotBeClaimedIsHintedOrReported(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.w.do(t.Context(), "slot", "gone", nil)
	if m, err := b.w.o.Outcomes.Next(t.Context(), "videos", time.Minute); err != nil || m.ID != "gone" {
		t.Errorf("the queue of hints returned %+v and error %v, want a hint for the deleted job", m, err)
	}
	var log bytes.Buffer
	b.w.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that the claim fails
	b.w.do(ctx, "slot", "any", nil)
	if !strings.Contains(log.String(), "cannot claim a job") {
		t.Errorf("the log is %q, want a message about the failed claim", &log)
	}
}

// TestOnesUploadDoesNotWaitForAnothersThousand checks that a worker with one slot runs an
// account's only job before most of the many jobs from another account.
func TestOnesUploadDoesNotWaitForAnothersThousand(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.maker.block = make(chan struct{})
	const many = 60 // fewer than a thousand because jobs further back in the queue make no difference
	for i := range many {
		b.submit("many", fmt.Sprintf("many%02d", i))
	}
	b.run()
	<-b.maker.entered()
	one := b.submit("one", "one")
	close(b.maker.block)
	b.await(one.ID, final)
	before := 0
	for i := range many {
		if r, err := b.jobs.Get(t.Context(), transcode.JobID(fmt.Sprintf("many%02d", i), 7)); err == nil && r.State.Final() {
			before++
		}
	}
	// One job was in the slot, one may have had its turn, and one more may have ended after
	// the check.
	if before > 6 {
		t.Errorf("%d jobs from the other account were done first, want at most 6", before)
	}
}

// longBench returns a world with a source that is encoded in parts.
func longBench(t *testing.T) *world {
	b := newWorld(t)
	b.maker.source = longFilm()
	return b
}

func TestPartsAreJoinedAndTheirRecordsAndObjectsGo(t *testing.T) {
	t.Parallel()
	b := longBench(t)
	b.run()
	j := b.submit("a", "vid")
	r := b.await(j.ID, final)
	if r.State != transcode.Done || r.Tries != 1 {
		t.Fatalf("record = %+v, want a job that is done after one try", r)
	}
	for i := range b.maker.parts() {
		b.awaitGone(transcode.PartID(j.ID, i))
	}
	b.noParts(r)
}

func (b *world) noParts(r transcode.Record) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		left := b.bucket.under(transcode.PartsPrefix(r.VideoID, r.Generation))
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("part objects still exist: %v, want none", left)
		}
	}
}

// deadLeader creates a job with finished parts and a leader that was killed.
func (b *world) deadLeader() transcode.Job {
	b.t.Helper()
	j := transcode.Job{ID: transcode.JobID("vid", 7), AccountID: "a", VideoID: "vid", Object: "uploads/vid/source", Generation: 7, Size: 9}
	b.bucket.put(j.Object)
	ctx := b.t.Context()
	if _, err := b.jobs.Create(ctx, j); err != nil {
		b.t.Fatal(err)
	}
	p := ladder.Make(b.maker.source)
	leader, err := b.jobs.Claim(ctx, j.ID, "dead", 50*time.Millisecond)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range p.Parts() {
		part := j
		part.ID, part.Parent = transcode.PartID(j.ID, i), j.ID
		if _, err := b.jobs.Create(ctx, part); err != nil {
			b.t.Fatal(err)
		}
		r, err := b.jobs.Claim(ctx, part.ID, "dead", time.Minute)
		if err != nil {
			b.t.Fatal(err)
		}
		o := &transcode.Outcome{Version: 1, Final: true, Prefix: prefixOf(r)}
		for _, rung := range p.Rungs {
			o.Renditions = append(o.Renditions, transcode.Rendition{Name: rung.Name, Object: o.Prefix + rung.Name + ".mp4"})
			b.bucket.put(o.Prefix + rung.Name + ".mp4")
		}
		if err := b.jobs.Publish(ctx, jobs.Token{JobID: part.ID, Attempt: r.Attempt}, o); err != nil {
			b.t.Fatal(err)
		}
	}
	_ = leader
	return j
}

func TestDonePartsOfADeadLeaderAreUsed(t *testing.T) {
	t.Parallel()
	b := longBench(t)
	j := b.deadLeader()
	b.run()
	r := b.await(j.ID, final)
	if r.State != transcode.Done || r.Tries != 2 {
		t.Fatalf("record = %+v, want a job that is done after two tries", r)
	}
	if n := b.maker.made(); n != 0 {
		t.Errorf("%d parts were encoded again, want 0", n)
	}
}

// TestAllMissingPartsAreOfferedAgainInOneTry removes the objects of finished parts, as the
// janitor did in an earlier release.
func TestAllMissingPartsAreOfferedAgainInOneTry(t *testing.T) {
	t.Parallel()
	b := longBench(t)
	j := b.deadLeader()
	if err := b.bucket.DeletePrefix(t.Context(), transcode.PartsPrefix("vid", 7)); err != nil {
		t.Fatal(err)
	}
	b.run()
	r := b.await(j.ID, final)
	if r.State != transcode.Done || r.Tries != 2 { // one try by the killed leader and one by this worker
		t.Fatalf("got state %s after %d tries (failure %v), want done after 2", r.State, r.Tries, r.Failure)
	}
	if got, want := b.maker.made(), b.maker.parts(); got != want {
		t.Errorf("%d parts were encoded, want %d", got, want)
	}
}

// TestAPartThatVanishesMeanwhileIsMadeAgain removes an object between the worker's listing
// and its download.
func TestAPartThatVanishesMeanwhileIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := longBench(t)
	j := b.deadLeader()
	b.bucket.vanish = transcode.PartsPrefix("vid", 7) + "1-1/"
	b.run()
	r := b.await(j.ID, final)
	if r.State != transcode.Done || r.Tries != 2 {
		t.Fatalf("got state %s after %d tries (failure %v), want done after 2", r.State, r.Tries, r.Failure)
	}
	if got := b.maker.made(); got != 1 {
		t.Errorf("%d parts were encoded, want 1", got)
	}
}

func shortClip() *ffmpeg.Source {
	return &ffmpeg.Source{Demuxer: "mov", Video: ffmpeg.Video{
		Codec: "mpeg4", Width: 320, Height: 180, DisplayWidth: 320, DisplayHeight: 180, Square: true,
		Span: 2, Frames: 60, Rate: ffmpeg.Rate{Num: 30, Den: 1}, Constant: true, Whole: true,
	}}
}

// longFilm returns a source that is long enough for several parts.
func longFilm() *ffmpeg.Source {
	s := shortClip()
	s.Video.Span, s.Video.Frames = 300, 9000
	return s
}

// fakeMaker returns the results that ffmpeg would return for the given source, and writes a
// few bytes instead of frames.
type fakeMaker struct {
	source     *ffmpeg.Source
	refuse     *transcode.Failure
	trouble    error         // the error that the encoder returns
	block      chan struct{} // the encoder waits until this channel is closed
	blockAfter int           // number of ladders that are encoded before block applies
	copies     bool          // whether the source can be repackaged
	look       func(stage string, files []string)

	mu      sync.Mutex
	encoded int // number of parts
	ladders int
	once    sync.Once
	busy    chan struct{}
}

func (m *fakeMaker) entered() chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy == nil {
		m.busy = make(chan struct{})
	}
	return m.busy
}

func (m *fakeMaker) parts() int {
	p := ladder.Make(m.source)
	return len(p.Parts())
}

func (m *fakeMaker) made() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.encoded
}

func (m *fakeMaker) encode(ctx context.Context) error {
	if m.block != nil {
		busy := m.entered()
		m.once.Do(func() { close(busy) })
		select {
		case <-m.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return m.trouble
}

func (m *fakeMaker) Probe(_ context.Context, _, path string, _ transcode.Limits) (*ffmpeg.Source, error) {
	if m.refuse != nil {
		return nil, m.refuse
	}
	src := *m.source
	src.Path = path
	return &src, nil
}

func (m *fakeMaker) Copy(_ context.Context, dir string, p ladder.Plan) (t ladder.Tracks, err error) {
	if !m.copies {
		return t, errors.New("not copied")
	}
	f, err := file(dir, "source-copy")
	f.Track.Width, f.Track.Height = p.Source.Video.Width, p.Source.Video.Height
	t.Video, t.Cuts = []ladder.File{f}, p.Cuts
	return t, err
}

// seen records which files a job has on disk at a stage.
func (m *fakeMaker) seen(stage, dir string) {
	if m.look == nil {
		return
	}
	var files []string
	_ = filepath.WalkDir(filepath.Dir(dir), func(path string, d os.DirEntry, _ error) error {
		if !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			files = append(files, name)
		}
		return nil
	})
	m.look(stage, files)
}

func file(dir, name string) (ladder.File, error) {
	path := filepath.Join(dir, name+".mp4")
	track := &fmp4.Track{Timescale: 30, Fragments: []fmp4.Fragment{{Duration: 60, Samples: 60, Key: true}}}
	return ladder.File{Name: name, Path: path, Track: track}, os.WriteFile(path, []byte(name), 0o600)
}

func (m *fakeMaker) Ladder(ctx context.Context, dir string, p ladder.Plan, _ bool, _ func(float64)) (t ladder.Tracks, err error) {
	m.mu.Lock()
	m.ladders++
	free := m.ladders <= m.blockAfter
	m.mu.Unlock()
	if !free {
		if err := m.encode(ctx); err != nil {
			return t, err
		}
	}
	return m.Join(dir, p, nil, false)
}

func (m *fakeMaker) Sound(context.Context, string, ladder.Plan) error { return nil }

func (m *fakeMaker) Part(ctx context.Context, dir string, p ladder.Plan, _ ladder.Part, _ func(float64)) (paths []string, err error) {
	if err := m.encode(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.encoded++
	m.mu.Unlock()
	for _, r := range p.Rungs {
		f, err := file(dir, r.Name)
		if err != nil {
			return nil, err
		}
		paths = append(paths, f.Path)
	}
	return paths, nil
}

func (m *fakeMaker) Join(dir string, p ladder.Plan, parts [][]string, _ bool) (t ladder.Tracks, err error) {
	if parts == nil {
		m.seen("ladder", dir)
	} else {
		m.seen("join", dir)
	}
	for _, part := range parts {
		for _, path := range part {
			if err := os.Remove(path); err != nil {
				return t, err
			}
		}
	}
	for _, r := range p.Rungs {
		f, err := file(dir, r.Name)
		if err != nil {
			return t, err
		}
		f.Track.Width, f.Track.Height = r.Width, r.Height
		t.Video = append(t.Video, f)
	}
	return t, nil
}

func (m *fakeMaker) Poster(_ context.Context, dir string, _ ladder.File) (ladder.Picture, error) {
	path := filepath.Join(dir, "poster.jpg")
	return ladder.Picture{Path: path, Width: 1, Height: 1}, os.WriteFile(path, []byte("poster"), 0o600)
}

func (m *fakeMaker) Still(_ context.Context, dir, path string, at float64) (ladder.Picture, error) {
	part, err := os.ReadFile(path)
	if err != nil {
		return ladder.Picture{}, err
	}
	out := filepath.Join(dir, "still.jpg")
	return ladder.Picture{Path: out, Width: 1, Height: 1}, os.WriteFile(out, fmt.Appendf(nil, "%s at %g", part, at), 0o600)
}

func (m *fakeMaker) Storyboard(_ context.Context, dir string, _ ladder.File) (*transcode.Storyboard, ladder.Picture, error) {
	m.seen("storyboard", dir)
	path := filepath.Join(dir, "storyboard.jpg")
	return &transcode.Storyboard{}, ladder.Picture{Path: path}, os.WriteFile(path, []byte("sheet"), 0o600)
}

func (m *fakeMaker) Download(_ context.Context, dir string, _ ladder.File, _ *ladder.File) (string, error) {
	m.seen("download", dir)
	f, err := file(dir, "download")
	return f.Path, err
}

// memory is an in-memory bucket. Its objects have no content.
type memory struct {
	mu      sync.Mutex
	objects map[string]objectstore.Object
	hang    bool         // whether a removal hangs until its context is done
	gaveUp  atomic.Bool  // whether a hanging removal has given up
	vanish  string       // when an object with this prefix is read, all objects with it are removed
	blind   atomic.Int64 // number of upcoming List calls that fail

	encoding string // the content encoding of every new object
}

func (m *memory) put(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[name] = objectstore.Object{Name: name, ContentEncoding: m.encoding}
}

func (m *memory) under(prefix string) (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (m *memory) DownloadFile(ctx context.Context, object string, _ int64, path string) (objectstore.Object, error) {
	if m.vanish != "" && strings.HasPrefix(object, m.vanish) {
		_ = m.DeletePrefix(ctx, m.vanish)
	}
	m.mu.Lock()
	o, ok := m.objects[object]
	m.mu.Unlock()
	if !ok {
		return o, objectstore.ErrNotFound
	}
	if o.Encoded() {
		return o, objectstore.ErrEncoded
	}
	return o, os.WriteFile(path, nil, 0o600)
}

func (m *memory) DownloadRange(_ context.Context, object string, offset, size int64, w io.Writer) error {
	m.mu.Lock()
	_, ok := m.objects[object]
	m.mu.Unlock()
	if !ok {
		return objectstore.ErrNotFound
	}
	_, err := fmt.Fprintf(w, "[%d+%d]", offset, size)
	return err
}

func (m *memory) UploadFile(_ context.Context, object, path string, _ objectstore.UploadOptions) (objectstore.Object, error) {
	info, err := os.Stat(path)
	if err != nil {
		return objectstore.Object{}, err
	}
	o := objectstore.Object{Name: object, Size: info.Size()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[object] = o
	return o, nil
}

func (m *memory) DeletePrefix(ctx context.Context, prefix string) error {
	if m.hang {
		<-ctx.Done()
		m.gaveUp.Store(true)
		return ctx.Err()
	}
	for _, name := range m.under(prefix) {
		m.mu.Lock()
		delete(m.objects, name)
		m.mu.Unlock()
	}
	return nil
}

func (m *memory) List(_ context.Context, prefix string) iter.Seq2[objectstore.Object, error] {
	return func(yield func(objectstore.Object, error) bool) {
		if m.blind.Add(-1) >= 0 {
			yield(objectstore.Object{}, errors.New("the bucket does not respond"))
			return
		}
		for _, name := range m.under(prefix) {
			if !yield(objectstore.Object{Name: name}, nil) {
				return
			}
		}
	}
}
