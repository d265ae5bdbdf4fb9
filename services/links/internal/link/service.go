package link

import (
	"context"
	"errors"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
)

// ErrInTheWay is a [Store]'s error for a commit that found a document in place
// which must not exist, or whose outcome is not known. In both cases reading the
// records tells what happened.
var ErrInTheWay = errors.New("a record is in the way")

// Store remembers links.
type Store interface {
	// Link finds a link of any account; NotFound if there is none.
	Link(ctx context.Context, id string) (*Link, error)
	// List lists links, newest first, and tells whether more follow.
	List(ctx context.Context, q Query) (page []*Link, more bool, err error)
	// Stats reads a link's clicks on the days from first to last, both included.
	Stats(ctx context.Context, linkID string, first, last Day) (Stats, error)
	// Tags lists tags of the account's records of every kind; see [Service.Tags].
	Tags(ctx context.Context, accountID, q, after string, limit int) (page []Tag, next string, err error)
	// RemoveStats removes all statistics of links.
	RemoveStats(ctx context.Context, linkIDs []string) error
	// Days reads at most limit days of a link that have clicks, oldest first, of those
	// behind the day after, and tells whether more follow.
	Days(ctx context.Context, linkID string, after Day, limit int) (page []DayStats, more bool, err error)
	// Count counts the account's links.
	Count(ctx context.Context, accountID string) (int, error)
	// Atomically runs fn so that what it read still holds when it commits. fn
	// reads first and then writes; it may run several times and has no other
	// effect. The error is ErrRefused for a commit that is too much for the database.
	Atomically(ctx context.Context, what string, fn func(tx Tx) error) error
	// Add is Atomically for an fn that only adds links: one call to the database.
	Add(ctx context.Context, what string, fn func(tx Tx) error) error
}

// Tx is one atomic change.
type Tx interface {
	// Links finds links of any account in one call; nil for those that are not there.
	Links(ids ...string) ([]*Link, error)
	// Places finds links and slug records in one call; nil for those that are not
	// there. The two lists have the same length.
	Places(ids, slugKeys []string) ([]*Link, []*SlugRecord, error)
	// Released finds the keys of slugs that deleted links of the account have left.
	Released(accountID string, linkIDs ...string) (slugKeys []string, err error)
	// Domain finds a domain of any account; nil if there is none. The commit fails
	// if the domain is deleted meanwhile.
	Domain(id string) (*customdomain.Domain, error)
	// ExternalIDs finds which links the account's external ids were given to; "" for
	// none.
	ExternalIDs(accountID string, ids ...string) (linkIDs []string, err error)
	// Tags notes tags that links of the account get and lose. It belongs to the reads.
	Tags(accountID string, got, lost []string) error
	// Room is how many links the account may still get, at most want; see libs/quota.
	Room(accountID string, limit, want int) (int, error)

	// Add makes a link and its slug record. over says that the slug's last link
	// has left a record, which is replaced; otherwise there must be none.
	Add(l *Link, over bool) error
	// Put changes a link; before is what it was.
	Put(before, after *Link) error
	// Remove deletes a link and leaves a record of its slug.
	Remove(l *Link, slug *SlugRecord) error
	// Erase is Remove for an account that is being erased: nobody is told of it.
	Erase(l *Link, slug *SlugRecord) error
	// PutSlug replaces the record of a slug that no link has.
	PutSlug(key string, slug *SlugRecord) error
}

// Announcer tells every replica that slugs ([SlugKey]) have changed, before it
// returns.
type Announcer interface {
	Announce(ctx context.Context, keys ...string)
}

// Options configure a [Service].
type Options struct {
	Store     Store
	Announcer Announcer
	// Blocked are the destinations that this installation refuses; nil refuses none.
	Blocked *Blocklist
	// Now is the clock; nil is the system's.
	Now func() time.Time
}

// Service is what the API calls.
type Service struct{ opt Options }

// NewService makes a service.
func NewService(opt Options) *Service {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Service{opt}
}

// These end a transaction that has nothing to write: a commit of nothing is one
// more call that can fail.
var (
	errNothing = errors.New("nothing to write")
	errAgain   = errors.New("look again")
)

func isNothing(err error) bool { return errors.Is(err, errNothing) }

// commit makes one atomic change and then announces every slug whose redirect
// may answer differently now. Nothing else in this package announces, and no
// change is made without it: what is forgotten here would be stale on every
// replica until its cache entry expires.
func (s *Service) commit(ctx context.Context, what string, fn func(tx *recorder) error) error {
	return s.commitBy(ctx, s.opt.Store.Atomically, what, fn)
}

func (s *Service) commitBy(ctx context.Context, atomically func(context.Context, string, func(Tx) error) error, what string, fn func(tx *recorder) error) error {
	var changed []string
	err := atomically(ctx, what, func(tx Tx) error {
		r := &recorder{Tx: tx}
		err := fn(r)
		changed = r.slugs
		return err
	})
	// A commit whose answer was lost may have happened. Announcing a change that
	// did not happen costs a reload; not announcing one leaves replicas stale.
	announce := err == nil || apierr.CodeOf(err).Status() >= 500 // errNothing has no code, so it counts as 500 too
	if announce && len(changed) > 0 {
		s.opt.Announcer.Announce(ctx, changed...)
	}
	return err
}

// recorder notes which slugs a transaction changes.
type recorder struct {
	Tx
	slugs []string
}

// changed notes a link's slug. A repeated request calls it for records that it
// finds in place: its first try may have ended before it announced them.
func (r *recorder) changed(l *Link) { r.slugs = append(r.slugs, l.Key()) }

func (r *recorder) Add(l *Link, over bool) error {
	r.changed(l)
	return r.Tx.Add(l, over)
}

func (r *recorder) Put(before, after *Link) error {
	r.changed(after)
	return r.Tx.Put(before, after)
}

func (r *recorder) Erase(l *Link, slug *SlugRecord) error {
	r.changed(l)
	return r.Tx.Erase(l, slug)
}

func (r *recorder) Remove(l *Link, slug *SlugRecord) error {
	r.changed(l)
	return r.Tx.Remove(l, slug)
}

func (r *recorder) PutSlug(key string, slug *SlugRecord) error {
	r.slugs = append(r.slugs, key)
	return r.Tx.PutSlug(key, slug)
}

// Destination accepts the destination of a link: a valid address that leads
// neither to one of own nor to a host that this installation blocks.
func (s *Service) Destination(text string, own Hosts) (URL, *apierr.Detail) {
	u, problem := ParseURL(text, own)
	if problem == nil && s.opt.Blocked.Has(u.Location) {
		return URL{}, &apierr.Detail{Code: apierr.BlockedDestination, Message: "This installation does not allow links to this host. Use another destination, or ask the operator."}
	}
	return u, problem
}

// Get finds a link of the account.
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

// List lists links of an account, newest first.
func (s *Service) List(ctx context.Context, q Query) (page []*Link, more bool, err error) {
	return s.opt.Store.List(ctx, q)
}

// Days reads days of a link that have clicks, oldest first, behind the day after.
func (s *Service) Days(ctx context.Context, linkID string, after Day, limit int) (page []DayStats, more bool, err error) {
	return s.opt.Store.Days(ctx, linkID, after, limit)
}

// Stats is a link's clicks on some days.
func (s *Service) Stats(ctx context.Context, linkID string, first, last Day) (Stats, error) {
	return s.opt.Store.Stats(ctx, linkID, first, last)
}

// CheckRoom is QUOTA_EXCEEDED when the account has all the links it may have. It
// serves to answer 403 before 400; what holds under races is decided in the
// create's own transaction.
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

// Update changes a link of the account. check gets the link's revision and may
// refuse; its error is the update's.
func (s *Service) Update(ctx context.Context, accountID, id string, check func(rev int64) error, p Patch) (*Link, error) {
	var after *Link
	err := s.commit(ctx, "update link", func(tx *recorder) error {
		l, err := s.owned(tx, accountID, id, check)
		if err != nil {
			return err
		}
		edited := *l
		after = &edited
		if !edited.Apply(p, s.opt.Now()) {
			// An earlier try of a patch may not have announced; see changed.
			tx.changed(l)
			return errNothing
		}
		changes := []change{{l, after}}
		taken, err := externalIDs(tx, accountID, changes)
		if err != nil {
			return err
		}
		if taken[0] {
			return ExternalIDTaken()
		}
		if err := tags(tx, accountID, changes); err != nil {
			return err
		}
		return tx.Put(l, after)
	})
	if err != nil && !isNothing(err) {
		return nil, err
	}
	return after, nil
}

// Delete removes a link of the account. Its slug stays closed to other accounts
// for [Quarantine].
func (s *Service) Delete(ctx context.Context, accountID, id string, check func(rev int64) error) error {
	gone := false
	err := s.commit(ctx, "delete link", func(tx *recorder) error {
		l, err := s.owned(tx, accountID, id, check)
		if gone = apierr.CodeOf(err) == apierr.LinkNotFound; gone {
			return tx.deletedBefore(accountID, id)
		}
		if err != nil {
			return err
		}
		if err := tags(tx, accountID, []change{{before: l}}); err != nil {
			return err
		}
		return tx.Remove(l, Released(l, s.opt.Now()))
	})
	if gone && isNothing(err) {
		return NotFound()
	}
	return err
}

// deletedBefore notes the slugs of links that are not there: a delete that is
// repeated may have ended the first time before it was announced. There is nothing
// to write then.
func (r *recorder) deletedBefore(accountID string, ids ...string) error {
	keys, err := r.Released(accountID, ids...)
	if err != nil {
		return err
	}
	r.slugs = append(r.slugs, keys...)
	return errNothing
}

func (s *Service) owned(tx Tx, accountID, id string, check func(rev int64) error) (*Link, error) {
	found, err := tx.Links(id)
	if err != nil {
		return nil, err
	}
	l := found[0]
	if l == nil || l.AccountID != accountID {
		return nil, NotFound()
	}
	// Within the transaction: after a check before it, another edit could still come in between.
	return l, check(l.Rev)
}
