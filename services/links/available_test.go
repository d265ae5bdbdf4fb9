package links_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

func TestASlugIsAvailableIfACreateCanTakeIt(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	a, b := c.replica(t), c.replica(t)
	ours, theirs := c.keys.Key(t, "acc_a", identity.Creator), c.keys.Key(t, "acc_b", identity.Creator)
	asks := c.keys.Key(t, "acc_a", identity.Free)
	a.create(ours, map[string]any{"url": "https://example.com/", "slug": "Ours"})
	a.create(theirs, map[string]any{"url": "https://example.com/", "slug": "theirs"})
	held := a.create(theirs, map[string]any{"url": "https://example.com/", "slug": "held"})
	mine := a.create(ours, map[string]any{"url": "https://example.com/", "slug": "mine"})
	for key, id := range map[string]string{theirs: held.str("id"), ours: mine.str("id")} {
		if got := a.api(key, "DELETE", "/api/v1/links/"+id, nil); got.status != 204 {
			t.Fatal(got)
		}
	}
	domain := a.api(ours, "POST", "/api/v1/domains", map[string]any{"hostname": "go.example.com"}).str("id") // only the slug is checked, so a pending domain is enough
	say := func(when, query string, reason any) {
		t.Helper()
		got := b.api(asks, "GET", "/api/v1/links/available?"+query, nil)
		if why, has := got.json["reason"]; got.status != 200 || got.json["available"] != (reason == nil) || !has || why != reason {
			t.Errorf("%s: available?%s: %v, want reason %v", when, query, got, reason)
		}
	}
	for query, reason := range map[string]any{
		"slug=free": nil, "slug=mine": nil, "slug=OURS": "taken", "slug=theirs": "taken", "slug=held": "taken",
		"slug=Admin": "reserved", "slug=a%20b": "invalid", "slug=-a": "invalid", "slug=free&domainId=default": nil, "slug=held&domainId=": "taken",
		"slug=ours&domainId=" + domain: nil, "slug=admin&domainId=" + domain: nil, "slug=%2F&domainId=" + domain: "invalid",
	} {
		say("now", query, reason)
	}
	c.forward(link.Quarantine)
	say("after the quarantine", "slug=held", nil)
	want(t, "without a slug", a.api(asks, "GET", "/api/v1/links/available", nil), 400, "VALIDATION_ERROR")
	want(t, "empty slug", a.api(asks, "GET", "/api/v1/links/available?slug=", nil), 400, "VALIDATION_ERROR")
	want(t, "another account's domain", a.api(theirs, "GET", "/api/v1/links/available?slug=a&domainId="+domain, nil), 404, "DOMAIN_NOT_FOUND")
	want(t, "unknown domain", a.api(asks, "GET", "/api/v1/links/available?slug=a&domainId=dom_1", nil), 404, "DOMAIN_NOT_FOUND")
}

func TestAnAccountFindsThirtyTakenSlugsInAMinute(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	a, b := c.replica(t), c.replica(t)
	key, other := c.keys.Key(t, "acc_a", identity.Business), c.keys.Key(t, "acc_b", identity.Business)
	a.create(other, map[string]any{"url": "https://example.com/", "slug": "taken"})
	ask := func(r *replica, key, slug string) answer {
		return r.api(key, "GET", "/api/v1/links/available?slug="+slug, nil)
	}
	for i := range 40 {
		if got := ask(a, key, fmt.Sprint("free", i)); got.json["available"] != true {
			t.Fatalf("free slug %d: %v, want it available", i, got)
		}
	}
	for i := range 30 {
		if got := ask([]*replica{a, b}[i%2], key, "taken"); got.json["reason"] != "taken" {
			t.Fatalf("taken slug %d: %v, want reason taken", i, got)
		}
	}
	for _, slug := range []string{"taken", "free"} { // the responses are identical, so they do not reveal which slugs are taken
		got := ask(b, key, slug)
		want(t, slug, got, 429, "RATE_LIMITED")
		if wait, err := time.ParseDuration(got.header.Get("Retry-After") + "s"); err != nil || wait <= 0 || wait > time.Minute {
			t.Errorf("Retry-After = %q, want at most a minute", got.header.Get("Retry-After"))
		}
	}
	if got := ask(b, key, "admin"); got.json["reason"] != "reserved" {
		t.Errorf("reserved slug, which does not need a lookup: %v, want reason reserved", got)
	}
	if got := ask(b, other, "taken"); got.status != 200 {
		t.Errorf("request from another account: %v, want 200", got)
	}
}
