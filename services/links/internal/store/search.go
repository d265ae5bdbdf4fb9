package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

// searchDoc is linkSearch/{account~place}: the terms of one link, as members of a
// map. Firestore indexes each member and merges the indexes of several, sorted by
// the document's name. The name counts down with the link's place, so that order
// is that of the list: newest first.
type searchDoc struct {
	Link string          `firestore:"link"`
	Rev  int64           `firestore:"rev"` // of the link that the terms are of
	W    map[string]bool `firestore:"w"`
}

// lastSeq is the greatest cursor that a caller can name.
const lastSeq = 1<<53 - 1

func (s *Store) searchRef(accountID string, seq int64) *firestore.DocumentRef {
	return s.db.Collection("linkSearch").Doc(fmt.Sprintf("%s~%014x", accountID, lastSeq-seq))
}

// externalDoc is linkExternalIds/{account~hash}, which makes external ids unique.
type externalDoc struct {
	Link string `firestore:"link"`
}

func (s *Store) externalRef(accountID, id string) *firestore.DocumentRef {
	sum := sha256.Sum256([]byte(id)) // an external id may hold a slash
	return s.db.Collection("linkExternalIds").Doc(accountID + "~" + hex.EncodeToString(sum[:16]))
}

// ExternalIDs implements [link.Tx].
func (t *tx) ExternalIDs(accountID string, ids ...string) ([]string, error) {
	refs := make([]*firestore.DocumentRef, len(ids))
	for i, id := range ids {
		refs[i] = t.s.externalRef(accountID, id)
	}
	snaps, err := t.read(refs...)
	if err != nil {
		return nil, err
	}
	owners := make([]string, len(ids))
	for i, snap := range snaps {
		var d externalDoc
		if snap.Exists() {
			if err := snap.DataTo(&d); err != nil {
				return nil, err
			}
		}
		owners[i] = d.Link
	}
	return owners, nil
}

// Tags implements [link.Tx].
func (t *tx) Tags(accountID string, got, lost []string) error {
	write, err := t.s.labels.Change(t.ft, accountID, got, lost)
	if err == nil {
		t.late = append(t.late, write)
	}
	return err
}

// Index implements [link.Tx].
func (t *tx) Index(l *link.Link) error {
	d := searchDoc{Link: l.ID, Rev: l.Rev, W: map[string]bool{}}
	for _, term := range l.Terms() {
		d.W[term] = true
	}
	return t.ft.Set(t.s.searchRef(l.AccountID, l.Seq), &d)
}

// label keeps the records by which a link is found in step with it.
func (t *tx) label(before, after *link.Link) error {
	if before != nil && before.ExternalID != "" && (after == nil || after.ExternalID != before.ExternalID) {
		if err := t.ft.Delete(t.s.externalRef(before.AccountID, before.ExternalID)); err != nil {
			return err
		}
	}
	if after == nil {
		return t.ft.Delete(t.s.searchRef(before.AccountID, before.Seq))
	}
	if after.ExternalID != "" && (before == nil || before.ExternalID != after.ExternalID) {
		if err := t.ft.Set(t.s.externalRef(after.AccountID, after.ExternalID), &externalDoc{after.ID}); err != nil {
			return err
		}
	}
	return t.Index(after)
}

// maxSearched bounds the documents that one search reads.
const maxSearched = 2000

// search lists the links that a query with filters asks for.
func (s *Store) search(ctx context.Context, want link.Query) (page []*link.Link, more bool, err error) {
	terms := want.Terms()
	after := s.db.Collection("linkSearch").Doc(want.AccountID + "~")
	if want.Before != link.Top {
		after = s.searchRef(want.AccountID, want.Before)
	}
	for read := 0; read < maxSearched; {
		need := want.Limit + 1 - len(page) // one more than asked for tells whether more follow
		ids, last, err := s.searchPage(ctx, want.AccountID, after, terms, need)
		if err != nil {
			return nil, false, err
		}
		links, err := s.links(ctx, ids)
		if err != nil {
			return nil, false, err
		}
		for _, l := range links {
			// The terms have decided nearly everything. What is left are words longer than
			// a term, and links that changed since the index was read.
			if l != nil && want.Matches(l) {
				page = append(page, l)
			}
		}
		if len(page) > want.Limit {
			return page[:want.Limit], true, nil
		}
		if len(ids) < need {
			return page, false, nil
		}
		// Each hit costs two documents: its entry in the index and the link itself.
		after, read = last, read+2*len(ids)
	}
	// The bound is reached. Only a page with links has a place from which to continue.
	return page, len(page) > 0, nil
}

func (s *Store) searchPage(ctx context.Context, accountID string, after *firestore.DocumentRef, terms []string, limit int) (ids []string, last *firestore.DocumentRef, err error) {
	// Ids begin with the account and count down from the newest, so a range of ids is
	// one account's links, newest first, without an index of rising values. Firestore
	// joins the equalities by the fields' own indexes.
	docs := s.db.Collection("linkSearch")
	q := docs.Where(firestore.DocumentID, ">", after).Where(firestore.DocumentID, "<", docs.Doc(accountID+"~~")).
		OrderBy(firestore.DocumentID, firestore.Asc).Select("link").Limit(limit)
	for _, term := range terms {
		q = q.WherePath(firestore.FieldPath{"w", term}, "==", true)
	}
	err = s.db.Do(ctx, "search links", func(ctx context.Context) error {
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		ids = ids[:0]
		for _, snap := range snaps {
			var d searchDoc
			if err := snap.DataTo(&d); err != nil {
				return err
			}
			ids, last = append(ids, d.Link), snap.Ref
		}
		return nil
	})
	return ids, last, err
}

// links reads links in one call; nil for those that are not there.
func (s *Store) links(ctx context.Context, ids []string) (out []*link.Link, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	refs := make([]*firestore.DocumentRef, len(ids))
	for i, id := range ids {
		refs[i] = s.linkRef(id)
	}
	err = s.db.Do(ctx, "get links", func(ctx context.Context) error {
		snaps, err := s.db.GetAll(ctx, refs)
		if err != nil {
			return err
		}
		out = make([]*link.Link, len(snaps))
		for i, snap := range snaps {
			if !snap.Exists() {
				continue
			}
			if out[i], err = linkOf(snap); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// byExternalID finds the one link that a query with an external id can ask for.
func (s *Store) byExternalID(ctx context.Context, want link.Query) (page []*link.Link, more bool, err error) {
	var d externalDoc
	found, err := s.get(ctx, "find external id", s.externalRef(want.AccountID, want.ExternalID), &d)
	if err != nil || !found {
		return nil, false, err
	}
	links, err := s.links(ctx, []string{d.Link})
	if err != nil || links[0] == nil || !want.Matches(links[0]) {
		return nil, false, err
	}
	return links, false, nil
}

// Tags implements [link.Store].
func (s *Store) Tags(ctx context.Context, accountID, q, after string, limit int) ([]link.Tag, string, error) {
	found, next, err := s.labels.List(ctx, accountID, q, after, limit)
	out := make([]link.Tag, len(found))
	for i, t := range found {
		out[i] = link.Tag{Name: t.Name, Cursor: t.Cursor}
	}
	return out, next, err
}

// SweepTags removes tags that no link carries any more, until ctx ends.
func (s *Store) SweepTags(ctx context.Context) error { return s.labels.Sweep(ctx, s.carried) }

// carried is [tags.Carried].
func (s *Store) carried(_ context.Context, ft *firestore.Transaction, accountID, key string) (bool, error) {
	docs := s.db.Collection("linkSearch")
	q := docs.Where(firestore.DocumentID, ">", docs.Doc(accountID+"~")).Where(firestore.DocumentID, "<", docs.Doc(accountID+"~~")).
		OrderBy(firestore.DocumentID, firestore.Asc).WherePath(firestore.FieldPath{"w", "t" + key}, "==", true).Select("link").Limit(1)
	found, err := ft.Documents(q).GetAll()
	return len(found) > 0, err
}

// backfillDoc is backfills/linkSearch.
type backfillDoc struct {
	Pass   int       `firestore:"pass"`
	Cursor string    `firestore:"cursor"`
	Next   time.Time `firestore:"next"`
	Owner  string    `firestore:"owner"`
	Until  time.Time `firestore:"until"` // of the owner's turn
}

func (s *Store) backfillRef() *firestore.DocumentRef {
	return s.db.Collection("backfills").Doc("linkSearch")
}

// ClaimBackfill implements [link.Store].
func (s *Store) ClaimBackfill(ctx context.Context, owner string, lease time.Duration) (p link.Backfilled, mine bool, err error) {
	err = s.atomically(ctx, s.db.Tx, "claim back-fill", func(t *tx) error {
		var d backfillDoc
		if _, err := t.load(s.backfillRef(), &d); err != nil {
			return err
		}
		p = link.Backfilled{Pass: d.Pass, Cursor: d.Cursor, Next: d.Next}
		now := s.now()
		mine = d.Owner == owner || !now.Before(d.Until)
		// A claim is only written when there is work, not once in five seconds.
		if !mine || p.Done() || now.Before(p.Next) {
			return nil
		}
		d.Owner, d.Until = owner, now.Add(lease)
		return t.ft.Set(s.backfillRef(), &d)
	})
	return p, mine, err
}

// SaveBackfill implements [link.Store].
func (s *Store) SaveBackfill(ctx context.Context, owner string, p link.Backfilled) error {
	return s.atomically(ctx, s.db.Tx, "note back-fill", func(t *tx) error {
		var d backfillDoc
		if _, err := t.load(s.backfillRef(), &d); err != nil || d.Owner != owner {
			return err // another replica took over; what was written stays written
		}
		return t.ft.Set(s.backfillRef(), &backfillDoc{Pass: p.Pass, Cursor: p.Cursor, Next: p.Next, Owner: owner, Until: s.now()})
	})
}

// Stale implements [link.Store].
func (s *Store) Stale(ctx context.Context, after string, limit int) (ids []string, last string, err error) {
	err = s.db.Do(ctx, "list links to index", func(ctx context.Context) error {
		q := s.db.Collection("links").OrderBy(firestore.DocumentID, firestore.Asc).Select("accountId", "seq", "rev").Limit(limit)
		if after != "" {
			q = q.StartAfter(after)
		}
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		ids, last = ids[:0], ""
		if len(snaps) == limit {
			last = snaps[limit-1].Ref.ID
		}
		var links []string
		var revs []int64
		var refs []*firestore.DocumentRef
		for _, snap := range snaps {
			var d linkDoc
			if err := snap.DataTo(&d); err != nil {
				slog.ErrorContext(ctx, "a link cannot be read; it is passed over", "link", snap.Ref.ID, "error", err)
				continue
			}
			links, revs, refs = append(links, snap.Ref.ID), append(revs, d.Rev), append(refs, s.searchRef(d.AccountID, d.Seq))
		}
		if len(refs) == 0 {
			return nil
		}
		indexed, err := s.db.GetAll(ctx, refs)
		if err != nil {
			return err
		}
		for i, snap := range indexed {
			var d searchDoc
			// An entry that cannot be read is written anew like one that is missing.
			if !snap.Exists() || snap.DataTo(&d) != nil || d.Link == "" || d.Rev != revs[i] {
				ids = append(ids, links[i])
			}
		}
		return nil
	})
	return ids, last, err
}
