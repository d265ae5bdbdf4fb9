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
	err    error // error from the last batch
	failed int   // failed batches since the last log line
	told   time.Time
}

// tellEvery is the minimum time between two log lines about failing commits.
const tellEvery = time.Minute

// wrote records the result of a batch. It logs the first failure, then at most one line per minute
// while failures continue, and one line when commits work again.
func (d *disk) wrote(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil:
		d.failed++
		if now := time.Now(); d.err == nil || now.Sub(d.told) >= tellEvery {
			slog.Error("firestore: cannot commit; every write fails until this is fixed", "error", err, "batches", d.failed)
			d.failed, d.told = 0, now
		}
	case d.err != nil:
		slog.Warn("firestore: commits work again")
		d.failed = 0
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
