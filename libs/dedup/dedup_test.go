package dedup_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/localcloud/redistest"
	"github.com/linkreel/linkreel/libs/redisdb"
)

func TestFirstIsOnce(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*dedup.Seen{"in memory": dedup.New(nil, time.Now), "in Redis": over(t, redistest.Start(t)), "without Redis": over(t, "127.0.0.1:1")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !s.First(t.Context(), "viewer", time.Hour) || s.First(t.Context(), "viewer", time.Hour) || !s.First(t.Context(), "other", time.Hour) {
				t.Error("a viewer counts once, and each one")
			}
		})
	}
}

func TestReplicasRememberTogether(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	a, b := over(t, addr), over(t, addr)
	if !a.First(t.Context(), "v", time.Hour) || b.First(t.Context(), "v", time.Hour) {
		t.Error("each replica counted the viewer")
	}
}

func TestANameIsForgottenAfterItsLife(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := dedup.New(nil, func() time.Time { return now })
	s.First(t.Context(), "v", time.Hour)
	now = now.Add(time.Hour)
	if !s.First(t.Context(), "v", time.Hour) {
		t.Error("seen after its life")
	}
	for i := range 100_000 { // memory stays bounded, and new names are still told apart
		if !s.First(t.Context(), fmt.Sprint(i), time.Hour) {
			t.Fatalf("%d was seen", i)
		}
	}
}

func over(t *testing.T, addr string) *dedup.Seen {
	t.Helper()
	client, err := redisdb.Open(redisdb.Config{URL: addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	// A pool that is warm answers within the budget also on a busy machine.
	for range 50 {
		if client.Ping(context.Background()).Err() == nil {
			break
		}
	}
	return dedup.New(client, time.Now)
}
