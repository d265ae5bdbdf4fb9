package metrics_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/linkreel/linkreel/libs/metrics"
)

var (
	tries = metrics.NewCounter(prometheus.CounterOpts{Name: "test_tries_total", Help: "Tries."}, []string{"outcome", "code"},
		metrics.Series{"failed", "A"}, metrics.Series{"done", ""})
	times = metrics.NewHistogram(prometheus.HistogramOpts{Name: "test_seconds", Help: "Times.", Buckets: []float64{1}}, []string{"result"},
		metrics.Each("good", "bad")...)
	calls = metrics.NewCalls("test", []string{"ask"}, []string{"timeout"})
)

func TestDeclaredSeriesStartAtZero(t *testing.T) {
	t.Parallel()
	_, _ = tries, times
	rec := httptest.NewRecorder()
	promhttp.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`test_tries_total{code="A",outcome="failed"} 0`, `test_tries_total{code="",outcome="done"} 0`,
		`test_seconds_count{result="good"} 0`, `test_seconds_count{result="bad"} 0`,
		`linkreel_dependency_call_seconds_count{dependency="test",operation="ask"} 0`,
		`linkreel_dependency_failures_total{dependency="test",reason="timeout"} 0`,
	} {
		if !strings.Contains(rec.Body.String(), line+"\n") {
			t.Errorf("/metrics does not contain the line %s", line)
		}
	}
	if d := metrics.Declared()["test_tries_total"]; len(d.Series) != 2 || len(d.Labels) != 2 {
		t.Errorf("declaration = %v, want two labels and two series", d)
	}
}

// An undeclared operation is not measured, so series never appear by accident.
func TestUndeclaredOperationsAreNotMeasured(t *testing.T) {
	t.Parallel()
	calls.Took("other", time.Second)
	calls.Failed("")
	rec := httptest.NewRecorder()
	promhttp.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if strings.Contains(rec.Body.String(), `operation="other"`) {
		t.Error("/metrics contains a series for an undeclared operation, want none")
	}
}

func BenchmarkTook(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		calls.Took("ask", time.Millisecond)
	}
}
