package store

import (
	"context"
	"log/slog"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// listed contains the fields that lists and searches need.
var listed = []string{
	"accountId", "seq", "domainId", "host", "slug", "url", "location", "title", "expiresAt", "clicks", "createdAt",
	"takedown", "tags", "externalId", "archived", "importedClicks", "usedUp",
	// The rules are omitted, because they may be large and lists only show whether there are any.
	"routing.ruled", "routing.type", "routing.query", "routing.path", "routing.startsAt", "routing.expired", "routing.password", "routing.maxClicks",
}

const (
	// maxSearched limits the links that one search reads.
	maxSearched = 2000
	// searchMore is the number of links that a search reads at a time once its terms have found
	// links that do not match.
	searchMore = 100
)

// List implements [link.Store]. It reads one more link than limit, to find out whether more follow.
func (s *Store) List(ctx context.Context, want link.Query) (page []*link.Link, more bool, err error) {
	if want.ExternalID != "" {
		return s.byExternalID(ctx, want)
	}
	page, rest := make([]*link.Link, 0, want.Limit+1), want.Rest()
	var broken error // the error for an omitted link
	for read, size := 0, want.Limit+1; read < maxSearched; size = max(want.Limit+1-len(page), searchMore) {
		found, err := s.page(ctx, want, size)
		if err != nil {
			return nil, false, err
		}
		for _, l := range found {
			switch {
			case l.Broken != nil && !want.Broken:
				broken = l.Broken
			case rest.Matches(l):
				page = append(page, l)
			}
		}
		if len(page) > want.Limit {
			return page[:want.Limit], true, unlisted(ctx, page, broken)
		}
		if len(found) < size {
			return page, false, unlisted(ctx, page, broken)
		}
		want.Before, read = found[len(found)-1].Seq, read+len(found)
	}
	// The search has reached its limit. It can be continued only from a page that contains links.
	return page, len(page) > 0, unlisted(ctx, page, broken)
}

// unlisted logs that unreadable links are omitted. If every link on a page is omitted, unlisted
// returns an error because an empty page must not look like the end of the list.
func unlisted(ctx context.Context, page []*link.Link, broken error) error {
	if broken == nil || len(page) == 0 {
		return broken
	}
	slog.ErrorContext(ctx, "cannot read some links; omitting them from the list", "account", page[0].AccountID, "error", broken)
	return nil
}

// page reads links that have all of a query's terms.
func (s *Store) page(ctx context.Context, want link.Query, size int) ([]*link.Link, error) {
	low, high := link.IDsBelow(want.AccountID, want.Before)
	q := s.withTerms(low, high, want.Terms()...).Limit(size)
	if !want.Whole {
		q = q.Select(listed...)
	}
	return firestoredb.List(ctx, s.db.DB, "list links", q, readBroken)
}

// withTerms returns the query for the links between two IDs that have all the terms, newest first.
// It does not need a composite index. A range of document names contains one account's links in
// list order ([link.ID]), and Firestore merges the indexes on the terms.
func (s *Store) withTerms(low, high string, terms ...string) firestore.Query {
	q := s.db.Collection("links").Where(firestore.DocumentID, ">", s.linkRef(low)).
		Where(firestore.DocumentID, "<", s.linkRef(high)).OrderBy(firestore.DocumentID, firestore.Asc)
	for _, term := range terms {
		q = q.WherePath(firestore.FieldPath{"w", term}, "==", true)
	}
	return q
}

// anyLink returns a query for any one of the account's links that has a term.
func (s *Store) anyLink(accountID, term string) firestore.Query {
	low, high := link.IDsBelow(accountID, link.Top)
	return s.withTerms(low, high, term).Select("seq").Limit(1)
}

// Count implements [link.Store].
func (s *Store) Count(ctx context.Context, accountID string) (int, error) {
	n, err := s.db.Count(ctx, "count links", s.db.Collection("links").Where("accountId", "==", accountID))
	return int(n), err
}
