package e2e

import (
	"encoding/json"
	"testing"

	"github.com/go-rod/rod/lib/input"
	"github.com/go-rod/rod/lib/proto"
)

// A person in another time zone adds, moves and removes rules by keyboard, saves with
// Enter, and tries a visit.
func TestRulesInABrowser(t *testing.T) {
	t.Parallel()
	l := look{width: 320, height: 700, dark: true}
	v := person(t, l)
	check(t, proto.EmulationSetTimezoneOverride{TimezoneID: "Asia/Tokyo"}.Call(v.Page))
	page := v.Timeout(patience)
	c := as(t, "business")
	id := c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://go.dev/", "startsAt": 1500000012345, "rules": []map[string]any{
		{"name": "Germans", "url": "https://de.example/", "when": map[string]any{"language": []string{"de"}, "from": 1600000012345}},
	}}).str("id")
	press := func(button string) {
		t.Helper()
		page.MustElement(`button[value="` + button + `"]`).MustFocus()
		check(t, v.Page.Keyboard.Press(input.Enter))
	}
	v.open(stack.BaseURL + "/app/links/" + id)
	press("add")
	v.shows("legend", "Rule 2")
	if at := page.MustEval(`() => document.activeElement.id`).Str(); at != "rules-1-name" {
		t.Errorf("after adding a rule, the focus is on %q, want the new rule's name", at)
	}
	v.Page.MustInsertText("Phones")
	page.MustElement(`[name="rules.1.when.device[]"][value=phone]`).MustClick()
	press("up.1")
	v.shows("legend", "Rule 1: Phones")
	press("add")
	v.shows("legend", "Rule 3")
	press("remove.2")
	v.until("two rules", `() => document.readyState === "complete" && document.querySelectorAll("legend + div button[value^=remove]").length === 2`)
	v.accessible("a link with rules")

	page.MustElement("#rules-0-url").MustInput("ftp://m.example/").MustType(input.Enter)
	v.shows("#rules-0-url-error", "http")
	v.accessible("a rule with an error")
	page.MustElement("#rules-0-url").MustSelectAllText().MustInput("https://m.example/").MustType(input.Enter)
	v.shows(".note", "Saved")
	stored, err := json.Marshal(c.want(200, "GET", "/api/v1/links/"+id, nil).json["rules"])
	check(t, err)
	if want := `[{"name":"Phones","url":"https://m.example/","when":{"device":["phone"]}},{"name":"Germans","url":"https://de.example/","when":{"from":1600000012345,"language":["de"]}}]`; string(stored) != want {
		t.Errorf("the stored rules are %s\nwant %s", stored, want)
	}
	page.MustElement("#try summary").MustClick()
	page.MustElement("#try-device").MustSelect("Phones")
	page.MustElementR("#try button", "^Try$").MustClick()
	v.shows("#try .note", "Phones")
	if to := page.MustElement("#try .note a").MustText(); to != "https://m.example/" {
		t.Errorf("the trial visit shows the destination %s, want the Phones rule's destination", to)
	}
	v.accessible("the result of a trial visit")
	v.shot("rules")

	v.open(stack.BaseURL + "/app")
	page.MustElementR("summary", "^Dates, limits").MustClick()
	for _, section := range []string{"Start, end", "Redirect", "Password", "Rules"} {
		page.MustElementR("summary", "^"+section).MustClick()
	}
	v.accessible("the form for a new link")
	press("add")
	v.shows("legend", "Rule 1")
	v.accessible("a new link with a rule")
	v.shot("rules-new")
	v.clean("400")
}
