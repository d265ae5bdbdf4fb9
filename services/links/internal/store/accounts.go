package store

import (
	"context"

	"cloud.google.com/go/firestore"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Standings returns the store for auth's decisions about accounts.
func Standings(db *firestoredb.DB) keeper.Standings {
	return keeper.Standings{DB: db, Collection: "linkAccounts"}
}

// Remains implements [tenancy.Store].
func (s *Store) Remains(ctx context.Context, accountID string) (bool, error) {
	found, err := s.db.Find(ctx, "look for links", s.db.Collection("links").Where("accountId", "==", accountID).Limit(1))
	if err != nil || len(found) > 0 {
		return true, err
	}
	return s.Records.Remains(ctx, accountID)
}

// Forget implements [tenancy.Store].
func (s *Store) Forget(ctx context.Context, accountID string) (more bool, err error) {
	if err := s.labels.Forget(ctx, accountID); err != nil {
		return false, err
	}
	const page = 450
	return s.Records.Erase(ctx, accountID, page)
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

// removeDays removes the days of one link. A day with the maximum number of long names takes up 50
// kB, and deleted data counts toward the limit of 10 MiB per commit.
func (s *Store) removeDays(ctx context.Context, linkID string) error {
	return s.db.EraseAll(ctx, "remove click days", s.days(linkID).Query, 150)
}

// Days implements [link.Store].
func (s *Store) Days(ctx context.Context, linkID string, after link.Day, limit int) (page []link.DayStats, more bool, err error) {
	q := s.days(linkID).OrderBy(firestore.DocumentID, firestore.Asc).StartAfter(after.String()).Limit(limit)
	page, err = firestoredb.List(ctx, s.db.DB, "read click days", q, readDay)
	return page, len(page) == limit, err
}

// readDay reads a day. For an unreadable record, it returns only the date, with the error in
// Broken. It never fails.
func readDay(snap firestoredb.Snap) (link.DayStats, error) {
	stats, err := firestoredb.Reader(statsOf)(snap)
	if err != nil {
		stats = statsOf(snap, &dayDoc{})
		stats.Broken = err
	}
	return stats, nil
}

func statsOf(snap firestoredb.Snap, d *dayDoc) link.DayStats {
	day, _ := link.ParseDay(snap.Ref.ID) // the documents are named by day
	return link.DayStats{Day: day, Clicks: d.Clicks, Shares: d.shares()}
}
