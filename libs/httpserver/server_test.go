package httpserver_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/httpserver"
)

// serveTCP starts srv on a TCP socket and returns the address. It is for tests that depend on the
// behaviour of kernel sockets.
func serveTCP(t *testing.T, srv *fasthttp.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Shutdown(); <-done })
	return l.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Most clients write their whole body before they read. Such a client must get the 413 instead of a
// connection reset.
func TestTooLargeABodyIsAnsweredAndNotCutOff(t *testing.T) {
	t.Parallel()
	addr := serveTCP(t, httpserver.New(func(*fasthttp.RequestCtx) {}))
	for _, size := range []int{1<<20 + 1, 6 << 20} {
		for range 5 {
			res, err := http.Post("http://"+addr+"/api/v1/links", "application/json", bytes.NewReader(make([]byte, size)))
			if err != nil {
				t.Fatalf("body of %d bytes: got %v, want a response", size, err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("body of %d bytes: status %d, want 413", size, res.StatusCode)
			}
		}
	}
}

func TestASilentConnectionIsClosedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	srv := httpserver.New(func(*fasthttp.RequestCtx) {})
	srv.ReadTimeout = 20 * time.Millisecond
	if got, err := io.ReadAll(dial(t, serveTCP(t, srv))); err != nil || len(got) > 0 {
		t.Errorf("read %q, %v; want no bytes", got, err)
	}
}

// stuck is a response body that reports when it is closed.
type stuck struct {
	io.Reader
	closed chan struct{}
}

func (s stuck) Close() error { close(s.closed); return nil }

func TestAStreamEndsByTheWriteTimeoutOfItsReader(t *testing.T) {
	t.Parallel()
	const size = 64 << 20 // more than the kernel's buffers
	body := stuck{strings.NewReader(strings.Repeat("x", size)), make(chan struct{})}
	srv := httpserver.New(func(c *fasthttp.RequestCtx) { c.SetBodyStream(body, size) })
	srv.WriteTimeout = 100 * time.Millisecond
	if _, err := io.WriteString(dial(t, serveTCP(t, srv)), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-body.closed:
	case <-time.After(20 * time.Second):
		t.Error("the response body was not closed within 20 s, want it closed after the write timeout, because the client reads nothing")
	}
}
