package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

func local(t *testing.T) (*ratelimit.Limiter, *time.Time) {
	t.Helper()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return ratelimit.New(nil, func() time.Time { return now }), &now
}

func TestAWindowHoldsNoMoreThanItsTries(t *testing.T) {
	t.Parallel()
	g, now := local(t)
	rule := ratelimit.Rule{Key: "a", Max: 3, Window: time.Minute}
	var taken []time.Time
	for range 600 {
		if _, wait := g.Take(t.Context(), rule); wait == 0 {
			taken = append(taken, *now)
		}
		*now = now.Add(700 * time.Millisecond)
	}
	if len(taken) < 18 {
		t.Errorf("%d attempts allowed in 7 minutes, want at least 18", len(taken))
	}
	for i := 3; i < len(taken); i++ {
		if d := taken[i].Sub(taken[i-3]); d < time.Minute {
			t.Errorf("four attempts were allowed within %s, want at most three in a minute", d)
		}
	}
}

func TestWaitIsWhatItTakes(t *testing.T) {
	t.Parallel()
	g, now := local(t)
	rules := []ratelimit.Rule{{Key: "address", Max: 1, Window: time.Minute}, {Key: "video", Max: 9, Window: time.Hour}}
	g.Take(t.Context(), rules...)
	*now = now.Add(20 * time.Second)
	_, wait := g.Take(t.Context(), rules...)
	if wait != 40*time.Second {
		t.Errorf("wait = %s, want 40s", wait)
	}
	*now = now.Add(wait)
	if _, wait := g.Take(t.Context(), rules...); wait != 0 {
		t.Errorf("wait = %s after waiting, want 0", wait)
	}
}

func TestARefusedTryCountsNowhere(t *testing.T) {
	t.Parallel()
	for name, g := range guards(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			full, shared := ratelimit.Rule{Key: "full", Max: 1, Window: time.Hour}, ratelimit.Rule{Key: "shared", Max: 2, Window: time.Hour}
			g.Take(t.Context(), full)
			for range 5 {
				if _, wait := g.Take(t.Context(), full, shared); wait <= 0 {
					t.Fatal("wait = 0 under an exhausted rule, want the attempt refused")
				}
			}
			for i := range 2 {
				if _, wait := g.Take(t.Context(), shared); wait != 0 {
					t.Errorf("wait = %[2]s for attempt %[1]d under the shared rule, want 0", i, wait)
				}
			}
			if _, wait := g.Take(t.Context(), shared); wait <= 59*time.Minute {
				t.Errorf("wait = %s, want about an hour", wait)
			}
		})
	}
}

func TestARefundMakesRoom(t *testing.T) {
	t.Parallel()
	for name, g := range guards(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule := ratelimit.Rule{Key: "refund", Max: 1, Window: time.Hour}
			for i := range 4 {
				try, wait := g.Take(t.Context(), rule)
				if wait != 0 {
					t.Fatalf("wait = %[2]s for attempt %[1]d, want 0", i, wait)
				}
				g.Refund(t.Context(), try)
			}
		})
	}
}

func TestReplicasCountTogether(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	a, b := over(t, addr), over(t, addr)
	rule := ratelimit.Rule{Key: "x", Max: 2, Window: time.Hour}
	a.Take(t.Context(), rule)
	b.Take(t.Context(), rule)
	if _, wait := a.Take(t.Context(), rule); wait == 0 {
		t.Error("wait = 0 after two attempts on different replicas, want the third attempt refused")
	}
}

func TestWithoutRedisTheLimitIsHalfAndNothingHangs(t *testing.T) {
	t.Parallel()
	g := over(t, "127.0.0.1:1")
	rule := ratelimit.Rule{Key: "x", Max: 4, Window: time.Hour}
	begun, n := time.Now(), 0
	for range 10 {
		if _, wait := g.Take(t.Context(), rule); wait == 0 {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d attempts allowed, want 2", n)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("ten attempts took %s, want at most 3s", took)
	}
}

func guards(t *testing.T) map[string]*ratelimit.Limiter {
	t.Helper()
	g, _ := local(t)
	return map[string]*ratelimit.Limiter{"in memory": g, "in Redis": over(t, redistest.Start(t))}
}

func over(t *testing.T, addr string) *ratelimit.Limiter {
	t.Helper()
	client, err := redisdb.Open(redisdb.Config{URL: addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	// Fill the pool first because calls on open connections stay within the budget even on a busy
	// machine.
	for range 50 {
		if client.Ping(context.Background()).Err() == nil {
			break
		}
	}
	return ratelimit.New(client, time.Now)
}
