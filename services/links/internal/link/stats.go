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
	// Broken is the error of an unreadable record. If it is set, only Day is set too.
	Broken error
}

// Stats is a link's clicks over some days.
type Stats struct {
	Total int64
	Days  []int64 // one entry for each requested day
	Shares
}

// Shares divides some clicks in four ways. Each list starts with the largest share and adds up to
// all of these clicks. The name "" stands for unknown, and in Rules for no rule.
type Shares struct{ Referrers, Countries, Devices, Rules []Share }
