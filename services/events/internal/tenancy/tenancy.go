// Package tenancy is what events knows about the accounts that its records belong
// to: whose webhooks must be silent, and how everything of one account leaves.
//
// auth decides about accounts and tells this service through libs/tenant. Each try
// of a delivery reads the account's state in the same round trip as the webhook,
// so no replica begins a try by an earlier state once [Service.SetState] has
// returned. Tries that had begun by then end within their fifteen seconds.
//
// What a suspended account's webhooks would have been sent waits, and is sent when
// the suspension is lifted.
package tenancy

import (
	"context"
	"log/slog"
	"time"

	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Record is what is known about an account.
type Record struct {
	Standing tenant.Standing
	Since    time.Time // of the state
	// PurgeAt is when a deleting account is looked over next; zero is never.
	PurgeAt time.Time
}

// Store remembers the accounts that auth has told us about.
type Store interface {
	// Account finds what is known about an account; nil when auth has told us nothing.
	Account(ctx context.Context, accountID string) (*Record, error)
	// PutAccount replaces the record that decide makes of the present one, which is
	// nil when auth has told us nothing yet. A nil result changes nothing.
	PutAccount(ctx context.Context, accountID string, decide func(before *Record) *Record) error
	// Purging lists up to limit accounts whose PurgeAt has come.
	Purging(ctx context.Context, limit int) ([]string, error)
	// EraseSome removes up to a page of what is kept about an account, webhooks
	// first, and reports whether there may be more.
	EraseSome(ctx context.Context, accountID string) (more bool, err error)
	// Remains reports whether anything is kept about an account beside its state.
	Remains(ctx context.Context, accountID string) (bool, error)
	Webhooks(ctx context.Context, accountID string) ([]*webhook.Webhook, error)
}

// Options configure a [Service].
type Options struct {
	Store   Store
	Courier webhook.Courier
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

// SetState puts an account into a state. A version lower than the last one
// changes nothing.
func (s *Service) SetState(ctx context.Context, accountID string, standing tenant.Standing) error {
	var resumed bool
	err := s.opt.Store.PutAccount(ctx, accountID, func(before *Record) *Record {
		resumed = false
		now := s.opt.Now()
		// "active" is kept as well, for its version: an older suspension may still arrive.
		switch {
		case before != nil && before.Standing.Version > standing.Version:
			return nil
		case before != nil && before.Standing == standing:
			// auth repeats an erasure until it has ended, and drives the purge by that.
			if standing.State != tenant.Deleting || !before.PurgeAt.IsZero() && before.PurgeAt.Before(now.Add(purgeEvery)) {
				return nil
			}
			again := *before
			again.PurgeAt = now
			return &again
		}
		resumed = standing.State == tenant.Active
		after := &Record{Standing: standing, Since: now}
		if standing.State == tenant.Deleting {
			after.PurgeAt = now
		}
		return after
	})
	if err != nil {
		return err
	}
	if standing.State == tenant.Deleting {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	if resumed {
		return s.resume(ctx, accountID)
	}
	return nil
}

// resume sends what has waited. A crash before it delays that, since what waits
// becomes due by itself later, and loses nothing.
func (s *Service) resume(ctx context.Context, accountID string) error {
	hooks, err := s.opt.Store.Webhooks(ctx, accountID)
	if err != nil {
		return err
	}
	for _, w := range hooks {
		s.opt.Courier.Send(accountID, w.ID)
	}
	return nil
}

// Erased reports whether nothing of a deleting account is left here. It looks each
// time: links and videos may write an event after an earlier answer.
func (s *Service) Erased(ctx context.Context, accountID string) (bool, error) {
	r, err := s.opt.Store.Account(ctx, accountID)
	if err != nil || r == nil || r.Standing.State != tenant.Deleting {
		return false, err
	}
	remains, err := s.opt.Store.Remains(ctx, accountID)
	return err == nil && !remains, err
}

const (
	purgeEvery = 5 * time.Second
	accounts   = 100 // whose turn comes in one round
	// watched is for how long a deleting account is looked over again: a request
	// that was admitted before the suspension, or a replica that slept, may still
	// write an event.
	watched = 24 * time.Hour
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
	purging, err := s.opt.Store.Purging(ctx, accounts)
	if err != nil {
		return err
	}
	for _, id := range purging {
		// One account that cannot be purged must not keep the others from it.
		if err := s.purge(ctx, id); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "account is not purged", "account", id, "error", err)
		}
	}
	return nil
}

func (s *Service) purge(ctx context.Context, accountID string) error {
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = s.opt.Store.EraseSome(ctx, accountID); err != nil {
			return err
		}
	}
	now := s.opt.Now()
	return s.opt.Store.PutAccount(ctx, accountID, func(before *Record) *Record {
		if before == nil || before.Standing.State != tenant.Deleting {
			return nil
		}
		after := *before
		switch since := now.Sub(before.Since); {
		case since < time.Minute:
			after.PurgeAt = now.Add(purgeEvery)
		case since < watched:
			after.PurgeAt = now.Add(time.Hour) // auth asks sooner while it waits for us
		default:
			after.PurgeAt = time.Time{}
		}
		return &after
	})
}
