package pipeline

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/linkreel/linkreel/libs/metrics"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// These metrics count status changes, waiting videos and searches of storage.
var (
	moves = metrics.NewCounter(prometheus.CounterOpts{
		Name: "linkreel_videos_moves_total", Help: "Changes of a video's status, by the new status and, for failed, the reason.",
	}, []string{"status", "code"}, known()...)
	standing = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "linkreel_videos_standing",
		Help: "Videos that were due at the last sweep, by what they wait for: a worker (processing, or ready but not yet complete) or an upload.",
	}, []string{"for"})
	turns = metrics.NewCounter(prometheus.CounterOpts{
		Name: "linkreel_videos_janitor_turns_total",
		Help: "Searches of all of storage for orphans, by outcome: done, failed, or stopped because too many objects belong to no record.",
	}, []string{"outcome"}, metrics.Each(turnDone, turnStopped, turnFailed)...)
)

// Outcomes of a janitor's turn.
const (
	turnDone    = "done"
	turnStopped = "stopped"
	turnFailed  = "failed"
)

// known returns every status that a video may move to, and for failed every reason.
func known() []metrics.Series {
	all := []metrics.Series{{string(video.Processing), ""}, {string(video.Ready), ""}}
	for _, code := range transcode.Codes {
		all = append(all, metrics.Series{string(video.Failed), string(code)})
	}
	return all
}

func became(s video.Status, code video.Code) { moves.WithLabelValues(string(s), string(code)).Inc() }

// noteDue reports how many of the due videos wait for a worker and how many for an
// upload. A sweep reads only due videos, so it can count no others.
func noteDue(found []*video.Video) {
	work, upload := 0, 0
	for _, v := range found {
		switch {
		case v.AwaitsUpload():
			upload++
		case v.InWork():
			work++
		}
	}
	standing.WithLabelValues("worker").Set(float64(work))
	standing.WithLabelValues("upload").Set(float64(upload))
}
