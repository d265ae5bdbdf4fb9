package store

import (
	"context"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/services/events/internal/tenancy"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

var _ tenancy.Store = (*Store)(nil)

// Standings are what auth has decided about accounts.
func Standings(db *firestoredb.DB) keeper.Standings {
	return keeper.Standings{DB: db, Collection: "eventAccounts"}
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
			refs = append(refs, Standings(s.db).Ref(accountID))
		}
		snaps, err := s.db.GetAll(ctx, refs)
		if err != nil {
			return err
		}
		if !snaps[0].Exists() {
			return webhook.NotFound()
		}
		if w, err = readWebhook(snaps[0]); err != nil {
			return err
		}
		if w.AccountID != accountID {
			return webhook.NotFound()
		}
		silent = false
		if len(snaps) > 1 {
			standing, err := keeper.Of(snaps[1])
			if err != nil {
				return err
			}
			silent = !standing.State.Serves()
		}
		return nil
	})
	return w, silent, err
}
