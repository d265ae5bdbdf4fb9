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
)

// AllScopes lists every scope; a key made without scopes has them all.
func AllScopes() []Scope {
	return []Scope{LinksRead, LinksWrite, VideosRead, VideosWrite, DomainsRead, DomainsWrite, KeysRead, KeysWrite}
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

// Principal is the account and key on whose behalf a request acts.
type Principal struct {
	AccountID   string
	AccountName string
	Plan        Plan
	Suspended   bool

	KeyID  string
	Scopes ScopeSet

	Quotas Quotas
}

// Quotas bound how many records an account may have. A zero is no bound.
type Quotas struct{ Links, Videos, Domains int }

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
