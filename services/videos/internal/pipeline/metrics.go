package pipeline

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// measures answer how many videos move where, and how many stand.
type measures struct {
	moves metric.Int64Counter
	stand metric.Int64Gauge
}

func newMeasures() measures {
	meter := otel.Meter("videos")
	moves, err := meter.Int64Counter("linkreel.videos.moves", metric.WithDescription("Changes of a video's status, by the new status and the reason of a failure."))
	if err != nil {
		otel.Handle(err)
	}
	stand, err := meter.Int64Gauge("linkreel.videos.standing", metric.WithDescription("Videos at the last sweep: in work (processing, or ready with more to come) and waiting for an upload."))
	if err != nil {
		otel.Handle(err)
	}
	return measures{moves, stand}
}

func (m measures) became(ctx context.Context, s video.Status, code video.Code) {
	m.moves.Add(ctx, 1, metric.WithAttributes(attribute.String("status", string(s)), attribute.String("code", string(code))))
}

func (m measures) waiting(ctx context.Context, inWork, waiting int) {
	m.stand.Record(ctx, int64(inWork), metric.WithAttributes(attribute.String("for", "worker")))
	m.stand.Record(ctx, int64(waiting), metric.WithAttributes(attribute.String("for", "upload")))
}
