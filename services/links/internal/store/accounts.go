package store

import (
	"context"
	"time"

	"cloud.google.com/go/firestore"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/links/internal/tenancy"
)

// accountDoc is linkAccounts/{account}: what auth has told us last about an
// account. Without a document an account is active.
type accountDoc struct {
	State    string     `firestore:"state"`
	Version  int64      `firestore:"version"`
	Since    time.Time  `firestore:"since"`
	ErasedAt *time.Time `firestore:"erasedAt"`
	// Purging is true for deleting accounts that are not erased yet, by which the
	// purge finds them among all that ever were suspended.
	Purging bool `firestore:"purging"`
}

func (s *Store) accountRef(id string) *firestore.DocumentRef {
	return s.db.Collection("linkAccounts").Doc(id)
}

func accountOf(d *accountDoc) *tenancy.Record {
	return &tenancy.Record{Standing: tenant.Standing{State: tenant.State(d.State), Version: d.Version}, Since: d.Since, ErasedAt: timeOrZero(d.ErasedAt)}
}

// Account implements [tenancy.Store].
func (s *Store) Account(ctx context.Context, accountID string) (*tenancy.Record, error) {
	if !validID(accountID) {
		return nil, nil
	}
	var d accountDoc
	found, err := s.get(ctx, "get account state", s.accountRef(accountID), &d)
	if err != nil || !found {
		return nil, err
	}
	return accountOf(&d), nil
}

// Suspended reports whether an account's links redirect nobody, because it is
// suspended or being erased.
func (s *Store) Suspended(ctx context.Context, accountID string) (bool, error) {
	r, err := s.Account(ctx, accountID)
	return r != nil && r.Standing.State != tenant.Active, err
}

// PutAccount implements [tenancy.Store].
func (s *Store) PutAccount(ctx context.Context, accountID string, decide func(before *tenancy.Record) *tenancy.Record) error {
	if !validID(accountID) {
		return nil
	}
	return s.atomically(ctx, s.db.Tx, "set account state", func(t *tx) error {
		var d accountDoc
		found, err := t.load(s.accountRef(accountID), &d)
		if err != nil {
			return err
		}
		var before *tenancy.Record
		if found {
			before = accountOf(&d)
		}
		after := decide(before)
		if after == nil {
			return nil
		}
		return t.ft.Set(s.accountRef(accountID), &accountDoc{
			State: string(after.Standing.State), Version: after.Standing.Version, Since: after.Since, ErasedAt: timeOrNil(after.ErasedAt),
			Purging: after.Standing.State == tenant.Deleting && after.ErasedAt.IsZero(),
		})
	})
}

// Deleting implements [tenancy.Store].
func (s *Store) Deleting(ctx context.Context, limit int) ([]string, error) {
	return s.db.IDs(ctx, "list deleting accounts", s.db.Collection("linkAccounts").Where("purging", "==", true).Limit(limit))
}

// Forget implements [tenancy.Store].
func (s *Store) Forget(ctx context.Context, accountID string) error {
	if err := s.labels.Forget(ctx, accountID); err != nil {
		return err
	}
	if err := s.forgetPauses(ctx, accountID); err != nil {
		return err
	}
	return quota.Forget(ctx, s.db, accountID)
}

// forgetPauses removes what the account's domains have left behind of certificates.
func (s *Store) forgetPauses(ctx context.Context, accountID string) error {
	const page = 450
	for {
		left, err := s.db.Find(ctx, "list pauses of certificates", s.db.Collection("certificates").Where("accountId", "==", accountID).Limit(page))
		if err != nil {
			return err
		}
		if err := s.db.DeleteAll(ctx, "remove pauses of certificates", left...); err != nil || len(left) < page {
			return err
		}
	}
}

// RemoveStats implements [link.Store].
func (s *Store) RemoveStats(ctx context.Context, linkIDs []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, id := range linkIDs {
		g.Go(func() error { return s.removeDays(ctx, id) })
	}
	return g.Wait()
}

// removeDays removes the days of one link. A day with [maxReferrers] long names has
// 30 kB, and what a commit deletes counts toward the 10 MiB that it may change.
func (s *Store) removeDays(ctx context.Context, linkID string) error {
	const page = 200
	for {
		days, err := s.db.Find(ctx, "list click days", s.linkRef(linkID).Collection("days").Limit(page))
		if err != nil {
			return err
		}
		if err := s.db.DeleteAll(ctx, "remove click days", days...); err != nil || len(days) < page {
			return err
		}
	}
}

// Days implements [link.Store].
func (s *Store) Days(ctx context.Context, linkID string, after link.Day, limit int) (page []link.DayStats, more bool, err error) {
	q := s.linkRef(linkID).Collection("days").OrderBy(firestore.DocumentID, firestore.Asc).StartAfter(after.String()).Limit(limit)
	err = s.db.Do(ctx, "read click days", func(ctx context.Context) error {
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		page, more = make([]link.DayStats, 0, len(snaps)), len(snaps) == limit
		for _, snap := range snaps {
			var d dayDoc
			if err := snap.DataTo(&d); err != nil {
				return err
			}
			if day, ok := link.ParseDay(snap.Ref.ID); ok {
				page = append(page, link.DayStats{Day: day, Clicks: d.Clicks, Referrers: sharesOf(d.Referrers), Countries: sharesOf(d.Countries), Devices: sharesOf(d.Devices)})
			}
		}
		return nil
	})
	return page, more, err
}

// sharesOf reads a day's map, most clicks first.
func sharesOf(stored map[string]int64) []link.Share {
	m := make(map[string]int64, len(stored))
	for k, n := range stored {
		m[nameOf(k)] += n
	}
	return ranked(m)
}
