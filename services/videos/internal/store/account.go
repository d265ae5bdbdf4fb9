package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// accountDocument is what was decided about an account. An account without one is
// active. That of an erased account stays: it is the tombstone.
type accountDocument struct {
	State   string    `firestore:"state"`
	Version int64     `firestore:"version"`
	At      time.Time `firestore:"at"`
	// EraseAt is there while there may be something left to erase.
	EraseAt *time.Time `firestore:"eraseAt,omitempty"`
}

// Standing is what was decided about an account; the zero value for one that
// nothing was decided about.
func (s *Store) Standing(ctx context.Context, account string) (tenant.Standing, error) {
	if !validID(account) {
		return tenant.Standing{}, nil
	}
	var d accountDocument
	err := s.db.Do(ctx, "get account's standing", func(ctx context.Context) error {
		snap, err := s.account(account).Get(ctx)
		if err != nil {
			return err
		}
		return snap.DataTo(&d)
	})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return tenant.Standing{}, nil
	}
	return tenant.Standing{State: tenant.State(d.State), Version: d.Version}, err
}

// SetStanding keeps a decision, unless a later one is known.
func (s *Store) SetStanding(ctx context.Context, account string, standing tenant.Standing) error {
	if !validID(account) {
		return errors.New("not an account's id")
	}
	return s.db.Tx(ctx, "set account's standing", func(_ context.Context, tx *firestore.Transaction) error {
		var d accountDocument
		snap, err := tx.Get(s.account(account))
		switch {
		case err == nil:
			if err := snap.DataTo(&d); err != nil {
				return err
			}
		case !errors.Is(firestoredb.Map(err), firestoredb.ErrNotFound):
			return err
		}
		// The same decision told again must not begin an erasure anew that has ended.
		if standing.Version < d.Version || standing.Version == d.Version && tenant.State(d.State) == standing.State {
			return nil
		}
		now := s.now()
		d = accountDocument{State: string(standing.State), Version: standing.Version, At: now}
		if standing.State == tenant.Deleting {
			d.EraseAt = &now
		}
		return tx.Set(s.account(account), d)
	})
}

// Erasing lists accounts that may have something left to erase.
func (s *Store) Erasing(ctx context.Context) ([]string, error) {
	return s.db.IDs(ctx, "list accounts to erase", s.db.Collection(accounts).Where("eraseAt", "<=", s.now()).OrderBy("eraseAt", firestore.Asc).Limit(pageSize))
}

// EraseSome removes up to a page of an account's records and reports whether
// there are more. Done again it goes on where it was cut off.
func (s *Store) EraseSome(ctx context.Context, account string) (more bool, err error) {
	mine, err := s.db.Find(ctx, "list videos to erase", s.db.Collection(videos).Where("accountId", "==", account).Limit(eraseSize))
	if err != nil {
		return true, err
	}
	for _, ref := range mine {
		// Gone means deleted by its owner or by another replica that erases at the same time.
		if err := s.Erase(ctx, video.ID(ref.ID)); err != nil && !isGone(err) {
			return true, err
		}
	}
	names := 0
	// With the last page of videos: until then records still carry tags.
	if len(mine) < eraseSize {
		if err := s.tags.Forget(ctx, account); err != nil {
			return true, err
		}
		if names, err = s.eraseNames(ctx, account); err != nil {
			return true, err
		}
	}
	// Videos that were deleted before left slugs, and tasks that may run for days.
	now := s.now()
	held, err := s.snapshots(ctx, "list slugs to erase", s.db.Collection(slugs).Where("accountId", "==", account).Limit(eraseSize))
	if err != nil {
		return true, err
	}
	for _, snap := range held {
		if err := s.db.Do(ctx, "hold slug", func(ctx context.Context) error {
			// Set also drops the account's id, so the slug no longer counts as something that remains.
			_, err := snap.Ref.Set(ctx, heldSlug(now))
			return err
		}); err != nil {
			return true, err
		}
	}
	shortened, err := s.shortenPurges(ctx, account)
	if err != nil {
		return true, err
	}
	return slices.Contains([]int{len(mine), len(held), shortened, names}, eraseSize), nil
}

// eraseNames removes some of an account's external ids and reports how many. A
// video takes its own along; this is for videos whose record could not be read.
func (s *Store) eraseNames(ctx context.Context, account string) (int, error) {
	left, err := s.db.Find(ctx, "list external ids to erase", s.db.Collection(externalIDs).Where("accountId", "==", account).Limit(eraseSize))
	if err != nil {
		return 0, err
	}
	return len(left), s.db.DeleteAll(ctx, "erase external ids", left...)
}

// shortenPurges ends an account's purge tasks soon, some at a time, and reports
// how many it has shortened.
func (s *Store) shortenPurges(ctx context.Context, account string) (n int, err error) {
	now := s.now()
	end := video.ErasedBy(now)
	mine := s.db.Collection(purges).Where("accountId", "==", account)
	for what, q := range map[string]firestore.Query{
		// A task that has less time left keeps it: starting it anew each round would never end it.
		// Those that were shortened are not found again, so the next call sees others.
		"list purges to shorten": mine.Where("until", ">", end).OrderBy("until", firestore.Asc).Limit(eraseSize),
		// Without an end that can be compared a task would stay for ever. It comes into
		// view here once the readable ones before it have ended.
		"list purges to mend": mine.Limit(eraseSize),
	} {
		tasks, broken, err := s.findPurges(ctx, what, q)
		if err != nil {
			return n, err
		}
		for _, snap := range broken {
			tasks = append(tasks, salvagedPurge(snap, account, now))
		}
		for _, p := range tasks {
			if p.Until.After(end) || p.Until.IsZero() {
				// Tasks of an older release have no Late; they looked for late uploads until Until.
				p.Late = video.Later(p.Late, p.Until)
				p.Until, p.Since, p.Due = end, now, now
				if err := s.PutOffPurge(ctx, p); err != nil {
					return n, err
				}
				n++
			}
		}
	}
	return min(n, eraseSize), nil
}

// eraseSize is how many records one round removes; each takes a transaction.
const eraseSize = 50

// Remains reports whether there is anything left of an account but its tombstone.
func (s *Store) Remains(ctx context.Context, account string) (bool, error) {
	for _, collection := range []string{videos, purges, slugs, externalIDs} {
		found, err := s.db.Find(ctx, "look for what is left", s.db.Collection(collection).Where("accountId", "==", account).Limit(1))
		if err != nil || len(found) > 0 {
			return true, err
		}
	}
	return false, nil
}

// EndErase notes that nothing is left. A video that was created while the account
// was being erased is found by looking again a day later, which the first call asks
// for; the second ends it.
func (s *Store) EndErase(ctx context.Context, account string) error {
	if err := quota.Forget(ctx, s.db, account); err != nil {
		return err
	}
	return s.db.Tx(ctx, "end erasure", func(_ context.Context, tx *firestore.Transaction) error {
		snap, err := tx.Get(s.account(account))
		if err != nil {
			return err
		}
		var d accountDocument
		if err := snap.DataTo(&d); err != nil {
			return err
		}
		again := d.At.Add(24 * time.Hour)
		d.EraseAt = &again
		if !s.now().Before(again) {
			d.EraseAt = nil
		}
		return tx.Set(s.account(account), d)
	})
}

func (s *Store) account(id string) *firestore.DocumentRef { return s.db.Collection(accounts).Doc(id) }

func isGone(err error) bool { return errors.Is(err, video.NotFound()) }
