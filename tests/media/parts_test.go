package media

import (
	"context"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/transcode"
)

// TestLongSourceIsSharedByWorkers cuts a source of two and a half minutes among
// two workers, kills the one that holds the whole job, and expects every
// picture once and nothing left over.
func TestLongSourceIsSharedByWorkers(t *testing.T) {
	t.Parallel()
	if !full() {
		t.Skip("takes two minutes; LINKREEL_FULL=1 runs it, and the worker's own tests join parts in every run")
	}
	r := newWorld(t)
	m := &maker{t: t, dir: t.TempDir()}
	source := m.ff(video("192x108", "30000/1001", 150) + " " + tone(150) + " -c:v mpeg4 -q:v 8 -g 90" + aac + "a.mp4")
	const frames, parts = 4496, 2
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
		t.Fatalf("job ended as %s: %v", record.State, record.Failure)
	}
	if len(workers) < 2 {
		t.Errorf("parts were done by %d workers, want 2", len(workers))
	}
	faults := r.check(record.Outcome, item{frames: frames, rate: 29.97, width: 192, height: 108})
	for _, f := range faults {
		t.Error(f)
	}
	for i := range parts {
		if part, err := r.jobs.Get(context.Background(), transcode.PartID(j.ID, i)); err == nil {
			t.Errorf("part %d is still there as %s", i, part.State)
		}
	}
	// The helper may still be storing what nobody waits for; it finds out soon.
	for end := time.Now().Add(30 * time.Second); len(orphans(record, r.objects("long"))) > 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		r.noOrphans(record)
	}
	r.noOrphans(record)
}
