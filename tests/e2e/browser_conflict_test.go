package e2e

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// Two tabs edit the same record. The second tab shows both versions, and neither is lost.
func TestTwoTabsLoseNoText(t *testing.T) {
	v := person(t, look{})
	page := v.Timeout(patience)
	c := as(t, "business")
	l := c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://go.dev/", "title": "Before"})
	made := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": "Before"})
	for name, path := range map[string]string{"link": "/app/links/" + l.str("id"), "video": "/app/videos/" + made.str("videoId")} {
		v.open(stack.BaseURL + path)
		page.MustElement("#title").MustSelectAllText().MustInput("From the second tab")
		// The first tab saves while the second one has unsaved text.
		api := strings.Replace(path, "/app/", "/api/v1/", 1)
		c.want(200, "PATCH", api, map[string]any{"title": "From the first tab"})
		page.MustElementR("form button", "^Save$").MustClick()
		v.shows(".note", "Somebody changed this")
		if mine, theirs := page.MustElement("#title").MustProperty("value").Str(), page.MustElement(".theirs q").MustText(); mine != "From the second tab" || theirs != "From the first tab" {
			t.Errorf("%s: the field contains %q and the text below it is %q, want the text from the second tab and the text from the first", name, mine, theirs)
		}
		v.shot("conflict-" + name)
		page.MustElementR("form button", "^Save$").MustClick()
		v.shows(".note", "Saved")
		if title := c.want(200, "GET", api, nil).str("title"); title != "From the second tab" {
			t.Errorf("%s: the stored title is %q, want %q", name, title, "From the second tab")
		}
	}
	v.clean("412")
}

// Two admins change the same member's role.
func TestTwoTabsOnOneMember(t *testing.T) {
	op := operator(t)
	account := op.want(201, "POST", "/admin/v1/accounts", map[string]any{"name": "Two admins", "plan": "business"}).str("id")
	link := op.want(201, "POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"name": "Olu", "role": "owner"}).str("url")
	member := op.want(201, "POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"name": "Kim", "role": "member"}).str("memberId")
	v := visitor(t, look{})
	v.signIn(link)
	page := v.Timeout(patience)
	form := `form[action="/app/members/` + member + `/role"]`
	v.open(stack.BaseURL + "/app/members")
	page.MustElement(form)
	// Another owner changes the role while the page is open.
	other := newPlainBrowser(t)
	second := op.want(201, "POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"name": "Ada", "role": "owner"}).str("url")
	u, err := url.Parse(second)
	check(t, err)
	other.post("/app/sign-in", url.Values{"csrf": {other.get(second).csrf()}, "link": {u.Query().Get("link")}})
	list := other.get("/app/members")
	if saved := other.post("/app/members/"+member+"/role", url.Values{"csrf": {list.csrf()}, "role": {"admin"}}); saved.status != 200 {
		t.Fatalf("the other owner's change returned %d, want 200", saved.status)
	}
	page.MustElement(form + " select").MustSelect("Viewer")
	page.MustElement(form + " button").MustClick()
	v.shows(".note", "Somebody changed this")
	if mine, theirs := page.MustElement(form+" select").MustText(), page.MustElement(form+" .theirs q").MustText(); theirs != "Admin" || page.MustElement(form+" select").MustProperty("value").Str() != "viewer" {
		t.Errorf("the field shows %q and the text next to it is %q, want the viewer role and the text Admin", mine, theirs)
	}
	v.shot("conflict-member")
	page.MustElement(form + " button").MustClick()
	v.shows(".note", "Saved")
	if role := page.MustElement(form + " select").MustProperty("value").Str(); role != "viewer" {
		t.Errorf("the stored role is %s, want viewer", role)
	}
	v.clean("412")
}

// shows waits until the page has loaded completely and has an element with the text.
func (v *viewer) shows(selector, text string) {
	v.t.Helper()
	v.until(fmt.Sprintf("a page with %q in %s", text, selector),
		fmt.Sprintf(`() => document.readyState === "complete" && [...document.querySelectorAll(%q)].some((e) => e.textContent.includes(%q))`, selector, text))
}
