package firestore

import (
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metrics are the metrics for one server. They are not registered here because a process may run
// several servers.
type metrics struct {
	requests *prometheus.CounterVec
	commits  prometheus.Histogram
	failures *prometheus.CounterVec
}

func newMetrics() metrics {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "localcloud_requests_total", Help: "Requests by service and outcome: ok, refused (the caller's fault) or failed.",
			ConstLabels: prometheus.Labels{"service": "firestore"},
		}, []string{"outcome"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "localcloud_commit_seconds", Help: "Time to write one batch of commits to the data file and sync it.",
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3},
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "localcloud_commit_failures_total", Help: "Batches of commits that could not be written, by reason: full (the disk) or other.",
		}, []string{"reason"}),
	}
	for _, outcome := range []string{"ok", "refused", "failed"} {
		m.requests.WithLabelValues(outcome)
	}
	for _, reason := range []string{"full", "other"} {
		m.failures.WithLabelValues(reason)
	}
	return m
}

// Metrics returns the server's metrics, to be registered by the caller.
func (s *Server) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.metrics.requests, s.metrics.commits, s.metrics.failures}
}

func (m metrics) called(err error) {
	outcome := "refused"
	switch status.Code(err) {
	case codes.OK:
		outcome = "ok"
	case codes.Internal, codes.Unknown, codes.Unavailable, codes.DataLoss, codes.ResourceExhausted:
		outcome = "failed"
	}
	m.requests.WithLabelValues(outcome).Inc()
}

// disk tracks whether commits reach the disk.
type disk struct {
	mu     sync.Mutex
	err    error     // error from the last batch
	failed int       // failed batches since the last log line
	told   time.Time // time of the last line about a failure
	open   bool      // that line has no line about a recovery yet
}

// tellEvery is the minimum time between two log lines about failing commits.
const tellEvery = time.Minute

// wrote records the result of a batch. It logs a failure at most once a minute, also if commits fail
// and work in turn, as they do while a full disk's database still has some free pages. After a line
// about a failure, it logs when commits work again.
func (d *disk) wrote(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil:
		d.failed++
		if now := time.Now(); now.Sub(d.told) >= tellEvery {
			slog.Error("firestore: cannot commit; writes fail until this is fixed", "error", err, "batches", d.failed)
			d.failed, d.told, d.open = 0, now, true
		}
	case d.open:
		slog.Warn("firestore: commits work again")
		d.open = false
	}
	d.err = err
}

// CommitError returns the error from the last batch of commits, or nil if the batch was written.
// Reads may work even while commits fail.
func (s *Server) CommitError() error {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	return s.disk.err
}

// committed records the duration and the outcome of a batch.
func (s *Server) committed(began time.Time, err error) {
	s.metrics.commits.Observe(time.Since(began).Seconds())
	switch {
	case errors.Is(err, syscall.ENOSPC):
		s.metrics.failures.WithLabelValues("full").Inc()
	case err != nil:
		s.metrics.failures.WithLabelValues("other").Inc()
	}
	s.disk.wrote(err)
}
