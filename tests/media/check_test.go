package media

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/Eyevinn/mp4ff/mp4"

	"github.com/linkreel/linkreel/libs/transcode"
)

// stream holds the checker's measurements of one object. The checker parses boxes with its own
// code, not with the code that wrote the description.
type stream struct {
	timescale float64
	frames    int
	first     float64 // presentation time of the first sample
	end       float64 // decode time after the last sample
	fragments []span
	shown     []float64 // presentation time of every sample, in order
}

type span struct{ offset, size, start, end float64 }

func parse(data []byte) (*stream, error) {
	f, err := mp4.DecodeFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if f.Init == nil || len(f.Init.Moov.Traks) != 1 {
		return nil, fmt.Errorf("the object does not have exactly one track")
	}
	trak := f.Init.Moov.Trak
	if trak.Edts != nil {
		return nil, fmt.Errorf("the object has an edit list")
	}
	s := &stream{timescale: float64(trak.Mdia.Mdhd.Timescale), first: math.Inf(1)}
	expected := uint64(0)
	for _, seg := range f.Segments {
		for _, frag := range seg.Fragments {
			start := frag.Moof.Traf.Tfdt.BaseMediaDecodeTime()
			if start != expected {
				return nil, fmt.Errorf("a fragment starts at %d, want %d", start, expected)
			}
			samples, err := frag.GetFullSamples(f.Init.Moov.Mvex.Trex)
			if err != nil {
				return nil, err
			}
			if !samples[0].IsSync() {
				return nil, fmt.Errorf("the fragment at %d starts with a dependent sample", start)
			}
			for _, x := range samples {
				shown := float64(int64(x.DecodeTime)+int64(x.CompositionTimeOffset)) / s.timescale
				s.first = math.Min(s.first, shown)
				s.shown = append(s.shown, shown)
				expected = x.DecodeTime + uint64(x.Dur)
			}
			s.frames += len(samples)
			s.fragments = append(s.fragments, span{
				offset: float64(frag.StartPos), size: float64(frag.Size()),
				start: float64(start) / s.timescale, end: float64(expected) / s.timescale,
			})
		}
	}
	s.end = float64(expected) / s.timescale
	slices.Sort(s.shown)
	return s, nil
}

// object downloads a whole object.
func (r *world) object(name string) []byte {
	r.t.Helper()
	var b bytes.Buffer
	if _, err := r.bucket.Download(context.Background(), name, 0, &b); err != nil {
		r.t.Fatalf("cannot download %s: %v", name, err)
	}
	return b.Bytes()
}

// check compares an outcome with its objects and returns all faults.
func (r *world) check(o *transcode.Outcome, want item) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if len(o.Renditions) == 0 {
		return []string{"the outcome has no renditions"}
	}
	if want.width > 0 && (o.Width != want.width || o.Height != want.height) {
		fault("the size is %dx%d, want %dx%d", o.Width, o.Height, want.width, want.height)
	}
	if want.rungs > 0 && len(o.Renditions) != want.rungs {
		fault("the outcome has %d renditions, want %d", len(o.Renditions), want.rungs)
	}
	if o.HasAudio == want.silent {
		fault("hasAudio is %v, want %v", o.HasAudio, !want.silent)
	}
	if got := o.Path == transcode.PathCopy; got != want.copied {
		fault("the path is %s, but copied is %v", o.Path, want.copied)
	}
	var borders [][]float64
	top := o.Renditions[0]
	for _, rendition := range o.Renditions {
		s, err := parse(r.object(rendition.Object))
		if err != nil {
			fault("%s: %v", rendition.Name, err)
			continue
		}
		frames, rate := want.frames, want.rate
		half := rendition.FrameRate < 0.75*top.FrameRate
		if half {
			if min(rendition.Width, rendition.Height) >= 720 || rate < 31 {
				fault("%s has half the frame rate, want the full rate", rendition.Name)
			}
			frames, rate = (frames+1)/2, rate/2
		}
		if math.Abs(float64(s.frames-frames)) > float64(want.slack) {
			fault("%s has %d frames, want %d±%d", rendition.Name, s.frames, frames, want.slack)
		}
		if math.Abs(rendition.FrameRate-rate) > 0.02*rate {
			fault("%s has the frame rate %.3f, want %.3f", rendition.Name, rendition.FrameRate, rate)
		}
		if s.first != 0 {
			fault("%s starts at %.4f, want 0", rendition.Name, s.first)
		}
		if rendition.Width%2+rendition.Height%2 != 0 {
			fault("%s has the invalid size %dx%d", rendition.Name, rendition.Width, rendition.Height)
		}
		if min(rendition.Width, rendition.Height) > max(16, min(o.Width, o.Height)) {
			fault("%s is larger than the source", rendition.Name)
		}
		faults = append(faults, described(rendition, s)...)
		borders = append(borders, ends(rendition))
	}
	for i, b := range borders {
		if len(b) != len(borders[0]) {
			fault("%s has %d segments, but %s has %d", o.Renditions[i].Name, len(b), top.Name, len(borders[0]))
			continue
		}
		for n := range b {
			if slack := 1.01 / o.Renditions[i].FrameRate; math.Abs(b[n]-borders[0][n]) > slack {
				fault("%s: segment %d ends at %.3f, want %.3f as in the tallest rendition", o.Renditions[i].Name, n, b[n], borders[0][n])
			}
		}
	}
	if o.Audio != nil {
		s, err := parse(r.object(o.Audio.Object))
		if err != nil {
			fault("sound: %v", err)
		} else {
			if math.Abs(s.first) > 0.005 {
				fault("the sound starts at %.4f, want 0", s.first)
			}
			if d := s.end - o.Duration; d > 0.03 || d < -0.15 {
				fault("the sound ends %.3f s after the picture", d)
			}
			faults = append(faults, described(*o.Audio, s)...)
		}
	}
	if o.Poster == "" || !bytes.HasPrefix(r.object(o.Poster), []byte("\xff\xd8")) {
		fault("the outcome has no poster")
	}
	if o.Final {
		if o.Storyboard == nil || !bytes.HasPrefix(r.object(o.Storyboard.Objects[0]), []byte("\xff\xd8")) {
			fault("the outcome has no storyboard")
		}
		faults = append(faults, r.checkDownload(o)...)
	}
	return faults
}

// checkDownload checks that the download shows every frame of the tallest rendition at the same
// time, to the millisecond. Like a player, it applies edit lists.
func (r *world) checkDownload(o *transcode.Outcome) (faults []string) {
	if o.Download == "" {
		return []string{"the outcome has no download"}
	}
	want, err := parse(r.object(o.Renditions[0].Object))
	if err != nil {
		return nil // the rendition is wrong, which check reports
	}
	got := r.shownTimes(o.Download)
	if len(got) != len(want.shown) {
		return []string{fmt.Sprintf("the download shows %d frames, want %d", len(got), len(want.shown))}
	}
	for i := range got {
		if off := got[i] - want.shown[i]; math.Abs(off) > 0.001 {
			return []string{fmt.Sprintf("the download shows frame %d %.1f ms late, want at most 1 ms", i, off*1000)}
		}
	}
	return nil
}

// shownTimes returns the times at which a player shows the frames in an object.
func (r *world) shownTimes(object string) (times []float64) {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "object.mp4")
	if err := os.WriteFile(path, r.object(object), 0o600); err != nil {
		r.t.Fatal(err)
	}
	out, err := exec.Command("ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries", "frame=pts_time", "-of", "default=nw=1:nk=1", path).Output()
	if err != nil {
		r.t.Fatalf("cannot read the frames of %s: %v", object, err)
	}
	for line := range strings.Lines(string(out)) {
		if at, err := strconv.ParseFloat(strings.TrimSpace(line), 64); err == nil {
			times = append(times, at)
		}
	}
	return times
}

// ends returns the times at which a rendition's segments end.
func ends(r transcode.Rendition) []float64 {
	var at float64
	var out []float64
	for _, s := range r.Segments {
		at += s.Duration
		out = append(out, at)
	}
	return out
}

// described compares a rendition's table with the boxes in its object. Every segment must consist
// of whole fragments, the segments must cover all fragments, and the declared bandwidth must match
// the densest segment.
func described(r transcode.Rendition, s *stream) (faults []string) {
	fault := func(format string, args ...any) {
		faults = append(faults, r.Name+": "+fmt.Sprintf(format, args...))
	}
	next := 0
	peak, target := 0.0, 0.0
	for _, seg := range r.Segments {
		target = math.Max(target, math.Round(seg.Duration))
	}
	for i, seg := range r.Segments {
		begin, size, duration := next, 0.0, 0.0
		for next < len(s.fragments) && size < float64(seg.Size) {
			f := s.fragments[next]
			size += f.size
			duration += f.end - f.start
			next++
		}
		if next == begin || s.fragments[begin].offset != float64(seg.Offset) || size != float64(seg.Size) {
			fault("segment %d does not match the fragments in the file", i)
			return faults
		}
		if math.Abs(duration-seg.Duration) > 0.001 {
			fault("segment %d lasts %.3f, but the table declares %.3f", i, duration, seg.Duration)
		}
		if duration >= target/2 {
			peak = math.Max(peak, size*8/duration)
		}
	}
	if next != len(s.fragments) {
		fault("%d fragments are not in any segment", len(s.fragments)-next)
	}
	if peak > 0 && (float64(r.Bandwidth) < 0.9*peak || float64(r.Bandwidth) > 1.1*peak) {
		fault("the table declares %d bit/s, but the densest segment has %.0f", r.Bandwidth, peak)
	}
	return faults
}

// everything returns the joined content of all objects in an outcome.
func (r *world) everything(o *transcode.Outcome) []byte {
	var all [][]byte
	for _, name := range o.Objects() {
		all = append(all, r.object(name))
	}
	return bytes.Join(all, nil)
}
