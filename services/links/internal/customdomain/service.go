package customdomain

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/paging"
)

// Store keeps claims and the owners of host names.
type Store interface {
	// Domain returns one of the account's claims, or the error NotFound.
	Domain(ctx context.Context, accountID, id string) (*Domain, error)
	// Domains lists all of an account's readable claims, newest first.
	Domains(ctx context.Context, accountID string) ([]*Domain, error)
	// Page lists a page of claims, newest first, and reports whether there are more.
	Page(ctx context.Context, accountID string, p paging.Page) (page []*Domain, more bool, err error)
	// Due lists up to a few thousand domains that are due for a check, longest overdue first. It
	// postpones an unreadable domain by an hour, so that it does not block later domains. In that
	// case, Due returns the other domains and an error.
	Due(ctx context.Context) ([]*Domain, error)
	// Owner returns the domain that owns a host name. The name must be in lower case.
	Owner(ctx context.Context, hostname string) (domainID string, found bool, err error)
	// Atomically runs fn in one transaction. The records that fn reads do not change before the
	// commit. fn must read before it writes. It may run several times and must not have any other
	// side effects.
	Atomically(ctx context.Context, what string, fn func(tx Tx) error) error
}

// Tx is one atomic change.
type Tx interface {
	// Domain returns any account's claim, or nil.
	Domain(id string) (*Domain, error)
	// Owner returns the ID of the domain that owns a host name, or "".
	Owner(hostname string) (domainID string, err error)
	// HasLinks reports whether a link uses the domain.
	HasLinks(d *Domain) (bool, error)
	// Room makes room for n more domains. It returns Full if they would exceed the limit.
	Room(accountID string, limit, n int64) error

	// Add, Put and Remove also write an event of type what, unless what is [events.Quiet].
	Add(d *Domain, what events.Type) error
	Put(before, after *Domain, what events.Type) error
	Remove(d *Domain, what events.Type) error
	// ClearStats removes d's statistics.
	ClearStats(d *Domain) error
	// SetOwner makes d the owner of its host name, and sets d.Certificate to the name's
	// certificate. Call Owner before SetOwner or ClearOwner. When the change returns, every replica
	// knows about the new owner, so redirects no longer use the previous one.
	SetOwner(d *Domain)
	// ClearOwner removes the owner of d's host name.
	ClearOwner(d *Domain)
	// SetPages stores d's pages for its host name. d must own the name. When the change
	// returns, every replica uses the new pages.
	SetPages(d *Domain)
}

// Options configure a [Service].
type Options struct {
	Store Store
	// Texts looks up TXT records. An error means that no server answered.
	Texts func(ctx context.Context, name string) ([]string, error)
	// Own lists this installation's host names, which cannot be claimed.
	Own []string
	Now func() time.Time
}

// Service provides the operations for the API and for the background loop.
type Service struct{ opt Options }

// NewService returns a service.
func NewService(opt Options) *Service { return &Service{opt} }

// Own returns this installation's host names.
func (s *Service) Own() []string { return s.opt.Own }

// Get returns a domain in the account.
func (s *Service) Get(ctx context.Context, accountID, id string) (*Domain, error) {
	return s.opt.Store.Domain(ctx, accountID, id)
}

// Usable returns nil if the account may create links on the domain now.
func (s *Service) Usable(ctx context.Context, accountID, id string) error {
	d, err := s.Get(ctx, accountID, id)
	if err == nil && !d.Verified(s.opt.Now()) {
		err = NotVerified()
	}
	return err
}

// List lists all the account's domains, newest first.
func (s *Service) List(ctx context.Context, accountID string) ([]*Domain, error) {
	return s.opt.Store.Domains(ctx, accountID)
}

// Page lists a page of the account's domains, newest first, and reports whether there are more.
func (s *Service) Page(ctx context.Context, accountID string, p paging.Page) (page []*Domain, more bool, err error) {
	return s.opt.Store.Page(ctx, accountID, p)
}

// Leave removes the domains in an account that is being erased, and releases their host names. It
// skips unreadable domains. Their host names can still be claimed by other accounts because a host
// name is free once its domain no longer exists.
func (s *Service) Leave(ctx context.Context, accountID string) error {
	domains, err := s.opt.Store.Domains(ctx, accountID)
	for _, d := range domains {
		if err == nil {
			err = s.Delete(ctx, accountID, d.ID, func(*Domain) error { return nil })
		}
	}
	return err
}

// Owner returns the domain that owns a host name. The name must be in lower case.
func (s *Service) Owner(ctx context.Context, hostname string) (domainID string, found bool, err error) {
	return s.opt.Store.Owner(ctx, hostname)
}

// New returns an account's claim to a valid host name without storing it.
func (s *Service) New(accountID, hostname string) *Domain {
	return &Domain{
		ID: ID(accountID, hostname), AccountID: accountID, Hostname: hostname,
		Token: identity.NewNonce(), CreatedAt: s.opt.Now().UTC().Truncate(time.Millisecond),
	}
}

// Claim stores a new claim. limit is the account's domain limit. The error is DOMAIN_TAKEN if the
// name is already verified, or already claimed by this account.
func (s *Service) Claim(ctx context.Context, d *Domain, limit int) error {
	return s.opt.Store.Atomically(ctx, "claim domain", func(tx Tx) error {
		old, err := tx.Domain(d.ID)
		if err != nil {
			return err
		}
		_, taken, err := s.owned(tx, d)
		if err != nil {
			return err
		}
		if old != nil || taken {
			return Taken()
		}
		if err := tx.Room(d.AccountID, int64(limit), 1); err != nil {
			return err
		}
		return tx.Add(d, events.DomainCreated)
	})
}

// CheckRoom returns QUOTA_EXCEEDED if the account has reached its domain limit. It ensures that a
// full account gets 403 for any request body. The claim's transaction checks again, and only that
// check holds under concurrency.
func (s *Service) CheckRoom(ctx context.Context, p *identity.Principal) error {
	if p.Quotas.Domains <= 0 {
		return nil
	}
	have, err := s.opt.Store.Domains(ctx, p.AccountID)
	if err == nil && len(have) >= p.Quotas.Domains {
		err = Full()
	}
	return err
}

// owned reports whether the claim itself owns its name (mine) or another claim with a valid proof
// does (taken).
func (s *Service) owned(tx Tx, d *Domain) (mine, taken bool, err error) {
	ownerID, err := tx.Owner(d.Hostname)
	if err != nil || ownerID == "" || ownerID == d.ID {
		return ownerID == d.ID && err == nil, false, err
	}
	owner, err := tx.Domain(ownerID)
	if err != nil {
		return false, false, err
	}
	return false, owner != nil && !owner.Lapsed(s.opt.Now()), nil
}

// Verify checks a domain's proof at its owner's request.
func (s *Service) Verify(ctx context.Context, accountID, id string) (*Domain, error) {
	d, err := s.Get(ctx, accountID, id)
	if err != nil {
		return nil, err
	}
	return s.check(ctx, d)
}

// check looks up the proof and stores the result. If another claim owns the name, check records
// this in the domain and returns DOMAIN_TAKEN.
func (s *Service) check(ctx context.Context, d *Domain) (*Domain, error) {
	name, _ := d.Record()
	// Look up the proof outside the transaction, which may run several times and must not wait for
	// name servers.
	texts, lookup := s.opt.Texts(ctx, name)
	if lookup != nil {
		slog.InfoContext(ctx, "cannot look up a domain's proof", "hostname", d.Hostname, "error", lookup)
	}
	var after *Domain
	var lost bool
	err := s.opt.Store.Atomically(ctx, "record domain check", func(tx Tx) error {
		var err error
		if after, err = tx.Domain(d.ID); err != nil {
			return err
		}
		if after == nil || after.AccountID != d.AccountID {
			return NotFound()
		}
		before := *after
		mine, taken, err := s.owned(tx, after)
		if err != nil {
			return err
		}
		outcome, reason := after.Inspect(texts, lookup)
		// If the claim was never verified, report that the name is taken even if the record is
		// missing, because adding the record would not help.
		lost = taken && (outcome == Proven || after.VerifiedAt.IsZero())
		if lost {
			outcome, reason = Lost, "Another account has verified "+after.Hostname+". Delete this domain, or ask the other account to delete theirs."
		}
		after.Checked(outcome, reason, s.opt.Now())
		if outcome == Proven && !mine {
			tx.SetOwner(after)
		}
		return tx.Put(&before, after, moved(&before, after))
	})
	switch {
	case err != nil:
		return nil, err
	case lost:
		return after, Taken()
	}
	return after, nil
}

// moved returns the event for a check that verified the domain or found that it has lapsed. A
// domain lapses as time passes, without a change to its record. moved therefore compares the
// domain's state at the last check with its state now, so only the first check after the lapse
// writes an event.
func moved(before, after *Domain) events.Type {
	was, is := before.Verified(before.CheckedAt), after.Verified(after.CheckedAt)
	switch {
	case !was && is:
		return events.DomainVerified
	case was && !is:
		return events.DomainLapsed
	}
	return events.Quiet
}

// ChangePages changes the pages of one of the account's domains. change may run several times.
func (s *Service) ChangePages(ctx context.Context, accountID, id string, change func(d *Domain) (Pages, error)) (*Domain, error) {
	var after *Domain
	err := s.opt.Store.Atomically(ctx, "change domain's pages", func(tx Tx) error {
		d, err := tx.Domain(id)
		if err != nil {
			return err
		}
		if d == nil || d.AccountID != accountID {
			return NotFound()
		}
		pages, err := change(d)
		if err != nil {
			return err
		}
		copied := *d
		if after = &copied; pages == d.Pages {
			return nil
		}
		ownerID, err := tx.Owner(d.Hostname)
		if err != nil {
			return err
		}
		if after.Pages = pages; ownerID == id {
			tx.SetPages(after)
		}
		return tx.Put(d, after, events.DomainUpdated)
	})
	return after, err
}

// Delete removes one of the account's domains that has no links and that check accepts. check may
// run several times.
func (s *Service) Delete(ctx context.Context, accountID, id string, check func(*Domain) error) error {
	return s.opt.Store.Atomically(ctx, "delete domain", func(tx Tx) error {
		d, err := tx.Domain(id)
		if err != nil {
			return err
		}
		if d == nil || d.AccountID != accountID {
			return NotFound()
		}
		if err := check(d); err != nil {
			return err
		}
		// A concurrent request that creates a link reads the domain, so one of the two transactions
		// will be retried.
		used, err := tx.HasLinks(d)
		if err != nil {
			return err
		}
		if used {
			return InUse()
		}
		ownerID, err := tx.Owner(d.Hostname)
		if err != nil {
			return err
		}
		// Clear them in this transaction because the account's next claim to the name gets the same
		// ID.
		if err := tx.ClearStats(d); err != nil {
			return err
		}
		if ownerID == id {
			tx.ClearOwner(d)
		}
		return tx.Remove(d, events.DomainDeleted)
	})
}

// parallelChecks is the number of concurrent lookups. A name server that does not answer blocks
// only one of them, until its timeout.
const parallelChecks = 16

// RecheckDue checks the proofs that are due now. It logs and skips a domain that cannot be checked.
// Several replicas may run it concurrently because a domain that one of them has checked is no
// longer due.
func (s *Service) RecheckDue(ctx context.Context) error {
	due, err := s.opt.Store.Due(ctx)
	var checks errgroup.Group
	checks.SetLimit(parallelChecks)
	for _, d := range due {
		checks.Go(func() error {
			if _, err := s.check(ctx, d); err != nil && ctx.Err() == nil && apierr.CodeOf(err) != apierr.DomainTaken {
				slog.WarnContext(ctx, "cannot recheck a domain; the next round retries", "hostname", d.Hostname, "error", err)
			}
			return nil
		})
	}
	_ = checks.Wait()
	return err
}
