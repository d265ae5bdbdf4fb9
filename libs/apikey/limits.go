package apikey

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/identity"
)

// Limit is the state of an account's bucket after a request took from it.
type Limit struct {
	Limit      int           // requests a minute, and the bucket's size
	Remaining  int           // requests that would be served right now
	ResetAfter time.Duration // until the bucket is full again
	RetryAfter time.Duration // until what was asked would be served; zero when Allowed
	Allowed    bool
}

// stateKey names an account's hash. The id is our own random text.
func stateKey(accountID string) string { return "lr:acct:" + accountID }

// takeScript is the one round trip of a request. It answers
//
//	{0, e, allowed, wait, retry}  the record holds; the bucket is full again in wait µs
//	{1, e}                        the record was not verified under this incarnation
//	{2, e, v}                     the record is older than the account's version
//
// and takes nothing from the bucket unless the record holds, so that a changed
// plan is limited by its new rate from the first request on. A record without
// incarnation (its key is new to this replica) holds when the hash knows a
// version, since that version is then at least as new as the hash itself.
// Incarnation "*" takes without asking about the record. The sixth argument names
// a version that the store has disproved, the seventh the bucket's field. What is not a hash, or not a version,
// was written by somebody else and counts as missing.
var takeScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local state = redis.pcall('HMGET', KEYS[1], 'e', 'v', ARGV[7])
if state.err then
  redis.call('DEL', KEYS[1])
  state = {false, false, false}
end
local e, v = state[1], tonumber(state[2])
if v and not (v >= 1 and v < 9007199254740992 and v == math.floor(v)) then v = nil end
local seen, mine = ARGV[1], tonumber(ARGV[2])
if seen ~= '*' then
  if not e then
    e = time[1] .. '.' .. time[2]
    redis.call('HSET', KEYS[1], 'e', e)
    redis.call('HDEL', KEYS[1], 'v')
    redis.call('PEXPIRE', KEYS[1], 86400000)
    return {1, e}
  end
  if seen ~= e and not (seen == '' and v) then return {1, e} end
  if v and v > mine and v ~= tonumber(ARGV[6]) then return {2, e, v} end
  if v ~= mine then redis.call('HSET', KEYS[1], 'v', ARGV[2]) end
end

local step, size = tonumber(ARGV[3]), tonumber(ARGV[4])
local full = tonumber(state[3]) or now
if not (full > now) then full = now end
if full > now + size then full = now + size end
local after = full + tonumber(ARGV[5]) * step
if after - now > size then return {0, e or '', 0, full - now, after - now - size} end
redis.call('HSET', KEYS[1], ARGV[7], string.format('%.0f', after))
return {0, e or '', 1, after - now, 0}
`)

// bumpScript raises an account's version. Where there is no hash there is
// nothing to raise: whoever makes one starts a new incarnation.
var bumpScript = redis.NewScript(`
local v = redis.pcall('HGET', KEYS[1], 'v')
if type(v) == 'table' and v.err then return redis.call('DEL', KEYS[1]) end
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
v = tonumber(v)
if not (v and v >= tonumber(ARGV[1])) then redis.call('HSET', KEYS[1], 'v', ARGV[1]) end
return 1
`)

type standing int

const (
	holds       standing = iota // nothing newer is known
	unconfirmed                 // Redis cannot say; the record must be verified again
	outdated                    // something newer is known
)

// ask is one call of takeScript.
type ask struct {
	account     string
	member      string // whose sessions' bucket; "": the keys' bucket
	incarnation string
	version     int64
	disproved   int64
	rate, n     int
}

// anyRecord is the incarnation that takes without judging a record.
const anyRecord = "*"

// field is where the account's hash holds the bucket.
func (a ask) field() string {
	if a.member == "" {
		return "t"
	}
	return "t:" + a.member
}

type taken struct {
	standing    standing
	incarnation string
	version     int64 // with outdated
	limit       Limit
}

// take runs takeScript within the budget.
func (c *Client) take(ctx context.Context, a ask) (taken, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RedisBudget)
	defer cancel()
	step := stepOf(a.rate)
	reply, err := takeScript.Run(ctx, c.redis, []string{stateKey(a.account)},
		a.incarnation, a.version, step.Microseconds(), (step * time.Duration(a.rate)).Microseconds(),
		a.n, a.disproved, a.field()).Slice()
	if err != nil {
		return taken{}, fmt.Errorf("take from bucket: %w", err)
	}
	return readTaken(reply, a.rate)
}

func readTaken(reply []any, rate int) (taken, error) {
	bad := fmt.Errorf("take from bucket: unexpected reply of %d parts", len(reply))
	if len(reply) < 2 {
		return taken{}, bad
	}
	incarnation, ok := reply[1].(string)
	if !ok {
		return taken{}, bad
	}
	var n [4]int64 // kind, then up to three numbers
	for i, at := range []int{0, 2, 3, 4} {
		if at < len(reply) {
			if n[i], ok = reply[at].(int64); !ok {
				return taken{}, bad
			}
		}
	}
	out := taken{standing: standing(n[0]), incarnation: incarnation, version: n[1]}
	switch {
	case out.standing == holds && len(reply) == 5:
		out.limit = limitOf(rate, n[1] == 1, time.Duration(n[2])*time.Microsecond, time.Duration(n[3])*time.Microsecond)
		return out, nil
	case out.standing == unconfirmed && incarnation != "", out.standing == outdated && len(reply) == 3:
		return out, nil
	}
	return taken{}, bad
}

// stepOf is the time in which one token comes back, in whole microseconds, so
// that Redis and the local bucket count alike. No rate, however odd, divides by
// zero: one a microsecond is the fastest, one a minute the slowest.
func stepOf(rate int) time.Duration {
	return max(time.Microsecond, (time.Minute / time.Duration(max(1, rate))).Truncate(time.Microsecond))
}

func limitOf(rate int, allowed bool, wait, retry time.Duration) Limit {
	step := stepOf(rate)
	return Limit{
		Limit:      rate,
		Remaining:  max(0, int((step*time.Duration(rate)-wait)/step)),
		ResetAfter: wait,
		RetryAfter: retry,
		Allowed:    allowed,
	}
}

// bucket is an account's bucket as this replica last saw it. It stands in while
// Redis is away, so that an outage does not fill every bucket again.
type bucket struct {
	mu   sync.Mutex
	rate int
	full time.Time // when it is full again
}

// saw notes what Redis answered.
func (b *bucket) saw(l Limit, now time.Time) {
	b.mu.Lock()
	b.rate, b.full = l.Limit, now.Add(l.ResetAfter)
	b.mu.Unlock()
}

// take takes n tokens by the same rule as takeScript.
func (b *bucket) take(n, rate int, now time.Time) Limit {
	b.mu.Lock()
	defer b.mu.Unlock()
	step := stepOf(rate)
	size := step * time.Duration(rate)
	b.rate = rate
	if b.full.Before(now) {
		b.full = now
	}
	if latest := now.Add(size); b.full.After(latest) {
		b.full = latest
	}
	after := b.full.Add(step * time.Duration(n))
	if over := after.Sub(now) - size; over > 0 {
		return limitOf(rate, false, b.full.Sub(now), over)
	}
	b.full = after
	return limitOf(rate, true, after.Sub(now), 0)
}

// rateOf is the rate that the account was last seen with.
func (b *bucket) rateOf(p *identity.Principal) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate > 0 {
		return b.rate
	}
	return Rate(p.Plan)
}
