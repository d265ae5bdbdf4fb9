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

// decideVisit is a visit for which the test knows the kind of visitor and their location.
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
	decideLanguages = map[string][]string{ // a header, and the languages that it prefers
		"de-DE,de;q=0.9,en;q=0.5": {"de-DE"}, "en-US,en": {"en-US", "en"}, "fr;q=0.4, pt-BR;q=0.8": {"pt-BR"}, "": nil, "*": nil,
	}
	decideCountries = map[string]string{"DE": "198.51.100", "FR": "203.0.113", "US": "192.0.2", "": "100.64.0"} // networks in the test's country file
)

// decideRule is a rule and the test's own data about it.
type decideRule struct {
	Name string         `json:"name"`
	URL  string         `json:"url"`
	When map[string]any `json:"when"`

	holds func(v *decideVisit, at int64) bool
}

// decideLink is a link and the test's own data about it. Times are in milliseconds since 1970. The
// value 0 means no time.
type decideLink struct {
	slug    string
	id      string
	rules   []decideRule
	starts  int64
	ends    int64
	expired string          // the destination of expired visits; "" for the built-in page
	borders []*decideBorder // all times when the link's decisions change

	answered, broken map[string]*atomic.Int64 // by rule, "" for the destination
}

// decideBorder is a time when a link's decisions change, in milliseconds since 1970, and the
// number of visits that were definitely answered before and after it.
type decideBorder struct {
	at            int64
	before, after atomic.Int64
}

// decideTruth is the expected response to a visit.
type decideTruth struct {
	status         int
	location, rule string // the rule is "" for the destination
}

// truth returns the correct response to a visit at a time, computed by the test's own
// implementation.
func (l *decideLink) truth(v *decideVisit, at int64) decideTruth {
	switch {
	case at < l.starts:
		return decideTruth{status: 404}
	case l.ends != 0 && at >= l.ends && l.expired != "":
		return decideTruth{status: 302, location: l.expired}
	case l.ends != 0 && at >= l.ends:
		return decideTruth{status: 410}
	}
	for _, r := range l.rules {
		if r.holds(v, at) {
			return decideTruth{302, r.URL, r.Name}
		}
	}
	return decideTruth{status: 302, location: "https://base.example/" + l.slug}
}

// counts reports whether a visit with this response is a click.
func (l *decideLink) counts(d decideTruth) bool { return d.status == 302 && d.location != l.expired }

// decideClock is the maximum difference between a visitor's and a replica's clocks, in
// milliseconds.
const decideClock = 2

// truths returns the correct responses to a visit that was made between two times. It returns only
// one response unless the link has a boundary between the two times.
func (l *decideLink) truths(v *decideVisit, from, to int64) []decideTruth {
	out := []decideTruth{l.truth(v, from)}
	for _, b := range append([]*decideBorder{{at: to}}, l.borders...) {
		if d := l.truth(v, b.at); from <= b.at && b.at <= to && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// decideRandomRule returns a rule. next returns the times for its conditions.
func decideRandomRule(name string, next func() int64) decideRule {
	r := decideRule{Name: name, URL: "https://rule.example/" + name, When: map[string]any{}}
	var all []func(v *decideVisit, at int64) bool
	add := func(condition string, value any, holds func(v *decideVisit, at int64) bool) {
		r.When[condition] = value
		all = append(all, holds)
	}
	for len(all) == 0 {
		if mrand.IntN(3) == 0 {
			country := []string{"DE", "FR", "US"}[mrand.IntN(3)]
			add("country", []string{country}, func(v *decideVisit, _ int64) bool { return v.country == country })
		}
		if mrand.IntN(3) == 0 {
			device := []string{"desktop", "phone", "tablet"}[mrand.IntN(3)]
			add("device", []string{device}, func(v *decideVisit, _ int64) bool { return v.device == device })
		}
		if mrand.IntN(4) == 0 {
			systems := [][]string{{"windows", "macos"}, {"ios"}, {"android", "chromeos"}, {"other", "linux"}}[mrand.IntN(4)]
			add("system", systems, func(v *decideVisit, _ int64) bool { return slices.Contains(systems, v.system) })
		}
		if mrand.IntN(4) == 0 {
			language := []string{"de", "en", "pt-BR", "fr"}[mrand.IntN(4)]
			add("language", []string{language}, func(v *decideVisit, _ int64) bool {
				return slices.ContainsFunc(decideLanguages[v.language], func(has string) bool { return has == language || strings.HasPrefix(has, language+"-") })
			})
		}
		if mrand.IntN(4) == 0 {
			value := []string{"*", "1", "x y"}[mrand.IntN(3)]
			add("query", map[string]string{"c": value}, func(v *decideVisit, _ int64) bool {
				return v.query.Has("c") && (value == "*" || slices.Contains(v.query["c"], value))
			})
		}
		if mrand.IntN(4) == 0 {
			from := next()
			add("from", from, func(_ *decideVisit, at int64) bool { return at >= from })
		}
		if mrand.IntN(4) == 0 {
			until := next()
			if from, _ := r.When["from"].(int64); from < until {
				add("until", until, func(_ *decideVisit, at int64) bool { return at < until })
			}
		}
	}
	r.holds = func(v *decideVisit, at int64) bool {
		return !slices.ContainsFunc(all, func(holds func(v *decideVisit, at int64) bool) bool { return !holds(v, at) })
	}
	return r
}

func decideRandomVisit() *decideVisit {
	agent := decideAgents[mrand.IntN(len(decideAgents))]
	v := &decideVisit{agent: agent[0], device: agent[1], system: agent[2], query: url.Values{}}
	for v.language = range decideLanguages { // any of them
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

// The test sends visits to two replicas, which are killed repeatedly. Every response must match the
// test's own implementation, and every click must be counted for its link and its rule. Links and
// rules start and expire during the test. Only visits at such a moment can get either response.
// With LINKREEL_FULL=1 there are 500,000 visits and 20 kills.
func TestEveryVisitGetsItsTargetAndItsCount(t *testing.T) {
	t.Parallel()
	visits, kills := authFull(6_000, 500_000), authFull(3, 20)
	b := newLinksWorld(t)
	b.env = []string{"LINKREEL_GEOIP_FILE=" + decideCountryFile(t), "LINKREEL_TRUSTED_PROXIES=127.0.0.1/32"}
	a, z, flusher := b.start(false), b.start(false), b.start(true)
	made := make([]*decideLink, 20)
	soon := time.Now().Add(2 * time.Second).UnixMilli() // the visits have started at this time
	last := soon + int64(authFull(1_000, 25_000))
	middle := (soon + last) / 2
	var borders []*decideBorder
	for i := range made {
		l := &decideLink{slug: fmt.Sprint("truth", i), answered: map[string]*atomic.Int64{}, broken: map[string]*atomic.Int64{}}
		between := func(from, to int64) int64 {
			border := &decideBorder{at: from + mrand.Int64N(to-from)}
			l.borders, borders = append(l.borders, border), append(borders, border)
			return border.at
		}
		next := func() int64 {
			switch mrand.IntN(4) {
			case 0:
				return soon - time.Hour.Milliseconds()
			case 1:
				return soon + 24*time.Hour.Milliseconds()
			}
			return between(soon, last)
		}
		for n := range mrand.IntN(8) {
			l.rules = append(l.rules, decideRandomRule(fmt.Sprint("r", i, "-", n), next))
		}
		names := []string{""}
		for _, r := range l.rules {
			names = append(names, r.Name)
		}
		for _, name := range names {
			l.answered[name], l.broken[name] = new(atomic.Int64), new(atomic.Int64)
		}
		fields := map[string]any{"slug": l.slug, "url": "https://base.example/" + l.slug, "rules": append([]decideRule{}, l.rules...)}
		if i%5 == 1 || i%5 == 2 {
			l.starts = between(soon, middle)
			fields["startsAt"] = l.starts
		}
		if i%5 == 2 || i%5 == 3 {
			l.ends = between(middle, last)
			fields["expiresAt"] = l.ends
		}
		if i%2 == 0 {
			l.expired = "https://over.example/" + l.slug
			fields["expiredUrl"] = l.expired
		}
		body, err := json.Marshal(fields)
		must(t, err)
		got := a.call("POST", "/api/v1/links", string(body))
		if got.err != nil || got.status != 201 {
			t.Fatalf("creating %s returned %d, want 201: %s %v", body, got.status, got.body, got.err)
		}
		l.id = got.field(t, "id")
		made[i] = l
	}
	var left, replayed, wrong, refused, either atomic.Int64
	left.Store(int64(visits))
	enough := func() bool { // all visits have been made, and each boundary has visits after it
		return left.Add(-1) < 0 && (time.Now().UnixMilli() > last+time.Minute.Milliseconds() ||
			!slices.ContainsFunc(borders, func(b *decideBorder) bool { return b.after.Load() == 0 }))
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			c := &linksConn{addr: []*linksProcess{a, z}[i%2].redirect}
			defer c.close()
			for !enough() {
				if left.Load() < 0 {
					time.Sleep(5 * time.Millisecond) // only the last boundary remains
				}
				v, l := decideRandomVisit(), made[mrand.IntN(len(made))]
				from := time.Now().UnixMilli() - decideClock
				status, location, err := c.askAs("GET", "/"+l.slug+"?"+v.query.Encode(), "User-Agent: "+v.agent, "Accept-Language: "+v.language, "X-Forwarded-For: "+v.ip)
				to := time.Now().UnixMilli() + decideClock
				replayed.Add(1)
				want := l.truths(v, from, to)
				got := slices.IndexFunc(want, func(d decideTruth) bool { return d.status == status && d.location == location })
				switch {
				case errors.Is(err, errLinksNotSent):
					left.Add(1)
					replayed.Add(-1)
					refused.Add(1)
					time.Sleep(5 * time.Millisecond) // the replica is restarting
					continue
				case err != nil:
					for _, d := range want {
						if l.counts(d) {
							l.broken[d.rule].Add(1)
						}
					}
					continue
				case got < 0 && wrong.Add(1) < 10:
					t.Errorf("visit %+v to %s between %d and %d returned %d %q, want one of %+v", *v, l.slug, from, to, status, location, want)
				case got >= 0 && l.counts(want[got]):
					l.answered[want[got].rule].Add(1)
				}
				if len(want) > 1 {
					either.Add(1)
				}
				for _, b := range l.borders {
					if to < b.at {
						b.before.Add(1)
					} else if from > b.at {
						b.after.Add(1)
					}
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
	answered, broken, passed := int64(0), int64(0), 0
	for _, l := range made {
		for name := range l.answered {
			answered, broken = answered+l.answered[name].Load(), broken+l.broken[name].Load()
		}
	}
	for _, b := range borders {
		if b.before.Load() > 0 && b.after.Load() > 0 {
			passed++
		}
	}
	t.Logf("%d visits, %d kills: %d clicks answered, %d interrupted by a kill, %d refused, %d wrong; %d of %d boundaries had visits before and after them, %d visits were at a boundary",
		replayed.Load(), kills, answered, broken, refused.Load(), wrong.Load(), passed, len(borders), either.Load())
	if passed < len(borders)/2 {
		t.Errorf("only %d of %d boundaries had visits before and after them, want at least half", passed, len(borders))
	}
}

// balanceRules waits until every click is counted. For each link and rule, the count must be the
// number of answered clicks plus some of the visits with a broken connection.
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
					problem = fmt.Sprintf("%s, rule %q: %d clicks counted, %d answered, %d interrupted", l.slug, name, n, least, l.broken[name].Load())
					return false
				}
				delete(counted, name)
			}
			if len(counted) > 0 {
				problem = fmt.Sprintf("%s: clicks are counted for unknown rules: %v", l.slug, counted)
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(time.Minute); !balanced(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the counts are still wrong after a minute: %s", problem)
		}
	}
}
