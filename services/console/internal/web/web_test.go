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
			t.Errorf("safeNext(%q) = %q, want the same path", next, got)
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

// Every text that a page uses must exist.
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
			t.Errorf("text %q does not exist", key)
		}
	}
	for _, row := range New(Config{}).table() {
		if row.icon != "" && !text.Has("nav."+row.path) {
			t.Errorf("the navigation has no text for %s", row.path)
		}
	}
	for _, role := range []string{"viewer", "member", "admin", "owner"} {
		if !text.Has("role." + role + ".about") {
			t.Errorf("role %s has no text", role)
		}
	}
}

func TestFormTokensAreTiedToTheirCookie(t *testing.T) {
	t.Parallel()
	if csrfOf("one") == csrfOf("two") || strings.Contains(csrfOf("one"), "one") {
		t.Error("form tokens are the same for different cookies or contain the cookie")
	}
}

// On https, cookies have a prefix. Browsers reject a cookie with this prefix if another host on the
// site sets it or if it is set over http.
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
		t.Errorf("got the cookies %q, want the prefix, Secure and Path=/, but no domain", set)
	}
}

// nobody is an Auth for the sign-in page without a signed-in person.
type nobody struct{}

func (nobody) Call(context.Context, string, any, any) error { return nil }

// counting is like nobody, but counts the calls.
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

// The sign-in page is public, so it must not call auth for each request.
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
			t.Fatalf("the sign-in page returned %d, want 200", c.Response.StatusCode())
		}
	}
	for minute := range 3 {
		for range 50 {
			open()
		}
		if auth.asked != minute+1 {
			t.Errorf("by minute %d, auth had received %d calls, want one per minute", minute+1, auth.asked)
		}
		now = now.Add(waysLife)
	}
}
