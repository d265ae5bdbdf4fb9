package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// operator calls the operator's API.
func operator(t testing.TB) *caller {
	t.Helper()
	c := as(t, plan)
	c.base, c.key = stack.AdminURL, stack.AdminToken
	return c
}

// colleague is a member of an account who uses a browser without scripts.
type colleague struct {
	*plainBrowser
	id, csrf, role string
}

// colleagues creates an account with a signed-in member for each role.
func colleagues(t testing.TB) (account string, all map[string]*colleague) {
	t.Helper()
	account = operator(t).want(201, "POST", "/admin/v1/accounts", map[string]any{"name": "Security", "plan": "business"}).str("id")
	all = map[string]*colleague{}
	for _, role := range []string{"viewer", "member", "admin", "owner"} {
		all[role] = enter(t, newPlainBrowser(t), account, "The "+role, role)
	}
	return account, all
}

// enter signs in a new member with the browser b.
func enter(t testing.TB, b *plainBrowser, account, name, role string) *colleague {
	t.Helper()
	link := operator(t).want(201, "POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"name": name, "role": role})
	u, err := url.Parse(link.str("url"))
	check(t, err)
	home := b.post("/app/sign-in", url.Values{"csrf": {b.get(link.str("url")).csrf()}, "link": {u.Query().Get("link")}})
	if home.url.Path != "/app" {
		t.Fatalf("after signing in, %s is at %s, want /app", name, home.url)
	}
	return &colleague{b, link.str("memberId"), home.csrf(), role}
}

// send posts a form and does not follow redirects. Statuses 303 and 201 mean success, and any
// other status means that the console refused the form.
func (c *colleague) send(path string, form url.Values) page {
	c.t.Helper()
	if form == nil {
		form = url.Values{}
	}
	form.Set("csrf", c.csrf)
	req, err := http.NewRequestWithContext(c.t.Context(), "POST", stack.BaseURL+path, strings.NewReader(form.Encode()))
	check(c.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	still := *c.http
	still.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return (&plainBrowser{c.t, &still}).do(req)
}

// The test checks each cell of the role table through the pages.
func TestRoleTableThroughThePages(t *testing.T) {
	_, all := colleagues(t)
	link := all["owner"].send("/app/links", url.Values{"url": {"https://example.com/"}}).header.Get("Location")
	link = "/app/links/" + link[strings.Index(link, "made=")+5:]
	if all["owner"].get(link).status != 200 {
		t.Fatalf("the owner's GET %s failed, want 200", link)
	}
	rank := map[string]int{"viewer": 0, "member": 1, "admin": 2, "owner": 3}
	for _, cell := range []struct {
		lowest, path string
		form         url.Values // nil for a GET
	}{
		{"viewer", "/app", nil},
		{"viewer", "/app/links", nil},
		{"viewer", link, nil},
		{"viewer", link + "/qr", nil},
		{"viewer", "/app/videos", nil},
		{"viewer", "/app/domains", nil},
		{"viewer", "/app/settings", nil},
		{"member", "/app/links", url.Values{"url": {"https://example.com/x"}}},
		{"member", link + "/edit", url.Values{"url": {"https://example.com/y"}}},
		{"member", link + "/archive", url.Values{"archived": {"false"}}},
		{"member", "/app/links/change", url.Values{"action": {"tag"}, "tags": {"t"}, "ids": {link[len("/app/links/"):]}}},
		{"member", "/app/upload", url.Values{"title": {"x"}}},
		{"admin", "/app/webhooks", nil},
		{"admin", "/app/activity", nil},
		{"admin", "/app/keys", nil},
		{"admin", "/app/members", nil},
		{"admin", "/app/domains", url.Values{"hostname": {"cell.example.com"}}},
		{"admin", "/app/webhooks", url.Values{"url": {"https://hook.example.com/"}, "all": {"true"}}},
		{"admin", "/app/keys", url.Values{"name": {"k"}, "scopes": {"links:read"}}},
		{"admin", "/app/members/invite", url.Values{"role": {"admin"}}},
		{"admin", "/app/members/" + all["viewer"].id + "/role", url.Values{"role": {"viewer"}}},
		{"admin", "/app/members/" + all["viewer"].id + "/sign-in-link", url.Values{}},
		{"owner", "/app/members/" + all["admin"].id + "/sign-in-link", url.Values{}},
		{"owner", "/app/members/invite", url.Values{"role": {"owner"}}},
		{"owner", "/app/members/" + all["owner"].id + "/role", url.Values{"role": {"owner"}}},
	} {
		for role, who := range all {
			var got page
			if cell.form == nil {
				got = who.get(cell.path)
			} else {
				form := url.Values{}
				for name, v := range cell.form {
					form[name] = v
				}
				if cell.path == "/app/domains" {
					form.Set("hostname", role+"."+form.Get("hostname")) // each role claims its own hostname
				}
				got = who.send(cell.path, form)
			}
			if may := rank[role] >= rank[cell.lowest]; may != (got.status < 400) || !may && got.status != 403 {
				t.Errorf("the %s role at %s with %v: status %d", role, cell.path, cell.form, got.status)
			}
		}
	}
}

// Members cannot gain permissions through the pages, and the last owner cannot be removed.
func TestNobodyRaisesThemselvesThroughThePages(t *testing.T) {
	_, all := colleagues(t)
	owner, admin := all["owner"], all["admin"]
	for name, got := range map[string]page{
		"an admin promotes themselves to owner": admin.send("/app/members/"+admin.id+"/role", url.Values{"role": {"owner"}}),
		"an admin promotes a member to owner":   admin.send("/app/members/"+all["viewer"].id+"/role", url.Values{"role": {"owner"}}),
		"an admin demotes an owner":             admin.send("/app/members/"+owner.id+"/role", url.Values{"role": {"viewer"}}),
		"an admin removes an owner":             admin.send("/app/members/"+owner.id+"/remove", nil),
		"a viewer promotes themselves":          all["viewer"].send("/app/members/"+all["viewer"].id+"/role", url.Values{"role": {"admin"}}),
		"a member creates a key":                all["member"].send("/app/keys", url.Values{"name": {"k"}, "scopes": {"links:read"}}),
		"a member approves a device":            all["member"].send("/app/device", url.Values{"code": {"aaaa-aaaa"}, "answer": {"approve"}}),
	} {
		if got.status != 403 && (name != "a member approves a device" || got.status != 404) {
			t.Errorf("%s: status %d, want 403", name, got.status)
		}
	}
	for name, got := range map[string]page{
		"the last owner demotes themselves": owner.send("/app/members/"+owner.id+"/role", url.Values{"role": {"admin"}}),
		"the last owner leaves":             owner.send("/app/members/"+owner.id+"/remove", nil),
	} {
		if got.status != 409 {
			t.Errorf("%s: status %d, want 409", name, got.status)
		}
	}
}

// A member is removed while they have a page open. Their next click opens the sign-in page.
func TestTheNextClickOfARemovedMember(t *testing.T) {
	_, all := colleagues(t)
	member := all["member"]
	if p := member.get("/app/links"); p.status != 200 {
		t.Fatalf("the list of links returned %d, want 200", p.status)
	}
	if p := all["owner"].send("/app/members/"+member.id+"/remove", nil); p.status != 303 {
		t.Fatalf("removing the member returned %d, want 303", p.status)
	}
	if p := member.send("/app/links", url.Values{"url": {"https://example.com/too-late"}}); p.status != 303 || !strings.HasPrefix(p.header.Get("Location"), "/app/sign-in") {
		t.Errorf("a removed member's form returned %d with Location %q, want 303 to the sign-in page", p.status, p.header.Get("Location"))
	}
	if p := member.get("/app/links"); p.url.Path != "/app/sign-in" {
		t.Errorf("a removed member's page returned %d at %s, want the sign-in page", p.status, p.url)
	}
	if p := all["owner"].get("/app/links?q=late"); strings.Contains(p.html, "too-late") {
		t.Error("a removed member's form created a link")
	}
}

// Signing in replaces a session that an attacker has planted in the browser. Signing out also
// invalidates copies of the session.
func TestSessionsAreNotFixedAndEnd(t *testing.T) {
	account, all := colleagues(t)
	base, err := url.Parse(stack.BaseURL)
	check(t, err)
	planted := all["viewer"].session()
	for _, value := range []string{planted, "lr_sess_00000000000000000000000000000000abcdef"} {
		b := newPlainBrowser(t)
		b.http.Jar.SetCookies(base, []*http.Cookie{{Name: "linkreel_session", Value: value, Path: "/"}})
		victim := enter(t, b, account, "Victim", "owner")
		if got := b.session(); got == value || got == "" {
			t.Error("the planted session is still valid after signing in")
		}
		if p := victim.get("/app/members"); p.status != 200 {
			t.Errorf("the victim's own page returned %d, want 200", p.status)
		}
	}
	if p := all["viewer"].get("/app/members"); p.status == 200 && p.url.Path == "/app/members" {
		t.Error("the planted session has the victim's permissions")
	}
	copied := newPlainBrowser(t)
	copied.http.Jar.SetCookies(base, []*http.Cookie{{Name: "linkreel_session", Value: all["admin"].session(), Path: "/"}})
	if p := copied.get("/app/keys"); p.status != 200 {
		t.Fatalf("before signing out, the copied session got %d, want 200", p.status)
	}
	all["admin"].send("/app/sign-out", nil)
	if p := copied.get("/app/keys"); p.url.Path != "/app/sign-in" {
		t.Errorf("after signing out, the copied session got %d at %s, want the sign-in page", p.status, p.url)
	}
}

// The test checks the headers and cookies of every response from the console.
func TestConsoleHeadersAndCookies(t *testing.T) {
	account, all := colleagues(t)
	b := newPlainBrowser(t)
	enter(t, b, account, "Cookie", "viewer")
	for _, path := range []string{"/app", "/app/links", "/app/record", "/app/nowhere", "/app/sign-in"} {
		p := all["owner"].get(path)
		csp := p.header.Get("Content-Security-Policy")
		for _, needed := range []string{"default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(csp, needed) {
				t.Errorf("%s: the policy lacks %s: %s", path, needed, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || p.header.Get("X-Frame-Options") != "DENY" || p.header.Get("X-Content-Type-Options") != "nosniff" || p.header.Get("Cache-Control") != "no-store" ||
			p.header.Get("Cross-Origin-Opener-Policy") != "same-origin" {
			t.Errorf("%s: the response headers are %v", path, p.header)
		}
	}
	link := operator(t).want(201, "POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"name": "Flags", "role": "viewer"}).str("url")
	fresh := &colleague{plainBrowser: newPlainBrowser(t)}
	opened := fresh.get(link)
	fresh.csrf = opened.csrf()
	u, err := url.Parse(link)
	check(t, err)
	in := fresh.send("/app/sign-in", url.Values{"link": {u.Query().Get("link")}})
	set := strings.Join(in.header.Values("Set-Cookie"), "\n")
	if !strings.Contains(set, "linkreel_session=") || strings.Count(set, "HttpOnly") != len(in.header.Values("Set-Cookie")) || strings.Count(set, "SameSite=Lax") != len(in.header.Values("Set-Cookie")) || strings.Contains(set, "Domain=") {
		t.Errorf("the cookies %s must be HttpOnly and SameSite=Lax, without a domain", set)
	}
	for _, next := range []string{"https://evil.example/", "//evil.example", `/\evil.example`, "/app/../../evil", "javascript:alert(1)", "/app//evil.example", "/app/%0d%0aLocation:x"} {
		p := newPlainBrowser(t).get("/app/sign-in?next=" + url.QueryEscape(next))
		if strings.Contains(p.html, "evil") || strings.Contains(p.html, "javascript:") {
			t.Errorf("the sign-in page accepts %s as the next page", next)
		}
	}
}
