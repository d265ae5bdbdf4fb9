package client

import (
	"encoding/json"
	"time"
)

// Field is a field of an update: the zero value does not change the field, [Set] replaces its
// value, and [Clear] removes it.
type Field[T any] struct {
	set, null bool
	value     T
}

// Set returns a field that replaces the current value with v.
func Set[T any](v T) Field[T] { return Field[T]{set: true, value: v} }

// Clear returns a field that removes the current value.
func Clear[T any]() Field[T] { return Field[T]{set: true, null: true} }

// IsZero lets encoding/json omit a field that is not set.
func (f Field[T]) IsZero() bool { return !f.set }

// MarshalJSON writes the value, or null.
func (f Field[T]) MarshalJSON() ([]byte, error) {
	if f.null {
		return []byte("null"), nil
	}
	return json.Marshal(f.value)
}

// Time is a point in time in requests and responses. The zero value means no time. Times can be
// compared with ==.
type Time struct {
	set  bool
	ms   int64  // milliseconds since 1970
	text string // text that was passed to [Text], or received instead of a number
}

// At returns t as a Time with millisecond precision.
func At(t time.Time) Time { return Time{set: true, ms: t.UnixMilli()} }

// Text returns a Time for a request. The service parses s, which must be ISO 8601 with a time zone
// or, in links, any format that JavaScript's Date understands.
func Text(s string) Time {
	at := Time{set: true, text: s}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		at.ms = t.UnixMilli()
	}
	return at
}

// Time returns t in UTC. If t has no time or is a [Text] that is not ISO 8601, Time returns
// 1970-01-01.
func (t Time) Time() time.Time { return time.UnixMilli(t.ms).UTC() }

// IsZero reports whether t has no time.
func (t Time) IsZero() bool { return !t.set }

// String returns t as ISO 8601, or the text that it was created from.
func (t Time) String() string {
	switch {
	case !t.set:
		return ""
	case t.text != "":
		return t.text
	}
	return t.Time().Format("2006-01-02T15:04:05.000Z07:00")
}

// MarshalJSON writes a number of milliseconds, the text, or null.
func (t Time) MarshalJSON() ([]byte, error) {
	switch {
	case !t.set:
		return []byte("null"), nil
	case t.text != "":
		return json.Marshal(t.text)
	}
	return json.Marshal(t.ms)
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (t *Time) UnmarshalJSON(b []byte) error {
	*t = Time{}
	if len(b) > 0 && b[0] == '"' {
		var text string
		err := json.Unmarshal(b, &text)
		*t = Text(text)
		return err
	}
	if string(b) == "null" {
		return nil
	}
	t.set = true
	return json.Unmarshal(b, &t.ms)
}
