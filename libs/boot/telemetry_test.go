package boot

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func TestSpansGoWhereTheEnvironmentSays(t *testing.T) {
	const kind, endpoint, protocol = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
	const ofTraces = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	for name, tt := range map[string]struct {
		env  map[string]string
		want sdktrace.SpanExporter // only its type is compared; nil for no exporter
		fail string                // the variable that the error names; "" for no error
	}{
		"no exporter by default":           {},
		"exporter switched off":            {env: map[string]string{kind: "none", endpoint: "http://localhost:4318"}},
		"standard output":                  {env: map[string]string{kind: "console"}, want: &stdouttrace.Exporter{}},
		"collector by HTTP":                {env: map[string]string{endpoint: "http://localhost:4318"}, want: &otlptrace.Exporter{}},
		"collector by gRPC":                {env: map[string]string{kind: "otlp", protocol: "grpc"}, want: &otlptrace.Exporter{}},
		"unknown exporter":                 {env: map[string]string{kind: "otpl"}, fail: kind},
		"unknown protocol":                 {env: map[string]string{kind: "otlp", protocol: "http/json"}, fail: protocol},
		"unknown protocol for traces only": {env: map[string]string{kind: "otlp", protocol: "grpc", ofTraces: "http/json"}, fail: ofTraces},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{kind, endpoint, protocol, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ofTraces} {
				t.Setenv(v, tt.env[v])
			}
			got, err := spanExporter(t.Context())
			failed := err != nil
			if failed != (tt.fail != "") || failed && !strings.HasPrefix(err.Error(), tt.fail) || fmt.Sprintf("%T", got) != fmt.Sprintf("%T", tt.want) {
				t.Errorf("spanExporter() = %T, %v; want %T and an error with %q", got, err, tt.want, tt.fail)
			}
			if got != nil {
				_ = got.Shutdown(t.Context())
			}
		})
	}
}

func TestATraceBeginsWithWorkAndNotWithACallOfALoop(t *testing.T) {
	before := otel.GetTracerProvider()
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	if _, err := Telemetry(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	if _, ok := otel.GetTracerProvider().(rooted); !ok {
		t.Fatalf("the tracer provider has type %T, want rooted", otel.GetTracerProvider())
	}
	sink := tracetest.NewInMemoryExporter()
	never := sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0)) // the chart's setting, with the ratio 0
	always := sdktrace.ParentBased(sdktrace.TraceIDRatioBased(1))
	sampled := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
	for name, tt := range map[string]struct {
		sampler sdktrace.Sampler
		ctx     context.Context
		options []trace.SpanStartOption
		want    int // the span itself and a store call inside it
	}{
		"call from a loop":                    {sampler: always, ctx: t.Context()},
		"call from a loop with a client span": {sampler: always, ctx: t.Context(), options: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}},
		"request":                             {sampler: always, ctx: t.Context(), options: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}, want: 2},
		"job":                                 {sampler: always, ctx: t.Context(), options: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}, want: 2},
		"new root":                            {sampler: always, ctx: t.Context(), options: []trace.SpanStartOption{trace.WithNewRoot()}, want: 2},
		"unsampled request":                   {sampler: never, ctx: t.Context(), options: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}},
		"part of a sampled trace":             {sampler: never, ctx: sampled, want: 2},
	} {
		sink.Reset()
		tracer := rooted{sdktrace.NewTracerProvider(sdktrace.WithSyncer(sink), sdktrace.WithSampler(tt.sampler))}.Tracer("test")
		ctx, span := tracer.Start(tt.ctx, name, tt.options...)
		_, call := tracer.Start(ctx, "Query.RunQuery")
		call.End()
		span.End()
		if got := len(sink.GetSpans()); got != tt.want {
			t.Errorf("%s: %d spans recorded, want %d", name, got, tt.want)
		}
	}
}
