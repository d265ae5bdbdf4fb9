package web_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/services/console/internal/text"
)

// decidingLink is a link with every setting that decides the outcome of a visit.
var decidingLink = strings.Replace(oneLink, `"archived":false`, `"archived":false,"redirectType":302,"forwardQuery":true,"forwardPath":false,
	"startsAt":1800000012345,"expiredUrl":"https://over.example/","hasPassword":true,"maxClicks":1000,"rules":[
	{"name":"iPhones","when":{"device":["phone"],"system":["ios"],"country":["DE","AT"],"from":1800000098765,"percent":50},"url":"https://apple.example/"},
	{"name":`+quoted(nasty)+`,"when":{"language":["de"],"query":{"a b":"1+1=2%","c":"*"}},"url":"https://de.example/"}]`, 1)

const linkAt = "/app/links/lnk_1"

func decidingDesk(t *testing.T) *desk {
	d := fullDesk(t)
	d.store(`"1"`, map[string]string{
		"GET /api/v1/links": `{"data":[` + decidingLink + `]}`, "GET /api/v1/links/lnk_1": decidingLink, "PATCH /api/v1/links/lnk_1": decidingLink,
		"POST /api/v1/links": `{"id":"lnk_1"}`,
	})
	return d
}

var (
	inputValue = regexp.MustCompile(`<input[^>]*>`)
	areaValue  = regexp.MustCompile(`<textarea[^>]* name="([^"]+)"[^>]*>([^<]*)</textarea>`)
	picked     = regexp.MustCompile(`<select[^>]* name="([^"]+)"[^>]*>(?:<option[^>]*>[^<]*</option>)*?<option value="([^"]*)" selected>`)
)

// filled returns the form values that a browser without scripts sends to the action.
func filled(t *testing.T, page, action string) url.Values {
	t.Helper()
	at := strings.Index(page, `action="`+action+`"`)
	if at < 0 {
		t.Fatalf("the page has no form with action %s", action)
	}
	form, _, _ := strings.Cut(page[at:], "</form>")
	attribute := func(tag, name string) string {
		_, rest, _ := strings.Cut(tag, " "+name+`="`)
		value, _, _ := strings.Cut(rest, `"`)
		return html.UnescapeString(value)
	}
	out := url.Values{}
	for _, tag := range inputValue.FindAllString(form, -1) {
		if !strings.Contains(tag, `type="checkbox"`) || strings.Contains(tag, " checked") {
			out.Add(attribute(tag, "name"), attribute(tag, "value"))
		}
	}
	for _, re := range []*regexp.Regexp{areaValue, picked} {
		for _, m := range re.FindAllStringSubmatch(form, -1) {
			out.Set(m[1], html.UnescapeString(m[2]))
		}
	}
	return out
}

func (d *desk) sent(call string) (body map[string]any) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(d.said(call).body), &body); err != nil {
		d.t.Fatalf("%s sent %q, want JSON", call, d.said(call).body)
	}
	return body
}

func same(t *testing.T, what string, got any, want string) {
	t.Helper()
	if b, _ := json.Marshal(got); string(b) != want {
		t.Errorf("%s sent\n got %s\nwant %s", what, b, want)
	}
}

func TestALinkSavedUntouchedStaysAsItWas(t *testing.T) {
	t.Parallel()
	d := decidingDesk(t)
	d.page("/app/links")
	page := d.page(linkAt)
	for _, want := range []string{"iPhones → https://apple.example/ (Devices: Phones; Systems: iOS; Countries: DE, AT; ", text.Get("link.password.on"), ">1,000<"} {
		if !strings.Contains(page, html.EscapeString(want)) && !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	resp, page := d.post(linkAt, linkAt+"/edit", filled(t, page, linkAt+"/edit"))
	if resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("saving the form returned %d, want 303:\n%s", resp.StatusCode, page)
	}
	same(t, "sent", d.sent("PATCH "), `{"expiredUrl":"https://over.example/","expiresAt":null,"forwardPath":false,"forwardQuery":true,"maxClicks":1000,"ogDescription":null,`+
		`"ogImage":null,"ogTitle":null,"redirectType":302,"startsAt":1800000012345,"tags":["a"],"title":"Before","url":"https://go.dev/"}`)
}

// Without a script, the buttons submit the form, and the page shows it again with all the typed
// values. Nothing is stored until the person saves the form.
func TestRulesAreRearrangedWithoutLosingWhatWasTyped(t *testing.T) {
	t.Parallel()
	d := decidingDesk(t)
	page := d.page(linkAt)
	press := func(button string, typed url.Values) {
		t.Helper()
		form := with(filled(t, page, linkAt+"/edit"), typed)
		form.Set("ruleButton", button)
		var resp *http.Response
		resp, page = d.post(linkAt, linkAt+"/edit", form)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("button %s returned %d, want 200:\n%s", button, resp.StatusCode, page)
		}
		checkPage(t, button, resp, page)
	}
	press("add", url.Values{"title": {"Typed"}, "password": {"hunter2"}, "maxClicks": {"many"}, "startsAt": {"2030-01-02T03:04"}, "forwardPath": {"true"}, "rules.0.when.percent": {"half"}})
	press("up.2", url.Values{"rules.2.name": {"Mail"}, "rules.2.url": {"https://mail.example/"}, "rules.2.when.query": {"utm_source=mail\r\nref"}, "rules.2.when.device[]": {"desktop", "tablet"}, "rules.2.when.until": {"2031-01-02T03:04"}})
	press("up.1", nil)
	press("remove.2", nil)
	press("down.1", nil) // this is already the last rule, so nothing changes
	press("nonsense.9", nil)
	form := filled(t, page, linkAt+"/edit")
	if got := []string{form.Get("title"), form.Get("password"), form.Get("maxClicks"), form.Get("startsAt"), form.Get("forwardPath"), form.Get("rules.0.name"), form.Get("rules.1.when.percent"), form.Get("ruleCount")}; !slices.Equal(got, []string{"Typed", "hunter2", "many", "2030-01-02T03:04", "true", "Mail", "half", "2"}) {
		t.Fatalf("after the buttons, the form contains %q, want all typed values in the new order", got)
	}
	if d.said("GET "); slices.ContainsFunc(d.asked, func(q question) bool { return strings.HasPrefix(q.call, "PATCH") }) {
		t.Error("a rule button sent a PATCH, want none before the form is saved")
	}
	resp, page := d.post(linkAt, linkAt+"/edit", form)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, `id="maxClicks-error">`+text.Get("decide.maxclicks.bad")) || !strings.Contains(page, `id="rules-1-when-percent-error">`+text.Get("rule.percent.bad")) {
		t.Fatalf("saving invalid values returned %d, want 400 with both errors:\n%s", resp.StatusCode, page)
	}
	form = with(filled(t, page, linkAt+"/edit"), url.Values{"maxClicks": {"1,000"}, "rules.1.when.percent": {"30 %"}, "passwordRemove": {"true"}})
	if resp, page = d.post(linkAt, linkAt+"/edit", form); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, text.Get("decide.password.both")) {
		t.Fatalf("setting and removing a password returned %d, want 400 with the reason", resp.StatusCode)
	}
	form.Del("passwordRemove")
	if resp, page = d.post(linkAt, linkAt+"/edit", form); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("saving the form returned %d, want 303:\n%s", resp.StatusCode, page)
	}
	sent := d.sent("PATCH ")
	same(t, "rules", sent["rules"], `[{"name":"Mail","url":"https://mail.example/","when":{"device":["desktop","tablet"],"query":{"ref":"*","utm_source":"mail"},"until":1925089440000}},`+
		`{"name":"iPhones","url":"https://apple.example/","when":{"country":["DE","AT"],"device":["phone"],"from":1800000098765,"percent":30,"system":["ios"]}}]`)
	if sent["password"] != "hunter2" || sent["maxClicks"] != 1000.0 || sent["forwardPath"] != true {
		t.Errorf("the request is %v, want the typed password, click limit and path setting", sent)
	}
}

func TestAPasswordIsRemovedWhenAsked(t *testing.T) {
	t.Parallel()
	d := decidingDesk(t)
	form := with(filled(t, d.page(linkAt), linkAt+"/edit"), url.Values{"passwordRemove": {"true"}, "rules.1.when.language": {"fr"}})
	if resp, page := d.post(linkAt, linkAt+"/edit", form); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("saving the form returned %d, want 303:\n%s", resp.StatusCode, page)
	}
	sent := d.sent("PATCH ")
	if password, there := sent["password"]; !there || password != nil {
		t.Errorf("the request has password %v (present: %v), want null", password, there)
	}
	// Conditions on parameters must survive a round trip through the form.
	same(t, "the second rule", sent["rules"].([]any)[1], `{"name":`+quoted(nasty)+`,"url":"https://de.example/","when":{"language":["fr"],"query":{"a b":"1+1=2%","c":"*"}}}`)
}

func TestANewLinkWithRules(t *testing.T) {
	t.Parallel()
	d := decidingDesk(t)
	plain := with(filled(t, d.page("/app"), "/app/links"), url.Values{"url": {"https://go.dev/"}})
	if resp, page := d.post("/app", "/app/links", plain); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("creating a plain link returned %d, want 303:\n%s", resp.StatusCode, page)
	}
	same(t, "a plain link", d.sent("POST /api/v1/links"), `{"url":"https://go.dev/"}`)
	plain.Set("ruleButton", "add")
	resp, page := d.post("/app", "/app/links", plain)
	checkPage(t, "/app", resp, page)
	form := with(filled(t, page, "/app/links"), url.Values{
		"rules.0.name": {"A"}, "rules.0.url": {"https://a.example/"}, "rules.0.when.system[]": {"linux"}, "password": {"x"}, "redirectType": {"308"},
		"expiresAt": {"2030-01-02T03:04"},
	})
	if resp, page := d.post("/app", "/app/links", form); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("creating a link with rules returned %d, want 303:\n%s", resp.StatusCode, page)
	}
	same(t, "a link with rules", d.sent("POST /api/v1/links"), `{"expiresAt":1893553440000,"password":"x","redirectType":308,`+
		`"rules":[{"name":"A","url":"https://a.example/","when":{"system":["linux"]}}],"url":"https://go.dev/"}`)
}

// The page shows each API error next to the field that it is about.
func TestReasonsAreShownAtTheirFields(t *testing.T) {
	t.Parallel()
	d := decidingDesk(t)
	d.answers["PATCH /api/v1/links/lnk_1"] = answer{400, "", `{"error":{"code":"VALIDATION_ERROR","message":"x","details":[
		{"field":"rules.0.when.country.1","code":"invalid_value","message":"use two letters"},{"field":"rules.1.when","code":"too_short","message":"name one"},
		{"field":"rules.1.url","code":"invalid_value","message":"no address"},{"field":"rules.1.name","code":"invalid_value","message":"no name"},
		{"field":"rules.0.when.from","code":"not_allowed","message":"too late"},{"field":"startsAt","code":"not_allowed","message":"ends before"},
		{"field":"maxClicks","code":"out_of_range","message":"too many"},{"field":"expiredUrl","code":"x","message":"blocked"},
		{"field":"redirectType","code":"not_allowed","message":"not with"},{"field":"rules","code":"too_long","message":"too long"},{"field":"password","code":"x","message":"too weak"}]}}`}
	form := with(filled(t, d.page(linkAt), linkAt+"/edit"), url.Values{"rules.0.when.country": {"DE, ZZZ"}, "forwardQuery": nil})
	resp, page := d.post(linkAt, linkAt+"/edit", form)
	checkPage(t, "refused", resp, page)
	for _, want := range []string{
		`id="rules-0-when-country-error">Value 2: Use two letters<`, `role="alert">Name one<`, `id="rules-1-url-error">No address<`, `id="rules-1-name-error">No name<`,
		`id="rules-0-when-from-error">Too late<`, `id="startsAt-error">Ends before<`, `id="maxClicks-error">Too many<`, `id="expiredUrl-error">Blocked<`,
		`id="redirectType-error">Not with<`, `role="alert">Too long<`, `id="password-error">Too weak<`, `value="DE, ZZZ"`,
		`aria-describedby="rules-0-when-country-hint rules-0-when-country-error" aria-invalid="true"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if again := filled(t, page, linkAt+"/edit"); again.Has("forwardQuery") {
		t.Error("the checkbox that was cleared is checked on the page")
	}
}

func TestSomebodyElsesRulesAreShownBesideTheTypedOnes(t *testing.T) {
	t.Parallel()
	d := decidingDesk(t)
	form := with(filled(t, d.page(linkAt), linkAt+"/edit"), url.Values{"rules.0.name": {"Mine"}, "redirectType": {"302"}})
	// Pressing a rule button must not let the person overwrite a change that the page has not shown
	// them.
	d.store(`"2"`, map[string]string{"GET /api/v1/links/lnk_1": strings.NewReplacer(`"iPhones"`, `"Theirs"`, `"redirectType":302`, `"redirectType":301`, `"forwardQuery":true`, `"forwardQuery":false`).Replace(decidingLink)})
	form.Set("ruleButton", "down.0")
	_, page := d.post(linkAt, linkAt+"/edit", form)
	resp, page := d.post(linkAt, linkAt+"/edit", filled(t, page, linkAt+"/edit"))
	checkPage(t, "conflict", resp, page)
	for _, want := range []string{`value="Mine"`, `<q>Theirs → https://apple.example/`, `<q>` + text.Get("decide.redirecttype.301") + `</q>`, `<q>` + text.Get("form.false") + `</q>`} {
		if resp.StatusCode != http.StatusPreconditionFailed || !strings.Contains(page, want) {
			t.Errorf("got %d, want 412 and a page with %s", resp.StatusCode, want)
		}
	}
	if resp, page := d.post(linkAt, linkAt+"/edit", filled(t, page, linkAt+"/edit")); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("submitting the form again returned %d, want 303:\n%s", resp.StatusCode, page)
	}
}

func TestAVisitIsTried(t *testing.T) {
	t.Parallel()
	d := decidingDesk(t)
	if page := d.page(linkAt); strings.Contains(page, `role="status"`) {
		t.Error("the page shows a result even though the form was not submitted")
	}
	d.store(`"1"`, map[string]string{"GET /api/v1/links/lnk_1/explain": `{"status":302,"location":"https://apple.example/","rule":"iPhones","why":"All conditions of the rule hold."}`})
	page := d.page(linkAt + "?try=1&try-device=phone&try-country=DE&try-query=a%3D1%26b&try-at=2030-01-02T03:04&try-percent=0")
	for _, want := range []string{`<a href="https://apple.example/" rel="noreferrer">`, "All conditions of the rule hold.", `<option value="phone" selected>`, `value="a=1&amp;b"`, `value="2030-01-02T03:04"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if got := d.said("GET /api/v1/links/lnk_1/explain").call; got != "GET /api/v1/links/lnk_1/explain?at=1893553440000&country=DE&device=phone&percent=0&query=a%3D1%26b" {
		t.Errorf("the API got %s, want the visit that the form describes", got)
	}
	d.answers["GET /api/v1/links/lnk_1/explain"] = answer{400, "", `{"error":{"code":"VALIDATION_ERROR","message":"x","details":[{"field":"country","code":"invalid_value","message":"use two letters"}]}}`}
	if page := d.page(linkAt + "?try=1&try-country=ZZZ"); !strings.Contains(page, `id="try-country-error">Use two letters`) {
		t.Error("the error is not shown next to the country field")
	}
	d.answers["GET /api/v1/links/lnk_1/explain"] = answer{503, "", ""}
	if page := d.page(linkAt + "?try=1"); !strings.Contains(page, text.Get("try.away")) {
		t.Error("the page does not say that the result is unavailable")
	}
	if page := d.page(linkAt + "?try=1&try-at=soon"); !strings.Contains(page, `id="try-at-error">`) {
		t.Error("the page does not show an error for an invalid time")
	}
}

func TestStatusIsToldInWords(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"scheduled", "exhausted", "expired", "taken_down", "from_tomorrow"} {
		d := fullDesk(t)
		record := strings.Replace(oneLink, `"active"`, quoted(status), 1)
		d.store(`"1"`, map[string]string{"GET /api/v1/links": `{"data":[` + record + `]}`, "GET /api/v1/links/lnk_1": record})
		want := status
		if text.Has("link.status." + status) {
			want = text.Get("link.status." + status)
		} else if status != "from_tomorrow" {
			t.Errorf("status %s has no text", status)
		}
		if page := d.page("/app/links"); !strings.Contains(page, `<span class="badge">`+want) {
			t.Errorf("status %s: the list does not contain %q", status, want)
		}
		if page := d.page(linkAt); !strings.Contains(page, "<dd>"+want) {
			t.Errorf("status %s: the page does not contain %q", status, want)
		}
	}
}
