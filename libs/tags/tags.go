// Package tags stores which tags an account uses, so the tags can be listed without reading every
// link and video.
//
// There is one document per account, kind of record and tag. It is written when the tag is added to
// the first record, and marked when the tag is removed from a record. This way, no single document
// is written by every change in an account. A marked tag is checked later and deleted if it is no
// longer on any record. The document is read and marked in the transaction that changes the record,
// so the list always includes the tags on all records.
package tags

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/label"
	"github.com/linkreel/linkreel/libs/search"
)

// Collection contains the tags.
const Collection = "tags"

// Kind is a kind of record. Links and videos share the list of tags, but each service only knows
// about the tags on its own records.
type Kind string

// The kinds of records that have tags.
const (
	Links  Kind = "link"
	Videos Kind = "video"
)

// document is tags/{account~kind~hash of the tag's key}.
type document struct {
	AccountID string `firestore:"accountId"`
	Kind      Kind   `firestore:"kind"`
	Key       string `firestore:"key"`  // the same for all spellings of the tag
	Name      string `firestore:"name"` // the first spelling
	// Sort is the key for alphabetical sorting, which ignores case and accents.
	Sort string `firestore:"sort"`
	// CheckAt is set when the tag is removed from a record. The times are spread over hours, so
	// that the values in their index do not keep increasing.
	CheckAt time.Time `firestore:"checkAt,omitzero"`
}

// Store stores the tags on one kind of record. It is safe for concurrent use.
type Store struct {
	db   *firestoredb.DB
	kind Kind
	now  func() time.Time
}

// New returns the store for one kind of record.
func New(db *firestoredb.DB, kind Kind, now func() time.Time) *Store { return &Store{db, kind, now} }

func (s *Store) ref(accountID, key string) *firestore.DocumentRef {
	sum := sha256.Sum256([]byte(key)) // a key may be too long for a document's name, or contain a slash
	return s.db.Collection(Collection).Doc(accountID + "~" + string(s.kind) + "~" + hex.EncodeToString(sum[:16]))
}

const (
	// settle is the minimum time that a tag is kept after it is removed from a record. spread is
	// the time over which the checks are distributed. An unused tag is deleted within a day.
	settle = time.Hour
	spread = 18 * time.Hour
)

// Change reads the documents for the tags that were added to or removed from the account's records.
// Call it with tx's other reads, and the returned function with its writes.
func (s *Store) Change(tx *firestore.Transaction, accountID string, got, lost []string) (write func() error, err error) {
	type change struct {
		name string
		got  bool
	}
	changes := map[string]change{}
	for _, name := range lost {
		changes[label.Key(name)] = change{name, false}
	}
	// Do this after the removed tags: a tag that was removed from one record and added to another
	// is still in use.
	for _, name := range got {
		changes[label.Key(name)] = change{name, true}
	}
	if len(changes) == 0 {
		return func() error { return nil }, nil
	}
	var keys []string
	var refs []*firestore.DocumentRef
	for key := range changes {
		keys = append(keys, key)
		refs = append(refs, s.ref(accountID, key))
	}
	snaps, err := tx.GetAll(refs)
	if err != nil {
		return nil, err
	}
	var writes []func() error
	for i, snap := range snaps {
		c := changes[keys[i]]
		var d document
		if snap.Exists() {
			if err := snap.DataTo(&d); err != nil {
				return nil, err
			}
		}
		switch {
		case c.got && !snap.Exists():
			writes = append(writes, func() error {
				return tx.Set(refs[i], &document{AccountID: accountID, Kind: s.kind, Key: keys[i], Name: c.name, Sort: sortKey(c.name)})
			})
		// Mark a tag at most once between checks, so removing a tag from a thousand records causes
		// only one write.
		case !c.got && snap.Exists() && d.CheckAt.IsZero():
			at := s.now().Add(settle + rand.N(spread))
			writes = append(writes, func() error {
				return tx.Update(refs[i], []firestore.Update{{Path: "checkAt", Value: at}})
			})
		}
	}
	return func() error {
		for _, w := range writes {
			if err := w(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func sortKey(name string) string { return search.Fold(name) + "\x00" + label.Key(name) }

// scanMost is the maximum number of documents that one List reads.
const scanMost = 2000

// List returns up to limit of the account's tags after a cursor ("" is the start), in alphabetical
// order, for all kinds of records. Each word in q must be a prefix of a word in the tag. next is
// the cursor for the rest, or "" at the end.
func (s *Store) List(ctx context.Context, accountID, q, after string, limit int) (page []string, next string, err error) {
	query := search.Words(q)
	for read := 0; ; {
		docs, err := s.page(ctx, accountID, after, 2*(limit+1))
		if err != nil {
			return nil, "", err
		}
		for _, d := range docs {
			if d.Sort == after {
				continue // the same tag on another kind of record
			}
			if len(page) == limit {
				return page, after, nil
			}
			after = d.Sort
			if search.Begin(search.Words(d.Name), query) {
				page = append(page, d.Name)
			}
		}
		if len(docs) < 2*(limit+1) {
			return page, "", nil
		}
		if read += len(docs); read >= scanMost {
			return page, after, nil
		}
	}
}

func (s *Store) page(ctx context.Context, accountID, after string, limit int) ([]document, error) {
	q := s.db.Collection(Collection).Where("accountId", "==", accountID).OrderBy("sort", firestore.Asc).Limit(limit)
	if after != "" {
		q = q.Where("sort", ">", after)
	}
	return firestoredb.List(ctx, s.db, "list tags", q, firestoredb.As[document])
}

// Carried reports, within a transaction, whether a record in the account has the tag
// with this key.
type Carried func(ctx context.Context, tx *firestore.Transaction, accountID, key string) (bool, error)

const sweepPage = 100

// SweepEvery is the time between checks of marked tags.
const SweepEvery = 15 * time.Minute

// Sweep checks the marked tags that are due, and deletes those that are no longer on any record.
func (s *Store) Sweep(ctx context.Context, carried Carried) error {
	var last *firestore.DocumentSnapshot
	for {
		q := s.db.Collection(Collection).Where("kind", "==", string(s.kind)).Where("checkAt", "<=", s.now()).
			OrderBy("checkAt", firestore.Asc).Limit(sweepPage)
		if last != nil {
			q = q.StartAfter(last)
		}
		snaps, err := s.db.Query(ctx, "list due tags", q)
		if err != nil {
			return err
		}
		for _, snap := range snaps {
			// Continue after a failure so that one tag does not block the others.
			if err := s.sweep(ctx, snap.Ref, carried); err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "cannot check whether a tag is still in use; the next sweep retries", "tag", snap.Ref.ID, "error", err)
			}
			last = snap
		}
		if len(snaps) < sweepPage {
			return nil
		}
	}
}

func (s *Store) sweep(ctx context.Context, ref *firestore.DocumentRef, carried Carried) error {
	return s.db.Tx(ctx, "check tag", func(ctx context.Context, tx *firestore.Transaction) error {
		snaps, err := tx.GetAll([]*firestore.DocumentRef{ref})
		if err != nil || !snaps[0].Exists() {
			return err
		}
		d, err := firestoredb.As[document](snaps[0])
		if err != nil {
			return err
		}
		used, err := carried(ctx, tx, d.AccountID, d.Key)
		if err != nil {
			return err
		}
		if used {
			return tx.Update(ref, []firestore.Update{{Path: "checkAt", Value: firestore.Delete}})
		}
		// A change that adds the tag to a record at the same time has read this document, so one of
		// the two transactions is retried.
		return tx.Delete(ref)
	})
}

// Forget deletes all tags on an account's records of this kind.
func (s *Store) Forget(ctx context.Context, accountID string) error {
	mine := s.db.Collection(Collection).Where("accountId", "==", accountID).Where("kind", "==", string(s.kind))
	return s.db.EraseAll(ctx, "forget tags", mine, 300)
}
