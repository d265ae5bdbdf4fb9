// Package member manages the people in an account: members and their roles,
// invitations, sessions, and the identities that people sign in with.
//
// A person has no record, only an id that members, identities and passkeys share. One person
// can therefore belong to several accounts. A person is recognised by (issuer, subject) or by a
// passkey. Names and e-mail addresses are only displayed, never compared.
//
// [Service] guarantees the following:
//
//   - Nobody can assign a role with scopes that they lack.
//   - Only an owner or the operator can add, change or remove an owner.
//   - The last owner of an account cannot be removed.
//   - When a call that removes rights returns, the change is committed, keys that exceed
//     the new role are revoked, and every replica has been notified.
//
// One account's links, sessions and passkeys do not give access to another account. A link
// created by an admin opens a session for that membership only, and so does a passkey that
// was added in such a session. See [Session.Bound].
package member

import (
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Limits on an account and on a person.
const (
	MaxMembers     = 500
	MaxInvitations = 100 // open at the same time
	MaxSessions    = 20  // per member; the next sign-in ends the oldest session
	MaxIdentities  = 20  // per person, including passkeys
	MaxSignInLinks = 20  // that an account's members may create per day
)

// Lifetimes.
const (
	SignInLinkLife = 15 * time.Minute
	InvitationLife = 7 * 24 * time.Hour
	SessionIdle    = 12 * time.Hour
	SessionLife    = 7 * 24 * time.Hour
	DeviceCodeLife = 10 * time.Minute
	// GroupLife is the default lifetime of a group-based membership after the identity provider
	// has confirmed it.
	GroupLife = 24 * time.Hour
)

// Member is a person in an account.
type Member struct {
	ID        string
	AccountID string
	PersonID  string
	Name      string
	Email     string // verified by the identity provider; for display only; "" if unknown
	Role      identity.Role
	// FromGroups is set if the membership is group-based: the group-to-role map created it and
	// determines the role at each sign-in.
	FromGroups bool
	// GroupUntil is when the provider's last confirmation of the groups expires. It is zero if
	// the membership is not group-based.
	GroupUntil time.Time
	// LinkUsed is set if a sign-in link that somebody created for this member has been used
	// since their last sign-in.
	LinkUsed  LinkUse
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Place returns the member's position in the account's list.
func (m Member) Place() paging.Place { return paging.Place{At: m.CreatedAt, ID: m.ID} }

// Lapsed reports whether the membership is group-based and the provider has not confirmed it in
// time.
func (m Member) Lapsed(now time.Time) bool { return m.FromGroups && !now.Before(m.GroupUntil) }

// LinkUse records the use of a sign-in link, so the member can be shown a notice about it. The zero
// value means that no link was used.
type LinkUse struct {
	By string // the creator's name
	At time.Time
}

// Way is a way for a member to sign in without help.
type Way string

// The ways, in display order.
const (
	ByPasskey  Way = "passkey"
	ByProvider Way = "provider"
)

// Change is an edit to a member. Nil fields are not changed.
type Change struct {
	Name *string
	Role *identity.Role
	// Match returns an error if the member has changed since the caller read it. It may be nil.
	Match func(rev int64) error
}

// Rev returns the member's revision, which is the time of the last change.
func (m Member) Rev() int64 { return m.UpdatedAt.UnixMilli() }

// Kind is the purpose of a one-time link.
type Kind string

// The kinds of one-time links.
const (
	SignIn     Kind = "sign_in"
	Invitation Kind = "invitation"
)

// Link is a one-time link without its token. Invitations are links too.
type Link struct {
	ID        string
	Hash      string // hash of the token, used as the record's name
	Kind      Kind
	AccountID string
	MemberID  string        // the member that a sign-in link is for
	Name      string        // the member's name; may be empty for an invitation
	Role      identity.Role // the invitation's role, or the member's when the sign-in link was created
	By        events.Actor
	// MadeBy is the member who created the link, directly or with a key. "" means the operator.
	// The link stops working when its creator loses the right to create such links. A session
	// opened by a member's sign-in link is bound. See [Session.Bound].
	MadeBy    string
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Place returns the link's position in a list.
func (l Link) Place() paging.Place { return paging.Place{At: l.CreatedAt, ID: l.ID} }

// Session is a signed-in browser's session.
type Session struct {
	ID        string
	Hash      string // hash of the session's key, used as the record's name
	AccountID string
	MemberID  string
	PersonID  string
	How       string // link, invitation, oidc, passkey or switch
	// Bound restricts a session to its membership: it cannot switch accounts, join another
	// account as the same person, or change how the person signs in elsewhere. The link's creator
	// may have opened the session.
	Bound bool
	// Until is when the provider's confirmation of a group-based membership expires. It is zero
	// for other memberships.
	Until time.Time
	// Told is the use of a sign-in link before this session. During the session, the member
	// sees a notice about it.
	Told      LinkUse
	Client    string // how the browser describes itself
	CreatedAt time.Time
	SeenAt    time.Time // accurate to five minutes
	EndedAt   time.Time // zero if the session has not ended
}

// ExpiresAt returns when the session expires if it is not used again.
func (s Session) ExpiresAt() time.Time {
	idle, latest := s.SeenAt.Add(SessionIdle), s.CreatedAt.Add(SessionLife)
	if latest.Before(idle) {
		idle = latest
	}
	if !s.Until.IsZero() && s.Until.Before(idle) {
		return s.Until
	}
	return idle
}

// Key returns the session as an account key that has a role's scopes.
func (s Session) Key(role identity.Role) account.Key {
	return account.Key{
		ID: s.ID, AccountID: s.AccountID, Hash: s.Hash, MadeBy: s.MemberID, Scopes: role.Scopes(),
		CreatedAt: s.CreatedAt, LastUsedAt: s.SeenAt, ExpiresAt: s.ExpiresAt(), RevokedAt: s.EndedAt,
	}
}

// Active reports whether the session is valid at now.
func (s Session) Active(now time.Time) bool { return s.EndedAt.IsZero() && now.Before(s.ExpiresAt()) }

// Identity is a person's account with an identity provider.
type Identity struct {
	Issuer    string
	Subject   string
	PersonID  string
	Email     string // for display
	CreatedAt time.Time
}

// Passkey is the public key that verifies signatures from a person's device.
type Passkey struct {
	ID       string // the record's id, not the credential's
	Hash     string // hash of the credential's id, used as the record's name
	PersonID string
	// MemberID is set if the passkey was added in a bound session, and restricts it to that
	// membership. "" means that it is valid for all of the person's memberships.
	MemberID   string
	Name       string
	Credential []byte // in the WebAuthn library's format
	CreatedAt  time.Time
	LastUsedAt time.Time
}

// Device is a program that asks a person to approve a key for it.
type Device struct {
	Hash      string // hash of the program's secret code, used as the record's name
	UserCode  string // the code that the program and the console both show, for comparison
	Name      string // the name for the key
	Scopes    identity.ScopeSet
	AccountID string // set by the approval
	MemberID  string // set by the approval
	Denied    bool
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Errors returned by this package. They do not reveal whether a record is missing or belongs to
// somebody else.
var (
	ErrNoMember     = apierr.New(apierr.NotFound, "There is no member with this id.")
	ErrNoInvitation = apierr.New(apierr.NotFound, "There is no invitation with this id.")
	ErrNoSession    = apierr.New(apierr.NotFound, "There is no session with this id.")
	ErrNoPasskey    = apierr.New(apierr.NotFound, "There is no passkey with this id.")
	ErrNoIdentity   = apierr.New(apierr.NotFound, "There is no such identity.")
	// ErrNoDevice is the error for a code that is wrong, used or expired.
	ErrNoDevice = apierr.New(apierr.NotFound, "This code is wrong or has expired. Start over.")
	// ErrNoLink is the error for a link that was used, has expired, was revoked or never
	// existed.
	ErrNoLink = apierr.New(apierr.NotFound, "This link has already been used or has expired. Ask for a new link.")
	// ErrLastOwner is the error for removing the last owner of an account.
	ErrLastOwner = apierr.New(apierr.LastOwner, "This is the account's last owner. Make somebody else an owner first.")
	// ErrNoMembership is the error for a person without an account.
	ErrNoMembership = apierr.New(apierr.Forbidden, "You are not a member of any account here.")
	// ErrAlreadyMember is the error for a person who is already a member of the account.
	ErrAlreadyMember = apierr.New(apierr.AlreadyMember, "You are already a member of this account.")
	// ErrHasSignIn is the error for creating a sign-in link for a person who does not need one.
	ErrHasSignIn = apierr.New(
		apierr.HasSignIn,
		"This person has their own way to sign in or also belongs to another account, so nobody can make a sign-in link for them. "+
			"If they can no longer sign in, remove them and invite them again.",
	)
	// ErrByProvider is the error for a person with a group-based membership, who can only sign in
	// with the provider.
	ErrByProvider = apierr.New(
		apierr.SignInByProvider,
		"This membership comes from a group at the identity provider. Sign in with the provider.",
	)
	// ErrBound is the error for an action in a bound session that affects more than its
	// membership.
	ErrBound = apierr.New(
		apierr.Forbidden,
		"You signed in with a link that somebody made for you in this account. This session gives access to this account only "+
			"and cannot change anything outside it.",
	)
	// ErrIdentityTaken is the error for an identity that belongs to another person.
	ErrIdentityTaken = apierr.New(apierr.IdentityTaken, "This identity already belongs to someone else here.")
)

// OwnerRequired returns the error for an action that only an owner may take.
func OwnerRequired(message string) error {
	return &apierr.Error{Code: apierr.InsufficientScope, Message: message, RequiredRole: string(identity.Owner)}
}

// MayGive returns an error if the role has scopes that the caller lacks, or if it is the owner
// role and the caller is not an owner. by is nil for the operator.
//
// An API key can never assign the owner role, even if an owner created the key: only a
// signed-in person counts as an owner.
func MayGive(by *identity.Principal, scopes identity.ScopeSet, role identity.Role) error {
	if by == nil {
		return nil
	}
	if lacks := (role.Scopes() &^ scopes).Names(); len(lacks) > 0 {
		return apierr.ScopeRequired(lacks[0],
			"You cannot assign the role "+string(role)+", because it includes the scope "+lacks[0]+", which you do not have.")
	}
	if role == identity.Owner && !isOwner(by) {
		return OwnerRequired("Only an owner can assign the owner role.")
	}
	return nil
}

func isOwner(by *identity.Principal) bool { return by.Session && by.Role == identity.Owner }

// MayTouch returns an error if m is an owner and the caller is not: only an owner may change or
// remove an owner. by is nil for the operator, who may do both.
func MayTouch(by *identity.Principal, m Member) error {
	if m.Role == identity.Owner && by != nil && !isOwner(by) {
		return OwnerRequired("Only an owner can change or remove an owner.")
	}
	return nil
}

// MayRevoke returns an error if l is an invitation with the owner role and the caller is not an
// owner. by is nil for the operator, who may revoke it.
func MayRevoke(by *identity.Principal, l Link) error {
	if l.Role == identity.Owner && by != nil && !isOwner(by) {
		return OwnerRequired("Only an owner can revoke an invitation with the owner role.")
	}
	return nil
}
