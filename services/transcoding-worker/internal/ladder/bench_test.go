package ladder

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
)

// BenchmarkAgainstFFmpeg alternates between encoding the ladder for a clip and running ffmpeg
// directly with exactly the same arguments. It reports the median ratio of their CPU times. A ratio
// above 1 is our own overhead: the jail, reading progress, checking and packing the tracks. Each
// round also runs the fast path, and the ladder with one rendition encoded before the others.
func BenchmarkAgainstFFmpeg(b *testing.B) {
	tools, err := ffmpeg.Find("")
	if err != nil {
		b.Fatal(err)
	}
	root := b.TempDir()
	clip := filepath.Join(root, "source.mp4")
	shell(b, root, tools.FFmpeg, "-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=1920x1080:r=30:d=10", "-f", "lavfi", "-i", "sine=d=10",
		"-c:v", "libx264", "-preset", "veryfast", "-g", "60", "-pix_fmt", "yuv420p", "-c:a", "aac", "-shortest", clip)

	// The recorder is a script that records its arguments and then executes ffmpeg.
	recorder := filepath.Join(root, "bin", "ffmpeg")
	if err := os.MkdirAll(filepath.Dir(recorder), 0o755); err != nil {
		b.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nprintf '%%s\\0' \"$@\" > arguments\nexec %s \"$@\"\n", tools.FFmpeg)
	if err := os.WriteFile(recorder, []byte(script), 0o755); err != nil {
		b.Fatal(err)
	}
	recording := *tools
	recording.FFmpeg = recorder

	limits := transcode.Limits{MaxBytes: 1 << 30, MaxDuration: time.Hour, MaxSide: 8192, MaxPixels: 36_000_000}
	folder := func() (dir string, plan Plan) {
		dir = b.TempDir()
		link := filepath.Join(dir, "source")
		if err := os.Link(clip, link); err != nil {
			b.Fatal(err)
		}
		source, err := tools.Probe(b.Context(), dir, link, limits)
		if err != nil {
			b.Fatal(err)
		}
		return dir, Make(source)
	}
	// A ladder's arguments are the same in every round, so record them once.
	dir, plan := folder()
	if _, err := (&Maker{Tools: &recording, MaxPixels: limits.MaxPixels}).Ladder(b.Context(), dir, plan, true, nil); err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "arguments"))
	if err != nil {
		b.Fatal(err)
	}
	var args []string
	for _, a := range bytes.Split(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
		args = append(args, string(a))
	}

	maker := &Maker{Tools: tools, MaxPixels: limits.MaxPixels}
	var ratios, copies, ladders, firsts, splits []float64
	for b.Loop() {
		bare := cpu(b, func() { shell(b, dir, tools.FFmpeg, args...) })
		ladderDir, plan := folder()
		ladder := cpu(b, func() {
			if _, err := maker.Ladder(b.Context(), ladderDir, plan, true, nil); err != nil {
				b.Fatal(err)
			}
		})
		splitDir, plan := folder()
		first, rest, ok := plan.First()
		if !ok {
			b.Fatal("First found no rendition to encode first, want one")
		}
		split := func(p Plan, sound bool) float64 {
			return cpu(b, func() {
				if _, err := maker.Ladder(b.Context(), splitDir, p, sound, nil); err != nil {
					b.Fatal(err)
				}
			}).Seconds()
		}
		one, others := split(first, true), split(rest, false)
		copyDir, plan := folder()
		fast := cpu(b, func() {
			if _, err := maker.Copy(b.Context(), copyDir, plan); err != nil {
				b.Fatal(err)
			}
		})
		ratios = append(ratios, ladder.Seconds()/bare.Seconds())
		copies = append(copies, fast.Seconds()/ladder.Seconds())
		ladders = append(ladders, ladder.Seconds())
		firsts = append(firsts, one/ladder.Seconds())
		splits = append(splits, (one+others)/ladder.Seconds())
	}
	b.ReportMetric(middle(ratios), "×bare-ffmpeg")
	b.ReportMetric(100*middle(copies), "%-copy/ladder")
	b.ReportMetric(middle(firsts), "first/ladder")
	b.ReportMetric(middle(splits), "first+rest/ladder")
	b.ReportMetric(middle(ladders)/10, "CPU-s/source-s")
	b.ReportMetric(0, "ns/op")
}

// cpu returns the CPU time that fn takes in this process and its children.
func cpu(b *testing.B, fn func()) time.Duration {
	b.Helper()
	now := func() (total time.Duration) {
		for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
			var u syscall.Rusage
			if err := syscall.Getrusage(who, &u); err != nil {
				b.Fatal(err)
			}
			total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
		return total
	}
	before := now()
	fn()
	return now() - before
}

func shell(b *testing.B, dir, program string, args ...string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v\n%s", program, err, out)
	}
}

func middle(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[len(s)/2]
}
