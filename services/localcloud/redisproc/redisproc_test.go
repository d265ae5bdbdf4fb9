package redisproc_test

import (
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
	// The second start stands for the next run after the parent was killed.
	second, err := redisproc.Start(t.Context(), redisproc.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	if err := second.Stop(); err != nil {
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
		t.Errorf("address moved from %s to %s", addr, s.Addr())
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
}
