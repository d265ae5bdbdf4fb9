package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// kind describes how one kind of record is stored and read.
type kind[T any] struct {
	collection string
	read       func(firestoredb.Snap) (T, error)
	none       error            // returned if there is no such record
	order      func(a, b T) int // sorts lists; may be nil
}

// used is the collection where [transaction.UseOnce] stores used names.
const used = "usedOnce"

var (
	accounts = kind[account.Account]{"accounts", firestoredb.Reader(toAccount), account.ErrNoAccount, nil}
	keys     = kind[account.Key]{"keys", firestoredb.Reader(toKey), account.ErrNoKey, func(a, b account.Key) int {
		return paging.Newest(a.Place(), b.Place())
	}}
	members = kind[member.Member]{"members", readMember, member.ErrNoMember, func(a, b member.Member) int {
		return paging.Oldest(a.Place(), b.Place())
	}}
	links = kind[member.Link]{"oneTimeLinks", firestoredb.Reader(toLink), member.ErrNoLink, func(a, b member.Link) int {
		return paging.Newest(a.Place(), b.Place())
	}}
	sessions = kind[member.Session]{"sessions", firestoredb.Reader(toSession), member.ErrNoSession, func(a, b member.Session) int {
		return -a.CreatedAt.Compare(b.CreatedAt) // newest first
	}}
	identities = kind[member.Identity]{"identities", firestoredb.Reader(toIdentity), member.ErrNoIdentity, func(a, b member.Identity) int {
		return a.CreatedAt.Compare(b.CreatedAt)
	}}
	passkeys = kind[member.Passkey]{"passkeys", firestoredb.Reader(toPasskey), member.ErrNoPasskey, func(a, b member.Passkey) int {
		return a.CreatedAt.Compare(b.CreatedAt)
	}}
	devices = kind[member.Device]{"deviceRequests", firestoredb.Reader(toDevice), member.ErrNoDevice, nil}
)

// Transient returns the collections of sessions, one-time links and devices.
func Transient() []string { return []string{sessions.collection, links.collection, devices.collection} }

// EndTransient removes all documents in the collections of [Transient].
func (s *Store) EndTransient(ctx context.Context) error {
	for _, c := range Transient() {
		if err := s.db.EraseAll(ctx, "end "+c, s.db.Collection(c).Query, purgeBatch); err != nil {
			return err
		}
	}
	return nil
}

type accountDoc struct {
	Name      string        `firestore:"name"`
	Plan      identity.Plan `firestore:"plan"`
	Suspended bool          `firestore:"suspended"`
	Version   int64         `firestore:"version"`
	CreatedAt time.Time     `firestore:"createdAt"`
	// Most records lack the fields below.
	Pending  bool      `firestore:"pending,omitempty"`
	Deleting bool      `firestore:"deleting,omitempty"`
	Limits   limitsDoc `firestore:"limits,omitzero"`
	Domain   string    `firestore:"defaultDomainId,omitempty"`
}

type limitsDoc struct {
	Links       int64 `firestore:"links,omitempty"`
	Videos      int64 `firestore:"videos,omitempty"`
	Domains     int64 `firestore:"domains,omitempty"`
	StoredBytes int64 `firestore:"storedBytes,omitempty"`
}

type keyDoc struct {
	ID         string            `firestore:"id"`
	Account    string            `firestore:"accountId"`
	Name       string            `firestore:"name"`
	Prefix     string            `firestore:"prefix"`
	Last4      string            `firestore:"last4"`
	Scopes     identity.ScopeSet `firestore:"scopes"`
	MadeBy     string            `firestore:"madeBy,omitempty"` // the member who created the key
	CreatedAt  time.Time         `firestore:"createdAt"`
	LastUsedAt time.Time         `firestore:"lastUsedAt,omitzero"`
	ExpiresAt  int64             `firestore:"expiresAt"` // in milliseconds because callers may send dates that a timestamp cannot represent
	RevokedAt  time.Time         `firestore:"revokedAt,omitzero"`
	InUse      bool              `firestore:"inUse"` // counts towards the key limit; false once the key is revoked or found to have expired
}

type (
	memberDoc struct {
		Account    string `firestore:"accountId"`
		Person     string `firestore:"personId"`
		Name       string `firestore:"name"`
		Email      string `firestore:"email"`
		Role       string `firestore:"role"`
		FromGroups bool   `firestore:"fromGroups,omitempty"`
		// Most records lack the next two fields.
		GroupUntil time.Time `firestore:"groupUntil,omitzero"`
		LinkUsed   linkUse   `firestore:"linkUsed,omitzero"`
		CreatedAt  time.Time `firestore:"createdAt"`
		UpdatedAt  time.Time `firestore:"updatedAt"`
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
		ID        string    `firestore:"id"`
		Account   string    `firestore:"accountId"`
		Member    string    `firestore:"memberId"`
		Person    string    `firestore:"personId"`
		How       string    `firestore:"how"`
		Bound     bool      `firestore:"bound"`
		Until     time.Time `firestore:"until,omitzero"`
		Told      linkUse   `firestore:"told,omitzero"`
		Client    string    `firestore:"client"`
		CreatedAt time.Time `firestore:"createdAt"`
		SeenAt    time.Time `firestore:"seenAt"`
		EndedAt   time.Time `firestore:"endedAt,omitzero"`
		Open      bool      `firestore:"open"`
		ExpireAt  time.Time `firestore:"expireAt"` // a day after the session expires; until then, it is rejected as expired rather than unknown
	}
	identityDoc struct {
		Issuer    string    `firestore:"issuer"`
		Subject   string    `firestore:"subject"`
		PersonID  string    `firestore:"personId"`
		Email     string    `firestore:"email"`
		CreatedAt time.Time `firestore:"createdAt"`
	}
	passkeyDoc struct {
		ID         string    `firestore:"id"`
		Hash       string    `firestore:"-"` // used as the document's name
		PersonID   string    `firestore:"personId"`
		MemberID   string    `firestore:"memberId"` // the only membership it is valid for; "" for all
		Name       string    `firestore:"name"`
		Credential []byte    `firestore:"credential"`
		CreatedAt  time.Time `firestore:"createdAt"`
		LastUsedAt time.Time `firestore:"lastUsedAt,omitzero"`
	}
	deviceDoc struct {
		Hash      string            `firestore:"-"` // used as the document's name
		UserCode  string            `firestore:"userCode"`
		Name      string            `firestore:"name"`
		Scopes    identity.ScopeSet `firestore:"scopes"`
		AccountID string            `firestore:"accountId"`
		MemberID  string            `firestore:"memberId"`
		Denied    bool              `firestore:"denied"`
		CreatedAt time.Time         `firestore:"createdAt"`
		ExpiresAt time.Time         `firestore:"expireAt"`
	}
)

func toAccount(snap firestoredb.Snap, d *accountDoc) account.Account {
	return account.Account{
		ID: snap.Ref.ID, Name: d.Name, Plan: d.Plan, Suspended: d.Suspended, Version: d.Version, CreatedAt: d.CreatedAt,
		Deleting: d.Deleting, Pending: d.Pending, Limits: account.Limits(d.Limits), DefaultDomainID: d.Domain,
	}
}

func fromAccount(a account.Account) accountDoc {
	return accountDoc{
		Name: a.Name, Plan: a.Plan, Suspended: a.Suspended, Version: a.Version, CreatedAt: a.CreatedAt,
		Deleting: a.Deleting, Pending: a.Pending, Limits: limitsDoc(a.Limits), Domain: a.DefaultDomainID,
	}
}

func toKey(snap firestoredb.Snap, d *keyDoc) account.Key {
	return account.Key{
		ID: d.ID, AccountID: d.Account, Hash: snap.Ref.ID, Name: d.Name, Prefix: d.Prefix, Last4: d.Last4, MadeBy: d.MadeBy,
		Scopes: known(d.Scopes), CreatedAt: d.CreatedAt, LastUsedAt: d.LastUsedAt,
		ExpiresAt: time.UnixMilli(d.ExpiresAt).UTC(), RevokedAt: d.RevokedAt,
	}
}

// known drops scopes that a newer release wrote and this release does not recognize. If it kept
// them, a key could grant them unchecked, and they would exceed every role.
func known(set identity.ScopeSet) identity.ScopeSet { return set & identity.AllScopes }

func fromKey(k account.Key) keyDoc {
	// InUse remains true for an expired key until Add retires it, so readers also check the
	// expiry.
	return keyDoc{
		ID: k.ID, Account: k.AccountID, Name: k.Name, Prefix: k.Prefix, Last4: k.Last4, MadeBy: k.MadeBy, Scopes: k.Scopes,
		CreatedAt: k.CreatedAt, LastUsedAt: k.LastUsedAt, ExpiresAt: k.ExpiresAt.UnixMilli(), RevokedAt: k.RevokedAt, InUse: k.RevokedAt.IsZero(),
	}
}

func readMember(snap firestoredb.Snap) (member.Member, error) {
	d, err := firestoredb.As[memberDoc](snap)
	if err != nil {
		return member.Member{}, err
	}
	role, err := identity.ParseRole(d.Role)
	if err != nil {
		return member.Member{}, fmt.Errorf("member %s: %w", snap.Ref.ID, err)
	}
	return member.Member{
		ID: snap.Ref.ID, AccountID: d.Account, PersonID: d.Person, Name: d.Name, Email: d.Email, Role: role, FromGroups: d.FromGroups,
		GroupUntil: d.GroupUntil, LinkUsed: member.LinkUse(d.LinkUsed), CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt,
	}, nil
}

func fromMember(m member.Member) memberDoc {
	return memberDoc{
		Account: m.AccountID, Person: m.PersonID, Name: m.Name, Email: m.Email, Role: string(m.Role), FromGroups: m.FromGroups,
		GroupUntil: m.GroupUntil, LinkUsed: linkUse(m.LinkUsed), CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt,
	}
}

func toLink(snap firestoredb.Snap, d *linkDoc) member.Link {
	return member.Link{
		ID: d.ID, Hash: snap.Ref.ID, Kind: member.Kind(d.Kind), AccountID: d.Account, MemberID: d.Member,
		Name: d.Name, Role: identity.Role(d.Role),
		By: events.Actor{Type: events.ActorType(d.ByType), ID: d.ByID, Name: d.ByName}, MadeBy: d.MadeBy,
		CreatedAt: d.CreatedAt, ExpiresAt: d.ExpireAt,
	}
}

func fromLink(l member.Link) linkDoc {
	return linkDoc{
		ID: l.ID, Kind: string(l.Kind), Account: l.AccountID, Member: l.MemberID, Name: l.Name, Role: string(l.Role),
		ByType: string(l.By.Type), ByID: l.By.ID, ByName: l.By.Name, MadeBy: l.MadeBy, CreatedAt: l.CreatedAt, ExpireAt: l.ExpiresAt,
	}
}

func toSession(snap firestoredb.Snap, d *sessionDoc) member.Session {
	return member.Session{
		ID: d.ID, Hash: snap.Ref.ID, AccountID: d.Account, MemberID: d.Member, PersonID: d.Person, How: d.How, Client: d.Client,
		Bound: d.Bound, Until: d.Until, Told: member.LinkUse(d.Told),
		CreatedAt: d.CreatedAt, SeenAt: d.SeenAt, EndedAt: d.EndedAt,
	}
}

func fromSession(x member.Session) sessionDoc {
	return sessionDoc{
		ID: x.ID, Account: x.AccountID, Member: x.MemberID, Person: x.PersonID, How: x.How, Client: x.Client,
		Bound: x.Bound, Until: x.Until, Told: linkUse(x.Told), CreatedAt: x.CreatedAt, SeenAt: x.SeenAt,
		EndedAt: x.EndedAt, Open: x.EndedAt.IsZero(), ExpireAt: x.CreatedAt.Add(member.SessionLife + 24*time.Hour),
	}
}

func toIdentity(_ firestoredb.Snap, d *identityDoc) member.Identity { return member.Identity(*d) }

// identityID returns an identity's document name. It is a hash because an issuer is a URL, and
// document names cannot contain slashes.
func identityID(issuer, subject string) string { return hashOf(issuer + "\x00" + subject) }

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func toPasskey(snap firestoredb.Snap, d *passkeyDoc) member.Passkey {
	d.Hash = snap.Ref.ID
	return member.Passkey(*d)
}

func toDevice(snap firestoredb.Snap, d *deviceDoc) member.Device {
	d.Hash, d.Scopes = snap.Ref.ID, known(d.Scopes)
	return member.Device(*d)
}
