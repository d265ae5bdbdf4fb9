package clicks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Once per second, every process writes the numbers of its last batches to Redis. The marks in
// Firestore are the numbers of the last counted batches. Comparing the two shows whether all clicks
// up to a certain time have been counted, even if they went through a spool or Redis was emptied.

// signs is the interval between updates to a process's entry.
const signs = time.Second

// sign is a process's entry.
type sign struct {
	at   int64 // Unix time in seconds
	host string
	n    int64 // incremented with each update
	// handed contains, for each partition, the last batch numbers of the live and late sequences
	// ([sequenceName]). It is nil if the process cannot reach Redis in time. Such a process may
	// have missed recent changes, and may still redirect visits to previous destinations.
	handed map[int][2]int64
}

func (s sign) String() string {
	parts := make([]string, 0, len(s.handed))
	for part, n := range s.handed {
		parts = append(parts, fmt.Sprintf("%d:%d:%d", part, n[0], n[1]))
	}
	return fmt.Sprintf("%d %s %d %s", s.at, s.host, s.n, cmp.Or(strings.Join(parts, ","), "away"))
}

// parseSign parses as much of an entry as possible. The time and the host are enough to detect that
// a process is missing.
func parseSign(text string) (s sign, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return s, false
	}
	s.at, _ = strconv.ParseInt(fields[0], 10, 64)
	s.host = fields[1]
	if len(fields) < 4 {
		return s, false
	}
	s.n, _ = strconv.ParseInt(fields[2], 10, 64)
	s.handed = map[int][2]int64{}
	for text := range strings.SplitSeq(fields[3], ",") {
		var part int
		var n [2]int64
		if _, err := fmt.Sscanf(text, "%d:%d:%d", &part, &n[0], &n[1]); err != nil {
			s.handed = nil
			break
		}
		s.handed[part] = n
	}
	return s, true
}

// register keeps this process's entry in Redis up to date. The entry shows that the process is
// running and may hold clicks.
func (l *Log) register(ctx context.Context) {
	host, _ := os.Hostname() // for the operator's information only
	for n := int64(1); ; n++ {
		s := sign{at: l.cfg.Now().Unix(), host: cmp.Or(host, "-"), n: n, handed: l.handed()}
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		_ = l.slow.HSet(call, producersKey, l.id, s.String()).Err() // the next update will try again
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-time.After(signs):
		}
	}
}

// handed returns the last numbers in all sequences. It first calls Redis for every partition, so
// this process has seen every change announced before the call. It returns nil if Redis does not
// answer.
func (l *Log) handed() map[int][2]int64 {
	all := map[int][2]int64{}
	for part, lane := range l.lanes {
		lane.confirm(item{})
		lane.state.Lock()
		away := lane.away.Load()
		all[part] = [2]int64{lane.live.lastOf(l.cfg.Now()), lane.late.lastOf(l.cfg.Now())}
		if !lane.spool.empty() {
			all[part] = [2]int64{lane.live.next - 1, lane.late.next - 1}
		}
		lane.state.Unlock()
		if away {
			return nil
		}
	}
	return all
}

// lastOf returns the number of the producer's last batch. It returns 0 if the producer has not sent
// a batch for a day. Its batches were counted long ago, and Firestore may no longer have its mark.
func (p *producer) lastOf(now time.Time) int64 {
	if now.Sub(p.at) > 24*time.Hour {
		return 0
	}
	return p.next - 1
}

// Marks returns the last counted batch in each of a partition's sequences. done is false while some
// counted clicks still have to be added to their links.
type Marks func(ctx context.Context, part int) (marks map[string]link.Mark, done bool, err error)

// Counted returns a function that reports whether every click accepted by any process before the
// call to Counted has been counted. Call that function until it returns true. It covers only
// processes that have an entry in Redis. If Redis has lost a process's entry, the function does not
// wait for that process, even if the process died with clicks in its file or cannot reach Redis.
func (l *Log) Counted(marks Marks) func(ctx context.Context) (bool, error) {
	c := &barrier{log: l, first: map[string]int64{}}
	return func(ctx context.Context) (bool, error) { return c.ask(ctx, marks) }
}

type barrier struct {
	log   *Log
	first map[string]int64 // by process: n of the first entry that was read

	// handed and logged describe the clicks to be counted. They are nil until every process has
	// updated its entry.
	handed map[int]map[string]int64 // last batch, by partition and sequence
	logged map[int]string           // last log entry, by partition
}

func (c *barrier) ask(ctx context.Context, marks Marks) (bool, error) {
	if c.handed == nil {
		if ok, err := c.hear(ctx); err != nil || !ok {
			return false, err
		}
	}
	for part, last := range c.logged {
		// A process that has signed off has no entry, but its batches may still be in the log. Wait
		// until the flusher has counted and removed them.
		left, err := c.log.slow.XRangeN(ctx, streamKey(part), "-", last, 1).Result()
		if err != nil || len(left) > 0 {
			return false, err
		}
	}
	for part, handed := range c.handed {
		counted, done, err := marks(ctx, part)
		if err != nil || !done {
			return false, err
		}
		for name, n := range handed {
			if counted[name].Batch < n {
				return false, nil
			}
		}
	}
	return true, nil
}

// hear records the clicks to be counted, once every process has updated its entry twice since the
// first call. One update is not enough, because it may already have been in flight at that time.
func (c *barrier) hear(ctx context.Context) (bool, error) {
	entries, err := c.log.slow.HGetAll(ctx, producersKey).Result()
	if err != nil {
		return false, err
	}
	handed, ready := map[int]map[string]int64{}, entries[c.log.id] != ""
	for id, text := range entries {
		s, ok := parseSign(text)
		first, seen := c.first[id]
		if !seen {
			first = s.n
			c.first[id] = first
		}
		ready = ready && ok && s.handed != nil && s.n >= first+2
		for part, n := range s.handed {
			if handed[part] == nil {
				handed[part] = map[string]int64{}
			}
			handed[part][sequenceName(id, false)], handed[part][sequenceName(id, true)] = n[0], n[1]
		}
	}
	if !ready {
		return false, nil
	}
	logged := map[int]string{}
	for part := range handed {
		last, err := c.log.slow.XRevRangeN(ctx, streamKey(part), "+", "-", 1).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return false, err
		}
		if len(last) > 0 {
			logged[part] = last[0].ID
		}
	}
	c.handed, c.logged = handed, logged
	return true, nil
}
