package store

import (
	"context"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// placesCollection contains the [link.Places] of each link, by link ID. They are separate documents
// because visits to a busy link take slots constantly, while the flusher writes the link's document
// and every replica reads the slug's.
const placesCollection = "clickPlaces"

type placesDoc struct {
	AccountID string     `firestore:"accountId"` // needed to erase an account
	Key       string     `firestore:"key"`
	Max       int64      `firestore:"max"`
	Used      int64      `firestore:"used"`
	Settled   bool       `firestore:"settled"`
	Recent    []grantDoc `firestore:"recent,omitempty"`
}

type grantDoc struct {
	ID string `firestore:"id"`
	N  int64  `firestore:"n"`
}

func (s *Store) placesRef(linkID string) firestoredb.Ref {
	return s.db.Collection(placesCollection).Doc(linkID)
}

func placesOf(_ firestoredb.Snap, d *placesDoc) *link.Places {
	p := &link.Places{Key: d.Key, Max: d.Max, Used: d.Used, Settled: d.Settled}
	for _, g := range d.Recent {
		p.Recent = append(p.Recent, link.Grant(g))
	}
	return p
}

var readPlaces = firestoredb.Reader(placesOf)

func placesDocOf(accountID string, p *link.Places) *placesDoc {
	d := &placesDoc{AccountID: accountID, Key: p.Key, Max: p.Max, Used: p.Used, Settled: p.Settled}
	for _, g := range p.Recent {
		d.Recent = append(d.Recent, grantDoc(g))
	}
	return d
}

// Places implements [link.Tx].
func (t *tx) Places(linkID string) (*link.Places, error) { return t.s.placesIn(t.Tx, linkID) }

// placesIn returns a link's slots, or nil if the link has no limit.
func (s *Store) placesIn(t *record.Tx, linkID string) (*link.Places, error) {
	snaps, err := t.GetAll(s.placesRef(linkID))
	if err != nil || snaps[0] == nil {
		return nil, err
	}
	return readPlaces(snaps[0])
}

// putPlaces creates, changes or removes a link's slots if its limit has changed. before is nil for
// a new link. An edit never writes the number of used slots.
func (t *tx) putPlaces(before, l *link.Link) {
	var was int64
	if before != nil {
		was = before.Limit()
	}
	ref := t.s.placesRef(l.ID)
	switch limit := l.Limit(); {
	case limit == was:
	case limit == 0:
		t.Delete(ref)
	case was == 0:
		t.Set(ref, placesDocOf(l.AccountID, link.NewPlaces(before, l)))
	default:
		t.Update(ref, firestore.Update{Path: "max", Value: limit})
	}
}

// Take implements [places.Store].
func (s *Store) Take(ctx context.Context, linkID string, ask link.Ask) (granted int64, left link.Places, err error) {
	err = s.changePlaces(ctx, "take places", linkID, func(_ *record.Tx, p *link.Places) (changed bool, err error) {
		granted = 0
		if p.Settled {
			granted, changed = p.Take(ask)
		}
		left = *p
		return changed, nil
	})
	return granted, left, err
}

// Settle implements [places.Store].
func (s *Store) Settle(ctx context.Context, linkID string) error {
	return s.changePlaces(ctx, "settle places", linkID, func(t *record.Tx, p *link.Places) (bool, error) {
		var l linkDoc
		found, err := t.Load(s.linkRef(linkID), &l)
		if err != nil || !found || p.Settled {
			return false, err
		}
		p.Settle(l.Clicks)
		return true, nil
	})
}

// changePlaces changes a link's slots. When all of them are used, the same commit records this in
// the link and in its slug. Replicas read the slug, so later visits do not need a write.
func (s *Store) changePlaces(
	ctx context.Context, what, linkID string, change func(*record.Tx, *link.Places) (changed bool, err error),
) error {
	return s.db.Tx(ctx, what, func(t *record.Tx) error {
		p, err := s.placesIn(t, linkID)
		if err != nil {
			return err
		}
		if p == nil {
			return link.ErrNoLimit
		}
		full := p.Full()
		if changed, err := change(t, p); err != nil || !changed {
			return err
		}
		d := placesDocOf("", p)
		t.Update(s.placesRef(linkID), firestore.Update{Path: "used", Value: d.Used}, firestore.Update{Path: "settled", Value: d.Settled},
			firestore.Update{Path: "recent", Value: d.Recent})
		if p.Full() == full {
			return nil
		}
		used := firestore.Update{Path: "usedUp", Value: p.Full()}
		t.Update(s.linkRef(linkID), used)
		t.Update(s.slugRef(p.Key), used)
		if full { // slots were returned, but replicas have cached that there are none left
			t.Announce(p.Key)
		}
		return nil
	})
}
