package link

// Share is a part of a link's clicks.
type Share struct {
	Name   string
	Clicks int64
}

// DayStats are the stored statistics of a link's clicks on one day.
type DayStats struct {
	Day                           Day
	Clicks                        int64
	Referrers, Countries, Devices []Share // most clicks first
	// Broken is the error if the day's record cannot be read. Then only Day is set.
	Broken error
}

// Stats is a link's clicks over some days.
type Stats struct {
	Total                         int64
	Days                          []int64 // one for each requested day
	Referrers, Countries, Devices []Share // most clicks first
}
