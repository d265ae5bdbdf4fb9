package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/outage"
)

// settledChannel carries the IDs of accounts with new events in their feeds. The subscribers are
// the replicas that are holding requests.
const settledChannel = "linkreel:events:settled"

// hub carries hints between replicas. Any hint may be lost, so the receivers also poll from
// time to time.
type hub struct {
	redis redis.UniversalClient
	turns *dedup.Seen // decides which replica acts on a hint

	mu      sync.Mutex
	waiters map[string]map[chan struct{}]struct{} // by account
}

func newHub(rdb redis.UniversalClient) *hub {
	// Use the system clock instead of the engine's clock because Redis uses the system clock too.
	return &hub{redis: rdb, turns: dedup.New(rdb, time.Now), waiters: map[string]map[chan struct{}]struct{}{}}
}

// listen calls woken for each account that has new events, until ctx is done.
func (h *hub) listen(ctx context.Context, woken func(accountID string)) {
	for ctx.Err() == nil {
		// The client reconnects automatically and never gives up.
		sub := h.redis.Subscribe(ctx, outbox.Channel, settledChannel)
		stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // ends the loop below
		for m := range sub.Channel(redis.WithChannelSize(10_000)) {
			if m.Channel == settledChannel {
				h.grown(m.Payload)
			} else {
				woken(m.Payload)
			}
		}
		stop()
		_ = sub.Close()
		outage.Pause(ctx, time.Second)
	}
}

// news returns a channel that is closed when the account's feed grows, and a function to stop
// waiting.
func (h *hub) news(accountID string) (<-chan struct{}, func()) {
	c := make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.waiters[accountID]
	if of == nil {
		of = map[chan struct{}]struct{}{}
		h.waiters[accountID] = of
	}
	of[c] = struct{}{}
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if of := h.waiters[accountID]; of != nil {
			if delete(of, c); len(of) == 0 {
				delete(h.waiters, accountID)
			}
		}
	}
}

func (h *hub) grown(accountID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.waiters[accountID] {
		close(c)
	}
	delete(h.waiters, accountID)
}

// announce informs this replica, and then the others, that a feed has grown.
func (h *hub) announce(ctx context.Context, accountID string) {
	h.grown(accountID)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := h.redis.Publish(ctx, settledChannel, accountID).Err(); err != nil {
		slog.DebugContext(ctx, "cannot notify other replicas of new events; held requests notice them at their next poll", "error", err)
	}
}
