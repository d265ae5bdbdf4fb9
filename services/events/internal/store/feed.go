package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// feedDoc is the document feeds/{account}.
type feedDoc struct {
	Head        int64                    `firestore:"head"`
	Recent      []eventDoc               `firestore:"recent"`
	Sending     []sendingDoc             `firestore:"sending"`
	Subscribers map[string]subscriberDoc `firestore:"subscribers"`
	// Restores is absent if the database has never been restored.
	Restores []restoreDoc `firestore:"restores,omitempty"`
	// TrimOn is the first day on which the oldest event in Recent has expired. Sweeps use it to
	// find inactive accounts. It is a day rather than a time: a time would change the index on
	// almost every write, while a day changes it at most once a day per account.
	TrimOn string `firestore:"trimOn,omitempty"`
}

type sendingDoc struct {
	EventID  string    `firestore:"id"`
	At       time.Time `firestore:"at"`
	Since    time.Time `firestore:"since"`
	Webhooks []string  `firestore:"webhooks"`
}

type restoreDoc struct {
	ID   string `firestore:"id"`
	Head int64  `firestore:"head"`
}

type subscriberDoc struct {
	Events  []string `firestore:"events"`
	Enabled bool     `firestore:"enabled"`
}

// pageDoc is the document feedPages/{account}~{first position}. It contains an account's events
// with consecutive positions from First to Last.
type pageDoc struct {
	AccountID string     `firestore:"accountId"`
	First     int64      `firestore:"first"`
	Last      int64      `firestore:"last"`
	Newest    time.Time  `firestore:"newest"` // time of the newest event
	Events    []eventDoc `firestore:"events"`
	Keys      []string   `firestore:"keys"` // see keysOf
	ExpireAt  time.Time  `firestore:"expireAt"`
}

type eventDoc struct {
	ID        string    `firestore:"id"`
	Type      string    `firestore:"type"`
	Object    string    `firestore:"object"`
	At        time.Time `firestore:"at"`
	ActorType string    `firestore:"actorType"`
	ActorID   string    `firestore:"actorId"`
	ActorName string    `firestore:"actorName"`
	RequestID string    `firestore:"requestId"`
	Data      string    `firestore:"data"`
}

var (
	readFeed = firestoredb.Reader(func(snap firestoredb.Snap, d *feedDoc) *feed.Feed {
		f := &feed.Feed{AccountID: snap.Ref.ID, Head: d.Head, Version: snap.UpdateTime, ReadAt: snap.ReadTime}
		f.Recent = eventsOf(f.AccountID, d.Recent, d.Head-int64(len(d.Recent))+1)
		for _, e := range d.Sending {
			f.Sending = append(f.Sending, feed.Sending{EventID: e.EventID, At: e.At, Since: e.Since, Webhooks: e.Webhooks})
		}
		for _, r := range d.Restores {
			f.Restores = append(f.Restores, feed.Restore(r))
		}
		f.Subscribers = map[string]feed.Subscriber{}
		for id, sub := range d.Subscribers {
			f.Subscribers[id] = feed.Subscriber(sub)
		}
		return f
	})
	readPage = firestoredb.Reader(func(_ firestoredb.Snap, d *pageDoc) []*feed.Event {
		return eventsOf(d.AccountID, d.Events, d.First)
	})
)

func eventsOf(accountID string, docs []eventDoc, first int64) []*feed.Event {
	list := make([]*feed.Event, len(docs))
	for i, d := range docs {
		list[i] = &feed.Event{
			ID: d.ID, AccountID: accountID, Type: events.Type(d.Type), Object: d.Object, At: d.At,
			Actor:     events.Actor{Type: events.ActorType(d.ActorType), ID: d.ActorID, Name: d.ActorName},
			RequestID: d.RequestID, Data: d.Data, Seq: first + int64(i),
		}
	}
	return list
}

func eventDocs(list []*feed.Event) []eventDoc {
	docs := make([]eventDoc, len(list))
	for i, e := range list {
		docs[i] = eventDoc{
			ID: e.ID, Type: string(e.Type), Object: e.Object, At: e.At,
			ActorType: string(e.Actor.Type), ActorID: e.Actor.ID, ActorName: e.Actor.Name, RequestID: e.RequestID, Data: e.Data,
		}
	}
	return docs
}

func waitingEvent(id string, d *outbox.Document) *feed.Event {
	return &feed.Event{
		ID: id, AccountID: d.AccountID, Type: events.Type(d.Type), Object: d.Object, At: d.At,
		Actor:     events.Actor{Type: events.ActorType(d.ActorType), ID: d.ActorID, Name: d.ActorName},
		RequestID: d.RequestID, Data: d.Data,
	}
}

func newPage(accountID string, list []*feed.Event) (id string, d *pageDoc) {
	d = &pageDoc{AccountID: accountID, First: list[0].Seq, Last: list[len(list)-1].Seq, Events: eventDocs(list)}
	for _, e := range list {
		// The order of times can differ slightly from the order of positions, so the last event is
		// not always the newest.
		if e.At.After(d.Newest) {
			d.Newest = e.At
		}
		d.Keys = append(d.Keys, e.ID, string(e.Type), e.Object, objectAndType(e.Object, e.Type))
	}
	slices.Sort(d.Keys)
	d.Keys = slices.Compact(d.Keys)
	d.ExpireAt = d.Newest.Add(events.Kept)
	return fmt.Sprintf("%s~%020d", accountID, d.First), d
}

// Queries find pages by their keys. A page's keys are its events' IDs, types and objects, and each
// pair of object and type. Keys of different kinds are never equal.
func objectAndType(object string, t events.Type) string { return object + " " + string(t) }

// maxKeys is the maximum number of values in a Firestore filter.
const maxKeys = 30

// keysOf returns the keys for a query. Only pages with at least one of these keys can contain
// matching events. Without keys, every page can.
func keysOf(q feed.Query) (keys []string) {
	byType := len(q.Types) > 0 && len(q.Types) <= maxKeys
	switch {
	case !byType && q.Object != "":
		keys = []string{q.Object}
	case byType:
		for _, t := range q.Types {
			if q.Object == "" {
				keys = append(keys, string(t))
			} else {
				keys = append(keys, objectAndType(q.Object, t))
			}
		}
	}
	return keys
}

func (s *Store) feedRef(accountID string) *firestore.DocumentRef {
	return s.db.Collection(feeds).Doc(accountID)
}

func (s *Store) outboxRef(eventID string) *firestore.DocumentRef {
	return s.db.Collection(outbox.Collection).Doc(eventID)
}

// Feed reads an account's feed.
func (s *Store) Feed(ctx context.Context, accountID string) (*feed.Feed, error) {
	f, found, err := firestoredb.Lookup(ctx, s.db, "get feed", s.feedRef(accountID), readFeed)
	if !found {
		f = &feed.Feed{AccountID: accountID}
	}
	return f, err
}

// Place puts events into the feed and adds their deliveries. If the feed has changed since it was
// read, Place returns feed.ErrMoved. A change to the feed's subscribers counts too because a
// webhook that was created before one of these events must get that event. Place removes all events
// from the outbox except those in their first attempts. It sets the version of each delivery, so
// the delivery can be saved without reading it first.
func (s *Store) Place(ctx context.Context, p *feed.Placing, list []*webhook.Delivery) error {
	var committed firestore.CommitResponse
	// With preconditions instead of reads, the commit needs only one database call, and changes to
	// the account cannot abort it.
	write := func(_ context.Context, tx *firestore.Transaction) error {
		if err := s.putFeed(tx, p.After); err != nil {
			return err
		}
		for _, page := range p.Pages {
			id, d := newPage(p.After.AccountID, page)
			if err := tx.Create(s.db.Collection(pages).Doc(id), d); err != nil {
				return err
			}
		}
		for _, e := range p.Leaving() {
			// The event must still exist because an erased event must not come back.
			if err := tx.Delete(s.outboxRef(e.ID), firestore.Exists); err != nil {
				return err
			}
		}
		for _, d := range list {
			if d.Flight != nil {
				continue
			}
			if err := tx.Create(s.deliveryRef(d.ID), s.fromDelivery(d)); err != nil {
				return err
			}
		}
		return nil
	}
	err := s.db.Commit(ctx, "place events", write, firestore.WithCommitResponseTo(&committed))
	if errors.Is(err, firestoredb.ErrStale) || errors.Is(err, firestoredb.ErrExists) || errors.Is(err, firestoredb.ErrNotFound) {
		return fmt.Errorf("%w: %w", feed.ErrMoved, err)
	}
	if err != nil {
		return err // a failed commit has no commit time
	}
	for _, d := range list {
		d.Version = committed.CommitTime()
	}
	return nil
}

// putFeed writes f. The commit fails if the stored feed has changed since f was created from
// it.
func (s *Store) putFeed(tx *firestore.Transaction, f *feed.Feed) error {
	d := feedDoc{Head: f.Head, Recent: eventDocs(f.Recent)}
	for _, e := range f.Sending {
		d.Sending = append(d.Sending, sendingDoc{e.EventID, e.At, e.Since, e.Webhooks})
	}
	for _, r := range f.Restores {
		d.Restores = append(d.Restores, restoreDoc(r))
	}
	if len(f.Recent) > 0 {
		d.TrimOn = day(f.Recent[0].At.Add(events.Kept + 24*time.Hour))
	}
	if f.Version.IsZero() {
		return tx.Create(s.feedRef(f.AccountID), &d)
	}
	updates := []firestore.Update{
		{Path: "head", Value: d.Head}, {Path: "recent", Value: d.Recent}, {Path: "sending", Value: d.Sending}, {Path: "trimOn", Value: d.TrimOn},
	}
	if len(d.Restores) > 0 {
		updates = append(updates, firestore.Update{Path: "restores", Value: d.Restores})
	}
	return tx.Update(s.feedRef(f.AccountID), updates, firestore.LastUpdateTime(f.Version))
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Waiting reads an account's events in the outbox, in commit order. Up to sending of them already
// have a position, and the others do not. Waiting reads as many events as one commit takes, or all
// events from a single millisecond if there are more. If more is true, the outbox may contain
// further events, and at least one event in the list has no position. Waiting sets unreadable
// events aside because they would block all later events.
func (s *Store) Waiting(ctx context.Context, accountID string, sending int) (list []*feed.Event, more bool, err error) {
	limit := feed.MaxPlaced + sending
	type dated struct {
		event     *feed.Event
		committed time.Time
		order     int64
	}
	var found []dated
	// After setting events aside, repeat the query because it will find others in their place.
	for again := true; again; {
		snaps, err := s.db.Query(ctx, "list waiting events", s.db.Collection(outbox.Collection).
			Where("waiting", "==", accountID).OrderBy("at", firestore.Asc).Limit(limit))
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
			found = append(found, dated{waitingEvent(snap.Ref.ID, &d), snap.CreateTime, d.Order})
		}
		if more = len(snaps) == limit; more && !again {
			// The limit may have cut off part of the last millisecond, and its earliest changes
			// may be among the events that were not read.
			last := found[len(found)-1].event.At
			if whole := slices.IndexFunc(found, func(d dated) bool { return d.event.At.Equal(last) }); whole > sending {
				found = found[:whole]
			} else {
				limit, again = 2*limit, true
			}
		}
	}
	// Do not sort by "at": the database truncates it to the millisecond, so sorting by it could
	// swap two changes to the same record. The commit time is exact, and order sorts the events in
	// one commit.
	slices.SortStableFunc(found, func(a, b dated) int {
		return cmp.Or(a.committed.Compare(b.committed), cmp.Compare(a.order, b.order))
	})
	list = make([]*feed.Event, len(found))
	for i, f := range found {
		list[i] = f.event
	}
	return list, more, nil
}

// withoutPlace sets aside an unreadable event. The document remains until it expires.
func (s *Store) withoutPlace(ctx context.Context, snap *firestore.DocumentSnapshot, why error) error {
	slog.ErrorContext(ctx, "cannot read an event; the feed will not contain it", "event", snap.Ref.ID, "error", why)
	return s.setAside(ctx, snap, firestore.Update{Path: "waiting", Value: firestore.Delete})
}

// sweepPage is the number of documents that a sweep reads at a time.
const sweepPage = 100

// Waiters lists accounts with events that have no position yet, starting after the given account.
// oldest contains the time of each account's oldest such event. next is the account after which to
// continue, or "" at the end. If one account fills a page, the next page starts after that account,
// so its backlog does not hide others.
func (s *Store) Waiters(ctx context.Context, after string) (oldest map[string]time.Time, next string, err error) {
	snaps, err := s.db.Query(ctx, "list accounts with waiting events", s.db.Collection(outbox.Collection).
		Where("waiting", ">", after).OrderBy("waiting", firestore.Asc).OrderBy("at", firestore.Asc).
		Limit(sweepPage).Select("waiting", "at"))
	oldest = map[string]time.Time{}
	for _, snap := range snaps {
		account, _ := snap.Data()["waiting"].(string) // the query finds only strings in this field
		if _, seen := oldest[account]; !seen {
			oldest[account], _ = snap.Data()["at"].(time.Time)
		}
		if len(snaps) == sweepPage {
			next = account
		}
	}
	return oldest, next, err
}

// Expired lists accounts with recent events that have expired.
func (s *Store) Expired(ctx context.Context) (accounts []string, err error) {
	return s.db.IDs(ctx, "list feeds to trim", s.db.Collection(feeds).
		Where("trimOn", ">", "").Where("trimOn", "<=", day(s.now())).OrderBy("trimOn", firestore.Asc).Limit(sweepPage))
}

// PlaceOf finds the position of one of the account's events.
func (s *Store) PlaceOf(ctx context.Context, accountID, eventID string) (int64, error) {
	is := func(e *feed.Event) bool { return e.ID == eventID }
	place, found, err := s.first(ctx, accountID, is, s.pagesOf(accountID).
		Where("keys", "array-contains", eventID).OrderBy("first", firestore.Desc))
	if err == nil && !found {
		err = feed.ErrCursor
	}
	return place, err
}

// PlaceAt returns the position just before the account's first event at or after t. found is
// false if there is no such event.
func (s *Store) PlaceAt(ctx context.Context, accountID string, t time.Time) (place int64, found bool, err error) {
	is := func(e *feed.Event) bool { return !e.At.Before(t) }
	place, found, err = s.first(ctx, accountID, is, s.pagesOf(accountID).
		Where("newest", ">=", t).OrderBy("newest", firestore.Asc))
	return place - 1, found, err
}

// first returns the position of the first event for which is returns true. It looks in the first
// page that q finds, and then in the recent events.
func (s *Store) first(
	ctx context.Context, accountID string, is func(*feed.Event) bool, q firestore.Query,
) (place int64, found bool, err error) {
	// Read the feed before the pages, so that an event that moves to a page in between is not
	// missed.
	f, err := s.Feed(ctx, accountID)
	if err != nil {
		return 0, false, err
	}
	inPages, err := firestoredb.List(ctx, s.db, "find event", q.Limit(1), readPage)
	if err != nil {
		return 0, false, err
	}
	for _, list := range append(inPages, f.Recent) {
		if i := slices.IndexFunc(list, is); i >= 0 {
			return list[i].Seq, true, nil
		}
	}
	return 0, false, nil
}

func (s *Store) pagesOf(accountID string) firestore.Query {
	return s.db.Collection(pages).Where("accountId", "==", accountID)
}

// Page reads a page of a feed. Page omits expired events because the database deletes them late.
func (s *Store) Page(ctx context.Context, q feed.Query) (feed.Page, error) {
	// Read the feed before the pages, so that an event that moves to a page in between is not
	// missed. If both contain an event, take it only once.
	f, err := s.Feed(ctx, q.AccountID)
	if err != nil {
		return feed.Page{}, err
	}
	if q.From != nil {
		if err := f.Reached(*q.From); err != nil {
			return feed.Page{}, err
		}
	}
	out := feed.Page{History: f.History()}
	// take adds an event to the response, and reports whether to continue.
	take := func(e *feed.Event) bool {
		if q.Takes(e, s.now()) {
			if out.More = len(out.Events) == q.Limit; !out.More {
				out.Events = append(out.Events, e)
			}
		}
		return !out.More
	}
	begun := f.Head - int64(len(f.Recent)) // the highest position in any page
	if !q.Forward {
		for _, e := range slices.Backward(f.Recent) {
			if !take(e) {
				return out, nil
			}
		}
	}
	if !q.Forward || q.After < begun {
		err = s.pages(ctx, q, func(e *feed.Event) bool { return e.Seq > begun || take(e) })
	}
	for i := 0; q.Forward && err == nil && i < len(f.Recent) && take(f.Recent[i]); i++ {
	}
	return out, err
}

// pagesAtATime is the number of pages that one query reads.
const pagesAtATime = 4

// pages calls take for each event on the pages that may match q, in response order, until take
// returns false.
func (s *Store) pages(ctx context.Context, q feed.Query, take func(*feed.Event) bool) error {
	find := s.pagesOf(q.AccountID)
	if keys := keysOf(q); len(keys) > 0 {
		find = find.Where("keys", "array-contains-any", keys)
	}
	after, before := q.After, q.Before
	for more := true; more; {
		// When reading forwards, order pages by their last position. When reading backwards, order
		// them by their first position. This way, the query starts with the page that contains the
		// caller's position, and a separate query to find it is not needed.
		next := find.OrderBy("first", firestore.Desc)
		switch {
		case q.Forward:
			next = find.Where("last", ">", after).OrderBy("last", firestore.Asc)
		case before > 0:
			next = next.Where("first", "<", before)
		}
		found, err := firestoredb.List(ctx, s.db, "list events", next.Limit(pagesAtATime), readPage)
		if err != nil {
			return err
		}
		more = len(found) == pagesAtATime
		for _, list := range found {
			if after, before = list[len(list)-1].Seq, list[0].Seq; !q.Forward {
				slices.Reverse(list)
			}
			for _, e := range list {
				if !take(e) {
					return nil
				}
			}
			if !list[len(list)-1].Kept(s.now()) { // with Forward, this is the page's newest event; otherwise, its oldest
				if !q.Forward {
					return nil
				}
				// Many days of expired pages may precede the valid ones. Skip them.
				place, found, err := s.PlaceAt(ctx, q.AccountID, s.now().Add(-events.Kept))
				if err != nil || !found {
					return err
				}
				after, more = max(after, place), true
				break
			}
		}
	}
	return nil
}

var _ feed.Store = (*Store)(nil)
