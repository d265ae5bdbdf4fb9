package media

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/linkreel/linkreel/libs/transcode"
)

// At this moment in the source, the picture flashes and the sound beeps. Both must still coincide
// in the result. A test that parses the boxes cannot check this, because an encoder's delay is
// inside the samples.
const moment = 1.0

func flash(rate string, length float64) string {
	return fmt.Sprintf("-f lavfi -i color=black:s=320x180:r=%s:d=%g,drawbox=c=white:t=fill:enable='gte(t\\,%g)'", rate, length, moment-0.001)
}

func beep(from, length float64, rate int) string {
	// If the sound starts later than the picture, the beep comes earlier on the sound's own
	// timeline.
	return fmt.Sprintf("-f lavfi -i aevalsrc='if(gte(t\\,%g)\\,0.7*cos(2*PI*1000*(t-%g))\\,0)':s=%d:d=%g", moment-from, moment-from, rate, length)
}

func TestPictureAndSoundStayTogether(t *testing.T) {
	t.Parallel()
	r := newWorld(t)
	r.work()
	for i, tt := range []struct {
		name  string
		make  func(*maker) string
		often bool
	}{
		{"copied with one frame of delay", clip(flash("25", 3) + " " + beep(0, 3, 48000) + x264 + "-g 50" + aac + "a.mp4"), true},
		{"copied picture, encoded sound", clip(flash("25", 3) + " " + beep(0, 3, 48000) + x264 + "-g 50 -c:a ac3 a.mp4"), true},
		{"copied at 15 fps with B-frames", clip(flash("15", 4) + " " + beep(0, 4, 48000) + x264 + "-bf 2 -g 30" + aac + "a.mp4"), true},
		{"encoded from matroska", clip(flash("30000/1001", 3) + " " + beep(0, 3, 48000) + x264 + "-c:a libvorbis a.mkv"), true},
		{"encoded from a transport stream", clip(flash("25", 3) + " " + beep(0, 3, 48000) + x264 + "-bf 2 -g 25" + aac + "a.ts"), false},
		{"44.1 kHz", clip(flash("30", 3) + " " + beep(0, 3, 44100) + x264 + "-g 60" + aac + "a.mp4"), false},
		// ffmpeg's own WebM and AVI files are out of sync by up to 15 ms if a codec has a delay, so
		// these two cases use codecs without a delay.
		{"opus with an encoder delay", clip(flash("25", 3) + " " + beep(0, 3, 48000) + x264 + "-c:a libopus a.mp4"), false},
		{"avi", clip(flash("25", 3) + " " + beep(0, 3, 44100) + " -c:v mjpeg -c:a pcm_s16le a.avi"), false},
		{"sound that starts 0.3 s late", clip(flash("25", 3) + " -itsoffset 0.3 " + beep(0.3, 2.5, 48000) + x264 + aac + "a.mp4"), false},
		{"picture that starts 0.4 s late", clip("-itsoffset 0.4 " + flash("25", 3) + " " + beep(-0.4, 3, 48000) + x264 + aac + "a.mkv"), false},
		{"timestamps that start at 10 s", clip(flash("25", 3) + " " + beep(0, 3, 48000) + x264 + aac + "-output_ts_offset 10 a.ts"), false},
		{"a start trimmed by an edit list", func(m *maker) string {
			m.ff("-f lavfi -i color=black:s=320x180:r=25:d=5,drawbox=c=white:t=fill:enable='gte(t\\,2.479)' -f lavfi -i aevalsrc='if(gte(t\\,2.48)\\,0.7*cos(2*PI*1000*(t-2.48))\\,0)':s=48000:d=5" + x264 + "-g 125" + aac + "b.mp4")
			return m.ff("-ss 1.48 -i @b.mp4 -c copy a.mp4")
		}, false},
	} {
		if !full() && !tt.often {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			m := &maker{t: t, dir: t.TempDir()}
			j := r.submit(fmt.Sprint("sync", i), tt.make(m))
			record := r.await(j.ID, timeLimit, final)
			if record.Outcome == nil {
				t.Fatalf("the job ended as %s without an outcome: %v", record.State, record.Failure)
			}
			o := record.Outcome
			seen, heard := r.whenSeen(t, o.Renditions[len(o.Renditions)-1]), r.whenHeard(t, o.Audio.Object)
			if off := heard - seen; math.Abs(off) > 0.005 {
				t.Errorf("the sound is %.1f ms late (flash at %.4f, beep at %.4f), want at most 5 ms", off*1000, seen, heard)
			}
			// The download shows every frame at the rendition's time, so its sound must also match
			// the rendition's timing.
			if late := r.whenHeard(t, o.Download) - heard; math.Abs(late) > 0.001 {
				t.Errorf("in the download, the sound is %.1f ms late, want at most 1 ms", late*1000)
			}
			for _, fault := range r.checkDownload(o) {
				t.Error(fault)
			}
			if seen < moment-0.05 || seen > moment+0.05 {
				t.Errorf("the flash is at %.3f, want about %.3f", seen, moment)
			}
		})
	}
}

// When a recorded screen no longer changes, the recording ends with sound only. The result must
// play all of the sound over the last frame.
func TestSoundThatGoesOnIsHeardOverTheLastPicture(t *testing.T) {
	t.Parallel()
	r := newWorld(t)
	r.work()
	m := &maker{t: t, dir: t.TempDir()}
	path := clip("-f lavfi -i color=black:s=320x180:r=25:d=2,drawbox=c=white:t=fill:enable='gte(t\\,1.9)' " +
		"-f lavfi -i aevalsrc='if(gte(t\\,4.5)\\,0.7*cos(2*PI*1000*t)\\,0)':s=48000:d=5" + x264 + "-g 50" + aac + "a.mp4")(m)
	record := r.await(r.submit("sound-goes-on", path).ID, timeLimit, final)
	if record.Outcome == nil {
		t.Fatalf("the job ended as %s without an outcome: %v", record.State, record.Failure)
	}
	o := record.Outcome
	if math.Abs(o.Duration-5) > 0.05 {
		t.Errorf("the duration is %v s, want the sound's 5 s", o.Duration)
	}
	if heard := r.whenHeard(t, o.Audio.Object); math.Abs(heard-4.5) > 0.005 {
		t.Errorf("the beep is at %v s, want 4.5", heard)
	}
	small := o.Renditions[len(o.Renditions)-1]
	luma := r.decode(t, small.Object, "-vf", "scale=1:1:flags=area,format=gray", "-fps_mode", "passthrough", "-f", "rawvideo")
	if len(luma) < 124 || slices.Min(luma[50:]) < 200 {
		t.Errorf("the smallest rendition has %d frames, want at least 124, white from frame 50 on", len(luma))
	}
}

// decode converts an object to raw samples.
func (r *world) decode(t *testing.T, object string, args ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "object.mp4")
	if err := os.WriteFile(path, r.object(object), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ffmpeg", append(append([]string{"-v", "error", "-i", path}, args...), "-")...).Output()
	if err != nil {
		t.Fatalf("cannot decode %s: %v", object, err)
	}
	return out
}

func (r *world) whenSeen(t *testing.T, v transcode.Rendition) float64 {
	t.Helper()
	raw := r.decode(t, v.Object, "-vf", "scale=1:1:flags=area,format=gray", "-fps_mode", "passthrough", "-f", "rawvideo")
	for i, luma := range raw {
		if luma > 128 {
			return float64(i) / v.FrameRate
		}
	}
	t.Fatal("the picture does not flash")
	return 0
}

func (r *world) whenHeard(t *testing.T, object string) float64 {
	t.Helper()
	raw := r.decode(t, object, "-vn", "-af", "aresample=async=1:first_pts=0", "-ac", "1", "-ar", "48000", "-f", "s16le")
	for i := 0; i+1 < len(raw); i += 2 {
		if v := int16(binary.LittleEndian.Uint16(raw[i:])); v > 8000 || v < -8000 {
			return float64(i/2) / 48000
		}
	}
	t.Fatal("the sound does not contain a beep")
	return 0
}
