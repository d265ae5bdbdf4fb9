package pipeline

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/linkreel/linkreel/libs/metrics"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

var (
	moves = metrics.NewCounter(prometheus.CounterOpts{
		Name: "linkreel_videos_moves_total", Help: "Changes of a video's status, by the new status and, for failed, the reason.",
	}, []string{"status", "code"}, known()...)
	ready = metrics.NewHistogram(prometheus.HistogramOpts{
		Name:    "linkreel_videos_ready_seconds",
		Help:    "Time from the arrival of a file in storage until its video can be played, by the video's length: up to 1m, up to 10m, or longer.",
		Buckets: []float64{10, 30, 60, 120, 300, 900, 3600, 14400},
	}, []string{"length"}, metrics.Each(upToOneMinute, upToTenMinutes, longer)...)
	turns = metrics.NewCounter(prometheus.CounterOpts{
		Name: "linkreel_videos_janitor_turns_total",
		Help: "Searches of all of storage for orphans, by outcome: done, failed, or stopped because too many objects belong to no record.",
	}, []string{"outcome"}, metrics.Each(turnDone, turnStopped, turnFailed)...)
)

// Outcomes of a whole-bucket search.
const (
	turnDone    = "done"
	turnStopped = "stopped"
	turnFailed  = "failed"
)

// Classes of video length. The metrics are split by class because longer videos take longer to
// transcode.
const (
	upToOneMinute  = "1m"
	upToTenMinutes = "10m"
	longer         = "longer"
)

// known returns the label values for every status that a video can change to, including every
// reason for failed.
func known() []metrics.Series {
	all := []metrics.Series{{string(video.Processing), ""}, {string(video.Ready), ""}}
	for _, code := range transcode.Codes {
		all = append(all, metrics.Series{string(video.Failed), string(code)})
	}
	return all
}

func became(s video.Status, code video.Code) { moves.WithLabelValues(string(s), string(code)).Inc() }

// observeReady records the time from when a video's file arrived until the video became ready.
func observeReady(v *video.Video) {
	length := longer
	switch {
	case v.Media.Duration <= 60:
		length = upToOneMinute
	case v.Media.Duration <= 600:
		length = upToTenMinutes
	}
	if took := v.UploadToReady(); took > 0 {
		ready.WithLabelValues(length).Observe(took.Seconds())
	}
}
