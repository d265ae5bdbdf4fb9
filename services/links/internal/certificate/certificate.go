// Package certificate obtains TLS certificates for verified custom domains and presents them to
// visitors.
//
// A host name gets its certificate from an ACME authority when it is first visited over TLS. All
// replicas share the certificate. The certificate and the state of its order are one record, and
// the ordering replica holds a lease on that record with a fencing token. A replica that has lost
// its lease can finish its order but cannot store the result. A lease that is not renewed expires,
// and any replica's sweep resumes the order.
//
// The service orders certificates only for names that an account has proven to own. Handshakes for
// other names may read Firestore only within a budget. A handshake waits at most 12 s, but its
// order continues after that.
//
// Private keys are sealed before they are stored (libs/seal). The ACME client is acmez. Replicas
// also share its data. The key for the account with the authority is one record ([Account]). The
// response to a challenge is stored in its order's record, so the authority can get it from any
// replica.
package certificate

import (
	"errors"
	"hash/fnv"
	"time"
)

// How long orders take, and how long to pause between them.
const (
	// Lease is how long an order belongs to its replica unless the lease is renewed. If the replica
	// is killed, the order is delayed by this long.
	Lease = 30 * time.Second
	// longestOrder limits how long an order takes, including all its challenges.
	longestOrder = 3 * time.Minute

	// retryRefused is the first pause after a failed validation. The usual cause is a DNS record
	// that does not point here yet. Let's Encrypt allows five failures per name per hour.
	retryRefused = 15 * time.Minute
	mostRefused  = 12 * time.Hour
	// retryAway is the first pause if the authority is down. It is short because the name is not at
	// fault.
	retryAway = time.Minute
	mostAway  = 15 * time.Minute
	// retryLimited is the first pause after "too many requests".
	retryLimited = time.Hour
)

// Reasons why a host name does not get a certificate.
var (
	ErrUnknownHost = errors.New("no verified domain has this name")
	ErrBudget      = errors.New("too many handshakes for unknown names")
	ErrBusy        = errors.New("another replica is ordering the certificate")
	ErrOvertaken   = errors.New("another replica has taken over the order")
	ErrLimited     = errors.New("no more certificates can be ordered for now")
	ErrShare       = errors.New("the account cannot order any more certificates for now")
	ErrSuspended   = errors.New("the account that has this name is suspended")
)

// SealPurpose distinguishes this package's seals from other packages'.
const SealPurpose = "linkreel certificate 1"

// Certificate is a certificate chain from an authority, with its private key.
type Certificate struct {
	Chain     []byte // PEM, starting with the host's own certificate
	Key       []byte // PKCS #8, sealed
	NotBefore time.Time
	NotAfter  time.Time
	RenewAt   time.Time
}

// Record is a host name's certificate and the state of its order. A name that has never been
// visited has the zero record.
type Record struct {
	Host        string
	Account     string       // account that placed the last order
	Certificate *Certificate // nil if there is none yet

	Holder    string     // the ordering replica, or ""
	Token     int64      // number of the last lease, which increases with each lease
	Until     time.Time  // end of the lease
	Challenge *Challenge // the open challenge, or nil

	Failures int // consecutive failed orders
	Failure  string
	NextAt   time.Time // no order starts before this time; zero unless the last order failed
	DueAt    time.Time // when the sweep looks at the record; zero means never
}

// Challenge is the authority's challenge to the host, which proves that the order comes from the
// host. It is not secret.
type Challenge struct {
	Token  string // the end of the challenge's path; see [Service.Answer]
	Answer string // ACME's key authorization
}

// Valid reports whether the certificate can be used at now.
func (r *Record) Valid(now time.Time) bool {
	return r.Certificate != nil && now.Before(r.Certificate.NotAfter)
}

// Claim assigns the order to holder, if a certificate is needed now. If the certificate in the
// record does not need a renewal yet, claimed is false and err is nil.
func (r *Record) Claim(holder string, now time.Time) (claimed bool, err error) {
	switch {
	case r.Valid(now) && now.Before(r.Certificate.RenewAt):
		r.DueAt = r.Certificate.RenewAt
		return false, nil
	case r.leased(now):
		return false, ErrBusy
	case now.Before(r.NextAt):
		return false, &RefusedError{r.Failure, r.NextAt}
	}
	// From now on, results from the previous holder are rejected.
	r.Token++
	r.Holder, r.Challenge = holder, nil
	r.Extend(now)
	return true, nil
}

// Extend renews the lease. If a lease expires without a result, the replica has died, and the sweep
// resumes the order.
func (r *Record) Extend(now time.Time) {
	r.Until = now.Add(Lease)
	r.DueAt = r.Until
}

// leased reports whether a replica holds an unexpired lease on the order at now.
func (r *Record) leased(now time.Time) bool { return r.Holder != "" && now.Before(r.Until) }

// HandOver assigns the record to account. An empty account means that the name no longer has a
// domain. It removes the certificate and its private key. It keeps the pause after failed orders
// because otherwise an owner could skip the pause by deleting the domain and verifying it again. It
// also keeps an in-flight order, so the order still counts if it fails. If there is neither a pause
// nor an order, left is false, and the record can be removed.
//
// If the account changes, the pause is shortened to the pause after a first failure, because the
// new account may have fixed the cause. The pause does not end immediately, because the authority
// counts failures by name rather than by account.
func (r *Record) HandOver(account string, now time.Time) (left bool) {
	r.Certificate, r.DueAt = nil, time.Time{}
	if account != "" && account != r.Account {
		r.Account, r.Failures = account, 0
		if r.Failure != "" { // the message is about the previous owner's servers
			r.Failure = inherited
		}
		if most := now.Add(retryRefused); r.NextAt.After(most) {
			r.NextAt = most
		}
	}
	if r.leased(now) {
		r.DueAt = r.Until
		return true
	}
	r.end()
	if account == "" {
		r.DueAt = r.NextAt // the sweep removes a record without a domain
	}
	return now.Before(r.NextAt)
}

// inherited is the Failure for a record that another account has taken over.
const inherited = "Orders for this name failed for its previous owner. The next order starts after a pause."

// Held reports whether the lease with this token is the newest and has not expired.
func (r *Record) Held(token int64) bool { return r.Holder != "" && r.Token == token }

// end removes the order from the record.
func (r *Record) end() { r.Holder, r.Until, r.Challenge = "", time.Time{}, nil }

// Release ends the lease without a result, for an order that was not placed.
func (r *Record) Release(next time.Time) {
	r.end()
	r.NextAt = next
	r.schedule(next)
}

// Issued records a new certificate.
func (r *Record) Issued(c *Certificate) {
	r.Certificate = c
	r.end()
	r.Failures, r.Failure, r.NextAt = 0, "", time.Time{}
	r.DueAt = c.RenewAt
}

// Failed records that the order failed.
func (r *Record) Failed(f Failure, now time.Time) {
	r.end()
	r.Failures++
	r.Failure = f.Words
	r.NextAt = now.Add(f.pause(r.Failures))
	r.schedule(r.NextAt)
}

// schedule makes the sweep retry a renewal while the certificate is valid. Without a valid
// certificate, an order is retried only when the name is next visited, so unvisited names do not
// use up orders.
func (r *Record) schedule(next time.Time) {
	r.DueAt = time.Time{}
	if r.Certificate != nil && next.Before(r.Certificate.NotAfter) {
		r.DueAt = next
	}
}

// RenewAt returns the time to renew a certificate: when a third of its lifetime is left, or
// somewhat earlier, depending on a hash of the host name. The hash spreads the renewals of
// certificates that were issued together.
func RenewAt(host string, notBefore, notAfter time.Time) time.Time {
	life := notAfter.Sub(notBefore)
	h := fnv.New32a()
	_, _ = h.Write([]byte(host))
	spread := life / 30 * time.Duration(h.Sum32()%1000) / 1000
	return notAfter.Add(-life/3 - spread)
}

// RefusedError reports that the last order failed, and when the next one may start.
type RefusedError struct {
	Reason string
	Next   time.Time
}

func (e *RefusedError) Error() string {
	return "the last order failed, and the next one does not start before " + e.Next.UTC().Format(time.RFC3339) + ": " + e.Reason
}

// Failure explains to the domain's owner why an order failed.
type Failure struct {
	Words string
	// Away is set if the authority did not respond or had an internal error. In that case, the name
	// is not at fault.
	Away bool
	// Limited is set if the authority is temporarily refusing new orders.
	Limited bool
}

func (f Failure) pause(failures int) time.Duration {
	// Double at most ten times. The result already exceeds every maximum, and further doubling
	// could overflow.
	double := func(first, most time.Duration) time.Duration { return min(most, first<<min(failures-1, 10)) }
	switch {
	case f.Limited:
		return double(retryLimited, mostRefused)
	case f.Away:
		return double(retryAway, mostAway)
	}
	return double(retryRefused, mostRefused)
}
