// Package identity describes callers and their rights: plans, scopes, the format of API
// keys, and the values that a request carries in its context.
//
// It holds no secrets and does no I/O. Only the caller has a key's text; Linkreel keeps
// its [Key.Hash].
package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Plan is what an account pays for. Plans are ordered: a higher one may do all that a
// lower one may. Documents and calls between services contain the plan's number; only the
// public API shows names. So a new plan must be added after the others.
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

// ScopeSet is a set of permissions, with a bit for each. Documents and calls between
// services contain the number, so no bit may ever change its meaning. A bit that this
// version does not know grants nothing. Only the public API shows names.
type ScopeSet uint32

// The permissions.
const (
	LinksRead ScopeSet = 1 << iota
	LinksWrite
	VideosRead
	VideosWrite
	DomainsRead
	DomainsWrite
	KeysRead
	KeysWrite

	EventsRead
	WebhooksRead
	WebhooksWrite
	MembersRead
	MembersWrite

	AccountWrite
)

const (
	// DefaultScopes are the scopes of a key if its creator names none. The set is fixed:
	// a scope that is added later must be requested by name, so that no existing script
	// creates stronger keys than its author intended.
	DefaultScopes = LinksRead | LinksWrite | VideosRead | VideosWrite | DomainsRead | DomainsWrite | KeysRead | KeysWrite
	// AllScopes has every scope.
	AllScopes = DefaultScopes | EventsRead | WebhooksRead | WebhooksWrite | MembersRead | MembersWrite | AccountWrite
)

var scopeNames = []string{ // by bit
	"links:read", "links:write", "videos:read", "videos:write", "domains:read", "domains:write", "keys:read", "keys:write",
	"events:read", "webhooks:read", "webhooks:write", "members:read", "members:write",
	"account:write",
}

// ParseScopes reads the names of scopes. It ignores unknown names.
func ParseScopes(names []string) (set ScopeSet) {
	for _, name := range names {
		if i := slices.Index(scopeNames, name); i >= 0 {
			set |= 1 << i
		}
	}
	return set
}

// Has reports whether the set has all scopes of other.
func (set ScopeSet) Has(other ScopeSet) bool { return set&other == other }

// Names lists the scopes by name, always in the same order.
func (set ScopeSet) Names() []string {
	names := []string{}
	for i, name := range scopeNames {
		if set.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
}

func (set ScopeSet) String() string { return strings.Join(set.Names(), " ") }

// Principal is the account and key on whose behalf a request acts.
type Principal struct {
	AccountID   string
	AccountName string
	Plan        Plan
	Suspended   bool
	// DefaultDomainID is the domain of new links that name none. "" means the default short
	// host.
	DefaultDomainID string

	KeyID   string // id of the API key or the session
	KeyName string
	Scopes  ScopeSet

	// Session is set if the caller is a person who is signed in as the member below.
	Session bool
	// MemberID, MemberName and Role are those of the member who is signed in or who made
	// the key. They are empty for a key that no member made.
	MemberID   string
	MemberName string
	Role       Role

	PerMinute int // requests a minute
	Quotas    Quotas
}

// Quotas bound how many records an account may have, and how many bytes it may store.
// Zero means no bound.
type Quotas struct {
	Links, Videos, Domains int
	StoredBytes            int64
}

// Owns reports whether the caller may do what only owners may. A key that a member made
// is bounded by the member's role. A key that no member made acts for the account, and
// has an owner's rights within its scopes.
func (p *Principal) Owns() bool {
	if p.Session || p.MemberID != "" {
		return p.Role == Owner
	}
	return true
}

// Actor names the principal for events and logs: the member of a session, or the key.
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

// FromContext returns the request's principal, or nil if the request needs no key.
func FromContext(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

// Request holds what the process knows about one request, apart from its principal.
type Request struct {
	ID     string // the trace id, which the caller sees in X-Request-Id
	Began  time.Time
	Queued atomic.Int64 // nanoseconds that the request waited in queues of this process
}

type requestKey struct{}

// WithRequest puts r into ctx.
func WithRequest(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// RequestOf returns the request in ctx, or an empty one.
func RequestOf(ctx context.Context) *Request {
	if r, ok := ctx.Value(requestKey{}).(*Request); ok {
		return r
	}
	return &Request{}
}

// Origin holds the values from which a create derives its identifiers. An attempt that
// finds its own record already stored knows that an earlier attempt succeeded. All attempts of a
// request with an Idempotency-Key have the same Nonce and At. The exception is a request
// that takes effect in one commit: each attempt gets new ones.
type Origin struct {
	Nonce string
	At    time.Time
}

type originKey struct{}

// WithOrigin puts o into ctx.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginFrom returns the origin of the request in ctx, or a new one.
func OriginFrom(ctx context.Context) Origin {
	if o, ok := ctx.Value(originKey{}).(Origin); ok {
		return o
	}
	return Origin{Nonce: NewNonce(), At: time.Now()}
}
