package store

import (
	"context"
	"slices"

	"cloud.google.com/go/firestore"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/services/auth/internal/member"
)

func (r reads) Member(accountID, id string) (member.Member, error) {
	m, err := one(r, members, id)
	if err == nil && accountID != "" && m.AccountID != accountID {
		return member.Member{}, member.ErrNoMember
	}
	return m, err
}

func (r reads) Members(accountID string) ([]member.Member, error) {
	return many(r, members, r.s.where(members.collection, "accountId", accountID))
}

func (r reads) Memberships(personID string) ([]member.Member, error) {
	return many(r, members, r.s.where(members.collection, "personId", personID))
}

func (r reads) Link(hash string) (member.Link, error) { return one(r, links, hash) }

func (r reads) LinkByID(id string) (member.Link, error) { return first(r, links, "id", id) }

func (r reads) OpenLinks(accountID string) ([]member.Link, error) {
	found, err := many(r, links, r.s.where(links.collection, "accountId", accountID))
	// Firestore removes expired links automatically, but it may take up to a day.
	now := r.s.db.Now()
	return slices.DeleteFunc(found, func(l member.Link) bool { return !now.Before(l.ExpiresAt) }), err
}

func (r reads) Session(hash string) (member.Session, error) { return one(r, sessions, hash) }

func (r reads) Sessions(memberID string) ([]member.Session, error) {
	return many(r, sessions, r.s.where(sessions.collection, "memberId", memberID).Where("open", "==", true))
}

func (r reads) Identity(issuer, subject string) (member.Identity, error) {
	return one(r, identities, identityID(issuer, subject))
}

func (r reads) Identities(personID string) ([]member.Identity, error) {
	return many(r, identities, r.s.where(identities.collection, "personId", personID))
}

func (r reads) Passkey(hash string) (member.Passkey, error) { return one(r, passkeys, hash) }

func (r reads) Passkeys(personID string) ([]member.Passkey, error) {
	return many(r, passkeys, r.s.where(passkeys.collection, "personId", personID))
}

func (r reads) DeviceByHash(hash string) (member.Device, error) { return one(r, devices, hash) }

func (r reads) Device(userCode string) (member.Device, error) {
	return first(r, devices, "userCode", userCode)
}

// GroupMembers lists all group-based members. Only one account at a time has a group map, and
// an account has at most [member.MaxMembers] members.
func (s *Store) GroupMembers(ctx context.Context) ([]member.Member, error) {
	return many(s.look(ctx), members, s.where(members.collection, "fromGroups", true))
}

// inAtOnce is the maximum number of values in a Firestore "in" filter.
const inAtOnce = 30

// WaysOf lists these people's identities and passkeys.
func (s *Store) WaysOf(ctx context.Context, personIDs []string) ([]member.Identity, []member.Passkey, error) {
	chunks := slices.Collect(slices.Chunk(personIDs, inAtOnce))
	known, signing := make([][]member.Identity, len(chunks)), make([][]member.Passkey, len(chunks))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	of := func(collection string, people []string) firestore.Query {
		return s.db.Collection(collection).Where("personId", "in", people)
	}
	// Each query sets its own element, so the goroutines do not need a lock.
	for i, people := range chunks {
		g.Go(func() (err error) {
			known[i], err = many(s.look(ctx), identities, of(identities.collection, people))
			return err
		})
		g.Go(func() (err error) {
			signing[i], err = many(s.look(ctx), passkeys, of(passkeys.collection, people))
			return err
		})
	}
	err := g.Wait()
	return slices.Concat(known...), slices.Concat(signing...), err
}
