package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// feedDoc is feeds/{account}. Subscribers holds every webhook of the account, so
// that the commit that gives places knows who wants what without another read.
type feedDoc struct {
	Head        int64                    `firestore:"head"`
	Subscribers map[string]subscriberDoc `firestore:"subscribers"`
}

type subscriberDoc struct {
	Events  []string `firestore:"events"`
	Enabled bool     `firestore:"enabled"`
}

func (s *Store) feedRef(accountID string) *firestore.DocumentRef {
	return s.db.Collection(feeds).Doc(accountID)
}

func (s *Store) eventRef(id string) *firestore.DocumentRef {
	return s.db.Collection(outbox.Collection).Doc(id)
}

// Feed reads an account's feed.
func (s *Store) Feed(ctx context.Context, accountID string) (*feed.Feed, error) {
	var d feedDoc
	_, err := s.get(ctx, "get feed", s.feedRef(accountID), &d)
	return d.feed(accountID), err
}

func (d *feedDoc) feed(accountID string) *feed.Feed {
	f := &feed.Feed{AccountID: accountID, Head: d.Head, Subscribers: map[string]feed.Subscriber{}}
	for id, sub := range d.Subscribers {
		f.Subscribers[id] = feed.Subscriber(sub)
	}
	return f
}

// Place writes the places of events, and their deliveries, unless the feed has changed
// since it was read as before: then ErrMoved. The deliveries may be saved afterwards
// without reading them first.
func (s *Store) Place(ctx context.Context, before *feed.Feed, placed []*feed.Event, list []*webhook.Delivery) error {
	var committed firestore.CommitResponse
	write := func(_ context.Context, tx *firestore.Transaction) error {
		var now feedDoc
		if _, err := read(tx, s.feedRef(before.AccountID), &now); err != nil {
			return err
		}
		// Subscribers too: a webhook that was made before one of these events must have
		// its delivery.
		if !reflect.DeepEqual(now.feed(before.AccountID), before) {
			return feed.ErrMoved
		}
		head := placed[len(placed)-1].Seq
		if err := tx.Set(s.feedRef(before.AccountID), map[string]any{"head": head}, firestore.MergeAll); err != nil {
			return err
		}
		for _, e := range placed {
			err := tx.Update(s.eventRef(e.ID), []firestore.Update{
				{Path: "seq", Value: e.Seq}, {Path: "waiting", Value: firestore.Delete}, {Path: "lane", Value: firestore.Delete},
			})
			if err != nil {
				return err
			}
		}
		for _, d := range list {
			if err := tx.Create(s.deliveryRef(d.ID), fromDelivery(d)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.db.Tx(ctx, "give places", write, firestore.WithCommitResponseTo(&committed)); err != nil {
		return err // a failed commit has no time
	}
	for _, d := range list {
		d.Version = committed.CommitTime()
	}
	return nil
}

// Waiting reads what has no place yet, in the order of commits: some limit of them, or
// as many as came in one millisecond. more says that others may wait. An event that
// cannot be read gets no place: it would keep everything behind it out of the feed.
func (s *Store) Waiting(ctx context.Context, accountID string, limit int) (list []*feed.Event, more bool, err error) {
	type dated struct {
		event     *feed.Event
		committed time.Time
		order     int64
	}
	var found []dated
	// Again for as long as some were set aside, since others come up in their place.
	for again := true; again; {
		snaps, err := s.snapshots(ctx, "list waiting events", s.db.Collection(outbox.Collection).Where("waiting", "==", accountID).
			OrderBy("at", firestore.Asc).Limit(limit))
		if err != nil {
			return nil, false, err
		}
		found, again = found[:0], false
		for _, snap := range snaps {
			var d outbox.Document
			if err := snap.DataTo(&d); err != nil {
				if err := s.withoutPlace(ctx, snap, err); err != nil {
					return nil, false, err
				}
				again = true
				continue
			}
			found = append(found, dated{eventOf(snap.Ref.ID, &d), snap.CreateTime, d.Order})
		}
		if more = len(snaps) == limit; more && !again && limit > 1 {
			// The last millisecond may have been cut in two, and its first changes be in the other part.
			last := found[len(found)-1].event.At
			if whole := slices.IndexFunc(found, func(d dated) bool { return d.event.At.Equal(last) }); whole > 0 {
				found = found[:whole]
			} else {
				limit, again = 2*limit, true
			}
		}
	}
	// Not by "at", which the database sets to the millisecond: two changes of one record
	// could swap. The time of the commit is exact, and order tells apart what one commit
	// wrote.
	slices.SortStableFunc(found, func(a, b dated) int {
		return cmp.Or(a.committed.Compare(b.committed), cmp.Compare(a.order, b.order))
	})
	list = make([]*feed.Event, len(found))
	for i, f := range found {
		list[i] = f.event
	}
	return list, more, nil
}

// withoutPlace sets aside an event that cannot be read. The document stays until it
// expires.
func (s *Store) withoutPlace(ctx context.Context, snap *firestore.DocumentSnapshot, why error) error {
	slog.ErrorContext(ctx, "an event cannot be read; it gets no place in the feed", "event", snap.Ref.ID, "error", why)
	return s.setAside(ctx, snap,
		firestore.Update{Path: "waiting", Value: firestore.Delete}, firestore.Update{Path: "lane", Value: firestore.Delete})
}

// overlookedPage bounds what one look reads of a lane's oldest events.
const overlookedPage = 100

// Overlooked lists accounts with events that have waited since before t, and how
// long the oldest of all has waited. A lane that is full of one account's events
// shows the others little by little, in the next calls. Beside an error there may
// be some.
func (s *Store) Overlooked(ctx context.Context, before time.Time) (accounts []string, oldest time.Time, err error) {
	seen := map[string]bool{}
	take := func(snaps []*firestore.DocumentSnapshot) {
		for _, snap := range snaps {
			value, _ := snap.DataAt("waiting")
			account, ok := value.(string)
			if !ok || account == "" {
				err = errors.Join(err, s.withoutPlace(ctx, snap, errors.New("no account waits for it")))
				continue
			}
			if at, _ := snap.DataAt("at"); oldest.IsZero() || at.(time.Time).Before(oldest) {
				oldest = at.(time.Time) // the query compares it with a time, so it is one
			}
			if !seen[account] {
				seen[account] = true
				accounts = append(accounts, account)
			}
		}
	}
	for i := range outbox.Lanes {
		q := s.db.Collection(outbox.Collection).Where("lane", "==", outbox.LaneName(i)).Where("at", "<", before).
			OrderBy("at", firestore.Asc).Limit(overlookedPage).Select("waiting", "at")
		first, e := s.snapshots(ctx, "list overlooked events", q)
		err = errors.Join(err, e)
		take(first)
		if len(first) < overlookedPage {
			continue
		}
		// The oldest may be of an account that gets no places just now. So each call also looks
		// at one page behind them, and the next call at the one after that.
		s.mu.Lock()
		from := s.lap[i]
		s.mu.Unlock()
		if from == nil {
			from = first[len(first)-1]
		}
		further, e := s.snapshots(ctx, "list overlooked events", q.StartAfter(from))
		err = errors.Join(err, e)
		take(further)
		from = nil // from the front again
		if len(further) == overlookedPage {
			from = further[len(further)-1]
		}
		s.mu.Lock()
		s.lap[i] = from
		s.mu.Unlock()
	}
	return accounts, oldest, err
}

// Head is the highest place of the account's feed.
func (s *Store) Head(ctx context.Context, accountID string) (int64, error) {
	var d feedDoc
	_, err := s.get(ctx, "get feed", s.feedRef(accountID), &d)
	return d.Head, err
}

// PlaceOf finds the place of one of the account's events.
func (s *Store) PlaceOf(ctx context.Context, accountID, eventID string) (int64, error) {
	e, err := s.Event(ctx, eventID)
	if err != nil {
		return 0, err
	}
	if e == nil || e.AccountID != accountID || e.Seq == 0 {
		return 0, feed.ErrCursor
	}
	return e.Seq, nil
}

// Event reads an event of any account; nil when there is none, or no more.
func (s *Store) Event(ctx context.Context, id string) (*feed.Event, error) {
	if !validID(id, "evt_") {
		return nil, nil
	}
	var d outbox.Document
	found, err := s.get(ctx, "get event", s.eventRef(id), &d)
	if err != nil || !found {
		return nil, err
	}
	return eventOf(id, &d), nil
}

// Page reads a page of a feed. The database deletes late what has expired, and
// what has expired is in no page.
func (s *Store) Page(ctx context.Context, q feed.Query) (feed.Page, error) {
	page, last, err := s.page(ctx, q)
	if err != nil || !q.Forward || len(page.Events) > 0 || !page.More {
		return page, err
	}
	// A whole page of expired events: without a step beyond them a reader would ask
	// for the same page for ever.
	q.After = last
	place, found, err := s.PlaceAt(ctx, q.AccountID, s.now().Add(-events.Kept))
	if err != nil {
		return page, err
	}
	if !found {
		return feed.Page{}, nil // all of it has expired
	}
	q.After = max(q.After, place)
	page, _, err = s.page(ctx, q)
	return page, err
}

// page is one query; last is the place of the last event that it read, expired
// or not.
func (s *Store) page(ctx context.Context, q feed.Query) (page feed.Page, last int64, err error) {
	find := s.db.Collection(outbox.Collection).Where("accountId", "==", q.AccountID)
	switch len(q.Types) {
	case 0, len(events.Types()): // Firestore compares with 30 values at most
	case 1:
		find = find.Where("type", "==", string(q.Types[0]))
	default:
		find = find.Where("type", "in", q.Types)
	}
	if q.Object != "" {
		find = find.Where("object", "==", q.Object)
	}
	switch {
	case q.Forward:
		find = find.Where("seq", ">", q.After).OrderBy("seq", firestore.Asc)
	case q.Before > 0:
		find = find.Where("seq", "<", q.Before).OrderBy("seq", firestore.Desc)
	default:
		find = find.OrderBy("seq", firestore.Desc)
	}
	err = s.db.Do(ctx, "list events", func(ctx context.Context) error {
		snaps, err := find.Limit(q.Limit + 1).Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		page = feed.Page{More: len(snaps) > q.Limit}
		for _, snap := range snaps[:min(len(snaps), q.Limit)] {
			var d outbox.Document
			if err := snap.DataTo(&d); err != nil {
				return fmt.Errorf("read event %s: %w", snap.Ref.ID, err)
			}
			last = d.Seq
			if d.ExpireAt.After(s.now()) {
				page.Events = append(page.Events, eventOf(snap.Ref.ID, &d))
			} else if !q.Forward {
				page.More = false // what comes after it is older
			}
		}
		return nil
	})
	return page, last, err
}

// PlaceAt is the place before the first event of the account that was made at t
// or later; found is false when there is none.
func (s *Store) PlaceAt(ctx context.Context, accountID string, t time.Time) (place int64, found bool, err error) {
	err = s.db.Do(ctx, "find event by time", func(ctx context.Context) error {
		snaps, err := s.db.Collection(outbox.Collection).Where("accountId", "==", accountID).Where("at", ">=", t).
			OrderBy("at", firestore.Asc).Limit(1).Documents(ctx).GetAll()
		if err != nil || len(snaps) == 0 {
			return err
		}
		var d outbox.Document
		if err := snaps[0].DataTo(&d); err != nil {
			return err
		}
		place, found = d.Seq-1, d.Seq > 0
		return nil
	})
	return place, found, err
}

func eventOf(id string, d *outbox.Document) *feed.Event {
	return &feed.Event{
		ID: id, AccountID: d.AccountID, Type: events.Type(d.Type), Object: d.Object, At: d.At,
		Actor:     events.Actor{Type: events.ActorType(d.ActorType), ID: d.ActorID, Name: d.ActorName},
		RequestID: d.RequestID, Data: d.Data, Seq: d.Seq,
	}
}

var _ feed.Store = (*Store)(nil)
