// Package ladder produces the renditions for a probed source. It plans the renditions, runs
// ffmpeg to encode them, checks that they are complete and have the same cuts, and describes
// them.
//
// It guarantees that every track it returns has one continuous timeline from zero, that all video
// tracks have the same segment boundaries, and that audio and video are at most five milliseconds
// out of sync. Otherwise, it returns an error, which is a *transcode.Failure if the source is the
// cause.
package ladder

import (
	"fmt"
	"math"
	"slices"

	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
)

// segmentSeconds is the target length of a segment, three closed groups of
// frames.
const segmentSeconds = 6

// Rung is one rendition to encode.
type Rung struct {
	Name          string
	Width, Height int
	Kbps          int  // maximum bit rate
	Half          bool // uses every second frame
}

// Plan describes the renditions for a source.
type Plan struct {
	Source *ffmpeg.Source

	Rungs    []Rung      // tallest first; the tallest has the source's frame size if that is allowed
	Rate     ffmpeg.Rate // rate of full-rate rungs
	Step     int         // one of every Step frames on the source's grid is kept
	Grid     ffmpeg.Rate // the source's grid before Step
	Frames   int         // number of frames in a full-rate rung
	Held     int         // frames at the end that repeat the source's last frame for audio that continues after it
	Duration float64
	GOP      int // an even number of frames
	Cuts     []float64
	ToneMap  bool
}

// rungs lists the short sides that a ladder may have, with their maximum bit rates in kbit/s:
// kbps up to 30 frames per second, and fast above that.
var rungs = []struct{ short, kbps, fast int }{
	{1080, 5000, 7500}, {720, 2800, 4200}, {480, 1400, 2100}, {360, 800, 1200},
}

const (
	maxRate     = 60.0
	longestSide = 3840
	// The area of a frame may be at most widest times the square of its short side. Frames wider
	// than 2.5:1 are scaled down because decoders would reject them.
	widest = 2.5
)

// Make returns the plan for a source.
func Make(s *ffmpeg.Source) Plan {
	v := s.Video
	p := Plan{Source: s, Grid: v.Rate, Rate: v.Rate, Step: 1, ToneMap: v.Transfer == "smpte2084" || v.Transfer == "arib-std-b67"}
	if v.Rate.Float() < 1 {
		p.Grid = ffmpeg.Rate{Num: 1, Den: 1}
	}
	for p.Step = 1; p.Grid.Float()/float64(p.Step) > maxRate+0.01; p.Step++ {
		// 120 and 240 become 60. Other rates are divided by the smallest integer that makes
		// them low enough.
		continue
	}
	frames := float64(v.Frames)
	if !v.Constant || p.Grid != v.Rate {
		frames = math.Round(v.Span * p.Grid.Float())
	}
	p.Rate = ffmpeg.Rate{Num: p.Grid.Num, Den: p.Grid.Den * p.Step}
	// If the screen stops changing, a recording may end with audio but no new frames. That audio
	// must be kept.
	p.Held = int(math.Round(v.Hold * p.Grid.Float()))
	p.Frames = max(1, int(math.Ceil((frames+float64(p.Held))/float64(p.Step))))
	p.Duration = float64(p.Frames) / p.Rate.Float()
	// Every rung has a keyframe every two seconds, at the same frames, because players can switch
	// rungs only at a keyframe.
	p.GOP = max(2, 2*int(math.Round(p.Rate.Float())))

	width, height := fit(v.DisplayWidth, v.DisplayHeight, 1080)
	top := min(width, height)
	p.Rungs = append(p.Rungs, p.rung(top, width, height))
	for _, r := range rungs {
		if float64(r.short) > 0.85*float64(top) {
			// This rung is too similar to the top rung: it would need another encode and look the
			// same.
			continue
		}
		w, h := fit(v.DisplayWidth, v.DisplayHeight, r.short)
		p.Rungs = append(p.Rungs, p.rung(r.short, w, h))
	}
	for i := 0; len(p.Cuts) < p.Frames; i++ {
		// Three GOPs make a six-second segment, the recommended length for HLS. Cuts are counted
		// in frames, not seconds, so rounding errors do not accumulate.
		at := (i + 1) * 3 * p.GOP
		if float64(p.Frames-at)/p.Rate.Float() <= 0.2 {
			break
		}
		p.Cuts = append(p.Cuts, float64(at)/p.Rate.Float())
	}
	return p
}

// fit scales a frame size down until its short side is at most short, and makes both sides
// even. It never scales up.
func fit(width, height, short int) (int, int) {
	w, h := float64(width), float64(height)
	scale := min(1, float64(short)/min(w, h), longestSide/max(w, h))
	if limit := widest * float64(short) * float64(short); w*h*scale*scale > limit {
		scale = math.Sqrt(limit / (w * h))
	}
	if scale == 1 {
		return max(2, width/2*2), max(2, height/2*2)
	}
	return even(w * scale), even(h * scale)
}

func even(x float64) int { return max(2, int(math.Round(x/2))*2) }

func (p *Plan) rung(short, width, height int) Rung {
	r := Rung{Name: fmt.Sprintf("%dp", short), Width: width, Height: height}
	fast := p.Rate.Float() > 30.5
	// Small renditions of high-rate sources use every second frame. The tallest rendition never
	// does.
	r.Half = fast && short < 720 && len(p.Rungs) > 0
	for i, step := range rungs {
		if short > step.short && i > 0 {
			break
		}
		kbps := step.kbps
		if fast && !r.Half {
			kbps = step.fast
		}
		// The bit rate grows with the area to the power of 3/4 because neighbouring pixels of a
		// larger frame are more similar. A source between two steps gets a rate between theirs.
		r.Kbps = int(float64(kbps) * math.Pow(float64(short)/float64(step.short), 1.5))
	}
	// A higher bit rate than the source's would not improve the quality.
	v := p.Source.Video
	if v.Span > 0 && v.Bytes > 0 {
		share := min(1, math.Pow(float64(width*height)/float64(v.Width*v.Height), 0.75))
		source := float64(v.Bytes) * 8 / v.Span / 1000 * efficiency(v.Codec)
		r.Kbps = min(r.Kbps, int(1.2*source*share))
	}
	r.Kbps = max(r.Kbps, 100)
	return r
}

// efficiency returns how many bits of H.264 give the same quality as one bit of the codec.
func efficiency(codec string) float64 {
	switch codec {
	case "av1", "vvc":
		return 2.5
	case "hevc", "vp9":
		return 2
	}
	return 1
}

// Space returns the maximum disk space for a plan, in bytes. copied is the maximum until the
// source has been copied, and whole is the overall maximum. Space counts each rendition at
// its maximum bit rate plus a margin for the encoder's buffer, so no rendition is larger.
func (p *Plan) Space() (copied, whole int64) {
	source, sound := p.Source.Size, p.sound()
	var all, most, kept int64
	for _, r := range p.Rungs {
		size := r.bytes(p.Duration)
		all, most = all+size, max(most, size)
	}
	top, last := p.Rungs[0].bytes(p.Duration), p.Rungs[len(p.Rungs)-1].bytes(p.Duration)
	copied = source
	if copyable, keep := p.Copyable(); copyable {
		size := p.Source.Video.Bytes * 21 / 20 // the container adds up to 5%
		copied += size + sound
		if keep {
			// The copy replaces the tallest rendition, which is already part of all. A copy
			// that is not kept is removed before the other renditions are encoded.
			kept = max(0, size-top)
			top = max(top, size)
		}
	}
	// Disk usage may peak at three points: after the copy, while all renditions and the source
	// exist, or while the download file is produced from the first rendition and only the last
	// rendition still exists.
	whole = max(copied, source+kept+all+sound, 2*top+last+sound)
	if len(p.Parts()) > 1 {
		// Parts are joined one rendition at a time, after the source has been removed. At that
		// point, the disk holds all parts and one whole rendition.
		whole = max(whole, kept+all+most+sound)
	}
	return copied, whole
}

// PartSpace returns the disk space for encoding one part, including the source.
func (p *Plan) PartSpace(part Part) int64 {
	whole := p.Source.Size
	for _, r := range p.Rungs {
		whole += r.bytes(p.time(part.Frames))
	}
	return whole
}

// bytes returns an upper bound on the size of a rung: its maximum bit rate, 5% more for the
// container and for the encoder's buffer, which each part may fill again, and two seconds for
// a short video's buffer.
func (r Rung) bytes(seconds float64) int64 {
	return int64(float64(r.Kbps) * 125 * (seconds*1.05 + 2))
}

// sound returns the size of the audio as ffmpeg writes it plus the size of its packed form because
// both exist at the same time.
func (p *Plan) sound() int64 {
	a := p.Source.Audio
	if a == nil {
		return 0
	}
	bytes := int64(p.Duration * 17_000) // at 128 kbit/s, with frame headers
	if _, ok := p.copyAudio(); ok {
		bytes = max(bytes, a.Bytes*21/20)
	}
	return 2 * bytes
}

// pixels returns how many pixels all rungs encode in total per full-rate frame.
func (p *Plan) pixels() float64 {
	var n float64
	for _, r := range p.Rungs {
		share := float64(r.Width * r.Height)
		if r.Half {
			share /= 2
		}
		n += share
	}
	return n
}

// firstShort bounds the short side of the rendition that is encoded first. Text in a screen
// recording is readable at this size, and the encode takes a third as much work as the 1080p
// ladder.
const firstShort = 800

// First splits a plan into one rendition that is encoded before the others, and the rest. This
// means reading the source twice, which is too expensive if the source is larger than any
// rendition. In that case, ok is false. It is also false for a long source, which is encoded in
// parts instead, and for a plan with fewer than two rungs.
func (p *Plan) First() (first, rest Plan, ok bool) {
	v := p.Source.Video
	if len(p.Rungs) < 2 || v.Width*v.Height > widest*1080*1080 || len(p.Parts()) > 1 {
		return *p, Plan{}, false
	}
	at := slices.IndexFunc(p.Rungs, func(r Rung) bool { return min(r.Width, r.Height) <= firstShort })
	if at < 0 {
		at = len(p.Rungs) - 1
	}
	first, rest = *p, *p
	first.Rungs = p.Rungs[at : at+1]
	rest.Rungs = slices.Delete(slices.Clone(p.Rungs), at, at+1)
	return first, rest, true
}

// Copyable reports whether players can play the source's own video track without encoding, and
// whether to keep it as the tallest rendition when the ladder is done. A file with an index that
// refers to the same bytes many times is not copied: the copy would repeat the bytes and could be
// a thousand times as large. Encoding such a file produces output of normal size.
func (p *Plan) Copyable() (copyable, keep bool) {
	s, v := p.Source, p.Source.Video
	profile := false
	switch v.Profile {
	case "Constrained Baseline", "Baseline", "Main", "High":
		profile = true
	}
	average := float64(v.Bytes) * 8 / max(v.Span, 0.001)
	// The conditions, in this order: a codec that players support, frames that are shown as stored,
	// a timeline that the ladder can share, and a size that common devices can play (level 4.2 is
	// 1080p at 60). Segments of a copy begin at its own keyframes, so MaxGOP, in seconds, bounds
	// their length. The bit rates are also bounded because viewers have no smaller rendition until
	// the ladder is done.
	copyable = s.Demuxer == "mov" && v.Bytes <= s.Size && v.Codec == "h264" && (v.Tag == "avc1" || v.Tag == "avc3") && profile &&
		(v.PixelFormat == "yuv420p" || v.PixelFormat == "yuvj420p") &&
		!v.Interlaced && v.Square && v.Rotation == 0 && !p.ToneMap && v.Whole && v.Hold == 0 && v.Constant && p.Step == 1 && p.Grid == v.Rate &&
		v.Level > 0 && v.Level <= 42 && min(v.Width, v.Height) <= 1080 && max(v.Width, v.Height) <= 1920 &&
		min(v.Width, v.Height) >= 64 && v.Width%2 == 0 && v.Height%2 == 0 && v.Span >= 0.5 &&
		v.MaxGOP <= 10 && v.MaxRate <= 16e6 && average <= 8e6
	// An encoded 1080p rendition uses at most 5 Mbit/s, or 7.5 Mbit/s above 30 frames per second.
	// It replaces a much larger copy.
	return copyable, copyable && average <= 6e6
}

// copyAudio reports whether the source's AAC can be kept, and how many packets must be
// dropped at the start to keep the rest in sync with the video. The encoder delay is rarely a
// whole number of packets, and the remainder must not be audible.
func (p *Plan) copyAudio() (drop int, ok bool) {
	a := p.Source.Audio
	if a == nil || a.Bytes > p.Source.Size || a.Codec != "aac" || a.Profile != "LC" || a.Channels > 2 || !a.Steady || (a.Rate != 44100 && a.Rate != 48000) {
		return 0, false
	}
	packet := 1024 / float64(a.Rate)
	raw := a.First - a.Priming
	drop = int(math.Round((p.Source.Video.First - raw) / packet))
	// Only whole packets can be dropped. An offset of up to 4 ms is not noticeable. If the offset
	// is larger or the audio ends early, the audio is encoded again.
	off := raw + float64(drop)*packet - p.Source.Video.First
	short := p.Source.Video.First + p.Source.Video.Span - a.End
	return drop, drop >= 0 && math.Abs(off) <= 0.004 && short < 0.1
}
