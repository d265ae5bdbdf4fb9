// Package store stores accounts, keys and people in Firestore: accounts/{id}, members/{id}
// and operatorTakedowns/{id}. The documents in keys, sessions, oneTimeLinks, identities,
// passkeys and deviceRequests are named by a hash and do not contain any secrets.
//
// All reads use [reads], inside and outside changes. All changes use [transaction]. A
// transaction writes the record and its event, and logs the event. If rights change, it also
// increments the account's version and notifies the replicas.
//
// Only [Store.Touch] writes lastUsedAt. It does so outside transactions, so using a key does not
// contend with its revocation.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/maypok86/otter/v2"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/trail"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
	"github.com/linkreel/linkreel/services/auth/internal/tenancy"
)

// retired is how many of the newest keys a list contains, whether or not they are in use. The
// number also appears in libs/apispec/openapi.yaml and the docs.
const retired = 200

// Store stores auth's records in Firestore. It is safe for concurrent use.
type Store struct {
	db    *record.DB
	shown func(record any) any
	// owners caches the account and the member of each key. They never change, so verifying a
	// known key takes only one round trip.
	owners *otter.Cache[string, owner]
	// hashes caches the hash of each key by the key's id, for the same reason. Players ask for the
	// rights of the same few keys each second.
	hashes *otter.Cache[string, string]
	// traces are the documents that are erased with an account.
	traces *record.Set
	// Trail records ended rights and similar decisions for restores. It may be nil.
	Trail *trail.Log
}

var (
	_ account.Store = (*Store)(nil)
	_ member.Store  = (*Store)(nil)
	_ tenancy.Store = (*Store)(nil)
)

// New returns a store that uses db. shown converts a record to the data in its events.
func New(db *record.DB, shown func(record any) any) *Store {
	return &Store{
		db: db, shown: shown, traces: traces(db),
		owners: otter.Must(&otter.Options[string, owner]{MaximumSize: 100_000}),
		hashes: otter.Must(&otter.Options[string, string]{MaximumSize: 100_000}),
	}
}

// reads implements lookups. Inside a change, its results are still valid at commit time.
type reads struct {
	s   *Store
	ctx context.Context // the call's context; nil inside a change
	tx  *record.Tx      // nil outside a change
}

// Look returns reads for use outside changes.
func (s *Store) Look(ctx context.Context) member.Reads { return s.look(ctx) }

func (s *Store) look(ctx context.Context) reads { return reads{s: s, ctx: ctx} }

// one reads the document with the given id. The id may be unchecked input.
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

// many returns the results of a query in the kind's order.
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

// first reads the only document with this value in the field. The value may be unchecked input.
func first[T any](r reads, k kind[T], field, value string) (out T, err error) {
	if len(value) > 64 { // ids and codes are never this long, and Firestore limits indexed values
		return out, k.none
	}
	found, err := many(r, k, r.s.where(k.collection, field, value).Limit(1))
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

// Account looks up an account.
func (s *Store) Account(ctx context.Context, id string) (account.Account, error) {
	return s.look(ctx).Account(id)
}

func (r reads) Account(id string) (account.Account, error) { return one(r, accounts, id) }

// Key looks up a key by its public id.
func (s *Store) Key(ctx context.Context, accountID, id string) (account.Key, error) {
	return s.look(ctx).Key(accountID, id)
}

func (r reads) Key(accountID, id string) (account.Key, error) {
	k, err := first(r, keys, "id", id)
	if err == nil && accountID != "" && k.AccountID != accountID {
		return account.Key{}, account.ErrNoKey
	}
	return k, err
}

func (r reads) KeyByHash(hash string) (account.Key, error) { return one(r, keys, hash) }

// Keys lists an account's keys. See [account.Store].
func (s *Store) Keys(ctx context.Context, accountID string) ([]account.Key, error) {
	of := s.where(keys.collection, "accountId", accountID)
	// Use two queries to keep the list short even if a program has created thousands of keys.
	inUse, err := many(s.look(ctx), keys, of.Where("inUse", "==", true))
	if err != nil {
		return nil, err
	}
	newest, err := many(s.look(ctx), keys, of.OrderBy("createdAt", firestore.Desc).Limit(retired))
	all := slices.Concat(inUse, newest)
	slices.SortFunc(all, keys.order)
	// List a key only once if both queries find it.
	return slices.CompactFunc(all, func(a, b account.Key) bool { return a.Hash == b.Hash }), err
}

// Atomically makes one change. See [account.Store].
func (s *Store) Atomically(ctx context.Context, what string, fn func(account.Tx) error) error {
	var done []events.Event
	var ended []trail.Note
	var change *record.Tx
	err := s.db.Tx(ctx, what, func(tx *record.Tx) error {
		change = tx
		t := &transaction{reads: reads{s: s, tx: tx}, raised: map[string]bool{}}
		err := fn(t)
		done, ended = t.done, t.ended
		return err
	})
	if err != nil {
		return err
	}
	// Before responding, write everything that a restore must repeat to the trail. Log the change
	// even if this fails.
	for i := range ended {
		ended[i].At = change.At()
	}
	err = s.Trail.Add(ctx, ended...)
	// Log one line per event, so the log contains every change that has an event. The log's handler
	// adds the request's trace id.
	by := events.ActorOf(ctx)
	for _, e := range done {
		slog.InfoContext(ctx, "audit", "action", e.Type, "account", e.AccountID, "object", e.Object, "byType", by.Type, "by", by.ID)
	}
	return err
}

// People makes one atomic change. See [member.Store].
func (s *Store) People(ctx context.Context, what string, fn func(member.Tx) error) error {
	return s.Atomically(ctx, what, func(tx account.Tx) error { return fn(tx.(*transaction)) })
}

// transaction is one atomic change. Its reads do not see its own writes.
type transaction struct {
	reads
	raised  map[string]bool // accounts whose version this change incremented
	expired []account.Key   // keys to retire with the next new key
	done    []events.Event  // for the log
	ended   []trail.Note    // for the trail
}

// Note records the end of a key, or the new state of an account or member, in the trail. Other
// records do not need a note: a restore does not bring them back.
func (t *transaction) Note(r any) {
	switch r := r.(type) {
	case account.Account:
		t.ended = append(t.ended, trail.Note{Kind: trail.AccountState, Account: r.ID, ID: r.ID, To: string(r.State())})
	case account.Key:
		switch {
		case !r.RevokedAt.IsZero():
			t.ended = append(t.ended, trail.Note{Kind: trail.KeyRevoked, Account: r.AccountID, ID: r.ID})
		case !r.ExpiresAt.IsZero():
			at := r.ExpiresAt.UTC().Format(time.RFC3339)
			t.ended = append(t.ended, trail.Note{Kind: trail.KeyExpires, Account: r.AccountID, ID: r.ID, To: at})
		}
	case member.Member:
		t.ended = append(t.ended, trail.Note{Kind: trail.MemberRole, Account: r.AccountID, ID: r.ID, To: string(r.Role)})
	}
}

// AddAccount writes a new account. It does not notify the replicas: none of them can have cached a
// new id.
func (t *transaction) AddAccount(a account.Account) {
	t.tx.Create(t.s.db.Ref(accounts.collection, a.ID), fromAccount(a))
	t.done = append(t.done, events.Event{AccountID: a.ID, Type: "account.created", Object: a.ID})
}

// PutAccount writes a changed account that this change has read, increments its version, and
// notifies every replica.
func (t *transaction) PutAccount(a *account.Account, what events.Type) {
	a.Version++
	// Replace the whole document. That is safe because it was read in this change.
	t.tx.Set(t.s.db.Ref(accounts.collection, a.ID), fromAccount(*a))
	if !t.raised[a.ID] {
		t.raised[a.ID] = true
		t.tx.Authority(a.ID, a.Version)
	}
	t.tell(a.ID, what, a.ID, *a)
	// A state change is pending until every service has confirmed it. Other changes do not need a
	// note, and an account's owners may make them frequently.
	if what != events.Quiet && a.Pending {
		t.Note(*a)
	}
}

// Authority increments the account's version and notifies every replica, at most once per
// change.
func (t *transaction) Authority(accountID string) error {
	if t.raised[accountID] {
		return nil
	}
	ref := t.s.db.Ref(accounts.collection, accountID)
	var a struct {
		Version int64 `firestore:"version"`
	}
	switch found, err := t.tx.Load(ref, &a); {
	case err != nil:
		return err
	case !found:
		return account.ErrNoAccount
	}
	t.raised[accountID] = true
	t.tx.Update(ref, firestore.Update{Path: "version", Value: a.Version + 1})
	t.tx.Authority(accountID, a.Version+1)
	return nil
}

// Again notifies every replica of the current version.
func (t *transaction) Again(accountID string) error {
	a, err := t.Account(accountID)
	if err == nil && !t.raised[accountID] {
		t.tx.Authority(accountID, a.Version)
	}
	return err
}

func (t *transaction) InUse(accountID string, now time.Time) ([]account.Key, error) {
	found, err := many(t.reads, keys, t.s.where(keys.collection, "accountId", accountID).Where("inUse", "==", true))
	if err != nil {
		return nil, err
	}
	out := found[:0]
	for _, k := range found {
		if k.Active(now) {
			out = append(out, k)
		} else if len(t.expired) < retired { // a transaction is limited to 500 writes
			t.expired = append(t.expired, k)
		}
	}
	return out, nil
}

// Room uses leased quota. If each change read all records instead, concurrent changes would
// make each other retry.
func (t *transaction) Room(kind, accountID string, most, n int, count func() (int, error)) (int, error) {
	room, err := t.tx.Room(quota.Limit{Account: accountID, Kind: kind, Max: int64(most), Count: func(context.Context) (int64, error) {
		have, err := count()
		return int64(have), err
	}}, int64(n))
	return int(room), err
}

// Add writes a new record and its event. The record must not exist yet.
func (t *transaction) Add(r any, what events.Type) {
	at := t.place(r)
	t.tx.Create(at.ref, at.doc())
	t.tell(at.account, what, at.object, r)
	if _, ok := r.(account.Key); !ok {
		return
	}
	// Retire expired keys in this commit. Otherwise, every later query for the keys in use
	// would include them.
	for _, old := range t.expired {
		t.tx.Update(t.s.db.Ref(keys.collection, old.Hash), firestore.Update{Path: "inUse", Value: false})
	}
	t.expired = nil
}

// Put writes a changed record and its event. For a key or a session, it writes only the end time:
// Touch writes the last use, and the other fields never change.
func (t *transaction) Put(r any, what events.Type) {
	at := t.place(r)
	switch r := r.(type) {
	case account.Key:
		if r.RevokedAt.IsZero() {
			t.tx.Update(at.ref, firestore.Update{Path: "expiresAt", Value: r.ExpiresAt.UnixMilli()})
		} else {
			t.tx.Update(at.ref, firestore.Update{Path: "revokedAt", Value: r.RevokedAt}, firestore.Update{Path: "inUse", Value: false})
		}
	case member.Session:
		t.tx.Update(at.ref, firestore.Update{Path: "endedAt", Value: r.EndedAt}, firestore.Update{Path: "open", Value: false})
	default:
		t.tx.Set(at.ref, at.doc())
	}
	t.tell(at.account, what, at.object, r)
	// Do not write a note here: most changes to a member do not change the role, and people
	// must be able to join and sign in while the trail is unavailable. A caller that changes a
	// role calls Note.
	if _, ok := r.(member.Member); !ok {
		t.Note(r)
	}
}

// Remove deletes a record and writes its event.
func (t *transaction) Remove(r any, what events.Type) {
	at := t.place(r)
	t.tx.Delete(at.ref)
	t.tell(at.account, what, at.object, r)
	if m, ok := r.(member.Member); ok {
		t.ended = append(t.ended, trail.Note{Kind: trail.MemberRemoved, Account: m.AccountID, ID: m.ID})
	}
}

// Tell writes an event about an object, with the record as its data.
func (t *transaction) Tell(what events.Type, object string, r any) {
	t.tell(t.place(r).account, what, object, r)
}

func (t *transaction) tell(accountID string, what events.Type, object string, r any) {
	if what == events.Quiet {
		return
	}
	e := events.Event{AccountID: accountID, Type: what, Object: object, Data: t.s.shown(r)}
	t.tx.Tell(e)
	t.done = append(t.done, e)
}

// UseOnce fails the change if name has already been used.
func (t *transaction) UseOnce(name string, until time.Time) {
	// Create fails if the document exists, even if two replicas try at the same time.
	t.tx.Create(t.s.db.Ref(used, hashOf(name)), map[string]any{"expireAt": until})
}

// Role returns the current role of a member of the account.
func (t *transaction) Role(accountID, memberID string) (identity.Role, error) {
	m, err := t.Member(accountID, memberID)
	if errors.Is(err, member.ErrNoMember) {
		return "", nil
	}
	return m.Role, err
}

// place identifies a record's document, its account, and its id in events.
type place struct {
	ref             firestoredb.Ref
	account, object string
	doc             func() any
}

func (t *transaction) place(r any) place {
	at := t.s.db.Ref
	switch r := r.(type) {
	case account.Account:
		return place{at(accounts.collection, r.ID), r.ID, r.ID, func() any { return fromAccount(r) }}
	case account.Key:
		return place{at(keys.collection, r.Hash), r.AccountID, r.ID, func() any { return fromKey(r) }}
	case member.Member:
		return place{at(members.collection, r.ID), r.AccountID, r.ID, func() any { return fromMember(r) }}
	case member.Link:
		return place{at(links.collection, r.Hash), r.AccountID, r.ID, func() any { return fromLink(r) }}
	case member.Session:
		return place{at(sessions.collection, r.Hash), r.AccountID, r.ID, func() any { return fromSession(r) }}
	case member.Identity:
		return place{at(identities.collection, identityID(r.Issuer, r.Subject)), "", "", func() any { return identityDoc(r) }}
	case member.Passkey:
		return place{at(passkeys.collection, r.Hash), "", r.ID, func() any { return passkeyDoc(r) }}
	case member.Device:
		return place{at(devices.collection, r.Hash), r.AccountID, "", func() any { return deviceDoc(r) }}
	}
	panic(fmt.Sprintf("not a record in auth: %T", r))
}
