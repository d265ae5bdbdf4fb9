package apikey

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instruments count only unusual outcomes, so the common path has no overhead: how
// often keys were checked without Redis, without auth, or not at all.
type instruments struct {
	checks        metric.Int64Counter
	redisFailures metric.Int64Counter
}

func newInstruments() instruments {
	m := otel.Meter("github.com/linkreel/linkreel/libs/apikey")
	// Instruments of the global meter do not fail; a nil one would panic in tests.
	checks, _ := m.Int64Counter("linkreel.auth.checks.degraded",
		metric.WithDescription("Key checks that left the usual path: cold, local (no Redis), stale (no auth), unavailable."))
	failures, _ := m.Int64Counter(
		"linkreel.auth.redis.failures",
		metric.WithDescription("Calls to Redis for limits and versions that failed."),
	)
	return instruments{checks: checks, redisFailures: failures}
}

func (instruments) count(ctx context.Context, c metric.Int64Counter, how string) {
	if how == "" {
		c.Add(ctx, 1)
		return
	}
	c.Add(ctx, 1, metric.WithAttributes(attribute.String("how", how)))
}
