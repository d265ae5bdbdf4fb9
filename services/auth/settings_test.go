package auth_test

import (
	"context"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/apierr"
)

// Usable accepts two domain ids, rejects an unverified domain, and treats all others as unknown.
func (h *holder) Usable(_ context.Context, _, domainID string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.down:
		return apierr.Down(context.DeadlineExceeded)
	case domainID == "dom_good" || domainID == "dom_other":
		return nil
	case domainID == "dom_pending":
		return apierr.New(apierr.DomainNotVerified, "The domain is not verified.")
	}
	return apierr.New(apierr.DomainNotFound, "This account has no domain with this id.")
}

func TestOwnersChangeTheAccountsSettings(t *testing.T) {
	t.Parallel()
	r, h := withHolder(t)
	id, plain := r.account("free")
	key := r.key(id, `{"name":"settings","scopes":["account:write"]}`)
	set := func(body string) answer { t.Helper(); return r.api("PATCH", "/api/v1/account", key, body) }
	shows := func(what string, got answer, name, domain string) {
		t.Helper()
		if got.status != 200 || !strings.Contains(string(got.body), `"name":"`+name+`","plan":"free","defaultDomainId":`+domain) {
			t.Errorf("%s: got %d %s, want name %s and default domain %s", what, got.status, got.body, name, domain)
		}
	}
	shows("before", r.api("GET", "/api/v1/account", plain, ""), "Test", "null")
	shows("new name", set(`{"name":"Example Ltd"}`), "Example Ltd", "null")
	shows("new domain", set(`{"defaultDomainId":"dom_good","plan":"business"}`), "Example Ltd", `"dom_good"`)
	if got := set(`{"defaultDomainId":"dom_good","plan":"business"}`); !strings.Contains(string(got.body), `"ignoredFields":["plan"]`) {
		t.Errorf("an owner's PATCH of the plan returned %s, want the field ignored", got.body)
	}
	shows("both", set(`{"name":"Ä","defaultDomainId":"dom_other"}`), "Ä", `"dom_other"`)
	shows("settings read with a different key", r.api("GET", "/api/v1/account", plain, ""), "Ä", `"dom_other"`)

	for body, code := range map[string]string{
		`{"name":null}`: "VALIDATION_ERROR", `{"name":""}`: "VALIDATION_ERROR", `{"name":" "}`: "VALIDATION_ERROR", `{"name":5}`: "VALIDATION_ERROR",
		`{"name":"` + strings.Repeat("ä", 101) + `"}`: "VALIDATION_ERROR", `{"defaultDomainId":5}`: "VALIDATION_ERROR",
		`{"name":"New","defaultDomainId":"dom_pending"}`: "DOMAIN_NOT_VERIFIED", `{"name":"New","defaultDomainId":"dom_stranger"}`: "DOMAIN_NOT_FOUND",
		`{"name":"New","defaultDomainId":""}`: "DOMAIN_NOT_FOUND", `[]`: "INVALID_JSON",
	} {
		if got := set(body); got.code() != code {
			t.Errorf("PATCH with %s returned %d %s, want %s", body, got.status, got.body, code)
		}
	}
	h.set(func() { h.down = true })
	want(t, set(`{"name":"New","defaultDomainId":"dom_good"}`), 503, "UNAVAILABLE")
	shows("new name while links is down", set(`{"name":"Example"}`), "Example", `"dom_other"`)
	shows("default host while links is down", set(`{"defaultDomainId":null}`), "Example", "null")
	h.set(func() { h.down = false })
	shows("again", set(`{"defaultDomainId":"dom_good"}`), "Example", `"dom_good"`)
	shows("default host set by name", set(`{"defaultDomainId":"default"}`), "Example", "null")
	want(t, r.api("PATCH", "/api/v1/account", plain, `{"name":"New"}`), 403, "INSUFFICIENT_SCOPE")
}

func TestSettingsAreChangedOnlyInTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	r, _ := withHolder(t)
	id, plain := r.account("free")
	key := r.key(id, `{"name":"settings","scopes":["account:write"]}`)
	tag := func() string { t.Helper(); return r.api("GET", "/api/v1/account", plain, "").header.Get("ETag") }
	set := func(body, match string) answer {
		return r.api("PATCH", "/api/v1/account", key, body, "If-Match", match)
	}
	first := tag()
	if got := set(`{"name":"One"}`, first); got.status != 200 || got.header.Get("ETag") == first || got.header.Get("ETag") != tag() {
		t.Fatalf("PATCH returned %d %s with ETag %s, want 200 and an ETag other than %s", got.status, got.body, got.header.Get("ETag"), first)
	}
	want(t, set(`{"name":"Two"}`, first), 412, "PRECONDITION_FAILED")
	want(t, set(`{"defaultDomainId":"dom_good"}`, first), 412, "PRECONDITION_FAILED")
	second := tag()
	if got := set(`{"defaultDomainId":"dom_good"}`, second); got.status != 200 || tag() == second {
		t.Errorf("PATCH with the current ETag returned %d %s and then ETag %s, want 200 and a new ETag", got.status, got.body, tag())
	}
	// The operator's changes do not change the settings' revision.
	third := tag()
	want(t, r.admin("PATCH", "/admin/v1/accounts/"+id, `{"plan":"business"}`), 200, "")
	if got := tag(); got != third {
		t.Errorf("after the plan changed, the ETag is %s, want %s", got, third)
	}
	if got := r.api("GET", "/api/v1/account", plain, ""); !strings.Contains(string(got.body), `"name":"One"`) {
		t.Errorf("the account is %s, want name One", got.body)
	}
}
