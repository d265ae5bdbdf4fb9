// Package metrics registers metrics whose labels take only a few known values.
//
// Every series starts at 0 when the process starts, so a rate includes the first failure, and a
// query that compares two series finds both. Metrics without labels always start at 0, so promauto
// is sufficient for them.
package metrics

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Series contains the label values of one series, in the order of the labels.
type Series []string

// Each returns the series for a metric with one label.
func Each[T ~string](values ...T) []Series {
	all := make([]Series, len(values))
	for i, v := range values {
		all[i] = Series{string(v)}
	}
	return all
}

// NewCounter registers a counter with a series for each of the declared values.
func NewCounter(opts prometheus.CounterOpts, labels []string, declared ...Series) *prometheus.CounterVec {
	vec := promauto.NewCounterVec(opts, labels)
	for _, s := range declared {
		vec.WithLabelValues(s...)
	}
	declare(opts.Name, labels, declared)
	return vec
}

// NewHistogram registers a histogram with a series for each of the declared values.
func NewHistogram(opts prometheus.HistogramOpts, labels []string, declared ...Series) *prometheus.HistogramVec {
	vec := promauto.NewHistogramVec(opts, labels)
	for _, s := range declared {
		vec.WithLabelValues(s...)
	}
	declare(opts.Name, labels, declared)
	return vec
}

// Declaration contains a metric's labels and their possible values.
type Declaration struct {
	Labels []string
	Series []Series
}

var (
	mu           sync.Mutex
	declarations = map[string]Declaration{}
)

func declare(name string, labels []string, series []Series) {
	mu.Lock()
	defer mu.Unlock()
	d := declarations[name]
	declarations[name] = Declaration{labels, slices.Concat(d.Series, series)}
}

// Declared returns this process's declarations by metric name.
func Declared() map[string]Declaration {
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(declarations)
}
