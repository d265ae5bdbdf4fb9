package redisdb

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/services/localcloud/redisproc"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

// watched is a client with its health and log lines. Its tests do not run in parallel with others,
// because the whole process shares the log and the metric.
type watched struct {
	redis.UniversalClient
	t   *testing.T
	log *lines
}

type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.String(), text)
}

func watching(t *testing.T, addr string) *watched {
	t.Helper()
	client, err := Open(Config{URL: addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	healthOf(addr, client).calm = 200 * time.Millisecond
	w, former := &watched{client, t, &lines{}}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(w.log, nil)))
	t.Cleanup(func() { slog.SetDefault(former) })
	return w
}

// shows reports whether /metrics contains a line.
func shows(line string) bool {
	rec := httptest.NewRecorder()
	promhttp.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	return strings.Contains(rec.Body.String(), line+"\n")
}

// until repeats call until the metric has the value away.
func (w *watched) until(away int, call func() error) {
	w.t.Helper()
	line := fmt.Sprintf(`linkreel_dependency_away{dependency="Redis"} %d`, away)
	for end := time.Now().Add(30 * time.Second); !shows(line); time.Sleep(20 * time.Millisecond) {
		_ = call()
		if time.Now().After(end) {
			w.t.Fatalf("timed out waiting for the line %s in /metrics; log:\n%s", line, w.log)
		}
	}
}

func (w *watched) set() error { return w.Set(context.Background(), "k", "v", 0).Err() }
func (w *watched) get() error { return w.Get(context.Background(), "k").Err() }

// told checks that the log contains the cause and the recovery exactly once.
func (w *watched) told(cause string) {
	w.t.Helper()
	if w.log.count("Redis does not answer or refuses writes") != 1 || w.log.count(cause) != 1 || w.log.count("Redis answers again") != 1 {
		w.t.Errorf("want one line each for the outage, %q and the recovery:\n%s", cause, w.log)
	}
}

// Not parallel: see watched.
func TestARedisThatIsGoneShowsUntilItIsBack(t *testing.T) {
	server := redistest.Server(t)
	w := watching(t, server.Addr())
	w.until(0, w.set)
	_ = server.Kill()
	w.until(1, w.get)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.until(0, func() error { return nil }) // without calls, the probe must notice the recovery
	w.told("error=")
}

// Not parallel: see watched.
func TestARedisWithoutMemoryShowsAlthoughReadsWork(t *testing.T) {
	w := watching(t, redistest.Start(t))
	w.until(0, w.set)
	_ = w.set()
	w.Do(context.Background(), "CONFIG", "SET", "maxmemory", "1")
	w.until(1, func() error { return errorsOf(w.get(), w.set()) })
	for range 20 {
		if err := w.get(); err != nil {
			t.Fatalf("get = %v, want no error", err)
		}
	}
	if !shows(`linkreel_dependency_away{dependency="Redis"} 1`) || shows(`linkreel_dependency_failures_total{dependency="Redis",reason="memory"} 0`) {
		t.Error("after rejected writes and successful reads, the metrics do not report an out-of-memory outage, want one")
	}
	w.Do(context.Background(), "CONFIG", "SET", "maxmemory", "0")
	w.until(0, w.get)
	w.told("OOM")
}

// Not parallel: see watched.
func TestARedisWithoutDiskShowsItsReason(t *testing.T) {
	dir := t.TempDir() + "/gone"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	server, err := redisproc.Start(t.Context(), redisproc.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() })
	w := watching(t, server.Addr())
	w.until(0, w.set)
	ctx := context.Background()
	for _, set := range [][]any{{"CONFIG", "SET", "appendonly", "no"}, {"CONFIG", "SET", "save", "3600 1"}} {
		if err := w.Do(ctx, set...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(dir); err != nil { // like a full disk, this prevents Redis from writing its file
		t.Fatal(err)
	}
	w.Do(ctx, "BGSAVE")
	w.until(1, w.set)
	if shows(`linkreel_dependency_failures_total{dependency="Redis",reason="disk"} 0`) {
		t.Error("the metric has no failure with the reason disk, want at least one")
	}
	w.Do(ctx, "CONFIG", "SET", "save", "")
	w.Do(ctx, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
	w.until(0, w.get)
	w.told("MISCONF")
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Errors that are not caused by Redis's state are not failures.
func TestMistakesOfCallersAreNoFailures(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		nil, redis.Nil, redis.ErrClosed, context.Canceled, context.DeadlineExceeded, // the deadline passed after only 1 ms
		redisError("WRONGTYPE Operation against a key"), redisError("NOSCRIPT No matching script."), redisError("BUSYGROUP exists"),
	} {
		if reason := reasonOf(err, time.Millisecond); reason != "" {
			t.Errorf("reasonOf(%v) = %q, want none", err, reason)
		}
	}
	for want, err := range map[string]error{
		timeout: context.DeadlineExceeded, memory: redisError("OOM command not allowed"), disk: redisError("MISCONF Errors writing"),
		refused: redisError("LOADING Redis is loading"), unreachable: io.EOF,
	} {
		if got := reasonOf(err, time.Second); got != want {
			t.Errorf("reasonOf(%v) = %q, want %q", err, got, want)
		}
	}
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// BenchmarkWatch measures the cost of the hook per call.
func BenchmarkWatch(b *testing.B) {
	h := watch{healthOf("bench", nil), measured}
	cmd := redis.NewCmd(context.Background(), "evalsha", "sha")
	call := h.ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	b.ReportAllocs()
	for b.Loop() {
		_ = call(context.Background(), cmd)
	}
}

// A service can have a second Redis. The durations of its calls must not be mixed with the main
// Redis's.
func TestASecondRedisIsMeasuredApart(t *testing.T) {
	t.Parallel()
	client, err := Open(Config{URL: redistest.Start(t), Calls: NewCalls("Redis for tests")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	const none = `linkreel_dependency_call_seconds_count{dependency="Redis for tests",operation="stream"} 0`
	if !shows(none) {
		t.Errorf("before the first call, /metrics lacks %s", none)
	}
	for range 3 {
		if err := client.XLen(t.Context(), "k").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if want := strings.TrimSuffix(none, "0") + "3"; !shows(want) {
		t.Errorf("after three calls, /metrics lacks %s", want)
	}
}
