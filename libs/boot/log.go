package boot

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"go.opentelemetry.io/otel/trace"
)

// LogFormat chooses the field names in log lines.
type LogFormat string

// Log line formats.
const (
	LogJSON   LogFormat = "json"
	LogGoogle LogFormat = "google"
)

// UnmarshalText implements [encoding.TextUnmarshaler]. It rejects an unknown format, so a
// misconfigured service does not start.
func (f *LogFormat) UnmarshalText(text []byte) error {
	switch v := LogFormat(text); v {
	case LogJSON, LogGoogle:
		*f = v
		return nil
	}
	return fmt.Errorf("LINKREEL_LOG_FORMAT is %q; use json or google", text)
}

// NewLogger returns a logger that writes JSON lines with the trace and span from their context.
//
// The google format uses Cloud Logging's field names: severity, message, and a trace field that
// links the line to Cloud Trace. Google's trace names contain the project. If GOOGLE_CLOUD_PROJECT
// is not set, only the trace id is written.
func NewLogger(w io.Writer, level slog.Level, format LogFormat) *slog.Logger {
	opt := &slog.HandlerOptions{Level: level}
	h := traceHandler{traceKey: "trace_id", spanKey: "span_id"}
	if format == LogGoogle {
		opt.ReplaceAttr = googleNames
		h.traceKey, h.spanKey = "logging.googleapis.com/trace", "logging.googleapis.com/spanId"
		h.sampledKey = "logging.googleapis.com/trace_sampled"
		if project := os.Getenv("GOOGLE_CLOUD_PROJECT"); project != "" {
			h.tracePrefix = "projects/" + project + "/traces/"
		}
	}
	h.Handler = slog.NewJSONHandler(w, opt)
	return slog.New(h)
}

// googleNames renames the fields that slog itself writes. Other attributes keep their names.
func googleNames(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.LevelKey:
		level, ok := a.Value.Any().(slog.Level)
		if !ok {
			return a // an attribute that the caller named "level"
		}
		return slog.String("severity", severity(level))
	case slog.MessageKey:
		a.Key = "message"
	}
	return a
}

// severity returns Google's name for a level.
func severity(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "ERROR"
	case level >= slog.LevelWarn:
		return "WARNING"
	case level >= slog.LevelInfo:
		return "INFO"
	}
	return "DEBUG"
}

type traceHandler struct {
	slog.Handler
	traceKey, spanKey, sampledKey string
	tracePrefix                   string
}

func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String(h.traceKey, h.tracePrefix+sc.TraceID().String()), slog.String(h.spanKey, sc.SpanID().String()))
		if h.sampledKey != "" {
			r.AddAttrs(slog.Bool(h.sampledKey, sc.IsSampled()))
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h traceHandler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}
