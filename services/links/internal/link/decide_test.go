package link

import (
	"compress/gzip"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func from(d time.Duration) Moment { return At(noon.Add(d).UnixMilli()) }

func leadsTo(address string) URL { return URL{address, address} }

func TestDecideInOneOrder(t *testing.T) {
	t.Parallel()
	blocked := blocklistOf(t, "blocked.example")
	plain := Target{LinkID: "l", Location: "https://a.example/"}
	with := func(r Routing) *Target {
		target := plain
		target.Routing = &r
		return &target
	}
	ended := func(target *Target) *Target { target.Expiry = from(-time.Second); return target }
	taken := func(target *Target) *Target { target.TakenDown = true; return target }
	page := leadsTo("https://ended.example/")
	pages := &Pages{NotFound: "https://nothing.example/", Expired: "https://over.example/"}
	always := Rule{Name: "all", When: When{From: from(-time.Hour)}, URL: leadsTo("https://rule.example/")}
	barred := always
	barred.URL = leadsTo("https://www.blocked.example/")
	home := always
	home.URL = leadsTo("https://go.example/x")
	for name, c := range map[string]struct {
		target   *Target
		visit    Visit
		around   Surroundings
		outcome  Outcome
		status   int
		location string
		age      int
	}{
		"unknown link": {nil, Visit{}, Surroundings{}, Missing, 404, "", -1},
		"unknown link, host with a not-found page": {nil, Visit{}, Surroundings{Pages: pages}, Missing, 302, "https://nothing.example/", -1},
		"plain":                                  {&plain, Visit{}, Surroundings{}, Led, 302, "https://a.example/", -1},
		"plain link with a path":                 {&plain, Visit{Path: "/x"}, Surroundings{}, Missing, 404, "", -1},
		"plain link with a query":                {&plain, Visit{Query: "a=b"}, Surroundings{}, Led, 302, "https://a.example/", -1},
		"suspension takes precedence":            {ended(taken(with(Routing{}))), Visit{}, Surroundings{Suspended: true}, OutOfService, 410, "", -1},
		"taken down, not started":                {taken(with(Routing{StartsAt: from(time.Hour)})), Visit{}, Surroundings{}, TakenDown, 410, "", -1},
		"taken down, expired, with pages":        {ended(taken(with(Routing{ExpiredURL: &page}))), Visit{}, Surroundings{Pages: pages}, TakenDown, 410, "", -1},
		"one millisecond before the start":       {with(Routing{StartsAt: from(time.Millisecond)}), Visit{}, Surroundings{Pages: pages}, NotYet, 404, "", -1},
		"at the start":                           {with(Routing{StartsAt: from(0)}), Visit{}, Surroundings{}, Led, 302, "https://a.example/", -1},
		"expired":                                {ended(with(Routing{ForwardQuery: true})), Visit{}, Surroundings{}, Over, 410, "", -1},
		"expired, host's page":                   {ended(with(Routing{ForwardQuery: true})), Visit{}, Surroundings{Pages: pages}, Over, 302, "https://over.example/", -1},
		"expired, link's page":                   {ended(with(Routing{ExpiredURL: &page})), Visit{Query: "a"}, Surroundings{Pages: pages}, Over, 302, "https://ended.example/", -1},
		"expired, blocked destination":           {ended(with(Routing{Rules: []Rule{barred}})), Visit{}, Surroundings{Blocked: blocked}, Over, 410, "", -1},
		"rule matches":                           {with(Routing{Rules: []Rule{always}}), Visit{}, Surroundings{}, Led, 302, "https://rule.example/", -1},
		"rule with a blocked destination":        {with(Routing{Rules: []Rule{barred}}), Visit{}, Surroundings{Blocked: blocked}, TakenDown, 410, "", -1},
		"rule that points to the default host":   {with(Routing{Rules: []Rule{home}}), Visit{}, Surroundings{Own: Hosts{{Name: "go.example"}}}, TakenDown, 410, "", -1},
		"rule that points to the visited domain": {with(Routing{Rules: []Rule{home}}), Visit{Host: "go.example"}, Surroundings{}, TakenDown, 410, "", -1},
		"permanent":                              {with(Routing{RedirectType: 301}), Visit{}, Surroundings{}, Led, 301, "https://a.example/", 60},
		"permanent, until the next rule starts": {
			with(Routing{RedirectType: 308, Rules: []Rule{{Name: "x", When: When{From: from(1900 * time.Millisecond)}, URL: page}}}),
			Visit{}, Surroundings{}, Led, 308, "https://a.example/", 1,
		},
		"permanent, expired":           {ended(with(Routing{RedirectType: 301, ExpiredURL: &page})), Visit{}, Surroundings{}, Over, 302, "https://ended.example/", -1},
		"exhausted":                    {with(Routing{MaxClicks: 5}), Visit{}, Surroundings{Exhausted: true}, Exhausted, 410, "", -1},
		"exhausted, with a password":   {with(Routing{MaxClicks: 5, Password: "x", ExpiredURL: &page}), Visit{}, Surroundings{Exhausted: true}, Exhausted, 302, "https://ended.example/", -1},
		"password, blocked rule":       {with(Routing{Password: "x", Rules: []Rule{barred}}), Visit{}, Surroundings{Blocked: blocked}, Locked, 200, "", -1},
		"expired, with a password":     {ended(with(Routing{Password: "x"})), Visit{}, Surroundings{}, Over, 410, "", -1},
		"correct password":             {with(Routing{Password: "x", Rules: []Rule{always}}), Visit{}, Surroundings{Unlocked: true}, Led, 303, "https://rule.example/", -1},
		"not started, with a password": {with(Routing{Password: "x", StartsAt: from(time.Hour)}), Visit{}, Surroundings{}, NotYet, 404, "", -1},
		"path and query forwarded": {
			with(Routing{ForwardPath: true, ForwardQuery: true}), Visit{Path: "/b/", Query: "x=1"}, Surroundings{}, Led, 302, "https://a.example/b/?x=1", -1,
		},
		"path forwarded to a rule's destination": {
			with(Routing{ForwardPath: true, Rules: []Rule{always}}), Visit{Path: "/b", Query: "x"}, Surroundings{}, Led, 302, "https://rule.example/b", -1,
		},
		"path with a traversal, expired": {ended(with(Routing{ForwardPath: true})), Visit{Path: "/../b"}, Surroundings{}, Missing, 404, "", -1},
		"path with a traversal":          {with(Routing{ForwardPath: true}), Visit{Path: "/../b"}, Surroundings{}, Missing, 404, "", -1},
	} {
		c.visit.At = noon
		d := Decide(c.target, &c.visit, &c.around)
		if d.Outcome != c.outcome || d.Status != c.status || d.Location != c.location || d.MaxAge != c.age {
			t.Errorf("%s: Decide = %+v, want outcome %d, status %d, location %q, max age %d", name, d, c.outcome, c.status, c.location, c.age)
		}
		if why := d.Why(); !strings.HasSuffix(why, ".") {
			t.Errorf("%s: Why() = %q, want a sentence that ends with a period", name, why)
		}
	}
}

func TestRulesHold(t *testing.T) {
	t.Parallel()
	visit := Visit{
		At: noon, Country: "DE", Device: Mobile, System: IOS, Language: "de-AT, en;q=0.9", Query: "a=1&b=%C3%BC&c", Place: func(string) int { return 30 },
	}
	for name, c := range map[string]struct {
		when  When
		holds bool
	}{
		"country":                             {When{Countries: []string{"AT", "DE"}}, true},
		"other country":                       {When{Countries: []string{"AT"}}, false},
		"device":                              {When{Devices: []Device{Mobile}}, true},
		"other device":                        {When{Devices: []Device{Desktop, Tablet}}, false},
		"system":                              {When{Systems: []System{IOS}}, true},
		"other system":                        {When{Systems: []System{OtherSystem}}, false},
		"language":                            {When{Languages: []string{"de"}}, true},
		"language in a different case":        {When{Languages: []string{"DE-at"}}, true},
		"more specific language":              {When{Languages: []string{"de-CH"}}, false},
		"language with a lower weight":        {When{Languages: []string{"en"}}, false},
		"prefix of a language tag":            {When{Languages: []string{"d"}}, false},
		"query":                               {When{Query: map[string]string{"a": "1", "b": "ü"}}, true},
		"query with any value":                {When{Query: map[string]string{"c": "*"}}, true},
		"query with a different value":        {When{Query: map[string]string{"a": "2"}}, false},
		"query parameter in a different case": {When{Query: map[string]string{"A": "1"}}, false},
		"period starts now":                   {When{From: from(0)}, true},
		"period starts later":                 {When{From: from(time.Millisecond)}, false},
		"period ends later":                   {When{Until: from(time.Millisecond)}, true},
		"period ends now":                     {When{Until: from(0)}, false},
		"only one of two conditions met":      {When{Devices: []Device{Mobile}, Countries: []string{"AT"}}, false},
		"bucket within the share":             {When{Percent: 31}, true},
		"bucket outside the share":            {When{Percent: 30}, false},
	} {
		r := Routing{Rules: []Rule{{Name: name, When: c.when, URL: leadsTo("https://r.example/")}}}
		if rule, _ := r.choose(&visit); (rule != nil) != c.holds {
			t.Errorf("%s: the rule matches = %v, want %v", name, rule != nil, c.holds)
		}
		// A condition on an unknown value is not met. The time is always known.
		if rule, _ := r.choose(&Visit{At: noon}); rule != nil && !c.when.From.Set && !c.when.Until.Set {
			t.Errorf("%s: the rule matches a visit with no known properties, want no match", name)
		}
	}
}

func TestFavourites(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"": "", "*": "", "de": "de", "de, en": "de en", "de;q=0.5, en;q=0.8,fr;q=0.8": "en fr", "de;q=0": "", "de;q=2, en;q=0.1": "en",
		"*, de;q=0.9": "de", " de ; q = 1 ,en;q=1.0": "de en", "de;q=x": "", ",,": "", "de," + strings.Repeat("en,", 100): "",
	} {
		if got := strings.Join(favourites(header), " "); got != want {
			t.Errorf("favourites(%q) = %q, want %q", header, got, want)
		}
	}
}

func TestSharesFollowEachOther(t *testing.T) {
	t.Parallel()
	share := func(name string, percent int, countries ...string) Rule {
		return Rule{Name: name, When: When{Percent: percent, Countries: countries}, URL: leadsTo("https://r.example/")}
	}
	count := func(country string, rules ...Rule) map[string]int {
		out := map[string]int{}
		for place := range 100 {
			rule, split := (&Routing{Rules: rules}).choose(&Visit{At: noon, Country: country, Place: func(string) int { return place }})
			name := ""
			if rule != nil {
				name = rule.Name
			}
			if out[name]++; split {
				t.Error("choose reports an unknown bucket, but the visit has one; want it known")
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		got  map[string]int
		want map[string]int
	}{
		"50 and 50":                         {count("", share("a", 50), share("b", 50)), map[string]int{"a": 50, "b": 50}},
		"33, 33 and no rule for the rest":   {count("", share("a", 33), share("b", 33)), map[string]int{"a": 33, "b": 33, "": 34}},
		"1 and 99":                          {count("", share("a", 1), share("b", 99)), map[string]int{"a": 1, "b": 99}},
		"sum above 100":                     {count("", share("a", 60), share("b", 60), share("c", 60)), map[string]int{"a": 60, "b": 40}},
		"earlier rule for another country":  {count("DE", share("a", 50, "FR"), share("b", 50)), map[string]int{"b": 50, "": 50}},
		"earlier rule for the same country": {count("FR", share("a", 50, "FR"), share("b", 50)), map[string]int{"a": 50, "b": 50}},
	} {
		for rule, n := range c.want {
			if c.got[rule] != n {
				t.Errorf("%s: visits by rule = %v, want %v", name, c.got, c.want)
			}
		}
	}
	r := Routing{Rules: []Rule{share("a", 50)}}
	if rule, split := r.choose(&Visit{At: noon}); rule != nil || !split {
		t.Errorf("choose(visit without a bucket) = %v, %v; want no rule, true", rule, split)
	}
}

func TestCheckRulesTidiesAndRefuses(t *testing.T) {
	t.Parallel()
	tidy, bad := CheckRules([]Rule{{
		Name: " A ", When: When{Countries: []string{"de"}, Languages: []string{"PT-br", "zh-hant-tw", "xx-unheard"}}, URL: leadsTo("https://a.example/"),
	}}, true)
	if len(bad) > 0 || tidy[0].Name != "A" || tidy[0].When.Countries[0] != "DE" || !slices.Equal(tidy[0].When.Languages, []string{"pt-BR", "zh-Hant-TW", "xx-unheard"}) {
		t.Errorf("CheckRules = %+v, %v; want name A, country DE, languages pt-BR, zh-Hant-TW, xx-unheard", tidy, bad)
	}
	phone := When{Devices: []Device{Mobile}}
	many := make([]Rule, 21)
	large := make([]Rule, 20)
	for i := range large {
		many[i] = Rule{Name: strings.Repeat("x", i+1), When: phone}
		large[i] = Rule{Name: strings.Repeat("x", i+1), When: phone, URL: leadsTo("https://a.example/" + strings.Repeat("y", 500))}
	}
	for field, rules := range map[string][]Rule{
		"rules":                   many,
		"rules.0.name":            {{When: phone}},
		"rules.2.name":            {{Name: "a", When: phone}, {Name: "b", When: phone}, {Name: "(Other)", When: phone}},
		"rules.1.name":            {{Name: "A", When: phone}, {Name: " a", When: phone}},
		"rules.0.when":            {{Name: "a"}},
		"rules.0.when.country":    {{Name: "a", When: When{Countries: []string{"DE"}}}},
		"rules.0.when.language.0": {{Name: "a", When: When{Languages: []string{"d_e"}}}},
		"rules.0.when.query":      {{Name: "a", When: When{Query: map[string]string{"": "x"}}}},
		"rules.0.when.from":       {{Name: "a", When: When{From: At(5), Until: At(5)}}},
	} {
		if _, bad := CheckRules(rules, false); len(bad) != 1 || bad[0].Field != field {
			t.Errorf("CheckRules reports %v, want one problem with %s", bad, field)
		}
	}
	if _, bad := CheckRules(large, true); len(bad) != 1 || bad[0].Field != "rules" {
		t.Errorf("CheckRules(20 rules of 1 kB) reports %v, want one problem with rules", bad)
	}
}

func TestWithPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"": "https://a.example/x?q#f", "/": "https://a.example/x/?q#f", "/a/b": "https://a.example/x/a/b?q#f", "//a": "https://a.example/x//a?q#f",
		"/a%20b": "https://a.example/x/a%20b?q#f", "/ü": "https://a.example/x/%C3%BC?q#f", "/a b": "https://a.example/x/a%20b?q#f",
		"/...": "https://a.example/x/...?q#f", "/a+": "https://a.example/x/a+?q#f", "/%252e%252e": "https://a.example/x/%252e%252e?q#f",
		"/.": "", "/..": "", "/a/../b": "", "/%2e": "", "/%2E%2e/b": "", "/.%2e": "", "/a%2fb": "", "/a%2Fb": "", `/a\b`: "", "/a%5cb": "", "/a%00": "",
		"/%": "", "/%zz": "", "/%a": "", "/" + strings.Repeat("a", 2048): "", "/..;/a": "https://a.example/x/..;/a?q#f",
	} {
		got := ""
		if path == "" || forwardable(path) {
			got = WithPath("https://a.example/x?q#f", path)
		}
		if got != want {
			t.Errorf("WithPath(%q) = %q, want %q", path, got, want)
		}
	}
	if got := WithPath("https://a.example/", "/b"); got != "https://a.example/b" {
		t.Errorf("WithPath(\"https://a.example/\", \"/b\") = %q, want one slash", got)
	}
}

func TestWithQuery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ address, query, want string }{
		{"https://a.example/", "", "https://a.example/"},
		{"https://a.example/", "&&", "https://a.example/"},
		{"https://a.example/", "x=1&&y", "https://a.example/?x=1&y"},
		{"https://a.example/#f", "x=1", "https://a.example/?x=1#f"},
		{"https://a.example/?", "x=1", "https://a.example/?x=1"},
		{"https://a.example/?x=0#f?", "x=1&y=2&x=3", "https://a.example/?x=0&y=2#f?"},
		{"https://a.example/?x=0", "X=1", "https://a.example/?x=0&X=1"},
		{"https://a.example/?a%20b=0", "a+b=1", "https://a.example/?a%20b=0"},
		{"https://a.example/?utm_source=o&x=1&utm_source=p", "utm_source=v&utm_source=w", "https://a.example/?utm_source=v&utm_source=w&x=1"},
		{"https://a.example/?utm_source=o", "utm_medium=m", "https://a.example/?utm_source=o&utm_medium=m"},
		{"https://a.example/?utm_id=o", "utm_id=m", "https://a.example/?utm_id=o"},
		{"https://a.example/?a=1&&b", "c", "https://a.example/?a=1&&b&c"},
		{"https://a.example/", "x=a b\"<>'ü\r\n", "https://a.example/?x=a%20b%22%3C%3E%27%C3%BC%0D%0A"},
		{"https://a.example/", "a;b=1", "https://a.example/?a;b=1"},
		{"https://a.example/?%zz=1", "%zz=2&%=3", "https://a.example/?%zz=1&%=3"},
		{"https://a.example/?%ff=1", "%FF=2", "https://a.example/?%ff=1"},
	} {
		if got := WithQuery(c.address, c.query); got != c.want {
			t.Errorf("WithQuery(%q, %q) = %q, want %q", c.address, c.query, got, c.want)
		}
	}
}

// The location is sent in a header. For any visitor input, it must be printable ASCII and keep the
// owner's host.
func FuzzForwarding(f *testing.F) {
	f.Add("/a/../b", "x=1&utm_source=%ff")
	f.Add("/%2e%2e//\\", "'\r\n\x00ü#?")
	f.Fuzz(func(t *testing.T, path, query string) {
		const base = "https://a.example/x/y?own=1#f"
		if path != "" && path[0] != '/' {
			path = "/" + path
		}
		if path != "" && !forwardable(path) {
			return
		}
		to := WithQuery(WithPath(base, path), query)
		if !strings.HasPrefix(to, "https://a.example/x/y") || strings.ContainsFunc(to, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("path %q, query %q: location %q, want printable ASCII on the owner's host", path, query, to)
		}
		u, problem := ParseURL(to, nil)
		if problem == nil && !strings.HasPrefix(u.Location, "https://a.example/x/y") {
			t.Fatalf("path %q, query %q: a browser opens %q, want the owner's host", path, query, u.Location)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	var rules []Rule
	for range 19 {
		rules = append(rules, Rule{When: When{Countries: []string{"FR"}, Languages: []string{"fr"}}})
	}
	rules = append(rules, Rule{When: When{Query: map[string]string{"a": "1"}}, URL: leadsTo("https://r.example/")})
	visit := Visit{At: noon, Country: "FR", Language: "de-DE,de;q=0.9,en;q=0.8", Query: "b=2&a=1"}
	for name, target := range map[string]*Target{
		"plain": {Location: "https://a.example/"}, "last of 20 rules": {Location: "https://a.example/", Routing: &Routing{Rules: rules}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := Decide(target, &visit, &Surroundings{}); d.Outcome != Led {
					b.Fatal(d)
				}
			}
		})
	}
}

func TestPlacesAreWithinBounds(t *testing.T) {
	t.Parallel()
	// Each of three splits divides 100,000 visitors. The tolerance is six standard deviations of
	// the binomial distribution.
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shares := range [][]int{{50, 50}, {33, 33}, {1, 99}} {
		var rules []Rule
		for i, percent := range shares {
			rules = append(rules, Rule{Name: string(rune('a' + i)), When: When{Percent: percent}})
		}
		r, got := Routing{Rules: rules}, map[string]int{}
		for range 100_000 {
			place := rng.IntN(100)
			rule, _ := r.choose(&Visit{At: noon, Place: func(string) int { return place }})
			if rule != nil {
				got[rule.Name]++
			}
		}
		for i, percent := range shares {
			if n := got[rules[i].Name]; abs(n-percent*1000) > 950 {
				t.Errorf("shares %v: rule %d got %d visitors, want %d ± 950", shares, i, n, percent*1000)
			}
		}
	}
}

func abs(n int) int { return max(n, -n) }

func blocklistOf(t *testing.T, hosts ...string) *Blocklist {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, []byte(strings.Join(hosts, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBlocklist(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// testdata/queries.mjs generated the table with Node's URL and URLSearchParams.
func TestWithQueryAsNodeMergesIt(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/queries.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][3]string
	if err := json.NewDecoder(unzipped).Decode(&rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2000 {
		t.Fatalf("the table has %d rows, want 2000", len(rows))
	}
	bad := 0
	for _, row := range rows {
		if got := WithQuery(row[0], row[1]); got != row[2] {
			if bad++; bad < 20 {
				t.Errorf("WithQuery(%q, %q)\n = %q\nwant %q", row[0], row[1], got, row[2])
			}
		}
	}
	if bad > 0 {
		t.Errorf("%d of %d rows differ, want 0", bad, len(rows))
	}
}

// A path with a traversal must get 404, no matter how or where the traversal is written.
func TestTraversalsAreNotForwarded(t *testing.T) {
	t.Parallel()
	dot, odd := []string{".", "%2e", "%2E"}, []string{"a%2fb", "a%2Fb", `a\b`, "a%5cb", "a%5Cb", "a%00b", "%2f..", `..\`, "%", "%g0", "%2"}
	segments := slices.Concat(odd, dot)
	for _, a := range dot {
		for _, b := range dot {
			segments = append(segments, a+b)
		}
	}
	target := &Target{Location: "https://a.example/x", Routing: &Routing{ForwardPath: true}}
	tried := 0
	for _, before := range []string{"/", "/a/", "//", "/a%20b/c/"} {
		for _, segment := range segments {
			for _, after := range []string{"", "/", "/b", "//b"} {
				tried++
				path := before + segment + after
				if d := Decide(target, &Visit{At: noon, Path: path}, &Surroundings{}); d.Outcome != Missing || d.Location != "" {
					t.Errorf("path %q: outcome %d, location %q; want Missing, no location", path, d.Outcome, d.Location)
				}
			}
		}
	}
	if tried < 200 {
		t.Errorf("tried %d paths, want at least 200", tried)
	}
}

// An older release may load rules with a device or system that it does not recognize. Such a rule
// must not match visitors with an unknown device or system.
func TestARuleWithAnUnknownWordFitsNobody(t *testing.T) {
	t.Parallel()
	device, _ := ParseDevice("watch")
	for name, when := range map[string]When{
		"device": {Devices: []Device{device}},
		"system": {Systems: []System{Systems["watchos"]}},
	} {
		target := Target{Location: "https://a.example/", Routing: &Routing{Rules: []Rule{{Name: "new", When: when, URL: leadsTo("https://rule.example/")}}}}
		if got := Decide(&target, &Visit{At: noon}, &Surroundings{}); got.Rule != nil {
			t.Errorf("rule with an unknown %s: location %q, want the link's own destination", name, got.Location)
		}
	}
}
