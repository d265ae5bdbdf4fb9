package store

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// deliveryDoc is the document webhookDeliveries/{id}. Lane and DueAt are set while the delivery is
// pending, so sweeps find it.
type deliveryDoc struct {
	AccountID string       `firestore:"accountId"`
	WebhookID string       `firestore:"webhookId"`
	EventID   string       `firestore:"eventId"`
	EventType string       `firestore:"eventType"`
	CreatedAt time.Time    `firestore:"createdAt"`
	Status    string       `firestore:"status"`
	Attempts  []attemptDoc `firestore:"attempts"`
	Tries     int          `firestore:"tries"`
	NextTry   time.Time    `firestore:"nextTry,omitzero"`
	Payload   string       `firestore:"payload,omitempty"`
	EventAt   time.Time    `firestore:"eventAt,omitzero"`
	ExpireAt  time.Time    `firestore:"expireAt"`

	Lane     *int64    `firestore:"lane,omitempty"`
	DueAt    time.Time `firestore:"dueAt,omitzero"`
	Deferred bool      `firestore:"deferred,omitempty"`
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
		Status: string(d.Status), Tries: d.Tries, NextTry: d.NextTry,
		Payload: d.Payload, EventAt: d.EventAt,
		ExpireAt: d.CreatedAt.Add(events.Kept), Deferred: d.Deferred,
	}
	for _, a := range d.Attempts {
		doc.Attempts = append(doc.Attempts, attemptDoc{a.At, a.Duration.Milliseconds(), a.Status, a.Error, a.Answer})
	}
	if d.Status == webhook.Pending {
		lane := int64(webhook.LaneOf(d.WebhookID, s.lanes))
		doc.Lane, doc.DueAt = &lane, d.DueAt
	}
	return doc
}

var readDelivery = firestoredb.Reader(func(snap firestoredb.Snap, doc *deliveryDoc) *webhook.Delivery {
	d := &webhook.Delivery{
		ID: snap.Ref.ID, AccountID: doc.AccountID, WebhookID: doc.WebhookID, EventID: doc.EventID, EventType: events.Type(doc.EventType),
		CreatedAt: doc.CreatedAt, Status: webhook.Status(doc.Status), Tries: doc.Tries, NextTry: doc.NextTry,
		Payload: doc.Payload, EventAt: doc.EventAt, DueAt: doc.DueAt, Deferred: doc.Deferred,
		Version: snap.UpdateTime,
	}
	for _, a := range doc.Attempts {
		took := time.Duration(a.Millis) * time.Millisecond
		d.Attempts = append(d.Attempts, webhook.Attempt{At: a.At, Duration: took, Status: a.Status, Error: a.Error, Answer: a.Answer})
	}
	return d
})

// unreadableFor is how long an unreadable due record is deferred.
const unreadableFor = time.Hour

// readable returns the deliveries that can be read. It defers the others, so that they do not
// hide later deliveries, and returns an error if that fails.
func (s *Store) readable(ctx context.Context, snaps []firestoredb.Snap) (out []*webhook.Delivery, err error) {
	out, broken := firestoredb.Sift(snaps, readDelivery)
	for _, b := range broken {
		slog.ErrorContext(ctx, "cannot read a delivery; retrying in an hour", "error", b.Err)
		err = errors.Join(err, s.setAside(ctx, b.Snap, s.later(), firestore.Update{Path: "deferred", Value: firestore.Delete}))
	}
	return out, err
}

// later returns an update that makes a record due again after unreadableFor.
func (s *Store) later() firestore.Update {
	return firestore.Update{Path: "dueAt", Value: s.now().Add(unreadableFor)}
}

// setAside applies updates that hide an unreadable record from queries for now.
func (s *Store) setAside(ctx context.Context, snap *firestore.DocumentSnapshot, updates ...firestore.Update) error {
	err := s.db.Update(ctx, "set aside an unreadable record", snap.Ref, updates, firestore.LastUpdateTime(snap.UpdateTime))
	return firestoredb.IgnoreMoved(err)
}

// Deliveries lists a page of a webhook's deliveries, newest first, and reports whether there are
// more.
func (s *Store) Deliveries(ctx context.Context, webhookID string, p paging.Page) (page []*webhook.Delivery, more bool, err error) {
	q := s.db.Collection(deliveries).Where("webhookId", "==", webhookID)
	return firestoredb.Page(ctx, s.db, "list deliveries", q, p, readDelivery)
}

// Delivery reads one of a webhook's deliveries.
func (s *Store) Delivery(ctx context.Context, webhookID, id string) (*webhook.Delivery, error) {
	d, found, err := firestoredb.Lookup(ctx, s.db, "get delivery", s.db.Ref(deliveries, id), readDelivery)
	if err == nil && (!found || d.WebhookID != webhookID) {
		err = webhook.DeliveryNotFound()
	}
	return d, err
}

// Flying implements [webhook.Store].
func (s *Store) Flying(ctx context.Context, accountID, webhookID string) (list []*webhook.Delivery, err error) {
	f, err := s.Feed(ctx, accountID)
	if err != nil {
		return nil, err
	}
	since := map[string]time.Time{}
	var refs []firestoredb.Ref
	for _, e := range f.Sending {
		// The feed drops finished events only at its next change, so skip old ones: after two
		// leases, another replica has taken over.
		if slices.Contains(e.Webhooks, webhookID) && s.now().Sub(e.Since) < 2*webhook.Lease {
			since[e.EventID] = e.Since
			refs = append(refs, s.outboxRef(e.EventID))
		}
	}
	if len(refs) == 0 {
		return nil, nil
	}
	snaps, err := s.db.Read(ctx, "get first attempts", refs...)
	for _, snap := range snaps {
		if d, err := firestoredb.As[outbox.Document](snap); err == nil {
			list = append(list, webhook.Send(webhookID, webhookID, waitingEvent(snap.Ref.ID, &d), true, since[snap.Ref.ID]))
		}
	}
	return list, err
}

// AddDelivery stores a new delivery. It does not change an existing one.
func (s *Store) AddDelivery(ctx context.Context, d *webhook.Delivery) error {
	err := s.db.Create(ctx, "add delivery", s.deliveryRef(d.ID), s.fromDelivery(d))
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

// DueOf lists up to n of a webhook's due deliveries, earliest first. full means that there may be
// more.
func (s *Store) DueOf(ctx context.Context, webhookID string, n int) (list []*webhook.Delivery, full bool, err error) {
	return s.waitingOf(ctx, n, s.db.Collection(deliveries).Where("webhookId", "==", webhookID).
		Where("dueAt", "<=", s.now()).OrderBy("dueAt", firestore.Asc))
}

// DeferredOf lists up to n of a webhook's deliveries that are waiting for room in its lane,
// oldest first. full means that there may be more.
func (s *Store) DeferredOf(ctx context.Context, webhookID string, n int) (list []*webhook.Delivery, full bool, err error) {
	return s.waitingOf(ctx, n, s.deferredOf(webhookID))
}

func (s *Store) deferredOf(webhookID string) firestore.Query {
	return s.db.Collection(deliveries).Where("webhookId", "==", webhookID).
		Where("deferred", "==", true).OrderBy("createdAt", firestore.Asc)
}

func (s *Store) waitingOf(ctx context.Context, n int, q firestore.Query) (list []*webhook.Delivery, full bool, err error) {
	snaps, err := s.db.Query(ctx, "list waiting deliveries", q.Limit(n))
	if err != nil {
		return nil, false, err
	}
	list, err = s.readable(ctx, snaps)
	return list, len(snaps) == n, err
}

// CountDeferred counts a webhook's deliveries that are waiting for room in its lane, up to the
// limit most.
func (s *Store) CountDeferred(ctx context.Context, webhookID string, most int) (int64, error) {
	return s.db.Count(ctx, "count deferred deliveries", s.deferredOf(webhookID).Limit(most))
}

// Save stores a changed delivery. It returns false if the stored delivery has been changed or
// removed since it was read.
func (s *Store) Save(ctx context.Context, d *webhook.Delivery) (bool, error) {
	var err error
	if d.Flight == nil {
		err = s.saveOver(ctx, d)
	} else {
		err = d.Land(func(last bool) error { return s.land(ctx, d, last) })
	}
	if errors.Is(err, firestoredb.ErrStale) || errors.Is(err, firestoredb.ErrNotFound) || errors.Is(err, firestoredb.ErrExists) {
		return false, nil
	}
	return err == nil, err
}

// land creates a delivery's document after its first attempt. The event must still be in
// the outbox. Otherwise, another replica has taken over, or the account has been erased.
func (s *Store) land(ctx context.Context, d *webhook.Delivery, last bool) error {
	var committed firestore.CommitResponse
	write := func(_ context.Context, tx *firestore.Transaction) (err error) {
		if last {
			err = tx.Delete(s.outboxRef(d.EventID), firestore.Exists)
		} else {
			_, err = tx.Get(s.outboxRef(d.EventID))
		}
		if err != nil {
			return err
		}
		return tx.Create(s.deliveryRef(d.ID), s.fromDelivery(d))
	}
	commit := s.db.Tx
	if last {
		commit = s.db.Commit // the last commit doesn't read anything
	}
	err := commit(ctx, "record first attempt", write, firestore.WithCommitResponseTo(&committed))
	if err == nil {
		d.Version = committed.CommitTime()
	}
	return err
}

// TakeOver creates an event's missing deliveries and removes the event from the outbox. If the
// event has already left the outbox, TakeOver does nothing.
func (s *Store) TakeOver(ctx context.Context, eventID string, list []*webhook.Delivery) error {
	return s.records.Tx(ctx, "take over first attempts", func(tx *record.Tx) error {
		refs := []firestoredb.Ref{s.outboxRef(eventID)}
		for _, d := range list {
			refs = append(refs, s.deliveryRef(d.ID))
		}
		there, err := tx.GetAll(refs...)
		if err != nil || there[0] == nil {
			return err
		}
		for i, d := range list {
			if there[i+1] == nil {
				tx.Create(s.deliveryRef(d.ID), s.fromDelivery(d))
			}
		}
		tx.Delete(s.outboxRef(eventID))
		return nil
	})
}

// saveOver updates a stored delivery.
func (s *Store) saveOver(ctx context.Context, d *webhook.Delivery) error {
	// Write only the fields that an attempt can change. All other fields, such as the payload,
	// never change.
	doc := s.fromDelivery(d)
	// Delete empty fields. Unlike creating a document, an update would store them as
	// zero values. Queries find waiting deliveries by these fields, so a finished delivery must
	// not have them.
	orDelete := func(keep bool, v any) any {
		if keep {
			return v
		}
		return firestore.Delete
	}
	return s.db.Do(ctx, "save delivery", func(ctx context.Context) error {
		res, err := s.deliveryRef(d.ID).Update(ctx, []firestore.Update{
			{Path: "status", Value: doc.Status}, {Path: "attempts", Value: doc.Attempts},
			{Path: "tries", Value: doc.Tries}, {Path: "nextTry", Value: orDelete(!doc.NextTry.IsZero(), doc.NextTry)},
			{Path: "lane", Value: orDelete(doc.Lane != nil, doc.Lane)}, {Path: "dueAt", Value: orDelete(!doc.DueAt.IsZero(), doc.DueAt)},
			{Path: "deferred", Value: orDelete(doc.Deferred, true)},
		}, firestore.LastUpdateTime(d.Version))
		if err == nil {
			d.Version = res.UpdateTime
		}
		return err
	})
}

// Drop removes a delivery for a deleted webhook.
func (s *Store) Drop(ctx context.Context, d *webhook.Delivery) error {
	if d.Flight == nil {
		return s.db.DeleteAll(ctx, "drop delivery", s.deliveryRef(d.ID))
	}
	return d.Land(func(last bool) error {
		if !last {
			return nil
		}
		return s.db.DeleteAll(ctx, "drop first attempt", s.outboxRef(d.EventID))
	})
}

// dueLimit is the maximum number of due deliveries on a page.
const dueLimit = 200

// Due lists a page of the due deliveries in up to 30 lanes, oldest first. It starts after the
// position behind, or at the oldest delivery if behind is zero. Pass next as behind to read the
// following page. next is zero if there are no more pages. Due may return deliveries together
// with an error.
func (s *Store) Due(ctx context.Context, lanes []int, behind paging.Place) (
	list []*webhook.Delivery, next paging.Place, err error,
) {
	q := s.db.Collection(deliveries).Where("lane", "in", lanes).Where("dueAt", "<=", s.now()).
		OrderBy("dueAt", firestore.Asc).OrderBy(firestore.DocumentID, firestore.Asc).Limit(dueLimit)
	if behind != (paging.Place{}) {
		q = q.StartAfter(behind.At, behind.ID)
	}
	snaps, err := s.db.Query(ctx, "list due deliveries", q)
	if err != nil {
		return nil, next, err
	}
	if len(snaps) == dueLimit {
		last := snaps[len(snaps)-1]
		at, _ := last.Data()["dueAt"].(time.Time) // the query orders by this field
		next = paging.Place{At: at, ID: last.Ref.ID}
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

// OpenReplays counts a webhook's unfinished replays, up to the limit most.
func (s *Store) OpenReplays(ctx context.Context, webhookID string, most int) (int64, error) {
	return s.db.Count(ctx, "count replays", s.db.Collection(replays).Where("webhookId", "==", webhookID).Limit(most))
}

// AddReplay stores a requested replay. It does not change an existing one.
func (s *Store) AddReplay(ctx context.Context, r *webhook.Replay) error {
	err := s.db.Create(ctx, "add replay", s.replayRef(r.ID), fromReplay(r))
	if errors.Is(err, firestoredb.ErrExists) {
		return nil
	}
	return err
}

var readReplay = firestoredb.Reader(func(snap firestoredb.Snap, d *replayDoc) *webhook.Replay {
	return &webhook.Replay{
		ID: snap.Ref.ID, AccountID: d.AccountID, WebhookID: d.WebhookID, From: d.From, To: d.To, Next: d.Next, DueAt: d.DueAt,
	}
})

// Replays lists the due replays.
func (s *Store) Replays(ctx context.Context) ([]*webhook.Replay, error) {
	snaps, err := s.db.Query(ctx, "list replays",
		s.db.Collection(replays).Where("dueAt", "<=", s.now()).OrderBy("dueAt", firestore.Asc).Limit(20))
	if err != nil {
		return nil, err
	}
	out, broken := firestoredb.Sift(snaps, readReplay)
	for _, b := range broken {
		slog.ErrorContext(ctx, "cannot read a replay; retrying in an hour", "error", b.Err)
		err = errors.Join(err, s.setAside(ctx, b.Snap, s.later()))
	}
	return out, err
}

// Advance writes the deliveries that a replay's step has created, and stores next as the replay's
// new state. If next is nil, it deletes the replay. A delivery's ID is derived from the replay and
// the event, so a repeated step creates it only once. If two replicas execute the same step, one of
// them has no effect.
func (s *Store) Advance(ctx context.Context, r, next *webhook.Replay, list []*webhook.Delivery) error {
	return s.records.Tx(ctx, "advance replay", func(tx *record.Tx) error {
		var d replayDoc
		found, err := tx.Load(s.replayRef(r.ID), &d)
		if err != nil || !found || d.Next != r.Next {
			return err
		}
		for _, delivery := range list {
			tx.Set(s.deliveryRef(delivery.ID), s.fromDelivery(delivery))
		}
		if next == nil {
			tx.Delete(s.replayRef(r.ID))
		} else {
			tx.Set(s.replayRef(r.ID), fromReplay(next))
		}
		return nil
	})
}

// RestReplay postpones a replay briefly.
func (s *Store) RestReplay(ctx context.Context, r *webhook.Replay) error {
	later := []firestore.Update{{Path: "dueAt", Value: s.now().Add(webhook.ReplayRest)}}
	return firestoredb.IgnoreMoved(s.db.Update(ctx, "put off replay", s.replayRef(r.ID), later)) // the replay may have ended
}

// DropReplay removes a replay for a deleted webhook.
func (s *Store) DropReplay(ctx context.Context, id string) error {
	return s.db.DeleteAll(ctx, "drop replay", s.replayRef(id))
}
