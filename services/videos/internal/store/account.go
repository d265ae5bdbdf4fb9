package store

import (
	"context"
	"errors"
	"slices"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Standings are what auth has decided about accounts.
func Standings(db *firestoredb.DB) keeper.Standings {
	return keeper.Standings{DB: db, Collection: "videoAccounts"}
}

// EraseSome removes up to a page of an account's records and reports whether
// there are more. Calling it again resumes where the last call stopped.
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
	if slices.Contains([]int{len(mine), len(held), shortened, names}, eraseSize) {
		return true, nil
	}
	return false, s.db.DeleteAll(ctx, "forget limits", quota.Ref(s.db, account, "videos"), quota.Ref(s.db, account, "storedBytes"))
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

// eraseSize is how many records one page removes; each takes a transaction.
const eraseSize = 20

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

func isGone(err error) bool { return errors.Is(err, video.NotFound()) }
