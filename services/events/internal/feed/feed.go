// Package feed models an account's event feed, an ordered log that assigns each event a
// number, its position. Callers read it newest first as a history, or oldest first from a given
// position to get new events.
//
// An event gets its number only after its change has been committed and all lower numbers have been
// assigned. A caller that reads the events after a number therefore does not miss any, regardless
// of the order in which the changes became visible.
package feed

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
)

// Event is one event with its position.
type Event struct {
	ID        string
	AccountID string
	Type      events.Type
	Object    string
	At        time.Time
	Actor     events.Actor
	RequestID string
	Data      string // JSON
	Seq       int64
}

// All subscribes to every type, including types that later versions add.
const All = "*"

// Subscriber is a webhook's subscription to its account's feed.
type Subscriber struct {
	Events  []string // names of types, or All
	Enabled bool
}

// Wants reports whether the subscriber receives events of type t.
func (s Subscriber) Wants(t events.Type) bool {
	return s.Enabled && (slices.Contains(s.Events, All) || slices.Contains(s.Events, string(t)))
}

// Feed is the document that assigns an account's events their positions. Every account with events
// has a feed. Older events are in pages, which never change.
type Feed struct {
	AccountID string
	// Head is the highest position. Recent contains the newest events, which are not in a page yet.
	// The last of them is at Head.
	Head   int64
	Recent []*Event
	// Sending lists the events that have a position and are in their first attempts. Each of them
	// remains in the outbox until the outcomes of all its first attempts are stored, so that events
	// are not lost if a replica dies.
	Sending []Sending
	// Subscribers contains all the account's webhooks by ID. It determines which webhooks get a
	// newly placed event.
	Subscribers map[string]Subscriber
	// Restores lists the database restores after which the feed has grown, oldest first.
	Restores []Restore
	// Version identifies the stored state. It is zero if nothing is stored yet. ReadAt is when it
	// was read, according to the database's clock: a replica whose clock is wrong must not drop
	// events.
	Version, ReadAt time.Time
}

// Restore is a feed's record of a database restore. Head is the feed's highest position at the time
// of the restore. Before the restore, the feed may have assigned higher positions to other events,
// which are now lost.
type Restore struct {
	ID   string
	Head int64
}

// Since records the ID of the last database restore. It does nothing if the ID is "" or
// already recorded. Call it before [Feed.Place], which stores the record.
func (f *Feed) Since(id string) {
	if id == "" || len(f.Restores) > 0 && f.Restores[len(f.Restores)-1].ID == id {
		return
	}
	f.Restores = append(slices.Clip(f.Restores), Restore{id, f.Head})
}

// History identifies the events to which the feed's positions refer. A restore begins a new
// history for a feed. Positions up to its [Restore.Head] refer to the same events as before. Higher
// positions do not. History is zero for a feed that has never been restored. Cursors contain the
// history.
type History [4]byte

func historyOf(restoreID string) (h History) {
	sum := sha256.Sum256([]byte("linkreel feed history\x00" + restoreID))
	copy(h[:], sum[:])
	return h
}

// History returns the current history.
func (f *Feed) History() (h History) {
	if n := len(f.Restores); n > 0 {
		h = historyOf(f.Restores[n-1].ID)
	}
	return h
}

// Shared returns the highest position that refers to the same event in h and in the current history.
// known is false if the feed does not recognize h, for example because it belongs to a
// different restore of the same backup.
func (f *Feed) Shared(h History) (place int64, known bool) {
	place, known = f.Head, h == f.History()
	for i := len(f.Restores) - 1; i >= 0 && !known; i-- {
		place = min(place, f.Restores[i].Head)
		known = i == 0 && h == History{} || i > 0 && h == historyOf(f.Restores[i-1].ID)
	}
	return place, known
}

// Reached returns the error CURSOR_AHEAD for a position in a lost history. The error contains the
// cursor from which a reader can continue without missing a current event.
func (f *Feed) Reached(p Place) error {
	shared, known := f.Shared(p.History)
	switch {
	case !known:
		return Ahead(Cursor(f.AccountID, Place{History: f.History()}))
	case p.Seq > shared:
		return Ahead(Cursor(f.AccountID, Place{shared, f.History()}))
	}
	return nil
}

// Ahead returns the error for a cursor or event that a restore has undone. restart is the
// cursor from which to continue.
func Ahead(restart string) error {
	return &apierr.Error{
		Code: apierr.CursorAhead, RestartAfter: restart,
		Message: "This installation was restored from a backup, and this place in the feed is of the time after the backup. " +
			"The events from that time are lost. Read the records that you rely on again, then continue reading the feed with `after` = `restartAfter`.",
	}
}

// Sending is an event in its first attempts.
type Sending struct {
	EventID  string
	At       time.Time // the event's time
	Since    time.Time // the time at which the event was placed
	Webhooks []string
	// Event is set only in results of [Feed.Apart].
	Event *Event
}

// MaxSending limits how many of an account's events can be in their first attempts. Each
// placing reads and rewrites all of them.
const MaxSending = 100

// Apart separates events without a position (fresh) from those in their first attempts. lapsed
// lists the events that began their first attempts before the given time, which means that
// their replica has died. more means that the outbox may contain events after those in waiting.
func (f *Feed) Apart(waiting []*Event, more bool, before time.Time) (fresh []*Event, lapsed []Sending) {
	there := map[string]*Event{}
	var last time.Time
	for _, e := range waiting {
		there[e.ID] = e
		if e.At.After(last) {
			last = e.At
		}
	}
	var sending []Sending
	for _, s := range f.Sending {
		e := there[s.EventID]
		delete(there, s.EventID)
		if e != nil && s.Since.Before(before) {
			lapsed = append(lapsed, Sending{s.EventID, s.At, s.Since, s.Webhooks, e})
		}
		// An event that is dropped too early would be placed a second time. Drop only events that
		// have certainly left the outbox: waiting contains all events in the outbox up to last.
		if e != nil || more && s.At.After(last) {
			sending = append(sending, s)
		}
	}
	f.Sending = sending
	return slices.DeleteFunc(waiting, func(e *Event) bool { return there[e.ID] == nil }), lapsed
}

// Placing is one commit that assigns events their positions and moves them from the outbox to the feed.
// It is valid only for the exact feed from which it was created.
type Placing struct {
	Before, After *Feed
	Placed        []*Event
	Pages         [][]*Event // the events on each new page, oldest page first
}

// Limits on one commit. Firestore does not limit the number of writes, but it limits their
// total size to 10 MiB, including deletions. Each additional document also slows down a
// transaction.
const (
	MaxPlaced = 200
	maxWrites = 450
	maxBytes  = 4 << 20
)

// Every placing rewrites the recent events, so there must be only a few. If there are too many,
// they become a page. A page is one document, and Firestore limits a document to 1 MiB.
const (
	maxRecent      = 50
	maxRecentBytes = 64 << 10
	pageEvents     = 200
	pageBytes      = 512 << 10
)

// Place assigns the next positions to the waiting events, in order. It takes as many events as fit
// into one commit together with their deliveries. It also drops expired events, so there may be
// something to write even if no events are waiting. If there is nothing to write, Place returns
// nil.
func (f *Feed) Place(waiting []*Event) *Placing {
	p := &Placing{Before: f, Placed: f.fitting(waiting)}
	after := *f
	// Drop only from the front because positions must have no gaps. Positions are almost in time
	// order, so an expired event in the middle is kept only slightly too long.
	for len(after.Recent) > 0 && !after.Recent[0].Kept(f.ReadAt) {
		after.Recent = after.Recent[1:]
	}
	if len(p.Placed) == 0 && len(after.Recent) == len(f.Recent) {
		return nil
	}
	for _, e := range p.Placed {
		after.Head++
		e.Seq = after.Head
	}
	after.Recent = slices.Concat(after.Recent, p.Placed)
	// Move all recent events, so that pages are as full as possible and are never written
	// again.
	if len(after.Recent) > maxRecent || size(after.Recent) > maxRecentBytes {
		p.Pages, after.Recent = pages(after.Recent), nil
	}
	p.After = &after
	return p
}

// fitting returns as many leading waiting events as fit into one commit.
func (f *Feed) fitting(waiting []*Event) []*Event {
	writes, bytes := 1, 0
	for i, e := range waiting {
		wanting := len(f.Wanting(e.Type))
		writes += 1 + wanting
		bytes += e.size() * (2 + wanting) // deleted from the outbox, written to the feed and to each delivery
		if i == MaxPlaced || i > 0 && (writes > maxWrites || bytes > maxBytes) {
			return waiting[:i]
		}
	}
	return waiting
}

// Send records that an event is in its first attempts for the given webhooks. It returns false
// if there are no webhooks, or if too many events are already in their first attempts. In that
// case, the event's deliveries need documents immediately.
func (p *Placing) Send(e *Event, webhooks []string, now time.Time) bool {
	if len(webhooks) == 0 || len(p.After.Sending) >= MaxSending {
		return false
	}
	p.After.Sending = append(slices.Clip(p.After.Sending), Sending{EventID: e.ID, At: e.At, Since: now, Webhooks: webhooks})
	return true
}

// Leaving returns the events that this commit removes from the outbox.
func (p *Placing) Leaving() []*Event {
	return slices.DeleteFunc(slices.Clone(p.Placed), func(e *Event) bool {
		return slices.ContainsFunc(p.After.Sending, func(s Sending) bool { return s.EventID == e.ID })
	})
}

func pages(list []*Event) (out [][]*Event) {
	for len(list) > 0 {
		n, bytes := 0, 0
		for n < min(len(list), pageEvents) && (n == 0 || bytes+list[n].size() <= pageBytes) {
			bytes += list[n].size()
			n++
		}
		out, list = append(out, list[:n]), list[n:]
	}
	return out
}

func size(list []*Event) (bytes int) {
	for _, e := range list {
		bytes += e.size()
	}
	return bytes
}

// size returns the approximate size of an event in a document, in bytes.
func (e *Event) size() int { return len(e.Data) + 500 }

// Kept reports whether the event is still within its retention period. The database deletes
// expired events late, so responses must omit them.
func (e *Event) Kept(now time.Time) bool { return e.At.Add(events.Kept).After(now) }

// Wanting lists the webhooks that receive events of type t.
func (f *Feed) Wanting(t events.Type) (ids []string) {
	for id, s := range f.Subscribers {
		if s.Wants(t) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// ErrMoved means that another replica has placed events in this feed since it was read.
var ErrMoved = errors.New("another replica has placed events in this feed")

// Query selects a page of an account's feed.
type Query struct {
	AccountID string
	Types     []events.Type // events of any of these types; empty means all types
	Object    string        // "" means all objects
	Limit     int

	Before  int64 // if Forward is false, only positions below it; 0 means all
	After   int64 // if Forward is true, only positions above it
	Forward bool  // read oldest first instead of newest first
	// From is the cursor that Before or After came from, if any. [Feed.Reached] checks it.
	From *Place
}

// Takes reports whether an event belongs in the response.
func (q Query) Takes(e *Event, now time.Time) bool {
	if q.Forward && e.Seq <= q.After || q.Before > 0 && e.Seq >= q.Before {
		return false
	}
	return e.Kept(now) && (q.Object == "" || e.Object == q.Object) && (len(q.Types) == 0 || slices.Contains(q.Types, e.Type))
}

// Page is the result of a Query.
type Page struct {
	Events  []*Event
	More    bool
	History History // the feed's history when it was read
}

// Place is a position in an account's feed, as encoded in a cursor.
type Place struct {
	Seq     int64
	History History
}

// Cursor converts a position in an account's feed to a string for callers. Its checksum includes
// the account, which exposes mistyped cursors and cursors from other accounts. A cursor need not
// be secret: callers who guess one only read their own feed from a different position.
func Cursor(accountID string, p Place) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.Seq))
	if p.History != (History{}) { // most feeds have never been restored, so their cursors are short
		b = append(b, p.History[:]...)
	}
	return base64.RawURLEncoding.EncodeToString(append(b, check(accountID, b)...))
}

// ParseCursor parses a cursor that Cursor returned for the same account.
func ParseCursor(accountID, text string) (p Place, err error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != 12 && len(b) != 16 {
		return p, ErrCursor
	}
	b, sum := b[:len(b)-4], b[len(b)-4:]
	p.Seq = int64(binary.BigEndian.Uint64(b))
	copy(p.History[:], b[8:])
	if p.Seq < 0 || string(check(accountID, b)) != string(sum) {
		return Place{}, ErrCursor
	}
	return p, nil
}

func check(accountID string, place []byte) []byte {
	sum := sha256.Sum256(append([]byte("linkreel feed cursor\x00"+accountID+"\x00"), place...))
	return sum[:4]
}

// ErrCursor means that a cursor was not issued by this feed.
var ErrCursor = apierr.New(apierr.InvalidCursor, "This cursor does not come from an earlier response to this account. Pass a cursor unchanged, or leave it out to start again.")
