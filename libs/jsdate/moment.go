package jsdate

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// Moment is a JSON string or number that JavaScript's Date may accept.
type Moment struct {
	text   string
	number float64
	isText bool
}

// UnmarshalJSON accepts any string and any number. [Moment.Date] decides whether it is
// a date.
func (m *Moment) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		m.isText = true
		return json.Unmarshal(b, &m.text)
	}
	n, err := strconv.ParseFloat(string(b), 64)
	if err != nil && !math.IsInf(n, 0) { // 1e999 is infinite in JavaScript as well
		return err
	}
	m.number = n
	return nil
}

// At returns the Moment for ms milliseconds since 1970.
func At(ms int64) Moment { return Moment{number: float64(ms)} }

// MarshalJSON returns the moment in its original form.
func (m Moment) MarshalJSON() ([]byte, error) {
	if m.isText {
		return json.Marshal(m.text)
	}
	return json.Marshal(m.number)
}

// IsText reports whether the moment was given as a string.
func (m Moment) IsText() bool { return m.isText }

// Date returns the milliseconds since 1970 that `new Date(x)` would return for the moment.
func (m Moment) Date() (ms int64, ok bool) {
	if m.isText {
		return Parse(m.text)
	}
	return FromNumber(m.number)
}

// The ISO 8601 layouts for a time with and without a time zone. With these layouts, Go also accepts
// fractions of a second.
var (
	zoned = []string{
		time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04Z0700",
	}
	zoneless = []string{"2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04", time.DateOnly}
)

// Instant accepts milliseconds since 1970, or an ISO 8601 date and time with a time zone. Unlike
// [Moment.Date], it rejects ambiguous forms.
func (m Moment) Instant() (ms int64, ok bool) {
	if !m.isText {
		return FromNumber(m.number)
	}
	t, ok := parseAny(zoned, m.text)
	return t.UnixMilli(), ok
}

// LacksZone reports whether the moment is an ISO 8601 date or time without a time zone.
func (m Moment) LacksZone() bool {
	_, ok := parseAny(zoneless, m.text)
	return m.isText && ok
}

func parseAny(forms []string, text string) (time.Time, bool) {
	for _, form := range forms {
		if t, err := time.Parse(form, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// SecondsHint returns a hint for a rejected time, ms milliseconds, that is before the year 2000,
// because the caller probably sent seconds. The hint begins with a space. For any other time,
// SecondsHint returns "".
func SecondsHint(ms int64) string {
	if ms <= 0 || ms >= time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() {
		return ""
	}
	return " This one is in " + strconv.Itoa(time.UnixMilli(ms).UTC().Year()) + ". If you sent seconds, multiply them by 1,000."
}
