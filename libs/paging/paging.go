// Package paging divides lists into pages.
//
// A cursor contains the position of the last record that a caller has seen, not an offset. So even
// if records are added or removed between pages, no record is listed twice, and every record that
// exists throughout is listed once.
package paging

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Place is a record's position in a list. Records are sorted by time, and records with the
// same time by id. A list without times is sorted only by id.
type Place struct {
	At time.Time // to the microsecond
	ID string    // not empty
}

// Newest is the order for a list that begins with the newest record.
func Newest(a, b Place) int { return Oldest(b, a) }

// Oldest is the order for a list that begins with the oldest record.
func Oldest(a, b Place) int {
	return cmp.Or(cmp.Compare(a.At.UnixMicro(), b.At.UnixMicro()), strings.Compare(a.ID, b.ID))
}

// Page is a caller's request for a page.
type Page struct {
	Limit int    // the maximum number of records
	After Place  // the last record on the previous page, or the zero Place
	list  string // a hash that identifies the list, so cursors from other lists are invalid
}

// First returns the first page of a list. of distinguishes the list from all other lists, for
// example by its name and the account.
func First(limit int, of ...string) Page {
	sum := sha256.Sum256([]byte(strings.Join(of, "\x00")))
	return Page{Limit: limit, list: string(sum[:listBytes])}
}

const (
	listBytes = 8
	timeBytes = 8
	// maxPlace is the maximum length of an id in Firestore.
	maxPlace = 1500
)

// From returns the page after a cursor from the same list. It returns false if the cursor does not
// come from that list.
func (p Page) From(cursor string) (Page, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) <= listBytes+timeBytes || string(b[:listBytes]) != p.list {
		return p, false
	}
	id := string(b[listBytes+timeBytes:])
	at := time.UnixMicro(int64(binary.BigEndian.Uint64(b[listBytes:]))).UTC()
	p.After = Place{at, id}
	// Firestore cannot store times before year 1 or after year 9999.
	return p, len(id) <= maxPlace && utf8.ValidString(id) && at.Year() >= 1 && at.Year() <= 9999
}

// Cursor returns the cursor for continuing the list after a position.
func (p Page) Cursor(last Place) string {
	b := binary.BigEndian.AppendUint64([]byte(p.list), uint64(last.At.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(b, last.ID...))
}

// Next returns the cursor for the page after this one, or nil if there are no more records.
func Next[T any](p Page, records []T, more bool, place func(T) Place) *string {
	if !more || len(records) == 0 {
		return nil
	}
	next := p.Cursor(place(records[len(records)-1]))
	return &next
}

// Cut returns a page of a list that is entirely in memory, and the cursor for the next page. The
// cursor is nil on the last page.
func Cut[T any](p Page, all []T, order func(a, b Place) int, place func(T) Place) (page []T, next *string) {
	page = slices.SortedFunc(slices.Values(all), func(a, b T) int { return order(place(a), place(b)) })
	if p.After.ID != "" {
		page = slices.DeleteFunc(page, func(r T) bool { return order(place(r), p.After) <= 0 })
	}
	more := len(page) > p.Limit
	page = page[:min(len(page), p.Limit)]
	return page, Next(p, page, more, place)
}
