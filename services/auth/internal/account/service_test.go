package account_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// memory is a Store in memory. Its transactions see and write it directly: the
// tests here are about rules, those of the store about atomicity.
type memory struct {
	accounts map[string]account.Account
	keys     map[string]account.Key // by hash
	roles    map[string]identity.Role
	noted    []string
	fail     error // of the next commit
}

func (m *memory) Account(_ context.Context, id string) (account.Account, error) {
	return tx{m}.Account(id)
}

func (m *memory) Key(_ context.Context, id string) (account.Key, error) { return tx{m}.Key(id) }

func (m *memory) Keys(_ context.Context, accountID string) ([]account.Key, error) {
	return tx{m}.InUse(accountID, time.Time{})
}

func (m *memory) Untold(context.Context, int) (out []account.Account, err error) {
	for _, a := range m.accounts {
		if a.Untold {
			out = append(out, a)
		}
	}
	return out, nil
}

func (m *memory) Atomically(_ context.Context, _ string, fn func(account.Tx) error) error {
	if m.fail != nil {
		return m.fail
	}
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

func (t tx) Key(id string) (account.Key, error) {
	for _, k := range t.keys {
		if k.ID == id {
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

func (t tx) Role(_, memberID string) (identity.Role, error) { return t.roles[memberID], nil }

func (t tx) Note(_ string, what events.Type, object string, _ any) error {
	t.noted = append(t.noted, string(what)+" "+object)
	return nil
}

func (t tx) AddAccount(a account.Account) error { t.accounts[a.ID] = a; return nil }
func (t tx) PutAccount(a account.Account) error { t.accounts[a.ID] = a; return nil }
func (t tx) PutKey(k account.Key) error         { t.keys[k.Hash] = k; return nil }

func (t tx) AddKey(k account.Key) error {
	if _, ok := t.keys[k.Hash]; ok {
		return errors.New("exists")
	}
	t.keys[k.Hash] = k
	return nil
}

// told notes who was notified of what.
type told []string

func (n *told) InvalidateAccount(_ context.Context, account string, version int64) {
	*n = append(*n, fmt.Sprintf("%s@%d", account, version))
}

type world struct {
	*account.Service
	store *memory
	told  *told
	now   time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	b := &world{store: &memory{accounts: map[string]account.Account{}, keys: map[string]account.Key{}, roles: map[string]identity.Role{}}, told: &told{}, now: time.UnixMilli(1_800_000_000_000)}
	b.Service = account.NewService(b.store, b.told, func() time.Time { return b.now }, slog.New(slog.NewTextHandler(io.Discard, nil)))
	return b
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
	secret, err := identity.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	n := account.NewKey{ID: identity.NewID("key"), Key: secret, AccountID: a.ID, Name: "k", Scopes: identity.AllScopes()}
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
		func() error { return b.Revoke(t.Context(), "", k.ID) }, // again: told again, in case the first try died
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
			t.Fatalf("act %d: %v", i, err)
		}
	}
	want := told{a.ID + "@2", a.ID + "@2", a.ID + "@3", a.ID + "@4", a.ID + "@4", a.ID + "@5"}
	if d := cmp.Diff(want, *b.told); d != "" {
		t.Errorf("told (-want +got):\n%s", d)
	}
}

// holders notes what it was told; down makes it fail.
type holders struct {
	told []string
	down bool
}

func (h *holders) Suspend(_ context.Context, id string, suspended bool, version int64) error {
	if h.down {
		return errors.New("unreachable")
	}
	h.told = append(h.told, fmt.Sprintf("%s %v@%d", id, suspended, version))
	return nil
}

func TestASuspensionReachesTheHoldersBeforeItIsAnswered(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	h := &holders{}
	b.WithHolders(h)
	a := b.account(t)
	yes, no, name := true, false, "Renamed"
	change := func(c account.Change) error { _, err := b.Change(t.Context(), a.ID, c); return err }
	for _, c := range []account.Change{{Name: &name}, {Suspended: &yes}, {Suspended: &yes}, {Suspended: &no}} {
		if err := change(c); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{a.ID + " true@3", a.ID + " true@3", a.ID + " false@4"}
	if d := cmp.Diff(want, h.told); d != "" {
		t.Errorf("holders were told (-want +got):\n%s", d)
	}
	if b.store.accounts[a.ID].Untold {
		t.Error("told, and noted as untold")
	}

	h.told, h.down = nil, true
	if err := change(account.Change{Suspended: &yes}); apierr.CodeOf(err) != apierr.Unavailable {
		t.Errorf("with a holder down: %v, want UNAVAILABLE", err)
	}
	if got := b.store.accounts[a.ID]; !got.Suspended || !got.Untold {
		t.Errorf("the decision is %+v, want it kept and noted as untold", got)
	}
	if err := b.RetellDue(t.Context()); err == nil {
		t.Error("telling failed without an error")
	}
	h.down = false
	if err := b.RetellDue(t.Context()); err != nil || len(h.told) != 1 || b.store.accounts[a.ID].Untold {
		t.Errorf("after the outage: %v, told %v, %+v", err, h.told, b.store.accounts[a.ID])
	}
	if err := b.RetellDue(t.Context()); err != nil || len(h.told) != 1 {
		t.Errorf("told again: %v %v", err, h.told)
	}
}

func TestNobodyIsToldOfWhatDidNotCommit(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := b.account(t)
	k := b.key(t, a, nil)
	b.store.fail = errors.New("aborted")
	if err := b.Revoke(t.Context(), a.ID, k.ID); err == nil {
		t.Error("no error")
	}
	if len(*b.told) > 0 {
		t.Errorf("told %v", *b.told)
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
		t.Errorf("second try: %v\n%s", err, d)
	}

	old := b.key(t, a, nil)
	n = ask(t, a, nil)
	first, err = b.Roll(t.Context(), old.ID, 0, n)
	if err != nil {
		t.Fatal(err)
	}
	second, err = b.Roll(t.Context(), old.ID, 0, n)
	if d := cmp.Diff(first, second); err != nil || d != "" {
		t.Errorf("second roll: %v\n%s", err, d)
	}
}

func TestAKeyGivesNoMoreThanItHas(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := b.account(t)
	narrow := b.key(t, a, func(n *account.NewKey) { n.Scopes = identity.ScopeSet{identity.KeysWrite, identity.LinksRead} })
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
		t.Errorf("more scopes: %v", err)
	}
	if _, err := b.Roll(t.Context(), wide.ID, 0, by(narrow)); apierr.CodeOf(err) != apierr.InsufficientScope {
		t.Errorf("rolling a wider key: %v", err)
	}
	if _, err := b.CreateKey(t.Context(), by(brief, func(n *account.NewKey) { n.ExpiresAt = b.now.Add(2 * time.Hour) })); apierr.CodeOf(err) != apierr.ValidationError {
		t.Errorf("a later end: %v", err)
	}
	k, err := b.CreateKey(t.Context(), by(brief))
	if err != nil || !k.ExpiresAt.Equal(brief.ExpiresAt) {
		t.Errorf("no end: %v ends %v, want %v", err, k.ExpiresAt, brief.ExpiresAt)
	}
}

func TestRollEndsTheOldKeyByItsOwnEndAtTheLatest(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := b.account(t)
	end := b.now.Add(time.Minute)
	old := b.key(t, a, func(n *account.NewKey) { n.ExpiresAt = end; n.Scopes = identity.ScopeSet{identity.LinksRead} })
	made, err := b.Roll(t.Context(), old.ID, time.Hour, ask(t, a, nil))
	if err != nil {
		t.Fatal(err)
	}
	if !made.ExpiresAt.Equal(end) || !slices.Equal(made.Scopes, old.Scopes) || made.Name != old.Name {
		t.Errorf("successor %+v of %+v", made, old)
	}
	if got := b.store.keys[old.Hash]; !got.ExpiresAt.Equal(end) || !got.RevokedAt.IsZero() {
		t.Errorf("old key %+v", got)
	}
	b.now = end
	if _, err := b.Roll(t.Context(), old.ID, 0, ask(t, a, nil)); !errors.Is(err, account.ErrNoKey) {
		t.Errorf("rolling an expired key: %v", err)
	}
}

func TestForeignAndAbsentKeysAreTheSame(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	mine, other := b.account(t), b.account(t)
	foreign := b.key(t, other, nil)
	for _, id := range []string{foreign.ID, "key_none"} {
		if err := b.Revoke(t.Context(), mine.ID, id); err != account.ErrNoKey { //nolint:errorlint // the very value: equal in every byte
			t.Errorf("Revoke(%s): %v", id, err)
		}
		if _, err := b.Key(t.Context(), mine.ID, id); err != account.ErrNoKey { //nolint:errorlint // the very value: equal in every byte
			t.Errorf("Key(%s): %v", id, err)
		}
	}
	if !b.store.keys[foreign.Hash].RevokedAt.IsZero() {
		t.Error("a foreign key was revoked")
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
		t.Errorf("key 101: %v", err)
	}
	b.now = b.now.Add(time.Hour)
	b.key(t, a, nil)
}
