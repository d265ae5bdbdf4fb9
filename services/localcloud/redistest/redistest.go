// Package redistest gives a test its own real redis-server.
package redistest

import (
	"testing"

	"github.com/linkreel/linkreel/services/localcloud/redisproc"
)

// Start runs a server that exits with the test, and returns its host:port. The server stores
// nothing on disk. A test that kills Redis uses [Server].
func Start(tb testing.TB) string {
	tb.Helper()
	return start(tb, redisproc.Options{Dir: tb.TempDir(), Memory: true}).Addr()
}

// Server runs a server with an append-only file and returns the process, so the test can kill,
// pause and restart it.
func Server(tb testing.TB) *redisproc.Server {
	tb.Helper()
	return start(tb, redisproc.Options{Dir: tb.TempDir()})
}

func start(tb testing.TB, opt redisproc.Options) *redisproc.Server {
	tb.Helper()
	s, err := redisproc.Start(tb.Context(), opt)
	if err != nil {
		tb.Fatalf("cannot start Redis for the test: %v; run `make tools` to install it", err)
	}
	tb.Cleanup(func() { _ = s.Kill() })
	return s
}
