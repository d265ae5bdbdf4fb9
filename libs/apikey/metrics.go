package apikey

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instruments count only unusual outcomes, so the common path has no overhead: how
// often keys were checked without Redis, without auth, or not at all.
type instruments struct {
	checks        metric.Int64Counter // by how
	redisFailures metric.Int64Counter
}

var (
	cold        = metric.WithAttributes(attribute.String("how", "cold"))
	local       = metric.WithAttributes(attribute.String("how", "local"))
	stale       = metric.WithAttributes(attribute.String("how", "stale"))
	unavailable = metric.WithAttributes(attribute.String("how", "unavailable"))
)

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
