package clicks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/linkreel/linkreel/libs/apikey"
)

// The keys share a hash tag, so that scripts work on a cluster too.
const (
	keyHead    = "{lr:links}:inv:head" // hash: e = epoch, n = invalidations so far
	keyInv     = "{lr:links}:inv"      // stream: n-0 → k = keys, one a line
	keyClicks  = "{lr:links}:clicks"   // stream: p = producer, b = batch, c = payload
	keyBatch   = "{lr:links}:batch:"   // + producer: its last batch in the stream
	keyFlusher = "{lr:links}:flusher"  // who flushes
)

// producerLife is how long Redis remembers a silent producer's last batch. A
// spool that is drained later than that is still told apart by the flusher.
const producerLife = 7 * 24 * time.Hour

// openRedis makes a client that never retries by itself: a call that may or may
// not have happened is our business.
func openRedis(addr string, timeout time.Duration, conns int) (*redis.Client, error) {
	// OpenRedis knows the address forms; its client is only asked for its options.
	base, err := apikey.OpenRedis(addr)
	if err != nil {
		return nil, err
	}
	client, ok := base.(*redis.Client)
	if !ok {
		return nil, fmt.Errorf("redis address %q names more than one server", addr)
	}
	opt := *client.Options()
	_ = client.Close()
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = timeout, timeout, timeout, timeout
	opt.ContextTimeoutEnabled = true
	opt.PoolSize, opt.MinIdleConns = conns, 1
	opt.MaxRetries, opt.DialerRetries = -1, 1
	return redis.NewClient(&opt), nil
}

// appendScript checks that this replica has heard all invalidations, and only
// then appends its batch: an answer given after it is not older than any change
// that was announced before. Without a batch it only checks.
//
// KEYS: head, inv, clicks, the producer's last batch.
// ARGV: epoch, heard, producer, batch (0: none), payload, force.
var appendScript = redis.NewScript(`
local head = redis.call('HMGET', KEYS[1], 'e', 'n')
local e, n = head[1], tonumber(head[2] or '0')
if not e then
  local t = redis.call('TIME')
  e, n = t[1] .. '.' .. t[2] .. '.' .. ARGV[3], 0
  redis.call('HSET', KEYS[1], 'e', e, 'n', 0)
end
local heard = tonumber(ARGV[2])
if e ~= ARGV[1] or n < heard then return {2, e, n} end
if n > heard then return {1, n, redis.call('XRANGE', KEYS[2], ARGV[2] .. '-1', '+', 'COUNT', 1000)} end
if ARGV[4] ~= '0' then
  local batch, last = tonumber(ARGV[4]), tonumber(redis.call('GET', KEYS[4]) or '0')
  if last >= batch then return {0} end
  if last ~= batch - 1 and ARGV[6] ~= '1' then return {3, last} end
  redis.call('XADD', KEYS[3], '*', 'p', ARGV[3], 'b', ARGV[4], 'c', ARGV[5])
  redis.call('SET', KEYS[4], ARGV[4], 'EX', ` + strconv.Itoa(int(producerLife.Seconds())) + `)
end
return {0}`)

// announceScript adds an invalidation.
//
// KEYS: head, inv. ARGV: keys, announcer.
var announceScript = redis.NewScript(`
local t = redis.call('TIME')
redis.call('HSETNX', KEYS[1], 'e', t[1] .. '.' .. t[2] .. '.' .. ARGV[2])
local n = redis.call('HINCRBY', KEYS[1], 'n', 1)
redis.call('XADD', KEYS[2], 'MAXLEN', '~', 20000, n .. '-0', 'k', ARGV[1])
return n`)

type verdict int64

const (
	accepted verdict = iota
	news             // there are invalidations; nothing was appended
	reset            // the log of invalidations is another one; nothing was appended
	gap              // batches before this one are missing; nothing was appended
)

// reply is what appendScript found.
type reply struct {
	verdict verdict
	epoch   string   // reset
	heard   int64    // reset, news
	keys    []string // news
	missed  bool     // news: some are gone already
	last    int64    // gap: last batch that is there
}

// send runs appendScript. An error leaves open whether the batch was appended.
func send(ctx context.Context, client *redis.Client, at position, producer string, batch int64, payload []byte, force bool) (reply, error) {
	forced := "0"
	if force {
		forced = "1"
	}
	raw, err := appendScript.Run(ctx, client, []string{keyHead, keyInv, keyClicks, keyBatch + producer},
		at.epoch, at.heard, producer, batch, payload, forced).Slice()
	if err != nil {
		return reply{}, err
	}
	return parseReply(raw, at)
}

var errReply = errors.New("unexpected answer of the click script")

func parseReply(raw []any, at position) (reply, error) {
	num := func(i int) int64 {
		if i < len(raw) {
			if n, ok := raw[i].(int64); ok {
				return n
			}
		}
		return -1
	}
	r := reply{verdict: verdict(num(0))}
	switch r.verdict {
	case accepted:
		return r, nil
	case gap:
		r.last = num(1)
		return r, nil
	case reset:
		epoch, ok := raw[1].(string)
		r.epoch, r.heard = epoch, num(2)
		if !ok {
			return r, errReply
		}
		return r, nil
	case news:
		entries, ok := raw[2].([]any)
		if !ok {
			return r, errReply
		}
		r.heard = at.heard
		for _, e := range entries {
			n, keys, ok := parseEntry(e)
			if !ok {
				return r, errReply
			}
			r.missed = r.missed || n != r.heard+1
			r.heard = n
			r.keys = append(r.keys, keys...)
		}
		if r.heard == at.heard { // announced, but trimmed already
			r.missed, r.heard = true, num(1)
		}
		return r, nil
	}
	return r, errReply
}

// parseEntry reads ["17-0", ["k", "a\nb"]].
func parseEntry(e any) (n int64, keys []string, ok bool) {
	pair, ok := e.([]any)
	if !ok || len(pair) != 2 {
		return 0, nil, false
	}
	id, _ := pair[0].(string)
	fields, _ := pair[1].([]any)
	if len(fields) != 2 {
		return 0, nil, false
	}
	text, _ := fields[1].(string)
	major, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(major, 10, 64)
	return n, strings.Split(text, "\n"), err == nil
}
