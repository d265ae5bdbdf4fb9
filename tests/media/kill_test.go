package media

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/transcode"
)

// objects lists the objects under a video's prefix.
func (r *world) objects(videoID string) []string {
	r.t.Helper()
	var names []string
	for o, err := range r.bucket.List(context.Background(), transcode.VideoPrefix(videoID)) {
		if err != nil {
			r.t.Fatal(err)
		}
		names = append(names, o.Name)
	}
	return names
}

// orphans returns the objects that the videos service's janitor removes after a job: the objects
// that its attempts and parts wrote and that are not in the outcome.
func orphans(record transcode.Record, objects []string) (names []string) {
	published := record.Outcome.Objects()
	for _, object := range objects {
		if generation, _, ok := transcode.ParsePrefix(record.VideoID, object); ok && generation == record.Generation && !slices.Contains(published, object) {
			names = append(names, object)
		}
	}
	return names
}

// noOrphans removes the objects that the janitor would remove. After that, it expects exactly the
// outcome's objects.
func (r *world) noOrphans(record transcode.Record) {
	r.t.Helper()
	for _, name := range orphans(record, r.objects(record.VideoID)) {
		if err := r.bucket.Delete(context.Background(), name, 0); err != nil {
			r.t.Fatal(err)
		}
	}
	if got, want := len(r.objects(record.VideoID)), len(record.Outcome.Objects()); got != want {
		r.t.Errorf("%s: %d objects remain, want the %d from the outcome", record.VideoID, got, want)
	}
}

// terminate stops a worker with SIGTERM and waits for it.
func (p *process) terminate() {
	_ = p.Process.Signal(syscall.SIGTERM)
	_ = p.Wait()
}

// Stopping the worker must be fast and must not cost the job an attempt.
func TestStoppedWorkerReturnsItsJob(t *testing.T) {
	t.Parallel()
	r := newWorld(t)
	m := &maker{t: t, dir: t.TempDir()}
	source := m.ff(video("1280x720", "30", 20) + " -c:v mpeg4 -q:v 5 a.mp4")
	w := r.start(nil)
	j := r.submit("stop", source)
	running := r.await(j.ID, timeLimit, func(x transcode.Record) bool { return x.Progress > 5 })
	begun := time.Now()
	w.terminate()
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the worker took %v to stop, want at most 10 s", took)
	}
	record := r.await(j.ID, 5*time.Second, func(x transcode.Record) bool { return true })
	// The encoding is attempt 1, or attempt 2 if the fast lane inspected the job first.
	if record.State != transcode.Queued || record.Tries != 0 || record.Attempt != running.Attempt {
		t.Errorf("after the stop, the job is %s with %d tries in attempt %d, want queued with 0 tries in attempt %d", record.State, record.Tries, record.Attempt, running.Attempt)
	}
	r.noScratch()
}

// The test empties Redis while a job is queued. Later it stops Redis.
func TestJobsOutliveRedis(t *testing.T) {
	t.Parallel()
	r := newWorld(t)
	m := &maker{t: t, dir: t.TempDir()}
	source := m.ff(video("320x180", "25", 1) + x264 + "a.mp4")
	if err := r.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	j := r.submit("without", source)
	r.env["LINKREEL_JOB_SWEEP"] = "1s"
	r.work()
	if record := r.await(j.ID, timeLimit, final); record.State != transcode.Done {
		t.Errorf("without Redis, the job ended as %s, want done: %v", record.State, record.Failure)
	}
	if err := r.redis.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	j = r.submit("again", source)
	if record := r.await(j.ID, timeLimit, final); record.State != transcode.Done {
		t.Errorf("after Redis restarted, the job ended as %s, want done: %v", record.State, record.Failure)
	}
}

// The test deletes a video during its job.
func TestCancelledJobStopsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newWorld(t)
	r.env["LINKREEL_JOB_HEARTBEAT"], r.env["LINKREEL_JOB_LEASE"] = "500ms", "5s"
	r.work()
	m := &maker{t: t, dir: t.TempDir()}
	source := m.ff(video("1280x720", "30", 20) + x264 + "-g 60 a.mp4")
	j := r.submit("gone", source)
	// The copy is published immediately, so the deletion interrupts the ladder.
	r.await(j.ID, timeLimit, func(x transcode.Record) bool { return x.Outcome != nil })
	if err := r.jobs.Delete(context.Background(), j.ID); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); len(r.objects("gone")) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("objects remain after the job was deleted: %v", r.objects("gone"))
		}
	}
}
