package web

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

func TestSafeNext(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"/app/links", "/app/links?q=a%20b&archived=all", "/app/links/lnk_1", "/app"} {
		if got := safeNext(next); got != next {
			t.Errorf("safeNext(%q) = %q", next, got)
		}
	}
	for _, next := range []string{
		"", "/", "//evil.example", "https://evil.example/app", "/\\evil.example", "/app\\..\\x", "javascript:alert(1)", "/application", "/app//evil.example",
		"/app/../v/x", "/app/\tx", "/app/\nx", "/app/ x", "//evil.example/app", "https:/app", "app", "/app/sign-in?next=/app", "/app/" + strings.Repeat("x", 3000), "\x00/app",
	} {
		if got := safeNext(next); got != "/app" {
			t.Errorf("safeNext(%q) = %q, want /app", next, got)
		}
	}
}

// Every text that a page uses exists, and no text is unused.
func TestTextsAreThere(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	read := func(source string) {
		for _, m := range regexp.MustCompile(`(?:\bt |text\.Get\(|text\.Has\()"([a-z_./-]+)"`).FindAllStringSubmatch(source, -1) {
			used[m[1]] = true
		}
	}
	files, err := templateFiles.ReadDir("templates")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		content, err := templateFiles.ReadFile("templates/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		read(string(content))
	}
	for key := range used {
		if !text.Has(key) && !strings.HasSuffix(key, ".") {
			t.Errorf("no text %q", key)
		}
	}
	for _, row := range New(Config{}).table() {
		if row.icon != "" && !text.Has("nav."+row.path) {
			t.Errorf("no text for the navigation of %s", row.path)
		}
	}
	for _, role := range []string{"viewer", "member", "admin", "owner"} {
		if !text.Has("role." + role + ".about") {
			t.Errorf("no text on the role %s", role)
		}
	}
}

func TestFormTokensAreTiedToTheirCookie(t *testing.T) {
	t.Parallel()
	if csrfOf("one") == csrfOf("two") || strings.Contains(csrfOf("one"), "one") {
		t.Error("form tokens do not depend on the cookie, or reveal it")
	}
}

// On https, cookies have a prefix. Browsers reject a cookie with this prefix if another
// host of the site sets it, or if it arrives over http.
func TestCookiesOfAnHTTPSBase(t *testing.T) {
	t.Parallel()
	base, err := url.Parse("https://go.example.com")
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{Base: base, Auth: nobody{}})
	app := httpapi.New(httpapi.Options{Name: "console", Page: p.ErrorPage})
	p.Routes(app)
	var c fasthttp.RequestCtx
	c.Request.SetRequestURI("/app/sign-in")
	app.Handler()(&c)
	var set []string
	for _, v := range c.Response.Header.Cookies() {
		set = append(set, string(v))
	}
	if len(set) != 1 || !strings.HasPrefix(set[0], "__Host-linkreel_pre=") || !strings.Contains(set[0], "; Secure") || !strings.Contains(set[0], "HttpOnly") ||
		!strings.Contains(set[0], "Path=/;") || strings.Contains(set[0], "Domain") {
		t.Errorf("cookies %q", set)
	}
}

// nobody answers the calls that the sign-in page makes to auth.
type nobody struct{}

func (nobody) Call(context.Context, string, any, any) error { return nil }

// counting answers like nobody and counts the calls.
type counting struct {
	mu    sync.Mutex
	asked int
}

func (c *counting) Call(context.Context, string, any, any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return nil
}

// Everybody may open the sign-in page, so opening it must not cost auth a call each time.
func TestTheSignInPageAsksAuthOnceAMinute(t *testing.T) {
	t.Parallel()
	base, err := url.Parse("https://go.example.com")
	if err != nil {
		t.Fatal(err)
	}
	auth, now := &counting{}, time.Now()
	p := New(Config{Base: base, Auth: auth, Now: func() time.Time { return now }})
	app := httpapi.New(httpapi.Options{Name: "console", Page: p.ErrorPage})
	p.Routes(app)
	open := func() {
		t.Helper()
		var c fasthttp.RequestCtx
		c.Request.SetRequestURI("/app/sign-in")
		if app.Handler()(&c); c.Response.StatusCode() != 200 {
			t.Fatalf("answered %d", c.Response.StatusCode())
		}
	}
	for minute := range 3 {
		for range 50 {
			open()
		}
		if auth.asked != minute+1 {
			t.Errorf("in minute %d auth was asked %d times", minute+1, auth.asked)
		}
		now = now.Add(waysLife)
	}
}
