// Package store keeps accounts, keys and people in Firestore: accounts/{id},
// keys/{SHA-256 of the key}, members/{id} and, likewise named by hash and without
// the secret, sessions, oneTimeLinks and deviceRequests.
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

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
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
	Untold    bool      `firestore:"untold,omitempty"`
	Version   int64     `firestore:"version"`
	CreatedAt time.Time `firestore:"createdAt"`
	// What follows is absent in most records, and in all from before it existed.
	Deleting bool             `firestore:"deleting,omitempty"`
	Limits   map[string]int64 `firestore:"limits,omitempty"`
}

type keyDoc struct {
	ID         string     `firestore:"id"`
	Account    string     `firestore:"accountId"`
	Name       string     `firestore:"name"`
	Prefix     string     `firestore:"prefix"`
	Last4      string     `firestore:"last4"`
	Scopes     []string   `firestore:"scopes"`
	MadeBy     string     `firestore:"madeBy,omitempty"` // the member behind the key
	CreatedAt  time.Time  `firestore:"createdAt"`
	LastUsedAt *time.Time `firestore:"lastUsedAt"`
	ExpiresAt  *int64     `firestore:"expiresAt"` // ms: callers may name dates that no timestamp can hold
	RevokedAt  *time.Time `firestore:"revokedAt"`
	InUse      bool       `firestore:"inUse"` // false once revoked, or seen expired: what the limit of keys counts
}

// Store is an account.Store on Firestore.
type Store struct {
	db     *firestoredb.DB
	events *outbox.Outbox
	shown  func(record any) any
	now    func() time.Time
	// owners remembers whose a key is, which never changes, so that verifying a
	// known key is one round trip for all that it depends on.
	owners *otter.Cache[string, owner]
}

// owner is what a key's record points to.
type owner struct {
	account string
	member  string // "" for a key that no member made
	session bool
}

var _ account.Store = (*Store)(nil)

// New makes a store on db. Events of changes go to outbox, with the record as
// shown gives it. A nil now is the system's clock.
func New(db *firestoredb.DB, outbox *outbox.Outbox, shown func(record any) any, now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{db: db, events: outbox, shown: shown, now: now, owners: otter.Must(&otter.Options[string, owner]{MaximumSize: 100_000})}
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

// Untold lists accounts whose suspension has not reached every holder.
func (s *Store) Untold(ctx context.Context, limit int) (out []account.Account, err error) {
	err = s.db.Do(ctx, "list untold accounts", func(ctx context.Context) error {
		snaps, err := s.db.Collection(accounts).Where("untold", "==", true).Limit(limit).Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		out = make([]account.Account, 0, len(snaps))
		for _, snap := range snaps {
			a, err := toAccount(snap)
			if err != nil {
				return err
			}
			out = append(out, a)
		}
		return nil
	})
	return out, err
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
	// Two queries: every key in use must show, the others only up to a bound. A key that both
	// find appears once, by its hash.
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

// Credential finds a key or session by hash, with its account and its member, as
// all were at one instant: the documents of one batch read are a consistent
// snapshot. account.ErrNoKey means that there is no such key.
func (s *Store) Credential(ctx context.Context, hash string) (c account.Credential, err error) {
	of, known := s.owners.GetIfPresent(hash)
	if !known {
		if of, err = s.ownerOf(ctx, hash); err != nil {
			return c, err
		}
		// A hash that is unknown is not remembered here: the key may be created a moment later, and
		// callers remember misses for some seconds already.
		s.owners.Set(hash, of)
	}
	err = s.db.Do(ctx, "get key and account", func(ctx context.Context) error {
		ref, err := s.account(of.account)
		if err != nil {
			return err
		}
		refs := []*firestore.DocumentRef{s.key(hash), ref}
		if of.session {
			refs[0] = s.session(hash)
		}
		if of.member != "" {
			refs = append(refs, s.member(of.member))
		}
		snaps, err := s.db.GetAll(ctx, refs)
		if err != nil {
			return err
		}
		if !snaps[0].Exists() || !snaps[1].Exists() {
			// The next call looks among keys and sessions again.
			s.owners.Invalidate(hash)
			return account.ErrNoKey
		}
		c, err = credential(snaps, of)
		return err
	})
	return c, err
}

// ownerOf looks for the hash among keys and sessions in one round trip: the hash
// does not tell which it is.
func (s *Store) ownerOf(ctx context.Context, hash string) (of owner, err error) {
	err = s.db.Do(ctx, "get key", func(ctx context.Context) error {
		snaps, err := s.db.GetAll(ctx, []*firestore.DocumentRef{s.key(hash), s.session(hash)})
		if err != nil {
			return err
		}
		switch {
		case snaps[0].Exists():
			k, err := toKey(snaps[0])
			of = owner{account: k.AccountID, member: k.MadeBy}
			return err
		case snaps[1].Exists():
			x, err := toSession(snaps[1])
			of = owner{account: x.AccountID, member: x.MemberID, session: true}
			return err
		}
		return account.ErrNoKey
	})
	return of, err
}

func credential(snaps []*firestore.DocumentSnapshot, of owner) (c account.Credential, err error) {
	if c.Account, err = toAccount(snaps[1]); err != nil {
		return c, err
	}
	if of.member != "" {
		// A member who is gone keeps the id and has no role, which gives no scopes. Without the id,
		// Scopes would fall back to the key's own.
		c.Member = account.Holder{ID: of.member}
		if snaps[2].Exists() {
			m, err := toMember(snaps[2])
			if err != nil {
				return c, err
			}
			c.Member = account.Holder{ID: m.ID, Name: m.Name, Role: m.Role}
		}
	}
	if !of.session {
		c.Key, err = toKey(snaps[0])
		if err == nil && of.member != "" && c.Member.Role == "" && c.Key.RevokedAt.IsZero() {
			c.Key.RevokedAt = c.Key.CreatedAt // whoever made it was removed
		}
		return c, err
	}
	x, err := toSession(snaps[0])
	if err != nil {
		return c, err
	}
	c.Session = true
	c.Key = account.Key{
		ID: x.ID, AccountID: x.AccountID, Hash: x.Hash, MadeBy: x.MemberID, Scopes: c.Member.Role.Scopes(),
		CreatedAt: x.CreatedAt, LastUsedAt: x.SeenAt, ExpiresAt: x.ExpiresAt(), RevokedAt: x.EndedAt,
	}
	if c.Member.Role == "" && c.Key.RevokedAt.IsZero() {
		c.Key.RevokedAt = x.CreatedAt
	}
	return c, nil
}

// Touch notes when a key was last used; account.ErrNoKey if it is gone.
func (s *Store) Touch(ctx context.Context, hash string, at time.Time) error {
	return s.db.Do(ctx, "note key use", func(ctx context.Context) error {
		// Update fails where there is no document. Set would bring back a key that was just erased.
		_, err := s.key(hash).Update(ctx, []firestore.Update{{Path: "lastUsedAt", Value: at}})
		return orNone(err, account.ErrNoKey)
	})
}

// Atomically runs fn as a Firestore transaction.
func (s *Store) Atomically(ctx context.Context, what string, fn func(account.Tx) error) error {
	return s.db.Tx(ctx, what, func(ctx context.Context, tx *firestore.Transaction) error {
		return fn(&transaction{s: s, ctx: ctx, tx: tx})
	})
}

type transaction struct {
	s       *Store
	ctx     context.Context // the transaction's own, which events take their actor from
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
	// The whole document is replaced, so callers have read it in this transaction.
	return t.tx.Set(ref, fromAccount(a))
}

func (t *transaction) AddKey(k account.Key) error {
	// Retired with a write that happens anyway. Left as they are, expired keys would count in
	// every later read of the keys in use.
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

// Note writes an event in the transaction.
func (t *transaction) Note(accountID string, what events.Type, object string, record any) error {
	return t.s.events.Put(t.ctx, t.tx, events.Event{AccountID: accountID, Type: what, Object: object, Data: t.s.shown(record)})
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
	return account.Account{ID: snap.Ref.ID, Name: d.Name, Plan: plan, Suspended: d.Suspended, Version: d.Version, CreatedAt: d.CreatedAt,
		Deleting: d.Deleting, Untold: d.Untold,
		Limits: account.Limits{Links: d.Limits["links"], Videos: d.Limits["videos"], Domains: d.Limits["domains"], StoredBytes: d.Limits["storedBytes"]}}, nil
}

func fromAccount(a account.Account) accountDoc {
	d := accountDoc{Name: a.Name, Plan: a.Plan.String(), Suspended: a.Suspended, Version: a.Version, CreatedAt: a.CreatedAt, Deleting: a.Deleting, Untold: a.Untold}
	for name, n := range map[string]int64{"links": a.Limits.Links, "videos": a.Limits.Videos, "domains": a.Limits.Domains, "storedBytes": a.Limits.StoredBytes} {
		if n > 0 {
			if d.Limits == nil {
				d.Limits = map[string]int64{}
			}
			d.Limits[name] = n
		}
	}
	return d
}

func toKey(snap *firestore.DocumentSnapshot) (account.Key, error) {
	var d keyDoc
	if err := snap.DataTo(&d); err != nil {
		return account.Key{}, fmt.Errorf("read key: %w", err)
	}
	k := account.Key{
		ID: d.ID, AccountID: d.Account, Hash: snap.Ref.ID, Name: d.Name, Prefix: d.Prefix, Last4: d.Last4, MadeBy: d.MadeBy,
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
	// An expired key stays in use here until AddKey retires it; readers compare times anyway.
	d := keyDoc{
		ID: k.ID, Account: k.AccountID, Name: k.Name, Prefix: k.Prefix, Last4: k.Last4, MadeBy: k.MadeBy, CreatedAt: k.CreatedAt,
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
