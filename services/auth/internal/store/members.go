package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/firestore"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

const (
	members    = "members"
	links      = "oneTimeLinks"
	sessions   = "sessions"
	identities = "identities"
	passkeys   = "passkeys"
	devices    = "deviceRequests"
	used       = "usedOnce"
)

type (
	memberDoc struct {
		Account    string `firestore:"accountId"`
		Person     string `firestore:"personId"`
		Name       string `firestore:"name"`
		Email      string `firestore:"email"`
		Role       string `firestore:"role"`
		FromGroups bool   `firestore:"fromGroups,omitempty"`
		// What follows is absent in most records.
		GroupUntil *time.Time `firestore:"groupUntil,omitempty"`
		LinkUsed   *linkUse   `firestore:"linkUsed,omitempty"`
		CreatedAt  time.Time  `firestore:"createdAt"`
		UpdatedAt  time.Time  `firestore:"updatedAt"`
	}
	linkUse struct {
		By string    `firestore:"by"`
		At time.Time `firestore:"at"`
	}
	linkDoc struct {
		ID        string    `firestore:"id"`
		Kind      string    `firestore:"kind"`
		Account   string    `firestore:"accountId"`
		Member    string    `firestore:"memberId"`
		Name      string    `firestore:"name"`
		Role      string    `firestore:"role"`
		ByType    string    `firestore:"byType"`
		ByID      string    `firestore:"byId"`
		ByName    string    `firestore:"byName"`
		MadeBy    string    `firestore:"madeBy"`
		CreatedAt time.Time `firestore:"createdAt"`
		ExpireAt  time.Time `firestore:"expireAt"`
	}
	sessionDoc struct {
		ID        string     `firestore:"id"`
		Account   string     `firestore:"accountId"`
		Member    string     `firestore:"memberId"`
		Person    string     `firestore:"personId"`
		How       string     `firestore:"how"`
		Bound     bool       `firestore:"bound"`
		Until     *time.Time `firestore:"until,omitempty"`
		Told      *linkUse   `firestore:"told,omitempty"`
		Client    string     `firestore:"client"`
		CreatedAt time.Time  `firestore:"createdAt"`
		SeenAt    time.Time  `firestore:"seenAt"`
		EndedAt   *time.Time `firestore:"endedAt"`
		Open      bool       `firestore:"open"`
		ExpireAt  time.Time  `firestore:"expireAt"` // a day after its latest end, so that it is refused as expired and not as unknown
	}
	identityDoc struct {
		Issuer    string    `firestore:"issuer"`
		Subject   string    `firestore:"subject"`
		Person    string    `firestore:"personId"`
		Email     string    `firestore:"email"`
		CreatedAt time.Time `firestore:"createdAt"`
	}
	passkeyDoc struct {
		ID         string     `firestore:"id"`
		Person     string     `firestore:"personId"`
		Member     string     `firestore:"memberId"` // the one membership that it opens; "" for all
		Name       string     `firestore:"name"`
		Credential []byte     `firestore:"credential"`
		CreatedAt  time.Time  `firestore:"createdAt"`
		LastUsedAt *time.Time `firestore:"lastUsedAt"`
	}
	deviceDoc struct {
		UserCode  string    `firestore:"userCode"`
		Name      string    `firestore:"name"`
		Scopes    []string  `firestore:"scopes"`
		Account   string    `firestore:"accountId"`
		Member    string    `firestore:"memberId"`
		Denied    bool      `firestore:"denied"`
		CreatedAt time.Time `firestore:"createdAt"`
		ExpireAt  time.Time `firestore:"expireAt"`
	}
)

var (
	_ member.Store = (*Store)(nil)
	_ member.Tx    = (*transaction)(nil)
)

// People runs fn as a Firestore transaction.
func (s *Store) People(ctx context.Context, what string, fn func(member.Tx) error) error {
	return s.db.Tx(ctx, what, func(ctx context.Context, tx *firestore.Transaction) error {
		return fn(&transaction{s: s, ctx: ctx, tx: tx})
	})
}

// Members lists an account's members, oldest first.
func (s *Store) Members(ctx context.Context, accountID string) ([]member.Member, error) {
	return list(ctx, s, "list members", s.where(members, "accountId", accountID), toMember, oldestMember)
}

// Memberships lists a person's members, oldest first.
func (s *Store) Memberships(ctx context.Context, personID string) ([]member.Member, error) {
	return list(ctx, s, "list memberships", s.where(members, "personId", personID), toMember, oldestMember)
}

func oldestMember(a, b member.Member) int {
	return cmpOr(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
}

// Member finds a member.
func (s *Store) Member(ctx context.Context, id string) (member.Member, error) {
	return get(ctx, s, "get member", s.member(id), toMember, member.ErrNoMember)
}

// GroupMembers lists all members whom a group map made. One account maps groups at a
// time, and it has at most [member.MaxMembers].
func (s *Store) GroupMembers(ctx context.Context) ([]member.Member, error) {
	return list(ctx, s, "list members by group", s.db.Collection(members).Where("fromGroups", "==", true), toMember, oldestMember)
}

// inAtOnce is how many values Firestore takes in one "in".
const inAtOnce = 30

// WaysOf lists how these people sign in.
func (s *Store) WaysOf(ctx context.Context, personIDs []string) ([]member.Identity, []member.Passkey, error) {
	chunks := slices.Collect(slices.Chunk(personIDs, inAtOnce))
	known, keys := make([][]member.Identity, len(chunks)), make([][]member.Passkey, len(chunks))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, people := range chunks {
		g.Go(func() (err error) {
			known[i], err = list(ctx, s, "list identities of people", s.db.Collection(identities).Where("personId", "in", people), toIdentity, nil)
			return err
		})
		g.Go(func() (err error) {
			keys[i], err = list(ctx, s, "list passkeys of people", s.db.Collection(passkeys).Where("personId", "in", people), toPasskey, nil)
			return err
		})
	}
	err := g.Wait()
	return slices.Concat(known...), slices.Concat(keys...), err
}

// Invitations lists an account's invitations, newest first.
func (s *Store) Invitations(ctx context.Context, accountID string) ([]member.Link, error) {
	return list(ctx, s, "list invitations", s.invitations(accountID), toLink, func(a, b member.Link) int {
		return -cmpOr(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
}

// Link finds a one-time link.
func (s *Store) Link(ctx context.Context, hash string) (member.Link, error) {
	return get(ctx, s, "get one-time link", s.doc(links, hash), toLink, member.ErrNoLink)
}

// Session finds a session.
func (s *Store) Session(ctx context.Context, hash string) (member.Session, error) {
	return get(ctx, s, "get session", s.session(hash), toSession, member.ErrNoSession)
}

// Sessions lists a member's open sessions, newest first.
func (s *Store) Sessions(ctx context.Context, memberID string) ([]member.Session, error) {
	return list(ctx, s, "list sessions", s.openSessions(memberID), toSession, func(a, b member.Session) int {
		return -a.CreatedAt.Compare(b.CreatedAt)
	})
}

// Identity finds an identity.
func (s *Store) Identity(ctx context.Context, issuer, subject string) (member.Identity, error) {
	return get(ctx, s, "get identity", s.identity(issuer, subject), toIdentity, member.ErrNoIdentity)
}

// Identities lists a person's identities, oldest first.
func (s *Store) Identities(ctx context.Context, personID string) ([]member.Identity, error) {
	return list(ctx, s, "list identities", s.where(identities, "personId", personID), toIdentity, func(a, b member.Identity) int {
		return a.CreatedAt.Compare(b.CreatedAt)
	})
}

// Passkey finds a passkey.
func (s *Store) Passkey(ctx context.Context, hash string) (member.Passkey, error) {
	return get(ctx, s, "get passkey", s.doc(passkeys, hash), toPasskey, member.ErrNoPasskey)
}

// Passkeys lists a person's passkeys, oldest first.
func (s *Store) Passkeys(ctx context.Context, personID string) ([]member.Passkey, error) {
	return list(ctx, s, "list passkeys", s.where(passkeys, "personId", personID), toPasskey, oldestPasskey)
}

func oldestPasskey(a, b member.Passkey) int { return a.CreatedAt.Compare(b.CreatedAt) }

// Device finds a device's request by what the person typed.
func (s *Store) Device(ctx context.Context, userCode string) (member.Device, error) {
	if len(userCode) > 20 {
		return member.Device{}, member.ErrNoDevice
	}
	found, err := list(ctx, s, "find device", s.where(devices, "userCode", userCode).Limit(1), toDevice, nil)
	if err != nil {
		return member.Device{}, err
	}
	if len(found) == 0 {
		return member.Device{}, member.ErrNoDevice
	}
	return found[0], nil
}

// AddDevice keeps a device's request.
func (s *Store) AddDevice(ctx context.Context, d member.Device) error {
	return s.db.Do(ctx, "add device", func(ctx context.Context) error {
		_, err := s.doc(devices, d.Hash).Create(ctx, fromDevice(d))
		return err
	})
}

// TouchSession notes when a session was last used; account.ErrNoKey if it is gone.
func (s *Store) TouchSession(ctx context.Context, hash string, at time.Time) error {
	return s.db.Do(ctx, "note session use", func(ctx context.Context) error {
		_, err := s.session(hash).Update(ctx, []firestore.Update{{Path: "seenAt", Value: at}})
		// As with keys: Set would bring back a session that was erased or has expired meanwhile.
		return orNone(err, account.ErrNoKey)
	})
}

// Role is the role of a member of the account now.
func (t *transaction) Role(accountID, memberID string) (identity.Role, error) {
	m, err := t.Member(memberID)
	if errors.Is(err, member.ErrNoMember) || err == nil && m.AccountID != accountID {
		return "", nil
	}
	return m.Role, err
}

func (t *transaction) Member(id string) (member.Member, error) {
	return txGet(t, t.s.member(id), toMember, member.ErrNoMember)
}

func (t *transaction) Members(accountID string) ([]member.Member, error) {
	return txList(t, t.s.where(members, "accountId", accountID), toMember, oldestMember)
}

func (t *transaction) Memberships(personID string) ([]member.Member, error) {
	return txList(t, t.s.where(members, "personId", personID), toMember, oldestMember)
}

func (t *transaction) Link(hash string) (member.Link, error) {
	return txGet(t, t.s.doc(links, hash), toLink, member.ErrNoLink)
}

func (t *transaction) LinkByID(id string) (member.Link, error) {
	if len(id) > 64 {
		return member.Link{}, member.ErrNoLink
	}
	found, err := txList(t, t.s.where(links, "id", id).Limit(1), toLink, nil)
	if err != nil {
		return member.Link{}, err
	}
	if len(found) == 0 {
		return member.Link{}, member.ErrNoLink
	}
	return found[0], nil
}

func (t *transaction) OpenLinks(accountID string) ([]member.Link, error) {
	found, err := txList(t, t.s.where(links, "accountId", accountID), toLink, nil)
	if err != nil {
		return nil, err
	}
	// Firestore removes expired links by itself, but up to a day late.
	now := t.s.now()
	return slices.DeleteFunc(found, func(l member.Link) bool { return !now.Before(l.ExpiresAt) }), nil
}

func (t *transaction) Session(hash string) (member.Session, error) {
	return txGet(t, t.s.session(hash), toSession, member.ErrNoSession)
}

func (t *transaction) ActiveSessions(memberID string) ([]member.Session, error) {
	return txList(t, t.s.openSessions(memberID), toSession, nil)
}

func (t *transaction) Identity(issuer, subject string) (member.Identity, error) {
	return txGet(t, t.s.identity(issuer, subject), toIdentity, member.ErrNoIdentity)
}

func (t *transaction) Identities(personID string) ([]member.Identity, error) {
	return txList(t, t.s.where(identities, "personId", personID), toIdentity, nil)
}

func (t *transaction) Passkey(hash string) (member.Passkey, error) {
	return txGet(t, t.s.doc(passkeys, hash), toPasskey, member.ErrNoPasskey)
}

func (t *transaction) Passkeys(personID string) ([]member.Passkey, error) {
	return txList(t, t.s.where(passkeys, "personId", personID), toPasskey, oldestPasskey)
}

func (t *transaction) DeviceByHash(hash string) (member.Device, error) {
	return txGet(t, t.s.doc(devices, hash), toDevice, member.ErrNoDevice)
}

func (t *transaction) PutMember(m member.Member) error {
	return t.tx.Set(t.s.member(m.ID), memberDoc{
		Account: m.AccountID, Person: m.PersonID, Name: m.Name, Email: m.Email, Role: string(m.Role),
		FromGroups: m.FromGroups, GroupUntil: orNil(m.GroupUntil), LinkUsed: fromUse(m.LinkUsed), CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt,
	})
}

func (t *transaction) RemoveMember(m member.Member) error { return t.tx.Delete(t.s.member(m.ID)) }

func (t *transaction) AddLink(l member.Link) error {
	return t.tx.Create(t.s.doc(links, l.Hash), linkDoc{
		ID: l.ID, Kind: string(l.Kind), Account: l.AccountID, Member: l.MemberID, Name: l.Name, Role: string(l.Role),
		ByType: string(l.By.Type), ByID: l.By.ID, ByName: l.By.Name, MadeBy: l.MadeBy, CreatedAt: l.CreatedAt, ExpireAt: l.ExpiresAt,
	})
}

func (t *transaction) RemoveLink(l member.Link) error { return t.tx.Delete(t.s.doc(links, l.Hash)) }

func (t *transaction) AddSession(x member.Session) error {
	return t.tx.Create(t.s.session(x.Hash), sessionDoc{
		ID: x.ID, Account: x.AccountID, Member: x.MemberID, Person: x.PersonID, How: x.How, Client: x.Client,
		Bound: x.Bound, Until: orNil(x.Until), Told: fromUse(x.Told),
		CreatedAt: x.CreatedAt, SeenAt: x.SeenAt, Open: true, ExpireAt: x.CreatedAt.Add(member.SessionLife + 24*time.Hour),
	})
}

// EndSession writes the end, and not seenAt, which TouchSession owns.
func (t *transaction) EndSession(x member.Session) error {
	return t.tx.Update(t.s.session(x.Hash), []firestore.Update{{Path: "endedAt", Value: x.EndedAt}, {Path: "open", Value: false}})
}

func (t *transaction) AddIdentity(i member.Identity) error {
	return t.tx.Create(t.s.identity(i.Issuer, i.Subject), identityDoc{
		Issuer: i.Issuer, Subject: i.Subject, Person: i.PersonID, Email: i.Email, CreatedAt: i.CreatedAt,
	})
}

func (t *transaction) PutPasskey(p member.Passkey) error {
	return t.tx.Set(t.s.doc(passkeys, p.Hash), passkeyDoc{
		ID: p.ID, Person: p.PersonID, Member: p.MemberID, Name: p.Name, Credential: p.Credential, CreatedAt: p.CreatedAt, LastUsedAt: orNil(p.LastUsedAt),
	})
}

func (t *transaction) RemovePasskey(p member.Passkey) error {
	return t.tx.Delete(t.s.doc(passkeys, p.Hash))
}

func (t *transaction) PutDevice(d member.Device) error {
	return t.tx.Set(t.s.doc(devices, d.Hash), fromDevice(d))
}

func (t *transaction) RemoveDevice(d member.Device) error {
	return t.tx.Delete(t.s.doc(devices, d.Hash))
}

func (t *transaction) UseOnce(name string, until time.Time) error {
	// Create fails when the document exists, also when two replicas try at the same moment.
	return t.tx.Create(t.s.doc(used, hashOf(name)), map[string]any{"expireAt": until})
}

func (s *Store) member(id string) *firestore.DocumentRef    { return s.doc(members, id) }
func (s *Store) session(hash string) *firestore.DocumentRef { return s.doc(sessions, hash) }

// identity names an identity by hash: issuers are addresses, which a document's
// name cannot hold.
func (s *Store) identity(issuer, subject string) *firestore.DocumentRef {
	return s.doc(identities, hashOf(issuer+"\x00"+subject))
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// doc is a document by an id that may be a caller's words. What cannot be an id
// of ours becomes one that no document has.
func (s *Store) doc(collection, id string) *firestore.DocumentRef {
	if id == "" || len(id) > 64 || strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" || strings.HasPrefix(id, "__") {
		id = "none"
	}
	return s.db.Collection(collection).Doc(id)
}

func (s *Store) where(collection, field, value string) firestore.Query {
	return s.db.Collection(collection).Where(field, "==", value)
}

func (s *Store) invitations(accountID string) firestore.Query {
	return s.where(links, "accountId", accountID).Where("kind", "==", string(member.Invitation))
}

func (s *Store) openSessions(memberID string) firestore.Query {
	return s.where(sessions, "memberId", memberID).Where("open", "==", true)
}

func get[T any](ctx context.Context, s *Store, what string, ref *firestore.DocumentRef, read func(*firestore.DocumentSnapshot) (T, error), none error) (out T, err error) {
	err = s.db.Do(ctx, what, func(ctx context.Context) error {
		snap, err := ref.Get(ctx)
		if err != nil {
			return orNone(err, none)
		}
		out, err = read(snap)
		return err
	})
	return out, err
}

func list[T any](ctx context.Context, s *Store, what string, q firestore.Query, read func(*firestore.DocumentSnapshot) (T, error), order func(a, b T) int) (out []T, err error) {
	err = s.db.Do(ctx, what, func(ctx context.Context) error {
		out, err = all(q.Documents(ctx), read, order)
		return err
	})
	return out, err
}

func txGet[T any](t *transaction, ref *firestore.DocumentRef, read func(*firestore.DocumentSnapshot) (T, error), none error) (out T, err error) {
	snap, err := t.tx.Get(ref)
	if err != nil {
		return out, orNone(err, none)
	}
	return read(snap)
}

func txList[T any](t *transaction, q firestore.Query, read func(*firestore.DocumentSnapshot) (T, error), order func(a, b T) int) ([]T, error) {
	return all(t.tx.Documents(q), read, order)
}

func all[T any](it *firestore.DocumentIterator, read func(*firestore.DocumentSnapshot) (T, error), order func(a, b T) int) ([]T, error) {
	snaps, err := it.GetAll()
	if err != nil {
		return nil, fmt.Errorf("read documents: %w", err)
	}
	out := make([]T, len(snaps))
	for i, snap := range snaps {
		if out[i], err = read(snap); err != nil {
			return nil, err
		}
	}
	if order != nil {
		slices.SortFunc(out, order)
	}
	return out, nil
}

func orNone(err, none error) error {
	if errors.Is(firestoredb.Map(err), firestoredb.ErrNotFound) {
		return none
	}
	return err
}

func toMember(snap *firestore.DocumentSnapshot) (member.Member, error) {
	var d memberDoc
	if err := snap.DataTo(&d); err != nil {
		return member.Member{}, fmt.Errorf("read member: %w", err)
	}
	role, err := identity.ParseRole(d.Role)
	if err != nil {
		return member.Member{}, fmt.Errorf("member %s: %w", snap.Ref.ID, err)
	}
	return member.Member{
		ID: snap.Ref.ID, AccountID: d.Account, PersonID: d.Person, Name: d.Name, Email: d.Email, Role: role,
		FromGroups: d.FromGroups, GroupUntil: orZero(d.GroupUntil), LinkUsed: toUse(d.LinkUsed), CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt,
	}, nil
}

func fromUse(u member.LinkUse) *linkUse {
	if u == (member.LinkUse{}) {
		return nil
	}
	return &linkUse{u.By, u.At}
}

func toUse(u *linkUse) member.LinkUse {
	if u == nil {
		return member.LinkUse{}
	}
	return member.LinkUse{By: u.By, At: u.At}
}

func toLink(snap *firestore.DocumentSnapshot) (member.Link, error) {
	var d linkDoc
	if err := snap.DataTo(&d); err != nil {
		return member.Link{}, fmt.Errorf("read one-time link: %w", err)
	}
	return member.Link{
		ID: d.ID, Hash: snap.Ref.ID, Kind: member.Kind(d.Kind), AccountID: d.Account, MemberID: d.Member, Name: d.Name, Role: identity.Role(d.Role),
		By: events.Actor{Type: events.ActorType(d.ByType), ID: d.ByID, Name: d.ByName}, MadeBy: d.MadeBy, CreatedAt: d.CreatedAt, ExpiresAt: d.ExpireAt,
	}, nil
}

func toSession(snap *firestore.DocumentSnapshot) (member.Session, error) {
	var d sessionDoc
	if err := snap.DataTo(&d); err != nil {
		return member.Session{}, fmt.Errorf("read session: %w", err)
	}
	return member.Session{
		ID: d.ID, Hash: snap.Ref.ID, AccountID: d.Account, MemberID: d.Member, PersonID: d.Person, How: d.How, Client: d.Client,
		Bound: d.Bound, Until: orZero(d.Until), Told: toUse(d.Told),
		CreatedAt: d.CreatedAt, SeenAt: d.SeenAt, EndedAt: orZero(d.EndedAt),
	}, nil
}

func toIdentity(snap *firestore.DocumentSnapshot) (member.Identity, error) {
	var d identityDoc
	if err := snap.DataTo(&d); err != nil {
		return member.Identity{}, fmt.Errorf("read identity: %w", err)
	}
	return member.Identity{Issuer: d.Issuer, Subject: d.Subject, PersonID: d.Person, Email: d.Email, CreatedAt: d.CreatedAt}, nil
}

func toPasskey(snap *firestore.DocumentSnapshot) (member.Passkey, error) {
	var d passkeyDoc
	if err := snap.DataTo(&d); err != nil {
		return member.Passkey{}, fmt.Errorf("read passkey: %w", err)
	}
	return member.Passkey{
		ID: d.ID, Hash: snap.Ref.ID, PersonID: d.Person, MemberID: d.Member, Name: d.Name, Credential: d.Credential, CreatedAt: d.CreatedAt, LastUsedAt: orZero(d.LastUsedAt),
	}, nil
}

func toDevice(snap *firestore.DocumentSnapshot) (member.Device, error) {
	var d deviceDoc
	if err := snap.DataTo(&d); err != nil {
		return member.Device{}, fmt.Errorf("read device request: %w", err)
	}
	out := member.Device{
		Hash: snap.Ref.ID, UserCode: d.UserCode, Name: d.Name, AccountID: d.Account, MemberID: d.Member,
		Denied: d.Denied, CreatedAt: d.CreatedAt, ExpiresAt: d.ExpireAt,
	}
	for _, s := range d.Scopes {
		if scope, err := identity.ParseScope(s); err == nil {
			out.Scopes = append(out.Scopes, scope)
		}
	}
	return out, nil
}

func fromDevice(d member.Device) deviceDoc {
	out := deviceDoc{
		UserCode: d.UserCode, Name: d.Name, Account: d.AccountID, Member: d.MemberID, Denied: d.Denied,
		CreatedAt: d.CreatedAt, ExpireAt: d.ExpiresAt,
	}
	for _, s := range d.Scopes {
		out.Scopes = append(out.Scopes, string(s))
	}
	return out
}

// PurgePeople deletes every member, session, invitation and device request of an
// account, and the identities and passkeys of people who are then in no account.
// It may be repeated and reports whether nothing is left.
func (s *Store) PurgePeople(ctx context.Context, accountID string) (bool, error) {
	people, err := s.peopleOf(ctx, accountID)
	if err != nil {
		return false, err
	}
	// How people sign in goes first and members go last: members lead to the persons, so a call
	// that is cut off finds them again when it is repeated.
	for person := range people {
		if err := s.forgetPerson(ctx, accountID, person); err != nil {
			return false, err
		}
	}
	for _, collection := range []string{sessions, links, devices, members} {
		done, err := s.purge(ctx, s.where(collection, "accountId", accountID))
		if err != nil || !done {
			return false, err
		}
	}
	return true, nil
}

// peopleOf are the persons of an account: its members, and those who were removed
// and were signed in lately.
func (s *Store) peopleOf(ctx context.Context, accountID string) (map[string]bool, error) {
	mine, err := s.Members(ctx, accountID)
	if err != nil {
		return nil, err
	}
	people := map[string]bool{}
	for _, m := range mine {
		people[m.PersonID] = true
	}
	signedIn, err := list(ctx, s, "list sessions of an account", s.where(sessions, "accountId", accountID), toSession, func(a, b member.Session) int { return strings.Compare(a.ID, b.ID) })
	for _, x := range signedIn {
		people[x.PersonID] = true
	}
	delete(people, "")
	return people, err
}

// forgetPerson forgets how a person signs in, unless they are in another account.
// One that is being erased too does not count: the two would wait for each other.
func (s *Store) forgetPerson(ctx context.Context, accountID, personID string) error {
	in, err := s.Memberships(ctx, personID)
	if err != nil {
		return err
	}
	for _, x := range in {
		if x.AccountID == accountID {
			continue
		}
		other, err := s.Account(ctx, x.AccountID)
		if err != nil && !errors.Is(err, account.ErrNoAccount) {
			return err
		}
		if err == nil && !other.Deleting {
			return nil
		}
	}
	for _, collection := range []string{identities, passkeys} { // far fewer than a batch
		if _, err := s.purge(ctx, s.where(collection, "personId", personID)); err != nil {
			return err
		}
	}
	return nil
}

// purgeBatch is how many documents one pass deletes; a commit takes 500.
const purgeBatch = 400

func (s *Store) purge(ctx context.Context, q firestore.Query) (done bool, err error) {
	found, err := s.db.Find(ctx, "find people to purge", q.Limit(purgeBatch))
	if err != nil {
		return true, err
	}
	return len(found) < purgeBatch, s.db.DeleteAll(ctx, "purge people", found...)
}
