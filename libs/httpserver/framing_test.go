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

// serve runs h in memory and returns a function that connects to it.
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

// converse sends raw and reads all responses until the server closes the connection or
// has answered want requests.
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
			t.Errorf("%d without nosniff", res.StatusCode)
		}
	}
	_, err := r.ReadByte()
	return statuses, codes, err != nil
}

func TestRequestsThatCanBeReadInTwoWaysAreRefusedAndTheConnectionCloses(t *testing.T) {
	t.Parallel()
	dial := serve(t, func(ctx *fasthttp.RequestCtx) { ctx.SetStatusCode(204) })
	for name, raw := range map[string]string{
		"no Host":                         "GET / HTTP/1.1\r\nAccept: */*\r\n\r\n",
		"no Host in HTTP/1.0":             "GET / HTTP/1.0\r\n\r\n",
		"an empty Host":                   "GET / HTTP/1.1\r\nHost: \r\n\r\n",
		"two Hosts":                       "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"one Host twice":                  "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
		"two Hosts in one line":           "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
		"a Host with a path":              "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
		"a Host with a user":              "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
		"a space before the Host's colon": "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
		"a Host beside one with a space":  "GET / HTTP/1.1\r\nHost: a\r\nHost : b\r\n\r\n",
		"a tab before a colon":            "GET / HTTP/1.1\r\nHost: a\r\nX-Y\t: b\r\n\r\n",
		"a line that continues another":   "GET / HTTP/1.1\r\nHost: a\r\nX-Y: b\r\n Z: c\r\n\r\n",
		"Content-Length and chunked":      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked and Content-Length":      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"chunked with a space":            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"chunked twice":                   "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"an encoding called identity":     "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n",
		"chunked and gzip":                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"chunked in HTTP/1.0":             "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":                     "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
		"a length with a sign":            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
		"a made-up encoding":              "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// If the connection stayed open, the server would serve the second request.
			statuses, codes, closed := converse(t, dial, raw+"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", 2)
			if len(statuses) != 1 || statuses[0] != 400 || codes[0] != "BAD_REQUEST" || !closed {
				t.Errorf("responses %v %v, closed %v; want one 400 BAD_REQUEST and a closed connection", statuses, codes, closed)
			}
		})
	}
	for name, raw := range map[string]string{
		"a plain request":     "GET / HTTP/1.1\r\nHost: go.example.com\r\n\r\n",
		"a port":              "GET / HTTP/1.1\r\nHost: localhost:8081\r\n\r\n",
		"an IPv6 address":     "GET / HTTP/1.1\r\nHost: [::1]:8081\r\n\r\n",
		"spaces around it":    "GET / HTTP/1.1\r\nHost:  a \r\n\r\n",
		"a chunked body":      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"a body with length":  "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"an identity coding":  "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
		"a coding, no body":   "GET / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n\r\n",
		"a value with colons": "GET / HTTP/1.1\r\nHost: a\r\nX-Y: b: c\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if statuses, _, closed := converse(t, dial, raw+"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 2); len(statuses) != 2 || statuses[0] != 204 || !closed {
				t.Errorf("responses %v, want two 204s", statuses)
			}
		})
	}
}

// A proxy could resolve DELETE /videos/vid_1/captions/.. to the deletion of the video.
func TestAPathWithADotSegmentIsRefusedBeforeRouting(t *testing.T) {
	t.Parallel()
	dial := serve(t, func(ctx *fasthttp.RequestCtx) { ctx.SetStatusCode(204) })
	for _, path := range []string{
		"/v/..", "/v/.", "/../v", "/v/../w", "/v/./w", "/v/..?q=1",
		"/v/%2e%2e", "/v/%2E%2e", "/v/.%2e", "/v/%2e", "/v/%2e%2e/w", "/%2e%2e%2fadmin", "/v/x%2F..", `/v/..\w`, "/v/..%5Cw", "http://a/v/..",
	} {
		statuses, codes, closed := converse(t, dial, "DELETE "+path+" HTTP/1.1\r\nHost: a\r\n\r\n", 1)
		if len(statuses) != 1 || statuses[0] != 400 || codes[0] != "BAD_REQUEST" || !closed {
			t.Errorf("%s: responses %v %v, closed %v; want one 400 BAD_REQUEST and a closed connection", path, statuses, codes, closed)
		}
	}
	for _, path := range []string{"/d/..", "/d/%2e%2e/x"} {
		statuses, codes, closed := converse(t, dial, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n", 1)
		if len(statuses) != 1 || statuses[0] != 404 || codes[0] != "NOT_FOUND" || !closed {
			t.Errorf("a visitor of %s: responses %v %v, want one 404", path, statuses, codes)
		}
	}
	for _, path := range []string{"/", "/v", "/v/", "/.well-known/x", "/v/a.b", "/v/...", "/v/..a", "/v/%2e%2ea", "/v?next=/../w", "/v/%", "/v/%2", "/v/%252e%252e", "/v/100%.", "//v"} {
		if statuses, _, closed := converse(t, dial, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 1); len(statuses) != 1 || statuses[0] != 204 || !closed {
			t.Errorf("%s: responses %v, want 204", path, statuses)
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
			t.Errorf("%s: %v %v, closed %v", coding, statuses, codes, closed)
		}
	}
	if reached {
		t.Error("a handler got a compressed body")
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
			t.Errorf("base %q, host %q: %q", tt.base, tt.host, got)
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
