package links_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

func TestLinksLiveOnTheAccountsDefaultDomain(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	z, addr := newZone(t)
	c.dns = addr
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	made := r.api(key, "POST", "/api/v1/domains", `{"hostname":"go.example.com"}`)
	id := made.str("id")
	record := made.json["records"].([]any)[0].(map[string]any)
	z.set(record["name"].(string), record["value"].(string))
	if got := r.api(key, "POST", "/api/v1/domains/"+id+"/verify", nil); got.str("status") != "verified" {
		t.Fatal(got)
	}
	setDefault := func(id string) {
		c.keys.Change("acc_a", func(r *apikey.Record) { r.DefaultDomainID, r.Version = id, r.Version+1 })
		c.forward(6 * time.Second) // replicas reload a key after five seconds
	}
	r.create(key, map[string]any{"url": "https://example.com/", "slug": "one"})
	setDefault(id)
	on := func(what string, a answer, host string) {
		t.Helper()
		if short := a.str("shortUrl"); !strings.HasPrefix(short, host) {
			t.Errorf("%s: short URL = %s, want host %s", what, short, host)
		}
	}
	on("without a domain", r.create(key, map[string]any{"url": "https://example.com/", "slug": "one"}), "http://go.example.com/one")
	on("null", r.create(key, map[string]any{"url": "https://example.com/", "slug": "two", "domainId": nil}), shortBase+"/two")
	on("default", r.create(key, map[string]any{"url": "https://example.com/", "domainId": "default"}), shortBase)
	want(t, "empty domain ID", r.api(key, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/", "domainId": ""}), 404, "DOMAIN_NOT_FOUND")
	on("with the domain's ID", r.create(key, map[string]any{"url": "https://example.com/", "domainId": id}), "http://go.example.com/")
	bulk := r.api(key, "POST", "/api/v1/links/bulk", map[string]any{"urls": []any{
		map[string]any{"url": "https://example.com/"}, map[string]any{"url": "https://example.com/", "domainId": nil},
	}})
	var hosts []string
	for _, one := range bulk.json["results"].([]any) {
		short := one.(map[string]any)["data"].(map[string]any)["shortUrl"].(string)
		hosts = append(hosts, short[:strings.LastIndex(short, "/")])
	}
	if got := strings.Join(hosts, " "); got != "http://go.example.com "+shortBase {
		t.Errorf("bulk links' hosts = %s, want http://go.example.com %s", got, shortBase)
	}
	// A link to the default domain would redirect to its own host.
	want(t, "link that loops", r.api(key, "POST", "/api/v1/links", map[string]any{"url": "https://go.example.com/x"}), 400, "VALIDATION_ERROR")
	for query, free := range map[string]bool{"?slug=two": true, "?slug=two&domainId=default": false, "?slug=one&domainId=" + id: false, "?slug=one": false} {
		if got := r.api(key, "GET", "/api/v1/links/available"+query, nil); got.json["available"] != free {
			t.Errorf("available%s: %v, want %v", query, got, free)
		}
	}
	want(t, "delete the default domain", r.api(key, "DELETE", "/api/v1/domains/"+id, nil), 409, "DOMAIN_IN_USE")

	pending := r.api(key, "POST", "/api/v1/domains", `{"hostname":"new.example.com"}`).str("id")
	for id, says := range map[string]string{pending: "default domain is no longer verified", "dom_gone": "default domain no longer exists"} {
		setDefault(id)
		refused := []answer{
			r.api(key, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/"}), r.api(key, "GET", "/api/v1/links/available?slug=one", nil),
		}
		for _, got := range refused {
			if want(t, says, got, 409, "DOMAIN_NOT_VERIFIED"); !strings.Contains(fmt.Sprint(got.json), says) {
				t.Errorf("error = %v, want a message with %q", got.json, says)
			}
		}
		on("null", r.create(key, map[string]any{"url": "https://example.com/", "domainId": nil}), shortBase)
	}
	setDefault("dom_gone")
	want(t, "deleted domain", r.api(key, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/", "domainId": "dom_gone"}), 404, "DOMAIN_NOT_FOUND")
	want(t, "delete a domain that is not the default", r.api(key, "DELETE", "/api/v1/domains/"+pending, nil), 204, "")
}

func TestADomainIsChangedOnlyInTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key, stranger := c.keys.Key(t, "acc_a", identity.Creator), c.keys.Key(t, "acc_b", identity.Creator)
	made := r.api(key, "POST", "/api/v1/domains", `{"hostname":"go.example.com"}`)
	path, first := "/api/v1/domains/"+made.str("id"), made.header.Get("ETag")
	change := func(page, match string) answer {
		return r.api(key, "PATCH", path, map[string]any{"homeUrl": page}, "If-Match", match)
	}
	one := change("https://example.com/1", first)
	if tag := one.header.Get("ETag"); one.status != 200 || tag == first || tag != r.api(key, "GET", path, nil).header.Get("ETag") {
		t.Fatalf("edit: %v, ETag %s; want 200 and a new ETag that GET also returns (the first was %s)", one, tag, first)
	}
	// A check is not an edit, so the ETag stays the same.
	if got := r.api(key, "POST", path+"/verify", nil).header.Get("ETag"); got != one.header.Get("ETag") {
		t.Errorf("ETag after the check = %s, want %s", got, one.header.Get("ETag"))
	}
	want(t, "edit with a stale ETag", change("https://example.com/2", first), 412, "PRECONDITION_FAILED")
	want(t, "delete with a stale ETag", r.api(key, "DELETE", path, nil, "If-Match", first), 412, "PRECONDITION_FAILED")
	want(t, "edit by another account", r.api(stranger, "PATCH", path, `{}`, "If-Match", first), 404, "DOMAIN_NOT_FOUND")
	want(t, "edit with If-Match: *", change("https://example.com/1", "*"), 200, "")
	if got := r.api(key, "GET", path, nil).str("homeUrl"); got != "https://example.com/1" {
		t.Errorf("homeUrl = %s, want https://example.com/1", got)
	}
	want(t, "delete", r.api(key, "DELETE", path, nil, "If-Match", one.header.Get("ETag")), 204, "")
}

func TestADomainHasPages(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	z, addr := newZone(t)
	c.dns = addr
	a, b := c.replica(t), c.replica(t)
	key, stranger := c.keys.Key(t, "acc_a", identity.Creator), c.keys.Key(t, "acc_b", identity.Creator)
	made := a.api(key, "POST", "/api/v1/domains", `{"hostname":"go.example.com"}`)
	path := "/api/v1/domains/" + made.str("id")
	if got := a.api(key, "PATCH", path, map[string]any{"homeUrl": "https://example.com/home", "id": "x"}); got.status != 200 || got.str("homeUrl") != "https://example.com/home" || got.json["notFoundUrl"] != nil || got.json["ignoredFields"] == nil {
		t.Fatalf("set the home page of a pending domain: %v; want 200, homeUrl and ignoredFields", got)
	}
	on := func(r *replica, path string) answer { t.Helper(); return r.visit(path, "Host", "go.example.com") }
	leads := func(what string, got answer, to string) {
		t.Helper()
		if got.status != 302 || got.header.Get("Location") != to || !strings.Contains(got.header.Get("Cache-Control"), "no-store") {
			t.Errorf("%s: status %d, location %q, Cache-Control %q; want 302, %q, no-store",
				what, got.status, got.header.Get("Location"), got.header.Get("Cache-Control"), to)
		}
	}
	want(t, "home page of a pending domain", on(a, "/"), 404, "")
	record := made.json["records"].([]any)[0].(map[string]any)
	z.set(record["name"].(string), record["value"].(string))
	if got := a.api(key, "POST", path+"/verify", nil); got.str("status") != "verified" || got.str("homeUrl") != "https://example.com/home" {
		t.Fatalf("verify: %v, want a verified domain that keeps its homeUrl", got)
	}
	leads("home page", on(b, "/"), "https://example.com/home")
	leads("home page with a query", on(b, "/?a=b"), "https://example.com/home")
	leads("home page requested as JSON", b.visit("/", "Host", "go.example.com", "Accept", "application/json"), "https://example.com/home")
	want(t, "unknown URL, no page set", on(b, "/nothing"), 404, "")
	made = a.create(key, map[string]any{"url": "https://example.com/x", "slug": "x", "domainId": strings.TrimPrefix(path, "/api/v1/domains/"), "expiresAt": 1e12})
	want(t, "expired link, no page set", on(b, "/x"), 410, "")

	// When a change returns, the other replica already serves it.
	for _, to := range []string{"https://example.com/1", "https://example.com/2"} {
		body := map[string]any{"notFoundUrl": to, "expiredUrl": to + "/ended", "homeUrl": to + "/home"}
		if got := a.api(key, "PATCH", path, body); got.status != 200 {
			t.Fatal(got)
		}
		leads("unknown URL", on(b, "/nothing"), to)
		leads("unknown URL with several segments", on(b, "/nothing/at/all"), to)
		for _, odd := range []string{"/a%20b", "/%C3%BCber", "//x", "/" + strings.Repeat("x", 500), "/-"} {
			leads("URL that no link can have", on(b, odd), to)
		}
		leads("expired link", on(b, "/x"), to+"/ended")
		leads("home page", on(b, "/"), to+"/home")
	}
	if got := a.api(key, "GET", "/api/v1/links/"+made.str("id")+"/explain", nil); got.str("location") != "https://example.com/2/ended" || got.json["status"] != 302.0 {
		t.Errorf("explain an expired link: %v, want 302 to https://example.com/2/ended", got)
	}
	if got := on(b, "/robots.txt"); got.status != 200 {
		t.Errorf("robots.txt: %v, want 200", got)
	}
	if got := a.api(key, "PATCH", "/api/v1/links/"+made.str("id"), map[string]any{"expiredUrl": "https://example.com/own"}); got.status != 200 {
		t.Fatal(got)
	}
	leads("expired link with its own page", on(b, "/x"), "https://example.com/own")

	want(t, "edit by another account", a.api(stranger, "PATCH", path, map[string]any{"homeUrl": "https://e.example/"}), 404, "DOMAIN_NOT_FOUND")
	for name, to := range map[string]any{"the default host": shortBase + "/", "its own host": "https://go.example.com/x", "an invalid URL": "x", "a number": 5} {
		want(t, "home page set to "+name, a.api(key, "PATCH", path, map[string]any{"homeUrl": to}), 400, "VALIDATION_ERROR")
	}
	leads("home page after rejected edits", on(a, "/"), "https://example.com/2/home")
	if got := a.api(key, "PATCH", path, map[string]any{"homeUrl": nil, "notFoundUrl": nil, "expiredUrl": nil}); got.json["homeUrl"] != nil {
		t.Errorf("clear the pages: homeUrl = %v, want null", got.json["homeUrl"])
	}
	want(t, "home page, no page set", on(b, "/"), 404, "")
}

func TestADomainCountsVisitsThatNoLinkServes(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	z, addr := newZone(t)
	c.dns = addr
	a, b := c.replica(t), c.replica(t)
	key, stranger := c.keys.Key(t, "acc_a", identity.Creator), c.keys.Key(t, "acc_b", identity.Creator)
	made := a.api(key, "POST", "/api/v1/domains", `{"hostname":"go.example.com"}`)
	id := made.str("id")
	path := "/api/v1/domains/" + id
	on := func(r *replica, path string, header ...string) answer {
		t.Helper()
		return r.visit(path, append([]string{"Host", "go.example.com", "User-Agent", windows}, header...)...)
	}
	for range 3 {
		on(a, "/") // visits to a pending domain do not count
	}
	record := made.json["records"].([]any)[0].(map[string]any)
	z.set(record["name"].(string), record["value"].(string))
	if got := a.api(key, "POST", path+"/verify", nil); got.str("status") != "verified" {
		t.Fatal(got)
	}
	link := func(slug string, more map[string]any) {
		more["url"], more["slug"], more["domainId"] = "https://example.com/", slug, id
		a.create(key, more)
	}
	link("live", map[string]any{})
	link("over", map[string]any{"expiresAt": 1e12})
	link("later", map[string]any{"startsAt": c.now().Add(time.Hour).UnixMilli()})
	link("robots.txt", map[string]any{"expiresAt": 1e12})
	visits := func(r *replica) {
		on(r, "/")
		on(r, "/?x=1")
		on(r, "/nothing")
		on(r, "/live/deeper")
		on(r, "/a%20b")
		on(r, "/over")
		for _, path := range []string{"/live", "/later", "/favicon.ico", "/nothing+", "/over+"} {
			on(r, path) // must not be counted
		}
		for _, path := range []string{"/", "/nothing", "/over"} {
			on(r, path, "User-Agent", "Googlebot/2.1")
			on(r, path, "Sec-Purpose", "prefetch")
			r.do("redirect", "HEAD", shortBase+path, nil, "Host", "go.example.com", "User-Agent", windows)
			r.do("redirect", "POST", shortBase+path, "password=x", "Host", "go.example.com", "Content-Type", "application/x-www-form-urlencoded")
			r.visit(path) // the default host has no domain record for counts
		}
	}
	visits(a)
	visits(b)
	if got := a.api(key, "PATCH", path, map[string]any{"homeUrl": "https://example.com/home", "notFoundUrl": "https://example.com/no", "expiredUrl": "https://example.com/over"}); got.status != 200 {
		t.Fatal(got)
	}
	visits(b)
	on(b, "/robots.txt") // a link that has expired has this slug
	stats := func(query string) answer { return a.api(key, "GET", path+"/stats"+query, nil) }
	is := func(got answer, home, notFound, ended float64) bool {
		return got.status == 200 && got.json["home"] == home && got.json["notFound"] == notFound && got.json["ended"] == ended
	}
	eventually(t, "all visits are counted", func() bool { return is(stats(""), 6, 9, 4) })
	today := c.now().UTC().Format(time.DateOnly)
	if got := stats("?from=" + today + "&to=" + today); !is(got, 6, 9, 4) || len(got.json["days"].([]any)) != 1 {
		t.Errorf("today's stats: %v, want one day with 6 home, 9 notFound, 4 ended", got)
	}
	if got := stats("?from=2026-01-01&to=2026-01-31"); !is(got, 0, 0, 0) || len(got.json["days"].([]any)) != 31 {
		t.Errorf("stats for another month: %v, want 31 days without visits", got)
	}
	for _, query := range []string{"?from=x", "?from=2026-02-01&to=2026-01-01", "?from=2020-01-01&to=2026-01-01", "?day=1"} {
		want(t, query, stats(query), 400, "VALIDATION_ERROR")
	}
	want(t, "stats for another account's domain", a.api(stranger, "GET", path+"/stats", nil), 404, "DOMAIN_NOT_FOUND")
	// Editing the domain must not overwrite its counts, and counting must not overwrite an edit.
	on(b, "/")
	if got := a.api(key, "PATCH", path, map[string]any{"homeUrl": nil}); got.status != 200 {
		t.Fatal(got)
	}
	eventually(t, "the visit after the edit is counted", func() bool { return is(stats(""), 7, 9, 4) })
	var export strings.Builder
	if err := a.holder().Export(t.Context(), "acc_a", &export); err != nil || !strings.Contains(export.String(), `{"type":"domainStats","data":{"domainId":"`+id+`","date":"`+today+`","home":7,"notFound":9,"ended":4}}`) {
		t.Errorf("export: %v, want the domain's counts in:\n%s", err, export.String())
	}

	// Deleting a domain deletes its counts.
	for _, one := range a.api(key, "GET", "/api/v1/links", nil).json["data"].([]any) {
		want(t, "delete a link", a.api(key, "DELETE", "/api/v1/links/"+one.(map[string]any)["_id"].(string), nil), 204, "")
	}
	want(t, "delete", a.api(key, "DELETE", path, nil), 204, "")
	want(t, "stats for a deleted domain", stats(""), 404, "DOMAIN_NOT_FOUND")
	if again := a.api(key, "POST", "/api/v1/domains", `{"hostname":"go.example.com"}`); again.str("id") != id || !is(stats(""), 0, 0, 0) {
		t.Errorf("claimed again: %v, stats %v; want ID %s and no visits", again, stats(""), id)
	}
}

// counted creates a verified domain for acc_a. It returns a replica, the account's key and the
// domain's path.
func (c *world) counted(t *testing.T) (r *replica, key, path string) {
	t.Helper()
	z, addr := newZone(t)
	c.dns = addr
	r, key = c.replica(t), c.keys.Key(t, "acc_a", identity.Creator)
	made := r.api(key, "POST", "/api/v1/domains", `{"hostname":"go.example.com"}`)
	record := made.json["records"].([]any)[0].(map[string]any)
	z.set(record["name"].(string), record["value"].(string))
	path = "/api/v1/domains/" + made.str("id")
	if got := r.api(key, "POST", path+"/verify", nil); got.str("status") != "verified" {
		t.Fatal(got)
	}
	return r, key, path
}

func TestADomainCountsNoVisitThatIsRefused(t *testing.T) {
	t.Parallel()
	r, key, path := newWorld(t).counted(t)
	on := func(path string) int { return r.visit(path, "Host", "go.example.com", "User-Agent", windows).status }
	missed, refused := 0, 0
	for i := 0; i < 2000 && refused < 20; i++ {
		switch on(fmt.Sprintf("/n%d", i)) {
		case 404:
			missed++
		case 429:
			refused++
		}
	}
	if missed == 0 || refused == 0 {
		t.Fatalf("got %d misses and %d refused visits, want some of each", missed, refused)
	}
	on("/") // counted after all the others
	var got answer
	eventually(t, "the last visit is counted", func() bool { got = r.api(key, "GET", path+"/stats", nil); return got.json["home"] == 1.0 })
	if got.json["notFound"] != float64(missed) {
		t.Errorf("counted %v misses, want %d; another %d visits were refused", got.json["notFound"], missed, refused)
	}
}

func TestADomainIsDeletedWithItsCountsOrNotAtAll(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r, key, path := c.counted(t)
	for range 5 {
		r.visit("/", "Host", "go.example.com", "User-Agent", windows)
	}
	home := func() any { return r.api(key, "GET", path+"/stats", nil).json["home"] }
	eventually(t, "the visits are counted", func() bool { return home() == 5.0 })
	deleted := false
	for nth := 1; nth < 10 && !deleted; nth++ {
		remove := c.Firestore.Faults().Add(firestore.Fault{Methods: []string{"RunQuery"}, Every: nth, Code: codes.PermissionDenied})
		got := r.api(key, "DELETE", path, nil)
		remove()
		if deleted = got.status == 204; !deleted && home() != 5.0 {
			t.Fatalf("visits after the delete failed at query %d with status %d = %v, want 5", nth, got.status, home())
		}
	}
	if again := r.api(key, "POST", "/api/v1/domains", `{"hostname":"go.example.com"}`); !deleted || again.status != 201 || home() != 0.0 {
		t.Errorf("deleted = %v, want true; claimed again: %v with %v visits, want 201 with 0", deleted, again, home())
	}
}

func TestTheDefaultHostHasPages(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	r := c.replica(t, func(cfg *links.Config) {
		cfg.ShortHomeURL, cfg.ShortNotFoundURL, cfg.ShortExpiredURL = "https://example.com/home", "https://example.com/nothing", "https://example.com/ended"
	})
	made := r.create(key, map[string]any{"url": "https://example.com/x", "slug": "ended", "expiresAt": c.now().Add(time.Minute).UnixMilli()})
	c.forward(time.Hour)
	for path, to := range map[string]string{"/a%20b": "https://example.com/nothing", "/": "https://example.com/home", "/nothing": "https://example.com/nothing", "/ended": "https://example.com/ended"} {
		if got := r.visit(path); got.status != 302 || got.header.Get("Location") != to {
			t.Errorf("%s: status %d, location %q; want 302, %q", path, got.status, got.header.Get("Location"), to)
		}
	}
	if got := r.api(key, "GET", "/api/v1/links/"+made.str("id")+"/explain", nil); got.str("location") != "https://example.com/ended" {
		t.Errorf("explain: %v, want location https://example.com/ended", got)
	}
	cfg := c.config(t)
	cfg.ShortHomeURL = shortBase + "/x"
	if _, err := links.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "LINKREEL_SHORT_HOME_URL") {
		t.Errorf("New with a home URL on the short host: %v, want an error about LINKREEL_SHORT_HOME_URL", err)
	}
}

// A visit to the home page of an unknown host reads the store and therefore counts as a miss.
func TestHomesOfUnknownHostsCountAsMisses(t *testing.T) {
	t.Parallel()
	r := newWorld(t).replica(t)
	for i := range 2000 {
		if r.visit("/", "Host", fmt.Sprintf("h%d.example.com", i)).status == 429 {
			return
		}
	}
	t.Error("2000 visits to home pages of unknown hosts: none were refused, want some refused")
}
