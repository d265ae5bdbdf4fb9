package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-rod/rod"
	"github.com/go-rod/rod/lib/cdp"
	"github.com/go-rod/rod/lib/input"
	"github.com/go-rod/rod/lib/launcher"
	"github.com/go-rod/rod/lib/proto"
)

// Some tests last longer than a page's first playback permission, and some act as several clients
// from one loopback address. The stack reads the settings for both from its environment when it
// starts.
func init() {
	_ = os.Setenv("LINKREEL_WATCH_TTL", "12s")
	// This must be longer than the network outage in one test and shorter than the time limit in
	// the crashed-tab test.
	_ = os.Setenv("LINKREEL_RECORDING_IDLE", map[bool]string{true: "30s", false: "12s"}[os.Getenv("LINKREEL_FULL") != ""])
	_ = os.Setenv("LINKREEL_TRUSTED_PROXIES", "127.0.0.0/8")
}

// patience bounds the wait for a page on a machine that is busy with ffmpeg.
const patience = 90 * time.Second

// endChromium stops the browser if a test started it. TestMain calls it.
var endChromium = func() {}

var chromium = sync.OnceValues(func() (*rod.Browser, error) {
	bin := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			bin = path
			break
		}
	}
	if bin == "" {
		return nil, fmt.Errorf("Chromium is not installed. Run `make tools`")
	}
	// NoSandbox is required because containers that run as root cannot use the sandbox.
	start := launcher.New().Bin(bin).Leakless(false).NoSandbox(true).Headless(true).Set("mute-audio").
		// Use a fake camera, microphone and screen, which do not require permission.
		Set("use-fake-device-for-media-stream").Set("use-fake-ui-for-media-stream").Set("auto-select-desktop-capture-source", "Entire screen")
	url, err := start.Launch()
	if err != nil {
		return nil, err
	}
	endChromium = func() {
		start.Kill()
		start.Cleanup()
	}
	b := rod.New().ControlURL(url)
	return b, b.Connect()
})

// viewer is a browser window with a new profile. It records every error in the window.
type viewer struct {
	*rod.Page
	t testing.TB

	mu      sync.Mutex
	wrong   []string // console errors, uncaught exceptions, policy violations, hls.js errors
	dialogs int
}

type look struct {
	width, height int
	dark          bool
	address       string // the client's address in X-Forwarded-For; storage rejects this header, so the viewer cannot play
}

// watcher logs errors that the DevTools protocol does not report.
const watcher = `() => {
  const note = (kind, text) => console.error("linkreel-test " + kind + ": " + text);
  document.addEventListener("securitypolicyviolation", (e) => note("policy", e.violatedDirective + " " + e.blockedURI), true);
  document.addEventListener("linkreel:hls", (e) => note("hls", JSON.stringify(e.detail)), true);
  window.stalls = 0;
  document.addEventListener("waiting", () => window.stalls++, true);
}`

func visitor(t testing.TB, l look) *viewer {
	t.Helper()
	b, err := chromium()
	if err != nil {
		t.Fatal(err)
	}
	if l.width == 0 {
		l.width, l.height = 1280, 860
	}
	private, err := b.Incognito()
	check(t, err)
	page, err := private.Page(proto.TargetCreateTarget{})
	check(t, err)
	v := &viewer{t: t}
	// If one of rod's Must functions times out, stop only this test and not the whole run.
	v.Page = page.WithPanic(func(problem any) {
		t.Helper()
		at := ""
		if info, err := page.Info(); err == nil {
			at = info.URL
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		t.Fatalf("%v, on %s; errors in the page: %q", problem, at, v.wrong)
	})
	t.Cleanup(func() { _ = private.Close() })
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	check(t, page.SetViewport(&proto.EmulationSetDeviceMetricsOverride{Width: l.width, Height: l.height, DeviceScaleFactor: 1, Mobile: l.width < 500}))
	check(t, proto.EmulationSetEmulatedMedia{Features: []*proto.EmulationMediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}.Call(page))
	if l.address != "" {
		_, err = page.SetExtraHeaders([]string{"X-Forwarded-For", l.address})
		check(t, err)
	}
	_, err = page.EvalOnNewDocument("(" + watcher + ")()")
	check(t, err)
	check(t, proto.LogEnable{}.Call(page))
	go page.EachEvent(
		func(e *proto.RuntimeConsoleAPICalled) {
			if e.Type != proto.RuntimeConsoleAPICalledTypeError {
				return
			}
			var text []string
			for _, a := range e.Args {
				text = append(text, a.Value.String()+a.Description)
			}
			v.note("console: " + strings.Join(text, " "))
		},
		func(e *proto.RuntimeExceptionThrown) {
			v.note("exception: " + e.ExceptionDetails.Text + " " + e.ExceptionDetails.Exception.Description)
		},
		func(e *proto.LogEntryAdded) {
			if e.Entry.Level == proto.LogLogEntryLevelError {
				v.note("log: " + e.Entry.Text + " " + e.Entry.URL)
			}
		},
		func(e *proto.PageJavascriptDialogOpening) {
			v.mu.Lock()
			v.dialogs++
			v.mu.Unlock()
			_ = proto.PageHandleJavaScriptDialog{Accept: true}.Call(page)
		},
	)()
	return v
}

func (v *viewer) note(s string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.wrong) < 8 {
		v.wrong = append(v.wrong, s[:min(len(s), 300)])
	}
}

// clean fails the test if the page reported an error, except for errors that contain one of
// expected. A stalled buffer is not a failure, because every player sometimes stalls on a busy
// machine. Tests of smooth playback check window.stalls.
func (v *viewer) clean(expected ...string) {
	expected = append(expected, "bufferStalledError")
	v.t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
next:
	for _, s := range v.wrong {
		for _, e := range expected {
			if strings.Contains(s, e) {
				continue next
			}
		}
		v.t.Errorf("the page reported an error: %s", s)
	}
	if v.dialogs > 0 {
		v.t.Errorf("%d dialogs opened, want none", v.dialogs)
	}
}

func (v *viewer) open(url string) {
	v.t.Helper()
	p := v.Timeout(patience)
	check(v.t, p.Navigate(url))
	check(v.t, p.WaitLoad())
}

func (v *viewer) find(selector string) *rod.Element {
	v.t.Helper()
	e, err := v.Timeout(patience).Element(selector)
	if err != nil {
		text, _ := v.Timeout(patience).Eval(`() => location.href + " " + document.readyState + ": " + document.body?.innerText`)
		v.t.Fatalf("got no %s on the page: %v; the page: %.600q; errors in the page: %q", selector, err, fmt.Sprint(text), v.wrong)
	}
	return e.CancelTimeout()
}

// eval runs a function in the page and decodes its result.
func eval[T any](v *viewer, js string, args ...any) T {
	v.t.Helper()
	r, err := v.Timeout(patience).Eval(js, args...)
	if err != nil {
		v.t.Fatalf("the function failed in the page: %v", err)
	}
	var out T
	if err := r.Value.Unmarshal(&out); err != nil {
		v.t.Fatalf("%s returned %s: %v", js, r.Value, err)
	}
	return out
}

// errNavigated is Chromium's error for a call to a page that the browser is leaving.
var errNavigated = &cdp.Error{Code: -32000, Message: "Inspected target navigated or closed"}

// until waits until a condition is true in the page. The condition counts as false while the
// browser is loading another page.
func (v *viewer) until(what, js string) {
	v.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		r, err := v.Timeout(patience).Eval(js)
		switch {
		case err == nil && r.Value.Bool():
			return
		case errors.Is(err, errNavigated), errors.Is(err, cdp.ErrCtxDestroyed):
		case err != nil:
			v.t.Fatalf("the condition failed in the page: %v", err)
		}
		if time.Now().After(deadline) {
			v.t.Fatalf("after %s, still waiting for %s; the player: %s; errors in the page: %q", patience, what, eval[string](v, playerState), v.wrong)
		}
	}
}

const playerState = `() => { const v = document.querySelector("video"); return !v ? "none" : JSON.stringify({
  ready: v.readyState, network: v.networkState, paused: v.paused, seeking: v.seeking, at: v.currentTime, error: v.error?.message, hidden: document.hidden,
  buffered: [...Array(v.buffered.length).keys()].map((i) => [v.buffered.start(i), v.buffered.end(i)]),
  media: performance.getEntriesByType("resource").filter((e) => e.name.includes(".mp4")).map((e) => [e.responseStatus, Math.round(e.duration)]) }) }`

func (v *viewer) play() {
	v.t.Helper()
	check(v.t, v.find("[data-start]").Click(proto.InputMouseButtonLeft, 1))
	v.until("playback to start", `() => document.querySelector("video").currentTime > 0.3`)
}

// try submits the form on a locked page with a password, and waits for the next page.
func (v *viewer) try(password string) {
	v.t.Helper()
	loaded := v.Timeout(patience).WaitNavigation("load")
	check(v.t, v.find("#password").Input(password))
	check(v.t, v.Keyboard.Type(input.Enter))
	loaded()
}

// unlock opens a locked page with its password. The page may ask the visitor to try again: all
// tests on 127.0.0.1 share one guess limit, and on a very busy machine, a password may wait
// longer than ten seconds to be hashed.
func (v *viewer) unlock(password string) {
	v.t.Helper()
	eventually(v.t, patience, "the page accepts the password", func() bool {
		v.try(password)
		return !strings.Contains(eval[string](v, `() => document.body.innerText`), "Too many attempts")
	})
}

// shot saves a screenshot of the page for human review.
func (v *viewer) shot(name string) {
	v.t.Helper()
	picture, err := v.Screenshot(true, nil)
	check(v.t, err)
	dir := filepath.Join("..", "artifacts")
	check(v.t, os.MkdirAll(dir, 0o755))
	check(v.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// film creates a video in creator's account and waits until it is ready.
func film(t testing.TB, body map[string]any, file string) *answer {
	t.Helper()
	c := as(t, "creator")
	made := c.want(201, "POST", "/api/v1/videos", body)
	if a := put(t, made.str("uploadUrl"), file, "video/mp4"); a.status != 200 {
		t.Fatalf("the upload returned %d, want 200", a.status)
	}
	v := made
	eventually(t, 4*time.Minute, "the video is ready", func() bool {
		v = c.want(200, "GET", "/api/v1/videos/"+made.str("videoId"), nil)
		if v.str("status") == "failed" {
			t.Fatalf("the video failed: %s", v.raw)
		}
		return v.str("status") == "ready"
	})
	return v
}

// scenery makes a clip that looks good in screenshots.
func scenery(t testing.TB, seconds int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "scenery.mp4")
	args := []string{"-nostdin", "-v", "error",
		"-f", "lavfi", "-i", fmt.Sprintf("gradients=s=640x360:r=25:d=%d:c0=0x0f2027:c1=0x2c5364:c2=0xf7971e:c3=0xffd200:n=4:speed=0.02,drawbox=x=40+8*t:y=150:w=60:h=60:color=white@0.8:t=fill", seconds),
		"-f", "lavfi", "-i", fmt.Sprintf("sine=frequency=220:duration=%d", seconds),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "50", "-c:a", "aac", "-shortest", path}
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", args...).CombinedOutput(); err != nil {
		t.Fatalf("cannot make a clip: %v\n%s", err, out)
	}
	return path
}
