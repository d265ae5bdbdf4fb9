package web

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// In both containers, and no matter how the browser splits its output, the size of every part of a
// recording except the last is a multiple of 256 KiB. Decoders skip the padding and find every
// frame, both in the whole file and in the parts that remain if the tab crashes.
func TestFramerKeepsEveryFrame(t *testing.T) {
	t.Parallel()
	run := func(program string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, args...).Output()
		if err != nil {
			t.Fatalf("%s %q: %v", program, args, err)
		}
		return string(out)
	}
	// packets lists the frames in a file with their times, one per line.
	packets := func(file string, more ...string) (lines []string) {
		t.Helper()
		args := append(append([]string{"-nostdin", "-v", "quiet", "-i", file}, more...), "-c", "copy", "-f", "framemd5", "-")
		for line := range strings.Lines(run("ffmpeg", args...)) {
			if line[0] != '#' {
				lines = append(lines, line)
			}
		}
		return lines
	}
	for kind, codecs := range map[string][]string{
		"webm": {"-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "600k", "-c:a", "libopus", "-live", "1", "-cluster_time_limit", "1000"},
		"mp4":  {"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac", "-movflags", "empty_moov+frag_keyframe+default_base_moof"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			original, uploaded := filepath.Join(dir, "original."+kind), filepath.Join(dir, "uploaded."+kind)
			run("ffmpeg", append(append([]string{"-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=4", "-f", "lavfi", "-i", "sine=d=4", "-g", "25", "-shortest"}, codecs...), original)...)
			want := packets(original)
			if len(want) < 250 {
				t.Fatalf("the recording has %d frames, want at least 250", len(want))
			}
			for _, cut := range []struct{ size, every int }{{61, 1000}, {1024, 3}, {20_011, 1}, {1 << 22, 1}} {
				name := fmt.Sprintf("%d-byte pieces, padded after every %d pieces", cut.size, cut.every)
				var sizes []int
				if err := json.Unmarshal([]byte(run("node", "testdata/framer.mjs", "testdata/framer.js", original, uploaded, fmt.Sprint(cut.size), fmt.Sprint(cut.every))), &sizes); err != nil {
					t.Fatal(err)
				}
				last := len(sizes) - 1
				total := 0
				for i, size := range sizes[:last] {
					total += size
					if size == 0 || size%(256<<10) != 0 {
						t.Errorf("%s: part %d of %d is %d bytes long, want a positive multiple of 256 KiB", name, i, len(sizes), size)
					}
				}
				if got := packets(uploaded); strings.Join(got, "") != strings.Join(want, "") {
					t.Errorf("%s: the upload has %d frames, want the original's %d", name, len(got), len(want))
				}
				if err := os.Truncate(uploaded, int64(total)); err != nil {
					t.Fatal(err)
				}
				// The last padding is at most 61,000 bytes before the end of about 350,000.
				if got := packets(uploaded, "-map", "0:v"); len(got) < 70 {
					t.Errorf("%s: without the last part, %d of 100 video frames remain, want at least 70", name, len(got))
				}
			}
		})
	}
}
