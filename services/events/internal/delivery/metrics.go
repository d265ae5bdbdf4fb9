package delivery

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// metrics answer whether events flow: how old the oldest is that is not in its
// feed, or not on its way to a webhook, how attempts end, and how fast first tries
// are.
type metrics struct {
	attempts metric.Int64Counter
	firsts   metric.Float64Histogram
	waiting  atomic.Int64 // unix ms; 0: nothing waits
	due      atomic.Int64
}

func newMetrics(e *Engine) *metrics {
	m := &metrics{}
	meter := otel.Meter("events")
	var err error
	if m.attempts, err = meter.Int64Counter("linkreel.webhooks.attempts",
		metric.WithDescription("Calls of receivers, by outcome: delivered, refused (an answer that is not 2xx), unanswered, "+
			"or unsigned (not sent, since no secret of the webhook opens).")); err != nil {
		otel.Handle(err)
	}
	if m.firsts, err = meter.Float64Histogram("linkreel.webhooks.first_try", metric.WithUnit("s"),
		metric.WithDescription("Time from a change to the end of the first try to tell a webhook of it."),
		metric.WithExplicitBucketBoundaries(.05, .1, .25, .5, 1, 2, 5, 10, 30, 60, 300, 3600)); err != nil {
		otel.Handle(err)
	}
	gauge := func(name, unit, text string, value func() float64) {
		_, err := meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text),
			metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error { o.Observe(value()); return nil }))
		if err != nil {
			otel.Handle(err)
		}
	}
	age := func(since *atomic.Int64) func() float64 {
		return func() float64 {
			ms := since.Load()
			if ms == 0 {
				return 0
			}
			return max(0, e.opt.Now().Sub(time.UnixMilli(ms)).Seconds())
		}
	}
	gauge("linkreel.events.waiting_age", "s",
		"Age of the oldest event that is not in its account's feed yet, at the last sweep.", age(&m.waiting))
	gauge("linkreel.webhooks.due_age", "s", "For how long the oldest delivery has been due, at the last sweep.", age(&m.due))
	gauge("linkreel.webhooks.failing", "{webhook}", "Webhooks of this replica whose last attempt failed.", func() float64 {
		e.mu.Lock()
		defer e.mu.Unlock()
		n := 0
		for _, l := range e.lanes {
			if l.failing {
				n++
			}
		}
		return float64(n)
	})
	return m
}

func (m *metrics) waitingSince(t time.Time) { m.waiting.Store(millis(t)) }
func (m *metrics) dueSince(t time.Time)     { m.due.Store(millis(t)) }

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func (m *metrics) attempted(ctx context.Context, r webhook.Result, first bool, j job, now time.Time) {
	outcome := "delivered"
	switch {
	case r.Final:
		return // nobody was called
	case r.Ours:
		outcome = "unsigned"
	case r.Status == 0:
		outcome = "unanswered"
	case !r.OK():
		outcome = "refused"
	}
	m.attempts.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
	if first && !r.Ours && j.fresh {
		m.firsts.Record(ctx, max(0, now.Sub(j.delivery.EventAt).Seconds()))
	}
}
