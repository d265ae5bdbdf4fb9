package ffmpeg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrCorrupt means that a file is too damaged to be played.
var ErrCorrupt = errors.New("corrupt file")

// CheckTables reads the boxes in an MP4 or QuickTime file. It returns ErrCorrupt if a sample table
// or a fragment refers to bytes past the end of the file, if a track's samples add up to more bytes
// than the whole file, or if there is no index. ffmpeg reads such files without an error, but its
// output is too short, or many gigabytes long if a table refers to the same bytes repeatedly.
func CheckTables(r io.ReaderAt, size int64) error {
	w := tableWalker{r: r, size: size}
	if err := w.file(); err != nil {
		return err
	}
	if !w.moov {
		return fmt.Errorf("%w: no index", ErrCorrupt)
	}
	return nil
}

type tableWalker struct {
	r    io.ReaderAt
	size int64
	moov bool
	// The fields below describe the current track.
	chunks, sizes, toChunk box
	wide                   bool // 64-bit chunk offsets
	picture                bool // whether this is a video track
}

type box struct {
	name       string
	start, end int64 // start and end of its content in the file
}

func (b box) len() int64 { return b.end - b.start }

// next reads the box header at off, which must be before limit.
func (w *tableWalker) next(off, limit int64) (box, error) {
	var h [16]byte
	if limit-off < 8 {
		return box{}, io.EOF
	}
	if _, err := w.r.ReadAt(h[:8], off); err != nil {
		return box{}, err
	}
	b := box{name: string(h[4:8]), start: off + 8}
	size := int64(binary.BigEndian.Uint32(h[:4]))
	switch size {
	case 0:
		b.end = limit
		return b, nil
	case 1:
		if _, err := w.r.ReadAt(h[8:], off+8); err != nil {
			return box{}, err
		}
		large := binary.BigEndian.Uint64(h[8:])
		if large < 16 || large > 1<<62 {
			return box{}, fmt.Errorf("%w: impossible box size", ErrCorrupt)
		}
		b.start, size = off+16, int64(large)
	}
	b.end = off + size
	if b.end < b.start {
		return box{}, fmt.Errorf("%w: impossible box size", ErrCorrupt)
	}
	return b, nil
}

func (w *tableWalker) file() error {
	fragmented := false
	for off := int64(0); off < w.size; {
		b, err := w.next(off, w.size)
		if errors.Is(err, io.EOF) {
			break // ignore a few stray bytes at the end
		}
		if errors.Is(err, ErrCorrupt) && w.moov {
			break // players ignore junk after the index
		}
		if err != nil {
			return err
		}
		cut := b.end > w.size
		switch b.name {
		case "moov":
			if cut {
				return fmt.Errorf("%w: the index is cut off", ErrCorrupt)
			}
			w.moov = true
			if err := w.container(b, 0); err != nil {
				return err
			}
		case "moof":
			fragmented = true
			if cut {
				return fmt.Errorf("%w: a fragment is cut off", ErrCorrupt)
			}
		case "mdat":
			// Without fragments, the sample tables tell whether a missing byte is needed.
			if cut && fragmented {
				return fmt.Errorf("%w: a fragment is cut off", ErrCorrupt)
			}
		}
		if b.end <= off { // next never returns such a box; this rules out an endless loop
			break
		}
		off = b.end
	}
	return nil
}

func (w *tableWalker) container(parent box, depth int) error {
	for off := parent.start; off < parent.end; {
		b, err := w.next(off, parent.end)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if b.end > parent.end {
			return nil // ffmpeg handles such boxes
		}
		switch b.name {
		case "trak", "mdia", "minf", "stbl":
			if depth > 8 {
				return fmt.Errorf("%w: boxes nested too deep", ErrCorrupt)
			}
			if b.name == "mdia" {
				w.picture = false
			}
			if b.name == "stbl" {
				w.chunks, w.sizes, w.toChunk, w.wide = box{}, box{}, box{}, false
			}
			if err := w.container(b, depth+1); err != nil {
				return err
			}
			if b.name == "stbl" {
				if err := w.table(); err != nil {
					return err
				}
			}
		case "hdlr":
			var kind [4]byte // follows version, flags and a reserved word
			if b.len() >= 12 {
				if _, err := w.r.ReadAt(kind[:], b.start+8); err != nil {
					return err
				}
			}
			w.picture = w.picture || string(kind[:]) == "vide"
		case "stco":
			w.chunks = b
		case "co64":
			w.chunks, w.wide = b, true
		case "stsz":
			w.sizes = b
		case "stsc":
			w.toChunk = b
		}
		off = b.end
	}
	return nil
}

// table checks that each chunk in the track ends within the file, and that the chunks together are
// no larger than the file. Tracks are checked separately because two tracks may share bytes, such
// as a video and its mirrored copy in QuickTime.
func (w *tableWalker) table() error {
	width := int64(4)
	if w.wide {
		width = 8
	}
	chunks, err := w.entries(w.chunks, 4, width)
	if err != nil || chunks.count == 0 {
		return err
	}
	runs, err := w.entries(w.toChunk, 4, 12)
	if err != nil || runs.count == 0 {
		return err
	}
	var header [12]byte
	if w.sizes.len() < 12 {
		return nil
	}
	if _, err := w.r.ReadAt(header[:], w.sizes.start); err != nil {
		return err
	}
	fixed, samples := int64(binary.BigEndian.Uint32(header[4:])), int64(binary.BigEndian.Uint32(header[8:]))
	sizes := &entryReader{r: w.r, off: w.sizes.start + 12, width: 4, count: samples}
	if fixed == 0 && 12+4*samples > w.sizes.len() {
		return fmt.Errorf("%w: short sample table", ErrCorrupt)
	}
	run, err := runs.next()
	if err != nil {
		return err
	}
	perChunk := int64(binary.BigEndian.Uint32(run[4:]))
	nextRun, haveNext, err := runs.peekFirstChunk()
	if err != nil {
		return err
	}
	var total int64
	for chunk := int64(1); chunk <= chunks.countTotal && samples > 0; chunk++ {
		for haveNext && chunk >= nextRun {
			if run, err = runs.next(); err != nil {
				return err
			}
			perChunk = int64(binary.BigEndian.Uint32(run[4:]))
			if nextRun, haveNext, err = runs.peekFirstChunk(); err != nil {
				return err
			}
		}
		raw, err := chunks.next()
		if err != nil {
			return err
		}
		end := int64(binary.BigEndian.Uint32(raw))
		if w.wide {
			end = int64(binary.BigEndian.Uint64(raw) & (1<<62 - 1))
		}
		n, start := min(perChunk, samples), end
		samples -= n
		if fixed > 0 {
			// Audio may be stored in packets of several samples. In that case, a sample size of 1
			// is not a number of bytes.
			if fixed > 1 {
				end += n * fixed
			}
			if w.picture {
				total += n * fixed
			}
		} else {
			for range n {
				s, err := sizes.next()
				if err != nil {
					return err
				}
				end += int64(binary.BigEndian.Uint32(s))
			}
			total += end - start
		}
		if end > w.size && n > 0 {
			return fmt.Errorf("%w: samples past the end of the file", ErrCorrupt)
		}
		if total > w.size {
			return fmt.Errorf("%w: a track is larger than the file", ErrCorrupt)
		}
	}
	return nil
}

func (w *tableWalker) entries(b box, header, width int64) (*entryReader, error) {
	if b.len() < header+4 {
		return &entryReader{}, nil
	}
	var n [4]byte
	if _, err := w.r.ReadAt(n[:], b.start+header); err != nil {
		return nil, err
	}
	count := int64(binary.BigEndian.Uint32(n[:]))
	if count*width > b.len()-header-4 {
		return nil, fmt.Errorf("%w: short table", ErrCorrupt)
	}
	return &entryReader{r: w.r, off: b.start + header + 4, width: width, count: count, countTotal: count}, nil
}

// entryReader reads a table of equal-sized entries through a small buffer, so a wrong length in the
// file cannot cause a large allocation.
type entryReader struct {
	r                 io.ReaderAt
	off, width        int64
	count, countTotal int64
	buf               []byte
}

func (e *entryReader) fill() error {
	if int64(len(e.buf)) >= e.width {
		return nil
	}
	if e.count <= 0 {
		return fmt.Errorf("%w: short table", ErrCorrupt)
	}
	n := min(e.count, 4096) * e.width
	e.buf = make([]byte, n)
	read, err := e.r.ReadAt(e.buf, e.off)
	if int64(read) < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: short table", ErrCorrupt)
		}
		return err
	}
	e.off += n
	e.count -= n / e.width
	return nil
}

func (e *entryReader) next() ([]byte, error) {
	if err := e.fill(); err != nil {
		return nil, err
	}
	entry := e.buf[:e.width]
	e.buf = e.buf[e.width:]
	return entry, nil
}

// peekFirstChunk reads the first chunk number of the next stsc entry.
func (e *entryReader) peekFirstChunk() (int64, bool, error) {
	if len(e.buf) == 0 && e.count == 0 {
		return 0, false, nil
	}
	if err := e.fill(); err != nil {
		return 0, false, err
	}
	return int64(binary.BigEndian.Uint32(e.buf)), true, nil
}
