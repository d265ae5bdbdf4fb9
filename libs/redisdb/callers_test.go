package redisdb_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

// A slow Redis counts as unreachable only if calls reach this package's time limit. Clients that
// disconnect must not make Redis count as unreachable.
func TestOnlyOurOwnTimeLimitSaysThatRedisIsAway(t *testing.T) {
	t.Parallel()
	callers := map[string]func(rdb redis.UniversalClient, now func() time.Time) func(ctx context.Context, name string){
		"guesses": func(rdb redis.UniversalClient, now func() time.Time) func(context.Context, string) {
			l := ratelimit.New(rdb, now)
			return func(ctx context.Context, name string) {
				l.Take(ctx, ratelimit.Rule{Key: name, Max: 5, Window: time.Hour})
			}
		},
		"refunds": func(rdb redis.UniversalClient, now func() time.Time) func(context.Context, string) {
			l, alone := ratelimit.New(rdb, now), ratelimit.New(nil, now)
			return func(ctx context.Context, name string) {
				try, _ := alone.Take(ctx, ratelimit.Rule{Key: name, Max: 5, Window: time.Hour})
				l.Refund(ctx, try)
			}
		},
		"turns": func(rdb redis.UniversalClient, now func() time.Time) func(context.Context, string) {
			s := dedup.New(rdb, now)
			return func(ctx context.Context, name string) { s.First(ctx, name, time.Hour) }
		},
		"hints": func(rdb redis.UniversalClient, now func() time.Time) func(context.Context, string) {
			s := dedup.New(rdb, now)
			return func(ctx context.Context, name string) { s.Mine(ctx, name, time.Hour) }
		},
		"viewers": func(rdb redis.UniversalClient, now func() time.Time) func(context.Context, string) {
			s := dedup.New(rdb, now)
			return func(ctx context.Context, name string) { s.Count(ctx, "video", name, time.Hour) }
		},
		"requests": func(rdb redis.UniversalClient, now func() time.Time) func(context.Context, string) {
			keys := apikey.New(apikey.Config{Now: now, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, anyKey{}, rdb)
			t.Cleanup(keys.Close)
			return func(ctx context.Context, name string) {
				_, _ = keys.Charge(ctx, &identity.Principal{AccountID: name, Plan: identity.Free}, 1) // the outcome does not matter here
			}
		},
	}
	for end, c := range map[string]struct {
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		away bool
	}{
		"client disconnected": {ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}},
		"client disconnected while waiting": {ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(10*time.Millisecond, cancel)
			return ctx, cancel
		}},
		"request deadline passed": {ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 10*time.Millisecond)
		}},
		"package time limit passed": {ctx: context.WithCancel, away: true},
	} {
		for who, caller := range callers {
			t.Run(who+"/"+end, func(t *testing.T) {
				t.Parallel()
				proxy := redistest.NewProxy(t, redistest.Start(t))
				rdb, err := redisdb.Open(redisdb.Config{URL: proxy.Addr(), Timeout: time.Minute, PoolTimeout: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = rdb.Close() })
				asked := &asked{}
				rdb.AddHook(asked)
				t.Cleanup(proxy.Stall())
				var clock atomic.Int64
				call := caller(rdb, func() time.Time { return time.Unix(0, clock.Load()) })
				for i := range 6 { // as many failures as the least sensitive breaker needs
					ctx, cancel := c.ctx(t.Context())
					call(ctx, string(rune('a'+i)))
					cancel()
					clock.Add(int64(100 * time.Millisecond))
				}
				before := asked.Load()
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, cancel)
				call(ctx, "neighbour")
				if away := asked.Load() == before; away != c.away {
					t.Errorf("Redis counts as unreachable = %v, want %v", away, c.away)
				}
			})
		}
	}
}

// asked counts the calls to Redis, excluding probes.
type asked struct{ atomic.Int64 }

func (a *asked) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (a *asked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.Contains(cmd.String(), "probe") {
			a.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (a *asked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		a.Add(1)
		return next(ctx, cmds)
	}
}

// A pipeline must not open a second pool: connections would exceed PoolSize, and the first pipeline
// would wait for one after the warm-up call.
func TestAPipelineUsesAWarmConnection(t *testing.T) {
	t.Parallel()
	client, err := redisdb.Open(redisdb.Config{URL: redistest.Start(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Set(t.Context(), "a", 1, 0).Err() }); err != nil {
		t.Fatal(err)
	}
	if s := client.PoolStats(); s.Hits != 1 || s.TotalConns != 1 {
		t.Errorf("a pipeline after a ping had %d hits in the pool of %d connections, want 1 of 1", s.Hits, s.TotalConns)
	}
}
