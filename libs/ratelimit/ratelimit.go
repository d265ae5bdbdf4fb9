// Package ratelimit limits how often a caller may try something. A [Limiter] keeps an exact count
// of attempts, such as password guesses, across all replicas. [Misses] limits the cost of lookups
// that find nothing. It counts them per network, within one process.
//
// While Redis is available, a Limiter's rule of n attempts in a window applies to every period of
// that length, across all replicas. While Redis is unreachable, each replica counts only its own
// attempts and allows half as many, because guessing must be limited even during a Redis outage.
// Calls never make a request fail, and never wait for Redis longer than its budget.
package ratelimit

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/redisdb"
)

const (
	budget  = 150 * time.Millisecond // how long a call waits for Redis
	rest    = time.Second            // how long to wait before trying Redis again after a failure
	maxKeys = 20_000                 // keys in memory
)

// Rule allows Max attempts for Key in any period of length Window.
type Rule struct {
	Key    string
	Max    int
	Window time.Duration
}

// Limiter counts attempts. It is safe for concurrent use.
type Limiter struct {
	redis   redis.UniversalClient
	breaker *outage.Breaker
	now     func() time.Time

	mu    sync.Mutex
	tries map[string][]try
}

type try struct {
	id string
	at time.Time
}

// New returns a limiter. If client is nil, it counts all attempts locally, with unchanged rules.
func New(client redis.UniversalClient, now func() time.Time) *Limiter {
	return &Limiter{redis: client, breaker: outage.New(outage.Config{Rest: rest, Down: redisdb.Away, Now: now}), now: now, tries: map[string][]try{}}
}

// Try is a counted attempt. Refund it if it was harmless.
type Try struct {
	id    string
	rules []Rule
}

// takeScript counts one attempt under a rule's key. If the rule is exhausted, it does not count
// anything and returns the time in µs until an attempt is possible. Each call has only one key,
// because a Redis Cluster cannot run a script with keys on several servers, and the rules must not
// all be stored on one server.
var takeScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local max, window = tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local n = redis.call('ZCARD', KEYS[1])
if n >= max then
  local oldest = redis.call('ZRANGE', KEYS[1], n - max, n - max, 'WITHSCORES')
  local wait = tonumber(oldest[2]) + window - now
  if wait > 0 then return wait end
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
return 0
`)

// Take counts an attempt under every rule. If a rule is exhausted, Take does not count the attempt
// under any of the rules, and wait is the time until that rule allows an attempt.
//
// Rules are checked in order, up to the first exhausted rule. Put the narrowest rule first so that
// a caller that is refused by its own rule never uses up an attempt under a shared rule, not even
// for a moment.
func (l *Limiter) Take(ctx context.Context, rules ...Rule) (t Try, wait time.Duration) {
	t = Try{id: identity.NewNonce(), rules: rules}
	if l.redis == nil {
		return t, l.takeLocally(t, 1)
	}
	counted := 0 // how many rules have counted the attempt
	err := l.breaker.Call(ctx, budget, func(ctx context.Context) error {
		for _, r := range rules {
			us, err := takeScript.Run(ctx, l.redis, []string{key(r.Key)}, t.id, r.Max, r.Window.Microseconds()).Int64()
			if wait = time.Duration(us) * time.Microsecond; err != nil || wait > 0 {
				return err
			}
			counted++
		}
		return nil
	})
	switch {
	case err != nil:
		// Redis may have counted the attempt even though its response was lost. Counting it here
		// too only makes the limit stricter.
		return t, l.takeLocally(t, 2)
	case wait > 0:
		l.Refund(ctx, Try{id: t.id, rules: rules[:counted]})
		return t, wait
	}
	l.takeLocally(t, 0) // remembered for a later Redis outage
	return t, 0
}

// Refund removes an attempt from the count.
func (l *Limiter) Refund(ctx context.Context, t Try) {
	l.mu.Lock()
	for _, r := range t.rules {
		kept := l.tries[r.Key][:0]
		for _, x := range l.tries[r.Key] {
			if x.id != t.id {
				kept = append(kept, x)
			}
		}
		l.keep(r.Key, kept)
	}
	l.mu.Unlock()
	if len(t.rules) == 0 || l.redis == nil {
		return
	}
	// A lost refund costs the caller one attempt.
	_ = l.breaker.Call(ctx, budget, func(ctx context.Context) error {
		pipe := l.redis.Pipeline()
		for _, r := range t.rules {
			pipe.ZRem(ctx, key(r.Key), t.id)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}

// takeLocally counts attempts in this process's memory. A share of 1 applies the rules unchanged, 2
// allows half as many attempts, and 0 only counts.
func (l *Limiter) takeLocally(t Try, share int) (wait time.Duration) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range t.rules {
		log := l.tries[r.Key]
		for len(log) > 0 && !now.Before(log[0].at.Add(r.Window)) {
			log = log[1:]
		}
		l.keep(r.Key, log)
		if share == 0 {
			continue
		}
		// Allow at least one attempt. Otherwise a rule that allows a single attempt would refuse
		// everyone.
		if most := max(1, r.Max/share); len(log) >= most {
			wait = max(wait, log[len(log)-most].at.Add(r.Window).Sub(now))
		}
	}
	if wait > 0 {
		return wait
	}
	if len(l.tries) >= maxKeys {
		l.forgetOld(now)
	}
	for _, r := range t.rules {
		l.tries[r.Key] = append(l.tries[r.Key], try{t.id, now})
	}
	return 0
}

// keep stores a key's attempts, or drops a key without attempts. The caller holds the mutex. A
// refused attempt is not stored, so a flood of refused keys does not use any memory.
func (l *Limiter) keep(key string, log []try) {
	if len(log) == 0 {
		delete(l.tries, key)
		return
	}
	l.tries[key] = log
}

// forgetOld frees memory. It first drops keys without an attempt in the last hour, and then
// arbitrary keys until an eighth of the space is free. If it freed less, each new key in a flood of
// keys would cause a scan of all other keys.
func (l *Limiter) forgetOld(now time.Time) {
	for k, log := range l.tries {
		if len(log) == 0 || now.Sub(log[len(log)-1].at) > time.Hour {
			delete(l.tries, k)
		}
	}
	for k := range l.tries {
		if len(l.tries) < maxKeys*7/8 {
			return
		}
		delete(l.tries, k)
	}
}

// key has no hash tag, so a Cluster spreads rules across its servers.
func key(name string) string { return "lr:try:" + name }
