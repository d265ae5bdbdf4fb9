package link

import (
	"context"
	"log/slog"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
)

// Links that a release without search has made or changed are not found by filters
// until their index entries are written. The back-fill goes through all links and
// writes what is missing, beside the traffic and in one replica at a time. It
// notes where it is, so that another replica resumes there. While replicas of two
// releases serve together, the older ones go on changing links behind it, so it
// passes several times.
var backfillPauses = []time.Duration{0, 10 * time.Minute, time.Hour, 24 * time.Hour}

// Backfilled is how far the back-fill is.
type Backfilled struct {
	Pass   int
	Cursor string    // of the present pass
	Next   time.Time // when the present pass may begin
}

// Done reports whether no pass is left.
func (p Backfilled) Done() bool { return p.Pass >= len(backfillPauses) }

const (
	backfillEvery = time.Second      // between turns
	backfillIdle  = time.Minute      // while another replica works, or no pass is due
	backfillTurn  = 10 * time.Second // of one replica, after which it notes where it is
	backfillLease = time.Minute
	backfillPage  = 100
)

// Backfill runs until ctx ends.
func (s *Service) Backfill(ctx context.Context) error {
	owner := identity.NewNonce()
	tick := time.NewTicker(backfillEvery)
	defer tick.Stop()
	for {
		worked, err := s.backfillTurn(ctx, owner)
		if err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "search index back-fill is interrupted", "error", err)
		}
		if worked {
			tick.Reset(backfillEvery)
		} else {
			tick.Reset(backfillIdle)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// backfillTurn works for a while if no other replica does and a pass is due.
func (s *Service) backfillTurn(ctx context.Context, owner string) (worked bool, err error) {
	p, mine, err := s.opt.Store.ClaimBackfill(ctx, owner, backfillLease)
	if err != nil || !mine || p.Done() || s.opt.Now().Before(p.Next) {
		return false, err
	}
	for started := time.Now(); time.Since(started) < backfillTurn && ctx.Err() == nil; {
		stale, last, err := s.opt.Store.Stale(ctx, p.Cursor, backfillPage)
		if err != nil {
			return true, err
		}
		if len(stale) > 0 {
			if err := s.reindex(ctx, stale); err != nil {
				return true, err
			}
		}
		p.Cursor = last
		if last == "" {
			if p.Pass++; !p.Done() {
				p.Next = s.opt.Now().Add(backfillPauses[p.Pass])
			}
			break
		}
	}
	// Noted once a turn. Pages that a crash or an error cuts off are looked at again, which does
	// no harm.
	return true, s.opt.Store.SaveBackfill(ctx, owner, p)
}

// reindex writes the index entries of links. One that cannot be read, or whose entry
// is refused, is logged and passed over; it keeps no other out of the index.
func (s *Service) reindex(ctx context.Context, ids []string) error {
	err := s.index(ctx, ids)
	if !ofARecord(ctx, err) {
		return err
	}
	for _, id := range ids {
		switch err := s.index(ctx, []string{id}); {
		case ofARecord(ctx, err):
			slog.ErrorContext(ctx, "a link cannot be indexed; it is passed over", "link", id, "error", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// ofARecord reports whether an error is about a record, and not about a store that
// does not answer or a turn that has ended.
func ofARecord(ctx context.Context, err error) bool {
	code := apierr.CodeOf(err)
	return err != nil && ctx.Err() == nil && code != apierr.Unavailable && code != apierr.RateLimited
}

func (s *Service) index(ctx context.Context, ids []string) error {
	return s.opt.Store.Atomically(ctx, "index links", func(tx Tx) error {
		found, err := tx.Links(ids...)
		if err != nil {
			return err
		}
		for _, l := range found {
			if l == nil {
				continue
			}
			if err := tx.Index(l); err != nil {
				return err
			}
		}
		return nil
	})
}
