package e2e

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/andybalholm/brotli"

	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/services/localcloud/procstat"
)

// place is an endpoint that accepts a body, with the credential that it requires.
type place struct {
	method, url, key, contentType string
	public                        bool // a form on a page, which is not part of the API
}

// places returns all of a program's endpoints that accept a body: every operation in the API
// document, and the forms on pages.
func places(t testing.TB, s stackFile, link, video, shared string) (out []place) {
	t.Helper()
	for _, r := range apispec.Load().Routes() {
		switch strings.ToUpper(r.Method) {
		case http.MethodPost, http.MethodPut, http.MethodPatch:
		default:
			continue
		}
		id := "nothing"
		switch {
		case strings.HasPrefix(r.Path, "/api/v1/links/"):
			id = link
		case strings.HasPrefix(r.Path, "/api/v1/videos/"):
			id = video
		}
		p := place{method: strings.ToUpper(r.Method), key: s.Keys["enterprise"], contentType: "application/json"}
		p.url = s.BaseURL + regexp.MustCompile(`\{\w+\}`).ReplaceAllString(r.Path, id)
		if r.Tag == "Operator" {
			p.url, p.key = s.AdminURL+strings.TrimPrefix(p.url, s.BaseURL), s.AdminToken
		}
		out = append(out, p)
	}
	if len(out) < 25 {
		t.Fatalf("the program has %d endpoints that accept a body, want at least 25", len(out))
	}
	for _, path := range []string{"/app/sign-in", "/app/links", "/app/upload", shared + "/unlock", shared + "/report"} {
		out = append(out, place{method: http.MethodPost, url: s.BaseURL + path, contentType: "application/x-www-form-urlencoded", public: true})
	}
	return out
}

// send sends a body. again is the time after which a rate limit allows a retry.
func (p place) send(t testing.TB, body []byte, coding string) (status int, answer []byte, again time.Duration) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), p.method, p.url, bytes.NewReader(body))
	check(t, err)
	req.Header.Set("Content-Type", p.contentType)
	if p.key != "" {
		req.Header.Set("Authorization", "Bearer "+p.key)
	}
	if coding != "" {
		req.Header.Set("Content-Encoding", coding)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	check(t, err)
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	check(t, err)
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return resp.StatusCode, answer, time.Duration(seconds) * time.Second
}

// The test measures the cost of individual hostile requests to the real program: bodies that grow
// when they are decompressed, bodies full of invalid fields, and visitors with odd headers. None of
// the requests should use much memory or CPU time, and no clicks should be lost.
func TestNoSingleRequestHurtsTheProgram(t *testing.T) {
	t.Parallel()
	i := install(t)
	p, s := i.up()
	pid := p.cmd.Process.Pid
	c := s.as(t, "enterprise")
	link := c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/"})
	video := c.want(201, "POST", "/api/v1/videos", map[string]any{"privacy": "password", "password": "hush"})
	shared := strings.TrimPrefix(video.str("shareUrl"), s.BaseURL)
	all := places(t, s, link.str("id"), video.str("videoId"), shared)

	t.Run("bombs", func(t *testing.T) {
		zeros := make([]byte, 64<<20)
		for coding, packed := range map[string][]byte{
			"gzip":    pack(t, zeros, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }),
			"deflate": pack(t, zeros, func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 9); return z }),
			"br":      pack(t, zeros, func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) }),
		} {
			check(t, procstat.ResetPeak(pid))
			before, err := procstat.Peak(pid)
			check(t, err)
			for _, to := range all {
				if status, answer, _ := to.send(t, packed, coding); status != http.StatusUnsupportedMediaType {
					t.Errorf("%s of %d bytes to %s %s: status %d, want 415: %.200s", coding, len(packed), to.method, to.url, status, answer)
				}
			}
			after, err := procstat.Peak(pid)
			check(t, err)
			grown := after - before
			t.Logf("%s: 64 MiB in %d bytes to %d endpoints; the process grew by %d kB", coding, len(packed), len(all), grown>>10)
			if grown > 50<<20 {
				t.Errorf("%s: the process grew by %d MiB, want at most 50", coding, grown>>20)
			}
		}
	})

	t.Run("wrong fields", func(t *testing.T) {
		cpu := func() time.Duration {
			used, err := procstat.CPU(pid)
			check(t, err)
			return used
		}
		ordinary := place{method: http.MethodPost, url: s.BaseURL + "/api/v1/links", key: s.Keys["enterprise"], contentType: "application/json"}
		began := cpu()
		const many = 300
		for range many {
			if status, answer, _ := ordinary.send(t, []byte(`{"url":"https://example.com/x","title":"ordinary"}`), ""); status != 201 {
				t.Fatalf("an ordinary create returned %d, want 201: %s", status, answer)
			}
		}
		one := (cpu() - began) / many
		wrong := map[string][]byte{
			"unknown fields":  filled(`{`, func(n int) string { return fmt.Sprintf(`"field%d":0`, n) }, `}`),
			"one list":        filled(`{"tags":[`, func(int) string { return `0` }, `]}`),
			"lists of errors": filled(`{"links":[{"url":"ftp://x","slug":"?"}],"ids":["?"],"linkIds":["?"],"renditions":["?"],"tags":["`, func(n int) string { return fmt.Sprintf("%d\",\"", n) }, `"]}`),
			"one long string": filled(`{"url":"`, func(int) string { return `%zz` }, `"}`),
		}
		for _, to := range all {
			for name, body := range wrong {
				if to.public {
					body = append([]byte("password="), body...)
				}
				const times = 3
				began := cpu()
				for range times {
					status, answer, _ := to.send(t, body, "") // a rate limit may reject the request, which costs little
					if status >= 500 || len(answer) >= 64<<10 {
						t.Errorf("%s to %s %s: status %d with %d bytes, want less than 500 and 64 KiB: %.200s", name, to.method, to.url, status, len(answer), answer)
					}
				}
				// Ignore small values. The kernel measures CPU time in steps of 10 ms, and the
				// program's own sweeps use some of it.
				if each := (cpu() - began) / times; each > 20*one && each > 40*time.Millisecond {
					t.Errorf("%s to %s %s: each request used %v of CPU time, want at most 20 times the %v of an ordinary request", name, to.method, to.url, each, one)
				}
			}
		}
	})

	t.Run("odd referers", func(t *testing.T) {
		const many = 1_000
		var answered, other atomic.Int64
		var wg sync.WaitGroup
		next := make(chan string)
		for range 32 {
			wg.Go(func() {
				for referer := range next {
					a := visit(t, link.str("shortUrl"), "Referer", referer, "User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
					if a.status == http.StatusFound {
						answered.Add(1)
					} else {
						other.Add(1)
					}
				}
			})
		}
		for n := range many {
			next <- fmt.Sprintf("https://site%d.example/page", n)
		}
		for _, odd := range []string{
			"http://__x__/", "http://__proto__/", "http://a.b/c\"d", "http://" + strings.Repeat("x", 7000) + ".example/", "http://\xff\xfe\x80/", "\xc3\x28", "http://[::1]/", "//", "about:blank",
			"android-app://com.example/", "http://xn--/", "http://%00/", "http://.../", "http://a..b/", "http://\u202eevil/", "http://*/", "http://`/", "http://__name__.__x__/", "https://" + strings.Repeat("a.", 200) + "b/",
		} {
			next <- odd
		}
		close(next)
		wg.Wait()
		if other.Load() > 0 {
			t.Errorf("%d visitors were not redirected, want 0", other.Load())
		}
		eventually(t, 30*time.Second, "every visit is counted", func() bool {
			n, _ := c.want(200, "GET", "/api/v1/links/"+link.str("id"), nil).json["clicks"].(float64)
			if int64(n) > answered.Load() {
				t.Fatalf("%v clicks were counted for %d visits", n, answered.Load())
			}
			return int64(n) == answered.Load()
		})
	})
}

func pack(t testing.TB, plain []byte, with func(io.Writer) io.WriteCloser) []byte {
	t.Helper()
	var out bytes.Buffer
	z := with(&out)
	_, err := z.Write(plain)
	check(t, err)
	check(t, z.Close())
	return out.Bytes()
}

// filled returns a body of almost 1 MiB, the API's maximum.
func filled(begin string, item func(n int) string, end string) []byte {
	var b bytes.Buffer
	b.WriteString(begin)
	for n := 0; b.Len() < 1<<20-200; n++ {
		if n > 0 && !strings.HasSuffix(begin, `"`) {
			b.WriteByte(',')
		}
		b.WriteString(item(n))
	}
	b.WriteString(end)
	return b.Bytes()
}
