package httpserver_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/linkreel/linkreel/libs/httpserver"
)

// serve runs h on an in-memory listener and returns a function that connects to it.
func serve(t *testing.T, h fasthttp.RequestHandler) func() net.Conn {
	t.Helper()
	l := fasthttputil.NewInmemoryListener()
	srv := httpserver.New(h)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Shutdown(); _ = l.Close(); <-done })
	return func() net.Conn {
		c, err := l.Dial()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// converse sends raw and reads responses until the server closes the connection or want responses
// have arrived.
func converse(t *testing.T, dial func() net.Conn, raw string, want int) (statuses []int, codes []string, closed bool) {
	t.Helper()
	c := dial()
	defer func() { _ = c.Close() }()
	go func() { _, _ = c.Write([]byte(raw)) }()
	r := bufio.NewReader(c)
	for len(statuses) < want {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return statuses, codes, true
		}
		var body struct {
			Error struct{ Code string } `json:"error"`
		}
		text, _ := io.ReadAll(res.Body)
		_ = json.Unmarshal(text, &body) // some responses have no JSON body
		statuses, codes = append(statuses, res.StatusCode), append(codes, body.Error.Code)
		if res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("response %d has no X-Content-Type-Options: nosniff", res.StatusCode)
		}
	}
	_, err := r.ReadByte()
	return statuses, codes, err != nil
}

func TestRequestsThatCanBeReadInTwoWaysAreRefusedAndTheConnectionCloses(t *testing.T) {
	t.Parallel()
	dial := serve(t, func(ctx *fasthttp.RequestCtx) { ctx.SetStatusCode(204) })
	for name, raw := range map[string]string{
		"missing Host":                      "GET / HTTP/1.1\r\nAccept: */*\r\n\r\n",
		"missing Host in HTTP/1.0":          "GET / HTTP/1.0\r\n\r\n",
		"empty Host":                        "GET / HTTP/1.1\r\nHost: \r\n\r\n",
		"two Hosts":                         "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"repeated Host":                     "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
		"two Hosts on one line":             "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
		"Host with a path":                  "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
		"Host with a user":                  "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
		"space before the colon after Host": "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
		"two Hosts, one with a space":       "GET / HTTP/1.1\r\nHost: a\r\nHost : b\r\n\r\n",
		"tab before a colon":                "GET / HTTP/1.1\r\nHost: a\r\nX-Y\t: b\r\n\r\n",
		"continuation line":                 "GET / HTTP/1.1\r\nHost: a\r\nX-Y: b\r\n Z: c\r\n\r\n",
		"Content-Length and chunked":        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked and Content-Length":        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"Transfer-Encoding with a space":    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"repeated Transfer-Encoding":        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"Transfer-Encoding identity":        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n",
		"chunked and gzip":                  "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"chunked in HTTP/1.0":               "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"repeated Content-Length":           "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
		"Content-Length with a sign":        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
		"unknown Transfer-Encoding":         "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// If the connection were kept open, the server would serve the second request.
			statuses, codes, closed := converse(t, dial, raw+"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", 2)
			if len(statuses) != 1 || statuses[0] != 400 || codes[0] != "BAD_REQUEST" || !closed {
				t.Errorf("got responses %v %v, closed = %v; want one 400 BAD_REQUEST and a closed connection", statuses, codes, closed)
			}
		})
	}
	for name, raw := range map[string]string{
		"plain request":                   "GET / HTTP/1.1\r\nHost: go.example.com\r\n\r\n",
		"Host with a port":                "GET / HTTP/1.1\r\nHost: localhost:8081\r\n\r\n",
		"Host with an IPv6 address":       "GET / HTTP/1.1\r\nHost: [::1]:8081\r\n\r\n",
		"Host surrounded by spaces":       "GET / HTTP/1.1\r\nHost:  a \r\n\r\n",
		"chunked body":                    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"body with Content-Length":        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"identity encoding":               "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
		"Content-Encoding without a body": "GET / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n\r\n",
		"value with colons":               "GET / HTTP/1.1\r\nHost: a\r\nX-Y: b: c\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if statuses, _, closed := converse(t, dial, raw+"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 2); len(statuses) != 2 || statuses[0] != 204 || !closed {
				t.Errorf("got responses %v, want two 204s and a closed connection", statuses)
			}
		})
	}
}

// A proxy could resolve the path in DELETE /videos/vid_1/captions/.., which would delete the video.
func TestAPathWithADotSegmentIsRefusedBeforeRouting(t *testing.T) {
	t.Parallel()
	dial := serve(t, func(ctx *fasthttp.RequestCtx) { ctx.SetStatusCode(204) })
	for _, path := range []string{
		"/v/..", "/v/.", "/../v", "/v/../w", "/v/./w", "/v/..?q=1",
		"/v/%2e%2e", "/v/%2E%2e", "/v/.%2e", "/v/%2e", "/v/%2e%2e/w", "/%2e%2e%2fadmin", "/v/x%2F..", `/v/..\w`, "/v/..%5Cw", "http://a/v/..",
	} {
		statuses, codes, closed := converse(t, dial, "DELETE "+path+" HTTP/1.1\r\nHost: a\r\n\r\n", 1)
		if len(statuses) != 1 || statuses[0] != 400 || codes[0] != "BAD_REQUEST" || !closed {
			t.Errorf("%s: got responses %v %v, closed = %v; want one 400 BAD_REQUEST and a closed connection", path, statuses, codes, closed)
		}
	}
	for _, path := range []string{"/d/..", "/d/%2e%2e/x"} {
		statuses, codes, closed := converse(t, dial, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n", 1)
		if len(statuses) != 1 || statuses[0] != 404 || codes[0] != "NOT_FOUND" || !closed {
			t.Errorf("visitor to %s: got responses %v %v, want one 404 NOT_FOUND and a closed connection", path, statuses, codes)
		}
	}
	for _, path := range []string{"/", "/v", "/v/", "/.well-known/x", "/v/a.b", "/v/...", "/v/..a", "/v/%2e%2ea", "/v?next=/../w", "/v/%", "/v/%2", "/v/%252e%252e", "/v/100%.", "//v"} {
		if statuses, _, closed := converse(t, dial, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 1); len(statuses) != 1 || statuses[0] != 204 || !closed {
			t.Errorf("%s: got responses %v, want 204", path, statuses)
		}
	}
}

func TestPackedBodiesAreRefusedUnopened(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	_, _ = w.Write(make([]byte, 8<<20))
	_ = w.Close()
	reached := false
	dial := serve(t, func(*fasthttp.RequestCtx) { reached = true })
	for _, coding := range []string{"gzip", "GZIP", "deflate", "br", "zstd", "identity, gzip", "x"} {
		raw := "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: " + coding + "\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"400\r\n" + bomb.String()[:0x400] + "\r\n0\r\n\r\n"
		statuses, codes, closed := converse(t, dial, raw, 1)
		if len(statuses) != 1 || statuses[0] != 415 || codes[0] != "UNSUPPORTED_MEDIA_TYPE" || !closed {
			t.Errorf("%s: got responses %v %v, closed = %v; want one 415 UNSUPPORTED_MEDIA_TYPE and a closed connection", coding, statuses, codes, closed)
		}
	}
	if reached {
		t.Error("a handler was called for a compressed body")
	}
}

func TestStrictTransportIsForTheBaseHostAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		base, host string
		want       bool
	}{
		{"https://go.example.com", "go.example.com", true},
		{"https://go.example.com:8443", "GO.example.com:8443", true},
		{"https://go.example.com", "links.customer.example", false},
		{"https://go.example.com", "sub.go.example.com", false},
		{"http://go.example.com", "go.example.com", false},
		{"", "go.example.com", false},
	} {
		dial := serve(t, httpserver.StrictTransport(tt.base, func(*fasthttp.RequestCtx) {}))
		c := dial()
		go func() { _, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: " + tt.host + "\r\n\r\n")) }()
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		got := res.Header.Get("Strict-Transport-Security")
		if (got != "") != tt.want || strings.Contains(got, "includeSubDomains") {
			t.Errorf("base %q, host %q: Strict-Transport-Security = %q, want it present = %v", tt.base, tt.host, got, tt.want)
		}
	}
}

func BenchmarkFraming(b *testing.B) {
	req := "GET /abc HTTP/1.1\r\nHost: go.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n" +
		"Accept: text/html,application/xhtml+xml\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\nReferer: https://example.com/\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n"
	var ctx fasthttp.RequestCtx
	if err := ctx.Request.Read(bufio.NewReader(strings.NewReader(req))); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if e := httpserver.Framing(&ctx.Request); e != nil {
			b.Fatal(e)
		}
	}
}
