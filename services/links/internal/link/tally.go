package link

import "time"

// Day is a calendar day in UTC, counted from 1970-01-01.
type Day int32

// DayOf returns the day of t.
func DayOf(t time.Time) Day { return Day(t.Unix() / 86400) }

// ParseDay parses a day in the form yyyy-mm-dd.
func ParseDay(s string) (Day, bool) {
	t, err := time.Parse(time.DateOnly, s)
	return DayOf(t), err == nil
}

func (d Day) String() string { return time.Unix(int64(d)*86400, 0).UTC().Format(time.DateOnly) }

// Click is a counted visit, without any data that identifies a person.
type Click struct {
	LinkID   string // or a domain's ID, for a visit that no link serves
	Day      Day
	Referrer string // host, or ""
	Country  string // two letters, or "" if unknown
	Device   Device
	Rule     string // the name, at that time, of the rule that redirected the visitor, or ""
}

// Names of the kinds of visits that no link serves, in the counts for a domain. They are stored in
// the same field as rule names in the counts for a link.
const (
	VisitHome     = "home"
	VisitNotFound = "notFound"
	VisitEnded    = "ended"
)

// Tally counts the clicks on one link on one day.
type Tally struct {
	LinkID    string
	Day       Day
	Clicks    int64
	Referrers map[string]int64
	Countries map[string]int64
	Devices   map[string]int64
	// Rules contains only clicks that a rule redirected. It is nil for a plain link, so a plain
	// link's statistics do not need space for it.
	Rules map[string]int64 `json:",omitempty"`
}

// Add counts n clicks equal to c. c must have the tally's link and day. It returns approximately by
// how many bytes the stored tally will grow.
func (t *Tally) Add(c Click, n int64) (grown int) {
	if t.Referrers == nil {
		t.Referrers, t.Countries, t.Devices = map[string]int64{}, map[string]int64{}, map[string]int64{}
		grown = tallyBytes + len(t.LinkID)
	}
	t.Clicks += n
	for _, part := range []struct {
		counts map[string]int64
		name   string
	}{{t.Referrers, c.Referrer}, {t.Countries, c.Country}, {t.Devices, c.Device.String()}} {
		if _, ok := part.counts[part.name]; !ok {
			grown += countBytes + len(part.name)
		}
		part.counts[part.name] += n
	}
	if c.Rule != "" {
		if t.Rules == nil {
			t.Rules = map[string]int64{}
		}
		if _, ok := t.Rules[c.Rule]; !ok {
			grown += countBytes + len(c.Rule)
		}
		t.Rules[c.Rule] += n
	}
	return grown
}

const (
	tallyBytes = 160 // size of a tally without its link and its counts
	countBytes = 16  // size of a count without its name
)

// Size returns the approximate size of the stored tally in bytes.
func (t *Tally) Size() int {
	n := tallyBytes + len(t.LinkID)
	for _, m := range []map[string]int64{t.Referrers, t.Countries, t.Devices, t.Rules} {
		for k := range m {
			n += countBytes + len(k)
		}
	}
	return n
}

// Mark records which batches from a producer have been counted. Batch is the last counted batch,
// and Total is the number of clicks in all batches up to it.
type Mark struct {
	Batch, Total int64
	Day          Day // day of the last batch; marks without new batches are removed later
}

// Progress records which batches of each producer have been counted. Cycle is the number of times
// that counts have been written. An unexpected Cycle tells a writer that another writer got there
// first.
type Progress struct {
	Cycle     int64
	Producers map[string]Mark
}
