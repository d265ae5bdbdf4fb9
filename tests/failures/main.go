// Command failures reproduces the failures in docs/failures.md with real processes. The services
// run as separate processes, two of them for links, with localcloud, Redis, and a Prometheus with
// the chart's rules.
//
//	go run ./tests/failures redis-slow links-killed
//	go run ./tests/failures -all -parallel 2
//
// It sends light traffic, waits until no alerts are firing, and causes the failure. It prints which
// alerts fire and how long after the failure, which alerts resolve after the repair, and how many
// calls failed. At the end, it compares this with the alerts that the failure must cause, and exits
// with an error if they differ. It needs redis-server, prometheus and ffmpeg (make tools), and helm
// (make $PWD/.local/bin/helm). Failures that fill a disk need root because they mount a small one.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// failure is a fault that this program can cause and repair, with its expected results.
type failure struct {
	name   string // this program's command-line argument
	what   string // first cell of its row in docs/failures.md
	breaks func(ctx context.Context, s *stack) error
	mends  func(s *stack) error

	// expects contains the alerts that the failure causes, with the measured times. A second word
	// in a key is the value of a label, as in "LinkreelDependencyRefuses quota".
	expects map[string]time.Duration
	// afterwards lists alerts that fire only after the repair.
	afterwards []string
	// broken is how long the failure lasts. If it is zero, the failure lasts until 90 s after the
	// last expected alert.
	broken time.Duration
	// disks names the folders that need a small disk of their own.
	disks []string
	// losesClicks is set if clicks during the failure are not counted.
	losesClicks bool
	// failsRedirects is set if redirects for links in memory fail.
	failsRedirects bool
	// failsPlayback is set if playback may fail.
	failsPlayback bool
}

// failures lists the failures in the order of docs/failures.md.
var failures = slices.Concat(redisFailures, firestoreFailures, serviceFailures, videoFailures, webhookFailures)

// options holds the settings for all plays. If a duration is zero, the failure's own applies.
type options struct {
	dir           string
	broken, after time.Duration
}

func main() {
	broken := flag.Duration("broken", 0, "duration of the failure (default: until 90 s after the last expected alert)")
	after := flag.Duration("after", 0, "longest time to watch after the repair (default: until every alert should have ended)")
	dir := flag.String("dir", "", "folder for data, logs and the timeline (default: a new one)")
	all := flag.Bool("all", false, "play every failure")
	parallel := flag.Int("parallel", 1, "number of failures to play at once, each in its own installation")
	flag.Parse()
	chosen, err := choose(flag.Args(), *all)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	good, err := playAll(ctx, chosen, *parallel, options{*dir, *broken, *after})
	if err != nil {
		fmt.Fprintln(os.Stderr, "failures:", err)
	}
	if !good {
		stop()
		os.Exit(1)
	}
}

// choose returns the named failures.
func choose(names []string, all bool) (chosen []failure, err error) {
	if all {
		return failures, nil
	}
	var known []string
	for _, f := range failures {
		known = append(known, f.name)
		if slices.Contains(names, f.name) {
			chosen = append(chosen, f)
		}
	}
	if len(names) == 0 || len(chosen) != len(names) {
		return nil, fmt.Errorf("name one or more failures, each only once, or use -all; the failures are: %s", strings.Join(known, ", "))
	}
	return chosen, nil
}

// playAll plays failures, several at a time if asked to, and prints a results table. It reports
// whether all of them went as expected.
func playAll(ctx context.Context, chosen []failure, parallel int, o options) (good bool, err error) {
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "linkreel-failures-"); err != nil {
			return false, err
		}
	}
	if err := build(ctx, o.dir); err != nil {
		return false, err
	}
	results, places := make([]result, len(chosen)), make(chan struct{}, max(1, parallel))
	var plays sync.WaitGroup
	for _, i := range longestFirst(chosen) {
		places <- struct{}{}
		plays.Go(func() {
			defer func() { <-places }()
			results[i] = play(ctx, chosen[i], o)
		})
	}
	plays.Wait()
	return printTable(results), nil
}

// longestFirst returns the indexes of failures. The longest come first, so that no long play is left
// to run alone at the end.
func longestFirst(chosen []failure) []int {
	indexes := make([]int, len(chosen))
	for i := range indexes {
		indexes[i] = i
	}
	slices.SortStableFunc(indexes, func(a, b int) int {
		return cmp.Compare(chosen[b].lasts(0), chosen[a].lasts(0))
	})
	return indexes
}

// play runs one failure on a new stack.
func play(ctx context.Context, f failure, o options) (r result) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	r.failure = f
	if r.err = ctx.Err(); r.err != nil {
		return r
	}
	s, err := startStack(ctx, o.dir, f)
	if err != nil {
		r.err = err
		return r
	}
	defer s.stop()
	traffic, endTraffic := context.WithCancel(ctx)
	defer endTraffic()
	s.say("%s; the files are in %s; Prometheus is at http://%s", f.what, s.dir, s.prometheus)
	if r.err = s.makeTraffic(traffic); r.err != nil {
		return r
	}
	if r.err = s.playFailure(ctx, f, o, &r); r.err != nil {
		return r
	}
	endTraffic() // otherwise the newest clicks are not counted yet
	r.clicks, r.err = s.compareClicks(ctx)
	s.say("clicks: %+v", r.clicks)
	return r
}

// playFailure waits until no alerts are firing, causes the failure, repairs it, and waits until the
// alerts have resolved.
func (s *stack) playFailure(ctx context.Context, f failure, o options, r *result) error {
	if err := s.quiet(ctx); err != nil {
		return err
	}
	before, _ := s.counts.take()
	s.say("before: %s", before)
	during, endDuring := context.WithCancel(ctx)
	defer endDuring()
	s.broken = time.Now()
	if err := f.breaks(during, s); err != nil {
		return err
	}
	r.broken, r.after = f.lasts(o.broken), f.watched(o.after)
	if err := s.watch(ctx, r.broken, func() bool { return false }); err != nil {
		return err
	}
	var calls string
	calls, r.calls = s.counts.take()
	s.say("during the failure: %s", calls)
	endDuring()
	if err := f.mends(s); err != nil {
		return err
	}
	s.say("%s repaired", time.Since(s.broken).Round(time.Second))
	r.broken = time.Since(s.broken)
	// Queued clicks need time too, and an alert that the repair causes needs time to fire.
	least := time.Now().Add(min(2*time.Minute, r.after))
	err := s.watch(ctx, r.after, func() bool { return time.Now().After(least) && s.ended(r.after) })
	r.alerts = s.seen
	after, _ := s.counts.take()
	s.say("after: %s", after)
	return err
}
