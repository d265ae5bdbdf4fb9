package boot

import (
	"context"
	"log/slog"
	"time"

	"github.com/linkreel/linkreel/libs/dedup"
)

// Every returns a loop that calls fn immediately, and again each time d has passed or kick receives
// a value, until its context is done. A failed call is logged, and the next call retries. If the
// next call fails with the same error, it is not logged again, so a long store outage does not fill
// the log. A nil kick never triggers a call.
func Every(d time.Duration, name string, fn func(ctx context.Context) error, kick <-chan struct{}) Loop {
	return every(d, name, func(ctx context.Context, _ bool) (ran bool, err error) { return true, fn(ctx) }, kick)
}

// Sweep is like [Every], for work that one replica does on behalf of all replicas, at a lower rate
// while there is no work (see [dedup.Pace]). When the process starts and after a kick, it calls fn
// immediately. fn reports whether it found work.
func Sweep(turns *dedup.Seen, p dedup.Pace, fn func(ctx context.Context) (found bool, err error), kick <-chan struct{}) Loop {
	return every(p.Every, p.What, func(ctx context.Context, kicked bool) (ran bool, err error) {
		round := turns.Round
		if kicked {
			round = turns.AtOnce
		}
		err = round(ctx, p, func(ctx context.Context) (found bool, err error) {
			ran = true
			return fn(ctx)
		})
		return ran, err
	}, kick)
}

// every implements [Every]. kicked is true for the first call and for calls that kick has
// triggered. fn reports whether it ran, or left the round to another replica.
func every(d time.Duration, name string, fn func(ctx context.Context, kicked bool) (ran bool, err error), kick <-chan struct{}) Loop {
	return Loop{Name: name, Run: func(ctx context.Context) error {
		tick := time.NewTicker(d)
		defer tick.Stop()
		failed, kicked := "", true
		for {
			failed = once(ctx, name, failed, func(ctx context.Context) (ran bool, err error) { return fn(ctx, kicked) })
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				kicked = false
			case <-kick:
				kicked = true
			}
		}
	}}
}

// once calls fn and returns the text of its error, or "" if fn succeeded. before is the
// error text of the previous call. If fn did not run, nothing is known, so once returns before.
func once(ctx context.Context, name, before string, fn func(ctx context.Context) (ran bool, err error)) (failed string) {
	ran, err := fn(ctx)
	switch {
	case !ran:
		return before
	case err == nil && before != "":
		slog.InfoContext(ctx, name+" is working again")
	case err != nil && ctx.Err() == nil:
		if failed = err.Error(); failed != before {
			slog.WarnContext(ctx, name+" failed; the next one retries", "error", err)
		}
	}
	return failed
}
