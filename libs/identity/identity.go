// Package identity describes callers and their rights: plans, scopes, the format of API keys, and
// the values in a request's context.
//
// It does no I/O. Linkreel does not store the text of a key, only its [Key.Hash].
package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Plan is an account's paid plan. Plans are ordered: a higher plan includes all the rights of the
// lower plans. Documents and calls between services contain the plan's number, so new plans must be
// added at the end. Only the public API uses names.
type Plan int

// Plans, lowest first.
const (
	Free Plan = iota
	Creator
	Business
	Enterprise
)

var planNames = []string{"free", "creator", "business", "enterprise"}

// Plans returns the plans, lowest first.
func Plans() []Plan { return []Plan{Free, Creator, Business, Enterprise} }

func (p Plan) String() string {
	if p < 0 || int(p) >= len(planNames) {
		return fmt.Sprintf("plan(%d)", int(p))
	}
	return planNames[p]
}

// ParsePlan parses the lower-case name of a plan.
func ParsePlan(s string) (Plan, error) {
	if i := slices.Index(planNames, s); i >= 0 {
		return Plan(i), nil
	}
	return Free, fmt.Errorf("unknown plan; use one of %s", strings.Join(planNames, ", "))
}

// ScopeSet is a set of scopes, with one bit per scope. Documents and calls between services contain
// the number, so the meaning of a bit must never change. Unknown bits do not grant any rights. Only
// the public API uses names.
type ScopeSet uint32

// Scopes.
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
	// DefaultScopes contains the scopes for a key that is created without a list of scopes. The set
	// is fixed. Scopes added later must be requested by name, so existing scripts do not create
	// keys with more rights than intended.
	DefaultScopes = LinksRead | LinksWrite | VideosRead | VideosWrite | DomainsRead | DomainsWrite | KeysRead | KeysWrite
	// AllScopes contains every scope.
	AllScopes = DefaultScopes | EventsRead | WebhooksRead | WebhooksWrite | MembersRead | MembersWrite | AccountWrite
)

var scopeNames = []string{ // by bit
	"links:read", "links:write", "videos:read", "videos:write", "domains:read", "domains:write", "keys:read", "keys:write",
	"events:read", "webhooks:read", "webhooks:write", "members:read", "members:write",
	"account:write",
}

// ParseScopes returns the set of the named scopes. It ignores unknown names.
func ParseScopes(names []string) (set ScopeSet) {
	for _, name := range names {
		if i := slices.Index(scopeNames, name); i >= 0 {
			set |= 1 << i
		}
	}
	return set
}

// Has reports whether the set contains all of other's scopes.
func (set ScopeSet) Has(other ScopeSet) bool { return set&other == other }

// Names returns the names of the scopes, always in the same order.
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

// Principal is the account and the key or member that makes a request.
type Principal struct {
	AccountID   string
	AccountName string
	Plan        Plan
	Suspended   bool
	// DefaultDomainID is the domain for new links without an explicit domain. "" means the default
	// short host.
	DefaultDomainID string

	KeyID   string // id of the API key or the session
	KeyName string
	Scopes  ScopeSet

	// Session is set if the caller is signed in as the member below.
	Session bool
	// MemberID, MemberName and Role belong to the member who is signed in or who created the key.
	// They are empty for a key that was not created by a member.
	MemberID   string
	MemberName string
	Role       Role

	PerMinute int // requests a minute
	Quotas    Quotas
}

// Quotas limit how many records an account may have, and how many bytes it may store. Zero means
// unlimited.
type Quotas struct {
	Links, Videos, Domains int
	StoredBytes            int64
}

// Owns reports whether the caller has the rights of an owner. A key that a member created is
// limited by the member's role. Any other key acts for the account, and has an owner's rights
// within its scopes.
func (p *Principal) Owns() bool {
	if p.Session || p.MemberID != "" {
		return p.Role == Owner
	}
	return true
}

// Actor returns the principal's id for events and logs: a session's member, or the key.
func (p *Principal) Actor() (kind, id, name string) {
	if p.Session {
		return "member", p.MemberID, p.MemberName
	}
	return "key", p.KeyID, p.KeyName
}

type principalKey struct{}

// WithPrincipal returns a copy of ctx that carries p.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// FromContext returns the request's principal, or nil if the request does not require a key.
func FromContext(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

// Request holds the data of one request, except its principal.
type Request struct {
	ID     string // the trace id, which the caller sees in X-Request-Id
	Began  time.Time
	Queued atomic.Int64 // nanoseconds that the request spent in this process's queues
}

type requestKey struct{}

// WithRequest returns a copy of ctx that carries r.
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

// Origin holds the values from which a create derives its ids. If an attempt finds a record that
// already has its id, an earlier attempt succeeded. All attempts at a request with an
// Idempotency-Key have the same Nonce and At. The exception is a request that takes effect in one
// commit: each of its attempts gets new values.
type Origin struct {
	Nonce string
	At    time.Time
}

type originKey struct{}

// WithOrigin returns a copy of ctx that carries o.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginFrom returns the request's origin from ctx, or a new origin.
func OriginFrom(ctx context.Context) Origin {
	if o, ok := ctx.Value(originKey{}).(Origin); ok {
		return o
	}
	return Origin{Nonce: NewNonce(), At: time.Now()}
}
