package store

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// owner is what a key's record points to.
type owner struct {
	account string
	member  string // "" for a key that no member made
	session bool
}

// Credential finds a key or session by hash, with its account and its member, as
// all were at one instant: the documents of one batch read are a consistent
// snapshot. account.ErrNoKey means that there is no such key.
func (s *Store) Credential(ctx context.Context, hash string) (c account.Credential, err error) {
	of, known := s.owners.GetIfPresent(hash)
	if !known {
		if of, err = s.ownerOf(ctx, hash); err != nil {
			return c, err
		}
		// A hash that is unknown is not remembered here: the key may be created a moment later, and
		// callers remember misses for some seconds already.
		s.owners.Set(hash, of)
	}
	kept := keys.collection
	if of.session {
		kept = sessions.collection
	}
	refs := []firestoredb.Ref{s.db.Ref(kept, hash), s.db.Ref(accounts.collection, of.account)}
	if of.member != "" {
		refs = append(refs, s.db.Ref(members.collection, of.member))
	}
	snaps, err := s.getAll(ctx, refs)
	if err != nil {
		return c, err
	}
	if !snaps[0].Exists() || !snaps[1].Exists() {
		// The next call looks among keys and sessions again.
		s.owners.Invalidate(hash)
		return c, account.ErrNoKey
	}
	return credential(snaps, of)
}

func (s *Store) getAll(ctx context.Context, refs []firestoredb.Ref) (snaps []firestoredb.Snap, err error) {
	err = s.db.Do(ctx, "get key and account", func(ctx context.Context) error {
		snaps, err = s.db.GetAll(ctx, refs)
		return err
	})
	return snaps, err
}

// ownerOf looks for the hash among keys and sessions in one round trip: the hash
// does not tell which it is.
func (s *Store) ownerOf(ctx context.Context, hash string) (owner, error) {
	key, session := s.db.Ref(keys.collection, hash), s.db.Ref(sessions.collection, hash)
	if key == nil {
		return owner{}, account.ErrNoKey
	}
	snaps, err := s.getAll(ctx, []firestoredb.Ref{key, session})
	if err != nil {
		return owner{}, err
	}
	switch {
	case snaps[0].Exists():
		k, err := keys.read(snaps[0])
		return owner{account: k.AccountID, member: k.MadeBy}, err
	case snaps[1].Exists():
		x, err := sessions.read(snaps[1])
		return owner{account: x.AccountID, member: x.MemberID, session: true}, err
	}
	return owner{}, account.ErrNoKey
}

func credential(snaps []firestoredb.Snap, of owner) (c account.Credential, err error) {
	if c.Account, err = accounts.read(snaps[1]); err != nil {
		return c, err
	}
	if of.member != "" {
		// A member who is gone keeps the id and has no role, which gives no scopes. Without the id,
		// Scopes would fall back to the key's own.
		c.Member = account.Member{ID: of.member}
		if snaps[2].Exists() {
			m, err := members.read(snaps[2])
			if err != nil {
				return c, err
			}
			c.Member = account.Member{ID: m.ID, Name: m.Name, Role: m.Role}
		}
	}
	if of.session {
		x, err := sessions.read(snaps[0])
		if err != nil {
			return c, err
		}
		c.Session, c.Key = true, x.Key(c.Member.Role)
	} else if c.Key, err = keys.read(snaps[0]); err != nil {
		return c, err
	}
	if of.member != "" && c.Member.Role == "" && c.Key.RevokedAt.IsZero() {
		c.Key.RevokedAt = c.Key.CreatedAt // whoever made it, or signed in, was removed
	}
	return c, nil
}

// Touch notes when a key or a session was last used; account.ErrNoKey if it is gone.
func (s *Store) Touch(ctx context.Context, hash string, session bool, at time.Time) error {
	ref, field := s.db.Ref(keys.collection, hash), "lastUsedAt"
	if session {
		ref, field = s.db.Ref(sessions.collection, hash), "seenAt"
	}
	// It fails where there is no document. Set would bring back a key that was just erased.
	err := s.db.Update(ctx, "note use", ref, []firestore.Update{{Path: field, Value: at}})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return account.ErrNoKey
	}
	return err
}
