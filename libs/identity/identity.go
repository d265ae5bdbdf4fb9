// Package identity says who a caller is and what the caller may do: plans,
// scopes, the format of API keys, and the principal that a request carries.
//
// It holds no secrets and does no I/O. A key's text exists in the caller's hands
// only; what Linkreel keeps is its [Key.Hash].
package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Plan is what an account pays for. Plans are ordered: a higher one may do all
// that a lower one may.
type Plan int

// The plans, lowest first.
const (
	Free Plan = iota
	Creator
	Business
	Enterprise
)

var planNames = []string{"free", "creator", "business", "enterprise"}

// Plans lists the plans, lowest first.
func Plans() []Plan { return []Plan{Free, Creator, Business, Enterprise} }

func (p Plan) String() string {
	if p < 0 || int(p) >= len(planNames) {
		return fmt.Sprintf("plan(%d)", int(p))
	}
	return planNames[p]
}

// ParsePlan reads a plan's lower-case name.
func ParsePlan(s string) (Plan, error) {
	if i := slices.Index(planNames, s); i >= 0 {
		return Plan(i), nil
	}
	return Free, fmt.Errorf("unknown plan; use one of %s", strings.Join(planNames, ", "))
}

// MarshalText gives a plan its name in JSON.
func (p Plan) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a plan's name.
func (p *Plan) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePlan(string(text))
	return err
}

// Scope is a permission of a key.
type Scope string

// The scopes.
const (
	LinksRead    Scope = "links:read"
	LinksWrite   Scope = "links:write"
	VideosRead   Scope = "videos:read"
	VideosWrite  Scope = "videos:write"
	DomainsRead  Scope = "domains:read"
	DomainsWrite Scope = "domains:write"
	KeysRead     Scope = "keys:read"
	KeysWrite    Scope = "keys:write"

	EventsRead    Scope = "events:read"
	WebhooksRead  Scope = "webhooks:read"
	WebhooksWrite Scope = "webhooks:write"
	MembersRead   Scope = "members:read"
	MembersWrite  Scope = "members:write"
)

// DefaultScopes are those of a key that is made without scopes. The list is
// fixed: a scope that is added later must be asked for by name, so that no
// existing script makes stronger keys than its author meant.
func DefaultScopes() ScopeSet {
	return ScopeSet{LinksRead, LinksWrite, VideosRead, VideosWrite, DomainsRead, DomainsWrite, KeysRead, KeysWrite}
}

// AllScopes lists every scope.
func AllScopes() ScopeSet {
	return append(DefaultScopes(), EventsRead, WebhooksRead, WebhooksWrite, MembersRead, MembersWrite)
}

// ParseScope reads a scope's name.
func ParseScope(s string) (Scope, error) {
	if slices.Contains(AllScopes(), Scope(s)) {
		return Scope(s), nil
	}
	return "", fmt.Errorf("unknown scope")
}

// ScopeSet is a key's permissions. The zero value allows nothing.
type ScopeSet []Scope

// Has reports whether the set allows s.
func (set ScopeSet) Has(s Scope) bool { return slices.Contains(set, s) }

// Covers reports whether the set allows all of other.
func (set ScopeSet) Covers(other ScopeSet) bool {
	return !slices.ContainsFunc(other, func(s Scope) bool { return !set.Has(s) })
}

// And gives the scopes that both sets have.
func (set ScopeSet) And(other ScopeSet) ScopeSet {
	return slices.DeleteFunc(slices.Clone(set), func(s Scope) bool { return !other.Has(s) })
}

// Principal is the account and key on whose behalf a request acts.
type Principal struct {
	AccountID   string
	AccountName string
	Plan        Plan
	Suspended   bool

	KeyID   string // the API key's or the session's
	KeyName string
	Scopes  ScopeSet

	// Session is set when a person acts, signed in as the member below.
	Session bool
	// MemberID, MemberName and Role name the member: the one who is signed in, or
	// the one who made the key. A key that no member made has none.
	MemberID   string
	MemberName string
	Role       Role

	PerMinute int // requests a minute
	Quotas    Quotas
}

// Quotas bound how many records an account may have, and how many bytes it may
// store. A zero is no bound.
type Quotas struct {
	Links, Videos, Domains int
	StoredBytes            int64
}

// Owns reports whether the caller may do what only owners may. A key that a
// member made is bounded by the member's role; a key that no member made acts
// for the account, and has owner's rights within its scopes.
func (p *Principal) Owns() bool {
	if p.Session || p.MemberID != "" {
		return p.Role == Owner
	}
	return true
}

// Actor is who the principal is in events and logs: the member of a session, or
// the key.
func (p *Principal) Actor() (kind, id, name string) {
	if p.Session {
		return "member", p.MemberID, p.MemberName
	}
	return "key", p.KeyID, p.KeyName
}

type principalKey struct{}

// WithPrincipal puts p into ctx.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// FromContext is the request's principal; nil on a request that needs no key.
func FromContext(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}
