// Package firestoredb is the only way the services reach Firestore.
//
// It promises that every call has a deadline, that a Firestore which is down is
// noticed once and then refused at once (a breaker) instead of holding every
// caller to its deadline, and that errors arrive in the words of this package:
// [ErrNotFound], [ErrExists], [ErrStale], [ErrContended], or an apierr UNAVAILABLE.
// It does not hide the client: stores build documents and queries with
// cloud.google.com/go/firestore itself.
//
// Writers of one document that get in each other's way are no outage. A transaction
// that loses tries again while there is time, after others of its account that lost
// before, and then gets [ErrContended]. No account has more than a share of a process's
// calls in flight.
package firestoredb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/turns"
)

// What a store can meet.
var (
	ErrNotFound = errors.New("no such document")
	ErrExists   = errors.New("document already exists")
	ErrStale    = errors.New("document changed meanwhile")
	// ErrInvalid means that the database will never take this request: a value, a
	// name or a size that it does not allow.
	ErrInvalid = errors.New("request is refused for good")

	// ErrUncertain comes with an UNAVAILABLE when a commit was repeated because
	// its answer was lost, and the server no longer knows the transaction: most
	// likely the first try went through.
	ErrUncertain = errors.New("outcome of the commit is not known")

	// ErrContended comes with a RATE_LIMITED when other writers of the same documents
	// were faster until the time was over. Nothing was committed: a call whose last try,
	// or one before, may have gone through gets a plain UNAVAILABLE.
	ErrContended = errors.New("other writers of the same documents were faster")
)

// DB is an open database.
type DB struct {
	*firestore.Client
	timeout time.Duration
	known   atomic.Bool // to have this build's format, see [DB.Identity]
	breaker *outage.Breaker
	calls   *turns.Queue // of accounts
	turns   *turns.Queue // of accounts whose transactions lost
}

// share is how many calls of one account are in flight at once. A connection to
// Firestore carries a hundred.
const share = 32

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

// Do runs one or several calls under the database's deadline and maps the error.
// what names the deed for the log: "get link".
func (db *DB) Do(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	if !db.known.Load() && ctx.Value(firstContactKey{}) == nil {
		if _, err := db.Identity(ctx); err != nil {
			return err
		}
	}
	err := inLine(ctx, db.calls, func() error {
		return db.breaker.Call(ctx, db.timeout, judged(fn))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// inLine runs do when it is the turn of the account for which ctx acts. What acts for
// no account, and a call within a call, which would wait for itself, run at once.
func inLine(ctx context.Context, q *turns.Queue, do func() error) error {
	p := identity.FromContext(ctx)
	if p == nil || ctx.Value(heardKey{}) != nil {
		return do()
	}
	if err := ctx.Err(); err != nil {
		return Map(err) // the time went elsewhere
	}
	release, err := q.Enter(ctx, p.AccountID)
	if errors.Is(err, context.DeadlineExceeded) {
		return contended(err) // only the account's own work was before it
	}
	if err != nil {
		return err
	}
	defer release()
	return do()
}

// Tx runs fn as a transaction. fn may run several times and so must read first,
// decide, write, and have no other effect; it must wrap errors with %w, else the
// abort of a try is not seen.
func (db *DB) Tx(ctx context.Context, what string, fn func(ctx context.Context, tx *firestore.Transaction) error, opts ...firestore.TransactionOption) error {
	try := func(ctx context.Context) error { return db.RunTransaction(ctx, fn, opts...) }
	err := db.Do(ctx, what, try)
	if errors.Is(err, ErrContended) {
		err = inLine(ctx, db.turns, func() error {
			return db.Do(ctx, what, func(ctx context.Context) error { return again(ctx, func() error { return try(ctx) }) })
		})
	}
	return err
}

// Commit is [DB.Tx] for an fn that only writes: one call to the database, where a
// transaction takes another to begin. A commit whose answer is lost is sent again, so
// writes must bear to be made twice, or have a precondition that the second time fails.
func (db *DB) Commit(ctx context.Context, what string, fn func(ctx context.Context, tx *firestore.Transaction) error, opts ...firestore.TransactionOption) error {
	return db.Tx(context.WithValue(ctx, onlyWritesKey{}, true), what, fn, opts...)
}

// Map turns the client's error into this package's words. Errors that already
// have a code pass through.
func Map(err error) error {
	if err == nil {
		return nil
	}
	var coded *apierr.Error
	if errors.As(err, &coded) {
		return err
	}
	switch code := status.Code(err); {
	case errors.Is(err, context.DeadlineExceeded), code == codes.DeadlineExceeded:
		return apierr.Down(err)
	case code == codes.Canceled:
		return fmt.Errorf("%w: %w", context.Canceled, err)
	// Only the words tell it from a value that is refused for good; the code is the same.
	case code == codes.InvalidArgument && strings.Contains(err.Error(), "referenced transaction"):
		return apierr.Down(fmt.Errorf("%w: %w", ErrUncertain, err))
	case code == codes.InvalidArgument:
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case code == codes.NotFound:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case code == codes.AlreadyExists:
		return fmt.Errorf("%w: %w", ErrExists, err)
	case code == codes.FailedPrecondition:
		return fmt.Errorf("%w: %w", ErrStale, err)
	case code == codes.Aborted:
		return contended(err)
	case code == codes.Unavailable, code == codes.ResourceExhausted, code == codes.Internal:
		return apierr.Down(err)
	}
	return err
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
		var d D
		if err := snap.DataTo(&d); err != nil {
			return out, fmt.Errorf("document %s/%s cannot be read: %w", snap.Ref.Parent.ID, snap.Ref.ID, err)
		}
		return of(snap, &d), nil
	}
}

// As reads a document as it is.
func As[D any](snap Snap) (D, error) {
	return Reader(func(_ Snap, d *D) D { return *d })(snap)
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
// error is what kept us from putting it off; then it is still at the head.
func (db *DB) SetAside(ctx context.Context, b Broken, path string, now time.Time) error {
	later := []firestore.Update{{Path: path, Value: now.Add(aside)}}
	return IgnoreMoved(db.Update(ctx, "set aside", b.Ref, later, firestore.LastUpdateTime(b.UpdateTime)))
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

// EraseAll removes all documents that a query finds, a page at a time.
func (db *DB) EraseAll(ctx context.Context, what string, q firestore.Query, page int) error {
	for {
		if n, err := db.ErasePage(ctx, what, q, page); err != nil || n < page {
			return err
		}
	}
}

// Create writes one document, which must not be there yet.
func (db *DB) Create(ctx context.Context, what string, ref Ref, doc any) error {
	return db.Do(ctx, what, func(ctx context.Context) error {
		_, err := ref.Create(ctx, doc)
		return err
	})
}

// Update writes fields of one document, which must be there.
func (db *DB) Update(ctx context.Context, what string, ref Ref, updates []firestore.Update, when ...firestore.Precondition) error {
	return db.Do(ctx, what, func(ctx context.Context) error {
		_, err := ref.Update(ctx, updates, when...)
		return err
	})
}

// DeleteAll deletes documents in one commit. That one is not there is no error.
func (db *DB) DeleteAll(ctx context.Context, what string, refs ...*firestore.DocumentRef) error {
	if len(refs) == 0 {
		return nil
	}
	return db.Commit(ctx, what, func(_ context.Context, tx *firestore.Transaction) error {
		for _, ref := range refs {
			if err := tx.Delete(ref); err != nil {
				return err
			}
		}
		return nil
	})
}

// Find lists what a query finds, without its fields.
func (db *DB) Find(ctx context.Context, what string, q firestore.Query) (refs []*firestore.DocumentRef, err error) {
	err = db.Do(ctx, what, func(ctx context.Context) error {
		snaps, err := q.Select().Documents(ctx).GetAll()
		refs = refs[:0]
		for _, snap := range snaps {
			refs = append(refs, snap.Ref)
		}
		return err
	})
	return refs, err
}

// IDs is [DB.Find] for the ids alone.
func (db *DB) IDs(ctx context.Context, what string, q firestore.Query) ([]string, error) {
	found, err := db.Find(ctx, what, q)
	ids := make([]string, len(found))
	for i, ref := range found {
		ids[i] = ref.ID
	}
	return ids, err
}
