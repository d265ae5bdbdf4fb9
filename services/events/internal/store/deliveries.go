package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// deliveryDoc is webhookDeliveries/{id}. Lane and DueAt are there while it is
// pending: they are what sweeps look for.
type deliveryDoc struct {
	AccountID string       `firestore:"accountId"`
	WebhookID string       `firestore:"webhookId"`
	EventID   string       `firestore:"eventId"`
	EventType string       `firestore:"eventType"`
	CreatedAt time.Time    `firestore:"createdAt"`
	Status    string       `firestore:"status"`
	Attempts  []attemptDoc `firestore:"attempts"`
	Tries     int          `firestore:"tries"`
	NextTry   *time.Time   `firestore:"nextTry"`
	Payload   string       `firestore:"payload,omitempty"`
	EventAt   *time.Time   `firestore:"eventAt,omitempty"`
	ExpireAt  time.Time    `firestore:"expireAt"`

	Lane     *int64     `firestore:"lane,omitempty"`
	DueAt    *time.Time `firestore:"dueAt,omitempty"`
	Deferred bool       `firestore:"deferred,omitempty"`
}

type attemptDoc struct {
	At     time.Time `firestore:"at"`
	Millis int64     `firestore:"ms"`
	Status int       `firestore:"status"`
	Error  string    `firestore:"error"`
	Answer string    `firestore:"answer"`
}

func (s *Store) deliveryRef(id string) *firestore.DocumentRef {
	return s.db.Collection(deliveries).Doc(id)
}

func (s *Store) fromDelivery(d *webhook.Delivery) *deliveryDoc {
	doc := &deliveryDoc{
		AccountID: d.AccountID, WebhookID: d.WebhookID, EventID: d.EventID, EventType: string(d.EventType), CreatedAt: d.CreatedAt,
		Status: string(d.Status), Tries: d.Tries, NextTry: orNil(d.NextTry), Payload: d.Payload, EventAt: orNil(d.EventAt),
		ExpireAt: d.CreatedAt.Add(events.Kept), Deferred: d.Deferred,
	}
	for _, a := range d.Attempts {
		doc.Attempts = append(doc.Attempts, attemptDoc{a.At, a.Duration.Milliseconds(), a.Status, a.Error, a.Answer})
	}
	if d.Status == webhook.Pending {
		lane := int64(webhook.LaneOf(d.WebhookID, s.lanes))
		doc.Lane, doc.DueAt = &lane, &d.DueAt
	}
	return doc
}

func toDelivery(snap *firestore.DocumentSnapshot) (*webhook.Delivery, error) {
	var doc deliveryDoc
	if err := snap.DataTo(&doc); err != nil {
		return nil, fmt.Errorf("read delivery %s: %w", snap.Ref.ID, err)
	}
	d := &webhook.Delivery{
		ID: snap.Ref.ID, AccountID: doc.AccountID, WebhookID: doc.WebhookID, EventID: doc.EventID, EventType: events.Type(doc.EventType),
		CreatedAt: doc.CreatedAt, Status: webhook.Status(doc.Status), Tries: doc.Tries, NextTry: orZero(doc.NextTry), Payload: doc.Payload,
		EventAt: orZero(doc.EventAt), DueAt: orZero(doc.DueAt), Deferred: doc.Deferred, Version: snap.UpdateTime,
	}
	for _, a := range doc.Attempts {
		took := time.Duration(a.Millis) * time.Millisecond
		d.Attempts = append(d.Attempts, webhook.Attempt{At: a.At, Duration: took, Status: a.Status, Error: a.Error, Answer: a.Answer})
	}
	return d, nil
}

// unreadableFor is for how long a due record that cannot be read is put off.
const unreadableFor = time.Hour

// readable are those of due deliveries that can be read. The others are put off, so
// that they keep nothing behind them from being seen; err says that this failed.
func (s *Store) readable(ctx context.Context, snaps []*firestore.DocumentSnapshot) (out []*webhook.Delivery, err error) {
	for _, snap := range snaps {
		d, e := toDelivery(snap)
		if e == nil {
			out = append(out, d)
			continue
		}
		slog.ErrorContext(ctx, "a delivery cannot be read; it is put off for an hour", "error", e)
		err = errors.Join(err, s.setAside(ctx, snap, s.later(), firestore.Update{Path: "deferred", Value: firestore.Delete}))
	}
	return out, err
}

// later makes a record due again after a while.
func (s *Store) later() firestore.Update {
	return firestore.Update{Path: "dueAt", Value: s.now().Add(unreadableFor)}
}

// setAside changes a record that cannot be read so that nothing finds it for now.
func (s *Store) setAside(ctx context.Context, snap *firestore.DocumentSnapshot, updates ...firestore.Update) error {
	err := s.db.Do(ctx, "set aside what cannot be read", func(ctx context.Context) error {
		_, err := snap.Ref.Update(ctx, updates, firestore.LastUpdateTime(snap.UpdateTime))
		return err
	})
	if errors.Is(err, firestoredb.ErrStale) || errors.Is(err, firestoredb.ErrNotFound) {
		return nil // somebody has changed or removed it since
	}
	return err
}

func (s *Store) snapshots(ctx context.Context, what string, q firestore.Query) (snaps []*firestore.DocumentSnapshot, err error) {
	err = s.db.Do(ctx, what, func(ctx context.Context) error {
		snaps, err = q.Documents(ctx).GetAll()
		return err
	})
	return snaps, err
}

// Deliveries lists a webhook's, newest first.
func (s *Store) Deliveries(ctx context.Context, webhookID string, before webhook.DeliveryPlace, limit int) (
	page []*webhook.Delivery, more bool, err error,
) {
	q := s.db.Collection(deliveries).Where("webhookId", "==", webhookID).
		OrderBy("createdAt", firestore.Desc).OrderBy(firestore.DocumentID, firestore.Desc)
	if before.ID != "" {
		q = q.StartAfter(before.At, before.ID)
	}
	for {
		snaps, err := s.snapshots(ctx, "list deliveries", q.Limit(limit+1))
		if err != nil {
			return nil, false, err
		}
		more = len(snaps) > limit
		snaps = snaps[:min(len(snaps), limit)]
		for _, snap := range snaps {
			d, err := toDelivery(snap)
			if err != nil {
				slog.WarnContext(ctx, "a delivery cannot be read and is not listed", "error", err)
				continue
			}
			page = append(page, d)
		}
		if !more || len(page) > 0 {
			return page, more, nil
		}
		// None of them can be read; a page that has more behind it needs a place.
		q = q.StartAfter(snaps[len(snaps)-1])
	}
}

// Delivery reads a delivery of a webhook.
func (s *Store) Delivery(ctx context.Context, webhookID, id string) (d *webhook.Delivery, err error) {
	if !validID(id, "whd_") {
		return nil, webhook.DeliveryNotFound()
	}
	err = s.db.Do(ctx, "get delivery", func(ctx context.Context) error {
		snap, err := s.deliveryRef(id).Get(ctx)
		if err != nil {
			return err
		}
		d, err = toDelivery(snap)
		return err
	})
	if errors.Is(err, firestoredb.ErrNotFound) || err == nil && d.WebhookID != webhookID {
		return nil, webhook.DeliveryNotFound()
	}
	return d, err
}

// AddDelivery stores a new delivery; one that is there already stays as it is.
func (s *Store) AddDelivery(ctx context.Context, d *webhook.Delivery) error {
	err := s.db.Do(ctx, "add delivery", func(ctx context.Context) error {
		_, err := s.deliveryRef(d.ID).Create(ctx, s.fromDelivery(d))
		return err
	})
	if errors.Is(err, firestoredb.ErrExists) {
		return nil
	}
	return err
}

// PutDelivery implements [webhook.Store].
func (s *Store) PutDelivery(ctx context.Context, d *webhook.Delivery) error {
	return s.db.Do(ctx, "put delivery", func(ctx context.Context) error {
		_, err := s.deliveryRef(d.ID).Set(ctx, s.fromDelivery(d))
		return err
	})
}

// DueOf lists up to n of a webhook's deliveries that are due, the earliest first. full
// says that there may be more.
func (s *Store) DueOf(ctx context.Context, webhookID string, n int) (list []*webhook.Delivery, full bool, err error) {
	return s.waitingOf(ctx, n, s.db.Collection(deliveries).Where("webhookId", "==", webhookID).
		Where("dueAt", "<=", s.now()).OrderBy("dueAt", firestore.Asc))
}

// DeferredOf lists up to n of a webhook's deliveries that wait for its lane, the oldest
// first. full says that there may be more.
func (s *Store) DeferredOf(ctx context.Context, webhookID string, n int) (list []*webhook.Delivery, full bool, err error) {
	return s.waitingOf(ctx, n, s.deferredOf(webhookID))
}

func (s *Store) deferredOf(webhookID string) firestore.Query {
	return s.db.Collection(deliveries).Where("webhookId", "==", webhookID).
		Where("deferred", "==", true).OrderBy("createdAt", firestore.Asc)
}

func (s *Store) waitingOf(ctx context.Context, n int, q firestore.Query) (list []*webhook.Delivery, full bool, err error) {
	snaps, err := s.snapshots(ctx, "list waiting deliveries", q.Limit(n))
	if err != nil {
		return nil, false, err
	}
	list, err = s.readable(ctx, snaps)
	return list, len(snaps) == n, err
}

// CountDeferred counts a webhook's deliveries that wait for its lane, up to most.
func (s *Store) CountDeferred(ctx context.Context, webhookID string, most int) (int, error) {
	return s.count(ctx, "count deferred deliveries", s.deferredOf(webhookID).Limit(most))
}

// Save writes a delivery over the version it was read at, and reports false when
// somebody else has changed or removed it since.
func (s *Store) Save(ctx context.Context, d *webhook.Delivery) (bool, error) {
	doc := s.fromDelivery(d)
	gone := func(keep bool, v any) any {
		if keep {
			return v
		}
		return firestore.Delete
	}
	err := s.db.Do(ctx, "save delivery", func(ctx context.Context) error {
		res, err := s.deliveryRef(d.ID).Update(ctx, []firestore.Update{
			{Path: "status", Value: doc.Status}, {Path: "attempts", Value: doc.Attempts},
			{Path: "tries", Value: doc.Tries}, {Path: "nextTry", Value: doc.NextTry},
			{Path: "lane", Value: gone(doc.Lane != nil, doc.Lane)}, {Path: "dueAt", Value: gone(doc.DueAt != nil, doc.DueAt)},
			{Path: "deferred", Value: gone(doc.Deferred, true)},
		}, firestore.LastUpdateTime(d.Version))
		if err == nil {
			d.Version = res.UpdateTime
		}
		return err
	})
	if errors.Is(err, firestoredb.ErrStale) || errors.Is(err, firestoredb.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Drop removes a delivery whose webhook is gone.
func (s *Store) Drop(ctx context.Context, id string) error {
	return s.db.Do(ctx, "drop delivery", func(ctx context.Context) error {
		_, err := s.deliveryRef(id).Delete(ctx)
		return err
	})
}

// dueLimit bounds a page of what is due.
const dueLimit = 200

// Due lists what is due in a lane, the oldest first, behind a
// place unless that is zero. next is the place behind the page; zero when nothing is
// there. Beside an error there may be some.
func (s *Store) Due(ctx context.Context, lane int, behind webhook.DeliveryPlace) (
	list []*webhook.Delivery, next webhook.DeliveryPlace, err error,
) {
	q := s.db.Collection(deliveries).Where("lane", "==", int64(lane)).Where("dueAt", "<=", s.now()).
		OrderBy("dueAt", firestore.Asc).OrderBy(firestore.DocumentID, firestore.Asc).Limit(dueLimit)
	if behind != (webhook.DeliveryPlace{}) {
		q = q.StartAfter(behind.At, behind.ID)
	}
	snaps, err := s.snapshots(ctx, "list due deliveries", q)
	if err != nil {
		return nil, next, err
	}
	if len(snaps) == dueLimit {
		last := snaps[len(snaps)-1]
		at, _ := last.Data()["dueAt"].(time.Time) // it was ordered by that
		next = webhook.DeliveryPlace{At: at, ID: last.Ref.ID}
	}
	list, err = s.readable(ctx, snaps)
	return list, next, err
}

type replayDoc struct {
	AccountID string    `firestore:"accountId"`
	WebhookID string    `firestore:"webhookId"`
	From      time.Time `firestore:"from"`
	To        time.Time `firestore:"to"`
	Next      int64     `firestore:"next"`
	DueAt     time.Time `firestore:"dueAt"`
	ExpireAt  time.Time `firestore:"expireAt"`
}

func (s *Store) replayRef(id string) *firestore.DocumentRef {
	return s.db.Collection(replays).Doc(id)
}

func fromReplay(r *webhook.Replay) *replayDoc {
	return &replayDoc{r.AccountID, r.WebhookID, r.From, r.To, r.Next, r.DueAt, r.DueAt.Add(events.Kept)}
}

// OpenReplays counts a webhook's replays that have not ended, up to most.
func (s *Store) OpenReplays(ctx context.Context, webhookID string, most int) (int, error) {
	return s.count(ctx, "count replays", s.db.Collection(replays).Where("webhookId", "==", webhookID).Limit(most))
}

// AddReplay stores the wish for a replay; one that is there already stays.
func (s *Store) AddReplay(ctx context.Context, r *webhook.Replay) error {
	err := s.db.Do(ctx, "add replay", func(ctx context.Context) error {
		_, err := s.replayRef(r.ID).Create(ctx, fromReplay(r))
		return err
	})
	if errors.Is(err, firestoredb.ErrExists) {
		return nil
	}
	return err
}

// Replays lists replays that nobody is working on.
func (s *Store) Replays(ctx context.Context) (out []*webhook.Replay, err error) {
	snaps, err := s.snapshots(ctx, "list replays",
		s.db.Collection(replays).Where("dueAt", "<=", s.now()).OrderBy("dueAt", firestore.Asc).Limit(20))
	if err != nil {
		return nil, err
	}
	for _, snap := range snaps {
		var d replayDoc
		if e := snap.DataTo(&d); e != nil {
			slog.ErrorContext(ctx, "a replay cannot be read; it is put off for an hour", "replay", snap.Ref.ID, "error", e)
			err = errors.Join(err, s.setAside(ctx, snap, s.later()))
			continue
		}
		out = append(out, &webhook.Replay{
			ID: snap.Ref.ID, AccountID: d.AccountID, WebhookID: d.WebhookID, From: d.From, To: d.To, Next: d.Next, DueAt: d.DueAt,
		})
	}
	return out, err
}

// Advance writes what a step of a replay made: its deliveries, and the replay as it is
// afterwards, or nothing of it when it has ended. Deliveries are named by replay and
// event, so a step that is done twice makes them once; of two replicas at one step, one
// changes nothing.
func (s *Store) Advance(ctx context.Context, r, next *webhook.Replay, list []*webhook.Delivery) error {
	return s.db.Tx(ctx, "advance replay", func(_ context.Context, tx *firestore.Transaction) error {
		var d replayDoc
		found, err := read(tx, s.replayRef(r.ID), &d)
		if err != nil || !found || d.Next != r.Next {
			return err
		}
		for _, delivery := range list {
			if err := tx.Set(s.deliveryRef(delivery.ID), s.fromDelivery(delivery)); err != nil {
				return err
			}
		}
		if next == nil {
			return tx.Delete(s.replayRef(r.ID))
		}
		return tx.Set(s.replayRef(r.ID), fromReplay(next))
	})
}

// RestReplay puts a replay off for a moment.
func (s *Store) RestReplay(ctx context.Context, r *webhook.Replay) error {
	err := s.db.Do(ctx, "put off replay", func(ctx context.Context) error {
		_, err := s.replayRef(r.ID).Update(ctx, []firestore.Update{{Path: "dueAt", Value: s.now().Add(webhook.ReplayRest)}})
		return err
	})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return nil // somebody else ended it
	}
	return err
}

// count counts what a query finds.
func (s *Store) count(ctx context.Context, what string, q firestore.Query) (n int, err error) {
	err = s.db.Do(ctx, what, func(ctx context.Context) error {
		found, err := q.NewAggregationQuery().WithCount("n").Get(ctx)
		if err != nil {
			return err
		}
		v, ok := found["n"].(*firestorepb.Value)
		if !ok {
			return fmt.Errorf("%s: no count", what)
		}
		n = int(v.GetIntegerValue())
		return nil
	})
	return n, err
}

// DropReplay removes a replay whose webhook is gone.
func (s *Store) DropReplay(ctx context.Context, id string) error {
	return s.db.Do(ctx, "drop replay", func(ctx context.Context) error {
		_, err := s.replayRef(id).Delete(ctx)
		return err
	})
}
