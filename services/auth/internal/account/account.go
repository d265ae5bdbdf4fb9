// Package account has the rules for accounts, plans and API keys. It knows neither
// the HTTP API nor the database.
//
// [Service] promises: when a call that takes rights away (revoke, roll, a lower plan, a suspension)
// returns, the change is committed and every replica has been notified.
package account

import (
	"cmp"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/libs/tenant"
)

// MaxActiveKeys is the maximum number of an account's keys in use at once.
const MaxActiveKeys = 100

// Account is the owner of every other record.
type Account struct {
	ID        string
	Name      string
	Plan      identity.Plan
	Suspended bool
	// Deleting is set once the erasure has begun, and never cleared. Suspended stays set too.
	Deleting  bool
	CreatedAt time.Time

	// Pending says that a decision on the account has not yet taken effect in every service
	// that keeps records of it, or that the account is being erased.
	Pending bool

	// Limits are the operator's exceptions to the plan's quotas.
	Limits Limits

	// DefaultDomainID is the domain of new links that name none. "" means the default short
	// host.
	DefaultDomainID string

	// Every change to the rights of the account or of one of its keys raises Version in the
	// same commit. Replicas compare it to recognise a stale record.
	Version int64
}

// State returns the account's state for the services that keep its records.
func (a Account) State() tenant.State {
	switch {
	case a.Deleting:
		return tenant.Deleting
	case a.Suspended:
		return tenant.Suspended
	}
	return tenant.Active
}

// Matches reports whether the account's name or id contains q, ignoring case.
func (a Account) Matches(q string) bool {
	q = strings.ToLower(q)
	return strings.Contains(strings.ToLower(a.Name), q) || strings.Contains(strings.ToLower(a.ID), q)
}

// Limits are an account's own quotas. A zero field means the plan's quota.
type Limits struct{ Links, Videos, Domains, StoredBytes int64 }

// Over returns the limits in force: those that l sets, and the plan's for the others.
func (l Limits) Over(plan identity.Quotas) identity.Quotas {
	return identity.Quotas{
		Links: cmp.Or(int(l.Links), plan.Links), Videos: cmp.Or(int(l.Videos), plan.Videos),
		Domains: cmp.Or(int(l.Domains), plan.Domains), StoredBytes: cmp.Or(l.StoredBytes, plan.StoredBytes),
	}
}

// Change is an edit of an account, by the operator or by an owner. Fields that are nil stay unchanged.
type Change struct {
	Name      *string
	Plan      *identity.Plan
	Suspended *bool
	// Limits edits the account's limits; it may run several times.
	Limits func(Limits) Limits
	// DefaultDomainID is "" for the default short host.
	DefaultDomainID *string
	// Match, if set, refuses the change of an account that is not as the caller saw it. It may
	// run several times.
	Match func(Account) error
}

func (a Account) with(c Change) Account {
	if c.Name != nil {
		a.Name = *c.Name
	}
	if c.Plan != nil {
		a.Plan = *c.Plan
	}
	if c.Suspended != nil {
		a.Suspended = *c.Suspended
	}
	if c.Limits != nil {
		a.Limits = c.Limits(a.Limits)
	}
	if c.DefaultDomainID != nil {
		a.DefaultDomainID = *c.DefaultDomainID
	}
	return a
}

// Key is an API key without its secret.
type Key struct {
	ID        string
	AccountID string
	Hash      string // names the key's record; see [identity.Key.Hash]
	Name      string
	Prefix    string // the start, which may be shown
	Last4     string // the end, which may be shown
	Scopes    identity.ScopeSet

	// MadeBy is the member who made the key, directly or through a key of theirs.
	// Their role limits the key. "" means that no member made it.
	MadeBy string

	CreatedAt  time.Time
	LastUsedAt time.Time // to the minute; zero: never
	ExpiresAt  time.Time // zero: never
	RevokedAt  time.Time // zero: not revoked
}

// Place returns the key's place in its account's list.
func (k Key) Place() paging.Place { return paging.Place{At: k.CreatedAt, ID: k.ID} }

// Active reports whether the key is accepted at now.
func (k Key) Active(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// endsBy returns the key with an expiry no later than t.
func (k Key) endsBy(t time.Time) Key {
	if k.ExpiresAt.IsZero() || t.Before(k.ExpiresAt) {
		k.ExpiresAt = t
	}
	return k
}

// Credential is a key, or a session in the form of a key, with the account and the member that
// limit it. All were read at the same instant.
type Credential struct {
	Key     Key
	Account Account
	Session bool
	Member  Member // the session's member, or the maker of the key; zero if there is none
}

// Member is the member whose role bounds a key or a session.
type Member struct {
	ID   string
	Name string
	Role identity.Role // "" once the member was removed
}

// Scopes returns the scopes that the credential has now.
func (c Credential) Scopes() identity.ScopeSet {
	if c.Member.ID == "" {
		return c.Key.Scopes
	}
	return c.Key.Scopes & c.Member.Role.Scopes()
}

// Usage counts the records that an account has now and the bytes that its videos take.
type Usage struct {
	Links, Videos, Domains int
	StoredBytes            int64
}

// ErrNoAccount and ErrNoKey do not reveal whether the record is missing or belongs to
// somebody else.
var (
	ErrNoAccount = apierr.New(apierr.NotFound, "There is no account with this id.")
	ErrNoKey     = apierr.New(apierr.NotFound, "There is no key with this id.")
)

// MayGive returns an error if the giver does not have all the scopes that are given.
func MayGive(giver, given identity.ScopeSet) error {
	if lacks := (given &^ giver).Names(); len(lacks) > 0 {
		return apierr.ScopeRequired(lacks[0], "A key cannot hand out the scope "+lacks[0]+", which it does not have.")
	}
	return nil
}
