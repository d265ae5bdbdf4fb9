package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/services/standalone"
)

// serve is a child process: the system, or what it is compared with. It ends
// with its parent.
func serve(what string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent does
		stop()
	}()
	var err error
	switch what {
	case "fiber":
		err = serveFiber(ctx)
	case "system":
		err = serveSystem(ctx)
	default:
		err = fmt.Errorf("nothing is called %q", what)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", what+":", err)
		stop()
		os.Exit(1)
	}
}

func announce(r ready) error { return json.NewEncoder(os.Stdout).Encode(r) }

// serveFiber is the least that a redirect can cost in Fiber: a map and a header.
func serveFiber(ctx context.Context) error {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	links := map[string]string{"hot": "https://example.com/"}
	app.Get("/:slug", func(c *fiber.Ctx) error {
		to, ok := links[c.Params("slug")]
		if !ok {
			return fiber.ErrNotFound
		}
		return c.Redirect(to, fiber.StatusFound)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := announce(ready{Short: l.Addr().String()}); err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		_ = app.Shutdown()
	}()
	return app.Listener(l)
}

func serveSystem(ctx context.Context) error {
	dir := os.Getenv("BENCH_DIR")
	s, err := standalone.Start(ctx, standalone.Config{DataDir: dir, Env: map[string]string{
		"LINKREEL_RATE_LIMITS": "enterprise:6000000", // the limiter is on and never refuses
	}})
	if err != nil {
		return err
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	answer := func(path string, value func(ctx context.Context) (any, error)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			v, err := value(r.Context())
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(v)
		})
	}
	answer("/counters", func(context.Context) (any, error) {
		st := s.Firestore.Stats()
		return counters{Reads: st.Reads, Writes: st.Writes}, nil
	})
	answer("/hottest", func(context.Context) (any, error) {
		return s.Firestore.MaxSustainedWrites(10 * time.Second), nil
	})
	client, err := s.Firestore.Client(ctx, "linkreel-local")
	if err != nil {
		return err
	}
	answer("/clicks", func(ctx context.Context) (any, error) {
		snaps, err := client.Collection("links").Select("clicks").Documents(ctx).GetAll()
		var sum int64
		for _, snap := range snaps {
			n, _ := snap.Data()["clicks"].(int64)
			sum += n
		}
		return sum, err
	})
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile) // go tool pprof $BENCH_CONTROL/debug/pprof/profile
	go func() { _ = http.Serve(control, mux) }()
	pid, err := os.ReadFile(filepath.Join(dir, "redis", "redis.pid"))
	if err != nil {
		return err
	}
	redis, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	if err != nil {
		return err
	}
	if err := announce(ready{Short: strings.Replace(strings.TrimPrefix(s.ShortBaseURL, "http://"), "localhost", "127.0.0.1", 1),
		Base: s.BaseURL, Control: "http://" + control.Addr().String(), Key: s.Keys["enterprise"], Redis: redis}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	return s.Close()
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func sorted(v []float64) []float64 { return slices.Sorted(slices.Values(v)) }
