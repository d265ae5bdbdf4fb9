// Package identity says who a caller is and what the caller may do: plans,
// scopes, the format of API keys, and what a request carries in its context.
//
// It holds no secrets and does no I/O. A key's text exists in the caller's hands
// only; what Linkreel keeps is its [Key.Hash].
package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Plan is what an account pays for. Plans are ordered: a higher one may do all
// that a lower one may. Documents and calls between services hold the number, and only
// the public API shows names: a new plan goes behind the others.
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
// services hold the number, so no bit may ever change its meaning. A bit that a newer
// version added gives nothing here. Only the public API shows names.
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
)

const (
	// DefaultScopes are those of a key that is made without scopes. The set is fixed: a
	// scope that is added later must be asked for by name, so that no existing script
	// makes stronger keys than its author meant.
	DefaultScopes = LinksRead | LinksWrite | VideosRead | VideosWrite | DomainsRead | DomainsWrite | KeysRead | KeysWrite
	// AllScopes has every scope.
	AllScopes = DefaultScopes | EventsRead | WebhooksRead | WebhooksWrite | MembersRead | MembersWrite
)

var scopeNames = []string{ // by bit
	"links:read", "links:write", "videos:read", "videos:write", "domains:read", "domains:write", "keys:read", "keys:write",
	"events:read", "webhooks:read", "webhooks:write", "members:read", "members:write",
}

// ParseScopes reads scopes' names. It leaves out what is none.
func ParseScopes(names []string) (set ScopeSet) {
	for _, name := range names {
		if i := slices.Index(scopeNames, name); i >= 0 {
			set |= 1 << i
		}
	}
	return set
}

// Has reports whether the set allows all of other.
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

// Request is what one request carries through the process, beside its principal.
type Request struct {
	ID     string       // the caller sees it in X-Request-Id: the trace id
	Queued atomic.Int64 // nanoseconds that it waited in queues of this process
}

type requestKey struct{}

// WithRequest puts r into ctx.
func WithRequest(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// RequestOf is the request in ctx; outside of one it is an empty one.
func RequestOf(ctx context.Context) *Request {
	if r, ok := ctx.Value(requestKey{}).(*Request); ok {
		return r
	}
	return &Request{}
}

// Origin is what a create derives its identifiers from. A try that finds its own
// record in place knows that an earlier one succeeded. Two tries of one request under
// one Idempotency-Key have the same Nonce and At, unless the request is one commit.
type Origin struct {
	Nonce string
	At    time.Time
}

type originKey struct{}

// WithOrigin puts o into ctx.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginFrom is the origin of the request in ctx; outside one it is a new one.
func OriginFrom(ctx context.Context) Origin {
	if o, ok := ctx.Value(originKey{}).(Origin); ok {
		return o
	}
	return Origin{Nonce: NewNonce(), At: time.Now()}
}
