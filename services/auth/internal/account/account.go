// Package account implements the rules for accounts, plans and API keys. It depends on neither
// the HTTP API nor the database.
//
// When a [Service] call that removes rights (revoke, roll, a lower plan, a suspension) returns,
// the change is committed and every replica has been notified.
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

// MaxActiveKeys is the maximum number of active keys in an account.
const MaxActiveKeys = 100

// Account is a tenant. It owns all other records.
type Account struct {
	ID        string
	Name      string
	Plan      identity.Plan
	Suspended bool
	// Deleting is set when erasure begins and is never cleared. Suspended also remains set.
	Deleting  bool
	CreatedAt time.Time

	// Pending is set while the account is being erased, or while some service that holds its
	// records has not yet applied a decision about it.
	Pending bool

	// Limits are quotas that the operator has set for this account instead of the plan's.
	Limits Limits

	// DefaultDomainID is the domain for new links that do not specify one. "" means the default
	// short host.
	DefaultDomainID string

	// Every change to the rights of the account or of one of its keys increments Version in
	// the same commit. Replicas compare versions to recognise a stale record.
	Version int64
}

// State returns the account's state as reported to the services that hold its records.
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

// Limits are the quotas set for a single account. A zero field means that the plan's quota
// applies.
type Limits struct{ Links, Videos, Domains, StoredBytes int64 }

// Over returns the effective limits: those set in l, and the plan's for all other fields.
func (l Limits) Over(plan identity.Quotas) identity.Quotas {
	return identity.Quotas{
		Links: cmp.Or(int(l.Links), plan.Links), Videos: cmp.Or(int(l.Videos), plan.Videos),
		Domains: cmp.Or(int(l.Domains), plan.Domains), StoredBytes: cmp.Or(l.StoredBytes, plan.StoredBytes),
	}
}

// Change is an edit to an account by the operator or an owner. Nil fields are not changed.
type Change struct {
	Name      *string
	Plan      *identity.Plan
	Suspended *bool
	// Limits computes the new limits from the current ones. It may be called several times.
	Limits func(Limits) Limits
	// DefaultDomainID may be "", which means the default short host.
	DefaultDomainID *string
	// Match, if set, rejects the change if the account has changed since the caller read it. It
	// may be called several times.
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
	Hash      string // the name of the key's record; see [identity.Key.Hash]
	Name      string
	Prefix    string // the first characters; safe to display
	Last4     string // the last characters; safe to display
	Scopes    identity.ScopeSet

	// MadeBy is the member who created the key, directly or through another key. Their role
	// limits the key. "" means that no member created it.
	MadeBy string

	CreatedAt  time.Time
	LastUsedAt time.Time // accurate to the minute; zero if never used
	ExpiresAt  time.Time // zero if the key never expires
	RevokedAt  time.Time // zero if not revoked
}

// Place returns the key's position in its account's list.
func (k Key) Place() paging.Place { return paging.Place{At: k.CreatedAt, ID: k.ID} }

// Active reports whether the key is valid at now.
func (k Key) Active(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// endsBy returns a copy of the key that expires no later than t.
func (k Key) endsBy(t time.Time) Key {
	if k.ExpiresAt.IsZero() || t.Before(k.ExpiresAt) {
		k.ExpiresAt = t
	}
	return k
}

// Credential is a key, or a session represented as a key, with the account and the member that
// limit it. All of them were read at the same point in time.
type Credential struct {
	Key     Key
	Account Account
	Session bool
	Member  Member // the session's member, or the key's creator; zero if there is none
}

// Member identifies a member and the role that limits their key or session.
type Member struct {
	ID   string
	Name string
	Role identity.Role // "" after the member was removed
}

// Scopes returns the credential's current scopes.
func (c Credential) Scopes() identity.ScopeSet {
	if c.Member.ID == "" {
		return c.Key.Scopes
	}
	return c.Key.Scopes & c.Member.Role.Scopes()
}

// Usage counts an account's records and the bytes that its videos occupy.
type Usage struct {
	Links, Videos, Domains int
	StoredBytes            int64
}

// ErrNoAccount and ErrNoKey do not reveal whether a record is missing or belongs to another
// account.
var (
	ErrNoAccount = apierr.New(apierr.NotFound, "There is no account with this id.")
	ErrNoKey     = apierr.New(apierr.NotFound, "There is no key with this id.")
)

// MayGive returns an error if the giver lacks any of the granted scopes.
func MayGive(giver, given identity.ScopeSet) error {
	if lacks := (given &^ giver).Names(); len(lacks) > 0 {
		return apierr.ScopeRequired(lacks[0], "A key cannot grant the scope "+lacks[0]+", which it does not have.")
	}
	return nil
}
