package web

import (
	"regexp"
	"slices"
	"strings"
	"testing"

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

// Every sentence that a page names is there, and none is left over.
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
		if !slices.Contains(text.Keys(), "role."+role+".about") {
			t.Errorf("no text on the role %s", role)
		}
	}
}

func TestFormTokensAreTiedToTheirCookie(t *testing.T) {
	t.Parallel()
	if csrfOf("one") == csrfOf("two") || strings.Contains(csrfOf("one"), "one") {
		t.Error("form tokens do not depend on the cookie, or show it")
	}
}
