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
	// LookAt is when the account is looked over next, to erase it or to send what has
	// waited for the end of its suspension; zero is never.
	LookAt time.Time
}

// Store remembers the accounts that auth has told us about.
type Store interface {
	// Account finds what is known about an account; nil when auth has told us nothing.
	Account(ctx context.Context, accountID string) (*Record, error)
	// PutAccount replaces the record that decide makes of the present one, which is
	// nil when auth has told us nothing yet. A nil result changes nothing.
	PutAccount(ctx context.Context, accountID string, decide func(before *Record) *Record) error
	// DueAccounts lists up to limit accounts whose LookAt has come, earliest first.
	DueAccounts(ctx context.Context, limit int) ([]string, error)
	// Deferred reports whether a delivery of a webhook is put off.
	Deferred(ctx context.Context, webhookID string) (bool, error)
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
			if standing.State != tenant.Deleting || !before.LookAt.IsZero() && before.LookAt.Before(now.Add(lookEvery)) {
				return nil
			}
			again := *before
			again.LookAt = now
			return &again
		}
		resumed = standing.State == tenant.Active
		after := &Record{Standing: standing, Since: now}
		if standing.State != tenant.Suspended {
			after.LookAt = now
		}
		return after
	})
	if err != nil {
		return err
	}
	if standing.State == tenant.Deleting {
		s.hurry()
	}
	if resumed {
		// The loop would do it seconds later, and does if this replica is killed.
		_, err = s.resume(ctx, accountID)
	}
	return err
}

// hurry makes the loop look for due accounts now.
func (s *Service) hurry() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// resume sends what has waited, and reports whether there was anything.
func (s *Service) resume(ctx context.Context, accountID string) (waited bool, err error) {
	hooks, err := s.opt.Store.Webhooks(ctx, accountID)
	if err != nil {
		return false, err
	}
	for _, w := range hooks {
		deferred, err := s.opt.Store.Deferred(ctx, w.ID)
		if err != nil {
			return false, err
		}
		if deferred {
			waited = true
			s.opt.Courier.Send(accountID, w.ID)
		}
	}
	return waited, nil
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
	lookEvery = 5 * time.Second
	accounts  = 100 // whose turn comes in one round
	// turn is how many pages of one account a round erases, so that a large account
	// does not delay the erasure of others.
	turn = 10
	// watched is for how long a deleting account is looked over again: a request
	// that was admitted before the suspension, or a replica that slept, may still
	// write an event. An account whose suspension was lifted is looked over until
	// nothing waits, and no longer than this: its receivers may just be slow.
	watched = 24 * time.Hour
	// resumeEvery is how often what has waited for the end of a suspension is looked
	// for again, in case the replica that sends it is killed. At least for a minute:
	// another replica may put off a delivery just after the lift, by what it read before.
	resumeEvery = time.Minute
)

// Look erases deleting accounts, and sends what has waited for the end of
// suspensions, until ctx ends. It resumes where it was after a crash, since what is
// left to do is what is still there. Replicas may look at one account at the same
// time; each erases or claims what it finds.
func (s *Service) Look(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if err := s.round(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "due accounts cannot be listed; the next round retries", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.wake:
		}
	}
}

func (s *Service) round(ctx context.Context) error {
	due, err := s.opt.Store.DueAccounts(ctx, accounts)
	if err != nil {
		return err
	}
	for _, id := range due {
		// One account that fails must not keep the others from their turn.
		if err := s.look(ctx, id); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "account is not looked over; the next round retries", "account", id, "error", err)
		}
	}
	return nil
}

// look does what is due for an account and sets when it is looked over next.
func (s *Service) look(ctx context.Context, accountID string) error {
	r, err := s.opt.Store.Account(ctx, accountID)
	if err != nil || r == nil {
		return err
	}
	var more bool
	if r.Standing.State == tenant.Deleting {
		more, err = s.eraseSome(ctx, accountID)
	} else {
		more, err = s.resume(ctx, accountID)
	}
	if err != nil {
		return err
	}
	now := s.opt.Now()
	if more && r.Standing.State == tenant.Deleting {
		s.hurry()
	}
	return s.opt.Store.PutAccount(ctx, accountID, func(before *Record) *Record {
		if before == nil || before.Standing != r.Standing {
			return nil
		}
		after := *before
		after.LookAt = before.next(now, more)
		return &after
	})
}

func (s *Service) eraseSome(ctx context.Context, accountID string) (more bool, err error) {
	for range turn {
		if more, err = s.opt.Store.EraseSome(ctx, accountID); err != nil || !more || ctx.Err() != nil {
			return more, err
		}
	}
	return more, nil
}

// next is when an account is looked over again, after a look at now that left more
// to do or not.
func (r *Record) next(now time.Time, more bool) time.Time {
	since := now.Sub(r.Since)
	if r.Standing.State != tenant.Deleting {
		if more && since < watched || since < resumeEvery {
			return now.Add(resumeEvery)
		}
		return time.Time{}
	}
	switch {
	case more:
		return now // behind all that are due
	case since < time.Minute:
		return now.Add(lookEvery)
	case since < watched:
		return now.Add(time.Hour) // auth asks sooner while it waits for us
	}
	return time.Time{}
}
