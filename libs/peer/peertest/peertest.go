// Package peertest serves internal APIs in tests.
package peertest

import (
	"net"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/httpserver"
)

// Serve serves handler until the test ends, and returns its URL.
func Serve(tb testing.TB, handler fasthttp.RequestHandler) string {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server, ended := httpserver.New(handler), make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	tb.Cleanup(func() { _ = server.Shutdown(); <-ended })
	return "http://" + l.Addr().String()
}
