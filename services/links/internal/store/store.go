// Package store keeps links and domains in Firestore.
//
// A link has two documents that are always written together. The owner lists, searches and edits
// links/{id}. A redirect needs only slugs/{domain|folded slug}, so redirecting an uncached link
// takes one read. A slug document is created only if it does not exist yet, which keeps slugs
// unique.
//
// Identifiers are derived from the request. A link's ID consists of its account and its position in
// the account's list (seq), and the document stores the nonce from the request that created it.
// This makes seq unique within an account without a counter that every create would have to change.
// It also lets a repeated request recognise its own link and succeed.
package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Store is safe for concurrent use.
type Store struct {
	Lookups
	db      *record.DB
	shown   Shown
	labels  *tags.Store
	domains *record.Kept[customdomain.Domain]

	// Records contains every kind of account record except links. It is used to export and erase
	// accounts.
	Records *record.Set
}

// Shown converts records to their API format, for events.
type Shown struct {
	Link   func(*link.Link) any
	Domain func(*customdomain.Domain) any
}

// New returns a store that uses a database of records.
func New(db *record.DB, shown Shown) *Store {
	s := &Store{
		Lookups: Lookups{db.DB}, db: db, shown: shown, labels: tags.New(db.DB, tags.Links, db.Now),
		domains: record.Keep(db, domainKind(shown.Domain)),
	}
	// During an erasure, [customdomain.Service] first deletes domains with their hosts. Traces then
	// removes the account's remaining certificate records.
	s.Records = db.Set(s.domains, record.Traces{DB: db, Collection: "certificates"}, record.Traces{DB: db, Collection: placesCollection})
	return s
}

// linkDoc is the document links/{id}. Most links have few of these fields, and every stored field
// makes reading a link slower, so empty fields are not stored.
type linkDoc struct {
	AccountID string    `firestore:"accountId"`
	Seq       int64     `firestore:"seq"`
	Nonce     string    `firestore:"nonce"`
	DomainID  string    `firestore:"domainId,omitempty"`
	Host      string    `firestore:"host,omitempty"`
	Slug      string    `firestore:"slug"`
	URL       string    `firestore:"url"`
	Location  string    `firestore:"location"`
	Title     string    `firestore:"title,omitempty"`
	OG        *ogDoc    `firestore:"og,omitempty"`
	ExpiresAt *int64    `firestore:"expiresAt,omitempty"` // ms; can be later than a Firestore timestamp
	Clicks    int64     `firestore:"clicks,omitempty"`    // written only by the click flusher
	UsedUp    bool      `firestore:"usedUp,omitempty"`    // see places.go
	CreatedAt time.Time `firestore:"createdAt"`
	UpdatedAt time.Time `firestore:"updatedAt"`
	Rev       int64     `firestore:"rev"`

	Tags       []string `firestore:"tags,omitempty"`
	ExternalID string   `firestore:"externalId,omitempty"`
	Archived   bool     `firestore:"archived,omitempty"`
	// ImportedClicks is set only for imported links.
	ImportedClicks *int64 `firestore:"importedClicks,omitempty"`

	Routing *routingDoc `firestore:"routing,omitempty"`

	Takedown *takedownDoc `firestore:"takedown,omitempty"`
}

// foundLinkDoc is a linkDoc with the link's search terms as map keys. Firestore indexes each
// key. A search for several terms merges their indexes in the order of document names, which is
// also the order of the list. Code that reads links omits the terms.
type foundLinkDoc struct {
	linkDoc
	Terms map[string]bool `firestore:"w"`
}

type ogDoc struct {
	Title         *string `firestore:"title,omitempty"`
	Description   *string `firestore:"description,omitempty"`
	Image         *string `firestore:"image,omitempty"`
	ImageLocation *string `firestore:"imageLocation,omitempty"`
}

// slugDoc is the document slugs/{domain|folded}. If ReleasedUntil is set, the slug's link was
// deleted. Until that time, only the link's account may use the slug again. After that, any account
// may use it, and Firestore's TTL removes the document.
type slugDoc struct {
	LinkID        string    `firestore:"linkId,omitempty"`
	AccountID     string    `firestore:"accountId"`
	Slug          string    `firestore:"slug,omitempty"`
	Location      string    `firestore:"location,omitempty"`
	OG            *ogDoc    `firestore:"og,omitempty"`
	ExpiresAt     *int64    `firestore:"expiresAt,omitempty"`
	ReleasedUntil time.Time `firestore:"releasedUntil,omitzero"`
	Formerly      string    `firestore:"formerly,omitempty"`
	UsedUp        bool      `firestore:"usedUp,omitempty"`

	Routing *routingDoc `firestore:"routing,omitempty"`
	// Takedown is stored with the link and with its slug. Redirects read only the slug, and a slug
	// that is used again after a delete is still taken down.
	Takedown *takedownDoc `firestore:"takedown,omitempty"`
}

// takedownDoc has the same fields as [link.Takedown], so Go can convert one to the other.
type takedownDoc struct {
	ID     string    `firestore:"id"`
	Reason string    `firestore:"reason"`
	At     time.Time `firestore:"at"`
}

func slugRecordOf(_ firestoredb.Snap, d *slugDoc) *link.SlugRecord {
	return &link.SlugRecord{
		AccountID: d.AccountID, LinkID: d.LinkID, ReleasedUntil: d.ReleasedUntil, Formerly: d.Formerly,
		Takedown: (*link.Takedown)(d.Takedown),
	}
}

func releasedDocOf(r *link.SlugRecord) *slugDoc {
	return &slugDoc{
		AccountID: r.AccountID, ReleasedUntil: r.ReleasedUntil, Formerly: r.Formerly,
		Takedown: (*takedownDoc)(r.Takedown),
	}
}

func (r Lookups) slugRef(key string) firestoredb.Ref {
	if key[0] == '|' {
		key = "default" + key
	}
	return r.DB.Collection("slugs").Doc(key)
}

// slugKeyOf returns the key that [Lookups.slugRef] derived ref from.
func slugKeyOf(ref firestoredb.Ref) string {
	if rest, ok := strings.CutPrefix(ref.ID, "default|"); ok {
		return "|" + rest
	}
	return ref.ID
}

func (s *Store) linkRef(id string) firestoredb.Ref { return s.db.Collection("links").Doc(id) }

var (
	readLink = firestoredb.Reader(linkOf)
	readSlug = firestoredb.Reader(slugRecordOf)
)

// Link implements [link.Store].
func (s *Store) Link(ctx context.Context, id string) (*link.Link, error) {
	l, err := firestoredb.Get(ctx, s.db.DB, "get link", s.db.Ref("links", id), readLink)
	if errors.Is(err, firestoredb.ErrNotFound) {
		err = link.NotFound()
	}
	return l, err
}

// Slug implements [link.Store].
func (s *Store) Slug(ctx context.Context, key string) (*link.SlugRecord, error) {
	r, _, err := firestoredb.Lookup(ctx, s.db.DB, "read slug", s.slugRef(key), readSlug)
	return r, err
}

func linkOf(snap firestoredb.Snap, d *linkDoc) *link.Link {
	l := &link.Link{
		ID: snap.Ref.ID, Nonce: d.Nonce, AccountID: d.AccountID, Seq: d.Seq,
		DomainID: d.DomainID, Host: d.Host, Slug: link.Slug(d.Slug),
		Destination: link.URL{Given: d.URL, Location: d.Location}, Title: d.Title,
		Clicks: d.Clicks, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt, Rev: d.Rev, Takedown: (*link.Takedown)(d.Takedown),
		Tags: d.Tags, ExternalID: d.ExternalID, Archived: d.Archived, ImportedClicks: d.ImportedClicks,
		UsedUp: d.UsedUp,
	}
	if d.ExpiresAt != nil {
		l.Expiry = link.At(*d.ExpiresAt)
	}
	if d.Routing != nil {
		l.Routing = routingOf(d.Routing)
	}
	if d.OG != nil {
		l.OpenGraph.Title, l.OpenGraph.Description = d.OG.Title, d.OG.Description
		if d.OG.Image != nil {
			l.OpenGraph.Image = &link.URL{Given: *d.OG.Image, Location: text(d.OG.ImageLocation)}
		}
	}
	return l
}

// readBroken reads a link. For an unreadable link, it returns the readable fields. It never fails.
func readBroken(snap firestoredb.Snap) (*link.Link, error) {
	l, err := readLink(snap)
	if err == nil {
		return l, nil
	}
	field := func(path string) string {
		v, _ := snap.DataAt(path)
		s, _ := v.(string)
		return s
	}
	return &link.Link{
		ID: snap.Ref.ID, Seq: link.Place(snap.Ref.ID), Broken: err, AccountID: field("accountId"),
		DomainID: field("domainId"), Slug: link.Slug(field("slug")), ExternalID: field("externalId"),
	}, nil
}

func linkDocOf(l *link.Link) *linkDoc {
	d := &linkDoc{
		AccountID: l.AccountID, Seq: l.Seq, Nonce: l.Nonce, DomainID: l.DomainID, Host: l.Host, Slug: string(l.Slug),
		URL: l.Destination.Given, Location: l.Destination.Location, Title: l.Title,
		Clicks: l.Clicks, CreatedAt: l.CreatedAt, UpdatedAt: l.UpdatedAt, Rev: l.Rev, Takedown: (*takedownDoc)(l.Takedown),
		Tags: l.Tags, ExternalID: l.ExternalID, Archived: l.Archived, ImportedClicks: l.ImportedClicks,
		UsedUp: l.UsedUp,
	}
	if l.Expiry.Set {
		d.ExpiresAt = &l.Expiry.MS
	}
	if l.Routing != nil {
		d.Routing = routingDocOf(l.Routing)
	}
	if p := l.OpenGraph; p != (link.OpenGraph{}) {
		d.OG = &ogDoc{Title: p.Title, Description: p.Description}
		if p.Image != nil {
			d.OG.Image, d.OG.ImageLocation = &p.Image.Given, &p.Image.Location
		}
	}
	return d
}

// slugDocOf returns a link's slug document.
func slugDocOf(id string, d *linkDoc) *slugDoc {
	slug := &slugDoc{
		LinkID: id, AccountID: d.AccountID, Slug: d.Slug, Location: d.Location, OG: d.OG, ExpiresAt: d.ExpiresAt, Takedown: d.Takedown,
		UsedUp: d.UsedUp,
	}
	if d.Routing != nil {
		slug.Routing = d.Routing.forSlug(d.Nonce)
	}
	return slug
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
