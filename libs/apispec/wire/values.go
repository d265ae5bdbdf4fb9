// Package wire contains Go types for the API's request and response bodies, generated from the
// contract. Services fill them. Apart from conversions, the package does not contain any logic.
package wire

import "time"

// OrNull converts a value for the API. The zero value means "no value" and becomes null.
func OrNull[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

// List converts each record with shown. If there are no records, the list is empty, not null.
func List[R, T any](records []R, shown func(R) T) []T {
	out := make([]T, len(records))
	for i, r := range records {
		out[i] = shown(r)
	}
	return out
}

// Millis converts a time for the API. The zero time becomes null.
func Millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}
