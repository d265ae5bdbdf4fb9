package link

import (
	"errors"
	"slices"
)

// ErrNoLimit means that a link no longer exists or no longer limits its clicks, and therefore has
// no [Places].
var ErrNoLimit = errors.New("the link does not limit its clicks")

// Places records how many of a link's MaxClicks have been used. The record exists as long as the
// link has a limit. Every visit takes a slot here before it is redirected. This makes the limit
// hold across all replicas, even if Redis or the click log fails.
type Places struct {
	Key  string // key of the link's slug; see [SlugKey]
	Max  int64  // the link's MaxClicks
	Used int64  // slots taken, plus the clicks made before the limit was set
	// Settled is false as long as clicks made before the limit was set may still be uncounted.
	// While it is false, the number of remaining slots is unknown, and visits do not get any.
	Settled bool
	Recent  []Grant // most recent grants, oldest first
}

// Grant is the result of an ask that took or returned slots.
type Grant struct {
	ID string // ID of the ask
	N  int64  // number of slots that the ask got
}

// Ask requests slots for the visits that are waiting at one replica.
type Ask struct {
	ID   string // unique for each ask
	Want int64  // number of slots to take
	Back int64  // number of slots to return; their visits did not use them
	// Unsure contains the IDs of earlier asks with unknown outcomes. The replica has not redirected
	// any visits for these asks, so the slots that they got become free again. The slots that they
	// returned are not returned again, because the first return may have succeeded.
	Unsure []string
}

// maxRecent limits the number of grants in a record. If a replica does not know the outcome of an
// ask whose grant is no longer in the record, the slots from that grant remain used.
const maxRecent = 64

// NewPlaces returns the record for a link that is given a limit. before is the link without the
// limit, or nil for a new link.
func NewPlaces(before, l *Link) *Places {
	p := &Places{Key: l.Key(), Max: l.Limit(), Settled: before == nil}
	if before != nil {
		p.Used = before.Clicks
	}
	return p
}

// Full reports whether all slots are used.
func (p *Places) Full() bool { return p.Used >= p.Max }

// Take gives the ask the slots that it requests, or all remaining slots. If the first response was
// lost, the ask is repeated and gets the same slots again. changed is false if there is nothing to
// write.
func (p *Places) Take(a Ask) (granted int64, changed bool) {
	if i := slices.IndexFunc(p.Recent, func(g Grant) bool { return g.ID == a.ID }); i >= 0 {
		return p.Recent[i].N, false
	}
	free := a.Back
	p.Recent = slices.DeleteFunc(slices.Clone(p.Recent), func(g Grant) bool {
		if !slices.Contains(a.Unsure, g.ID) {
			return false
		}
		free += g.N
		return true
	})
	p.Used -= free
	granted = max(0, min(a.Want, p.Max-p.Used))
	p.Used += granted
	if granted == 0 && free == 0 {
		return 0, false
	}
	p.Recent = append(p.Recent, Grant{a.ID, granted})
	p.Recent = p.Recent[max(0, len(p.Recent)-maxRecent):]
	return granted, true
}

// Settle counts the clicks made before the limit was set as used slots. clicks is the link's total
// number of clicks. Call it only when every click has been counted.
func (p *Places) Settle(clicks int64) {
	p.Used, p.Settled = max(p.Used, clicks), true
}

// Limit returns the link's MaxClicks, or 0 if there is no limit.
func (l *Link) Limit() int64 {
	if l.Routing == nil {
		return 0
	}
	return l.Routing.MaxClicks
}

// exhausted reports whether the link has used up all its clicks. The number of clicks alone does
// not show this. If a process was killed before it responded to a visit, the visit's slot is used,
// but there is no click.
func (l *Link) exhausted() bool {
	return l.Limit() > 0 && (l.UsedUp || l.Clicks >= l.Limit())
}

// limited sets UsedUp on the edited link if its limit has changed. It reads the slots if the link
// already had a limit, so call it before the transaction's writes.
func limited(tx Tx, before, after *Link) error {
	if after.Limit() == before.Limit() {
		return nil
	}
	after.UsedUp = false
	switch {
	case after.Limit() == 0:
		return nil
	case before.Limit() == 0:
		after.UsedUp = NewPlaces(before, after).Full()
		return nil
	}
	p, err := tx.Places(after.ID)
	if err == nil && p != nil {
		p.Max = after.Limit()
		after.UsedUp = p.Full()
	}
	return err
}
