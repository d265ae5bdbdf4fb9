package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
	"github.com/linkreel/linkreel/services/auth/internal/store"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
)

type world struct {
	*store.Store
	cloud *cloudtest.Cloud
	db    *firestoredb.DB
	told  *told
}

func newWorld(t testing.TB) world {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{auth.Indexes(), outbox.Indexes}, Complete: true, Rare: []string{"operatorTakedowns.at"}})
	db := firestoredb.Use(cloud.Client(t), 10*time.Second)
	n := &told{}
	records := record.Open(db, record.Options{Outbox: outbox.New(db, nil, nil)})
	records.TellAuthority(n.InvalidateAccount)
	return world{store.New(records, func(any) any { return struct{}{} }), cloud, db, n}
}

// put writes an account and the given keys, and increments the account's version.
func (b world) put(t testing.TB, a account.Account, keys ...account.Key) {
	t.Helper()
	b.do(t, func(tx account.Tx) error {
		now, err := tx.Account(a.ID)
		if err != nil {
			return err
		}
		a.Version = now.Version
		for _, k := range keys {
			tx.Put(k, events.Quiet)
		}
		tx.PutAccount(&a, events.Quiet)
		return nil
	})
}

func (b world) do(t testing.TB, fn func(tx account.Tx) error) {
	t.Helper()
	if err := b.Atomically(t.Context(), "test", fn); err != nil {
		t.Fatal(err)
	}
}

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func newAccount(t testing.TB, b world) account.Account {
	t.Helper()
	a := account.Account{ID: identity.NewID("acc"), Name: "Ünï", Plan: identity.Business, CreatedAt: start, Version: 1}
	b.do(t, func(tx account.Tx) error { tx.AddAccount(a); return nil })
	return a
}

func newKey(t testing.TB, b world, a account.Account, at time.Time) account.Key {
	t.Helper()
	secret := identity.NewKey(rand.Reader)
	k := account.Key{
		ID: identity.NewID("key"), AccountID: a.ID, Hash: secret.Hash(), Name: "k", Prefix: secret.Prefix(), Last4: secret.Last4(),
		Scopes: identity.LinksRead, CreatedAt: at,
	}
	b.do(t, func(tx account.Tx) error { tx.Add(k, events.Quiet); return nil })
	return k
}

func TestWhatIsStoredIsRead(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := newAccount(t, b)
	k := newKey(t, b, a, start)
	k.ExpiresAt = start.Add(time.Hour)
	b.do(t, func(tx account.Tx) error { tx.Put(k, events.Quiet); return nil })
	if err := b.Touch(t.Context(), k.Hash, false, start.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	k.LastUsedAt = start.Add(time.Minute)
	gotA, err := b.Account(t.Context(), a.ID)
	if d := cmp.Diff(a, gotA); err != nil || d != "" {
		t.Errorf("Account returned error %v and a different account (-want +got):\n%s", err, d)
	}
	gotK, err := b.Key(t.Context(), a.ID, k.ID)
	if d := cmp.Diff(k, gotK); err != nil || d != "" {
		t.Errorf("Key returned error %v and a different key (-want +got):\n%s", err, d)
	}
	for range 2 { // the second call finds the owner in the cache
		c, err := b.Credential(t.Context(), k.Hash)
		gotK, gotA = c.Key, c.Account
		if d := cmp.Diff(k, gotK) + cmp.Diff(a, gotA); err != nil || d != "" {
			t.Errorf("Credential returned error %v and different records (-want +got):\n%s", err, d)
		}
	}
}

// During an upgrade, the older release must be able to read the records that the newer release
// writes.
func TestAScopeOfANewerReleaseIsNeitherHandedOnNorAReasonToRevoke(t *testing.T) {
	t.Parallel()
	const newer = identity.ScopeSet(1 << 31)
	b := newWorld(t)
	a := newAccount(t, b)
	maker := member.Member{ID: "mem_1", AccountID: a.ID, PersonID: "per_1", Name: "Ada", Role: identity.Owner, CreatedAt: start}
	made := account.Key{
		ID: "key_strong", AccountID: a.ID, Hash: "strong", Scopes: identity.LinksRead | newer, MadeBy: maker.ID, CreatedAt: start,
	}
	roller := account.Key{
		ID: "key_plain", AccountID: a.ID, Hash: "plain", Scopes: identity.LinksRead | identity.KeysWrite, CreatedAt: start,
	}
	b.do(t, func(tx account.Tx) error {
		tx.Put(maker, events.Quiet)
		tx.Add(made, events.Quiet)
		tx.Add(roller, events.Quiet)
		return nil
	})
	_, err := account.NewService(b, nil, nil).Roll(t.Context(), made.ID, time.Hour, account.NewKey{
		ID: "key_rolled", Key: identity.NewKey(rand.Reader), AccountID: a.ID,
		By: &identity.Principal{AccountID: a.ID, KeyID: roller.ID, Scopes: roller.Scopes},
	})
	if err != nil {
		t.Fatal(err)
	}
	found, err := b.db.Collection("keys").Where("id", "==", "key_rolled").Documents(t.Context()).GetAll()
	if err != nil || len(found) != 1 {
		t.Fatal(len(found), err)
	}
	if got := found[0].Data()["scopes"]; got != int64(identity.LinksRead) {
		t.Errorf("a key without the newer scope created a key with scopes %v, want only links:read", got)
	}
	name := "Ada L."
	people := member.NewService(b, member.Provider{}, nil)
	if _, err := people.Change(t.Context(), nil, a.ID, maker.ID, member.Change{Name: &name}); err != nil {
		t.Fatal(err)
	}
	if k, err := b.Key(t.Context(), a.ID, made.ID); err != nil || !k.RevokedAt.IsZero() {
		t.Errorf("after its creator was renamed, the key is %+v (error %v), want it not revoked", k, err)
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	for _, id := range []string{"", "acc_none", "acc_a/b/c", "..", "__x__", "key_1", "acc_" + string(make([]byte, 2000))} {
		if _, err := b.Account(t.Context(), id); !errors.Is(err, account.ErrNoAccount) {
			t.Errorf("Account(%.20q) = %v, want %v", id, err, account.ErrNoAccount)
		}
		if _, err := b.Key(t.Context(), "", id); !errors.Is(err, account.ErrNoKey) {
			t.Errorf("Key(%.20q) = %v, want %v", id, err, account.ErrNoKey)
		}
	}
	if _, err := b.Credential(t.Context(), fmt.Sprintf("%064d", 1)); !errors.Is(err, account.ErrNoKey) {
		t.Errorf("Credential for an unknown hash = %v, want %v", err, account.ErrNoKey)
	}
	// Another account's records are not found either.
	k := newKey(t, b, newAccount(t, b), start)
	if got, err := b.Key(t.Context(), "acc_other", k.ID); !errors.Is(err, account.ErrNoKey) || got.ID != "" {
		t.Errorf("Key for another account returned %+v and error %v, want %v", got, err, account.ErrNoKey)
	}
	m := member.Member{ID: "mem_1", AccountID: k.AccountID, Role: identity.Viewer}
	if err := b.People(t.Context(), "test", func(tx member.Tx) error { tx.Add(m, events.Quiet); return nil }); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Look(t.Context()).Member("acc_other", m.ID); !errors.Is(err, member.ErrNoMember) || got.ID != "" {
		t.Errorf("Member for another account returned %+v and error %v, want %v", got, err, member.ErrNoMember)
	}
	if got, err := b.Look(t.Context()).Member(k.AccountID, m.ID); err != nil || got.ID != m.ID {
		t.Errorf("Member returned %+v and error %v, want %s", got, err, m.ID)
	}
}

func TestTouchingARemovedKeyMakesNoDocument(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	for _, session := range []bool{false, true} {
		if err := b.Touch(t.Context(), fmt.Sprintf("%064d", 1), session, start); !errors.Is(err, account.ErrNoKey) {
			t.Errorf("Touch for an unknown record (session: %v) returned %v, want %v", session, err, account.ErrNoKey)
		}
	}
}

func TestKeysListsThoseInUseAndTheNewest200(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a, other := newAccount(t, b), newAccount(t, b)
	newKey(t, b, other, start)
	oldest := newKey(t, b, a, start)
	var revoked []account.Key
	for i := range 210 {
		k := newKey(t, b, a, start.Add(time.Duration(i+1)*time.Second))
		k.RevokedAt = k.CreatedAt
		b.do(t, func(tx account.Tx) error { tx.Put(k, events.Quiet); return nil })
		revoked = append(revoked, k)
	}
	got, err := b.Keys(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 201 || got[0].ID != revoked[209].ID || got[200].ID != oldest.ID {
		t.Errorf("Keys returned %d keys, newest %s, oldest %s; want the 200 newest keys and the oldest key, which is in use", len(got), got[0].ID, got[len(got)-1].ID)
	}
}

func TestInUseRetiresExpiredKeysWithTheNextOne(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := newAccount(t, b)
	for range 5 {
		k := newKey(t, b, a, start)
		k.ExpiresAt = start.Add(time.Hour)
		b.do(t, func(tx account.Tx) error { tx.Put(k, events.Quiet); return nil })
	}
	live := newKey(t, b, a, start)
	later := start.Add(2 * time.Hour)
	added := live
	added.ID, added.Hash = identity.NewID("key"), fmt.Sprintf("%064d", 7)
	b.do(t, func(tx account.Tx) error {
		inUse, err := tx.InUse(a.ID, later)
		if err != nil {
			return err
		}
		if len(inUse) != 1 || inUse[0].ID != live.ID {
			t.Errorf("InUse returned %+v, want only the active key", inUse)
		}
		tx.Add(added, events.Quiet)
		return nil
	})
	snaps, err := b.db.Collection("keys").Where("inUse", "==", true).Documents(t.Context()).GetAll()
	if err != nil || len(snaps) != 2 {
		t.Errorf("got %d documents marked as in use (error %v), want 2", len(snaps), err)
	}
}

func TestUsageCountsWhatTheAccountOwns(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := newAccount(t, b)
	for path, owner := range map[string]string{"links/1": a.ID, "links/2": a.ID, "links/3": "acc_other", "videos/1": a.ID, "videos/2": a.ID, "videos/3": "acc_other"} {
		if _, err := b.db.Doc(path).Create(t.Context(), map[string]any{"accountId": owner, "bytes": 2_000_000_000}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.Usage(t.Context(), a.ID)
	if want := (account.Usage{Links: 2, Videos: 2, StoredBytes: 4_000_000_000}); err != nil || got != want {
		t.Errorf("Usage = %+v, %v; want %+v", got, err, want)
	}
}

// If a record combined an old key with a new version, replicas would never recognise it as
// stale.
func TestACredentialIsFromOneInstant(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := newAccount(t, b)
	k := newKey(t, b, a, start)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				c, err := b.Credential(t.Context(), k.Hash)
				gotK, gotA := c.Key, c.Account
				if err != nil {
					t.Errorf("Credential returned %v, want nil", err)
					return
				}
				if got := gotK.ExpiresAt.UnixMilli(); got != gotA.Version && gotA.Version > 1 {
					t.Errorf("Credential returned a key from version %d with an account of version %d, want equal versions", got, gotA.Version)
					return
				}
			}
		})
	}
	for v := int64(2); v < 200; v++ {
		k.ExpiresAt = time.UnixMilli(v)
		b.put(t, a, k)
	}
	stop()
	wg.Wait()
}

func TestAKnownKeyIsVerifiedInOneRoundTrip(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := newAccount(t, b)
	k := newKey(t, b, a, start)
	for name, look := range map[string]func() (account.Credential, error){
		"Credential":     func() (account.Credential, error) { return b.Credential(t.Context(), k.Hash) },
		"CredentialByID": func() (account.Credential, error) { return b.CredentialByID(t.Context(), a.ID, k.ID) },
	} {
		if _, err := look(); err != nil {
			t.Fatal(err)
		}
		b.cloud.Firestore.ResetStats()
		if c, err := look(); err != nil || c.Key.ID != k.ID {
			t.Fatalf("%s returned the key %q (error %v), want %q", name, c.Key.ID, err, k.ID)
		}
		if s := fmt.Sprintf("%+v", b.cloud.Firestore.Stats()); !cmp.Equal(b.cloud.Firestore.Stats().Calls, map[string]int64{"BatchGetDocuments": 1}) {
			t.Errorf("%s for a known key made calls %s, want one batch read", name, s)
		}
	}
	if _, err := b.CredentialByID(t.Context(), newAccount(t, b).ID, k.ID); !errors.Is(err, account.ErrNoKey) {
		t.Errorf("CredentialByID with another account returned %v, want %v", err, account.ErrNoKey)
	}
}

func TestEndingAKeyWritesItsEndAndAVersionAlone(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	a := newAccount(t, b)
	k := newKey(t, b, a, start)
	ofAccount, ofKey := b.db.Collection("accounts").Doc(a.ID), b.db.Collection("keys").Doc(k.Hash)
	for _, ref := range []firestoredb.Ref{ofAccount, ofKey} {
		if _, err := ref.Update(t.Context(), []firestore.Update{{Path: "other", Value: "kept"}}); err != nil {
			t.Fatal(err)
		}
	}
	k.RevokedAt = start.Add(time.Minute)
	b.cloud.Firestore.ResetStats()
	b.do(t, func(tx account.Tx) error { tx.Put(k, events.Quiet); return tx.Authority(a.ID) })
	calls := b.cloud.Firestore.Stats().Calls
	if want := map[string]int64{"BeginTransaction": 1, "BatchGetDocuments": 1, "Commit": 1}; !cmp.Equal(calls, want) {
		t.Errorf("calls to Firestore (-want +got):\n%s", cmp.Diff(want, calls))
	}
	for _, ref := range []firestoredb.Ref{ofAccount, ofKey} {
		snap, err := ref.Get(t.Context())
		if err != nil || snap.Data()["other"] != "kept" {
			t.Errorf("document %s has fields %v (error %v), want field other unchanged", ref.Path, snap.Data(), err)
		}
	}
	got, err := b.Key(t.Context(), a.ID, k.ID)
	if d := cmp.Diff(k, got); err != nil || d != "" {
		t.Errorf("Key after the revocation returned error %v and a different key (-want +got):\n%s", err, d)
	}
	if got, err := b.Account(t.Context(), a.ID); err != nil || got.Version != a.Version+1 {
		t.Errorf("Account after the revocation returned %+v and error %v, want the next version", got, err)
	}
}
