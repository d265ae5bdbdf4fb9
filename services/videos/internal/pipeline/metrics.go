package pipeline

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// measures answer how many videos move where, and how many wait.
type measures struct {
	moves metric.Int64Counter
	stand metric.Int64Gauge
	turns metric.Int64Counter
}

func newMeasures() measures {
	meter := otel.Meter("videos")
	moves, err := meter.Int64Counter("linkreel.videos.moves", metric.WithDescription("Changes of a video's status, by the new status and the reason of a failure."))
	if err != nil {
		otel.Handle(err)
	}
	stand, err := meter.Int64Gauge("linkreel.videos.standing", metric.WithDescription("Videos that were due at the last sweep: in work (processing, or ready with more to come) and waiting for an upload."))
	if err != nil {
		otel.Handle(err)
	}
	turns, err := meter.Int64Counter("linkreel.videos.janitor.turns", metric.WithDescription("Searches of all of storage for orphans, by outcome: done, failed, or stopped since too much of it is unknown."))
	if err != nil {
		otel.Handle(err)
	}
	m := measures{moves, stand, turns}
	// Zero from the start, so that the first one that is stopped shows as a rise.
	for _, outcome := range []string{turnDone, turnStopped, turnFailed} {
		turns.Add(context.Background(), 0, metric.WithAttributes(attribute.String("outcome", outcome)))
	}
	return m
}

// Outcomes of a janitor's turn.
const (
	turnDone    = "done"
	turnStopped = "stopped"
	turnFailed  = "failed"
)

func (m measures) tidied(ctx context.Context, outcome string) {
	m.turns.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
}

func (m measures) became(ctx context.Context, s video.Status, code video.Code) {
	m.moves.Add(ctx, 1, metric.WithAttributes(attribute.String("status", string(s)), attribute.String("code", string(code))))
}

// due tells how many of the videos that a sweep found due wait for what. A sweep
// reads no others, so what it does not find costs nothing.
func (m measures) due(ctx context.Context, found []*video.Video) {
	work, upload := 0, 0
	for _, v := range found {
		switch {
		case v.AwaitsUpload():
			upload++
		case v.InWork():
			work++
		}
	}
	m.stand.Record(ctx, int64(work), metric.WithAttributes(attribute.String("for", "worker")))
	m.stand.Record(ctx, int64(upload), metric.WithAttributes(attribute.String("for", "upload")))
}
