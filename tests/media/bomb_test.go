package media

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/transcode"
)

// deflated creates a small file of large pictures. Each picture is just within the limit.
func deflated(m *maker, pictures int) string {
	m.ff("-f lavfi -i color=c=red:s=6000x6000:r=25 -frames:v 1 -c:v png one.mov")
	return m.ff(fmt.Sprintf("-stream_loop %d -i @one.mov -c copy a.mov", pictures-1))
}

// swelling creates a file that declares one second of 64×64 pixels but continues with minutes of
// 4096×4096. The header declares far less work than the file needs, so only the time limit can stop
// it.
func swelling(m *maker) string {
	small := m.read(m.ff(video("64x64", "25", 1) + x264 + "small.ts"))
	large := m.read(m.ff("-f lavfi -i color=c=red:s=4096x4096:r=25:d=1" + x264 + "-g 25 large.ts"))
	long := m.path("long.ts")
	if err := os.WriteFile(long, large, 0o600); err != nil {
		m.t.Fatal(err)
	}
	return m.write("swelling.ts", string(small), string(m.read(m.ff("-stream_loop 60 -i @long.ts -c copy looped.ts"))))
}

// The test runs the same jobs twice on a worker with two slots: first alone, then while the other
// slot processes a file that uses its whole time limit.
func TestGoodJobsBesideABomb(t *testing.T) {
	jobs, pictures := 3, 15
	if full() { // not in parallel, because CPU time depends on other programs
		jobs, pictures = 20, 150
	} else {
		t.Parallel()
	}
	r := newWorld(t)
	r.env["LINKREEL_WORKER_SLOTS"], r.env["LINKREEL_FFMPEG_THREADS"] = "2", "1"
	m := &maker{t: t, dir: t.TempDir()}
	good := m.ff(video("640x360", "25", 3) + " " + tone(3) + " -c:v mpeg4 -q:v 5" + aac + "good.mp4")
	type bomb struct {
		name, file string
		end        transcode.Code // empty if the file becomes ready despite its cost
	}
	bombs := []bomb{{"large pictures", deflated(m, pictures), ""}}
	if full() {
		bombs = append(bombs, bomb{"a swelling file", swelling(m), transcode.Timeout})
	}
	r.work()

	// round runs the valid jobs and returns their CPU time.
	round := func(name string) (cpu time.Duration) {
		var all []transcode.Job
		for i := range jobs {
			all = append(all, r.submit(fmt.Sprint(name, i), good))
		}
		for _, j := range all {
			x := r.await(j.ID, 3*timeLimit, final)
			if x.State != transcode.Done || x.Tries != 1 {
				t.Errorf("%s ended as %s after %d tries: %v", j.VideoID, x.State, x.Tries, x.Failure)
			}
			for end := time.Now().Add(timeLimit); witnessed.cpu(j.VideoID) == 0 && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond) // the worker logs the time just after the job ends
			}
			cpu += witnessed.cpu(j.VideoID)
		}
		return cpu
	}
	alone := round("alone")
	for i, b := range bombs {
		videoID := fmt.Sprint("bomb", i)
		begun := time.Now()
		j := r.submit(videoID, b.file)
		r.await(j.ID, timeLimit, func(x transcode.Record) bool { return x.Progress >= downloadedProgress || final(x) })
		beside := round(fmt.Sprint("beside", i, "-"))
		lasted := time.Since(begun)
		if x := r.await(j.ID, time.Second, func(transcode.Record) bool { return true }); final(x) && x.UpdatedAt.Sub(begun) < lasted/2 {
			t.Errorf("%s ended after %v of %v, want at least half of the time for a meaningful result", b.name, x.UpdatedAt.Sub(begun), lasted)
		}
		// A bomb's own limit is at least a minute of CPU time, depending on its header.
		x := r.await(j.ID, 10*time.Minute, final)
		code := transcode.Code("")
		if x.Failure != nil {
			code = x.Failure.Code
		}
		if code != b.end || x.Tries != 1 {
			t.Errorf("%s ended as %s %q after %d tries, want %q", b.name, x.State, code, x.Tries, b.end)
		}
		for end := time.Now().Add(timeLimit); witnessed.cpu(videoID) == 0 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		ratio := beside.Seconds() / alone.Seconds()
		t.Logf("%d valid jobs took %.1f s of CPU time alone and %.1f s together with %s, %.2f ×; the bomb ended as %s %q after %.1f s and %.1f s of CPU time",
			jobs, alone.Seconds(), beside.Seconds(), b.name, ratio, x.State, code, x.UpdatedAt.Sub(begun).Seconds(), witnessed.cpu(videoID).Seconds())
		if full() && ratio > 1.2 {
			t.Errorf("together with %s, the valid jobs took %.2f × the CPU time of running alone, want at most 1.2", b.name, ratio)
		}
	}
}
