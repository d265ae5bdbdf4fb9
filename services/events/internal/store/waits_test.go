package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	gcp "cloud.google.com/go/firestore"

	libevents "github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/events"
	"github.com/linkreel/linkreel/services/events/internal/store"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
)

func TestWaitsTellsWhatEventsAndDeliveriesWaitFor(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{outbox.Indexes, events.Indexes()}, Complete: true})
	now := time.Now()
	clock := func() time.Time { return now }
	db := firestoredb.Use(cloud.Client(t), 10*time.Second)
	out := outbox.New(db, nil, clock)
	s := store.New(db, nil, out, clock, func(*webhook.Webhook) any { return nil }, 70) // more lanes than one query reads
	want := func(when string, depths map[string]string) {
		t.Helper()
		for _, l := range s.Waits() {
			d, err := l.Depth(t.Context())
			got := fmt.Sprint(d.N)
			if d.N > 0 && !d.Ageless {
				got += " for " + now.Sub(d.Oldest).Round(time.Second).String()
			}
			if err != nil || got != depths[l.For] {
				t.Errorf("%s: work waiting for %s = %s (error %v), want %s", when, l.For, got, err, depths[l.For])
			}
		}
	}
	want("no work", map[string]string{"place": "0", "attempt": "0", "retry": "0"})
	for account := range 3 {
		err := db.Tx(t.Context(), "change", func(ctx context.Context, tx *gcp.Transaction) error {
			return out.Put(ctx, tx, libevents.Event{AccountID: fmt.Sprint("acc_", account), Type: libevents.LinkCreated, Object: "lnk_1", Data: 1})
		})
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
	}
	for n := range 100 { // spread across all lanes
		d := &webhook.Delivery{ID: fmt.Sprint("whd_", n), WebhookID: fmt.Sprint("whk_", n), CreatedAt: now, Status: webhook.Pending}
		switch {
		case n < 40:
			d.DueAt = now.Add(-time.Duration(n) * time.Second)
		case n < 90:
			d.DueAt = now.Add(time.Hour)
		default:
			d.Status = webhook.Delivered
		}
		if err := s.AddDelivery(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	want("a backlog", map[string]string{"place": "3 for 3m0s", "attempt": "40 for 39s", "retry": "50"})
}
