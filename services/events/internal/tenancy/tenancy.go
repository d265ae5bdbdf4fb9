// Package tenancy is what events does when auth decides about an account.
//
// Each try of a delivery reads the account's standing in the same round trip as the
// webhook, so no replica begins a try by an earlier state once SetState has returned.
// Tries that had begun by then end within their fifteen seconds. What a suspended
// account's webhooks would have been sent waits, and is sent when the suspension is
// lifted.
package tenancy

import (
	"context"
	"time"

	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Store is what the keeper asks of the records.
type Store interface {
	// EraseSome removes up to a page of what is kept about an account, webhooks
	// first, and reports whether there may be more.
	EraseSome(ctx context.Context, accountID string) (more bool, err error)
	// Remains reports whether anything is kept about an account beside its standing.
	Remains(ctx context.Context, accountID string) (bool, error)
	Webhooks(ctx context.Context, accountID string) ([]*webhook.Webhook, error)
	// Deferred reports whether a delivery of a webhook is put off.
	Deferred(ctx context.Context, webhookID string) (bool, error)
}

// New makes the keeper of what auth has decided about the accounts of webhooks and feeds.
func New(standings keeper.Standings, store Store, courier webhook.Courier, now func() time.Time) *keeper.Keeper {
	// resume sends what has waited, and reports whether there was anything.
	resume := func(ctx context.Context, accountID string) (waited bool, err error) {
		hooks, err := store.Webhooks(ctx, accountID)
		if err != nil {
			return false, err
		}
		for _, w := range hooks {
			deferred, err := store.Deferred(ctx, w.ID)
			if err != nil {
				return false, err
			}
			if deferred {
				waited = true
				courier.Send(accountID, w.ID)
			}
		}
		return waited, nil
	}
	return keeper.New(keeper.Options{
		Standings: standings, Now: now, Erase: store.EraseSome, Remains: store.Remains, Resume: resume,
		Changed: func(ctx context.Context, accountID string, s tenant.State) (err error) {
			if s == tenant.Active {
				// The keeper's loop would do it seconds later, and does if this replica is killed.
				_, err = resume(ctx, accountID)
			}
			return err
		},
	})
}
