package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Scratch is a worker's private disk space. Each process has its own folder in a common root, and
// holds a lock while it runs. When a process starts, it removes the folders of killed processes.
type Scratch struct {
	dir   string
	lock  *os.File
	limit int64                                          // bytes; 0 means the size of the disk
	disk  func(dir string) (free, size int64, err error) // bytes

	mu       sync.Mutex
	reserved map[string]int64 // bytes by job folder
	waiting  string           // the folder of the job that space is kept for; see await
	rests    time.Time        // no job is allowed to wait before this time
	freed    chan struct{}    // closed when space may have become free
}

// OpenScratch removes leftovers in root and creates this process's folder. Its jobs may use at most
// limit bytes in total. 0 means the size of the disk.
func OpenScratch(root string, limit int64) (*Scratch, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("scratch: %w", err)
	}
	// Landlock and ffmpeg use resolved paths.
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
	return &Scratch{
		dir: dir, lock: lock, limit: limit, disk: diskOf,
		reserved: map[string]int64{}, freed: make(chan struct{}),
	}, nil
}

// diskOf returns the free space and the size of the disk that contains dir.
func diskOf(dir string) (free, size int64, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, 0, fmt.Errorf("scratch: %w", err)
	}
	block := int64(fs.Bsize) //nolint:unconvert // the types differ between systems
	return int64(fs.Bavail) * block, int64(fs.Blocks) * block, nil
}

// newLock creates a lock file and locks it. Another process that starts at the same time may remove
// the file before it is locked. In that case, newLock creates a new one.
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

// sweepScratch removes the files that killed processes left behind. Several processes may do this
// at the same time.
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

// Job creates an empty private folder for one job. remove deletes it and frees the space
// that the job has reserved.
func (s *Scratch) Job() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp(s.dir, "job-*")
	if err != nil {
		return "", nil, fmt.Errorf("scratch: %w", err)
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.reserved, dir)
		s.free()
	}, nil
}

var (
	// errNoSpace means that the disk is too full for a job. Another worker's disk may have
	// space.
	errNoSpace = errors.New("not enough space on the scratch disk")
	// errReserved means that a job will fit once this worker's other jobs have ended.
	errReserved = errors.New("the scratch space is reserved for other jobs")
	// errTooLarge means that a job does not fit on the disk even without other jobs.
	errTooLarge = errors.New("the scratch space is too small for the job")
)

// retained returns the path of the last job's source, which is kept in case the next job
// needs it.
func (s *Scratch) retained() string { return filepath.Join(s.dir, "retained-source") }

// idle returns the size of the retained source if no job's folder links to it, in which case no job
// has reserved space for it.
func (s *Scratch) idle() int64 {
	info, err := os.Lstat(s.retained())
	if err != nil {
		return 0
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); !ok || sys.Nlink > 1 {
		return 0
	}
	return info.Size()
}

// spare is additional space for images, tables and file system overhead.
const spare = 64 << 20

// free wakes the waiting job. The caller holds s.mu.
func (s *Scratch) free() {
	close(s.freed)
	s.freed = make(chan struct{})
}

// longestWait limits how long a waiting job can keep other jobs from starting. For othersTurn
// after that, no job can do so. Without these limits, an account with many large files could
// block the worker for all other accounts.
const (
	longestWait = 5 * time.Minute
	othersTurn  = time.Minute
)

// await is like reserve, but for a job that is already old. It waits until this worker's running
// jobs leave enough space, and does not give that space to jobs that start while it waits. Only one
// job waits at a time because two jobs could wait for each other's sources. A second job gets
// errReserved, as does a job that has waited for [longestWait]. For [othersTurn] after each wait,
// no other wait can begin. drop removes a retained source.
func (s *Scratch) await(ctx context.Context, dir string, bytes int64, drop func()) error {
	s.mu.Lock()
	if s.waiting != "" || time.Now().Before(s.rests) {
		s.mu.Unlock()
		return fmt.Errorf("%w, and this job is not allowed to wait for it now", errReserved)
	}
	s.waiting = dir
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, longestWait, errReserved)
	defer cancel()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting, s.rests = "", time.Now().Add(othersTurn)
	}()
	for {
		s.mu.Lock()
		freed := s.freed
		s.mu.Unlock()
		err := s.reserve(dir, bytes)
		if err != nil && s.idle() > 0 {
			drop() // the job that used the retained source has ended
			err = s.reserve(dir, bytes)
		}
		if !errors.Is(err, errReserved) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-freed:
		}
	}
}

// reserve reserves bytes for the job in dir and replaces its earlier reservation. If every job
// reserves all bytes that it will write, neither the disk nor the volume fills up. The volume's
// limit must be configured because no system call returns it. A pod that exceeds this limit is
// evicted.
func (s *Scratch) reserve(dir string, bytes int64) error {
	free, room, err := s.disk(s.dir)
	if err != nil {
		return err
	}
	if s.limit > 0 {
		room = min(room, s.limit)
	}
	bytes += spare
	if bytes > room {
		return fmt.Errorf("%w: the job needs up to %d bytes, but there are only %d in total", errTooLarge, bytes, room)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// While a job waits, only jobs with a reservation may reserve more.
	if s.waiting != "" && s.waiting != dir && s.reserved[dir] == 0 {
		return fmt.Errorf("%w: an older job is waiting for it", errReserved)
	}
	idle := s.idle()
	var others, unwritten int64
	for other, reserved := range s.reserved {
		if other != dir {
			others += reserved
			unwritten += max(0, reserved-written(other))
		}
	}
	switch {
	// All reservations must fit within the limit. All unwritten bytes must fit in the free space.
	case bytes+others+idle <= room && bytes-written(dir)+unwritten <= free:
		if bytes < s.reserved[dir] {
			defer s.free()
		}
		s.reserved[dir] = bytes
		return nil
	case others > 0:
		return fmt.Errorf("%w: the job needs %d bytes, and other jobs have reserved %d of %d", errReserved, bytes, others, room)
	}
	return fmt.Errorf("%w: the job needs %d bytes, %d are free, and a retained source takes %d", errNoSpace, bytes, free, idle)
}

// written returns the number of bytes in a job's folder. A file with several hard links counts
// once.
func written(dir string) (sum int64) {
	seen := map[uint64]bool{}
	_ = filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil // already removed
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		if sys, ok := info.Sys().(*syscall.Stat_t); ok && !seen[sys.Ino] {
			seen[sys.Ino] = true
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// Close removes the process's folder and its lock.
func (s *Scratch) Close() error {
	return errors.Join(os.RemoveAll(s.dir), os.Remove(s.lock.Name()), s.lock.Close())
}
