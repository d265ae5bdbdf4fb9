// Package outbox writes the events of package [events] to Firestore, each in the transaction that
// makes the change, and wakes the events service after the commit. Package record does both for
// each change.
package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
)

// Collection holds the events of all accounts.
const Collection = "events"

// Document is events/{id}, an event without a position in its account's feed. The commit that
// assigns the position also moves the event to the feed.
type Document struct {
	AccountID string    `firestore:"accountId"`
	Type      string    `firestore:"type"`
	Object    string    `firestore:"object"`
	At        time.Time `firestore:"at,serverTimestamp"` // set by the database: one clock for all writers
	ActorType string    `firestore:"actorType"`
	ActorID   string    `firestore:"actorId"`
	ActorName string    `firestore:"actorName"`
	RequestID string    `firestore:"requestId"`
	Data      string    `firestore:"data"` // JSON
	ExpireAt  time.Time `firestore:"expireAt"`
	// Order is the event's position within its commit. All events in a commit have the same time.
	Order int64 `firestore:"order"`

	// Waiting is the account's id. It is empty in a document that cannot be decoded and was set
	// aside.
	Waiting string `firestore:"waiting"`
}

// Channel is the Redis channel on which writers publish the ids of accounts that have new events.
const Channel = "linkreel:events:waiting"

// Outbox writes events. It is safe for concurrent use. [Outbox.Put] on a nil Outbox returns an
// error, so a store without an outbox fails on its first change instead of silently not writing any
// events.
type Outbox struct {
	db    *firestoredb.DB
	redis redis.UniversalClient
	now   func() time.Time

	written atomic.Int64
	changed chan string // accounts to publish on Channel
}

// New returns an outbox. Without [Outbox.Run], the events service is not woken, and its sweep finds
// new events a few seconds later. If now is nil, the outbox uses the system clock.
func New(db *firestoredb.DB, rdb redis.UniversalClient, now func() time.Time) *Outbox {
	if now == nil {
		now = time.Now
	}
	return &Outbox{db: db, redis: rdb, now: now, changed: make(chan string, maxChanged)}
}

// Put adds events to a transaction. It takes the actor and the request id from ctx. As with any
// write, call it after the transaction's last read. Call [Outbox.Wake] after the commit.
func (o *Outbox) Put(ctx context.Context, tx *firestore.Transaction, list ...events.Event) error {
	if o == nil {
		return errors.New("write event: the store has no outbox")
	}
	for _, e := range list {
		d, err := o.document(ctx, e)
		if err != nil {
			return err
		}
		if err := tx.Create(o.db.Collection(Collection).Doc(identity.NewID("evt")), d); err != nil {
			return fmt.Errorf("write event %s of %s: %w", e.Type, e.Object, err)
		}
	}
	return nil
}

func (o *Outbox) document(ctx context.Context, e events.Event) (*Document, error) {
	if e.AccountID == "" || e.Object == "" || !e.Type.Known() || e.Data == nil {
		return nil, fmt.Errorf("write event: incomplete event: type %q, account %q, object %q", e.Type, e.AccountID, e.Object)
	}
	var data strings.Builder
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false) // do not escape <, > and &, as in the API
	if err := enc.Encode(e.Data); err != nil {
		return nil, fmt.Errorf("write event %s of %s: %w", e.Type, e.Object, err)
	}
	a := events.ActorOf(ctx)
	return &Document{
		AccountID: e.AccountID, Type: string(e.Type), Object: e.Object,
		ActorType: string(a.Type), ActorID: a.ID, ActorName: a.Name, RequestID: identity.RequestOf(ctx).ID,
		Data: strings.TrimSuffix(data.String(), "\n"), ExpireAt: o.now().Add(events.Kept), Order: o.written.Add(1), Waiting: e.AccountID,
	}, nil
}

// maxChanged limits how many account ids are pending while Redis is unreachable. Any further ids
// are dropped, and the events service's sweep finds those accounts' events.
const maxChanged = 10_000

// Wake passes the account's id to [Outbox.Run]. It is only a hint, which is lost if the process
// dies after the commit or does not learn that the commit succeeded.
func (o *Outbox) Wake(accountID string) {
	select {
	case o.changed <- accountID:
	default:
	}
}

// pace is the minimum time between wake-ups. The first change is announced immediately. After that,
// even if an account creates hundreds of links a second, each wake-up includes it only once.
const pace = 20 * time.Millisecond

// Run wakes the events service after commits until ctx is done. Every service that writes events
// must run it as a loop.
func (o *Outbox) Run(ctx context.Context) error {
	for ended := false; !ended; {
		names := map[string]bool{}
		select {
		case first := <-o.changed:
			names[first] = true
		case <-ctx.Done():
			ended = true // publish the ids received so far, then stop
		}
		for range len(o.changed) { // cannot block: only this loop receives from it
			names[<-o.changed] = true
		}
		o.publish(ctx, names)
		select {
		case <-ctx.Done():
		case <-time.After(pace):
		}
	}
	return nil
}

// publish does not retry: while Redis is unreachable, the events service's sweep finds new events.
func (o *Outbox) publish(ctx context.Context, names map[string]bool) {
	if len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, err := o.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for name := range names {
			p.Publish(ctx, Channel, name)
		}
		return nil
	})
	if err != nil {
		slog.DebugContext(ctx, "cannot wake the events service; its sweep finds the events", "accounts", len(names), "error", err)
	}
}
