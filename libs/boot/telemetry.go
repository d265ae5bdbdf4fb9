package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
)

// version is set by the image build: -ldflags "-X …/boot.version=1.2.3".
var version string

// Version is the build's version: the image's, else the module's, else the
// revision that it was built from.
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

// Telemetry installs the process's tracer, meter and propagator, and returns
// what flushes them.
//
// Traces go where the standard OTEL_* variables say. Without any, spans are not
// recorded but still have ids, which is what request ids are made of. Metrics
// are always served at /metrics of the admin port, and are pushed as well when
// OTEL_METRICS_EXPORTER asks for it.
func Telemetry(ctx context.Context, name string) (flush func(context.Context) error, err error) {
	res, err := resource.New(ctx, resource.WithFromEnv(), resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(name), semconv.ServiceVersion(Version())))
	if err != nil {
		return nil, fmt.Errorf("telemetry resource: %w", err)
	}
	traceOpts := []sdktrace.TracerProviderOption{sdktrace.WithResource(res)}
	if exporting("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
		exporter, err := autoexport.NewSpanExporter(ctx)
		if err != nil {
			return nil, fmt.Errorf("trace exporter: %w", err)
		}
		traceOpts = append(traceOpts, sdktrace.WithBatcher(redacting{exporter}))
	} else {
		traceOpts = append(traceOpts, sdktrace.WithSampler(sdktrace.NeverSample()))
	}
	traces := sdktrace.NewTracerProvider(traceOpts...)
	prom, err := prometheus.New()
	if err != nil {
		return nil, fmt.Errorf("prometheus exporter: %w", err)
	}
	metricOpts := []metric.Option{metric.WithResource(res), metric.WithReader(prom)}
	if exporting("OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") {
		reader, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			return nil, fmt.Errorf("metric exporter: %w", err)
		}
		metricOpts = append(metricOpts, metric.WithReader(reader))
	}
	metrics := metric.NewMeterProvider(metricOpts...)
	otel.SetTracerProvider(traces)
	otel.SetMeterProvider(metrics)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { slog.Warn("telemetry", "error", err) }))
	return func(ctx context.Context) error {
		return errors.Join(traces.Shutdown(ctx), metrics.Shutdown(ctx))
	}, nil
}

// exporting reports whether the environment asks for an exporter. autoexport
// alone would send to localhost when nothing is set.
func exporting(vars ...string) bool {
	for _, v := range append(vars, "OTEL_EXPORTER_OTLP_ENDPOINT") {
		if value := os.Getenv(v); value != "" {
			return value != "none"
		}
	}
	return false
}
