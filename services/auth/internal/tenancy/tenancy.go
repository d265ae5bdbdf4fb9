// Package tenancy sends auth's decisions about accounts to the holders (libs/tenant), which are
// the services that hold accounts' records. It implements the operator's erasures and takedowns,
// and account exports.
//
// Each decision is committed before the holders are notified. A crash in between is harmless:
// [Service.Repeat] finishes the work.
package tenancy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/turns"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Store stores accounts and takedowns.
type Store interface {
	account.Store
	// Accounts lists matching accounts by id, starting after the id after. It reads a bounded
	// number of accounts, so a page may be short. next is "" at the end.
	Accounts(
		ctx context.Context,
		after string,
		limit int,
		match func(account.Account) bool,
	) (page []account.Account, next string, err error)
	// Pending lists, by id, the accounts with a decision that has not taken effect everywhere,
	// starting after the id after. next is "" at the end. Pending skips accounts that cannot be
	// read, and returns their errors along with the page.
	Pending(ctx context.Context, after string, limit int) (page []account.Account, next string, err error)
	// Erase removes auth's records about an account and leaves a tombstone.
	Erase(ctx context.Context, id string, at time.Time) error

	Takedown(ctx context.Context, id string) (Takedown, error)
	// Takedowns lists takedowns, newest first, starting after the takedown with the id after.
	// It returns ErrNoTakedown if that takedown does not exist.
	Takedowns(ctx context.Context, after string, limit int) (page []Takedown, next string, err error)
	// UnsettledTakedowns lists takedowns with a change that the holder may not have applied. It
	// pages and reports errors like Pending.
	UnsettledTakedowns(ctx context.Context, after string, limit int) (page []Takedown, next string, err error)
	// TakedownsOf lists an account's takedowns by id, starting after the id after. next is "" at
	// the end. If a takedown cannot be read, it returns as much as it can of the data needed to
	// lift it.
	TakedownsOf(ctx context.Context, accountID, after string, limit int) (page []Takedown, next string, err error)
	PutTakedown(ctx context.Context, t Takedown) error
	// OrderTakedown stores a takedown unless one with its id exists, and returns the stored one.
	OrderTakedown(ctx context.Context, t Takedown) (Takedown, error)
	// LiftTakedown sets a takedown's phase to Lifting, both in the store and in the trail, and
	// returns the takedown. If it does not exist, it returns ErrNoTakedown.
	LiftTakedown(ctx context.Context, id string) (Takedown, error)
	// ConfirmTakedown writes a takedown in phase InForce, as PutTakedown does. If the stored
	// takedown is being lifted or no longer exists, it returns ErrNoTakedown instead.
	ConfirmTakedown(ctx context.Context, t Takedown) error
	// NoteTakedown writes a takedown's state to the trail, as PutTakedown does, without
	// changing the takedown. It returns the takedown.
	NoteTakedown(ctx context.Context, id string) (Takedown, error)
	DeleteTakedown(ctx context.Context, id string) error
}

// Phase is the progress of a takedown.
type Phase string

// The phases.
const (
	Asked   Phase = "asked" // the holder may not have applied it yet
	InForce Phase = "in force"
	Lifting Phase = "lifting"
)

// Takedown is a takedown as auth stores it.
type Takedown struct {
	tenant.Takedown
	Target tenant.Target
	Kind   string // the record's kind if the target is an id; "" if it is a URL
	Phase  Phase
}

// ErrNoTakedown is the error for a takedown that does not exist.
var ErrNoTakedown = apierr.New(apierr.NotFound, "There is no takedown with this id.")

// Holder is a service that holds accounts' records.
type Holder struct {
	Name string
	// Kind is the kind of record that the holder takes down: tenant.KindLink or
	// tenant.KindVideo. It is "" if the holder's records cannot be taken down.
	Kind string
	tenant.Holder
}

// Close closes idle connections to the holder.
func (h Holder) Close() {
	if c, ok := h.Holder.(interface{ Close() }); ok {
		c.Close()
	}
}

// Service makes decisions about accounts and notifies the holders.
type Service struct {
	store   Store
	holders []Holder
	now     func() time.Time
	log     *slog.Logger
	exports exports

	patience, erasurePatience time.Duration // see the constants; replaced by tests
}

// NewService returns a service. If now is nil, the system clock is used.
func NewService(store Store, holders []Holder, now func() time.Time) *Service {
	if now == nil {
		now = time.Now
	}
	return &Service{
		store: store, holders: holders, now: now, log: slog.Default(),
		exports:  exports{slots: turns.NewSlots(maxExportsOfAccount, maxExports), now: now},
		patience: patience, erasurePatience: erasurePatience,
	}
}

// Settle notifies the holders, and clears Pending once every holder has applied the account's
// state. An erasure remains pending until it is complete.
func (s *Service) Settle(ctx context.Context, a account.Account) error {
	standing := tenant.Standing{State: a.State(), Version: a.Version}
	// Do not use errgroup.WithContext: each holder must be notified even if another one fails.
	var g errgroup.Group
	for _, h := range s.holders {
		g.Go(func() error { return h.SetState(ctx, a.ID, standing) })
	}
	if err := g.Wait(); err != nil || !a.Pending || a.Deleting {
		return err
	}
	// Clear Pending only now. If the process crashes before this point, Pending is still set,
	// and Repeat notifies the holders again.
	return s.store.Atomically(ctx, "record that holders were told", func(tx account.Tx) error {
		now, err := tx.Account(a.ID)
		// A newer decision remains pending until its own Settle clears it.
		if err != nil || !now.Pending || now.State() != a.State() {
			return err
		}
		now.Pending = false
		tx.PutAccount(&now, events.Quiet)
		return nil
	})
}

// Delete starts the erasure of a suspended account. When it returns, none of the replicas serve the
// account's redirects and pages any more. [Service.Repeat] erases the records later.
func (s *Service) Delete(ctx context.Context, id string) (account.Account, error) {
	var a account.Account
	err := s.store.Atomically(ctx, "delete account", func(tx account.Tx) (err error) {
		// A repeated call changes nothing here, but the Settle below notifies the holders
		// again.
		if a, err = tx.Account(id); err != nil {
			return err
		}
		if a.Deleting {
			tx.Note(a)
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

// Accounts lists accounts with q in their name or id.
func (s *Service) Accounts(ctx context.Context, after string, limit int, q string) ([]account.Account, string, error) {
	return s.store.Accounts(ctx, after, limit, func(a account.Account) bool { return a.Matches(q) })
}

// Failing lists the failing webhooks by id, starting after the webhook with the id after.
func (s *Service) Failing(ctx context.Context, after string, limit int) (tenant.FailingPage, error) {
	for _, h := range s.holders {
		if webhooks, ok := h.Holder.(tenant.Webhooks); ok && h.Kind == "" {
			return webhooks.Failing(ctx, after, limit)
		}
	}
	return tenant.FailingPage{}, nil // a deployment without events has no webhooks
}

// TakeDown takes down a link or video. When it returns, none of the replicas serve it any more. If
// it was already taken down, TakeDown returns the current takedown. kind is the kind of record that
// the target's id refers to. It is "" if the target is a URL.
func (s *Service) TakeDown(ctx context.Context, o tenant.Order, kind string) (Takedown, error) {
	t := Takedown{Takedown: tenant.Takedown{ID: o.ID, Reason: o.Reason, At: o.At}, Target: o.Target, Kind: kind, Phase: Asked}
	// Store the order before calling any holder. If this process crashes, Repeat finds the
	// order and calls the holders.
	t, err := s.store.OrderTakedown(ctx, t)
	switch {
	case err != nil:
		return t, err
	case t.Phase == Lifting: // this order was repeated after its takedown was lifted
		return t, ErrNoTakedown
	case t.Phase == InForce: // the first order may have failed to write its note
		return s.store.NoteTakedown(ctx, t.ID)
	}
	return s.enforce(ctx, t)
}

func (s *Service) audit(ctx context.Context, action string, t Takedown) {
	s.log.InfoContext(ctx, "audit", "action", action, "account", t.AccountID, "takedown", t.ID, "record", t.RecordID, "by", "operator")
}

// enforce tells the holders to take the target down. If it returns no error, a takedown is in
// force.
func (s *Service) enforce(ctx context.Context, t Takedown) (Takedown, error) {
	missing := apierr.New(apierr.NotFound, "No link or video has this address.")
	for _, h := range s.holders {
		if h.Kind == "" || t.Kind != "" && t.Kind != h.Kind {
			continue
		}
		made, earlier, err := s.order(ctx, h, t)
		switch code := apierr.CodeOf(err); {
		case earlier != nil:
			// The target was already taken down, so drop this takedown.
			return *earlier, errors.Join(err, s.store.DeleteTakedown(ctx, t.ID))
		case err == nil:
			return s.confirm(ctx, t, made)
		case code == apierr.LinkNotFound, code == apierr.VideoNotFound:
			if t.Kind != "" {
				missing = apierr.New(code, "There is no "+h.Kind+" with this id.")
			}
		default:
			return t, err // the takedown remains in phase Asked, and Repeat tries again
		}
	}
	// None of the holders have such a record, so there is nothing to retry.
	return t, errors.Join(missing, s.store.DeleteTakedown(ctx, t.ID))
}

// confirm records that a holder has applied the takedown. If the takedown was lifted during the
// call to the holder, confirm also lifts it there and returns ErrNoTakedown.
func (s *Service) confirm(ctx context.Context, t Takedown, made tenant.Takedown) (Takedown, error) {
	t.Takedown, t.Phase = made, InForce
	// Write the audit line before the commit: if the commit's response is lost, later calls do not
	// write it.
	s.audit(ctx, "takedown.create", t)
	err := s.store.ConfirmTakedown(ctx, t)
	if !errors.Is(err, ErrNoTakedown) {
		return t, err
	}
	// Store the takedown first: if the holder cannot lift it now, Repeat tries again.
	t.Phase = Lifting
	if err := s.store.PutTakedown(ctx, t); err != nil {
		return t, err
	}
	return t, cmp.Or(s.lift(ctx, t), err)
}

// orders is how many times one call sends its order if it keeps finding earlier takedowns that
// are ending.
const orders = 3

// order asks a holder to take a target down. If another takedown of the target is in force,
// order returns it as earlier, even if its note cannot be written to the trail.
func (s *Service) order(ctx context.Context, h Holder, t Takedown) (made tenant.Takedown, earlier *Takedown, err error) {
	unknown := false
	for range orders {
		made, err = h.TakeDown(ctx, tenant.Order{ID: t.ID, Target: t.Target, Reason: t.Reason, At: t.At})
		if err != nil || made.ID == t.ID {
			return made, nil, err
		}
		// Make sure that the trail contains the earlier takedown: the call that ordered it may
		// have failed after the holder applied it.
		found, err := s.store.NoteTakedown(ctx, made.ID)
		switch {
		// Either the earlier takedown has just been lifted, or only the holder has it. If the
		// next order finds it again, only the holder has it.
		case errors.Is(err, ErrNoTakedown) && !unknown:
			unknown = true
			continue
		// Only the holder has it. Store it, so that it is in the trail and can be lifted.
		case errors.Is(err, ErrNoTakedown):
			found = Takedown{Takedown: made, Target: tenant.Target{ID: made.RecordID}, Kind: made.Kind, Phase: Asked}
			if found, err = s.store.OrderTakedown(ctx, found); err != nil {
				return made, nil, err
			}
			if found.Phase == Lifting { // somebody else has stored it and is lifting it
				continue
			}
			found, err = s.enforce(ctx, found)
		case err == nil && found.Phase == Lifting:
			// It is about to end, so finish lifting it and order again.
			if err := s.lift(ctx, found); err != nil {
				return made, nil, err
			}
			continue
		case err == nil && found.Phase == Asked: // the call that ordered it has not yet recorded it as in force
			found, err = s.enforce(ctx, found)
		}
		if errors.Is(err, ErrNoTakedown) { // it has since been lifted
			continue
		}
		return made, &found, err
	}
	return made, nil, apierr.Down(fmt.Errorf("sent %d orders for %s, but each found an earlier takedown that was ending", orders, t.ID))
}

// Takedowns lists takedowns, newest first.
func (s *Service) Takedowns(ctx context.Context, after string, limit int) ([]Takedown, string, error) {
	return s.store.Takedowns(ctx, after, limit)
}

// Takedown looks up a takedown.
func (s *Service) Takedown(ctx context.Context, id string) (Takedown, error) {
	return s.store.Takedown(ctx, id)
}

// Lift ends a takedown.
func (s *Service) Lift(ctx context.Context, id string) error {
	// Store the phase before calling the holder. If this process crashes, Repeat lifts the
	// takedown.
	t, err := s.store.LiftTakedown(ctx, id)
	if err != nil {
		return err
	}
	s.audit(ctx, "takedown.lift", t)
	return s.lift(ctx, t)
}

func (s *Service) lift(ctx context.Context, t Takedown) error {
	for _, h := range s.holders {
		end := t.Takedown
		// An empty kind means that none of the holders' responses were stored. A holder may still
		// have applied the takedown.
		if end.Kind == "" && (t.Kind == "" || t.Kind == h.Kind) {
			end.Kind, end.RecordID, end.URL = h.Kind, t.Target.ID, t.Target.URL
		}
		if h.Kind != "" && h.Kind == end.Kind {
			if err := h.Lift(ctx, end); err != nil {
				return err
			}
		}
	}
	// Delete the record last. While it exists, Repeat keeps trying.
	return s.store.DeleteTakedown(ctx, t.ID)
}

// Every is the interval at which pending decisions are retried. Idle is the interval while
// there are none: the request that makes a decision also applies it, so a decision remains
// pending only after a failure.
const (
	Every = 5 * time.Second
	Idle  = 10 * time.Second
)

// pendingPage is how many pending records are read at a time, and together is how many are
// settled concurrently. A restore leaves hundreds, and settling them one by one would take
// minutes. mostErrors is how many errors from one round are reported.
const (
	pendingPage = 100
	together    = 16
	mostErrors  = 20
)

// patience bounds one attempt to finish a decision, so that decisions stuck on a hung holder
// make way for the others. erasurePatience is longer because an erasure has many records, and an
// attempt that is cut off does not resume until a later round.
const (
	patience        = 10 * time.Second
	erasurePatience = time.Minute
)

// Repeat tries once to finish each pending decision, and reports whether there were any. After a
// failure, it continues with the others. Erasures run last because they take longer, and because
// one that runs concurrently with enforce could leave a takedown behind. All other decisions run
// concurrently: a takedown may be waiting for its holder, and a suspension must still reach the
// other holders. Several replicas may perform the same step at the same time.
func (s *Service) Repeat(ctx context.Context) (found bool, err error) {
	var r round
	var erasures atomic.Bool
	var both sync.WaitGroup
	both.Go(func() {
		each(ctx, &r, "takedown", s.patience, func(after string) ([]Takedown, string, error) {
			return s.store.UnsettledTakedowns(ctx, after, pendingPage)
		}, func(ctx context.Context, t Takedown) (string, error) { return t.ID, s.settleTakedown(ctx, t.ID) })
	})
	accounts := func(after string) ([]account.Account, string, error) { return s.store.Pending(ctx, after, pendingPage) }
	both.Go(func() {
		each(ctx, &r, "account", s.patience, accounts, func(ctx context.Context, a account.Account) (string, error) {
			if a.Deleting {
				erasures.Store(true)
				return a.ID, nil
			}
			return a.ID, s.Settle(ctx, a)
		})
	})
	both.Wait()
	if erasures.Load() {
		each(ctx, &r, "account", s.erasurePatience, accounts, func(ctx context.Context, a account.Account) (string, error) {
			if !a.Deleting {
				return a.ID, nil
			}
			return a.ID, s.settle(ctx, a)
		})
	}
	return r.end()
}

// round collects the results of one Repeat.
type round struct {
	mu     sync.Mutex
	found  bool
	failed []error // at most mostErrors
	more   int     // how many more errors there were
}

func (r *round) note(found bool, what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = r.found || found
	switch {
	case err == nil:
	case len(r.failed) == mostErrors:
		r.more++
	default:
		r.failed = append(r.failed, fmt.Errorf("%s: %w", what, err))
	}
}

func (r *round) end() (bool, error) {
	if r.more > 0 {
		r.failed = append(r.failed, fmt.Errorf("%d more errors", r.more))
	}
	return r.found, errors.Join(r.failed...)
}

// each calls settle for every record in a list, several at a time. It reads every page, so records
// that cannot be settled do not hide the others. patience bounds each call.
func each[T any](
	ctx context.Context, r *round, what string, patience time.Duration,
	list func(after string) ([]T, string, error), settle func(context.Context, T) (id string, err error),
) {
	var work errgroup.Group
	work.SetLimit(together)
	for after, more := "", true; more; more = after != "" {
		page, next, err := list(after)
		r.note(len(page) > 0, "list pending "+what+"s", err)
		for _, x := range page {
			work.Go(func() error {
				ctx, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				id, err := settle(ctx, x)
				r.note(false, "settle "+what+" "+id, err)
				return nil
			})
		}
		after = next
	}
	_ = work.Wait() // note collects the errors
}

// settleTakedown finishes applying or lifting a takedown. It returns nil if the record or its
// takedown no longer exists.
func (s *Service) settleTakedown(ctx context.Context, id string) error {
	// The list may be stale, so read the takedown again: one that has since been lifted must not
	// take effect again.
	t, err := s.store.Takedown(ctx, id)
	age := s.now().Sub(t.At)
	switch {
	case err != nil:
	case t.Phase == Lifting:
		err = s.lift(ctx, t)
	case t.Phase == InForce: // already settled
	// The request that created it is still working on it. A time in the future does not tell us its
	// age: clocks differ.
	case 0 <= age && age < Every:
	default:
		_, err = s.enforce(ctx, t)
	}
	switch apierr.CodeOf(err) {
	case apierr.NotFound, apierr.LinkNotFound, apierr.VideoNotFound:
		return nil
	}
	return err
}

// settle finishes a decision. It completes an erasure once none of the holders have any records
// left.
func (s *Service) settle(ctx context.Context, a account.Account) error {
	if err := s.Settle(ctx, a); err != nil || !a.Deleting {
		return err
	}
	// Call the holders in list order. events comes last because it may still receive events while
	// the others erase.
	for _, h := range s.holders {
		if done, err := h.Erased(ctx, a.ID); err != nil || !done {
			return err
		}
	}
	if err := s.liftAll(ctx, a.ID); err != nil {
		return err
	}
	// This also erases the account's keys. Its data in Redis expires within minutes.
	if err := s.store.Erase(ctx, a.ID, s.now()); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "audit", "action", "account.erased", "account", a.ID, "by", "system")
	return nil
}

// liftAll lifts the takedowns on an account that has no records left. A takedown left behind
// would keep its reason and the account's id indefinitely. The account's slugs remain reserved
// for as long as any deleted link's.
func (s *Service) liftAll(ctx context.Context, accountID string) error {
	for after, more := "", true; more; more = after != "" {
		some, next, err := s.store.TakedownsOf(ctx, accountID, after, pendingPage)
		if err != nil {
			return err
		}
		for _, t := range some {
			if err := s.lift(ctx, t); err != nil {
				return err
			}
		}
		after = next
	}
	return nil
}
