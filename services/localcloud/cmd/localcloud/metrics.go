package main

import (
	"io"
	"math"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// meters contains the metrics for the object storage handlers and the volumes.
type meters struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	bytes    *prometheus.CounterVec
}

// newMeters returns the metrics for this process. dirs maps the name of each volume to its
// directory.
func newMeters(fire *firestore.Server, dirs map[string]string) *meters {
	m := &meters{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "localcloud_requests_total", Help: "Requests by service and outcome: ok, refused (the caller's fault) or failed.",
			ConstLabels: prometheus.Labels{"service": "storage"},
		}, []string{"outcome"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "localcloud_storage_bytes_total", Help: "Bytes of request and response bodies of object storage, by direction: in or out.",
		}, []string{"direction"}),
	}
	for _, outcome := range []string{"ok", "refused", "failed"} {
		m.requests.WithLabelValues(outcome)
	}
	m.bytes.WithLabelValues("in")
	m.bytes.WithLabelValues("out")
	m.registry.MustRegister(m.requests, m.bytes, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(fire.Metrics()...)
	for volume, dir := range dirs {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "localcloud_disk_free_bytes", Help: "Free space of a volume: data (records) or objects (uploads and videos).",
			ConstLabels: prometheus.Labels{"volume": volume},
		}, func() float64 {
			free, err := storage.FreeSpace(dir)
			if err != nil {
				return math.NaN()
			}
			return float64(free)
		}))
	}
	return m
}

// handler serves /metrics.
func (m *meters) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}

// counted wraps h and counts its requests and bytes, except for probes.
func (m *meters) counted(h http.Handler) http.Handler {
	in, out := m.bytes.WithLabelValues("in"), m.bytes.WithLabelValues("out")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isProbe(r) {
			h.ServeHTTP(w, r)
			return
		}
		body, answer := &countedBody{ReadCloser: r.Body}, &countedAnswer{ResponseWriter: w, status: http.StatusOK}
		r.Body = body
		defer func() {
			in.Add(float64(body.n))
			out.Add(float64(answer.n))
			m.requests.WithLabelValues(outcomeOf(answer.status)).Inc()
		}()
		h.ServeHTTP(answer, r)
	})
}

func isProbe(r *http.Request) bool {
	return r.URL.Path == "/livez" || r.URL.Path == "/readyz" || r.URL.Path == "/healthz" || r.RequestURI == "/"
}

func outcomeOf(status int) string {
	switch {
	case status >= 500:
		return "failed"
	case status >= 400:
		return "refused"
	}
	return "ok"
}

type countedBody struct {
	io.ReadCloser
	n int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}

type countedAnswer struct {
	http.ResponseWriter
	status int
	n      int64
}

func (a *countedAnswer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (a *countedAnswer) Write(p []byte) (int, error) {
	n, err := a.ResponseWriter.Write(p)
	a.n += int64(n)
	return n, err
}

// ReadFrom lets the server send a file without copying it through this process.
func (a *countedAnswer) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(a.ResponseWriter, r)
	a.n += n
	return n, err
}

// Unwrap gives http.ResponseController access to the underlying writer.
func (a *countedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
