// Package outbox writes the events of package [events] into Firestore, each in the
// transaction that makes the change, and wakes the events service after the commit.
// See there for how a store uses it.
package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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

// Document is events/{id}, an event that waits for its place in its account's feed. The
// commit that gives it the place moves it there.
type Document struct {
	AccountID string    `firestore:"accountId"`
	Type      string    `firestore:"type"`
	Object    string    `firestore:"object"`
	At        time.Time `firestore:"at,serverTimestamp"` // the database's clock, one for all writers
	ActorType string    `firestore:"actorType"`
	ActorID   string    `firestore:"actorId"`
	ActorName string    `firestore:"actorName"`
	RequestID string    `firestore:"requestId"`
	Data      string    `firestore:"data"` // JSON
	ExpireAt  time.Time `firestore:"expireAt"`
	// Order is that of the events of one commit, which have no other.
	Order int64 `firestore:"order"`

	// Waiting is the account's id. One that cannot be read and is set aside has none.
	Waiting string `firestore:"waiting"`
}

// Channel is the Redis channel on which writers name accounts that have new
// events.
const Channel = "linkreel:events:waiting"

// Outbox writes events. It is safe for concurrent use. A nil Outbox refuses to
// write, so that a store that was wired without one fails its first change and
// not its last subscriber.
type Outbox struct {
	db    *firestoredb.DB
	redis redis.UniversalClient
	now   func() time.Time

	written atomic.Int64

	mu    sync.Mutex
	woken map[string]struct{} // accounts to name on Channel
	more  chan struct{}
}

// New makes an outbox. Without a Redis client nobody is woken: the events
// service finds what waits by itself some seconds later. A nil now is the
// system's clock.
func New(db *firestoredb.DB, rdb redis.UniversalClient, now func() time.Time) *Outbox {
	if now == nil {
		now = time.Now
	}
	return &Outbox{db: db, redis: rdb, now: now, woken: map[string]struct{}{}, more: make(chan struct{}, 1)}
}

// Put adds events to the transaction that ctx belongs to; ctx is the one that
// [firestoredb.DB.Tx] gave to the transaction's function. Like every write it
// comes after the last read.
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
		// A context of its own has no way to wake anybody, and would lose the
		// actor too, if it was derived from the wrong place.
		if !firestoredb.AfterCommit(ctx, func() { o.wake(e.AccountID) }) {
			return fmt.Errorf("write event %s: the context is not the transaction's", e.Type)
		}
	}
	return nil
}

func (o *Outbox) document(ctx context.Context, e events.Event) (*Document, error) {
	if e.AccountID == "" || e.Object == "" || !e.Type.Known() || e.Data == nil {
		return nil, fmt.Errorf("write event: incomplete: type %q, account %q, object %q", e.Type, e.AccountID, e.Object)
	}
	data, err := encode(e.Data)
	if err != nil {
		return nil, fmt.Errorf("write event %s of %s: %w", e.Type, e.Object, err)
	}
	a := events.ActorOf(ctx)
	return &Document{
		AccountID: e.AccountID, Type: string(e.Type), Object: e.Object,
		ActorType: string(a.Type), ActorID: a.ID, ActorName: a.Name, RequestID: identity.RequestID(ctx),
		Data: data, ExpireAt: o.now().Add(events.Kept), Order: o.written.Add(1), Waiting: e.AccountID,
	}, nil
}

// encode keeps <, > and & as they are, like the API does.
func encode(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// maxWoken bounds the names that wait for a Redis that is away. What is dropped
// is found by the events service's own look.
const maxWoken = 10_000

func (o *Outbox) wake(accountID string) {
	if o.redis == nil {
		return
	}
	o.mu.Lock()
	if len(o.woken) < maxWoken {
		o.woken[accountID] = struct{}{}
	}
	o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default: // Run has not looked yet and will see this one too
	}
}

// pace is the least time between two wake-ups: an account that makes hundreds of links a
// second is named once for all that came meanwhile, and the first at once.
const pace = 20 * time.Millisecond

// Run wakes the events service after commits until ctx ends. It is a loop of
// every service that writes events.
func (o *Outbox) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			o.publish(ctx)
			return nil
		case <-o.more:
			o.publish(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(pace):
			}
		}
	}
}

func (o *Outbox) publish(ctx context.Context) {
	o.mu.Lock()
	woken := o.woken
	o.woken = map[string]struct{}{}
	o.mu.Unlock()
	if len(woken) == 0 {
		return
	}
	// Names are not kept for another try: the events service looks by itself while
	// Redis is away.
	// The end of ctx is no reason to lose those that were taken.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, err := o.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for accountID := range woken {
			p.Publish(ctx, Channel, accountID)
		}
		return nil
	})
	if err != nil {
		slog.DebugContext(ctx, "events service not woken", "accounts", len(woken), "error", err)
	}
}
