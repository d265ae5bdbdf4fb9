// Package store keeps accounts, keys and people in Firestore: accounts/{id},
// members/{id}, operatorTakedowns/{id} and, named by a hash and without the secret,
// keys, sessions, oneTimeLinks, identities, passkeys and deviceRequests.
//
// All reads go by [reads], within a change or outside of one. All changes go by
// [transaction], which writes the record, its event and its line in the log together,
// raises the account's version where authority changes, and tells the replicas.
//
// lastUsedAt is written by [Store.Touch] alone, outside of any transaction, so
// that a key in use does not contend with its revocation.
package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/maypok86/otter/v2"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
	"github.com/linkreel/linkreel/services/auth/internal/tenancy"
)

// retired is how many keys that are no longer in use a list shows.
const retired = 200

// Store is auth's records on Firestore. It is safe for concurrent use.
type Store struct {
	db    *record.DB
	shown func(record any) any
	// owners remembers whose a key is, which never changes, so that verifying a
	// known key is one round trip for all that it depends on.
	owners *otter.Cache[string, owner]
	// traces are what an account leaves when it is erased.
	traces *record.Set
}

// owner is what a key's record points to.
type owner struct {
	account string
	member  string // "" for a key that no member made
	session bool
}

var (
	_ account.Store = (*Store)(nil)
	_ member.Store  = (*Store)(nil)
	_ tenancy.Store = (*Store)(nil)
)

// New makes a store on db. Events of changes show a record as shown gives it.
func New(db *record.DB, shown func(record any) any) *Store {
	return &Store{
		db: db, shown: shown, traces: traces(db),
		owners: otter.Must(&otter.Options[string, owner]{MaximumSize: 100_000}),
	}
}

// reads looks documents up: within a change as they are when it commits, outside of
// one as they are now.
type reads struct {
	s   *Store
	ctx context.Context // that of the call or of the transaction, which reads live within
	tx  *record.Tx      // nil outside of a change
}

// Look reads outside of any change.
func (s *Store) Look(ctx context.Context) member.Reads { return s.look(ctx) }

func (s *Store) look(ctx context.Context) reads { return reads{s: s, ctx: ctx} }

// one reads the document of an id, which may be a caller's words.
func one[T any](r reads, k kind[T], id string) (out T, err error) {
	ref, found := r.s.db.Ref(k.collection, id), false
	if r.tx == nil {
		out, found, err = firestoredb.Lookup(r.ctx, r.s.db.DB, "read "+k.collection, ref, k.read)
	} else {
		snaps, failed := r.tx.GetAll(ref)
		if err = failed; err == nil && snaps[0] != nil {
			out, err = k.read(snaps[0])
			found = true
		}
	}
	if err == nil && !found {
		err = k.none
	}
	return out, err
}

// many reads what a query finds, in the kind's order.
func many[T any](r reads, k kind[T], q firestore.Query) (out []T, err error) {
	if r.tx == nil {
		out, err = firestoredb.List(r.ctx, r.s.db.DB, "list "+k.collection, q, k.read)
	} else {
		snaps, failed := r.tx.Query(q)
		if err = failed; err == nil {
			out, err = firestoredb.ReadAll(snaps, k.read)
		}
	}
	if k.order != nil {
		slices.SortFunc(out, k.order)
	}
	return out, err
}

// first reads the one document that a query finds.
func first[T any](r reads, k kind[T], q firestore.Query) (out T, err error) {
	found, err := many(r, k, q.Limit(1))
	if err == nil && len(found) == 0 {
		err = k.none
	}
	if err != nil {
		return out, err
	}
	return found[0], nil
}

func (s *Store) where(collection, field string, value any) firestore.Query {
	return s.db.Collection(collection).Where(field, "==", value)
}

// Account finds an account.
func (s *Store) Account(ctx context.Context, id string) (account.Account, error) {
	return s.look(ctx).Account(id)
}

func (r reads) Account(id string) (account.Account, error) { return one(r, accounts, id) }

// Key finds a key by its public id.
func (s *Store) Key(ctx context.Context, accountID, id string) (account.Key, error) {
	return s.look(ctx).Key(accountID, id)
}

func (r reads) Key(accountID, id string) (account.Key, error) {
	if len(id) > 64 { // longer than an indexed value may be, at the extreme
		return account.Key{}, account.ErrNoKey
	}
	k, err := first(r, keys, r.s.where(keys.collection, "id", id))
	if err == nil && accountID != "" && k.AccountID != accountID {
		return account.Key{}, account.ErrNoKey
	}
	return k, err
}

func (r reads) KeyByHash(hash string) (account.Key, error) { return one(r, keys, hash) }

// Keys lists an account's keys.
func (s *Store) Keys(ctx context.Context, accountID string) ([]account.Key, error) {
	of := s.where(keys.collection, "accountId", accountID)
	// Two queries: every key in use must show, the others only up to a bound.
	inUse, err := many(s.look(ctx), keys, of.Where("inUse", "==", true))
	if err != nil {
		return nil, err
	}
	newest, err := many(s.look(ctx), keys, of.OrderBy("createdAt", firestore.Desc).Limit(retired))
	all := slices.Concat(inUse, newest)
	slices.SortFunc(all, keys.order)
	// A key that both find appears once.
	return slices.CompactFunc(all, func(a, b account.Key) bool { return a.Hash == b.Hash }), err
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
	kept := keys.collection
	if of.session {
		kept = sessions.collection
	}
	refs := []firestoredb.Ref{s.db.Ref(kept, hash), s.db.Ref(accounts.collection, of.account)}
	if of.member != "" {
		refs = append(refs, s.db.Ref(members.collection, of.member))
	}
	snaps, err := s.getAll(ctx, refs)
	if err != nil {
		return c, err
	}
	if !snaps[0].Exists() || !snaps[1].Exists() {
		// The next call looks among keys and sessions again.
		s.owners.Invalidate(hash)
		return c, account.ErrNoKey
	}
	return credential(snaps, of)
}

func (s *Store) getAll(ctx context.Context, refs []firestoredb.Ref) (snaps []firestoredb.Snap, err error) {
	err = s.db.Do(ctx, "get key and account", func(ctx context.Context) error {
		snaps, err = s.db.GetAll(ctx, refs)
		return err
	})
	return snaps, err
}

// ownerOf looks for the hash among keys and sessions in one round trip: the hash
// does not tell which it is.
func (s *Store) ownerOf(ctx context.Context, hash string) (owner, error) {
	key, session := s.db.Ref(keys.collection, hash), s.db.Ref(sessions.collection, hash)
	if key == nil {
		return owner{}, account.ErrNoKey
	}
	snaps, err := s.getAll(ctx, []firestoredb.Ref{key, session})
	if err != nil {
		return owner{}, err
	}
	switch {
	case snaps[0].Exists():
		k, err := keys.read(snaps[0])
		return owner{account: k.AccountID, member: k.MadeBy}, err
	case snaps[1].Exists():
		x, err := sessions.read(snaps[1])
		return owner{account: x.AccountID, member: x.MemberID, session: true}, err
	}
	return owner{}, account.ErrNoKey
}

func credential(snaps []firestoredb.Snap, of owner) (c account.Credential, err error) {
	if c.Account, err = accounts.read(snaps[1]); err != nil {
		return c, err
	}
	if of.member != "" {
		// A member who is gone keeps the id and has no role, which gives no scopes. Without the id,
		// Scopes would fall back to the key's own.
		c.Member = account.Member{ID: of.member}
		if snaps[2].Exists() {
			m, err := members.read(snaps[2])
			if err != nil {
				return c, err
			}
			c.Member = account.Member{ID: m.ID, Name: m.Name, Role: m.Role}
		}
	}
	if of.session {
		x, err := sessions.read(snaps[0])
		if err != nil {
			return c, err
		}
		c.Session, c.Key = true, x.Key(c.Member.Role)
	} else if c.Key, err = keys.read(snaps[0]); err != nil {
		return c, err
	}
	if of.member != "" && c.Member.Role == "" && c.Key.RevokedAt.IsZero() {
		c.Key.RevokedAt = c.Key.CreatedAt // whoever made it, or signed in, was removed
	}
	return c, nil
}

// Touch notes when a key or a session was last used; account.ErrNoKey if it is gone.
func (s *Store) Touch(ctx context.Context, hash string, session bool, at time.Time) error {
	ref, field := s.db.Ref(keys.collection, hash), "lastUsedAt"
	if session {
		ref, field = s.db.Ref(sessions.collection, hash), "seenAt"
	}
	// It fails where there is no document. Set would bring back a key that was just erased.
	err := s.db.Update(ctx, "note use", ref, []firestore.Update{{Path: field, Value: at}})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return account.ErrNoKey
	}
	return err
}
