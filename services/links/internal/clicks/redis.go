package clicks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/services/links/internal/invalidation"
)

// streamKey returns the key of the click stream. An entry has the fields p (producer), b (batch)
// and c (payload).
func streamKey(part int) string { return invalidation.Prefix(part) + "clicks" }

// batchKey returns the key under which Redis stores the number of a producer's last batch in the
// stream.
func batchKey(part int, producer string) string {
	return invalidation.Prefix(part) + "batch:" + producer
}

// flusherKey returns the key for the flusher's lease.
func flusherKey(part int) string { return invalidation.Prefix(part) + "flusher" }

// producersKey is the key of a hash that maps the ID of each process that may hold clicks to its
// [sign].
var producersKey = invalidation.Prefix(0) + "producers"

// producerLife is how long Redis keeps the last batch number of an inactive producer. If a spool is
// drained later than that, the flusher still recognises batches that it has already counted.
const producerLife = 7 * 24 * time.Hour

// entryBytes is the size of an entry without its payload, for the click log's limit.
const entryBytes = 100

// appendScript appends batches and reads the invalidation log. It appends even if links have
// changed, because every click is recorded and only the response may have to change.
//
// Each partition has its own script. One server in a Cluster may hold several partitions, and
// NOSCRIPT must mean that the server is new to this partition (see package invalidation).
//
// KEYS: head, log, clicks, the producer's last batch.
// ARGV: epoch, number, process, producer, limit in bytes, whether the first batch may leave a gap,
// and then the number and payload of each batch.
func appendScript(part int) *redis.Script {
	return redis.NewScript("-- " + strconv.Itoa(part) + invalidation.CheckLua + `
local last, code, added = tonumber(redis.call('GET', KEYS[4]) or '0'), 0, 0
for i = 7, #ARGV, 2 do
  local number = tonumber(ARGV[i])
  if number > last then
    if number ~= last + 1 and not (i == 7 and ARGV[6] == '1') then code = 1 break end
    if size + added >= tonumber(ARGV[5]) then code = 2 break end
    local done = redis.pcall('XADD', KEYS[3], '*', 'p', ARGV[4], 'b', ARGV[i], 'c', ARGV[i + 1])
    if type(done) == 'table' and done.err then
      if not string.find(done.err, 'OOM', 1, true) then return done end
      code = 2 break
    end
    last, added = number, added + #ARGV[i + 1] + ` + strconv.Itoa(entryBytes) + `
  end
end
if added > 0 then
  redis.call('SET', KEYS[4], last, 'EX', ` + strconv.Itoa(int(producerLife.Seconds())) + `)
  redis.call('HINCRBY', KEYS[1], 'c', added)
end
return {code, last, news}`)
}

type code int64

const (
	appended code = iota
	gap           // batches before the first batch are missing
	full          // Redis has no room for the rest
)

// reply is a result from appendScript.
type reply struct {
	code code
	last int64 // the producer's last batch that Redis has now
	news invalidation.News
}

// numbered is a batch and its number in a producer's sequence.
type numbered struct {
	number  int64
	payload []byte
	at      time.Time
}

// caller runs appendScript on one partition.
type caller struct {
	part     int
	process  string
	bound    int64
	script   *redis.Script
	follower *invalidation.Follower // nil if the caller does not need news
	keys     map[string][]string    // Redis keys of the process's own sequences, created once
	fits     atomic.Int64           // see room
}

func newCaller(part int, process string, bound int64, f *invalidation.Follower) *caller {
	c := &caller{part: part, process: process, bound: bound, script: appendScript(part), follower: f, keys: map[string][]string{}}
	c.fits.Store(roomMax)
	for _, late := range []bool{false, true} {
		name := sequenceName(process, late)
		c.keys[name] = c.keysOf(name)
	}
	return c
}

func (c *caller) keysOf(producer string) []string {
	if keys, ok := c.keys[producer]; ok {
		return keys
	}
	return []string{invalidation.HeadKey(c.part), invalidation.LogKey(c.part), streamKey(c.part), batchKey(c.part, producer)}
}

func (c *caller) position() invalidation.Position {
	if c.follower == nil {
		return invalidation.Position{}
	}
	return c.follower.At()
}

// roomMax limits the size of the other batches in a call that also sends a redirect's own batch.
const roomMax = 512 << 10

// room returns the maximum size of the batches in a call. A larger first batch is sent alone. Redis
// needs memory for the call itself, so a full Redis rejects a large call every time. The caller
// therefore resends rejected batches in smaller and smaller calls.
func (c *caller) room() int { return int(c.fits.Load()) }

// heed adjusts room after a response. Two concurrent calls may overwrite each other's adjustment,
// but the next response corrects it.
func (c *caller) heed(r reply, sent []numbered) {
	var size int64
	for _, b := range sent {
		size += int64(len(b.payload))
	}
	switch fits := c.fits.Load(); {
	case len(sent) == 0:
	case r.code == full && r.last < sent[0].number:
		// Redis took no batch at all, so the call itself was too large. Shrink fast, because each
		// rejected call is wasted, and start from what was sent, which may be less than fits.
		c.fits.Store(max(min(fits, size)/4, 1))
	case r.code == appended && size >= fits/2 && fits < roomMax:
		// Only a call that used much of the room shows that more may fit.
		c.fits.Store(min(2*fits, roomMax))
	}
}

// call appends a producer's batches. Without batches, it only reads the log. force allows a gap
// before the first batch. After an error, the caller cannot tell which batches were appended.
func (c *caller) call(ctx context.Context, client redis.Scripter, producer string, batches []numbered, force bool) (reply, error) {
	at := c.position()
	forced := "0"
	if force {
		forced = "1"
	}
	keys := c.keysOf(producer)
	args := make([]any, 6, 6+2*len(batches))
	args[0], args[1], args[2], args[3], args[4], args[5] = at.Epoch, at.Number, c.process, producer, c.bound, forced
	for _, b := range batches {
		args = append(args, b.number, b.payload)
	}
	cmd := c.script.EvalSha(ctx, client, keys, args...)
	if err := cmd.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		if err := invalidation.Open(ctx, client, c.part, at.Epoch, c.process); err != nil {
			return reply{}, err
		}
		cmd = c.script.Eval(ctx, client, keys, args...)
	}
	raw, err := cmd.Slice()
	if err != nil {
		return reply{}, fmt.Errorf("append clicks: %w", err)
	}
	if len(raw) < 2 {
		return reply{}, errReply
	}
	var r reply
	n, okCode := raw[0].(int64)
	last, okLast := raw[1].(int64)
	if !okCode || !okLast {
		return reply{}, errReply
	}
	r.code, r.last = code(n), last
	c.heed(r, batches)
	var news any
	if len(raw) > 2 {
		news = raw[2]
	}
	r.news, err = invalidation.ParseNews(news, at)
	return r, err
}

var errReply = errors.New("unexpected answer from the click script")
