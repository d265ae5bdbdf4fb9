package link

// Share is a part of a link's clicks.
type Share struct {
	Name   string
	Clicks int64
}

// DayStats contains the stored statistics of a link's clicks on one day.
type DayStats struct {
	Day    Day
	Clicks int64
	Shares
	// Broken is the error from an unreadable record. If it is set, Day is the only other field that
	// is set.
	Broken error
}

// Stats contains a link's clicks over a range of days.
type Stats struct {
	Total int64
	Days  []int64 // one entry for each requested day
	Shares
}

// Shares breaks down a number of clicks in four ways. Each list starts with the largest share and
// adds up to the total. The name "" means unknown and, in Rules, no rule.
type Shares struct{ Referrers, Countries, Devices, Rules []Share }
