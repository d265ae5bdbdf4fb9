// Package member knows the people of an account: who is a member and with which
// role, who is invited, who is signed in, and by which identities a person is
// known again.
//
// A person is no record of its own: it is an id that members, identities and
// passkeys share, so that one person can be in several accounts. A person is
// known by (issuer, subject) or by a passkey. Names and e-mail addresses are
// shown and never compared.
//
// What [Service] promises: nobody gives a role whose scopes they lack; only an
// owner or the operator makes or touches an owner; an account that has an owner
// keeps one; and when a call that takes authority away has returned, the change
// is committed, the keys that exceed the new role are revoked, and every replica
// has been told.
//
// What one account hands out never opens another. A link that an admin made opens
// a session of that one membership, and so does a passkey that was added in such a
// session; see [Session.Bound].
package member

import (
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Limits of an account and of a person.
const (
	MaxMembers     = 500
	MaxInvitations = 100 // open at once
	MaxSessions    = 20  // of a member; signing in once more ends the oldest
	MaxIdentities  = 20  // of a person, passkeys included
	MaxSignInLinks = 20  // that the members of an account make in a day
)

// Lifetimes.
const (
	SignInLinkLife = 15 * time.Minute
	InvitationLife = 7 * 24 * time.Hour
	SessionIdle    = 12 * time.Hour
	SessionLife    = 7 * 24 * time.Hour
	DeviceCodeLife = 10 * time.Minute
	// GroupLife is how long a membership by group holds after the identity provider
	// confirmed it, where the installation sets nothing else.
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
	// FromGroups is set for a member whom the group-to-role map made: the map
	// decides on the role at each sign-in.
	FromGroups bool
	// GroupUntil is until when the provider's last confirmation of the groups holds;
	// zero for a member whom no map made.
	GroupUntil time.Time
	// LinkUsed is a sign-in link that somebody made for this member and that was used
	// since they last signed in.
	LinkUsed  LinkUse
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Lapsed reports whether the member is one by a group that the provider has not
// confirmed in time.
func (m Member) Lapsed(now time.Time) bool { return m.FromGroups && !now.Before(m.GroupUntil) }

// LinkUse tells a member about a sign-in link that was used. Its zero value is none.
type LinkUse struct {
	By string // the name of who made it
	At time.Time
}

// Way is how a member can sign in without anybody's help.
type Way string

// The ways, in the order in which they are shown.
const (
	ByPasskey  Way = "passkey"
	ByProvider Way = "provider"
)

// Change is an edit of a member; nil fields stay.
type Change struct {
	Name *string
	Role *identity.Role
	// Match refuses a member that is not as the caller saw it; nil refuses none.
	Match func(rev int64) error
}

// Rev is the member's revision: when it was changed last.
func (m Member) Rev() int64 { return m.UpdatedAt.UnixMilli() }

// Kind is what a one-time link does.
type Kind string

// The kinds of one-time links.
const (
	SignIn     Kind = "sign_in"
	Invitation Kind = "invitation"
)

// Link is a one-time link without its token. An invitation is one, too.
type Link struct {
	ID        string
	Hash      string // of the token; names the record
	Kind      Kind
	AccountID string
	MemberID  string        // whom a sign-in link signs in
	Name      string        // of the member to be; may be empty for an invitation
	Role      identity.Role // that an invitation gives, or that the member had when the sign-in link was made
	By        events.Actor
	// MadeBy is the member who made the link, themselves or through a key of theirs;
	// "" is the operator. A link ends with the authority behind it, and a session that
	// a member's sign-in link opens is bound; see [Session.Bound].
	MadeBy    string
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Session is a signed-in browser.
type Session struct {
	ID        string
	Hash      string // of its key; names the record
	AccountID string
	MemberID  string
	PersonID  string
	How       string // link, invitation, oidc, passkey or switch
	// Bound keeps a session to its membership: it cannot switch accounts, join another
	// one as the same person, or change how the person signs in elsewhere. Whoever made
	// the link that the session began with may have opened it themselves.
	Bound bool
	// Until is when the provider's confirmation ends, for a member by group; zero: none.
	Until time.Time
	// Told is what this session tells the member: a link that was used before it began.
	Told      LinkUse
	Client    string // the browser, as it calls itself
	CreatedAt time.Time
	SeenAt    time.Time // to five minutes
	EndedAt   time.Time // zero: not ended
}

// ExpiresAt is when the session ends by itself, if it is not used before.
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

// Key is the session in the form of a key, with the scopes of a role.
func (s Session) Key(role identity.Role) account.Key {
	return account.Key{
		ID: s.ID, AccountID: s.AccountID, Hash: s.Hash, MadeBy: s.MemberID, Scopes: role.Scopes(),
		CreatedAt: s.CreatedAt, LastUsedAt: s.SeenAt, ExpiresAt: s.ExpiresAt(), RevokedAt: s.EndedAt,
	}
}

// Active reports whether the session is accepted at now.
func (s Session) Active(now time.Time) bool { return s.EndedAt.IsZero() && now.Before(s.ExpiresAt()) }

// Identity is how an identity provider knows a person.
type Identity struct {
	Issuer    string
	Subject   string
	PersonID  string
	Email     string // to be shown
	CreatedAt time.Time
}

// Passkey is a public key that a person's device signs with.
type Passkey struct {
	ID       string // of the record, not the credential's
	Hash     string // of the credential's id; names the record
	PersonID string
	// MemberID is the one membership that the passkey opens, if it was added in a bound
	// session; "" is all of the person's.
	MemberID   string
	Name       string
	Credential []byte // as the WebAuthn library keeps it
	CreatedAt  time.Time
	LastUsedAt time.Time
}

// Device is a program that asks a person for a key.
type Device struct {
	Hash      string // of its secret code; names the record
	UserCode  string // what the person compares
	Name      string // what the key will be called
	Scopes    identity.ScopeSet
	AccountID string // from here on: set by the approval
	MemberID  string
	Denied    bool
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Errors of this package. What is not there and what belongs to somebody else
// give the same answer.
var (
	ErrNoMember     = apierr.New(apierr.NotFound, "There is no member with this id.")
	ErrNoInvitation = apierr.New(apierr.NotFound, "There is no invitation with this id.")
	ErrNoSession    = apierr.New(apierr.NotFound, "There is no session with this id.")
	ErrNoPasskey    = apierr.New(apierr.NotFound, "There is no passkey with this id.")
	ErrNoIdentity   = apierr.New(apierr.NotFound, "This identity is not known.")
	// ErrNoDevice is the answer for a code that is wrong, used or expired.
	ErrNoDevice = apierr.New(apierr.NotFound, "This code is wrong or has expired. Start again.")
	// ErrNoLink is the answer for a link that was used, has expired, was revoked
	// or never existed.
	ErrNoLink = apierr.New(apierr.NotFound, "This link has been used already or has expired. Ask for a new one.")
	// ErrLastOwner keeps an account from being without an owner.
	ErrLastOwner = apierr.New(apierr.LastOwner, "This is the account's last owner. Make somebody else an owner first.")
	// ErrNoMembership is the answer to a person who is in no account.
	ErrNoMembership = apierr.New(apierr.Forbidden, "You are not a member of any account here.")
	// ErrAlreadyMember keeps a person from being two members of one account.
	ErrAlreadyMember = apierr.New(apierr.AlreadyMember, "You are a member of this account already.")
	// ErrHasSignIn refuses a sign-in link for somebody who needs none.
	ErrHasSignIn = apierr.New(
		apierr.HasSignIn,
		"This person has their own way to sign in, or is a member of another account too, so nobody can make a sign-in link for them. "+
			"If they cannot sign in any more, remove them and invite them again.",
	)
	// ErrByProvider refuses a member by group whom only the provider can let in.
	ErrByProvider = apierr.New(
		apierr.SignInByProvider,
		"This membership comes from a group of the identity provider. Sign in with the provider.",
	)
	// ErrBound refuses in a bound session what reaches beyond its membership.
	ErrBound = apierr.New(
		apierr.Forbidden,
		"You signed in by a link that somebody made for you in this account. It opens this account only, and changes nothing elsewhere.",
	)
	// ErrIdentityTaken keeps one identity from being two persons.
	ErrIdentityTaken = apierr.New(apierr.IdentityTaken, "This identity belongs to another person here.")
)

// OwnerRequired is the refusal of what only an owner may do.
func OwnerRequired(message string) error {
	return &apierr.Error{Code: apierr.InsufficientScope, Message: message, RequiredRole: string(identity.Owner)}
}

// MayGive refuses a role that the caller cannot give: one whose scopes they
// lack, and owner unless they are one. by is nil for the operator.
//
// An API key never gives owner, whoever made it: "an owner" is a person.
func MayGive(by *identity.Principal, scopes identity.ScopeSet, role identity.Role) error {
	if by == nil {
		return nil
	}
	for _, lacks := range (role.Scopes() &^ scopes).Names() {
		return apierr.ScopeRequired(lacks,
			"You cannot give the role "+string(role)+": it has the scope "+lacks+", which you do not have.")
	}
	if role == identity.Owner && !isOwner(by) {
		return OwnerRequired("Only an owner can give the role owner.")
	}
	return nil
}

func isOwner(by *identity.Principal) bool { return by.Session && by.Role == identity.Owner }

// MayTouch refuses to change or remove an owner unless by is one, or the operator (nil).
func MayTouch(by *identity.Principal, m Member) error {
	if m.Role == identity.Owner && by != nil && !isOwner(by) {
		return OwnerRequired("Only an owner can change or remove an owner.")
	}
	return nil
}

// MayRevoke refuses to revoke the invitation of an owner unless by is one, or the
// operator (nil).
func MayRevoke(by *identity.Principal, l Link) error {
	if l.Role == identity.Owner && by != nil && !isOwner(by) {
		return OwnerRequired("Only an owner can revoke the invitation of an owner.")
	}
	return nil
}
