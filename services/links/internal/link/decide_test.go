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
		"no link":                           {nil, Visit{}, Surroundings{}, Missing, 404, "", -1},
		"no link, with a page":              {nil, Visit{}, Surroundings{Pages: pages}, Missing, 302, "https://nothing.example/", -1},
		"plain":                             {&plain, Visit{}, Surroundings{}, Led, 302, "https://a.example/", -1},
		"plain, a path":                     {&plain, Visit{Path: "/x"}, Surroundings{}, Missing, 404, "", -1},
		"plain, a query":                    {&plain, Visit{Query: "a=b"}, Surroundings{}, Led, 302, "https://a.example/", -1},
		"suspended before all":              {ended(taken(with(Routing{}))), Visit{}, Surroundings{Suspended: true}, OutOfService, 410, "", -1},
		"taken down before its start":       {taken(with(Routing{StartsAt: from(time.Hour)})), Visit{}, Surroundings{}, TakenDown, 410, "", -1},
		"taken down, no page":               {ended(taken(with(Routing{ExpiredURL: &page}))), Visit{}, Surroundings{Pages: pages}, TakenDown, 410, "", -1},
		"before its start":                  {with(Routing{StartsAt: from(time.Millisecond)}), Visit{}, Surroundings{Pages: pages}, NotYet, 404, "", -1},
		"at its start":                      {with(Routing{StartsAt: from(0)}), Visit{}, Surroundings{}, Led, 302, "https://a.example/", -1},
		"ended":                             {ended(with(Routing{ForwardQuery: true})), Visit{}, Surroundings{}, Over, 410, "", -1},
		"ended, the host's page":            {ended(with(Routing{ForwardQuery: true})), Visit{}, Surroundings{Pages: pages}, Over, 302, "https://over.example/", -1},
		"ended, its own page":               {ended(with(Routing{ExpiredURL: &page})), Visit{Query: "a"}, Surroundings{Pages: pages}, Over, 302, "https://ended.example/", -1},
		"ended before blocked":              {ended(with(Routing{Rules: []Rule{barred}})), Visit{}, Surroundings{Blocked: blocked}, Over, 410, "", -1},
		"a rule":                            {with(Routing{Rules: []Rule{always}}), Visit{}, Surroundings{}, Led, 302, "https://rule.example/", -1},
		"a blocked rule":                    {with(Routing{Rules: []Rule{barred}}), Visit{}, Surroundings{Blocked: blocked}, TakenDown, 410, "", -1},
		"a rule back to the default host":   {with(Routing{Rules: []Rule{home}}), Visit{}, Surroundings{Own: Hosts{{Name: "go.example"}}}, TakenDown, 410, "", -1},
		"a rule back to the visited domain": {with(Routing{Rules: []Rule{home}}), Visit{Host: "go.example"}, Surroundings{}, TakenDown, 410, "", -1},
		"permanent":                         {with(Routing{RedirectType: 301}), Visit{}, Surroundings{}, Led, 301, "https://a.example/", 60},
		"permanent until a rule changes": {
			with(Routing{RedirectType: 308, Rules: []Rule{{Name: "x", When: When{From: from(1900 * time.Millisecond)}, URL: page}}}),
			Visit{}, Surroundings{}, Led, 308, "https://a.example/", 1,
		},
		"permanent, ended":        {ended(with(Routing{RedirectType: 301, ExpiredURL: &page})), Visit{}, Surroundings{}, Over, 302, "https://ended.example/", -1},
		"exhausted":               {with(Routing{MaxClicks: 5}), Visit{}, Surroundings{Exhausted: true}, Exhausted, 410, "", -1},
		"exhausted before asking": {with(Routing{MaxClicks: 5, Password: "x", ExpiredURL: &page}), Visit{}, Surroundings{Exhausted: true}, Exhausted, 302, "https://ended.example/", -1},
		"asking before the rules": {with(Routing{Password: "x", Rules: []Rule{barred}}), Visit{}, Surroundings{Blocked: blocked}, Locked, 200, "", -1},
		"ended before asking":     {ended(with(Routing{Password: "x"})), Visit{}, Surroundings{}, Over, 410, "", -1},
		"the right password":      {with(Routing{Password: "x", Rules: []Rule{always}}), Visit{}, Surroundings{Unlocked: true}, Led, 303, "https://rule.example/", -1},
		"not begun before asking": {with(Routing{Password: "x", StartsAt: from(time.Hour)}), Visit{}, Surroundings{}, NotYet, 404, "", -1},
		"forwarded": {
			with(Routing{ForwardPath: true, ForwardQuery: true}), Visit{Path: "/b/", Query: "x=1"}, Surroundings{}, Led, 302, "https://a.example/b/?x=1", -1,
		},
		"forwarded by a rule": {
			with(Routing{ForwardPath: true, Rules: []Rule{always}}), Visit{Path: "/b", Query: "x"}, Surroundings{}, Led, 302, "https://rule.example/b", -1,
		},
		"a path that climbs, ended": {ended(with(Routing{ForwardPath: true})), Visit{Path: "/../b"}, Surroundings{}, Missing, 404, "", -1},
		"a path that climbs":        {with(Routing{ForwardPath: true}), Visit{Path: "/../b"}, Surroundings{}, Missing, 404, "", -1},
	} {
		c.visit.At = noon
		d := Decide(c.target, &c.visit, &c.around)
		if d.Outcome != c.outcome || d.Status != c.status || d.Location != c.location || d.MaxAge != c.age {
			t.Errorf("%s: %+v, want %d %d %q %d", name, d, c.outcome, c.status, c.location, c.age)
		}
		if why := d.Why(); !strings.HasSuffix(why, ".") {
			t.Errorf("%s: %q is not a sentence", name, why)
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
		"country":               {When{Countries: []string{"AT", "DE"}}, true},
		"another country":       {When{Countries: []string{"AT"}}, false},
		"device":                {When{Devices: []Device{Mobile}}, true},
		"another device":        {When{Devices: []Device{Desktop, Tablet}}, false},
		"system":                {When{Systems: []System{IOS}}, true},
		"another system":        {When{Systems: []System{OtherSystem}}, false},
		"language":              {When{Languages: []string{"de"}}, true},
		"language, other case":  {When{Languages: []string{"DE-at"}}, true},
		"a narrower language":   {When{Languages: []string{"de-CH"}}, false},
		"a language liked less": {When{Languages: []string{"en"}}, false},
		"a language's letters":  {When{Languages: []string{"d"}}, false},
		"query":                 {When{Query: map[string]string{"a": "1", "b": "ü"}}, true},
		"query, any value":      {When{Query: map[string]string{"c": "*"}}, true},
		"query, another value":  {When{Query: map[string]string{"a": "2"}}, false},
		"query, another name":   {When{Query: map[string]string{"A": "1"}}, false},
		"from now":              {When{From: from(0)}, true},
		"from later":            {When{From: from(time.Millisecond)}, false},
		"until later":           {When{Until: from(time.Millisecond)}, true},
		"until now":             {When{Until: from(0)}, false},
		"two of which one not":  {When{Devices: []Device{Mobile}, Countries: []string{"AT"}}, false},
		"its share":             {When{Percent: 31}, true},
		"not its share":         {When{Percent: 30}, false},
	} {
		r := Routing{Rules: []Rule{{Name: name, When: c.when, URL: leadsTo("https://r.example/")}}}
		if rule, _ := r.choose(&visit); (rule != nil) != c.holds {
			t.Errorf("%s: %v, want %v", name, rule != nil, c.holds)
		}
		// An unknown value meets no condition, but the time is always known.
		if rule, _ := r.choose(&Visit{At: noon}); rule != nil && !c.when.From.Set && !c.when.Until.Set {
			t.Errorf("%s: holds although nothing is known", name)
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
				t.Error("a known place is said to be unknown")
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		got  map[string]int
		want map[string]int
	}{
		"50 and 50":                    {count("", share("a", 50), share("b", 50)), map[string]int{"a": 50, "b": 50}},
		"33, 33 and the rest":          {count("", share("a", 33), share("b", 33)), map[string]int{"a": 33, "b": 33, "": 34}},
		"1 and 99":                     {count("", share("a", 1), share("b", 99)), map[string]int{"a": 1, "b": 99}},
		"over 100":                     {count("", share("a", 60), share("b", 60), share("c", 60)), map[string]int{"a": 60, "b": 40}},
		"an earlier rule for others":   {count("DE", share("a", 50, "FR"), share("b", 50)), map[string]int{"b": 50, "": 50}},
		"an earlier rule for them too": {count("FR", share("a", 50, "FR"), share("b", 50)), map[string]int{"a": 50, "b": 50}},
	} {
		for rule, n := range c.want {
			if c.got[rule] != n {
				t.Errorf("%s: %v, want %v", name, c.got, c.want)
			}
		}
	}
	r := Routing{Rules: []Rule{share("a", 50)}}
	if rule, split := r.choose(&Visit{At: noon}); rule != nil || !split {
		t.Error("a visitor of unknown place is in a share")
	}
}

func TestCheckRulesTidiesAndRefuses(t *testing.T) {
	t.Parallel()
	tidy, bad := CheckRules([]Rule{{
		Name: " A ", When: When{Countries: []string{"de"}, Languages: []string{"PT-br", "zh-hant-tw", "xx-unheard"}}, URL: leadsTo("https://a.example/"),
	}}, true)
	if len(bad) > 0 || tidy[0].Name != "A" || tidy[0].When.Countries[0] != "DE" || !slices.Equal(tidy[0].When.Languages, []string{"pt-BR", "zh-Hant-TW", "xx-unheard"}) {
		t.Errorf("tidied to %+v, %v", tidy, bad)
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
			t.Errorf("want %s refused, got %v", field, bad)
		}
	}
	if _, bad := CheckRules(large, true); len(bad) != 1 || bad[0].Field != "rules" {
		t.Errorf("20 rules of 1 kB are refused with %v", bad)
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
		t.Errorf("two slashes at the joint: %q", got)
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

// The location becomes a header. Whatever a visitor sends, it must stay printable ASCII and on
// the owner's host.
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
			t.Fatalf("%q, %q: %q", path, query, to)
		}
		u, problem := ParseURL(to, nil)
		if problem == nil && !strings.HasPrefix(u.Location, "https://a.example/x/y") {
			t.Fatalf("%q, %q: a browser goes to %q", path, query, u.Location)
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
		"plain": {Location: "https://a.example/"}, "the last of 20 rules": {Location: "https://a.example/", Routing: &Routing{Rules: rules}},
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
	// 100,000 visitors in three splits: six standard deviations of the binomial distribution.
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
				t.Errorf("%v: share %d has %d", shares, i, n)
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

// The table was generated with Node's URL and URLSearchParams; see testdata/queries.mjs.
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
		t.Fatalf("the table has %d rows", len(rows))
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
		t.Errorf("%d of %d rows differ", bad, len(rows))
	}
}

// A path with a traversal, in any spelling and at any position, must get 404.
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
					t.Errorf("%q leads to %q", path, d.Location)
				}
			}
		}
	}
	if tried < 200 {
		t.Errorf("only %d paths were tried", tried)
	}
}

// An older release may read rules with a device or a system that it does not know. Such rules
// must not match visitors whose device or system is unknown.
func TestARuleWithAnUnknownWordFitsNobody(t *testing.T) {
	t.Parallel()
	device, _ := ParseDevice("watch")
	for name, when := range map[string]When{
		"device": {Devices: []Device{device}},
		"system": {Systems: []System{Systems["watchos"]}},
	} {
		target := Target{Location: "https://a.example/", Routing: &Routing{Rules: []Rule{{Name: "new", When: when, URL: leadsTo("https://rule.example/")}}}}
		if got := Decide(&target, &Visit{At: noon}, &Surroundings{}); got.Rule != nil {
			t.Errorf("a rule with an unknown %s: %q, want the link's own destination", name, got.Location)
		}
	}
}
