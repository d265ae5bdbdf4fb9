package identity_test

import (
	"crypto/rand"
	"regexp"
	"testing"

	"github.com/linkreel/linkreel/libs/identity"
)

// This test repeats the documented table of roles, cell by cell.
func TestRolesGiveTheScopesOfTheTable(t *testing.T) {
	t.Parallel()
	rows := map[identity.ScopeSet][]identity.Role{}
	give := func(scopes []identity.ScopeSet, roles ...identity.Role) {
		for _, s := range scopes {
			rows[s] = roles
		}
	}
	give([]identity.ScopeSet{identity.LinksRead, identity.VideosRead, identity.DomainsRead}, identity.Viewer, identity.Member, identity.Admin, identity.Owner)
	give([]identity.ScopeSet{identity.LinksWrite, identity.VideosWrite}, identity.Member, identity.Admin, identity.Owner)
	give([]identity.ScopeSet{
		identity.DomainsWrite, identity.KeysRead, identity.KeysWrite, identity.EventsRead, identity.WebhooksRead,
		identity.WebhooksWrite, identity.MembersRead, identity.MembersWrite,
	}, identity.Admin, identity.Owner)
	give([]identity.ScopeSet{identity.AccountWrite}, identity.Owner)
	for i := range identity.AllScopes.Names() {
		scope := identity.ScopeSet(1) << i
		roles, ok := rows[scope]
		if !ok {
			t.Errorf("the table has no row for %s", scope)
		}
		for _, role := range identity.Roles() {
			want := false
			for _, r := range roles {
				want = want || r == role
			}
			if got := role.Scopes().Has(scope); got != want {
				t.Errorf("%s has scope %s = %v, want %v", role, scope, got, want)
			}
		}
	}
	if got := identity.Role("root").Scopes(); got != 0 {
		t.Errorf("Scopes for an unknown role = %v, want none", got)
	}
}

func TestRolesAreOrdered(t *testing.T) {
	t.Parallel()
	for i, a := range identity.Roles() {
		for j, b := range identity.Roles() {
			if got := a.AtLeast(b); got != (i >= j) {
				t.Errorf("%s.AtLeast(%s) = %v, want %v", a, b, got, i >= j)
			}
			if i >= j && !a.Scopes().Has(b.Scopes()) {
				t.Errorf("%s lacks scopes of %s, want all of them", a, b)
			}
		}
		if identity.Role("").AtLeast(a) {
			t.Errorf("an empty role is at least %s, want it below every role", a)
		}
		if got, err := identity.ParseRole(string(a)); err != nil || got != a {
			t.Errorf("ParseRole(%s) = %s, %v, want the same role", a, got, err)
		}
	}
	if _, err := identity.ParseRole("Owner"); err == nil {
		t.Error("ParseRole(Owner) succeeded, want an error because only lower case is valid")
	}
}

func TestOnlyOwnersAndTheAccountsOwnKeysOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		p    identity.Principal
		want bool
	}{
		{"session of an owner", identity.Principal{Session: true, MemberID: "m", Role: identity.Owner}, true},
		{"session of an admin", identity.Principal{Session: true, MemberID: "m", Role: identity.Admin}, false},
		{"key of an admin", identity.Principal{MemberID: "m", Role: identity.Admin}, false},
		{"key of an owner", identity.Principal{MemberID: "m", Role: identity.Owner}, true},
		{"key of a removed member", identity.Principal{MemberID: "m"}, false},
		{"key of the operator", identity.Principal{}, true},
	} {
		if got := c.p.Owns(); got != c.want {
			t.Errorf("%s: Owns = %v, want %v", c.name, got, c.want)
		}
	}
}

func TestSessionsAreKeysOfTheirOwnKind(t *testing.T) {
	t.Parallel()
	s := identity.NewSession(rand.Reader)
	if !regexp.MustCompile(`^lr_sess_[0-9A-Za-z]{38}$`).MatchString(s.Secret()) {
		t.Errorf("session key = %q, want lr_sess_ and 38 characters", s.Secret())
	}
	got, err := identity.ParseKey(s.Secret(), identity.KeyPrefix, identity.SessionPrefix)
	if err != nil || !got.IsSession() {
		t.Errorf("ParseKey for a session: error %v, want a session", err)
	}
	if k := identity.NewKey(rand.Reader); k.IsSession() {
		t.Error("IsSession for an API key = true, want false")
	}
	// The checksum covers the prefix, so a key cannot be converted to the other kind.
	if _, err := identity.ParseKey(identity.KeyPrefix+s.Secret()[len(identity.SessionPrefix):], identity.KeyPrefix, identity.SessionPrefix); err == nil {
		t.Error("ParseKey for a session key with the API key prefix succeeded, want an error")
	}
}

func TestAKeyWithoutScopesGetsTheEight(t *testing.T) {
	t.Parallel()
	if got := identity.DefaultScopes; len(got.Names()) != 8 || got.Has(identity.MembersWrite) || got.Has(identity.EventsRead) || got.Has(identity.WebhooksWrite) {
		t.Errorf("DefaultScopes = %v, want eight scopes without members:write, events:read and webhooks:write", got)
	}
	if !identity.AllScopes.Has(identity.DefaultScopes) {
		t.Error("AllScopes lacks some default scopes, want all of them")
	}
}
