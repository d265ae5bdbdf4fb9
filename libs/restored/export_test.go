package restored

import (
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// CheckAt does what [Watch.Run] does at a time before it looks.
func (w *Watch) CheckAt(now time.Time) { w.pace(now) }

// Shown returns the sum of the gauge, which all watches share: how much is paused.
func Shown() float64 {
	return testutil.ToFloat64(paused.WithLabelValues("webhooks")) + testutil.ToFloat64(paused.WithLabelValues("janitor"))
}
