package redisproc_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/services/localcloud/redisproc"
)

func TestAServerLeftByAKilledParentIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := redisproc.Start(t.Context(), redisproc.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	// The second start simulates the next run after the parent was killed.
	second, err := redisproc.Start(t.Context(), redisproc.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
}

// After a reboot, the pid in the pid file may belong to another Redis.
func TestAnotherServerWithAReusedNumberIsNotStopped(t *testing.T) {
	t.Parallel()
	other, err := redisproc.Start(t.Context(), redisproc.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(filepath.Join(other.Dir(), "redis.pid"))
	if err != nil {
		t.Fatal(err)
	}
	number, _, _ := strings.Cut(string(pid), " ")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "redis.pid"), []byte(number+" 99999"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := redisproc.Start(t.Context(), redisproc.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-other.Done():
		t.Error("Start stopped an unrelated server, want it to keep running")
	default:
	}
	if err := errors.Join(s.Stop(), other.Stop()); err != nil {
		t.Fatal(err)
	}
}

func TestKillAndRestartKeepTheAddress(t *testing.T) {
	t.Parallel()
	s, err := redisproc.Start(t.Context(), redisproc.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	addr := s.Addr()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr {
		t.Errorf("the address changed from %s to %s, want no change", addr, s.Addr())
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
}
