package link

import (
	"errors"
	"slices"
)

// ErrNoLimit means that a link no longer exists or no longer limits its clicks. Such a link
// has no [Places].
var ErrNoLimit = errors.New("the link does not limit its clicks")

// Places records how many clicks of a link's MaxClicks are used. The record exists as long
// as the link has a limit. Every visit takes a place here before it is redirected, so the
// limit holds across all replicas, whatever happens to Redis and to the click log.
type Places struct {
	Key  string // the key of the link's slug; see [SlugKey]
	Max  int64  // the link's MaxClicks
	Used int64  // the places taken, and the clicks that the link had before it got its limit
	// Settled is false as long as clicks from before the limit may still wait to be counted.
	// While it is false, nobody knows how many places are left, so visits get none.
	Settled bool
	Recent  []Grant // the last grants, oldest first
}

// Grant is the outcome of an ask that took or gave back places.
type Grant struct {
	ID string // the ID of the ask
	N  int64  // how many places it got
}

// Ask asks for places on behalf of the visits that wait at one replica.
type Ask struct {
	ID   string // differs from every other ask
	Want int64  // places to take
	Back int64  // places to give back because their visits did not use them
	// Unsure has the ids of earlier asks for which this replica does not know the outcome. It has
	// redirected no visits for them, so the places that they got become free again. The places
	// that they gave back are not given back again, because that may have worked.
	Unsure []string
}

// maxRecent bounds the grants that a record keeps. If a replica does not know the outcome of
// an ask and its grant is no longer kept, the places of the grant stay used.
const maxRecent = 64

// NewPlaces returns the record for a link that gets a limit. before is the link without the
// limit, or nil if the link is new.
func NewPlaces(before, l *Link) *Places {
	p := &Places{Key: l.Key(), Max: l.Limit(), Settled: before == nil}
	if before != nil {
		p.Used = before.Clicks
	}
	return p
}

// Full reports whether all places are used.
func (p *Places) Full() bool { return p.Used >= p.Max }

// Take gives the ask as many places as it wants, or all that are left. An ask is repeated if
// the first response was lost. It then gets the same places again. changed is false if there
// is nothing to write.
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

// Settle counts the clicks from before the limit as used places. clicks is the number of all
// clicks that the link has had. No click may still wait to be counted.
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

// exhausted reports whether all clicks of the link are used up. Clicks alone is not enough:
// if a process was killed before it answered a visit, the visit's place is used, but there
// is no click.
func (l *Link) exhausted() bool {
	return l.Limit() > 0 && (l.UsedUp || l.Clicks >= l.Limit())
}

// limited sets UsedUp of the edited link if its limit has changed. It reads the places if
// the link had a limit before, so call it before the transaction's writes.
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
