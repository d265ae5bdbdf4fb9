// Package firestoredb is the services' only access to Firestore.
//
// Every call has a deadline. While Firestore is down, a breaker refuses calls immediately, so
// callers do not wait for their deadlines. Calls return this package's errors: [ErrNotFound],
// [ErrExists], [ErrStale], [ErrContended], or an apierr UNAVAILABLE. The package does not hide the
// client library: stores use cloud.google.com/go/firestore to build documents and queries.
//
// Contention between writers to one document is not an outage. A transaction that loses waits for
// the account's transactions that lost earlier, and then retries until it times out. If it still
// loses, it returns [ErrContended]. The number of in-flight calls per account is limited.
package firestoredb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/libs/turns"
)

// Errors that calls return.
var (
	ErrNotFound = errors.New("no such document")
	ErrExists   = errors.New("document already exists")
	ErrStale    = errors.New("document has changed since it was read")
	// ErrInvalid means that the database will never accept this request because a value, a name or
	// the size is invalid.
	ErrInvalid = errors.New("request is permanently rejected")

	// ErrUncertain is wrapped together with an UNAVAILABLE if a commit was repeated because its
	// response was lost, and the server no longer recognises the transaction. In that case, the
	// first attempt was probably committed. ErrUncertain is wrapped together with an ErrExists if
	// the repeated commit finds documents that the first attempt may have created.
	ErrUncertain = errors.New("outcome of the commit is unknown")

	// ErrContended is wrapped together with a RATE_LIMITED if the call timed out because other
	// writers to the same documents kept winning. None of the attempts were committed. If an
	// attempt may have been committed, the call returns a plain UNAVAILABLE instead.
	ErrContended = errors.New("lost to other writers to the same documents")
)

// DB is an open database.
type DB struct {
	*firestore.Client
	timeout time.Duration
	known   atomic.Bool // the database has this build's format; see [DB.Identity]
	breaker *outage.Breaker
	// outages counts how many times the breaker has opened.
	outages atomic.Uint64
	calls   *turns.Queue // limits each account's in-flight calls
	turns   *turns.Queue // runs each account's lost transactions one by one
}

// share is the maximum number of in-flight calls per account. A connection to Firestore allows a
// hundred.
const share = 32

type (
	// Snap is a document that was read.
	Snap = *firestore.DocumentSnapshot
	// Ref names a document. A nil Ref does not name a document, so reading it finds nothing.
	Ref = *firestore.DocumentRef
)

// Broken is a document that exists but cannot be decoded.
type Broken struct {
	Snap
	Err error
}

// Do runs fn, which makes one or more calls, with the database's timeout and maps its error. what
// names the action for the log, such as "get link".
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

// inLine runs do when ctx's account gets its turn. Work without an account runs immediately. A
// nested call also runs immediately because otherwise it would wait for the call that contains it.
func inLine(ctx context.Context, q *turns.Queue, do func() error) error {
	p := identity.FromContext(ctx)
	if p == nil || ctx.Value(heardKey{}) != nil {
		return do()
	}
	if err := ctx.Err(); err != nil {
		return Map(err) // the caller's deadline passed before this call
	}
	release, err := q.Enter(ctx, p.AccountID)
	if errors.Is(err, context.DeadlineExceeded) {
		return contended(err) // only calls from the same account were ahead in the queue
	}
	if err != nil {
		return err
	}
	defer release()
	return do()
}

// Tx runs fn as a transaction. fn may run several times, so it must read, decide and write in that
// order, and must not have other effects. It must wrap errors with %w, so Tx can detect that an
// attempt was aborted.
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

// Commit is [DB.Tx] for an fn that only writes. It makes one call to the database; a transaction
// needs another call to begin. If the response is lost, the commit is sent again, so its writes
// must be idempotent or have a precondition that fails the second time.
func (db *DB) Commit(ctx context.Context, what string, fn func(ctx context.Context, tx *firestore.Transaction) error, opts ...firestore.TransactionOption) error {
	return db.Tx(context.WithValue(ctx, onlyWritesKey{}, true), what, fn, opts...)
}

// Map converts an error from the client library into one of this package's errors. It returns
// errors that already have an apierr code unchanged.
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
	// The error for an invalid value has the same code and differs only in its text.
	case code == codes.InvalidArgument && strings.Contains(err.Error(), "referenced transaction"):
		return apierr.Down(fmt.Errorf("%w: %w", ErrUncertain, err))
	case code == codes.InvalidArgument:
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case code == codes.NotFound:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case code == codes.AlreadyExists:
		return fmt.Errorf("%w: %w", ErrExists, err)
	// A query has no precondition on a document, so this means a missing index. The text names the
	// index to deploy.
	case code == codes.FailedPrecondition && strings.Contains(err.Error(), "requires an index"):
		return err
	case code == codes.FailedPrecondition:
		return fmt.Errorf("%w: %w", ErrStale, err)
	case code == codes.Aborted:
		return contended(err)
	case code == codes.Unavailable, code == codes.ResourceExhausted, code == codes.Internal:
		return apierr.Down(err)
	}
	return err
}

// Ref returns the reference to a document. The id may be untrusted: Ref returns nil if it is
// malformed; see [identity.ValidID].
func (db *DB) Ref(collection, id string) Ref {
	if !identity.ValidID(id) {
		return nil
	}
	return db.Collection(collection).Doc(id)
}

// Reader returns a function that decodes a document of type D and converts it to a record with of.
func Reader[D, T any](of func(snap Snap, d *D) T) func(Snap) (T, error) {
	return func(snap Snap) (out T, err error) {
		var d D
		if err := snap.DataTo(&d); err != nil {
			return out, fmt.Errorf("document %s/%s cannot be read: %w", snap.Ref.Parent.ID, snap.Ref.ID, err)
		}
		return of(snap, &d), nil
	}
}

// As decodes a document into D.
func As[D any](snap Snap) (D, error) {
	return Reader(func(_ Snap, d *D) D { return *d })(snap)
}

// Get reads one document. The error is ErrNotFound if the document does not exist.
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

// Lookup is like [Get], but if the document does not exist, it returns found = false instead of an
// error.
func Lookup[T any](ctx context.Context, db *DB, what string, ref Ref, read func(Snap) (T, error)) (out T, found bool, err error) {
	out, err = Get(ctx, db, what, ref, read)
	if errors.Is(err, ErrNotFound) {
		return out, false, nil
	}
	return out, err == nil, err
}

// Exists reports whether a document exists.
func (db *DB) Exists(ctx context.Context, what string, ref Ref) (bool, error) {
	_, found, err := Lookup(ctx, db, what, ref, func(snap Snap) (Snap, error) { return snap, nil })
	return found, err
}

// Read reads documents in one call. It skips nil refs and documents that do not exist.
func (db *DB) Read(ctx context.Context, what string, refs ...Ref) (snaps []Snap, err error) {
	err = db.Do(ctx, what, func(ctx context.Context) error {
		snaps, err = db.GetAll(ctx, slices.DeleteFunc(slices.Clone(refs), func(ref Ref) bool { return ref == nil }))
		snaps = slices.DeleteFunc(snaps, func(snap Snap) bool { return !snap.Exists() })
		return err
	})
	return snaps, err
}

// Query returns the documents that match a query.
func (db *DB) Query(ctx context.Context, what string, q firestore.Query) (snaps []Snap, err error) {
	err = db.Do(ctx, what, func(ctx context.Context) error {
		snaps, err = q.Documents(ctx).GetAll()
		return err
	})
	return snaps, err
}

// List decodes the documents that match a query. It fails if any document cannot be decoded.
func List[T any](ctx context.Context, db *DB, what string, q firestore.Query, read func(Snap) (T, error)) ([]T, error) {
	snaps, err := db.Query(ctx, what, q)
	if err != nil {
		return nil, err
	}
	return ReadAll(snaps, read)
}

// Page returns a page of the documents that match a query, sorted by the createdAt field, newest
// first. It reports whether there are more. It logs and skips documents that cannot be decoded.
func Page[T any](
	ctx context.Context, db *DB, what string, q firestore.Query, p paging.Page, read func(Snap) (T, error),
) (page []T, more bool, err error) {
	q = q.OrderBy("createdAt", firestore.Desc).OrderBy(firestore.DocumentID, firestore.Desc).Limit(p.Limit + 1)
	if p.After.ID != "" {
		if !identity.ValidID(p.After.ID) { // valid cursors never contain such an id
			return nil, false, nil
		}
		q = q.StartAfter(p.After.At, p.After.ID)
	}
	for {
		snaps, err := db.Query(ctx, what, q)
		if err != nil {
			return nil, false, err
		}
		more = len(snaps) > p.Limit
		snaps = snaps[:min(len(snaps), p.Limit)]
		page, broken := Sift(snaps, read)
		if len(broken) > 0 {
			slog.ErrorContext(ctx, "cannot decode some records; omitting them from the list", "what", what, "records", len(broken), "error", broken[0].Err)
		}
		if !more || len(page) > 0 {
			return page, more, nil
		}
		// None of the records on this page can be decoded, so continue with the next documents. A
		// page needs at least one record because its last record becomes the cursor for the next
		// page.
		q = q.StartAfter(snaps[len(snaps)-1])
	}
}

// ReadAll decodes documents. It fails if any document cannot be decoded.
func ReadAll[T any](snaps []Snap, read func(Snap) (T, error)) ([]T, error) {
	out, broken := Sift(snaps, read)
	if len(broken) > 0 {
		return nil, broken[0].Err
	}
	return out, nil
}

// Sift decodes documents. It returns the documents that cannot be decoded in broken.
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

// aside is how long a document that cannot be decoded is postponed.
const aside = time.Hour

// SetAside postpones a document that cannot be decoded, by setting the time at path to an hour from
// now. Queues are read in order of that time, so the document would otherwise stay first and block
// the documents after it. A newer release may be able to decode it. If SetAside returns an error,
// the document is still first.
func (db *DB) SetAside(ctx context.Context, b Broken, path string, now time.Time) error {
	later := []firestore.Update{{Path: path, Value: now.Add(aside)}}
	return IgnoreMoved(db.Update(ctx, "set aside", b.Ref, later, firestore.LastUpdateTime(b.UpdateTime)))
}

// IgnoreMoved returns nil if a write failed because its document was changed or deleted after it
// was read. It is for writes that any other write makes unnecessary.
func IgnoreMoved(err error) error {
	if errors.Is(err, ErrStale) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Count returns the number of documents that match a query.
func (db *DB) Count(ctx context.Context, what string, q firestore.Query) (n int64, err error) {
	err = db.Do(ctx, what, func(ctx context.Context) error {
		found, err := q.NewAggregationQuery().WithCount("n").Get(ctx)
		n = Number(found, "n")
		return err
	})
	return n, err
}

// Number returns an aggregation result as an integer. Firestore returns large sums as floats.
func Number(found firestore.AggregationResult, name string) int64 {
	v, _ := found[name].(*firestorepb.Value)
	return v.GetIntegerValue() + int64(v.GetDoubleValue())
}

// ErasePage deletes up to limit documents that match a query, without reading their fields, and
// returns how many it deleted. If that is less than limit, there are no more.
func (db *DB) ErasePage(ctx context.Context, what string, q firestore.Query, limit int) (n int, err error) {
	found, err := db.Find(ctx, what, q.Limit(limit))
	if err != nil {
		return 0, err
	}
	return len(found), db.DeleteAll(ctx, what, found...)
}

// EraseAll deletes all documents that match a query, a page at a time.
func (db *DB) EraseAll(ctx context.Context, what string, q firestore.Query, page int) error {
	for {
		if n, err := db.ErasePage(ctx, what, q, page); err != nil || n < page {
			return err
		}
	}
}

// Create writes one document, which must not exist yet.
func (db *DB) Create(ctx context.Context, what string, ref Ref, doc any) error {
	return db.Do(ctx, what, func(ctx context.Context) error {
		_, err := ref.Create(ctx, doc)
		return err
	})
}

// Update writes fields in one document, which must exist.
func (db *DB) Update(ctx context.Context, what string, ref Ref, updates []firestore.Update, when ...firestore.Precondition) error {
	return db.Do(ctx, what, func(ctx context.Context) error {
		_, err := ref.Update(ctx, updates, when...)
		return err
	})
}

// DeleteAll deletes documents in one commit. Documents that do not exist are ignored.
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

// Find returns the documents that match a query, without their fields.
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

// IDs is like [DB.Find] but returns only the ids.
func (db *DB) IDs(ctx context.Context, what string, q firestore.Query) ([]string, error) {
	found, err := db.Find(ctx, what, q)
	ids := make([]string, len(found))
	for i, ref := range found {
		ids[i] = ref.ID
	}
	return ids, err
}
