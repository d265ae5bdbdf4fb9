// Package store stores feeds, webhooks and deliveries in Firestore. It makes no decisions. Its
// collections are:
//
//	events/{evt_…}            events waiting for their position, or for the outcomes of their
//	                          first attempts; every service writes them (libs/events/outbox)
//	feeds/{account}           the highest position, the newest events, and who subscribes to what
//	feedPages/{account}~{…}   older events, up to 200 in a document that never changes
//	webhooks/{whk_…}          subscriptions, with sealed secrets
//	webhookDeliveries/{whd_…} one event on its way to one webhook
//	webhookReplays/{whr_…}    requests to send a time range of events again
//	eventAccounts/{account}   accounts that are suspended or being erased
//
// The commit that assigns an event its position also creates its deliveries. For webhooks that are
// called immediately, the commit only records the first attempts in the feed and leaves the
// event in the outbox. An event with a position therefore reaches every subscriber, even if any
// process dies.
package store

import (
	"time"

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

// Store stores this service's records. It is safe for concurrent use.
type Store struct {
	db    *firestoredb.DB
	seal  *seal.Keys
	now   func() time.Time
	lanes int

	records *record.DB
	hooks   *record.Kept[webhook.Webhook]
	all     *record.Set
}

var _ webhook.Store = (*Store)(nil)

// New returns a store. shown converts a webhook to its wire format in events. lanes is the
// number of parts into which the index of due deliveries is divided.
func New(
	db *firestoredb.DB, keys *seal.Keys, outbox *outbox.Outbox, now func() time.Time, shown func(*webhook.Webhook) any, lanes int,
) *Store {
	s := &Store{db: db, seal: keys, now: now, lanes: lanes, records: record.Open(db, record.Options{Outbox: outbox, Now: now})}
	s.hooks = s.webhooksOf(s.records, shown)
	s.all = s.setOf(s.records)
	return s
}
