package link

import "time"

// Origin is where a create's identifiers come from; two tries of one request
// have the same.
type Origin struct {
	Nonce  string
	At     time.Time
	Replay bool // whether an earlier try may have succeeded
}

// Result is what became of one draft.
type Result struct {
	Link *Link
	Err  error // SLUG_TAKEN, DOMAIN_NOT_VERIFIED or DOMAIN_NOT_FOUND
}

// Top is before every link in a list.
const Top int64 = -1

// SlugKey names a slug on a domain ("" for the default short host): the cache's
// key for it, and the document's id.
func SlugKey(domainID, folded string) string { return domainID + "|" + folded }

// Share is a part of a link's clicks.
type Share struct {
	Name   string
	Clicks int64
}

// Stats is a link's clicks over some days.
type Stats struct {
	Total                         int64
	Days                          []int64 // one per day asked for
	Referrers, Countries, Devices []Share // most clicks first
}
