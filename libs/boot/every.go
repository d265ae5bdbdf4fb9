package boot

import (
	"context"
	"log/slog"
	"time"
)

// Every is a loop that calls fn at once, then whenever d has passed or kick has
// something, until its context ends. A call that fails is logged and the next one
// retries; a failure that repeats is logged once, since a store that is away for an
// hour would fill the log. A nil kick never calls.
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

// once calls fn, and returns its error's text.
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
