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

// listed are the fields that a list shows.
var listed = []string{"accountId", "seq", "domainId", "host", "slug", "url", "title", "expiresAt", "clicks", "createdAt", "takedown", "tags", "externalId", "archived", "importedClicks"}

// List implements [link.Store]. One more than limit is read to know whether more
// follow.
func (s *Store) List(ctx context.Context, want link.Query) (page []*link.Link, more bool, err error) {
	switch {
	case want.ExternalID != "":
		return s.byExternalID(ctx, want)
	case len(want.Terms()) > 0:
		return s.search(ctx, want)
	}
	q := s.db.Collection("links").Where("accountId", "==", want.AccountID).OrderBy("seq", firestore.Desc).Limit(want.Limit + 1)
	if !want.Whole {
		q = q.Select(listed...)
	}
	if want.Before != link.Top {
		q = q.Where("seq", "<", want.Before)
	}
	err = s.db.Do(ctx, "list links", func(ctx context.Context) error {
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		page = make([]*link.Link, 0, len(snaps))
		for _, snap := range snaps {
			l, err := linkOf(snap)
			if err != nil {
				return fmt.Errorf("read link %s: %w", snap.Ref.ID, err)
			}
			page = append(page, l)
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	if len(page) > want.Limit {
		return page[:want.Limit], true, nil
	}
	return page, false, nil
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
