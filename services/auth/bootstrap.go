package auth

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/api"
	"github.com/linkreel/linkreel/services/auth/internal/store"
)

// Bootstrap makes an account with one key that may do everything, and returns
// the account's id and the key. It needs Firestore only, so an operator can use
// it before anything else runs.
func Bootstrap(ctx context.Context, db *firestoredb.DB, name string, plan identity.Plan) (accountID string, key identity.Key, err error) {
	accounts := account.NewService(open(db), nil, nil)
	made, err := accounts.Create(ctx, name, plan)
	if err != nil {
		return "", identity.Key{}, fmt.Errorf("bootstrap: %w", err)
	}
	key = identity.NewKey(rand.Reader)
	_, err = accounts.CreateKey(ctx, account.NewKey{
		ID: identity.NewID("key"), Key: key, AccountID: made.ID, Name: "First key", Scopes: identity.AllScopes,
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
	if key, err := identity.ParseKey(secret, identity.KeyPrefix, identity.SessionPrefix); err == nil {
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

// works reports whether key may do everything on an account of exactly plan.
func works(ctx context.Context, db *firestoredb.DB, key identity.Key, plan identity.Plan) (bool, error) {
	c, err := open(db).Credential(ctx, key.Hash())
	if errors.Is(err, account.ErrNoKey) {
		return false, nil
	}
	return c.Key.RevokedAt.IsZero() && c.Key.ExpiresAt.IsZero() && c.Key.Scopes.Has(identity.AllScopes) &&
		c.Account.Plan == plan && !c.Account.Suspended, err
}

// open is a store whose events wait for the events service to find them: there is
// no Redis to wake it with. Nor is there anybody to notify: a new account is in no
// replica's memory.
func open(db *firestoredb.DB) *store.Store {
	return store.New(record.Open(db, record.Options{Outbox: outbox.New(db, nil, nil)}), api.Shown)
}
