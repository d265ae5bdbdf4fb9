package clicks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// spool is a producer's click log on local disk, for the time that Redis is
// away. A record is one write to a file opened for appending: a killed process
// leaves whole records and at most one torn one at the end, whose visitors have
// no answer yet. It is not synced to the platter; a machine that loses power
// loses its last moments, as Redis does.
type spool struct {
	path string
	file *os.File
	size int64 // bytes written
	read int64 // bytes drained
	max  int64
}

const spoolSuffix = ".clicks"

var errSpoolFull = errors.New("click spool is full")

// openSpool opens the producer's file and locks it, so that no other process
// takes it for a dead one's.
func openSpool(dir, producer string, maxBytes int64) (*spool, error) {
	path := filepath.Join(dir, producer+spoolSuffix)
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
	return &spool{path: path, file: f, size: info.Size(), max: maxBytes}, nil
}

// leftSpools opens the files that dead processes left in dir. Those of living
// ones are locked and stay theirs.
func leftSpools(dir, own string) (left []*spool, producers []string) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+spoolSuffix))
	if err != nil {
		return nil, nil
	}
	for _, path := range paths {
		producer := strings.TrimSuffix(filepath.Base(path), spoolSuffix)
		if producer == own {
			continue
		}
		if s, err := openSpool(dir, producer, 0); err == nil {
			left, producers = append(left, s), append(producers, producer)
		}
	}
	return left, producers
}

const recordHead = 4 + 4 + 8 // length, checksum, batch

func (s *spool) append(batch int64, payload []byte) error {
	rec := make([]byte, recordHead, recordHead+len(payload))
	binary.BigEndian.PutUint32(rec[0:], uint32(len(payload)))
	binary.BigEndian.PutUint64(rec[8:], uint64(batch))
	rec = append(rec, payload...)
	binary.BigEndian.PutUint32(rec[4:], crc32.ChecksumIEEE(rec[8:]))
	if s.size+int64(len(rec)) > s.max {
		return errSpoolFull
	}
	n, err := s.file.Write(rec)
	if err != nil {
		// Part of a record must not stand before the next one.
		if n > 0 {
			err = errors.Join(err, s.file.Truncate(s.size))
		}
		return fmt.Errorf("write click spool: %w", err)
	}
	s.size += int64(len(rec))
	return nil
}

type record struct {
	batch   int64
	payload []byte
	size    int64 // bytes in the file
}

// next reads up to limit bytes' worth of records that are not drained yet, at
// least one.
func (s *spool) next(limit int64) ([]record, error) {
	var out []record
	for at := s.read; at < s.size && at-s.read < limit; {
		head := make([]byte, recordHead)
		if _, err := s.file.ReadAt(head, at); err != nil {
			return out, tornAtEnd(s, at, err)
		}
		length := int64(binary.BigEndian.Uint32(head))
		if at+recordHead+length > s.size {
			return out, tornAtEnd(s, at, io.ErrUnexpectedEOF)
		}
		body := make([]byte, length)
		if _, err := s.file.ReadAt(body, at+recordHead); err != nil {
			return out, tornAtEnd(s, at, err)
		}
		sum := crc32.Update(crc32.ChecksumIEEE(head[8:]), crc32.IEEETable, body)
		if sum != binary.BigEndian.Uint32(head[4:]) {
			return out, tornAtEnd(s, at, errPayload)
		}
		r := record{int64(binary.BigEndian.Uint64(head[8:])), body, recordHead + length}
		out = append(out, r)
		at += r.size
	}
	return out, nil
}

// tornAtEnd gives up what lies behind an unreadable record: lengths behind it
// cannot be trusted.
func tornAtEnd(s *spool, at int64, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errPayload) {
		s.size = at
		return nil
	}
	return fmt.Errorf("read click spool: %w", err)
}

// drained notes that records of so many bytes are safe elsewhere.
func (s *spool) drained(bytes int64) error {
	s.read += bytes
	if s.read < s.size {
		return nil
	}
	s.read, s.size = 0, 0
	if err := s.file.Truncate(0); err != nil {
		return fmt.Errorf("empty click spool: %w", err)
	}
	return nil
}

func (s *spool) empty() bool { return s.read >= s.size }

// close unlocks the file and removes it when there is nothing in it.
func (s *spool) close() error {
	if s.empty() {
		_ = os.Remove(s.path)
	}
	return s.file.Close()
}
