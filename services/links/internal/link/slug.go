package link

import (
	"regexp"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
)

// MaxSlug is the maximum length of a slug in characters.
const MaxSlug = 100

var slugForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// reserved lists the words that the default short host reserves for itself.
var reserved = map[string]bool{
	"api": true, "v": true, "healthz": true, "livez": true, "readyz": true, "metrics": true,
	"robots.txt": true, "favicon.ico": true, "sitemap.xml": true,
	"docs": true, "admin": true, "login": true, "assets": true,
}

// Quarantine is how long a deleted link's slug stays unavailable to other accounts, so nobody can
// take over the traffic from a printed URL.
const Quarantine = 30 * 24 * time.Hour

// SlugRecord contains the account and link that have a slug on a domain, or had it last. It does
// not contain the destination.
type SlugRecord struct {
	AccountID string
	LinkID    string
	// ReleasedUntil is set when the link is deleted. Before this time, only the account that
	// had the link may use the slug again.
	ReleasedUntil time.Time
	// Formerly is the ID of the deleted link. A repeated delete finds the slug by this ID.
	Formerly string
	// Takedown is stored with the slug as well as with its link. It therefore stays in effect even
	// if the link is deleted and another link is created with the same slug.
	Takedown *Takedown
}

// never is the end of a quarantine that lasts until the operator ends it.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Released returns the record for the link's slug after the link is deleted at now.
func Released(l *Link, now time.Time) *SlugRecord {
	r := &SlugRecord{AccountID: l.AccountID, Formerly: l.ID, ReleasedUntil: now.Add(Quarantine), Takedown: l.Takedown}
	if r.Takedown != nil {
		r.ReleasedUntil = never
	}
	return r
}

// FreeFor reports whether the account may take the slug at now. Any account may take a slug without
// a record: it has never been used, or its quarantine has ended.
func (r *SlugRecord) FreeFor(accountID string, now time.Time) bool {
	if r == nil {
		return true
	}
	released := !r.ReleasedUntil.IsZero()
	return released && (r.AccountID == accountID || !now.Before(r.ReleasedUntil))
}

// ParseSlug accepts a slug that a caller chose. It rejects reserved words only on the default short
// host, because custom domains do not serve our own pages.
func ParseSlug(text string, onDefaultHost bool) (Slug, *apierr.Detail) {
	switch {
	case text == "":
		return "", &apierr.Detail{Code: apierr.InvalidFormat, Message: "Use at least one character, or leave the slug out to have one generated.", Min: 1}
	case len(text) > MaxSlug && slugForm.MatchString(text):
		return "", &apierr.Detail{Code: apierr.TooLong, Message: "Use at most 100 characters.", Max: MaxSlug}
	case !slugForm.MatchString(text):
		return "", &apierr.Detail{
			Code:    apierr.InvalidFormat,
			Message: "Use letters, digits, '_', '.' and '-', and start with a letter or a digit.",
		}
	case onDefaultHost && reserved[strings.ToLower(text)]:
		return "", &apierr.Detail{Code: apierr.Reserved, Message: "This word is reserved. Choose another."}
	}
	return Slug(text), nil
}

// LookupSlug returns the folded form of a path segment. ok is false if no link can have that slug,
// so scans with invalid slugs do not reach the store.
func LookupSlug(segment []byte) (folded string, ok bool) {
	if len(segment) == 0 || len(segment) > MaxSlug {
		return "", false
	}
	upper := false
	for i, c := range segment {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case 'A' <= c && c <= 'Z':
			upper = true
		case i > 0 && (c == '_' || c == '.' || c == '-'):
		default:
			return "", false
		}
	}
	if upper {
		return strings.ToLower(string(segment)), true
	}
	return string(segment), true
}
