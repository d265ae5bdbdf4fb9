// Package cli_test runs the command line as a separate program against a whole system. Tests that
// do not need a system are in services/cli.
package cli_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/cli"
	"github.com/linkreel/linkreel/services/cli/clitest"
	"github.com/linkreel/linkreel/services/standalone"
)

// asProgram is an environment variable that makes the test binary run as the command line. A test
// can start this program, write to its pipes and kill it.
const asProgram = "LINKREEL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := cli.Run(ctx, os.Args[1:], cli.System())
		stop()
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// program returns a command that runs the real program, with its own folders under dir.
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

// realStack starts a whole system for one test.
func realStack(t *testing.T) *standalone.Stack {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := standalone.Start(context.Background(), standalone.Config{DataDir: t.TempDir(), Log: log, Env: map[string]string{
		"DNS_RESOLVER":               "127.0.0.1:9", // DNS queries do not leave this machine
		"LINKREEL_FIRESTORE_TIMEOUT": "9s",          // on a busy machine, Firestore is slow but not unreachable
	}})
	if err != nil {
		t.Fatalf("cannot start the stack: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("cannot stop the stack: %v", err)
		}
	})
	return s
}

// These are the tool results that an assistant receives.
type (
	link struct {
		ID, ShortURL, Slug, DestinationURL, Title, Status, CreatedAt, ExpiresAt string
	}
	found struct {
		Links      []link
		NextCursor string
	}
	video struct {
		ID, Status, Privacy, ShareURL string
		Width                         int
	}
)

// The test has a whole conversation with the real program over its pipes, against a real system.
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
		t.Fatalf("cannot make a clip: %v: %s", err, out)
	}
	for name, text := range map[string]string{filepath.Join(films, "notes.mp4"): "no video", filepath.Join(films, "broken.mp4"): "\x00\x00\x00\x18ftypmp42 and no more", filepath.Join(dir, "private.txt"): "a secret"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := clitest.TalkOver(t, &mcp.CommandTransport{Command: program(t.Context(), t, dir, s.BaseURL, s.Keys["business"], "mcp", "--files", films)})

	// Links: create, reject, find, change, count, delete.
	made := clitest.Good[link](k, "create_link", clitest.Args{"url": "https://example.com/spring", "slug": "mcp-spring", "title": "Spring sale", "expires": "7d"})
	if made.ShortURL != s.ShortBaseURL+"/mcp-spring" || made.ExpiresAt == "" || made.Status != "active" {
		t.Errorf("the created link is %+v, want the slug mcp-spring, an expiry and the status active", made)
	}
	k.Bad("create_link", clitest.Args{"url": "https://example.com/", "slug": "mcp-spring"}, "SLUG_TAKEN: ", "[request ")
	k.Bad("create_link", clitest.Args{"url": "ftp://example.com/"}, "VALIDATION_ERROR: ", ". url: ")
	k.Bad("create_link", clitest.Args{"url": "https://example.com/", "slgu": "x"}, "slgu")
	for i := range 3 {
		clitest.Good[link](k, "create_link", clitest.Args{"url": fmt.Sprintf("https://example.com/more/%d", i)})
	}
	if found := clitest.Good[found](k, "find_links", clitest.Args{"text": "SPRING"}); len(found.Links) != 1 || found.Links[0].ID != made.ID || found.NextCursor != "" {
		t.Errorf("find_links returned %+v, want the created link and no next page", found)
	}
	var walked []string
	for cursor := ""; ; {
		page := clitest.Good[found](k, "find_links", clitest.Args{"limit": 1, "cursor": cursor})
		for _, l := range page.Links {
			walked = append(walked, l.ID)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if len(walked) != 4 || walked[3] != made.ID {
		t.Errorf("the pages list %v, want four links with %s last", walked, made.ID)
	}
	k.Bad("find_links", clitest.Args{"cursor": "elsewhere"}, "INVALID_CURSOR")
	changed := clitest.Good[link](k, "update_link", clitest.Args{"id": made.ID, "url": "https://example.com/summer", "clear": []string{"title", "expires"}})
	if want := (link{ID: made.ID, ShortURL: made.ShortURL, Slug: made.Slug, DestinationURL: "https://example.com/summer", Status: "active", CreatedAt: made.CreatedAt}); changed != want {
		t.Error(cmp.Diff(want, changed))
	}
	k.Bad("update_link", clitest.Args{"id": made.ID}, "INVALID_ARGUMENT", "nothing to change")
	if stats := clitest.Good[client.LinkStats](k, "link_stats", clitest.Args{"id": made.ID}); stats.Total != 0 || len(stats.Days) == 0 {
		t.Errorf("the stats are %+v, want no clicks and some days", stats)
	}
	if gone := clitest.Good[struct{ Deleted bool }](k, "delete_link", clitest.Args{"id": made.ID}); !gone.Deleted {
		t.Errorf("delete_link returned %+v, want deleted", gone)
	}
	k.Bad("get_link", clitest.Args{"id": made.ID}, "LINK_NOT_FOUND")

	// Videos: upload with progress, wait until ready, fail with a reason, reject files outside the
	// folder.
	v := clitest.Good[video](k, "upload_video", clitest.Args{"path": "clip.mp4", "title": "Clip", "password": "never to be repeated", "waitSeconds": 120})
	if v.Status != "ready" || v.Privacy != "password" || !strings.HasPrefix(v.ShareURL, s.BaseURL+"/v/") || v.Width != 320 {
		t.Errorf("the uploaded video is %+v, want it ready, with a password and 320 pixels wide", v)
	}
	k.CheckProgress()
	if again := clitest.Good[video](k, "get_video", clitest.Args{"id": v.ID, "waitSeconds": 1}); again.Status != "ready" || again.ShareURL != v.ShareURL {
		t.Errorf("get_video returned %+v, want the ready video", again)
	}
	if list := clitest.Good[struct{ Videos []video }](k, "find_videos", nil); len(list.Videos) != 1 || list.Videos[0].ID != v.ID {
		t.Errorf("find_videos returned %+v, want the uploaded video", list)
	}
	k.Bad("upload_video", clitest.Args{"path": clip, "privacy": "secret"}, "privacy")
	k.Bad("upload_video", clitest.Args{"path": clip, "expires": "soon"}, "INVALID_ARGUMENT")
	k.Bad("upload_video", clitest.Args{"path": filepath.Join(films, "notes.mp4")}, "NOT_A_VIDEO: ", "not sent")
	k.Bad("upload_video", clitest.Args{"path": filepath.Join(films, "broken.mp4"), "waitSeconds": 120}, "CORRUPT_FILE: ")
	k.Bad("upload_video", clitest.Args{"path": "../private.txt"}, "INVALID_ARGUMENT", "must be in the folder")
	k.Bad("upload_video", clitest.Args{"path": "none.mp4"}, "no such file")
	k.Bad("get_video", clitest.Args{"id": "vid_none"}, "VIDEO_NOT_FOUND")

	answers := k.Answers()
	for _, secret := range []string{s.Keys["business"], "lr_live_", "X-Goog-Signature", "upload_id", "never to be repeated", s.AdminToken} {
		if strings.Contains(answers, secret) {
			t.Errorf("the server's responses contain %q, which is secret", secret)
		}
	}
}
