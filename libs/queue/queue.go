// Package queue distributes work to workers through a Redis stream.
//
// It delivers every message at least once, unless Redis loses it. If the worker that took a message
// does not send a heartbeat for Options.Silence, another worker gets the message. Only the worker
// that holds a message can send heartbeats, finish or return it. A worker that has lost its message
// gets ErrLost. An id is in the queue at most once, even if it is added several times, so a sweeper
// can add ids without checking first.
//
// The queue is fair: tenants take turns, so a tenant's next message waits for at most one message
// from each other tenant, however long their backlogs are. Messages from the same tenant keep their
// order.
//
// In addition, a fast lane returns each waiting message once, in the same order, without taking it.
// Use it for work that should not wait for a free worker.
//
// Redis may lose messages. They are only hints to process a record in another store. The owner of
// the records adds the ids again after Redis has lost its data. Redis must not evict keys
// (maxmemory-policy noeviction).
//
// # Keys
//
// The stream contains exactly the waiting and taken messages, so use its length to scale the
// workers. Its consumer group records which worker took which message. Workers do not read the
// stream in order: the sorted set :waiting contains the entries by tenant, and :turns contains the
// order of the tenants. Both are only an index, and adding an id again repairs them. Delayed
// messages are in :delayed. They return to the stream on the first call to Next or Add after they
// are due.
package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Queue errors.
var (
	ErrEmpty = errors.New("queue: nothing to do")
	ErrLost  = errors.New("queue: another worker has the message, or Redis was emptied")
)

// Options configure a queue. Zero fields have defaults.
type Options struct {
	Name    string        // the queue's name; "jobs"
	Silence time.Duration // how long a worker may go without a heartbeat before another gets its message; 20 s
	Timeout time.Duration // bounds a call to Redis, excluding its wait for a message; 3 s
	Now     func() time.Time
}

// Queue is one stream with its group of workers. It is safe for concurrent use.
type Queue struct {
	redis redis.UniversalClient
	opt   Options
	// keys are the keys for every script, in the order in which prelude names them. They share a
	// hash tag, so the scripts work on a Redis Cluster.
	keys   []string
	stream string
	sweeps string
}

const group = "workers"

// New returns a queue that uses an open client. It does not call Redis.
func New(client redis.UniversalClient, opt Options) *Queue {
	if opt.Name == "" {
		opt.Name = "jobs"
	}
	if opt.Silence == 0 {
		opt.Silence = 20 * time.Second
	}
	if opt.Timeout == 0 {
		opt.Timeout = 3 * time.Second
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	tag := StreamKey(opt.Name)
	q := &Queue{redis: client, opt: opt, stream: tag, keys: []string{tag}, sweeps: tag + ":sweep"}
	for _, name := range []string{"ids", "delayed", "about", "dead", "waiting", "turns", "lane", "laneturns", "turn"} {
		q.keys = append(q.keys, tag+":"+name)
	}
	return q
}

// StreamKey returns the key of a queue's stream. An autoscaler reads the stream's length (XLEN).
func StreamKey(name string) string { return "queue:{" + name + "}" }

// Item is a message to add to a queue.
type Item struct {
	ID     string
	Tenant string            // items take turns by tenant; items without a tenant share one turn
	Trace  map[string]string // trace context for the worker that takes it
}

// Message is one taken item.
type Message struct {
	Item
	Deliveries int // how many times it has been taken, including this time

	queue    *Queue
	entry    string
	consumer string
}

// prelude defines the keys and the functions that the scripts share. A member of an index consists
// of the tenant, NUL, and the entry padded to a fixed width, so a tenant's members sort by arrival.
const prelude = `
local stream, ids, delayed, about, dead, waiting, turns, lane, laneturns, turn = unpack(KEYS)
local function exists(entry) return #redis.call('XRANGE', stream, entry, entry) > 0 end
local function taken(entry)
  -- The group may not exist yet; then nothing is taken.
  local p = redis.pcall('XPENDING', stream, 'workers', entry, entry, 1)
  return not p.err and #p > 0
end
local function member(tenant, entry)
  local ms, seq = string.match(entry, '(%d+)-(%d+)')
  return tenant .. '\0' .. string.rep('0', 16 - #ms) .. ms .. '-' .. string.rep('0', 16 - #seq) .. seq
end
local function index(set, order, tenant, entry)
  redis.call('ZADD', set, 0, member(tenant, entry))
  -- Add a new tenant at the end: if it were added at the front, it could come back
  -- again and again, and no other tenant would get a turn.
  if not redis.call('ZSCORE', order, tenant) then redis.call('ZADD', order, redis.call('INCR', turn), tenant) end
end
local function append(id, tenant, trace)
  local entry = redis.call('XADD', stream, '*', 'id', id, 'trace', trace, 'tenant', tenant)
  redis.call('HSET', ids, id, entry)
  redis.call('HDEL', about, id)
  index(waiting, turns, tenant, entry)
  index(lane, laneturns, tenant, entry)
end
-- promote moves delayed messages that are due back into the stream.
local function promote(now)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, 100)) do
    redis.call('ZREM', delayed, id)
    local entry = redis.call('HGET', ids, id)
    if not entry or not exists(entry) then
      local tenant, trace = string.match(redis.call('HGET', about, id) or '\0{}', '^(%Z*)%z(.*)$')
      append(id, tenant, trace)
    end
  end
end
-- pick removes the next entry from an index, by turns. It skips entries that are gone
-- or taken, up to a limit per call, because Redis serves no other client while a script runs.
local function pick(set, order)
  for _ = 1, 1000 do
    local tenant = redis.call('ZRANGE', order, 0, 0)[1]
    if not tenant then return nil end
    local found = redis.call('ZRANGEBYLEX', set, '[' .. tenant .. '\0', '(' .. tenant .. '\1', 'LIMIT', 0, 1)[1]
    if not found then
      redis.call('ZREM', order, tenant)
    else
      redis.call('ZREM', set, found)
      local ms, seq = string.match(string.sub(found, #tenant + 2), '0*(%d+)-0*(%d+)')
      local entry = ms .. '-' .. seq
      if exists(entry) and not taken(entry) then
        redis.call('ZADD', order, redis.call('INCR', turn), tenant)
        return entry, tenant
      end
    end
  end
  return nil
end
-- seen returns the newest entry. A reader that found nothing waits for an entry after it.
local function seen()
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  return last and last[1] or '0-0'
end
`

func script(body string) *redis.Script { return redis.NewScript(prelude + body) }

// add appends an id unless its message is already waiting or taken. After a partial loss of data,
// an id without an entry is added again, and an entry that is missing from the index is put back.
// ARGV id tenant trace now
var add = script(`
promote(ARGV[4])
local entry = redis.call('HGET', ids, ARGV[1])
if entry and exists(entry) then
  if not taken(entry) and not redis.call('ZSCORE', waiting, member(ARGV[2], entry)) then index(waiting, turns, ARGV[2], entry) end
  return 0
end
redis.call('ZREM', delayed, ARGV[1])
append(ARGV[1], ARGV[2], ARGV[3])
return 1`)

// Add adds an item to the queue and reports whether it was added. An item that is already waiting
// or taken is left unchanged. A delayed item becomes ready immediately.
func (q *Queue) Add(ctx context.Context, item Item) (added bool, err error) {
	packed, err := json.Marshal(item.Trace)
	if err != nil {
		return false, err
	}
	n, err := q.run(ctx, add, item.ID, plain(item.Tenant), packed, q.opt.Now().UnixMilli()).Int()
	if err != nil {
		return false, fmt.Errorf("queue %s: %w", item.ID, err)
	}
	return n == 1, nil
}

// plain removes the index's separators from a tenant's name.
func plain(tenant string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return '_'
		}
		return r
	}, tenant)
}

func (q *Queue) run(ctx context.Context, s *redis.Script, args ...any) *redis.Cmd {
	ctx, cancel := context.WithTimeout(ctx, q.opt.Timeout)
	defer cancel()
	return s.Run(ctx, q.redis, q.keys, args...)
}

// grouped makes a call that needs the consumer group. It creates the group if Redis is new or has
// lost its data.
func (q *Queue) grouped(ctx context.Context, call func() error) error {
	err := call()
	if err == nil || !strings.HasPrefix(err.Error(), "NOGROUP") {
		return err
	}
	// BUSYGROUP: another worker has just created it.
	if err := q.redis.XGroupCreateMkStream(ctx, q.stream, group, "0").Err(); err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return fmt.Errorf("create group: %w", err)
	}
	return call()
}

// Next takes a message for a consumer. The consumer's name must be unique in the group. Messages
// held by workers without heartbeats take precedence. Otherwise Next takes the next message in turn
// order, and waits up to wait for one to arrive. ErrEmpty means that none did.
func (q *Queue) Next(ctx context.Context, consumer string, wait time.Duration) (*Message, error) {
	var m *Message
	err := q.await(ctx, wait, func() (seen string, err error) {
		err = q.grouped(ctx, func() error {
			if m, err = q.silent(ctx, consumer); err != nil || m != nil {
				return err
			}
			m, seen, err = q.take(ctx, consumer)
			return err
		})
		return seen, err
	})
	if err != nil && !errors.Is(err, ErrEmpty) {
		return nil, fmt.Errorf("take from queue: %w", err)
	}
	return m, err
}

// Peek returns the next waiting message and the time when it was added. It does not take the
// message, but returns each message only once across all callers. Peek waits up to wait; ErrEmpty
// means that there is no message.
func (q *Queue) Peek(ctx context.Context, wait time.Duration) (id string, added time.Time, err error) {
	err = q.await(ctx, wait, func() (string, error) {
		found, err := q.run(ctx, peek).StringSlice()
		if err != nil || len(found) == 1 {
			return first(found), err
		}
		ms, _, _ := strings.Cut(found[0], "-")
		at, err := strconv.ParseInt(ms, 10, 64)
		id, added = found[1], time.UnixMilli(at)
		return "", err
	})
	if err != nil && !errors.Is(err, ErrEmpty) {
		return "", time.Time{}, fmt.Errorf("peek into queue: %w", err)
	}
	return id, added, err
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

// await calls try until try finds a message and returns an empty seen. If try finds no message, it
// returns the newest entry that it has seen. await then waits for the first entry after it, so it
// does not miss an entry that was added in between.
func (q *Queue) await(ctx context.Context, wait time.Duration, try func() (seen string, err error)) error {
	for end := time.Now().Add(wait); ; {
		seen, err := try()
		if err != nil || seen == "" {
			return err
		}
		left := time.Until(end)
		// XREAD counts in whole milliseconds, and 0 makes it wait forever.
		if left < time.Millisecond {
			return ErrEmpty
		}
		err = q.woken(ctx, seen, left)
		if err != nil {
			return err
		}
	}
}

func (q *Queue) woken(ctx context.Context, seen string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait+q.opt.Timeout)
	defer cancel()
	err := q.redis.XRead(ctx, &redis.XReadArgs{Streams: []string{q.stream, seen}, Count: 1, Block: wait}).Err()
	if errors.Is(err, redis.Nil) {
		return nil // the next attempt is the last
	}
	return err
}

var (
	// XCLAIM with FORCE takes an entry that the group has not read. Reading would return only the
	// oldest entry. ARGV consumer now
	take = script(`
promote(ARGV[2])
local entry, tenant = pick(waiting, turns)
if not entry then return {seen()} end
local x = redis.call('XCLAIM', stream, 'workers', ARGV[1], 0, entry, 'RETRYCOUNT', 1, 'FORCE')[1]
redis.call('ZREM', lane, member(tenant, entry))
return {entry, unpack(x[2])}`)

	peek = script(`
local entry = pick(lane, laneturns)
if not entry then return {seen()} end
return {entry, redis.call('XRANGE', stream, entry, entry)[1][2][2]}`)
)

// take takes the next message in turn order. m is nil if there is none.
func (q *Queue) take(ctx context.Context, consumer string) (m *Message, seen string, err error) {
	found, err := q.run(ctx, take, consumer, q.opt.Now().UnixMilli()).StringSlice()
	if err != nil {
		return nil, "", err
	}
	if len(found) == 1 {
		return nil, found[0], nil
	}
	x := redis.XMessage{ID: found[0], Values: map[string]any{}}
	for i := 1; i+1 < len(found); i += 2 {
		x.Values[found[i]] = found[i+1]
	}
	m = q.message(x, consumer)
	m.Deliveries = 1
	return m, "", nil
}

// silent takes over a message from a worker without heartbeats.
func (q *Queue) silent(ctx context.Context, consumer string) (*Message, error) {
	ctx, cancel := context.WithTimeout(ctx, q.opt.Timeout)
	defer cancel()
	start := "0-0"
	for {
		entries, next, err := q.redis.XAutoClaim(ctx, &redis.XAutoClaimArgs{
			Stream: q.stream, Group: group, Consumer: consumer, MinIdle: q.opt.Silence, Start: start, Count: 1,
		}).Result()
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 {
			m := q.message(entries[0], consumer)
			// XAUTOCLAIM does not return how many times the message was taken.
			pending, err := q.redis.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: q.stream, Group: group, Start: m.entry, End: m.entry, Count: 1}).Result()
			if err != nil {
				return nil, err
			}
			if len(pending) > 0 {
				m.Deliveries = int(pending[0].RetryCount)
			}
			return m, nil
		}
		// Redis checks only a few entries per call, and all of their workers may be alive.
		if next == "0-0" {
			return nil, nil
		}
		start = next
	}
}

func (q *Queue) message(x redis.XMessage, consumer string) *Message {
	m := &Message{queue: q, entry: x.ID, consumer: consumer}
	m.ID, _ = x.Values["id"].(string)
	m.Tenant, _ = x.Values["tenant"].(string)
	if packed, ok := x.Values["trace"].(string); ok {
		_ = json.Unmarshal([]byte(packed), &m.Trace) // a malformed trace must not cause the message to be lost
	}
	return m
}

// holds begins every script for a taken message. It ends the script unless the worker holds the
// message. XCLAIM alone would steal the message from the worker that has taken it over.
// ARGV entry consumer id, then further arguments for the script.
const holds = `
local p = redis.call('XPENDING', stream, 'workers', ARGV[1], ARGV[1], 1)
if #p == 0 or p[1][2] ~= ARGV[2] then return 0 end
local function forget()
  redis.call('XACK', stream, 'workers', ARGV[1])
  redis.call('XDEL', stream, ARGV[1])
  if redis.call('HGET', ids, ARGV[3]) == ARGV[1] then redis.call('HDEL', ids, ARGV[3]) end
end
`

var (
	heartbeat = script(holds + `
redis.call('XCLAIM', stream, 'workers', ARGV[2], 0, ARGV[1], 'JUSTID')
return 1`)
	done = script(holds + `forget() return 1`)
	nack = script(holds + `
forget()
append(ARGV[3], ARGV[4], ARGV[5])
return 1`)
	delay = script(holds + `
forget()
redis.call('ZADD', delayed, ARGV[6], ARGV[3])
redis.call('HSET', about, ARGV[3], ARGV[4] .. '\0' .. ARGV[5])
return 1`)
	bury = script(holds + `
forget()
redis.call('XADD', dead, 'MAXLEN', '~', 1000, '*', 'id', ARGV[3], 'reason', ARGV[4])
return 1`)
)

func (m *Message) run(ctx context.Context, what string, s *redis.Script, more ...any) error {
	ok, err := m.queue.run(ctx, s, append([]any{m.entry, m.consumer, m.ID}, more...)...).Int()
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "NOGROUP"):
		return ErrLost // Redis was emptied
	case err != nil:
		return fmt.Errorf("%s %s: %w", what, m.ID, err)
	case ok == 0:
		// The script had no effect: another worker has the message, or the message no longer exists
		// (see holds).
		return ErrLost
	}
	return nil
}

// Heartbeat reports that the worker is still working. ErrLost means that another worker has the
// message or that Redis has lost its data. The record shows which of the two happened.
func (m *Message) Heartbeat(ctx context.Context) error { return m.run(ctx, "heartbeat for", heartbeat) }

// Done removes the message once its work is done.
func (m *Message) Done(ctx context.Context) error { return m.run(ctx, "finish", done) }

// Nack returns the message to the queue, after its tenant's other messages. Any worker can
// take it immediately, and this delivery is not counted.
func (m *Message) Nack(ctx context.Context) error {
	packed, err := json.Marshal(m.Trace)
	if err != nil {
		return err
	}
	return m.run(ctx, "return", nack, plain(m.Tenant), packed)
}

// Delay returns the message to the queue, but workers will not get it before until.
// Meanwhile, it is not in the stream, so an autoscaler does not count it.
func (m *Message) Delay(ctx context.Context, until time.Time) error {
	packed, err := json.Marshal(m.Trace)
	if err != nil {
		return err
	}
	return m.run(ctx, "delay", delay, plain(m.Tenant), packed, until.UnixMilli())
}

// Bury moves the message to the dead letters (the stream :dead) for a person to inspect. The stream
// keeps about the last thousand messages.
func (m *Message) Bury(ctx context.Context, reason string) error {
	return m.run(ctx, "bury", bury, reason)
}

// Turn reports whether the caller should sweep now. It prevents a hundred workers from querying the
// records a hundred times. In each interval of length every, one caller gets true. If Redis is
// unreachable, all callers get true because in that case only sweeps can find work.
func (q *Queue) Turn(ctx context.Context, every time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, q.opt.Timeout)
	defer cancel()
	mine, err := q.redis.SetNX(ctx, q.sweeps, "1", every).Result()
	return err != nil || mine
}

// Length returns the number of waiting and taken messages, excluding delayed messages. Use this
// number to scale workers, not the group's lag, which becomes unknown when entries are deleted.
func (q *Queue) Length(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, q.opt.Timeout)
	defer cancel()
	n, err := q.redis.XLen(ctx, q.stream).Result()
	if err != nil {
		return 0, fmt.Errorf("length of queue: %w", err)
	}
	return n, nil
}
