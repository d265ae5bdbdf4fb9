package store

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// owner holds the account and the member of a key or session.
type owner struct {
	account string
	member  string // "" for a key that wasn't created by a member
	session bool
}

// Credential looks up a key or session by hash, with its account and its member. They are all from
// the same point in time: the documents in one batch read form a consistent snapshot. It returns
// account.ErrNoKey if there is no such key.
func (s *Store) Credential(ctx context.Context, hash string) (c account.Credential, err error) {
	of, known := s.owners.GetIfPresent(hash)
	if !known {
		if of, err = s.ownerOf(ctx, hash); err != nil {
			return c, err
		}
		// Do not cache an unknown hash: the key may be created soon, and callers already cache
		// misses for a few seconds.
		s.owners.Set(hash, of)
	}
	kept := keys.collection
	if of.session {
		kept = sessions.collection
	}
	snaps, err := s.db.Read(ctx, "read key and account",
		s.db.Ref(kept, hash), s.db.Ref(accounts.collection, of.account), s.db.Ref(members.collection, of.member))
	if err != nil {
		return c, err
	}
	found := map[string]firestoredb.Snap{} // by collection
	for _, snap := range snaps {
		found[snap.Ref.Parent.ID] = snap
	}
	if found[kept] == nil || found[accounts.collection] == nil {
		// Make the next call search keys and sessions again.
		s.owners.Invalidate(hash)
		return c, account.ErrNoKey
	}
	return credential(found, of)
}

// CredentialByID is Credential for a key's public id. It returns account.ErrNoKey if the account
// has no such key.
func (s *Store) CredentialByID(ctx context.Context, accountID, id string) (account.Credential, error) {
	hash, known := s.hashes.GetIfPresent(id)
	if !known {
		k, err := s.Key(ctx, accountID, id)
		if err != nil {
			return account.Credential{}, err
		}
		hash = k.Hash
		s.hashes.Set(id, hash)
		s.owners.Set(hash, owner{account: k.AccountID, member: k.MadeBy})
	}
	c, err := s.Credential(ctx, hash)
	if err == nil && c.Account.ID != accountID {
		return account.Credential{}, account.ErrNoKey
	}
	return c, err
}

// ownerOf searches both keys and sessions for the hash in one round trip because the hash may
// belong to either.
func (s *Store) ownerOf(ctx context.Context, hash string) (owner, error) {
	key, session := s.db.Ref(keys.collection, hash), s.db.Ref(sessions.collection, hash)
	if key == nil {
		return owner{}, account.ErrNoKey
	}
	snaps, err := s.db.Read(ctx, "find key", key, session)
	switch {
	case err != nil:
		return owner{}, err
	case len(snaps) == 0:
		return owner{}, account.ErrNoKey
	case snaps[0].Ref.Parent.ID == keys.collection:
		k, err := keys.read(snaps[0])
		return owner{account: k.AccountID, member: k.MadeBy}, err
	}
	x, err := sessions.read(snaps[0])
	return owner{account: x.AccountID, member: x.MemberID, session: true}, err
}

func credential(found map[string]firestoredb.Snap, of owner) (c account.Credential, err error) {
	if c.Account, err = accounts.read(found[accounts.collection]); err != nil {
		return c, err
	}
	// A removed member's credential keeps the member's id but has no role, so it does not have any
	// scopes. Without the id, Scopes would fall back to the key's own scopes.
	c.Member.ID = of.member
	if snap := found[members.collection]; snap != nil {
		m, err := members.read(snap)
		if err != nil {
			return c, err
		}
		c.Member.Name, c.Member.Role = m.Name, m.Role
	}
	if of.session {
		x, err := sessions.read(found[sessions.collection])
		if err != nil {
			return c, err
		}
		c.Session, c.Key = true, x.Key(c.Member.Role)
	} else if c.Key, err = keys.read(found[keys.collection]); err != nil {
		return c, err
	}
	if of.member != "" && c.Member.Role == "" && c.Key.RevokedAt.IsZero() {
		c.Key.RevokedAt = c.Key.CreatedAt // the member was removed
	}
	return c, nil
}

// Touch records when a key or a session was last used. It returns account.ErrNoKey if the key
// or session no longer exists.
func (s *Store) Touch(ctx context.Context, hash string, session bool, at time.Time) error {
	ref, field := s.db.Ref(keys.collection, hash), "lastUsedAt"
	if session {
		ref, field = s.db.Ref(sessions.collection, hash), "seenAt"
	}
	// Update fails if the document does not exist. Set would restore a key that was just erased.
	err := s.db.Update(ctx, "note use", ref, []firestore.Update{{Path: field, Value: at}})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return account.ErrNoKey
	}
	return err
}
