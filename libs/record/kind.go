package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/label"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/tags"
)

// Kind describes a kind of record. Its documents have the account's id in the accountId field.
type Kind[T any] struct {
	// Collection contains the records. A document's name is its record's id.
	Collection string
	// Object is the kind's name in events and exports, such as "link". For example, creating a
	// link writes the event link.created.
	Object string
	// Of returns a record's id and account.
	Of func(*T) (id, account string)
	// Doc converts a record to its document, and From converts a document to a record; see
	// [firestoredb.Reader].
	Doc  func(*T) any
	From func(firestoredb.Snap) (*T, error)
	// Absent returns the error for a record that does not exist or belongs to another account.
	Absent func() error

	// Shown converts a record to its form in events and exports. A kind without Shown has no events
	// and is not exported.
	Shown func(*T) any
	// Paged is set for a kind whose lists come in pages; see [Kept.Page]. Its documents have the
	// createdAt field.
	Paged bool
	// Order sorts lists. If it is nil, lists are sorted by id.
	Order func(a, b *T) int
	// Limit is for a kind with a limit on how many records an account may have.
	Limit *Limit
	// Labels is for a kind with tags.
	Labels *Labels[T]
	// Beside writes a change's other documents, and announces the change. before is nil for a new
	// record, and after is nil for a removed one. Beside must not read.
	Beside func(tx *Tx, before, after *T)
	// Erase deletes up to limit records in an account that is being erased, including unreadable
	// records, and returns how many it deleted. Fewer than limit means that none are left. If Erase
	// is nil, the documents are deleted.
	Erase func(ctx context.Context, account string, limit int) (n int, err error)
}

// Limit limits how many records of a kind each account may have.
type Limit struct {
	// Kind is the name of the limit, such as "links".
	Kind string
	// Full returns the error for an account with too few slots left under limit.
	Full func(limit int64) error
}

// Labels are the tags on records.
type Labels[T any] struct {
	Store *tags.Store
	Of    func(*T) []string
}

// Kept gives access to one kind of record in a database. It is safe for concurrent use.
type Kept[T any] struct {
	db *DB
	k  Kind[T]
}

// Keep returns a Kept for a kind of record.
func Keep[T any](db *DB, k Kind[T]) *Kept[T] { return &Kept[T]{db, k} }

// Ref returns the reference to a record's document, or nil if id is malformed.
func (k *Kept[T]) Ref(id string) firestoredb.Ref { return k.db.Ref(k.k.Collection, id) }

// Of returns the query for an account's records.
func (k *Kept[T]) Of(account string) firestore.Query {
	return k.db.Collection(k.k.Collection).Where("accountId", "==", account)
}

// Get reads a record in an account. An empty account means any account.
func (k *Kept[T]) Get(ctx context.Context, account, id string) (*T, error) {
	r, found, err := firestoredb.Lookup(ctx, k.db.DB, "get "+k.k.Object, k.Ref(id), k.k.From)
	if err != nil {
		return nil, err
	}
	return k.owned(account, r, found)
}

func (k *Kept[T]) owned(account string, r *T, found bool) (*T, error) {
	if !found {
		return nil, k.k.Absent()
	}
	if _, owner := k.k.Of(r); account != "" && owner != account {
		return nil, k.k.Absent()
	}
	return r, nil
}

// Find returns the records that match a query.
func (k *Kept[T]) Find(ctx context.Context, q firestore.Query) ([]*T, error) {
	return firestoredb.List(ctx, k.db.DB, "list "+k.k.Collection, q, k.k.From)
}

// All reads all of an account's records, except undecodable ones, which it logs. Use it for kinds
// with few records per account.
func (k *Kept[T]) All(ctx context.Context, account string) ([]*T, error) {
	snaps, err := k.db.Query(ctx, "list "+k.k.Collection, k.Of(account))
	found, broken := firestoredb.Sift(snaps, k.k.From)
	if len(broken) > 0 {
		slog.ErrorContext(ctx, "cannot decode some records; omitting them from the list", "account", account, "records", len(broken), "error", broken[0].Err)
	}
	if k.k.Order != nil {
		slices.SortFunc(found, k.k.Order)
	}
	return found, err
}

// Page reads a page of an account's records, newest first, and reports whether there are more. It
// logs and skips records that cannot be decoded. The kind must be Paged.
func (k *Kept[T]) Page(ctx context.Context, account string, p paging.Page) (page []*T, more bool, err error) {
	return firestoredb.Page(ctx, k.db.DB, "list "+k.k.Collection, k.Of(account), p, k.k.From)
}

// Count returns how many records the account has.
func (k *Kept[T]) Count(ctx context.Context, account string) (int64, error) {
	return k.db.Count(ctx, "count "+k.k.Collection, k.Of(account))
}

// Create adds a record. limit is the maximum number of records in the account, or 0 for no limit.
// If the account already has a record with this id, Create returns that record instead of r, so a
// repeated request finds the record from its first attempt. The error is ErrExists if another
// document in the create already exists.
func (k *Kept[T]) Create(ctx context.Context, r *T, limit int64) (*T, error) {
	id, account := k.k.Of(r)
	err := quota.ErrAsk
	if len(k.labels(r)) == 0 {
		// There is nothing to read, and a slot is usually available in memory, so this takes one
		// call to the database.
		err = k.db.Commit(ctx, "create "+k.k.Object, func(tx *Tx) error {
			in := k.In(tx)
			if err := in.Room(account, limit, 1); err != nil {
				return err
			}
			return in.Add(r, k.event("created"))
		})
	}
	if errors.Is(err, quota.ErrAsk) {
		err = k.db.Tx(ctx, "create "+k.k.Object, func(tx *Tx) error {
			in := k.In(tx)
			// A record that already exists does not need a slot.
			stored, err := in.GetAll(id)
			if err != nil || stored[0] != nil {
				return cmp.Or(err, firestoredb.ErrExists)
			}
			if err := in.Room(account, limit, 1); err != nil {
				return err
			}
			return in.Add(r, k.event("created"))
		})
	}
	if !errors.Is(err, firestoredb.ErrExists) {
		return r, err
	}
	// The error does not say which of the documents exists, so read the record.
	stored, found, readErr := firestoredb.Lookup(ctx, k.db.DB, "get "+k.k.Object, k.Ref(id), k.k.From)
	if apierr.CodeOf(readErr) == apierr.RateLimited {
		readErr = apierr.Down(readErr) // The read failed, so the existing document may be the same record.
	}
	if readErr != nil {
		return nil, readErr
	}
	if _, err := k.owned(account, stored, found); err == nil {
		return stored, nil
	}
	return nil, err
}

// event returns this kind's event type for created, updated or deleted. For a kind without events,
// it returns [events.Quiet].
func (k *Kept[T]) event(what string) events.Type {
	if k.k.Shown == nil {
		return events.Quiet
	}
	return events.Type(k.k.Object + "." + what)
}

func (k *Kept[T]) labels(r *T) []string {
	if k.k.Labels == nil || r == nil {
		return nil
	}
	return k.k.Labels.Of(r)
}

// Change changes a record in an account. An empty account means any account. fn edits the stored
// record, and may run several times. It returns the type of the event, [events.Quiet] for a change
// without an event, or "" for no change. If fn returns an error, nothing is written.
func (k *Kept[T]) Change(ctx context.Context, account, id string, fn func(*T) (events.Type, error)) (out *T, err error) {
	err = k.db.Tx(ctx, "update "+k.k.Object, func(tx *Tx) error {
		in := k.In(tx)
		r, err := in.Get(account, id)
		if err != nil {
			return err
		}
		before := *r
		out = r
		t, err := fn(r)
		if err != nil || t == "" {
			return err
		}
		return in.Put(&before, r, t)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Delete deletes a record in an account, unless check returns an error.
func (k *Kept[T]) Delete(ctx context.Context, account, id string, check func(*T) error) error {
	return k.db.Tx(ctx, "delete "+k.k.Object, func(tx *Tx) error {
		in := k.In(tx)
		r, err := in.Get(account, id)
		if err != nil {
			return err
		}
		if err := check(r); err != nil {
			return err
		}
		return in.Remove(r, k.event("deleted"))
	})
}

// In returns access to the kind within a transaction.
func (k *Kept[T]) In(tx *Tx) In[T] { return In[T]{tx, k} }

// In gives access to a kind of record within a transaction.
type In[T any] struct {
	tx *Tx
	k  *Kept[T]
}

// Get reads a record in an account. An empty account means any account.
func (in In[T]) Get(account, id string) (*T, error) {
	found, err := in.GetAll(id)
	if err != nil {
		return nil, err
	}
	return in.k.owned(account, found[0], found[0] != nil)
}

// GetAll reads records from any account in one call. A missing record is nil.
func (in In[T]) GetAll(ids ...string) ([]*T, error) {
	refs := make([]firestoredb.Ref, len(ids))
	for i, id := range ids {
		refs[i] = in.k.Ref(id)
	}
	snaps, err := in.tx.GetAll(refs...)
	if err != nil {
		return nil, err
	}
	out := make([]*T, len(ids))
	for i, snap := range snaps {
		if snap == nil {
			continue
		}
		if out[i], err = in.k.k.From(snap); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Find returns the records that match a query.
func (in In[T]) Find(q firestore.Query) ([]*T, error) {
	snaps, err := in.tx.Query(q)
	if err != nil {
		return nil, err
	}
	return firestoredb.ReadAll(snaps, in.k.k.From)
}

// Room claims slots for n more records in an account with this limit. It fails if there are too
// few free slots.
func (in In[T]) Room(account string, limit, n int64) error {
	l := in.k.k.Limit
	if l == nil || limit <= 0 {
		return nil
	}
	have := func(ctx context.Context) (int64, error) { return in.k.Count(ctx, account) }
	room, err := in.tx.Room(quota.Limit{Account: account, Kind: l.Kind, Max: limit, Count: have}, n)
	if err == nil && room < n {
		err = l.Full(limit)
	}
	return err
}

// Add creates a record and writes its event.
func (in In[T]) Add(r *T, t events.Type) error {
	return in.write(nil, r, t, func(ref firestoredb.Ref) { in.tx.Create(ref, in.k.k.Doc(r)) })
}

// Put changes a record and writes its event. before is the record before the change.
func (in In[T]) Put(before, r *T, t events.Type) error {
	return in.write(before, r, t, func(ref firestoredb.Ref) { in.tx.Set(ref, in.k.k.Doc(r)) })
}

// Remove deletes a record and writes its event.
func (in In[T]) Remove(r *T, t events.Type) error {
	return in.write(r, nil, t, in.tx.Delete)
}

func (in In[T]) write(before, after *T, t events.Type, write func(firestoredb.Ref)) error {
	r := after
	if r == nil {
		r = before
	}
	id, account := in.k.k.Of(r)
	ref := in.k.Ref(id)
	if ref == nil {
		return fmt.Errorf("%q is not the id of a %s", id, in.k.k.Object)
	}
	if err := in.tags(account, before, after); err != nil {
		return err
	}
	write(ref)
	if in.k.k.Beside != nil {
		in.k.k.Beside(in.tx, before, after)
	}
	if t != events.Quiet {
		in.Tell(r, t)
	}
	return nil
}

func (in In[T]) tags(account string, before, after *T) error {
	had, has := in.k.labels(before), in.k.labels(after)
	got, lost := label.Without(has, had), label.Without(had, has)
	if len(got)+len(lost) == 0 {
		return nil
	}
	return in.tx.Label(in.k.k.Labels.Store, account, got, lost)
}

// Tell writes an event with the current record. Add, Put and Remove also do this.
func (in In[T]) Tell(r *T, t events.Type) {
	id, account := in.k.k.Of(r)
	e := events.Event{AccountID: account, Type: t, Object: id}
	if in.k.k.Shown != nil { // otherwise the outbox rejects the event
		e.Data = in.k.k.Shown(r)
	}
	in.tx.Tell(e)
}
