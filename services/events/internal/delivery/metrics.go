package delivery

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/linkreel/linkreel/libs/lograte"
	"github.com/linkreel/linkreel/libs/metrics"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Delivery metrics.
var (
	attempts = metrics.NewCounter(prometheus.CounterOpts{
		Name: "linkreel_webhooks_attempts_total",
		Help: "Attempts to call receivers, by outcome: delivered, refused (an answer that is not 2xx), unanswered, " +
			"or unsigned (not sent, since none of the webhook's secrets can be decrypted); and by the reason of a failure.",
	}, []string{"outcome", "reason"}, outcomes()...)
	firsts = promauto.NewHistogram(prometheus.HistogramOpts{
		Name:    "linkreel_webhooks_first_try_seconds",
		Help:    "Time from a change to the end of the first attempt to deliver its event to a webhook.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2, 5, 10, 30, 60, 300, 3600},
	})
	delivered = promauto.NewHistogram(prometheus.HistogramOpts{
		Name:    "linkreel_webhooks_delivered_seconds",
		Help:    "Time from a change until the receiver has accepted its event, retries included. Replays are left out.",
		Buckets: []float64{.1, .5, 1, 5, 10, 60, 600, 3600, 21600, 86400},
	})
	failing = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "linkreel_webhooks_failing", Help: "Webhooks of this replica whose last attempt failed.",
	})

	waitingAge, dueAge age

	_ = promauto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "linkreel_events_waiting_age_seconds",
		Help: "Age of the oldest event that the last sweep found without a place in its account's feed, or still in its first attempts.",
	}, waitingAge.seconds)
	_ = promauto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "linkreel_webhooks_due_age_seconds", Help: "How long the oldest delivery found by the last sweep has been due.",
	}, dueAge.seconds)
)

// age is the age of the oldest waiting item. It keeps growing while sweeps fail; see unseen.
type age struct{ since atomic.Int64 } // unix ms; 0 means that nothing is waiting

func (a *age) of(oldest time.Time) {
	if oldest.IsZero() {
		a.since.Store(0)
		return
	}
	a.since.Store(oldest.UnixMilli())
}

// unseen records a failed look. Something may be waiting since then, so if nothing was waiting
// before, the age grows from now on.
func (a *age) unseen(now time.Time) { a.since.CompareAndSwap(0, now.UnixMilli()) }

func (a *age) seconds() float64 {
	ms := a.since.Load()
	if ms == 0 {
		return 0
	}
	return max(0, time.Since(time.UnixMilli(ms)).Seconds())
}

// Attempt outcomes.
const (
	outcomeDelivered  = "delivered"
	outcomeRefused    = "refused"
	outcomeUnanswered = "unanswered"
	outcomeUnsigned   = "unsigned"
)

func outcomes() []metrics.Series {
	all := []metrics.Series{
		{outcomeDelivered, ""}, {outcomeRefused, string(webhook.CauseStatus)}, {outcomeUnsigned, string(webhook.CauseUnsigned)},
	}
	for _, cause := range webhook.Unanswered {
		all = append(all, metrics.Series{outcomeUnanswered, string(cause)})
	}
	return all
}

func attempted(r webhook.Result, first bool, j job, now time.Time) {
	outcome := outcomeDelivered
	switch {
	case r.Final:
		return // the receiver was not called
	case r.Ours:
		outcome = outcomeUnsigned
	case r.Status == 0:
		outcome = outcomeUnanswered
	case !r.OK():
		outcome = outcomeRefused
	}
	attempts.WithLabelValues(outcome, string(r.Cause)).Inc()
	if r.OK() && !j.delivery.Repeated() {
		delivered.Observe(max(0, now.Sub(j.delivery.EventAt).Seconds()))
	}
	// Omit deliveries that were deferred or taken over. Their time depends on the backlog or the
	// outage rather than on delivery speed.
	if first && !r.Ours && j.fresh {
		firsts.Observe(max(0, now.Sub(j.delivery.EventAt).Seconds()))
	}
}

// failures logs why attempts fail. It logs one example of each cause per minute because thousands
// of attempts may fail with the same cause.
type failures struct{ lograte.Limits[webhook.Cause] }

// tell logs a failed attempt. The line contains only the URL's host because the path or query may
// contain a secret.
func (f *failures) tell(ctx context.Context, w *webhook.Webhook, r webhook.Result, now time.Time) {
	if r.OK() || r.Final || r.Ours { // sealed logs a secret that cannot be decrypted
		return
	}
	if n := f.Due(r.Cause, now); n > 0 {
		slog.WarnContext(ctx, "attempts to call webhooks fail", "reason", r.Cause, "status", r.Status, "host", w.Host(),
			"webhook", w.ID, "account", w.AccountID, "attempts", n)
	}
}

// sealed logs a webhook with a secret that cannot be decrypted.
func (f *failures) sealed(ctx context.Context, w *webhook.Webhook, err error, now time.Time) {
	if n := f.Due(webhook.CauseUnsigned, now); n > 0 {
		slog.ErrorContext(ctx, "cannot decrypt a webhook's secret", "webhook", w.ID, "account", w.AccountID, "attempts", n, "error", err)
	}
}
