// Package queue hands work to workers over a Redis stream.
//
// It promises at-least-once delivery of whatever Redis still knows: a message
// that was taken is given to another worker when its taker has been silent for
// Options.Silence, and never while it beats. Only the taker can beat, finish or
// return a message; one that lost it is told so. An id waits in the queue at
// most once, however often it is added, so a sweeper may add blindly.
//
// Beside the workers there are scouts, who are shown each message once, without
// taking it: they may do at once what need not wait for a worker to be free.
//
// It does not promise that Redis knows anything tomorrow. Messages are hints to
// look at a record elsewhere; whoever owns the records adds the ids again when
// Redis was emptied. Redis must not evict keys (maxmemory-policy noeviction).
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

// What a queue can say besides what Redis says.
var (
	ErrEmpty = errors.New("queue: nothing to do")
	ErrLost  = errors.New("queue: the message belongs to somebody else now")
)

// Options shape a queue. Zero fields have defaults.
type Options struct {
	Name    string        // of the queue; "jobs"
	Silence time.Duration // after which a taken message is given to another; 20 s
	Timeout time.Duration // of a call to Redis, waiting excluded; 3 s
	Now     func() time.Time
}

// Queue is one stream with its group of workers. It may be used from many
// goroutines.
type Queue struct {
	redis redis.UniversalClient
	opt   Options
	// All keys share a hash tag, so that scripts work on a Redis Cluster.
	stream, delayed, ids, dead string
}

const (
	group  = "workers"
	scouts = "scouts"
)

// New makes a queue over an open client. It does not call Redis.
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
	tag := "queue:{" + opt.Name + "}"
	return &Queue{redis: client, opt: opt, stream: tag, delayed: tag + ":delayed", ids: tag + ":ids", dead: tag + ":dead"}
}

// Message is one taken id.
type Message struct {
	ID         string
	Trace      map[string]string // trace context of whoever added it
	Deliveries int               // how often it was taken, this time included

	queue    *Queue
	entry    string
	consumer string
}

// add appends an id unless it waits or is being worked on already. An id whose
// entry is gone, after a partial loss of data, is added again.
// KEYS stream ids delayed; ARGV id trace
var add = redis.NewScript(`
local entry = redis.call('HGET', KEYS[2], ARGV[1])
if entry and #redis.call('XRANGE', KEYS[1], entry, entry) > 0 then return 0 end
redis.call('ZREM', KEYS[3], ARGV[1])
entry = redis.call('XADD', KEYS[1], '*', 'id', ARGV[1], 'trace', ARGV[2])
redis.call('HSET', KEYS[2], ARGV[1], entry)
return 1`)

// Add puts an id into the queue. One that is there already, waiting or taken,
// stays as it is.
func (q *Queue) Add(ctx context.Context, id string, trace map[string]string) error {
	packed, err := json.Marshal(trace)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.opt.Timeout)
	defer cancel()
	if err := add.Run(ctx, q.redis, []string{q.stream, q.ids, q.delayed}, id, packed).Err(); err != nil {
		return fmt.Errorf("queue %s: %w", id, err)
	}
	return nil
}

// promote moves what is due from the delayed set to the stream.
// KEYS stream ids delayed; ARGV now
var promote = redis.NewScript(`
local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', ARGV[1], 'LIMIT', 0, 100)
for _, id in ipairs(due) do
  redis.call('ZREM', KEYS[3], id)
  local entry = redis.call('HGET', KEYS[2], id)
  if not entry or #redis.call('XRANGE', KEYS[1], entry, entry) == 0 then
    redis.call('HSET', KEYS[2], id, redis.call('XADD', KEYS[1], '*', 'id', id, 'trace', '{}'))
  end
end
return #due`)

// Next takes a message for a consumer, whose name must be its own in the whole
// group: first one whose taker fell silent, then a new one, for which it waits
// up to wait. ErrEmpty means that there was none.
func (q *Queue) Next(ctx context.Context, consumer string, wait time.Duration) (*Message, error) {
	var m *Message
	err := q.grouped(ctx, group, func() (err error) {
		m, err = q.next(ctx, consumer, wait)
		return err
	})
	if err != nil && !errors.Is(err, ErrEmpty) {
		return nil, fmt.Errorf("take from queue: %w", err)
	}
	return m, err
}

// grouped reads as a member of a group and makes the group in a new or an
// emptied Redis.
func (q *Queue) grouped(ctx context.Context, name string, read func() error) error {
	err := read()
	if err == nil || !strings.HasPrefix(err.Error(), "NOGROUP") {
		return err
	}
	if err := q.redis.XGroupCreateMkStream(ctx, q.stream, name, "0").Err(); err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return fmt.Errorf("create group: %w", err)
	}
	return read()
}

// Scout shows a message that is in the queue, waiting or taken, and when it was
// added. It stays where it is; no other scout is shown it again, unless it is
// added or handed back anew. Scout waits up to wait; ErrEmpty means that there is
// none.
func (q *Queue) Scout(ctx context.Context, scout string, wait time.Duration) (id string, added time.Time, err error) {
	var streams []redis.XStream
	err = q.grouped(ctx, scouts, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, wait+q.opt.Timeout)
		defer cancel()
		streams, err = q.redis.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: scouts, Consumer: scout, Streams: []string{q.stream, ">"}, Count: 1, Block: max(wait, time.Millisecond), NoAck: true,
		}).Result()
		return err
	})
	switch {
	case errors.Is(err, redis.Nil) || err == nil && (len(streams) == 0 || len(streams[0].Messages) == 0):
		return "", time.Time{}, ErrEmpty
	case err != nil:
		return "", time.Time{}, fmt.Errorf("scout the queue: %w", err)
	}
	x := streams[0].Messages[0]
	id, _ = x.Values["id"].(string)
	ms, _, _ := strings.Cut(x.ID, "-")
	at, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("scout the queue: entry %q: %w", x.ID, err)
	}
	return id, time.UnixMilli(at), nil
}

func (q *Queue) next(ctx context.Context, consumer string, wait time.Duration) (*Message, error) {
	m, err := q.waiting(ctx, consumer)
	if err != nil || m != nil {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait+q.opt.Timeout)
	defer cancel()
	block := max(wait, time.Millisecond)
	streams, err := q.redis.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: consumer, Streams: []string{q.stream, ">"}, Count: 1, Block: block,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, ErrEmpty
	}
	if err != nil {
		return nil, err
	}
	if len(streams) == 0 || len(streams[0].Messages) == 0 {
		return nil, ErrEmpty
	}
	m = q.message(streams[0].Messages[0], consumer)
	m.Deliveries = 1
	return m, nil
}

// waiting promotes what is due and takes over what a silent worker holds.
func (q *Queue) waiting(ctx context.Context, consumer string) (*Message, error) {
	ctx, cancel := context.WithTimeout(ctx, q.opt.Timeout)
	defer cancel()
	keys := []string{q.stream, q.ids, q.delayed}
	if err := promote.Run(ctx, q.redis, keys, q.opt.Now().UnixMilli()).Err(); err != nil {
		return nil, err
	}
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
			pending, err := q.redis.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: q.stream, Group: group, Start: m.entry, End: m.entry, Count: 1}).Result()
			if err != nil {
				return nil, err
			}
			if len(pending) > 0 {
				m.Deliveries = int(pending[0].RetryCount)
			}
			return m, nil
		}
		if next == "0-0" {
			return nil, nil
		}
		start = next
	}
}

func (q *Queue) message(x redis.XMessage, consumer string) *Message {
	m := &Message{queue: q, entry: x.ID, consumer: consumer}
	m.ID, _ = x.Values["id"].(string)
	if packed, ok := x.Values["trace"].(string); ok {
		_ = json.Unmarshal([]byte(packed), &m.Trace) // a message without its trace is still a message
	}
	return m
}

// holds begins every script of a taker: only the present one may go on. A bare
// XCLAIM would steal the message back from whoever took it over.
const holds = `
local p = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1)
if #p == 0 or p[1][2] ~= ARGV[3] then return 0 end
`

// forget removes the entry; the id may then be added again.
const forget = `
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
if redis.call('HGET', KEYS[2], ARGV[4]) == ARGV[2] then redis.call('HDEL', KEYS[2], ARGV[4]) end
`

// KEYS stream ids delayed dead; ARGV group entry consumer id, then the script's own.
var (
	beat = redis.NewScript(holds + `
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, ARGV[2], 'JUSTID')
return 1`)
	done     = redis.NewScript(holds + forget + `return 1`)
	handBack = redis.NewScript(holds + forget + `
redis.call('HSET', KEYS[2], ARGV[4], redis.call('XADD', KEYS[1], '*', 'id', ARGV[4], 'trace', ARGV[5]))
return 1`)
	later = redis.NewScript(holds + forget + `
redis.call('ZADD', KEYS[3], ARGV[5], ARGV[4])
return 1`)
	bury = redis.NewScript(holds + forget + `
redis.call('XADD', KEYS[4], 'MAXLEN', '~', 1000, '*', 'id', ARGV[4], 'reason', ARGV[5])
return 1`)
)

func (m *Message) run(ctx context.Context, what string, script *redis.Script, more ...any) error {
	q := m.queue
	ctx, cancel := context.WithTimeout(ctx, q.opt.Timeout)
	defer cancel()
	args := append([]any{group, m.entry, m.consumer, m.ID}, more...)
	ok, err := script.Run(ctx, q.redis, []string{q.stream, q.ids, q.delayed, q.dead}, args...).Int()
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "NOGROUP"):
		return ErrLost // Redis was emptied
	case err != nil:
		return fmt.Errorf("%s %s: %w", what, m.ID, err)
	case ok == 0:
		return ErrLost
	}
	return nil
}

// Beat says that the taker is at work. ErrLost means that it has been
// replaced, or that Redis was emptied: the record decides which.
func (m *Message) Beat(ctx context.Context) error { return m.run(ctx, "beat for", beat) }

// Done removes the message; its work is finished.
func (m *Message) Done(ctx context.Context) error { return m.run(ctx, "finish", done) }

// HandBack returns the message for somebody else to take at once, as if it had
// not been delivered.
func (m *Message) HandBack(ctx context.Context) error {
	packed, err := json.Marshal(m.Trace)
	if err != nil {
		return err
	}
	return m.run(ctx, "hand back", handBack, packed)
}

// Later returns the message to be taken at a later time.
func (m *Message) Later(ctx context.Context, at time.Time) error {
	return m.run(ctx, "delay", later, at.UnixMilli())
}

// Bury moves the message to the dead letters, of which the last thousand are
// kept, for a person to look at.
func (m *Message) Bury(ctx context.Context, reason string) error {
	return m.run(ctx, "bury", bury, reason)
}

// DeadLetter is a message that was given up.
type DeadLetter struct{ ID, Reason string }

// Dead lists the newest dead letters.
func (q *Queue) Dead(ctx context.Context, limit int64) ([]DeadLetter, error) {
	ctx, cancel := context.WithTimeout(ctx, q.opt.Timeout)
	defer cancel()
	entries, err := q.redis.XRevRangeN(ctx, q.dead, "+", "-", limit).Result()
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	letters := make([]DeadLetter, len(entries))
	for i, x := range entries {
		letters[i].ID, _ = x.Values["id"].(string)
		letters[i].Reason, _ = x.Values["reason"].(string)
	}
	return letters, nil
}

// Length is how many messages wait or are being worked on; delayed ones are not
// counted. It is what to scale workers by: the group's lag is unknown to Redis
// once entries were deleted.
func (q *Queue) Length(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, q.opt.Timeout)
	defer cancel()
	n, err := q.redis.XLen(ctx, q.stream).Result()
	if err != nil {
		return 0, fmt.Errorf("length of queue: %w", err)
	}
	return n, nil
}
