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
