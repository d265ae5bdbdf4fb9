package link

// Share is a part of a link's clicks.
type Share struct {
	Name   string
	Clicks int64
}

// DayStats are the stored statistics of a link's clicks on one day.
type DayStats struct {
	Day    Day
	Clicks int64
	Shares
	// Broken is the error if the day's record cannot be read. Then only Day is set.
	Broken error
}

// Stats is a link's clicks over some days.
type Stats struct {
	Total int64
	Days  []int64 // one for each requested day
	Shares
}

// Shares are the parts of some clicks, most clicks first. Each of the lists adds up to all
// of these clicks. The name "" stands for what is not known, and for no rule.
type Shares struct{ Referrers, Countries, Devices, Rules []Share }
