// Package tenancy is what links knows about the accounts that its records belong
// to: which of them are suspended or being erased, what the operator took down,
// and how everything of one account leaves.
//
// auth decides about accounts and tells this service through libs/tenant. What it
// told last is one document here, which redirects read along with a cold link and
// keep in memory. After a change its name is announced like a slug,
// so that no replica answers by the earlier state once the call has returned.
package tenancy

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Record is what is known about an account.
type Record struct {
	Standing tenant.Standing
	Since    time.Time // of the state
	ErasedAt time.Time // zero until nothing of a deleting account is left
}

// Store remembers the accounts that auth has told us about.
type Store interface {
	// Account finds what is known about an account; nil when auth has told us nothing.
	Account(ctx context.Context, accountID string) (*Record, error)
	// PutAccount replaces the record that decide makes of the present one, which is
	// nil when auth has told us nothing yet. A nil result changes nothing.
	PutAccount(ctx context.Context, accountID string, decide func(before *Record) *Record) error
	// Deleting lists up to limit accounts that are deleting and not erased.
	Deleting(ctx context.Context, limit int) ([]string, error)
	// Forget removes what is kept about an account beside links and domains.
	Forget(ctx context.Context, accountID string) error
}

// Announcer tells every replica that an account's state has changed, before it
// returns.
type Announcer interface {
	Announce(ctx context.Context, keys ...string)
}

// Links removes an account's links; see [link.Service].
type Links interface {
	Purge(ctx context.Context, accountID string, before int64, limit int) (last int64, err error)
}

// Options configure a [Service].
type Options struct {
	Store     Store
	Announcer Announcer
	Links     Links
	Domains   *customdomain.Service
	// Now is the clock; nil is the system's.
	Now func() time.Time
}

// Service is what the internal API and the purge loop call.
type Service struct {
	opt  Options
	wake chan struct{}
}

// NewService makes a service.
func NewService(opt Options) *Service {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Service{opt: opt, wake: make(chan struct{}, 1)}
}

// SetState puts an account into a state. It returns once every replica answers by
// it. A version lower than the last one changes nothing.
func (s *Service) SetState(ctx context.Context, accountID string, standing tenant.Standing) error {
	err := s.opt.Store.PutAccount(ctx, accountID, func(before *Record) *Record {
		// "active" is kept as well, for its version: an older suspension may still arrive.
		if before != nil && before.Standing.Version >= standing.Version {
			return nil
		}
		return &Record{Standing: standing, Since: s.opt.Now()}
	})
	if err != nil {
		return err
	}
	// Also when nothing changed: an earlier try may have ended before it announced.
	s.opt.Announcer.Announce(ctx, invalidation.AccountKey(accountID))
	s.hurry()
	return nil
}

// Erased reports whether nothing of a deleting account is left here.
func (s *Service) Erased(ctx context.Context, accountID string) (bool, error) {
	r, err := s.opt.Store.Account(ctx, accountID)
	return r != nil && !r.ErasedAt.IsZero(), err
}

const (
	purgeEvery = 10 * time.Second
	purgePage  = 100 // links that are looked at together
	accounts   = 100 // whose turn comes in one round
	// turn is how many pages of one account a round removes, so that a large account
	// does not delay the erasure of others.
	turn = 10
	// settle is how long after the decision an account counts as erased at the
	// earliest. A request that was admitted before the account was suspended may
	// still commit; none lasts longer than ten seconds.
	settle = 15 * time.Second
)

// Purge erases deleting accounts until ctx ends. It resumes where it was after a
// crash, since what is left to do is what is still there. Replicas may purge one
// account at the same time; each removes what it finds.
func (s *Service) Purge(ctx context.Context) error {
	tick := time.NewTicker(purgeEvery)
	defer tick.Stop()
	for {
		if err := s.purgeRound(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "deleting accounts cannot be listed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.wake:
		}
	}
}

func (s *Service) purgeRound(ctx context.Context) error {
	deleting, err := s.opt.Store.Deleting(ctx, accounts)
	if err != nil {
		return err
	}
	for _, id := range deleting {
		err := s.purge(ctx, id)
		switch {
		case errors.Is(err, errMore):
			s.hurry()
		// One account that cannot be purged must not keep the others from it.
		case err != nil && ctx.Err() == nil:
			slog.WarnContext(ctx, "account is not purged", "account", id, "error", err)
		}
	}
	return nil
}

// errMore says that an account has had its turn and that links of it are left.
var errMore = errors.New("the account has more links than a round removes")

// hurry makes the loop look for deleting accounts now.
func (s *Service) hurry() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// purgeLinks removes links until a look from the top finds none, or a turn's worth of
// them; then the error is errMore. Links that cannot be removed are passed over, so
// that they hold up no other; then the account still has links, and the error says so.
func (s *Service) purgeLinks(ctx context.Context, accountID string) error {
	var kept error
	before := link.Top
	for removed := 0; ctx.Err() == nil; {
		if removed == turn {
			return errMore
		}
		last, err := s.opt.Links.Purge(ctx, accountID, before, purgePage)
		switch {
		case errors.Is(err, link.ErrRefused):
			kept = err
		case err == nil && last != link.Top:
			removed++
		case err != nil:
			return err
		case last == link.Top && (before == link.Top || kept != nil):
			return kept
		}
		before = last // after the last link that is the top again
	}
	return ctx.Err()
}

// purge removes links, then the domains that they were on, then the rest, and
// marks the account as erased if nothing was left at the beginning.
func (s *Service) purge(ctx context.Context, accountID string) error {
	if err := s.purgeLinks(ctx, accountID); err != nil {
		return err
	}
	domains, err := s.opt.Domains.List(ctx, accountID)
	if err != nil {
		return err
	}
	for _, d := range domains {
		if err := s.opt.Domains.Delete(ctx, accountID, d.ID); err != nil {
			return err
		}
	}
	if err := s.opt.Store.Forget(ctx, accountID); err != nil {
		return err
	}
	now := s.opt.Now()
	return s.opt.Store.PutAccount(ctx, accountID, func(before *Record) *Record {
		if before == nil || before.Standing.State != tenant.Deleting || now.Sub(before.Since) < settle {
			return nil // the next round finds what was committed meanwhile
		}
		after := *before
		after.ErasedAt = now
		return &after
	})
}
