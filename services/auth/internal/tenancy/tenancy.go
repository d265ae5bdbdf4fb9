// Package tenancy hands on what auth decides about accounts to the services that
// keep their records (libs/tenant), and is what the operator acts through:
// erasure, takedowns, and an account's export.
//
// Each decision is committed before anybody is told. [Service.Repeat] repeats what
// is not finished, so a crash between the two heals by itself.
package tenancy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/turns"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Store remembers accounts and takedowns.
type Store interface {
	account.Store
	// Accounts lists accounts that match, by id, from after the id after. It looks
	// at a bounded number of them, so a page may be short; next is "" at the end.
	Accounts(
		ctx context.Context,
		after string,
		limit int,
		match func(account.Account) bool,
	) (page []account.Account, next string, err error)
	// Pending lists accounts with a decision that has not taken effect everywhere, by
	// id, from after the id after.
	Pending(ctx context.Context, after string, limit int) ([]account.Account, error)
	// Erase removes what auth has of an account and leaves a tombstone.
	Erase(ctx context.Context, id string, at time.Time) error

	Takedown(ctx context.Context, id string) (Takedown, error)
	// Takedowns lists takedowns, newest first, from behind the one with the id after;
	// ErrNoTakedown if there is none.
	Takedowns(ctx context.Context, after string, limit int) (page []Takedown, next string, err error)
	UnsettledTakedowns(ctx context.Context, limit int) ([]Takedown, error)
	TakedownsOf(ctx context.Context, accountID string, limit int) ([]Takedown, error)
	PutTakedown(ctx context.Context, t Takedown) error
	DeleteTakedown(ctx context.Context, id string) error
}

// Phase is where a takedown stands.
type Phase string

// The phases.
const (
	Asked   Phase = "asked" // the holder may not know yet
	InForce Phase = "in force"
	Lifting Phase = "lifting"
)

// Takedown is a takedown as auth keeps it.
type Takedown struct {
	tenant.Takedown
	Target tenant.Target
	Kind   string // of the target, when it is an id; "" for an address
	Phase  Phase
}

// ErrNoTakedown is the answer for a takedown that is not there.
var ErrNoTakedown = apierr.New(apierr.NotFound, "There is no takedown with this id.")

// Holder is a service that holds records.
type Holder struct {
	Name string
	// Kind is tenant.KindLink or tenant.KindVideo: whose ids it knows. It is "" for
	// a holder of records that cannot be taken down.
	Kind string
	tenant.Holder
}

// Close frees idle connections to it.
func (h Holder) Close() {
	if c, ok := h.Holder.(interface{ Close() }); ok {
		c.Close()
	}
}

// Service decides and tells.
type Service struct {
	store   Store
	holders []Holder
	now     func() time.Time
	log     *slog.Logger
	exports exports
}

// NewService makes a service. A nil now is the system's clock.
func NewService(store Store, holders []Holder, now func() time.Time) *Service {
	if now == nil {
		now = time.Now
	}
	return &Service{
		store: store, holders: holders, now: now, log: slog.Default(),
		exports: exports{slots: turns.NewSlots(maxExportsOfAccount, maxExports), now: now},
	}
}

// Settle returns once every holder goes by the state of the account, and notes that.
// An erasure is noted as pending until it has ended.
func (s *Service) Settle(ctx context.Context, a account.Account) error {
	standing := tenant.Standing{State: a.State(), Version: a.Version}
	// Without a shared context: each holder is told, even when another fails.
	var g errgroup.Group
	for _, h := range s.holders {
		g.Go(func() error { return h.SetState(ctx, a.ID, standing) })
	}
	if err := g.Wait(); err != nil || !a.Pending || a.Deleting {
		return err
	}
	// Only now. A crash before this leaves it pending, and Repeat tells the holders again.
	return s.store.Atomically(ctx, "note that holders were told", func(tx account.Tx) error {
		now, err := tx.Account(a.ID)
		// A newer decision has its own telling, which is not done yet.
		if err != nil || !now.Pending || now.State() != a.State() {
			return err
		}
		now.Pending = false
		tx.PutAccount(&now, events.Quiet)
		return nil
	})
}

// Delete begins to erase a suspended account. When it has returned, no redirect
// and no page of it is served; [Service.Repeat] does the rest.
func (s *Service) Delete(ctx context.Context, id string) (account.Account, error) {
	var a account.Account
	err := s.store.Atomically(ctx, "delete account", func(tx account.Tx) (err error) {
		// Asked again there is nothing to decide, but the holders are told once more below.
		if a, err = tx.Account(id); err != nil {
			return err
		}
		if a.Deleting {
			return tx.Again(id)
		}
		if !a.Suspended {
			return apierr.New(apierr.AccountNotSuspended, "Suspend the account before you delete it.")
		}
		a.Deleting, a.Pending = true, true
		tx.PutAccount(&a, events.AccountChanged)
		return nil
	})
	if err != nil {
		return a, err
	}
	return a, s.Settle(ctx, a)
}

// Accounts lists accounts whose name or id has q in it.
func (s *Service) Accounts(ctx context.Context, after string, limit int, q string) ([]account.Account, string, error) {
	return s.store.Accounts(ctx, after, limit, func(a account.Account) bool { return a.Matches(q) })
}

// TakeDown takes a link or video off the air, on every replica before it returns.
// What is taken down already gives the takedown in force. kind is whose id the
// target has; "" for an address.
func (s *Service) TakeDown(ctx context.Context, o tenant.Order, kind string) (Takedown, error) {
	t := Takedown{Takedown: tenant.Takedown{ID: o.ID, Reason: o.Reason, At: o.At}, Target: o.Target, Kind: kind, Phase: Asked}
	// Stored before any holder is asked: if this process dies, Run finds the order and asks.
	if err := s.store.PutTakedown(ctx, t); err != nil {
		return t, err
	}
	t, err := s.enforce(ctx, t)
	if err != nil {
		return t, err
	}
	s.audit(ctx, "takedown.create", t)
	return t, nil
}

func (s *Service) audit(ctx context.Context, action string, t Takedown) {
	s.log.InfoContext(ctx, "audit", "action", action, "account", t.AccountID, "takedown", t.ID, "record", t.RecordID, "by", "operator")
}

// enforce asks the holders, and ends with a takedown in force or none.
func (s *Service) enforce(ctx context.Context, t Takedown) (Takedown, error) {
	missing := apierr.New(apierr.NotFound, "No link or video has this address.")
	for _, h := range s.holders {
		if h.Kind == "" || t.Kind != "" && t.Kind != h.Kind {
			continue
		}
		made, err := h.TakeDown(ctx, tenant.Order{ID: t.ID, Target: t.Target, Reason: t.Reason, At: t.At})
		switch code := apierr.CodeOf(err); {
		case err == nil && made.ID != t.ID:
			// It was taken down before; this one is not needed.
			found, err := s.store.Takedown(ctx, made.ID)
			// No record of the earlier one: it was just lifted, or the store went back to a backup.
			// The holder's answer is then the best there is.
			if errors.Is(err, ErrNoTakedown) {
				found, err = Takedown{Takedown: made, Phase: InForce}, nil
			}
			return found, errors.Join(err, s.store.DeleteTakedown(ctx, t.ID))
		case err == nil:
			t.Takedown, t.Phase = made, InForce
			return t, s.store.PutTakedown(ctx, t)
		case code == apierr.LinkNotFound, code == apierr.VideoNotFound:
			if t.Kind != "" {
				missing = apierr.New(code, "There is no "+h.Kind+" with this id.")
			}
		default:
			return t, err // it stays asked, and Run asks again
		}
	}
	// Every holder has looked and has no such record, so there is nothing to repeat either.
	return t, errors.Join(missing, s.store.DeleteTakedown(ctx, t.ID))
}

// Takedowns lists takedowns, newest first.
func (s *Service) Takedowns(ctx context.Context, after string, limit int) ([]Takedown, string, error) {
	return s.store.Takedowns(ctx, after, limit)
}

// Takedown finds a takedown.
func (s *Service) Takedown(ctx context.Context, id string) (Takedown, error) {
	return s.store.Takedown(ctx, id)
}

// Lift ends a takedown.
func (s *Service) Lift(ctx context.Context, id string) error {
	t, err := s.store.Takedown(ctx, id)
	if err != nil {
		return err
	}
	t.Phase = Lifting
	// Stored before the holder is asked: if this process dies, Run lifts it.
	if err := s.store.PutTakedown(ctx, t); err != nil {
		return err
	}
	s.audit(ctx, "takedown.lift", t)
	return s.lift(ctx, t)
}

func (s *Service) lift(ctx context.Context, t Takedown) error {
	for _, h := range s.holders {
		if h.Kind != "" && h.Kind == t.Takedown.Kind {
			if err := h.Lift(ctx, t.Takedown); err != nil {
				return err
			}
		}
	}
	// Last: until the record is gone, Run repeats the call.
	return s.store.DeleteTakedown(ctx, t.ID)
}

// Every is how often pending decisions are repeated.
const Every = 5 * time.Second

// pendingPage is how many pending accounts are read at once.
const pendingPage = 100

// Repeat goes over what is pending once. One that fails holds up no other.
func (s *Service) Repeat(ctx context.Context) error {
	var failed []error
	note := func(what string, err error) {
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
		}
	}
	// Every replica does this, without a lease. Each step may be done twice at the same time.
	for after, more := "", true; more; {
		accounts, err := s.store.Pending(ctx, after, pendingPage)
		note("list pending accounts", err)
		for _, a := range accounts {
			note("settle account "+a.ID, s.settle(ctx, a))
			after = a.ID
		}
		// All of them: erasures, which last, must not hide a suspension behind them.
		more = len(accounts) == pendingPage
	}
	takedowns, err := s.store.UnsettledTakedowns(ctx, pendingPage)
	note("list pending takedowns", err)
	for _, t := range takedowns {
		if s.now().Sub(t.At) < Every && t.Phase == Asked {
			continue // the request that asked is at it
		}
		if t.Phase == Lifting {
			err = s.lift(ctx, t)
		} else {
			_, err = s.enforce(ctx, t)
		}
		switch apierr.CodeOf(err) {
		case apierr.NotFound, apierr.LinkNotFound, apierr.VideoNotFound:
			continue // nothing is there any more, and the takedown is gone too
		}
		note("settle takedown "+t.ID, err)
	}
	return errors.Join(failed...)
}

// settle finishes a decision. It ends an erasure once no holder has anything left.
func (s *Service) settle(ctx context.Context, a account.Account) error {
	if err := s.Settle(ctx, a); err != nil || !a.Deleting {
		return err
	}
	// In the order of the list, which ends with events: it may still receive some while the
	// others erase.
	for _, h := range s.holders {
		if done, err := h.Erased(ctx, a.ID); err != nil || !done {
			return err
		}
	}
	if err := s.liftAll(ctx, a.ID); err != nil {
		return err
	}
	// With it its keys go. What Redis has of it expires in minutes.
	if err := s.store.Erase(ctx, a.ID, s.now()); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "audit", "action", "account.erased", "account", a.ID, "by", "system")
	return nil
}

// liftAll ends the takedowns of an account that has nothing left to take down. Its
// slugs are held for as long as those of any deleted link, where a takedown would
// keep its reason, and the account's id, for ever.
func (s *Service) liftAll(ctx context.Context, accountID string) error {
	for {
		some, err := s.store.TakedownsOf(ctx, accountID, 100)
		if err != nil || len(some) == 0 {
			return err
		}
		for _, t := range some {
			if err := s.lift(ctx, t); err != nil {
				return err
			}
		}
	}
}
