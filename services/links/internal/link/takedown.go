package link

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/linkreel/linkreel/libs/events"
)

// Takedown is the operator's decision that a link must not redirect.
type Takedown struct {
	ID     string
	Reason string // visible to the owner
	At     time.Time
}

// KeyOf returns the slug key of a link in any account.
func (s *Service) KeyOf(ctx context.Context, id string) (string, error) {
	l, err := s.opt.Store.Link(ctx, id)
	if err != nil {
		return "", err
	}
	return l.Key(), nil
}

// TakeDown takes down the link with a slug. The slug keeps the takedown even if the link is
// deleted. If another takedown is already in effect, it is kept, and the returned link contains it.
func (s *Service) TakeDown(ctx context.Context, slugKey string, t Takedown) (*Link, error) {
	var after *Link
	err := s.opt.Store.Atomically(ctx, "take down link", func(tx Tx) error {
		_, l, err := behind(tx, slugKey)
		if err != nil {
			return err
		}
		if l == nil {
			return NotFound()
		}
		after = l
		if l.Takedown != nil {
			tx.Announce(slugKey)
			return nil
		}
		before := *l
		l.Takedown = &t
		l.Rev++
		l.UpdatedAt = s.opt.Now()
		tx.Put(&before, l, events.LinkUpdated)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return after, nil
}

// Lift ends a takedown on a slug, even if the link was deleted or replaced by another link with the
// same slug. It also succeeds if the takedown is no longer in effect.
func (s *Service) Lift(ctx context.Context, slugKey, takedownID string) error {
	return s.opt.Store.Atomically(ctx, "lift takedown", func(tx Tx) error {
		r, l, err := behind(tx, slugKey)
		if err != nil {
			return err
		}
		if r == nil || r.Takedown == nil || r.Takedown.ID != takedownID {
			tx.Announce(slugKey)
			return nil
		}
		// The link was deleted, and the takedown kept its slug unavailable. The quarantine starts
		// now.
		if r.LinkID == "" {
			r.Takedown, r.ReleasedUntil = nil, s.opt.Now().Add(Quarantine)
			tx.PutSlug(slugKey, r)
			return nil
		}
		if l == nil {
			return nil
		}
		before := *l
		before.Takedown = r.Takedown // the takedown that is in effect
		l.Takedown = nil
		l.Rev++
		l.UpdatedAt = s.opt.Now()
		tx.Put(&before, l, events.LinkUpdated)
		return nil
	})
}

// behind returns a slug's record and its link. Either is nil if it does not exist.
func behind(tx Tx, slugKey string) (*SlugRecord, *Link, error) {
	_, slugs, err := tx.Find(nil, []string{slugKey})
	if err != nil {
		return nil, nil, err
	}
	if slugs[0] == nil || slugs[0].LinkID == "" {
		return slugs[0], nil, nil
	}
	links, _, err := tx.Find([]string{slugs[0].LinkID}, nil)
	if err != nil {
		return nil, nil, err
	}
	return slugs[0], links[0], nil
}

// Purge removes up to limit links from an account that is being erased. It takes the newest links
// with a list position below before. last is the position of the oldest processed link, or [Top] if
// there was none. Slugs stay unavailable for [Quarantine]. For a slug that was taken down, this
// period starts when auth lifts the takedown, at the end of the erasure. ErrRefused means that some
// links could not be removed; all the others were.
func (s *Service) Purge(ctx context.Context, accountID string, before int64, limit int) (last int64, err error) {
	page, _, err := s.opt.Store.List(ctx, Query{AccountID: accountID, Before: before, Limit: limit, Broken: true})
	if err != nil || len(page) == 0 {
		return Top, err
	}
	ids := make([]string, len(page))
	for i, l := range page {
		ids[i] = l.ID
	}
	last = page[len(page)-1].Seq
	// Remove statistics first because they can only be found through their link.
	if err := s.opt.Store.RemoveStats(ctx, ids); err != nil {
		return last, err
	}
	var kept error
	err = inPieces(ids, func(ids []string) (int, error) { return s.erase(ctx, accountID, ids) }, func(id string, err error) {
		kept = fmt.Errorf("link %s: %w", id, err)
		slog.ErrorContext(ctx, "cannot remove a link from an account that is being erased", "account", accountID, "link", id, "error", err)
	})
	if err == nil {
		err = kept
	}
	return last, err
}

// erase removes as many leading links as fit into one commit.
func (s *Service) erase(ctx context.Context, accountID string, ids []string) (n int, err error) {
	err = s.opt.Store.Atomically(ctx, "purge links", func(tx Tx) error {
		found, err := tx.FindBroken(ids)
		if err != nil {
			return err
		}
		n = fitting(found)
		for _, l := range found[:n] {
			// The IDs come from a list that was read outside this transaction. Another replica may
			// have removed some links since. Removal is final, so check the account in the current
			// records.
			if l == nil || l.AccountID != accountID {
				continue
			}
			released := Released(l, s.opt.Now())
			if l.Broken != nil {
				if released, err = s.releasedBroken(tx, l); err != nil {
					return err
				}
			}
			tx.Remove(l, released, events.Quiet) // no event: the account is being erased
		}
		return nil
	})
	return n, err
}

// releasedBroken is like [Released], but for an unreadable link. It returns nil if the link's
// record names another link's slug, so this slug does not change.
func (s *Service) releasedBroken(tx Tx, l *Link) (*SlugRecord, error) {
	_, slugs, err := tx.Find(nil, []string{l.Key()})
	if err != nil || slugs[0] == nil || slugs[0].LinkID != l.ID {
		return nil, err
	}
	own := *l
	own.Takedown = slugs[0].Takedown
	return Released(&own, s.opt.Now()), nil
}
