package links_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links"
)

const (
	iphone  = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Mobile/15E148 Safari/604.1"
	windows = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/120.0.0.0 Safari/537.36"
)

// decider returns a replica that trusts its proxy to report visitors' addresses and countries.
func (c *world) decider(t *testing.T) *replica {
	return c.replica(t, func(cfg *links.Config) {
		cfg.CountryHeader, cfg.TrustedProxies = "CF-IPCountry", []netip.Prefix{netip.MustParsePrefix("0.0.0.0/32")}
	})
}

func rule(name, to string, when map[string]any) map[string]any {
	return map[string]any{"name": name, "url": to, "when": when}
}

func TestALinkDecides(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	a, b := c.decider(t), c.decider(t)
	soon := c.now().Add(time.Hour).UnixMilli()
	made := a.create(key, map[string]any{
		"url": "https://example.com/base?own=1", "slug": "d", "redirectType": 301, "forwardQuery": true, "forwardPath": true,
		"expiredUrl": "https://example.com/ended", "startsAt": "2026-01-01T00:00:00Z", "expiresAt": soon,
		"rules": []any{
			rule("apple in Germany", "https://example.com/apple", map[string]any{"device": []any{"mobile"}, "system": []any{"ios"}, "country": []any{"de"}}),
			rule("campaign", "https://example.com/campaign", map[string]any{"query": map[string]any{"c": "*"}, "language": []any{"EN-us"}}),
			rule("half", "https://example.com/half", map[string]any{"percent": 50, "device": []any{"tablet"}}),
		},
	})
	path := "/api/v1/links/" + made.str("id")
	shown := a.api(key, "GET", path, nil)
	want := []any{
		rule("apple in Germany", "https://example.com/apple", map[string]any{"device": []any{"phone"}, "system": []any{"ios"}, "country": []any{"DE"}}),
		rule("campaign", "https://example.com/campaign", map[string]any{"query": map[string]any{"c": "*"}, "language": []any{"en-US"}}),
		rule("half", "https://example.com/half", map[string]any{"percent": 50.0, "device": []any{"tablet"}}),
	}
	if diff := cmp.Diff(want, shown.json["rules"]); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if shown.json["redirectType"] != 301.0 || shown.json["forwardQuery"] != true || shown.json["expiredUrl"] != "https://example.com/ended" {
		t.Errorf("link = %v, want redirectType 301, forwardQuery and expiredUrl", shown.json)
	}
	again := map[string]any{"slug": "again", "url": shown.str("destinationUrl")}
	for _, field := range []string{"redirectType", "forwardQuery", "forwardPath", "expiredUrl", "startsAt", "expiresAt", "rules"} {
		again[field] = shown.json[field]
	}
	if diff := cmp.Diff(shown.json["rules"], a.api(key, "GET", "/api/v1/links/"+a.create(key, again).str("id"), nil).json["rules"]); diff != "" {
		t.Errorf("rules created from a GET response (-want +got):\n%s", diff)
	}
	list := a.api(key, "GET", "/api/v1/links?slug=d", nil).json["data"].([]any)[0].(map[string]any)
	if _, rules := list["rules"]; rules || list["forwardPath"] != true || list["redirectType"] != 301.0 || list["status"] != "active" {
		t.Errorf("list item = %v, want forwardPath, redirectType 301, active, and no rules", list)
	}
	for name, v := range map[string]struct {
		at, agent, to string
		header        []string
		explain       url.Values
		status        int
	}{
		"plain visit":             {"/d?x=1", windows, "https://example.com/base?own=1&x=1", nil, url.Values{"query": {"x=1"}, "device": {"desktop"}}, 301},
		"forwarded path":          {"/d/a/b?own=2", windows, "https://example.com/base/a/b?own=1", nil, url.Values{"query": {"own=2"}, "path": {"/a/b"}}, 301},
		"phone in Germany":        {"/d", iphone, "https://example.com/apple", []string{"CF-IPCountry", "DE"}, url.Values{"country": {"DE"}, "device": {"phone"}, "system": {"ios"}}, 301},
		"phone without a country": {"/d", iphone, "https://example.com/base?own=1", nil, url.Values{"device": {"phone"}, "system": {"ios"}}, 301},
		"campaign":                {"/d?c=1", windows, "https://example.com/campaign?c=1", []string{"Accept-Language", "en-US,de;q=0.5"}, url.Values{"query": {"c=1"}, "language": {"en-US,de;q=0.5"}}, 301},
		"path with a traversal":   {"/d/%2e%2e", windows, "", nil, url.Values{"path": {"/%2e%2e"}}, 404},
	} {
		got := b.visit(v.at, append([]string{"User-Agent", v.agent}, v.header...)...)
		if got.status != v.status || got.header.Get("Location") != v.to {
			t.Errorf("%s: status %d, location or body %q; want %d, %q", name, got.status, got.header.Get("Location")+got.text, v.status, v.to)
		}
		if v.status == 301 && got.header.Get("Cache-Control") != "private, max-age=60" {
			t.Errorf("%s: Cache-Control = %q, want private, max-age=60", name, got.header.Get("Cache-Control"))
		}
		told := a.api(key, "GET", path+"/explain?"+v.explain.Encode(), nil)
		if told.json["status"] != float64(v.status) || told.str("location") != v.to || told.str("why") == "" {
			t.Errorf("%s: explain = %v, want %d, %q and a reason", name, told, v.status, v.to)
		}
	}
	half := a.api(key, "GET", path+"/explain?device=tablet", nil)
	if half.json["rule"] != nil || !strings.Contains(half.str("why"), "percent") {
		t.Errorf("explain without a percentage: %v, want no rule and a hint about percent", half)
	}
	for percent, to := range map[string]any{"0": "half", "49": "half", "50": nil} {
		if got := a.api(key, "GET", path+"/explain?device=tablet&percent="+percent, nil); got.json["rule"] != to {
			t.Errorf("explain with percent %s: %v, want rule %v", percent, got, to)
		}
	}
	if got := b.visit("/d+", "User-Agent", windows); got.status != 200 || !strings.Contains(got.text, "https://example.com/base?own=1") {
		t.Errorf("preview page: %v, want 200 with the link's own destination", got)
	}
	// When an edit returns, the other replica already serves it. A PATCH keeps fields that it does
	// not contain.
	if got := a.api(key, "PATCH", path, map[string]any{"rules": nil, "redirectType": 308}); got.status != 200 {
		t.Fatal(got)
	}
	if got := b.visit("/d/x?c=1", "User-Agent", iphone); got.status != 308 || got.header.Get("Location") != "https://example.com/base/x?own=1&c=1" {
		t.Errorf("visit after the edit: %d %q, want 308 to the link's own destination", got.status, got.header.Get("Location"))
	}
	c.forward(2 * time.Hour)
	if got := b.visit("/d", "User-Agent", windows); got.status != 302 || got.header.Get("Location") != "https://example.com/ended" || !strings.Contains(got.header.Get("Cache-Control"), "no-store") {
		t.Errorf("visit after expiry: %d %v, want 302 to expiredUrl, no-store", got.status, got.header)
	}
}

func TestALinkThatBeginsLater(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	a := c.replica(t)
	at := c.now().Add(time.Hour).Truncate(time.Second)
	made := a.create(key, map[string]any{"url": "https://example.com/secret", "slug": "later", "ogTitle": "Secret", "startsAt": at.UnixMilli()})
	path := "/api/v1/links/" + made.str("id")
	if got := a.api(key, "GET", path, nil); got.str("status") != "scheduled" {
		t.Errorf("link = %v, want status scheduled", got)
	}
	for _, header := range [][]string{nil, {"User-Agent", "Twitterbot/1.0"}} {
		for _, where := range []string{"/later", "/later+"} {
			got := a.visit(where, header...)
			if got.status != 404 || !strings.Contains(got.text, `<time datetime="`+at.UTC().Format(time.RFC3339)) || strings.Contains(strings.ToLower(got.text), "secret") {
				t.Errorf("%s before the start: %v, want 404 with the start and no link data", where, got)
			}
		}
	}
	asked := a.visit("/later", "Accept", "application/json")
	if e, _ := asked.json["error"].(map[string]any); e["code"] != "NOT_FOUND" || e["startsAt"] != float64(at.UnixMilli()) {
		t.Errorf("JSON before the start: %v, want NOT_FOUND with startsAt", asked)
	}
	tag := a.api(key, "GET", path, nil).header.Get("ETag")
	c.forward(time.Hour)
	if got := a.visit("/later"); got.status != 302 {
		t.Errorf("visit after the start: %v, want 302", got)
	}
	if got := a.api(key, "GET", path, nil, "If-None-Match", tag); got.status != 200 || got.str("status") != "active" {
		t.Errorf("GET after the start with the previous ETag: %v, want 200, active", got)
	}
}

func TestWrongRoutingChangesNothing(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	business := c.keys.Key(t, "acc_b", identity.Business)
	a := c.replica(t)
	made := a.create(key, map[string]any{"url": "https://example.com/", "expiresAt": 2e12})
	path := "/api/v1/links/" + made.str("id")
	before := a.api(key, "GET", path, nil)
	phone := map[string]any{"device": []any{"phone"}}
	for name, w := range map[string]struct {
		body   map[string]any
		fields map[string]string
	}{
		"unsupported redirect type":        {map[string]any{"redirectType": 303}, map[string]string{"redirectType": "not_allowed"}},
		"redirect type 0":                  {map[string]any{"redirectType": 0}, map[string]string{"redirectType": "not_allowed"}},
		"start after expiry":               {map[string]any{"startsAt": 3e12}, map[string]string{"startsAt": "not_allowed"}},
		"expiry before the start":          {map[string]any{"startsAt": 2e12, "expiresAt": 1e12}, map[string]string{"startsAt": "not_allowed"}},
		"page on our host":                 {map[string]any{"expiredUrl": shortBase + "/x"}, map[string]string{"expiredUrl": "self_reference"}},
		"rule that points to our host":     {map[string]any{"rules": []any{rule("a", shortBase+"/x", phone)}}, map[string]string{"rules.0.url": "self_reference"}},
		"rule without a condition":         {map[string]any{"rules": []any{rule("a", "https://e.example/", map[string]any{})}}, nil},
		"unknown condition":                {map[string]any{"rules": []any{rule("a", "https://e.example/", map[string]any{"browser": []any{"x"}})}}, nil},
		"empty list":                       {map[string]any{"rules": []any{rule("a", "https://e.example/", map[string]any{"device": []any{}})}}, nil},
		"country without a country source": {map[string]any{"rules": []any{rule("a", "https://e.example/", map[string]any{"country": []any{"DE"}})}}, map[string]string{"rules.0.when.country": "not_allowed"}},
		"two rules with the same name":     {map[string]any{"rules": []any{rule("a", "https://e.example/", phone), rule("A", "https://e.example/", phone)}}, map[string]string{"rules.1.name": "invalid_value"}},
		"percentage of 100":                {map[string]any{"rules": []any{rule("a", "https://e.example/", map[string]any{"percent": 100})}}, nil},
		"rules of the wrong type":          {map[string]any{"rules": "x"}, nil},
	} {
		got := a.api(key, "PATCH", path, w.body)
		want(t, name, got, 400, "VALIDATION_ERROR")
		for field := range w.fields {
			if _, named := got.fields()[field]; !named {
				t.Errorf("%s: %v, want %v", name, got, w.fields)
			}
		}
		w.body["url"] = "https://example.com/"
		w.body["expiresAt"] = 1e12
		want(t, name+", on create", a.api(key, "POST", "/api/v1/links", w.body), 400, "VALIDATION_ERROR")
	}
	later := a.create(business, map[string]any{"url": "https://example.com/", "startsAt": 2e12})
	set := map[string]any{"ids": []any{later.str("id")}, "set": map[string]any{"expiresAt": 1e12}}
	if got := a.api(business, "PATCH", "/api/v1/links/bulk", set); got.status != 207 || !strings.Contains(got.text, "set.expiresAt") {
		t.Errorf("bulk edit to an expiry before the start: %v, want 207 with set.expiresAt", got)
	}
	if diff := cmp.Diff(before.json, a.api(key, "GET", path, nil).json); diff != "" {
		t.Errorf("link after rejected requests (-want +got):\n%s", diff)
	}
}

func TestAVisitorKeepsTheSameShare(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	a, b := c.decider(t), c.decider(t)
	made := a.create(key, map[string]any{"url": "https://example.com/rest", "slug": "split", "rules": []any{
		rule("a", "https://example.com/a", map[string]any{"percent": 30}),
	}})
	visitors := make([][]string, 400)
	for i := range visitors {
		ip := netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}).String()
		visitors[i] = []string{"X-Forwarded-For", ip, "User-Agent", windows}
	}
	sides := func(r *replica) (where []string, n int) {
		for _, v := range visitors {
			to := r.visit("/split", v...).header.Get("Location")
			if where = append(where, to); to == "https://example.com/a" {
				n++
			}
		}
		return where, n
	}
	first, n := sides(a)
	if n < 75 || n > 170 { // 120 ± 5 standard deviations
		t.Errorf("a share of 30%% got %d of 400 visitors, want 75 to 170", n)
	}
	if second, _ := sides(b); !cmp.Equal(first, second) {
		t.Error("two replicas redirect the same visitors to different destinations, want the same")
	}
	if got := a.api(key, "PATCH", "/api/v1/links/"+made.str("id"), map[string]any{"rules": []any{rule("b", "https://example.com/a", map[string]any{"percent": 60})}}); got.status != 200 {
		t.Fatal(got)
	}
	wider, _ := sides(b)
	for i := range wider {
		if first[i] == "https://example.com/a" && wider[i] != first[i] {
			t.Errorf("visitor %d left the share when its percentage was raised, want it kept", i)
		}
	}
	// All addresses of an IPv6 /64 network count as one visitor.
	x := a.visit("/split", "X-Forwarded-For", "2001:db8:1:2::1", "User-Agent", windows).header.Get("Location")
	for _, ip := range []string{"2001:db8:1:2::2", "2001:db8:1:2:ffff::3"} {
		if got := b.visit("/split", "X-Forwarded-For", ip, "User-Agent", windows).header.Get("Location"); got != x {
			t.Errorf("destination for another address in the same IPv6 network = %q, want %q", got, x)
		}
	}
}

func TestStatisticsTellWhichRuleLed(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	a, b := c.replica(t), c.replica(t)
	phones := func(name string) map[string]any {
		return map[string]any{"rules": []any{
			rule(name, "https://example.com/phone", map[string]any{"device": []any{"phone"}}),
			rule("sale", "https://example.com/sale", map[string]any{"query": map[string]any{"c": "*"}}),
		}}
	}
	body := phones("iPhones")
	body["url"], body["slug"] = "https://example.com/", "ruled"
	path := "/api/v1/links/" + a.create(key, body).str("id")
	visits := func(n int, at, agent string) {
		for range n {
			b.visit(at, "User-Agent", agent)
		}
	}
	visits(3, "/ruled", iphone)
	visits(2, "/ruled?c=1", windows)
	visits(1, "/ruled", windows)
	b.visit("/ruled", "User-Agent", "Googlebot-Mobile/2.1 (iPhone)")
	if got := a.api(key, "PATCH", path, phones("every phone")); got.status != 200 {
		t.Fatal(got)
	}
	visits(4, "/ruled", iphone)
	eventually(t, "ten clicks", func() bool { return a.api(key, "GET", path, nil).json["clicks"] == 10.0 })
	clicks := func(rule string, n float64) any { return map[string]any{"rule": rule, "clicks": n} }
	st := a.api(key, "GET", path+"/stats", nil)
	if diff := cmp.Diff([]any{clicks("every phone", 4), clicks("iPhones", 3), clicks("sale", 2), clicks("", 1)}, st.json["rules"]); diff != "" || st.json["total"] != 10.0 {
		t.Errorf("%v clicks, want 10; by rule (-want +got):\n%s", st.json["total"], diff)
	}
}
