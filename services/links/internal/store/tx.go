package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Atomically implements [link.Store].
func (s *Store) Atomically(ctx context.Context, what string, fn func(tx link.Tx) error) error {
	err := s.db.Tx(ctx, what, func(rtx *record.Tx) error { return fn(&tx{rtx, s}) })
	if err != nil {
		err = inLinkWords(err)
	}
	return err
}

// Add implements [link.Store]. A repeated commit gets ErrInTheWay because its links already exist.
func (s *Store) Add(ctx context.Context, limit int, links ...*link.Link) error {
	add := func(rtx *record.Tx) error {
		t := &tx{rtx, s}
		if limit > 0 {
			room, err := t.Room(links[0].AccountID, limit, len(links))
			if err == nil && room < len(links) {
				err = link.ErrInTheWay // if the account is full, an earlier attempt may have created these links
			}
			if err != nil {
				return err
			}
		}
		for _, l := range links {
			t.Add(l, false, events.LinkCreated)
		}
		return nil
	}
	err := s.db.Commit(ctx, "create links", add)
	if errors.Is(err, quota.ErrAsk) {
		err = s.db.Tx(ctx, "create links", add)
	}
	if err != nil {
		err = inLinkWords(err)
	}
	return err
}

// inLinkWords converts a database error to one of package link's errors.
func inLinkWords(err error) error {
	switch {
	// This includes unknown outcomes because our own earlier attempt may have created the document.
	case errors.Is(err, firestoredb.ErrExists), errors.Is(err, firestoredb.ErrUncertain):
		return fmt.Errorf("%w: %w", link.ErrInTheWay, err)
	case errors.Is(err, firestoredb.ErrInvalid):
		return fmt.Errorf("%w: %w", link.ErrRefused, err)
	}
	return err
}

// tx implements [link.Tx].
type tx struct {
	*record.Tx
	s *Store
}

// Find implements [link.Tx].
func (t *tx) Find(ids, slugKeys []string) ([]*link.Link, []*link.SlugRecord, error) {
	return t.find(readLink, ids, slugKeys)
}

// FindBroken implements [link.Tx].
func (t *tx) FindBroken(ids []string) ([]*link.Link, error) {
	links, _, err := t.find(readBroken, ids, nil)
	return links, err
}

func (t *tx) find(
	read func(firestoredb.Snap) (*link.Link, error), ids, slugKeys []string,
) ([]*link.Link, []*link.SlugRecord, error) {
	refs := make([]firestoredb.Ref, 0, len(ids)+len(slugKeys))
	for _, id := range ids {
		refs = append(refs, t.s.db.Ref("links", id))
	}
	for _, key := range slugKeys {
		refs = append(refs, t.s.slugRef(key))
	}
	snaps, err := t.GetAll(refs...)
	if err != nil {
		return nil, nil, err
	}
	links, slugs := make([]*link.Link, len(ids)), make([]*link.SlugRecord, len(slugKeys))
	for i, snap := range snaps {
		switch {
		case snap == nil:
		case i < len(ids):
			links[i], err = read(snap)
		default:
			slugs[i-len(ids)], err = readSlug(snap)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return links, slugs, nil
}

// Released implements [link.Tx].
func (t *tx) Released(accountID string, linkIDs ...string) (slugKeys []string, err error) {
	// Skip strings that cannot be IDs. They do not belong to any link.
	valid := slices.DeleteFunc(slices.Clone(linkIDs), func(id string) bool { return !identity.ValidID(id) })
	for ids := range slices.Chunk(valid, 30) { // the maximum for an "in" filter
		snaps, err := t.Query(t.s.db.Collection("slugs").Where("formerly", "in", ids))
		if err != nil {
			return nil, err
		}
		for _, snap := range snaps {
			r, err := readSlug(snap)
			if err != nil {
				return nil, err
			}
			if r.AccountID == accountID {
				slugKeys = append(slugKeys, slugKeyOf(snap.Ref))
			}
		}
	}
	return slugKeys, nil
}

// Room implements [link.Tx].
func (t *tx) Room(accountID string, limit, want int) (int, error) {
	if want == 0 || limit <= 0 {
		return want, nil
	}
	room, err := t.Tx.Room(quota.Limit{Account: accountID, Kind: "links", Max: int64(limit), Count: func(ctx context.Context) (int64, error) {
		n, err := t.s.Count(ctx, accountID)
		return int64(n), err
	}}, int64(want))
	return int(room), err
}

// Tags implements [link.Tx].
func (t *tx) Tags(accountID string, got, lost []string) error {
	return t.Label(t.s.labels, accountID, got, lost)
}

// tell writes the event for a change.
func (t *tx) tell(l *link.Link, what events.Type) {
	if what == events.Quiet {
		return
	}
	shown := l.Shown
	if shown == nil {
		shown = t.s.shown.Link(l)
	}
	t.Tell(events.Event{AccountID: l.AccountID, Type: what, Object: l.ID, Data: shown})
}

// Add implements [link.Tx].
func (t *tx) Add(l *link.Link, over bool, what events.Type) {
	d := linkDocOf(l)
	t.Create(t.s.linkRef(l.ID), &foundLinkDoc{*d, l.Terms()})
	if l.ExternalID != "" {
		t.externalID(nil, l)
	}
	t.tell(l, what)
	if over || l.Foreseeable {
		t.Announce(l.Key())
	}
	// If over is set, replace the record of a deleted link. Otherwise the slug must not exist yet,
	// which keeps slugs unique.
	if slug := slugDocOf(l.ID, d); over {
		t.Set(t.s.slugRef(l.Key()), slug)
	} else {
		t.Create(t.s.slugRef(l.Key()), slug)
	}
	if l.Routing != nil {
		t.putPlaces(nil, l)
	}
}

// Put implements [link.Tx]. It writes only the fields that an edit may change, so it never
// overwrites the clicks, which the flusher may count concurrently.
func (t *tx) Put(before, l *link.Link, what events.Type) {
	d, was := linkDocOf(l), linkDocOf(before)
	updates := []firestore.Update{
		{Path: "url", Value: d.URL}, {Path: "location", Value: d.Location}, {Path: "title", Value: d.Title},
		{Path: "og", Value: d.OG}, {Path: "expiresAt", Value: d.ExpiresAt}, {Path: "routing", Value: d.Routing},
		{Path: "updatedAt", Value: d.UpdatedAt}, {Path: "rev", Value: d.Rev}, {Path: "takedown", Value: d.Takedown},
		{Path: "tags", Value: d.Tags}, {Path: "externalId", Value: d.ExternalID}, {Path: "archived", Value: d.Archived},
	}
	// Most edits leave the search terms as they are, and a link can have up to 1,500 of them.
	if terms := l.Terms(); !maps.Equal(terms, before.Terms()) {
		updates = append(updates, firestore.Update{Path: "w", Value: terms})
	}
	// Visits write usedUp too, so an edit writes it only if it changed the limit.
	if l.UsedUp != before.UsedUp {
		updates = append(updates, firestore.Update{Path: "usedUp", Value: d.UsedUp})
	}
	t.Update(t.s.linkRef(l.ID), updates...)
	if l.Routing != before.Routing { // an edit to the limit creates a new Routing
		t.putPlaces(before, l)
	}
	if l.ExternalID != before.ExternalID {
		t.externalID(before, l)
	}
	t.tell(l, what)
	t.Announce(l.Key())
	// Most edits do not change any data that a redirect needs.
	if slug := slugDocOf(l.ID, d); !reflect.DeepEqual(slug, slugDocOf(l.ID, was)) {
		t.Set(t.s.slugRef(l.Key()), slug)
	}
}

// Remove implements [link.Tx].
func (t *tx) Remove(l *link.Link, slug *link.SlugRecord, what events.Type) {
	t.Delete(t.s.linkRef(l.ID))
	if l.Limit() > 0 || l.Broken != nil {
		t.Delete(t.s.placesRef(l.ID))
	}
	if l.ExternalID != "" {
		t.externalID(l, nil)
	}
	t.tell(l, what)
	t.Announce(l.Key())
	if slug != nil {
		t.PutSlug(l.Key(), slug)
	}
}

// PutSlug implements [link.Tx].
func (t *tx) PutSlug(key string, slug *link.SlugRecord) {
	t.Announce(key)
	t.Set(t.s.slugRef(key), releasedDocOf(slug))
}

// Domain implements [link.Tx].
func (t *tx) Domain(id string) (*customdomain.Domain, error) { return t.s.domain(t.Tx, id) }
