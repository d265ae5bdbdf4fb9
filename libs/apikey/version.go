package apikey

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/outage"
)

// Two scripts share an account's hash: takeScript runs on each request, versionScript after each
// change in authority. In this table, a record is a replica's cached copy of a key. Its version
// comes from the account's document.
//
//	the hash in Redis              the record                     what takeScript returns
//	-----------------------------  -----------------------------  ------------------------------------
//	none, or expired               any                            {1}: creates the hash without a version
//	different incarnation          any                            {1}: verify again under this one
//	same incarnation, no version   any                            {0}: the hash gets the record's version
//	same, version as the record's  verified                       {0}: a token is taken
//	same, version is lower         newer than announced changes   {0}: the hash follows the record
//	same, version is higher        from before a change           {2}: verify again
//	same, version is higher, but   the store was restored from    {0}: the hash is lowered too
//	the store has a lower one      a backup
//
// versionScript only ever raises the version and never creates a hash. If there is no hash,
// replicas do not need to be notified: the next request creates one with a new incarnation, under
// which every record must be verified again. So a revoked key never becomes valid again when Redis
// is emptied or a hash expires. A hash expires at most [stateLife] after the account's last
// request, so Redis holds only recently active accounts. The cost is one extra call to auth for the
// first request after such a pause. Accounts in continuous use incur no extra cost.
//
// Each bucket has its own key, which expires when the bucket is full. A missing key therefore means
// a full bucket. If buckets were fields of the hash, those of former members would remain for as
// long as the account is active.

// stateLife is the expiry of an account's hash in Redis. A request renews it only when less than
// half is left, so Redis keeps the hash for at least half of stateLife after the last request. A
// replica keeps an unused record in memory for only a minute, so the hash outlives the record.
const stateLife = 5 * time.Minute

// stateKey names an account's hash. The id is random and also serves as the hash tag, so Redis
// Cluster spreads accounts and keeps each account's keys together.
func stateKey(accountID string) string { return "lr:acct:{" + accountID + "}" }

type standing int

const (
	holds       standing = iota // no newer version is known
	unconfirmed                 // Redis has no version; verify the record again
	outdated                    // a newer version is known
)

// ask holds the arguments for one call to takeScript.
type ask struct {
	incarnation int64 // 0: none; or [anyRecord]
	version     int64
	disproved   int64
	rate, n     int
}

// anyRecord is the incarnation that makes takeScript take tokens without checking a record.
const anyRecord = -1

// taken is the result of takeScript.
type taken struct {
	standing    standing
	incarnation int64
	version     int64 // set if standing is outdated
	limit       Limit // set if the record is valid
}

// takeScript is the single round trip that a request makes. It returns six numbers:
//
//	{0, e, 0, remaining, wait, retry}  the record is valid; the bucket is full again in wait µs,
//	                                   and has enough tokens in retry µs (0: they were taken)
//	{1, e, 0, 0, 0, 0}                 the record was not verified under this incarnation
//	{2, e, v, 0, 0, 0}                 the record is older than the account's version
//
// It takes tokens only if the record is valid, so a plan change takes effect with the next request.
// A record without an incarnation (its key is new to this replica) is valid if the hash has a
// version that is not higher than the record's. The hash got that version after it was created, so
// the version is at least as new as the hash. With incarnation -1 the script does not check the
// record. A value that is not a hash, or not a whole number, was not written by this package and
// counts as missing. A token is refilled after a whole number of microseconds. The minimum is one,
// which prevents a division by zero.
//
// KEYS: the account's hash, the bucket. ARGV: the record's incarnation and version, a version that
// the store has disproved, tokens per minute, tokens to take, the hash's lifetime in ms.
var takeScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local state = redis.pcall('HMGET', KEYS[1], 'e', 'v')
if state.err then
  redis.call('DEL', KEYS[1])
  state = {false, false}
end
local function whole(text)
  local n = tonumber(text)
  if n and n >= 1 and n < 9007199254740992 and n == math.floor(n) then return n end
end
local e, v = whole(state[1]), whole(state[2])
local seen, mine = tonumber(ARGV[1]), tonumber(ARGV[2])
if seen >= 0 then
  if not e then
    e = now
    redis.call('HSET', KEYS[1], 'e', string.format('%.0f', e))
    redis.call('HDEL', KEYS[1], 'v')
    redis.call('PEXPIRE', KEYS[1], ARGV[6])
    return {1, e, 0, 0, 0, 0}
  end
  if seen ~= e and not (seen == 0 and v) then return {1, e, 0, 0, 0, 0} end
  if v and v > mine and v ~= tonumber(ARGV[3]) then return {2, e, v, 0, 0, 0} end
  if v ~= mine then redis.call('HSET', KEYS[1], 'v', ARGV[2]) end
  if redis.call('PTTL', KEYS[1]) < ARGV[6] / 2 then redis.call('PEXPIRE', KEYS[1], ARGV[6]) end
end

local rate = tonumber(ARGV[4])
local step = math.max(1, math.floor(60000000 / math.max(1, rate)))
local size = step * rate
local bucket = redis.pcall('GET', KEYS[2])
if type(bucket) == 'table' then
  redis.call('DEL', KEYS[2])
  bucket = false
end
local full = tonumber(bucket) or now
if not (full > now) then full = now end
if full > now + size then full = now + size end
local function left() return math.max(0, math.floor((size - (full - now)) / step)) end
local after = full + tonumber(ARGV[5]) * step
if after - now > size then return {0, e or 0, 0, left(), full - now, after - now - size} end
full = after
redis.call('SET', KEYS[2], string.format('%.0f', full), 'PX', math.max(1, math.ceil((full - now) / 1000)))
return {0, e or 0, 0, left(), full - now, 0}
`)

// take runs takeScript within the Redis budget. If Redis is known to be unreachable, take fails
// immediately.
func (c *Client) take(ctx context.Context, b *bucket, a ask) (taken, error) {
	var n []int64
	err := c.breaker.Call(ctx, c.cfg.RedisBudget, func(ctx context.Context) (err error) {
		n, err = takeScript.Run(ctx, c.redis, []string{b.state, b.tokens},
			a.incarnation, a.version, a.disproved, a.rate, a.n, stateLife.Milliseconds()).Int64Slice()
		if err == nil && len(n) != 6 {
			err = fmt.Errorf("unexpected reply of %d parts", len(n))
		}
		return err
	})
	if err != nil {
		return taken{}, fmt.Errorf("take from bucket: %w", err)
	}
	got := taken{standing: standing(n[0]), incarnation: n[1], version: n[2], limit: Limit{
		Limit: a.rate, Remaining: int(n[3]), ResetAfter: time.Duration(n[4]) * time.Microsecond,
		RetryAfter: time.Duration(n[5]) * time.Microsecond, Allowed: n[5] == 0,
	}}
	if got.standing == holds {
		b.mu.Lock()
		b.full = c.cfg.Now().Add(got.limit.ResetAfter)
		b.mu.Unlock()
	}
	return got, nil
}

// versionScript raises an account's version. Without a hash it does nothing: the next request
// creates one with a new incarnation.
var versionScript = redis.NewScript(`
local v = redis.pcall('HGET', KEYS[1], 'v')
if type(v) == 'table' and v.err then return redis.call('DEL', KEYS[1]) end
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
v = tonumber(v)
if not (v and v >= tonumber(ARGV[1])) then redis.call('HSET', KEYS[1], 'v', ARGV[1]) end
return 1
`)

// versionPatience is how long a caller waits for Redis before the update continues in the
// background. It is generous because a revocation takes effect immediately only if Redis has the
// new version before the caller gets its response.
const versionPatience = 2 * time.Second

// InvalidateAccount tells every replica that the account's authority changed. After it returns,
// every replica verifies records below version again before it uses them. Call it after the commit
// and before the response. While Redis is unreachable, it still returns and retries in the
// background. Until a retry succeeds, a replica stops using an old record only when the record
// expires.
func (c *Client) InvalidateAccount(ctx context.Context, accountID string, version int64) {
	// The change is committed, so announce it even if the request is out of time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), versionPatience)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		err := c.raise(ctx, accountID, version)
		if err == nil {
			return
		}
		if !outage.Pause(ctx, wait) {
			c.cfg.Log.WarnContext(ctx, "Redis is unreachable; the revocation takes effect within seconds instead of immediately",
				"account", accountID, "error", err)
			c.later(accountID, version)
			return
		}
	}
}

func (c *Client) raise(ctx context.Context, accountID string, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.RedisBudget)
	defer cancel()
	return versionScript.Run(ctx, c.redis, []string{stateKey(accountID)}, version).Err()
}

// later registers a version that [Client.retell] raises in the background.
func (c *Client) later(accountID string, version int64) {
	c.pendingMu.Lock()
	defer c.pendingMu.Unlock()
	if len(c.pending) == 0 && c.ctx.Err() == nil {
		c.running.Go(c.retell)
	}
	c.pending[accountID] = max(c.pending[accountID], version)
}

// retell raises the versions that Redis has missed. It retries until Redis has all of them.
func (c *Client) retell() {
	for outage.Pause(c.ctx, 500*time.Millisecond) {
		c.pendingMu.Lock()
		todo := maps.Clone(c.pending)
		c.pendingMu.Unlock()
		for account, version := range todo {
			// One failure ends the round: the next account would just time out too.
			if c.raise(c.ctx, account, version) != nil {
				break
			}
			c.pendingMu.Lock()
			// A later change to the same account may have been added since.
			if c.pending[account] == version {
				delete(c.pending, account)
			}
			left := len(c.pending)
			c.pendingMu.Unlock()
			if left == 0 {
				return
			}
		}
	}
}
