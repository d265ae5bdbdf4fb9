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
	"strings"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
	"github.com/linkreel/linkreel/services/standalone"
)

// serve runs a child process: the system, or a server to compare it to. It exits with its parent.
func serve(what string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // returns when the parent exits
		stop()
	}()
	var err error
	switch what {
	case "fiber":
		err = serveFiber(ctx)
	case "hour":
		err = serveHour(ctx)
	case "firestore":
		err = serveFirestore(ctx)
	case "system":
		err = serveSystem(ctx)
	case "embedded":
		err = serveEmbedded(ctx)
	case "backup":
		err = serveBackup(ctx)
	case "restore":
		err = serveRestore(ctx)
	case "worker":
		err = serveWorker()
	default:
		err = fmt.Errorf("unknown server %q", what)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", what+":", err)
		stop()
		os.Exit(1)
	}
}

func announce(r ready) error { return json.NewEncoder(os.Stdout).Encode(r) }

// serveHour is the service that a good engineer writes in an hour: Fiber, a map, and one HINCRBY
// per visit in a Redis with an append-only file. Like Linkreel, it responds after the visit is
// counted.
func serveHour(ctx context.Context) error {
	redisd, err := redisproc.Start(ctx, redisproc.Options{Dir: os.Getenv("BENCH_DIR")})
	if err != nil {
		return err
	}
	defer redisd.Stop()
	pid, err := redisPid(redisd.Dir())
	if err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: redisd.Addr()})
	defer rdb.Close()
	return serveMap(ctx, pid, func(c *fiber.Ctx, slug string) error {
		return rdb.HIncrBy(c.UserContext(), "clicks", slug, 1).Err()
	})
}

// serveFiber is the cheapest possible redirect with Fiber: a map and a header.
func serveFiber(ctx context.Context) error {
	return serveMap(ctx, 0, func(*fiber.Ctx, string) error { return nil })
}

// serveMap redirects from a map. It calls count before each response.
func serveMap(ctx context.Context, redis int, count func(c *fiber.Ctx, slug string) error) error {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	links := map[string]string{"hot": "https://example.com/"}
	app.Get("/:slug", func(c *fiber.Ctx) error {
		slug := c.Params("slug")
		to, ok := links[slug]
		if !ok {
			return fiber.ErrNotFound
		}
		if err := count(c, slug); err != nil {
			return err
		}
		return c.Redirect(to, fiber.StatusFound)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := announce(ready{Short: l.Addr().String(), Redis: redis}); err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		_ = app.Shutdown()
	}()
	return app.Listener(l)
}

// serveFirestore runs the database in a separate process. In a cluster, Google runs the database,
// so it is not part of the cost of a redirect.
func serveFirestore(ctx context.Context) error {
	indexes, err := firestore.ParseIndexes(standalone.Indexes()...)
	if err != nil {
		return err
	}
	s, err := firestore.Open(firestore.Options{Path: os.Getenv("BENCH_DIR") + ".db", Indexes: indexes})
	if err != nil {
		return err
	}
	defer s.Close()
	addr, err := s.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	client, err := s.Client(ctx, "linkreel-local")
	if err != nil {
		return err
	}
	control, err := serveControl(map[string]func(context.Context) (any, error){
		"/counters": func(context.Context) (any, error) {
			st := s.Stats()
			return counters{Reads: st.Reads, Writes: st.Writes}, nil
		},
		"/hottest": func(context.Context) (any, error) { return s.MaxSustainedWrites(10 * time.Second), nil },
		"/clicks": func(ctx context.Context) (any, error) {
			snaps, err := client.Collection("links").Select("clicks").Documents(ctx).GetAll()
			var sum int64
			for _, snap := range snaps {
				n, _ := snap.Data()["clicks"].(int64)
				sum += n
			}
			return sum, err
		},
	})
	if err != nil {
		return err
	}
	if err := announce(ready{Firestore: addr.String(), Control: control}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// serveControl serves this process's figures and profiles.
func serveControl(answers map[string]func(context.Context) (any, error)) (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	for path, value := range answers {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			v, err := value(r.Context())
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(v)
		})
	}
	go func() { _ = http.Serve(l, mux) }()
	return "http://" + l.Addr().String(), nil
}

// serveSystem runs the whole system except Firestore.
func serveSystem(ctx context.Context) error {
	dir := os.Getenv("BENCH_DIR")
	s, err := standalone.Start(ctx, standalone.Config{DataDir: dir, Env: map[string]string{
		"LINKREEL_FIRESTORE_ENDPOINT": os.Getenv("BENCH_FIRESTORE"),
		"LINKREEL_RATE_LIMITS":        "enterprise:6000000", // the limiter is enabled but never rejects any requests
	}})
	if err != nil {
		return err
	}
	control, err := serveControl(nil)
	if err != nil {
		return err
	}
	redis, err := redisPid(filepath.Join(dir, "redis"))
	if err != nil {
		return err
	}
	if err := announce(ready{Short: strings.Replace(strings.TrimPrefix(s.ShortBaseURL, "http://"), "localhost", "127.0.0.1", 1),
		Base: s.BaseURL, Control: control, Key: s.Keys["enterprise"], Redis: redis}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	return s.Close()
}

func redisPid(dir string) (pid int, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "redis.pid"))
	if err == nil {
		_, err = fmt.Sscan(string(text), &pid)
	}
	return pid, err
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
