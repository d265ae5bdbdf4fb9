// Package customdomain contains the rules for customers' host names: which names are valid, how
// ownership is proven, and what a claim permits.
//
// Several accounts may claim a name. The first account whose token is found in the DNS owns it. A
// verified domain is checked again every day. If its proof disappears, nothing changes at first
// because the record may have been removed by mistake. Once the proof has been missing for [Lapse],
// no new links can be created on the domain, and another account may verify the name. Redirects
// keep working until another account does so.
//
// Other packages use domains through [Service]. All other types are pure: no clock, no I/O.
package customdomain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/paging"
)

// Intervals between checks, and how long a proof may be missing.
const (
	// Recheck is the interval between checks of an existing proof.
	Recheck = 24 * time.Hour
	// Lapse is how long a proof may be missing before other accounts may verify the name.
	Lapse = 7 * 24 * time.Hour

	// retryMissing and retryUnknown are the first pauses after a failed check. They are shorter
	// than Recheck, so a restored record is noticed quickly. Each additional failure doubles the
	// pause, up to [Recheck].
	retryMissing = time.Hour
	retryUnknown = 15 * time.Minute
)

// NotFound returns the error for a domain that does not exist or that belongs to another account.
func NotFound() error {
	return apierr.New(apierr.DomainNotFound, "This account has no domain with this id. Send the id (dom_…), not the host name.")
}

// NotVerified returns the error for a link on a domain that is not verified.
func NotVerified() error {
	return apierr.New(apierr.DomainNotVerified, "The domain is not verified. Add its TXT record, verify it, and try again.")
}

// Taken returns the error for a name that is already verified, or already claimed by this account.
func Taken() error {
	return apierr.New(apierr.DomainTaken,
		"This host name is already claimed or verified. Delete the other domain first, or use a different host name.")
}

// InUse returns the error for deleting a domain that has links.
func InUse() error {
	return apierr.New(apierr.DomainInUse, "Links still use this domain. Delete them first.")
}

// DefaultInUse returns the error for deleting the account's default domain.
func DefaultInUse() error {
	return apierr.New(apierr.DomainInUse, "This is the account's default domain. Set a different default first (PATCH /api/v1/account).")
}

// DefaultUnusable returns the error for a link without a domain in the request, if the account's
// default domain cannot be used. Either the domain no longer exists (gone), or its proof has been
// missing for [Lapse].
//
// A default domain can only be gone if it was deleted while an owner was making it the default. The
// link is rejected rather than created on a different host, where it would get a URL that the
// account does not want.
func DefaultUnusable(gone bool) error {
	is := "is no longer verified. Verify it again, send a domainId,"
	if gone {
		is = "no longer exists. Send a domainId,"
	}
	return apierr.New(apierr.DomainNotVerified,
		"The account's default domain "+is+" or set a different default in the console's settings or with PATCH /api/v1/account.")
}

// Full returns the error for a domain that exceeds the account's limit.
func Full() error {
	return apierr.New(apierr.QuotaExceeded, "The account has reached its domain limit. Delete one, or ask the operator for a higher limit.")
}

// Domain is an account's claim to a host name.
type Domain struct {
	ID        string
	AccountID string
	Hostname  string
	Token     string
	CreatedAt time.Time

	VerifiedAt   time.Time // zero while pending
	CheckedAt    time.Time // zero before the first check
	FailingSince time.Time // the first check that did not find the proof since it was last found, or zero
	Failures     int       // consecutive failed checks; each makes the pause longer
	Failure      string    // why the last check failed, or ""
	NextCheckAt  time.Time // zero while pending because only the owner can start a check in that state

	// Pages are the URLs that the host redirects visits to when no link matches. They are used once
	// the domain is verified.
	Pages Pages

	// Visits is the total number of visits that were not served by a link.
	Visits int64

	// Certificate is the certificate's state as the domain's owner sees it. Package
	// certificate stores the certificate itself, and writes both in one transaction.
	Certificate Certificate
}

// Place returns the domain's position in its account's list.
func (d *Domain) Place() paging.Place { return paging.Place{At: d.CreatedAt, ID: d.ID} }

// Pages are a host's URLs for visits to "/", to URLs without a link, and to expired links.
type Pages struct{ Home, NotFound, Expired Page }

// Page is a URL. Given is the owner's text, and Location is its form in a Location header. Both are
// empty if the host has no such page.
type Page struct{ Given, Location string }

// Certificate is the state of a host name's TLS certificate.
type Certificate struct {
	Status    CertificateStatus
	ExpiresAt time.Time // zero if there is no certificate
	Error     string    // why the last order failed, or ""
}

// CertificateStatus is a certificate's state.
type CertificateStatus string

// Certificate states.
const (
	NoCertificate      CertificateStatus = ""        // the name has not been visited over TLS
	CertificatePending CertificateStatus = "pending" // the first certificate is being ordered
	CertificateIssued  CertificateStatus = "issued"
	CertificateFailed  CertificateStatus = "failed" // there is no valid certificate, and the last order failed
)

// Shown returns the certificate's state at now. An expired certificate counts as failed, even
// though it is stored as issued.
func (c Certificate) Shown(now time.Time) Certificate {
	if c.Status == CertificateIssued && !now.Before(c.ExpiresAt) {
		c.Status = CertificateFailed
		if c.Error == "" {
			c.Error = "The certificate has expired. The next visit orders a new one."
		}
	}
	return c
}

// ID returns the ID of an account's claim to a host name. If the account claims the name again, the
// claim gets the same ID, so its deleted links' slugs stay in quarantine.
func ID(account, hostname string) string {
	return identity.IDFrom("dom", account+"/"+hostname)
}

// IsID reports whether id is a domain ID.
func IsID(id string) bool { return strings.HasPrefix(id, "dom_") }

// Record returns the name of the DNS record that proves the claim.
func (d *Domain) Record() (name, value string) {
	return RecordName(d.Hostname), "linkreel-verify=" + d.Token
}

// RecordName returns the DNS name of the proof for a host name.
func RecordName(hostname string) string { return "_linkreel." + hostname }

// Verified reports whether links may be created on the domain at now.
func (d *Domain) Verified(now time.Time) bool {
	return !d.VerifiedAt.IsZero() && !d.Lapsed(now)
}

// Lapsed reports whether the proof has been missing for so long that another account may verify the
// name.
func (d *Domain) Lapsed(now time.Time) bool {
	return !d.FailingSince.IsZero() && now.Sub(d.FailingSince) >= Lapse
}

// Outcome is the result of checking the proof.
type Outcome int

// The outcomes of a check.
const (
	Proven  Outcome = iota
	Missing         // the DNS answered, without the proof
	Unknown         // no name server answered; the claim does not change
	Lost            // the proof exists, but another account now owns the name
)

// Inspect compares the TXT records at [Domain.Record] with the proof. err is the error from the
// lookup. The returned text explains to the domain's owner why the proof was not found.
func (d *Domain) Inspect(texts []string, err error) (Outcome, string) {
	name, value := d.Record()
	switch {
	case err != nil:
		return Unknown, fmt.Sprintf("The name servers of %s did not answer. The domain keeps its state and is checked again later.", d.Hostname)
	case slices.ContainsFunc(texts, func(t string) bool { return strings.TrimSpace(t) == value }):
		return Proven, ""
	case len(texts) == 0:
		return Missing, fmt.Sprintf("There is no TXT record at %s. Add it with the value shown in records.", name)
	}
	return Missing, fmt.Sprintf("The TXT record at %s has a different value. Set it to the value shown in records.", name)
}

// Checked records the outcome of a check. Whatever the outcome, it schedules the next check of a
// verified domain in the future. Otherwise a domain that cannot be checked would stay at the head
// of the queue and delay the others.
func (d *Domain) Checked(o Outcome, reason string, now time.Time) {
	d.CheckedAt, d.Failure = now, reason
	if o == Proven {
		d.FailingSince, d.Failures = time.Time{}, 0
		if d.VerifiedAt.IsZero() {
			d.VerifiedAt = now
		}
		d.NextCheckAt = now.Add(Recheck)
		return
	}
	d.Failures++
	// An unproven claim is checked only at its owner's request.
	if d.VerifiedAt.IsZero() {
		return
	}
	switch o {
	// Do not change FailingSince: a name server outage must not make a domain lapse.
	case Unknown:
		d.NextCheckAt = now.Add(backOff(retryUnknown, d.Failures))
		return
	case Lost:
		d.NextCheckAt = now.Add(Recheck)
	default:
		d.NextCheckAt = now.Add(backOff(retryMissing, d.Failures))
	}
	if d.FailingSince.IsZero() {
		d.FailingSince = now
	}
}

// backOff returns first after one failure. Each additional failure doubles the pause, up to
// [Recheck].
func backOff(first time.Duration, failures int) time.Duration {
	return min(Recheck, first<<min(failures-1, 10))
}

// CheckHostname checks a name for a custom domain and returns it in lower case. The name must be an
// ASCII DNS name of two or more labels. IP addresses, ports, wildcards and our own host names are
// rejected.
func CheckHostname(text string, own []string) (string, *apierr.Detail) {
	bad := func(message string) (string, *apierr.Detail) {
		return "", &apierr.Detail{Code: apierr.InvalidFormat, Message: message}
	}
	name := strings.ToLower(text)
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
			return bad("Use a DNS name without https://, path, port, wildcard or trailing dot; write other alphabets in Punycode (xn--…).")
		}
	}
	// Browsers read a name as an IPv4 address if its last label is all digits or starts
	// with 0x.
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return bad("Use a DNS name, not an IP address.")
	}
	if slices.Contains(own, name) {
		return "", &apierr.Detail{Code: apierr.NotAllowed, Message: "This host name belongs to this Linkreel installation. Use one of your own."}
	}
	return name, nil
}
