package firestoredb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/libs/identity"
)

type (
	// Snap is a document as it was read.
	Snap = *firestore.DocumentSnapshot
	// Ref names a document. A nil Ref is the name that no document can have: what is
	// read by it is not there.
	Ref = *firestore.DocumentRef
)

// Broken is a document that is there and cannot be read.
type Broken struct {
	Snap
	Err error
}

// Ref names a document by an id that may be a caller's words; nil for what cannot be
// one of our identifiers, see [identity.ValidID].
func (db *DB) Ref(collection, id string) Ref {
	if !identity.ValidID(id) {
		return nil
	}
	return db.Collection(collection).Doc(id)
}

// Reader makes the reader of a kind of records of two functions: D is the document,
// and of makes the record of it.
func Reader[D, T any](of func(snap Snap, d *D) T) func(Snap) (T, error) {
	return func(snap Snap) (out T, err error) {
		d, err := As[D](snap)
		if err == nil {
			out = of(snap, &d)
		}
		return out, err
	}
}

// As reads a document as it is.
func As[D any](snap Snap) (d D, err error) {
	if err = snap.DataTo(&d); err != nil {
		err = fmt.Errorf("document %s/%s cannot be read: %w", snap.Ref.Parent.ID, snap.Ref.ID, err)
	}
	return d, err
}

// Get reads one document; ErrNotFound when it is not there.
func Get[T any](ctx context.Context, db *DB, what string, ref Ref, read func(Snap) (T, error)) (out T, err error) {
	if ref == nil {
		return out, fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	err = db.Do(ctx, what, func(ctx context.Context) error {
		snap, err := ref.Get(ctx)
		if err != nil {
			return err
		}
		out, err = read(snap)
		return err
	})
	return out, err
}

// Lookup is [Get] for a document that may well be absent. Then found is false, without an error.
func Lookup[T any](ctx context.Context, db *DB, what string, ref Ref, read func(Snap) (T, error)) (out T, found bool, err error) {
	out, err = Get(ctx, db, what, ref, read)
	if errors.Is(err, ErrNotFound) {
		return out, false, nil
	}
	return out, err == nil, err
}

// Exists reports whether a document is there.
func (db *DB) Exists(ctx context.Context, what string, ref Ref) (bool, error) {
	_, found, err := Lookup(ctx, db, what, ref, func(snap Snap) (Snap, error) { return snap, nil })
	return found, err
}

// Read reads documents in one call. Those of nil refs and those that are not there are
// left out.
func (db *DB) Read(ctx context.Context, what string, refs ...Ref) (snaps []Snap, err error) {
	err = db.Do(ctx, what, func(ctx context.Context) error {
		snaps, err = db.GetAll(ctx, slices.DeleteFunc(slices.Clone(refs), func(ref Ref) bool { return ref == nil }))
		snaps = slices.DeleteFunc(snaps, func(snap Snap) bool { return !snap.Exists() })
		return err
	})
	return snaps, err
}

// Query reads what a query finds.
func (db *DB) Query(ctx context.Context, what string, q firestore.Query) (snaps []Snap, err error) {
	err = db.Do(ctx, what, func(ctx context.Context) error {
		snaps, err = q.Documents(ctx).GetAll()
		return err
	})
	return snaps, err
}

// List reads what a query finds. One document that cannot be read is an error.
func List[T any](ctx context.Context, db *DB, what string, q firestore.Query, read func(Snap) (T, error)) ([]T, error) {
	snaps, err := db.Query(ctx, what, q)
	if err != nil {
		return nil, err
	}
	return ReadAll(snaps, read)
}

// ReadAll reads documents, all of which must be readable.
func ReadAll[T any](snaps []Snap, read func(Snap) (T, error)) ([]T, error) {
	out, broken := Sift(snaps, read)
	if len(broken) > 0 {
		return nil, broken[0].Err
	}
	return out, nil
}

// Sift reads documents and keeps apart those that cannot be read.
func Sift[T any](snaps []Snap, read func(Snap) (T, error)) (out []T, broken []Broken) {
	out = make([]T, 0, len(snaps))
	for _, snap := range snaps {
		if record, err := read(snap); err != nil {
			broken = append(broken, Broken{snap, err})
		} else {
			out = append(out, record)
		}
	}
	return out, broken
}

// aside is how long a document that cannot be read is put off.
const aside = time.Hour

// SetAside puts off a document that cannot be read: a queue is read in the order of
// the time at path, and such a document would stay at its head for ever and hide what
// is behind it. It comes again an hour later, since a newer release may read it. The
// error is the document's own, with whatever kept us from putting it off.
func (db *DB) SetAside(ctx context.Context, b Broken, path string, now time.Time) error {
	err := db.Do(ctx, "set aside", func(ctx context.Context) error {
		_, err := b.Ref.Update(ctx, []firestore.Update{{Path: path, Value: now.Add(aside)}}, firestore.LastUpdateTime(b.UpdateTime))
		return err
	})
	return errors.Join(b.Err, IgnoreMoved(err))
}

// IgnoreMoved is nil in place of the errors of a write whose document was changed or
// removed since it was read, when whoever did that has the last word.
func IgnoreMoved(err error) error {
	if errors.Is(err, ErrStale) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Count counts what a query finds.
func (db *DB) Count(ctx context.Context, what string, q firestore.Query) (n int64, err error) {
	err = db.Do(ctx, what, func(ctx context.Context) error {
		found, err := q.NewAggregationQuery().WithCount("n").Get(ctx)
		n = Number(found, "n")
		return err
	})
	return n, err
}

// Number reads an aggregate. A large sum comes as a float.
func Number(found firestore.AggregationResult, name string) int64 {
	v, _ := found[name].(*firestorepb.Value)
	return v.GetIntegerValue() + int64(v.GetDoubleValue())
}

// ErasePage removes up to limit documents that a query finds, without reading them,
// and reports how many. Fewer than limit means that there are no more.
func (db *DB) ErasePage(ctx context.Context, what string, q firestore.Query, limit int) (n int, err error) {
	found, err := db.Find(ctx, what, q.Limit(limit))
	if err != nil {
		return 0, err
	}
	return len(found), db.DeleteAll(ctx, what, found...)
}

// Optional is a time as a document keeps it: none is nil.
func Optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Time is a time that a document may lack.
func Time(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
