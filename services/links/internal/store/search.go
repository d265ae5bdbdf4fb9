package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// externalDoc is the document linkExternalIds/{account~hash}. It makes external IDs unique.
type externalDoc struct {
	Link string `firestore:"link"`
}

func (s *Store) externalRef(accountID, id string) firestoredb.Ref {
	sum := sha256.Sum256([]byte(id)) // hashed because an external ID may contain a slash
	return s.db.Collection("linkExternalIds").Doc(accountID + "~" + hex.EncodeToString(sum[:16]))
}

// ExternalIDs implements [link.Tx].
func (t *tx) ExternalIDs(accountID string, ids ...string) ([]string, error) {
	refs := make([]firestoredb.Ref, len(ids))
	for i, id := range ids {
		refs[i] = t.s.externalRef(accountID, id)
	}
	snaps, err := t.GetAll(refs...)
	if err != nil {
		return nil, err
	}
	owners := make([]string, len(ids))
	for i, snap := range snaps {
		if snap == nil {
			continue
		}
		d, err := firestoredb.As[externalDoc](snap)
		if err != nil {
			return nil, err
		}
		owners[i] = d.Link
	}
	return owners, nil
}

// externalID updates the records about a link's external ID after the ID has changed.
func (t *tx) externalID(before, after *link.Link) {
	if before != nil && before.ExternalID != "" {
		t.Delete(t.s.externalRef(before.AccountID, before.ExternalID))
	}
	if after != nil && after.ExternalID != "" {
		t.Set(t.s.externalRef(after.AccountID, after.ExternalID), &externalDoc{after.ID})
	}
}

// byExternalID finds the one link that can match a query with an external ID.
func (s *Store) byExternalID(ctx context.Context, want link.Query) (page []*link.Link, more bool, err error) {
	ref := s.externalRef(want.AccountID, want.ExternalID)
	d, found, err := firestoredb.Lookup(ctx, s.db.DB, "find external id", ref, firestoredb.As[externalDoc])
	if err != nil || !found {
		return nil, false, err
	}
	l, err := s.Link(ctx, d.Link)
	switch {
	case apierr.CodeOf(err) == apierr.LinkNotFound, err == nil && !want.Matches(l):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return []*link.Link{l}, false, nil
}

// Tags implements [link.Store].
func (s *Store) Tags(ctx context.Context, accountID, q, after string, limit int) (page []string, next string, err error) {
	return s.labels.List(ctx, accountID, q, after, limit)
}

// SweepTags removes tags that are no longer on any link.
func (s *Store) SweepTags(ctx context.Context) error { return s.labels.Sweep(ctx, s.carried) }

// carried implements [tags.Carried].
func (s *Store) carried(_ context.Context, ft *firestore.Transaction, accountID, key string) (bool, error) {
	found, err := ft.Documents(s.anyLink(accountID, link.TagTerm+key)).GetAll()
	return len(found) > 0, err
}
