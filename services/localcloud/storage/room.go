package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
)

// checkEvery is the number of bytes that an upload writes between two checks of the free space. The
// interval is large enough that the checks cost nothing, and small enough that a hundred concurrent
// uploads exceed the reserve by less than half a gigabyte.
const checkEvery = 4 << 20

// room keeps a reserve of the objects' volume free because other data on the same machine still
// needs space when uploads have filled the rest.
type room struct {
	reserve int64
	free    func() (int64, error)
}

// check rejects n more bytes if they would use the reserve. Our own programs may use half of the
// reserve, so existing uploads can still be transcoded when new ones are rejected.
func (r room) check(own bool, n int64) error {
	if r.reserve <= 0 {
		return nil
	}
	free, err := r.free()
	if err != nil {
		return fmt.Errorf("cannot check the free space: %w", err)
	}
	keep := r.reserve
	if own {
		keep /= 2
	}
	if free-n >= keep {
		return nil
	}
	return fail(http.StatusInsufficientStorage, "InsufficientStorage",
		"There is no room for this upload: the volume has %d bytes free, and %d bytes must stay free. Free some space or enlarge the volume.", max(free, 0), keep)
}

// full converts the file system's "no space" error to the same response.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return errors.Join(fail(http.StatusInsufficientStorage, "InsufficientStorage", "There is no room for this upload: the volume is full. Free some space or enlarge the volume."), err)
	}
	return err
}

// adopt moves the objects' files to their configured directory if a previous run stored them next
// to the index. It may be interrupted at any point: a file keeps its old path until its copy is
// complete, and the next Open moves the remaining files.
func (s *store) adopt() error {
	if s.bytes == s.dir {
		return nil
	}
	for _, d := range []string{"data", "tmp"} {
		files, err := os.ReadDir(filepath.Join(s.dir, d))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot list the objects to move: %w", err)
		}
		for _, f := range files {
			if err := moveFile(filepath.Join(s.dir, d, f.Name()), filepath.Join(s.bytes, d, f.Name())); err != nil {
				return fmt.Errorf("cannot move an object to %s: %w", s.bytes, err)
			}
		}
	}
	return nil
}

// moveFile renames a file, or copies it to another volume.
func moveFile(from, to string) error {
	err := os.Rename(from, to)
	if err == nil || !errors.Is(err, syscall.EXDEV) {
		return err
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // opened only for reading
	dst, err := os.OpenFile(to+".moving", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if err = errors.Join(err, dst.Sync(), dst.Close()); err != nil {
		return err
	}
	if err := os.Rename(to+".moving", to); err != nil {
		return err
	}
	return os.Remove(from)
}

// FreeSpace returns the number of bytes that an unprivileged program may still write to dir's
// volume.
func FreeSpace(dir string) (int64, error) { return freeSpace(dir) }

// Ready returns an error if the server cannot serve objects because its index cannot be read or its
// objects' directory does not exist. A full volume is not an error: its objects can still be read.
func (s *Server) Ready() error {
	if _, err := s.st.buckets(""); err != nil {
		return fmt.Errorf("cannot read the index: %w", err)
	}
	if _, err := os.Stat(filepath.Join(s.st.bytes, "data")); err != nil {
		return fmt.Errorf("cannot access the objects' directory: %w", err)
	}
	return nil
}
