package boot

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
)

// version is set by the image build: -ldflags "-X …/boot.version=1.2.3".
var version string

// Version returns the image's version. If the build did not set it, Version returns the program's
// source revision. If that is not known either, it returns the module's version.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}

// Telemetry installs the process's tracer and propagator and returns a function that flushes the
// spans. Metrics do not need any setup: packages register their metrics with Prometheus, and the
// admin port serves them at /metrics.
//
// Traces begin with requests and jobs. Calls that background loops make to stores are not traced.
// The standard OTEL_* variables configure where spans are sent. Without an exporter, spans are not
// recorded but still have ids, because request ids are derived from them.
func Telemetry(ctx context.Context, name string) (flush func(context.Context) error, err error) {
	res, err := resource.New(ctx, resource.WithFromEnv(), resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(name), semconv.ServiceVersion(Version())))
	if err != nil {
		return nil, fmt.Errorf("telemetry resource: %w", err)
	}
	to, err := spanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("trace exporter: %w", err)
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithResource(res)}
	if to != nil {
		opts = append(opts, sdktrace.WithBatcher(redacting{to}))
	} else {
		opts = append(opts, sdktrace.WithSampler(sdktrace.NeverSample()))
	}
	traces := sdktrace.NewTracerProvider(opts...)
	otel.SetTracerProvider(rooted{traces})
	otel.SetTextMapPropagator(propagation.TraceContext{})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { slog.Warn("telemetry", "error", err) }))
	return traces.Shutdown, nil
}

// spanExporter returns the exporter that the environment configures, or nil if it configures none.
// OpenTelemetry's exporters read the other variables themselves.
func spanExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	kind := os.Getenv("OTEL_TRACES_EXPORTER")
	if kind == "" && cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != "" {
		kind = "otlp"
	}
	switch kind {
	case "", "none":
		return nil, nil
	case "console":
		return stdouttrace.New()
	case "otlp":
	default:
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q; use otlp, console or none", kind)
	}
	protocol := "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	if os.Getenv(protocol) == "" {
		protocol = "OTEL_EXPORTER_OTLP_PROTOCOL"
	}
	switch p := os.Getenv(protocol); p {
	case "", "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	default:
		return nil, fmt.Errorf("%s is %q; use http/protobuf or grpc", protocol, p)
	}
}
