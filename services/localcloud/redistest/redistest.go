// Package redistest starts a real redis-server for a single test.
package redistest

import (
	"testing"

	"github.com/linkreel/linkreel/services/localcloud/redisproc"
)

// Start runs a server until the test ends and returns its host:port. The server does not store
// anything on disk. Use [Server] in tests that kill Redis.
func Start(tb testing.TB) string {
	tb.Helper()
	return start(tb, redisproc.Options{Dir: tb.TempDir(), Memory: true}).Addr()
}

// Server runs a server with an append-only file and returns its process, so that the test can kill,
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
