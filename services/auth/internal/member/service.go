package member

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Reads looks up members, links, sessions and identities. In a [Tx], its results are still valid at
// commit time.
type Reads interface {
	// Account looks up an account. It returns [account.ErrNoAccount] if there is none.
	Account(id string) (account.Account, error)
	// Members lists an account's members, oldest first.
	Members(accountID string) ([]Member, error)
	// Member looks up a member of an account. It returns ErrNoMember if there is none. An
	// empty accountID means any account.
	Member(accountID, id string) (Member, error)
	// Memberships lists a person's memberships in all accounts, oldest first.
	Memberships(personID string) ([]Member, error)
	// Link looks up a one-time link by its token's hash. It returns ErrNoLink if there is
	// none.
	Link(hash string) (Link, error)
	LinkByID(id string) (Link, error)
	// OpenLinks lists an account's unexpired links of both kinds, newest first.
	OpenLinks(accountID string) ([]Link, error)
	// Session looks up a session by its key's hash. It returns ErrNoSession if there is none.
	Session(hash string) (Session, error)
	// Sessions lists a member's sessions that have not been ended, newest first.
	Sessions(memberID string) ([]Session, error)
	// Identity looks up an identity. It returns ErrNoIdentity if the identity is unknown.
	Identity(issuer, subject string) (Identity, error)
	// Identities lists a person's identities, oldest first.
	Identities(personID string) ([]Identity, error)
	// Passkey looks up a passkey by its credential's hash. It returns ErrNoPasskey if there
	// is none.
	Passkey(hash string) (Passkey, error)
	// Passkeys lists a person's passkeys, oldest first.
	Passkeys(personID string) ([]Passkey, error)
	// Device looks up a device's request by the code that the person typed, and DeviceByHash
	// by the hash of the program's secret code. Both return ErrNoDevice if there is none.
	Device(userCode string) (Device, error)
	DeviceByHash(hash string) (Device, error)
}

// Tx is one atomic change. See [account.Tx].
type Tx interface {
	account.Tx
	Reads
	// UseOnce fails the change if name has already been used. It prevents a signed response from
	// being replayed.
	UseOnce(name string, until time.Time)
}

// Store stores members, links, sessions and identities.
type Store interface {
	Look(ctx context.Context) Reads
	// GroupMembers lists the group-based members in all accounts.
	GroupMembers(ctx context.Context) ([]Member, error)
	// WaysOf lists the identities and passkeys of these people.
	WaysOf(ctx context.Context, personIDs []string) ([]Identity, []Passkey, error)
	// People makes one atomic change, like Atomically in [account.Store].
	People(ctx context.Context, what string, fn func(tx Tx) error) error
}

// Service implements the operations that the APIs call.
type Service struct {
	store    Store
	now      func() time.Time
	provider Provider
}

// Provider is the installation's identity provider. The zero value means none.
type Provider struct {
	Issuer string
	// MaxAge is how long a group-based membership lasts after the provider has confirmed it.
	// Zero means [GroupLife].
	MaxAge time.Duration
}

func (s *Service) groupUntil() time.Time {
	if s.provider.MaxAge <= 0 {
		return s.now().Add(GroupLife)
	}
	return s.now().Add(s.provider.MaxAge)
}

// NewService returns a service. Only identities from the provider p count as a way to sign in.
// If now is nil, the system clock is used.
func NewService(store Store, p Provider, now func() time.Time) *Service {
	if now == nil {
		now = time.Now
	}
	return &Service{store: store, provider: p, now: now}
}

// AccountName returns an account's name. It returns [account.ErrNoAccount] if there is none.
func (s *Service) AccountName(ctx context.Context, id string) (string, error) {
	a, err := s.store.Look(ctx).Account(id)
	return a.Name, err
}

// Members lists an account's members, oldest first.
func (s *Service) Members(ctx context.Context, accountID string) ([]Member, error) {
	return s.store.Look(ctx).Members(accountID)
}

// Member looks up a member of the account.
func (s *Service) Member(ctx context.Context, accountID, id string) (Member, error) {
	return s.store.Look(ctx).Member(accountID, id)
}

// Change edits a member. by is nil for the operator.
func (s *Service) Change(ctx context.Context, by *identity.Principal, accountID, id string, c Change) (after Member, err error) {
	err = s.store.People(ctx, "change member", func(tx Tx) error {
		before, scopes, err := s.target(tx, by, accountID, id)
		if err != nil {
			return err
		}
		if c.Role != nil && *c.Role != before.Role {
			if err := MayGive(by, scopes, *c.Role); err != nil {
				return err
			}
		}
		if c.Match != nil {
			if err := c.Match(before.Rev()); err != nil {
				return err
			}
		}
		after = before
		if c.Name != nil {
			after.Name = *c.Name
		}
		if c.Role != nil {
			after.Role = *c.Role
		}
		if after == before {
			if c.Role != nil {
				tx.Note(before)
			}
			return tx.Again(accountID)
		}
		after.UpdatedAt = s.now()
		return s.putRole(tx, before, after)
	})
	return after, err
}

// putRole writes a changed member, and revokes the keys and links that the new role does not
// allow.
func (s *Service) putRole(tx Tx, before, after Member) error {
	if before.Role == identity.Owner && after.Role != identity.Owner {
		if err := s.ownerRemains(tx, before); err != nil {
			return err
		}
	}
	if _, err := s.takeBeyond(tx, before, after.Role); err != nil {
		return err
	}
	if !before.Role.AtLeast(after.Role) {
		// The creator of a sign-in link for this member may still be using the session that it
		// opened, or a passkey added in that session. They had authority only over the old
		// role, so they must not gain the new one.
		opened, err := tx.Sessions(before.ID)
		if err != nil {
			return err
		}
		planted, err := tx.Passkeys(before.PersonID)
		if err != nil {
			return err
		}
		s.end(tx, slices.DeleteFunc(opened, func(x Session) bool { return !x.Bound })...)
		for _, k := range planted {
			if k.MemberID == before.ID {
				tx.Remove(k, events.Quiet)
			}
		}
	}
	tx.Put(after, events.MemberChanged)
	if after.Role != before.Role {
		tx.Note(after)
	}
	// Events contain the member's name, so replicas must also be notified of a new name.
	return tx.Authority(after.AccountID)
}

// Remove removes a member, and ends their sessions and the keys that they created. by is nil
// for the operator.
func (s *Service) Remove(ctx context.Context, by *identity.Principal, accountID, id string) error {
	return s.store.People(ctx, "remove member", func(tx Tx) error {
		m, _, err := s.target(tx, by, accountID, id)
		if err != nil {
			return err
		}
		return s.remove(tx, m)
	})
}

func (s *Service) remove(tx Tx, m Member) error {
	if m.Role == identity.Owner {
		if err := s.ownerRemains(tx, m); err != nil {
			return err
		}
	}
	if _, err := s.disown(tx, m); err != nil {
		return err
	}
	tx.Remove(m, events.MemberRemoved)
	return tx.Authority(m.AccountID)
}

// disown ends a member's sessions, revokes the keys and links that they created, and returns
// the total number. Otherwise, a removed member could regain access with a key or an
// invitation.
func (s *Service) disown(tx Tx, m Member) (int, error) {
	n, err := s.takeBeyond(tx, m, "")
	if err != nil {
		return 0, err
	}
	sessions, err := tx.Sessions(m.ID)
	s.end(tx, sessions...)
	return n + len(sessions), err
}

// LapseEvery bounds how long a membership and its keys outlive the provider's confirmation.
// Sessions end exactly when the confirmation expires. Each run reads all group-based
// memberships, at most [MaxMembers].
const LapseEvery = 5 * time.Minute

// EndLapsed ends the group-based memberships that the identity provider has not confirmed in
// time, and the keys and links that those members created. An account's last owner remains a
// member, without sessions and keys, until the provider confirms them again. Every replica runs
// EndLapsed, without a lease, and skips memberships that another replica has already ended.
func (s *Service) EndLapsed(ctx context.Context) error {
	ctx = events.WithActor(ctx, events.System)
	found, err := s.store.GroupMembers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range found {
		if m.Lapsed(s.now()) {
			errs = append(errs, s.endLapsed(ctx, m)) // one failure does not stop the others
		}
	}
	return errors.Join(errs...)
}

func (s *Service) endLapsed(ctx context.Context, m Member) error {
	return s.store.People(ctx, "end group-based membership", func(tx Tx) error {
		m, err := tx.Member(m.AccountID, m.ID)
		if errors.Is(err, ErrNoMember) || err == nil && !m.Lapsed(s.now()) {
			return nil
		}
		if err != nil {
			return err
		}
		if err = s.remove(tx, m); !errors.Is(err, ErrLastOwner) {
			return err
		}
		n, err := s.disown(tx, m)
		if err != nil || n == 0 {
			return err
		}
		return tx.Authority(m.AccountID)
	})
}

// target returns the member that a call applies to, and the scopes that the caller may grant. It
// reads the scopes again because the request's principal may be a few seconds old.
func (s *Service) target(tx Tx, by *identity.Principal, accountID, id string) (Member, identity.ScopeSet, error) {
	scopes, err := s.authority(tx, by)
	if err != nil {
		return Member{}, 0, err
	}
	m, err := tx.Member(accountID, id)
	if err != nil {
		return Member{}, 0, err
	}
	return m, scopes, MayTouch(by, m)
}

// authority returns the caller's scopes at the time of the commit. It rejects a caller who has
// lost the required scope since the request began. It also rejects a caller who is no longer an
// owner, because later checks use the role in by.
func (s *Service) authority(tx Tx, by *identity.Principal) (identity.ScopeSet, error) {
	if by == nil {
		return 0, nil // the operator does not need any scopes: MayGive and MayTouch accept a nil caller
	}
	g, err := account.GiverNow(tx, by, s.now())
	if err != nil {
		return 0, err
	}
	if by.Role == identity.Owner && g.Role != identity.Owner {
		return 0, OwnerRequired("You are no longer an owner of this account.")
	}
	if !g.Scopes.Has(identity.MembersWrite) {
		return 0, apierr.ScopeRequired(identity.MembersWrite.String(), "You lack the scope members:write.")
	}
	return g.Scopes, nil
}

func (s *Service) ownerRemains(tx Tx, leaving Member) error {
	all, err := tx.Members(leaving.AccountID)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(m Member) bool { return m.Role == identity.Owner && m.ID != leaving.ID }) {
		return ErrLastOwner
	}
	return nil
}

// takeBeyond revokes the member's keys and links that role would not allow them to
// create, and returns how many it revoked. An empty role revokes all of them.
func (s *Service) takeBeyond(tx Tx, m Member, role identity.Role) (n int, err error) {
	inUse, err := tx.InUse(m.AccountID, s.now())
	if err != nil {
		return 0, err
	}
	open, err := tx.OpenLinks(m.AccountID)
	if err != nil {
		return 0, err
	}
	for _, k := range inUse {
		// MadeBy is also set for keys that the member created with another key.
		if k.MadeBy == m.ID && (role == "" || !role.Scopes().Has(k.Scopes)) {
			k.RevokedAt = s.now()
			tx.Put(k, events.KeyRevoked)
			n++
		}
	}
	for _, l := range open {
		// Otherwise, the member could use such a link to rejoin after a removal, or to sign in
		// as somebody else.
		may, what := role.AtLeast(l.Role), events.InvitationRevoked
		if l.Kind == SignIn {
			may, what = above(role, l.Role), events.Quiet // sign-in links are not in any list
		}
		if l.MadeBy == m.ID && !(may && role.Scopes().Has(identity.MembersWrite)) {
			tx.Remove(l, what)
			n++
		}
	}
	return n, nil
}

func (s *Service) end(tx Tx, sessions ...Session) {
	for _, x := range sessions {
		x.EndedAt = s.now()
		tx.Put(x, events.SessionEnded)
	}
}

// Invitations lists the account's open invitations, newest first.
func (s *Service) Invitations(ctx context.Context, accountID string) ([]Link, error) {
	return invitations(s.store.Look(ctx), accountID)
}

func invitations(in Reads, accountID string) ([]Link, error) {
	open, err := in.OpenLinks(accountID)
	return slices.DeleteFunc(open, func(l Link) bool { return l.Kind != Invitation }), err
}

// NewInvitation is a request for an invitation. The caller generates the token, so a repeated
// request can use the same one.
type NewInvitation struct {
	ID        string
	Token     identity.Key
	AccountID string
	Name      string
	Role      identity.Role
	At        time.Time
	By        *identity.Principal // nil for the operator
}

// Invite creates an invitation. A repeated call with the same ID and token returns the
// invitation that the first call created.
func (s *Service) Invite(ctx context.Context, n NewInvitation) (l Link, err error) {
	if n.At.IsZero() {
		n.At = s.now()
	}
	l = Link{
		ID: n.ID, Hash: n.Token.Hash(), Kind: Invitation, AccountID: n.AccountID, Name: strings.TrimSpace(n.Name), Role: n.Role,
		By: events.ActorOf(ctx), CreatedAt: n.At, ExpiresAt: n.At.Add(InvitationLife),
	}
	if n.By != nil {
		l.MadeBy = n.By.MemberID
	}
	err = s.store.People(ctx, "invite", func(tx Tx) error {
		scopes, err := s.authority(tx, n.By)
		if err != nil {
			return err
		}
		if err := MayGive(n.By, scopes, n.Role); err != nil {
			return err
		}
		if _, err := tx.Account(n.AccountID); err != nil {
			return err
		}
		// Look up the invitation before checking the limit: a repeated request must find its
		// invitation even if the account has since reached its limit.
		if there, err := madeBefore(tx, l); there || err != nil {
			return err
		}
		room, err := tx.Room("invitations", n.AccountID, MaxInvitations, 1, func() (int, error) {
			open, err := invitations(tx, n.AccountID)
			return len(open), err
		})
		if err != nil {
			return err
		}
		if room < 1 {
			return apierr.New(apierr.QuotaExceeded, "This account has 100 open invitations. Revoke one first.")
		}
		tx.Add(l, events.InvitationCreated)
		return nil
	})
	return l, err
}

// madeBefore reports whether an earlier attempt at the same request created the link.
func madeBefore(tx Tx, l Link) (bool, error) {
	found, err := tx.Link(l.Hash)
	switch {
	case errors.Is(err, ErrNoLink):
		return false, nil
	case err == nil && found.ID != l.ID:
		err = errors.New("generated a token that already exists")
	}
	return err == nil, err
}

// RevokeInvitation revokes an open invitation.
func (s *Service) RevokeInvitation(ctx context.Context, by *identity.Principal, accountID, id string) error {
	return s.store.People(ctx, "revoke invitation", func(tx Tx) error {
		if _, err := s.authority(tx, by); err != nil {
			return err
		}
		l, err := tx.LinkByID(id)
		// Sign-in links are stored in the same collection, but the members of the account must
		// not see them.
		if errors.Is(err, ErrNoLink) || err == nil && (l.AccountID != accountID || l.Kind != Invitation || !s.now().Before(l.ExpiresAt)) {
			return ErrNoInvitation
		}
		if err != nil {
			return err
		}
		if err := MayRevoke(by, l); err != nil {
			return err
		}
		tx.Remove(l, events.InvitationRevoked)
		return nil
	})
}

// NewSignInLink is a request for a link that signs in a member. As with an invitation, the
// caller generates the token.
type NewSignInLink struct {
	ID       string
	Token    identity.Key
	MemberID string // a member of By's account
	At       time.Time
	By       *identity.Principal
}

// above reports whether role is higher than other.
func above(role, other identity.Role) bool { return role != other && role.AtLeast(other) }

// mayLink rejects a caller who may not create a sign-in link for a member with the role. The
// creator could use the link to sign in as that member, so only a person with a higher role
// may create it.
func mayLink(by *identity.Principal, role identity.Role) error {
	switch {
	case !by.Session:
		return &apierr.Error{
			Code: apierr.InsufficientScope, RequiredRole: string(identity.Admin),
			Message: "An API key cannot make sign-in links. Sign in to the console as an admin or an owner.",
		}
	case role == identity.Owner:
		return OwnerRequired("Only the operator of this installation can make a sign-in link for an owner.")
	case !above(by.Role, role):
		return OwnerRequired("You can make sign-in links only for members whose role is below yours. Ask an owner.")
	}
	return nil
}

// MayLink rejects a caller who may not create a sign-in link for the member.
func (s *Service) MayLink(ctx context.Context, by *identity.Principal, id string) error {
	if err := mayLink(by, identity.Viewer); err != nil {
		return err
	}
	m, err := s.Member(ctx, by.AccountID, id)
	if err != nil {
		return err
	}
	return mayLink(by, m.Role)
}

// SignInLinkFor creates a link for a member who has no way to sign in. A repeated call with the
// same ID and token returns the link that the first call created.
func (s *Service) SignInLinkFor(ctx context.Context, n NewSignInLink) (l Link, err error) {
	if err := mayLink(n.By, identity.Viewer); err != nil {
		return Link{}, err // a caller who may not create links gets the same error whether or not the member exists
	}
	l = Link{
		ID: n.ID, Hash: n.Token.Hash(), Kind: SignIn, AccountID: n.By.AccountID, MemberID: n.MemberID,
		By: events.ActorOf(ctx), MadeBy: n.By.MemberID, CreatedAt: n.At, ExpiresAt: n.At.Add(SignInLinkLife),
	}
	err = s.store.People(ctx, "make sign-in link for a member", func(tx Tx) error {
		if _, err := s.authority(tx, n.By); err != nil {
			return err
		}
		m, err := tx.Member(n.By.AccountID, n.MemberID)
		if err != nil {
			return err
		}
		if err := mayLink(n.By, m.Role); err != nil {
			return err
		}
		if m.FromGroups {
			return ErrByProvider
		}
		if err := account.Staying(tx, n.By.AccountID); err != nil {
			return err
		}
		if err := s.lockedOut(tx, m); err != nil {
			return err
		}
		// Look up an earlier attempt only after the checks, so a retry cannot bypass them.
		if there, err := madeBefore(tx, l); there || err != nil {
			return err
		}
		l.Name, l.Role = m.Name, m.Role
		tx.Add(l, events.SignInLinkCreated)
		return nil
	})
	return l, err
}

// lockedOut rejects a person who has a way to sign in, or who also belongs to another account,
// where the link's creator has no authority.
func (s *Service) lockedOut(tx Tx, m Member) error {
	mine, err := tx.Memberships(m.PersonID)
	if err != nil {
		return err
	}
	known, err := tx.Identities(m.PersonID)
	if err != nil {
		return err
	}
	keys, err := tx.Passkeys(m.PersonID)
	if err != nil {
		return err
	}
	if len(mine) != 1 || len(s.ways(m, known, keys)) > 0 {
		return ErrHasSignIn
	}
	return nil
}

// ways lists how a member can sign in without help.
func (s *Service) ways(m Member, known []Identity, keys []Passkey) []Way {
	out := []Way{}
	// A passkey that was added in a bound session is valid only for that session's
	// membership.
	if slices.ContainsFunc(keys, func(p Passkey) bool { return p.PersonID == m.PersonID && (p.MemberID == "" || p.MemberID == m.ID) }) {
		out = append(out, ByPasskey)
	}
	// Identities from an earlier provider are kept, but only the configured provider can
	// confirm identities.
	if slices.ContainsFunc(known, func(i Identity) bool {
		return i.PersonID == m.PersonID && s.provider.Issuer != "" && i.Issuer == s.provider.Issuer
	}) {
		out = append(out, ByProvider)
	}
	return out
}

// Ways lists, for each of the members, how they can sign in without help.
func (s *Service) Ways(ctx context.Context, members []Member) ([][]Way, error) {
	people := make([]string, len(members))
	for i, m := range members {
		people[i] = m.PersonID
	}
	known, keys, err := s.store.WaysOf(ctx, people)
	if err != nil {
		return nil, err
	}
	out := make([][]Way, len(members))
	for i, m := range members {
		out[i] = s.ways(m, known, keys)
	}
	return out, nil
}

// SignInLink creates a one-time link that signs in an existing member, or a new member with
// the given name and role. A name always creates a new member because two people may have
// the same name. Only the operator calls it.
//
// The operator has authority over all accounts and must be able to help people who have lost
// their last passkey. The session is therefore not bound, and the member may already have a way
// to sign in.
func (s *Service) SignInLink(
	ctx context.Context, accountID, memberID, name string, role identity.Role, token identity.Key,
) (l Link, err error) {
	now := s.now()
	l = Link{
		ID: identity.NewID("sil"), Hash: token.Hash(), Kind: SignIn, AccountID: accountID, By: events.ActorOf(ctx),
		CreatedAt: now, ExpiresAt: now.Add(SignInLinkLife),
	}
	fresh := Member{
		ID: identity.NewID("mem"), AccountID: accountID, PersonID: identity.NewID("per"),
		Name: strings.TrimSpace(name), Role: role, CreatedAt: now, UpdatedAt: now,
	}
	err = s.store.People(ctx, "make sign-in link", func(tx Tx) error {
		if err := account.Staying(tx, accountID); err != nil {
			return err
		}
		m := fresh
		if memberID != "" {
			var err error
			if m, err = tx.Member(accountID, memberID); err == nil && m.FromGroups {
				err = ErrByProvider
			}
			if err != nil {
				return err
			}
		} else if err := s.roomForMember(tx, accountID); err != nil {
			return err
		}
		l.MemberID, l.Name, l.Role = m.ID, m.Name, m.Role
		tx.Add(l, events.SignInLinkCreated)
		if memberID == "" {
			tx.Put(m, events.MemberAdded)
		}
		return nil
	})
	return l, err
}

func (s *Service) roomForMember(tx Tx, accountID string) error {
	room, err := tx.Room("members", accountID, MaxMembers, 1, func() (int, error) {
		all, err := tx.Members(accountID)
		return len(all), err
	})
	if err != nil {
		return err
	}
	if room < 1 {
		return apierr.New(apierr.QuotaExceeded, "This account has 500 members. Remove one first.")
	}
	return nil
}
