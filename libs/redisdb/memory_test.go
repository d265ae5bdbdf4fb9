package redisdb_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	mrand "math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

// chartMemory is the chart's redis.maxMemory.
const chartMemory = 192 << 20

// anyKey is a source that accepts every key. Each key belongs to a separate account.
type anyKey struct{}

func (anyKey) Verify(_ context.Context, hash string) (*apikey.Record, error) {
	return &apikey.Record{
		Principal: identity.Principal{AccountID: identity.IDFrom("acc", hash), KeyID: identity.IDFrom("key", hash), PerMinute: 60},
		ExpiresAt: apikey.Never, Version: 1,
	}, nil
}

// The test simulates a day with a million accounts, a quarter of them within the same five minutes,
// and a million viewers of videos with a realistic spread of popularity. Unless LINKREEL_FULL is 1,
// it uses a hundredth of these numbers.
func TestAMillionAccountsAndViewersFitIntoTheRedisOfTheChart(t *testing.T) {
	t.Parallel()
	n := 10_000
	if os.Getenv("LINKREEL_FULL") == "1" {
		n = 1_000_000
	}
	addr := redistest.Start(t)
	rdb, err := redisdb.Open(redisdb.Config{URL: addr})
	if err != nil {
		t.Fatal(err)
	}
	keys := apikey.New(apikey.Config{RedisBudget: 30 * time.Second, ColdBudget: 30 * time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, anyKey{}, rdb)
	t.Cleanup(func() { keys.Close(); _ = rdb.Close() })
	used := func() int {
		_, rest, _ := strings.Cut(redistest.Do(t, addr, "INFO", "memory"), "used_memory:")
		bytes, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	before := used()
	inParallel(n/4, func(int) {
		key := identity.NewKey(rand.Reader)
		if _, err := keys.Authenticate(t.Context(), key.Secret(), netip.Addr{}); err != nil {
			t.Error(err)
		}
	})
	accounts := used()
	// Every key for an account expires within minutes of the account's last request.
	for it := rdb.Scan(t.Context(), 0, "*", 1000).Iterator(); it.Next(t.Context()); {
		if life := rdb.PTTL(t.Context(), it.Val()).Val(); life == -1 || life > 5*time.Minute {
			t.Fatalf("%s expires in %s, want at most 5m", it.Val(), life)
		}
	}
	seen := dedup.New(rdb, time.Now)
	videos := mrand.NewZipf(mrand.New(mrand.NewPCG(1, 2)), 1.01, 1, uint64(n-1))
	watched := make([]uint64, n)
	for i := range watched {
		watched[i] = videos.Uint64()
	}
	inParallel(n, func(i int) {
		video := identity.IDFrom("vid", fmt.Sprint(watched[i]))
		seen.Count(t.Context(), "views:2026-11-24:"+video, identity.IDFrom("viewer", fmt.Sprint(i)), 24*time.Hour)
	})
	all := used()
	t.Logf("%d active accounts take %d bytes, %d viewers take %d bytes", n/4, accounts-before, n, all-accounts)
	// Allow for scripts, connections and growing hash tables, which need some memory at any size.
	if most := chartMemory*n/1_000_000 + 2<<20; all-before > most {
		t.Errorf("Redis uses %d bytes, want at most %d", all-before, most)
	}
}

func TestAClusterSharesGuessesViewersAndAccounts(t *testing.T) {
	t.Parallel()
	servers := redistest.Cluster(t, 3, false)
	rdb, err := redisdb.Open(redisdb.Config{URL: "redis://" + servers[0].Addr() + "?cluster=true"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	limiter, seen := ratelimit.New(rdb, time.Now), dedup.New(rdb, time.Now)
	keys := apikey.New(apikey.Config{RedisBudget: 30 * time.Second, ColdBudget: 30 * time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, anyKey{}, rdb)
	t.Cleanup(keys.Close)
	for what, do := range map[string]func(i int){
		"guesses": func(i int) {
			of := fmt.Sprint(i)
			limiter.Take(t.Context(), ratelimit.Rule{Key: "address:" + of, Max: 5, Window: time.Hour}, ratelimit.Rule{Key: "video:" + of, Max: 5, Window: time.Hour})
		},
		"turns":   func(i int) { seen.First(t.Context(), fmt.Sprint("turn", i), time.Hour) },
		"viewers": func(i int) { seen.Count(t.Context(), fmt.Sprint("video", i), "viewer", time.Hour) },
		"accounts": func(int) {
			key := identity.NewKey(rand.Reader)
			if d, err := keys.Authenticate(t.Context(), key.Secret(), netip.Addr{}); err != nil || !d.Limit.Allowed {
				t.Fatalf("Authenticate = %+v, %v, want an allowed request", d, err)
			}
		},
	} {
		for _, s := range servers {
			redistest.Do(t, s.Addr(), "FLUSHALL")
		}
		for i := range 100 {
			do(i)
		}
		for _, s := range servers {
			if n, _ := strconv.Atoi(redistest.Do(t, s.Addr(), "DBSIZE")); n < 10 {
				t.Errorf("%s: one of the three servers has %d keys after 100 calls, want at least 10", what, n)
			}
		}
	}
}

// inParallel calls do with each number below n. It makes many calls in parallel.
func inParallel(n int, do func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range 32 {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
