package store

import (
	"context"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/events/internal/tenancy"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// accountDoc is eventAccounts/{account}: what auth has told us last about an
// account. Without a document an account is active. That of an erased account
// stays: it is the tombstone.
type accountDoc struct {
	State   string     `firestore:"state"`
	Version int64      `firestore:"version"`
	Since   time.Time  `firestore:"since"`
	LookAt  *time.Time `firestore:"lookAt,omitempty"`
}

var _ tenancy.Store = (*Store)(nil)

func (s *Store) accountRef(id string) *firestore.DocumentRef {
	return s.db.Collection(accounts).Doc(id)
}

func accountOf(d *accountDoc) *tenancy.Record {
	return &tenancy.Record{Standing: tenant.Standing{State: tenant.State(d.State), Version: d.Version}, Since: d.Since, LookAt: orZero(d.LookAt)}
}

// Account implements [tenancy.Store].
func (s *Store) Account(ctx context.Context, accountID string) (*tenancy.Record, error) {
	if !validID(accountID, "acc_") {
		return nil, nil
	}
	var d accountDoc
	found, err := s.get(ctx, "get account state", s.accountRef(accountID), &d)
	if err != nil || !found {
		return nil, err
	}
	return accountOf(&d), nil
}

// PutAccount implements [tenancy.Store].
func (s *Store) PutAccount(ctx context.Context, accountID string, decide func(before *tenancy.Record) *tenancy.Record) error {
	if !validID(accountID, "acc_") {
		return nil
	}
	return s.db.Tx(ctx, "set account state", func(_ context.Context, tx *firestore.Transaction) error {
		var d accountDoc
		found, err := read(tx, s.accountRef(accountID), &d)
		if err != nil {
			return err
		}
		var before *tenancy.Record
		if found {
			before = accountOf(&d)
		}
		after := decide(before)
		if after == nil {
			return nil
		}
		return tx.Set(s.accountRef(accountID), &accountDoc{
			State: string(after.Standing.State), Version: after.Standing.Version, Since: after.Since, LookAt: orNil(after.LookAt),
		})
	})
}

// DueAccounts implements [tenancy.Store].
func (s *Store) DueAccounts(ctx context.Context, limit int) ([]string, error) {
	return s.db.IDs(ctx, "list due accounts", s.db.Collection(accounts).Where("lookAt", "<=", s.now()).OrderBy("lookAt", firestore.Asc).Limit(limit))
}

// Deferred implements [tenancy.Store].
func (s *Store) Deferred(ctx context.Context, webhookID string) (bool, error) {
	n, err := s.CountDeferred(ctx, webhookID, 1)
	return n > 0, err
}

// ofAccount are the collections whose documents name their account. Webhooks go
// first, so that nothing can be sent any more.
var ofAccount = []string{webhooks, replays, deliveries, outbox.Collection, pages}

// erasePage is how many documents one commit removes, and ofPages how many of those are
// pages of the feed. Events and deliveries have up to some 90 kB, pages 600 kB, and what
// a commit deletes counts toward the 10 MiB that it may change.
const (
	erasePage = 100
	ofPages   = 10
)

// EraseSome implements [tenancy.Store].
func (s *Store) EraseSome(ctx context.Context, accountID string) (more bool, err error) {
	for _, collection := range ofAccount {
		limit := erasePage
		if collection == pages {
			limit = ofPages
		}
		found, err := s.db.Find(ctx, "list "+collection+" to erase",
			s.db.Collection(collection).Where("accountId", "==", accountID).Limit(limit))
		if err != nil {
			return true, err
		}
		if err := s.db.DeleteAll(ctx, "erase "+collection, found...); err != nil {
			return true, err
		}
		more = more || len(found) == limit
	}
	if more {
		return true, nil
	}
	// Last: an event that is left would get a place, and so make the feed again.
	return false, s.db.DeleteAll(ctx, "erase feed", s.feedRef(accountID))
}

// Remains implements [tenancy.Store].
func (s *Store) Remains(ctx context.Context, accountID string) (bool, error) {
	for _, collection := range ofAccount {
		found, err := s.db.Find(ctx, "look for what is left", s.db.Collection(collection).Where("accountId", "==", accountID).Limit(1))
		if err != nil || len(found) > 0 {
			return true, err
		}
	}
	return s.get(ctx, "get feed", s.feedRef(accountID), &feedDoc{})
}

// Receiver reads a webhook of an account and whether the account may be sent
// anything, both as they were at one instant.
func (s *Store) Receiver(ctx context.Context, accountID, id string) (w *webhook.Webhook, silent bool, err error) {
	if !validID(id, "whk_") {
		return nil, false, webhook.NotFound()
	}
	err = s.db.Do(ctx, "get webhook and account", func(ctx context.Context) error {
		refs := []*firestore.DocumentRef{s.webhookRef(id)}
		if validID(accountID, "acc_") {
			refs = append(refs, s.accountRef(accountID))
		}
		snaps, err := s.db.GetAll(ctx, refs)
		if err != nil {
			return err
		}
		if !snaps[0].Exists() {
			return webhook.NotFound()
		}
		var d webhookDoc
		if err := snaps[0].DataTo(&d); err != nil {
			return err
		}
		if d.AccountID != accountID {
			return webhook.NotFound()
		}
		silent = false
		if len(snaps) > 1 && snaps[1].Exists() {
			var a accountDoc
			if err := snaps[1].DataTo(&a); err != nil {
				return err
			}
			silent = tenant.State(a.State) != tenant.Active
		}
		w = toWebhook(id, &d)
		return nil
	})
	return w, silent, err
}
