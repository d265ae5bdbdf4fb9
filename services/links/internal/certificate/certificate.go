// Package certificate gets TLS certificates for verified custom domains and
// serves visitors with them.
//
// A host name gets its certificate at its first visit over TLS, from an ACME
// authority. All replicas share it: the certificate and the state of its order are
// one record, and the replica that orders holds a lease on that record with a
// fencing token. A replica that lost its lease can finish its order, but not store
// the result. A lease that is not renewed expires, and the sweep of any replica
// resumes the order.
//
// The service orders certificates only for names that an account has proven to own.
// Handshakes for other names may read Firestore only within a budget. No handshake waits
// longer than 12 s, but the order continues after that.
//
// Private keys are sealed before they are stored (libs/seal). The ACME client is
// acmez. Replicas share its data too. The key of the account at the authority is one
// record ([Account]). The response to a challenge is stored in the record of its order, so the
// authority can get it from any replica.
package certificate

import (
	"errors"
	"hash/fnv"
	"time"
)

// How long orders and the pauses between them last.
const (
	// Lease is how long an order belongs to its replica without being renewed. If the
	// replica is killed, the order is delayed by this long.
	Lease = 30 * time.Second
	// longestOrder bounds an order with all its challenges.
	longestOrder = 3 * time.Minute

	// retryRefused is the first pause after a failed validation. The usual cause is a DNS record
	// that does not lead here yet. Let's Encrypt allows five failures an hour for a name.
	retryRefused = 15 * time.Minute
	mostRefused  = 12 * time.Hour
	// retryAway is the first pause if the authority is down. It is short, because the name is
	// not at fault.
	retryAway = time.Minute
	mostAway  = 15 * time.Minute
	// retryLimited is the first pause after "too many requests".
	retryLimited = time.Hour
)

// Why a host name gets no certificate.
var (
	ErrUnknownHost = errors.New("no verified domain has this name")
	ErrBudget      = errors.New("too many handshakes were for unknown names")
	ErrBusy        = errors.New("another replica is ordering the certificate")
	ErrOvertaken   = errors.New("another replica has taken over the order")
	ErrLimited     = errors.New("no more certificates may be ordered for now")
	ErrShare       = errors.New("the account may order no more certificates for now")
	ErrSuspended   = errors.New("the account that has this name is suspended")
)

// SealPurpose separates the seals of this package from those of others.
const SealPurpose = "linkreel certificate 1"

// Certificate is what an authority issued, with its private key.
type Certificate struct {
	Chain     []byte // PEM, the host's own certificate first
	Key       []byte // PKCS #8, sealed
	NotBefore time.Time
	NotAfter  time.Time
	RenewAt   time.Time
}

// Record is a host name's certificate and the state of its order. A name that was never
// visited has the zero record.
type Record struct {
	Host        string
	Account     string       // the account for which it was last ordered
	Certificate *Certificate // nil: none yet

	Holder    string     // the replica that orders; "" when none does
	Token     int64      // the number of the last lease; each new lease gets a higher one
	Until     time.Time  // the lease's end
	Challenge *Challenge // what the authority asks for now; nil if it asks for nothing

	Failures int // failed orders in a row
	Failure  string
	NextAt   time.Time // no order starts before this time; zero if the last one did not fail
	DueAt    time.Time // when the sweep looks at the record; zero means never
}

// Challenge is what the authority asks the host for, to check that the order comes
// from the host. It is not secret.
type Challenge struct {
	Token  string // the end of the challenge's path; see [Service.Answer]
	Answer string // ACME's key authorization
}

// Valid reports whether visitors can be served with the certificate at now.
func (r *Record) Valid(now time.Time) bool {
	return r.Certificate != nil && now.Before(r.Certificate.NotAfter)
}

// Claim gives the order to holder, if a certificate is needed now. If the record has a
// certificate that does not have to be renewed yet, claimed is false and err is nil.
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
	// From here on, a result of the previous holder is refused.
	r.Token++
	r.Holder, r.Challenge = holder, nil
	r.Extend(now)
	return true, nil
}

// Extend renews the lease. If the lease expires without a result, the replica is gone, and
// the sweep resumes the order.
func (r *Record) Extend(now time.Time) {
	r.Until = now.Add(Lease)
	r.DueAt = r.Until
}

// leased reports whether a replica is ordering at now.
func (r *Record) leased(now time.Time) bool { return r.Holder != "" && now.Before(r.Until) }

// HandOver gives the record to account. If account is "", the name loses its domain.
// HandOver drops the certificate and its private key. It keeps the pause after failed
// orders: otherwise an owner could skip the pause by deleting the domain and verifying it
// again. It keeps an order in flight, so that a failure of that order counts. If there is
// neither a pause nor an order, left is false, and the record can be removed.
//
// If the account changes, the pause becomes at most as long as after a first failure,
// because the new account may have fixed the cause. It does not end at once, because the
// authority counts failures by name and not by our accounts.
func (r *Record) HandOver(account string, now time.Time) (left bool) {
	r.Certificate, r.DueAt = nil, time.Time{}
	if account != "" && account != r.Account {
		r.Account, r.Failures = account, 0
		if r.Failure != "" { // its text describes the former owner's servers
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

// inherited is the Failure of a record that another account takes over.
const inherited = "Orders for this name failed for its former owner. The next order starts after a pause."

// Held reports whether the lease with this token is the newest one and has not ended.
func (r *Record) Held(token int64) bool { return r.Holder != "" && r.Token == token }

// end removes the order from the record.
func (r *Record) end() { r.Holder, r.Until, r.Challenge = "", time.Time{}, nil }

// Release ends the lease without a result, because nothing was ordered.
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

// schedule makes the sweep retry a renewal while the certificate is valid. A name
// without a valid certificate waits for a visit, so that unvisited names cost no
// orders.
func (r *Record) schedule(next time.Time) {
	r.DueAt = time.Time{}
	if r.Certificate != nil && next.Before(r.Certificate.NotAfter) {
		r.DueAt = next
	}
}

// RenewAt returns when to renew a certificate: a third of its life before it expires, or
// somewhat earlier, depending on a hash of the host name. So certificates that were issued
// together are not renewed together.
func RenewAt(host string, notBefore, notAfter time.Time) time.Time {
	life := notAfter.Sub(notBefore)
	h := fnv.New32a()
	_, _ = h.Write([]byte(host))
	spread := life / 30 * time.Duration(h.Sum32()%1000) / 1000
	return notAfter.Add(-life/3 - spread)
}

// RefusedError says that the last order failed, and when the next one may start.
type RefusedError struct {
	Reason string
	Next   time.Time
}

func (e *RefusedError) Error() string {
	return "the last order failed, and the next one does not start before " + e.Next.UTC().Format(time.RFC3339) + ": " + e.Reason
}

// Failure tells the owner of the domain why an order failed.
type Failure struct {
	Words string
	// Away is set if the authority did not answer or had an error of its own, so the
	// name is not at fault.
	Away bool
	// Limited is set if the authority allows no more orders for some time.
	Limited bool
}

func (f Failure) pause(failures int) time.Duration {
	// Double at most ten times. That already exceeds every maximum, and many more would overflow.
	double := func(first, most time.Duration) time.Duration { return min(most, first<<min(failures-1, 10)) }
	switch {
	case f.Limited:
		return double(retryLimited, mostRefused)
	case f.Away:
		return double(retryAway, mostAway)
	}
	return double(retryRefused, mostRefused)
}
