package httpapi

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Trace starts a trace for a request that is not served by an [API]. The caller must call
// end with the response's status.
func Trace(tracer, name string) (ctx context.Context, end func(status int)) {
	ctx, span := otel.Tracer(tracer).Start(context.Background(), name, trace.WithSpanKind(trace.SpanKindServer))
	return ctx, func(status int) {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= 500 {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}
