package ladder

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
)

func TestPartsAreCutAtSegmentsAndCoverEveryPicture(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit func(*ffmpeg.Source)
		want int
	}{
		"short":        {nil, 1},
		"five minutes": {func(s *ffmpeg.Source) { s.Video.Frames, s.Video.Span = 9000, 300 }, 5},
		"five minutes at 29.97": {func(s *ffmpeg.Source) {
			s.Video.Frames, s.Video.Span, s.Video.Rate = 9000, 300.3, ffmpeg.Rate{Num: 30000, Den: 1001}
		}, 5},
		"two minutes, then only audio": {func(s *ffmpeg.Source) {
			s.Video.Frames, s.Video.Span, s.Video.Hold = 3600, 120, 300
		}, 2},
		"transport stream": {func(s *ffmpeg.Source) { s.Video.Frames, s.Video.Span, s.Demuxer = 9000, 300, "mpegts" }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Make(source(tt.edit))
			parts := p.Parts()
			if len(parts) != tt.want {
				t.Errorf("Parts returned %d parts, want %d: %v", len(parts), tt.want, parts)
			}
			next := 0
			for _, part := range parts {
				if part.From != next || part.Frames <= 0 || part.From%(3*p.GOP) != 0 {
					t.Errorf("got part %+v, want it to start at frame %d, the end of the previous part, and at a segment boundary", part, next)
				}
				next += part.Frames
			}
			if next != p.Frames {
				t.Errorf("the parts have %d frames in total, want %d", next, p.Frames)
			}
		})
	}
}

// Consecutive frames in the source differ in brightness, so the test detects a frame that is
// missing, duplicated or out of order at a boundary.
func TestJoinedPartsHaveEveryPictureOnce(t *testing.T) {
	t.Parallel()
	tools, err := ffmpeg.Find("")
	if err != nil {
		t.Fatalf("this test needs ffmpeg: %v", err)
	}
	tools.Threads = 2
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "source")
	// 29.97 frames per second, with groups that do not match the parts' boundaries.
	args := "-v error -y -f lavfi -i color=s=128x72:r=30000/1001:d=24,format=gray,geq=lum='16+mod(N*7\\,200)' -c:v libx264 -preset ultrafast -qp 0 -g 77 -bf 2 -pix_fmt yuv420p -f mp4 " + path
	if out, err := exec.Command("ffmpeg", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("make source: %v\n%s", err, out)
	}
	s, err := tools.Probe(t.Context(), dir, path, transcode.Limits{MaxDuration: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	p := Make(s)
	m := &Maker{Tools: tools}
	var files [][]string
	segment := 3 * p.GOP
	for i, part := range []Part{{0, segment}, {segment, 2 * segment}, {3 * segment, p.Frames - 3*segment}} {
		sub := filepath.Join(dir, string(rune('a'+i)))
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		// A part's ffmpeg process can only access the part's own folder.
		own := p
		src := *p.Source
		src.Path = filepath.Join(sub, "source")
		own.Source = &src
		if err := os.Link(path, src.Path); err != nil {
			t.Fatal(err)
		}
		made, err := m.Part(t.Context(), sub, own, part, nil)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, made)
	}
	tracks, err := m.Join(dir, p, files, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range files {
		if _, err := os.Stat(part[0]); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Stat of a joined part returned %v, want the file removed", err)
		}
	}
	if info, err := os.Stat(tracks.Video[0].Path); err != nil || info.Size() > p.Rungs[0].bytes(p.Duration) {
		t.Errorf("want a rendition of at most the planned %d bytes, got %v bytes and error %v", p.Rungs[0].bytes(p.Duration), info.Size(), err)
	}
	if got := tracks.Video[0].Track.Samples(); got != p.Frames || p.Frames != s.Video.Frames {
		t.Errorf("the rendition has %d frames, want %d", got, s.Video.Frames)
	}
	luma, err := exec.Command("ffmpeg", "-v", "error", "-i", tracks.Video[0].Path, "-vf", "scale=1:1:flags=area,format=gray", "-fps_mode", "passthrough", "-f", "rawvideo", "-").Output()
	if err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for i, got := range luma {
		want := 16 + i*7%200
		if diff := int(got) - want; diff < -4 || diff > 4 {
			if wrong++; wrong < 5 {
				t.Errorf("frame %d has brightness %d, want %d", i, got, want)
			}
		}
	}
}
