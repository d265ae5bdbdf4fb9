package events

import (
	"context"
	"slices"
	"time"

	"github.com/linkreel/linkreel/libs/identity"
)

// Type names a kind of record and what happened to it. Types are part of the public API:
// subscribers branch on them, so they are never renamed.
type Type string

// Event types. A change to a video's access, captions, thumbnail or takedown has the type
// VideoUpdated. Archiving, moving or taking down a link has the type LinkUpdated.
const (
	LinkCreated Type = "link.created"
	LinkUpdated Type = "link.updated"
	LinkDeleted Type = "link.deleted"

	DomainCreated  Type = "domain.created"
	DomainVerified Type = "domain.verified"
	DomainUpdated  Type = "domain.updated"
	DomainLapsed   Type = "domain.lapsed"
	DomainDeleted  Type = "domain.deleted"

	VideoCreated    Type = "video.created"
	VideoUpdated    Type = "video.updated"
	VideoDeleted    Type = "video.deleted"
	VideoProcessing Type = "video.processing"
	VideoReady      Type = "video.ready"
	VideoFailed     Type = "video.failed"

	KeyCreated Type = "key.created"
	KeyRolled  Type = "key.rolled"
	KeyRevoked Type = "key.revoked"

	AccountChanged  Type = "account.changed"
	AccountExported Type = "account.exported"

	MemberAdded   Type = "member.added"
	MemberChanged Type = "member.changed"
	MemberRemoved Type = "member.removed"

	InvitationCreated  Type = "invitation.created"
	InvitationAccepted Type = "invitation.accepted"
	InvitationRevoked  Type = "invitation.revoked"

	SessionCreated Type = "session.created"
	SessionEnded   Type = "session.ended"

	SignInLinkCreated Type = "sign_in_link.created"
	SignInLinkUsed    Type = "sign_in_link.used"

	WebhookCreated  Type = "webhook.created"
	WebhookUpdated  Type = "webhook.updated"
	WebhookDeleted  Type = "webhook.deleted"
	WebhookDisabled Type = "webhook.disabled"
)

// WebhookTest is the event that a webhook receives when its owner tests it. It does not appear in
// any feed.
const WebhookTest Type = "webhook.test"

// Quiet is the type of a change that does not write an event.
const Quiet Type = "quiet"

var types = []Type{
	LinkCreated, LinkUpdated, LinkDeleted,
	DomainCreated, DomainUpdated, DomainVerified, DomainLapsed, DomainDeleted,
	VideoCreated, VideoUpdated, VideoDeleted, VideoProcessing, VideoReady, VideoFailed,
	KeyCreated, KeyRolled, KeyRevoked,
	AccountChanged, AccountExported,
	MemberAdded, MemberChanged, MemberRemoved,
	InvitationCreated, InvitationAccepted, InvitationRevoked,
	SessionCreated, SessionEnded,
	SignInLinkCreated, SignInLinkUsed,
	WebhookCreated, WebhookUpdated, WebhookDeleted, WebhookDisabled,
}

// Types returns every type that a feed can contain.
func Types() []Type { return slices.Clone(types) }

// Known reports whether t is one of [Types].
func (t Type) Known() bool { return slices.Contains(types, t) }

// Kept is how long an event can be read after it is written.
const Kept = 30 * 24 * time.Hour

// Event describes one change to one record.
type Event struct {
	AccountID string
	Type      Type
	Object    string // the record's id
	Data      any    // encoded as JSON: the record as the API returns it after the change
}

// Actor identifies who made a change.
type Actor struct {
	Type ActorType
	ID   string
	Name string
}

// ActorType is the kind of an actor.
type ActorType string

// The kinds of actors.
const (
	ActorKey      ActorType = "key"
	ActorMember   ActorType = "member"
	ActorOperator ActorType = "operator"
	ActorSystem   ActorType = "system"
)

// System is the actor for background work: sweeps, workers and repeated checks.
var System = Actor{Type: ActorSystem, ID: "system", Name: "Linkreel"}

// Operator is the actor for requests to the operator's API.
var Operator = Actor{Type: ActorOperator, ID: "operator", Name: "Operator"}

type actorKey struct{}

// WithActor returns a copy of ctx with an actor other than the request's principal, such as a
// person who is signing in.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// AsOperator returns a copy of ctx in which the operator is the actor.
func AsOperator(ctx context.Context) context.Context { return WithActor(ctx, Operator) }

// ActorOf returns the actor in ctx.
func ActorOf(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	if p := identity.FromContext(ctx); p != nil {
		kind, id, name := p.Actor()
		return Actor{Type: ActorType(kind), ID: id, Name: name}
	}
	return System
}
