package store_test

import (
	"errors"
	"testing"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// This test erases a person's accounts one by one. The person's passkeys and identities must be
// kept until the last account is gone.
func TestAPersonIsForgottenWithTheirLastAccount(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	ctx := t.Context()
	first, second := newAccount(t, b), newAccount(t, b)
	join := func(person string, accounts ...account.Account) {
		t.Helper()
		err := b.People(ctx, "test", func(tx member.Tx) error {
			tx.Add(member.Identity{Issuer: "https://idp.example", Subject: person, PersonID: person, CreatedAt: start}, events.Quiet)
			tx.Put(member.Passkey{
				Hash: "hash_" + person, ID: "psk_" + person, PersonID: person, Name: "Laptop", Credential: []byte("{}"), CreatedAt: start,
			}, events.Quiet)
			for _, a := range accounts {
				tx.Put(member.Member{
					ID: identity.NewID("mem"), AccountID: a.ID, PersonID: person, Name: person, Role: identity.Admin, CreatedAt: start, UpdatedAt: start,
				}, events.Quiet)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	join("alone", first)
	join("both", first, second)
	join("other", second)
	purge := func(a account.Account) {
		t.Helper()
		for range 3 { // repeated erasures must succeed too
			if err := b.Erase(ctx, a.ID, start); err != nil {
				t.Fatal(err)
			}
		}
		if left, err := b.Look(ctx).Members(a.ID); err != nil || len(left) > 0 {
			t.Errorf("the account has %d members (error %v), want none", len(left), err)
		}
	}
	knows := func(when string, want ...string) {
		t.Helper()
		for _, person := range []string{"alone", "both", "other"} {
			known := false
			for _, w := range want {
				known = known || w == person
			}
			keys, err := b.Look(ctx).Passkeys(person)
			ids, err2 := b.Look(ctx).Identities(person)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			if (len(keys) == 1) != known || (len(ids) == 1) != known || len(keys) > 1 {
				t.Errorf("%s: person %s has %d passkeys and %d identities, want one of each while the person is known and none afterwards", when, person, len(keys), len(ids))
			}
			if _, err := b.Look(ctx).Passkey("hash_" + person); known != (err == nil) || !known && !errors.Is(err, member.ErrNoPasskey) {
				t.Errorf("%s: looking up the passkey of %s returned error %v, want success only while the person is known", when, person, err)
			}
		}
	}
	knows("before the first erasure", "alone", "both", "other")
	purge(first)
	knows("after the first erasure", "both", "other")
	purge(second)
	knows("after both erasures")

	// If two accounts are being erased at the same time, neither erasure leaves their shared member
	// to the other.
	third, fourth := newAccount(t, b), newAccount(t, b)
	join("both", third, fourth)
	for _, a := range []account.Account{third, fourth} {
		a.Deleting = true
		b.put(t, a)
	}
	purge(third)
	knows("while another account is being erased")
}
