// Package member manages the people of an account: members and their roles,
// invitations, sessions, and the identities that people sign in with.
//
// A person has no record, only an id that members, identities and passkeys share. So
// one person can be in several accounts. A person is recognised by (issuer, subject) or
// by a passkey. Names and e-mail addresses are shown, never compared.
//
// [Service] promises:
//
//   - Nobody gives a role with scopes that they lack.
//   - Only an owner or the operator makes, changes or removes an owner.
//   - An account that has an owner keeps one.
//   - When a call that takes rights away returns, the change is committed, keys that exceed
//     the new role are revoked, and every replica has been notified.
//
// Nothing that one account hands out gives access to another. A link that an admin made
// opens a session for that one membership, and so does a passkey that was added in such
// a session; see [Session.Bound].
package member

import (
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Limits of an account and of a person.
const (
	MaxMembers     = 500
	MaxInvitations = 100 // open at once
	MaxSessions    = 20  // per member; the next sign-in ends the oldest
	MaxIdentities  = 20  // per person, passkeys included
	MaxSignInLinks = 20  // made by the members of an account per day
)

// Lifetimes.
const (
	SignInLinkLife = 15 * time.Minute
	InvitationLife = 7 * 24 * time.Hour
	SessionIdle    = 12 * time.Hour
	SessionLife    = 7 * 24 * time.Hour
	DeviceCodeLife = 10 * time.Minute
	// GroupLife is how long a membership by group lasts after the identity provider confirmed
	// it, unless the installation sets another time.
	GroupLife = 24 * time.Hour
)

// Member is a person in an account.
type Member struct {
	ID        string
	AccountID string
	PersonID  string
	Name      string
	Email     string // as the identity provider verified it, to be shown; "" if unknown
	Role      identity.Role
	// FromGroups is set for a member that the group-to-role map made. The map decides
	// the role at each sign-in.
	FromGroups bool
	// GroupUntil is when the provider's last confirmation of the groups expires; zero
	// for a member that the map did not make.
	GroupUntil time.Time
	// LinkUsed is set if a sign-in link that somebody made for this member was used since they
	// last signed in.
	LinkUsed  LinkUse
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Place returns the member's place in the account's list.
func (m Member) Place() paging.Place { return paging.Place{At: m.CreatedAt, ID: m.ID} }

// Lapsed reports whether the membership comes from a group that the provider has not
// confirmed in time.
func (m Member) Lapsed(now time.Time) bool { return m.FromGroups && !now.Before(m.GroupUntil) }

// LinkUse records the use of a sign-in link, so that the member can be told. The zero
// value means no use.
type LinkUse struct {
	By string // the maker's name
	At time.Time
}

// Way is a way for a member to sign in without help.
type Way string

// The ways, in display order.
const (
	ByPasskey  Way = "passkey"
	ByProvider Way = "provider"
)

// Change is an edit of a member. Fields that are nil stay unchanged.
type Change struct {
	Name *string
	Role *identity.Role
	// Match refuses a member that has changed since the caller saw it. It may be nil.
	Match func(rev int64) error
}

// Rev returns the member's revision: the time of the last change.
func (m Member) Rev() int64 { return m.UpdatedAt.UnixMilli() }

// Kind says what a one-time link does.
type Kind string

// The kinds of one-time links.
const (
	SignIn     Kind = "sign_in"
	Invitation Kind = "invitation"
)

// Link is a one-time link without its token. Invitations are links too.
type Link struct {
	ID        string
	Hash      string // hash of the token; names the record
	Kind      Kind
	AccountID string
	MemberID  string        // the member that a sign-in link signs in
	Name      string        // the member's name; may be empty for an invitation
	Role      identity.Role // the invitation's, or the member's when the sign-in link was made
	By        events.Actor
	// MadeBy is the member who made the link, directly or with a key of theirs; "" means
	// the operator. The link ends when its maker loses the authority to make it. A
	// session opened by a member's sign-in link is bound; see [Session.Bound].
	MadeBy    string
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Place returns the link's place in a list.
func (l Link) Place() paging.Place { return paging.Place{At: l.CreatedAt, ID: l.ID} }

// Session is a signed-in browser.
type Session struct {
	ID        string
	Hash      string // hash of its key; names the record
	AccountID string
	MemberID  string
	PersonID  string
	How       string // link, invitation, oidc, passkey or switch
	// Bound confines a session to its membership: it cannot switch accounts, join another
	// one as the same person, or change how the person signs in elsewhere. The reason is
	// that the link's maker may have opened the session themselves.
	Bound bool
	// Until is when the provider's confirmation of a member by group expires. It is zero
	// for other members.
	Until time.Time
	// Told is the use of a sign-in link before this session. The session shows it to the
	// member.
	Told      LinkUse
	Client    string // the browser, as it calls itself
	CreatedAt time.Time
	SeenAt    time.Time // accurate to five minutes
	EndedAt   time.Time // zero: not ended
}

// ExpiresAt returns when the session expires unless it is used before then.
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

// Key returns the session in the form of a key, with the scopes of a role.
func (s Session) Key(role identity.Role) account.Key {
	return account.Key{
		ID: s.ID, AccountID: s.AccountID, Hash: s.Hash, MadeBy: s.MemberID, Scopes: role.Scopes(),
		CreatedAt: s.CreatedAt, LastUsedAt: s.SeenAt, ExpiresAt: s.ExpiresAt(), RevokedAt: s.EndedAt,
	}
}

// Active reports whether the session is accepted at now.
func (s Session) Active(now time.Time) bool { return s.EndedAt.IsZero() && now.Before(s.ExpiresAt()) }

// Identity is a person's account at an identity provider.
type Identity struct {
	Issuer    string
	Subject   string
	PersonID  string
	Email     string // to be shown
	CreatedAt time.Time
}

// Passkey is a public key that a person's device signs with.
type Passkey struct {
	ID       string // id of the record, not of the credential
	Hash     string // hash of the credential's id; names the record
	PersonID string
	// MemberID is the one membership that the passkey opens, if it was added in a bound
	// session; "" means all memberships of the person.
	MemberID   string
	Name       string
	Credential []byte // in the WebAuthn library's format
	CreatedAt  time.Time
	LastUsedAt time.Time
}

// Device is a program that asks a person for a key.
type Device struct {
	Hash      string // hash of its secret code; names the record
	UserCode  string // the code that the person compares
	Name      string // the future key's name
	Scopes    identity.ScopeSet
	AccountID string // set by the approval
	MemberID  string // set by the approval
	Denied    bool
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Errors of this package. They do not reveal whether a record is missing or belongs to
// somebody else.
var (
	ErrNoMember     = apierr.New(apierr.NotFound, "There is no member with this id.")
	ErrNoInvitation = apierr.New(apierr.NotFound, "There is no invitation with this id.")
	ErrNoSession    = apierr.New(apierr.NotFound, "There is no session with this id.")
	ErrNoPasskey    = apierr.New(apierr.NotFound, "There is no passkey with this id.")
	ErrNoIdentity   = apierr.New(apierr.NotFound, "This identity is not known.")
	// ErrNoDevice is the response for a code that is wrong, used or expired.
	ErrNoDevice = apierr.New(apierr.NotFound, "This code is wrong or has expired. Start again.")
	// ErrNoLink is the response for a link that was used, has expired, was revoked
	// or never existed.
	ErrNoLink = apierr.New(apierr.NotFound, "This link has been used already or has expired. Ask for a new one.")
	// ErrLastOwner keeps an account from losing its last owner.
	ErrLastOwner = apierr.New(apierr.LastOwner, "This is the account's last owner. Make somebody else an owner first.")
	// ErrNoMembership is the response to a person who is in no account.
	ErrNoMembership = apierr.New(apierr.Forbidden, "You are not a member of any account here.")
	// ErrAlreadyMember keeps a person from being two members of one account.
	ErrAlreadyMember = apierr.New(apierr.AlreadyMember, "You are a member of this account already.")
	// ErrHasSignIn refuses a sign-in link for somebody who does not need one.
	ErrHasSignIn = apierr.New(
		apierr.HasSignIn,
		"This person has their own way to sign in, or is a member of another account too, so nobody can make a sign-in link for them. "+
			"If they cannot sign in any more, remove them and invite them again.",
	)
	// ErrByProvider refuses a member by group, who can sign in only with the provider.
	ErrByProvider = apierr.New(
		apierr.SignInByProvider,
		"This membership comes from a group of the identity provider. Sign in with the provider.",
	)
	// ErrBound refuses a bound session an action that reaches beyond its membership.
	ErrBound = apierr.New(
		apierr.Forbidden,
		"You signed in with a link that somebody made for you in this account. It gives access to this account only, and it "+
			"cannot change anything elsewhere.",
	)
	// ErrIdentityTaken keeps two persons from sharing one identity.
	ErrIdentityTaken = apierr.New(apierr.IdentityTaken, "This identity belongs to another person here.")
)

// OwnerRequired returns the error for an action that only an owner may do.
func OwnerRequired(message string) error {
	return &apierr.Error{Code: apierr.InsufficientScope, Message: message, RequiredRole: string(identity.Owner)}
}

// MayGive refuses a role with scopes that the caller lacks, and the role owner unless
// the caller is an owner. by is nil for the operator.
//
// An API key never gives the role owner, even if an owner made it: only a signed-in
// person counts as an owner.
func MayGive(by *identity.Principal, scopes identity.ScopeSet, role identity.Role) error {
	if by == nil {
		return nil
	}
	if lacks := (role.Scopes() &^ scopes).Names(); len(lacks) > 0 {
		return apierr.ScopeRequired(lacks[0],
			"You cannot give the role "+string(role)+": it has the scope "+lacks[0]+", which you do not have.")
	}
	if role == identity.Owner && !isOwner(by) {
		return OwnerRequired("Only an owner can give the role owner.")
	}
	return nil
}

func isOwner(by *identity.Principal) bool { return by.Session && by.Role == identity.Owner }

// MayTouch refuses to change or remove an owner unless by is an owner too. by is nil for
// the operator, who may do both.
func MayTouch(by *identity.Principal, m Member) error {
	if m.Role == identity.Owner && by != nil && !isOwner(by) {
		return OwnerRequired("Only an owner can change or remove an owner.")
	}
	return nil
}

// MayRevoke refuses to revoke the invitation of an owner unless by is an owner. by is nil
// for the operator, who may revoke it.
func MayRevoke(by *identity.Principal, l Link) error {
	if l.Role == identity.Owner && by != nil && !isOwner(by) {
		return OwnerRequired("Only an owner can revoke the invitation of an owner.")
	}
	return nil
}
