package clicks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// spool stores a process's clicks for one partition on local disk while Redis is full or
// unreachable. It is a sequence of files. Records are appended to the last file. The first file is
// drained and then removed, so the disk contains little more than the pending clicks.
//
// A record is one write to a file opened for appending. A killed process leaves complete records,
// and at most one incomplete record at the end. The visitors whose clicks are in that record have
// not received a response. Records are not synced to the disk, so a power failure loses the last
// records, as it does in Redis.
type spool struct {
	dir, id string
	part    int
	max     int64
	files   []*spoolFile // at least one
	seq     int          // number of the last file
}

type spoolFile struct {
	seq  int
	path string
	file *os.File
	size int64 // bytes written
	read int64 // bytes drained
}

const (
	spoolSuffix = ".clicks"
	// spoolFileMax is the file size at which the spool starts the next file.
	spoolFileMax = 4 << 20
)

var errSpoolFull = errors.New("click spool is full")

// record is a batch in a spool.
type record struct {
	late    bool // the batch belongs to the sequence "late"
	number  int64
	payload []byte
	size    int64 // bytes in the file
}

// numberedOf returns the batches in records.
func numberedOf(run []record) []numbered {
	out := make([]numbered, len(run))
	for i, r := range run {
		out[i] = numbered{number: r.number, payload: r.payload}
	}
	return out
}

// upTo returns how many records at the start of run have a number up to last.
func upTo(run []record, last int64) int {
	n := 0
	for n < len(run) && run[n].number <= last {
		n++
	}
	return n
}

func openSpool(dir, id string, part int, maxBytes int64) (*spool, error) {
	s := &spool{dir: dir, id: id, part: part, max: maxBytes}
	return s, s.begin()
}

// begin starts the next file.
func (s *spool) begin() error {
	s.seq++
	f, err := openSpoolFile(filepath.Join(s.dir, fmt.Sprintf("%s.%d.%d%s", s.id, s.part, s.seq, spoolSuffix)), s.seq)
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	return nil
}

// openSpoolFile opens and locks a file. Without the lock, other processes would treat the file as a
// dead process's spool.
func openSpoolFile(path string, seq int) (*spoolFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open click spool: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock click spool %s: %w", path, err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("open click spool: %w", err)
	}
	return &spoolFile{seq: seq, path: path, file: f, size: info.Size()}, nil
}

// leftSpools opens the spools that dead processes left in dir. It skips running processes' files,
// which are locked.
func leftSpools(dir, own string) []*spool {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+spoolSuffix))
	if err != nil {
		return nil
	}
	var left []*spool
	for _, path := range paths {
		id, part, seq, ok := parseSpoolName(filepath.Base(path))
		if !ok || id == own {
			continue
		}
		f, err := openSpoolFile(path, seq)
		if err != nil {
			continue
		}
		i := slices.IndexFunc(left, func(s *spool) bool { return s.id == id && s.part == part })
		if i < 0 {
			left, i = append(left, &spool{dir: dir, id: id, part: part}), len(left)
		}
		s := left[i]
		s.files, s.seq = append(s.files, f), max(s.seq, seq)
	}
	for _, s := range left {
		slices.SortFunc(s.files, func(a, b *spoolFile) int { return a.seq - b.seq })
	}
	return left
}

// parseSpoolName parses id.part.seq.clicks.
func parseSpoolName(name string) (id string, part, seq int, ok bool) {
	fields := strings.Split(strings.TrimSuffix(name, spoolSuffix), ".")
	if len(fields) != 3 {
		return "", 0, 0, false
	}
	part, err1 := strconv.Atoi(fields[1])
	seq, err2 := strconv.Atoi(fields[2])
	return fields[0], part, seq, err1 == nil && err2 == nil
}

const (
	recordHead = 4 + 4 + 8 // length, checksum, number
	lateBit    = 1 << 62   // set in the number of a late batch
)

func (s *spool) append(r record) error {
	rec := make([]byte, recordHead, recordHead+len(r.payload))
	number := uint64(r.number)
	if r.late {
		number |= lateBit
	}
	binary.BigEndian.PutUint32(rec[0:], uint32(len(r.payload)))
	binary.BigEndian.PutUint64(rec[8:], number)
	rec = append(rec, r.payload...)
	binary.BigEndian.PutUint32(rec[4:], crc32.ChecksumIEEE(rec[8:]))
	if len(s.files) == 0 {
		return os.ErrClosed
	}
	if s.bytes()+int64(len(rec)) > s.max {
		return errSpoolFull
	}
	f := s.files[len(s.files)-1]
	if f.size >= spoolFileMax {
		if err := s.begin(); err != nil {
			return err
		}
		f = s.files[len(s.files)-1]
	}
	n, err := f.file.Write(rec)
	if err != nil {
		// Remove a partial record. Otherwise later records could not be read.
		if n > 0 {
			err = errors.Join(err, f.file.Truncate(f.size))
		}
		return fmt.Errorf("write click spool: %w", err)
	}
	f.size += int64(len(rec))
	return nil
}

func (s *spool) bytes() (n int64) {
	for _, f := range s.files {
		n += f.size
	}
	return n
}

// next reads records that have not been drained yet: about limit bytes, and always at least one
// record. All returned records belong to the same sequence.
func (s *spool) next(limit int) ([]record, error) {
	for len(s.files) > 0 {
		f := s.files[0]
		run, err := f.next(limit)
		if len(run) > 0 || err != nil || len(s.files) == 1 {
			return run, err
		}
		if err := f.remove(); err != nil { // f has been read completely
			return nil, err
		}
		s.files = s.files[1:]
	}
	return nil, nil
}

func (f *spoolFile) next(limit int) ([]record, error) {
	// Read all records at once: while Redis is unreachable, the same records are read several times
	// per second.
	buf, err := f.readAt(f.read, min(max(int64(limit), recordHead), f.size-f.read))
	if err != nil && !errors.Is(err, io.EOF) { // the file may have been truncated; see torn
		return nil, f.torn(f.read, err)
	}
	var out []record
	for at := f.read; at < f.size && at-f.read < int64(limit); {
		rest := buf[at-f.read:]
		if len(rest) < recordHead {
			if len(out) > 0 {
				break // read by the next call
			}
			return out, f.torn(at, io.ErrUnexpectedEOF)
		}
		size := recordHead + int64(binary.BigEndian.Uint32(rest))
		if at+size > f.size {
			return out, f.torn(at, io.ErrUnexpectedEOF)
		}
		if size > int64(len(rest)) {
			if len(out) > 0 {
				break
			}
			if rest, err = f.readAt(at, size); err != nil {
				return out, f.torn(at, err)
			}
		}
		head, body := rest[:recordHead], rest[recordHead:size:size]
		sum := crc32.Update(crc32.ChecksumIEEE(head[8:]), crc32.IEEETable, body)
		if sum != binary.BigEndian.Uint32(head[4:]) {
			return out, f.torn(at, errPayload)
		}
		number := binary.BigEndian.Uint64(head[8:])
		r := record{number&lateBit != 0, int64(number &^ lateBit), body, size}
		if len(out) > 0 && out[0].late != r.late {
			break
		}
		out = append(out, r)
		at += size
	}
	return out, nil
}

// readAt returns size bytes of the file, or fewer bytes and io.EOF.
func (f *spoolFile) readAt(at, size int64) ([]byte, error) {
	buf := make([]byte, size)
	n, err := f.file.ReadAt(buf, at)
	return buf[:n], err
}

// torn handles an unreadable record. It discards the rest of the file because the lengths in it
// cannot be trusted.
func (f *spoolFile) torn(at int64, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errPayload) {
		f.size = at
		return nil
	}
	return fmt.Errorf("read click spool: %w", err)
}

// drained marks the records in run as drained because Redis has them now. The last call to next
// must have returned them.
func (s *spool) drained(run []record) error {
	f := s.files[0]
	for _, r := range run {
		f.read += r.size
	}
	if f.read < f.size {
		return nil
	}
	if len(s.files) > 1 {
		s.files = s.files[1:]
		return f.remove()
	}
	f.read, f.size = 0, 0
	if err := f.file.Truncate(0); err != nil {
		return fmt.Errorf("empty click spool: %w", err)
	}
	return nil
}

func (s *spool) empty() bool {
	return !slices.ContainsFunc(s.files, func(f *spoolFile) bool { return f.read < f.size })
}

func (f *spoolFile) remove() error {
	return errors.Join(os.Remove(f.path), f.file.Close())
}

// close unlocks all files and removes the empty ones.
func (s *spool) close() error {
	var errs []error
	for _, f := range s.files {
		if f.read >= f.size {
			errs = append(errs, f.remove())
		} else {
			errs = append(errs, f.file.Close())
		}
	}
	s.files = s.files[:0]
	return errors.Join(errs...)
}
