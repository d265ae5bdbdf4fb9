package delivery

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Replay wakes the loop that executes replays.
func (e *Engine) Replay() {
	select {
	case e.replaying <- struct{}{}:
	default:
	}
}

// replayPace is the pause between two rounds of replays.
const replayPace = 200 * time.Millisecond

func (e *Engine) replays(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.replaying:
		}
		for e.replayRound(ctx) {
			outage.Pause(ctx, replayPace)
		}
	}
}

// replayRound takes the replays that have waited longest and executes one step of each, so a long
// replay does not delay the others. It reports whether there is more work.
func (e *Engine) replayRound(ctx context.Context) bool {
	list, err := e.store.Replays(ctx)
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "cannot list replays; the next sweep retries", "error", err)
	}
	e.replayed.Store(len(list) > 0 || err != nil)
	for _, r := range list {
		if !e.hub.turns.Mine(ctx, "replay:"+r.ID, replayPace) {
			continue
		}
		if failed := e.replay(ctx, r); failed != nil && ctx.Err() == nil {
			// Continue with the other replays.
			slog.WarnContext(ctx, "a replay step failed; it is retried", "replay", r.ID, "error", failed)
			err = errors.Join(err, e.store.RestReplay(ctx, r))
		}
	}
	return len(list) > 0 && err == nil && ctx.Err() == nil
}

// replay executes a replay's next step. It postpones the step while the replay's webhook has many
// waiting deliveries.
func (e *Engine) replay(ctx context.Context, r *webhook.Replay) error {
	w, _, err := e.store.Receiver(ctx, r.AccountID, r.WebhookID)
	if gone(err) {
		return e.store.DropReplay(ctx, r.ID)
	}
	if err != nil {
		return err
	}
	waiting, err := e.store.CountDeferred(ctx, w.ID, webhook.MaxWaiting)
	if err != nil {
		return err
	}
	if waiting == webhook.MaxWaiting {
		err = e.store.RestReplay(ctx, r)
	} else {
		err = e.advance(ctx, r, w)
	}
	if err == nil {
		e.Send(r.AccountID, r.WebhookID)
	}
	return err
}

func (e *Engine) advance(ctx context.Context, r *webhook.Replay, w *webhook.Webhook) error {
	place, found := r.Next, true
	if place == 0 {
		var err error
		if place, found, err = e.store.PlaceAt(ctx, r.AccountID, r.From); err != nil {
			return err
		}
	}
	var page feed.Page
	if found {
		var err error
		q := feed.Query{AccountID: r.AccountID, Forward: true, After: place, Limit: webhook.ReplayPage}
		if page, err = e.store.Page(ctx, q); err != nil {
			return err
		}
	}
	list, next := r.Step(w, page, e.opt.Now())
	return e.store.Advance(ctx, r, next, list)
}
