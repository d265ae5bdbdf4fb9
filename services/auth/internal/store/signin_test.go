package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// signedIn creates an account with one member, and signs that member in.
func signedIn(t *testing.T) (w world, people *member.Service, a account.Account, x member.Session) {
	t.Helper()
	w = newWorld(t)
	people, a = member.NewService(w.Store, member.Provider{}, nil), newAccount(t, w)
	token := newSecret(t)
	if _, err := people.SignInLink(t.Context(), a.ID, "", "Ada", identity.Owner, token); err != nil {
		t.Fatal(err)
	}
	x, err := people.UseLink(t.Context(), token, "", nil, "", member.Browser{Key: newSecret(t)})
	if err != nil {
		t.Fatal(err)
	}
	return w, people, a, x
}

func TestARemovedPasskeySignsNobodyIn(t *testing.T) {
	t.Parallel()
	_, people, _, x := signedIn(t)
	ctx := t.Context()
	if err := people.AddPasskey(ctx, x.Hash, member.Passkey{Hash: "credential", Credential: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	read, err := people.Passkey(ctx, "credential") // like a sign-in, read the passkey before the transaction
	if err != nil {
		t.Fatal(err)
	}
	if _, err := people.SignInByPasskey(ctx, read, "first", member.Browser{Key: newSecret(t)}); err != nil {
		t.Fatalf("SignInByPasskey with an existing passkey returned %v, want nil", err)
	}
	if err := people.RemovePasskey(ctx, x.Hash, read.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := people.SignInByPasskey(ctx, read, "second", member.Browser{Key: newSecret(t)}); !errors.Is(err, member.ErrNoPasskey) {
		t.Errorf("SignInByPasskey with a removed passkey returned %v, want %v", err, member.ErrNoPasskey)
	}
	if _, err := people.Passkey(ctx, "credential"); !errors.Is(err, member.ErrNoPasskey) {
		t.Errorf("looking up the removed passkey returned %v, want %v", err, member.ErrNoPasskey)
	}
}

func TestAPersonHasTwentyWaysToSignIn(t *testing.T) {
	t.Parallel()
	_, people, _, x := signedIn(t)
	ctx := t.Context()
	connect := func(n int) error {
		return people.Connect(ctx, x.Hash, member.Proof{Issuer: "https://idp.example", Subject: fmt.Sprint(n)})
	}
	passkey := func(n int) error {
		return people.AddPasskey(ctx, x.Hash, member.Passkey{Hash: fmt.Sprint("credential", n), Credential: []byte("{}")})
	}
	for n := range member.MaxIdentities / 2 {
		if err := errors.Join(connect(n), passkey(n)); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{"an identity": connect(20), "a passkey": passkey(20)} {
		if apierr.CodeOf(err) != apierr.QuotaExceeded {
			t.Errorf("adding %s above the limit returned %v, want %s", what, err, apierr.QuotaExceeded)
		}
	}
	if err := connect(1); err != nil {
		t.Errorf("connecting a known identity at the limit returned %v, want nil", err)
	}
}

func TestNobodyJoinsAnAccountThatIsErased(t *testing.T) {
	t.Parallel()
	w, people, a, x := signedIn(t)
	ctx := t.Context()
	invited := newSecret(t)
	if _, err := people.Invite(ctx, member.NewInvitation{ID: identity.NewID("inv"), Token: invited, AccountID: a.ID, Name: "Eve", Role: identity.Admin}); err != nil {
		t.Fatal(err)
	}
	join := func(_ any, err error) error { return err }
	browser := member.Browser{Key: newSecret(t)}
	groups := member.GroupMap{AccountID: a.ID, Roles: map[string]identity.Role{"staff": identity.Admin}}
	proof := member.Proof{Issuer: "https://idp.example", Subject: "ada"}
	if err := errors.Join(people.Connect(ctx, x.Hash, proof), people.AddPasskey(ctx, x.Hash, member.Passkey{Hash: "credential", Credential: []byte("{}")})); err != nil {
		t.Fatal(err)
	}
	passkey, err := people.Passkey(ctx, "credential")
	if err != nil {
		t.Fatal(err)
	}
	link := newSecret(t)
	if _, err := people.SignInLink(ctx, a.ID, x.MemberID, "", "", link); err != nil {
		t.Fatal(err)
	}
	a.Deleting = true
	w.put(t, a)
	for what, err := range map[string]error{
		"link sign-in":          join(people.UseLink(ctx, link, "", nil, "", browser)),
		"passkey sign-in":       join(people.SignInByPasskey(ctx, passkey, "challenge", browser)),
		"provider sign-in":      join(people.SignIn(ctx, proof, member.GroupMap{}, browser)),
		"account switch":        join(people.Switch(ctx, x.Hash, x.MemberID, browser)),
		"link for a new member": join(people.SignInLink(ctx, a.ID, "", "Eve", identity.Admin, newSecret(t))),
		"link for a member":     join(people.SignInLink(ctx, a.ID, x.MemberID, "", "", newSecret(t))),
		"invitation":            join(people.UseLink(ctx, invited, "", nil, "", browser)),
		"group map":             join(people.SignIn(ctx, member.Proof{Issuer: "https://idp.example", Subject: "eve", Groups: []string{"staff"}}, groups, browser)),
	} {
		if apierr.CodeOf(err) != apierr.AccountDeleting {
			t.Errorf("%s: got error %v, want %s", what, err, apierr.AccountDeleting)
		}
	}
	if all, err := w.Look(ctx).Members(a.ID); err != nil || len(all) != 1 {
		t.Errorf("the account has %d members (error %v), want 1", len(all), err)
	}
	// Erasure removes sessions before members, so a session created in between would be left
	// behind.
	if open, err := w.Look(ctx).Sessions(x.MemberID); err != nil || len(open) != 1 {
		t.Errorf("the member has %d sessions (error %v), want 1", len(open), err)
	}
	// A person who also belongs to another account can still sign in there.
	other := newAccount(t, w)
	invited = newSecret(t)
	if _, err := people.Invite(ctx, member.NewInvitation{ID: identity.NewID("inv"), Token: invited, AccountID: other.ID, Name: "Ada", Role: identity.Admin}); err != nil {
		t.Fatal(err)
	}
	if _, err := people.UseLink(ctx, invited, "", nil, x.Hash, browser); err != nil {
		t.Fatal(err)
	}
	y, err := people.SignInByPasskey(ctx, passkey, "challenge", member.Browser{Key: newSecret(t)})
	if err != nil || y.AccountID != other.ID {
		t.Errorf("SignInByPasskey opened account %s (error %v), want %s", y.AccountID, err, other.ID)
	}
}

// clock is a clock that tests can advance.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }

func (c *clock) forward(d time.Duration) { c.mu.Lock(); c.at = c.at.Add(d); c.mu.Unlock() }

// byGroup creates an account with a group map. confirm signs Eve in with the provider, as a
// member of the given groups.
func byGroup(t *testing.T, role identity.Role) (w world, c *clock, people *member.Service, a account.Account, confirm func(groups ...string) (member.Session, error)) {
	t.Helper()
	w, c = newWorld(t), &clock{at: time.Now().Truncate(time.Second)}
	people = member.NewService(w.Store, member.Provider{Issuer: "https://idp.example", MaxAge: 24 * time.Hour}, c.now)
	a = newAccount(t, w)
	groups := member.GroupMap{AccountID: a.ID, Roles: map[string]identity.Role{"staff": role}}
	confirm = func(in ...string) (member.Session, error) {
		return people.SignIn(t.Context(), member.Proof{Issuer: "https://idp.example", Subject: "eve", Name: "Eve", Groups: in}, groups, member.Browser{Key: newSecret(t)})
	}
	return w, c, people, a, confirm
}

// keyOf creates a key for a member.
func keyOf(t *testing.T, w world, a account.Account, memberID string) account.Key {
	t.Helper()
	secret := newSecret(t)
	k := account.Key{
		ID: identity.NewID("key"), AccountID: a.ID, Hash: secret.Hash(), Name: "hers", Prefix: secret.Prefix(), Last4: secret.Last4(),
		Scopes: identity.LinksRead, MadeBy: memberID, CreatedAt: time.Now(),
	}
	w.do(t, func(tx account.Tx) error { tx.Add(k, events.Quiet); return nil })
	return k
}

func TestAMembershipByGroupEndsWithTheGroup(t *testing.T) {
	t.Parallel()
	w, c, people, a, confirm := byGroup(t, identity.Admin)
	ctx := t.Context()
	first, err := confirm("staff")
	if err != nil {
		t.Fatal(err)
	}
	if err := people.AddPasskey(ctx, first.Hash, member.Passkey{Hash: "credential", Credential: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	key := keyOf(t, w, a, first.MemberID)
	tries := 0
	passkey := func() (member.Session, error) {
		tries++
		p, err := people.Passkey(ctx, "credential")
		if err != nil {
			t.Fatal(err)
		}
		return people.SignInByPasskey(ctx, p, fmt.Sprint(tries), member.Browser{Key: newSecret(t)})
	}
	revoked := func() bool {
		k, err := w.Key(ctx, a.ID, key.ID)
		if err != nil {
			t.Fatal(err)
		}
		return !k.RevokedAt.IsZero()
	}
	end := first.CreatedAt.Add(24 * time.Hour)
	c.forward(23 * time.Hour)
	late, err := passkey()
	if err != nil || !late.ExpiresAt().Equal(end) {
		t.Fatalf("the session from a passkey sign-in after 23 hours ends at %v, want %v (error %v)", late.ExpiresAt(), end, err)
	}
	// Once the provider has confirmed the person again, the passkey works for one more day.
	if _, err := confirm("staff"); err != nil {
		t.Fatal(err)
	}
	c.forward(23 * time.Hour)
	if _, err := passkey(); err != nil {
		t.Errorf("passkey sign-in 23 hours after the second confirmation returned %v, want nil", err)
	}
	if err := people.EndLapsed(ctx); err != nil || revoked() {
		t.Errorf("after EndLapsed before the expiry, key revoked = %v (error %v), want false", revoked(), err)
	}
	c.forward(time.Hour)
	if late.Active(c.now()) {
		t.Error("the passkey session is active after the confirmation has expired, want it ended")
	}
	if _, err := passkey(); apierr.CodeOf(err) != apierr.SignInByProvider {
		t.Errorf("passkey sign-in a day after the last confirmation returned %v, want %s", err, apierr.SignInByProvider)
	}
	for range 2 { // there is nothing left for the second call
		if err := people.EndLapsed(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := people.Member(ctx, a.ID, first.MemberID); !errors.Is(err, member.ErrNoMember) || !revoked() {
		t.Errorf("after EndLapsed, looking up the member returned %v and key revoked = %v, want no member and true", err, revoked())
	}
	if _, err := confirm("visitors"); !errors.Is(err, member.ErrNoMembership) {
		t.Errorf("sign-in without the group returned %v, want %v", err, member.ErrNoMembership)
	}
	if back, err := confirm("staff"); err != nil || back.PersonID != first.PersonID {
		t.Errorf("sign-in with the group again returned person %s, want %s (error %v)", back.PersonID, first.PersonID, err)
	}
}

func TestTheLastOwnerByGroupStaysWithoutKeys(t *testing.T) {
	t.Parallel()
	w, c, people, a, confirm := byGroup(t, identity.Owner)
	ctx := t.Context()
	x, err := confirm("staff")
	if err != nil {
		t.Fatal(err)
	}
	key := keyOf(t, w, a, x.MemberID)
	c.forward(24 * time.Hour)
	var versions []int64
	for range 2 {
		if err := people.EndLapsed(ctx); err != nil {
			t.Fatal(err)
		}
		now, err := w.Account(ctx, a.ID)
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, now.Version)
	}
	if versions[0] != versions[1] {
		t.Errorf("the account versions after two calls to EndLapsed are %v, want them equal", versions)
	}
	if k, err := w.Key(ctx, a.ID, key.ID); err != nil || k.RevokedAt.IsZero() {
		t.Errorf("the last owner's key is not revoked (error %v), want it revoked", err)
	}
	if _, err := people.Member(ctx, a.ID, x.MemberID); err != nil {
		t.Errorf("looking up the last owner returned %v, want nil", err)
	}
	if _, err := confirm("staff"); err != nil {
		t.Errorf("sign-in after another confirmation returned %v, want nil", err)
	}
}

func TestNobodyMakesALinkForAMemberByGroup(t *testing.T) {
	t.Parallel()
	_, _, people, a, confirm := byGroup(t, identity.Viewer)
	ctx := t.Context()
	x, err := confirm("staff")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := people.SignInLink(ctx, a.ID, x.MemberID, "", "", newSecret(t)); !errors.Is(err, member.ErrByProvider) {
		t.Errorf("SignInLink by the operator returned %v, want %v", err, member.ErrByProvider)
	}
	token := newSecret(t)
	if _, err := people.SignInLink(ctx, a.ID, "", "Ada", identity.Owner, token); err != nil {
		t.Fatal(err)
	}
	owner, err := people.UseLink(ctx, token, "", nil, "", member.Browser{Key: newSecret(t)})
	if err != nil {
		t.Fatal(err)
	}
	by := &identity.Principal{AccountID: a.ID, MemberID: owner.MemberID, Session: true, Role: identity.Owner, Scopes: identity.AllScopes}
	if _, err := people.SignInLinkFor(ctx, member.NewSignInLink{ID: identity.NewID("sil"), Token: newSecret(t), MemberID: x.MemberID, At: time.Now(), By: by}); !errors.Is(err, member.ErrByProvider) {
		t.Errorf("SignInLinkFor by an owner returned %v, want %v", err, member.ErrByProvider)
	}
}

// An admin creates a sign-in link for a viewer, opens it, and adds a passkey in the session.
// When the viewer becomes an admin, neither the session nor the passkey gains the new role.
func TestWhatASignInLinkOpenedEndsWithAHigherRole(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	people := member.NewService(w.Store, member.Provider{}, nil)
	a := newAccount(t, w)
	in := func(role identity.Role) member.Session {
		t.Helper()
		link := newSecret(t)
		if _, err := people.SignInLink(ctx, a.ID, "", "Ada", role, link); err != nil {
			t.Fatal(err)
		}
		x, err := people.UseLink(ctx, link, "", nil, "", member.Browser{Key: newSecret(t)})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	admin, viewer := in(identity.Admin), in(identity.Viewer)
	by := &identity.Principal{AccountID: a.ID, Session: true, MemberID: admin.MemberID, Role: identity.Admin, Scopes: identity.Admin.Scopes()}
	link := newSecret(t)
	if _, err := people.SignInLinkFor(ctx, member.NewSignInLink{ID: identity.NewID("sil"), Token: link, MemberID: viewer.MemberID, At: time.Now(), By: by}); err != nil {
		t.Fatal(err)
	}
	planted, err := people.UseLink(ctx, link, "", nil, "", member.Browser{Key: newSecret(t)})
	if err != nil || !planted.Bound {
		t.Fatalf("sign-in with the link returned %+v and error %v, want a bound session", planted, err)
	}
	add := func(x member.Session, credential string) {
		t.Helper()
		if err := people.AddPasskey(ctx, x.Hash, member.Passkey{Hash: credential, Credential: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	add(planted, "planted")
	add(viewer, "theirs")
	key, err := people.Passkey(ctx, "planted")
	if err != nil {
		t.Fatal(err)
	}
	later, err := people.SignInByPasskey(ctx, key, "challenge", member.Browser{Key: newSecret(t)})
	if err != nil {
		t.Fatal(err)
	}
	change := func(role identity.Role) {
		t.Helper()
		if _, err := people.Change(ctx, nil, a.ID, viewer.MemberID, member.Change{Role: &role}); err != nil {
			t.Fatal(err)
		}
	}
	live := func(want bool) {
		t.Helper()
		_, _, bySession := people.Person(ctx, planted.Hash)
		_, _, byLater := people.Person(ctx, later.Hash)
		_, byKey := people.Passkey(ctx, "planted")
		for what, err := range map[string]error{"the link's session": bySession, "the planted passkey's session": byLater, "the planted passkey": byKey} {
			if (err == nil) != want {
				t.Errorf("%s: got error %v, want success = %v", what, err, want)
			}
		}
	}
	change(identity.Viewer) // the member is already a viewer, so this changes nothing
	live(true)
	change(identity.Admin)
	live(false)
	if _, err := people.Passkey(ctx, "theirs"); err != nil {
		t.Errorf("looking up the member's own passkey returned %v, want nil", err)
	}
	if _, _, err := people.Person(ctx, viewer.Hash); err != nil {
		t.Errorf("looking up the member's own session returned %v, want nil", err)
	}
}
