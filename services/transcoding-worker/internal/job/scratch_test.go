package job

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestWorkersMayStartAtOnceBesideLeftovers is a node that comes back with all its
// workers after they were killed.
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
				if opened[i], err = OpenScratch(root); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		// Whoever starts later leaves those that live alone.
		late, err := OpenScratch(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range append(opened, late) {
			if _, remove, err := s.Job(); err != nil {
				t.Errorf("a living worker lost its folder: %v", err)
			} else {
				remove()
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
			t.Fatalf("left behind: %v, %v", left, err)
		}
	}
}
