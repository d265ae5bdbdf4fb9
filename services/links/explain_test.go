package links_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/identity"
)

var agentsOf = map[string][2]string{ // user agents, mapped to the device and system that explain reports
	windows: {"desktop", "windows"},
	iphone:  {"phone", "ios"},
	"Mozilla/5.0 (Linux; Android 14; SM-X700) AppleWebKit/537.36 Chrome/120 Safari/537.36":              {"tablet", "android"},
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/17.2 Safari/605.1.15": {"desktop", "macos"},
	"curl/8.5.0": {"", "other"},
}

// guesser generates random links and visits.
type guesser struct{ *rand.Rand }

func pick[T any](g guesser, list ...T) T { return list[g.IntN(len(list))] }

func some[T any](g guesser, list ...T) []T {
	out := slices.Clone(list)
	g.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:1+g.IntN(len(out)-1)]
}

func (g guesser) when(now int64) map[string]any {
	all := map[string]any{
		"country": some(g, "DE", "AT", "FR"), "device": some(g, "desktop", "phone", "tablet"), "system": some(g, "windows", "ios", "android", "other"),
		"language": some(g, "de", "de-AT", "en", "fr-CA"), "query": map[string]string{pick(g, "a", "b"): pick(g, "*", "1", "x y")},
		"from": now + int64(g.IntN(4)-2)*1e6, "percent": 1 + g.IntN(99),
	}
	out := map[string]any{}
	for _, name := range some(g, "country", "device", "system", "language", "query", "from", "percent")[:1] {
		out[name] = all[name]
	}
	return out
}

func (g guesser) link(now int64) map[string]any {
	body := map[string]any{"url": pick(g, "https://example.com/base?a=own&utm_source=o", "https://example.com/x#f"), "redirectType": pick(g, 301, 302, 308)}
	body["forwardQuery"], body["forwardPath"] = g.IntN(2) == 0, g.IntN(2) == 0
	switch g.IntN(8) {
	case 0:
		body["startsAt"] = now + 1e7
	case 1:
		body["expiresAt"] = now - 1e7
	case 2:
		body["expiresAt"], body["expiredUrl"] = now-1e7, "https://example.com/ended"
	}
	rules := []any{}
	for i := range g.IntN(6) {
		rules = append(rules, rule(fmt.Sprint("r", i), fmt.Sprint("https://example.com/r", i, pick(g, "", "?a=rule", "/")), g.when(now)))
	}
	body["rules"] = rules
	return body
}

// Explain and redirects share one decision function. This test checks that the code around it
// (headers, parsing, caches, stores) gives the same results too.
func TestExplainSaysWhatAVisitGets(t *testing.T) {
	t.Parallel()
	visits := 10
	if os.Getenv("LINKREEL_FULL") != "" {
		visits = 200
	}
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	a, b := c.decider(t), c.decider(t)
	g := guesser{rand.New(rand.NewPCG(2026, 11))}
	agents := []string{}
	for agent := range agentsOf {
		agents = append(agents, agent)
	}
	slices.Sort(agents)
	outcomes := map[int]int{}
	for range 50 {
		made := a.create(key, g.link(c.now().UnixMilli()))
		for range visits {
			agent, country, language := pick(g, agents...), pick(g, "", "DE", "AT", "FR", "US"), pick(g, "", "de-AT,de;q=0.9", "en", "fr-CA, de;q=0.1", "*")
			query, path := pick(g, "", "a=1", "b=x+y&utm_source=v", "b=x%20y&&c", "a"), pick(g, "", "", "/", "/p/q", "/..%2f")
			header := []string{"User-Agent", agent, "Accept-Language", language, "X-Forwarded-For", fmt.Sprintf("198.51.100.%d", g.IntN(250))}
			if country != "" {
				header = append(header, "CF-IPCountry", country)
			}
			at := "/" + made.str("slug") + path
			if query != "" {
				at += "?" + query
			}
			got := b.visit(at, header...)
			outcomes[got.status]++
			asked := url.Values{"query": {query}, "path": {path}, "language": {language}, "country": {country}, "device": {agentsOf[agent][0]}, "system": {agentsOf[agent][1]}}
			for name, value := range asked {
				if value[0] == "" {
					asked.Del(name)
				}
			}
			told := []string{}
			for percent := -1; percent < 100; percent++ {
				if percent >= 0 {
					asked.Set("percent", strconv.Itoa(percent))
				}
				e := a.api(key, "GET", "/api/v1/links/"+made.str("id")+"/explain?"+asked.Encode(), nil)
				if e.status != 200 {
					t.Fatalf("explain: %v, want 200", e)
				}
				if told = append(told, fmt.Sprint(e.json["status"], " ", e.str("location"))); percent < 0 && !strings.Contains(e.str("why"), "no percent") {
					break // no rule has a percentage, so only one response is possible
				}
			}
			if !slices.Contains(told, fmt.Sprint(got.status, " ", got.header.Get("Location"))) {
				t.Errorf("visit to %s with %q = %d %q, but explain = %v; want the same", at, header, got.status, got.header.Get("Location"), slices.Compact(told))
			}
		}
	}
	for _, status := range []int{301, 302, 404, 410} {
		if outcomes[status] == 0 {
			t.Errorf("no visit got %d, want at least one; outcomes: %v", status, outcomes)
		}
	}
}

func TestExplainRefusesAVisitThatCannotBe(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	a := c.replica(t)
	path := "/api/v1/links/" + a.create(key, map[string]any{"url": "https://example.com/"}).str("id") + "/explain?"
	for query, field := range map[string]string{
		"device=watch": "device", "device=": "device", "system=beos": "system", "system=": "system", "percent=100": "percent", "percent=-1": "percent", "percent=": "percent",
		"percent=%2B5": "percent", "country=Germany": "country", "at=tomorrow": "at", "path=a": "path", "devic=phone": "devic",
	} {
		got := a.api(key, "GET", path+query, nil)
		if _, named := got.fields()[field]; got.status != 400 || !named {
			t.Errorf("%s: %v, want 400 for %s", query, got, field)
		}
	}
	want(t, "another account's link", a.api(c.keys.Key(t, "acc_b", identity.Creator), "GET", path+"device=watch", nil), 404, "LINK_NOT_FOUND")
}
