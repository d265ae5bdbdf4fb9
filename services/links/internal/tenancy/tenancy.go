// Package tenancy applies auth's decisions about accounts in the links service. It announces a
// changed account in the same way as a changed slug, so no replica uses the old state once the call
// has returned. It also removes an account's links, domains and other records.
package tenancy

import (
	"context"
	"errors"
	"time"

	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Store removes an account's records, except links and domains.
type Store interface {
	// Forget removes some of the records and reports whether more are left.
	Forget(ctx context.Context, accountID string) (more bool, err error)
	// Remains reports whether an account has any records left.
	Remains(ctx context.Context, accountID string) (bool, error)
}

// Options configure a keeper.
type Options struct {
	Standings keeper.Standings
	Store     Store
	Announce  func(ctx context.Context, keys ...string)
	Links     *link.Service
	Domains   *customdomain.Service
	Now       func() time.Time
	Turns     *dedup.Seen // see [keeper.Options]
}

// New returns the keeper of auth's decisions about accounts for the links service.
func New(o Options) *keeper.Keeper {
	return keeper.New(keeper.Options{
		Standings: o.Standings, Now: o.Now, Turns: o.Turns, Erase: o.erase, Remains: o.Store.Remains,
		Changed: func(ctx context.Context, accountID string, _ tenant.State) error {
			o.Announce(ctx, invalidation.AccountKey(accountID))
			return nil
		},
	})
}

// purgePage is the number of links that are removed at a time.
const purgePage = 100

// erase removes a page of links. If no links are left, it removes the domains and then the other
// records. It skips links that cannot be removed, so they do not block others. As long as such
// links remain, erase keeps the domains and returns an error.
func (o Options) erase(ctx context.Context, accountID string) (more bool, err error) {
	var kept error
	for before := link.Top; ; {
		last, err := o.Links.Purge(ctx, accountID, before, purgePage)
		switch {
		case errors.Is(err, link.ErrRefused):
			kept, before = err, last
		case err != nil:
			return false, err
		case last != link.Top:
			return true, nil
		case kept != nil:
			return false, kept
		default:
			return o.eraseRest(ctx, accountID)
		}
	}
}

func (o Options) eraseRest(ctx context.Context, accountID string) (more bool, err error) {
	if err := o.Domains.Leave(ctx, accountID); err != nil {
		return false, err
	}
	return o.Store.Forget(ctx, accountID)
}
