package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-rod/rod/lib/proto"
)

// plan is the plan of the account that the stack's sign-in links belong to.
const plan = "business"

// person opens a browser window for a new owner of the stack's account.
func person(t testing.TB, l look) *viewer {
	t.Helper()
	link, err := stack.SignInLink(t.Context())
	check(t, err)
	v := visitor(t, l)
	v.signIn(link)
	return v
}

// signIn opens a sign-in link and waits for the first page after it.
func (v *viewer) signIn(link string) {
	v.t.Helper()
	v.open(link)
	page := v.Timeout(patience)
	page.MustElementR("button", "Sign in").MustClick()
	eventually(v.t, patience, "home", func() bool {
		at, err := page.Eval(`() => location.href + " " + document.querySelector("h1")?.textContent`)
		// While the browser is leaving a page, Eval returns an error.
		return err == nil && strings.HasPrefix(at.Value.Str(), stack.BaseURL+"/app") && strings.Contains(at.Value.Str(), "Shorten a link")
	})
}

// record starts a recording of kind and returns its share URL. The page shows the URL before the
// recording starts.
func (v *viewer) record(kind string) string {
	v.t.Helper()
	v.open(stack.BaseURL + "/app/record")
	page := v.Timeout(patience)
	page.MustElement("input[name=what][value=" + kind + "]").MustClick()
	page.MustElementR("button", "Start recording").MustClick()
	page.MustElement("#share").MustWaitVisible()
	page.MustElement("#stop").MustWaitVisible()
	return page.MustElement("#share a").MustText()
}

func (v *viewer) said(text string) {
	v.t.Helper()
	v.Timeout(patience).MustElementR("#said", text)
}

// recorded waits until the recorder's clock shows this many seconds.
func (v *viewer) recorded(seconds int) {
	v.t.Helper()
	eventually(v.t, patience, "seconds of recording", func() bool {
		at, err := v.Eval(`() => { const [m, s] = document.getElementById("clock").textContent.split(":"); return 60 * m + +s }`)
		return err == nil && at.Value.Int() >= seconds
	})
}

// recorded finds the video for a share URL in the list.
func recorded(t testing.TB, share string) *answer {
	t.Helper()
	for _, item := range as(t, plan).want(200, "GET", "/api/v1/videos?limit=100", nil).json["data"].([]any) {
		if m := item.(map[string]any); m["shareUrl"] == share {
			return as(t, plan).want(200, "GET", "/api/v1/videos/"+m["_id"].(string), nil)
		}
	}
	t.Fatalf("the list does not contain a video with the share URL %s", share)
	return nil
}

func seconds(a *answer) float64 { d, _ := a.json["duration"].(float64); return d }

// plays opens a share page and waits until the video plays.
func plays(t testing.TB, v *viewer, share string) {
	t.Helper()
	v.open(share)
	eventually(t, patience, "playing at "+share, func() bool {
		at, err := v.Eval(`() => { const v = document.querySelector("video"); if (!v) return 0; v.muted = true; v.play().catch(() => {}); return v.currentTime }`)
		return err == nil && at.Value.Num() > 0.3
	})
}

// The test records a video and watches it on its share page. It records the screen with the camera
// in a corner, pauses, stops, and finds the URL on the clipboard.
func TestRecorderInABrowser(t *testing.T) {
	t.Parallel()
	v := person(t, look{})
	share := v.record("both")
	page := v.Timeout(patience)
	v.said("Recording")
	v.recorded(2)
	page.MustElementR("#hold", "Pause").MustClick()
	v.said("Paused")
	page.MustElementR("#hold", "Resume").MustClick()
	v.recorded(4)
	page.MustEval(`() => { navigator.clipboard.writeText = (text) => { window.clip = text; return Promise.resolve() } }`)
	page.MustElement("#stop").MustClick()
	v.said("Ready to watch")
	if got := page.MustEval(`() => window.clip`).Str(); got != share {
		t.Errorf("the clipboard contains %q, want %q", got, share)
	}
	made := recorded(t, share)
	if d := seconds(made); d < 3 || d > 20 {
		t.Errorf("a recording of about 4 s is %v s long, want 3 to 20", d)
	}
	plays(t, visitor(t, look{}), share)
	v.clean()
}

// full reports whether LINKREEL_FULL enables the tests that take minutes.
func full(t testing.TB) bool { return os.Getenv("LINKREEL_FULL") != "" }

// sized returns small, or long with LINKREEL_FULL. The long value is the number that the product
// promises.
func sized[T any](t testing.TB, small, long T) T {
	t.Helper()
	if full(t) {
		return long
	}
	return small
}

// The tab crashes during a recording, and nobody reopens it. The service makes the video from the
// bytes that it has received. At most the last five seconds are missing.
func TestRecordingWhoseTabDies(t *testing.T) {
	t.Parallel()
	length := sized(t, 7, 30)
	v := person(t, look{})
	share := v.record("camera")
	v.said("Recording")
	v.recorded(length)
	_ = proto.PageCrash{}.Call(v.Page.Timeout(time.Second)) // a crashed page does not respond
	eventually(t, 4*time.Minute, "the video from the crashed tab", func() bool { return recorded(t, share).str("status") == "ready" })
	d := seconds(recorded(t, share))
	t.Logf("the tab died after %d s of recording; the video is %.1f s long", length, d)
	if d < float64(length-5) {
		t.Errorf("the video has %v of %v s, want at most 5 s missing", d, length)
	}
}

// The network fails during a recording and comes back. The video must be complete.
func TestRecordingOverACutNetwork(t *testing.T) {
	t.Parallel()
	away := sized(t, 3, 20)
	v := person(t, look{})
	share := v.record("camera")
	page := v.Timeout(patience)
	v.recorded(3)
	check(t, proto.NetworkEnable{}.Call(v.Page)) // without this call only navigator.onLine changes
	cut := func(off bool) {
		check(t, proto.NetworkEmulateNetworkConditions{Offline: off, DownloadThroughput: -1, UploadThroughput: -1}.Call(v.Page))
	}
	cut(true)
	v.said("No connection")
	v.recorded(3 + away)
	cut(false)
	v.said("Recording")
	v.recorded(5 + away)
	page.MustElement("#stop").MustClick()
	v.said("Ready to watch")
	d := seconds(recorded(t, share))
	t.Logf("%d s without a network; the video is %.1f s long", away, d)
	if d < float64(4+away) {
		t.Errorf("the video is %v s long, want at least %d", d, 4+away)
	}
	v.clean("ERR_INTERNET_DISCONNECTED")
}

// The test measures the time from Stop until the video plays on a viewer's page.
func TestRecordingPlaysSoonAfterStop(t *testing.T) {
	t.Parallel()
	times := sized(t, 2, 20)
	v, other := person(t, look{}), visitor(t, look{})
	var took []time.Duration
	for range times {
		share := v.record("camera")
		v.recorded(sized(t, 2, 5))
		stopped := time.Now()
		v.Timeout(patience).MustElement("#stop").MustClick()
		plays(t, other, share)
		took = append(took, time.Since(stopped))
		t.Logf("from Stop to playback on the share page: %v", took[len(took)-1])
		v.said("Ready to watch")
	}
	slices.Sort(took)
	p95 := took[(19*times-1)/20]
	t.Logf("from Stop to playback on the share page, %d times: median %v, p95 %v", times, took[times/2], p95)
	if full(t) && p95 > 5*time.Second { // on a busy machine, the time is meaningless
		t.Errorf("the p95 is %v, want at most 5 s", p95)
	}
}
