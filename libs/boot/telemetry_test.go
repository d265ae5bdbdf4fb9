package boot

import (
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

func TestSpansGoWhereTheEnvironmentSays(t *testing.T) {
	const kind, endpoint, protocol = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
	const ofTraces = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	for name, tt := range map[string]struct {
		env  map[string]string
		want sdktrace.SpanExporter // its type; nil for none
		fail string                // names this in the error; "" for none
	}{
		"nowhere by default":        {},
		"nowhere when switched off": {env: map[string]string{kind: "none", endpoint: "http://localhost:4318"}},
		"to standard output":        {env: map[string]string{kind: "console"}, want: &stdouttrace.Exporter{}},
		"to a collector by HTTP":    {env: map[string]string{endpoint: "http://localhost:4318"}, want: &otlptrace.Exporter{}},
		"to a collector by gRPC":    {env: map[string]string{kind: "otlp", protocol: "grpc"}, want: &otlptrace.Exporter{}},
		"not to a misspelt one":     {env: map[string]string{kind: "otpl"}, fail: kind},
		"nor by a misspelt way":     {env: map[string]string{kind: "otlp", protocol: "http/json"}, fail: protocol},
		"nor by one of traces":      {env: map[string]string{kind: "otlp", protocol: "grpc", ofTraces: "http/json"}, fail: ofTraces},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{kind, endpoint, protocol, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ofTraces} {
				t.Setenv(v, tt.env[v])
			}
			got, err := spanExporter(t.Context())
			failed := err != nil
			if failed != (tt.fail != "") || failed && !strings.HasPrefix(err.Error(), tt.fail) || fmt.Sprintf("%T", got) != fmt.Sprintf("%T", tt.want) {
				t.Errorf("spanExporter() = %T, %v, want %T, failure %q", got, err, tt.want, tt.fail)
			}
			if got != nil {
				_ = got.Shutdown(t.Context())
			}
		})
	}
}
