// Package waiting reports the amount of pending work and the age of its oldest item. All kinds of
// work share the same two metrics:
//
//	linkreel_waiting{of,for}                 the number of items
//	linkreel_waiting_oldest_seconds{of,for}  the age of the oldest item; 0 if no work is pending
//
// The values are read from the stores, not from a replica's memory. One replica of a service,
// chosen by [dedup.Seen.Mine], reads them once a minute. A replica that loses the turn drops its
// series, so its old values do not linger. Without Redis, every replica reports the same values, so
// queries must use the maximum across all pods.
//
// If a read fails, the number does not change and the age continues to increase.
package waiting

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/firestoredb"
)

// Every is the time between two reads by the replica that has the turn.
const Every = time.Minute

// Depth is the amount of pending work of one kind.
type Depth struct {
	N int64
	// Oldest is when the oldest item became pending. It is ignored if N is 0.
	Oldest time.Time
	// Ageless means that the age is unknown and must not be reported.
	Ageless bool
}

// Work identifies one kind of work and what it waits for. Both are labels on the metrics.
type Work struct{ Of, For string }

// Look reads the amount of pending work of one kind.
type Look struct {
	Work
	Depth func(ctx context.Context) (Depth, error)
	// Lost, if set, is called when the replica has lost the turn. It drops other series that Depth
	// has set.
	Lost func()
}

// Turns gives the turn to one replica; see [dedup.Seen.Mine].
type Turns interface {
	Mine(ctx context.Context, what string, hold time.Duration) bool
}

// Loop returns the loop that reads the depths for a service. service is the turn's name.
func Loop(service string, turns Turns, now func() time.Time, looks ...Look) boot.Loop {
	r := NewReport(now)
	forget := func() {
		r.Forget()
		for _, l := range looks {
			if l.Lost != nil {
				l.Lost()
			}
		}
	}
	every := boot.Every(Every, "pending work", func(ctx context.Context) error {
		if !turns.Mine(ctx, "waiting-"+service, Every*9/10) {
			forget()
			return nil
		}
		return r.look(ctx, looks)
	}, nil)
	return boot.Loop{Name: every.Name, Run: func(ctx context.Context) error {
		defer forget()
		return every.Run(ctx)
	}}
}

// First returns the depth of a queue with two reads. For an empty queue, which is the usual case,
// it only makes the first read. oldest returns the time when the oldest item became pending, or
// zero if the queue is empty.
func First(oldest func(context.Context) (time.Time, error), count func(context.Context) (int64, error)) func(context.Context) (Depth, error) {
	return func(ctx context.Context) (d Depth, err error) {
		if d.Oldest, err = oldest(ctx); err != nil || d.Oldest.IsZero() {
			return Depth{}, err
		}
		d.N, err = count(ctx)
		d.N = max(1, d.N) // the oldest item may have left the queue between the two reads
		return d, err
	}
}

// Query returns the depth of the documents that match queries. Each query must sort by the field
// at, oldest first. If no documents match, each query costs one read.
func Query(db *firestoredb.DB, what, at string, queries func() []firestore.Query) func(context.Context) (Depth, error) {
	return First(func(ctx context.Context) (oldest time.Time, err error) {
		for _, q := range queries() {
			snaps, err := db.Query(ctx, "find oldest "+what, q.Limit(1).Select(at))
			if err != nil {
				return oldest, err
			}
			for _, snap := range snaps {
				value, _ := snap.DataAt(at)
				if since, ok := value.(time.Time); ok && (oldest.IsZero() || since.Before(oldest)) {
					oldest = since
				}
			}
		}
		return oldest, nil
	}, Count(db, what, queries))
}

// maxCount limits how many of a query's documents are counted. Firestore reads an index entry for
// each counted document, and times out after a minute. With the limit, counting is cheap and
// succeeds even with millions of documents.
var maxCount = 100_000 // a variable so that the test can change it

// Count returns a function that counts the documents that match queries, up to [maxCount] for each
// query.
func Count(db *firestoredb.DB, what string, queries func() []firestore.Query) func(context.Context) (int64, error) {
	return func(ctx context.Context) (all int64, err error) {
		for _, q := range queries() {
			n, err := db.Count(ctx, "count "+what, q.Limit(maxCount))
			if err != nil {
				return 0, err
			}
			all += n
		}
		return all, nil
	}
}

// Ageless returns the depth of work with an unknown age.
func Ageless(count func(context.Context) (int64, error)) func(context.Context) (Depth, error) {
	return func(ctx context.Context) (Depth, error) {
		n, err := count(ctx)
		return Depth{N: n, Ageless: true}, err
	}
}

// Report contains the depths that a replica, or a part of it, reports. It has no series before the
// first Set and after Forget. It is safe for concurrent use.
type Report struct {
	now func() time.Time

	mu     sync.Mutex
	depths map[Work]Depth
}

// NewReport returns an empty report.
func NewReport(now func() time.Time) *Report {
	return &Report{now: now, depths: map[Work]Depth{}}
}

// Set reports a depth. If several reports in a process contain the same work, the collector adds up
// their counts and uses the age of the oldest item.
func (r *Report) Set(w Work, d Depth) {
	r.mu.Lock()
	r.depths[w] = d
	r.mu.Unlock()
	all.Store(r, struct{}{})
}

// Forget drops all the report's series.
func (r *Report) Forget() {
	all.Delete(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.depths)
}

func (r *Report) look(ctx context.Context, looks []Look) (err error) {
	for _, l := range looks {
		d, failed := l.Depth(ctx)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s for %s: %w", l.Of, l.For, failed))
			continue
		}
		r.Set(l.Work, d)
	}
	return err
}

// all holds the reports that have series.
var all sync.Map

// collector creates the series for all reports at each scrape because ages increase.
type collector struct{}

func init() { prometheus.MustRegister(collector{}) }

func vectors() (n, oldest *prometheus.GaugeVec) {
	labels := []string{"of", "for"}
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "linkreel_waiting", Help: "Amount of pending work, by its kind and what it waits for.",
		}, labels), prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "linkreel_waiting_oldest_seconds", Help: "Age of the oldest pending work; 0 if no work is pending.",
		}, labels)
}

// Describe implements [prometheus.Collector].
func (collector) Describe(out chan<- *prometheus.Desc) {
	n, oldest := vectors()
	n.Describe(out)
	oldest.Describe(out)
}

// Collect implements [prometheus.Collector].
func (collector) Collect(out chan<- prometheus.Metric) {
	n, oldest := vectors()
	ages := map[Work]time.Duration{}
	all.Range(func(k, _ any) bool {
		r := k.(*Report)
		r.mu.Lock()
		defer r.mu.Unlock()
		for w, d := range r.depths {
			n.WithLabelValues(w.Of, w.For).Add(float64(d.N))
			if d.Ageless {
				continue
			}
			if age := ages[w]; d.N > 0 {
				ages[w] = max(age, r.now().Sub(d.Oldest))
			} else {
				ages[w] = age
			}
		}
		return true
	})
	for w, age := range ages {
		oldest.WithLabelValues(w.Of, w.For).Set(age.Seconds())
	}
	n.Collect(out)
	oldest.Collect(out)
}
