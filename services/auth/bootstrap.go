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

// Bootstrap creates an account with one key that has every scope. It returns the account's id
// and the key. It needs only Firestore, so an operator can use it before any service runs.
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

// EnsureDemo returns a working key for a demo account on the given plan. It returns secret if
// that key still works, and otherwise creates a new account. The caller stores the result and
// passes it to the next call.
func EnsureDemo(ctx context.Context, db *firestoredb.DB, plan identity.Plan, secret string) (string, error) {
	if key, err := identity.ParseKey(secret, identity.KeyPrefix, identity.SessionPrefix); err == nil {
		works, err := works(ctx, db, key, plan)
		if err != nil {
			return "", fmt.Errorf("look up demo key: %w", err)
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

// works reports whether key is valid, never expires and has every scope on an active account
// with this plan.
func works(ctx context.Context, db *firestoredb.DB, key identity.Key, plan identity.Plan) (bool, error) {
	c, err := open(db).Credential(ctx, key.Hash())
	if errors.Is(err, account.ErrNoKey) {
		return false, nil
	}
	return c.Key.RevokedAt.IsZero() && c.Key.ExpiresAt.IsZero() && c.Key.Scopes.Has(identity.AllScopes) &&
		c.Account.Plan == plan && !c.Account.Suspended, err
}

// open returns a store without Redis. The events service does not get a wake-up, but its sweep
// finds the new events. The account is new or being restored, so no replica has cached it and none
// needs to be notified.
func open(db *firestoredb.DB) *store.Store {
	records := record.Open(db, record.Options{Outbox: outbox.New(db, nil, nil)})
	records.TellAuthority(func(context.Context, string, int64) {})
	return store.New(records, api.Shown)
}
