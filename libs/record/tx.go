package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/tags"
)

// Options contains what changes depend on besides the database.
type Options struct {
	// Outbox receives the events. If it is nil, a change with an event fails.
	Outbox *outbox.Outbox
	// Announce tells every replica that its cached values under some keys are stale. It returns
	// once all replicas know.
	Announce func(ctx context.Context, keys ...string)
	// Now returns the time; nil means the system clock.
	Now func() time.Time
}

// DB is the database of records. It is safe for concurrent use.
type DB struct {
	*firestoredb.DB
	o         Options
	quotas    *quota.Gate
	authority func(ctx context.Context, account string, version int64)
}

// Open returns a database of records in an open Firestore database.
func Open(db *firestoredb.DB, o Options) *DB {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &DB{DB: db, o: o, quotas: quota.New(db, o.Now)}
}

// TellAuthority sets the function that tells every replica that an account's rights have changed.
// Call it once, before any change. It is not one of [Options], because the function may itself need
// a store in this database. If it is not set, changing rights panics, because replicas would not
// learn about the change.
func (db *DB) TellAuthority(tell func(ctx context.Context, account string, version int64)) {
	db.authority = tell
}

// Now returns the current time; see [Options].
func (db *DB) Now() time.Time { return db.o.Now() }

// Tx makes one atomic change: it commits only if nothing that fn has read has changed. fn may run
// several times, and must have no effects except through tx. A change without writes succeeds
// without a commit.
func (db *DB) Tx(ctx context.Context, what string, fn func(tx *Tx) error) error {
	return db.run(ctx, true, what, fn)
}

// Commit is like [DB.Tx] for an fn without reads, but makes only one call to the database. If the
// response is lost, the commit is sent again, and it may find that its own documents already exist.
func (db *DB) Commit(ctx context.Context, what string, fn func(tx *Tx) error) error {
	return db.run(ctx, false, what, fn)
}

// Receipt is a document that a change adds to its commit for a request that may be retried. The
// repeated request then fails because the receipt exists.
type Receipt interface {
	// Write adds the receipt to a change's commit. changed contains the keys that the change
	// will announce.
	Write(tx *firestore.Transaction, changed []string) error
	// Found looks for the receipt after a change's commit has failed with err. If this change wrote
	// the receipt, Found returns nil. If there is no receipt, it returns err. If the change can be
	// retried, it returns [ErrAgain]. Otherwise it returns an error to use instead of err. changed
	// contains the keys that the earlier change had to announce.
	Found(ctx context.Context, err error) (changed []string, _ error)
}

type receiptKey struct{}

// WithReceipt returns a copy of ctx that makes changes write a receipt.
func WithReceipt(ctx context.Context, r Receipt) context.Context {
	return context.WithValue(ctx, receiptKey{}, r)
}

// ErrAgain means that the change failed because of a receipt that no longer exists.
var ErrAgain = errors.New("the change must be repeated")

// errNothing ends a transaction without writes. An empty commit would be an unnecessary call that
// can fail.
var errNothing = errors.New("no writes")

func (db *DB) run(ctx context.Context, reads bool, what string, fn func(tx *Tx) error) error {
	tx, commit := &Tx{}, db.DB.Commit
	if reads {
		commit = db.DB.Tx
	}
	try := func() error {
		var made firestore.CommitResponse
		err := commit(ctx, what, func(ctx context.Context, ft *firestore.Transaction) error {
			// This attempt replaces the previous one. Only its claim on quota slots is kept.
			tx = &Tx{db: db, ctx: ctx, ft: ft, reads: reads, claim: tx.claim}
			if tx.claim != nil {
				tx.claim.Retry()
			}
			if err := fn(tx); err != nil {
				return err
			}
			return tx.flush()
		}, firestore.WithCommitResponseTo(&made))
		if err == nil {
			tx.at = made.CommitTime()
		}
		return err
	}
	defer func() {
		if tx.claim != nil {
			tx.claim.Leave()
		}
	}()
	err := try()
	if tx.claim != nil {
		err = tx.claim.Settle(ctx, err, try)
	}
	nothing := errors.Is(err, errNothing)
	if nothing {
		err = nil
	}
	if receipt, ok := ctx.Value(receiptKey{}).(Receipt); ok && (nothing || refused(err)) {
		var changed []string
		changed, err = receipt.Found(ctx, err)
		tx.keys = append(tx.keys, changed...)
	}
	if errors.Is(err, ErrAgain) {
		return db.run(ctx, reads, what, fn)
	}
	// If the response to a commit was lost, the commit may have succeeded. Announcing a change that
	// did not happen costs a reload. Not announcing a change that did happen leaves replicas stale.
	if err != nil && apierr.CodeOf(err).Status() < 500 {
		return err
	}
	if len(tx.keys) > 0 && db.o.Announce != nil {
		db.o.Announce(ctx, tx.keys...)
	}
	for _, a := range tx.authorities {
		db.authority(ctx, a.account, a.version)
	}
	if err == nil {
		for _, e := range tx.told {
			db.o.Outbox.Wake(e.AccountID)
		}
	}
	return err
}

// refused reports whether the change definitely had no effect.
func refused(err error) bool {
	return err != nil && (errors.Is(err, firestoredb.ErrExists) || apierr.CodeOf(err).Status() < 500)
}

// Tx is one atomic change. It collects the writes and makes them at the end because Firestore does
// not allow reads after writes. Therefore, a read never returns a write from the same transaction.
// Do not use a Tx after its function has returned.
type Tx struct {
	db    *DB
	ctx   context.Context // safe to store because a Tx ends before the call that ctx belongs to
	ft    *firestore.Transaction
	reads bool         // false in a [DB.Commit]
	claim *quota.Claim // nil until the change needs a limit
	asked bool         // Room was called
	at    time.Time    // see At

	writes      []func(*firestore.Transaction) error
	told        []events.Event
	keys        []string
	authorities []authority
}

// authority is an account whose rights have changed, with its new version.
type authority struct {
	account string
	version int64
}

func (tx *Tx) flush() error {
	if len(tx.writes) == 0 && len(tx.told) == 0 {
		return errNothing
	}
	for _, write := range tx.writes {
		if err := write(tx.ft); err != nil {
			return err
		}
	}
	if len(tx.told) > 0 {
		if err := tx.db.o.Outbox.Put(tx.ctx, tx.ft, tx.told...); err != nil {
			return err
		}
	}
	if receipt, ok := tx.ctx.Value(receiptKey{}).(Receipt); ok {
		if err := receipt.Write(tx.ft, tx.keys); err != nil {
			return err
		}
	}
	if tx.claim == nil {
		return nil
	}
	return tx.claim.Take(tx.ft)
}

// At returns a finished change's time by the database's clock: the time of its commit, or of
// its last read if it had no writes. The times order the changes to a record, even across
// processes. The time is zero if the change had neither reads nor writes, or had already been made.
func (tx *Tx) At() time.Time { return tx.at }

func (tx *Tx) saw(snaps []firestoredb.Snap) {
	for _, snap := range snaps {
		if snap.ReadTime.After(tx.at) {
			tx.at = snap.ReadTime
		}
	}
}

// Watch prepares for a limit on a sum; see [quota.Claim.Watch]. Call Grow afterwards if
// the change adds to the sum.
func (tx *Tx) Watch(l quota.Limit) error { return tx.claimed().Watch(tx.ft, l) }

func (tx *Tx) claimed() *quota.Claim {
	if tx.claim == nil {
		tx.claim = tx.db.quotas.Claim(tx.ctx)
	}
	return tx.claim
}

// Grow records that the change adds to the sum that Watch was called for.
func (tx *Tx) Grow() error {
	if tx.claim == nil {
		return nil // Watch was not called, so there is no limit
	}
	return tx.claim.Grow()
}

// Context returns the transaction's context.
func (tx *Tx) Context() context.Context { return tx.ctx }

// GetAll reads documents in one call. For nil refs and missing documents the result is nil.
func (tx *Tx) GetAll(refs ...firestoredb.Ref) ([]firestoredb.Snap, error) {
	out := make([]firestoredb.Snap, len(refs))
	var valid []firestoredb.Ref
	var places []int
	for i, ref := range refs {
		if ref != nil {
			valid, places = append(valid, ref), append(places, i)
		}
	}
	if len(valid) == 0 {
		return out, nil
	}
	snaps, err := tx.ft.GetAll(valid)
	if err != nil {
		return nil, err
	}
	tx.saw(snaps)
	for i, snap := range snaps {
		if snap.Exists() {
			out[places[i]] = snap
		}
	}
	return out, nil
}

// Query returns the documents that match a query.
func (tx *Tx) Query(q firestore.Query) ([]firestoredb.Snap, error) {
	snaps, err := tx.ft.Documents(q).GetAll()
	tx.saw(snaps)
	return snaps, err
}

// Load reads one document into dst. found is false if it does not exist.
func (tx *Tx) Load(ref firestoredb.Ref, dst any) (found bool, err error) {
	snaps, err := tx.GetAll(ref)
	if err != nil || snaps[0] == nil {
		return false, err
	}
	if err := snaps[0].DataTo(dst); err != nil {
		return true, fmt.Errorf("read %s: %w", ref.Path, err)
	}
	return true, nil
}

// Create writes a document that must not exist yet.
func (tx *Tx) Create(ref firestoredb.Ref, doc any) {
	tx.writes = append(tx.writes, func(ft *firestore.Transaction) error { return ft.Create(ref, doc) })
}

// Set writes a document, whether or not it exists.
func (tx *Tx) Set(ref firestoredb.Ref, doc any, opts ...firestore.SetOption) {
	tx.writes = append(tx.writes, func(ft *firestore.Transaction) error { return ft.Set(ref, doc, opts...) })
}

// Update writes fields in a document, which must exist.
func (tx *Tx) Update(ref firestoredb.Ref, updates ...firestore.Update) {
	tx.writes = append(tx.writes, func(ft *firestore.Transaction) error { return ft.Update(ref, updates) })
}

// Delete deletes a document, if it exists.
func (tx *Tx) Delete(ref firestoredb.Ref) {
	tx.writes = append(tx.writes, func(ft *firestore.Transaction) error { return ft.Delete(ref) })
}

// Room returns how many of the wanted slots the change gets. The commit takes them. The result is
// less than want only if the account is full. Call it once per transaction. In a [DB.Commit], the
// error may be [quota.ErrAsk]; in that case, use a [DB.Tx]. fn must return any other error
// unchanged because a change that must wait for a slot is retried.
func (tx *Tx) Room(l quota.Limit, want int64) (int64, error) {
	if tx.asked {
		return 0, errors.New("a transaction calls Room twice")
	}
	if tx.asked = true; !tx.reads {
		return tx.claimed().Room(tx.ctx, nil, l, want)
	}
	return tx.claimed().Room(tx.ctx, tx.ft, l, want)
}

// Label records which tags were added to and removed from an account's records.
func (tx *Tx) Label(store *tags.Store, account string, got, lost []string) error {
	write, err := store.Change(tx.ft, account, got, lost)
	if err == nil {
		tx.writes = append(tx.writes, func(*firestore.Transaction) error { return write() })
	}
	return err
}

// Tell writes an event in the same commit.
func (tx *Tx) Tell(e events.Event) { tx.told = append(tx.told, e) }

// Announce tells all replicas that their cached values under keys are stale, after the commit and
// before the caller gets a response. It may also be called for a change that was already made,
// because the first attempt at a repeated request may have died before announcing it.
func (tx *Tx) Announce(keys ...string) { tx.keys = append(tx.keys, keys...) }

// Authority tells all replicas that an account's rights have changed, like Announce.
func (tx *Tx) Authority(account string, version int64) {
	tx.authorities = append(tx.authorities, authority{account, version})
}
