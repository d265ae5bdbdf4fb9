package redisproc_test

import (
	"context"
	"errors"
	"net"
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

// After a reboot, the pid in the pid file may belong to a different Redis.
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

func TestAServerThatCannotReadItsDataSaysWhy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := redisproc.Start(t.Context(), redisproc.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("the server left the append-only files %v (error %v), want one", logs, err)
	}
	if err := os.WriteFile(logs[0], []byte("this is not a command\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = redisproc.Start(t.Context(), redisproc.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "Bad file format reading the append only file") {
		t.Errorf("starting on a damaged file returned %v, want the reason that Redis prints", err)
	}
}

func TestAServerThatRefusesCommandsSaysWhy(t *testing.T) {
	t.Parallel()
	idle := filepath.Join(t.TempDir(), "redis-server")
	if err := os.WriteFile(idle, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for calls := 0; ; calls++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 64))
			_, _ = conn.Write([]byte("-MISCONF Errors writing to the AOF file: No space left on device\r\n"))
			_ = conn.Close()
			if calls == 1 { // Start has read the reply to its first call
				cancel()
			}
		}
	}()
	_, err = redisproc.Start(ctx, redisproc.Options{Dir: t.TempDir(), Addr: l.Addr().String(), Binary: idle})
	if err == nil || !strings.Contains(err.Error(), "MISCONF Errors writing to the AOF file: No space left on device") {
		t.Errorf("starting a server that refuses commands returned %v, want its reply", err)
	}
}
