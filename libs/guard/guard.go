// Package guard counts tries that are worth limiting exactly, such as guesses of
// a password, and remembers what was seen already, such as a viewer of today.
//
// A rule of n tries in a window holds for every window that can be laid over
// time, in all replicas together, as long as Redis answers. While it does not,
// each replica judges by the tries it has seen itself and allows half as many: a
// limit on guessing must not open when a cache is down. Nothing here fails a
// request, and no call waits for Redis longer than its budget.
package guard

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/identity"
)

const (
	budget  = 150 * time.Millisecond // wait for Redis
	rest    = time.Second            // how long Redis is left alone after it failed
	maxKeys = 20_000                 // keys in memory
)

// Rule allows Max tries for Key in any span of Window.
type Rule struct {
	Key    string
	Max    int
	Window time.Duration
}

// Guard counts. It is safe for concurrent use.
type Guard struct {
	redis redis.UniversalClient
	now   func() time.Time

	mu    sync.Mutex
	tries map[string][]try
	seen  map[string]time.Time // until when
	away  time.Time            // Redis is left alone until then
}

type try struct {
	id string
	at time.Time
}

// New makes a guard. With a nil client everything is judged locally, by the
// rules as they are.
func New(client redis.UniversalClient, now func() time.Time) *Guard {
	return &Guard{redis: client, now: now, tries: map[string][]try{}, seen: map[string]time.Time{}}
}

// Try is a counted try, to be given back when it turned out to be harmless.
type Try struct {
	id    string
	rules []Rule
}

// takeScript counts one try under every key, or none when a rule has no room;
// then it answers after how many µs the fullest has. Keys share a hash tag.
var takeScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local wait = 0
for i, key in ipairs(KEYS) do
  local max, window = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now - window)
  local n = redis.call('ZCARD', key)
  if n >= max then
    local oldest = redis.call('ZRANGE', key, n - max, n - max, 'WITHSCORES')
    wait = math.max(wait, tonumber(oldest[2]) + window - now)
  end
end
if wait > 0 then return wait end
for i, key in ipairs(KEYS) do
  redis.call('ZADD', key, now, ARGV[1])
  redis.call('PEXPIRE', key, math.ceil(tonumber(ARGV[2 * i + 1]) / 1000))
end
return 0
`)

// Take counts a try under every rule. When one of them has no room nothing is
// counted, and wait says after what time there will be.
func (g *Guard) Take(ctx context.Context, rules ...Rule) (t Try, wait time.Duration) {
	t = Try{id: identity.NewNonce(), rules: rules}
	if g.reachable() {
		keys, args := make([]string, len(rules)), []any{t.id}
		for i, r := range rules {
			keys[i] = key(r.Key)
			args = append(args, r.Max, r.Window.Microseconds())
		}
		ctx, cancel := context.WithTimeout(ctx, budget)
		us, err := takeScript.Run(ctx, g.redis, keys, args...).Int64()
		cancel()
		if g.heard(err) {
			if us == 0 {
				g.takeLocally(t, 0) // remembered for the case that Redis goes away
			}
			return t, time.Duration(us) * time.Microsecond
		}
		return t, g.takeLocally(t, 2)
	}
	if g.redis == nil {
		return t, g.takeLocally(t, 1)
	}
	return t, g.takeLocally(t, 2)
}

// Refund takes a try back.
func (g *Guard) Refund(ctx context.Context, t Try) {
	g.mu.Lock()
	for _, r := range t.rules {
		kept := g.tries[r.Key][:0]
		for _, x := range g.tries[r.Key] {
			if x.id != t.id {
				kept = append(kept, x)
			}
		}
		g.tries[r.Key] = kept
	}
	g.mu.Unlock()
	if !g.reachable() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	pipe := g.redis.Pipeline()
	for _, r := range t.rules {
		pipe.ZRem(ctx, key(r.Key), t.id)
	}
	_, err := pipe.Exec(ctx)
	g.heard(err)
}

// First reports whether name has not been seen for life, and notes it. While
// Redis is away only this replica's memory counts.
func (g *Guard) First(ctx context.Context, name string, life time.Duration) bool {
	now := g.now()
	g.mu.Lock()
	if until, ok := g.seen[name]; ok && now.Before(until) {
		g.mu.Unlock()
		return false
	}
	if len(g.seen) >= maxKeys {
		for k, until := range g.seen {
			if !now.Before(until) || len(g.seen) >= maxKeys {
				delete(g.seen, k)
			}
		}
	}
	g.seen[name] = now.Add(life)
	g.mu.Unlock()
	if !g.reachable() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	err := g.redis.SetArgs(ctx, key(name), strconv.FormatInt(now.Unix(), 10), redis.SetArgs{Mode: "NX", TTL: life}).Err()
	if errors.Is(err, redis.Nil) {
		g.heard(nil)
		return false
	}
	g.heard(err)
	return true
}

// takeLocally judges by this process's memory: share 1 by the rules as they are,
// 2 by half of them, 0 only notes.
func (g *Guard) takeLocally(t Try, share int) (wait time.Duration) {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range t.rules {
		log := g.tries[r.Key]
		for len(log) > 0 && !now.Before(log[0].at.Add(r.Window)) {
			log = log[1:]
		}
		g.tries[r.Key] = log
		if share == 0 {
			continue
		}
		if most := max(1, r.Max/share); len(log) >= most {
			wait = max(wait, log[len(log)-most].at.Add(r.Window).Sub(now))
		}
	}
	if wait > 0 {
		return wait
	}
	if len(g.tries) >= maxKeys {
		g.forgetOld(now)
	}
	for _, r := range t.rules {
		g.tries[r.Key] = append(g.tries[r.Key], try{t.id, now})
	}
	return 0
}

// forgetOld makes room: keys without a try in the last hour go first, then any.
func (g *Guard) forgetOld(now time.Time) {
	for k, log := range g.tries {
		if len(log) == 0 || now.Sub(log[len(log)-1].at) > time.Hour {
			delete(g.tries, k)
		}
	}
	for k := range g.tries {
		if len(g.tries) < maxKeys {
			return
		}
		delete(g.tries, k)
	}
}

func (g *Guard) reachable() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.redis != nil && !g.now().Before(g.away)
}

// heard notes how Redis answered and reports whether it did.
func (g *Guard) heard(err error) bool {
	if err == nil {
		return true
	}
	g.mu.Lock()
	g.away = g.now().Add(rest)
	g.mu.Unlock()
	return false
}

func key(name string) string { return "lr:{guard}:" + name }
