package e2e

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-rod/rod/lib/proto"
)

// axe is axe-core 4.10.3 as published on npm, under the MPL 2.0. Only tests load it.
//
//go:embed testdata/axe.min.js
var axe string

// htmlValidate is html-validate 10.17.0 as published on npm, under the MIT license,
// bundled into one file with its recommended rules. Only tests load it.
//
//go:embed testdata/html-validate.min.js
var htmlValidate string

// nasty is hostile text that a user could type into any field.
const nasty = `"'><img src=x onerror=alert(1)><script>alert(2)</script></textarea>{{.}}`

// furnished fills the stack's account so that every page has content. Most of the content is
// hostile. It returns the URL of each kind of page.
var furnished = sync.OnceValue(func() map[string]string {
	t := seedT{}
	c := as(t, plan)
	link := c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/spring?sale=1", "title": nasty, "tags": []string{"spring", `<b onclick=alert(1)>`}, "ogTitle": nasty, "ogDescription": nasty}).str("id")
	c.want(200, "PATCH", "/api/v1/links/"+link, map[string]any{
		"forwardQuery": true, "rules": []map[string]any{
			{"name": "Phones", "url": "https://m.example.com/", "when": map[string]any{"device": []string{"phone"}, "language": []string{"de"}}},
			{"name": nasty, "url": "https://example.com/half", "when": map[string]any{"percent": 50, "query": map[string]string{nasty: "*"}, "from": "2026-01-01T00:00:00Z"}},
		},
	})
	c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/later", "title": "Not yet", "startsAt": time.Now().Add(time.Hour).UnixMilli()})
	for i, title := range []string{"Spring newsletter", "Handbook for new colleagues", "Workshop slides"} {
		c.want(201, "POST", "/api/v1/links", map[string]any{"url": fmt.Sprintf("https://www.example.com/pages/%d", i), "title": title, "tags": []string{"team", "2026"}})
	}
	short := c.want(200, "GET", "/api/v1/links/"+link, nil).str("shortUrl")
	for range 5 {
		visit(t, short, "User-Agent", "Mozilla/5.0 (Windows NT 10.0) Chrome/120", "Referer", "https://news.example/")
	}
	made := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": nasty, "tags": []string{nasty[:20]}})
	put(t, made.str("uploadUrl"), clip(t, 6, "640x360"), "video/mp4")
	id := made.str("videoId")
	c.want(200, "PATCH", "/api/v1/videos/"+id, map[string]any{"description": nasty})
	c.want(201, "POST", "/api/v1/domains", map[string]any{"hostname": "go.quality.example.com"})
	hook := c.want(201, "POST", "/api/v1/webhooks", map[string]any{"url": "http://127.0.0.1:19999/hook", "events": []string{"*"}, "description": nasty}).str("id")
	c.do("POST", "/api/v1/webhooks/"+hook+"/test", nil)
	c.do("POST", "/api/v1/keys", map[string]any{"name": nasty[:60], "scopes": []string{"links:read"}})
	eventually(t, patience, "the video is ready", func() bool { return c.want(200, "GET", "/api/v1/videos/"+id, nil).str("status") == "ready" })
	return map[string]string{"link": "/app/links/" + link, "video": "/app/videos/" + id, "webhook": "/app/webhooks/" + hook, "share": strings.TrimPrefix(made.str("shareUrl"), stack.BaseURL), "short": short}
})

// seedT lets several tests share one call to furnished.
type seedT struct{ testing.TB }

func (seedT) Helper()                   {}
func (seedT) Cleanup(func())            {}
func (seedT) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }
func (seedT) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (seedT) Errorf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (seedT) Context() context.Context  { return context.Background() }
func (seedT) TempDir() string {
	dir, err := os.MkdirTemp("", "linkreel-e2e-")
	if err != nil {
		panic(err)
	}
	return dir
}

func consolePages(at map[string]string) []string {
	return []string{
		"/app", "/app/links", at["link"], "/app/videos", at["video"], "/app/record", "/app/members", // these pages are tested in every run
		"/app/upload", "/app/links/import", "/app/domains", "/app/webhooks", at["webhook"], "/app/activity", "/app/keys", "/app/settings", "/app/device", "/app/links?q=nothing-like-it", "/app/nowhere",
		at["link"] + "?try=1&try-device=phone&try-language=de&try-country=ZZZ", at["link"] + "?try=1&try-device=phone&try-language=de",
	}
}

// The test loads every page in both schemes, on a phone and on a desktop. Axe must not find any
// problems, elements must not be wider than the screen, and the layout must not shift. Scripts may
// total at most 60 kB. Pages must not violate the policy, and injected scripts must not run.
func TestConsolePagesAreGood(t *testing.T) {
	at := furnished()
	looks := []look{{width: 320, height: 700, dark: true}, {width: 1280, height: 860}}
	pages := consolePages(at)
	if full(t) {
		looks = append(looks, look{width: 320, height: 700}, look{width: 1280, height: 860, dark: true})
	} else {
		pages = pages[:7]
	}
	for _, l := range looks {
		v := person(t, l)
		for _, path := range pages {
			v.good(path, l)
		}
		v.clean("404", "networkError") // leaving a page with a player aborts its requests
	}
}

// The test applies the same checks to the public pages. With LINKREEL_FULL, it tests every page in
// both schemes and on both screens. By default it tests each of the long documents in one of these
// combinations.
func TestPublicPagesAreGood(t *testing.T) {
	at := furnished()
	pages := []string{"/app/sign-in", at["share"], strings.Replace(at["share"], "/v/", "/embed/", 1), at["short"] + "+", stack.ShortBaseURL + "/nothing-here", "/v/nothinghere"}
	documents := []string{"/docs", "/docs/guides/api", "/docs/try"} // TestDocsPageMakesACall covers /docs/try in every run
	looks := []look{{width: 320, height: 700, dark: true}, {width: 1280, height: 860}}
	if full(t) {
		looks = append(looks, look{width: 320, height: 700}, look{width: 1280, height: 860, dark: true})
	}
	for n, l := range looks {
		v := visitor(t, l)
		of := documents
		if !full(t) {
			of = documents[n : n+1]
		}
		for _, path := range slices.Concat(pages, of) {
			v.good(path, l)
		}
		v.clean("404", "networkError") // leaving a page with a player aborts its requests
	}
}

// html-validate must not find any errors in the pages as the server sends them, including pages
// with form errors.
func TestPagesAreValidHTML(t *testing.T) {
	at := furnished()
	v := visitor(t, look{})
	eval[any](v, `async (code) => {
	  const { validate } = await import("data:text/javascript;charset=utf-8;base64," + code);
	  window.find = (html) => validate(html).results.flatMap((r) => r.messages).map((m) => m.line + ":" + m.column + " " + m.ruleId + ": " + m.message);
	  return null;
	}`, base64.StdEncoding.EncodeToString([]byte(htmlValidate)))
	valid := func(name string, p page) {
		t.Helper()
		if !strings.HasPrefix(p.html, "<!") {
			t.Errorf("%s did not return an HTML page: %d %.100s", name, p.status, p.html)
		}
		if found := eval[[]string](v, `(html) => find(html)`, p.html); len(found) > 0 {
			t.Errorf("%s (%d):\n  %s", name, p.status, strings.Join(found, "\n  "))
		}
	}
	if got := eval[[]string](v, `(html) => find(html)`, "<!DOCTYPE html><p><div></div></p>"); len(got) == 0 {
		t.Fatal("html-validate found no errors in an invalid page")
	}
	b, home := signedIn(t)
	for _, path := range consolePages(at) {
		valid(path, b.get(path))
	}
	for path, form := range map[string]url.Values{
		"/app/links":               {"url": {"ftp://x"}, "slug": {nasty}},
		at["link"] + "/edit":       {"url": {"ftp://x"}, "ogImage": {nasty}, "expiresAt": {"2001-01-01T00:00"}},
		at["link"] + "/edit#rules": {"url": {"ftp://x"}, "ruleCount": {"2"}, "rules.0.when.country": {"ZZZ"}, "rules.1.when.percent": {"0"}, "maxClicks": {nasty}, "startsAt": {"never"}},
		"/app/links#rules":         {"ruleButton": {"add"}, "ruleCount": {"19"}},
		"/app/links/import":        {"csv": {"url,title,tags,password,hasPassword,rules\nftp://x,\"a\nb\",t,,true,[]\nhttps://x," + strings.ReplaceAll(nasty, `"`, "") + ",t,$1$x,,\n"}},
		at["video"] + "/access":    {"privacy": {"password"}},
		at["video"] + "/captions":  {"lang": {nasty}},
		at["video"] + "/thumbnail": {"time": {"-1"}},
		"/app/domains":             {"hostname": {nasty}},
		"/app/webhooks":            {"url": {nasty}},
		"/app/keys":                {"name": {nasty}, "scopes": {"links:read"}},
		"/app/members/invite":      {"role": {"member"}, "name": {nasty}},
	} {
		form.Set("csrf", home.csrf())
		valid("a form to "+path, b.post(path, form))
	}
	c := as(t, plan)
	locked := c.want(201, "POST", "/api/v1/videos", map[string]any{"privacy": "password", "password": "x"}).str("shareUrl")
	waiting := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": nasty}).str("shareUrl")
	expired := c.want(201, "POST", "/api/v1/videos", map[string]any{"privacy": "expiring", "expiresAt": time.Now().Add(time.Second).UnixMilli()}).str("shareUrl")
	eventually(t, patience, "an expired video", func() bool { return visit(t, expired).status == http.StatusGone })
	for _, path := range []string{
		"/", "/app/sign-in", "/app/sign-in?why=ended", "/app/sign-in?link=lr_link_x", at["share"], strings.Replace(at["share"], "/v/", "/embed/", 1), "/v/nothinghere",
		at["short"] + "+", stack.ShortBaseURL + "/nothing-here", locked, waiting, expired,
		"/docs", "/docs/try", "/docs/guides/api", "/docs/guides/cli", "/docs/guides/errors", "/docs/guides/guides", "/docs/guides/mcp", "/docs/guides/webhooks", "/docs/guides/sign-in", "/docs/guides/versioning",
	} {
		valid(path, newPlainBrowser(t).get(path))
	}
	v.clean()
}

func (v *viewer) good(path string, l look) {
	t := v.t
	t.Helper()
	address := path
	if strings.HasPrefix(path, "/") {
		address = stack.BaseURL + path
	}
	v.open(address)
	page := v.Timeout(patience)
	page.MustWaitLoad()
	name := fmt.Sprintf("%s at %d px, dark %v", path, l.width, l.dark)
	if dir := os.Getenv("LINKREEL_SHOTS"); dir != "" {
		scheme := map[bool]string{true: "dark", false: "light"}[l.dark]
		file := strings.NewReplacer("/", "_", ":", "_", "?", "_").Replace(strings.TrimPrefix(strings.TrimPrefix(path, stack.ShortBaseURL), "/"))
		picture, err := page.Screenshot(true, &proto.PageCaptureScreenshot{Format: proto.PageCaptureScreenshotFormatPng})
		check(t, err)
		check(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", file, l.width, scheme)), picture, 0o600))
		check(t, os.WriteFile(filepath.Join(dir, file+".html"), []byte(v.source(address)), 0o600))
	}
	var found struct {
		Wide, Scripts int
	}
	result := page.MustEval(`() => JSON.stringify({
	  Wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
	  Scripts: performance.getEntriesByType("resource").filter((r) => r.initiatorType === "script").reduce((sum, r) => sum + r.decodedBodySize, 0),
	})`).Str()
	check(t, json.Unmarshal([]byte(result), &found))
	v.accessible(name)
	if found.Wide > 0 {
		t.Errorf("%s is %d px wider than the screen", name, found.Wide)
	}
	if found.Scripts > 60_000 && strings.HasPrefix(path, "/app") && path != "/app/record" {
		t.Errorf("%s loads %d bytes of script, want at most 60,000", name, found.Scripts)
	}
	// If the machine stalls, a page arrives and is drawn in pieces, and its layout may shift once.
	// A page with a real layout shift shifts every time it loads.
	if by, what := v.shift(); by > 0.005 {
		t.Logf("%s shifts by %v, loading it again:\n  %s", name, by, what)
		check(t, proto.NetworkSetCacheDisabled{CacheDisabled: true}.Call(v.Page))
		v.open(address)
		check(t, proto.NetworkSetCacheDisabled{CacheDisabled: false}.Call(v.Page))
		v.Timeout(patience).MustWaitLoad()
		if by, what = v.shift(); by > 0.005 {
			t.Errorf("%s shifts by %v after a reload, want at most 0.005:\n  %s", name, by, what)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dialogs > 0 {
		t.Errorf("%s: an injected script ran", name)
	}
}

// accessible fails the test if axe finds a problem in the current state of the page.
func (v *viewer) accessible(name string) {
	v.t.Helper()
	_, err := v.Timeout(patience).Eval("() => {" + axe + "}")
	check(v.t, err)
	found := eval[[]string](v, `async () => {
	  const run = await axe.run(document, { resultTypes: ["violations"] });
	  return run.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.target.join(" ") + " " + n.html.slice(0, 120) + " " + (n.any[0]?.message ?? "")));
	}`)
	if len(found) > 0 {
		v.t.Errorf("%s: axe found problems:\n  %s", name, strings.Join(found, "\n  "))
	}
}

// shift returns the page's Cumulative Layout Shift since it was drawn, and the elements
// that moved.
func (v *viewer) shift() (by float64, what string) {
	v.t.Helper()
	got := v.Timeout(patience).MustEval(`() => new Promise((done) => {
	  const all = { by: 0, what: "" };
	  const at = (r) => r.left + "," + r.top + " " + r.width + "x" + r.height;
	  const o = new PerformanceObserver((list) => list.getEntries().forEach((e) => {
	    all.by += e.value;
	    for (const s of e.sources) all.what += (s.node?.outerHTML ?? s.node?.nodeValue ?? "?").slice(0, 90) + " from " + at(s.previousRect) + " to " + at(s.currentRect) + "\n  ";
	  }));
	  o.observe({ type: "layout-shift", buffered: true });
	  setTimeout(() => done(all), 50);
	})`)
	return got.Get("by").Num(), got.Get("what").Str()
}

// source returns the page as the server sent it.
func (v *viewer) source(address string) string {
	v.t.Helper()
	cookies, err := v.Cookies([]string{address})
	check(v.t, err)
	req, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, address, nil)
	check(v.t, err)
	for _, c := range cookies {
		req.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	return string(send(v.t, http.DefaultClient, req).raw)
}
