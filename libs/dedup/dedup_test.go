package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

func TestFirstIsOnce(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*dedup.Seen{"in memory": dedup.New(nil, time.Now), "in Redis": over(t, redistest.Start(t)), "without Redis": over(t, "127.0.0.1:1")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !s.First(t.Context(), "viewer", time.Hour) || s.First(t.Context(), "viewer", time.Hour) || !s.First(t.Context(), "other", time.Hour) {
				t.Error("First must return true for the first call with each viewer, and false for the second call")
			}
		})
	}
}

func TestReplicasRememberTogether(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	a, b := over(t, addr), over(t, addr)
	if !a.First(t.Context(), "v", time.Hour) || b.First(t.Context(), "v", time.Hour) {
		t.Error("First must return true on the first replica and false on the second")
	}
}

func TestATurnIsOneReplicasUntilItsHoldIsOver(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	a, b := over(t, addr), over(t, addr)
	if !a.Mine(t.Context(), "sweep", time.Hour) || b.Mine(t.Context(), "sweep", time.Hour) {
		t.Error("Mine must return true on the first replica and false on the second")
	}
	if !a.Mine(t.Context(), "sweep", time.Hour) {
		t.Error("Mine = false on the replica with the turn, want true")
	}
	if !b.Mine(t.Context(), "short", time.Millisecond) || !a.First(t.Context(), "sweep", time.Hour) {
		t.Error("the turn blocked another name, or First with the same name")
	}
	redistest.Do(t, addr, "FLUSHALL") // simulates the end of the hold
	if !b.Mine(t.Context(), "sweep", time.Hour) {
		t.Error("Mine = false on the other replica after the hold, want true")
	}
}

func TestWithoutRedisATurnIsEverybodysAndStays(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, client := range map[string]string{"none": "", "away": "127.0.0.1:1"} {
		s := dedup.New(nil, func() time.Time { return now })
		if client != "" {
			s = over(t, client)
		}
		for range 2 {
			if !s.Mine(t.Context(), "acc_a", time.Minute) {
				t.Errorf("%s: Mine = false without Redis, want true on every call", name)
			}
		}
	}
}

func TestANameIsForgottenAfterItsLife(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := dedup.New(nil, func() time.Time { return now })
	s.First(t.Context(), "v", time.Hour)
	now = now.Add(time.Hour)
	if !s.First(t.Context(), "v", time.Hour) {
		t.Error("First = false after the name has expired, want true")
	}
	for i := range 100_000 { // memory is bounded, but a new name must still count as new
		if !s.First(t.Context(), fmt.Sprint(i), time.Hour) {
			t.Fatalf("First = false for the new name %d, want true", i)
		}
	}
}

func TestWhatReplicasCountAddsUpToTheMembers(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	a, b := over(t, addr), over(t, addr)
	sum := func(set string, from, to int) (n int64) {
		for i := from; i < to; i++ {
			for _, s := range []*dedup.Seen{a, b, a} { // on one replica, on the other, and on the first again
				grown, _ := s.Count(t.Context(), set, fmt.Sprint("viewer", i), time.Hour)
				if grown < 0 {
					t.Fatalf("%s: the count decreased by %d, want it never to decrease", set, -grown)
				}
				n += grown
			}
		}
		return n
	}
	for i := range 100 {
		if n := sum(fmt.Sprint("small", i), 0, 5); n != 5 {
			t.Errorf("count for 5 members = %d, want 5", n)
		}
	}
	if n := sum("large", 0, 5000); n < 4850 || n > 5150 {
		t.Errorf("count for 5,000 members = %d, want it within 3 percent", n)
	}
	// Redis is emptied halfway. Members may count again, but the sum never decreases.
	redistest.Do(t, addr, "FLUSHALL")
	if n := sum("large", 5000, 5100); n != 100 && (n < 95 || n > 105) {
		t.Errorf("after Redis was emptied, 100 new members added %d to the count, want 95 to 105", n)
	}
}

func TestASetTakesTwelveKilobytesHoweverManyItHas(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	s := over(t, addr)
	for i := range 20_000 {
		s.Count(t.Context(), "views", fmt.Sprint(i), time.Hour)
	}
	if n := redistest.Do(t, addr, "DBSIZE"); n != "1" {
		t.Errorf("20,000 members take %s keys, want one", n)
	}
	if n, _ := strconv.Atoi(redistest.Do(t, addr, "MEMORY", "USAGE", "lr:count:views")); n < 1 || n > 16_000 {
		t.Errorf("20,000 members take %d bytes, want at most 16,000", n)
	}
	if ms, _ := strconv.Atoi(redistest.Do(t, addr, "PTTL", "lr:count:views")); ms < 1 || ms > int(time.Hour/time.Millisecond) {
		t.Errorf("the set expires in %d ms, want at most an hour", ms)
	}
}

func TestASweepRestsOnlyWhileRedisSaysSo(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	now := time.Now()
	clock := func() time.Time { return now }
	a, b := at(t, addr, clock), at(t, addr, clock)
	pace := dedup.Pace{What: "sweep", Every: 10 * time.Second, Idle: time.Hour}
	rounds, found := 0, true
	do := func(context.Context) (bool, error) { rounds++; return found, nil }
	step := func(what string, want int, ask func(context.Context, dedup.Pace, func(context.Context) (bool, error)) error) {
		t.Helper()
		now = now.Add(pace.Every)
		if err := ask(t.Context(), pace, do); err != nil || rounds != want {
			t.Fatalf("%s: %d rounds, %v; want %d", what, rounds, err, want)
		}
	}
	step("first replica", 1, a.Round)
	step("second replica during the turn", 1, b.Round)
	redistest.Do(t, addr, "DEL", "lr:seen:sweep") // simulates the end of the turn
	found = false
	step("next round", 2, b.Round)
	if ms, _ := strconv.Atoi(redistest.Do(t, addr, "PTTL", "lr:seen:sweep")); ms < 50*60_000 {
		t.Errorf("after a round without work, the next round may begin in %d ms, want at least 50 minutes", ms)
	}
	step("during the long pause", 2, a.Round)
	step("wake-up without work", 3, a.AtOnce)
	step("long pause after the wake-up", 3, b.Round)
	found = true
	step("wake-up with work", 4, a.AtOnce)
	if ms, _ := strconv.Atoi(redistest.Do(t, addr, "PTTL", "lr:seen:sweep")); ms < 1 || ms > 10_000 {
		t.Errorf("after a round with work, the next round may begin in %d ms, want at most 10 s", ms)
	}
	redistest.Do(t, addr, "FLUSHALL")
	found = false
	step("after Redis has lost its data", 5, a.Round)
	away, failed := at(t, "127.0.0.1:1", clock), errors.New("no answer")
	for i := range 3 {
		step("without Redis", 6+i, away.Round)
	}
	err := b.AtOnce(t.Context(), pace, func(context.Context) (bool, error) { return false, failed })
	if ms, _ := strconv.Atoi(redistest.Do(t, addr, "PTTL", "lr:seen:sweep")); !errors.Is(err, failed) || ms < 1 || ms > 10_000 {
		t.Errorf("after a round that failed with %v, the next round may begin in %d ms, want a failure and at most 10 s", err, ms)
	}
}

func over(t *testing.T, addr string) *dedup.Seen {
	t.Helper()
	return at(t, addr, time.Now)
}

func at(t *testing.T, addr string, now func() time.Time) *dedup.Seen {
	t.Helper()
	client, err := redisdb.Open(redisdb.Config{URL: addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	// Fill the connection pool first, so calls meet their budget even on a busy machine.
	for range 50 {
		if client.Ping(context.Background()).Err() == nil {
			break
		}
	}
	return dedup.Patient(dedup.New(client, now))
}
