package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/linkreel/linkreel/libs/client"
	"github.com/linkreel/linkreel/services/standalone"
)

// asProgram makes the test's own binary the command line, so that a test can
// start it, speak to it over its pipes and kill it.
const asProgram = "LINKREEL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := Run(ctx, os.Args[1:], System())
		stop()
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// program is a command of the real program, with folders of its own under dir.
func program(ctx context.Context, t *testing.T, dir, base, key string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "HOME="+dir, "XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"),
		"LINKREEL_BASE_URL="+base, "LINKREEL_API_KEY="+key)
	return cmd
}

// realStack is a whole system of the test's own.
func realStack(t *testing.T) *standalone.Stack {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := standalone.Start(context.Background(), standalone.Config{DataDir: t.TempDir(), Log: log, Env: map[string]string{
		"DNS_RESOLVER":               "127.0.0.1:9", // no look-up leaves this machine
		"LINKREEL_FIRESTORE_TIMEOUT": "9s",          // a busy machine is slow, not down
	}})
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("stop the stack: %v", err)
		}
	})
	return s
}

// talk is a session with the server, and everything that went over the wire.
type talk struct {
	t        *testing.T
	session  *mcp.ClientSession
	wire     *tap
	mu       sync.Mutex
	progress []mcp.ProgressNotificationParams
}

type tap struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *tap) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *tap) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func talkOver(t *testing.T, transport mcp.Transport) *talk {
	t.Helper()
	k := &talk{t: t, wire: &tap{}}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.progress = append(k.progress, *req.Params)
		},
	})
	session, err := c.Connect(t.Context(), &mcp.LoggingTransport{Transport: transport, Writer: k.wire}, nil)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	k.session = session
	t.Cleanup(func() { _ = session.Close() })
	return k
}

type args map[string]any

func (k *talk) call(name string, in args) *mcp.CallToolResult {
	k.t.Helper()
	p := &mcp.CallToolParams{Name: name, Arguments: in}
	p.SetProgressToken(name + "-progress")
	res, err := k.session.CallTool(k.t.Context(), p)
	if err != nil {
		k.t.Fatalf("%s: %v", name, err)
	}
	return res
}

func said(res *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String()
}

// good calls a tool that must succeed and reads its answer.
func good[Out any](k *talk, name string, in args) (out Out) {
	k.t.Helper()
	res := k.call(name, in)
	if res.IsError {
		k.t.Fatalf("%s %v: %s", name, in, said(res))
	}
	if err := json.Unmarshal([]byte(said(res)), &out); err != nil {
		k.t.Fatalf("%s: answer %q: %v", name, said(res), err)
	}
	return out
}

// bad calls a tool that must refuse, and wants words in its reason.
func (k *talk) bad(name string, in args, words ...string) {
	k.t.Helper()
	res := k.call(name, in)
	for _, w := range words {
		if !res.IsError || !strings.Contains(said(res), w) {
			k.t.Errorf("%s %v: error %v, %q; want an error with %q", name, in, res.IsError, said(res), w)
		}
	}
}

// A whole conversation over the pipes of the real program, with the real system
// behind it.
func TestAssistantConversation(t *testing.T) {
	t.Parallel()
	s := realStack(t)
	dir := t.TempDir()
	films := filepath.Join(dir, "films")
	if err := os.Mkdir(films, 0o700); err != nil {
		t.Fatal(err)
	}
	clip := filepath.Join(films, "clip.mp4")
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:d=2", "-pix_fmt", "yuv420p", clip).CombinedOutput(); err != nil {
		t.Fatalf("make a clip: %v: %s", err, out)
	}
	for name, text := range map[string]string{filepath.Join(films, "notes.mp4"): "no video", filepath.Join(dir, "private.txt"): "a secret"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := talkOver(t, &mcp.CommandTransport{Command: program(t.Context(), t, dir, s.BaseURL, s.Keys["business"], "mcp", "--files", films)})

	// Links: make, refuse, find, change, count, delete.
	made := good[linkOut](k, "create_link", args{"url": "https://example.com/spring", "slug": "mcp-spring", "title": "Spring sale", "expires": "7d"})
	if made.ShortURL != s.ShortBaseURL+"/mcp-spring" || made.ExpiresAt == "" || made.Status != "active" {
		t.Errorf("created %+v", made)
	}
	k.bad("create_link", args{"url": "https://example.com/", "slug": "mcp-spring"}, "SLUG_TAKEN: ", "[request ")
	k.bad("create_link", args{"url": "ftp://example.com/"}, "VALIDATION_ERROR: ", ". url: ")
	k.bad("create_link", args{"url": "https://example.com/", "slgu": "x"}, "slgu")
	for i := range 3 {
		good[linkOut](k, "create_link", args{"url": fmt.Sprintf("https://example.com/more/%d", i)})
	}
	if found := good[findLinksOut](k, "find_links", args{"text": "SPRING"}); len(found.Links) != 1 || found.Links[0].ID != made.ID || found.NextCursor != "" {
		t.Errorf("found %+v", found)
	}
	var walked []string
	for cursor := ""; ; {
		page := good[findLinksOut](k, "find_links", args{"limit": 1, "cursor": cursor})
		for _, l := range page.Links {
			walked = append(walked, l.ID)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if len(walked) != 4 || walked[3] != made.ID {
		t.Errorf("walked %v, want four links with %s last", walked, made.ID)
	}
	k.bad("find_links", args{"cursor": "elsewhere"}, "INVALID_CURSOR")
	changed := good[linkOut](k, "update_link", args{"id": made.ID, "url": "https://example.com/summer", "clear": []string{"title", "expires"}})
	if want := (linkOut{ID: made.ID, ShortURL: made.ShortURL, Slug: made.Slug, DestinationURL: "https://example.com/summer", Status: "active", CreatedAt: made.CreatedAt}); changed != want {
		t.Error(cmp.Diff(want, changed))
	}
	k.bad("update_link", args{"id": made.ID}, "INVALID_ARGUMENT", "nothing to change")
	if stats := good[client.LinkStats](k, "link_stats", args{"id": made.ID}); stats.Total != 0 || len(stats.Days) == 0 {
		t.Errorf("stats %+v", stats)
	}
	if gone := good[deletedOut](k, "delete_link", args{"id": made.ID}); !gone.Deleted {
		t.Errorf("deleted %+v", gone)
	}
	k.bad("get_link", args{"id": made.ID}, "LINK_NOT_FOUND")

	// Videos: upload with progress, follow, fail with a reason, stay in the folder.
	v := good[videoOut](k, "upload_video", args{"path": "clip.mp4", "title": "Clip", "password": "never to be repeated", "waitSeconds": 120})
	if v.Status != "ready" || v.Privacy != "password" || !strings.HasPrefix(v.ShareURL, s.BaseURL+"/v/") || v.Width != 320 {
		t.Errorf("uploaded %+v", v)
	}
	k.checkProgress()
	if again := good[videoOut](k, "video_status", args{"id": v.ID, "waitSeconds": 1}); again.Status != "ready" || again.ShareURL != v.ShareURL {
		t.Errorf("status %+v", again)
	}
	if list := good[listVideosOut](k, "list_videos", nil); len(list.Videos) != 1 || list.Videos[0].ID != v.ID {
		t.Errorf("videos %+v", list)
	}
	k.bad("upload_video", args{"path": clip, "privacy": "secret"}, "privacy")
	k.bad("upload_video", args{"path": clip, "expires": "soon"}, "INVALID_ARGUMENT")
	k.bad("upload_video", args{"path": filepath.Join(films, "notes.mp4"), "waitSeconds": 120}, "NOT_A_VIDEO: ")
	k.bad("upload_video", args{"path": "../private.txt"}, "INVALID_ARGUMENT", "only")
	k.bad("upload_video", args{"path": "none.mp4"}, "no such file")
	k.bad("video_status", args{"id": "vid_none"}, "VIDEO_NOT_FOUND")

	answers := k.answers()
	for _, secret := range []string{s.Keys["business"], "lr_live_", "X-Goog-Signature", "upload_id", "never to be repeated", s.AdminToken} {
		if strings.Contains(answers, secret) {
			t.Errorf("the server's answers hold %q", secret)
		}
	}
}

// answers is all that the server has said.
func (k *talk) answers() string {
	var b strings.Builder
	for line := range strings.Lines(k.wire.String()) {
		if strings.HasPrefix(line, "read") {
			b.WriteString(line)
		}
	}
	if b.Len() == 0 {
		k.t.Error("the wire shows no answer")
	}
	return b.String()
}

func (k *talk) checkProgress() {
	k.t.Helper()
	// Notifications are handled beside answers, and may be so a moment later.
	for deadline := time.Now().Add(10 * time.Second); k.progressed() < 200 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	at, words := -1.0, ""
	for _, p := range k.progress {
		if p.ProgressToken != "upload_video-progress" || p.Progress <= at || p.Total != 200 {
			k.t.Errorf("progress %+v after %v", p, at)
		}
		at, words = p.Progress, words+p.Message+"\n"
	}
	if at != 200 || !strings.Contains(words, "uploaded ") || !strings.HasSuffix(words, "ready\n") {
		k.t.Errorf("progress ends at %v: %s", at, words)
	}
}

// progressed is the last progress that was heard.
func (k *talk) progressed() float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.progress) == 0 {
		return 0
	}
	return k.progress[len(k.progress)-1].Progress
}

// inMemory is a session with a server over the fake service.
func inMemory(t *testing.T, base string, change func(*tools)) *talk {
	t.Helper()
	c, err := client.New(client.Config{BaseURL: base, Key: "good"})
	if err != nil {
		t.Fatal(err)
	}
	tl := &tools{app: &app{env: Env{Now: time.Now, Getenv: func(string) string { return "" }, StateDir: t.TempDir()}}, client: c}
	if change != nil {
		change(tl)
	}
	ours, theirs := mcp.NewInMemoryTransports()
	if _, err := tl.server().Connect(t.Context(), ours, nil); err != nil {
		t.Fatal(err)
	}
	return talkOver(t, theirs)
}

func toolNames(t *testing.T, k *talk) (names []string) {
	t.Helper()
	for tool, err := range k.session.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if tool.Description == "" || tool.InputSchema == nil || tool.OutputSchema == nil || tool.Annotations == nil {
			t.Errorf("tool %s does not describe itself", tool.Name)
		}
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

func TestAssistantThatMayOnlyReadHasNoOtherTools(t *testing.T) {
	t.Parallel()
	_, base := fakeService(t)
	all := toolNames(t, inMemory(t, base, nil))
	if diff := cmp.Diff([]string{"create_link", "delete_link", "find_links", "get_link", "link_stats", "list_videos", "update_link", "upload_video", "video_status"}, all); diff != "" {
		t.Error(diff)
	}
	reading := toolNames(t, inMemory(t, base, func(tl *tools) { tl.readOnly = true }))
	if diff := cmp.Diff([]string{"find_links", "get_link", "link_stats", "list_videos", "video_status"}, reading); diff != "" {
		t.Error(diff)
	}
	guide, err := os.ReadFile("../../../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if !bytes.Contains(guide, []byte("`"+name+"`")) {
			t.Errorf("docs/mcp.md does not name %s", name)
		}
	}
}

// Clients of earlier versions of the protocol begin with initialize; standard
// output carries messages and nothing else.
func TestAssistantSpeaksTheOlderProtocolOnStandardOutputAlone(t *testing.T) {
	t.Parallel()
	_, base := fakeService(t)
	in, typed := io.Pipe()
	shown, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := Run(t.Context(), []string{"mcp"}, Env{In: in, Out: out, Err: io.Discard, Now: time.Now, ConfigDir: t.TempDir(), StateDir: t.TempDir(),
			Getenv: func(name string) string {
				return map[string]string{"LINKREEL_BASE_URL": base, "LINKREEL_API_KEY": "good"}[name]
			}})
		_ = out.Close()
		ended <- code
	}()
	lines := bufio.NewScanner(shown)
	ask := func(message string) (answer struct {
		ID     int
		Result map[string]any
		Error  any
	}) {
		t.Helper()
		if _, err := io.WriteString(typed, message+"\n"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(message, `"id"`) {
			return answer
		}
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &answer) != nil || answer.Error != nil {
			t.Fatalf("answer to %s: %q, %v", message, lines.Text(), lines.Err())
		}
		return answer
	}
	hello := ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`)
	if hello.Result["protocolVersion"] != "2025-06-18" || hello.Result["instructions"] == "" {
		t.Errorf("initialize: %+v", hello)
	}
	ask(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	made := ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"create_link","arguments":{"url":"https://example.com","slug":"old"}}}`)
	if link, _ := made.Result["structuredContent"].(map[string]any); link["slug"] != "old" {
		t.Errorf("create_link: %+v", made)
	}
	_ = typed.Close()
	if code := <-ended; code != ExitOK {
		t.Errorf("exit code %d after the client has gone", code)
	}
	for lines.Scan() {
		t.Errorf("after the end: %q", lines.Text())
	}
}

func TestAssistantSearchGoesOnInTheMiddleOfAPage(t *testing.T) {
	t.Parallel()
	f, base := fakeService(t)
	for i := range 250 {
		f.add("https://example.com", fmt.Sprintf("s%d", i), []string{"plain", "wanted"}[i%2])
	}
	k := inMemory(t, base, nil)
	var slugs []any
	for cursor := ""; ; {
		page := good[findLinksOut](k, "find_links", args{"text": "wanted", "limit": 7, "cursor": cursor})
		if len(page.Links) > 7 {
			t.Fatalf("%d links in an answer", len(page.Links))
		}
		for _, l := range page.Links {
			slugs = append(slugs, l.Slug)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if len(slugs) != 125 || len(f.links) != 250 {
		t.Errorf("found %d links, want 125", len(slugs))
	}
	seen := map[any]bool{}
	for _, s := range slugs {
		if seen[s] {
			t.Errorf("%v came twice", s)
		}
		seen[s] = true
	}
}
