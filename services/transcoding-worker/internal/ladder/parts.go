package ladder

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/fmp4"
)

// Part is a run of frames on a plan's full-rate grid that is encoded separately. Its boundaries are
// frame numbers because times in seconds would drift.
type Part struct {
	From   int
	Frames int
}

const (
	partSeconds = 60
	// partsFrom is the minimum length of a source that is encoded in parts. For a shorter source,
	// starting each part and downloading the source again takes more time than the parts save.
	partsFrom = 120
	// preRoll is the number of seconds before a part that are also decoded, so that the first
	// frame of the part is complete.
	preRoll = 2.0
)

func (p *Plan) whole() Part { return Part{Frames: p.Frames} }

// time returns the time of a frame on the full-rate grid, in seconds.
func (p *Plan) time(frame int) float64 { return float64(frame) / p.Rate.Float() }

// Parts divides a long plan at segment boundaries into parts of about a minute. A plan that should
// not be divided is one part. Only containers with a reliable index are divided because a seek in
// other containers may land anywhere.
func (p *Plan) Parts() []Part {
	if p.Duration <= partsFrom || p.Source.Demuxer != "mov" && p.Source.Demuxer != "matroska" {
		return []Part{p.whole()}
	}
	var parts []Part
	from := 0
	for _, c := range p.Cuts {
		if c > p.Source.Video.Span-preRoll {
			break // a part after this cut would have no frame of its own to repeat
		}
		frame := int(math.Round(c * p.Rate.Float()))
		// Half-rate rungs use every second frame of each part.
		if frame%2 != 0 || p.time(frame-from) < partSeconds-0.5 || p.time(p.Frames-frame) < partSeconds/2 {
			continue
		}
		parts = append(parts, Part{From: from, Frames: frame - from})
		from = frame
	}
	return append(parts, Part{From: from, Frames: p.Frames - from})
}

// Sound encodes the plan's audio in one piece. Audio encoded in parts would click at the
// boundaries.
func (m *Maker) Sound(ctx context.Context, dir string, p Plan) error {
	args := append(m.base(), ffmpeg.Input(p.Source.Demuxer, p.Source.Path, m.MaxPixels)...)
	args = append(args, "-filter_complex", p.audioGraph())
	args = append(args, p.soundOutput(filepath.Join(dir, "audio.aac"))...)
	cpu, wall := p.budget(p.whole())
	if _, err := m.Tools.Transcode(ctx, ffmpeg.Call{Dir: dir, Args: args, CPU: cpu, Wall: wall}); err != nil {
		return m.blame(ctx, err)
	}
	return nil
}

// Part encodes one part of every rung into dir and returns the files in rung order.
func (m *Maker) Part(ctx context.Context, dir string, p Plan, part Part, progress func(float64)) ([]string, error) {
	args := append(m.base(), "-progress", "pipe:1", "-stats_period", "0.5", "-threads", strconv.Itoa(m.threads(p.Source.Video)))
	if part.From > 0 {
		seek := p.Source.Video.First + p.time(part.From) - preRoll
		args = append(args, "-copyts", "-ss", strconv.FormatFloat(max(0, seek), 'f', 6, 64))
	}
	args = append(args, ffmpeg.Input(p.Source.Demuxer, p.Source.Path, m.MaxPixels)...)
	args = append(args, "-filter_complex", p.videoGraph(part))
	args = append(args, m.outputs(dir, p, part)...)
	if _, err := m.encode(ctx, dir, p, part, args, progress); err != nil {
		return nil, err
	}
	var files []string
	for _, r := range p.Rungs {
		f, err := open(dir, r.Name)
		if err != nil {
			return nil, err
		}
		want := part.Frames
		if r.Half {
			want = (want + 1) / 2
		}
		// The last part may be too short if the source is damaged at its end.
		if got := f.Track.Samples(); got != want && part.From+part.Frames < p.Frames {
			return nil, fmt.Errorf("the part from frame %d of %s has %d frames, want %d", part.From, r.Name, got, want)
		}
		files = append(files, f.Path)
	}
	return files, nil
}

// Join concatenates finished parts into whole renditions and checks them. parts[i][j] is rung j
// of part i. Its file is removed when rung j is complete, so the disk never holds every rendition
// twice. The audio, if any, must be in dir.
func (m *Maker) Join(dir string, p Plan, parts [][]string, sound bool) (Tracks, error) {
	t := Tracks{Cuts: p.Cuts}
	for j, r := range p.Rungs {
		var files []string
		for _, part := range parts {
			files = append(files, part[j])
		}
		if err := join(filepath.Join(dir, r.Name+".mp4"), files); err != nil {
			return Tracks{}, fmt.Errorf("join %s: %w", r.Name, err)
		}
		for _, file := range files {
			_ = os.Remove(file) // the job's folder is removed anyway
		}
		f, err := p.check(dir, r)
		if err != nil {
			return Tracks{}, err
		}
		t.Video = append(t.Video, f)
	}
	if err := inStep(t.Video, t.Cuts); err != nil {
		return Tracks{}, err
	}
	if sound && p.Source.Audio != nil {
		var err error
		if t.Audio, err = m.packSound(dir, filepath.Join(dir, "audio.aac"), 0, t); err != nil {
			return Tracks{}, err
		}
	}
	return t, nil
}

var errParts = errors.New("parts do not fit together")

// join writes the init part once and then the fragments of every part, shifted to the end of
// the previous part.
func join(out string, files []string) error {
	w, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	var init []byte
	var sequence uint32
	var ticks uint64
	for i, name := range files {
		in, err := os.Open(name)
		if err != nil {
			return err
		}
		// For the first part, init is nil and appendPart writes the init bytes. For later parts, it
		// only checks that their init bytes are the same because one init part must describe all
		// fragments.
		head, next, err := appendPart(w, in, ticks, &sequence, init)
		_ = in.Close()
		if err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
		init, ticks = head, next
	}
	return w.Close()
}

// appendPart writes a part's fragments to w, shifted by ticks. It returns the part's init
// bytes and the end of its last fragment.
func appendPart(w io.Writer, in io.ReadSeeker, ticks uint64, sequence *uint32, init []byte) ([]byte, uint64, error) {
	track, err := fmp4.ReadTrack(in)
	if err != nil {
		return nil, 0, err
	}
	head := make([]byte, track.Init.Size)
	if err := readAt(in, head, track.Init.Offset); err != nil {
		return nil, 0, err
	}
	if init == nil {
		if _, err := w.Write(head); err != nil {
			return nil, 0, err
		}
	} else if !bytes.Equal(init, head) {
		return nil, 0, fmt.Errorf("%w: they were encoded with different settings", errParts)
	}
	end := ticks
	for _, f := range track.Fragments {
		b := make([]byte, f.Size)
		if err := readAt(in, b, f.Offset); err != nil {
			return nil, 0, err
		}
		*sequence++
		if err := moveFragment(b, *sequence, ticks); err != nil {
			return nil, 0, err
		}
		if _, err := w.Write(b); err != nil {
			return nil, 0, err
		}
		end = ticks + f.Start + f.Duration
	}
	return head, end, nil
}

func readAt(r io.ReadSeeker, b []byte, off int64) error {
	if _, err := r.Seek(off, io.SeekStart); err != nil {
		return err
	}
	_, err := io.ReadFull(r, b)
	return err
}

// moveFragment changes the sequence number and the time in the moof at the start of b.
func moveFragment(b []byte, sequence uint32, ticks uint64) error {
	mfhd, tfdt := -1, -1
	var walk func(from, to int)
	walk = func(from, to int) {
		for at := from; at+8 <= to; {
			size := int(binary.BigEndian.Uint32(b[at:]))
			if size < 8 || at+size > to {
				return
			}
			switch string(b[at+4 : at+8]) {
			case "moof", "traf":
				walk(at+8, at+size)
			case "mfhd":
				mfhd = at
			case "tfdt":
				tfdt = at
			}
			at += size
		}
	}
	if len(b) < 8 {
		return errParts
	}
	walk(0, min(len(b), int(binary.BigEndian.Uint32(b))))
	if mfhd < 0 || tfdt < 0 || b[tfdt+8] != 1 { // 64-bit times only
		return errParts
	}
	binary.BigEndian.PutUint32(b[mfhd+12:], sequence)
	binary.BigEndian.PutUint64(b[tfdt+12:], binary.BigEndian.Uint64(b[tfdt+12:])+ticks)
	return nil
}
