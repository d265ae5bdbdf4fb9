package links_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/links"
)

// mapped is an account with domains. Visits follow redirects across all of them.
type mapped struct {
	script
	zone     *zone
	replicas []*replica
}

func (m *mapped) claim(hostname string) (id string) {
	m.r.t.Helper()
	made := m.r.api(m.key, "POST", "/api/v1/domains", map[string]any{"hostname": hostname})
	if made.status != 201 {
		m.r.t.Fatalf("claim %s: %v, want 201", hostname, made)
	}
	record := made.json["records"].([]any)[0].(map[string]any)
	m.zone.set(record["name"].(string), record["value"].(string))
	return made.str("id")
}

func (m *mapped) verify(id string) {
	m.r.t.Helper()
	if a := m.r.api(m.key, "POST", "/api/v1/domains/"+id+"/verify", nil); a.str("status") != "verified" {
		m.r.t.Fatalf("verify: %v, want status verified", a)
	}
}

// tries calls the API and adds the response to the transcript.
func (m *mapped) tries(what, method, path string, body map[string]any) answer {
	m.r.t.Helper()
	a := m.r.api(m.key, method, path, body)
	if a.status/100 == 2 {
		m.note("%-50s %d", what, a.status)
	} else {
		m.note("%-50s %d%s", what, a.status, strings.ReplaceAll(problems(a.json), "\n  ", ""))
	}
	return a
}

// follow visits a URL and follows redirects to our hosts. It reports a loop after 20 redirects,
// when browsers give up.
func (m *mapped) follow(address string) {
	m.r.t.Helper()
	chain := []string{address}
	for range 20 {
		u, err := url.Parse(chain[len(chain)-1])
		if err != nil {
			m.r.t.Fatal(err)
		}
		if u.Host != "lrl.example" && !strings.HasSuffix(u.Host, ".ours.example") {
			m.note("visit %s", strings.Join(chain, " → "))
			return
		}
		a := m.replicas[len(chain)%len(m.replicas)].visit(u.RequestURI(), "Host", u.Host, "User-Agent", windows)
		to := a.header.Get("Location")
		if to == "" {
			m.note("visit %s → %s", strings.Join(chain, " → "), told(a))
			return
		}
		chain = append(chain, to)
	}
	m.r.t.Errorf("redirect loop, want a final destination: %s", strings.Join(chain[:6], " → "))
}

func newMapped(t *testing.T, c *world, edit ...func(*links.Config)) *mapped {
	z, addr := newZone(t)
	c.dns = addr
	m := &mapped{zone: z, replicas: []*replica{c.replica(t, edit...), c.replica(t, edit...)}}
	m.r, m.key = m.replicas[0], c.keys.Key(t, "acc_a", identity.Business)
	return m
}

func TestNoAddressMayLeadBack(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	m := newMapped(t, c)
	one, two, pending := m.claim("one.ours.example"), m.claim("two.ours.example"), m.claim("pending.ours.example")
	m.verify(one)
	m.verify(two)
	desktops := map[string]any{"device": []any{"desktop"}}
	for _, to := range []string{
		"http://lrl.example/x", "https://LRL.example.:443/", "https://one.ours.example/x", "https://ONE.ours.example.:80", "http://two.ours.example/a",
		"https://pending.ours.example/", "https://sub.one.ours.example/", "https://example.com/?https://lrl.example/",
	} {
		m.note("# %s", to)
		link := func(what string, body map[string]any) {
			if body["url"] == nil {
				body["url"] = "https://example.com/"
			}
			m.tries(what, "POST", "/api/v1/links", body)
		}
		link("url on the default host", map[string]any{"url": to})
		link("url on one", map[string]any{"url": to, "domainId": one})
		link("url on two, with its path forwarded", map[string]any{"url": to, "domainId": two, "forwardPath": true})
		link("rule on the default host", map[string]any{"rules": []any{rule("a", to, desktops)}})
		link("rule on two", map[string]any{"domainId": two, "rules": []any{rule("a", to, desktops)}})
		link("expiredUrl on two", map[string]any{"domainId": two, "expiredUrl": to})
		for _, page := range []string{"homeUrl", "notFoundUrl", "expiredUrl"} {
			m.tries(page+" of one", "PATCH", "/api/v1/domains/"+one, map[string]any{page: to})
			m.tries(page+" of pending", "PATCH", "/api/v1/domains/"+pending, map[string]any{page: to})
		}
		m.note("")
	}
	golden(t, "back.txt", m.String())
}

// A destination host can later become one of our hosts. Visits must still end at a final
// destination.
func TestADomainVerifiedLaterMakesNoLoop(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	m := newMapped(t, c)
	one := m.claim("one.ours.example")
	m.verify(one)
	desktops := map[string]any{"device": []any{"desktop"}}
	const later = "https://later.ours.example"
	create := func(what string, body map[string]any) {
		if body["url"] == nil {
			body["url"] = "https://example.com/out"
		}
		m.tries(what, "POST", "/api/v1/links", body)
	}
	m.note("# before later.ours.example is claimed")
	create("default host, rule", map[string]any{"slug": "rule", "rules": []any{rule("a", later+"/rule", desktops)}})
	create("default host, expiredUrl", map[string]any{"slug": "end", "expiresAt": 1, "expiredUrl": later + "/end"})
	create("one, rule", map[string]any{"slug": "rule", "domainId": one, "rules": []any{rule("a", later+"/rule", desktops)}})
	create("one, expiredUrl", map[string]any{"slug": "end", "domainId": one, "expiresAt": 1, "expiredUrl": later + "/nothing"})
	create("one, forwarded path", map[string]any{"slug": "path", "domainId": one, "url": later + "/path", "forwardPath": true})
	m.tries("one, home page", "PATCH", "/api/v1/domains/"+one, map[string]any{"homeUrl": later + "/", "notFoundUrl": later + "/nothing"})
	m.note("\n# claimed")
	id := m.claim("later.ours.example")
	m.tries("home page of later points to one", "PATCH", "/api/v1/domains/"+id, map[string]any{"homeUrl": "https://one.ours.example/"})
	m.verify(id)
	m.note("\n# verified")
	m.tries("pages of later point to one", "PATCH", "/api/v1/domains/"+id, map[string]any{"homeUrl": "https://one.ours.example/", "notFoundUrl": "http://one.ours.example/x"})
	for _, back := range []string{shortBase + "/rule", "https://one.ours.example/rule", later + "/path"} {
		create("link back to "+back, map[string]any{"slug": "rule", "domainId": id, "url": back})
		create("rule back to "+back, map[string]any{"slug": "rule", "domainId": id, "rules": []any{rule("a", back, desktops)}})
		create("forwarded path back to "+back, map[string]any{"slug": "path", "domainId": id, "url": back, "forwardPath": true})
	}
	create("link to another site", map[string]any{"slug": "rule", "domainId": id, "url": "https://example.com/rule"})
	create("forwarded path to another site", map[string]any{"slug": "path", "domainId": id, "url": "https://example.com/path", "forwardPath": true})
	found := m.r.api(m.key, "GET", "/api/v1/links?slug=rule&domainId="+id, nil).json["data"].([]any)[0].(map[string]any)["_id"].(string)
	m.tries("PATCH back to one", "PATCH", "/api/v1/links/"+found, map[string]any{"url": "https://one.ours.example/rule"})
	m.note("\n# visits")
	for _, host := range []string{shortBase, "https://one.ours.example", later} {
		for _, path := range []string{"/", "/rule", "/end", "/path/a/b?c=d", "/nothing"} {
			m.follow(host + path)
		}
	}
	golden(t, "later.txt", m.String())
}

// Visits to links with blocked destinations and to links that are taken down are not redirected.
func TestBlockedTargetsAreDeadEnds(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	edit, block := blocking(t)
	m := newMapped(t, c, edit)
	one := m.claim("one.ours.example")
	m.verify(one)
	const bad = "https://bad.example/"
	desktops := map[string]any{"device": []any{"desktop"}}
	for slug, body := range map[string]map[string]any{
		"rule": {"rules": []any{rule("a", bad, desktops)}}, "end": {"expiresAt": 1, "expiredUrl": bad}, "path": {"url": bad, "forwardPath": true},
		"query": {"url": bad, "forwardQuery": true}, "plain": {"url": bad}, "moved": {"url": bad, "redirectType": 301},
		"other": {"rules": []any{rule("a", bad, map[string]any{"device": []any{"phone"}})}},
	} {
		if body["slug"] = slug; body["url"] == nil {
			body["url"] = "https://example.com/"
		}
		m.r.create(m.key, body)
		on := map[string]any{"domainId": one}
		for field, value := range body {
			on[field] = value
		}
		m.r.create(m.key, on)
	}
	if a := m.r.api(m.key, "PATCH", "/api/v1/domains/"+one, map[string]any{"homeUrl": bad, "notFoundUrl": bad, "expiredUrl": bad}); a.status != 200 {
		t.Fatal(a)
	}
	id := m.r.create(m.key, map[string]any{"url": "https://example.com/", "slug": "down", "domainId": one, "expiredUrl": "https://example.com/over"}).str("id")
	m.r.create(m.key, map[string]any{"url": "https://one.ours.example/down", "slug": "todown"})
	all := func() {
		for _, host := range []string{shortBase, "https://one.ours.example"} {
			for _, path := range []string{"/", "/rule", "/end", "/path/a", "/query?a=b", "/plain", "/moved", "/other", "/nothing", "/todown"} {
				m.follow(host + path)
			}
		}
	}
	m.note("# before")
	all()
	order := tenant.Order{ID: "tkd_1", Target: tenant.Target{ID: id}, Reason: "r", At: c.now()}
	if _, err := m.r.holder().TakeDown(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	block("bad.example")
	for _, r := range m.replicas {
		eventually(t, "the list of blocked hosts is loaded", func() bool { return r.visit("/plain").status == 410 })
	}
	m.note("\n# after")
	all()
	if _, after, _ := strings.Cut(m.String(), "# after"); strings.Contains(after, "→ "+bad) {
		t.Error("a visit was redirected to the blocked host, want none")
	}
	golden(t, "blocked.txt", m.String())
}

// The operator changes the short host to a host that existing links already point to.
func TestAnotherShortHostMakesNoLoop(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	old := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	const there = "http://new.example/x"
	desktops := map[string]any{"device": []any{"desktop"}}
	for slug, body := range map[string]map[string]any{
		"rule": {"rules": []any{rule("a", there, desktops)}}, "end": {"expiresAt": 1, "expiredUrl": there}, "path": {"url": there, "forwardPath": true},
	} {
		if body["slug"] = slug; body["url"] == nil {
			body["url"] = "https://example.com/"
		}
		old.create(key, body)
	}
	moved := c.replica(t, func(cfg *links.Config) { cfg.ShortBaseURL = "http://new.example" })
	var got []string
	for _, path := range []string{"/rule", "/end", "/path/x"} {
		got = append(got, fmt.Sprint(path, " ", told(moved.visit(path, "Host", "new.example", "User-Agent", windows))))
	}
	if want := []string{"/rule 410 This link was taken down", "/end 410 This link has expired", "/path/x 410 This link was taken down"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
