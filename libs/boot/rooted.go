package boot

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

// rooted is a tracer provider that starts a trace only for work: for a request (a span of the
// kind server), for a job (consumer; see [Work]), or where [trace.WithNewRoot] asks. The
// client libraries of stores start a span for every call. Without rooted, each call of a
// background loop would be a trace of its own, and an idle installation would record hundreds
// a minute. Whether a trace is recorded remains the sampler's decision.
type rooted struct{ trace.TracerProvider }

// Work starts a trace for a piece of background work, such as a delivery, or a span if ctx is
// in a trace already. The caller ends the span.
func Work(ctx context.Context, name string) (context.Context, trace.Span) {
	return otel.Tracer("work").Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer))
}

// Tracer implements [trace.TracerProvider].
func (p rooted) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return rootedTracer{p.TracerProvider.Tracer(name, options...)}
}

type rootedTracer struct{ trace.Tracer }

// Start implements [trace.Tracer].
func (t rootedTracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		switch c := trace.NewSpanStartConfig(options...); {
		case c.NewRoot(), c.SpanKind() == trace.SpanKindServer, c.SpanKind() == trace.SpanKindConsumer:
		default:
			return ctx, trace.SpanFromContext(ctx) // records nothing
		}
	}
	return t.Tracer.Start(ctx, name, options...)
}
