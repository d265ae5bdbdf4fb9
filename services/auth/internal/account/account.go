// Package account has the rules for accounts, plans and API keys. It depends neither on the
// HTTP API nor on the database.
//
// [Service] guarantees the following: when a call that removes rights (revoke, roll, a lower
// plan, a suspension) returns, the change is committed and every replica has been notified.
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

// MaxActiveKeys is the maximum number of active keys of an account.
const MaxActiveKeys = 100

// Account is the owner of every other record.
type Account struct {
	ID        string
	Name      string
	Plan      identity.Plan
	Suspended bool
	// Deleting is set when the erasure begins, and never cleared. Suspended remains set too.
	Deleting  bool
	CreatedAt time.Time

	// Pending reports whether a decision about the account has yet to take effect in a
	// service with records of the account, or whether the account is being erased.
	Pending bool

	// Limits are the operator's exceptions to the plan's quotas.
	Limits Limits

	// DefaultDomainID is the domain of new links without an explicit domain. "" means the
	// default short host.
	DefaultDomainID string

	// Every change to the rights of the account or of one of its keys increments Version in
	// the same commit. Replicas compare versions to recognise a stale record.
	Version int64
}

// State returns the account's state for the services with records of the account.
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

// Limits are the quotas of a single account. A zero field means the plan's quota.
type Limits struct{ Links, Videos, Domains, StoredBytes int64 }

// Over returns the effective limits: those that l sets, and the plan's limits for the other
// fields.
func (l Limits) Over(plan identity.Quotas) identity.Quotas {
	return identity.Quotas{
		Links: cmp.Or(int(l.Links), plan.Links), Videos: cmp.Or(int(l.Videos), plan.Videos),
		Domains: cmp.Or(int(l.Domains), plan.Domains), StoredBytes: cmp.Or(l.StoredBytes, plan.StoredBytes),
	}
}

// Change is an edit of an account by the operator or an owner. Nil fields are not changed.
type Change struct {
	Name      *string
	Plan      *identity.Plan
	Suspended *bool
	// Limits edits the account's limits. It may run several times.
	Limits func(Limits) Limits
	// DefaultDomainID is "" for the default short host.
	DefaultDomainID *string
	// Match, if set, rejects the change if the account has changed since the caller read it.
	// It may run several times.
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
	Prefix    string // the first characters, which may be shown
	Last4     string // the last characters, which may be shown
	Scopes    identity.ScopeSet

	// MadeBy is the member who created the key, directly or through another key. Their role
	// limits the key. "" means that no member created it.
	MadeBy string

	CreatedAt  time.Time
	LastUsedAt time.Time // to the minute; zero: never
	ExpiresAt  time.Time // zero: never
	RevokedAt  time.Time // zero: not revoked
}

// Place returns the position of the key in its account's list.
func (k Key) Place() paging.Place { return paging.Place{At: k.CreatedAt, ID: k.ID} }

// Active reports whether the key is valid at now.
func (k Key) Active(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// endsBy returns a copy of the key that expires at t at the latest.
func (k Key) endsBy(t time.Time) Key {
	if k.ExpiresAt.IsZero() || t.Before(k.ExpiresAt) {
		k.ExpiresAt = t
	}
	return k
}

// Credential is a key, or a session in the form of a key, with the account and the member
// that limit it. All of them were read at the same time.
type Credential struct {
	Key     Key
	Account Account
	Session bool
	Member  Member // the session's member, or the creator of the key; zero if there is none
}

// Member is the member with the role that limits a key or a session.
type Member struct {
	ID   string
	Name string
	Role identity.Role // "" after the member was removed
}

// Scopes returns the current scopes of the credential.
func (c Credential) Scopes() identity.ScopeSet {
	if c.Member.ID == "" {
		return c.Key.Scopes
	}
	return c.Key.Scopes & c.Member.Role.Scopes()
}

// Usage is the number of records of an account and the bytes of its videos.
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

// MayGive returns an error if the giver does not have all the granted scopes.
func MayGive(giver, given identity.ScopeSet) error {
	if lacks := (given &^ giver).Names(); len(lacks) > 0 {
		return apierr.ScopeRequired(lacks[0], "A key cannot grant the scope "+lacks[0]+", which it does not have.")
	}
	return nil
}
