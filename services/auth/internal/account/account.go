// Package account knows who may use Linkreel and with which keys: the rules on
// accounts, plans and API keys, without a word on how they are asked for or kept.
//
// Its one deep promise is in [Service]: when a call that takes authority away
// (revoke, roll, a lower plan, a suspension) has returned, the change is
// committed and every replica has been told.
package account

import (
	"cmp"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
)

// MaxActiveKeys is how many keys of an account can be in use at once.
const MaxActiveKeys = 100

// Account owns everything else.
type Account struct {
	ID        string
	Name      string
	Plan      identity.Plan
	Suspended bool
	// Deleting is set for good once the erasure has begun; Suspended stays set too.
	Deleting  bool
	CreatedAt time.Time

	// Pending says that a decision on the account has not taken effect in every service
	// that keeps records of it, or that the account is being erased.
	Pending bool

	// Limits are the operator's exceptions from what the plan allows.
	Limits Limits

	// Version grows with each change of what the account or a key of it may do,
	// in the same commit. Replicas compare it to know a record that is out of date.
	Version int64
}

// State is what may be done with the account's records.
func (a Account) State() tenant.State {
	switch {
	case a.Deleting:
		return tenant.Deleting
	case a.Suspended:
		return tenant.Suspended
	}
	return tenant.Active
}

// Matches reports whether the account's name or id has q in it, whatever the case.
func (a Account) Matches(q string) bool {
	q = strings.ToLower(q)
	return strings.Contains(strings.ToLower(a.Name), q) || strings.Contains(strings.ToLower(a.ID), q)
}

// Limits bound what an account may have. A zero is what the plan allows.
type Limits struct{ Links, Videos, Domains, StoredBytes int64 }

// Over gives the limits in force over those of the plan.
func (l Limits) Over(plan identity.Quotas) identity.Quotas {
	return identity.Quotas{
		Links: cmp.Or(int(l.Links), plan.Links), Videos: cmp.Or(int(l.Videos), plan.Videos),
		Domains: cmp.Or(int(l.Domains), plan.Domains), StoredBytes: cmp.Or(l.StoredBytes, plan.StoredBytes),
	}
}

// Change is an operator's edit of an account; nil fields stay.
type Change struct {
	Name      *string
	Plan      *identity.Plan
	Suspended *bool
	// Limits edits the account's limits; it may run several times.
	Limits func(Limits) Limits
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
	return a
}

// Key is an API key without its secret.
type Key struct {
	ID        string
	AccountID string
	Hash      string // names the key's record; see [identity.Key.Hash]
	Name      string
	Prefix    string // what may be shown of the start
	Last4     string // and of the end
	Scopes    identity.ScopeSet

	// MadeBy is the member who made the key, directly or through a key of theirs.
	// Their role bounds it; "" is a key that no member made.
	MadeBy string

	CreatedAt  time.Time
	LastUsedAt time.Time // to the minute; zero: never
	ExpiresAt  time.Time // zero: never
	RevokedAt  time.Time // zero: not revoked
}

// Active reports whether the key is accepted at now.
func (k Key) Active(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// endsBy gives the key with an end no later than t.
func (k Key) endsBy(t time.Time) Key {
	if k.ExpiresAt.IsZero() || t.Before(k.ExpiresAt) {
		k.ExpiresAt = t
	}
	return k
}

// Credential is a key, or a session in the form of one, with what bounds it, as
// all were at one instant.
type Credential struct {
	Key     Key
	Account Account
	Session bool
	Member  Member // who is signed in, or made the key; zero: no member
}

// Member is the member whose role bounds a key or a session.
type Member struct {
	ID   string
	Name string
	Role identity.Role // "" once the member was removed
}

// Scopes is what the credential may do now.
func (c Credential) Scopes() identity.ScopeSet {
	if c.Member.ID == "" {
		return c.Key.Scopes
	}
	return c.Key.Scopes & c.Member.Role.Scopes()
}

// Usage is how many records an account has now, and how many bytes its videos take.
type Usage struct {
	Links, Videos, Domains int
	StoredBytes            int64
}

// ErrNoAccount and ErrNoKey are the answers for what is not there and for what
// belongs to somebody else alike.
var (
	ErrNoAccount = apierr.New(apierr.NotFound, "There is no account with this id.")
	ErrNoKey     = apierr.New(apierr.NotFound, "There is no key with this id.")
)

// MayGive refuses to hand out scopes that the giver does not have.
func MayGive(giver, given identity.ScopeSet) error {
	for _, lacks := range (given &^ giver).Names() {
		return apierr.ScopeRequired(lacks, "A key cannot hand out the scope "+lacks+", which it does not have.")
	}
	return nil
}
