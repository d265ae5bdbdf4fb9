// Package feed knows what an account's feed of events is: an ordered log with a
// number for each event, read newest first as a history, or oldest first from a
// place as news.
//
// A number is given after the change has committed, together with all numbers
// below it. Reading what comes after a number therefore skips nothing, whatever
// the order in which changes became visible.
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

// Event is one event with its place.
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

// All is a subscriber's wish for every type, those of later versions included.
const All = "*"

// Subscriber is what a webhook wants from its account's feed.
type Subscriber struct {
	Events  []string // names of types, or All
	Enabled bool
}

// Wants reports whether it is sent events of type t.
func (s Subscriber) Wants(t events.Type) bool {
	return s.Enabled && (slices.Contains(s.Events, All) || slices.Contains(s.Events, string(t)))
}

// Feed is an account's feed without its events: the highest place, and every webhook
// of the account by its id, so that whoever gives places knows who wants what.
type Feed struct {
	AccountID   string
	Head        int64
	Subscribers map[string]Subscriber
}

// What one commit takes. Firestore has no limit on the number of writes, but one of
// 10 MiB, and what a transaction touches makes it slow.
const (
	MaxPlaced = 200
	maxWrites = 450
)

// Place gives what waits the next places, in this order, and returns those events that
// one commit takes with their deliveries.
func (f *Feed) Place(waiting []*Event) (placed []*Event) {
	writes := 1
	for _, e := range waiting[:min(len(waiting), MaxPlaced)] {
		if writes += 1 + len(f.Wanting(e.Type)); writes > maxWrites && len(placed) > 0 {
			break
		}
		f.Head++
		e.Seq = f.Head
		placed = append(placed, e)
	}
	return placed
}

// Wanting lists the webhooks that are sent events of type t.
func (f *Feed) Wanting(t events.Type) (ids []string) {
	for id, s := range f.Subscribers {
		if s.Wants(t) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// ErrMoved is for places that somebody else has given meanwhile.
var ErrMoved = errors.New("somebody else has given places in this feed")

// Query asks for a page of an account's feed.
type Query struct {
	AccountID string
	Types     []events.Type // any of them; none is all
	Object    string        // "" is all
	Limit     int

	Before  int64 // newest first: places below; 0 is from the newest
	After   int64 // oldest first, when Forward is set: places above
	Forward bool
}

// Page is an answer.
type Page struct {
	Events []*Event
	More   bool
}

// Cursor is a place in an account's feed as callers see it. Its check is bound to the
// account, so that a wrong text or another account's cursor is noticed. It is no
// secret: whoever made one up would read their own feed from another place.
func Cursor(accountID string, seq int64) string {
	var b [12]byte
	binary.BigEndian.PutUint64(b[:], uint64(seq))
	copy(b[8:], check(accountID, b[:8]))
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// ParseCursor reads what Cursor made for the same account.
func ParseCursor(accountID, text string) (int64, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != 12 || string(check(accountID, b[:8])) != string(b[8:]) {
		return 0, ErrCursor
	}
	seq := int64(binary.BigEndian.Uint64(b))
	if seq < 0 {
		return 0, ErrCursor
	}
	return seq, nil
}

func check(accountID string, place []byte) []byte {
	sum := sha256.Sum256(append([]byte("linkreel feed cursor\x00"+accountID+"\x00"), place...))
	return sum[:4]
}

// ErrCursor is for a cursor that no answer gave.
var ErrCursor = apierr.New(apierr.InvalidCursor, "This cursor comes from no answer of this account's feed.")
