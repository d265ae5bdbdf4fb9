package invalidation

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/lograte"
)

const (
	// announceBudget is how long a change's caller waits for Redis.
	announceBudget = 500 * time.Millisecond
	// callTimeout limits one call. It is longer than announceBudget because aborting a slow call to
	// start another would not be faster.
	callTimeout = 2 * time.Second
	// retryPause is the pause between calls while Redis is unreachable and there are no new
	// announcements.
	retryPause = 250 * time.Millisecond

	// logBytes limits the size of a partition's log. At 1,000 changes per second, the log covers
	// half a minute.
	logBytes = 4 << 20
	// entryKeys limits the keys in one entry, and callKeys the keys in one call.
	entryKeys = 100
	callKeys  = 2000
	// pendingMax limits the keys waiting to be announced. If there are more, the announcement
	// invalidates all keys.
	pendingMax = 100_000
)

var pendingKeys = promauto.NewGauge(prometheus.GaugeOpts{Name: "linkreel_invalidations_pending",
	Help: "Changed keys that have not been announced yet because Redis does not answer."})

// announceScript appends entries. It may run even when Redis is full, because the log is bounded
// and stale responses would be worse than using a little more memory.
//
// KEYS: head, log. ARGV: announcer, limit in bytes, each entry's keys.
var announceScript = redis.NewScript(`#!lua flags=allow-oom
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('HSETNX', KEYS[1], 'e', t[1] .. '.' .. t[2] .. '.' .. ARGV[1])
local head = redis.call('HMGET', KEYS[1], 'n', 's')
local n, size, max = tonumber(head[1] or '0'), tonumber(head[2] or '0'), tonumber(ARGV[2])
for i = 3, #ARGV do
  local text = ARGV[i] .. '\n<' .. string.format('%.0f', n)
  n = math.max(n + 1, now)
  redis.call('XADD', KEYS[2], string.format('%.0f-0', n), 'k', text)
  size = size + #text + 64
end
while size > max do
  local old = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 100)
  if #old < 2 then break end
  for i = 1, #old - 1 do size = size - #old[i][2][2] - 64 end
  redis.call('XTRIM', KEYS[2], 'MINID', old[#old][1])
end
redis.call('HSET', KEYS[1], 'n', string.format('%.0f', n), 's', string.format('%.0f', math.max(size, 0)))
return 1`)

// Announcer notifies every replica of changed records. It is independent of the click log: even
// while clicks are spooled, it calls Redis immediately for every announcement.
type Announcer struct {
	client redis.UniversalClient
	memory *Memory
	id     string
	parts  []*announcements
}

// announcements contains the unannounced changes in one partition. While one call is in flight, the
// next batch is collected, so many changes per second share a few calls.
type announcements struct {
	part      int
	head, log string // Redis keys
	wake      chan struct{}

	mu      sync.Mutex
	waiting batch
}

type batch struct {
	keys map[string]struct{}
	done []chan struct{} // closed when the keys are in the log
}

// NewAnnouncer returns an announcer. The client's timeout may be longer than a redirect's. id
// identifies this process. Changes are announced only while [Announcer.Run] runs.
func NewAnnouncer(client redis.UniversalClient, memory *Memory, id string) *Announcer {
	a := &Announcer{client: client, memory: memory, id: id}
	for p := range memory.Partitions() {
		a.parts = append(a.parts, &announcements{part: p, head: HeadKey(p), log: LogKey(p), wake: make(chan struct{}, 1)})
	}
	return a
}

// Announce notifies every replica that the records for keys have changed. When it returns, no
// replica that can reach Redis serves the old state. The package comment describes what happens if
// this process cannot reach Redis.
func (a *Announcer) Announce(ctx context.Context, keys ...string) {
	if len(keys) == 0 {
		return
	}
	a.memory.Invalidate(keys...)
	var waits []<-chan struct{}
	for _, p := range a.parts {
		var own []string
		for _, k := range keys {
			// Any slug may depend on a host or an account.
			if !strings.Contains(k, "|") || Partition(k, len(a.parts)) == p.part {
				own = append(own, k)
			}
		}
		if len(own) > 0 {
			waits = append(waits, p.add(own))
		}
	}
	// The change is committed and must be announced even if the request ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceBudget)
	defer cancel()
	for _, done := range waits {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

func (p *announcements) add(keys []string) <-chan struct{} {
	done := make(chan struct{})
	p.mu.Lock()
	p.waiting.add(batch{done: []chan struct{}{done}}, keys...)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return done
}

// add adds keys and their waiting callers. If there are too many callers, it drops the earliest
// because they have exceeded their budget and are no longer waiting.
func (b *batch) add(other batch, keys ...string) {
	if b.keys == nil {
		b.keys = map[string]struct{}{}
	}
	for _, k := range keys {
		b.keys[k] = struct{}{}
	}
	for k := range other.keys {
		b.keys[k] = struct{}{}
	}
	if len(b.keys) > pendingMax {
		clear(b.keys)
		b.keys[everything] = struct{}{}
	}
	b.done = append(other.done, b.done...)
	if extra := len(b.done) - pendingMax; extra > 0 {
		b.done = b.done[extra:]
	}
}

func (p *announcements) take() batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.waiting
	p.waiting = batch{}
	return b
}

func (p *announcements) putBack(b batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting.add(b)
	pendingKeys.Set(float64(len(p.waiting.keys)))
}

// Run announces changes until ctx is done. Then it tries once more to announce the remaining
// changes.
func (a *Announcer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, p := range a.parts {
		wg.Go(func() { a.run(ctx, p) })
	}
	wg.Wait()
	return nil
}

func (a *Announcer) run(ctx context.Context, p *announcements) {
	var lines lograte.State
	failing := false
	retry := time.NewTimer(0)
	defer retry.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-retry.C:
		}
		b := p.take()
		if len(b.keys) == 0 {
			continue
		}
		if err := a.announce(ctx, p, b); err != nil {
			if times := lines.Failed(time.Now()); times > 0 {
				slog.WarnContext(ctx, "cannot announce changes to other replicas; retrying", "error", err, "times", times)
			}
			failing = true
			p.putBack(b)
			retry.Reset(retryPause)
			continue
		}
		if failing {
			failing = false
			pendingKeys.Set(0)
			if failed, told := lines.Worked(time.Now()); told {
				slog.WarnContext(ctx, "resumed announcing changes", "after", failed.Round(time.Millisecond).String())
			}
		}
		for _, done := range b.done {
			close(done)
		}
	}
	if b := p.take(); len(b.keys) > 0 {
		if err := a.announce(ctx, p, b); err != nil {
			slog.WarnContext(ctx, "cannot announce the last changes; other replicas may serve the old state for up to 30 s",
				"keys", len(b.keys), "error", err)
		}
		for _, done := range b.done {
			close(done)
		}
	}
}

// announce appends all keys in b to the log. A repeated call announces keys twice, which only
// causes another reload.
func (a *Announcer) announce(ctx context.Context, p *announcements, b batch) error {
	ctx = context.WithoutCancel(ctx)
	args, entry, n := []any{a.id, logBytes}, []byte(nil), 0
	flush := func() {
		if len(entry) > 0 {
			args, entry = append(args, entry), nil
		}
	}
	send := func() error {
		flush()
		if len(args) == 2 {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if err := announceScript.Run(ctx, a.client, []string{p.head, p.log}, args...).Err(); err != nil {
			return fmt.Errorf("announce changes: %w", err)
		}
		args = args[:2]
		return nil
	}
	for k := range b.keys {
		if len(entry) > 0 {
			entry = append(entry, '\n')
		}
		entry = append(entry, k...)
		if n++; n%entryKeys == 0 {
			flush()
		}
		if n%callKeys == 0 {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}
