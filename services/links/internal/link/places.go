package link

import (
	"errors"
	"slices"
)

// ErrNoLimit means that a link is gone or has no limit of clicks any more, so that it has no
// [Places].
var ErrNoLimit = errors.New("the link has no limit of clicks")

// Places is the record of how much of a link's MaxClicks is used. It exists as long as the
// link has a limit. Every visit takes its place here before it is led on, so the limit
// holds over all replicas, whatever happens to Redis and to the click log.
type Places struct {
	Key  string // of the link's slug; see [SlugKey]
	Max  int64  // the link's MaxClicks
	Used int64  // the places taken, and the clicks that the link had before it got its limit
	// Settled is false while clicks from before the limit may still wait to be counted. Until
	// then nobody knows how many places are left, so none is given.
	Settled bool
	Recent  []Grant // the last grants, oldest first
}

// Grant is the outcome of an ask that took places.
type Grant struct {
	ID string // of the ask
	N  int64
}

// Ask asks for places on behalf of the visits that wait at one replica.
type Ask struct {
	ID   string // differs from every other ask
	Want int64  // places to take
	Back int64  // places that visits took and did not use
	// Unsure are the ids of earlier asks of this replica whose outcome it does not know. It
	// has led nobody on for them, so their places are free again. What such an ask gave back
	// is not given back again, since it may have been.
	Unsure []string
}

// maxRecent bounds the grants that a record keeps. The places of an older grant whose
// outcome its replica does not know count as used.
const maxRecent = 64

// NewPlaces returns the record for a link that gets a limit; before is the link without it,
// nil for a new link.
func NewPlaces(before, l *Link) *Places {
	p := &Places{Key: l.Key(), Max: l.Limit(), Settled: before == nil}
	if before != nil {
		p.Used = before.Clicks
	}
	return p
}

// Full reports whether all places are used.
func (p *Places) Full() bool { return p.Used >= p.Max }

// Take gives the ask as many places as are left, at most as many as it wants. The same ask
// may come twice, when the answer to the first was lost, and gets the same places again.
// changed is false if there is nothing to write.
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

// Settle adds the clicks from before the limit: clicks are all that the link has had, of
// which none waits to be counted.
func (p *Places) Settle(clicks int64) {
	p.Used, p.Settled = max(p.Used, clicks), true
}

// Limit returns the link's MaxClicks, 0 for any number.
func (l *Link) Limit() int64 {
	if l.Routing == nil {
		return 0
	}
	return l.Routing.MaxClicks
}

// Limit returns the link's MaxClicks, 0 for any number.
func (t *Target) Limit() int64 {
	if t == nil || t.Routing == nil {
		return 0
	}
	return t.Routing.MaxClicks
}

// exhausted reports whether all clicks of the link are used up. Places of visits that a
// killed process did not answer are used but are no clicks, so the clicks alone do not tell.
func (l *Link) exhausted() bool {
	return l.Limit() > 0 && (l.UsedUp || l.Clicks >= l.Limit())
}

// limited notes on the edited link whether its new limit is used up. It reads the places if
// the link had a limit before, so call it before the writes.
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
