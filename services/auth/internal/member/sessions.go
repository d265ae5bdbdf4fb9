package member

import (
	"cmp"
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

// Browser describes the browser of a sign-in.
type Browser struct {
	Key      identity.Key // key of the new session that the caller has generated
	Client   string       // the browser, as it calls itself
	Replaces string       // hash of the browser's current session, which will be ended; "" for none
}

// Proof is the facts that an identity provider has confirmed about a person.
type Proof struct {
	Issuer  string
	Subject string
	Email   string // verified by the provider, or ""
	Name    string
	Groups  []string
}

// GroupMap maps the groups of an identity provider to roles in one account. Its zero
// value maps nothing.
type GroupMap struct {
	AccountID string
	Roles     map[string]identity.Role
}

// role returns the highest role of the groups.
func (g GroupMap) role(groups []string) (best identity.Role) {
	for _, name := range groups {
		if r := g.Roles[name]; r != "" && !best.AtLeast(r) {
			best = r
		}
	}
	return best
}

// OpenLink looks up a one-time link by its token. It changes nothing, so a bot that opens the
// link for a preview does not use it up.
func (s *Service) OpenLink(ctx context.Context, token identity.Key) (Link, error) {
	l, err := s.store.Look(ctx).Link(token.Hash())
	if err == nil && !s.now().Before(l.ExpiresAt) {
		err = ErrNoLink
	}
	if err != nil {
		return Link{}, err
	}
	return l, nil
}

// UseLink signs in with a one-time link and uses it up. name, proof and as are for
// invitations. name is the new member's name if the invitation has none. proof is the
// identity that accepts the invitation, or nil. as is the hash of the browser's session: a
// signed-in person joins as themselves.
func (s *Service) UseLink(ctx context.Context, token identity.Key, name string, proof *Proof, as string, b Browser) (Session, error) {
	l, err := s.OpenLink(ctx, token)
	if err != nil {
		return Session{}, err
	}
	if l.Kind == SignIn {
		m, err := s.store.Look(ctx).Member(l.AccountID, l.MemberID)
		if errors.Is(err, ErrNoMember) {
			return Session{}, ErrNoLink
		}
		if err != nil {
			return Session{}, err
		}
		// The commit that opens the session also removes the link, so if two browsers use the
		// link at the same time, only one of them is signed in.
		return s.open(ctx, m, howLink, b, func(tx Tx, now *Member, x *Session) error {
			found, err := s.unused(tx, l)
			if err != nil {
				return err
			}
			if found.MadeBy != "" {
				// Since the link was created, the member may have added a way to sign in,
				// joined another account, or got a higher role.
				if !found.Role.AtLeast(now.Role) {
					return ErrNoLink
				}
				if err := s.lockedOut(tx, *now); err != nil {
					return err
				}
				x.Bound, now.LinkUsed = true, LinkUse{By: found.By.Name, At: s.now()}
			}
			tx.Remove(found, events.SignInLinkUsed)
			return nil
		})
	}
	person, known, err := s.personOf(ctx, proof, as)
	if err != nil {
		return Session{}, err
	}
	m := Member{
		ID: identity.NewID("mem"), AccountID: l.AccountID, PersonID: person, Name: cmp.Or(l.Name, strings.TrimSpace(name)),
		Role: l.Role, CreatedAt: s.now(), UpdatedAt: s.now(),
	}
	if proof != nil {
		// Some providers send no name. The invitation must work with them too.
		m.Email, m.Name = proof.Email, cmp.Or(m.Name, proof.Name, proof.Email, "Unnamed")
	}
	if m.Name == "" {
		return Session{}, apierr.Invalid(apierr.Detail{Field: "name", Code: apierr.Required, Message: "Enter your name."})
	}
	ctx = events.WithActor(ctx, events.Actor{Type: events.ActorMember, ID: m.ID, Name: m.Name})
	return s.begin(ctx, m, "invitation", b, func(tx Tx, _ *Session) error {
		found, err := s.unused(tx, l)
		if err != nil {
			return err
		}
		if err := s.mayJoin(tx, m); err != nil {
			return err
		}
		// personOf looked up the identity before this transaction. Two sign-ins with the same
		// new identity must not create two persons.
		if proof != nil && !known {
			if _, err := tx.Identity(proof.Issuer, proof.Subject); !errors.Is(err, ErrNoIdentity) {
				return errors.Join(err, errTwice)
			}
			if err := roomToSignIn(tx, person); err != nil {
				return err
			}
			tx.Add(s.identity(*proof, person), events.Quiet)
		}
		tx.Put(m, events.MemberAdded)
		tx.Remove(found, events.InvitationAccepted)
		return nil
	})
}

// errTwice is the error for a sign-in that lost a race with another sign-in of the same
// person.
var errTwice = apierr.New(apierr.Unavailable, "Somebody signed in with this identity just now. Try again.")

func (s *Service) unused(tx Tx, l Link) (Link, error) {
	found, err := tx.Link(l.Hash)
	if err == nil && !s.now().Before(found.ExpiresAt) {
		err = ErrNoLink
	}
	return found, err
}

// mayJoin rejects a person who is already a member. If the account is full, it rejects
// everybody.
func (s *Service) mayJoin(tx Tx, m Member) error {
	mine, err := tx.Memberships(m.PersonID)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(mine, func(x Member) bool { return x.AccountID == m.AccountID }) {
		return ErrAlreadyMember
	}
	return s.roomForMember(tx, m.AccountID)
}

// personOf returns the person who accepts an invitation: the owner of a known identity, or
// else the signed-in person, or else a new person. A bound session does not count as signed
// in, because the creator of its link may be using it.
func (s *Service) personOf(ctx context.Context, proof *Proof, as string) (person string, known bool, err error) {
	if proof != nil {
		found, err := s.store.Look(ctx).Identity(proof.Issuer, proof.Subject)
		if err == nil {
			return found.PersonID, true, nil
		}
		if !errors.Is(err, ErrNoIdentity) {
			return "", false, err
		}
	}
	if as != "" {
		x, err := s.store.Look(ctx).Session(as)
		if err == nil && x.Active(s.now()) && !x.Bound {
			return x.PersonID, false, nil
		}
		if err != nil && !errors.Is(err, ErrNoSession) {
			return "", false, err
		}
	}
	return identity.NewID("per"), false, nil
}

// SignIn signs in the person that an identity provider has confirmed. They must already be a
// member or become a member by the group map.
func (s *Service) SignIn(ctx context.Context, p Proof, groups GroupMap, b Browser) (Session, error) {
	found, err := s.store.Look(ctx).Identity(p.Issuer, p.Subject)
	known := err == nil
	if err != nil && !errors.Is(err, ErrNoIdentity) {
		return Session{}, err
	}
	// Apply the map first, because it may remove the membership for which the identity would
	// be used. For an unknown identity, found.PersonID is empty, and byGroups may create the
	// person.
	if groups.AccountID != "" {
		m, err := s.byGroups(ctx, p, found.PersonID, groups)
		if err != nil {
			return Session{}, err
		}
		if m != nil {
			return s.open(ctx, *m, "oidc", b, nil)
		}
	}
	if !known {
		return Session{}, ErrNoMembership
	}
	return s.openAny(ctx, found.PersonID, "oidc", b, nil)
}

// byGroups updates the membership according to the group map. It returns nil if the map gives
// no membership.
func (s *Service) byGroups(ctx context.Context, p Proof, person string, groups GroupMap) (*Member, error) {
	role := groups.role(p.Groups)
	fresh := person == ""
	if fresh {
		if role == "" {
			return nil, nil
		}
		person = identity.NewID("per")
	}
	var out *Member
	ctx = events.WithActor(ctx, events.System)
	err := s.store.People(ctx, "follow groups", func(tx Tx) error {
		// Discard the result of an earlier attempt of this transaction.
		out = nil
		a, err := tx.Account(groups.AccountID)
		if err != nil {
			return err
		}
		if fresh {
			if _, err := tx.Identity(p.Issuer, p.Subject); !errors.Is(err, ErrNoIdentity) {
				return errors.Join(err, errTwice)
			}
		}
		mine, err := tx.Memberships(person)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(mine, func(m Member) bool { return m.AccountID == groups.AccountID })
		switch {
		case at < 0 && role == "":
			return tx.Again(a.ID)
		case at < 0 && a.Deleting:
			return account.ErrErasing
		case at < 0:
			if err := s.roomForMember(tx, groups.AccountID); err != nil {
				return err
			}
			out = &Member{
				ID: identity.NewID("mem"), AccountID: groups.AccountID, PersonID: person, Name: cmp.Or(p.Name, p.Email, "Unnamed"),
				Email: p.Email, Role: role, FromGroups: true, GroupUntil: s.groupUntil(), CreatedAt: s.now(), UpdatedAt: s.now(),
			}
			tx.Put(*out, events.MemberAdded)
			if fresh {
				tx.Add(s.identity(p, person), events.Quiet)
			}
			return tx.Again(a.ID)
		}
		m := mine[at]
		switch {
		// The map changes only memberships that it created. It does not change the membership
		// of an invited member.
		case !m.FromGroups:
			out = &m
			return tx.Again(a.ID)
		case role == "":
			return s.remove(tx, m)
		}
		after := m
		after.GroupUntil = s.groupUntil()
		out = &after
		if m.Role == role {
			tx.Put(after, events.Quiet)
			return tx.Again(a.ID)
		}
		after.Role, after.UpdatedAt = role, s.now()
		return s.putRole(tx, m, after)
	})
	return out, err
}

func (s *Service) identity(p Proof, person string) Identity {
	return Identity{Issuer: p.Issuer, Subject: p.Subject, PersonID: person, Email: p.Email, CreatedAt: s.now()}
}

// openAny opens a session in the oldest of the person's accounts that accepts them. From
// there, they can switch to another account.
func (s *Service) openAny(ctx context.Context, person, how string, b Browser, also opening) (Session, error) {
	mine, err := s.store.Look(ctx).Memberships(person)
	if err != nil {
		return Session{}, err
	}
	err = ErrNoMembership
	for _, m := range mine {
		var x Session
		x, err = s.open(ctx, m, how, b, also)
		if !errors.Is(err, account.ErrErasing) && !errors.Is(err, ErrByProvider) {
			return x, err
		}
	}
	return Session{}, err
}

// howLink is the [Session.How] of a session opened by a sign-in link.
const howLink = "link"

// opening is additional work in the commit that opens a session. It may change the member and
// the session.
type opening func(tx Tx, now *Member, x *Session) error

// open opens a session for an existing member.
func (s *Service) open(ctx context.Context, m Member, how string, b Browser, also opening) (Session, error) {
	ctx = events.WithActor(ctx, events.Actor{Type: events.ActorMember, ID: m.ID, Name: m.Name})
	return s.begin(ctx, m, how, b, func(tx Tx, x *Session) error {
		// m was read before this transaction and may have been removed.
		now, err := tx.Member(m.AccountID, m.ID)
		switch {
		case errors.Is(err, ErrNoMember) || err == nil && now.PersonID != m.PersonID:
			return ErrNoMembership
		case err != nil:
			return err
		case now.Lapsed(s.now()):
			return ErrByProvider
		}
		after := now
		x.Until, x.Told = now.GroupUntil, now.LinkUsed
		// The creator of the link may be using a bound session. Such a session clears the
		// notice only after a week. Otherwise, the member might never see it.
		if !x.Bound || s.now().Sub(now.LinkUsed.At) > SessionLife {
			after.LinkUsed = LinkUse{}
		}
		if also != nil {
			if err := also(tx, &after, x); err != nil {
				return err
			}
		}
		if after != now {
			tx.Put(after, events.Quiet)
		}
		return nil
	})
}

// begin opens a session for m, unless the account is being erased. Erasure removes sessions
// before members, so it could miss a session that is added in the meantime. first runs in the
// same commit: it may return an error, change the session, and write more records.
func (s *Service) begin(
	ctx context.Context, m Member, how string, b Browser, first func(tx Tx, x *Session) error,
) (x Session, err error) {
	now := s.now()
	fresh := Session{
		ID: identity.NewID("ses"), Hash: b.Key.Hash(), AccountID: m.AccountID, MemberID: m.ID, PersonID: m.PersonID,
		How: how, Client: clip(b.Client, 200), CreatedAt: now, SeenAt: now,
	}
	err = s.store.People(ctx, "sign in", func(tx Tx) error {
		x = fresh
		if err := account.Staying(tx, m.AccountID); err != nil {
			return err
		}
		if err := s.makeRoom(tx, m, b.Replaces, now); err != nil {
			return err
		}
		if err := first(tx, &x); err != nil {
			return err
		}
		tx.Add(x, events.SessionCreated)
		return nil
	})
	return x, err
}

// makeRoom ends the session that the new session replaces, and the oldest sessions if the
// member has too many.
func (s *Service) makeRoom(tx Tx, m Member, replaces string, now time.Time) error {
	var ending []Session
	if replaces != "" {
		old, err := tx.Session(replaces)
		if err == nil && old.Active(now) {
			ending = append(ending, old)
		}
		if err != nil && !errors.Is(err, ErrNoSession) {
			return err
		}
	}
	active, err := tx.Sessions(m.ID)
	if err != nil {
		return err
	}
	active = slices.DeleteFunc(active, func(a Session) bool { return !a.Active(now) || a.Hash == replaces })
	if len(active) >= MaxSessions {
		ending = append(ending, active[MaxSessions-1:]...) // newest first
	}
	for _, e := range ending {
		// The replaced session may be in another account than the new session.
		if err := tx.Authority(e.AccountID); err != nil {
			return err
		}
	}
	s.end(tx, ending...)
	return nil
}

// clip returns the first n bytes of a text without an incomplete character at the end.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// Switch replaces a session with a session in another account of the same person.
func (s *Service) Switch(ctx context.Context, hash, memberID string, b Browser) (Session, error) {
	x, err := s.store.Look(ctx).Session(hash)
	if err == nil && x.Bound {
		err = ErrBound
	}
	if err != nil {
		return Session{}, err
	}
	m, err := s.store.Look(ctx).Member("", memberID)
	if err == nil && m.PersonID != x.PersonID {
		err = ErrNoMember
	}
	if err != nil {
		return Session{}, err
	}
	b.Replaces = hash
	return s.open(ctx, m, "switch", b, nil)
}

// End ends the session with this hash or, if id is not empty, another session of the same
// member. When End returns, no replica accepts the session.
func (s *Service) End(ctx context.Context, hash, id string) error {
	mine, err := s.store.Look(ctx).Session(hash)
	if err != nil {
		return err
	}
	m, err := s.store.Look(ctx).Member(mine.AccountID, mine.MemberID)
	if err != nil && !errors.Is(err, ErrNoMember) {
		return err
	}
	ctx = events.WithActor(ctx, events.Actor{Type: events.ActorMember, ID: mine.MemberID, Name: m.Name})
	return s.store.People(ctx, "end session", func(tx Tx) error {
		x, err := tx.Session(hash)
		if err != nil {
			return err
		}
		if id != "" && id != x.ID {
			open, err := tx.Sessions(x.MemberID)
			if err != nil {
				return err
			}
			at := slices.IndexFunc(open, func(a Session) bool { return a.ID == id })
			if at < 0 {
				return ErrNoSession
			}
			x = open[at]
		}
		if !x.EndedAt.IsZero() {
			return tx.Again(x.AccountID)
		}
		s.end(tx, x)
		return tx.Authority(x.AccountID)
	})
}

// Profile is the data that a signed-in person may see about themselves.
type Profile struct {
	Session     Session
	Member      Member
	Memberships []Member
	Identities  []Identity
	Passkeys    []Passkey
	Sessions    []Session
	Ways        []Way // the ways to sign in to this membership again
}

// Profile reads the profile of the session's person.
func (s *Service) Profile(ctx context.Context, hash string) (p Profile, err error) {
	if p.Session, err = s.store.Look(ctx).Session(hash); err != nil {
		return Profile{}, err
	}
	if p.Member, err = s.store.Look(ctx).Member(p.Session.AccountID, p.Session.MemberID); err != nil {
		return Profile{}, err
	}
	if p.Memberships, err = s.store.Look(ctx).Memberships(p.Session.PersonID); err != nil {
		return Profile{}, err
	}
	if p.Identities, err = s.store.Look(ctx).Identities(p.Session.PersonID); err != nil {
		return Profile{}, err
	}
	if p.Passkeys, err = s.store.Look(ctx).Passkeys(p.Session.PersonID); err != nil {
		return Profile{}, err
	}
	if p.Sessions, err = s.store.Look(ctx).Sessions(p.Session.MemberID); err != nil {
		return Profile{}, err
	}
	p.Sessions = slices.DeleteFunc(p.Sessions, func(x Session) bool { return !x.Active(s.now()) })
	p.Ways = s.ways(p.Member, p.Identities, p.Passkeys)
	if p.Session.Bound {
		// The creator of the link may be using the session, so show only this membership.
		p.Memberships, p.Identities = []Member{p.Member}, nil
		p.Passkeys = slices.DeleteFunc(p.Passkeys, func(k Passkey) bool { return k.MemberID != p.Member.ID })
	}
	return p, nil
}

// Person reads an active session and its member.
func (s *Service) Person(ctx context.Context, hash string) (Session, Member, error) {
	x, err := s.store.Look(ctx).Session(hash)
	if err == nil && !x.Active(s.now()) {
		err = ErrNoSession
	}
	if err != nil {
		return Session{}, Member{}, err
	}
	m, err := s.store.Look(ctx).Member(x.AccountID, x.MemberID)
	return x, m, err
}

// Connect adds an identity as a way to sign in for a signed-in person.
func (s *Service) Connect(ctx context.Context, hash string, p Proof) error {
	x, m, err := s.Person(ctx, hash)
	if err == nil && x.Bound {
		err = ErrBound // the identity would also give access to accounts that the person joins later
	}
	if err != nil {
		return err
	}
	ctx = events.WithActor(ctx, events.Actor{Type: events.ActorMember, ID: m.ID, Name: m.Name})
	return s.store.People(ctx, "connect identity", func(tx Tx) error {
		found, err := tx.Identity(p.Issuer, p.Subject)
		switch {
		case err == nil && found.PersonID == x.PersonID:
			return nil
		case err == nil:
			return ErrIdentityTaken
		case !errors.Is(err, ErrNoIdentity):
			return err
		}
		if err := roomToSignIn(tx, x.PersonID); err != nil {
			return err
		}
		now, err := tx.Member(m.AccountID, m.ID)
		if err != nil {
			return err
		}
		tx.Add(s.identity(p, x.PersonID), events.Quiet)
		if p.Email != "" && now.Email != p.Email {
			now.Email, now.UpdatedAt = p.Email, s.now()
			tx.Put(now, events.MemberChanged)
		}
		return nil
	})
}

// errOwnWay is the error for adding a passkey in the session of a sign-in link after the
// person has got their own way to sign in.
var errOwnWay = apierr.New(
	apierr.HasSignIn,
	"You signed in with a link that somebody made for you, but you now have your own way to sign in "+
		"or also belong to another account. Sign in without the link to add a passkey.",
)

// AddPasskey adds a passkey as a way to sign in for a signed-in person. A passkey that is
// added in a bound session is valid only for that membership.
func (s *Service) AddPasskey(ctx context.Context, hash string, p Passkey) error {
	x, m, err := s.Person(ctx, hash)
	if err != nil {
		return err
	}
	p.ID, p.PersonID, p.CreatedAt = identity.NewID("pky"), x.PersonID, s.now()
	if x.Bound {
		p.MemberID = x.MemberID
	}
	return s.store.People(ctx, "add passkey", func(tx Tx) error {
		if x.Bound && x.How == howLink {
			switch err := s.lockedOut(tx, m); {
			case errors.Is(err, ErrHasSignIn):
				return errOwnWay
			case err != nil:
				return err
			}
		}
		// A sign-in finds the person by the credential, so a credential belongs to only one
		// person.
		if _, err := tx.Passkey(p.Hash); !errors.Is(err, ErrNoPasskey) {
			return errors.Join(err, ErrIdentityTaken)
		}
		if err := roomToSignIn(tx, x.PersonID); err != nil {
			return err
		}
		tx.Put(p, events.Quiet)
		return nil
	})
}

// roomToSignIn returns an error if a person already has [MaxIdentities] ways to sign in.
func roomToSignIn(tx Tx, personID string) error {
	known, err := tx.Identities(personID)
	if err != nil {
		return err
	}
	keys, err := tx.Passkeys(personID)
	if err != nil {
		return err
	}
	if len(known)+len(keys) >= MaxIdentities {
		return apierr.New(apierr.QuotaExceeded, "You have 20 ways to sign in, passkeys included. Remove a passkey first.")
	}
	return nil
}

// RemovePasskey removes a passkey of the session's person.
func (s *Service) RemovePasskey(ctx context.Context, hash, id string) error {
	x, _, err := s.Person(ctx, hash)
	if err != nil {
		return err
	}
	return s.store.People(ctx, "remove passkey", func(tx Tx) error {
		mine, err := tx.Passkeys(x.PersonID)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(mine, func(p Passkey) bool { return p.ID == id && (!x.Bound || p.MemberID == x.MemberID) })
		if at < 0 {
			return ErrNoPasskey
		}
		tx.Remove(mine[at], events.Quiet)
		return nil
	})
}

// Passkey looks up a passkey by its credential's hash.
func (s *Service) Passkey(ctx context.Context, hash string) (Passkey, error) {
	return s.store.Look(ctx).Passkey(hash)
}

// Passkeys lists a person's passkeys.
func (s *Service) Passkeys(ctx context.Context, personID string) ([]Passkey, error) {
	return s.store.Look(ctx).Passkeys(personID)
}

// SignInByPasskey signs in the owner of a passkey that has just signed challenge, and uses up
// the challenge. It returns ErrNoPasskey if the passkey was removed in the meantime.
func (s *Service) SignInByPasskey(ctx context.Context, p Passkey, challenge string, b Browser) (Session, error) {
	p.LastUsedAt = s.now()
	also := func(tx Tx, _ *Member, x *Session) error {
		// p was read before this transaction. Writing a removed passkey would restore it.
		now, err := tx.Passkey(p.Hash)
		if err == nil && now.ID != p.ID {
			err = ErrNoPasskey // the passkey was removed and added again
		}
		if err != nil {
			return err
		}
		x.Bound = p.MemberID != ""
		tx.Put(p, events.Quiet)
		// A challenge is rejected ten minutes after its creation, so an hour prevents any
		// replay.
		tx.UseOnce("passkey:"+challenge, s.now().Add(time.Hour))
		return nil
	}
	if p.MemberID == "" {
		return s.openAny(ctx, p.PersonID, "passkey", b, also)
	}
	m, err := s.store.Look(ctx).Member("", p.MemberID)
	if errors.Is(err, ErrNoMember) {
		err = ErrNoMembership
	}
	if err != nil {
		return Session{}, err
	}
	return s.open(ctx, m, "passkey", b, also)
}
