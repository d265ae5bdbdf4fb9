package auth

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/api"
	"github.com/linkreel/linkreel/services/auth/internal/store"
)

// Bootstrap makes an account with one key that may do everything, and returns
// the account's id and the key. It needs Firestore only, so an operator can use
// it before anything else runs.
func Bootstrap(ctx context.Context, db *firestoredb.DB, name string, plan identity.Plan) (accountID string, key identity.Key, err error) {
	// A new account is in no replica's memory, so there is nobody to notify.
	accounts := account.NewService(open(db), silent{}, nil, nil)
	made, err := accounts.Create(ctx, name, plan)
	if err != nil {
		return "", identity.Key{}, fmt.Errorf("bootstrap: %w", err)
	}
	if key, err = identity.NewKey(rand.Reader); err != nil {
		return "", identity.Key{}, fmt.Errorf("bootstrap: %w", err)
	}
	_, err = accounts.CreateKey(ctx, account.NewKey{
		ID: identity.NewID("key"), Key: key, AccountID: made.ID, Name: "First key", Scopes: identity.AllScopes(),
	})
	if err != nil {
		return "", identity.Key{}, fmt.Errorf("bootstrap: %w", err)
	}
	return made.ID, key, nil
}

// EnsureDemo gives a key that works for a demonstration account of the plan: the
// one in secret, if it still does, or that of a new account. The caller keeps
// what is returned for the next time.
func EnsureDemo(ctx context.Context, db *firestoredb.DB, plan identity.Plan, secret string) (string, error) {
	if key, err := identity.ParseKey(secret); err == nil {
		works, err := works(ctx, db, key, plan)
		if err != nil {
			return "", fmt.Errorf("look for demo key: %w", err)
		}
		if works {
			return secret, nil
		}
	}
	_, key, err := Bootstrap(ctx, db, "Demo ("+plan.String()+")", plan)
	if err != nil {
		return "", err
	}
	return key.Secret(), nil
}

// works reports whether key may do everything on an account of exactly plan. A
// demo key that an earlier version made lacks the scopes that came later; it gets
// them here, so that an upgrade does not swap the account under its user.
func works(ctx context.Context, db *firestoredb.DB, key identity.Key, plan identity.Plan) (bool, error) {
	kept := open(db)
	c, err := kept.Credential(ctx, key.Hash())
	k, a := c.Key, c.Account
	if errors.Is(err, account.ErrNoKey) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !k.RevokedAt.IsZero() || !k.ExpiresAt.IsZero() || !k.Scopes.Covers(identity.DefaultScopes()) || a.Plan != plan || a.Suspended {
		return false, nil
	}
	if k.Scopes.Covers(identity.AllScopes()) {
		return true, nil
	}
	return true, kept.Atomically(ctx, "widen demo key", func(tx account.Tx) error {
		a, err := tx.Account(k.AccountID)
		if err != nil {
			return err
		}
		k.Scopes = identity.AllScopes()
		a.Version++
		return errors.Join(tx.PutKey(k), tx.PutAccount(a))
	})
}

// open is a store whose events wait for the events service to find them: there is
// no Redis to wake it with.
func open(db *firestoredb.DB) *store.Store {
	return store.New(db, outbox.New(db, nil, nil), api.Shown, nil)
}

type silent struct{}

func (silent) InvalidateAccount(context.Context, string, int64) {}
