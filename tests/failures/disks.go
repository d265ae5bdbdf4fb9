package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/linkreel/linkreel/libs/outage"
)

// folder returns the folder with a part's files. It is on a small disk of its own if the failure
// needs one.
func (s *stack) folder(name string) string {
	if disk, ok := s.disks[name]; ok {
		return filepath.Join(disk, "data")
	}
	return filepath.Join(s.dir, name)
}

// mount gives a part a small disk. Its size exceeds the reserve that localcloud keeps free.
func (s *stack) mount(name string) error {
	disk := filepath.Join(s.dir, "disk-"+name)
	if err := os.MkdirAll(disk, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=512m"); err != nil {
		return fmt.Errorf("cannot mount a small disk; run this program as root: %w", err)
	}
	s.disks[name] = disk
	return os.MkdirAll(s.folder(name), 0o700)
}

// fill fills a disk. Until ctx is done, it also fills any space that becomes free.
func (s *stack) fill(ctx context.Context, name string) error {
	f, err := os.OpenFile(s.filler(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	fillUp := func() {
		for block := make([]byte, 1<<20); err == nil; {
			_, err = f.Write(block)
		}
		err = nil
	}
	fillUp()
	go func() {
		defer f.Close() // its content does not matter
		for outage.Pause(ctx, 100*time.Millisecond) {
			fillUp()
		}
	}()
	return nil
}

// empty removes what fill has written.
func (s *stack) empty(name string) error { return os.Remove(s.filler(name)) }

func (s *stack) filler(name string) string { return filepath.Join(s.disks[name], "filler") }

// volumes returns the free space of the small disks as a kubelet does.
func (s *stack) volumes(w http.ResponseWriter, _ *http.Request) {
	for name, disk := range s.disks {
		var at syscall.Statfs_t
		if err := syscall.Statfs(disk, &at); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		volume := fmt.Sprintf("{persistentvolumeclaim=\"data-%s-linkreel-%s-0\"}", release, name)
		fmt.Fprintf(w, "kubelet_volume_stats_available_bytes%s %d\nkubelet_volume_stats_capacity_bytes%[1]s %[3]d\n", volume, at.Bavail*uint64(at.Bsize), at.Blocks*uint64(at.Bsize))
	}
}
