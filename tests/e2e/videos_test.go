package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestAVideoFromCreateToDelete(t *testing.T) {
	t.Parallel()
	c := as(t, "creator")
	made := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": "Launch <i>day</i>"})
	id := made.str("videoId")
	if got, want := made.str("shareUrl"), stack.BaseURL+"/v/"+made.str("slug"); got != want {
		t.Errorf("shareUrl is %q, want %q", got, want)
	}
	if page := visit(t, made.str("shareUrl")); page.status != 200 {
		t.Errorf("the share page for a waiting video returned %d, want 200", page.status)
	}

	clip := clip(t, 8, "640x360")
	if a := put(t, made.str("uploadUrl"), clip, "video/mp4"); a.status != 200 {
		t.Fatalf("the upload returned %d, want 200: %s", a.status, a.raw)
	}
	seen := map[string]bool{}
	last := -1.0
	ready := waitFor(t, c, id, "ready", func(v *answer) {
		seen[v.str("status")] = true
		if p, _ := v.json["progress"].(float64); p < last || p > 100 {
			t.Errorf("progress went from %v to %v, want it to increase to at most 100", last, p)
		} else {
			last = p
		}
	})
	if !seen["processing"] && !seen["ready"] {
		t.Errorf("the video went through statuses %v, want processing or ready among them", seen)
	}
	for field, want := range map[string]any{"width": 640.0, "height": 360.0, "progress": 100.0, "title": "Launch <i>day</i>", "privacy": "public"} {
		if got := ready.json[field]; got != want {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	if d, _ := ready.json["duration"].(float64); d < 7.9 || d > 8.1 {
		t.Errorf("the duration is %v, want 8 s", ready.json["duration"])
	}
	if ready.json["uploadUrl"] != nil {
		t.Error("a ready video still has an upload URL")
	}
	if poster := visit(t, ready.str("posterUrl")); poster.status != 200 || !strings.HasPrefix(poster.header.Get("Content-Type"), "image/") {
		t.Errorf("the poster returned %d with type %s, want 200 and an image", poster.status, poster.header.Get("Content-Type"))
	}
	playAll(t, ready.str("playbackUrl"))

	page := visit(t, made.str("shareUrl"))
	if page.status != 200 || strings.Contains(string(page.raw), "<i>day</i>") {
		t.Errorf("the share page returned %d, want 200 with an escaped title", page.status)
	}
	if csp := page.header.Get("Content-Security-Policy"); csp == "" || strings.Contains(csp, "unsafe") {
		t.Errorf("Content-Security-Policy is %q, want one without \"unsafe\"", csp)
	}

	playback := ready.str("playbackUrl")
	c.want(204, "DELETE", "/api/v1/videos/"+id, nil)
	if gone := visit(t, made.str("shareUrl")); gone.status != 404 {
		t.Errorf("the share page for a deleted video returned %d, want 404", gone.status)
	}
	if gone := visit(t, playback); gone.status != 404 && gone.status != 403 && gone.status != 410 {
		t.Errorf("the playlist for a deleted video returned %d, want 403, 404 or 410", gone.status)
	}
}

func TestAFailedUploadSaysWhyAndTakesAnother(t *testing.T) {
	t.Parallel()
	c := as(t, "creator")
	text := filepath.Join(t.TempDir(), "not.mp4")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is not a video\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	made := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": "second attempt"})
	id := made.str("videoId")
	if a := put(t, made.str("uploadUrl"), text, "video/mp4"); a.status != 200 {
		t.Fatalf("the upload returned %d, want 200", a.status)
	}
	failed := waitFor(t, c, id, "failed", nil)
	reason, _ := failed.json["error"].(map[string]any)
	if code := reason["code"]; code != "NOT_A_VIDEO" && code != "UNSUPPORTED_FORMAT" {
		t.Errorf("the error is %v, want NOT_A_VIDEO or UNSUPPORTED_FORMAT", reason)
	}
	if page := visit(t, made.str("shareUrl")); page.status != 200 {
		t.Errorf("the share page for a failed video returned %d, want 200", page.status)
	}
	if a := put(t, failed.str("uploadUrl"), clip(t, 2, "320x180"), ""); a.status != 200 {
		t.Fatalf("the second upload returned %d, want 200: %s", a.status, a.raw)
	}
	if v := waitFor(t, c, id, "ready", nil); v.str("shareUrl") != made.str("shareUrl") {
		t.Errorf("the share URL changed from %s to %s", made.str("shareUrl"), v.str("shareUrl"))
	}
}

func TestAPasswordKeepsTheVideoIn(t *testing.T) {
	t.Parallel()
	c := as(t, "creator")
	made := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": "Secret plans", "privacy": "password", "password": "pässword 1"})
	if a := put(t, made.str("uploadUrl"), clip(t, 2, "320x180"), "video/mp4"); a.status != 200 {
		t.Fatalf("the upload returned %d, want 200", a.status)
	}
	waitFor(t, c, made.str("videoId"), "ready", nil)
	locked := visit(t, made.str("shareUrl"))
	if locked.status != 200 || strings.Contains(string(locked.raw), "Secret plans") || strings.Contains(string(locked.raw), ".m3u8") {
		t.Fatalf("the locked page returned %d, want 200 without the title or a playlist", locked.status)
	}
	unlock := func(password string) *answer {
		req, err := http.NewRequestWithContext(t.Context(), "POST", made.str("shareUrl")+"/unlock", strings.NewReader("password="+password))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return send(t, c.http, req)
	}
	if wrong := unlock("wrong"); wrong.status != 403 {
		t.Errorf("a wrong password returned %d, want 403", wrong.status)
	}
	right := unlock("p%C3%A4ssword+1")
	if right.status != 303 {
		t.Fatalf("the correct password returned %d, want 303: %s", right.status, right.raw)
	}
	cookie := right.header.Get("Set-Cookie")
	if !strings.Contains(cookie, "HttpOnly") {
		t.Errorf("the cookie is %q, want HttpOnly", cookie)
	}
	open := visit(t, made.str("shareUrl"), "Cookie", strings.SplitN(cookie, ";", 2)[0])
	if open.status != 200 || !strings.Contains(string(open.raw), "Secret plans") {
		t.Errorf("the unlocked page returned %d, want 200 with the title", open.status)
	}
}

// waitFor polls the video through the API until it has the status.
func waitFor(t testing.TB, c *caller, id, status string, each func(*answer)) *answer {
	t.Helper()
	var v *answer
	eventually(t, 2*time.Minute, "the video is "+status, func() bool {
		v = c.want(200, "GET", "/api/v1/videos/"+id, nil)
		if each != nil {
			each(v)
		}
		return v.str("status") == status
	})
	return v
}

var uriLine = regexp.MustCompile(`(?m)^[^#\s].*$|URI="([^"]+)"`)

// playAll acts like a player. It fetches every playlist that master lists, and the first segment of
// each by byte range.
func playAll(t testing.TB, master string) {
	t.Helper()
	top := visit(t, master)
	if top.status != 200 || !strings.HasPrefix(string(top.raw), "#EXTM3U") {
		t.Fatalf("the master playlist returned %d, want 200 with a playlist: %.80s", top.status, top.raw)
	}
	playlists := uris(t, master, string(top.raw))
	if len(playlists) == 0 {
		t.Fatalf("the master playlist lists no playlists:\n%s", top.raw)
	}
	for _, p := range playlists {
		media := visit(t, p)
		if media.status != 200 || !strings.Contains(string(media.raw), "#EXT-X-BYTERANGE") || !strings.Contains(string(media.raw), "#EXT-X-ENDLIST") {
			t.Fatalf("a media playlist returned %d, want 200 with byte ranges and an end tag:\n%.400s", media.status, media.raw)
		}
		objects := uris(t, p, string(media.raw))
		part := visit(t, objects[0], "Range", "bytes=0-99")
		if part.status != 206 || len(part.raw) != 100 {
			t.Errorf("a byte range of %.80s returned %d with %d bytes, want 206 with 100", objects[0], part.status, len(part.raw))
		}
		bare, _, _ := strings.Cut(objects[0], "?")
		if naked := visit(t, bare); naked.status != 403 {
			t.Errorf("media without a signature returned %d, want 403", naked.status)
		}
	}
}

func uris(t testing.TB, base, playlist string) (out []string) {
	t.Helper()
	for _, m := range uriLine.FindAllStringSubmatch(playlist, -1) {
		ref := m[0]
		if m[1] != "" {
			ref = m[1]
		}
		req, err := http.NewRequest(http.MethodGet, base, nil)
		if err != nil {
			t.Fatal(err)
		}
		u, err := req.URL.Parse(ref)
		if err != nil {
			t.Fatal(fmt.Errorf("cannot parse playlist line %q: %w", ref, err))
		}
		out = append(out, u.String())
	}
	return out
}
