// Package fmp4 reads the fragmented MP4 files that the worker produces, checks that each has
// one continuous timeline, and describes them as renditions in an outcome.
package fmp4

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/Eyevinn/mp4ff/mp4"

	"github.com/linkreel/linkreel/libs/transcode"
)

// Track describes a single-track fMP4 file, as read from its boxes.
type Track struct {
	Audio         bool
	Timescale     uint32
	Codecs        string
	Width, Height int
	SampleRate    int
	Channels      int
	Init          transcode.Range
	Fragments     []Fragment
	Size          int64 // size of the file
	EditList      bool
}

// Fragment is one moof with its mdat. Times are in the track's timescale.
type Fragment struct {
	transcode.Range
	Start    uint64 // decode time of the first sample
	Duration uint64
	Shown    int64 // earliest presentation time
	End      int64 // latest presentation time plus its sample's duration
	Samples  int
	Key      bool // starts with a keyframe
}

var errTrack = errors.New("not a fragmented single-track file")

// ReadTrack reads the boxes in a single-track fMP4 file. It skips the sample data.
func ReadTrack(r io.ReadSeeker) (*Track, error) {
	size, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	t := &Track{Size: size}
	var trex *mp4.TrexBox
	var moof *mp4.MoofBox
	var moofStart uint64
	for pos := uint64(0); pos < uint64(size); {
		box, err := mp4.DecodeBoxLazyMdat(pos, r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read box at %d: %w", pos, err)
		}
		end := pos + box.Size()
		switch b := box.(type) {
		case *mp4.MoovBox:
			if trex, err = t.readInit(b); err != nil {
				return nil, err
			}
			t.Init = transcode.Range{Offset: 0, Size: int64(end)}
		case *mp4.MoofBox:
			moof, moofStart = b, pos
		case *mp4.MdatBox:
			if moof == nil || trex == nil {
				return nil, errTrack
			}
			f, err := t.readFragment(moof, trex)
			if err != nil {
				return nil, err
			}
			f.Range = transcode.Range{Offset: int64(moofStart), Size: int64(end - moofStart)}
			t.Fragments = append(t.Fragments, f)
			moof = nil
		}
		if end <= pos || end > uint64(size) {
			return nil, errTrack
		}
		// mdat was skipped, not read.
		if _, err := r.Seek(int64(end), io.SeekStart); err != nil {
			return nil, err
		}
		pos = end
	}
	if trex == nil || len(t.Fragments) == 0 {
		return nil, errTrack
	}
	return t, nil
}

func (t *Track) readInit(moov *mp4.MoovBox) (*mp4.TrexBox, error) {
	if len(moov.Traks) != 1 || moov.Mvex == nil || moov.Mvex.Trex == nil {
		return nil, errTrack
	}
	trak := moov.Trak
	if trak.Mdia == nil || trak.Mdia.Mdhd == nil || trak.Mdia.Hdlr == nil || trak.Mdia.Minf == nil || trak.Mdia.Minf.Stbl == nil || trak.Mdia.Minf.Stbl.Stsd == nil {
		return nil, errTrack
	}
	t.Timescale = trak.Mdia.Mdhd.Timescale
	if t.Timescale == 0 {
		return nil, errTrack
	}
	t.Audio = trak.Mdia.Hdlr.HandlerType == "soun"
	t.EditList = trak.Edts != nil
	stsd := trak.Mdia.Minf.Stbl.Stsd
	switch {
	case stsd.AvcX != nil && stsd.AvcX.AvcC != nil:
		c := stsd.AvcX.AvcC
		t.Codecs = fmt.Sprintf("%s.%02x%02x%02x", stsd.AvcX.Type(), c.AVCProfileIndication, c.ProfileCompatibility, c.AVCLevelIndication)
		t.Width, t.Height = int(stsd.AvcX.Width), int(stsd.AvcX.Height)
	case stsd.Mp4a != nil:
		t.Codecs = "mp4a.40.2"
		t.SampleRate, t.Channels = int(stsd.Mp4a.SampleRate), int(stsd.Mp4a.ChannelCount)
	default:
		return nil, errTrack
	}
	return moov.Mvex.Trex, nil
}

func (t *Track) readFragment(moof *mp4.MoofBox, trex *mp4.TrexBox) (Fragment, error) {
	if len(moof.Trafs) != 1 || moof.Traf.Tfdt == nil || moof.Traf.Tfhd == nil {
		return Fragment{}, errTrack
	}
	f := Fragment{Start: moof.Traf.Tfdt.BaseMediaDecodeTime(), Shown: math.MaxInt64, End: math.MinInt64}
	at := f.Start
	for _, trun := range moof.Traf.Truns {
		trun.AddSampleDefaultValues(moof.Traf.Tfhd, trex)
		for i, s := range trun.Samples {
			shown := int64(at) + int64(s.CompositionTimeOffset)
			f.Shown = min(f.Shown, shown)
			f.End = max(f.End, shown+int64(s.Dur))
			at += uint64(s.Dur)
			// A fragment has several runs if offsets change. Only its first sample determines
			// whether the fragment starts with a keyframe.
			if f.Samples == 0 && i == 0 {
				f.Key = mp4.IsSyncSampleFlags(s.Flags)
			}
		}
		f.Samples += len(trun.Samples)
	}
	f.Duration = at - f.Start
	if f.Samples == 0 {
		return Fragment{}, errTrack
	}
	return f, nil
}

// Samples returns the number of video or audio frames.
func (t *Track) Samples() int {
	n := 0
	for _, f := range t.Fragments {
		n += f.Samples
	}
	return n
}

// Seconds converts ticks of the track's timescale to seconds.
func (t *Track) Seconds(ticks int64) float64 { return float64(ticks) / float64(t.Timescale) }

// Duration returns the length of the track in seconds, from zero to the end of its last
// sample.
func (t *Track) Duration() float64 {
	last := t.Fragments[len(t.Fragments)-1]
	return t.Seconds(int64(last.Start + last.Duration))
}

// Check verifies that the track has one continuous timeline: it begins at zero without an
// edit list, each fragment starts at the end of the previous one, and each fragment starts
// with a keyframe.
func (t *Track) Check() error {
	if t.EditList {
		return errors.New("the track has an edit list")
	}
	next := uint64(0)
	for i, f := range t.Fragments {
		if f.Start != next {
			return fmt.Errorf("fragment %d starts at %d, but the previous one ends at %d", i, f.Start, next)
		}
		if !t.Audio && !f.Key {
			return fmt.Errorf("fragment %d does not start with a keyframe", i)
		}
		next = f.Start + f.Duration
	}
	if shown := t.Fragments[0].Shown; shown != 0 {
		return fmt.Errorf("the first sample is presented at %d, want 0", shown)
	}
	return nil
}

// Cuts chooses the start times, in seconds, of all segments except the first. Each cut is at the
// start of a fragment. Segments are target seconds long where the fragments allow it. Other tracks
// of the same video are later cut at the same times.
func (t *Track) Cuts(target float64) []float64 {
	var cuts []float64
	begin := 0.0
	total := t.Duration()
	for _, f := range t.Fragments[1:] {
		start := t.Seconds(int64(f.Start))
		end := start + t.Seconds(int64(f.Duration))
		// Cut here if the segment is long enough, or if this fragment would make it much too
		// long. Do not leave a tiny segment at the end.
		if (start-begin >= target-0.05 || end-begin > 1.4*target) && total-start > 0.2 {
			cuts = append(cuts, start)
			begin = start
		}
	}
	return cuts
}

// Segments groups the fragments at cuts. Each cut must be within a fraction of a sample of a
// fragment's start. Otherwise, the result has fewer segments.
func (t *Track) Segments(cuts []float64) transcode.Segments {
	var table transcode.Segments
	for _, f := range t.Fragments {
		start := t.Seconds(int64(f.Start))
		// Cuts may come from a track with a different timescale, so allow a fraction of a sample.
		// The fraction is more than half, so rounding on both sides cannot miss the cut, and less
		// than one, so the next sample never matches.
		slack := 0.6 * t.Seconds(int64(f.Duration)) / float64(f.Samples)
		cut := len(table) == 0
		// Several cuts in one fragment count as one because a fragment cannot be split.
		for len(cuts) > 0 && start >= cuts[0]-slack {
			cut, cuts = true, cuts[1:]
		}
		if cut {
			table = append(table, transcode.Segment{Range: transcode.Range{Offset: f.Offset}})
		}
		last := &table[len(table)-1]
		last.Size += f.Size
		last.Duration += t.Seconds(int64(f.Duration))
	}
	return table
}

// Rendition describes the file as a rendition with segments at cuts.
func (t *Track) Rendition(name, object string, cuts []float64) transcode.Rendition {
	table := t.Segments(cuts)
	r := transcode.Rendition{
		Name: name, Object: object, Size: t.Size, Width: t.Width, Height: t.Height, Channels: t.Channels, Codecs: t.Codecs,
		Init: t.Init, Segments: table,
	}
	if !t.Audio {
		r.FrameRate = math.Round(float64(t.Samples())/t.Duration()*1000) / 1000
	}
	r.Bandwidth, r.AverageBandwidth = bandwidth(table)
	return r
}

// bandwidth returns the peak and the average bit rate of a table. HLS defines the peak as the
// highest rate of any run of consecutive segments that lasts between 0.5 and 1.5 target
// durations.
func bandwidth(s transcode.Segments) (peak, average int) {
	target, bits, total := 0.0, 0.0, 0.0
	for _, seg := range s {
		target = max(target, math.Round(seg.Duration))
		bits += float64(seg.Size) * 8
		total += seg.Duration
	}
	if total <= 0 {
		return 0, 0
	}
	average = int(math.Ceil(bits / total))
	peak = average // for a table too short for any such run
	for i := range s {
		bits, length := 0.0, 0.0
		for _, seg := range s[i:] {
			bits += float64(seg.Size) * 8
			length += seg.Duration
			if length > 1.5*target {
				break
			}
			if length >= 0.5*target {
				peak = max(peak, int(math.Ceil(bits/length)))
			}
		}
	}
	return peak, average
}
