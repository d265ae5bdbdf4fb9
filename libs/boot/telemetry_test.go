package boot

import (
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

func TestSpansGoWhereTheEnvironmentSays(t *testing.T) {
	const kind, endpoint, protocol = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
	for name, tt := range map[string]struct {
		env  map[string]string
		want sdktrace.SpanExporter // its type; nil for none
		fail bool
	}{
		"nowhere by default":        {},
		"nowhere when switched off": {env: map[string]string{kind: "none", endpoint: "http://localhost:4318"}},
		"to standard output":        {env: map[string]string{kind: "console"}, want: &stdouttrace.Exporter{}},
		"to a collector by HTTP":    {env: map[string]string{endpoint: "http://localhost:4318"}, want: &otlptrace.Exporter{}},
		"to a collector by gRPC":    {env: map[string]string{kind: "otlp", protocol: "grpc"}, want: &otlptrace.Exporter{}},
		"not to a misspelt one":     {env: map[string]string{kind: "otpl"}, fail: true},
		"nor by a misspelt way":     {env: map[string]string{kind: "otlp", protocol: "http/json"}, fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{kind, endpoint, protocol, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"} {
				t.Setenv(v, tt.env[v])
			}
			got, err := spanExporter(t.Context())
			if (err != nil) != tt.fail || fmt.Sprintf("%T", got) != fmt.Sprintf("%T", tt.want) {
				t.Errorf("spanExporter() = %T, %v, want %T, failure %v", got, err, tt.want, tt.fail)
			}
			if got != nil {
				_ = got.Shutdown(t.Context())
			}
		})
	}
}
