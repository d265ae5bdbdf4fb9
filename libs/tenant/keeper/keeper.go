// Package keeper stores auth's decisions about accounts in each service that has account records.
// It has one document for each account, and one loop that erases records.
//
//	question                          rule
//	which decision is in effect?      the one with the highest version; an older or repeated one changes nothing
//	when does it take effect?         when [Keeper.SetState] returns: the service's Changed has run
//	what is erased?                   all data that the service's Erase finds, a few pages a turn, until it finds no more
//	when is an account erased?        when [Settle] has passed and the service's Remains returns false; each call checks again
//	what about late commits?          erased too: a deleting account is checked again for a day, at increasing intervals
//
// The document is kept after the erasure, as the account's tombstone.
package keeper

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/tenant"
)

// Standings reads the decisions about accounts.
type Standings struct {
	DB         *firestoredb.DB
	Collection string // collection of the documents; each service has its own collection
}

// Standing returns the decision about an account. It is zero if there is no decision.
func (s Standings) Standing(ctx context.Context, accountID string) (tenant.Standing, error) {
	r, err := s.get(ctx, accountID)
	return r.standing(), err
}

func (s Standings) get(ctx context.Context, accountID string) (record, error) {
	r, _, err := firestoredb.Lookup(ctx, s.DB, "get account's standing", s.Ref(accountID), firestoredb.As[record])
	return r, err
}

// Ref returns the reference to an account's document, for stores that read it together with other
// documents; see [Of].
func (s Standings) Ref(accountID string) firestoredb.Ref { return s.DB.Ref(s.Collection, accountID) }

// Of reads the standing from an account's document. It is zero if there is no decision.
func Of(snap firestoredb.Snap) (tenant.Standing, error) {
	if snap == nil || !snap.Exists() {
		return tenant.Standing{}, nil
	}
	r, err := firestoredb.As[record](snap)
	return r.standing(), err
}

// Options configure a [Keeper]. Changed and Resume may be nil.
type Options struct {
	Standings
	Now func() time.Time // if nil, the system clock
	// Turns lets one replica look for due accounts on behalf of all replicas. If it is nil, this
	// replica always looks.
	Turns *dedup.Seen

	// Changed returns once every replica of the service uses the state: it announces the state, or
	// waits until the replicas' caches have expired. It also runs for a repeated decision because
	// the first attempt may have died before calling it.
	Changed func(ctx context.Context, accountID string, s tenant.State) error
	// Erase deletes about a page of an account's data in the service, and reports whether there may
	// be more.
	Erase func(ctx context.Context, accountID string) (more bool, err error)
	// Remains reports whether the service still has account data that Erase would delete.
	Remains func(ctx context.Context, accountID string) (bool, error)
	// Resume does the work that was postponed during a suspension, and reports whether there was
	// any. The call is repeated until no work is left, for at most a day.
	Resume func(ctx context.Context, accountID string) (waited bool, err error)
}

// Keeper stores the decisions about accounts. It is safe for concurrent use, even by several
// replicas.
type Keeper struct {
	Standings
	opt  Options
	wake chan struct{}
}

// New returns a keeper.
func New(opt Options) *Keeper {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Turns == nil {
		opt.Turns = dedup.New(nil, time.Now)
	}
	return &Keeper{Standings: opt.Standings, opt: opt, wake: make(chan struct{}, 1)}
}

// record is the stored decision about an account. It is absent if there is no decision.
type record struct {
	State   string    `firestore:"state"`
	Version int64     `firestore:"version"`
	Since   time.Time `firestore:"since"` // when the state began
	// LookAt is the time of the account's next turn. It is nil if there is none.
	LookAt *time.Time `firestore:"lookAt,omitempty"`
}

func (r *record) standing() tenant.Standing {
	return tenant.Standing{State: tenant.State(r.State), Version: r.Version}
}

// change passes an account's record to decide, stores the record if decide returns true, and
// returns it.
func (k *Keeper) change(ctx context.Context, accountID string, decide func(*record) bool) (r record, err error) {
	err = k.DB.Tx(ctx, "set account's standing", func(_ context.Context, tx *firestore.Transaction) error {
		r = record{}
		snaps, err := tx.GetAll([]firestoredb.Ref{k.Ref(accountID)})
		if err != nil {
			return err
		}
		if snaps[0].Exists() {
			if r, err = firestoredb.As[record](snaps[0]); err != nil {
				return err
			}
		}
		if !decide(&r) {
			return nil
		}
		return tx.Set(k.Ref(accountID), &r)
	})
	return r, err
}

// SetState implements [tenant.Holder].SetState.
func (k *Keeper) SetState(ctx context.Context, accountID string, s tenant.Standing) error {
	if k.Ref(accountID) == nil {
		return fmt.Errorf("%q is not an account's id", accountID)
	}
	now := k.opt.Now()
	r, err := k.change(ctx, accountID, func(r *record) bool {
		switch {
		// "active" is stored too, for its version: an older suspension may still arrive.
		case s.Version > r.Version:
			*r = record{State: string(s.State), Version: s.Version, Since: now}
		// auth repeats the call until the erasure is complete. Each repetition makes the account
		// due now.
		case s != r.standing() || s.State != tenant.Deleting || r.LookAt != nil && r.LookAt.Before(now.Add(lookEvery)):
			return false
		}
		if s.State == tenant.Deleting || s.State == tenant.Active && k.opt.Resume != nil {
			r.LookAt = &now
		}
		return true
	})
	if err != nil {
		return err
	}
	k.hurry()
	if k.opt.Changed == nil {
		return nil
	}
	return k.opt.Changed(ctx, accountID, tenant.State(r.State))
}

// Settle is the minimum time between the decision and the time at which an account counts as
// erased. A request that was admitted before the suspension may still commit, but requests never
// last longer than ten seconds.
const Settle = 15 * time.Second

// Erased implements [tenant.Holder].Erased.
func (k *Keeper) Erased(ctx context.Context, accountID string) (bool, error) {
	r, err := k.get(ctx, accountID)
	if err != nil || tenant.State(r.State) != tenant.Deleting || k.opt.Now().Sub(r.Since) < Settle {
		return false, err
	}
	remains, err := k.opt.Remains(ctx, accountID)
	return err == nil && !remains, err
}

const (
	lookEvery = 5 * time.Second
	// lookIdle is the longest pause while no accounts are due. The replica that stores a decision
	// looks immediately. If it is killed before that, auth repeats the decision within seconds. If
	// the account is active again, auth does not repeat it, and the work waits until this pause is
	// over.
	lookIdle = 30 * time.Second
	accounts = 100 // number of accounts that get a turn in one round
	// turn is how many of one account's pages a round erases, so a large account does not delay
	// erasing other accounts.
	turn = 10
	// watched is how long a deleting account is checked: a replica that was suspended may still
	// commit a request that began before the decision.
	watched = 24 * time.Hour
	// resumeEvery is the pause between calls to Resume, which is repeated in case the replica that
	// runs it is killed. It is repeated at least once because another replica may still postpone
	// work after reading the old state.
	resumeEvery = time.Minute
)

// Run gives due accounts their turns until ctx is done. After a crash, it resumes by looking for
// data that has not been erased yet. Several replicas may work on one account at the same time.
// Each erases the data that it finds.
func (k *Keeper) Run(ctx context.Context) error {
	pace := dedup.Pace{What: "sweep of " + k.Collection, Every: lookEvery, Idle: lookIdle}
	return boot.Sweep(k.opt.Turns, pace, k.round, k.wake).Run(ctx)
}

// hurry makes the loop look for due accounts immediately.
func (k *Keeper) hurry() {
	select {
	case k.wake <- struct{}{}:
	default: // a wake-up is already pending, and its round will also find this account
	}
}

func (k *Keeper) round(ctx context.Context) (found bool, err error) {
	due, err := k.DB.IDs(ctx, "list due accounts", k.DB.Collection(k.Collection).
		Where("lookAt", "<=", k.opt.Now()).OrderBy("lookAt", firestore.Asc).Limit(accounts))
	if err != nil {
		return false, err
	}
	for _, id := range due {
		if err := k.look(ctx, id); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "cannot erase or resume an account; a later round retries", "account", id, "error", err)
		}
	}
	return len(due) > 0, nil
}

// look gives an account its turn, and sets the time of the next turn.
func (k *Keeper) look(ctx context.Context, accountID string) error {
	r, err := k.get(ctx, accountID)
	if err != nil {
		return err
	}
	more, failed := k.turn(ctx, accountID, r)
	if more && tenant.State(r.State) == tenant.Deleting {
		k.hurry()
	}
	now := k.opt.Now()
	_, err = k.change(ctx, accountID, func(present *record) bool {
		if present.standing() != r.standing() {
			return false // a newer decision has also set the time
		}
		present.LookAt = present.next(now, more)
		if failed != nil {
			// Do not retry immediately: a hundred failing accounts would fill every round.
			later := now.Add(resumeEvery)
			present.LookAt = &later
		}
		return true
	})
	if failed != nil {
		return failed
	}
	return err
}

// turn does the due work for an account, and reports whether there is more.
func (k *Keeper) turn(ctx context.Context, accountID string, r record) (more bool, err error) {
	if tenant.State(r.State) != tenant.Deleting {
		if k.opt.Resume == nil {
			return false, nil
		}
		return k.opt.Resume(ctx, accountID)
	}
	for range turn {
		if more, err = k.opt.Erase(ctx, accountID); err != nil || !more || ctx.Err() != nil {
			return more, err
		}
	}
	return more, nil
}

// next returns the time of an account's next turn after a turn at now, or nil if it has none. more
// means that the turn at now did not finish the work.
func (r *record) next(now time.Time, more bool) *time.Time {
	since := now.Sub(r.Since)
	at := now
	switch deleting := tenant.State(r.State) == tenant.Deleting; {
	case deleting && more: // now, after all other due accounts
	case deleting && since < watched:
		// The pauses get longer because late commits usually arrive soon. The last check is at
		// least a day after the decision.
		at = now.Add(max(lookEvery, since))
	// Resume runs again while work is left, for up to a day. If the state is less than a minute
	// old, it runs at least once more (see resumeEvery).
	case !deleting && (more && since < watched || since < resumeEvery):
		at = now.Add(resumeEvery)
	default:
		return nil
	}
	return &at
}
