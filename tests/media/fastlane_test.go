package media

import (
	"context"
	"testing"

	"github.com/linkreel/linkreel/libs/transcode"
)

// The test occupies the only slot of the only worker. Other files must still be copied or rejected
// immediately. Their ladders run later.
func TestQuickWorkDoesNotWaitBehindALadder(t *testing.T) {
	t.Parallel()
	r := newWorld(t)
	r.env["LINKREEL_FFMPEG_THREADS"], r.env["LINKREEL_JOB_HEARTBEAT"] = "1", "1s"
	r.work()
	m := &maker{t: t, dir: t.TempDir()}
	copied := m.ff(video("1280x720", "25", 2) + " " + tone(2) + x264 + "-g 50" + aac + "copied.mp4")
	encoded := m.ff(video("320x180", "25", 2) + " -c:v mpeg4 encoded.mp4")
	text := m.write("text.mp4", "no film")
	ladder := r.submit("ladder", m.ff(video("640x360", "30", 60)+" -c:v mpeg4 -q:v 5 ladder.mp4"))
	encoding := r.await(ladder.ID, timeLimit, func(x transcode.Record) bool { return x.Progress > downloadedProgress })

	jobs := []transcode.Job{r.submit("copied", copied), r.submit("text", text), r.submit("encoded", encoded)}
	quick := r.await(jobs[0].ID, timeLimit, func(x transcode.Record) bool { return x.Outcome != nil && x.State != transcode.Running })
	refused := r.await(jobs[1].ID, timeLimit, final)
	inspected := r.await(jobs[2].ID, timeLimit, func(x transcode.Record) bool { return x.Inspected || final(x) })
	if x := r.await(ladder.ID, timeLimit, func(transcode.Record) bool { return true }); final(x) || x.Attempt != encoding.Attempt {
		t.Fatalf("the ladder is %s in attempt %d, want it still running in its first attempt", x.State, x.Attempt)
	}
	if quick.State != transcode.Queued || !quick.Inspected || quick.Outcome.Path != transcode.PathCopy || quick.Outcome.Final {
		t.Errorf("the copied video is %s on the path %s, want it queued for its ladder", quick.State, quick.Outcome.Path)
	}
	if refused.Failure == nil || refused.Failure.Code != transcode.NotAVideo {
		t.Errorf("the text file is %s with %v, want NOT_A_VIDEO", refused.State, refused.Failure)
	}
	if inspected.State != transcode.Queued || inspected.Outcome != nil {
		t.Errorf("the video that needs encoding is %s, want queued", inspected.State)
	}
	if err := r.jobs.Delete(context.Background(), ladder.ID); err != nil { // this frees the slot
		t.Fatal(err)
	}
	for _, j := range jobs {
		if x := r.await(j.ID, 2*timeLimit, final); j.VideoID != "text" && (x.State != transcode.Done || x.Tries != 1) {
			t.Errorf("%s ended as %s after %d tries: %v", j.VideoID, x.State, x.Tries, x.Failure)
		} else if x.Outcome != nil {
			r.noOrphans(x)
		}
	}
}

// downloadedProgress is the progress of a job when its encoding starts.
const downloadedProgress = 5
