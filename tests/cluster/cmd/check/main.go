// Command check tests a deployed Linkreel from outside, over HTTP only.
//
//	check smoke   tests the public interface once: errors, docs, and with -write an
//	              account, a link and a video from upload to playback
//	check load    sends requests at a constant rate over keep-alive connections until
//	              it is stopped, and prints how many failed
//	check setup   creates an account, a link and a video's record for check load
//	check ledger  creates and visits links until it is stopped, then proves that no
//	              acknowledged link or click is lost
//	check people  signs people in and uses the console until it is stopped, then
//	              proves that nobody was signed out and no forms were lost
//	check writes  creates many links, and more until it is stopped, then proves that
//	              search finds all of them and that each has one event
//	check fill    creates links and videos so that a backup takes a while
//	check keep    creates records that a restore must bring back, then creates links until
//	              it is stopped, and prints all of them
//	check kept    proves after a restore that the records from before the backup are back,
//	              and that keys and grants that have since ended do not work
//	check videos  uploads some videos and waits until every video is ready
//	check stack   creates an account with a key for each plan and prints a stack.json
//	              for running the end-to-end tests against this deployment
//	check reach   reports whether HOST:PORT accepts a connection
//
// `helm test` runs smoke inside the cluster, where the names of the public hosts do not
// resolve. -via sets the address to connect to for a host and a path.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("no command given; use smoke, load, setup, ledger, people, writes, fill, keep, kept, videos, stack or reach")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	t := newTarget(flags)
	switch args[0] {
	case "smoke":
		write := flags.Bool("write", true, "also create an account, a link and a video")
		return parsed(flags, args, func() error { return smoke(ctx, t, *write) })
	case "stack":
		upload := flags.String("upload", "http://localhost:8083", "address of object storage")
		return parsed(flags, args, func() error { return stack(ctx, t, *upload) })
	case "setup":
		return parsed(flags, args, func() error { return setup(ctx, t) })
	case "people":
		count := flags.Int("count", 4, "people")
		return parsed(flags, args, func() error { return people(ctx, t, *count) })
	case "writes":
		before := flags.Int("before", 10000, "links to create before the test reports that it has started")
		return parsed(flags, args, func() error { return writes(ctx, t, *before) })
	case "fill":
		count := flags.Int("count", 10000, "number of links")
		videos := flags.Int("videos", 1, "number of videos")
		return parsed(flags, args, func() error { return fill(ctx, t, *count, *videos) })
	case "keep":
		return parsed(flags, args, func() error { return keep(ctx, t) })
	case "kept":
		from := flags.String("records", "", "`FILE` with the output of check keep")
		before := flags.String("before", "", "time at which the backup began, such as 2026-03-01T12:00:00.5Z")
		return parsed(flags, args, func() error { return kept(ctx, t, *from, *before) })
	case "videos":
		count := flags.Int("count", 5, "number of videos")
		renditions := flags.Int("renditions", 1, "number of renditions that each video must have")
		file := flags.String("file", "", "file to upload instead of the built-in clip of two seconds")
		return parsed(flags, args, func() error {
			film := clip
			if *file != "" {
				var err error
				if film, err = os.ReadFile(*file); err != nil {
					return fmt.Errorf("cannot read the video file: %w", err)
				}
			}
			return manyVideos(ctx, t, *count, *renditions, film)
		})
	case "ledger":
		callers := flags.Int("callers", 4, "concurrent callers, each with up to 20 calls a second")
		return parsed(flags, args, func() error { return ledger(ctx, t, *callers) })
	case "reach":
		after := flags.Duration("after", 0, "time to wait until network policies apply to this pod")
		return parsed(flags, args, func() error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(*after):
				return reach(ctx, flags.Args())
			}
		})
	case "load":
		l := newLoad(flags)
		return parsed(flags, args, func() error { return l.run(ctx, t) })
	}
	return fmt.Errorf("unknown command %q", args[0])
}

func parsed(flags *flag.FlagSet, args []string, run func() error) error {
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	return run()
}
