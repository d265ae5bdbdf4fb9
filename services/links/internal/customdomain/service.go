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
	// Domain finds a claim of the account. It returns NotFound if there is none.
	Domain(ctx context.Context, accountID, id string) (*Domain, error)
	// Domains lists all claims of an account, newest first, except those that cannot be read.
	Domains(ctx context.Context, accountID string) ([]*Domain, error)
	// Page lists a page of them, and reports whether there are more.
	Page(ctx context.Context, accountID string, p paging.Page) (page []*Domain, more bool, err error)
	// Due lists domains that are due for a check, at most a few thousand. It includes those that
	// have been due longest. If a domain cannot be read, Due puts it off for an hour, so that it
	// does not block the domains behind it. Due then returns the other domains and an error.
	Due(ctx context.Context) ([]*Domain, error)
	// Owner finds the domain that owns a host name in lower case.
	Owner(ctx context.Context, hostname string) (domainID string, found bool, err error)
	// Atomically runs fn in one transaction: the records that fn reads do not change before the
	// commit. fn must do all its reads before its writes. It may run several times, so it must
	// have no other effect.
	Atomically(ctx context.Context, what string, fn func(tx Tx) error) error
}

// Tx is one atomic change.
type Tx interface {
	// Domain finds a claim of any account. It returns nil if there is none.
	Domain(id string) (*Domain, error)
	// Owner returns the domain that owns a host name, or "" if none does.
	Owner(hostname string) (domainID string, err error)
	// HasLinks reports whether a link uses the domain.
	HasLinks(d *Domain) (bool, error)
	// Room reserves room for n more domains. It returns Full if there is none.
	Room(accountID string, limit, n int64) error

	// Add, Put and Remove also write an event of type what, unless what is [events.Quiet].
	Add(d *Domain, what events.Type) error
	Put(before, after *Domain, what events.Type) error
	Remove(d *Domain, what events.Type) error
	// ClearStats removes the statistics of d.
	ClearStats(d *Domain) error
	// SetOwner makes d the owner of its host name, and sets d.Certificate to the name's
	// certificate. Call Owner before you call SetOwner or ClearOwner. Every replica knows the
	// new owner before the change returns, so that no redirect uses the old one.
	SetOwner(d *Domain)
	// ClearOwner leaves the host name of d without an owner.
	ClearOwner(d *Domain)
	// SetPages stores the pages of d for its host name, which d must own. Every replica uses
	// them before the change returns.
	SetPages(d *Domain)
}

// Options configure a [Service].
type Options struct {
	Store Store
	// Texts looks up TXT records. An error means that no server answered.
	Texts func(ctx context.Context, name string) ([]string, error)
	// Own are the host names of this installation, which nobody may claim.
	Own []string
	Now func() time.Time
}

// Service has the operations that the API and the background loop call.
type Service struct{ opt Options }

// NewService returns a service.
func NewService(opt Options) *Service { return &Service{opt} }

// Own returns the host names of this installation.
func (s *Service) Own() []string { return s.opt.Own }

// Get finds a domain of the account.
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

// List lists all domains of the account, newest first.
func (s *Service) List(ctx context.Context, accountID string) ([]*Domain, error) {
	return s.opt.Store.Domains(ctx, accountID)
}

// Page lists a page of the account's domains, newest first, and reports whether there are more.
func (s *Service) Page(ctx context.Context, accountID string, p paging.Page) (page []*Domain, more bool, err error) {
	return s.opt.Store.Page(ctx, accountID, p)
}

// Leave removes the domains of an account that is being erased, and frees their host names.
// It skips domains that cannot be read. Other accounts can still claim the host name of such
// a domain, because a host name is free once its domain no longer exists.
func (s *Service) Leave(ctx context.Context, accountID string) error {
	domains, err := s.opt.Store.Domains(ctx, accountID)
	for _, d := range domains {
		if err == nil {
			err = s.Delete(ctx, accountID, d.ID, func(*Domain) error { return nil })
		}
	}
	return err
}

// Owner finds the domain that owns a host name in lower case.
func (s *Service) Owner(ctx context.Context, hostname string) (domainID string, found bool, err error) {
	return s.opt.Store.Owner(ctx, hostname)
}

// New returns an account's claim to a valid host name, but does not store it.
func (s *Service) New(accountID, hostname string) *Domain {
	return &Domain{
		ID: ID(accountID, hostname), AccountID: accountID, Hostname: hostname,
		Token: identity.NewNonce(), CreatedAt: s.opt.Now().UTC().Truncate(time.Millisecond),
	}
}

// Claim stores a new claim. limit is how many domains the account may have. The error is
// DOMAIN_TAKEN if the name is already verified, or claimed by this account.
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

// CheckRoom returns QUOTA_EXCEEDED if the account has as many domains as it may have. It lets
// a full account get 403 for any request body. The transaction of the claim checks again;
// only that check holds under concurrency.
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

// owned reports who has the claim's name: the claim itself (mine), another claim with a
// valid proof (taken), or nobody.
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

// Verify checks the proof of a domain now, at its owner's request.
func (s *Service) Verify(ctx context.Context, accountID, id string) (*Domain, error) {
	d, err := s.Get(ctx, accountID, id)
	if err != nil {
		return nil, err
	}
	return s.check(ctx, d)
}

// check looks up the proof and stores the result. If another claim owns the name, check records
// that in the domain and returns DOMAIN_TAKEN.
func (s *Service) check(ctx context.Context, d *Domain) (*Domain, error) {
	name, _ := d.Record()
	// Look up before the transaction, which may run several times and must not wait for name
	// servers.
	texts, lookup := s.opt.Texts(ctx, name)
	if lookup != nil {
		slog.InfoContext(ctx, "cannot look up the proof of a domain", "hostname", d.Hostname, "error", lookup)
	}
	var after *Domain
	var lost bool
	err := s.opt.Store.Atomically(ctx, "record check of domain", func(tx Tx) error {
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
		// If the claim was never verified, tell its owner that the name is taken even while the
		// record is missing, because adding the record would not help.
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

// moved returns the event of a check that verified the domain or found that it has lapsed. A
// domain lapses without any change, because time passes. So moved compares its state at the
// time of the last check with its state now, and only the first check that finds it lapsed
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

// ChangePages changes the pages of a domain of the account. change may run several times.
func (s *Service) ChangePages(ctx context.Context, accountID, id string, change func(d *Domain) (Pages, error)) (*Domain, error) {
	var after *Domain
	err := s.opt.Store.Atomically(ctx, "change pages of domain", func(tx Tx) error {
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

// Delete removes a domain of the account that no link uses and that check accepts. check may
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
		// A link that is created meanwhile reads the domain, so one of the two transactions is retried.
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
		// Clear them in this transaction, because this account's next claim of the name has the same id.
		if err := tx.ClearStats(d); err != nil {
			return err
		}
		if ownerID == id {
			tx.ClearOwner(d)
		}
		return tx.Remove(d, events.DomainDeleted)
	})
}

// parallelChecks is how many proofs are looked up at a time. A name server that does not
// answer blocks only one of these look-ups, until its timeout.
const parallelChecks = 16

// RecheckDue checks the proofs that are due now. It logs and skips a domain that cannot
// be checked. Replicas may run it at the same time: once one has checked a domain, it is
// no longer due for the others.
func (s *Service) RecheckDue(ctx context.Context) error {
	due, err := s.opt.Store.Due(ctx)
	var checks errgroup.Group
	checks.SetLimit(parallelChecks)
	for _, d := range due {
		checks.Go(func() error {
			if _, err := s.check(ctx, d); err != nil && ctx.Err() == nil && apierr.CodeOf(err) != apierr.DomainTaken {
				slog.WarnContext(ctx, "cannot check a domain again; the next round retries", "hostname", d.Hostname, "error", err)
			}
			return nil
		})
	}
	_ = checks.Wait()
	return err
}
