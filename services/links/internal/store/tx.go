package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	quota "github.com/linkreel/linkreel/libs/quota/old"
	"github.com/linkreel/linkreel/services/links/internal/certificate"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Atomically implements [link.Store].
func (s *Store) Atomically(ctx context.Context, what string, fn func(tx link.Tx) error) error {
	return inLinkWords(s.atomically(ctx, s.db.Tx, what, func(t *tx) error { return fn(t) }))
}

// Add implements [link.Store]. A commit that is sent again finds its own links in the way.
func (s *Store) Add(ctx context.Context, what string, fn func(tx link.Tx) error) error {
	return inLinkWords(s.atomically(ctx, s.db.Commit, what, func(t *tx) error { return fn(t) }))
}

// inLinkWords gives an error of the database the name that the domain knows.
func inLinkWords(err error) error {
	switch {
	// Also when the outcome is uncertain: what is in the way may be the link of our own first try.
	case errors.Is(err, firestoredb.ErrExists), errors.Is(err, firestoredb.ErrUncertain):
		return fmt.Errorf("%w: %w", link.ErrInTheWay, err)
	case errors.Is(err, firestoredb.ErrInvalid):
		return fmt.Errorf("%w: %w", link.ErrRefused, err)
	}
	return err
}

// Domains is the store of custom domains.
type Domains struct{ *Store }

// Domains keeps the domains beside the links.
func (s *Store) Domains() Domains { return Domains{s} }

// Atomically implements [customdomain.Store].
func (s Domains) Atomically(ctx context.Context, what string, fn func(tx customdomain.Tx) error) error {
	return s.atomically(ctx, s.db.Tx, what, func(t *tx) error { return fn(domainTx{t}) })
}

// runner is [firestoredb.DB.Tx] or [firestoredb.DB.Commit].
type runner func(ctx context.Context, what string, fn func(context.Context, *firestore.Transaction) error, opts ...firestore.TransactionOption) error

func (s *Store) atomically(ctx context.Context, run runner, what string, fn func(t *tx) error) error {
	return run(ctx, what, func(ctx context.Context, ft *firestore.Transaction) error {
		t := &tx{s: s, ctx: ctx, ft: ft}
		if err := fn(t); err != nil {
			return err
		}
		// Last, since Firestore takes no read after a write.
		for _, c := range t.claims {
			if err := c.Take(ft); err != nil {
				return err
			}
		}
		for _, write := range t.late {
			if err := write(); err != nil {
				return err
			}
		}
		if len(t.told) == 0 {
			return nil
		}
		return s.teller.Outbox.Put(ctx, ft, t.told...)
	})
}

// tx is one transaction: [link.Tx], and with domainTx [customdomain.Tx].
type tx struct {
	s      *Store
	ctx    context.Context // a transaction lives within the call that gave its context
	ft     *firestore.Transaction
	claims []quota.Claim  // to be taken when something was added
	late   []func() error // writes that were decided among the reads
	told   []events.Event
	found  map[string]customdomain.Domain // as they were read
	certs  map[string]*certificateDoc     // of hosts whose owner was read
}

// read reads documents in one call.
func (t *tx) read(refs ...*firestore.DocumentRef) ([]*firestore.DocumentSnapshot, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	return t.ft.GetAll(refs)
}

// load reads one document into dst; found is false when it is not there.
func (t *tx) load(ref *firestore.DocumentRef, dst any) (found bool, err error) {
	snaps, err := t.read(ref)
	if err != nil || !snaps[0].Exists() {
		return false, err
	}
	return true, snaps[0].DataTo(dst)
}

// Links implements [link.Tx].
func (t *tx) Links(ids ...string) ([]*link.Link, error) {
	links, _, err := t.Places(ids, nil)
	return links, err
}

// Places implements [link.Tx].
func (t *tx) Places(ids, slugKeys []string) ([]*link.Link, []*link.SlugRecord, error) {
	links, slugs := make([]*link.Link, len(ids)), make([]*link.SlugRecord, len(slugKeys))
	var refs []*firestore.DocumentRef
	var take []func(*firestore.DocumentSnapshot) error
	for i, id := range ids {
		if !validID(id) {
			continue
		}
		refs = append(refs, t.s.linkRef(id))
		take = append(take, func(snap *firestore.DocumentSnapshot) (err error) {
			links[i], err = linkOf(snap)
			return err
		})
	}
	for i, key := range slugKeys {
		refs = append(refs, t.s.slugRef(key))
		take = append(take, func(snap *firestore.DocumentSnapshot) error {
			var d slugDoc
			if err := snap.DataTo(&d); err != nil {
				return err
			}
			slugs[i] = slugRecordOf(&d)
			return nil
		})
	}
	snaps, err := t.read(refs...)
	if err != nil {
		return nil, nil, err
	}
	for i, snap := range snaps {
		if !snap.Exists() {
			continue
		}
		if err := take[i](snap); err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", snap.Ref.Path, err)
		}
	}
	return links, slugs, nil
}

// Released implements [link.Tx].
func (t *tx) Released(accountID string, linkIDs ...string) (slugKeys []string, err error) {
	valid := slices.DeleteFunc(slices.Clone(linkIDs), func(id string) bool { return !validID(id) })
	for ids := range slices.Chunk(valid, 30) { // the most that "in" takes
		snaps, err := t.ft.Documents(t.s.db.Collection("slugs").Where("formerly", "in", ids)).GetAll()
		if err != nil {
			return nil, err
		}
		for _, snap := range snaps {
			var d slugDoc
			if err := snap.DataTo(&d); err != nil {
				return nil, fmt.Errorf("read %s: %w", snap.Ref.Path, err)
			}
			if d.AccountID == accountID {
				slugKeys = append(slugKeys, slugKeyOf(snap.Ref))
			}
		}
	}
	return slugKeys, nil
}

// Room implements [link.Tx]. Links may come fast, so only creates within
// linksMargin of the limit are serialized.
func (t *tx) Room(accountID string, limit, want int) (int, error) {
	if want == 0 {
		return 0, nil
	}
	l := quota.Limit{Account: accountID, Kind: "links", Max: int64(limit), Margin: linksMargin}
	claim, err := t.claim(l, int64(want), "links")
	if err != nil || claim.Room < 0 {
		return want, err
	}
	return int(min(claim.Room, int64(want))), nil
}

// linksMargin is more than the highest default rate lets one account add in half
// a minute: 1,500 requests, if all are bulk requests of 100 links at the price of
// ten requests each, make 15,000 links.
const linksMargin = 20_000

func (t *tx) claim(l quota.Limit, want int64, collection string) (quota.Claim, error) {
	q := t.s.db.Collection(collection).Where("accountId", "==", l.Account)
	claim, err := t.s.quotas.Room(t.ctx, t.ft, l, want, func(ctx context.Context) (int64, error) { return count(ctx, q) })
	if err == nil && claim.Room > 0 {
		t.claims = append(t.claims, claim)
	}
	return claim, err
}

func count(ctx context.Context, q firestore.Query) (int64, error) {
	found, err := q.NewAggregationQuery().WithCount("n").Get(ctx)
	if err != nil {
		return 0, err
	}
	n, ok := found["n"].(*firestorepb.Value)
	if !ok {
		return 0, errors.New("a count without a number")
	}
	return n.GetIntegerValue(), nil
}

// Add implements [link.Tx].
func (t *tx) Add(l *link.Link, over bool) error {
	if err := t.ft.Create(t.s.linkRef(l.ID), foundLinkDocOf(l)); err != nil {
		return err
	}
	if err := t.label(nil, l); err != nil {
		return err
	}
	t.tellLink(events.LinkCreated, l)
	// over replaces what a deleted link left. Every other slug must not exist yet, which is what
	// makes it unique.
	slug := t.s.slugRef(l.Key())
	if over {
		return t.ft.Set(slug, slugDocOf(l))
	}
	return t.ft.Create(slug, slugDocOf(l))
}

// Put implements [link.Tx]. It names the fields that an edit may change, so that
// it never overwrites the clicks, which the flusher counts at the same time.
func (t *tx) Put(before, l *link.Link) error {
	t.tellLink(events.LinkUpdated, l)
	if err := t.label(before, l); err != nil {
		return err
	}
	updates := []firestore.Update{
		{Path: "url", Value: l.Destination.Given}, {Path: "location", Value: l.Destination.Location}, {Path: "title", Value: l.Title},
		{Path: "og", Value: ogOf(l.OpenGraph)}, {Path: "expiresAt", Value: msOf(l.Expiry)},
		{Path: "updatedAt", Value: l.UpdatedAt}, {Path: "rev", Value: l.Rev}, {Path: "takedown", Value: takedownValue(l.Takedown)},
		{Path: "tags", Value: l.Tags}, {Path: "externalId", Value: l.ExternalID}, {Path: "archived", Value: l.Archived},
	}
	if terms := termsOf(l); !maps.Equal(terms, termsOf(before)) {
		updates = append(updates, firestore.Update{Path: "w", Value: terms})
	}
	err := t.ft.Update(t.s.linkRef(l.ID), updates)
	// Most changes are of what a redirect does not need.
	slug := slugDocOf(l)
	if err != nil || reflect.DeepEqual(slug, slugDocOf(before)) {
		return err
	}
	return t.ft.Set(t.s.slugRef(l.Key()), slug)
}

// Remove implements [link.Tx].
func (t *tx) Remove(l *link.Link, slug *link.SlugRecord) error {
	t.tellLink(events.LinkDeleted, l)
	return t.Erase(l, slug)
}

// Erase implements [link.Tx].
func (t *tx) Erase(l *link.Link, slug *link.SlugRecord) error {
	if err := t.label(l, nil); err != nil {
		return err
	}
	if err := t.ft.Delete(t.s.linkRef(l.ID)); err != nil {
		return err
	}
	return t.PutSlug(l.Key(), slug)
}

// PutSlug implements [link.Tx].
func (t *tx) PutSlug(key string, slug *link.SlugRecord) error {
	return t.ft.Set(t.s.slugRef(key), releasedDocOf(slug))
}

// takedownValue is a takedown's value in an update, which takes nil for null and
// not for absent.
func takedownValue(t *link.Takedown) any {
	if t == nil {
		return firestore.Delete
	}
	return takedownDocOf(t)
}

// Domain implements [link.Tx] and [customdomain.Tx].
func (t *tx) Domain(id string) (*customdomain.Domain, error) {
	if !validID(id) {
		return nil, nil
	}
	var d domainDoc
	found, err := t.load(t.s.domainRef(id), &d)
	if err != nil || !found {
		return nil, err
	}
	domain := domainOf(id, &d)
	if t.found == nil {
		t.found = map[string]customdomain.Domain{}
	}
	t.found[id] = *domain
	return domain, nil
}

// domainTx is [customdomain.Tx].
type domainTx struct{ *tx }

// Owner implements [customdomain.Tx]. It reads the certificate too, since a new owner
// has to be set without another read.
func (t domainTx) Owner(hostname string) (string, error) {
	snaps, err := t.read(t.s.hostRef(hostname), t.s.certificateRef(hostname))
	if err != nil {
		return "", err
	}
	var d hostDoc
	if snaps[0].Exists() {
		if err := snaps[0].DataTo(&d); err != nil {
			return "", err
		}
	}
	if t.certs == nil {
		t.certs = map[string]*certificateDoc{}
	}
	if snaps[1].Exists() {
		var c certificateDoc
		// One that cannot be read keeps nobody from the name. It goes with the next owner.
		if snaps[1].DataTo(&c) == nil {
			t.certs[hostname] = &c
		}
	}
	return d.DomainID, nil
}

// HasLinks implements [customdomain.Tx].
func (t domainTx) HasLinks(d *customdomain.Domain) (bool, error) {
	return t.s.anyLink(t.ft, d.AccountID, link.DomainTerm(d.ID))
}

// Room implements [customdomain.Tx]. Domains are few and rare: every claim of an
// account with a limit is serialized.
func (t domainTx) Room(accountID string, limit int) (bool, error) {
	claim, err := t.claim(quota.Limit{Account: accountID, Kind: "domains", Max: int64(limit)}, 1, "domains")
	return claim.Allows(1), err
}

// AddDomain implements [customdomain.Tx].
func (t domainTx) AddDomain(d *customdomain.Domain) error {
	t.tellDomain(events.DomainCreated, d)
	return t.ft.Create(t.s.domainRef(d.ID), domainDocOf(d))
}

// PutDomain implements [customdomain.Tx].
func (t domainTx) PutDomain(d *customdomain.Domain) error {
	if before, ok := t.found[d.ID]; ok {
		t.tellMove(&before, d)
	}
	return t.ft.Set(t.s.domainRef(d.ID), domainDocOf(d))
}

// RemoveDomain implements [customdomain.Tx].
func (t domainTx) RemoveDomain(d *customdomain.Domain) error {
	t.tellDomain(events.DomainDeleted, d)
	return t.ft.Delete(t.s.domainRef(d.ID))
}

// SetOwner implements [customdomain.Tx]. A certificate of the owner before is
// forgotten with its private key.
func (t domainTx) SetOwner(d *customdomain.Domain) error {
	kept, err := t.handOver(d.Hostname, d.AccountID)
	if err != nil {
		return err
	}
	d.Certificate = certificate.Shown(kept, t.s.now())
	return t.ft.Set(t.s.hostRef(d.Hostname), &hostDoc{DomainID: d.ID, AccountID: d.AccountID})
}

// ClearOwner implements [customdomain.Tx].
func (t domainTx) ClearOwner(d *customdomain.Domain) error {
	if _, err := t.handOver(d.Hostname, ""); err != nil {
		return err
	}
	return t.ft.Delete(t.s.hostRef(d.Hostname))
}
