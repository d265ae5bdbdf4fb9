package events_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"cloud.google.com/go/firestore"

	libevents "github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/events"
)

// A hanging receiver has hundreds of deliveries that were deferred once and are now due. A later
// delivery for another webhook must still be sent.
func TestABacklogHidesNobodyFromSweeps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	setup := w.start()
	hangs := newReceiver(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	answers := newReceiver(t, nil)
	backed := setup.hook(w.key("acc_a", identity.Creator), hangs.URL, "link.updated")
	other := setup.hook(w.key("acc_b", identity.Creator), answers.URL, "link.updated")
	setup.stop()

	bulk := w.Client(t).BulkWriter(t.Context())
	put := func(id, account, webhook string, deferred bool, due time.Time) {
		t.Helper()
		if _, err := bulk.Create(w.Client(t).Collection("webhookDeliveries").Doc(id), map[string]any{
			"accountId": account, "webhookId": webhook, "eventId": "evt_" + id, "eventType": "link.updated", "createdAt": due, "status": "pending",
			"tries": 1, "payload": `{"id":"lnk_1"}`, "eventAt": due, "expireAt": due.Add(libevents.Kept), "lane": 7, "dueAt": due, "deferred": deferred,
		}); err != nil {
			t.Fatal(err)
		}
	}
	past := w.now().Add(-time.Hour)
	const waiting = 900
	for i := range waiting {
		put(fmt.Sprintf("whd_%04d", i), "acc_a", backed.ID, true, past.Add(time.Duration(i)*time.Millisecond))
	}
	put("whd_other", "acc_b", other.ID, false, past.Add(time.Minute))
	bulk.End()

	w.start()
	eventually(t, "the other webhook gets its message", func() bool { return len(answers.messages()) > 0 })
}

// A stopping replica waits for its slow attempts. In the meantime, other replicas settle the
// changes, and immediately send the events that the stopping replica settled last.
func TestAStoppingReplicaLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start()
	begun := make(chan struct{}, 1)
	slow := newReceiver(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		select {
		case begun <- struct{}{}:
		default:
		}
		select {
		case <-time.After(w.cfg.CallTimeout * 3 / 4):
		case <-r.Context().Done():
		}
	})
	answers := newReceiver(t, nil)
	first.hook(w.key("acc_slow", identity.Creator), slow.URL, "link.updated")
	first.hook(w.key("acc_busy", identity.Creator), answers.URL, "link.updated")
	w.change("acc_slow", libevents.LinkUpdated, "lnk_slow", map[string]any{"id": "lnk_slow"})
	<-begun

	stopped := make(chan struct{})
	const changes = 60
	for i := range changes {
		w.change("acc_busy", libevents.LinkUpdated, fmt.Sprint("lnk_", i), map[string]any{"id": fmt.Sprint("lnk_", i)})
		if i == changes/3 {
			go func() { defer close(stopped); first.stop() }()
		}
		time.Sleep(20 * time.Millisecond) // only paces the loop
	}
	<-stopped
	w.start()
	eventually(t, "every message has arrived", func() bool { return len(ids(answers.messages())) == changes })
}

// The number of open replays per webhook is limited. Once a replay has ended, another one can
// start.
func TestReplaysAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(func(c *events.Config) { c.SweepEvery = time.Hour; c.CallTimeout = time.Minute })
	key := w.key("acc_a", identity.Creator)
	// A replay wakes the webhook, and each message that its receiver accepts makes room for
	// replays, so the receiver must not accept any messages yet.
	takes := make(chan struct{})
	h := r.hook(key, newReceiver(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		select {
		case <-takes:
		case <-r.Context().Done():
		}
	}).URL, "link.updated")
	// Replays pause while 500 deliveries are pending. A lane may hold another 32.
	bulk := w.Client(t).BulkWriter(t.Context())
	far := w.now().Add(time.Hour)
	var written []*firestore.BulkWriterJob
	for i := range 560 {
		id := fmt.Sprintf("whd_%04d", i)
		job, err := bulk.Create(w.Client(t).Collection("webhookDeliveries").Doc(id), map[string]any{
			"accountId": "acc_a", "webhookId": h.ID, "eventId": "evt_" + id, "eventType": "link.updated", "createdAt": far, "status": "pending",
			"payload": `{}`, "eventAt": far, "expireAt": far.Add(libevents.Kept), "lane": 7, "dueAt": far, "deferred": true,
		})
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, job)
	}
	bulk.End()
	for _, job := range written {
		if _, err := job.Results(); err != nil {
			t.Fatal(err)
		}
	}
	replay := func() answer {
		return r.call(key, "POST", "/api/v1/webhooks/"+h.ID+"/replay", map[string]any{"from": 0, "to": w.now().UnixMilli()})
	}
	for range 10 {
		if a := replay(); a.status != 202 {
			t.Fatalf("a replay returned %d, want 202: %s", a.status, a.body)
		}
	}
	if a := replay(); a.status != 429 || a.code() != "RATE_LIMITED" || a.header.Get("Retry-After") == "" {
		t.Errorf("the eleventh replay returned %d, want 429 RATE_LIMITED with Retry-After: %s", a.status, a.body)
	}
	// Now the receiver accepts all messages, and the sweep wakes the webhook.
	close(takes)
	w.start()
	w.forward(2 * time.Hour)
	eventually(t, "another replay is accepted", func() bool { return replay().status == 202 })
}

// There are more events waiting than one commit can place. The first event after the commit falls
// in the same millisecond as the last event in it.
func TestOrderHoldsAcrossCommitsOfPlaces(t *testing.T) {
	t.Parallel()
	for name, distinct := range map[string]int{"same millisecond at the boundary": 150, "same millisecond for all events": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			key := w.key("acc_a", identity.Creator)
			begun := w.now().Add(-time.Minute).Truncate(time.Millisecond)
			const changes = 450
			for i := range changes {
				// The names are in reverse commit order.
				_, err := w.db.Collection(outbox.Collection).Doc(fmt.Sprintf("evt_%04d", changes-i)).Create(t.Context(), map[string]any{
					"accountId": "acc_a", "waiting": "acc_a", "at": begun.Add(time.Duration(min(i, distinct)) * time.Millisecond),
					"expireAt": w.now().Add(time.Hour), "type": "link.updated", "object": fmt.Sprint("lnk_", i), "data": "{}", "actorType": "system",
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			r := w.start()
			cursor, next := "", 0
			within(t, time.Minute, "the feed has all events", func() bool {
				p := r.feed(key, "limit=100&wait=1&after="+cursor)
				cursor = *p.NextCursor
				for _, e := range p.Data {
					if e.Object != fmt.Sprint("lnk_", next) {
						t.Fatalf("got the event for %s, want the one for lnk_%d next", e.Object, next)
					}
					next++
				}
				return next == changes
			})
		})
	}
}

// Events whose first attempts are in progress remain in the outbox. Behind them, the outbox has more
// events from the same millisecond than one commit can place.
func TestAFirstTryHoldsUpNoPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(func(c *events.Config) { c.CallTimeout = time.Minute })
	key := w.key("acc_a", identity.Creator)
	begun := make(chan struct{}, 10)
	r.hook(key, newReceiver(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
	}).URL, "link.created")
	w.change("acc_a", libevents.LinkCreated, "lnk_1", map[string]any{"id": "lnk_1"})
	<-begun
	const changes = 250
	at := w.now().Add(time.Minute).Truncate(time.Millisecond)
	for i := range changes {
		_, err := w.db.Collection(outbox.Collection).Doc(fmt.Sprintf("evt_%04d", i)).Create(t.Context(), map[string]any{
			"accountId": "acc_a", "waiting": "acc_a", "at": at, "expireAt": at.Add(time.Hour),
			"type": "link.updated", "object": fmt.Sprint("lnk_", i), "data": "{}", "actorType": "system",
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all events have been placed", func() bool {
		p := r.feed(key, "type=link.updated&limit=1")
		return len(p.Data) == 1 && p.Data[0].Object == fmt.Sprint("lnk_", changes-1)
	})
}
