package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program builds linkreel once for all process tests and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "linkreel-bin-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "linkreel")
	out, err := exec.Command("go", "build", "-o", path, "../../services/standalone/cmd/linkreel").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot build linkreel: %w\n%s", err, out)
	}
	return path, nil
})

// installation is a working folder with data and ports. Several processes can use it in turn.
type installation struct {
	t      *testing.T
	dir    string
	base   int
	env    []string // added to the test's own environment
	data   string   // the absolute path of a data directory other than the default
	beside bool     // another stack that was started from dir is running
}

// stackPath is the path that `linkreel up` writes stack.json to.
func (i *installation) stackPath() string {
	if i.beside {
		return filepath.Join(i.data, "stack.json")
	}
	return filepath.Join(i.dir, ".local", "stack.json")
}

func install(t *testing.T) *installation {
	t.Helper()
	return &installation{t: t, dir: t.TempDir(), base: fourFreePorts(t)}
}

// process is one running `linkreel up`.
type process struct {
	cmd  *exec.Cmd
	out  *bytes.Buffer
	done chan error
}

func (i *installation) start() *process {
	i.t.Helper()
	bin, err := program()
	if err != nil {
		i.t.Fatal(err)
	}
	p := &process{cmd: exec.Command(bin, "up"), out: &bytes.Buffer{}, done: make(chan error, 1)}
	p.cmd.Dir = i.dir
	p.cmd.Env = append(append(os.Environ(), fmt.Sprintf("LINKREEL_PORT_BASE=%d", i.base)), i.env...)
	if i.data != "" {
		p.cmd.Env = append(p.cmd.Env, "LINKREEL_DATA_DIR="+i.data)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait(); close(p.done) }()
	i.t.Cleanup(p.kill) // kill the process before the test removes the folders that it writes to
	return p
}

type stackFile struct {
	BaseURL      string            `json:"baseUrl"`
	ShortBaseURL string            `json:"shortBaseUrl"`
	AdminURL     string            `json:"adminUrl"`
	AdminToken   string            `json:"adminToken"`
	UploadURL    string            `json:"uploadUrl"`
	Keys         map[string]string `json:"keys"`
}

// up starts a process and waits until it is ready.
func (i *installation) up() (*process, stackFile) {
	i.t.Helper()
	started := time.Now()
	p := i.start()
	var s stackFile
	eventually(i.t, 60*time.Second, "stack.json is written", func() bool {
		select {
		case err := <-p.done:
			i.t.Fatalf("linkreel exited before it was ready: %v\n%s", err, p.out)
		default:
		}
		path := i.stackPath()
		info, err := os.Stat(path)
		if err != nil || info.ModTime().Before(started) {
			return false // the file is missing, or a killed process left it behind
		}
		text, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(text, &s) == nil
	})
	return p, s
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (s stackFile) as(t *testing.T, plan string) *caller {
	return &caller{t: t, base: s.BaseURL, key: s.Keys[plan], http: &http.Client{Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// quickly contains settings that let a new program quickly take over the work of a killed one.
var quickly = []string{
	"DNS_RESOLVER=127.0.0.1:9", "LINKREEL_FIRESTORE_TIMEOUT=9s", "LINKREEL_JANITOR_EVERY=1s", "LINKREEL_SWEEP_EVERY=1s",
	"LINKREEL_JOB_LEASE=3s", "LINKREEL_JOB_HEARTBEAT=500ms", "LINKREEL_JOB_SWEEP=1s",
}

func TestTheProgramKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.env = quickly
	p, s := i.up()
	if len(s.Keys) != 4 || s.AdminToken == "" || s.UploadURL == "" {
		t.Fatalf("stack.json is %+v, want 4 keys, an admin token and an upload URL", s)
	}
	c := s.as(t, "creator")

	link := c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/kept"})
	waiting := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": "upload is interrupted"})
	busy := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": "transcoding is interrupted"})
	if a := put(t, busy.str("uploadUrl"), clip(t, 20, "1280x720"), "video/mp4"); a.status != 200 {
		t.Fatalf("the upload returned %d, want 200", a.status)
	}
	eventually(t, 30*time.Second, "the video is being processed", func() bool {
		return c.want(200, "GET", "/api/v1/videos/"+busy.str("videoId"), nil).str("status") != "uploading"
	})
	half := startHalfUpload(t, waiting.str("uploadUrl"))
	p.kill() // during an upload and a job
	half()

	p, s = i.up()
	c = s.as(t, "creator") // the demo keys must survive the kill
	if got := visit(t, link.str("shortUrl")); got.status != 302 || got.header.Get("Location") != "https://example.com/kept" {
		t.Errorf("after the kill, the link returned %d with Location %q, want 302 to https://example.com/kept", got.status, got.header.Get("Location"))
	}
	if a := put(t, waiting.str("uploadUrl"), clip(t, 2, "320x180"), "video/mp4"); a.status != 200 {
		t.Errorf("repeating the upload to the same URL returned %d, want 200: %s", a.status, a.raw)
	}
	// None of the requests mention the video with the interrupted job, so the sweep must find it.
	eventually(t, 2*time.Minute, "both videos are ready", func() bool {
		list := c.want(200, "GET", "/api/v1/videos", nil)
		for _, v := range list.json["data"].([]any) {
			if v.(map[string]any)["status"] != "ready" {
				return false
			}
		}
		return true
	})

	i.interrupt(p)
}

// interrupt sends Ctrl-C. The program must exit without an error and remove its
// stack.json.
func (i *installation) interrupt(p *process) {
	i.t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		i.t.Fatal(err)
	}
	select {
	case err := <-p.done:
		if err != nil {
			i.t.Errorf("after Ctrl-C, the program exited with %v, want no error\n%s", err, p.out)
		}
	case <-time.After(30 * time.Second):
		i.t.Fatal("the program did not exit within 30 s of Ctrl-C")
	}
	if _, err := os.Stat(i.stackPath()); !os.IsNotExist(err) {
		i.t.Errorf("stack.json still exists after the program exited: %v", err)
	}
}

// Two systems started from the same folder must have separate stack.json files.
func TestASecondSystemLeavesTheFirstOnesFileAlone(t *testing.T) {
	t.Parallel()
	first := install(t)
	p1, one := first.up()
	second := &installation{t: t, dir: first.dir, base: fourFreePorts(t), data: t.TempDir(), beside: true}
	p, two := second.up()
	if one.BaseURL == two.BaseURL {
		t.Fatalf("both systems have the address %s", one.BaseURL)
	}
	unchanged := func(when string) {
		var s stackFile
		text, err := os.ReadFile(first.stackPath())
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil || s.BaseURL != one.BaseURL {
			t.Errorf("%s, the first system's stack.json has the address %q, want %q: %v", when, s.BaseURL, one.BaseURL, err)
		}
	}
	unchanged("while the second system runs")
	second.interrupt(p)
	unchanged("after the second system exited")

	// A system that runs on its own uses .local/stack.json, regardless of its data directory.
	first.interrupt(p1)
	second.beside = false
	p, _ = second.up()
	second.interrupt(p)
}

func TestTheProgramSaysWhyItCannotStart(t *testing.T) {
	t.Parallel()
	first := install(t)
	_, _ = first.up()
	second := &installation{t: t, dir: t.TempDir(), base: first.base}
	if out := second.fails(); !strings.Contains(out, fmt.Sprintf("port %d is in use", first.base)) {
		t.Errorf("with a busy port, the program printed %q, want a message with the port", out)
	}
	third := &installation{t: t, dir: first.dir, base: fourFreePorts(t)}
	if out := third.fails(); !strings.Contains(out, "another Linkreel instance is running on") {
		t.Errorf("a second instance printed %q, want a message that another instance is running", out)
	}
	if _, err := os.Stat(filepath.Join(first.dir, ".local", "stack.json")); err != nil {
		t.Errorf("the instance that could not start removed the first one's stack.json: %v", err)
	}
}

// fails runs a process that must exit on its own, with an error code and one line of text.
func (i *installation) fails() string {
	i.t.Helper()
	p := i.start()
	select {
	case err := <-p.done:
		if err == nil {
			i.t.Errorf("the program exited without an error, want one\n%s", p.out)
		}
	case <-time.After(20 * time.Second):
		i.t.Fatalf("the program did not exit within 20 s, want an error at startup\n%s", p.out)
	}
	if lines := strings.Count(strings.TrimSpace(p.out.String()), "\n"); lines > 0 {
		i.t.Errorf("the error message has more than one line:\n%s", p.out)
	}
	return p.out.String()
}

// span is a span in the console exporter's format.
type span struct {
	Name        string
	SpanContext struct{ TraceID string }
	Links       []struct{ SpanContext struct{ TraceID string } }
}

func TestTracesReachFromTheRequestToFirestoreAndTheWorker(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.env = []string{"OTEL_TRACES_EXPORTER=console"} // OpenTelemetry's standard variable
	p, s := i.up()
	c := s.as(t, "creator")
	link := c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/"})
	video := c.want(201, "POST", "/api/v1/videos", map[string]any{})
	if a := put(t, video.str("uploadUrl"), clip(t, 2, "320x180"), "video/mp4"); a.status != 200 {
		t.Fatalf("the upload returned %d, want 200", a.status)
	}
	waitFor(t, c, video.str("videoId"), "ready", nil)
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-p.done // on exit, the program exports the remaining spans

	names := map[string][]string{} // by trace
	var linked []string
	for text := p.out.String(); ; {
		at := strings.Index(text, `{"Name"`)
		if at < 0 {
			break
		}
		var sp span
		dec := json.NewDecoder(strings.NewReader(text[at:]))
		if err := dec.Decode(&sp); err != nil {
			t.Fatalf("cannot parse a span: %v", err)
		}
		text = text[at+int(dec.InputOffset()):]
		names[sp.SpanContext.TraceID] = append(names[sp.SpanContext.TraceID], sp.Name)
		if sp.Name == "transcode" {
			for _, l := range sp.Links {
				linked = append(linked, l.SpanContext.TraceID)
			}
		}
	}
	create := names[link.header.Get("X-Request-Id")]
	for _, want := range []string{"POST /api/v1/links", "cloud.google.com/go/firestore.Client.Commit"} {
		if !slices.Contains(create, want) {
			t.Errorf("the trace for the create has no span %q, only %v", want, create)
		}
	}
	if len(linked) == 0 {
		t.Fatal("the worker's trace is not linked to another trace")
	}
	if !slices.ContainsFunc(names[linked[0]], func(n string) bool { return strings.Contains(n, "firestore") }) {
		t.Errorf("the trace that the worker is linked to has no Firestore span: %v", names[linked[0]])
	}
}

// startHalfUpload sends the first part of a body and keeps the connection open.
func startHalfUpload(t *testing.T, url string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, r)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = 1 << 20
	done := make(chan struct{})
	go func() {
		defer close(done)
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
		}
	}()
	if _, err := w.Write(make([]byte, 1<<18)); err != nil {
		t.Fatal(err)
	}
	return func() { cancel(); _ = w.Close(); <-done }
}

func fourFreePorts(t testing.TB) int {
	t.Helper()
	for base := 10000 + os.Getpid()%2000*10; base < 32000; base += 10 { // below the system's ephemeral ports
		free := true
		for n := base; n < base+4 && free; n++ {
			for _, host := range []string{"127.0.0.1", "[::1]"} {
				l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, n))
				if err != nil {
					free = free && !isInUse(err)
					continue
				}
				_ = l.Close()
			}
		}
		if free && claim(base) {
			return base
		}
	}
	t.Fatal("did not find four free ports in a row")
	return 0
}

func isInUse(err error) bool {
	return strings.Contains(err.Error(), syscall.EADDRINUSE.Error())
}

var (
	claimedMu sync.Mutex
	claimed   = map[int]bool{}
)

// claim keeps parallel tests from choosing the same ports.
func claim(base int) bool {
	claimedMu.Lock()
	defer claimedMu.Unlock()
	if claimed[base] {
		return false
	}
	claimed[base] = true
	return true
}
