package httpapi_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/httpapi"
)

// A client that writes its whole body before it reads, as most do, must see the
// 413 and not a connection that was reset under it.
func TestTooLargeABodyIsAnsweredAndNotCutOff(t *testing.T) {
	t.Parallel()
	a := httpapi.New(httpapi.Options{Name: "test", Auth: keys})
	a.Handle("POST", "/api/v1/links", httpapi.Access{}, ok)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httpapi.NewServer("", a.Handler())
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

func TestMadeUpMethodsGetTheUsualErrors(t *testing.T) {
	t.Parallel()
	dial := serve(t, httpapi.Options{Now: time.Now}, func(a *httpapi.API) {
		a.Handle("GET", "/api/v1/links", httpapi.Access{}, ok)
	})
	for path, want := range map[string]string{"/api/v1/links": "METHOD_NOT_ALLOWED", "/api/v1/nothing": "NOT_FOUND"} {
		res, body := ask(t, dial, request("PROPFIND", path, "free", "", ""))
		if codeOf(body) != want {
			t.Errorf("PROPFIND %s: %d %v, want %s", path, res.StatusCode, body, want)
		}
	}
}

func TestASilentConnectionIsClosedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	srv := httpapi.NewServer("", func(*fasthttp.RequestCtx) {})
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
