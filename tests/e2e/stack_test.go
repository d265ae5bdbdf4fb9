package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/standalone"
	"github.com/linkreel/linkreel/tests/contract"
)

// All tests share stack. Each test creates its own records.
var stack *standalone.Stack

func TestMain(m *testing.M) {
	code := runTests(m)
	endChromium()
	os.Exit(code)
}

// runTests runs the tests against the system that the stack.json in LINKREEL_STACK describes, for
// example one on a cluster. Without this variable, it starts a system.
func runTests(m *testing.M) int {
	if path := os.Getenv("LINKREEL_STACK"); path != "" {
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &stack)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "cannot read LINKREEL_STACK:", err)
			return 1
		}
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "linkreel-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stack, err = standalone.Start(ctx, standalone.Config{DataDir: filepath.Join(dir, "data"), Log: log, Env: map[string]string{
		"DNS_RESOLVER":               "127.0.0.1:9", // DNS queries must not leave this machine
		"LINKREEL_FIRESTORE_TIMEOUT": "9s",          // on a busy machine, Firestore is slow but not unreachable
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot start the stack:", err)
		return 1
	}
	code := m.Run()
	if err := stack.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "cannot stop the stack:", err)
		code = 1
	}
	if code != 0 {
		fmt.Fprintln(os.Stderr, "the end of the stack's log:")
		if text, err := os.ReadFile(log.Name()); err == nil {
			_, _ = os.Stderr.Write(text[max(0, len(text)-8000):])
		}
	}
	return code
}

// caller calls the API with one key.
type caller struct {
	t    testing.TB
	base string
	key  string
	http *http.Client
}

// as returns a caller with the key for the plan's demo account.
func as(t testing.TB, plan string) *caller {
	t.Helper()
	key, ok := stack.Keys[plan]
	if !ok {
		t.Fatalf("the stack has no key for plan %q", plan)
	}
	return &caller{t: t, base: stack.BaseURL, key: key, http: &http.Client{
		Transport: contract.NewTransport(t, http.DefaultTransport), Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// answer is a response and its complete body.
type answer struct {
	status int
	header http.Header
	raw    []byte
	json   map[string]any
}

func (a *answer) str(field string) string { s, _ := a.json[field].(string); return s }

func (a *answer) code() string {
	e, _ := a.json["error"].(map[string]any)
	s, _ := e["code"].(string)
	return s
}

// do sends a request. It encodes a body as JSON unless the body is a string or nil. headers
// contains alternating names and values.
func (c *caller) do(method, path string, body any, headers ...string) *answer {
	c.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			c.t.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	url := path
	if strings.HasPrefix(path, "/") {
		url = c.base + path
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, url, reader)
	if err != nil {
		c.t.Fatal(err)
	}
	if reader != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return send(c.t, c.http, req)
}

// want is like do, but it fails the test if the response has a different status.
func (c *caller) want(status int, method, path string, body any, headers ...string) *answer {
	c.t.Helper()
	a := c.do(method, path, body, headers...)
	if a.status != status {
		c.t.Fatalf("%s %s = %d %s, want %d", method, path, a.status, a.raw, status)
	}
	return a
}

func send(t testing.TB, client *http.Client, req *http.Request) *answer {
	t.Helper()
	res, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: cannot read the response: %v", req.Method, req.URL, err)
	}
	a := &answer{status: res.StatusCode, header: res.Header, raw: raw}
	_ = json.Unmarshal(raw, &a.json) // pages and media are not JSON
	return a
}

// visit sends a visitor's first request, a GET that does not follow redirects.
func visit(t testing.TB, url string, headers ...string) *answer {
	t.Helper()
	c := &caller{t: t, http: &http.Client{Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	return c.do(http.MethodGet, url, nil, headers...)
}

// eventually waits until ok returns true. The failure message contains what.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("after %s, still waiting for: %s", within, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// clip makes an MP4 file (H.264 and AAC) with a moving picture and a tone.
func clip(t testing.TB, seconds int, size string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clip.mp4")
	args := []string{"-nostdin", "-v", "error",
		"-f", "lavfi", "-i", fmt.Sprintf("testsrc2=size=%s:rate=30:duration=%d", size, seconds),
		"-f", "lavfi", "-i", fmt.Sprintf("sine=frequency=440:duration=%d", seconds),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "60", "-c:a", "aac", "-shortest", path}
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", args...).CombinedOutput(); err != nil {
		t.Fatalf("cannot make a clip: %v\n%s", err, out)
	}
	return path
}

// put uploads a file as curl -T does.
func put(t testing.TB, url, path, contentType string) *answer {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, f)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = info.Size()
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return send(t, http.DefaultClient, req)
}
