package httpserver_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/httpserver"
)

// A client that writes its whole body before it reads, as most do, must see the
// 413 and not a connection that was reset under it.
func TestTooLargeABodyIsAnsweredAndNotCutOff(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httpserver.New(func(*fasthttp.RequestCtx) {})
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Shutdown(); <-done })
	for _, size := range []int{1<<20 + 1, 6 << 20} {
		for range 5 {
			res, err := http.Post("http://"+l.Addr().String()+"/api/v1/links", "application/json", bytes.NewReader(make([]byte, size)))
			if err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%d bytes: status %d, want 413", size, res.StatusCode)
			}
		}
	}
}

func TestASilentConnectionIsClosedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	srv := httpserver.New(func(*fasthttp.RequestCtx) {})
	srv.ReadTimeout = 20 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Shutdown(); <-done })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
		t.Errorf("got %q, %v; want nothing", got, err)
	}
}
