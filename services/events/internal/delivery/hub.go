package delivery

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/events/outbox"
)

// settledChannel carries the accounts whose feed has grown, to the replicas that
// hold requests for them.
const settledChannel = "linkreel:events:settled"

// hub carries hints between replicas. Every hint may be lost: whoever waits for
// one also looks by itself from time to time.
type hub struct {
	redis redis.UniversalClient
	name  string // of this replica

	mu      sync.Mutex
	waiters map[string]map[chan struct{}]struct{} // by account
	turns   map[string]time.Time                  // until when a turn is this replica's
}

func newHub(rdb redis.UniversalClient, name string) *hub {
	return &hub{redis: rdb, name: name, waiters: map[string]map[chan struct{}]struct{}{}, turns: map[string]time.Time{}}
}

// listen calls woken for each account that has new events, until ctx ends.
func (h *hub) listen(ctx context.Context, woken func(accountID string)) {
	for ctx.Err() == nil {
		// The client connects again by itself and gives up at nothing.
		sub := h.redis.Subscribe(ctx, outbox.Channel, settledChannel)
		messages := sub.Channel(redis.WithChannelSize(10_000))
		for open := true; open; {
			select {
			case <-ctx.Done():
				open = false
			case m, ok := <-messages:
				switch {
				case !ok:
					open = false
				case m.Channel == settledChannel:
					h.grown(m.Payload)
				default:
					woken(m.Payload)
				}
			}
		}
		_ = sub.Close()
		pause(ctx, time.Second)
	}
}

// news is closed when the account's feed grows.
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

// announce tells this replica, then the others.
func (h *hub) announce(ctx context.Context, accountID string) {
	h.grown(accountID)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := h.redis.Publish(ctx, settledChannel, accountID).Err(); err != nil {
		slog.DebugContext(ctx, "cannot tell other replicas about new events; they look by themselves", "error", err)
	}
}

// mine reports whether this replica is the one that should act on a hint that all
// of them hear. It is a matter of cost alone: what two of them do at once is right
// too. Without Redis everybody acts.
func (h *hub) mine(ctx context.Context, what string, hold time.Duration) bool {
	// The holder may act again: a second hint within the hold is of a newer change.
	if h.holds(what) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	taken, err := h.redis.SetNX(ctx, "linkreel:events:turn:"+what, h.name, hold).Result()
	if err == nil && !taken {
		return false
	}
	// From now, not from before the call, and after an error too: for as long as Redis may have the
	// key, which it may have set without our hearing of it, nobody else acts on a hint.
	h.hold(what, time.Now().Add(hold))
	return true
}

func (h *hub) holds(what string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.turns[what])
}

func (h *hub) hold(what string, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.turns) >= 10_000 {
		maps.DeleteFunc(h.turns, func(_ string, end time.Time) bool { return time.Now().After(end) })
	}
	h.turns[what] = until
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
