package trail

import (
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func init() { readPause = time.Millisecond }

// Settle returns when the log neither writes nor removes anything.
func (l *Log) Settle() { l.running.Wait() }

// WaitingSince returns the value of the gauge, which all logs share.
func WaitingSince() float64 { return testutil.ToFloat64(waitingSince) }
