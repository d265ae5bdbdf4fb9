package identity_test

import (
	"crypto/rand"
	"regexp"
	"testing"

	"github.com/linkreel/linkreel/libs/identity"
)

// This test repeats the table of roles, cell by cell.
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
			t.Errorf("no row for %s", scope)
		}
		for _, role := range identity.Roles() {
			want := false
			for _, r := range roles {
				want = want || r == role
			}
			if got := role.Scopes().Has(scope); got != want {
				t.Errorf("%s has %s: %v, want %v", role, scope, got, want)
			}
		}
	}
	if got := identity.Role("root").Scopes(); got != 0 {
		t.Errorf("an unknown role gives %v", got)
	}
}

func TestRolesAreOrdered(t *testing.T) {
	t.Parallel()
	for i, a := range identity.Roles() {
		for j, b := range identity.Roles() {
			if got := a.AtLeast(b); got != (i >= j) {
				t.Errorf("%s.AtLeast(%s) = %v", a, b, got)
			}
			if i >= j && !a.Scopes().Has(b.Scopes()) {
				t.Errorf("%s does not have all that %s has", a, b)
			}
		}
		if identity.Role("").AtLeast(a) {
			t.Errorf("no role is at least %s", a)
		}
		if got, err := identity.ParseRole(string(a)); err != nil || got != a {
			t.Errorf("ParseRole(%s) = %s, %v", a, got, err)
		}
	}
	if _, err := identity.ParseRole("Owner"); err == nil {
		t.Error("ParseRole must accept only lower case")
	}
}

func TestOnlyOwnersAndTheAccountsOwnKeysOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		p    identity.Principal
		want bool
	}{
		{"an owner's session", identity.Principal{Session: true, MemberID: "m", Role: identity.Owner}, true},
		{"an admin's session", identity.Principal{Session: true, MemberID: "m", Role: identity.Admin}, false},
		{"an admin's key", identity.Principal{MemberID: "m", Role: identity.Admin}, false},
		{"an owner's key", identity.Principal{MemberID: "m", Role: identity.Owner}, true},
		{"a key of a removed member", identity.Principal{MemberID: "m"}, false},
		{"the operator's key", identity.Principal{}, true},
	} {
		if got := c.p.Owns(); got != c.want {
			t.Errorf("%s: Owns = %v", c.name, got)
		}
	}
}

func TestSessionsAreKeysOfTheirOwnKind(t *testing.T) {
	t.Parallel()
	s := identity.NewSession(rand.Reader)
	if !regexp.MustCompile(`^lr_sess_[0-9A-Za-z]{38}$`).MatchString(s.Secret()) {
		t.Errorf("session %q has the wrong form", s.Secret())
	}
	got, err := identity.ParseKey(s.Secret(), identity.KeyPrefix, identity.SessionPrefix)
	if err != nil || !got.IsSession() {
		t.Errorf("ParseKey of a session: %v", err)
	}
	if k := identity.NewKey(rand.Reader); k.IsSession() {
		t.Error("an API key counts as a session")
	}
	// The checksum covers the prefix, so neither kind of key can be turned into the
	// other.
	if _, err := identity.ParseKey(identity.KeyPrefix+s.Secret()[len(identity.SessionPrefix):], identity.KeyPrefix, identity.SessionPrefix); err == nil {
		t.Error("a session with the other prefix parses")
	}
}

func TestAKeyWithoutScopesGetsTheEight(t *testing.T) {
	t.Parallel()
	if got := identity.DefaultScopes; len(got.Names()) != 8 || got.Has(identity.MembersWrite) || got.Has(identity.EventsRead) || got.Has(identity.WebhooksWrite) {
		t.Errorf("DefaultScopes = %v", got)
	}
	if !identity.AllScopes.Has(identity.DefaultScopes) {
		t.Error("AllScopes lacks some of the eight default scopes")
	}
}
