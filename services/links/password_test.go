package links_test

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links"
)

// give submits a password through the form on a link's page.
func (r *replica) give(path, password string, header ...string) answer {
	r.t.Helper()
	return r.do("redirect", "POST", shortBase+path, url.Values{"password": {password}}.Encode(),
		append([]string{"User-Agent", windows, "Content-Type", "application/x-www-form-urlencoded"}, header...)...)
}

func TestALinkWithAPassword(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	behind := func(cfg *links.Config) { cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/32")} }
	a, b := c.replica(t, behind), c.replica(t, behind)
	const secret = "Correct horse ü"
	made := a.create(key, map[string]any{
		"url": "https://example.com/hidden?own=1", "slug": "locked", "password": secret, "forwardQuery": true, "forwardPath": true,
		"title": "Secret title", "ogTitle": "Secret og",
	})
	path := "/api/v1/links/" + made.str("id")
	shown := a.api(key, "GET", path, nil)
	if shown.json["hasPassword"] != true || shown.json["password"] != nil || strings.Contains(shown.text, "argon2") {
		t.Errorf("link = %v, want hasPassword and no password", shown)
	}
	for name, header := range map[string][]string{"visitor": nil, "crawler": {"User-Agent", "Twitterbot/1.0"}, "JSON": {"Accept", "application/json"}} {
		for _, at := range []string{"/locked", "/locked+", "/locked/a/b?x=1"} {
			got := b.visit(at, header...)
			if got.status != 200 || !strings.Contains(got.text, `name="password"`) || strings.Contains(strings.ToLower(got.text), "secret") || strings.Contains(got.text, "example.com") {
				t.Errorf("request for %[2]s as %[1]s: %[3]v, want 200, a password form and no link data", name, at, got)
			}
			if got.header.Get("Referrer-Policy") != "no-referrer" || !strings.Contains(got.header.Get("Cache-Control"), "no-store") || !strings.Contains(got.header.Get("X-Robots-Tag"), "noindex") {
				t.Errorf("request for %[2]s as %[1]s: headers = %[3]v, want no-referrer, no-store, noindex", name, at, got.header)
			}
		}
	}
	if got := b.do("redirect", "HEAD", shortBase+"/locked", nil); got.status != 200 {
		t.Errorf("HEAD: %v, want 200", got)
	}
	from := func(i int) []string { return []string{"X-Forwarded-For", fmt.Sprintf("198.51.%d.7", i)} }
	if got := b.give("/locked", "wrong", from(1)...); got.status != 403 || !strings.Contains(got.text, "not the password") || !strings.Contains(got.text, `name="password"`) {
		t.Errorf("wrong password: %v, want 403 and the form", got)
	}
	if got := b.give("/locked/a?x=1&own=2", secret, from(2)...); got.status != 303 || got.header.Get("Location") != "https://example.com/hidden/a?own=1&x=1" || got.header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("correct password: %v %v, want 303 with the path and query forwarded", got, got.header)
	}
	if got := b.give("/locked", secret, append(from(3), "Sec-Fetch-Site", "cross-site")...); got.status != 403 {
		t.Errorf("correct password from another site: %v, want 403", got)
	}
	if got := b.give("/locked", secret, append(from(3), "Origin", "https://evil.example")...); got.status != 403 {
		t.Errorf("correct password from another origin: %v, want 403", got)
	}
	if got := b.give("/locked", secret, append(from(3), "Origin", "null", "Sec-Fetch-Site", "same-origin")...); got.status != 303 {
		t.Errorf("correct password from the page itself: %v, want 303", got)
	}
	want(t, "wrong content type", b.do("redirect", "POST", shortBase+"/locked", "password=x", append(from(4), "Accept", "application/json", "Content-Type", "text/plain")...), 415, "UNSUPPORTED_MEDIA_TYPE")
	eventually(t, "two clicks are counted", func() bool { return a.api(key, "GET", path, nil).json["clicks"] == 2.0 })

	// After too many wrong guesses, a network must wait even if it has the correct password. Other
	// networks are not affected.
	limited := 0
	for i := range 20 {
		if got := b.give("/locked", fmt.Sprint("guess", i), from(5)...); got.status == 429 {
			limited++
			if got.header.Get("Retry-After") == "" || !strings.Contains(got.text, "Too many attempts") {
				t.Fatalf("guess over the budget: %v, want Retry-After and an explanation", got)
			}
		}
	}
	if limited < 10 {
		t.Errorf("20 consecutive guesses: got %d rejected, want at least 10", limited)
	}
	if got := b.give("/locked", secret, from(6)...); got.status != 303 {
		t.Errorf("correct password from another network: %v, want 303", got)
	}
	if got := a.api(key, "GET", "/api/v1/links/"+made.str("id")+"/explain", nil); got.json["status"] != 303.0 || !strings.Contains(got.str("why"), "password") {
		t.Errorf("explain: %v, want 303 because of the password", got)
	}

	// Keep, change and remove the password.
	if got := a.api(key, "PATCH", path, map[string]any{"title": "x"}); got.status != 200 || b.visit("/locked").status != 200 {
		t.Errorf("edit another field: %v, want 200 and the password kept", got)
	}
	if got := a.api(key, "PATCH", path, map[string]any{"password": "another"}); got.status != 200 {
		t.Fatal(got)
	}
	if old, now := b.give("/locked", secret, from(7)...), b.give("/locked", "another", from(8)...); old.status != 403 || now.status != 303 {
		t.Errorf("after the change: old password %d, new password %d; want 403, 303", old.status, now.status)
	}
	if got := a.api(key, "PATCH", path, map[string]any{"password": nil}); got.status != 200 || b.visit("/locked").status != 302 {
		t.Errorf("remove the password: %v, want 200 and a redirect", got)
	}
	want(t, "POST to a link without a password", b.give("/locked", secret, append(from(9), "Accept", "application/json")...), 405, "METHOD_NOT_ALLOWED")
	want(t, "POST to an unknown slug", b.give("/nothing", secret, append(from(9), "Accept", "application/json")...), 405, "METHOD_NOT_ALLOWED")
	want(t, "POST to the home page", b.give("/", secret, append(from(9), "Accept", "application/json")...), 405, "METHOD_NOT_ALLOWED")
}

func TestPasswordsThatAreRefused(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	a := c.replica(t)
	create := func(body map[string]any) answer {
		body["url"] = "https://example.com/"
		return a.api(key, "POST", "/api/v1/links", body)
	}
	for name, body := range map[string]map[string]any{
		"empty": {"password": ""}, "too long": {"password": strings.Repeat("x", 257)}, "number": {"password": 5},
		"hasPassword without a password": {"hasPassword": true}, "with redirectType 301": {"password": "x", "redirectType": 301},
	} {
		want(t, name, create(body), 400, "VALIDATION_ERROR")
	}
	both := create(map[string]any{"password": "x", "redirectType": 308}).fields()
	if both["password"] != "not_allowed" || both["redirectType"] != "not_allowed" {
		t.Errorf("create with password and redirectType: %v, want both not_allowed", both)
	}
	made := a.create(key, map[string]any{"url": "https://example.com/", "password": "x"})
	path := "/api/v1/links/" + made.str("id")
	if got := a.api(key, "PATCH", path, map[string]any{"redirectType": 301}).fields(); got["redirectType"] != "not_allowed" || len(got) != 1 {
		t.Errorf("PATCH redirectType: %v, want only redirectType not_allowed", got)
	}
	if got := a.api(key, "PATCH", path, map[string]any{"redirectType": 301, "password": nil}); got.status != 200 {
		t.Errorf("PATCH that replaces the password with redirectType: %v, want 200", got)
	}
	want(t, "another account's link", a.api(c.keys.Key(t, "acc_b", identity.Creator), "PATCH", path, map[string]any{"password": "y"}), 404, "LINK_NOT_FOUND")
	bulk := a.api(key, "POST", "/api/v1/links/bulk", map[string]any{"urls": []any{
		map[string]any{"url": "https://example.com/", "slug": "bulk", "password": "z"}, map[string]any{"url": "https://example.com/", "hasPassword": true},
	}})
	if results, _ := bulk.json["results"].([]any); bulk.status != 207 || len(results) != 2 || a.visit("/bulk").status != 200 || a.give("/bulk", "z").status != 303 {
		t.Errorf("bulk create: %v, want 207 and one link with a password", bulk)
	}
	// The correct password does not bypass other checks. This link has not started yet.
	if got := a.api(key, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/", "slug": "later", "password": "z", "startsAt": c.now().Add(time.Hour).UnixMilli()}); got.status != 201 {
		t.Fatal(got)
	}
	want(t, "correct password before the start", a.give("/later", "z", "Accept", "application/json"), 404, "NOT_FOUND")
}

func TestANewPasswordFitsAtOnceAtEveryReplica(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	a, b := c.replica(t), c.replica(t)
	made := a.create(key, map[string]any{"url": "https://example.com/hidden", "slug": "locked"})
	if got := b.visit("/locked"); got.status != 302 {
		t.Fatalf("visit before the password is set: %v, want 302", got)
	}
	for _, secret := range []string{"the first one", "the second one", "the third one", "the fourth one"} {
		if got := a.api(key, "PATCH", "/api/v1/links/"+made.str("id"), map[string]any{"password": secret}); got.status != 200 {
			t.Fatalf("PATCH: %v, want 200", got)
		}
		if got := b.give("/locked", secret); got.status != 303 {
			t.Errorf("new password %q sent to another replica: %v, want 303", secret, got)
		}
	}
}
