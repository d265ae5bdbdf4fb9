package faults_test

import (
	"encoding/json"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
)

// decideVisit is a visit of known truth: what it is, by whom and from where.
type decideVisit struct {
	agent, device, system string
	language, country, ip string
	query                 url.Values
}

var (
	decideAgents = [][3]string{
		{"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/120.0.0.0 Safari/537.36", "desktop", "windows"},
		{"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/17.2 Safari/605.1.15", "desktop", "macos"},
		{"Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0", "desktop", "linux"},
		{"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 Chrome/120.0.0.0 Safari/537.36", "desktop", "chromeos"},
		{"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Mobile/15E148 Safari/604.1", "phone", "ios"},
		{"Mozilla/5.0 (iPad; CPU OS 17_0 like Mac OS X) AppleWebKit/605.1.15 Version/17.0 Mobile/15E148 Safari/604.1", "tablet", "ios"},
		{"Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/120.0.0.0 Mobile Safari/537.36", "phone", "android"},
		{"Mozilla/5.0 (Linux; Android 14; SM-X700) AppleWebKit/537.36 Chrome/120.0.0.0 Safari/537.36", "tablet", "android"},
		{"curl/8.5.0", "", "other"},
	}
	decideLanguages = map[string][]string{ // a header, and the languages that it likes best
		"de-DE,de;q=0.9,en;q=0.5": {"de-DE"}, "en-US,en": {"en-US", "en"}, "fr;q=0.4, pt-BR;q=0.8": {"pt-BR"}, "": nil, "*": nil,
	}
	decideCountries = map[string]string{"DE": "198.51.100", "FR": "203.0.113", "US": "192.0.2", "": "100.64.0"} // networks in the test's file
)

// decideRule is a rule with what the test itself knows about it.
type decideRule struct {
	Name string         `json:"name"`
	URL  string         `json:"url"`
	When map[string]any `json:"when"`

	holds func(v *decideVisit) bool
}

type decideLink struct {
	slug  string
	id    string
	rules []decideRule

	answered, broken map[string]*atomic.Int64 // by rule, "" for the destination
}

func decideRandomRule(name string) decideRule {
	r := decideRule{Name: name, URL: "https://rule.example/" + name, When: map[string]any{}}
	var all []func(v *decideVisit) bool
	add := func(condition string, value any, holds func(v *decideVisit) bool) {
		r.When[condition] = value
		all = append(all, holds)
	}
	for len(all) == 0 {
		if mrand.IntN(3) == 0 {
			country := []string{"DE", "FR", "US"}[mrand.IntN(3)]
			add("country", []string{country}, func(v *decideVisit) bool { return v.country == country })
		}
		if mrand.IntN(3) == 0 {
			device := []string{"desktop", "phone", "tablet"}[mrand.IntN(3)]
			add("device", []string{device}, func(v *decideVisit) bool { return v.device == device })
		}
		if mrand.IntN(4) == 0 {
			systems := [][]string{{"windows", "macos"}, {"ios"}, {"android", "chromeos"}, {"other", "linux"}}[mrand.IntN(4)]
			add("system", systems, func(v *decideVisit) bool { return slices.Contains(systems, v.system) })
		}
		if mrand.IntN(4) == 0 {
			language := []string{"de", "en", "pt-BR", "fr"}[mrand.IntN(4)]
			add("language", []string{language}, func(v *decideVisit) bool {
				return slices.ContainsFunc(decideLanguages[v.language], func(has string) bool { return has == language || strings.HasPrefix(has, language+"-") })
			})
		}
		if mrand.IntN(4) == 0 {
			value := []string{"*", "1", "x y"}[mrand.IntN(3)]
			add("query", map[string]string{"c": value}, func(v *decideVisit) bool {
				return v.query.Has("c") && (value == "*" || slices.Contains(v.query["c"], value))
			})
		}
		if mrand.IntN(6) == 0 {
			ahead := mrand.IntN(2) == 0
			at := time.Now().Add(-time.Hour)
			if ahead {
				at = time.Now().Add(24 * time.Hour)
			}
			add("until", at.UnixMilli(), func(*decideVisit) bool { return ahead })
		}
	}
	r.holds = func(v *decideVisit) bool {
		return !slices.ContainsFunc(all, func(holds func(v *decideVisit) bool) bool { return !holds(v) })
	}
	return r
}

func decideRandomVisit() *decideVisit {
	agent := decideAgents[mrand.IntN(len(decideAgents))]
	v := &decideVisit{agent: agent[0], device: agent[1], system: agent[2], query: url.Values{}}
	for v.language = range decideLanguages { // any
		break
	}
	for country, network := range decideCountries {
		v.country, v.ip = country, fmt.Sprint(network, ".", mrand.IntN(256))
		break
	}
	for range mrand.IntN(3) {
		v.query.Add([]string{"c", "d"}[mrand.IntN(2)], []string{"1", "x y", "ü"}[mrand.IntN(3)])
	}
	return v
}

// decideCountryFile writes a file in MaxMind's format.
func decideCountryFile(t *testing.T) string {
	t.Helper()
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "GeoLite2-Country", IncludeReservedNetworks: true})
	must(t, err)
	for country, network := range decideCountries {
		if country == "" {
			continue
		}
		_, n, err := net.ParseCIDR(network + ".0/24")
		must(t, err)
		must(t, tree.Insert(n, mmdbtype.Map{"country": mmdbtype.Map{"iso_code": mmdbtype.String(country)}}))
	}
	path := filepath.Join(t.TempDir(), "country.mmdb")
	f, err := os.Create(path)
	must(t, err)
	_, err = tree.WriteTo(f)
	must(t, errors.Join(err, f.Close()))
	return path
}

// Visits of known truth run against two replicas that are killed again and again: every
// answer leads where the test's own reading of the rules says, and every click is counted
// under its link and its rule. LINKREEL_FULL=1 makes 500,000 visits and 20 kills.
func TestEveryVisitGetsItsTargetAndItsCount(t *testing.T) {
	t.Parallel()
	visits, kills := authFull(6_000, 500_000), authFull(3, 20)
	b := newLinksWorld(t)
	b.env = []string{"LINKREEL_GEOIP_FILE=" + decideCountryFile(t), "LINKREEL_TRUSTED_PROXIES=127.0.0.1/32"}
	a, z, flusher := b.start(false), b.start(false), b.start(true)
	made := make([]*decideLink, 20)
	for i := range made {
		l := &decideLink{slug: fmt.Sprint("truth", i), answered: map[string]*atomic.Int64{}, broken: map[string]*atomic.Int64{}}
		for n := range mrand.IntN(8) {
			l.rules = append(l.rules, decideRandomRule(fmt.Sprint("r", i, "-", n)))
		}
		names := []string{""}
		for _, r := range l.rules {
			names = append(names, r.Name)
		}
		for _, name := range names {
			l.answered[name], l.broken[name] = new(atomic.Int64), new(atomic.Int64)
		}
		body, err := json.Marshal(map[string]any{"slug": l.slug, "url": "https://base.example/" + l.slug, "rules": append([]decideRule{}, l.rules...)})
		must(t, err)
		got := a.call("POST", "/api/v1/links", string(body))
		if got.err != nil || got.status != 201 {
			t.Fatalf("create %s: %d %s %v", body, got.status, got.body, got.err)
		}
		l.id = got.field(t, "id")
		made[i] = l
	}
	var left, wrong, refused atomic.Int64
	left.Store(int64(visits))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			c := &linksConn{addr: []*linksProcess{a, z}[i%2].redirect}
			defer c.close()
			for left.Add(-1) >= 0 {
				v, l := decideRandomVisit(), made[mrand.IntN(len(made))]
				rule, want := "", "https://base.example/"+l.slug
				if n := slices.IndexFunc(l.rules, func(r decideRule) bool { return r.holds(v) }); n >= 0 {
					rule, want = l.rules[n].Name, l.rules[n].URL
				}
				status, location, err := c.askAs("GET", "/"+l.slug+"?"+v.query.Encode(), "User-Agent: "+v.agent, "Accept-Language: "+v.language, "X-Forwarded-For: "+v.ip)
				switch {
				case errors.Is(err, errLinksNotSent):
					left.Add(1)
					refused.Add(1)
					time.Sleep(5 * time.Millisecond) // the replica starts again
				case err != nil:
					l.broken[rule].Add(1)
				case status == 302 && location == want:
					l.answered[rule].Add(1)
				case wrong.Add(1) < 10:
					t.Errorf("%+v to %s: %d %q, want %q", *v, l.slug, status, location, want)
				}
			}
		})
	}
	total := int64(visits)
	for n := range kills {
		authUntil(t, "the next kill is due", 10*time.Minute, func() bool { return left.Load() < total-total*int64(n+1)/int64(kills+2) })
		p := []*linksProcess{a, z}[n%2]
		p.kill()
		p.run()
	}
	wg.Wait()
	flusher.balanceRules(t, made)
	answered, broken := int64(0), int64(0)
	for _, l := range made {
		for name := range l.answered {
			answered, broken = answered+l.answered[name].Load(), broken+l.broken[name].Load()
		}
	}
	t.Logf("%d visits, %d kills: %d answered, %d broken by a kill, %d refused meanwhile, %d wrong", visits, kills, answered, broken, refused.Load(), wrong.Load())
}

// balanceRules waits until every click is counted, and checks each link and rule: counted =
// answered + some of the visits whose connection broke.
func (p *linksProcess) balanceRules(t *testing.T, made []*decideLink) {
	t.Helper()
	var problem string
	balanced := func() bool {
		problem = ""
		for _, l := range made {
			got := p.call("GET", "/api/v1/links/"+l.id+"/stats", "")
			var stats struct {
				Total int64
				Rules []struct {
					Rule   string
					Clicks int64
				}
			}
			if got.err != nil || json.Unmarshal(got.body, &stats) != nil {
				return false
			}
			counted := map[string]int64{}
			for _, r := range stats.Rules {
				counted[r.Rule] = r.Clicks
			}
			for name := range l.answered {
				if n, least := counted[name], l.answered[name].Load(); n < least || n > least+l.broken[name].Load() {
					problem = fmt.Sprintf("%s, rule %q: counted %d, answered %d, broken %d", l.slug, name, n, least, l.broken[name].Load())
					return false
				}
				delete(counted, name)
			}
			if len(counted) > 0 {
				problem = fmt.Sprintf("%s: counts of rules that it never had: %v", l.slug, counted)
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(time.Minute); !balanced(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not balanced within a minute: %s", problem)
		}
	}
}
