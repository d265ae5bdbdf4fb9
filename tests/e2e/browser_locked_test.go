package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-rod/rod/lib/input"
)

// A visitor opens a password-protected link using only the keyboard, in the light and dark schemes
// and on a narrow phone.
func TestALinksPasswordInTheBrowser(t *testing.T) {
	t.Parallel()
	arrived := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Arrived</title><h1>%s from %q</h1>`, r.URL.RequestURI(), r.Referer())
	}))
	t.Cleanup(arrived.Close)
	made := as(t, "creator").want(201, "POST", "/api/v1/links", map[string]any{
		"url": arrived.URL + "/hidden?own=1", "password": "grün 7", "title": "Nobody's business", "forwardQuery": true,
	})
	address := made.str("shortUrl")
	for n, l := range []look{
		{width: 1280, height: 860, address: "203.0.113.11"}, {width: 1280, height: 860, dark: true, address: "203.0.114.12"},
		{width: 320, height: 700, address: "203.0.115.13"}, {width: 320, height: 700, dark: true, address: "203.0.116.14"},
	} {
		name := fmt.Sprintf("%d px, dark %v", l.width, l.dark)
		v := visitor(t, l)
		v.good(address, l)
		v.open(address + "?seen=here")
		if f := eval[string](v, `() => document.activeElement.id`); f != "password" {
			t.Errorf("%s: the focus is on %q, want the password field", name, f)
		}
		v.shot(fmt.Sprintf("locked-%d-dark-%v", l.width, l.dark))
		if v.try("falsch"); n == 0 {
			if text := v.find("body").MustText(); strings.Contains(text, "business") || strings.Contains(text, arrived.URL) {
				t.Errorf("the page reveals the link's title or destination: %q", text)
			}
		}
		if alert := v.find("[role=alert]").MustText(); !strings.Contains(alert, "not the password") {
			t.Errorf("%s: the message for a wrong password is %q, want it to contain \"not the password\"", name, alert)
		}
		if f := eval[string](v, `() => document.activeElement.id + " " + document.activeElement.getAttribute("aria-invalid") + " " + document.activeElement.value`); f != "password true " {
			t.Errorf("%s: after a wrong password, the focus, its state and its text are %q, want the empty password field, marked invalid", name, f)
		}
		if wide := eval[int](v, `() => document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
			t.Errorf("%s: with an error, the page is %d px wider than the screen", name, wide)
		}
		v.accessible(name + ", with an error")
		v.shot(fmt.Sprintf("locked-wrong-%d-dark-%v", l.width, l.dark))
		v.unlock("grün 7")
		if h := v.find("h1").MustText(); h != `/hidden?own=1&seen=here from ""` {
			t.Errorf("%s: the correct password opens %q, want the destination with the query and without a referrer", name, h)
		}
		v.clean("status of 403", "status of 429")
	}
}

// An owner sets a domain's pages. If a URL is invalid, the error appears next to its field.
func TestADomainsPagesInTheBrowser(t *testing.T) {
	t.Parallel()
	l := look{width: 320, height: 700, dark: true}
	v := person(t, l)
	page := v.Timeout(patience)
	c := as(t, "business")
	made := c.want(201, "POST", "/api/v1/domains", map[string]any{"hostname": "pages.browser.example.net"})
	id := made.str("id")
	field := func(name string) string { return "#" + name + "-" + id }
	v.open(stack.BaseURL + "/app/domains")
	page.MustElement(`section[aria-labelledby="d-` + id + `"] summary`).MustFocus()
	check(t, v.Page.Keyboard.Press(input.Enter)) // opens the form
	page.MustElement(field("homeUrl")).MustInput("https://home.example/")
	page.MustElement(field("notFoundUrl")).MustInput("https://pages.browser.example.net/loop").MustType(input.Enter)
	v.shows(field("notFoundUrl")+"-error", "")
	if kept := eval[string](v, `() => document.querySelector("`+field("homeUrl")+`").value`); kept != "https://home.example/" {
		t.Errorf("the valid field has %q, want the typed text", kept)
	}
	v.accessible("a domain's pages with errors")
	if wide := eval[int](v, `() => document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
		t.Errorf("with errors, the page is %d px wider than the screen", wide)
	}
	v.shot("domain-pages-refused")
	page.MustElement(field("notFoundUrl")).MustSelectAllText().MustInput("https://home.example/missing").MustType(input.Enter)
	v.shows(".note", "Saved")
	d := c.want(200, "GET", "/api/v1/domains/"+id, nil)
	if d.str("homeUrl") != "https://home.example/" || d.str("notFoundUrl") != "https://home.example/missing" || d.json["expiredUrl"] != nil {
		t.Errorf("the stored domain is %s, want the two URLs that were entered and no expiredUrl", d.raw)
	}
	v.good("/app/domains", l)
	c.want(204, "DELETE", "/api/v1/domains/"+id, nil)
	v.clean("400")
}

// An owner renames the account and chooses a domain for its new links.
func TestAccountSettingsInTheBrowser(t *testing.T) {
	t.Parallel()
	l := look{width: 320, height: 700}
	v := person(t, l)
	page := v.Timeout(patience)
	v.open(stack.BaseURL + "/app/settings")
	before := page.MustElement("#account-name").MustProperty("value").Str()
	page.MustElement("#account-name").MustSelectAllText().MustInput("  ").MustType(input.Enter)
	v.shows("#account-name-error", "")
	v.accessible("an account name with an error")
	page.MustElement("#account-name").MustSelectAllText().MustInput(before).MustType(input.Enter)
	v.shows(".note", "Saved")
	if chosen := eval[string](v, `() => document.querySelector("#account-domain").value`); chosen != "default" {
		t.Errorf("the domain for new links is %q, want default", chosen)
	}
	v.good("/app/settings", l)
	v.shot("settings-account")
	v.clean("400")
}
