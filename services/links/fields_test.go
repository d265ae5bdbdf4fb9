package links_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links"
)

// decides lists the record fields that determine the response to a visitor.
var decides = []string{"redirectType", "forwardQuery", "forwardPath", "startsAt", "expiresAt", "expiredUrl", "hasPassword", "maxClicks", "hasRules", "rules", "status"}

// script is a golden transcript of calls.
type script struct {
	strings.Builder
	r        *replica
	key      string
	replaces []string // pairs: a string that differs in each run, and its replacement
}

func (s *script) note(format string, values ...any) {
	s.WriteString(strings.NewReplacer(s.replaces...).Replace(fmt.Sprintf(format, values...)) + "\n")
}

// text returns value as one line of JSON.
func text(value any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(value) // encoding a map of plain values never fails
	return strings.TrimSpace(b.String())
}

// only returns the fields in a record that differ from a plain link's.
func only(record map[string]any, plain map[string]any) string {
	shown := map[string]any{}
	for _, field := range decides {
		if value, ok := record[field]; ok && text(value) != text(plain[field]) {
			shown[field] = value
		}
	}
	return text(shown)
}

// problems returns an error's details, one per line.
func problems(body map[string]any) string {
	e, _ := body["error"].(map[string]any)
	if e == nil {
		return "  no error"
	}
	out := fmt.Sprint("  ", e["code"])
	details, _ := e["details"].([]any)
	if len(details) == 0 {
		out += fmt.Sprint(": ", e["message"])
	}
	for _, d := range details {
		m, _ := d.(map[string]any)
		out += fmt.Sprintf("\n    %s %s: %s", m["field"], m["code"], m["message"])
	}
	return out
}

// firstItem returns the result for the only item in a bulk call.
func firstItem(a answer) map[string]any {
	list, _ := a.json["results"].([]any)
	if len(list) == 0 {
		return a.json
	}
	item, _ := list[0].(map[string]any)
	return item
}

// listed returns a link from the account's list.
func (s *script) listed(slug string) map[string]any {
	list, _ := s.r.api(s.key, "GET", "/api/v1/links?slug="+slug, nil).json["data"].([]any)
	if len(list) != 1 {
		s.r.t.Fatalf("got %d links with slug %s, want 1", len(list), slug)
	}
	item, _ := list[0].(map[string]any)
	return item
}

// exported returns a link from the account's export.
func (s *script) exported(slug string) map[string]any {
	var out bytes.Buffer
	if err := s.r.holder().Export(s.r.t.Context(), "acc_a", &out); err != nil {
		s.r.t.Fatal(err)
	}
	lines := bufio.NewScanner(&out)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var line struct {
			Type string
			Data map[string]any
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err == nil && line.Type == "link" && line.Data["slug"] == slug {
			return line.Data
		}
	}
	s.r.t.Fatalf("the export does not contain link %s", slug)
	return nil
}

func (c *world) script(t *testing.T) *script {
	r := c.replica(t, func(cfg *links.Config) {
		cfg.CountryHeader, cfg.TrustedProxies = "CF-IPCountry", []netip.Prefix{netip.MustParsePrefix("0.0.0.0/32")}
	})
	return &script{r: r, key: c.keys.Key(t, "acc_a", identity.Business)}
}

// Each case sets one field to one value on every route that accepts it. The transcript records the
// value in every response that contains it.
func TestEachFieldIsTheSameOnEveryRoute(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	s := c.script(t)
	plain := s.r.api(s.key, "GET", "/api/v1/links/"+s.r.create(s.key, map[string]any{"url": "https://example.com/"}).str("id"), nil).json
	phones := map[string]any{"device": []any{"mobile", "tablet"}, "system": []any{"ios"}, "country": []any{"de", "AT"}, "language": []any{"EN-us"}}
	for i, one := range []struct {
		field string
		value any
		more  map[string]any // other fields that the case needs
	}{
		{field: "redirectType", value: 301}, {field: "redirectType", value: 302}, {field: "redirectType", value: 308},
		{field: "forwardQuery", value: true}, {field: "forwardQuery", value: false}, {field: "forwardPath", value: true},
		{field: "startsAt", value: 4102444800000}, {field: "startsAt", value: "2100-01-01"}, {field: "startsAt", value: "2100-01-01T02:00:00+02:00"},
		{field: "expiresAt", value: 946684800000}, {field: "expiresAt", value: "Jan 1, 2100"},
		{field: "expiredUrl", value: "HTTPS://Example.COM/über?x#y"},
		{field: "password", value: " Correct horse ü "}, {field: "maxClicks", value: 1}, {field: "maxClicks", value: 1000000000},
		{field: "rules", value: []any{}},
		{field: "rules", value: []any{
			rule(" phones ", "https://example.com/phones", phones),
			rule("campaign", "https://example.com/c", map[string]any{"query": map[string]any{"utm_source": "*", "x y": "1"}, "from": "2026-01-01T00:00:00Z", "until": 4102444800000}),
			rule("half", "https://example.com/half", map[string]any{"percent": 50}),
		}},
	} {
		s.note("# %s %s", one.field, text(one.value))
		set := map[string]any{"url": "https://example.com/", one.field: one.value}
		slug := func(how string) string { return fmt.Sprint(how, i) }
		made := maps.Clone(set)
		made["slug"] = slug("created")
		id := s.r.create(s.key, made).str("id")
		show := func(how string, record map[string]any) { s.note("%-24s %s", how, only(record, plain)) }
		get := func(id string) map[string]any { return s.r.api(s.key, "GET", "/api/v1/links/"+id, nil).json }
		created := get(id)
		show("create, get", created)
		show("create, list", s.listed(slug("created")))

		item := maps.Clone(set)
		item["slug"] = slug("bulk")
		bulk := firstItem(s.r.api(s.key, "POST", "/api/v1/links/bulk", map[string]any{"urls": []any{item}}))
		if bulk["status"] != 201.0 {
			t.Fatalf("bulk item: %v, want 201", bulk)
		}
		show("bulk item, get", get(bulk["data"].(map[string]any)["id"].(string)))

		bare := s.r.create(s.key, map[string]any{"url": "https://example.com/", "slug": slug("patched")}).str("id")
		patch := func(how string, body map[string]any) {
			if a := s.r.api(s.key, "PATCH", "/api/v1/links/"+bare, body); a.status != 200 {
				t.Fatalf("PATCH %v: %v, want 200", body, a)
			}
			show(how, get(bare))
		}
		patch("PATCH, get", map[string]any{one.field: one.value})
		many := s.r.api(s.key, "PATCH", "/api/v1/links/bulk", map[string]any{"ids": []any{bare}, "set": map[string]any{one.field: one.value}})
		s.note("%-24s %d\n%s", "PATCH of several", many.status, problems(many.json))
		patch("PATCH of another field", map[string]any{"title": "T"})
		patch("PATCH with null", map[string]any{one.field: nil})

		e := s.r.api(s.key, "GET", "/api/v1/links/"+id+"/explain?device=phone&system=ios&country=DE&language=en-US&percent=0", nil)
		s.note("%-24s %s", "explain", text(e.json))

		// An exported link can be imported again.
		again := s.exported(slug("created"))
		show("export", again)
		delete(again, "domainId") // an ID from the installation that wrote the export
		again["url"], again["slug"] = again["destinationUrl"], slug("imported")
		back := s.r.api(s.key, "POST", "/api/v1/links", again)
		if one.field == "password" {
			s.note("import\n%s", problems(back.json))
			again["password"] = one.value
			back = s.r.api(s.key, "POST", "/api/v1/links", again)
		}
		if back.status != 201 {
			t.Fatalf("import %v: %v, want 201", again, back)
		}
		if got := only(get(back.str("id")), plain); got != only(created, plain) {
			t.Errorf("imported link = %s, want %s", got, only(created, plain))
		}
		s.note("%-24s the same\n", "import of the export")
	}
	golden(t, "fields.txt", s.String())
}

// wrongValues lists values that each field rejects.
func wrongValues() []struct {
	field  string
	values []any
} {
	when := func(when map[string]any) any { return []any{rule("a", "https://e.example/", when)} }
	phone := map[string]any{"device": []any{"phone"}}
	to := func(url string) any { return []any{rule("a", url, phone)} }
	many := []any{}
	for i := range 21 {
		many = append(many, rule(fmt.Sprint(i), "https://e.example/", phone))
	}
	long := map[string]any{}
	for i := range 10 {
		long[fmt.Sprint("p", i)] = strings.Repeat("x", 250)
	}
	heavy := []any{}
	for i := range 10 {
		heavy = append(heavy, rule(fmt.Sprint(i), "https://e.example/", map[string]any{"query": long}))
	}
	addresses := []any{"", "x", "ftp://e.example/", "http:///x", "https://u:p@e.example/", "https://", "//e.example/", "javascript:alert(1)", "https://e.example/\n", shortBase + "/x", "https://LRL.example./x", "https://" + strings.Repeat("x", 8192), 5, []any{}}
	rules := []any{"x", 5, map[string]any{}, []any{5}, []any{map[string]any{}}, many, heavy}
	for _, url := range addresses[:len(addresses)-3] {
		rules = append(rules, to(url.(string)))
	}
	for _, w := range []map[string]any{
		{}, {"browser": []any{"x"}}, {"device": []any{}}, {"device": []any{"watch"}}, {"device": "phone"}, {"system": []any{"beos"}},
		{"country": []any{"Germany"}}, {"country": []any{"QQ"}}, {"language": []any{"de_DE"}}, {"language": []any{""}}, {"query": map[string]any{}},
		{"query": map[string]any{"": "x"}}, {"query": map[string]any{"x": 1}}, {"query": map[string]any{"x": "\x00"}}, {"percent": 0}, {"percent": 100}, {"percent": 1.5},
		{"from": "tomorrow"}, {"from": "2026-01-01"}, {"until": "2100-01-01T00:00:00"}, {"until": 9e15}, {"from": 2e12, "until": 1e12}, {"from": 1e12, "until": 1e12},
	} {
		rules = append(rules, when(w))
	}
	rules = append(rules, []any{rule(" ", "https://e.example/", phone)}, []any{rule(strings.Repeat("x", 101), "https://e.example/", phone)},
		[]any{rule("a\tb", "https://e.example/", phone)}, []any{rule("(Other)", "https://e.example/", phone)},
		[]any{rule("a", "https://e.example/", phone), rule("A ", "https://e.example/", phone)},
		[]any{map[string]any{"name": "a", "url": "https://e.example/", "when": phone, "weight": 5}})
	return []struct {
		field  string
		values []any
	}{
		{"redirectType", []any{0, 200, 303, 307, 301.5, -301, "301", true}},
		{"forwardQuery", []any{"true", 1, []any{}}},
		{"forwardPath", []any{"yes", 0}},
		{"startsAt", []any{"tomorrow", "", 8.64e15 + 1, true, map[string]any{}}},
		{"expiresAt", []any{"never", "", -8.64e15 - 1, false}},
		{"expiredUrl", addresses},
		{"password", []any{"", strings.Repeat("ü", 257), 5, false}},
		{"maxClicks", []any{0, -1, 1.5, 1000000001, "10", true}},
		{"rules", rules},
	}
}

func TestEachWrongValueHasASentence(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	s := c.script(t)
	id := s.r.create(s.key, map[string]any{"url": "https://example.com/"}).str("id")
	path := "/api/v1/links/" + id
	before := s.r.api(s.key, "GET", path, nil)
	shortened := func(value any) string {
		if out := text(value); len(out) > 160 {
			return out[:150] + fmt.Sprintf("… (%d bytes)", len(out))
		}
		return text(value)
	}
	for _, w := range wrongValues() {
		for _, value := range w.values {
			body := map[string]any{"url": "https://example.com/", w.field: value}
			create := s.r.api(s.key, "POST", "/api/v1/links", body)
			patch := s.r.api(s.key, "PATCH", path, map[string]any{w.field: value})
			item := firstItem(s.r.api(s.key, "POST", "/api/v1/links/bulk", map[string]any{"urls": []any{body}}))
			answers := []string{problems(create.json), problems(patch.json), problems(item)}
			if create.status != 400 || patch.status != 400 || item["status"] != 400.0 {
				t.Errorf("%s %s: create %v, PATCH %v, bulk item %v; want 400", w.field, shortened(value), create, patch, item)
			}
			s.note("%s %s", w.field, shortened(value))
			if slices.Equal(answers, slices.Repeat(answers[:1], 3)) {
				s.note("%s", answers[0])
				continue
			}
			for i, how := range []string{"create", "PATCH", "bulk item"} {
				s.note("  %s\n%s", how, answers[i])
			}
		}
		s.note("")
	}
	if after := s.r.api(s.key, "GET", path, nil); after.text != before.text {
		t.Errorf("link after rejected requests = %s, want %s", after.text, before.text)
	}
	golden(t, "wrong.txt", s.String())
}

// Mutually exclusive fields are checked on the record that would result from the change.
func TestFieldsThatExcludeEachOther(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	s := c.script(t)
	const sooner, later = 4102444800000, 4102444900000
	for _, one := range []struct{ made, patch map[string]any }{
		{nil, map[string]any{"redirectType": 301, "password": "x"}},
		{nil, map[string]any{"redirectType": 308, "maxClicks": 5}},
		{nil, map[string]any{"redirectType": 308, "maxClicks": 5, "password": "x"}},
		{nil, map[string]any{"startsAt": later, "expiresAt": sooner}},
		{nil, map[string]any{"startsAt": sooner, "expiresAt": sooner}},
		{nil, map[string]any{"redirectType": 302, "password": "x", "maxClicks": 5, "startsAt": sooner, "expiresAt": later}},
		{map[string]any{"password": "x"}, map[string]any{"redirectType": 301}},
		{map[string]any{"password": "x"}, map[string]any{"redirectType": 301, "password": nil}},
		{map[string]any{"password": "x"}, map[string]any{"redirectType": 301, "password": "y"}},
		{map[string]any{"maxClicks": 5}, map[string]any{"redirectType": 301}},
		{map[string]any{"maxClicks": 5}, map[string]any{"redirectType": 301, "maxClicks": nil}},
		{map[string]any{"redirectType": 301}, map[string]any{"password": "x"}},
		{map[string]any{"redirectType": 301}, map[string]any{"password": "x", "redirectType": 302}},
		{map[string]any{"redirectType": 301}, map[string]any{"maxClicks": 5, "redirectType": nil}},
		{map[string]any{"redirectType": 301}, map[string]any{"maxClicks": 5}},
		{map[string]any{"redirectType": 301}, map[string]any{"title": "T"}},
		{map[string]any{"expiresAt": sooner}, map[string]any{"startsAt": later}},
		{map[string]any{"expiresAt": sooner}, map[string]any{"startsAt": later, "expiresAt": nil}},
		{map[string]any{"startsAt": later}, map[string]any{"expiresAt": sooner}},
		{map[string]any{"startsAt": later}, map[string]any{"expiresAt": sooner, "startsAt": nil}},
		{map[string]any{"startsAt": sooner, "expiresAt": later}, map[string]any{"startsAt": later, "expiresAt": later + 1}},
	} {
		if one.made == nil {
			s.note("create %s", text(one.patch))
			body := maps.Clone(one.patch)
			body["url"] = "https://example.com/"
			a := s.r.api(s.key, "POST", "/api/v1/links", body)
			s.note("  %d\n%s\n", a.status, problems(a.json))
			continue
		}
		s.note("link %s, PATCH %s", text(one.made), text(one.patch))
		body := maps.Clone(one.made)
		body["url"] = "https://example.com/"
		a := s.r.api(s.key, "PATCH", "/api/v1/links/"+s.r.create(s.key, body).str("id"), one.patch)
		s.note("  %d\n%s\n", a.status, problems(a.json))
	}
	golden(t, "together.txt", s.String())
}

// Links keep working when an account moves to a lower plan.
func TestALowerPlanStopsNoLink(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	s := c.script(t)
	phone := []any{rule("phones", "https://example.com/phone", map[string]any{"device": []any{"phone"}})}
	ids := map[string]string{}
	for slug, body := range map[string]map[string]any{
		"ruled": {"rules": phone}, "locked": {"password": "secret"}, "limited": {"maxClicks": 2}, "over": {"expiredUrl": "https://example.com/over", "expiresAt": 946684800000},
		"later": {"startsAt": 4102444800000}, "moved": {"redirectType": 301, "forwardPath": true, "forwardQuery": true},
	} {
		body["url"], body["slug"] = "https://example.com/", slug
		ids[slug] = s.r.create(s.key, body).str("id")
	}
	visits := func() (out []string) {
		for _, at := range []string{"/ruled", "/locked", "/limited", "/over", "/later", "/moved/a?b=c"} {
			out = append(out, fmt.Sprintf("%-14s %s", at, told(s.r.visit(at, "User-Agent", iphone))))
		}
		return append(out, "right password "+told(s.r.give("/locked", "secret")))
	}
	before := visits()
	c.keys.Change("acc_a", func(r *apikey.Record) { r.Plan, r.Version = identity.Free, r.Version+1 })
	c.forward(6e9) // replicas reload a key after five seconds
	if after := visits(); !slices.Equal(before, after) {
		t.Errorf("visits on the lower plan = %q, want %q as on the higher plan", after, before)
	}
	s.note("%s\n", strings.Join(before, "\n"))
	s.note("limit after both visits: %s\n", told(s.r.visit("/limited", "User-Agent", iphone)))
	for _, change := range []struct {
		slug string
		body map[string]any
	}{
		{"ruled", map[string]any{"rules": nil}}, {"ruled", map[string]any{"rules": phone}}, {"locked", map[string]any{"password": "other"}},
		{"limited", map[string]any{"maxClicks": 9}}, {"over", map[string]any{"expiredUrl": nil}}, {"moved", map[string]any{"redirectType": 302}},
	} {
		a := s.r.api(s.key, "PATCH", "/api/v1/links/"+ids[change.slug], change.body)
		s.note("PATCH %s: %d\n%s", text(change.body), a.status, problems(a.json))
	}
	for slug, id := range ids {
		if a := s.r.api(s.key, "GET", "/api/v1/links/"+id, nil); a.status != 200 {
			t.Errorf("GET %s: %v, want 200", slug, a)
		}
		if a := s.r.api(s.key, "GET", "/api/v1/links/"+id+"/explain", nil); a.status != 200 {
			t.Errorf("explain %s: %v, want 200", slug, a)
		}
	}
	c.keys.Change("acc_a", func(r *apikey.Record) { r.Plan, r.Version = identity.Creator, r.Version+1 })
	c.forward(6e9)
	want(t, "edit on the higher plan", s.r.api(s.key, "PATCH", "/api/v1/links/"+ids["ruled"], map[string]any{"rules": phone}), 200, "")
	golden(t, "plan.txt", s.String())
}
