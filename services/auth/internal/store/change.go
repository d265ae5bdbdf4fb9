package store

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// Atomically makes one change; see [account.Store].
func (s *Store) Atomically(ctx context.Context, what string, fn func(account.Tx) error) error {
	return s.change(ctx, what, func(t *transaction) error { return fn(t) })
}

// People makes one change; see [member.Store].
func (s *Store) People(ctx context.Context, what string, fn func(member.Tx) error) error {
	return s.change(ctx, what, func(t *transaction) error { return fn(t) })
}

func (s *Store) change(ctx context.Context, what string, fn func(*transaction) error) error {
	var done []events.Event
	err := s.db.Tx(ctx, what, func(tx *record.Tx) error {
		t := &transaction{reads: reads{s, tx.Context(), tx}, accounts: map[string]*changed{}}
		if err := fn(t); err != nil {
			return err
		}
		t.writeAccounts()
		done = t.done
		return nil
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

// transaction is one change. Reads never see its own writes, but for accounts.
type transaction struct {
	reads
	accounts map[string]*changed
	expired  []account.Key  // to be retired with the next new key
	done     []events.Event // for the log
}

// changed is an account as this change leaves it.
type changed struct {
	account.Account
	read          int64 // the version that was read
	fresh, tellIt bool
}

// Account reads an account once: a change may raise it in several places.
func (t *transaction) Account(id string) (account.Account, error) {
	if a := t.accounts[id]; a != nil {
		return a.Account, nil
	}
	a, err := t.reads.Account(id)
	if err == nil {
		t.accounts[id] = &changed{Account: a, read: a.Version}
	}
	return a, err
}

func (t *transaction) AddAccount(a account.Account) {
	t.accounts[a.ID] = &changed{Account: a, fresh: true}
	t.done = append(t.done, events.Event{AccountID: a.ID, Type: "account.created", Object: a.ID})
}

// PutAccount writes a changed account, which was read in this change.
func (t *transaction) PutAccount(a *account.Account, what events.Type) {
	at := t.accounts[a.ID]
	a.Version = at.read + 1
	at.Account, at.tellIt = *a, true
	t.tell(a.ID, what, a.ID, *a)
}

// Authority raises the account's version and has every replica told.
func (t *transaction) Authority(accountID string) error {
	a, err := t.Account(accountID)
	if err == nil {
		a.Version = t.accounts[accountID].read + 1
		t.accounts[accountID].Account, t.accounts[accountID].tellIt = a, true
	}
	return err
}

// Again has every replica told the version as it is.
func (t *transaction) Again(accountID string) error {
	_, err := t.Account(accountID)
	if err == nil {
		t.accounts[accountID].tellIt = true
	}
	return err
}

// writeAccounts ends the change. An account is written once, however often it was raised.
func (t *transaction) writeAccounts() {
	for id, a := range t.accounts {
		ref := t.s.db.Ref(accounts.collection, id)
		switch {
		case a.fresh:
			t.tx.Create(ref, fromAccount(a.Account)) // no replica can know an id that was just drawn
		case a.Version > a.read:
			// The whole document is replaced: it was read in this change.
			t.tx.Set(ref, fromAccount(a.Account))
		}
		if a.tellIt {
			t.tx.Authority(id, a.Version)
		}
	}
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

// Add writes a new record, which must not be there, and tells its event.
func (t *transaction) Add(r any, what events.Type) {
	ref, doc, accountID, object := t.place(r)
	t.tx.Create(ref, doc)
	t.tell(accountID, what, object, r)
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

// Put writes a changed record and tells its event.
func (t *transaction) Put(r any, what events.Type) {
	ref, doc, accountID, object := t.place(r)
	switch d := doc.(type) {
	// Neither writes the time of the last use, which Touch owns.
	case keyDoc:
		t.tx.Update(ref, firestore.Update{Path: "name", Value: d.Name}, firestore.Update{Path: "scopes", Value: d.Scopes},
			firestore.Update{Path: "expiresAt", Value: d.ExpiresAt}, firestore.Update{Path: "revokedAt", Value: d.RevokedAt},
			firestore.Update{Path: "inUse", Value: d.InUse})
	case sessionDoc:
		t.tx.Update(ref, firestore.Update{Path: "endedAt", Value: d.EndedAt}, firestore.Update{Path: "open", Value: d.Open})
	default:
		t.tx.Set(ref, doc)
	}
	t.tell(accountID, what, object, r)
}

// Remove deletes a record and tells its event.
func (t *transaction) Remove(r any, what events.Type) {
	ref, _, accountID, object := t.place(r)
	t.tx.Delete(ref)
	t.tell(accountID, what, object, r)
}

// Tell writes an event on an object, which shows the record.
func (t *transaction) Tell(what events.Type, object string, r any) {
	_, _, accountID, _ := t.place(r)
	t.tell(accountID, what, object, r)
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
	m, err := t.Member(memberID)
	if err == member.ErrNoMember || err == nil && m.AccountID != accountID { //nolint:errorlint // the very value, from this package
		return "", nil
	}
	return m.Role, err
}

// place is where a record is kept, what is kept of it, whose it is, and what its
// events call it.
func (t *transaction) place(r any) (ref firestoredb.Ref, doc any, accountID, object string) {
	at := t.s.db.Ref
	switch r := r.(type) {
	case account.Account:
		return at(accounts.collection, r.ID), fromAccount(r), r.ID, r.ID
	case account.Key:
		return at(keys.collection, r.Hash), fromKey(r), r.AccountID, r.ID
	case member.Member:
		return at(members.collection, r.ID), fromMember(r), r.AccountID, r.ID
	case member.Link:
		return at(links.collection, r.Hash), fromLink(r), r.AccountID, r.ID
	case member.Session:
		return at(sessions.collection, r.Hash), fromSession(r), r.AccountID, r.ID
	case member.Identity:
		return at(identities.collection, identityID(r.Issuer, r.Subject)), fromIdentity(r), "", ""
	case member.Passkey:
		return at(passkeys.collection, r.Hash), fromPasskey(r), "", r.ID
	case member.Device:
		return at(devices.collection, r.Hash), fromDevice(r), r.AccountID, ""
	}
	panic(fmt.Sprintf("no record of ours: %T", r))
}
