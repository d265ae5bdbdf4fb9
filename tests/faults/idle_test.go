package faults_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
	"github.com/linkreel/linkreel/services/standalone"
)

const (
	// idleBudget is the maximum number of Firestore queries per second in an idle installation.
	idleBudget = 1.5
	// idleRound is the number of queries that all sweeps make if each runs once. A short
	// measurement may include one extra round.
	idleRound = 16
)

// The test runs two replicas of each service without sending any requests. With LINKREEL_FULL=1 it
// counts queries for three minutes, and otherwise for a few seconds.
func TestAnIdleInstallationHardlyAsksFirestore(t *testing.T) {
	t.Parallel()
	count := 10 * time.Second
	if os.Getenv("LINKREEL_FULL") == "1" {
		count = 3 * time.Minute
	}
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: standalone.Indexes()})
	shared := map[string]string{"LINKREEL_FIRESTORE_ENDPOINT": cloud.Endpoint, "LINKREEL_REDIS_URL": redistest.Start(t), "DNS_RESOLVER": "127.0.0.1:9"}
	for range 2 {
		log := &accessLog{reasons: map[string]string{}}
		stack, err := standalone.Start(context.WithoutCancel(t.Context()), standalone.Config{DataDir: t.TempDir(), Log: log, Env: shared})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := stack.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	queries := func() (n int64) {
		for _, of := range cloud.Firestore.Stats().Queries {
			n += of
		}
		return n
	}
	// Every loop runs its first round as soon as it starts. These rounds are over once there have
	// been no queries for a second.
	last, quiet := queries(), time.Now()
	authUntil(t, "the first rounds have ended", time.Minute, func() bool {
		if n := queries(); n != last {
			last, quiet = n, time.Now()
		}
		return last > 0 && time.Since(quiet) > time.Second
	})
	cloud.Firestore.ResetStats()
	begun := time.Now()
	most := idleBudget * count.Seconds()
	if count < time.Minute {
		most += idleRound
	}
	authUntil(t, "the measurement has ended", 2*count, func() bool { return time.Since(begun) >= count || float64(queries()) > most })
	stats := cloud.Firestore.Stats()
	text := ""
	for _, collection := range slices.Sorted(maps.Keys(stats.Queries)) {
		text += fmt.Sprintf("\n%-20s %3d", collection, stats.Queries[collection])
	}
	n, took := queries(), time.Since(begun)
	t.Logf("%d queries in %v, %.2f a second:%s\ncalls: %v", n, took.Round(time.Second), float64(n)/took.Seconds(), text, stats.Calls)
	if float64(n) > most {
		t.Errorf("%d queries in %v without requests, want at most %.0f", n, took.Round(time.Second), most)
	}
}
