// Command bench measures the system and prints ratios of figures from the same run. These ratios
// are comparable between slow, busy machines and fast ones because both sides run on the same
// machine in alternating rounds. Within a round, the contenders in redirect and rules alternate
// every third of a second.
//
//	redirect   CPU per redirect with durable click counting, Redis and flusher
//	           included, against a bare Fiber redirect and nginx `return 302`
//	rules      CPU per redirect for plain links and for a link with 20 rules,
//	           against plain links in BENCH_BASELINE
//	api        CPU, Firestore reads and writes per create and per list
//	idle       Firestore queries, spans, log lines and their bytes per minute,
//	           without requests and with 600 API calls and 3,000 redirects
//	backup     a backup of 100,000 links and 200 videos during 500 redirects and
//	           50 creates per second: time, bytes, CPU; the next one; a restore
//	media      ladder, first-play and workers
//	ladder     CPU for the ladder against plain ffmpeg with the same arguments,
//	           and for the fast path against the ladder
//	first-play time from the upload of a minute of film until it can be watched
//	workers    two workers with one processor each against one worker
//	go         the Go benchmarks of hot paths
//
// Without arguments, it runs all parts. BENCH_ROUNDS (5; 9 for rules) and BENCH_SECONDS (3) set the
// number and length of rounds. BENCH_PROFILES is a directory for CPU profiles of the redirect,
// rules and api rounds; each round overwrites the previous profile. BENCH_BASELINE=<commit> also
// builds that commit and measures redirect, rules and api for both in alternating rounds.
// BENCH_LINKS (100,000) is the number of links for redirect, rules and backup, and BENCH_VIDEOS
// (200) is the number of videos for backup. BENCH_IDLE_SECONDS (120) is how long idle runs without
// requests, and BENCH_SAMPLE_RATIO (1) is the share of recorded traces. BENCH_CALL=create,search
// measures only these api calls; a search finds the links that create has created.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		serve(os.Args[2]) // this process is a measured server
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("load average at the start: %s\n", loadAverage())
	for _, part := range []struct {
		name, of string
		run      func(context.Context) error
	}{
		{"redirect", "", benchRedirect},
		{"rules", "", benchRules},
		{"api", "", benchAPI},
		{"idle", "", benchIdle},
		{"backup", "", benchBackup},
		{"ladder", "media", benchLadder},
		{"first-play", "media", benchFirstPlay},
		{"workers", "media", benchTwoWorkers},
		{"go", "", benchGo},
	} {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], part.name) && !slices.Contains(os.Args[1:], part.of) {
			continue
		}
		fmt.Printf("\n== %s\n", part.name)
		if err := part.run(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", part.name, err)
			stop()
			os.Exit(1)
		}
	}
	fmt.Printf("\nload average at the end: %s\n", loadAverage())
}

func benchGo(ctx context.Context) error {
	for _, pkg := range []string{
		"./libs/identity", "./libs/apikey", "./libs/cache", "./libs/jsdate", "./libs/httpapi", "./libs/objectstore",
		"./services/links/...", "./services/videos/...",
	} {
		if err := goTest(ctx, pkg, ".", "0.5s"); err != nil {
			return err
		}
	}
	return nil
}

func goTest(ctx context.Context, pkg, name, benchtime string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", name, "-benchtime", benchtime, "-benchmem", "-timeout", "60m", pkg)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go test %s failed: %w", pkg, err)
	}
	return nil
}

func setting(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

func roundLength() time.Duration { return time.Duration(setting("BENCH_SECONDS", 3)) * time.Second }

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[len(s)/2]
}
