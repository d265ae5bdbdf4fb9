package job

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestWorkersMayStartAtOnceBesideLeftovers restarts all workers on a node after they were
// killed.
func TestWorkersMayStartAtOnceBesideLeftovers(t *testing.T) {
	t.Parallel()
	for range 50 {
		root := t.TempDir()
		for _, name := range []string{"worker-1", "worker-2", "worker-3"} {
			if err := os.MkdirAll(filepath.Join(root, name, "job-1"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name+".lock"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		opened := make([]*Scratch, 8)
		var wg sync.WaitGroup
		for i := range opened {
			wg.Go(func() {
				var err error
				if opened[i], err = OpenScratch(root, 0); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		// A worker that starts later must not remove the folders of running workers.
		late, err := OpenScratch(root, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range append(opened, late) {
			if _, remove, err := s.Job(); err != nil {
				t.Errorf("Job for a running worker returned %v, want a new folder", err)
			} else {
				remove()
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
			t.Fatalf("the root contains %v (error %v), want no leftovers", left, err)
		}
	}
}

// openScratch opens a Scratch on a simulated disk that is large and empty, so tests do not depend
// on the machine's free space.
func openScratch(t *testing.T, limit int64) (*Scratch, error) {
	t.Helper()
	s, err := OpenScratch(t.TempDir(), limit)
	if err == nil {
		s.disk = func(string) (free, size int64, err error) { return 1 << 50, 1 << 50, nil }
	}
	return s, err
}

func TestJobsTogetherReserveNoMoreThanThereIs(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	s, err := openScratch(t, 1000*mib+2*spare)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	job := func() (dir string, remove func()) {
		dir, remove, err := s.Job()
		if err != nil {
			t.Fatal(err)
		}
		return dir, remove
	}
	reserve := func(what, dir string, bytes int64, want error) {
		t.Helper()
		if err := s.reserve(dir, bytes); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: reserve = %v, want %v", what, err, want)
		}
	}
	a, endA := job()
	b, endB := job()
	reserve("first job", a, 600*mib, nil)
	reserve("too much space for a second job", b, 500*mib, errReserved)
	reserve("all remaining space", b, 400*mib, nil)
	reserve("more than the remaining space", b, 401*mib, errReserved)
	reserve("less", a, 100*mib, nil)
	reserve("increased remaining space", b, 900*mib, nil)
	reserve("more than the limit", b, 2000*mib, errTooLarge)
	endB()
	reserve("all space after the other job has ended", a, 1000*mib, nil)
	reserve("less", a, 100*mib, nil)
	if err := os.WriteFile(s.retained(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(s.retained(), 500*mib); err != nil {
		t.Fatal(err)
	}
	reserve("too much space alongside a retained source", a, 600*mib, errNoSpace)
	if err := os.Link(s.retained(), filepath.Join(a, "source")); err != nil {
		t.Fatal(err)
	}
	reserve("retained source of the same job", a, 600*mib, nil)
	endA()
	if err := os.Remove(s.retained()); err != nil {
		t.Fatal(err)
	}
	s.limit = 0
	c, _ := job()
	reserve("more than the free disk space", c, 1<<60, errTooLarge)
	if err := os.WriteFile(filepath.Join(c, "a"), make([]byte, mib), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(c, "a"), filepath.Join(c, "b")); err != nil {
		t.Fatal(err)
	}
	if n := written(c); n != mib {
		t.Errorf("a file with two hard links counts as %d bytes, want %d", n, mib)
	}
}
