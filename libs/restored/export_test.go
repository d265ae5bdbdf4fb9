package restored

import (
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// CheckAt does what [Watch.Run] does at a given time before it reads the record.
func (w *Watch) CheckAt(now time.Time) { w.pace(now) }

// Shown returns the sum of the gauge, which is the number of paused things. All watches share it.
func Shown() float64 {
	return testutil.ToFloat64(paused.WithLabelValues("webhooks")) + testutil.ToFloat64(paused.WithLabelValues("janitor"))
}
