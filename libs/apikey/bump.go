package apikey

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/linkreel/linkreel/libs/redisdb"
)

// bumps raises account versions in Redis, now or, while Redis is away, as soon as
// it is back.
type bumps struct {
	c      *Client
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	pending map[string]int64 // account → version still to be told
	running bool
	done    sync.WaitGroup
}

func (b *bumps) init(c *Client) {
	b.c, b.pending = c, map[string]int64{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
}

// bumpPatience is how long a caller waits for Redis before the bump goes on in
// the background. It is generous because a bump in time is what makes a
// revocation immediate.
const bumpPatience = 2 * time.Second

// Bump tells every replica that the account's authority changed: after Bump
// returned, records below version are verified again before their next use. Call
// it after the change is committed and before it is answered. When Redis is away
// it returns all the same, since the record's age then bounds its use, and keeps
// trying in the background.
func (c *Client) Bump(ctx context.Context, accountID string, version int64) {
	ctx, cancel := context.WithTimeout(ctx, bumpPatience)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		err := c.bump(ctx, accountID, version)
		if err == nil {
			return
		}
		if !redisdb.Pause(ctx, wait) {
			c.cfg.Log.WarnContext(ctx, "revocation reaches replicas within seconds instead of at once: Redis does not answer", "account", accountID, "error", err)
			c.bumps.later(accountID, version)
			return
		}
	}
}

func (c *Client) bump(ctx context.Context, accountID string, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.RedisBudget)
	defer cancel()
	return bumpScript.Run(ctx, c.redis, []string{stateKey(accountID)}, version).Err()
}

func (b *bumps) later(accountID string, version int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending[accountID] = max(b.pending[accountID], version)
	if !b.running && b.ctx.Err() == nil {
		b.running = true
		b.done.Add(1)
		go b.run()
	}
}

func (b *bumps) run() {
	defer b.done.Done()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if !redisdb.Pause(b.ctx, wait) {
			return
		}
		b.mu.Lock()
		todo := maps.Clone(b.pending)
		b.mu.Unlock()
		for account, version := range todo {
			if b.c.bump(b.ctx, account, version) != nil {
				break
			}
			b.mu.Lock()
			if b.pending[account] == version {
				delete(b.pending, account)
			}
			b.mu.Unlock()
		}
		b.mu.Lock()
		if len(b.pending) == 0 {
			b.running = false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
	}
}

func (b *bumps) close() {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.done.Wait()
}
