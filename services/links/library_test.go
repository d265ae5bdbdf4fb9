package links_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/events/eventstest"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
)

// found returns the slugs on all pages of a list query.
func (r *replica) found(key, query string) []string {
	r.t.Helper()
	out, cursor := []string{}, ""
	for {
		a := r.api(key, "GET", "/api/v1/links?limit=40&"+query+cursor, nil)
		if a.status != 200 {
			r.t.Fatalf("list %s: %v, want 200", query, a)
		}
		for _, d := range a.json["data"].([]any) {
			out = append(out, d.(map[string]any)["slug"].(string))
		}
		if a.json["hasMore"] != true {
			return out
		}
		cursor = fmt.Sprintf("&cursor=%.0f", a.json["nextCursor"])
	}
}

func TestLinksAreFoundAgain(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	r.create(c.keys.Key(t, "acc_b", identity.Business), map[string]any{"url": "https://example.com/spring", "title": "Spring", "tags": []string{"Mail"}, "externalId": "x-1"})
	first := r.create(key, map[string]any{"url": "https://xn--mnchen-3ya.example/caf%C3%A9/Stra%C3%9Fe?hidden=query", "slug": "One_two", "title": "Ｓpring  sale 2026", "tags": []string{" Mail ", "MAIL", "été"}, "externalId": "x-1"})
	r.create(key, map[string]any{"url": "https://example.com/autumn", "slug": "Two", "archived": true})
	r.create(key, map[string]any{"url": "https://example.com/spring/late", "slug": "three", "tags": []string{"mail", "summer"}})
	r.create(key, map[string]any{"url": "https://example.net/100%/%zz/caf%C3%A9%2Flate/%E9/%41", "slug": "four"}) // includes invalid percent-encoding
	for query, wanted := range map[string][]string{
		"":                             {"four", "three", "Two", "One_two"},
		"q=spring":                     {"three", "One_two"},
		"q=SPR":                        {"three", "One_two"},
		"q=pring":                      {},
		"q=sale spr":                   {"One_two"},
		"q=cafe":                       {"four", "One_two"},
		"q=STRASSE":                    {"One_two"},
		"q=strasse café":               {"One_two"},
		"q=münchen":                    {"One_two"},
		"q=xn mnchen":                  {"One_two"},
		"q=two":                        {"Two", "One_two"},
		"q=hidden":                     {},
		"q=ETE":                        {"One_two"},
		"q=example.com":                {"three", "Two"},
		"q=--":                         {"four", "three", "Two", "One_two"},
		"q=spring autumn":              {},
		"tag=MAIL":                     {"three", "One_two"},
		"tag=mail&tag=Summer":          {"three"},
		"tag=ete":                      {},
		"tag=%C3%89T%C3%89":            {"One_two"},
		"slug=TWO":                     {"Two"},
		"slug=tw":                      {},
		"archived=true":                {"Two"},
		"archived=false":               {"four", "three", "One_two"},
		"archived=all":                 {"four", "three", "Two", "One_two"},
		"domainId=default":             {"four", "three", "Two", "One_two"},
		"domainId=dom_none":            {},
		"externalId=x-1":               {"One_two"},
		"externalId=x-1&archived=true": {},
		"externalId=none":              {},
		"q=spring&tag=mail&archived=false&domainId=default": {"three", "One_two"},
		"q=café late": {"four"},
		"q=a":         {"four", "Two"},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wanted, r.found(key, values.Encode())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	got := r.api(key, "GET", "/api/v1/links/"+first.str("id"), nil)
	if diff := cmp.Diff([]any{"Mail", "été"}, got.json["tags"]); diff != "" || got.str("externalId") != "x-1" || got.json["archived"] != false {
		t.Errorf("link = %v, want tags Mail and été, externalId x-1, not archived", got)
	}
	for _, bad := range []string{"archived=yes", "tag=", "tag=a,b", "slug=a b", "slug=", "externalId=", "externalId=é", "tag=1&tag=2&tag=3&tag=4&tag=5&tag=6", "q=" + strings.Repeat("a", 501), "domainId="} {
		values, _ := url.ParseQuery(bad)
		want(t, bad, r.api(key, "GET", "/api/v1/links?"+values.Encode(), nil), 400, "VALIDATION_ERROR")
	}

	want(t, "create with a taken external ID", r.api(key, "POST", "/api/v1/links", `{"url":"https://a.example","externalId":"x-1"}`), 409, "EXTERNAL_ID_TAKEN")
	bulk := r.api(key, "POST", "/api/v1/links/bulk", `{"urls":[{"url":"https://a.example","externalId":"y"},{"url":"https://a.example","externalId":"y"},{"url":"https://a.example","externalId":"x-1"}]}`)
	var codes []any
	for _, item := range bulk.json["results"].([]any) {
		codes = append(codes, item.(map[string]any)["status"])
	}
	if !cmp.Equal(codes, []any{201.0, 409.0, 409.0}) {
		t.Errorf("bulk: %v, want 201, 409, 409", bulk)
	}
	path := "/api/v1/links/" + first.str("id")
	want(t, "PATCH to a taken external ID", r.api(key, "PATCH", path, `{"externalId":"y"}`), 409, "EXTERNAL_ID_TAKEN")
	want(t, "PATCH to the link's own external ID", r.api(key, "PATCH", path, `{"externalId":"x-1"}`), 200, "")
	want(t, "PATCH of several fields", r.api(key, "PATCH", path, `{"externalId":null,"tags":["new"],"archived":true,"title":"Winter"}`), 200, "")
	if a := r.api(key, "PATCH", path, `{"externalId":"","tags":["`+strings.Repeat("x", 51)+`"],"archived":"no"}`); a.status != 400 || len(a.fields()) != 3 {
		t.Errorf("PATCH with three invalid fields: %v, want 400 with three details", a)
	}
	for query, wanted := range map[string][]string{"q=winter": {"One_two"}, "q=sale": {}, "tag=new": {"One_two"}, "archived=true": {"Two", "One_two"}, "externalId=x-1": {}} {
		if diff := cmp.Diff(wanted, r.found(key, query)); diff != "" {
			t.Errorf("%s after the PATCH (-want +got):\n%s", query, diff)
		}
	}
	r.create(key, map[string]any{"url": "https://a.example", "externalId": "x-1"}) // the ID is free again
	if v := r.visit("/two"); v.status != 302 {
		t.Errorf("visit to an archived link: %v, want 302", v)
	}
	r.api(key, "DELETE", path, nil)
	if got := r.found(key, "q=winter"); len(got) != 0 {
		t.Errorf("search for a deleted link = %v, want none", got)
	}
}

func TestBulkChangeAndDelete(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r, other := c.replica(t), c.replica(t)
	key, creator := c.keys.Key(t, "acc_a", identity.Business), c.keys.Key(t, "acc_c", identity.Creator)
	a := r.create(key, map[string]any{"url": "https://a.example/1", "slug": "a", "tags": []string{"Keep", "old"}}).str("id")
	b := r.create(key, map[string]any{"url": "https://a.example/2", "slug": "b"}).str("id")
	foreign := r.create(creator, map[string]any{"url": "https://a.example", "slug": "f"}).str("id")
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	full := r.create(key, map[string]any{"url": "https://a.example/3", "slug": "full", "tags": many}).str("id")
	patch := func(body any) answer { return r.api(key, "PATCH", "/api/v1/links/bulk", body) }
	statuses := func(a answer) (out []string) {
		results, _ := a.json["results"].([]any)
		for _, item := range results {
			m := item.(map[string]any)
			e, _ := m["error"].(map[string]any)
			out = append(out, fmt.Sprint(m["id"], " ", m["status"], " ", e["code"]))
		}
		return out
	}
	other.visit("/a")
	got := patch(map[string]any{"ids": []string{b, foreign, a, full, "lnk_none", "../x", b}, "set": map[string]any{"addTags": []string{"New", "KEEP"}, "removeTags": []string{"OLD"}, "archived": true, "expiresAt": "2001-01-01"}})
	wanted := []string{b + " 200 <nil>", foreign + " 404 LINK_NOT_FOUND", a + " 200 <nil>", full + " 400 VALIDATION_ERROR", "lnk_none 404 LINK_NOT_FOUND", "../x 404 LINK_NOT_FOUND", b + " 200 <nil>"}
	if diff := cmp.Diff(wanted, statuses(got)); diff != "" || got.status != 207 {
		t.Fatalf("bulk edit: %v, want 207 (-want +got):\n%s", got, diff)
	}
	l := r.api(key, "GET", "/api/v1/links/"+a, nil)
	if !cmp.Equal(l.json["tags"], []any{"Keep", "New"}) || l.json["archived"] != true || l.str("status") != "expired" {
		t.Errorf("first link = %v, want tags Keep and New, archived, expired", l)
	}
	if v := other.visit("/a"); v.status != 410 {
		t.Errorf("visit through another replica: %v, want 410", v)
	}
	if diff := cmp.Diff([]string{"b", "a"}, r.found(key, "tag=new&archived=true")); diff != "" {
		t.Error(diff)
	}
	if got := patch(map[string]any{"ids": []string{a, b}, "set": map[string]any{"tags": nil, "archived": false, "expiresAt": nil}}); got.status != 200 {
		t.Errorf("bulk edit: %v, want 200", got)
	}
	if v := other.visit("/a"); v.status != 302 {
		t.Errorf("visit after the expiry was removed: %v, want 302", v)
	}
	// Links that already have the requested state are not written, so a client can safely repeat a
	// change.
	before := r.api(key, "GET", "/api/v1/links/"+a, nil).text
	if got := patch(map[string]any{"ids": []string{a}, "set": map[string]any{"removeTags": []string{"new"}, "archived": false, "expiresAt": nil}}); got.status != 200 {
		t.Errorf("repeated edit: %v, want 200", got)
	}
	if after := r.api(key, "GET", "/api/v1/links/"+a, nil).text; after != before {
		t.Errorf("the repeated edit changed the link, want no change; from\n%s\nto\n%s", before, after)
	}
	for name, body := range map[string]string{
		"without IDs": `{"ids":[],"set":{}}`, "unsupported field": `{"ids":["a"],"set":{"archived":true,"title":"x"}}`, "without set": `{"ids":["a"]}`, "tags and addTags": `{"ids":["a"],"set":{"tags":["a"],"addTags":["b"]}}`, "invalid tag": `{"ids":["a"],"set":{"addTags":["a,b"]}}`,
		"101 IDs": `{"ids":["` + strings.Repeat(`a","`, 100) + `a"],"set":{}}`, "invalid date": `{"ids":["a"],"set":{"expiresAt":"never"}}`,
	} {
		want(t, name, patch(body), 400, "VALIDATION_ERROR")
	}
	want(t, "bulk edit on the Creator plan", r.api(creator, "PATCH", "/api/v1/links/bulk", `{}`), 403, "PLAN_REQUIRED")
	want(t, "bulk delete on the Creator plan", r.api(creator, "POST", "/api/v1/links/bulk-delete", `{}`), 403, "PLAN_REQUIRED")
	gone := r.api(key, "POST", "/api/v1/links/bulk-delete", map[string]any{"ids": []string{a, foreign}}, "Idempotency-Key", "d1")
	if diff := cmp.Diff([]string{a + " 200 <nil>", foreign + " 404 LINK_NOT_FOUND"}, statuses(gone)); diff != "" || gone.status != 207 {
		t.Errorf("bulk delete: %v, want 207 (-want +got):\n%s", gone, diff)
	}
	if v := other.visit("/a"); v.status != 404 {
		t.Errorf("visit to a deleted link: %v, want 404", v)
	}
	if again := r.api(key, "POST", "/api/v1/links/bulk-delete", map[string]any{"ids": []string{a, foreign}}, "Idempotency-Key", "d1"); again.text != gone.text {
		t.Errorf("repeated delete: %v, want the first response %s", again, gone.text)
	}
	if all := r.api(key, "POST", "/api/v1/links/bulk-delete", map[string]any{"ids": []string{b, full}}); all.status != 200 || len(r.found(key, "")) != 0 {
		t.Errorf("delete the other links: %v, want 200 and an empty list", all)
	}
}

func TestTagsAreListedInAlphabeticalOrder(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	list := func(query string) (names []string) {
		t.Helper()
		names = []string{}
		for cursor := ""; ; {
			a := r.api(key, "GET", "/api/v1/tags?limit=2&"+query+cursor, nil)
			if a.status != 200 {
				t.Fatal(a)
			}
			for _, d := range a.json["data"].([]any) {
				names = append(names, d.(map[string]any)["name"].(string))
			}
			if a.json["nextCursor"] == nil {
				return names
			}
			cursor = "&cursor=" + a.json["nextCursor"].(string)
		}
	}
	if got := list(""); len(got) != 0 {
		t.Errorf("tags = %v, want none", got)
	}
	id := r.create(key, map[string]any{"url": "https://a.example", "tags": []string{"zebra", "École", "apple pie", "Banana"}}).str("id")
	r.create(key, map[string]any{"url": "https://a.example", "tags": []string{"BANANA", "dog"}})
	if diff := cmp.Diff([]string{"apple pie", "Banana", "dog", "École", "zebra"}, list("")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"apple pie"}, list("q=PIE")); diff != "" {
		t.Error(diff)
	}
	want(t, "invalid cursor", r.api(key, "GET", "/api/v1/tags?cursor=%2B", nil), 400, "INVALID_CURSOR")
	want(t, "limit", r.api(key, "GET", "/api/v1/tags?limit=0", nil), 400, "VALIDATION_ERROR")
	want(t, "scope", r.api(c.keys.Key(t, "acc_k", identity.Business, func(k *apikey.Record) { k.Scopes = identity.KeysRead }), "GET", "/api/v1/tags", nil), 403, "INSUFFICIENT_SCOPE")
	if a := r.api(c.keys.Key(t, "acc_v", identity.Free, func(k *apikey.Record) { k.Scopes = identity.VideosRead }), "GET", "/api/v1/tags", nil); a.status != 200 {
		t.Errorf("list with the videos:read scope: %v, want 200", a)
	}
	r.api(key, "DELETE", "/api/v1/links/"+id, nil)
	if diff := cmp.Diff([]string{"apple pie", "Banana", "dog", "École", "zebra"}, list("")); diff != "" {
		t.Errorf("tags directly after the delete (-want +got):\n%s", diff)
	}
}

// oracle answers searches by scanning all links. It implements word splitting independently.
type oracle struct {
	mu    sync.Mutex
	links []oracleLink // oldest first
}

type oracleLink struct {
	slug, title string
	path        string
	tags        []string
	archived    bool
	text        string // folded words, separated by spaces
}

func fold(s string) string {
	s = norm.NFKD.String(cases.Fold().String(norm.NFKD.String(s)))
	return strings.Map(func(r rune) rune {
		if r >= 0x300 && r < 0x370 {
			return -1
		}
		return r
	}, s)
}

func (l oracleLink) matches(words []string, tag, archived string) bool {
	if archived != "all" && fmt.Sprint(l.archived) != archived || tag != "" && !slices.ContainsFunc(l.tags, func(t string) bool { return strings.EqualFold(t, tag) }) {
		return false
	}
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(l.text, " "+fold(w)) })
}

func (o *oracle) find(words []string, tag, archived string) (slugs []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	slugs = []string{}
	for _, l := range slices.Backward(o.links) {
		if l.matches(words, tag, archived) {
			slugs = append(slugs, l.slug)
		}
	}
	return slugs
}

// TestSearchAgreesWithAnOracle runs random queries while links are being created. LINKREEL_FULL=1
// increases the number of links to 100,000.
func TestSearchAgreesWithAnOracle(t *testing.T) {
	t.Parallel()
	size, queries := 600, 150
	if os.Getenv("LINKREEL_FULL") != "" {
		size, queries = 100_000, 2000
	}
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Enterprise)
	vocabulary := strings.Fields("Spring summer AUTUMN winter sale Café crème Straße naïve launch alpha beta gamma delta mail news Über ångström ﬁle product promo x1 x2 x3 2026 2027")
	rng := rand.New(rand.NewPCG(3, 4))
	pick := func(n int) (out []string) {
		for range n {
			out = append(out, vocabulary[rng.IntN(len(vocabulary))])
		}
		return out
	}
	o := &oracle{}
	made := 0
	create := func(n int) {
		var items []map[string]any
		var links []oracleLink
		for range n {
			made++
			common := "even" // no link contains both of these common words
			if made%2 == 1 {
				common = "odd"
			}
			l := oracleLink{slug: fmt.Sprintf("s%d-%s", made, strings.ToLower(pick(1)[0][:1])+"z"), title: strings.Join(append(pick(3), common), " "), path: strings.Join(pick(2), "/"), archived: rng.IntN(4) == 0}
			l.slug = strings.Map(func(r rune) rune {
				if r > '~' {
					return 'y'
				}
				return r
			}, l.slug)
			if rng.IntN(2) == 0 {
				l.tags = []string{pick(1)[0]}
			}
			l.text = " " + strings.NewReplacer("-", " ", "/", " ", ".", " ").Replace(fold(strings.Join(append([]string{l.slug, l.title, "example.com", l.path}, l.tags...), " ")))
			links = append(links, l)
			items = append(items, map[string]any{"url": "https://example.com/" + l.path, "slug": l.slug, "title": l.title, "tags": l.tags, "archived": l.archived})
		}
		if a := r.api(key, "POST", "/api/v1/links/bulk", map[string]any{"urls": items}); a.status != 201 {
			t.Fatal(a)
		}
		o.links = append(o.links, links...)
	}
	for made < size {
		create(100)
	}
	var took []time.Duration
	var reads []int64 // one for each query
	apart := int64(0) // largest number of documents read by a query for both common words
	for i := range queries {
		if i%10 == 9 {
			create(1 + rng.IntN(3)) // the next query must already find these links
		}
		words := pick(rng.IntN(4))
		for n, w := range words {
			if runes := []rune(w); rng.IntN(2) == 0 {
				words[n] = string(runes[:1+rng.IntN(len(runes))])
			}
		}
		if i%25 == 24 {
			words = []string{"even", "odd"}
		}
		tag, archived := "", []string{"all", "true", "false"}[rng.IntN(3)]
		if rng.IntN(4) == 0 {
			tag = strings.ToUpper(pick(1)[0])
		}
		values := url.Values{"q": {strings.Join(words, " ")}, "archived": {archived}, "limit": {"20"}}
		if tag != "" {
			values.Set("tag", tag)
		}
		started, before := time.Now(), c.Firestore.Stats().Reads
		a := r.api(key, "GET", "/api/v1/links?"+values.Encode(), nil)
		took, reads = append(took, time.Since(started)), append(reads, c.Firestore.Stats().Reads-before)
		if i%25 == 24 {
			apart = max(apart, reads[len(reads)-1])
		}
		got := []string{}
		for _, d := range a.json["data"].([]any) {
			got = append(got, d.(map[string]any)["slug"].(string))
		}
		all := o.find(words, tag, archived)
		if diff := cmp.Diff(all[:min(20, len(all))], got); diff != "" || a.json["hasMore"] != (len(all) > 20) {
			t.Fatalf("query %d, %v, tag %q, archived %s: hasMore %v of %d (-want +got):\n%s", i, words, tag, archived, a.json["hasMore"], len(all), diff)
		}
	}
	slices.Sort(took)
	slices.Sort(reads)
	p50, p95, most := reads[len(reads)/2], reads[len(reads)*95/100], reads[len(reads)-1]
	t.Logf("%d links, %d queries: p50 %v, p95 %v, max %v; reads p50 %d, p95 %d, max %d, max %d for two words that no link contains together", made, queries, took[len(took)/2], took[len(took)*95/100], took[len(took)-1], p50, p95, most, apart)
	if p95 > 50+5*20 || most > 2000 {
		t.Errorf("a query for 20 links reads p95 %d, max %d documents; want at most 150 and 2000", p95, most)
	}
}

// TestABulkAnswerStaysSmall sends up to a megabyte of fields that are invalid in various ways.
func TestABulkAnswerStaysSmall(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Enterprise)
	list := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	unknown := make([]string, 240)
	for i := range unknown {
		unknown[i] = fmt.Sprintf("%q:1", fmt.Sprintf("unknown-%d-%s", i, strings.Repeat("n", 20)))
	}
	for name, tt := range map[string]struct{ method, path, body string }{
		"long URLs":               {"POST", "", `{"urls":` + list(100, `{"url":"`+strings.Repeat("x", 10_000)+`"}`) + `}`},
		"URLs that need escaping": {"POST", "", `{"urls":` + list(100, `{"url":"`+strings.Repeat(`\u0001`, 1_600)+`"}`) + `}`},
		"invalid tags":            {"POST", "", `{"urls":` + list(100, `{"url":"x","tags":`+list(1_900, "1,\"\"")+`}`) + `}`},
		"few items, many errors":  {"POST", "", `{"urls":` + list(9, `{"url":"https://a.example","tags":`+list(1_000, `""`)+`}`) + `}`},
		"all items, many errors":  {"POST", "", `{"urls":` + list(95, `{"url":"https://a.example","tags":`+list(100, `7`)+`}`) + `}`},
		"all fields invalid":      {"POST", "", `{"urls":` + list(100, `{"url":"`+strings.Repeat("y", 3_000)+`","slug":"-","title":7,"ogTitle":7,"ogImage":7,"ogDescription":7,"expiresAt":"x","tags":`+list(900, "1")+`,"externalId":"","archived":1,`+strings.Join(unknown[:80], ",")+`}`) + `}`},
		"unknown fields":          {"POST", "", `{"urls":` + list(100, `{"url":"nonsense",`+strings.Join(unknown, ",")+`}`) + `}`},
		"items of the wrong type": {"POST", "", `{"urls":` + list(100, `"`+strings.Repeat("z", 10_000)+`"`) + `}`},
		"too many items":          {"POST", "", `{"urls":` + list(300_000, "{}") + `}`},
		"urls of the wrong type":  {"POST", "", `{"urls":"` + strings.Repeat("z", 1_000_000) + `"}`},
		"long IDs":                {"PATCH", "", `{"ids":` + list(100, `"`+strings.Repeat("i", 10_000)+`"`) + `,"set":{"archived":true}}`},
		"IDs of the wrong type":   {"PATCH", "", `{"ids":` + list(300_000, "7") + `,"set":{"archived":true}}`},
		"invalid fields in set":   {"PATCH", "", `{"ids":["lnk_1"],"set":{"tags":` + list(300_000, "7") + `,"` + strings.Repeat("n", 100_000) + `":1}}`},
		"long IDs to delete":      {"POST", "-delete", `{"ids":` + list(100, `"`+strings.Repeat("i", 10_000)+`"`) + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(tt.body) > 1<<20 {
				t.Fatalf("the request body is %d bytes long, want at most 1 MiB", len(tt.body))
			}
			a := r.api(key, tt.method, "/api/v1/links/bulk"+tt.path, tt.body)
			if a.status != 207 && a.status != 400 || len(a.text) >= 64<<10 {
				t.Errorf("status %d, body of %d bytes, want 207 or 400 and less than 64 KiB: %.300s", a.status, len(a.text), a.text)
			}
			truthful(t, a)
		})
	}
	// Values of ordinary length are returned in full.
	var body strings.Builder
	for i := range 100 {
		fmt.Fprintf(&body, `{"url":"nonsense-%d-%s"},`, i, strings.Repeat("x", 100))
	}
	a := r.api(key, "POST", "/api/v1/links/bulk", `{"urls":[`+strings.TrimSuffix(body.String(), ",")+`]}`)
	for i, item := range a.json["results"].([]any) {
		e := item.(map[string]any)["error"].(map[string]any)
		if want := fmt.Sprintf("nonsense-%d-%s", i, strings.Repeat("x", 100)); e["url"] != want || len(e["details"].([]any)) != 1 {
			t.Errorf("item %d = %v, want the full URL and one detail", i, e)
			break
		}
	}
}

// truthful checks that each error message states the right number of details.
func truthful(t *testing.T, a answer) {
	t.Helper()
	all, _ := a.json["results"].([]any)
	for i, item := range append(all, a.json) {
		e, _ := item.(map[string]any)["error"].(map[string]any)
		details, _ := e["details"].([]any)
		more, _ := e["moreDetails"].(float64)
		want := "One or more fields are not valid."
		switch n := len(details); {
		case n == 0:
			continue
		case n == 1 && more > 0:
			want = fmt.Sprintf("%d fields are not valid. The first is listed.", 1+int(more))
		case more > 0:
			want = fmt.Sprintf("%d fields are not valid. The first %d are listed.", n+int(more), n)
		}
		if e["message"] != want {
			t.Errorf("error %d lists %d details and omits %v: message = %q, want %q", i, len(details), more, e["message"], want)
		}
	}
}

// longURL returns a URL with the maximum number of searchable words.
func longURL(i int) string {
	var b strings.Builder
	b.WriteString("https://example.com")
	for word := range 370 {
		b.WriteByte('/')
		for letter := range 4 {
			b.WriteRune(rune(0x20000 + (i*997+word*131+letter*17)%40000))
		}
	}
	return b.String()
}

// Links from a request body of maximum size can be created, edited, deleted and erased, even if
// that takes several commits.
func TestBulkTakesAHundredLongAddresses(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	links := 100
	if testing.Short() {
		links = 30 // under the race detector, a full commit takes longer than a request may
	}
	// Like a client, ask retries requests that time out on a busy machine.
	ask := func(want int, method, path string, body map[string]any, idempotencyKey string) (a answer) {
		t.Helper()
		tries := 1
		for a = r.api(key, method, path, body, "Idempotency-Key", idempotencyKey); a.status == 503 && tries < 10; tries++ {
			t.Logf("retry %s %s after %s", method, path, a.text)
			a = r.api(key, method, path, body, "Idempotency-Key", idempotencyKey)
		}
		partly := a.status == 207 && tries > 1 // a previous attempt deleted some of the links
		if results, _ := a.json["results"].([]any); a.status != want && !partly || len(results) != links {
			t.Fatalf("%s %s: %d, want %d with %d results: %.300s", method, path, a.status, want, links, a.text)
		}
		return a
	}
	made := func(from int) (ids []string) {
		t.Helper()
		var items []any
		for i := range links {
			items = append(items, map[string]any{"url": longURL(from + i), "tags": []string{"long"}})
		}
		a := ask(201, "POST", "/api/v1/links/bulk", map[string]any{"urls": items}, fmt.Sprint("from ", from))
		for i, result := range a.json["results"].([]any) {
			data := result.(map[string]any)["data"].(map[string]any)
			if data["destinationUrl"] != longURL(from+i) {
				t.Errorf("item %d: URL = %v, want %s", i, data["destinationUrl"], longURL(from+i))
			}
			ids = append(ids, data["id"].(string))
		}
		return ids
	}
	ids := made(0)
	ask(200, "PATCH", "/api/v1/links/bulk", map[string]any{"ids": ids, "set": map[string]any{"archived": true, "removeTags": []string{"long"}, "expiresAt": "2001-01-01"}}, "changed")
	if n := len(r.found(key, "archived=true")); n != links {
		t.Errorf("got %d archived links, want %d", n, links)
	}
	if n := len(r.found(key, "tag=long&archived=all")); n != 0 {
		t.Errorf("got %d links with the tag, want 0", n)
	}
	ask(200, "POST", "/api/v1/links/bulk-delete", map[string]any{"ids": ids}, "deleted")
	for _, what := range []string{"link.created", "link.updated", "link.deleted"} {
		if n := len(slices.DeleteFunc(eventstest.Types(t, c.Client(t)), func(told string) bool { return told != what })); n != links {
			t.Errorf("got %d events %s, want %d", n, what, links)
		}
	}
	made(1000)
	auth := r.holder()
	deleting := func() {
		if err := auth.SetState(t.Context(), "acc_a", tenant.Standing{State: tenant.Deleting, Version: 2}); err != nil {
			t.Fatal(err)
		}
	}
	deleting()
	c.forward(time.Minute)
	eventually(t, "erased", func() bool {
		deleting() // auth repeats this call, and each repeat makes the purge due now
		done, err := auth.Erased(t.Context(), "acc_a")
		return done && err == nil
	})
	if left, err := c.Client(t).Collection("links").Select().Documents(t.Context()).GetAll(); err != nil || len(left) > 0 {
		t.Errorf("got %d links after the erasure, %v; want none", len(left), err)
	}
}
