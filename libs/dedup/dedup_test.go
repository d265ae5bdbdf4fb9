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
				t.Error("First must return true once for each viewer")
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

func TestATurnIsOneReplicasUntilItsHoldIsOver(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	a, b := over(t, addr), over(t, addr)
	if !a.Mine(t.Context(), "sweep", time.Hour) || b.Mine(t.Context(), "sweep", time.Hour) {
		t.Error("only the replica that asked first gets the turn")
	}
	if !a.Mine(t.Context(), "sweep", time.Hour) {
		t.Error("the replica that has the turn may act again")
	}
	if !b.Mine(t.Context(), "short", time.Millisecond) || !a.First(t.Context(), "sweep", time.Hour) {
		t.Error("a turn must not block another name or a First of the same name")
	}
	redistest.Do(t, addr, "FLUSHALL") // as if the hold were over
	if !b.Mine(t.Context(), "sweep", time.Hour) {
		t.Error("the turn did not end")
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
				t.Errorf("%s: Redis may have stored the turn, and then no other replica acts on the next hint, so this one must", name)
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
		t.Error("a name is still remembered after its life")
	}
	for i := range 100_000 { // memory is bounded, and new names are still recognised as new
		if !s.First(t.Context(), fmt.Sprint(i), time.Hour) {
			t.Fatalf("the new name %d counts as seen", i)
		}
	}
}

func TestWhatReplicasCountAddsUpToTheMembers(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	a, b := over(t, addr), over(t, addr)
	sum := func(set string, from, to int) (n int64) {
		for i := from; i < to; i++ {
			for _, s := range []*dedup.Seen{a, b, a} { // the member is counted on one replica, on another, and on the first again
				grown, _ := s.Count(t.Context(), set, fmt.Sprint("viewer", i), time.Hour)
				if grown < 0 {
					t.Fatalf("%s: the count went down by %d", set, -grown)
				}
				n += grown
			}
		}
		return n
	}
	for i := range 100 {
		if n := sum(fmt.Sprint("small", i), 0, 5); n != 5 {
			t.Errorf("5 members count %d", n)
		}
	}
	if n := sum("large", 0, 5000); n < 4850 || n > 5150 {
		t.Errorf("5,000 members count %d, want a difference of at most 3 percent", n)
	}
	// Redis is emptied in the middle. Members may count again, but the sum never falls.
	redistest.Do(t, addr, "FLUSHALL")
	if n := sum("large", 5000, 5100); n != 100 && (n < 95 || n > 105) {
		t.Errorf("100 new members after Redis was emptied count %d", n)
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
		t.Errorf("20,000 members take %d bytes", n)
	}
	if ms, _ := strconv.Atoi(redistest.Do(t, addr, "PTTL", "lr:count:views")); ms < 1 || ms > int(time.Hour/time.Millisecond) {
		t.Errorf("the set lives for %d ms", ms)
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
	step("the first replica", 1, a.Round)
	step("the second one, within the turn", 1, b.Round)
	redistest.Do(t, addr, "DEL", "lr:seen:sweep") // as if the turn were over
	found = false
	step("the next round", 2, b.Round)
	if ms, _ := strconv.Atoi(redistest.Do(t, addr, "PTTL", "lr:seen:sweep")); ms < 50*60_000 {
		t.Errorf("after a round that found nothing, the next one may begin in %d ms", ms)
	}
	step("while it rests", 2, a.Round)
	step("a wake-up that finds nothing", 3, a.AtOnce)
	step("which does not end the rest", 3, b.Round)
	found = true
	step("a wake-up that finds something", 4, a.AtOnce)
	if ms, _ := strconv.Atoi(redistest.Do(t, addr, "PTTL", "lr:seen:sweep")); ms < 1 || ms > 10_000 {
		t.Errorf("after a round that found something, the next one may begin in %d ms", ms)
	}
	redistest.Do(t, addr, "FLUSHALL")
	found = false
	step("once Redis has lost its data", 5, a.Round)
	away, failed := at(t, "127.0.0.1:1", clock), errors.New("no answer")
	for i := range 3 {
		step("without Redis, each time", 6+i, away.Round)
	}
	err := b.AtOnce(t.Context(), pace, func(context.Context) (bool, error) { return false, failed })
	if ms, _ := strconv.Atoi(redistest.Do(t, addr, "PTTL", "lr:seen:sweep")); !errors.Is(err, failed) || ms < 1 || ms > 10_000 {
		t.Errorf("after a round that failed with %v, the next one may begin in %d ms", err, ms)
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
	// Fill the pool first: with open connections, calls stay within the budget even on a
	// busy machine.
	for range 50 {
		if client.Ping(context.Background()).Err() == nil {
			break
		}
	}
	return dedup.Patient(dedup.New(client, now))
}
