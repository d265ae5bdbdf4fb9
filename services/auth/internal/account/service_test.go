package account_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// memory is an in-memory Store. Its transactions read and write it directly: the tests here only
// check the rules, and package store's tests check atomicity.
type memory struct {
	accounts map[string]account.Account
	keys     map[string]account.Key // by hash
	roles    map[string]identity.Role
	noted    []string
	told     []string
}

func (m *memory) Account(_ context.Context, id string) (account.Account, error) {
	return tx{m}.Account(id)
}

func (m *memory) Key(_ context.Context, accountID, id string) (account.Key, error) {
	return tx{m}.Key(accountID, id)
}

func (m *memory) Keys(_ context.Context, accountID string) ([]account.Key, error) {
	return tx{m}.InUse(accountID, time.Time{})
}

func (m *memory) Usage(context.Context, string) (account.Usage, error) { return account.Usage{}, nil }

func (m *memory) Atomically(_ context.Context, _ string, fn func(account.Tx) error) error {
	return fn(tx{m})
}

type tx struct{ *memory }

func (t tx) Account(id string) (account.Account, error) {
	a, ok := t.accounts[id]
	if !ok {
		return a, account.ErrNoAccount
	}
	return a, nil
}

func (t tx) Key(accountID, id string) (account.Key, error) {
	for _, k := range t.keys {
		if k.ID == id && (accountID == "" || k.AccountID == accountID) {
			return k, nil
		}
	}
	return account.Key{}, account.ErrNoKey
}

func (t tx) KeyByHash(hash string) (account.Key, error) {
	k, ok := t.keys[hash]
	if !ok {
		return k, account.ErrNoKey
	}
	return k, nil
}

func (t tx) InUse(accountID string, now time.Time) (out []account.Key, err error) {
	for _, k := range t.keys {
		if k.AccountID == accountID && k.Active(now) {
			out = append(out, k)
		}
	}
	return out, nil
}

func (t tx) Room(_, _ string, most, n int, count func() (int, error)) (int, error) {
	have, err := count()
	return min(n, most-have), err
}

func (t tx) Role(_, memberID string) (identity.Role, error) { return t.roles[memberID], nil }

func (t tx) Tell(what events.Type, object string, _ any) {
	t.noted = append(t.noted, string(what)+" "+object)
}

func (t tx) AddAccount(a account.Account) { t.accounts[a.ID] = a }

func (t tx) PutAccount(a *account.Account, what events.Type) {
	a.Version++
	t.accounts[a.ID] = *a
	t.Tell(what, a.ID, *a)
	_ = t.Again(a.ID)
}

func (t tx) Add(r any, what events.Type) { t.Put(r, what) }

func (t tx) Put(r any, what events.Type) {
	k := r.(account.Key)
	t.keys[k.Hash] = k
	t.Tell(what, k.ID, k)
}

func (t tx) Remove(any, events.Type) {}

func (t tx) Authority(id string) error {
	a := t.accounts[id]
	a.Version++
	t.accounts[id] = a
	return t.Again(id)
}

func (t tx) Note(any) {}

func (t tx) Again(id string) error {
	t.told = append(t.told, fmt.Sprintf("%s@%d", id, t.accounts[id].Version))
	return nil
}

type world struct {
	*account.Service
	store *memory
	now   time.Time

	settled []string
	down    bool // the services that hold the account's records are unreachable
}

func newWorld(t *testing.T) *world {
	t.Helper()
	b := &world{store: &memory{accounts: map[string]account.Account{}, keys: map[string]account.Key{}, roles: map[string]identity.Role{}}, now: time.UnixMilli(1_800_000_000_000)}
	b.Service = account.NewService(b.store, b.settle, func() time.Time { return b.now })
	return b
}

func (b *world) settle(_ context.Context, a account.Account) error {
	if b.down {
		return errors.New("unreachable")
	}
	b.settled = append(b.settled, fmt.Sprintf("%s %s@%d", a.ID, a.State(), a.Version))
	return nil
}

func (b *world) account(t *testing.T) account.Account {
	t.Helper()
	a, err := b.Create(t.Context(), "Test", identity.Business)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func ask(t *testing.T, a account.Account, edit func(*account.NewKey)) account.NewKey {
	t.Helper()
	secret := identity.NewKey(rand.Reader)
	n := account.NewKey{ID: identity.NewID("key"), Key: secret, AccountID: a.ID, Name: "k", Scopes: identity.AllScopes}
	if edit != nil {
		edit(&n)
	}
	return n
}

func (b *world) key(t *testing.T, a account.Account, edit func(*account.NewKey)) account.Key {
	t.Helper()
	k, err := b.CreateKey(t.Context(), ask(t, a, edit))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func principal(k account.Key) *identity.Principal {
	return &identity.Principal{AccountID: k.AccountID, KeyID: k.ID, Scopes: k.Scopes}
}

func TestEveryLossOfAuthorityRaisesTheVersionAndIsTold(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := b.account(t)
	k := b.key(t, a, nil)
	suspended := true
	plan := identity.Free
	for i, act := range []func() error{
		func() error { return b.Revoke(t.Context(), a.ID, k.ID) },
		func() error { return b.Revoke(t.Context(), "", k.ID) }, // a repeated call notifies the replicas again because the first attempt may have crashed
		func() error { _, err := b.Change(t.Context(), a.ID, account.Change{Suspended: &suspended}); return err },
		func() error { _, err := b.Change(t.Context(), a.ID, account.Change{Plan: &plan}); return err },
		func() error { _, err := b.Change(t.Context(), a.ID, account.Change{}); return err },
		func() error {
			other := b.key(t, a, nil)
			_, err := b.Roll(t.Context(), other.ID, time.Hour, ask(t, a, nil))
			return err
		},
	} {
		if err := act(); err != nil {
			t.Fatalf("step %d returned %v, want nil", i, err)
		}
	}
	want := []string{a.ID + "@2", a.ID + "@2", a.ID + "@3", a.ID + "@4", a.ID + "@4", a.ID + "@5"}
	if d := cmp.Diff(want, b.store.told); d != "" {
		t.Errorf("notified versions (-want +got):\n%s", d)
	}
}

func TestASuspensionReachesTheHoldersBeforeItIsAnswered(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := b.account(t)
	yes, no, name := true, false, "Renamed"
	change := func(c account.Change) (account.Account, error) { return b.Change(t.Context(), a.ID, c) }
	for _, c := range []account.Change{{Name: &name}, {Suspended: &yes}, {Suspended: &yes}, {Suspended: &no}} {
		after, err := change(c)
		if err != nil || after.Pending {
			t.Fatalf("Change returned %+v and error %v, want an account that is not pending", after, err)
		}
	}
	want := []string{a.ID + " suspended@3", a.ID + " suspended@3", a.ID + " active@4"}
	if d := cmp.Diff(want, b.settled); d != "" {
		t.Errorf("states sent to the holders (-want +got):\n%s", d)
	}
	b.down = true
	if _, err := change(account.Change{Suspended: &yes}); apierr.CodeOf(err) != apierr.Unavailable {
		t.Errorf("with a holder unreachable, suspending returned %v, want UNAVAILABLE", err)
	}
	if got := b.store.accounts[a.ID]; !got.Suspended || !got.Pending {
		t.Errorf("stored account is %+v, want it suspended and pending", got)
	}
}

func TestARepeatedRequestFindsTheKeyThatItMade(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := b.account(t)
	n := ask(t, a, nil)
	first, err := b.CreateKey(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(time.Minute)
	second, err := b.CreateKey(t.Context(), n)
	if d := cmp.Diff(first, second); err != nil || d != "" {
		t.Errorf("the repeated create returned error %v and a different key (-first +second):\n%s", err, d)
	}

	old := b.key(t, a, nil)
	n = ask(t, a, nil)
	first, err = b.Roll(t.Context(), old.ID, 0, n)
	if err != nil {
		t.Fatal(err)
	}
	second, err = b.Roll(t.Context(), old.ID, 0, n)
	if d := cmp.Diff(first, second); err != nil || d != "" {
		t.Errorf("the repeated roll returned error %v and a different key (-first +second):\n%s", err, d)
	}
}

func TestAKeyGivesNoMoreThanItHas(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := b.account(t)
	narrow := b.key(t, a, func(n *account.NewKey) { n.Scopes = identity.KeysWrite | identity.LinksRead })
	wide := b.key(t, a, nil)
	brief := b.key(t, a, func(n *account.NewKey) { n.ExpiresAt = b.now.Add(time.Hour) })
	by := func(k account.Key, more ...func(*account.NewKey)) account.NewKey {
		return ask(t, a, func(n *account.NewKey) {
			n.By = principal(k)
			for _, edit := range more {
				edit(n)
			}
		})
	}
	if _, err := b.CreateKey(t.Context(), by(narrow)); apierr.CodeOf(err) != apierr.InsufficientScope {
		t.Errorf("creating a key with more scopes returned %v, want %s", err, apierr.InsufficientScope)
	}
	if _, err := b.Roll(t.Context(), wide.ID, 0, by(narrow)); apierr.CodeOf(err) != apierr.InsufficientScope {
		t.Errorf("rolling a key with more scopes returned %v, want %s", err, apierr.InsufficientScope)
	}
	if _, err := b.CreateKey(t.Context(), by(brief, func(n *account.NewKey) { n.ExpiresAt = b.now.Add(2 * time.Hour) })); apierr.CodeOf(err) != apierr.ValidationError {
		t.Errorf("creating a key with a later expiry returned %v, want %s", err, apierr.ValidationError)
	}
	k, err := b.CreateKey(t.Context(), by(brief))
	if err != nil || !k.ExpiresAt.Equal(brief.ExpiresAt) {
		t.Errorf("creating a key without an expiry returned error %v and the expiry %v, want %v", err, k.ExpiresAt, brief.ExpiresAt)
	}
}

func TestRollEndsTheOldKeyByItsOwnEndAtTheLatest(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := b.account(t)
	end := b.now.Add(time.Minute)
	old := b.key(t, a, func(n *account.NewKey) { n.ExpiresAt = end; n.Scopes = identity.LinksRead })
	made, err := b.Roll(t.Context(), old.ID, time.Hour, ask(t, a, nil))
	if err != nil {
		t.Fatal(err)
	}
	if !made.ExpiresAt.Equal(end) || made.Scopes != old.Scopes || made.Name != old.Name {
		t.Errorf("got successor %+v, want the name, scopes and expiry of %+v", made, old)
	}
	if got := b.store.keys[old.Hash]; !got.ExpiresAt.Equal(end) || !got.RevokedAt.IsZero() {
		t.Errorf("the old key is %+v, want its own expiry and no revocation", got)
	}
	b.now = end
	if _, err := b.Roll(t.Context(), old.ID, 0, ask(t, a, nil)); !errors.Is(err, account.ErrNoKey) {
		t.Errorf("rolling an expired key returned %v, want %v", err, account.ErrNoKey)
	}
}

func TestForeignAndAbsentKeysAreTheSame(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	mine, other := b.account(t), b.account(t)
	foreign := b.key(t, other, nil)
	for _, id := range []string{foreign.ID, "key_none"} {
		if err := b.Revoke(t.Context(), mine.ID, id); err != account.ErrNoKey { //nolint:errorlint // must be exactly this value so that both responses are identical
			t.Errorf("Revoke(%s) = %v, want ErrNoKey", id, err)
		}
		if _, err := b.Key(t.Context(), mine.ID, id); err != account.ErrNoKey { //nolint:errorlint // must be exactly this value so that both responses are identical
			t.Errorf("Key(%s) = %v, want ErrNoKey", id, err)
		}
	}
	if !b.store.keys[foreign.Hash].RevokedAt.IsZero() {
		t.Error("Revoke revoked another account's key, want no change")
	}
}

func TestExpiredAndRevokedKeysMakeRoom(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := b.account(t)
	for range account.MaxActiveKeys {
		b.key(t, a, func(n *account.NewKey) { n.ExpiresAt = b.now.Add(time.Hour) })
	}
	if _, err := b.CreateKey(t.Context(), ask(t, a, nil)); apierr.CodeOf(err) != apierr.QuotaExceeded {
		t.Errorf("creating key 101 returned %v, want %s", err, apierr.QuotaExceeded)
	}
	b.now = b.now.Add(time.Hour)
	b.key(t, a, nil)
}
