package waiting

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// turn is a [Turns] that gives the turn to the replica named in has.
type turn struct {
	replica string
	has     *atomic.Value
}

func (t turn) Mine(context.Context, string, time.Duration) bool { return t.replica == t.has.Load() }

func shown(t *testing.T, want string) {
	t.Helper()
	if err := testutil.CollectAndCompare(collector{}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// Not parallel because the whole process shares the series.
func TestOneReplicaReportsAndAgesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var has atomic.Value
		var fails atomic.Bool
		var lost atomic.Int64
		has.Store("a")
		started := time.Now()
		look := Look{Work: Work{"videos", "worker"}, Depth: First(
			func(context.Context) (time.Time, error) {
				if fails.Load() {
					return time.Time{}, errors.New("the store is unreachable")
				}
				return started.Add(-time.Minute), nil
			}, func(context.Context) (int64, error) { return 9, nil })}
		idle := Look{Work: Work{"erasures", "services"}, Depth: First(
			func(context.Context) (time.Time, error) { return time.Time{}, nil },
			func(context.Context) (int64, error) {
				t.Error("an empty queue was counted, want only the first read")
				return 0, nil
			})}
		count := Look{
			Work: Work{"videos", "upload"}, Lost: func() { lost.Add(1) },
			Depth: Ageless(func(context.Context) (int64, error) { return 4, nil }),
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, name := range []string{"a", "b"} {
			go func() { ended <- Loop("videos", turn{name, &has}, time.Now, look, idle, count).Run(ctx) }()
		}
		synctest.Wait()
		values := func(age string) string {
			return `
				# HELP linkreel_waiting Amount of pending work, by its kind and what it waits for.
				# TYPE linkreel_waiting gauge
				linkreel_waiting{for="services",of="erasures"} 0
				linkreel_waiting{for="upload",of="videos"} 4
				linkreel_waiting{for="worker",of="videos"} 9
				# HELP linkreel_waiting_oldest_seconds Age of the oldest pending work; 0 if no work is pending.
				# TYPE linkreel_waiting_oldest_seconds gauge
				linkreel_waiting_oldest_seconds{for="services",of="erasures"} 0
				linkreel_waiting_oldest_seconds{for="worker",of="videos"} ` + age + "\n"
		}
		shown(t, values("60"))

		fails.Store(true)
		time.Sleep(3 * time.Minute) // on the bubble's clock
		synctest.Wait()
		shown(t, values("240"))

		fails.Store(false)
		has.Store("b")
		time.Sleep(Every)
		synctest.Wait()
		shown(t, values("300")) // only from b; if both reported, the numbers would double

		has.Store("nobody")
		time.Sleep(Every)
		synctest.Wait()
		shown(t, "")
		has.Store("a")
		time.Sleep(Every)
		stop()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
		shown(t, "") // a stopped replica reports nothing
		if lost.Load() == 0 {
			t.Error("Lost was not called after the replica lost the turn, want a call")
		}
	})
}

func TestPartsOfOneProcessAddUp(t *testing.T) {
	now := time.Unix(1000, 0)
	work := Work{"clicks", "count"}
	one, two := NewReport(func() time.Time { return now }), NewReport(func() time.Time { return now })
	one.Set(work, Depth{N: 3, Oldest: now.Add(-time.Second)})
	two.Set(work, Depth{N: 4, Oldest: now.Add(-5 * time.Second)})
	defer one.Forget()
	shown(t, `
		# HELP linkreel_waiting Amount of pending work, by its kind and what it waits for.
		# TYPE linkreel_waiting gauge
		linkreel_waiting{for="count",of="clicks"} 7
		# HELP linkreel_waiting_oldest_seconds Age of the oldest pending work; 0 if no work is pending.
		# TYPE linkreel_waiting_oldest_seconds gauge
		linkreel_waiting_oldest_seconds{for="count",of="clicks"} 5
	`)
	two.Forget()
	if n := testutil.CollectAndCount(collector{}, "linkreel_waiting"); n != 1 {
		t.Errorf("%d series after one of two parts has ended, want 1", n)
	}
}
