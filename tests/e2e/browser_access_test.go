package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-rod/rod"
	"github.com/go-rod/rod/lib/proto"
)

// asked records a window's requests for pages and playlists, and their results.
type asked struct {
	mu   sync.Mutex
	sent map[proto.NetworkRequestID]time.Time
	got  []string // responses with status 200, with their times
	when []time.Time
}

func (v *viewer) asks() *asked {
	v.t.Helper()
	check(v.t, proto.NetworkEnable{}.Call(v.Page))
	a := &asked{sent: map[proto.NetworkRequestID]time.Time{}}
	go v.EachEvent(func(e *proto.NetworkRequestWillBeSent) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.sent[e.RequestID] = e.WallTime.Time()
	}, func(e *proto.NetworkResponseReceived) {
		a.mu.Lock()
		defer a.mu.Unlock()
		u, err := url.Parse(e.Response.URL)
		if err == nil && e.Response.Status == http.StatusOK && (strings.HasSuffix(u.Path, ".m3u8") || strings.HasSuffix(u.Path, "/session")) {
			a.got, a.when = append(a.got, u.Path), append(a.when, a.sent[e.RequestID])
		}
	})()
	return a
}

// after lists the paths of the successful requests that began after t.
func (a *asked) after(t time.Time) (paths []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, path := range a.got {
		if a.when[i].After(t) {
			paths = append(paths, path)
		}
	}
	return paths
}

// The test makes a password-protected video public and then protects it again while two people
// watch. The videos service's own tests cover other replicas.
func TestAVideoIsOpenedAndClosedWhileItPlays(t *testing.T) {
	t.Parallel()
	c := as(t, "creator")
	made := film(t, map[string]any{"title": "Members only", "privacy": "password", "password": "grün 7"}, scenery(t, 60))
	access := "/api/v1/videos/" + made.str("videoId") + "/access"
	if made.str("videoId") == "" {
		access = "/api/v1/videos/" + made.str("id") + "/access"
	}
	first := visitor(t, look{})
	requests := first.asks() // start before the page loads, because it may request its playlists immediately
	first.open(made.str("shareUrl"))
	first.unlock("grün 7")
	first.play()

	c.want(200, "PUT", access, map[string]any{"privacy": "public"})
	second := visitor(t, look{})
	more := second.asks()
	second.open(made.str("shareUrl"))
	second.play()

	c.want(200, "PUT", access, map[string]any{"privacy": "password", "password": "grün 7"})
	closed := time.Now()
	if page := visit(t, made.str("shareUrl")); strings.Contains(string(page.raw), "Members only") {
		t.Error("the page shows the title without the password after the video was protected again")
	}
	for name, v := range map[string]*viewer{"the viewer with the password": first, "the viewer who joined while the video was public": second} {
		v.until("the end of playback for "+name, `() => !document.querySelector("[data-ended]").hidden`)
		if text := v.find("[data-ended]").MustText(); !strings.Contains(text, "locked") {
			t.Errorf("%s sees %q, want it to contain \"locked\"", name, text)
		}
	}
	for _, a := range []*asked{requests, more} {
		if got := a.after(closed); len(got) > 0 {
			t.Errorf("requests %v succeeded after the video was protected again, want none", got)
		}
		if len(a.after(time.Time{})) == 0 {
			t.Error("no requests were recorded")
		}
	}
	first.clean("status of 403", "status of 429")
	second.clean("status of 403")
}

// framed returns the page in the frame.
func (v *viewer) framed() *rod.Page {
	v.t.Helper()
	frame, err := v.find("iframe").Frame()
	check(v.t, err)
	return frame.Context(v.t.Context()) // find's context is done
}

// The test embeds a video on two sites. The video's owner has listed only one of them.
func TestEmbedsAreShownWhereTheOwnerSays(t *testing.T) {
	t.Parallel()
	c := as(t, "creator")
	made := film(t, map[string]any{"title": "Framed"}, scenery(t, 4))
	share, err := url.Parse(made.str("shareUrl"))
	check(t, err)
	embed := made.str("embedUrl")
	if embed == "" {
		embed = stack.BaseURL + "/embed/" + share.Path[strings.LastIndex(share.Path, "/")+1:]
	}
	base, err := url.Parse(stack.BaseURL)
	check(t, err)
	// The sites use different ports on the same host. Each has its own origin, but the browser runs
	// all frames from one host in one process.
	site := func() string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><iframe src="%s" width="640" height="360" allow="fullscreen"></iframe>`, embed)
		}))
		t.Cleanup(s.Close)
		_, port, err := net.SplitHostPort(s.Listener.Addr().String())
		check(t, err)
		return "http://" + net.JoinHostPort(base.Hostname(), port)
	}
	listed, foreign := site(), site()
	id := made.str("id")
	if id == "" {
		id = made.str("videoId")
	}
	c.want(200, "PUT", "/api/v1/videos/"+id+"/access", map[string]any{"privacy": "public", "embedOrigins": []string{listed}})

	v := visitor(t, look{})
	v.open(listed)
	if _, err := v.framed().Timeout(patience).Element("video"); err != nil {
		t.Errorf("the listed site does not show a video: %v", err)
	}
	v.clean()

	v = visitor(t, look{})
	v.open(foreign)
	eventually(t, patience, "the browser blocks the frame", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return strings.Contains(strings.Join(v.wrong, "\n"), "frame-ancestors")
	})
	if there, _, err := v.framed().Has("video"); err != nil || there {
		t.Errorf("the frame on a site that is not listed has a video: %v, %v; want false", there, err)
	}
	c.want(200, "PUT", "/api/v1/videos/"+id+"/access", map[string]any{"privacy": "public"})
	v = visitor(t, look{})
	v.open(foreign)
	if _, err := v.framed().Timeout(patience).Element("video"); err != nil {
		t.Errorf("with an empty list of sites, the frame does not show a video: %v", err)
	}
}
