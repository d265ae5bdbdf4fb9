package media

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/transcode"
)

// Two workers share a source of more than two minutes, the minimum for splitting. The test kills
// the worker that runs the whole job. Afterwards, every frame must exist exactly once, and there
// must not be any leftover objects. The source has ten frames per second by default and a
// fractional rate with LINKREEL_FULL.
func TestLongSourceIsSharedByWorkers(t *testing.T) {
	t.Parallel()
	r := newWorld(t)
	m := &maker{t: t, dir: t.TempDir()}
	seconds, grid, want := 125.0, "10", item{frames: 1250, rate: 10, width: 192, height: 108}
	if full() {
		seconds, grid, want = 150.0, "30000/1001", item{frames: 4496, rate: 29.97, width: 192, height: 108}
	} else {
		r.soon()
	}
	source := m.ff(video("192x108", grid, seconds) + " " + tone(seconds) + " -c:v mpeg4 -q:v 8 -g 90" + aac + "a.mp4")
	const parts = 2
	more := map[string]string{"LINKREEL_FFMPEG_THREADS": "1", "LINKREEL_JOB_SWEEP": "1s"}
	first := r.start(more)
	j := r.submit("long", source)
	workers := map[string]bool{}
	seen := func() {
		for i := range parts {
			if part, err := r.jobs.Get(context.Background(), transcode.PartID(j.ID, i)); err == nil && part.Worker != "" {
				workers[part.Worker] = true
			}
		}
	}
	r.await(j.ID, timeLimit, func(x transcode.Record) bool { seen(); return len(workers) > 0 || final(x) })
	// Freeze the first worker. On a busy machine, it could otherwise encode all parts before the
	// other worker has started.
	if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.start(more)
	killed := false
	record := r.await(j.ID, 2*timeLimit, func(x transcode.Record) bool {
		seen()
		if len(workers) > 1 && !killed {
			killed = true
			first.kill()
		}
		return final(x)
	})
	if record.State != transcode.Done {
		t.Fatalf("the job ended as %s, want done: %v", record.State, record.Failure)
	}
	if len(workers) < 2 {
		t.Errorf("%d workers encoded the parts, want 2", len(workers))
	}
	faults := r.check(record.Outcome, want)
	for _, f := range faults {
		t.Error(f)
	}
	for i := range parts {
		if part, err := r.jobs.Get(context.Background(), transcode.PartID(j.ID, i)); err == nil {
			t.Errorf("the job for part %d still exists in state %s", i, part.State)
		}
	}
	// The other worker may still be storing a part that the job no longer needs. It will soon
	// notice.
	for end := time.Now().Add(30 * time.Second); len(orphans(record, r.objects("long"))) > 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		r.noOrphans(record)
	}
	r.noOrphans(record)
}
