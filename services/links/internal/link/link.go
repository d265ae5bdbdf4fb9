// Package link contains the rules for short links: valid slugs, destinations and text fields, the
// state of a link at a given time, and the response to a visit.
//
// Other packages use links through [Service], which makes the decisions. Its [Store] keeps the
// links and announces every change. All other types are pure: no clock, no randomness, no I/O.
// Values returned by a Parse function are valid and are not checked again. Failures are
// [apierr.Detail] values; the caller adds the field name.
package link

import (
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
)

// NotFound returns the error for a link that does not exist or that belongs to another account.
// Callers cannot distinguish the two cases.
func NotFound() error {
	return apierr.New(apierr.LinkNotFound, "This account has no link with this id.")
}

// SlugTaken returns the error for a slug that another link has, or that another account's link had
// before it was deleted; see [Quarantine].
func SlugTaken(s Slug) error {
	return apierr.New(apierr.SlugTaken, "The slug \""+string(s)+"\" is already taken. Choose another, or leave it out to have one generated.")
}

// Full returns the error for a link that exceeds the account's limit.
func Full() error {
	return apierr.New(apierr.QuotaExceeded, "The account has reached its link limit. Delete some, or ask the operator for a higher limit.")
}

// GeneratedSlugLength is the length of a generated slug.
const GeneratedSlugLength = 7

// Link is a link with all the fields that its owner sees.
type Link struct {
	ID        string
	AccountID string
	Seq       int64  // creation time in µs, increased until unique in the account; the list cursor
	DomainID  string // "" for the default short host
	Host      string // host of the domain; "" for the default short host
	Slug      Slug

	Destination URL
	Title       string
	OpenGraph   OpenGraph
	Expiry      Moment
	// Routing contains the link's other settings for visits. It is nil for a plain link.
	Routing *Routing
	// UsedUp is set if all MaxClicks slots are taken; see [Places]. Clicks may still be lower
	// because some clicks may not be counted yet and some visits may have been lost with their
	// replica.
	UsedUp bool

	Clicks int64
	// ImportedClicks is the number of clicks that an imported link had in its previous system. It
	// is nil for other links.
	ImportedClicks *int64
	CreatedAt      time.Time // creation time of an imported link in its previous system
	UpdatedAt      time.Time
	Rev            int64 // changes with every edit, not with clicks

	Nonce string // identifies the request that created the link, and the link's position in that request

	Tags       []string
	ExternalID string // "" if none
	Archived   bool   // an archived link keeps redirecting

	Takedown *Takedown // nil unless the operator took the link down

	// Foreseeable is set on a new link with a chosen slug. Its URL may have been visited before, so
	// replicas may have cached that it does not exist and must be notified. A generated slug cannot
	// have been visited.
	Foreseeable bool
	// Shown is the API's representation of a new link, used in its event. If it is nil, the store
	// converts the link.
	Shown any

	// Broken is the error from reading the record, or nil if it is readable. Only the ID and the
	// position of a broken link are reliable. Broken links are returned only to callers that
	// request them.
	Broken error
}

// Key returns the key of the link's slug; see [SlugKey].
func (l *Link) Key() string { return SlugKey(l.DomainID, l.Slug.Folded()) }

// Slug is a valid slug. It is displayed in its original case, but uniqueness and lookup ignore
// case. Convert only text that is known to be valid to a Slug, such as a generated or stored slug.
type Slug string

// Folded returns the slug in lower case, the form in which it must be unique.
func (s Slug) Folded() string { return strings.ToLower(string(s)) }

// SlugKey returns the key of a slug on a domain ("" for the default short host). It is the cache
// key, and the ID of the slug's document is derived from it.
func SlugKey(domainID, folded string) string { return domainID + "|" + folded }

// ShortURL returns the link's short URL. A custom host gets the default host's scheme and no port.
func (l *Link) ShortURL(shortBaseURL string) string {
	if l.Host == "" {
		return strings.TrimSuffix(shortBaseURL, "/") + "/" + string(l.Slug)
	}
	scheme, _, _ := strings.Cut(shortBaseURL, "://")
	return scheme + "://" + l.Host + "/" + string(l.Slug)
}

// OpenGraph contains the text and the image that social networks display for a link. A nil field is
// unset.
type OpenGraph struct {
	Title, Description *string
	Image              *URL
}

// Moment is a time that an owner chose, such as the expiry of a link. The zero value means never.
// It is stored in milliseconds because JavaScript dates can be later than Go and Firestore
// timestamps.
type Moment struct {
	Set bool
	MS  int64 // since 1970
}

// At returns the moment at ms.
func At(ms int64) Moment { return Moment{Set: true, MS: ms} }

// Passed reports whether now is at or after the moment. Every replica treats the moment as the
// start of its millisecond.
func (m Moment) Passed(now time.Time) bool { return m.Set && now.UnixMilli() >= m.MS }

// Status is the state of a link at a given time.
type Status string

// The states of a link.
const (
	Active    Status = "active"
	Scheduled Status = "scheduled" // the link has not started yet
	Expired   Status = "expired"
	UsedUp    Status = "exhausted"  // all clicks on the link are used up
	Taken     Status = "taken_down" // the operator took the link down; only the operator can change that
)

// Status returns the link's state at now.
func (l *Link) Status(now time.Time) Status {
	switch {
	case l.Takedown != nil:
		return Taken
	case l.Routing != nil && l.Routing.StartsAt.Set && !l.Routing.StartsAt.Passed(now):
		return Scheduled
	case l.Expiry.Passed(now):
		return Expired
	case l.Routing != nil && l.exhausted():
		return UsedUp
	}
	return Active
}

// lastSeq is the largest cursor that a caller can send.
const lastSeq = 1<<53 - 1

// places is the number of digits at the end of an ID that encode the link's position: 62^9 is more
// than lastSeq.
const places = 9

// ID returns the ID of the link at a position in an account's list. The ID is a hash of the
// account, followed by the position, counted down from lastSeq. Sorting an account's IDs in
// ascending order therefore yields its list, newest first, so listing only needs a range of
// document names and no extra index. Like every ID, it has 22 base62 characters.
func ID(accountID string, seq int64) string {
	id := []byte(accountPrefix(accountID) + "000000000")
	for i, rest := len(id)-1, lastSeq-seq; i >= len(id)-places; i, rest = i-1, rest/62 {
		id[i] = identity.Base62[rest%62]
	}
	return string(id)
}

// accountPrefix returns the prefix that all link IDs in an account share. 77 bits of a hash
// distinguish accounts.
func accountPrefix(accountID string) string {
	return identity.IDFrom("lnk", accountID)[:len("lnk_")+13]
}

// Place returns the list position that a link's ID contains; see [ID].
func Place(id string) int64 {
	var rest int64
	for _, c := range []byte(id[max(0, len(id)-places):]) {
		rest = 62*rest + int64(strings.IndexByte(identity.Base62, c))
	}
	return lastSeq - rest
}

// IDsBelow returns exclusive bounds for the IDs of the account's links at positions below before.
// If before is [Top], all links in the account are between the bounds.
func IDsBelow(accountID string, before int64) (low, high string) {
	low = accountPrefix(accountID)
	high = low + "~" // sorts after every character in an ID
	if before != Top {
		low = ID(accountID, min(before, lastSeq))
	}
	return low, high
}

// Draft is a link to be created. It contains only the fields that the owner chooses. For a link
// imported from another system, it also contains ImportedClicks and, if known, CreatedAt. If Slug
// is empty, a slug is generated.
type Draft struct {
	Link
	// Ready is called with the finished link, before each commit that would create it. It may set
	// Shown. [Service.CreateAll] does not need it.
	Ready func(*Link) error
}

// Patch is a set of changes to the fields that an owner may change.
type Patch []func(*Link)

// apply returns the link with the changes. Setting a field to its current value counts as an edit.
func (p Patch) apply(l Link, now time.Time) *Link {
	for _, change := range p {
		change(&l)
	}
	l.Rev++
	l.UpdatedAt = now
	return &l
}

// Target contains all the data that a redirect needs from a link.
type Target struct {
	LinkID string
	// AccountID is the owner. Links of a suspended account do not redirect.
	AccountID string
	TakenDown bool
	Slug      Slug
	Location  string // ASCII, safe in a header
	Expiry    Moment
	Routing   *Routing
	UsedUp    bool      // all MaxClicks slots are taken
	OpenGraph *MetaTags // nil if there are none
}

// MetaTags contains a link's Open Graph tags, ready to be inserted into a page.
type MetaTags struct{ Title, Description, Image string }

// Target returns the link data that a redirect needs.
func (l *Link) Target() *Target {
	t := &Target{
		LinkID: l.ID, AccountID: l.AccountID, TakenDown: l.Takedown != nil, Slug: l.Slug, Location: l.Destination.Location,
		Expiry: l.Expiry, Routing: l.Routing, UsedUp: l.UsedUp,
	}
	if p := l.OpenGraph; p != (OpenGraph{}) {
		t.OpenGraph = &MetaTags{Title: text(p.Title), Description: text(p.Description)}
		if p.Image != nil {
			t.OpenGraph.Image = p.Image.Location
		}
	}
	return t
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
