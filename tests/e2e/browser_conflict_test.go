package e2e

import (
	"strings"
	"testing"
)

// Two tabs change one record: the second sees both texts, and loses neither.
func TestTwoTabsLoseNoText(t *testing.T) {
	link, err := stack.SignInLink(t.Context())
	check(t, err)
	v := visitor(t, look{})
	v.open(link)
	page := v.Timeout(patience)
	page.MustElementR("button", "Sign in").MustClick()
	page.MustElementR("label", "Destination")

	c := as(t, "business")
	l := c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://go.dev/", "title": "Before"})
	made := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": "Before"})
	for name, path := range map[string]string{"link": "/app/links/" + l.str("id"), "video": "/app/videos/" + made.str("videoId")} {
		v.open(stack.BaseURL + path)
		page.MustElement("#title").MustSelectAllText().MustInput("From the second tab")
		// Meanwhile in the first one.
		api := strings.Replace(path, "/app/", "/api/v1/", 1)
		c.want(200, "PATCH", api, map[string]any{"title": "From the first tab"})
		page.MustElementR("form button", "^Save$").MustClick()
		page.MustElementR(".note", "Somebody changed this")
		if mine, theirs := page.MustElement("#title").MustProperty("value").Str(), page.MustElement(".theirs q").MustText(); mine != "From the second tab" || theirs != "From the first tab" {
			t.Errorf("%s: the field has %q, and below it stands %q", name, mine, theirs)
		}
		v.shot("conflict-" + name)
		page.MustElementR("form button", "^Save$").MustClick()
		page.MustElementR(".note", "Saved")
		if title := c.want(200, "GET", api, nil).str("title"); title != "From the second tab" {
			t.Errorf("%s: %q is stored in the end", name, title)
		}
	}
	v.clean("412")
}
