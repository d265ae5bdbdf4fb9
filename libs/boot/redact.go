package boot

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// redacting keeps secrets out of exported spans. HTTP client libraries add URLs to their spans, and
// the query string of a signed URL or upload session is a credential.
type redacting struct{ sdktrace.SpanExporter }

func (r redacting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	out := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, s := range spans {
		out[i] = redactedSpan{s}
	}
	return r.SpanExporter.ExportSpans(ctx, out)
}

type redactedSpan struct{ sdktrace.ReadOnlySpan }

func (s redactedSpan) Attributes() []attribute.KeyValue {
	attrs := s.ReadOnlySpan.Attributes()
	out := make([]attribute.KeyValue, len(attrs))
	for i, kv := range attrs {
		if kv.Value.Type() == attribute.STRING {
			switch kv.Key {
			case "url.query":
				kv.Value = attribute.StringValue("[redacted]")
			case "url.full", "http.url", "http.target":
				if address, _, has := strings.Cut(kv.Value.AsString(), "?"); has {
					kv.Value = attribute.StringValue(address + "?[redacted]")
				}
			}
		}
		out[i] = kv
	}
	return out
}
