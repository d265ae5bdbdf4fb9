package link

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/label"
)

// ExternalIDTaken returns the error for an external ID that another link in the account already
// has.
func ExternalIDTaken() error {
	return apierr.New(apierr.ExternalIDTaken, "This account already has a link with this externalId. Use another externalId, or remove it from that link first.")
}

// change is a link before and after a change. before is nil for a new link, and after is nil for a
// removed link.
type change struct{ before, after *Link }

func (c change) tags() (before, after []string) {
	if c.before != nil {
		before = c.before.Tags
	}
	if c.after != nil {
		after = c.after.Tags
	}
	return before, after
}

// newExternalID returns the external ID that the change claims, or "".
func (c change) newExternalID() string {
	if c.after == nil || c.before != nil && c.before.ExternalID == c.after.ExternalID {
		return ""
	}
	return c.after.ExternalID
}

// externalIDs reports, for each change, whether another link in the account has the claimed
// external ID. If two changes claim the same ID, the first change gets it.
func externalIDs(tx Tx, accountID string, changes []change) (taken []bool, err error) {
	taken = make([]bool, len(changes))
	claimed := map[string]bool{}
	var ids []string
	for i, c := range changes {
		id := c.newExternalID()
		if id == "" {
			continue
		}
		taken[i] = claimed[id]
		if !claimed[id] {
			claimed[id] = true
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return taken, nil
	}
	owners, err := tx.ExternalIDs(accountID, ids...)
	if err != nil {
		return nil, err
	}
	for i, c := range changes {
		if n := slices.Index(ids, c.newExternalID()); n >= 0 && owners[n] != "" {
			taken[i] = true
		}
	}
	return taken, nil
}

// labels records the tags on one changed link. It returns [ExternalIDTaken] if another link has the
// external ID that the change claims.
func labels(tx Tx, c change) error {
	taken, err := externalIDs(tx, c.after.AccountID, []change{c})
	if err != nil {
		return err
	}
	if taken[0] {
		return ExternalIDTaken()
	}
	return tags(tx, c.after.AccountID, []change{c})
}

// tags records, in the transaction, the tags that the account's links gain and lose.
func tags(tx Tx, accountID string, changes []change) error {
	var got, lost []string
	for _, c := range changes {
		before, after := c.tags()
		got, lost = append(got, label.Without(after, before)...), append(lost, label.Without(before, after)...)
	}
	if len(got)+len(lost) == 0 {
		return nil
	}
	return tx.Tags(accountID, got, lost)
}

// Tags lists the tags on the account's links and videos in alphabetical order, starting
// after a cursor. next is "" after the last tag.
func (s *Service) Tags(ctx context.Context, accountID, q, after string, limit int) (page []string, next string, err error) {
	return s.opt.Store.Tags(ctx, accountID, q, after, limit)
}

// Set is one change that applies to several links.
type Set struct {
	Patch               Patch // changes tags, the expiry and the archived state
	AddTags, RemoveTags []string
}

// apply returns the link with the changes. The error is VALIDATION_ERROR if the link would have too
// many tags, or would expire before it starts.
func (s Set) apply(l *Link, now time.Time) (*Link, error) {
	p := s.Patch
	if len(s.AddTags)+len(s.RemoveTags) > 0 {
		// Remove before adding, so a tag in both lists is kept.
		after := label.Without(l.Tags, s.RemoveTags)
		after = append(after, label.Without(s.AddTags, after)...)
		kept, bad := label.Tags("tags", after)
		if len(bad) > 0 {
			return nil, apierr.Invalid(bad...)
		}
		// Copy the patch because all links in the request share it.
		p = append(p[:len(p):len(p)], func(l *Link) { l.Tags = kept })
	}
	after := p.apply(*l, now)
	for _, c := range after.Conflicts() { // only the expiry can cause a conflict
		return nil, apierr.Invalid(apierr.Detail{Field: "set.expiresAt", Code: c.Code, Message: c.Text})
	}
	return after, nil
}

// UpdateAll changes several links in the account. Each ID has its own result. An ID that occurs
// twice has the same result both times. If the links do not all fit into one commit, UpdateAll uses
// several commits, and some links may have changed before an error. Links that are already up to
// date are not written, so a retry after an error picks up where it left off and never writes an
// event twice.
func (s *Service) UpdateAll(ctx context.Context, accountID string, ids []string, set Set) ([]Result, error) {
	return s.all(ctx, "update links", accountID, ids, func(l *Link) (*Link, error) {
		after, err := set.apply(l, s.opt.Now())
		if err == nil && slices.Equal(after.Tags, l.Tags) && after.Archived == l.Archived && after.Expiry == l.Expiry {
			return l, nil
		}
		return after, err
	})
}

// DeleteAll removes several links from the account; see [Service.UpdateAll].
func (s *Service) DeleteAll(ctx context.Context, accountID string, ids []string) ([]Result, error) {
	return s.all(ctx, "delete links", accountID, ids, nil)
}

// edit returns the changed link, or l itself if there is nothing to change.
type edit func(l *Link) (after *Link, err error)

// all applies edit to several links. If edit is nil, it removes them.
func (s *Service) all(ctx context.Context, what, accountID string, ids []string, edit edit) ([]Result, error) {
	byID := map[string]Result{}
	unique := slices.Compact(slices.Sorted(slices.Values(ids)))
	err := inPieces(unique, func(ids []string) (n int, err error) {
		part := map[string]Result{}
		err = s.opt.Store.Atomically(ctx, what, func(tx Tx) error {
			// Discard the results of an earlier attempt at this transaction.
			clear(part)
			found, _, err := tx.Find(ids, nil)
			if err != nil {
				return err
			}
			// Set n before calling part: if the store rejects the commit, inPieces tries half as
			// many items.
			n = fitting(found)
			return s.part(tx, accountID, ids[:n], found[:n], edit, part)
		})
		if err != nil {
			return n, err
		}
		maps.Copy(byID, part)
		return n, nil
	}, func(id string, err error) { byID[id] = Result{Err: err} })
	if err != nil {
		return nil, err
	}
	out := make([]Result, len(ids))
	for i, id := range ids {
		out[i] = byID[id]
	}
	return out, nil
}

// part changes the links with the given IDs, all of which fit into one commit. found contains those
// links in the same order. part stores the outcome for each ID in results.
func (s *Service) part(tx Tx, accountID string, ids []string, found []*Link, edit edit, results map[string]Result) (err error) {
	var changes []change
	var gone []string
	for i, l := range found {
		if l == nil || l.AccountID != accountID {
			results[ids[i]] = Result{Err: NotFound()}
			gone = append(gone, ids[i])
			continue
		}
		c := change{before: l}
		if edit != nil {
			if c.after, err = edit(l); err != nil {
				results[ids[i]] = Result{Err: err}
				continue
			}
			if c.after == l {
				results[ids[i]] = Result{Link: l}
				tx.Announce(l.Key())
				continue
			}
		}
		changes = append(changes, c)
	}
	if edit == nil {
		if err := deletedBefore(tx, accountID, gone...); err != nil {
			return err
		}
	}
	if err := tags(tx, accountID, changes); err != nil {
		return err
	}
	for _, c := range changes {
		results[c.before.ID] = Result{Link: c.before}
		if c.after == nil {
			tx.Remove(c.before, Released(c.before, s.opt.Now()), events.LinkDeleted)
			continue
		}
		results[c.before.ID] = Result{Link: c.after}
		tx.Put(c.before, c.after, events.LinkUpdated)
	}
	return nil
}
