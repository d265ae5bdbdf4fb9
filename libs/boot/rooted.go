package boot

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

// rooted is a tracer provider that starts a trace only for a request (a span of kind server), for a
// job (kind consumer; see [Work]), or if [trace.WithNewRoot] is set. The client libraries of stores
// start a span for every call. Without rooted, each call from a background loop would start its own
// trace, and an idle installation would record hundreds of traces a minute. The sampler still
// decides whether a trace is recorded.
type rooted struct{ trace.TracerProvider }

// Work starts a trace for a unit of background work, such as a delivery. If ctx already has a
// trace, it starts a span in that trace. The caller ends the span.
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
