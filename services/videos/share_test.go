package videos_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/localcloud/procstat"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	"github.com/linkreel/linkreel/services/videos"
)

func TestTheSharePageOfAReadyVideo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"title":"Fjord"}`)
	page := w.send(http.MethodGet, v.path, "").want(200)
	if csp := page.header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.HasPrefix(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("Content-Security-Policy is %q, want no unsafe directives, default-src 'none' and frame-ancestors 'none'", csp)
	}
	for k, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Content-Type": "text/html; charset=utf-8",
		"Cache-Control": "private, no-store", "X-Robots-Tag": "",
	} {
		if got := page.header.Get(k); got != want {
			t.Errorf("header %s is %q, want %q", k, got, want)
		}
	}
	for _, want := range []string{
		`<title>Fjord · Linkreel</title>`, `<meta property="og:title" content="Fjord">`, `<meta property="og:image" content="` + v.share + `/thumbnail.jpg">`,
		`<meta name="twitter:player" content="` + w.base + `/embed/` + v.slug + `">`, `application/json+oembed`, `<video controls`, `width="1280" height="720"`,
	} {
		if !strings.Contains(page.body, want) {
			t.Errorf("the page does not contain %s", want)
		}
	}
	if strings.Contains(page.body, "noindex") || strings.Contains(page.body, "<script>") || regexp.MustCompile(`\s(style|on\w+)=`).MatchString(page.body) {
		t.Errorf("want a page without noindex, inline scripts, styles or event handlers; got:\n%s", page.body)
	}
	for _, m := range regexp.MustCompile(`(?:href|src|data-hls)="(/v/-/[^"]+)"`).FindAllStringSubmatch(page.body, -1) {
		a := w.send(http.MethodGet, m[1], "").want(200)
		if !strings.Contains(a.header.Get("Content-Type"), "charset=utf-8") || !strings.Contains(a.header.Get("Cache-Control"), "immutable") {
			t.Errorf("asset %s has the header %v, want a charset and immutable", m[1], a.header)
		}
	}
	w.send(http.MethodGet, v.path+"/thumbnail.jpg", "").want(200)
	if file := w.send(http.MethodGet, v.path+"/video.mp4", "").want(302); !strings.HasPrefix(file.header.Get("Location"), w.uploads) {
		t.Errorf("the file URL redirects to %q, want a storage URL", file.header.Get("Location"))
	}
	if a := w.send(http.MethodHead, v.path, ""); a.status != 200 || a.body != "" {
		t.Errorf("HEAD returned %d with body %q, want 200 without a body", a.status, a.body)
	}
	if a := w.send(http.MethodDelete, v.path, ""); a.status != 405 {
		t.Errorf("DELETE returned %d, want 405", a.status)
	}
}

func TestEveryStateHasItsPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{"title":"Soon"}`)
	look := func(want ...string) {
		t.Helper()
		w.clock.Advance(2 * time.Second)
		page := w.send(http.MethodGet, v.path, "").want(200)
		for _, s := range want {
			if !strings.Contains(page.body, s) {
				t.Errorf("the page does not contain %q:\n%s", s, page.body)
			}
		}
		if page.header.Get("X-Robots-Tag") == "" || strings.Contains(page.body, "og:title") {
			t.Error("the page without a playable video has a preview or allows indexing, want neither")
		}
	}
	look("has not been uploaded yet", `<noscript><a class="button" href="?">Check again</a>`)
	w.put(v, "a film")
	look("is being prepared", "<progress", `data-waiting="processing"`)
	r, err := w.jobs.Claim(t.Context(), w.job(v.id).ID, "hand", time.Minute)
	must(t, err)
	must(t, w.jobs.Heartbeat(t.Context(), tokenOf(r), time.Minute, 42))
	look(`value="42"`)
	if s := w.send(http.MethodGet, v.path+"/status", "").want(200).json(); s["status"] != "processing" || s["progress"] != 42.0 {
		t.Errorf("got %v, want status processing and progress 42", s)
	}
	must(t, w.jobs.Fail(t.Context(), tokenOf(r), failure("NOT_A_VIDEO", "The file has no moving picture in it.")))
	look("could not be prepared")
	if page := w.send(http.MethodGet, v.path, ""); strings.Contains(page.body, "NOT_A_VIDEO") || strings.Contains(page.body, "moving picture") {
		t.Error("the page contains the reason for the failure, want it only in the API")
	}
	for path, status := range map[string]int{"/thumbnail.jpg": 404, "/session": 404, "/video.mp4": 404} {
		w.send(http.MethodGet, v.path+path, "").want(status)
	}
	w.send(http.MethodGet, "/v/zzzzzzz", "").want(404)
	w.api(http.MethodDelete, "/"+v.id, "").want(204)
	if gone, never := w.send(http.MethodGet, v.path, "").want(404), w.send(http.MethodGet, "/v/zzzzzzz", "").want(404); gone.body != never.body {
		t.Error("the page for a deleted video differs from the page for a video that never existed, want identical pages")
	}
}

// playlistOf returns one of the two playlist URLs on a page.
func playlistOf(page answer, which string) string {
	page.t.Helper()
	found := regexp.MustCompile(`data-` + which + `="([^"]+)"`).FindStringSubmatch(page.body)
	if found == nil {
		page.t.Fatalf("the page does not have a playlist of type %s", which)
	}
	return html.UnescapeString(found[1])
}

var unlockPath = "/unlock"

func (w *world) guess(v made, password string, settings ...setting) answer {
	w.t.Helper()
	form := url.Values{"password": {password}}.Encode()
	return w.send(http.MethodPost, v.path+unlockPath, form, append([]setting{header("Content-Type", "application/x-www-form-urlencoded")}, settings...)...)
}

func TestAPasswordOpensOneVideo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"title":"Wedding of Ada","privacy":"password","password":"sésame 🔑"}`)
	other := w.ready(`{"title":"Other","privacy":"password","password":"sésame 🔑"}`)
	b := w.browser()

	page := b.send(http.MethodGet, v.path, "").want(200)
	for _, trace := range []string{"Ada", "og:", "twitter:", "hls", "poster", v.id, "oembed", "<video"} {
		if strings.Contains(page.body, trace) {
			t.Errorf("the page with the password form contains %q:\n%s", trace, page.body)
		}
	}
	for _, path := range []string{v.path + "/thumbnail.jpg", v.path + "/video.mp4"} {
		b.send(http.MethodGet, path, "").want(404)
	}
	for _, path := range []string{v.path + "/status", v.path + "/session", "/oembed?url=" + url.QueryEscape(v.share)} {
		b.send(http.MethodGet, path, "").want(403)
	}
	if e := b.send(http.MethodGet, "/embed/"+v.slug, "").want(200); strings.Contains(e.body, "Ada") || strings.Contains(e.body, "<form") || !strings.Contains(e.body, v.share) {
		t.Errorf("want an embed page with only a link to the share page; got:\n%s", e.body)
	}

	wrong := b.guess(v, "sesame").want(403)
	if !strings.Contains(wrong.body, "<form") || !strings.Contains(wrong.body, `aria-invalid="true"`) || strings.Contains(wrong.body, "Ada") {
		t.Errorf("want the form with an error after a wrong password, got:\n%s", wrong.body)
	}
	right := b.guess(v, "sésame 🔑").want(303)
	cookie := right.header.Get("Set-Cookie")
	if right.header.Get("Location") != v.path || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Lax") || !strings.Contains(cookie, "path="+v.path) {
		t.Errorf("got Location %q and cookie %q after the correct password, want the page and a restricted cookie", right.header.Get("Location"), cookie)
	}
	page = b.send(http.MethodGet, v.path, "").want(200)
	if !strings.Contains(page.body, "Wedding of Ada") || strings.Contains(page.body, "og:") {
		t.Errorf("want the title and no preview after the correct password, got:\n%s", page.body)
	}
	b.send(http.MethodGet, v.path+"/session", "").want(200)

	value := strings.TrimPrefix(strings.SplitN(cookie, ";", 2)[0], "lr_unlock=")
	for name, c := range map[string]string{
		"another video's": value, "a changed": value[:len(value)-2] + "AA", "no": "",
	} {
		path := v.path
		if name == "another video's" {
			path = other.path
		}
		if p := w.send(http.MethodGet, path, "", header("Cookie", "lr_unlock="+c)).want(200); !strings.Contains(p.body, "<form") {
			t.Errorf("the page with %s cookie does not have a password form, want one", name)
		}
	}
	w.clock.Advance(13 * time.Hour)
	if p := w.send(http.MethodGet, v.path, "", header("Cookie", "lr_unlock="+value)).want(200); !strings.Contains(p.body, "<form") {
		t.Error("the page with an expired cookie does not have a password form, want one")
	}
}

// One attacker uses all networks in an IPv4 /16, and another uses all networks in an IPv6 /48.
// During the attack, viewers who know the password still get access, and the attackers get only a
// small number of guesses.
func TestARightPasswordGetsInWhileThousandsOfNetworksGuess(t *testing.T) {
	t.Parallel()
	trusting := func(c *videos.Config, _ *storage.Options) { c.TrustedProxies = prefixes("127.0.0.0/8") }
	w := newWorld(t, trusting)
	v := w.ready(`{"privacy":"password","password":"right"}`)
	from := func(ip string) setting { return header("X-Forwarded-For", ip) }
	known := func(a answer) setting {
		for _, c := range a.header.Values("Set-Cookie") {
			if value, ok := strings.CutPrefix(strings.SplitN(c, ";", 2)[0], "lr_known="); ok {
				return header("Cookie", "lr_known="+value)
			}
		}
		t.Fatalf("the response does not set a cookie for later visits: %v", a.header)
		return nil
	}
	// A viewer in an attacker's neighbourhood has already unlocked the video.
	before := known(w.guess(v, "right", from("10.1.0.200")).want(303))
	other := w.ready(`{"privacy":"password","password":"right"}`)
	others := known(w.guess(other, "right", from("10.1.0.200")).want(303))
	if p := w.send(http.MethodGet, v.path, "", before).want(200); !strings.Contains(p.body, "<form") {
		t.Error("the cookie for later visits unlocks the video, want the password form")
	}

	wrong := strings.Repeat("x", 300) // longer than any password, so it is rejected without hashing it
	guessed := 0
	attack := func(ip string) {
		switch a := w.guess(v, wrong, from(ip)); a.status {
		case 403:
			guessed++
		case 429:
		default:
			t.Fatalf("a wrong password from %s returned %d, want 403 or 429", ip, a.status)
		}
	}
	for i := range 700 {
		attack(fmt.Sprintf("10.1.%d.%d", i%256, i/256+1))
	}
	networks := 500
	if os.Getenv("LINKREEL_FULL") == "1" {
		networks = 1 << 16
	}
	for i := range networks {
		attack(fmt.Sprintf("2001:db8:1:%x::1", i))
	}
	if guessed > 60+60+1 {
		t.Errorf("a /16 and a /48 got %d guesses, want at most 121", guessed)
	}
	for _, ip := range []string{"198.51.100.7", "2001:db8:2::1", "192.0.2.1"} {
		w.guess(v, "right", from(ip)).want(303)
	}
	w.guess(v, "right", from("10.1.0.200")).want(429)
	w.guess(v, "right", from("10.1.0.200"), others).want(429) // with the cookie for another video
	w.guess(v, "right", from("10.1.0.200"), before).want(303)
	w.clock.Advance(24 * time.Hour) // longer than the lifetime of an unlock
	w.guess(v, "right", from("10.1.0.200"), before).want(303)
	for range 30 { // guesses with a cookie are limited too
		w.guess(v, wrong, from("10.1.0.200"), before)
	}
	w.guess(v, "right", from("10.1.0.200"), before).want(429)
	w.clock.Advance(91 * 24 * time.Hour)
	w.guess(v, "right", from("10.1.0.200"), before).want(429)
}

func TestGuessingIsLimited(t *testing.T) {
	t.Parallel()
	trusting := func(c *videos.Config, _ *storage.Options) { c.TrustedProxies = prefixes("127.0.0.0/8") }
	w := newWorld(t, trusting)
	v := w.ready(`{"privacy":"password","password":"right"}`)
	from := func(ip string) setting { return header("X-Forwarded-For", ip) }
	for range 6 {
		w.guess(v, "right", from("10.0.0.1")).want(303) // correct passwords do not count
	}
	wrong := strings.Repeat("x", 300) // longer than any password, so it is rejected without hashing it
	for range 5 {
		w.guess(v, wrong, from("10.0.0.1")).want(403)
	}
	a := w.guess(v, "right", from("10.0.0.1")).want(429)
	if a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "Too many attempts") {
		t.Errorf("the 429 response has header %v, want Retry-After and the page about too many attempts", a.header)
	}
	w.guess(v, "right", from("10.0.0.2")).want(303)
	w.guess(v, "x", from("10.0.0.3"), header("Sec-Fetch-Site", "cross-site")).want(403)
	w.clock.Advance(time.Hour)
}

func TestThePasswordComesFromTheBodyAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"privacy":"password","password":"right"}`)
	form := header("Content-Type", "application/x-www-form-urlencoded")
	// Do this first: if a busy machine makes Redis seem unreachable, two wrong guesses use up the
	// budget.
	w.send(http.MethodPost, v.path+"/unlock", "password=right", form).want(303)
	w.send(http.MethodPost, v.path+"/unlock?password=right", "", form).want(403)
	w.send(http.MethodPost, v.path+"/unlock?password=right", "password=wrong", form).want(403)
	var multi bytes.Buffer
	m := multipart.NewWriter(&multi)
	must(t, m.WriteField("password", "right"))
	must(t, m.Close())
	w.send(http.MethodPost, v.path+"/unlock", multi.String(), header("Content-Type", m.FormDataContentType())).want(415)
}

func TestACompressedBodyIsNeverUnpacked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"privacy":"password","password":"right"}`)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := io.CopyN(z, zeros{}, 64<<20)
	must(t, err)
	must(t, z.Close())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, types := range []string{"application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		w.send(http.MethodPost, v.path+"/unlock", packed.String(), header("Content-Type", types), header("Content-Encoding", "gzip")).want(415)
	}
	for _, call := range [][3]string{{http.MethodPut, "/" + v.id + "/captions/en", "text/vtt"}, {http.MethodPut, "/" + v.id + "/access", "application/json"}, {http.MethodPost, "", "application/json"}} {
		if a := w.api(call[0], call[1], packed.String(), header("Content-Encoding", "gzip"), header("Content-Type", call[2])); a.status != 415 && a.status != 400 {
			t.Errorf("%v with a compressed body returned %d, want 415 or 400", call, a.status)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 40<<20 { // parallel tests allocate too, but less than 5 × 64 MiB
		t.Logf("%d bytes were allocated during the requests", grown)
		if grown > 256<<20 {
			t.Errorf("%d bytes were allocated, want at most 256 MiB because bodies must not be decompressed", grown)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestAsksForVideosThatAreNotThereHaveABudget(t *testing.T) {
	t.Parallel()
	trusting := func(c *videos.Config, _ *storage.Options) { c.TrustedProxies = prefixes("127.0.0.0/8") }
	w := newWorld(t, trusting)
	v, other := w.ready(`{}`), w.ready(`{}`)
	from := func(ip string) setting { return header("X-Forwarded-For", ip) }
	w.send(http.MethodGet, v.path, "", from("10.0.0.1")).want(200)
	limited := 0
	for i := range 2000 {
		a := w.send(http.MethodGet, fmt.Sprintf("/v/nothing%d", i), "", from("10.0.0.1"))
		if a.status == 429 {
			if a.header.Get("Retry-After") == "" {
				t.Fatal("the 429 response does not have a Retry-After header, want one")
			}
			if limited++; limited == 5 {
				break
			}
		}
	}
	if limited == 0 {
		t.Fatal("one network made 2,000 look-ups for unknown slugs, want some rejected")
	}
	w.send(http.MethodGet, v.path, "", from("10.0.0.1")).want(200) // found recently, so not limited
	w.send(http.MethodGet, other.path, "", from("10.0.0.2")).want(200)
}

func TestUnlistedSlugsCannotBeGuessed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if n := len(w.create(`{"privacy":"unlisted"}`).slug); n != 13 { // 31^13 > 2^64
		t.Errorf("an unlisted slug has %d characters, want 13", n)
	}
	if n := len(w.create(`{}`).slug); n != 7 {
		t.Errorf("a public slug has %d characters, want 7", n)
	}
}

func TestAssetsAndPagesAreCompressedForWhoTakesThat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{}`)
	page := w.send(http.MethodGet, v.path, "", header("Accept-Encoding", "identity")).want(200)
	script := regexp.MustCompile(`/v/-/hls\.[0-9a-f]+\.js`).FindString(page.body)
	plain := w.send(http.MethodGet, script, "", header("Accept-Encoding", "gzip;q=0, br")).want(200)
	packed := w.send(http.MethodGet, script, "", header("Accept-Encoding", "br, gzip;q=0.5")).want(200)
	if plain.header.Get("Content-Encoding") != "" || packed.header.Get("Content-Encoding") != "gzip" || len(packed.body)*2 > len(plain.body) {
		t.Errorf("got %d bytes plain and %d compressed with header %v, want gzip and at most half the size", len(plain.body), len(packed.body), packed.header)
	}
	z, err := gzip.NewReader(strings.NewReader(packed.body))
	must(t, err)
	if body, err := io.ReadAll(z); err != nil || string(body) != plain.body {
		t.Errorf("decompressing returned a different body or the error %v, want the plain body", err)
	}
	for name, a := range map[string]answer{"plain": plain, "packed": packed, "page": page} {
		if a.header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s has Vary %q, want Accept-Encoding", name, a.header.Get("Vary"))
		}
	}
	if p := w.send(http.MethodGet, v.path, "", header("Accept-Encoding", "gzip")).want(200); p.header.Get("Content-Encoding") != "gzip" || len(p.body) > len(page.body)/2 {
		t.Errorf("a page of %d bytes is %d bytes compressed, want at most half", len(page.body), len(p.body))
	}
}

func TestAFormOfAnotherSiteIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"privacy":"password","password":"right"}`)
	for _, s := range []setting{header("Origin", "https://evil.example"), header("Origin", "null"), header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Site", "same-site")} {
		w.guess(v, "right", s).want(403)
	}
	w.guess(v, "right", header("Origin", w.base), header("Sec-Fetch-Site", "same-origin")).want(303)
}

func TestExpiryEndsPageAndPlayback(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(fmt.Sprintf(`{"title":"Brief","privacy":"expiring","expiresAt":%d}`, time.Now().Add(time.Hour).UnixMilli()))
	playlist := w.get(v.id)["playbackUrl"].(string)
	media := w.send(http.MethodGet, strings.Replace(playlist, "master", "720p", 1), "").want(200)
	signed := regexp.MustCompile(`(?m)^http\S+$`).FindString(media.body)
	page := w.send(http.MethodGet, v.path, "").want(200)
	if !strings.Contains(page.body, "Available until") || page.header.Get("X-Robots-Tag") == "" {
		t.Error("the page for an expiring video allows indexing or does not show its expiry, want the expiry and no indexing")
	}
	viewers := playlistOf(page, "playlist")
	w.send(http.MethodGet, signed, "").want(200)

	w.clock.Advance(time.Hour + time.Second)
	page = w.send(http.MethodGet, v.path, "").want(410)
	if strings.Contains(page.body, "Brief") {
		t.Error("the page for an expired video contains its title, want no title")
	}
	for _, path := range []string{v.path + "/session", v.path + "/status", v.path + "/thumbnail.jpg", "/embed/" + v.slug, "/oembed?url=" + url.QueryEscape(v.share), viewers} {
		w.send(http.MethodGet, path, "").want(410)
	}
	w.send(http.MethodGet, signed, "").want(400)
	w.send(http.MethodGet, playlist, "").want(200) // the owner's URL still works
	got := w.get(v.id)
	for _, address := range []string{"playbackUrl", "posterUrl"} {
		w.send(http.MethodGet, got[address].(string), "").want(200)
	}
	w.send(http.MethodGet, got["downloadUrl"].(string), "").want(302)
}

func TestPlaylists(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"privacy":"password","password":"p"}`)
	playlist := w.get(v.id)["playbackUrl"].(string)
	master := w.send(http.MethodGet, playlist, "").want(200)
	if master.header.Get("Content-Type") != "application/vnd.apple.mpegurl; charset=utf-8" || master.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("the master playlist has header %v, want its Content-Type and access for every origin", master.header)
	}
	names := regexp.MustCompile(`\S+?\.m3u8`).FindAllString(master.body, -1)
	if len(names) != 3 {
		t.Fatalf("the master playlist lists %d playlists, want 3:\n%s", len(names), master.body)
	}
	for _, name := range []string{"720p.m3u8", "360p.m3u8", "audio.m3u8"} {
		media := w.send(http.MethodGet, strings.Replace(playlist, "master.m3u8", name, 1), "").want(200)
		var addresses []string
		for _, line := range strings.Split(media.body, "\n") {
			if strings.HasPrefix(line, "http") {
				addresses = append(addresses, line)
			}
		}
		if len(addresses) != 2 || addresses[0] != addresses[1] {
			t.Fatalf("playlist %s has %d media URLs, want two identical URLs:\n%s", name, len(addresses), media.body)
		}
		u, err := url.Parse(addresses[0])
		must(t, err)
		if !strings.HasSuffix(u.Path, ".mp4") || u.Query().Get("X-Goog-Expires") == "" {
			t.Errorf("the media URL is %s, want a signed URL for an .mp4 file", u)
		}
		w.send(http.MethodGet, addresses[0], "").want(200)
		w.send(http.MethodGet, u.Scheme+"://"+u.Host+u.Path, "").want(403) // the URL needs its signature
	}
	if vtt := w.send(http.MethodGet, strings.Replace(playlist, "master.m3u8", "storyboard.vtt", 1), "").want(200); !strings.Contains(vtt.body, "#xywh=160,0,160,90") {
		t.Errorf("the storyboard does not have a second frame:\n%s", vtt.body)
	}
	w.send(http.MethodGet, strings.Replace(playlist, "master.m3u8", "poster.jpg", 1), "").want(200)
	for _, file := range []string{"8k.m3u8", "master", "x.vtt", "captions-", "720p.mp4"} {
		w.send(http.MethodGet, strings.Replace(playlist, "master.m3u8", file, 1), "").want(404)
	}
	other := w.ready(`{}`)
	for name, address := range map[string]string{
		"tampered token":          strings.Replace(playlist, "/hls/", "/hls/A", 1),
		"token for another video": strings.Replace(playlist, v.slug, other.slug, 1),
		"token from a cookie":     w.base + v.path + "/hls/" + unlockValue(w.guess(v, "p")) + "/master.m3u8",
		"missing token":           w.base + v.path + "/hls/x/master.m3u8",
		"made-up token":           w.base + v.path + "/hls/" + strings.Repeat("A", 400) + "/master.m3u8",
	} {
		if a := w.send(http.MethodGet, address, ""); a.status != 403 || a.code() != "FORBIDDEN" {
			t.Errorf("%s: got %d %s, want 403 FORBIDDEN", name, a.status, a.body)
		}
	}
	w.clock.Advance(7 * time.Hour)
	w.send(http.MethodGet, playlist, "").want(403)
	fresh := w.get(v.id)["playbackUrl"].(string)
	w.send(http.MethodGet, fresh, "").want(200)
	w.api(http.MethodDelete, "/"+v.id, "").want(204)
	w.send(http.MethodGet, fresh, "").want(404)
}

// long changes an outcome to four hours of segments.
func long(o *transcode.Outcome) {
	var segments transcode.Segments
	for i := range 2400 {
		segments = append(segments, transcode.Segment{Range: transcode.Range{Offset: 1000 + int64(i)*4_000_000, Size: 4_000_000}, Duration: 6})
	}
	o.Duration = 14_400
	for i := range o.Renditions {
		o.Renditions[i].Segments = segments
	}
}

// This test measures the heap, so it must not run in parallel with other tests.
func TestSlowReadersOfALongPlaylistHoldLittleMemory(t *testing.T) {
	w := newWorld(t)
	v := w.create(`{}`)
	w.put(v, "a film")
	w.get(v.id)
	w.work(v.id, long)
	w.get(v.id)
	playlist := strings.Replace(playlistOf(w.send(http.MethodGet, v.path, "").want(200), "playlist"), "master", "720p", 1)
	whole := w.send(http.MethodGet, playlist, "").want(200)
	if got := whole.header.Get("Content-Length"); got != strconv.Itoa(len(whole.body)) || len(whole.body) < 1<<20 || !strings.HasSuffix(whole.body, "#EXT-X-ENDLIST\n") {
		t.Fatalf("got a playlist of %d bytes with Content-Length %q, want a complete playlist of at least 1 MiB", len(whole.body), got)
	}
	if got := whole.header.Get("Content-Type"); got != "application/vnd.apple.mpegurl; charset=utf-8" {
		t.Errorf("Content-Type is %q, want that of an HLS playlist", got)
	}
	head := w.send(http.MethodHead, playlist, "").want(200)
	if head.body != "" || head.header.Get("Content-Length") != whole.header.Get("Content-Length") {
		t.Errorf("HEAD returned %d bytes with header %v, want no body and the Content-Length of GET", len(head.body), head.header)
	}
	const readers = 40
	goroutines, before := runtime.NumGoroutine(), procstat.Heap()
	var conns []net.Conn
	for range readers {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.base, "http://"))
		must(t, err)
		must(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", strings.TrimPrefix(playlist, w.base))
		must(t, err)
		// The first bytes have arrived, so the server is sending the response.
		_, err = io.ReadFull(conn, make([]byte, 1024))
		must(t, err)
		conns = append(conns, conn)
	}
	if each := (procstat.Heap() - before) / readers; each > 256<<10 {
		t.Errorf("a slow reader of %d KiB uses %d KiB of memory, want at most 256 KiB", len(whole.body)>>10, each>>10)
	}
	// The server has one goroutine per connection, which ends at the write timeout.
	if more := runtime.NumGoroutine() - goroutines; more > readers+5 {
		t.Errorf("%d readers use %d goroutines, want about one each", readers, more)
	}
	for _, conn := range conns {
		must(t, conn.Close())
	}
	w.send(http.MethodGet, playlist, "").want(200)
}

func TestASessionRenewsWhatThePlayerHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{}`)
	page := w.send(http.MethodGet, v.path, "").want(200)
	held := html.UnescapeString(regexp.MustCompile(`data-playlist="([^"]+)"`).FindStringSubmatch(page.body)[1])
	w.send(http.MethodGet, held, "").want(200)
	w.clock.Advance(11 * time.Minute)
	w.send(http.MethodGet, held, "").want(403)
	var s struct {
		Playlist string
		TTL      int
		Media    []string
	}
	must(t, json.Unmarshal([]byte(w.send(http.MethodGet, v.path+"/session", "").want(200).body), &s))
	if s.TTL < 60 || s.TTL > 600 || len(s.Media) != 3 {
		t.Fatalf("got session %+v, want a TTL from 60 to 600 s and three media URLs", s)
	}
	w.send(http.MethodGet, s.Playlist, "").want(200)
	for _, m := range s.Media {
		w.send(http.MethodGet, m, "").want(200)
	}
	w.clock.Advance(time.Duration(s.TTL-5) * time.Second)
	for _, m := range s.Media {
		w.send(http.MethodGet, m, "").want(200)
	}
}

func TestViewsCountOncePerViewerAndDay(t *testing.T) {
	t.Parallel()
	trusting := func(c *videos.Config, _ *storage.Options) { c.TrustedProxies = prefixes("127.0.0.0/8") }
	w := newWorld(t, trusting)
	w.loop("views")
	v := w.ready(`{}`)
	address := func() string {
		return playlistOf(w.send(http.MethodGet, v.path, "").want(200), "view")
	}
	watch := func(ip, agent string) {
		w.send(http.MethodPost, address(), "", header("X-Forwarded-For", ip), header("User-Agent", agent)).want(204)
	}
	for range 3 {
		watch("10.0.0.1", "a")
	}
	watch("10.0.0.1", "b")
	watch("10.0.0.2", "a")
	own := strings.Replace(w.get(v.id)["playbackUrl"].(string), "master.m3u8", "view", 1)
	w.send(http.MethodPost, own, "").want(204) // watching by the owner does not count as a view
	eventually(t, "3 views", func() bool { return w.get(v.id)["views"] == 3.0 })
	w.clock.Advance(24 * time.Hour)
	watch("10.0.0.1", "a")
	eventually(t, "view on the next day counted", func() bool { return w.get(v.id)["views"] == 4.0 })
	if page := w.send(http.MethodGet, v.path, ""); !strings.Contains(page.body, "4 views") {
		t.Error("the page does not show the number of views, want 4 views")
	}
}

func TestOneNetworkMakesABoundedNumberOfViewers(t *testing.T) {
	t.Parallel()
	trusting := func(c *videos.Config, _ *storage.Options) { c.TrustedProxies = prefixes("127.0.0.0/8") }
	w := newWorld(t, trusting)
	w.loop("views")
	v := w.ready(`{}`)
	rdb, err := redisdb.Open(redisdb.Config{URL: w.redis})
	must(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	address := func() string {
		return playlistOf(w.send(http.MethodGet, v.path, "").want(200), "view")
	}
	counted := func() (n int64) {
		sets, err := rdb.Keys(t.Context(), "lr:count:views:*").Result()
		must(t, err)
		for _, set := range sets {
			n += rdb.PFCount(t.Context(), set).Val()
		}
		return n
	}
	// watch sends the views from 320 viewers with different browsers, and returns how many were
	// counted.
	watch := func(ip func(i int) string, agent string) int64 {
		before, to := counted(), address()
		for i := range 320 {
			w.send(http.MethodPost, to, "", header("X-Forwarded-For", ip(i)), header("User-Agent", agent+strconv.Itoa(i))).want(204)
		}
		return counted() - before
	}
	one := func(ip string) func(int) string { return func(int) string { return ip } }
	// One more viewer is counted for every 12 s that the requests take, and Redis counts only
	// approximately. If a busy machine makes Redis seem unreachable, only half as many viewers
	// are counted.
	if n := watch(one("192.0.2.1"), "a"); n < 140 || n > 318 {
		t.Errorf("counted %d viewers from one IPv4 address, want about 300", n)
	}
	if n := watch(func(i int) string { return fmt.Sprintf("2001:db8::%x", i+1) }, "a"); n < 140 || n > 318 {
		t.Errorf("counted %d viewers from one IPv6 /64, want about 300", n)
	}
	if n := watch(one("192.0.2.1"), "b"); n > 30 {
		t.Errorf("counted %d more viewers from the first address, want at most 30", n)
	}
	w.send(http.MethodPost, address(), "", header("X-Forwarded-For", "192.0.2.2"), header("User-Agent", "a")).want(204)
	eventually(t, "all counted viewers stored as views", func() bool { return int64(w.get(v.id)["views"].(float64)) >= counted() })
	w.clock.Advance(time.Hour)
	if n := watch(one("192.0.2.1"), "c"); n < 140 || n > 320 {
		t.Errorf("counted %d viewers an hour later, want about 300", n)
	}
}

func TestOEmbed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"title":"A \"quoted\" <title>","privacy":"unlisted"}`)
	ask := func(query string) answer { return w.send(http.MethodGet, "/oembed?"+query, "") }
	m := ask("url=" + url.QueryEscape(v.share) + "&maxwidth=640").want(200).json()
	if m["type"] != "video" || m["version"] != "1.0" || m["width"] != 640.0 || m["height"] != 360.0 || m["thumbnail_url"] != v.share+"/thumbnail.jpg" {
		t.Errorf("oEmbed returned %v, want a video of 640 by 360 pixels with its thumbnail", m)
	}
	if frame := m["html"].(string); !strings.Contains(frame, `src="`+w.base+`/embed/`+v.slug+`"`) || strings.Contains(frame, "<title>") {
		t.Errorf("the embed code is %s, want the embed URL and an escaped title", frame)
	}
	embed := w.send(http.MethodGet, "/embed/"+v.slug, "").want(200)
	if !strings.Contains(embed.body, "<main>") || !strings.Contains(embed.body, "<h1") {
		t.Error("the embed page does not have a main or h1 element, want both")
	}
	if csp := embed.header.Get("Content-Security-Policy"); !strings.HasSuffix(csp, "frame-ancestors *") || embed.header.Get("X-Frame-Options") != "" {
		t.Errorf("the embed page has the Content-Security-Policy %q, want frame-ancestors * and no X-Frame-Options", csp)
	}
	for query, status := range map[string]int{
		"": 404, "url=x": 404, "url=" + url.QueryEscape("https://evil.example/v/"+v.slug): 404, "url=" + url.QueryEscape(w.base+"/v/zzzzzzz"): 404,
		"url=" + url.QueryEscape(v.share) + "&format=xml": 501, "url=" + url.QueryEscape(v.share) + "&maxwidth=-1": 400,
	} {
		ask(query).want(status)
	}
}

func TestHostileTextStaysText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, s := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'-alert(1)-'`, `</title><svg onload=alert(1)>`, `javascript:alert(1)`,
		"{{.}}", `</textarea><script>alert(1)</script>`, "\u2028\u2029\u202e", `--><script>alert(1)</script>`, "`${alert(1)}`", `" autofocus onfocus=alert(1) x="`,
	} {
		v := w.ready(`{}`)
		text, err := json.Marshal(map[string]string{"title": s, "description": s})
		must(t, err)
		w.api(http.MethodPatch, "/"+v.id, string(text)).want(200)
		if got := w.get(v.id); got["title"] != s || got["description"] != s {
			t.Errorf("the text %q was returned as %q, want it unchanged", s, got["title"])
		}
		for _, path := range []string{v.path, "/embed/" + v.slug} {
			body := w.send(http.MethodGet, path, "").want(200).body
			if n := strings.Count(body, "<script"); n != 1 || strings.Contains(body, "<img") || regexp.MustCompile(`<[^>]*\son\w+=[^>]*>`).MatchString(stripAttributes(body)) {
				t.Errorf("the text %q is not escaped on %s:\n%s", s, path, body)
			}
		}
	}
}

// stripAttributes removes quoted attribute values because they may contain any text.
func stripAttributes(page string) string {
	return regexp.MustCompile(`="[^"]*"`).ReplaceAllString(page, `=""`)
}

func TestUnlistedPagesAreNotIndexed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"privacy":"unlisted","title":"Quiet"}`)
	page := w.send(http.MethodGet, v.path, "").want(200)
	if !strings.Contains(page.body, `content="noindex, nofollow"`) || page.header.Get("X-Robots-Tag") != "noindex, nofollow" || !strings.Contains(page.body, `og:title`) {
		t.Errorf("the unlisted page has header %v, want noindex and a preview", page.header)
	}
}

func TestErrorsOfPagesArePages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	page := w.send(http.MethodGet, "/v/unknown", "").want(404)
	if !strings.Contains(page.body, "Nothing here") || page.header.Get("Content-Security-Policy") == "" {
		t.Errorf("want a page about a missing video with a Content-Security-Policy, got:\n%s", page.body)
	}
	if a := w.send(http.MethodGet, "/v/unknown/session", "").want(404); a.code() != "VIDEO_NOT_FOUND" {
		t.Error(a.body)
	}
	if diff := cmp.Diff("text/html; charset=utf-8", page.header.Get("Content-Type")); diff != "" {
		t.Error(diff)
	}
}
