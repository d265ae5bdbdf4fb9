package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	gcp "cloud.google.com/go/firestore"
	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/eventstest"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

func open(t *testing.T) *firestoredb.DB {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{outbox.Indexes}, Complete: true})
	return firestoredb.Use(cloud.Client(t), 10*time.Second)
}

func made(accountID string) events.Event {
	return events.Event{AccountID: accountID, Type: events.LinkCreated, Object: "lnk_1", Data: map[string]string{"url": "http://a.example/?a=1&b=<2>"}}
}

func TestPut(t *testing.T) {
	t.Parallel()
	t.Run("event from a committed transaction", func(t *testing.T) {
		t.Parallel()
		db := open(t)
		out := outbox.New(db, nil, nil)
		ctx := identity.WithRequest(identity.WithPrincipal(t.Context(), &identity.Principal{AccountID: "acc_1", KeyID: "key_1"}), &identity.Request{ID: "req"})
		if err := db.Tx(ctx, "try", func(ctx context.Context, tx *gcp.Transaction) error { return out.Put(ctx, tx, made("acc_1")) }); err != nil {
			t.Fatal(err)
		}
		got := eventstest.All(t, db)
		if len(got) != 1 {
			t.Fatalf("got %d events, want 1", len(got))
		}
		d := got[0]
		if d.Type != "link.created" || d.Object != "lnk_1" || d.ActorType != "key" || d.ActorID != "key_1" || d.RequestID != "req" ||
			d.Waiting != "acc_1" {
			t.Errorf("event = %+v, want the change's type, account, object, actor and request id", d)
		}
		if d.Data != `{"url":"http://a.example/?a=1&b=<2>"}` {
			t.Errorf("data = %s, want the JSON without escaped HTML", d.Data)
		}
		if age := time.Since(d.At); age > time.Minute || age < -time.Minute {
			t.Errorf("event time = %v, want the current time", d.At)
		}
	})
	t.Run("failed transaction", func(t *testing.T) {
		t.Parallel()
		db := open(t)
		out := outbox.New(db, nil, nil)
		refused := errors.New("refused")
		err := db.Tx(t.Context(), "try", func(ctx context.Context, tx *gcp.Transaction) error {
			return errors.Join(out.Put(ctx, tx, made("acc_1")), refused)
		})
		if !errors.Is(err, refused) || len(eventstest.All(t, db)) != 0 {
			t.Errorf("got error %v and %d events, want the function's error and no events", err, len(eventstest.All(t, db)))
		}
	})
	t.Run("event that cannot be written", func(t *testing.T) {
		t.Parallel()
		db := open(t)
		out := outbox.New(db, nil, nil)
		incomplete := made("acc_1")
		incomplete.Data = nil
		unknown := made("acc_1")
		unknown.Type = "link.clicked"
		for name, put := range map[string]func(ctx context.Context, tx *gcp.Transaction) error{
			"no data":      func(ctx context.Context, tx *gcp.Transaction) error { return out.Put(ctx, tx, incomplete) },
			"unknown type": func(ctx context.Context, tx *gcp.Transaction) error { return out.Put(ctx, tx, unknown) },
			"no outbox": func(ctx context.Context, tx *gcp.Transaction) error {
				return (*outbox.Outbox)(nil).Put(ctx, tx, made("acc_1"))
			},
		} {
			if err := db.Tx(t.Context(), "try", put); err == nil {
				t.Errorf("%s: the event was written, want an error", name)
			}
		}
		if n := len(eventstest.All(t, db)); n != 0 {
			t.Errorf("got %d events, want 0", n)
		}
	})
}

// running runs an outbox until stop is called. change writes an event for an account and wakes the
// outbox. named receives the messages that wake the events service.
func running(t *testing.T) (change func(accountID string), named <-chan *redis.Message, stop func()) {
	t.Helper()
	db := open(t)
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	t.Cleanup(func() { _ = rdb.Close() })
	listener := rdb.Subscribe(t.Context(), outbox.Channel)
	t.Cleanup(func() { _ = listener.Close() })
	if _, err := listener.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := outbox.New(db, rdb, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- out.Run(ctx) }()
	change = func(accountID string) {
		t.Helper()
		if err := db.Tx(t.Context(), "try", func(ctx context.Context, tx *gcp.Transaction) error { return out.Put(ctx, tx, made(accountID)) }); err != nil {
			t.Fatal(err)
		}
		out.Wake(accountID)
	}
	return change, listener.Channel(), func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestACommitWakesTheEventsService(t *testing.T) {
	t.Parallel()
	change, named, stop := running(t)
	change("acc_7")
	select {
	case m := <-named:
		if m.Payload != "acc_7" {
			t.Errorf("woken for %q, want acc_7", m.Payload)
		}
	case <-time.After(10 * time.Second):
		t.Error("no wake-up within 10 s, want one for acc_7")
	}
	stop()
}

// An account that changes constantly is announced as often as pace allows, and once more after its
// last change.
func TestABurstWakesTheEventsServiceNowAndThen(t *testing.T) {
	t.Parallel()
	change, named, stop := running(t)
	began := time.Now()
	for range 200 {
		change("acc_busy")
	}
	change("acc_last")
	stop()
	most := int(time.Since(began)/(20*time.Millisecond)) + 2
	for busy := 0; ; {
		select {
		case m := <-named:
			if m.Payload == "acc_last" {
				if busy == 0 || busy > most {
					t.Errorf("200 changes caused %d wake-ups, want 1 to %d", busy, most)
				}
				return
			}
			busy++
		case <-time.After(10 * time.Second):
			t.Fatal("no wake-up within 10 s after the last change")
		}
	}
}
