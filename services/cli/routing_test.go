package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/services/cli/clitest"
)

const ruleText = `[{"name":"iPhones","when":{"device":["phone"],"query":{"a":"*"},"from":1800000000000,"percent":50},"url":"https://e.example/app"}]`

func TestCommandsSendWhatALinkDecides(t *testing.T) {
	t.Parallel()
	const made, changed = `POST /api/v1/links {"url":"https://e.example",`, `PATCH /api/v1/links/lnk_1 `
	for _, tt := range []struct {
		args []string
		in   string
		want string // "" if no request should be sent
	}{
		{strings.Fields("create --redirect-type 308 --forward-query --forward-path --starts 1d --expired-url https://e.example/over"), "",
			made + `"redirectType":308,"forwardQuery":true,"forwardPath":true,"startsAt":1790086400000,"expiredUrl":"https://e.example/over"}`},
		{strings.Fields("create --password - --max-clicks 10"), "secret\n", made + `"password":"secret","maxClicks":10}`},
		{[]string{"create", "--rules", ruleText}, "", made + `"rules":` + ruleText + `}`},
		{[]string{"create", "--rules", `[{"name":"a","when":{"browser":["x"]},"url":"https://e.example/"}]`}, "", ""},
		{[]string{"create", "--rules", ruleText + "x"}, "", ""},
		{[]string{"create", "--max-clicks", "many"}, "", ""},
		{strings.Fields("update --redirect-type 301 --forward-query false --forward-path true --starts never --max-clicks="), "",
			changed + `{"redirectType":301,"forwardQuery":false,"forwardPath":true,"startsAt":null,"maxClicks":null}`},
		{strings.Fields("update --expired-url= --password= --rules="), "", changed + `{"expiredUrl":null,"password":null,"rules":null}`},
		{append(strings.Fields("update --password - --max-clicks 5 --rules"), ruleText), "secret\n", changed + `{"password":"secret","maxClicks":5,"rules":` + ruleText + `}`},
	} {
		s := &scripted{answers: map[string]string{"POST /api/v1/links": `{"shortUrl":"s"}`, "PATCH /api/v1/links/lnk_1": `{"slug":"s"}`}}
		what := map[string]string{"create": "https://e.example", "update": "lnk_1"}[tt.args[0]]
		got := s.run(t, tt.in, append([]string{"links", tt.args[0], what}, tt.args[1:]...)...)
		if tt.want == "" {
			if got.code != ExitUsage || len(s.asked) > 0 {
				t.Errorf("%q returned %+v with requests %q, want exit code 2 and none", tt.args, got, s.asked)
			}
			continue
		}
		if got.code != 0 || len(s.asked) != 1 || s.asked[0] != tt.want {
			t.Errorf("%q returned %+v\nwith requests %q\nwant              %q", tt.args, got, s.asked, tt.want)
		}
	}
}

func TestExplainAndAvailable(t *testing.T) {
	t.Parallel()
	s := &scripted{answers: map[string]string{
		"GET /api/v1/links/lnk_1/explain": `{"status":302,"location":"https://e.example/app","rule":"iPhones","why":"All hold."}`,
		"GET /api/v1/links/available":     `{"available":false,"reason":"taken"}`,
	}}
	got := s.run(t, "", strings.Fields("links explain lnk_1 --country DE --device phone --system ios --language de-AT --query a=1&b=2 --path /x --percent 0 --at 2027-01-31")...)
	if got.code != 0 || !strings.Contains(got.out, "https://e.example/app") || !strings.Contains(got.out, "iPhones") || !strings.Contains(got.out, "All hold.") {
		t.Errorf("links explain returned %+v, want the rule for iPhones and its destination", got)
	}
	if got := s.run(t, "", "links", "available", "sale", "--domain", "dom_1"); got.code != 0 || got.out != "taken\n" {
		t.Errorf("links available returned %+v, want taken", got)
	}
	if diff := cmp.Diff([]string{
		"GET /api/v1/links/lnk_1/explain?at=2027-01-31&country=DE&device=phone&language=de-AT&path=%2Fx&percent=0&query=a%3D1%26b%3D2&system=ios",
		"GET /api/v1/links/available?domainId=dom_1&slug=sale",
	}, s.asked); diff != "" {
		t.Error(diff)
	}
}

// Importing an export in either format must restore the same links. A list omits the rules, so only
// links with rules require an extra request.
func TestAnExportIsImportedWithWhatLinksDecide(t *testing.T) {
	t.Parallel()
	const common = `"slug":"abc","destinationUrl":"https://e.example/","shortUrl":"http://old.example/abc","createdAt":1767225600000,"status":"active","tags":[],"archived":false,`
	const decides = common + `"redirectType":302,"forwardQuery":true,"forwardPath":true,"startsAt":1767225600456,"expiredUrl":"https://e.example/over","hasPassword":true,"maxClicks":7,"hasRules":true`
	const plain = common + `"redirectType":308,"forwardQuery":false,"forwardPath":false,"startsAt":null,"expiredUrl":null,"hasPassword":false,"maxClicks":null,"hasRules":false`
	const gone = `{"_id":"lnk_3","id":"lnk_3",` + common + `"hasRules":true}`
	s := &scripted{answers: map[string]string{
		"GET /api/v1/links":       `{"data":[{"_id":"lnk_1","id":"lnk_1",` + decides + `},{"_id":"lnk_2","id":"lnk_2",` + plain + `},` + gone + `],"hasMore":false,"nextCursor":null}`,
		"GET /api/v1/links/lnk_1": `{"id":"lnk_1","rules":` + ruleText + `}`,
		"GET /api/v1/domains":     `{"data":[]}`,
		"POST /api/v1/links/bulk": `{"results":[{"status":201,"data":{}},{"status":201,"data":{}}]}`,
	}}
	for _, format := range []string{"csv", "jsonl"} {
		s.asked = nil
		table := s.run(t, "", "links", "export", "--format", format)
		if table.code != 0 || slices.Contains(s.asked, "GET /api/v1/links/lnk_2") {
			t.Fatalf("the export as %s returned %+v with requests %q, want exit code 0 and no request for lnk_2", format, table, s.asked)
		}
		s.asked = nil
		got := s.run(t, "", "links", "import", file(t, "links."+format, table.out))
		if got.code != 0 || strings.Contains(got.err, "columns") || strings.Contains(got.err, "the field") {
			t.Errorf("the import of %s returned %+v, want no unknown columns", format, got)
		}
		var sent struct{ URLs []json.RawMessage }
		_, body, _ := strings.Cut(s.asked[len(s.asked)-1], "/bulk ")
		if err := json.Unmarshal([]byte(body), &sent); err != nil || len(sent.URLs) != 2 {
			t.Fatalf("the import of %s sent %[3]s, want 2 links (error %[2]v)", format, err, body)
		}
		for i, want := range []string{
			`"forwardQuery":true,"forwardPath":true,"startsAt":1767225600456,"expiredUrl":"https://e.example/over","maxClicks":7,"rules":` + ruleText +
				`,"importedClicks":0,"createdAt":1767225600000,"hasPassword":true}`,
			`"redirectType":308,"importedClicks":0,"createdAt":1767225600000}`,
		} {
			if want = `{"url":"https://e.example/","slug":"abc","domainId":"default",` + want; string(sent.URLs[i]) != want {
				t.Errorf("the import of %s sent %s\nwant %s", format, sent.URLs[i], want)
			}
		}
	}
}

func TestAnImportSendsNoRowWhoseDecisionsItCannotRead(t *testing.T) {
	t.Parallel()
	s := &scripted{answers: map[string]string{"GET /api/v1/domains": `{"data":[]}`}}
	got := s.run(t, "", "links", "import", file(t, "l.csv", `url,maxClicks,forwardQuery,rules
https://e.example/1,many,,
https://e.example/2,,perhaps,
https://e.example/3,,,"[{""name"":""a"",""when"":{""browser"":[""x""]},""url"":""https://e.example/""}]"
https://e.example/4,1.5,,
`))
	if got.code != ExitPartly || len(s.writes()) > 0 {
		t.Errorf("the import returned %+v with writes %q, want exit code 6 and none", got, s.writes())
	}
	for _, why := range []string{"line 2: INVALID_ROW: maxClicks must be a whole number", "line 3: INVALID_ROW: forwardQuery must be true or false", "line 4: INVALID_ROW: rules must be", "line 5:"} {
		if !strings.Contains(got.err, why) {
			t.Errorf("the output lacks %q: %s", why, got.err)
		}
	}
}

const decidingFile = `
links:
  - slug: same
    url: https://e.example/same
    redirectType: 302
    forwardQuery: true
    startsAt: 2027-01-15T08:00:00Z
    expiredUrl: https://e.example/over
    password: secret
    maxClicks: 7
    rules:
      - name: Austria
        when: {country: [at], language: [de-at], device: [mobile], query: {a: "*"}, from: 2027-01-15T08:00:00Z, percent: 50}
        url: https://e.example/at
`

func TestApplyKnowsWhatALinkDecides(t *testing.T) {
	t.Parallel()
	run := func(have, file string) (result, []string) {
		s := deployed()
		s.answers["GET /api/v1/links/lnk_1"] = `{"id":"lnk_1","slug":"same","destinationUrl":"https://e.example/same",` + have + `}`
		s.answers["PATCH /api/v1/links/lnk_1"] = `{"success":true,"slug":"same"}`
		got := s.run(t, file, "apply", "-f", "-")
		return got, s.writes()
	}
	const rule = `[{"name":"Austria","when":{"country":["%"],"device":["phone"],"language":["de-AT"],"query":{"a":"*"},"from":1800000000000,"percent":50},"url":"https://e.example/at"}]`
	shown := `"redirectType":302,"forwardQuery":true,"forwardPath":false,"startsAt":1800000000000,"expiredUrl":"https://e.example/over","hasPassword":true,"maxClicks":7,"rules":` +
		strings.ReplaceAll(rule, "%", "AT")
	if got, wrote := run(shown, decidingFile); got.code != 0 || len(wrote) > 0 {
		t.Errorf("applying the file again returned %+v with writes %q, want none", got, wrote)
	}
	sent := strings.NewReplacer("%", "at", "phone", "mobile", "de-AT", "de-at").Replace(rule)
	if got, wrote := run(`"redirectType":301,"rules":[]`, decidingFile); got.code != 0 || len(wrote) != 1 || wrote[0] != `PATCH /api/v1/links/lnk_1 {`+
		`"redirectType":302,"forwardQuery":true,"startsAt":1800000000000,"expiredUrl":"https://e.example/over","password":"secret","maxClicks":7,"rules":`+sent+`}` {
		t.Errorf("applying new values returned %+v with writes %q, want one PATCH with every new value", got, wrote)
	} else if strings.Contains(got.out, "secret") {
		t.Errorf("the output contains the password: %s", got.out)
	}
	const none = "links: [{slug: same, url: 'https://e.example/same', startsAt: never, expiredUrl: '', password: '', maxClicks: 0, rules: []}]"
	if got, wrote := run(shown, none); got.code != 0 || len(wrote) != 1 || wrote[0] != `PATCH /api/v1/links/lnk_1 {"startsAt":null,"expiredUrl":null,"password":null,"maxClicks":null,"rules":[]}` {
		t.Errorf("removing all values returned %+v with writes %q, want one PATCH that clears every value", got, wrote)
	}
	for name, rules := range map[string]string{"an unknown condition": "{browser: [x]}", "a relative time": "{from: 7d}"} {
		if got, wrote := run(shown, "links: [{slug: same, url: 'https://e.example/same', rules: [{name: a, when: "+rules+", url: 'https://e.example/'}]}]"); got.code != ExitUsage || len(wrote) > 0 {
			t.Errorf("%s returned %+v with writes %q, want exit code 2 and no writes", name, got, wrote)
		}
	}
	fresh, wrote := run(shown, strings.ReplaceAll(strings.ReplaceAll(decidingFile, "slug: same", "slug: fresh"), "redirectType: 302\n    ", ""))
	if fresh.code != 0 || len(wrote) != 1 || wrote[0] != `POST /api/v1/links {"url":"https://e.example/same","slug":"fresh","domainId":"default","forwardQuery":true,"startsAt":1800000000000,`+
		`"expiredUrl":"https://e.example/over","password":"secret","maxClicks":7,"rules":`+sent+`}` {
		t.Errorf("applying a new link returned %+v with writes %q, want one POST with every value", fresh, wrote)
	}
}

func TestAnAssistantSetsAndSeesWhatALinkDecides(t *testing.T) {
	t.Parallel()
	s := deployed()
	s.answers["GET /api/v1/links/lnk_3"] = `{"id":"lnk_3","slug":"s","destinationUrl":"https://e.example/","status":"scheduled","redirectType":308,"forwardQuery":true,` +
		`"startsAt":1800000000000,"expiredUrl":"https://e.example/over","hasPassword":true,"maxClicks":7,"hasRules":true,"rules":` + ruleText + `}`
	s.answers["POST /api/v1/links"] = `{"id":"lnk_3","link":` + s.answers["GET /api/v1/links/lnk_3"] + `}`
	s.answers["PATCH /api/v1/links/lnk_3"] = `{"success":true,"slug":"s"}`
	s.answers["GET /api/v1/links/lnk_3/explain"] = `{"status":302,"location":"https://e.example/app","rule":"iPhones","why":"All hold."}`
	s.answers["GET /api/v1/links/available"] = `{"available":true,"reason":null}`
	k := inMemory(t, serve(t, s), nil)
	rule := clitest.Args{"name": "iPhones", "url": "https://e.example/app", "when": clitest.Args{"device": []string{"phone"}, "query": clitest.Args{"a": "*"}, "from": "2027-01-15T08:00:00Z", "percent": 50}}
	all := clitest.Args{"redirectType": 308, "forwardQuery": true, "forwardPath": true, "starts": "2027-01-15T08:00:00Z", "expiredUrl": "https://e.example/over", "password": "secret", "maxClicks": 7, "rules": []any{rule}}
	all["url"] = "https://e.example/"
	got := clitest.Good[linkOut](k, "create_link", all)
	if got.RedirectType != 308 || !got.ForwardQuery || got.StartsAt != "2027-01-15T08:00:00Z" || !got.HasPassword || got.MaxClicks != 7 || len(got.Rules) != 1 ||
		got.Rules[0].When.From != "2027-01-15T08:00:00Z" || got.Rules[0].When.Percent != 50 {
		t.Errorf("create_link returned %+v, want every routing setting", got)
	}
	delete(all, "url")
	all["id"], all["forwardQuery"] = "lnk_3", false
	clitest.Good[linkOut](k, "update_link", all)
	clitest.Good[linkOut](k, "update_link", clitest.Args{"id": "lnk_3", "clear": []string{"starts", "expiredUrl", "password", "maxClicks", "rules"}})
	clitest.Good[map[string]any](k, "explain_link", clitest.Args{"id": "lnk_3", "device": "phone", "percent": 0})
	clitest.Good[map[string]any](k, "check_slug", clitest.Args{"slug": "sale"})
	sentRule := strings.Replace(ruleText, "1800000000000", `"2027-01-15T08:00:00Z"`, 1)
	fields := `"expiredUrl":"https://e.example/over","password":"secret","maxClicks":7,"rules":` + sentRule + `}`
	want := []string{
		`POST /api/v1/links {"url":"https://e.example/","redirectType":308,"forwardQuery":true,"forwardPath":true,"startsAt":"2027-01-15T08:00:00Z",` + fields,
		`PATCH /api/v1/links/lnk_3 {"redirectType":308,"forwardQuery":false,"forwardPath":true,"startsAt":"2027-01-15T08:00:00Z",` + fields,
		`PATCH /api/v1/links/lnk_3 {"startsAt":null,"expiredUrl":null,"password":null,"maxClicks":null,"rules":null}`,
	}
	if diff := cmp.Diff(want, s.writes()); diff != "" {
		t.Error(diff)
	}
	if !slices.Contains(s.asked, "GET /api/v1/links/lnk_3/explain?device=phone&percent=0") || !slices.Contains(s.asked, "GET /api/v1/links/available?slug=sale") {
		t.Errorf("the requests %q lack the explanation or the slug check", s.asked)
	}
	asked := len(s.asked)
	for _, wrong := range []clitest.Args{
		{"url": "https://e.example/", "rules": []any{clitest.Args{"name": "a", "url": "https://e.example/", "when": clitest.Args{"browser": []string{"x"}}}}},
		{"url": "https://e.example/", "redirectType": 303},
	} {
		if res := k.Call("create_link", wrong); !res.IsError || len(s.asked) > asked {
			t.Errorf("create_link with %v returned %s, want an error without a request", wrong, clitest.Said(res))
		}
	}
}

func TestADomainsPages(t *testing.T) {
	t.Parallel()
	s := &scripted{answers: map[string]string{"PATCH /api/v1/domains/dom_1": `{"id":"dom_1","hostname":"go.example","status":"verified","certificate":{"status":"none"},"homeUrl":"https://e.example/home"}`}}
	got := s.run(t, "", "domains", "update", "dom_1", "--home", "https://e.example/home", "--expired=")
	if got.code != 0 || !strings.Contains(got.out, "https://e.example/home") || strings.Contains(got.out, "not found") {
		t.Errorf("domains update returned %+v, want the new home URL", got)
	}
	if want := `PATCH /api/v1/domains/dom_1 {"homeUrl":"https://e.example/home","expiredUrl":null}`; len(s.asked) != 1 || s.asked[0] != want {
		t.Errorf("the requests are %q, want %q", s.asked, want)
	}
	if got := s.run(t, "", "domains", "update", "dom_1"); got.code != ExitUsage || len(s.asked) != 1 {
		t.Errorf("an update without changes returned %+v with requests %q, want exit code 2 and no new request", got, s.asked)
	}
}
