package clicks

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// These are plain Prometheus metrics because redirects update some of them.
var (
	lost = promauto.NewCounter(prometheus.CounterOpts{Name: "linkreel_clicks_lost_total",
		Help: "Clicks lost because the spool was full or a producer's batches are missing."})
	spooled = promauto.NewCounter(prometheus.CounterOpts{Name: "linkreel_clicks_spooled_total",
		Help: "Clicks that went through the local spool because Redis did not answer or was full."})
	spooling = promauto.NewGauge(prometheus.GaugeOpts{Name: "linkreel_clicks_spooling",
		Help: "Partitions that write clicks to the local spool or still have some in it."})
	counted = promauto.NewCounter(prometheus.CounterOpts{Name: "linkreel_clicks_counted_total",
		Help: "Clicks that the flusher wrote to Firestore."})
	backlog = promauto.NewGaugeVec(prometheus.GaugeOpts{Name: "linkreel_clicks_backlog_batches",
		Help: "Batches waiting for the flusher, by partition."}, []string{"partition"})
	setAside = promauto.NewCounter(prometheus.CounterOpts{Name: "linkreel_clicks_set_aside_total",
		Help: "Clicks that Firestore rejected. They are kept in the collection clickRefused."})
	missing = promauto.NewCounter(prometheus.CounterOpts{Name: "linkreel_clicks_producers_missing_total",
		Help: "Processes that ended without signing off and whose spool no other process took over. Clicks in that spool are lost."})
)
