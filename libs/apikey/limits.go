package apikey

import (
	"sync"
	"time"
)

// Limit is the state of an account's bucket after a request has taken from it.
type Limit struct {
	Limit      int           // requests per minute, and the bucket's size
	Remaining  int           // requests that are allowed right now
	ResetAfter time.Duration // until the bucket is full again
	RetryAfter time.Duration // until the same request would be allowed; zero if Allowed
	Allowed    bool
}

// bucket holds the Redis keys of one bucket and the bucket's state as this replica last saw it.
// While Redis is unreachable, this replica continues from that state, so an outage does not refill
// every bucket.
type bucket struct {
	state, tokens string // the keys of the account's hash and of the bucket

	mu   sync.Mutex
	full time.Time // when the bucket is full again
}

// take takes n tokens, following the same rules as takeScript.
func (b *bucket) take(n, rate int, now time.Time) Limit {
	b.mu.Lock()
	defer b.mu.Unlock()
	step := stepOf(rate)
	size := step * time.Duration(rate)
	if b.full.Before(now) {
		b.full = now
	}
	// After a plan change or a clock jump, the bucket may be in debt by at most its full size.
	if latest := now.Add(size); b.full.After(latest) {
		b.full = latest
	}
	after := b.full.Add(step * time.Duration(n))
	if over := after.Sub(now) - size; over > 0 {
		return limitOf(rate, b.full.Sub(now), over)
	}
	b.full = after
	return limitOf(rate, after.Sub(now), 0)
}

// stepOf returns how long it takes to refill one token, in whole microseconds as in takeScript. It
// is at least a microsecond, which prevents a division by zero, and at most a minute.
func stepOf(rate int) time.Duration {
	return max(time.Microsecond, (time.Minute / time.Duration(max(1, rate))).Truncate(time.Microsecond))
}

func limitOf(rate int, wait, retry time.Duration) Limit {
	step := stepOf(rate)
	return Limit{
		Limit:      rate,
		Remaining:  max(0, int((step*time.Duration(rate)-wait)/step)),
		ResetAfter: wait,
		RetryAfter: retry,
		Allowed:    retry == 0,
	}
}
