package e2e

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// plainBrowser is a browser without scripts. A page that works without scripts works in every
// browser.
type plainBrowser struct {
	t    testing.TB
	http *http.Client
}

func newPlainBrowser(t testing.TB) *plainBrowser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	check(t, err)
	return &plainBrowser{t, &http.Client{Jar: jar}}
}

// session returns the signed-in person's session key, or "".
func (b *plainBrowser) session() string {
	b.t.Helper()
	base, err := url.Parse(stack.BaseURL)
	check(b.t, err)
	for _, c := range b.http.Jar.Cookies(base) {
		if c.Name == "linkreel_session" {
			return c.Value
		}
	}
	return ""
}

type page struct {
	status int
	url    *url.URL
	html   string
	header http.Header
}

func (b *plainBrowser) do(req *http.Request) page {
	b.t.Helper()
	resp, err := b.http.Do(req)
	check(b.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	check(b.t, err)
	return page{resp.StatusCode, resp.Request.URL, string(text), resp.Header}
}

func (b *plainBrowser) get(address string) page {
	b.t.Helper()
	if strings.HasPrefix(address, "/") {
		address = stack.BaseURL + address
	}
	req, err := http.NewRequestWithContext(b.t.Context(), "GET", address, nil)
	check(b.t, err)
	return b.do(req)
}

// csrf returns the CSRF token in the page's forms.
func (p page) csrf() string {
	if m := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(p.html); m != nil {
		return m[1]
	}
	return ""
}

func (b *plainBrowser) post(path string, form url.Values, headers ...string) page {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), "POST", stack.BaseURL+path, strings.NewReader(form.Encode()))
	check(b.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return b.do(req)
}

func signedIn(t testing.TB) (*plainBrowser, page) {
	t.Helper()
	link, err := stack.SignInLink(t.Context())
	check(t, err)
	b := newPlainBrowser(t)
	opened := b.get(link)
	for range 2 { // twice, because a preview bot may have opened it before the person does
		newPlainBrowser(t).get(link)
	}
	u, err := url.Parse(link)
	check(t, err)
	home := b.post("/app/sign-in", url.Values{"csrf": {opened.csrf()}, "link": {u.Query().Get("link")}})
	if home.status != 200 || home.url.Path != "/app" {
		t.Fatalf("after signing in, the status is %d at %s, want 200 at /app\n%s", home.status, home.url, home.html)
	}
	if again := newPlainBrowser(t).get(link); again.status != 404 || !strings.Contains(again.html, "no longer works") {
		t.Errorf("using the link a second time returned %d, want 404 and a message that the link no longer works", again.status)
	}
	return b, home
}

// The test uses every page in the console without JavaScript. It starts with a printed sign-in
// link.
func TestConsoleWithoutScripts(t *testing.T) {
	b, home := signedIn(t)
	for _, needed := range []string{`<label for="url">Destination</label>`, ">Shorten</button>"} {
		if !strings.Contains(home.html, needed) {
			t.Errorf("the home page does not contain %s", needed)
		}
	}
	made := b.post("/app/links", url.Values{"csrf": {home.csrf()}, "url": {"https://go.dev/doc/"}})
	short := regexp.MustCompile(regexp.QuoteMeta(stack.ShortBaseURL) + `/[0-9a-z]+`).FindString(made.html)
	if made.status != 200 || short == "" || !strings.Contains(made.html, "<span>Copy</span>") {
		t.Fatalf("creating a link returned %d, want 200 with a short URL: %s", made.status, made.html)
	}
	follow, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Get(short)
	check(t, err)
	_ = follow.Body.Close()
	if follow.Header.Get("Location") != "https://go.dev/doc/" {
		t.Errorf("%s redirects to %s, want https://go.dev/doc/", short, follow.Header.Get("Location"))
	}
	bad := b.post("/app/links", url.Values{"csrf": {home.csrf()}, "url": {"ftp://x"}, "slug": {"<b>bad"}})
	if bad.status != 400 || !strings.Contains(bad.html, `value="&lt;b&gt;bad"`) || !strings.Contains(bad.html, `id="url-error"`) {
		t.Errorf("an invalid form returned %d, want 400 with the typed text and an error: %s", bad.status, bad.html)
	}
	for _, path := range []string{"/app", "/app/links", "/app/links?archived=all&q=go", "/app/keys", "/app/members", "/app/settings", "/app/device"} {
		p := b.get(path)
		if p.status != 200 || strings.Count(p.html, "<h1>") != 1 || strings.Contains(p.header.Get("Content-Security-Policy"), "unsafe") || p.header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s returned %d, want 200, one heading and strict headers; the policy is %s", path, p.status, p.header.Get("Content-Security-Policy"))
		}
		if m := regexp.MustCompile(`\[[a-z]+\.[a-z_./-]+\]|ZgotmplZ`).FindString(p.html); m != "" {
			t.Errorf("%s shows the unresolved text %s", path, m)
		}
	}
}

func TestConsoleRefusesForeignForms(t *testing.T) {
	b, home := signedIn(t)
	form := func(csrf string) url.Values { return url.Values{"csrf": {csrf}, "url": {"https://example.com/"}} }
	other, otherHome := signedIn(t)
	for name, p := range map[string]page{
		"a form without a token":                 b.post("/app/links", form("")),
		"another session's token":                b.post("/app/links", form(otherHome.csrf())),
		"a request from another site":            b.post("/app/links", form(home.csrf()), "Sec-Fetch-Site", "cross-site"),
		"a request from a subdomain":             b.post("/app/links", form(home.csrf()), "Sec-Fetch-Site", "same-site"),
		"an older browser with a foreign Origin": b.post("/app/links", form(home.csrf()), "Origin", "https://evil.example"),
		"a sign-in without a page":               newPlainBrowser(t).post("/app/sign-in", url.Values{"link": {"lr_link_x"}}),
	} {
		if p.status != 403 {
			t.Errorf("%s: status %d, want 403", name, p.status)
		}
	}
	if p := b.post("/app/links", form(home.csrf()), "Sec-Fetch-Site", "same-origin"); p.status != 200 {
		t.Errorf("a form from the console's own page: status %d, want 200", p.status)
	}
	out := other.post("/app/sign-out", url.Values{"csrf": {otherHome.csrf()}})
	if out.url.Path != "/app/sign-in" || !strings.Contains(out.html, "You are signed out.") {
		t.Errorf("signing out opened %s, want the sign-in page with a confirmation", out.url)
	}
	if p := other.get("/app/links?q=a"); p.url.Path != "/app/sign-in" || p.url.Query().Get("next") != "/app/links?q=a" {
		t.Errorf("after signing out, /app/links opens %s, want the sign-in page with that URL as next", p.url)
	}
	if p := other.get("/app/sign-in?next=//evil.example"); strings.Contains(p.html, "evil.example") {
		t.Error("the sign-in page accepts a URL on another site as the next page")
	}
}
