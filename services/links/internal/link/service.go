package link

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
)

// ErrInTheWay is the error that a [Store] returns if a document that must be new already exists,
// the outcome of the commit is unknown, or the account may be full. In all three cases the caller
// must read the records.
var ErrInTheWay = errors.New("the records must be read first")

// Store keeps links.
type Store interface {
	// Link returns a link in any account, or the error NotFound.
	Link(ctx context.Context, id string) (*Link, error)
	// Slug returns the record for the slug with this [SlugKey], or nil.
	Slug(ctx context.Context, key string) (*SlugRecord, error)
	// List lists links, newest first, and reports whether more follow.
	List(ctx context.Context, q Query) (page []*Link, more bool, err error)
	// Stats returns a link's clicks on the days from first to last, inclusive.
	Stats(ctx context.Context, linkID string, first, last Day) (Stats, error)
	// Tags lists the tags on the account's records of every kind; see [Service.Tags].
	Tags(ctx context.Context, accountID, q, after string, limit int) (page []string, next string, err error)
	// RemoveStats removes all statistics of links.
	RemoveStats(ctx context.Context, linkIDs []string) error
	// Days returns up to limit days on which a link has clicks, starting with the first one later
	// than after, and reports whether more follow.
	Days(ctx context.Context, linkID string, after Day, limit int) (page []DayStats, more bool, err error)
	// Count counts the account's links.
	Count(ctx context.Context, accountID string) (int, error)
	// Atomically runs fn in one transaction. The records that fn reads do not change before the
	// commit. fn may run several times and must not have any effect except through tx. If fn writes
	// nothing, nothing is committed. The error is ErrRefused for a commit that is too large for the
	// database.
	Atomically(ctx context.Context, what string, fn func(tx Tx) error) error
	// Add creates links whose slugs have never been used, in one database call and without reading.
	// limit is the account's link limit; 0 means no limit. The error is ErrInTheWay if one of the
	// links cannot be created this way.
	Add(ctx context.Context, limit int, links ...*Link) error
}

// Tx is one atomic change.
type Tx interface {
	// Find returns links in any account and slug records in one call. The result for a missing
	// record is nil.
	Find(ids, slugKeys []string) ([]*Link, []*SlugRecord, error)
	// FindBroken returns links that are being erased. An unreadable link has only its readable
	// fields; see [Link.Broken].
	FindBroken(ids []string) ([]*Link, error)
	// Released returns the slug keys of the account's deleted links.
	Released(accountID string, linkIDs ...string) (slugKeys []string, err error)
	// Domain returns a domain in any account, or nil. The commit fails if the domain is deleted
	// concurrently.
	Domain(id string) (*customdomain.Domain, error)
	// ExternalIDs returns the links that have these external IDs in the account. The result for an
	// unused ID is "".
	ExternalIDs(accountID string, ids ...string) (linkIDs []string, err error)
	// Tags records the tags that links in the account gain and lose. It reads records, so call it
	// before the transaction's writes.
	Tags(accountID string, got, lost []string) error
	// Places returns a link's slots, or nil for a link without a limit.
	Places(linkID string) (*Places, error)
	// Room returns how many links the account may add, at most want; see libs/quota.
	Room(accountID string, limit, want int) (int, error)

	// Each of the methods below announces the slug to every replica. Otherwise replicas would serve
	// the old state until their cache entries expire. A method with an events.Type parameter also
	// writes the event for the change, unless the type is [events.Quiet].

	// Add creates a link and its slug record. If over is set, Add replaces the record of the slug's
	// previous link. Otherwise the slug must not have a record. Only a [Link.Foreseeable] slug is
	// announced.
	Add(l *Link, over bool, what events.Type)
	// Put changes a link. before is the link before the change. If MaxClicks changes, Put also
	// changes the link's slots.
	Put(before, after *Link, what events.Type)
	// Remove deletes a link and replaces its slug's record. If slug is nil, that record does
	// not change.
	Remove(l *Link, slug *SlugRecord, what events.Type)
	// PutSlug replaces the record for a slug without a link.
	PutSlug(key string, slug *SlugRecord)

	// Announce announces slugs ([SlugKey]) that an earlier attempt at the request has changed. That
	// attempt may have died before announcing them.
	Announce(slugKeys ...string)
}

// Options configure a [Service].
type Options struct {
	Store Store
	// Blocked lists the destinations that this installation blocks. If it is nil, none are blocked.
	Blocked *Blocklist
	Now     func() time.Time
}

// Service provides the API's operations on links.
type Service struct{ opt Options }

// NewService returns a service.
func NewService(opt Options) *Service { return &Service{opt} }

// Get returns a link in the account.
func (s *Service) Get(ctx context.Context, accountID, id string) (*Link, error) {
	l, err := s.opt.Store.Link(ctx, id)
	if err != nil {
		return nil, err
	}
	if l.AccountID != accountID {
		return nil, NotFound()
	}
	return l, nil
}

// List lists links in an account, newest first.
func (s *Service) List(ctx context.Context, q Query) (page []*Link, more bool, err error) {
	return s.opt.Store.List(ctx, q)
}

// Days returns up to limit days on which a link has clicks, starting with the first one later than
// after, and reports whether more follow.
func (s *Service) Days(ctx context.Context, linkID string, after Day, limit int) (page []DayStats, more bool, err error) {
	return s.opt.Store.Days(ctx, linkID, after, limit)
}

// Stats returns a link's clicks on the days from first to last, inclusive.
func (s *Service) Stats(ctx context.Context, linkID string, first, last Day) (Stats, error) {
	return s.opt.Store.Stats(ctx, linkID, first, last)
}

// Explain returns the response that a visit to the link would get. own contains the names of the
// default short host, and pages the pages of the link's host.
func (s *Service) Explain(l *Link, v *Visit, own Hosts, pages *Pages) Decision {
	return Decide(l.Target(), v, &Surroundings{
		Own: own, Pages: pages, Blocked: s.opt.Blocked, Exhausted: l.exhausted(), Unlocked: true,
	})
}

// SlugFree reports whether the account can take a slug on a domain now. An empty domainID means the
// default short host.
func (s *Service) SlugFree(ctx context.Context, accountID, domainID string, slug Slug) (bool, error) {
	r, err := s.opt.Store.Slug(ctx, SlugKey(domainID, slug.Folded()))
	return err == nil && r.FreeFor(accountID, s.opt.Now()), err
}

// CheckRoom returns QUOTA_EXCEEDED if the account has reached its link limit. It ensures that a
// full account gets 403 for any request body. The create's transaction checks again, and only that
// check holds under concurrency.
func (s *Service) CheckRoom(ctx context.Context, p *identity.Principal) error {
	if p.Quotas.Links <= 0 {
		return nil
	}
	n, err := s.opt.Store.Count(ctx, p.AccountID)
	if err == nil && n >= p.Quotas.Links {
		err = Full()
	}
	return err
}

// Update changes a link in the account. edit returns the changes to the current link. check decides
// whether the link may be changed at its current revision. Update returns an error from either
// function. Both may run several times.
func (s *Service) Update(
	ctx context.Context, accountID, id string, check func(rev int64) error, edit func(*Link) (Patch, error),
) (*Link, error) {
	var after *Link
	err := s.opt.Store.Atomically(ctx, "update link", func(tx Tx) error {
		l, err := owned(tx, accountID, id)
		if err != nil {
			return err
		}
		p, err := edit(l)
		if err != nil {
			return err
		}
		// Check inside the transaction. Otherwise another edit could be committed first.
		if err := check(l.Rev); err != nil {
			return err
		}
		if after = l; len(p) == 0 {
			tx.Announce(l.Key())
			return nil
		}
		after = p.apply(*l, s.opt.Now())
		if after.ExternalID != l.ExternalID || !slices.Equal(after.Tags, l.Tags) {
			if err := labels(tx, change{l, after}); err != nil {
				return err
			}
		}
		if after.Routing != l.Routing { // otherwise, the limit has not changed
			if err := limited(tx, l, after); err != nil {
				return err
			}
		}
		tx.Put(l, after, events.LinkUpdated)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return after, nil
}

// Delete removes a link from the account. Its slug stays unavailable to other accounts for
// [Quarantine].
func (s *Service) Delete(ctx context.Context, accountID, id string, check func(rev int64) error) error {
	gone := false
	err := s.opt.Store.Atomically(ctx, "delete link", func(tx Tx) error {
		l, err := owned(tx, accountID, id)
		if gone = apierr.CodeOf(err) == apierr.LinkNotFound; gone {
			return deletedBefore(tx, accountID, id)
		}
		if err != nil {
			return err
		}
		if err := check(l.Rev); err != nil {
			return err
		}
		if err := tags(tx, accountID, []change{{before: l}}); err != nil {
			return err
		}
		tx.Remove(l, Released(l, s.opt.Now()), events.LinkDeleted)
		return nil
	})
	if gone && err == nil {
		return NotFound()
	}
	return err
}

// deletedBefore announces the slugs of links that an earlier delete attempt has removed. That
// attempt may have died before announcing them.
func deletedBefore(tx Tx, accountID string, ids ...string) error {
	keys, err := tx.Released(accountID, ids...)
	tx.Announce(keys...)
	return err
}

func owned(tx Tx, accountID, id string) (*Link, error) {
	found, _, err := tx.Find([]string{id}, nil)
	if err != nil {
		return nil, err
	}
	if l := found[0]; l != nil && l.AccountID == accountID {
		return l, nil
	}
	return nil, NotFound()
}
