// Command failures reproduces failures from docs/failures.md with real processes. The services run
// as separate processes, two of them for links, with localcloud, Redis, and a Prometheus with the
// chart's rules.
//
//	go run ./tests/failures redis-slow links-killed
//
// It sends light traffic, waits until no alert fires, and causes the failure. It prints which
// alerts fire and how long after the failure, which alerts end after the repair, and how many calls
// failed. It needs redis-server, prometheus and ffmpeg (make tools), and helm (make
// .local/bin/helm).
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// failure is a fault that this program can cause and repair.
type failure struct {
	what   string
	breaks func(ctx context.Context, s *stack) error
	mends  func(s *stack) error
}

// failures lists the failures that this program can run.
var failures = map[string]failure{
	"redis-dead": {
		"Redis is dead",
		func(_ context.Context, s *stack) error { return s.proxies["redis"].cut() },
		func(s *stack) error { return s.proxies["redis"].heal() },
	},
	"redis-slow": {
		"each response of Redis takes 0.3 s longer",
		func(_ context.Context, s *stack) error { return s.proxies["redis"].slow(300 * time.Millisecond) },
		func(s *stack) error { return s.proxies["redis"].heal() },
	},
	"redis-late": {
		"each response of Redis takes 25 ms longer",
		func(_ context.Context, s *stack) error { return s.proxies["redis"].slow(25 * time.Millisecond) },
		func(s *stack) error { return s.proxies["redis"].heal() },
	},
	"redis-flapping": {
		"Redis refuses connections for 20 s of every 40 s",
		func(ctx context.Context, s *stack) error { return s.flap(ctx, "redis", 20*time.Second) },
		func(s *stack) error { return s.proxies["redis"].heal() },
	},
	"links-killed": {
		"one of two pods of links is killed every 20 s",
		func(ctx context.Context, s *stack) error { return s.killEvery(ctx, "links-1", 20*time.Second) },
		func(*stack) error { return nil },
	},
	"events-down": {
		"events is down",
		func(_ context.Context, s *stack) error { return s.processes["events"].kill() },
		func(s *stack) error { return s.processes["events"].start() },
	},
	"videos-down": {
		"videos is down",
		func(_ context.Context, s *stack) error { return s.processes["videos"].kill() },
		func(s *stack) error { return s.processes["videos"].start() },
	},
	"worker-hangs": {
		"the worker hangs",
		func(_ context.Context, s *stack) error { return s.processes["worker"].signal(syscall.SIGSTOP) },
		func(s *stack) error { return s.processes["worker"].signal(syscall.SIGCONT) },
	},
	"redis-dead-firestore-slow": {
		"Redis is dead, and each response of Firestore takes 0.8 s longer",
		func(_ context.Context, s *stack) error {
			if err := s.proxies["firestore"].slow(800 * time.Millisecond); err != nil {
				return err
			}
			return s.proxies["redis"].cut()
		},
		func(s *stack) error {
			if err := s.proxies["firestore"].heal(); err != nil {
				return err
			}
			return s.proxies["redis"].heal()
		},
	},
	"auth-down-redis-dead": {
		"auth is down, and Redis is dead",
		func(_ context.Context, s *stack) error {
			if err := s.processes["auth"].kill(); err != nil {
				return err
			}
			return s.proxies["redis"].cut()
		},
		func(s *stack) error {
			if err := s.proxies["redis"].heal(); err != nil {
				return err
			}
			return s.processes["auth"].start()
		},
	},
}

func main() {
	broken := flag.Duration("broken", 14*time.Minute, "duration of the failure")
	after := flag.Duration("after", 4*time.Minute, "time to watch after the repair")
	dir := flag.String("dir", "", "folder for data, logs and the timeline (default: a new one)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	names := flag.Args()
	for _, name := range names {
		if _, ok := failures[name]; !ok {
			names = nil
		}
	}
	if len(names) == 0 {
		fmt.Fprintln(os.Stderr, "no failure given; use one or more of:", strings.Join(slices.Sorted(maps.Keys(failures)), ", "))
		stop()
		os.Exit(2)
	}
	for _, name := range names {
		if err := play(ctx, *dir, name, *broken, *after); err != nil {
			stop()
			fmt.Fprintf(os.Stderr, "failures: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

// play runs one failure on a new stack.
func play(ctx context.Context, dir, name string, broken, after time.Duration) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	s, err := startStack(ctx, dir, name)
	if err != nil {
		return err
	}
	defer s.stop()
	traffic, endTraffic := context.WithCancel(ctx)
	defer endTraffic()
	if err := s.makeTraffic(traffic); err != nil {
		return err
	}
	f := failures[name]
	fmt.Printf("== %s: %s\n   the files are in %s; Prometheus is at http://%s\n", name, f.what, s.dir, s.prometheus)
	if err := s.quiet(ctx); err != nil {
		return err
	}
	before := s.counts.take()
	fmt.Println("   before:", before)
	during, endDuring := context.WithCancel(ctx)
	defer endDuring()
	start := time.Now()
	if err := f.breaks(during, s); err != nil {
		return err
	}
	if err := s.watch(ctx, start, broken); err != nil {
		return err
	}
	fmt.Println("   during the failure:", s.counts.take())
	endDuring()
	if err := f.mends(s); err != nil {
		return err
	}
	fmt.Printf("   %s repaired\n", time.Since(start).Round(time.Second))
	if err := s.watch(ctx, start, after); err != nil {
		return err
	}
	fmt.Println("   after:", s.counts.take())
	endTraffic() // otherwise the newest clicks are not counted yet
	return s.compareClicks(ctx)
}
