package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var callSeconds = NewHistogram(prometheus.HistogramOpts{
	Name: "linkreel_dependency_call_seconds",
	Help: "Time of calls to Firestore, Redis and storage, by dependency and operation. " +
		"Calls that block until an event arrives are not included.",
	Buckets: []float64{.002, .01, .05, .2, .5, 1, 3},
}, []string{"dependency", "operation"})

var callFailures = NewCounter(prometheus.CounterOpts{
	Name: "linkreel_dependency_failures_total",
	Help: "Calls to Firestore, Redis and storage that failed for reasons other than the caller, by dependency and reason.",
}, []string{"dependency", "reason"})

// Calls measures the calls to one dependency.
type Calls struct {
	seconds  map[string]prometheus.Observer
	failures map[string]prometheus.Counter
}

// NewCalls declares a dependency's operations and the possible reasons for failed calls.
// Assign its result to a package variable so that the series exist from the start.
func NewCalls(dependency string, operations, reasons []string) *Calls {
	c := &Calls{map[string]prometheus.Observer{}, map[string]prometheus.Counter{}}
	for _, op := range operations {
		c.seconds[op] = callSeconds.WithLabelValues(dependency, op)
		declare("linkreel_dependency_call_seconds", []string{"dependency", "operation"}, []Series{{dependency, op}})
	}
	for _, reason := range reasons {
		c.failures[reason] = callFailures.WithLabelValues(dependency, reason)
		declare("linkreel_dependency_failures_total", []string{"dependency", "reason"}, []Series{{dependency, reason}})
	}
	return c
}

// Took records how long a call to a declared operation took.
func (c *Calls) Took(operation string, d time.Duration) {
	if h := c.seconds[operation]; h != nil {
		h.Observe(d.Seconds())
	}
}

// Failed records a failure for a declared reason. An empty reason records nothing.
func (c *Calls) Failed(reason string) {
	if n := c.failures[reason]; n != nil {
		n.Inc()
	}
}
