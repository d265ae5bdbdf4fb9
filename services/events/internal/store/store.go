// Package store keeps feeds, webhooks and deliveries in Firestore, and decides nothing:
//
//	events/{evt_…}            written by every service (libs/events/outbox); they wait for their place
//	feeds/{account}           the highest place, the newest events, and who subscribes to what
//	feedPages/{account}~{…}   older events, up to 200 in a document that never changes
//	webhooks/{whk_…}          subscriptions, secrets sealed
//	webhookDeliveries/{whd_…} one event on its way to one webhook
//	webhookReplays/{whr_…}    time ranges that are to be sent again
//	eventAccounts/{account}   accounts that are suspended or being erased
//
// The commit that moves an event to its place also makes its deliveries, so that an
// event with a place is on its way to everybody who subscribed, whatever dies next.
package store

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/seal"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

const (
	feeds      = "feeds"
	pages      = "feedPages"
	webhooks   = "webhooks"
	deliveries = "webhookDeliveries"
	replays    = "webhookReplays"
)

// Store is safe for concurrent use.
type Store struct {
	db    *firestoredb.DB
	seal  *seal.Keys
	now   func() time.Time
	lanes int

	records *record.DB
	hooks   *record.Kept[webhook.Webhook]
}

var _ webhook.Store = (*Store)(nil)

// New makes a store. shown is a webhook as the API shows it, for events. lanes is into
// how many the index of due deliveries is split.
func New(
	db *firestoredb.DB, keys *seal.Keys, outbox *outbox.Outbox, now func() time.Time, shown func(*webhook.Webhook) any, lanes int,
) *Store {
	s := &Store{db: db, seal: keys, now: now, lanes: lanes, records: record.Open(db, record.Options{Outbox: outbox, Now: now})}
	s.hooks = s.webhooksOf(s.records, shown)
	return s
}

// get reads a document into d; found is false when there is none.
func (s *Store) get(ctx context.Context, what string, ref *firestore.DocumentRef, d any) (found bool, err error) {
	err = s.db.Do(ctx, what, func(ctx context.Context) error {
		snap, err := ref.Get(ctx)
		if err != nil {
			return err
		}
		return snap.DataTo(d)
	})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// read is get within a transaction.
func read(tx *firestore.Transaction, ref *firestore.DocumentRef, d any) (found bool, err error) {
	snap, err := tx.Get(ref)
	if snap != nil && !snap.Exists() {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, snap.DataTo(d)
}

// validID keeps a caller's text from becoming a document path.
func validID(id, prefix string) bool {
	if len(id) <= len(prefix) || len(id) > 64 || id[:len(prefix)] != prefix {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
