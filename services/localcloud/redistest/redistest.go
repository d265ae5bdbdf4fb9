// Package redistest gives a test a real redis-server of its own.
package redistest

import (
	"testing"

	"github.com/linkreel/linkreel/services/localcloud/redisproc"
)

// Start runs a server that ends with the test and returns its host:port. It
// keeps nothing on disk; a test that kills Redis uses [Server].
func Start(tb testing.TB) string {
	tb.Helper()
	return start(tb, redisproc.Options{Dir: tb.TempDir(), Memory: true}).Addr()
}

// Server runs a server with an append-only file and returns the process, so that the test
// can kill, pause and restart it.
func Server(tb testing.TB) *redisproc.Server {
	tb.Helper()
	return start(tb, redisproc.Options{Dir: tb.TempDir()})
}

func start(tb testing.TB, opt redisproc.Options) *redisproc.Server {
	tb.Helper()
	s, err := redisproc.Start(tb.Context(), opt)
	if err != nil {
		tb.Fatalf("redis for the test: %v (`make tools` installs it)", err)
	}
	tb.Cleanup(func() { _ = s.Kill() })
	return s
}
