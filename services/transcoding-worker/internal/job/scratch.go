package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Scratch is a worker's private disk space. Each process has a folder of its
// own below a common root and a lock that shows it is alive; what killed
// processes left behind is removed at the next start.
type Scratch struct {
	dir  string
	lock *os.File
}

// OpenScratch clears leftovers below root and makes this process's folder.
func OpenScratch(root string) (*Scratch, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("scratch: %w", err)
	}
	// Landlock and ffmpeg see resolved paths.
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, fmt.Errorf("scratch: %w", err)
	}
	if err := sweepScratch(root); err != nil {
		return nil, fmt.Errorf("scratch: %w", err)
	}
	lock, err := newLock(root)
	if err != nil {
		return nil, fmt.Errorf("scratch: %w", err)
	}
	dir := strings.TrimSuffix(lock.Name(), ".lock")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("scratch: %w", err)
	}
	return &Scratch{dir: dir, lock: lock}, nil
}

// newLock makes and holds a lock of this process. Another one that starts at the
// same moment may sweep it away before it is held; then it makes another.
func newLock(root string) (*os.File, error) {
	for {
		lock, err := os.CreateTemp(root, "worker-*.lock")
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
		_, err = os.Stat(lock.Name())
		if err == nil {
			return lock, nil
		}
		if closed := lock.Close(); !errors.Is(err, os.ErrNotExist) {
			return nil, errors.Join(err, closed)
		}
	}
}

// sweepScratch removes what killed processes left. Several processes may sweep
// at once.
func sweepScratch(root string) error {
	locks, err := filepath.Glob(filepath.Join(root, "worker-*.lock"))
	if err != nil {
		return err
	}
	for _, name := range locks {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			err = os.RemoveAll(strings.TrimSuffix(name, ".lock"))
			if gone := os.Remove(name); !errors.Is(gone, os.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Job makes an empty private folder for one job; remove deletes it.
func (s *Scratch) Job() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp(s.dir, "job-*")
	if err != nil {
		return "", nil, fmt.Errorf("scratch: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// errNoSpace is a disk that is too full for a job; another worker's may not be.
var errNoSpace = errors.New("not enough space on the scratch disk")

// room checks that a source of that size and what is made of it will fit.
func (s *Scratch) room(size int64) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &fs); err != nil {
		return fmt.Errorf("scratch: %w", err)
	}
	free := int64(fs.Bavail) * int64(fs.Bsize) //nolint:unconvert // the types differ between systems
	if need := size*5/2 + 64<<20; free < need {
		return fmt.Errorf("%w: %d of %d bytes", errNoSpace, free, need)
	}
	return nil
}

// Close removes everything.
func (s *Scratch) Close() error {
	return errors.Join(os.RemoveAll(s.dir), os.Remove(s.lock.Name()), s.lock.Close())
}
