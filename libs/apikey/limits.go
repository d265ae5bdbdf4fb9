package apikey

import (
	"context"
	"fmt"
	"sync"
	"time"

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

// bucketKey names the bucket in Redis.
func (a ask) bucketKey() string {
	if a.member == "" {
		return stateKey(a.account) + ":t"
	}
	return stateKey(a.account) + ":t:" + a.member
}

type taken struct {
	standing    standing
	incarnation string
	version     int64 // with outdated
	limit       Limit
}

// take asks Redis within the budget, unless it is known to be away.
func (c *Client) take(ctx context.Context, a ask) (got taken, err error) {
	err = c.breaker.Call(ctx, c.cfg.RedisBudget, func(ctx context.Context) error {
		got, err = c.run(ctx, a)
		return err
	})
	return got, err
}

// run runs takeScript.
func (c *Client) run(ctx context.Context, a ask) (taken, error) {
	step := stepOf(a.rate)
	reply, err := takeScript.Run(ctx, c.redis, []string{stateKey(a.account), a.bucketKey()},
		a.incarnation, a.version, step.Microseconds(), (step * time.Duration(a.rate)).Microseconds(),
		a.n, a.disproved, stateLife.Milliseconds()).Slice()
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
	// After a change of plan or a step of the clock, the debt is one full bucket at most.
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
