package links_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

func TestALinkRedirectsAndCounts(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	made := r.create(key, map[string]any{"url": "https://example.com/ü?q=1", "title": "T"})
	path := made.header.Get("Location")
	if path != "/api/v1/links/"+made.str("id") || made.str("shortUrl") != shortBase+"/"+made.str("slug") {
		t.Errorf("create: %v with Location %q, want the link's path and short URL", made, path)
	}
	for range 3 {
		a := r.visit("/"+made.str("slug"), "Referer", "https://News.example/x")
		if a.status != 302 || a.header.Get("Location") != "https://example.com/%C3%BC?q=1" || a.header.Get("Cache-Control") != "private, no-store" {
			t.Fatalf("visit: %v %v, want 302 to the destination, private, no-store", a, a.header)
		}
	}
	eventually(t, "three clicks are counted", func() bool { return r.api(key, "GET", path, nil).json["clicks"] == 3.0 })
	today := c.now().UTC().Format(time.DateOnly)
	st := r.api(key, "GET", path+"/stats?from="+today+"&to="+today, nil)
	wanted := map[string]any{
		"from": today, "to": today, "total": 3.0, "days": []any{map[string]any{"date": today, "clicks": 3.0}},
		"referrers": []any{map[string]any{"host": "news.example", "clicks": 3.0}},
		"countries": []any{map[string]any{"country": "", "clicks": 3.0}}, "devices": []any{map[string]any{"device": "desktop", "clicks": 3.0}},
		"rules": []any{map[string]any{"rule": "", "clicks": 3.0}},
	}
	if diff := cmp.Diff(wanted, st.json); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	if all := r.api(key, "GET", path+"/stats", nil); len(all.json["days"].([]any)) != 30 || all.json["total"] != 3.0 {
		t.Errorf("stats without a period: %v, want 30 days and 3 clicks", all)
	}
}

func TestWhatCountsAsAClick(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	slug := r.create(key, map[string]any{"url": "https://example.com", "slug": "Counts", "ogTitle": "<T>"}).str("slug")
	facebook := "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)"
	for _, uncounted := range []answer{
		r.do("redirect", "HEAD", shortBase+"/counts", nil),
		r.visit("/counts", "Sec-Purpose", "prefetch;prerender"),
		r.visit("/counts", "Purpose", "prefetch"),
		r.visit("/counts", "User-Agent", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"),
	} {
		if uncounted.status != 302 {
			t.Errorf("uncounted visit: %v, want 302", uncounted)
		}
	}
	card := r.visit("/counts", "User-Agent", facebook)
	if card.status != 200 || !strings.Contains(card.text, `property="og:title" content="&lt;T&gt;"`) || !strings.Contains(card.text, `http-equiv="refresh" content="0;url=https://example.com/"`) || card.header.Get("Vary") != "User-Agent" {
		t.Errorf("visit by a crawler: %v %v, want 200 with the Open Graph tags and a refresh", card, card.header)
	}
	if p := r.visit("/counts+"); p.status != 200 || !strings.Contains(p.text, `href="https://example.com/"`) || !strings.Contains(p.text, shortBase+"/Counts") {
		t.Errorf("preview page: %v, want the destination and the short URL", p)
	}
	plain := r.create(key, map[string]any{"url": "https://example.com", "title": "secret"}).str("slug")
	if a := r.visit("/"+plain, "User-Agent", facebook); a.status != 302 {
		t.Errorf("visit by a crawler to a link without preview fields: %v, want 302", a)
	}
	if a := r.visit("/" + plain + "+"); strings.Contains(a.text, "secret") {
		t.Errorf("preview page: %v, want no private title", a)
	}
	for range 2 {
		r.visit("/"+slug, "User-Agent", "curl/8.5.0")
	}
	eventually(t, "two clicks are counted", func() bool { return clicksBySlug(r, key)[slug] == 2 })
	time.Sleep(1200 * time.Millisecond) // leave time for another flush, which would reveal any further clicks
	if got := clicksBySlug(r, key); got[slug] != 2 || got[plain] != 0 {
		t.Errorf("clicks by slug = %v, want 2 for %s and none for %s", got, slug, plain)
	}
}

func clicksBySlug(r *replica, key string) map[string]int {
	out := map[string]int{}
	data, _ := r.api(key, "GET", "/api/v1/links?limit=100", nil).json["data"].([]any)
	for _, d := range data {
		m := d.(map[string]any)
		out[m["slug"].(string)] = int(m["clicks"].(float64))
	}
	return out
}

func TestRedirectAnswers(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	r.create(key, map[string]any{"url": "https://example.com/x", "slug": "Spring-Sale"})
	r.create(key, map[string]any{"url": "https://example.com/x", "slug": "old", "expiresAt": "2001-01-01"})
	for name, v := range map[string]struct {
		method, path string
		header       []string
		status       int
		contains     string
	}{
		"original case":          {"GET", "/Spring-Sale", nil, 302, ""},
		"different case":         {"GET", "/SPRING-sale", nil, 302, ""},
		"with a query":           {"GET", "/spring-sale?redir_url=https://evil.example", nil, 302, ""},
		"percent-encoded":        {"GET", "/%73pring-sale", nil, 302, ""},
		"unknown":                {"GET", "/nothing", nil, 404, "<h1>"},
		"unknown slug, JSON":     {"GET", "/nothing", []string{"Accept", "application/json"}, 404, `"code":"NOT_FOUND"`},
		"expired":                {"GET", "/old", nil, 410, "expired"},
		"expired, JSON":          {"GET", "/old", []string{"Accept", "application/json"}, 410, `"code":"GONE"`},
		"expired preview":        {"GET", "/old+", nil, 410, ""},
		"root":                   {"GET", "/", nil, 404, ""},
		"two segments":           {"GET", "/spring-sale/x", nil, 404, ""},
		"encoded slash":          {"GET", "/spring%2Dsale%2Fx", nil, 404, ""},
		"invalid slug":           {"GET", "/-", nil, 404, ""},
		"slug much too long":     {"GET", "/" + strings.Repeat("a", 5000), nil, 404, ""},
		"posted":                 {"POST", "/spring-sale", nil, 405, ""},
		"deleted":                {"DELETE", "/spring-sale", nil, 405, ""},
		"robots":                 {"GET", "/robots.txt", nil, 200, "Disallow"},
		"favicon":                {"GET", "/favicon.ico", nil, 204, ""},
		"unknown host":           {"GET", "/spring-sale", []string{"Host", "other.example"}, 404, ""},
		"IP address as the host": {"GET", "/spring-sale", []string{"Host", "192.0.2.1"}, 404, ""},
		"our host with a port":   {"GET", "/spring-sale", []string{"Host", "LRL.example:80"}, 302, ""},
	} {
		a := r.do("redirect", v.method, shortBase+v.path, nil, append([]string{"User-Agent", "x"}, v.header...)...)
		if a.status != v.status || !strings.Contains(a.text, v.contains) {
			t.Errorf("%s: %v, want %d with %q", name, a, v.status, v.contains)
		}
		if v.status == 302 && (a.header.Get("Location") != "https://example.com/x" || a.header.Get("Referrer-Policy") != "") {
			t.Errorf("%s: headers = %v, want the destination and no Referrer-Policy", name, a.header)
		}
		if v.status != 302 && v.status < 300 == (a.header.Get("Cache-Control") == "private, no-store") {
			t.Errorf("%s: Cache-Control = %q, want private, no-store only for errors", name, a.header.Get("Cache-Control"))
		}
		if v.status == 405 && a.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: Allow = %q, want GET, HEAD", name, a.header.Get("Allow"))
		}
	}
}

func TestCreateRefusesAllBadFieldsAtOnce(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	a := r.api(key, "POST", "/api/v1/links", `{"url":"ftp://x","slug":"-","title":"`+strings.Repeat("ü", 501)+`","expiresAt":true,"ogTitle":"`+strings.Repeat("a", 501)+`","ogDescription":5,"ogImage":"javascript:1"}`)
	want(t, "create", a, 400, "VALIDATION_ERROR")
	wanted := map[string]string{"url": "invalid_format", "slug": "invalid_format", "title": "too_long", "expiresAt": "invalid_type", "ogTitle": "too_long", "ogDescription": "invalid_type", "ogImage": "invalid_format"}
	if diff := cmp.Diff(wanted, a.fields()); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	for name, v := range map[string]struct {
		body   string
		code   string
		fields map[string]string
	}{
		"empty body":            {``, "INVALID_JSON", nil},
		"array as the body":     {`[]`, "INVALID_JSON", nil},
		"duplicate key":         {`{"url":"https://a.example","url":"https://a.example"}`, "INVALID_JSON", nil},
		"without url":           {`{}`, "VALIDATION_ERROR", map[string]string{"url": "required"}},
		"url in capitals":       {`{"URL":"https://a.example"}`, "VALIDATION_ERROR", map[string]string{"url": "required"}},
		"NUL in the title":      {`{"url":"https://a.example","title":"a\u0000"}`, "VALIDATION_ERROR", map[string]string{"title": "invalid_value"}},
		"half a surrogate pair": {`{"url":"https://a.example","ogTitle":"\ud800"}`, "VALIDATION_ERROR", map[string]string{"ogTitle": "invalid_value"}},
		"reserved slug":         {`{"url":"https://a.example","slug":"API"}`, "VALIDATION_ERROR", map[string]string{"slug": "reserved"}},
		"slug too long":         {`{"url":"https://a.example","slug":"` + strings.Repeat("a", 101) + `"}`, "VALIDATION_ERROR", map[string]string{"slug": "too_long"}},
		"our own host":          {`{"url":"https://LRL.example/x"}`, "VALIDATION_ERROR", map[string]string{"url": "self_reference"}},
		"url too long":          {`{"url":"https://a.example/` + strings.Repeat("a", 8192) + `"}`, "VALIDATION_ERROR", map[string]string{"url": "too_long"}},
		"url too long in bytes": {`{"url":"https://a.example/` + strings.Repeat("ü", 4096) + `"}`, "VALIDATION_ERROR", map[string]string{"url": "too_long"}},
		"digits in a string":    {`{"url":"https://a.example","expiresAt":"1790000000000"}`, "VALIDATION_ERROR", map[string]string{"expiresAt": "invalid_format"}},
		"empty date":            {`{"url":"https://a.example","expiresAt":""}`, "VALIDATION_ERROR", map[string]string{"expiresAt": "invalid_format"}},
		"date out of range":     {`{"url":"https://a.example","expiresAt":1e16}`, "VALIDATION_ERROR", map[string]string{"expiresAt": "out_of_range"}},
		"infinite date":         {`{"url":"https://a.example","expiresAt":1e999}`, "VALIDATION_ERROR", map[string]string{"expiresAt": "out_of_range"}},
		"image too long":        {`{"url":"https://a.example","ogImage":"https://a.example/` + strings.Repeat("a", 2048) + `"}`, "VALIDATION_ERROR", map[string]string{"ogImage": "too_long"}},
	} {
		a := r.api(key, "POST", "/api/v1/links", v.body)
		want(t, name, a, 400, v.code)
		if v.fields != nil && !cmp.Equal(v.fields, a.fields()) {
			t.Errorf("%s: fields = %v, want %v", name, a.fields(), v.fields)
		}
	}
	if got := clicksBySlug(r, key); len(got) != 0 {
		t.Errorf("links after rejected creates = %v, want none", got)
	}
}

func TestGetAndPatch(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	made := r.create(key, map[string]any{"url": "https://example.com", "slug": "Full", "title": "T", "expiresAt": 1.9e12 + 0.7, "ogTitle": "o", "ogDescription": "d", "ogImage": "https://example.com/i.png", "unknown": 1, "destinationUrl": "x"})
	if diff := cmp.Diff([]any{"destinationUrl", "unknown"}, made.json["ignoredFields"]); diff != "" {
		t.Errorf("fields ignored by the create (-want +got):\n%s", diff)
	}
	path := "/api/v1/links/" + made.str("id")
	got := r.api(key, "GET", path, nil)
	created, err := time.Parse(time.RFC3339, made.str("createdAt"))
	if err != nil || !strings.HasSuffix(made.str("createdAt"), "Z") {
		t.Errorf("createdAt = %q, %v; want a time in UTC", made.str("createdAt"), err)
	}
	wanted := map[string]any{"_id": made.str("id"), "id": made.str("id"), "slug": "Full", "shortUrl": shortBase + "/Full", "destinationUrl": "https://example.com", "title": "T", "clicks": 0.0,
		"status": "active", "takenDown": nil, "tags": []any{}, "externalId": nil, "archived": false, "domainId": nil, "expiresAt": 1.9e12, "ogTitle": "o", "ogDescription": "d", "ogImage": "https://example.com/i.png",
		"redirectType": 302.0, "forwardQuery": false, "forwardPath": false, "startsAt": nil, "expiredUrl": nil, "hasPassword": false, "maxClicks": nil, "hasRules": false, "rules": []any{},
		"createdAt": float64(created.UnixMilli()), "updatedAt": float64(created.UnixMilli())}
	if diff := cmp.Diff(wanted, got.json); diff != "" {
		t.Fatalf("get (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wanted, made.json["link"]); diff != "" {
		t.Errorf("link in the response to the create (-want +got):\n%s", diff)
	}
	tag := got.header.Get("ETag")
	if same := r.api(key, "GET", path, nil, "If-None-Match", tag); same.status != 304 || same.text != "" || same.header.Get("ETag") != tag {
		t.Errorf("GET of an unchanged link: %v, want 304 with the ETag", same)
	}
	r.visit("/full")
	eventually(t, "a click changes the ETag", func() bool { return r.api(key, "GET", path, nil, "If-None-Match", tag).status == 200 })
	c.forward(time.Second)
	patched := r.api(key, "PATCH", path, `{"title":null,"ogDescription":null,"ogImage":null,"expiresAt":null,"url":"https://example.org/n","slug":"other","domainId":"x","clicks":99,"_id":"y","destinationUrl":"https://example.net"}`, "If-Match", tag)
	got = r.api(key, "GET", path, nil)
	if diff := cmp.Diff(map[string]any{"success": true, "slug": "Full", "link": any(got.json), "ignoredFields": []any{"slug", "domainId", "clicks", "_id", "destinationUrl"}}, patched.json); diff != "" {
		t.Fatalf("patch (-want +got):\n%s", diff)
	}
	for name, v := range map[string]any{"title": "", "ogDescription": nil, "ogImage": nil, "expiresAt": nil, "ogTitle": "o", "destinationUrl": "https://example.org/n", "clicks": 1.0, "slug": "Full"} {
		if got.json[name] != v {
			t.Errorf("%s = %v, want %v", name, got.json[name], v)
		}
	}
	if got.json["updatedAt"].(float64) <= wanted["updatedAt"].(float64) || got.header.Get("ETag") == tag {
		t.Errorf("updatedAt %v, ETag %s → %s; want a later time and a new ETag", got.json["updatedAt"], tag, got.header.Get("ETag"))
	}
	if a := r.visit("/full"); a.header.Get("Location") != "https://example.org/n" {
		t.Errorf("visit after the PATCH: headers = %v, want the new destination", a.header)
	}
	stale := r.api(key, "PATCH", path, `{"title":"x"}`, "If-Match", tag)
	want(t, "PATCH with a stale ETag", stale, 412, "PRECONDITION_FAILED")
	want(t, "delete with a stale ETag", r.api(key, "DELETE", path, nil, "If-Match", tag), 412, "PRECONDITION_FAILED")
	if a := r.api(key, "PATCH", path, `{}`, "If-Match", stale.header.Get("ETag")); stale.header.Get("ETag") == "" || a.status != 200 {
		t.Errorf("PATCH with the ETag %q from the 412: %v, want 200", stale.header.Get("ETag"), a)
	}
	want(t, "null url", r.api(key, "PATCH", path, `{"url":null}`), 400, "VALIDATION_ERROR")
	if a := r.api(key, "PATCH", path, `{"url":null,"title":7,"expiresAt":"never"}`); !cmp.Equal(a.fields(), map[string]string{"url": "invalid_type", "title": "invalid_type", "expiresAt": "invalid_format"}) {
		t.Errorf("PATCH with three invalid fields: %v, want a detail for each", a)
	}
	if a := r.api(key, "PATCH", path, `{}`); a.status != 200 || !cmp.Equal(map[string]any{"success": true, "slug": "Full", "link": any(got.json)}, a.json) {
		t.Errorf("empty PATCH: %v, want 200 and the unchanged link", a)
	}
	if a := r.api(key, "PATCH", path, `{"expiresAt":"2001-01-01"}`); a.status != 200 || r.visit("/full").status != 410 || r.api(key, "GET", path, nil).str("status") != "expired" {
		t.Errorf("PATCH to a past expiry: %v, want 200, 410 for visits, status expired", a)
	}
	if a := r.api(key, "DELETE", path, nil); a.status != 204 || a.text != "" || r.visit("/full").status != 404 {
		t.Errorf("delete: %v, want 204, then 404 for visits", a)
	}
	want(t, "second delete", r.api(key, "DELETE", path, nil), 404, "LINK_NOT_FOUND")
}

// A create accepts the body of a GET response, including its null fields.
func TestNullOnCreateIsTheSameAsAbsent(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	body := map[string]any{"url": "https://example.com", "slug": nil, "title": nil, "domainId": nil, "expiresAt": nil, "ogTitle": nil, "ogDescription": nil, "ogImage": nil}
	single := r.create(key, body)
	bulk := r.api(key, "POST", "/api/v1/links/bulk", map[string]any{"urls": []any{body}})
	if bulk.status != 201 || single.json["ignoredFields"] != nil {
		t.Fatalf("create %v, bulk create %v; want 201 without ignored fields", single, bulk)
	}
	got := r.api(key, "GET", "/api/v1/links/"+single.str("id"), nil)
	for _, name := range []string{"domainId", "expiresAt", "ogTitle", "ogDescription", "ogImage"} {
		if v, ok := got.json[name]; !ok || v != nil {
			t.Errorf("%s = %v, want null", name, v)
		}
	}
	if got.str("title") != "" || len(got.str("slug")) != 7 {
		t.Errorf("link = %v, want an empty title and a slug of 7 characters", got)
	}
}

// An imported link keeps its creation time and shows its earlier clicks separately. It is listed by
// its import time.
func TestAnImportedLinkKeepsItsTimeAndShowsItsClicksApart(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	old := r.create(key, map[string]any{"url": "https://a.example/old", "slug": "old", "importedClicks": 41, "createdAt": "2019-03-04T05:06:07.008Z", "tags": []string{"b", "B"}, "externalId": "e"})
	older := r.api(key, "POST", "/api/v1/links/bulk", `{"urls":[{"url":"https://a.example/older","slug":"older","importedClicks":0,"createdAt":1000}]}`)
	plain := r.create(key, map[string]any{"url": "https://a.example/", "slug": "plain", "createdAt": 1000})
	if older.status != 201 {
		t.Fatalf("bulk create: %v, want 201", older)
	}
	if diff := cmp.Diff([]any{"createdAt"}, plain.json["ignoredFields"]); diff != "" {
		t.Errorf("fields ignored by a create without importedClicks (-want +got):\n%s", diff)
	}
	if old.str("createdAt") != "2019-03-04T05:06:07.008Z" || old.json["importedClicks"] != 41.0 || !cmp.Equal(old.json["tags"], []any{"b"}) || old.str("externalId") != "e" || old.json["archived"] != false {
		t.Errorf("link = %v, want the imported time, clicks, tag and external ID", old)
	}
	if diff := cmp.Diff([]string{"plain", "older", "old"}, r.found(key, "")); diff != "" {
		t.Errorf("order of the list (-want +got):\n%s", diff)
	}
	for _, item := range r.api(key, "GET", "/api/v1/links", nil).json["data"].([]any) {
		l := item.(map[string]any)
		got := fmt.Sprint(l["slug"], l["clicks"], l["importedClicks"])
		if got != "old0 41" && got != "older0 0" && got != "plain0 <nil>" {
			t.Errorf("list item = %v, want separate clicks and imported clicks", l)
		}
	}
	if l := r.api(key, "GET", "/api/v1/links/"+old.str("id"), nil); l.json["importedClicks"] != 41.0 || l.json["createdAt"] != 1551675967008.0 {
		t.Errorf("link = %v, want 41 imported clicks and the imported time", l)
	}
	for _, bad := range []string{`"importedClicks":-1`, `"importedClicks":1.5`, `"importedClicks":"3"`, `"importedClicks":1,"createdAt":-1`, `"importedClicks":1,"createdAt":"2999-01-01"`, `"importedClicks":1,"createdAt":"never"`, `"importedClicks":1,"createdAt":"2019-03-04"`} {
		want(t, bad, r.api(key, "POST", "/api/v1/links", `{"url":"https://a.example/",`+bad+`}`), 400, "VALIDATION_ERROR")
	}
}

func TestBulkItemsTakeEveryFieldOfACreate(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	z, addr := newZone(t)
	c.dns = addr
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	made := r.api(key, "POST", "/api/v1/domains", `{"hostname":"go.example.com","color":"red"}`)
	if diff := cmp.Diff([]any{"color"}, made.json["ignoredFields"]); diff != "" {
		t.Errorf("fields ignored by the claim (-want +got):\n%s", diff)
	}
	pending := r.api(key, "POST", "/api/v1/domains", `{"hostname":"later.example.com"}`).str("id")
	z.set("_linkreel.go.example.com", made.json["records"].([]any)[0].(map[string]any)["value"].(string))
	domain := r.api(key, "POST", "/api/v1/domains/"+made.str("id")+"/verify", nil).str("id")
	a := r.api(key, "POST", "/api/v1/links/bulk", map[string]any{"urls": []any{
		map[string]any{"url": "https://a.example/1", "slug": "one", "domainId": domain, "expiresAt": "2001-01-01", "title": "T", "ogTitle": "o", "ogImage": "https://a.example/i.png", "clicks": 7},
		map[string]any{"url": "https://a.example/2", "slug": "one"},
		map[string]any{"url": "https://a.example/3", "domainId": pending},
		map[string]any{"url": "https://a.example/4", "domainId": "dom_none"},
		map[string]any{"url": "http://go.example.com/x", "domainId": domain},
		map[string]any{"url": "https://a.example/6", "expiresAt": "never", "destinationUrl": "x"},
	}})
	var got []string
	for _, item := range a.json["results"].([]any) {
		m := item.(map[string]any)
		e, _ := m["error"].(map[string]any)
		got = append(got, fmt.Sprint(m["status"], e["code"], m["ignoredFields"]))
	}
	wanted := []string{"201 <nil> [clicks]", "201 <nil> <nil>", "409DOMAIN_NOT_VERIFIED<nil>", "404DOMAIN_NOT_FOUND<nil>", "400VALIDATION_ERROR<nil>", "400VALIDATION_ERROR[destinationUrl]"}
	if diff := cmp.Diff(wanted, got); diff != "" || a.status != 207 {
		t.Fatalf("bulk create: %v, want 207 (-want +got):\n%s", a, diff)
	}
	data := a.json["results"].([]any)[0].(map[string]any)["data"].(map[string]any)
	l := r.api(key, "GET", "/api/v1/links/"+data["id"].(string), nil)
	if l.str("shortUrl") != "http://go.example.com/one" || l.str("status") != "expired" || l.str("ogTitle") != "o" || l.str("domainId") != domain {
		t.Errorf("first link = %v, want all fields from its item", l)
	}
	if v := r.visit("/one", "Host", "go.example.com"); v.status != 410 {
		t.Errorf("visit to the first link: %v, want 410", v)
	}
}

func TestForeignAndMissingLinksAnswerAlike(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	mine, theirs := c.keys.Key(t, "acc_a", identity.Creator), c.keys.Key(t, "acc_b", identity.Creator)
	id := r.create(theirs, map[string]any{"url": "https://example.com"}).str("id")
	for _, call := range [][3]string{{"GET", "", ""}, {"GET", "/stats?from=x", ""}, {"PATCH", "", `{"url":"bad"}`}, {"PATCH", "", `{`}, {"DELETE", "", ""}} {
		var answers []string
		for _, id := range []string{id, "lnk_0000000000000000000000", "nothing", "..", "__x__", strings.Repeat("a", 2000)} {
			var body any
			if call[2] != "" {
				body = call[2]
			}
			a := r.api(mine, call[0], "/api/v1/links/"+id+call[1], body)
			if id == ".." {
				continue // the HTTP client would resolve this path
			}
			want(t, call[0]+" "+id, a, 404, "LINK_NOT_FOUND")
			answers = append(answers, strings.ReplaceAll(a.text, a.json["error"].(map[string]any)["requestId"].(string), ""))
		}
		if len(slices.Compact(answers)) != 1 {
			t.Errorf("responses to %s differ, want identical responses: %q", call[0], answers)
		}
	}
	want(t, "create on an unknown domain", r.api(mine, "POST", "/api/v1/links", `{"url":"bad","domainId":"dom_x"}`), 404, "DOMAIN_NOT_FOUND")
	if r.visit("/"+r.api(theirs, "GET", "/api/v1/links/"+id, nil).str("slug")).status != 302 {
		t.Error("visit to the other account's link: not redirected, want 302")
	}
}

func TestPlansAndScopes(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	free, creator, business := c.keys.Key(t, "f", identity.Free), c.keys.Key(t, "c", identity.Creator), c.keys.Key(t, "b", identity.Business)
	reader := c.keys.Key(t, "r", identity.Enterprise, func(k *apikey.Record) { k.Scopes = identity.LinksRead })
	want(t, "create on the Free plan", r.api(free, "POST", "/api/v1/links", `{`), 403, "PLAN_REQUIRED")
	want(t, "PATCH on the Free plan", r.api(free, "PATCH", "/api/v1/links/x", `{`), 403, "PLAN_REQUIRED")
	want(t, "delete on the Free plan", r.api(free, "DELETE", "/api/v1/links/x", nil), 403, "PLAN_REQUIRED")
	want(t, "claim on the Free plan", r.api(free, "POST", "/api/v1/domains", `{}`), 403, "PLAN_REQUIRED")
	want(t, "bulk create on the Creator plan", r.api(creator, "POST", "/api/v1/links/bulk", `{}`), 403, "PLAN_REQUIRED")
	want(t, "scope", r.api(reader, "POST", "/api/v1/links", `{}`), 403, "INSUFFICIENT_SCOPE")
	want(t, "without a key", r.do("api", "GET", "http://api.example/api/v1/links", nil), 401, "MISSING_API_KEY")
	for name, key := range map[string]string{"free": free, "creator": creator, "business": business, "reader": reader} {
		if a := r.api(key, "GET", "/api/v1/links", nil); a.status != 200 || a.text != `{"data":[],"hasMore":false,"nextCursor":null}` {
			t.Errorf("list with the key %s: %v, want 200, empty", name, a)
		}
	}
	limited := c.keys.Key(t, "q", identity.Business, func(k *apikey.Record) { k.Quotas.Links = 2 })
	a := r.api(limited, "POST", "/api/v1/links/bulk", `{"urls":[{"url":"https://a.example"},{"url":"bad"},{"url":"https://a.example"},{"url":"https://a.example"}]}`)
	var statuses []any
	for _, item := range a.json["results"].([]any) {
		statuses = append(statuses, item.(map[string]any)["status"])
	}
	if a.status != 207 || !cmp.Equal(statuses, []any{201.0, 400.0, 201.0, 403.0}) {
		t.Errorf("bulk create over the quota: %v, want 207 with 201, 400, 201, 403", a)
	}
	want(t, "create over the quota", r.api(limited, "POST", "/api/v1/links", `{"url":"https://a.example"}`), 403, "QUOTA_EXCEEDED")
	want(t, "invalid create over the quota", r.api(limited, "POST", "/api/v1/links", `{"url":"bad"}`), 403, "QUOTA_EXCEEDED")
	// The first attempt is committed but its response is lost. The second attempt finds the link.
	last := c.keys.Key(t, "l", identity.Business, func(k *apikey.Record) { k.Quotas.Links = 1 })
	remove := c.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Every: 2, Times: 2, LoseAnswer: true, Code: codes.Unavailable})
	eventually(t, "the last allowed link is created by a retry with its Idempotency-Key", func() bool {
		a := r.api(last, "POST", "/api/v1/links", `{"url":"https://a.example"}`, "Idempotency-Key", "last")
		if a.status != 201 && a.status != 503 && a.code() != "IDEMPOTENCY_IN_PROGRESS" {
			t.Fatal(a)
		}
		c.forward(time.Second)
		return a.status == 201
	})
	remove()
}

func TestSlugsAreUniqueWithoutRegardToCase(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	a, b := c.keys.Key(t, "acc_a", identity.Creator), c.keys.Key(t, "acc_b", identity.Creator)
	body := map[string]any{"url": "https://example.com", "slug": "Printed"}
	id := r.create(a, body).str("id")
	want(t, "taken", r.api(b, "POST", "/api/v1/links", `{"url":"https://example.com","slug":"pRINTED"}`), 409, "SLUG_TAKEN")
	want(t, "slug of a link in the same account", r.api(a, "POST", "/api/v1/links", body), 409, "SLUG_TAKEN")
	r.api(a, "DELETE", "/api/v1/links/"+id, nil)
	want(t, "slug in quarantine", r.api(b, "POST", "/api/v1/links", body), 409, "SLUG_TAKEN")
	id = r.create(a, body).str("id")
	if v := r.visit("/printed"); v.status != 302 {
		t.Errorf("visit to the reused slug: %v, want 302", v)
	}
	r.api(a, "DELETE", "/api/v1/links/"+id, nil)
	c.forward(30*24*time.Hour - time.Minute)
	want(t, "slug still in quarantine", r.api(b, "POST", "/api/v1/links", body), 409, "SLUG_TAKEN")
	c.forward(time.Minute)
	r.create(b, body)
}

func TestOfManyCreatesOfOneSlugOneWins(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	var mu sync.Mutex
	statuses := map[int]int{}
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			a := r.api(key, "POST", "/api/v1/links", `{"url":"https://example.com","slug":"race"}`)
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
		})
	}
	wg.Wait()
	if statuses[201] != 1 || statuses[409] != 59 {
		t.Errorf("responses by status = %v, want one 201 and 59 409s", statuses)
	}
}

func TestBulkAnswersItemByItem(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	r.create(key, map[string]any{"url": "https://example.com", "slug": "gone"})
	id := r.create(key, map[string]any{"url": "https://example.com", "slug": "mine"}).str("id")
	r.api(key, "DELETE", "/api/v1/links/"+id, nil)
	a := r.api(key, "POST", "/api/v1/links/bulk", `{"urls":[
		{"url":"https://a.example/1","slug":"One","title":"t"}, {"url":"https://a.example/2"}, {"url":"https://a.example/3","slug":"ONE"}, {"url":"https://a.example/4","slug":"gone"},
		{"url":"ftp://x"}, {"slug":"x"}, 7, {"url":5}, {"url":"https://a.example/9","slug":"api"}, {"url":"https://a.example/10","slug":"mine"}]}`)
	type row struct {
		status    float64
		code, url string
	}
	var got []row
	for _, item := range a.json["results"].([]any) {
		m := item.(map[string]any)
		e, _ := m["error"].(map[string]any)
		code, _ := e["code"].(string)
		url, _ := e["url"].(string)
		if d, ok := m["data"].(map[string]any); ok {
			url = d["destinationUrl"].(string)
			if d["shortUrl"] != shortBase+"/"+d["slug"].(string) || d["id"] == "" || len(d) != 4 {
				t.Errorf("data = %v, want the short URL and an ID, four fields", d)
			}
		}
		got = append(got, row{m["status"].(float64), code, url})
	}
	wanted := []row{{201, "", "https://a.example/1"}, {201, "", "https://a.example/2"}, {409, "SLUG_TAKEN", "https://a.example/3"}, {409, "SLUG_TAKEN", "https://a.example/4"},
		{400, "VALIDATION_ERROR", "ftp://x"}, {400, "VALIDATION_ERROR", ""}, {400, "VALIDATION_ERROR", ""}, {400, "VALIDATION_ERROR", ""}, {400, "VALIDATION_ERROR", "https://a.example/9"}, {201, "", "https://a.example/10"}}
	if diff := cmp.Diff(wanted, got, cmp.AllowUnexported(row{})); diff != "" || a.status != 207 {
		t.Errorf("bulk create: status %d, want 207 (-want +got):\n%s", a.status, diff)
	}
	if v := r.visit("/one"); v.header.Get("Location") != "https://a.example/1" {
		t.Errorf("visit to the slug that two items use: headers = %v, want the destination of the first", v.header)
	}
	all := r.api(key, "POST", "/api/v1/links/bulk", `{"urls":[`+strings.TrimSuffix(strings.Repeat(`{"url":"https://a.example"},`, 100), ",")+`]}`)
	if all.status != 201 || len(all.json["results"].([]any)) != 100 {
		t.Errorf("bulk create of 100: %v, want 201 with 100 results", all)
	}
	for name, body := range map[string]string{"no items": `{"urls":[]}`, "without urls": `{}`, "urls of the wrong type": `{"urls":{}}`, "101 items": `{"urls":[` + strings.TrimSuffix(strings.Repeat(`{"url":"https://a.example"},`, 101), ",") + `]}`} {
		want(t, name, r.api(key, "POST", "/api/v1/links/bulk", body), 400, "VALIDATION_ERROR")
	}
}

func TestBulkCostsOneTripForReadsAndOneForWrites(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	var items []string
	for i := range 100 {
		items = append(items, fmt.Sprintf(`{"url":"https://a.example","slug":"s%d"}`, i))
	}
	before := c.Firestore.Stats().Calls
	if a := r.api(key, "POST", "/api/v1/links/bulk", `{"urls":[`+strings.Join(items, ",")+`]}`); a.status != 201 {
		t.Fatal(a)
	}
	after := c.Firestore.Stats().Calls
	for _, method := range []string{"BeginTransaction", "BatchGetDocuments", "Commit"} {
		if n := after[method] - before[method]; n > 4 { // the flusher may also make some calls
			t.Errorf("%d calls to %s for 100 items, want at most 4", n, method)
		}
	}
}

func TestListPagesNewestFirst(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	var items []string
	for i := range 25 {
		items = append(items, fmt.Sprintf(`{"url":"https://a.example/%d"}`, i))
	}
	r.api(key, "POST", "/api/v1/links/bulk", `{"urls":[`+strings.Join(items, ",")+`]}`)
	r.api(c.keys.Key(t, "acc_b", identity.Business), "POST", "/api/v1/links", `{"url":"https://b.example"}`)
	var seen []string
	query := ""
	for pages := 0; ; pages++ {
		a := r.api(key, "GET", "/api/v1/links?limit=7"+query, nil)
		for _, d := range a.json["data"].([]any) {
			seen = append(seen, d.(map[string]any)["destinationUrl"].(string))
		}
		if a.json["hasMore"] != (pages < 3) {
			t.Fatalf("page %d: %v, want hasMore %v", pages, a, pages < 3)
		}
		if a.json["hasMore"] == false {
			if a.json["nextCursor"] != nil {
				t.Errorf("cursor on the last page = %v, want null", a.json["nextCursor"])
			}
			break
		}
		query = fmt.Sprintf("&cursor=%.0f", a.json["nextCursor"])
	}
	for i := range 25 {
		if i >= len(seen) || seen[i] != fmt.Sprintf("https://a.example/%d", 24-i) {
			t.Fatalf("URLs on all pages = %v, want newest first", seen)
		}
	}
	if a := r.api(key, "GET", "/api/v1/links", nil); len(a.json["data"].([]any)) != 20 {
		t.Errorf("the default page has %d links, want 20", len(a.json["data"].([]any)))
	}
	for _, q := range []string{"limit=0", "limit=101", "limit=abc", "limit=1.5", "limit=", "limit=-1"} {
		want(t, q, r.api(key, "GET", "/api/v1/links?"+q, nil), 400, "VALIDATION_ERROR")
	}
	for _, q := range []string{"cursor=", "cursor=abc", "cursor=-1", "cursor=1.5", "cursor=9007199254740992", "cursor=99999999999999999999"} {
		want(t, q, r.api(key, "GET", "/api/v1/links?"+q, nil), 400, "INVALID_CURSOR")
	}
	if a := r.api(key, "GET", "/api/v1/links?cursor=0", nil); a.text != `{"data":[],"hasMore":false,"nextCursor":null}` {
		t.Errorf("page after the last link: %v, want it empty", a)
	}
}

func TestARepeatedCreateIsOneLink(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	first := r.api(key, "POST", "/api/v1/links", `{"url":"https://example.com"}`, "Idempotency-Key", "k1")
	again := r.api(key, "POST", "/api/v1/links", `{"url":"https://example.com"}`, "Idempotency-Key", "k1")
	if first.status != 201 || again.status != 201 || first.text != again.text || again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("first create %v, repeated create %v %v; want the same response, marked as replayed", first, again, again.header)
	}
	// The responses to successful commits are lost. There must be no duplicates.
	remove := c.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Every: 2, LoseAnswer: true, Code: codes.Unavailable})
	for i := range 10 {
		eventually(t, "a create succeeds even though commits lose their responses", func() bool {
			a := r.api(key, "POST", "/api/v1/links", fmt.Sprintf(`{"url":"https://example.com/%d","slug":"lost%d"}`, i, i), "Idempotency-Key", fmt.Sprint("lost", i))
			if a.status != 201 && a.status != 503 && a.code() != "IDEMPOTENCY_IN_PROGRESS" {
				t.Fatalf("create %d: %v, want 201, 503 or IDEMPOTENCY_IN_PROGRESS", i, a)
			}
			c.forward(time.Second)
			return a.status == 201
		})
	}
	remove()
	if got := clicksBySlug(r, key); len(got) != 11 {
		t.Errorf("got %d links, want 11: %v", len(got), got)
	}
}

func TestTwoReplicasAgreeAfterEveryChange(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	a, b := c.replica(t), c.replica(t, func(cfg *links.Config) { cfg.Flush = false })
	key := c.keys.Key(t, "acc_a", identity.Business)
	if v := b.visit("/shared"); v.status != 404 {
		t.Fatal(v)
	}
	id := a.create(key, map[string]any{"url": "https://example.com/0", "slug": "shared"}).str("id")
	for i := 1; i <= 50; i++ {
		if v := b.visit("/shared"); v.header.Get("Location") != fmt.Sprintf("https://example.com/%d", i-1) {
			t.Fatalf("visit before edit %d: %v %v, want destination %d", i, v, v.header, i-1)
		}
		if p := a.api(key, "PATCH", "/api/v1/links/"+id, fmt.Sprintf(`{"url":"https://example.com/%d"}`, i)); p.status != 200 {
			t.Fatal(p)
		}
		if v := b.visit("/shared"); v.header.Get("Location") != fmt.Sprintf("https://example.com/%d", i) {
			t.Fatalf("visit after edit %d: %v %v, want the new destination", i, v, v.header)
		}
	}
	a.api(key, "DELETE", "/api/v1/links/"+id, nil)
	if v := b.visit("/shared"); v.status != 404 {
		t.Errorf("visit after the delete: %v, want 404", v)
	}
	for i := range 20 {
		path := fmt.Sprint("/bulk", i)
		if v := b.visit(path); v.status != 404 {
			t.Fatalf("visit before the bulk create: %v, want 404", v)
		}
		a.api(key, "POST", "/api/v1/links/bulk", fmt.Sprintf(`{"urls":[{"url":"https://example.com"},{"url":"https://example.com","slug":"bulk%d"}]}`, i))
		if v := b.visit(path); v.status != 302 {
			t.Fatalf("visit after the bulk create: %v, want 302", v)
		}
	}
}

func TestFirestoreDownSparesWhatIsWarm(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t, func(cfg *links.Config) { cfg.Firestore.Timeout = time.Second })
	key := c.keys.Key(t, "acc_a", identity.Creator)
	r.create(key, map[string]any{"url": "https://example.com/", "slug": "warm"})
	r.create(key, map[string]any{"url": "https://example.com/", "slug": "cold"})
	r.visit("/warm")
	remove := c.Firestore.Faults().Add(firestore.Fault{Code: codes.Unavailable})
	for range 5 {
		if v := r.visit("/warm"); v.status != 302 {
			t.Fatalf("visit to a cached link: %v, want 302", v)
		}
		c.forward(time.Hour)
	}
	for _, slug := range []string{"/cold", "/unknown"} {
		if v := r.visit(slug); v.status != 503 || v.header.Get("Retry-After") == "" {
			t.Errorf("visit to %s: %v %v, want 503 with Retry-After", slug, v, v.header)
		}
	}
	want(t, "list", r.api(key, "GET", "/api/v1/links", nil), 503, "UNAVAILABLE")
	want(t, "create", r.api(key, "POST", "/api/v1/links", `{"url":"https://a.example"}`), 503, "UNAVAILABLE")
	remove()
	eventually(t, "the uncached link redirects", func() bool { return r.visit("/cold").status == 302 })
	eventually(t, "the unknown link gets 404", func() bool { return r.visit("/unknown").status == 404 })
	eventually(t, "clicks", func() bool { return clicksBySlug(r, key)["warm"] == 6 })
}

func TestRedisAwayCostsNoClick(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	server := redistest.Server(t)
	c.redis = server.Addr()
	r := c.replica(t, func(cfg *links.Config) { cfg.ClickBudget = 100 * time.Millisecond })
	key := c.keys.Key(t, "acc_a", identity.Creator)
	id := r.create(key, map[string]any{"url": "https://example.com/0", "slug": "s"}).str("id")
	visits := 0
	visit := func(n int) {
		for range n {
			if v := r.visit("/s"); v.status != 302 {
				t.Fatalf("visit: %v, want 302", v)
			}
			visits++
		}
	}
	visit(10)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	visit(10)
	if a := r.api(key, "PATCH", "/api/v1/links/"+id, `{"url":"https://example.com/1"}`); a.status != 200 {
		t.Errorf("PATCH without Redis: %v, want 200", a)
	}
	visit(10)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	visit(10)
	eventually(t, fmt.Sprint(visits, " clicks"), func() bool { return clicksBySlug(r, key)["s"] == visits })
	visit(10)
	time.Sleep(1500 * time.Millisecond)
	if got := clicksBySlug(r, key)["s"]; got > visits {
		t.Errorf("got %d clicks, want at most %d", got, visits)
	}
	eventually(t, fmt.Sprint(visits, " clicks"), func() bool { return clicksBySlug(r, key)["s"] == visits })
}

func TestAskAnswersForProvenHostsOnly(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	for _, name := range []string{"", "go.example.com", "192.0.2.1", "*.example.com"} {
		if a := r.do("internal", http.MethodGet, "http://internal/internal/v1/domains/ask?domain="+name, nil); a.status != 404 {
			t.Errorf("ask %q: %v, want 404", name, a)
		}
	}
}
