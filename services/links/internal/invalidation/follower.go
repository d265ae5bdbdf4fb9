package invalidation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Position is a reader's position in a partition's log.
type Position struct {
	Epoch  string // "" before the first call
	Number int64
}

// CheckLua is the start of a script that reads the log. It sets news to the entries that the reader
// has not seen yet, in the format that [ParseNews] parses. The reader's position is ARGV[1] (epoch)
// and ARGV[2] (number). It sets size to the click log's size in bytes.
//
// KEYS: 1 head, 2 log. ARGV: 1 epoch, 2 number, 3 the reader's ID.
const CheckLua = `
local head = redis.call('HMGET', KEYS[1], 'e', 'n', 'c')
local e, n, size = head[1], tonumber(head[2] or '0'), tonumber(head[3] or '0')
if not e then
  local t = redis.call('TIME')
  e, n = t[1] .. '.' .. t[2] .. '.' .. ARGV[3], t[1] * 1000000 + t[2]
  redis.call('HSET', KEYS[1], 'e', e, 'n', string.format('%.0f', n))
end
local at, news = tonumber(ARGV[2]), false
if e ~= ARGV[1] or n < at then news = {e, n}
elseif n > at then news = {'', n, redis.call('XRANGE', KEYS[2], ARGV[2] .. '-1', '+', 'COUNT', 1000)} end
`

// openScript starts a new epoch on a server that does not have the reader's script, unless another
// reader has just done so. It may run even when Redis is full. Otherwise no replica could read the
// log.
//
// KEYS: head. ARGV: the reader's epoch, the reader's ID.
var openScript = redis.NewScript(`#!lua flags=allow-oom
local head = redis.call('HMGET', KEYS[1], 'e', 'n')
if not head[1] or ARGV[1] == '' or head[1] == ARGV[1] then
  local t = redis.call('TIME')
  local n = math.max(tonumber(head[2] or '0'), t[1] * 1000000 + t[2])
  redis.call('HSET', KEYS[1], 'e', t[1] .. '.' .. t[2] .. '.' .. ARGV[2], 'n', string.format('%.0f', n))
end
return 1`)

// Open starts a new epoch for all readers after a partition's server has returned NOSCRIPT to a
// reader that has seen epoch. It must succeed before the script is loaded.
func Open(ctx context.Context, client redis.Scripter, part int, epoch, id string) error {
	if err := openScript.Eval(ctx, client, []string{HeadKey(part)}, epoch, id).Err(); err != nil {
		return fmt.Errorf("start an epoch of the invalidation log: %w", err)
	}
	return nil
}

// watchScript starts a new epoch if its last run was on a different server process.
//
// KEYS: head. ARGV: the caller's ID.
var watchScript = redis.NewScript(`#!lua flags=allow-oom
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
local head = redis.call('HMGET', KEYS[1], 'r', 'n')
if head[1] == run then return 0 end
local t = redis.call('TIME')
local n = math.max(tonumber(head[2] or '0'), t[1] * 1000000 + t[2])
redis.call('HSET', KEYS[1], 'r', run, 'n', string.format('%.0f', n))
if head[1] then redis.call('HSET', KEYS[1], 'e', t[1] .. '.' .. t[2] .. '.' .. ARGV[1]) end
return 1`)

// Watch starts a new epoch when a different server process is serving a partition. It is too
// expensive to run on every redirect, so one caller runs it once per second.
func Watch(ctx context.Context, client redis.Scripter, part int, id string) error {
	if err := watchScript.Run(ctx, client, []string{HeadKey(part)}, id).Err(); err != nil {
		return fmt.Errorf("watch redis: %w", err)
	}
	return nil
}

// News is the result of a call that read the log.
type News struct {
	at      Position // the reader's position when it called
	another string   // the new epoch, if one has started; head is its last number
	head    int64
	read    int64 // number of the last entry, or at.Number if there are no entries
	keys    []string
	missed  bool // entries were trimmed before this replica read them
}

var errNews = errors.New("unexpected entry in the invalidation log")

// ParseNews parses the news that [CheckLua] set for a reader at a position.
func ParseNews(raw any, at Position) (News, error) {
	n := News{at: at, read: at.Number, head: at.Number}
	if raw == nil {
		return n, nil
	}
	list, _ := raw.([]any)
	if len(list) < 2 {
		return n, errNews
	}
	epoch, _ := list[0].(string)
	n.head, _ = list[1].(int64)
	if epoch != "" {
		n.another = epoch
		return n, nil
	}
	if len(list) != 3 {
		return n, errNews
	}
	entries, ok := list[2].([]any)
	if !ok {
		return n, errNews
	}
	for _, e := range entries {
		number, before, keys, ok := parseEntry(e)
		if !ok {
			return n, errNews
		}
		n.missed = n.missed || before > n.read
		n.read = number
		n.keys = append(n.keys, keys...)
	}
	if len(entries) == 0 { // the entries were announced but have been trimmed
		n.missed, n.read = true, n.head
	}
	return n, nil
}

// parseEntry parses ["17-0", ["k", "a\nb\n<12"]], where 12 is the previous entry's number.
func parseEntry(e any) (number, before int64, keys []string, ok bool) {
	pair, _ := e.([]any)
	if len(pair) != 2 {
		return 0, 0, nil, false
	}
	id, _ := pair[0].(string)
	fields, _ := pair[1].([]any)
	if len(fields) != 2 {
		return 0, 0, nil, false
	}
	text, _ := fields[1].(string)
	major, _, _ := strings.Cut(id, "-")
	number, err := strconv.ParseInt(major, 10, 64)
	list, last, _ := strings.Cut(text, "\n<")
	before, errBefore := strconv.ParseInt(last, 10, 64)
	return number, before, strings.Split(list, "\n"), err == nil && errBefore == nil
}

// Follower is a replica's view of one partition; see the package comment for its
// states. It is safe for concurrent use.
type Follower struct {
	memory *Memory
	part   int

	mu sync.Mutex
	at Position
}

// Follow returns a new view of a partition.
func (m *Memory) Follow(part int) *Follower { return &Follower{memory: m, part: part} }

// At returns the position for the next call.
func (f *Follower) At() Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// Hear applies news to memory. It reports whether this replica now knows about everything that was
// announced before the call that returned the news. If not, the caller must call again before it
// sends a response.
func (f *Follower) Hear(n News) (caughtUp bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case n.another != "":
		// This also covers a process's first position because the process may already have loaded
		// links.
		if n.at == f.at {
			f.at = Position{n.another, n.head}
			f.memory.invalidateAll(f.part)
			return true
		}
		// Another call has moved the position since. If that call found the same new epoch, nothing
		// is left to do. If the epoch has not changed and only the head was behind, call again.
		return n.at.Epoch != n.another && f.at.Epoch == n.another && f.at.Number >= n.head
	case n.at.Epoch != f.at.Epoch:
		return false // this call started before another call found the new epoch
	case n.read > f.at.Number:
		f.memory.Invalidate(n.keys...)
		if n.missed {
			f.memory.invalidateAll(f.part)
		}
		f.at.Number = n.read
	}
	return f.at.Number >= n.head
}

// Lose records that Redis did not answer. refused means that Redis is known to be down for all
// replicas, so other replicas do not receive changes either.
func (f *Follower) Lose(refused bool) {
	if refused {
		f.memory.setSynced(f.part, false)
	} else {
		f.memory.markUncertain(f.part)
	}
}

// Regain records that Redis is answering in time again.
func (f *Follower) Regain() { f.memory.setSynced(f.part, true) }
