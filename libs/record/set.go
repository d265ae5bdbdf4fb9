package record

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/quota"
)

// Set contains all kinds of data that a service stores for accounts. Erasure and export both use
// it, so neither can miss a kind in the set.
type Set struct {
	db    *DB
	kinds []kind
}

// kind is a [Kept] or a [Traces].
type kind interface {
	of(account string) firestore.Query
	erase(ctx context.Context, account string, limit int) (n int, err error)
	export(ctx context.Context, account string, line func(object string, data any) error) error
	addIndexes(f *indexFile, decided map[string]bool)
	// forget deletes an account's remaining data, apart from its records.
	forget(ctx context.Context, account string) error
}

// Traces are documents that are not records. Their accountId field identifies their account, and
// they are erased with it.
type Traces struct {
	DB         *DB
	Collection string
	// For Erase, see [Kind].
	Erase func(ctx context.Context, account string, limit int) (n int, err error)
}

// Set contains a service's kinds, in the order in which they are exported and erased.
func (db *DB) Set(kinds ...kind) *Set { return &Set{db, kinds} }

// Erase deletes up to limit of an account's records of each kind, and reports whether there are
// more. It may be interrupted at any point: the next call resumes.
func (s *Set) Erase(ctx context.Context, account string, limit int) (more bool, err error) {
	for _, k := range s.kinds {
		n, err := k.erase(ctx, account, limit)
		if err != nil {
			return true, err
		}
		if n >= limit {
			more = true
			continue
		}
		// Do this only after the last page, because remaining records still have tags and still use
		// slots.
		if err := k.forget(ctx, account); err != nil {
			return true, err
		}
	}
	return more, nil
}

// Remains reports whether the service still has an account's data.
func (s *Set) Remains(ctx context.Context, account string) (bool, error) {
	for _, k := range s.kinds {
		found, err := s.db.Find(ctx, "check for remaining data", k.of(account).Limit(1))
		if err != nil || len(found) > 0 {
			return true, err
		}
	}
	return false, nil
}

// page is how many records an export reads at a time.
const page = 100

// line is a line in an export.
type line struct {
	Type string `json:"type"`
	Data any    `json:"data"`
}

// unreadable is the line for a record that cannot be decoded.
type unreadable struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// Export writes an account's records as JSON Lines, a page at a time. The records may change in the
// meantime. If a record cannot be decoded, the export lists only its id and continues.
func (s *Set) Export(ctx context.Context, account string, w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for _, k := range s.kinds {
		err := k.export(ctx, account, func(object string, data any) error { return out.Encode(line{object, data}) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (k *Kept[T]) of(account string) firestore.Query { return k.Of(account) }

func (k *Kept[T]) erase(ctx context.Context, account string, limit int) (int, error) {
	if k.k.Erase != nil {
		return k.k.Erase(ctx, account, limit)
	}
	return k.db.ErasePage(ctx, "erase "+k.k.Collection, k.Of(account), limit)
}

func (k *Kept[T]) forget(ctx context.Context, account string) error {
	if k.k.Labels != nil {
		if err := k.k.Labels.Store.Forget(ctx, account); err != nil {
			return err
		}
	}
	if k.k.Limit == nil {
		return nil
	}
	return quota.Forget(ctx, k.db.DB, account)
}

func (k *Kept[T]) export(ctx context.Context, account string, line func(object string, data any) error) error {
	if k.k.Shown == nil {
		return nil
	}
	q := k.Of(account).OrderBy(firestore.DocumentID, firestore.Asc).Limit(page)
	for next := q; ; {
		snaps, err := k.db.Query(ctx, "export "+k.k.Collection, next)
		if err != nil {
			return err
		}
		records, broken := firestoredb.Sift(snaps, k.k.From)
		for _, r := range records {
			if err := line(k.k.Object, k.k.Shown(r)); err != nil {
				return err
			}
		}
		for _, b := range broken {
			slog.ErrorContext(ctx, "cannot decode a record for an export; only its id is listed", "error", b.Err)
			if err := line("unreadable", unreadable{k.k.Object, b.Ref.ID}); err != nil {
				return err
			}
		}
		if len(snaps) < page {
			return nil
		}
		next = q.StartAfter(snaps[page-1].Ref.ID)
	}
}

func (t Traces) of(account string) firestore.Query {
	return t.DB.Collection(t.Collection).Where("accountId", "==", account)
}

func (t Traces) erase(ctx context.Context, account string, limit int) (int, error) {
	if t.Erase != nil {
		return t.Erase(ctx, account, limit)
	}
	return t.DB.ErasePage(ctx, "erase "+t.Collection, t.of(account), limit)
}

func (Traces) forget(context.Context, string) error { return nil }

func (Traces) export(context.Context, string, func(string, any) error) error { return nil }
