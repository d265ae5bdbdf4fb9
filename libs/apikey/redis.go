package apikey

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// OpenRedis makes a client that fails fast: no retries, short dials. It is what
// [New] wants, since a request must not wait for a Redis that is away. addr is
// host:port or a redis:// or rediss:// address. Nothing is dialled yet.
func OpenRedis(addr string) (redis.UniversalClient, error) {
	quiet.Do(func() { redis.SetLogger(noLog{}) })
	if !strings.Contains(addr, "://") {
		addr = "redis://" + addr
	}
	opt, err := redis.ParseURL(addr)
	if err != nil {
		return nil, fmt.Errorf("redis address: %w", err)
	}
	opt.Protocol = 2
	opt.DisableIdentity = true
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.MaxRetries = -1
	opt.DialerRetries = 1
	opt.DialTimeout = 250 * time.Millisecond
	opt.ReadTimeout = 250 * time.Millisecond
	opt.WriteTimeout = 250 * time.Millisecond
	opt.PoolTimeout = 100 * time.Millisecond
	opt.PoolSize = 64
	opt.ContextTimeoutEnabled = true
	client := redis.NewClient(opt)
	err = redisotel.InstrumentTracing(client, redisotel.WithDBStatement(false), redisotel.WithCallerEnabled(false), redisotel.WithDialFilter(true))
	if err != nil {
		return nil, fmt.Errorf("redis tracing: %w", err)
	}
	return client, nil
}

// The client library prints a line per failed dial; callers get those errors
// anyway, and an outage would fill the log with them.
var quiet sync.Once

type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}

// breaker keeps requests away from a Redis that does not answer. A few failures
// at one instant are no outage: a busy machine can stall for 100 ms, and
// believing in an outage weakens revocation to 5 seconds.
type breaker struct {
	now   func() time.Time
	probe func(context.Context) error
	wait  func(ctx context.Context, d time.Duration) bool // false: stop

	mu     sync.Mutex
	fails  int
	since  time.Time // first failure in a row
	open   bool
	closed bool // for good
	cancel context.CancelFunc
	done   chan struct{}
}

const (
	tripFails  = 5
	tripAfter  = 300 * time.Millisecond
	probeFirst = 100 * time.Millisecond
	probeMax   = time.Second
)

// away reports whether Redis is known to be away, and since when.
func (b *breaker) away() (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since, b.open
}

func (b *breaker) ok() {
	b.mu.Lock()
	b.fails = 0
	b.mu.Unlock()
}

// fail counts a failure and reports whether it made the difference.
func (b *breaker) fail() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if b.fails == 0 {
		b.since = now
	}
	b.fails++
	if b.open || b.closed || b.fails < tripFails || now.Sub(b.since) < tripAfter {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.open, b.cancel, b.done = true, cancel, make(chan struct{})
	go b.heal(ctx, b.done)
	return true
}

// heal asks until Redis answers, so that no request has to be the one that tries.
func (b *breaker) heal(ctx context.Context, done chan struct{}) {
	defer close(done)
	for pause := probeFirst; b.wait(ctx, pause); pause = min(2*pause, probeMax) {
		if b.probe(ctx) == nil {
			b.mu.Lock()
			b.open, b.fails = false, 0
			b.mu.Unlock()
			return
		}
	}
}

func (b *breaker) close() {
	b.mu.Lock()
	b.closed = true
	cancel, done := b.cancel, b.done
	b.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
