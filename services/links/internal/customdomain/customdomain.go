// Package customdomain is what Linkreel knows about customers' host names: which names
// may be claimed, how ownership is proven, and what a claim is worth.
//
// Several accounts may claim a name; the first that shows its token in the DNS
// owns it. A proof that disappears costs nothing at first: people tidy their
// zones. After [Lapse] the domain takes no new links and the name may be proven
// by somebody else; redirects go on until then.
package customdomain

import (
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// How proofs are looked after.
const (
	Recheck = 24 * time.Hour     // between two looks at a proof
	Lapse   = 7 * 24 * time.Hour // how long a proof may be missing
)

// NotFound is the answer for a domain that is not there and for another
// account's alike.
func NotFound() error { return apierr.New(apierr.DomainNotFound, "There is no such domain.") }

// NotVerified refuses a link on a domain without proof.
func NotVerified() error {
	return apierr.New(apierr.DomainNotVerified, "The domain is not verified yet.")
}

// Taken refuses a name that is proven already.
func Taken() error {
	return apierr.New(apierr.DomainTaken, "The host name is taken.")
}

// InUse refuses to delete a domain that has links.
func InUse() error {
	return apierr.New(apierr.DomainInUse, "Links still use the domain. Delete them first.")
}

// Domain is an account's claim to a host name.
type Domain struct {
	ID        string
	AccountID string
	Hostname  string
	Token     string
	CreatedAt time.Time

	VerifiedAt    time.Time // zero while pending
	LastCheckedAt time.Time // zero before the first look
	FailingSince  time.Time // first look of those in a row that missed the proof
}

// Record is the DNS record that proves the claim.
func (d *Domain) Record() (name, value string) {
	return RecordName(d.Hostname), "linkreel-verify=" + d.Token
}

// RecordName is where the proof for a host name stands.
func RecordName(hostname string) string { return "_linkreel." + hostname }

// Verified reports whether the domain may take new links at now.
func (d *Domain) Verified(now time.Time) bool {
	return !d.VerifiedAt.IsZero() && !d.Lapsed(now)
}

// Lapsed reports whether the proof has been missing for so long that somebody
// else may prove the name.
func (d *Domain) Lapsed(now time.Time) bool {
	return !d.FailingSince.IsZero() && now.Sub(d.FailingSince) >= Lapse
}

// Looked notes the result of a look at the proof.
func (d *Domain) Looked(proven bool, now time.Time) {
	d.LastCheckedAt = now
	switch {
	case proven:
		d.FailingSince = time.Time{}
		if d.VerifiedAt.IsZero() {
			d.VerifiedAt = now
		}
	case d.FailingSince.IsZero() && !d.VerifiedAt.IsZero():
		d.FailingSince = now
	}
}

// CheckHostname accepts a name for a custom domain: a DNS name of two or more
// labels in ASCII, kept in lower case. Addresses, ports, wildcards and our own
// hosts are refused.
func CheckHostname(text string, own link.Hosts) (string, *apierr.Detail) {
	bad := func(message string) (string, *apierr.Detail) {
		return "", &apierr.Detail{Code: apierr.InvalidFormat, Message: message}
	}
	name := link.Fold(text)
	if strings.ContainsFunc(text, func(r rune) bool { return r > '~' }) {
		return bad("Write other alphabets in Punycode (xn--…).")
	}
	if len(name) > 253 {
		return "", &apierr.Detail{Code: apierr.TooLong, Message: "Use at most 253 characters.", Max: 253}
	}
	labels := strings.Split(name, ".")
	if len(labels) < 2 {
		return bad("Use a DNS name of two or more labels, such as go.example.com.")
	}
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return bad("Use a DNS name without port, wildcard or trailing dot; write other alphabets in Punycode (xn--…).")
		}
	}
	// A last label of digits, or 0x…, makes the whole an IPv4 address to browsers.
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return bad("Use a DNS name, not an address.")
	}
	for _, h := range own {
		if name == h.Name {
			return "", &apierr.Detail{Code: apierr.NotAllowed, Message: "This name is ours."}
		}
	}
	return name, nil
}
