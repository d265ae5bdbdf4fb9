package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// Atomically makes one change; see [account.Store].
func (s *Store) Atomically(ctx context.Context, what string, fn func(account.Tx) error) error {
	var done []events.Event
	err := s.db.Tx(ctx, what, func(tx *record.Tx) error {
		t := &transaction{reads: reads{s: s, tx: tx}, raised: map[string]bool{}}
		err := fn(t)
		done = t.done
		return err
	})
	if err != nil {
		return err
	}
	// The log has a line for each event, so nothing that has an event can be missing there.
	// Its handler adds the request's trace id.
	by := events.ActorOf(ctx)
	for _, e := range done {
		slog.InfoContext(ctx, "audit", "action", e.Type, "account", e.AccountID, "object", e.Object, "byType", by.Type, "by", by.ID)
	}
	return nil
}

// People makes one change; see [member.Store].
func (s *Store) People(ctx context.Context, what string, fn func(member.Tx) error) error {
	return s.Atomically(ctx, what, func(tx account.Tx) error { return fn(tx.(*transaction)) })
}

// transaction is one change. Reads never see its own writes.
type transaction struct {
	reads
	raised  map[string]bool // accounts with a higher version
	expired []account.Key   // to be retired with the next new key
	done    []events.Event  // for the log
}

// AddAccount writes a new account. No replica can know an id that was just drawn.
func (t *transaction) AddAccount(a account.Account) {
	t.tx.Create(t.s.db.Ref(accounts.collection, a.ID), fromAccount(a))
	t.done = append(t.done, events.Event{AccountID: a.ID, Type: "account.created", Object: a.ID})
}

// PutAccount writes a changed account, which was read in this change, under a higher
// version, and has every replica told.
func (t *transaction) PutAccount(a *account.Account, what events.Type) {
	a.Version++
	// The whole document is replaced: it was read in this change.
	t.tx.Set(t.s.db.Ref(accounts.collection, a.ID), fromAccount(*a))
	if !t.raised[a.ID] {
		t.raised[a.ID] = true
		t.tx.Authority(a.ID, a.Version)
	}
	t.tell(a.ID, what, a.ID, *a)
}

// Authority raises the account's version and has every replica told: once, however
// often a change asks for it.
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

// Again has every replica told the version as it is.
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
		} else if len(t.expired) < retired { // a transaction has 500 writes
			t.expired = append(t.expired, k)
		}
	}
	return out, nil
}

// Room takes leased places, so that records which are made at the same time do not start
// each other again, as they would if each read all the others.
func (t *transaction) Room(kind, accountID string, most, n int, count func() (int, error)) (int, error) {
	room, err := t.tx.Room(quota.Limit{Account: accountID, Kind: kind, Max: int64(most), Count: func(context.Context) (int64, error) {
		have, err := count()
		return int64(have), err
	}}, int64(n))
	return int(room), err
}

// Add writes a new record, which must not be there, and tells its event.
func (t *transaction) Add(r any, what events.Type) {
	at := t.place(r)
	t.tx.Create(at.ref, at.doc())
	t.tell(at.account, what, at.object, r)
	if _, ok := r.(account.Key); !ok {
		return
	}
	// Retired with a write that happens anyway. Left as they are, expired keys would count in
	// every later read of the keys in use.
	for _, old := range t.expired {
		t.tx.Update(t.s.db.Ref(keys.collection, old.Hash), firestore.Update{Path: "inUse", Value: false})
	}
	t.expired = nil
}

// Put writes a changed record and tells its event. Of a key or a session it writes the
// end alone: the time of the last use is written by Touch, and nothing else changes.
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
}

// Remove deletes a record and tells its event.
func (t *transaction) Remove(r any, what events.Type) {
	at := t.place(r)
	t.tx.Delete(at.ref)
	t.tell(at.account, what, at.object, r)
}

// Tell writes an event on an object, which shows the record.
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

// UseOnce fails the change when name was used before.
func (t *transaction) UseOnce(name string, until time.Time) {
	// Create fails when the document exists, also when two replicas try at the same moment.
	t.tx.Create(t.s.db.Ref(used, hashOf(name)), map[string]any{"expireAt": until})
}

// Role is the role of a member of the account now.
func (t *transaction) Role(accountID, memberID string) (identity.Role, error) {
	m, err := t.Member(accountID, memberID)
	if errors.Is(err, member.ErrNoMember) {
		return "", nil
	}
	return m.Role, err
}

// place is where a record is kept, whose it is, what its events call it, and what is
// kept of it.
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
		return place{at(identities.collection, identityID(r.Issuer, r.Subject)), "", "", func() any { return fromIdentity(r) }}
	case member.Passkey:
		return place{at(passkeys.collection, r.Hash), "", r.ID, func() any { return fromPasskey(r) }}
	case member.Device:
		return place{at(devices.collection, r.Hash), r.AccountID, "", func() any { return fromDevice(r) }}
	}
	panic(fmt.Sprintf("no record of ours: %T", r))
}
