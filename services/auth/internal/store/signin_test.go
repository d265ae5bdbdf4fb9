package store_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// signedIn makes an account with a member, and a session of theirs.
func signedIn(t *testing.T) (w world, people *member.Service, a account.Account, x member.Session) {
	t.Helper()
	w = newWorld(t)
	people, a = member.NewService(w.Store, &told{}, nil, nil), newAccount(t, w)
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
	read, err := people.Passkey(ctx, "credential") // as a sign-in does, before its transaction
	if err != nil {
		t.Fatal(err)
	}
	if _, err := people.SignInByPasskey(ctx, read, "first", member.Browser{Key: newSecret(t)}); err != nil {
		t.Fatalf("while it is there: %v", err)
	}
	if err := people.RemovePasskey(ctx, x.Hash, read.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := people.SignInByPasskey(ctx, read, "second", member.Browser{Key: newSecret(t)}); !errors.Is(err, member.ErrNoPasskey) {
		t.Errorf("SignInByPasskey after its removal: %v", err)
	}
	if _, err := people.Passkey(ctx, "credential"); !errors.Is(err, member.ErrNoPasskey) {
		t.Errorf("the passkey is back: %v", err)
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
			t.Errorf("%s beyond the limit: %v", what, err)
		}
	}
	if err := connect(1); err != nil {
		t.Errorf("an identity that is known already: %v", err)
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
	a.Deleting = true
	w.do(t, func(tx account.Tx) error { return tx.PutAccount(a) })
	join := func(_ any, err error) error { return err }
	browser := member.Browser{Key: newSecret(t)}
	groups := member.GroupMap{AccountID: a.ID, Roles: map[string]identity.Role{"staff": identity.Admin}}
	for what, err := range map[string]error{
		"a link for a new member": join(people.SignInLink(ctx, a.ID, "", "Eve", identity.Admin, newSecret(t))),
		"a link for a member":     join(people.SignInLink(ctx, a.ID, x.MemberID, "", "", newSecret(t))),
		"an invitation":           join(people.UseLink(ctx, invited, "", nil, "", browser)),
		"the group map":           join(people.SignIn(ctx, member.Proof{Issuer: "https://idp.example", Subject: "eve", Groups: []string{"staff"}}, groups, browser)),
	} {
		if apierr.CodeOf(err) != apierr.AccountDeleting {
			t.Errorf("%s: %v", what, err)
		}
	}
	if all, err := w.Members(ctx, a.ID); err != nil || len(all) != 1 {
		t.Errorf("%d members, %v", len(all), err)
	}
}
