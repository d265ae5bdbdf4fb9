package events_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	libevents "github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/events"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// Every event takes three writes: one adds it to the outbox, one assigns it a position in the feed, and
// one deletes it from the outbox. Each first attempt takes one more.
func TestAFirstTryCostsOneWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	key := w.key("acc_a", identity.Creator)
	var hooks []hook
	for n := 1; n <= 2; n++ {
		hooks = append(hooks, r.hook(key, newReceiver(t, nil).URL, "link.updated"))
		r.feed(key, "") // so that the webhook's own event is placed first
		for i := range 5 {
			w.Firestore.ResetStats()
			w.change("acc_a", libevents.LinkUpdated, fmt.Sprint("lnk_", i), map[string]any{"id": "lnk_1"})
			for _, h := range hooks {
				eventually(t, "the delivery is recorded", func() bool {
					p := r.deliveries(key, h.ID, "limit=1")
					return len(p.Data) == 1 && p.Data[0].Event.ID == r.feed(key, "limit=1").Data[0].ID && p.Data[0].Status == "delivered"
				})
			}
			if got := w.Firestore.Stats().Writes; got != int64(3+n) {
				t.Errorf("with %d webhooks, change %d took %d writes, want %d", n, i, got, 3+n)
			}
		}
	}
}

// This test kills a replica after the receiver has received the message but before the outcome is
// stored.
func TestAKilledReplicaLosesNoFirstTry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start()
	key := w.key("acc_a", identity.Creator)
	killed, gone := make(chan struct{}), make(chan struct{})
	rec := newReceiver(t, func(n int, _ http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.Firestore.Faults().Add(firestore.Fault{Code: codes.Unavailable})
			close(killed)
		}
	})
	h := first.hook(key, rec.URL, "link.created")
	w.change("acc_a", libevents.LinkCreated, "lnk_1", map[string]any{"id": "lnk_1"})
	<-killed
	go func() { defer close(gone); first.stop() }()
	<-gone
	w.Firestore.Faults().Clear()

	r := w.start()
	if p := r.deliveries(key, h.ID, ""); len(p.Data) != 1 || p.Data[0].Status != "pending" {
		t.Errorf("the deliveries are %+v, want one with status pending", p.Data)
	}
	w.forward(time.Minute)
	eventually(t, "the message is delivered again", func() bool { return len(rec.messages()) == 2 })
	eventually(t, "the delivery is recorded once", func() bool {
		p := r.deliveries(key, h.ID, "")
		return len(p.Data) == 1 && p.Data[0].Status == "delivered"
	})
	if m := rec.messages(); m[0].id() != m[1].id() {
		t.Errorf("the messages have the IDs %s and %s, want identical IDs", m[0].id(), m[1].id())
	}
	if p := r.feed(key, "type=link.created"); len(p.Data) != 1 {
		t.Errorf("the feed contains %+v, want one link.created event", p.Data)
	}
	left, err := w.db.Collection("events").Documents(t.Context()).GetAll()
	if err != nil || len(left) != 0 {
		t.Errorf("the outbox contains %d events (error %v), want 0", len(left), err)
	}
}

// An in-flight first attempt is listed even though its delivery has not been stored yet.
func TestAFirstTryIsListedWhileItLasts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(func(c *events.Config) { c.CallTimeout = time.Minute })
	key := w.key("acc_a", identity.Creator)
	answer := make(chan struct{})
	slow := newReceiver(t, func(int, http.ResponseWriter, *http.Request) { <-answer })
	h, other := r.hook(key, slow.URL, "link.created"), r.hook(key, newReceiver(t, nil).URL, "link.created")
	w.change("acc_a", libevents.LinkCreated, "lnk_1", map[string]any{"id": "lnk_1"})
	w.change("acc_a", libevents.LinkCreated, "lnk_2", map[string]any{"id": "lnk_2"})
	eventually(t, "the other webhook's deliveries are finished", func() bool {
		p := r.deliveries(key, other.ID, "")
		return len(p.Data) == 2 && p.Data[0].Status == "delivered" && p.Data[1].Status == "delivered"
	})
	all := r.deliveries(key, h.ID, "")
	if len(all.Data) != 2 || all.HasMore || all.Data[0].Status != "pending" || len(all.Data[0].Attempts) != 0 {
		t.Fatalf("the deliveries are %+v, want two with status pending and no attempts", all)
	}
	one := r.deliveries(key, h.ID, "limit=1")
	two := r.deliveries(key, h.ID, "limit=1&cursor="+*one.NextCursor)
	if len(one.Data) != 1 || len(two.Data) != 1 || one.Data[0].ID != all.Data[0].ID || two.Data[0].ID != all.Data[1].ID || two.HasMore {
		t.Errorf("the pages are %+v and %+v, want one delivery on each", one, two)
	}
	// After the owner's retry, the receiver gets the message a second time, and the first attempt's
	// outcome no longer counts.
	r.want(202, key, "POST", "/api/v1/webhooks/"+h.ID+"/deliveries/"+all.Data[0].ID+"/retry", nil)
	close(answer)
	eventually(t, "three messages have arrived", func() bool { return len(slow.messages()) == 3 })
	eventually(t, "both deliveries have succeeded", func() bool {
		p := r.deliveries(key, h.ID, "")
		return len(p.Data) == 2 && p.Data[0].Status == "delivered" && p.Data[1].Status == "delivered" && len(p.Data[0].Attempts) == 1
	})
}
