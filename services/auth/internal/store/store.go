// Package store keeps accounts and keys in Firestore: accounts/{id} and
// keys/{SHA-256 of the key}. A key's record is found by hash in one read and
// never holds the key.
//
// lastUsedAt is written by [Store.Touch] alone, outside of any transaction, so
// that a key in use does not contend with its revocation.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/maypok86/otter/v2"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

const (
	accounts = "accounts"
	keys     = "keys"
	// retired is how many keys that are no longer in use a list shows.
	retired = 200
)

type accountDoc struct {
	Name      string    `firestore:"name"`
	Plan      string    `firestore:"plan"`
	Suspended bool      `firestore:"suspended"`
	Version   int64     `firestore:"version"`
	CreatedAt time.Time `firestore:"createdAt"`
}

type keyDoc struct {
	ID         string     `firestore:"id"`
	Account    string     `firestore:"accountId"`
	Name       string     `firestore:"name"`
	Prefix     string     `firestore:"prefix"`
	Last4      string     `firestore:"last4"`
	Scopes     []string   `firestore:"scopes"`
	CreatedAt  time.Time  `firestore:"createdAt"`
	LastUsedAt *time.Time `firestore:"lastUsedAt"`
	ExpiresAt  *int64     `firestore:"expiresAt"` // ms: callers may name dates that no timestamp can hold
	RevokedAt  *time.Time `firestore:"revokedAt"`
	InUse      bool       `firestore:"inUse"` // false once revoked, or seen expired: what the limit of keys counts
}

// Store is an account.Store on Firestore.
type Store struct {
	db *firestoredb.DB
	// owners remembers whose a key is, which never changes, so that verifying a
	// known key is one round trip for key and account together.
	owners *otter.Cache[string, string]
}

var _ account.Store = (*Store)(nil)

// New makes a store on db.
func New(db *firestoredb.DB) *Store {
	return &Store{db: db, owners: otter.Must(&otter.Options[string, string]{MaximumSize: 100_000})}
}

// Account finds an account.
func (s *Store) Account(ctx context.Context, id string) (a account.Account, err error) {
	err = s.db.Do(ctx, "get account", func(ctx context.Context) error {
		ref, err := s.account(id)
		if err != nil {
			return err
		}
		snap, err := ref.Get(ctx)
		if err != nil {
			return noAccount(err)
		}
		a, err = toAccount(snap)
		return err
	})
	return a, err
}

// Key finds a key by its public id.
func (s *Store) Key(ctx context.Context, id string) (k account.Key, err error) {
	err = s.db.Do(ctx, "find key", func(ctx context.Context) error {
		k, err = oneKey(s.byID(id).Documents(ctx))
		return err
	})
	return k, err
}

// Keys lists an account's keys.
func (s *Store) Keys(ctx context.Context, accountID string) ([]account.Key, error) {
	byHash := map[string]account.Key{}
	of := s.db.Collection(keys).Where("accountId", "==", accountID)
	for _, q := range []firestore.Query{of.Where("inUse", "==", true), of.OrderBy("createdAt", firestore.Desc).Limit(retired)} {
		err := s.db.Do(ctx, "list keys", func(ctx context.Context) error {
			found, err := allKeys(q.Documents(ctx))
			for _, k := range found {
				byHash[k.Hash] = k
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	out := make([]account.Key, 0, len(byHash))
	for _, k := range byHash {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b account.Key) int {
		return -cmpOr(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return out, nil
}

func cmpOr(first, second int) int {
	if first != 0 {
		return first
	}
	return second
}

// Credential finds a key by hash, and its account, as both were at one instant:
// the documents of one batch read are a consistent snapshot. account.ErrNoKey
// means that there is no such key.
func (s *Store) Credential(ctx context.Context, hash string) (k account.Key, a account.Account, err error) {
	owner, known := s.owners.GetIfPresent(hash)
	if !known {
		err = s.db.Do(ctx, "get key", func(ctx context.Context) error {
			snap, err := s.key(hash).Get(ctx)
			if err != nil {
				return noKey(err)
			}
			k, err := toKey(snap)
			owner = k.AccountID
			return err
		})
		if err != nil {
			return k, a, err
		}
		s.owners.Set(hash, owner)
	}
	err = s.db.Do(ctx, "get key and account", func(ctx context.Context) error {
		ref, err := s.account(owner)
		if err != nil {
			return err
		}
		snaps, err := s.db.GetAll(ctx, []*firestore.DocumentRef{s.key(hash), ref})
		if err != nil {
			return err
		}
		if !snaps[0].Exists() || !snaps[1].Exists() {
			s.owners.Invalidate(hash)
			return account.ErrNoKey
		}
		if k, err = toKey(snaps[0]); err != nil {
			return err
		}
		a, err = toAccount(snaps[1])
		return err
	})
	return k, a, err
}

// Touch notes when a key was last used.
func (s *Store) Touch(ctx context.Context, hash string, at time.Time) error {
	return s.db.Do(ctx, "note key use", func(ctx context.Context) error {
		_, err := s.key(hash).Update(ctx, []firestore.Update{{Path: "lastUsedAt", Value: at}})
		return err
	})
}

// Atomically runs fn as a Firestore transaction.
func (s *Store) Atomically(ctx context.Context, what string, fn func(account.Tx) error) error {
	return s.db.Tx(ctx, what, func(ctx context.Context, tx *firestore.Transaction) error {
		return fn(&transaction{s: s, tx: tx})
	})
}

type transaction struct {
	s       *Store
	tx      *firestore.Transaction
	expired []account.Key // to be retired with the first write
}

func (t *transaction) Account(id string) (account.Account, error) {
	ref, err := t.s.account(id)
	if err != nil {
		return account.Account{}, err
	}
	snap, err := t.tx.Get(ref)
	if err != nil {
		return account.Account{}, noAccount(err)
	}
	return toAccount(snap)
}

func (t *transaction) Key(id string) (account.Key, error) {
	return oneKey(t.tx.Documents(t.s.byID(id)))
}

func (t *transaction) KeyByHash(hash string) (account.Key, error) {
	snap, err := t.tx.Get(t.s.key(hash))
	if err != nil {
		return account.Key{}, noKey(err)
	}
	return toKey(snap)
}

func (t *transaction) InUse(accountID string, now time.Time) ([]account.Key, error) {
	found, err := allKeys(t.tx.Documents(t.s.db.Collection(keys).Where("accountId", "==", accountID).Where("inUse", "==", true)))
	if err != nil {
		return nil, err
	}
	out := found[:0]
	for _, k := range found {
		if k.Active(now) {
			out = append(out, k)
		} else if len(t.expired) < retired { // a transaction has 500 writes
			t.expired = append(t.expired, k)
		}
	}
	return out, nil
}

func (t *transaction) AddAccount(a account.Account) error {
	ref, err := t.s.account(a.ID)
	if err != nil {
		return err
	}
	return t.tx.Create(ref, fromAccount(a))
}

func (t *transaction) PutAccount(a account.Account) error {
	ref, err := t.s.account(a.ID)
	if err != nil {
		return err
	}
	return t.tx.Set(ref, fromAccount(a))
}

func (t *transaction) AddKey(k account.Key) error {
	for _, old := range t.expired {
		if err := t.tx.Update(t.s.key(old.Hash), []firestore.Update{{Path: "inUse", Value: false}}); err != nil {
			return fmt.Errorf("retire key: %w", err)
		}
	}
	t.expired = nil
	return t.tx.Create(t.s.key(k.Hash), fromKey(k))
}

// PutKey writes what can change, and not lastUsedAt, which Touch owns.
func (t *transaction) PutKey(k account.Key) error {
	d := fromKey(k)
	return t.tx.Update(t.s.key(k.Hash), []firestore.Update{
		{Path: "name", Value: d.Name}, {Path: "scopes", Value: d.Scopes},
		{Path: "expiresAt", Value: d.ExpiresAt}, {Path: "revokedAt", Value: d.RevokedAt}, {Path: "inUse", Value: d.InUse},
	})
}

// account refuses ids that are not ours before they become a document path.
func (s *Store) account(id string) (*firestore.DocumentRef, error) {
	if id == "" || len(id) > 64 || strings.ContainsAny(id, "/") || !strings.HasPrefix(id, "acc_") {
		return nil, account.ErrNoAccount
	}
	return s.db.Collection(accounts).Doc(id), nil
}

func (s *Store) key(hash string) *firestore.DocumentRef { return s.db.Collection(keys).Doc(hash) }

func (s *Store) byID(id string) firestore.Query {
	if len(id) > 64 { // longer than an indexed value may be, at the extreme
		id = ""
	}
	return s.db.Collection(keys).Where("id", "==", id).Limit(1)
}

func noAccount(err error) error {
	if errors.Is(firestoredb.Map(err), firestoredb.ErrNotFound) {
		return account.ErrNoAccount
	}
	return err
}

func noKey(err error) error {
	if errors.Is(firestoredb.Map(err), firestoredb.ErrNotFound) {
		return account.ErrNoKey
	}
	return err
}

func oneKey(it *firestore.DocumentIterator) (account.Key, error) {
	found, err := allKeys(it)
	if err != nil {
		return account.Key{}, err
	}
	if len(found) == 0 {
		return account.Key{}, account.ErrNoKey
	}
	return found[0], nil
}

func allKeys(it *firestore.DocumentIterator) ([]account.Key, error) {
	snaps, err := it.GetAll()
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	out := make([]account.Key, len(snaps))
	for i, snap := range snaps {
		if out[i], err = toKey(snap); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func toAccount(snap *firestore.DocumentSnapshot) (account.Account, error) {
	var d accountDoc
	if err := snap.DataTo(&d); err != nil {
		return account.Account{}, fmt.Errorf("read account %s: %w", snap.Ref.ID, err)
	}
	plan, err := identity.ParsePlan(d.Plan)
	if err != nil {
		return account.Account{}, fmt.Errorf("account %s: %w", snap.Ref.ID, err)
	}
	return account.Account{ID: snap.Ref.ID, Name: d.Name, Plan: plan, Suspended: d.Suspended, Version: d.Version, CreatedAt: d.CreatedAt}, nil
}

func fromAccount(a account.Account) accountDoc {
	return accountDoc{Name: a.Name, Plan: a.Plan.String(), Suspended: a.Suspended, Version: a.Version, CreatedAt: a.CreatedAt}
}

func toKey(snap *firestore.DocumentSnapshot) (account.Key, error) {
	var d keyDoc
	if err := snap.DataTo(&d); err != nil {
		return account.Key{}, fmt.Errorf("read key: %w", err)
	}
	k := account.Key{
		ID: d.ID, AccountID: d.Account, Hash: snap.Ref.ID, Name: d.Name, Prefix: d.Prefix, Last4: d.Last4,
		CreatedAt: d.CreatedAt, LastUsedAt: orZero(d.LastUsedAt), RevokedAt: orZero(d.RevokedAt),
	}
	if d.ExpiresAt != nil {
		k.ExpiresAt = time.UnixMilli(*d.ExpiresAt).UTC()
	}
	for _, s := range d.Scopes {
		// A scope that this version does not know (written by a newer one) gives nothing.
		if scope, err := identity.ParseScope(s); err == nil {
			k.Scopes = append(k.Scopes, scope)
		}
	}
	return k, nil
}

func fromKey(k account.Key) keyDoc {
	d := keyDoc{
		ID: k.ID, Account: k.AccountID, Name: k.Name, Prefix: k.Prefix, Last4: k.Last4, CreatedAt: k.CreatedAt,
		LastUsedAt: orNil(k.LastUsedAt), RevokedAt: orNil(k.RevokedAt), InUse: k.RevokedAt.IsZero(),
	}
	if !k.ExpiresAt.IsZero() {
		ms := k.ExpiresAt.UnixMilli()
		d.ExpiresAt = &ms
	}
	for _, s := range k.Scopes {
		d.Scopes = append(d.Scopes, string(s))
	}
	return d
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
