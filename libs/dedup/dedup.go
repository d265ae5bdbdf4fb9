// Package dedup remembers names that have already been seen, such as a recent write, a sweep that
// another replica is running, or a video's viewers today.
//
// While Redis is available, only the first replica that asks about a name gets true. [Seen.First]
// returns true once. [Seen.Mine] keeps returning true to that replica until its turn ends.
// [Seen.Round] sets the pace of a sweep that one replica runs on behalf of all replicas.
// [Seen.Count] counts large sets to within about one percent, in at most 12 kB for each set. While
// Redis is unreachable, each replica uses only its own memory, so a name may count once on every
// replica. Calls never return an error because of Redis, and never wait for it longer than their
// budget.
package dedup

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/redisdb"
)

const (
	patience = 150 * time.Millisecond // how long a call waits for Redis
	rest     = time.Second            // pause before Redis is tried again after a failure
	maxKeys  = 20_000                 // maximum number of names in memory
)

// Seen remembers names. It is safe for concurrent use.
type Seen struct {
	redis   redis.UniversalClient
	budget  time.Duration // bounds each call to Redis
	breaker *outage.Breaker
	now     func() time.Time

	mu    sync.Mutex
	until map[string]time.Time
}

// New returns an empty Seen. If client is nil, it is local to this process.
func New(client redis.UniversalClient, now func() time.Time) *Seen {
	breaker := outage.New(outage.Config{Rest: rest, Down: redisdb.Away, Now: now})
	return &Seen{redis: client, budget: patience, breaker: breaker, now: now, until: map[string]time.Time{}}
}

// First reports whether this is the first call with name within life, and remembers name.
func (s *Seen) First(ctx context.Context, name string, life time.Duration) bool {
	now := s.now()
	// Check this process's memory first, which finds most repeats without a call.
	if !s.note(name, now, life) {
		return false
	}
	if s.redis == nil {
		return true
	}
	return s.set(ctx, seenKey(name), life)
}

// Mine reports whether this replica should do the work named what. After Mine has returned true to
// one replica, it returns true to that replica and false to all others until hold has passed. Mine
// only avoids duplicate work: while Redis is unreachable, it returns true to every replica. For
// work that must be done once in each period, use [Seen.First].
func (s *Seen) Mine(ctx context.Context, what string, hold time.Duration) bool {
	turn := "turn:" + what
	// The replica with the turn may act again because a second hint within the hold announces a
	// newer change.
	if s.knows(turn) {
		return true
	}
	if s.redis != nil && !s.set(ctx, "lr:"+turn, hold) {
		return false
	}
	// The hold begins when the call returns, even if the call failed. Redis may have stored the
	// turn even though the response was lost, in which case no other replica acts until the turn
	// expires.
	s.note(turn, s.now(), hold)
	return true
}

// Pace configures how often a service's replicas collectively run a sweep.
type Pace struct {
	// What names the sweep.
	What string
	// Every is the pause between rounds.
	Every time.Duration
	// Idle is the longest pause after a round that found no work. 0 means Every. It bounds how late
	// the sweep finds work after a lost wake-up.
	Idle time.Duration
}

// Round calls do for one round of a sweep, unless the pause since the last round on any replica is
// not over yet. Call Round every [Pace.Every]. do reports whether it found work. If it did, or if
// it returned an error, the pause is short. Long pauses are stored only in Redis. While Redis is
// unreachable, and after it has lost its data, every replica sweeps at the full pace.
func (s *Seen) Round(ctx context.Context, p Pace, do func(ctx context.Context) (found bool, err error)) error {
	// The turn ends shortly before the next round is due, so this replica can take the next turn
	// too.
	if !s.First(ctx, p.What, p.Every*9/10) {
		return nil
	}
	found, err := do(ctx)
	if err == nil && !found && p.Idle > p.Every {
		s.next(ctx, p.What, p.Idle-p.Every/2)
	}
	return err
}

// AtOnce runs a round immediately, regardless of other replicas. Call it after a wake-up and when
// the process starts.
func (s *Seen) AtOnce(ctx context.Context, p Pace, do func(ctx context.Context) (found bool, err error)) error {
	found, err := do(ctx)
	if found || err != nil {
		s.next(ctx, p.What, p.Every*9/10) // more work may follow soon, so end a long pause
	}
	return err
}

// next stores the time of a sweep's next round.
func (s *Seen) next(ctx context.Context, what string, after time.Duration) {
	if s.redis == nil {
		return
	}
	// If Redis does not answer, the current turn stays in effect, but it is short.
	_ = s.breaker.Call(ctx, s.budget, func(ctx context.Context) error {
		return s.redis.Set(ctx, seenKey(what), strconv.FormatInt(s.now().Unix(), 10), after).Err()
	})
}

func seenKey(name string) string { return "lr:seen:" + name }

// set stores a key in Redis. It returns false if the key already existed, and true if Redis does
// not answer.
func (s *Seen) set(ctx context.Context, key string, life time.Duration) bool {
	err := s.breaker.Call(ctx, s.budget, func(ctx context.Context) error {
		return s.redis.SetArgs(ctx, key, strconv.FormatInt(s.now().Unix(), 10), redis.SetArgs{Mode: "NX", TTL: life}).Err()
	})
	return !errors.Is(err, redis.Nil)
}

// countScript adds a member to a HyperLogLog and returns how much its count increased. The script
// is atomic, so the results of all replicas add up to the count.
var countScript = redis.NewScript(`
local before = redis.call('PFCOUNT', KEYS[1])
if redis.call('PFADD', KEYS[1], ARGV[1]) == 0 then return 0 end
if before == 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return redis.call('PFCOUNT', KEYS[1]) - before
`)

// Count adds member to a set that expires after life, and returns how much the set's count
// increased. repeat is true if this process has already counted the member.
//
// The results of all replicas add up to the number of distinct members. The sum is exact for a few
// members, and within about one percent for many. In a large set, one member may add more than one
// or nothing to the count, so use only the sum of the results. If Redis loses the set, its members
// are counted again. Results are never negative.
func (s *Seen) Count(ctx context.Context, set, member string, life time.Duration) (grown int64, repeat bool) {
	if !s.note(set+"/"+member, s.now(), life) {
		return 0, true
	}
	if s.redis == nil {
		return 1, false
	}
	err := s.breaker.Call(ctx, s.budget, func(ctx context.Context) (err error) {
		grown, err = countScript.Run(ctx, s.redis, []string{"lr:count:" + set}, member, life.Milliseconds()).Int64()
		return err
	})
	if err != nil {
		return 1, false
	}
	return max(0, grown), false
}

func (s *Seen) knows(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.until[name]
	return ok && s.now().Before(until)
}

// note is like [Seen.First], but uses only this process's memory.
func (s *Seen) note(name string, now time.Time, life time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until, ok := s.until[name]; ok && now.Before(until) {
		return false
	}
	if len(s.until) >= maxKeys {
		s.makeRoom(now)
	}
	s.until[name] = now.Add(life)
	return true
}

// makeRoom drops expired names. If that is not enough, it drops arbitrary names until an eighth of
// the space is free. If it freed less, a flood of new names would cause a scan of all names for
// each new one.
func (s *Seen) makeRoom(now time.Time) {
	for k, until := range s.until {
		if !now.Before(until) {
			delete(s.until, k)
		}
	}
	for k := range s.until {
		if len(s.until) < maxKeys*7/8 {
			return
		}
		delete(s.until, k)
	}
}
