package store

import (
	"context"
	"fmt"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Link implements [link.Store].
func (s *Store) Link(ctx context.Context, id string) (*link.Link, error) {
	if !validID(id) {
		return nil, link.NotFound()
	}
	var l *link.Link
	err := s.db.Do(ctx, "get link", func(ctx context.Context) error {
		snaps, err := s.db.GetAll(ctx, []*firestore.DocumentRef{s.linkRef(id)})
		if err != nil {
			return err
		}
		if !snaps[0].Exists() {
			return link.NotFound()
		}
		l, err = linkOf(snaps[0])
		return err
	})
	return l, err
}

// validID keeps a caller's text from becoming a document path. Every id that we
// give has the form that [identity.ValidID] accepts.
func validID(id string) bool { return identity.ValidID(id) }

// listed are the fields that a list shows, and a search looks at.
var listed = []string{
	"accountId", "seq", "domainId", "host", "slug", "url", "location", "title", "expiresAt", "clicks", "createdAt",
	"takedown", "tags", "externalId", "archived", "importedClicks",
}

const (
	// maxSearched bounds the links that one search reads.
	maxSearched = 2000
	// searchMore is how many links a search reads at a time once it has found that its
	// terms find more than it looks for.
	searchMore = 100
)

// List implements [link.Store]. One more than limit is read to know whether more
// follow.
func (s *Store) List(ctx context.Context, want link.Query) (page []*link.Link, more bool, err error) {
	if want.ExternalID != "" {
		return s.byExternalID(ctx, want)
	}
	page, rest := make([]*link.Link, 0, want.Limit+1), want.Rest()
	for read, size := 0, want.Limit+1; read < maxSearched; size = max(want.Limit+1-len(page), searchMore) {
		found, err := s.page(ctx, want, size)
		if err != nil {
			return nil, false, err
		}
		for _, l := range found {
			if rest.Matches(l) {
				page = append(page, l)
			}
		}
		if len(page) > want.Limit {
			return page[:want.Limit], true, nil
		}
		if len(found) < size {
			return page, false, nil
		}
		want.Before, read = found[len(found)-1].Seq, read+len(found)
	}
	// The bound is reached. Only a page with links has a place from which to continue.
	return page, len(page) > 0, nil
}

// page reads links that have all terms of a query.
func (s *Store) page(ctx context.Context, want link.Query, size int) (page []*link.Link, err error) {
	low, high := link.IDsBelow(want.AccountID, want.Before)
	q := s.withTerms(low, high, want.Terms()...).Limit(size)
	if !want.Whole {
		q = q.Select(listed...)
	}
	err = s.db.Do(ctx, "list links", func(ctx context.Context) error {
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		page = make([]*link.Link, len(snaps))
		for i, snap := range snaps {
			if page[i], err = linkOf(snap); err != nil {
				return fmt.Errorf("read link %s: %w", snap.Ref.ID, err)
			}
		}
		return nil
	})
	return page, err
}

// withTerms is the query for links between two ids that have all of some terms,
// newest first. It needs no composite index: a range of names is one account's links in
// the order of its list ([link.ID]), and Firestore joins the equalities by the members'
// own indexes.
func (s *Store) withTerms(low, high string, terms ...string) firestore.Query {
	q := s.db.Collection("links").Where(firestore.DocumentID, ">", s.linkRef(low)).Where(firestore.DocumentID, "<", s.linkRef(high)).
		OrderBy(firestore.DocumentID, firestore.Asc)
	for _, term := range terms {
		q = q.WherePath(firestore.FieldPath{"w", term}, "==", true)
	}
	return q
}

// anyLink reports, within a transaction, whether a link of the account has a term.
func (s *Store) anyLink(ft *firestore.Transaction, accountID, term string) (bool, error) {
	low, high := link.IDsBelow(accountID, link.Top)
	found, err := ft.Documents(s.withTerms(low, high, term).Select("seq").Limit(1)).GetAll()
	return len(found) > 0, err
}

// Count implements [link.Store].
func (s *Store) Count(ctx context.Context, accountID string) (n int, err error) {
	err = s.db.Do(ctx, "count links", func(ctx context.Context) error {
		found, err := count(ctx, s.db.Collection("links").Where("accountId", "==", accountID))
		n = int(found)
		return err
	})
	return n, err
}

// Target reads what a redirect needs of the slug with this [SlugKey]; found is
// false for a slug that never was and for a deleted one.
func (s *Store) Target(ctx context.Context, key string) (t link.Target, found bool, err error) {
	var d slugDoc
	found, err = s.get(ctx, "resolve slug", s.slugRef(key), &d)
	if err != nil || !found || d.ReleasedUntil != nil {
		return link.Target{}, false, err
	}
	return targetOf(&d), true, nil
}
