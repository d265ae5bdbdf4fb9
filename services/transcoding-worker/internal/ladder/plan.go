// Package ladder turns a probed source into the renditions that viewers play. It plans
// the renditions, makes ffmpeg encode them, checks that they are whole and in step, and
// describes them.
//
// It guarantees that every track it returns has one unbroken timeline from zero, that
// all picture tracks have the same segment borders, and that sound is within five
// milliseconds of the picture. Otherwise it returns an error, which is a
// *transcode.Failure if the source is to blame.
package ladder

import (
	"fmt"
	"math"
	"slices"

	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
)

// segmentSeconds is the target length of a segment, three closed groups of
// pictures.
const segmentSeconds = 6

// Rung is one rendition to encode.
type Rung struct {
	Name          string
	Width, Height int
	Kbps          int  // ceiling
	Half          bool // every second picture
}

// Plan describes the renditions to make from a source.
type Plan struct {
	Source *ffmpeg.Source

	Rungs    []Rung      // tallest first, the tallest at the source's size where that is allowed
	Rate     ffmpeg.Rate // rate of full-rate rungs
	Step     int         // one in Step pictures of the source's grid is kept
	Grid     ffmpeg.Rate // the source's grid before Step
	Frames   int         // number of pictures in a full-rate rung
	Held     int         // pictures of the grid that repeat the source's last one, for sound that continues after it
	Duration float64
	GOP      int // pictures, even
	Cuts     []float64
	ToneMap  bool
}

// rungs lists the short sides that a ladder may have, with their ceilings in kbit/s:
// kbps up to 30 pictures per second, and fast above that.
var rungs = []struct{ short, kbps, fast int }{
	{1080, 5000, 7500}, {720, 2800, 4200}, {480, 1400, 2100}, {360, 800, 1200},
}

const (
	maxRate     = 60.0
	longestSide = 3840
	// The area of a picture may be at most widest times the square of its short side.
	// Pictures wider than 2.5:1 are scaled down, since decoders would refuse them.
	widest = 2.5
)

// Make makes the plan for a source.
func Make(s *ffmpeg.Source) Plan {
	v := s.Video
	p := Plan{Source: s, Grid: v.Rate, Rate: v.Rate, Step: 1, ToneMap: v.Transfer == "smpte2084" || v.Transfer == "arib-std-b67"}
	if v.Rate.Float() < 1 {
		p.Grid = ffmpeg.Rate{Num: 1, Den: 1}
	}
	for p.Step = 1; p.Grid.Float()/float64(p.Step) > maxRate+0.01; p.Step++ {
		// 120 and 240 become 60. Other rates are divided by the smallest whole number that
		// makes them slow enough.
		continue
	}
	frames := float64(v.Frames)
	if !v.Constant || p.Grid != v.Rate {
		frames = math.Round(v.Span * p.Grid.Float())
	}
	p.Rate = ffmpeg.Rate{Num: p.Grid.Num, Den: p.Grid.Den * p.Step}
	// A recording of a screen that stops changing ends with sound alone, and that sound must be
	// kept.
	p.Held = int(math.Round(v.Hold * p.Grid.Float()))
	p.Frames = max(1, int(math.Ceil((frames+float64(p.Held))/float64(p.Step))))
	p.Duration = float64(p.Frames) / p.Rate.Float()
	// Every rung has a key picture every two seconds, at the same pictures, since players
	// change rungs only there.
	p.GOP = max(2, 2*int(math.Round(p.Rate.Float())))

	width, height := fit(v.DisplayWidth, v.DisplayHeight, 1080)
	top := min(width, height)
	p.Rungs = append(p.Rungs, p.rung(top, width, height))
	for _, r := range rungs {
		if float64(r.short) > 0.85*float64(top) {
			// This rung is too close to the top: it would cost an encode and look the same.
			continue
		}
		w, h := fit(v.DisplayWidth, v.DisplayHeight, r.short)
		p.Rungs = append(p.Rungs, p.rung(r.short, w, h))
	}
	for i := 0; len(p.Cuts) < p.Frames; i++ {
		// Three GOPs are a segment: six seconds, which is what HLS players expect. Cuts are
		// counted in pictures, not in seconds, so that rounding errors do not add up.
		at := (i + 1) * 3 * p.GOP
		if float64(p.Frames-at)/p.Rate.Float() <= 0.2 {
			break
		}
		p.Cuts = append(p.Cuts, float64(at)/p.Rate.Float())
	}
	return p
}

// fit scales a picture down until its short side is at most short, and makes both sides
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
	// Small renditions of fast sources take every second picture; the tallest one never does.
	r.Half = fast && short < 720 && len(p.Rungs) > 0
	for i, step := range rungs {
		if short > step.short && i > 0 {
			break
		}
		kbps := step.kbps
		if fast && !r.Half {
			kbps = step.fast
		}
		// Bits grow more slowly than the area (its power of 3/4), since neighbouring pixels of
		// a larger picture are more alike. A source between two steps gets a rate in between.
		r.Kbps = int(float64(kbps) * math.Pow(float64(short)/float64(step.short), 1.5))
	}
	// More bits than the source had would add nothing.
	v := p.Source.Video
	if v.Span > 0 && v.Bytes > 0 {
		share := min(1, math.Pow(float64(width*height)/float64(v.Width*v.Height), 0.75))
		source := float64(v.Bytes) * 8 / v.Span / 1000 * efficiency(v.Codec)
		r.Kbps = min(r.Kbps, int(1.2*source*share))
	}
	r.Kbps = max(r.Kbps, 100)
	return r
}

// efficiency returns how many bits of H.264 one bit of the codec is worth.
func efficiency(codec string) float64 {
	switch codec {
	case "av1", "vvc":
		return 2.5
	case "hevc", "vp9":
		return 2
	}
	return 1
}

// Space returns the maximum disk space that making a plan takes, in bytes. copied is
// the maximum until the source has been copied, and whole is the overall maximum. Space
// counts each rendition at its ceiling plus a margin for the encoder's buffer, so that
// no rendition is larger.
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
		size := p.Source.Video.Bytes * 21 / 20 // the container takes up to a twentieth more
		copied += size + sound
		if keep {
			// The copy takes the place of the tallest rendition, whose size is already part of all.
			// A copy that is not kept is removed before the others are made.
			kept = max(0, size-top)
			top = max(top, size)
		}
	}
	// Disk use may peak at three moments: when the copy is made; when all renditions exist
	// beside the source; or when the download is made from the first rendition and only the
	// last one is still there.
	whole = max(copied, source+kept+all+sound, 2*top+last+sound)
	if len(p.Parts()) > 1 {
		// Parts are joined one rendition at a time, after the source is removed. The disk then has
		// all parts and one whole rendition.
		whole = max(whole, kept+all+most+sound)
	}
	return copied, whole
}

// PartSpace returns the disk space that making one part takes, including the source.
func (p *Plan) PartSpace(part Part) int64 {
	whole := p.Source.Size
	for _, r := range p.Rungs {
		whole += r.bytes(p.time(part.Frames))
	}
	return whole
}

// bytes returns an upper bound for the size of a rung: its ceiling, a twentieth more
// for the container and for the encoder's buffer, which each part may fill again, and
// two seconds for the buffer of a short video.
func (r Rung) bytes(seconds float64) int64 {
	return int64(float64(r.Kbps) * 125 * (seconds*1.05 + 2))
}

// sound returns the size of the sound as ffmpeg writes it plus the size of its packed
// form, since both exist at the same time.
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

// pixels returns how many pixels all rungs together encode per picture of the full rate.
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

// firstShort bounds the short side of the rendition to make first. Text on a screen is
// readable in it, and it takes a third of the work of the 1080p ladder.
const firstShort = 800

// First splits a plan into the one rendition that is worth making before the others,
// and the rest. The source is then read twice. That is too expensive if the source is
// larger than any rendition, so ok is false for such a source. It is also false for a
// long source, which is encoded in parts instead, and for a plan with fewer than two rungs.
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

// Copyable reports whether players can take the source's own picture as it is, and
// whether to keep it as the tallest rendition when the ladder is done. A file whose
// index names the same bytes many times is not copied: the copy would repeat them and
// be a thousand times as large. Encoding it gives a normal size.
func (p *Plan) Copyable() (copyable, keep bool) {
	s, v := p.Source, p.Source.Video
	profile := false
	switch v.Profile {
	case "Constrained Baseline", "Baseline", "Main", "High":
		profile = true
	}
	average := float64(v.Bytes) * 8 / max(v.Span, 0.001)
	// The conditions, in this order: a coding that players decode, pictures shown as they are
	// stored, a timeline that the ladder can share, and a size that common devices play (level
	// 4.2 is 1080p at 60). Segments of a copy begin at its own key pictures, so MaxGOP, in
	// seconds, bounds their length. Until the ladder is done, viewers have no smaller rendition
	// to change to, so the rates are bounded too.
	copyable = s.Demuxer == "mov" && v.Bytes <= s.Size && v.Codec == "h264" && (v.Tag == "avc1" || v.Tag == "avc3") && profile &&
		(v.PixelFormat == "yuv420p" || v.PixelFormat == "yuvj420p") &&
		!v.Interlaced && v.Square && v.Rotation == 0 && !p.ToneMap && v.Whole && v.Hold == 0 && v.Constant && p.Step == 1 && p.Grid == v.Rate &&
		v.Level > 0 && v.Level <= 42 && min(v.Width, v.Height) <= 1080 && max(v.Width, v.Height) <= 1920 &&
		min(v.Width, v.Height) >= 64 && v.Width%2 == 0 && v.Height%2 == 0 && v.Span >= 0.5 &&
		v.MaxGOP <= 10 && v.MaxRate <= 16e6 && average <= 8e6
	// An encoded 1080p rendition has at most 5 Mbit/s, or 7.5 above 30 pictures per second. It
	// replaces a copy that is much larger.
	return copyable, copyable && average <= 6e6
}

// copyAudio reports whether the source's AAC can be kept, and how many packets to drop
// at the start so that the rest is in step with the picture. The encoder delay is rarely a
// whole number of packets, and the remainder must not be audible.
func (p *Plan) copyAudio() (drop int, ok bool) {
	a := p.Source.Audio
	if a == nil || a.Bytes > p.Source.Size || a.Codec != "aac" || a.Profile != "LC" || a.Channels > 2 || !a.Steady || (a.Rate != 44100 && a.Rate != 48000) {
		return 0, false
	}
	packet := 1024 / float64(a.Rate)
	raw := a.First - a.Priming
	drop = int(math.Round((p.Source.Video.First - raw) / packet))
	// Only whole packets can be dropped. An offset of up to 4 ms goes unnoticed. With a larger
	// one, or if the sound ends early, the sound is encoded again.
	off := raw + float64(drop)*packet - p.Source.Video.First
	short := p.Source.Video.First + p.Source.Video.Span - a.End
	return drop, drop >= 0 && math.Abs(off) <= 0.004 && short < 0.1
}
