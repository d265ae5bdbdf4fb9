package store

import (
	"context"

	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Standings returns the store of auth's decisions about accounts.
func Standings(db *firestoredb.DB) keeper.Standings {
	return keeper.Standings{DB: db, Collection: "eventAccounts"}
}

// setOf returns the set of everything stored about accounts except their feeds. The set erases
// webhooks first, so no more messages can be sent.
func (s *Store) setOf(db *record.DB) *record.Set {
	traces := func(collection string) record.Traces { return record.Traces{DB: db, Collection: collection} }
	old := traces(pages)
	old.Erase = func(ctx context.Context, accountID string, limit int) (n int, err error) {
		for n < limit {
			k, err := db.ErasePage(ctx, "erase "+pages, s.pagesOf(accountID), ofPages)
			if n += k; err != nil || k < ofPages {
				return n, err
			}
		}
		return n, nil
	}
	return db.Set(s.hooks, traces(replays), traces(deliveries), traces(outbox.Collection), old)
}

// Indexes completes the content of firestore.indexes.json; see [record.Set.Indexes].
func (s *Store) Indexes(file []byte) []byte { return s.all.Indexes(file) }

// erasePage is the number of documents that one commit removes. A commit that removes feed pages
// removes only ofPages because a page can be up to 600 kB. An event or a delivery can be up to
// about 90 kB. Deleted data counts towards a commit's 10 MiB limit.
const (
	erasePage = 100
	ofPages   = 10
)

// EraseSome removes up to one page of an account's records, and reports whether there may be
// more.
func (s *Store) EraseSome(ctx context.Context, accountID string) (more bool, err error) {
	// Delete the feed first. Otherwise, a replica could create deliveries for the webhooks that
	// the feed still lists.
	if err := s.db.DeleteAll(ctx, "erase feed", s.feedRef(accountID)); err != nil {
		return true, err
	}
	if more, err = s.all.Erase(ctx, accountID, erasePage); more || err != nil {
		return true, err
	}
	// Delete the feed again at the end. An event that had not been erased yet may have been
	// placed, which recreates the feed.
	return false, s.db.DeleteAll(ctx, "erase feed", s.feedRef(accountID))
}

// Remains reports whether the database contains anything about an account besides its standing.
func (s *Store) Remains(ctx context.Context, accountID string) (bool, error) {
	if left, err := s.all.Remains(ctx, accountID); left || err != nil {
		return true, err
	}
	return s.db.Exists(ctx, "look up feed", s.feedRef(accountID))
}

// Receiver reads a webhook in an account. silent means that the account must not be sent
// messages. Both are read at the same point in time.
func (s *Store) Receiver(ctx context.Context, accountID, id string) (w *webhook.Webhook, silent bool, err error) {
	if !identity.ValidID(id) {
		return nil, false, webhook.NotFound()
	}
	err = s.db.Do(ctx, "get webhook and account", func(ctx context.Context) error {
		refs := []firestoredb.Ref{s.webhookRef(id)}
		if identity.ValidID(accountID) {
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
