package boot

import (
	"context"
	"log/slog"
	"time"
)

// Every returns a loop that calls fn at once, and again whenever d has passed or kick
// receives a value, until its context ends. A failed call is logged, and the next call
// retries. If the next call fails with the same error, it is not logged again, because a
// store that is down for an hour would fill the log. A nil kick never triggers a call.
func Every(d time.Duration, name string, fn func(ctx context.Context) error, kick <-chan struct{}) Loop {
	return Loop{Name: name, Run: func(ctx context.Context) error {
		tick := time.NewTicker(d)
		defer tick.Stop()
		failed := ""
		for {
			failed = once(ctx, name, failed, fn)
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			case <-kick:
			}
		}
	}}
}

// once calls fn and returns the text of its error. before is the error text of the
// previous call.
func once(ctx context.Context, name, before string, fn func(ctx context.Context) error) (failed string) {
	err := fn(ctx)
	switch {
	case err == nil && before != "":
		slog.InfoContext(ctx, name+" works again")
	case err != nil && ctx.Err() == nil:
		if failed = err.Error(); failed != before {
			slog.WarnContext(ctx, name+" failed; the next one retries", "error", err)
		}
	}
	return failed
}
