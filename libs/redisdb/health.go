package redisdb

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/metrics"
	"github.com/linkreel/linkreel/libs/outage"
)

// Reasons for failed calls. Errors caused by the caller have no reason.
const (
	unreachable = "unreachable"
	timeout     = "timeout"
	memory      = "memory"  // Redis is out of memory and accepts no more data
	disk        = "disk"    // Redis cannot write its file, so it rejects writes
	refused     = "refused" // Redis is loading or failing over, or rejects the password
)

var operations = []string{"key", "pipeline", "script", "stream"}

var measured = metrics.NewCalls("Redis", operations, []string{unreachable, timeout, memory, disk, refused})

// NewCalls declares a service's second Redis. The durations of its calls have their own label, so
// fast calls to the main Redis do not hide a slow second one. Failures are counted under "Redis".
// Assign its result to a package variable so that the series exist from the start.
func NewCalls(name string) *metrics.Calls { return metrics.NewCalls(name, operations, nil) }

// operationOf groups commands. It returns "" for a command that blocks until an event arrives.
func operationOf(cmd redis.Cmder) string {
	name, _ := cmd.Args()[0].(string) // cmd.Name would allocate memory
	switch {
	case name == "evalsha", name == "eval":
		return "script"
	case name == "xread", name == "xreadgroup":
		return ""
	case strings.HasPrefix(name, "x"):
		return "stream"
	}
	return "key"
}

// fair is how long a call must have run for its caller's deadline to count as a failure.
const fair = 100 * time.Millisecond

// reasonOf returns the reason for a failed call, or "" if the error is not caused by Redis's state.
func reasonOf(err error, took time.Duration) string {
	if err == nil {
		return "" // returns before the variables below are allocated
	}
	var network net.Error
	var answer redis.Error
	switch {
	case errors.Is(err, redis.Nil), errors.Is(err, redis.ErrClosed), errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, context.DeadlineExceeded) && took < fair:
		return ""
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &network) && network.Timeout():
		return timeout
	case !errors.As(err, &answer):
		return unreachable
	}
	for reason, prefixes := range refusals {
		for _, prefix := range prefixes {
			if strings.HasPrefix(answer.Error(), prefix) {
				return reason
			}
		}
	}
	return ""
}

var refusals = map[string][]string{
	memory: {"OOM "},
	disk:   {"MISCONF ", "NOREPLICAS "},
	refused: {"READONLY ", "LOADING ", "CLUSTERDOWN ", "MASTERDOWN ", "BUSY ", "NOAUTH ", "WRONGPASS ", "NOPERM ",
		"ERR max number of clients"},
}

// calm is the default value of [health.calm].
const calm = 5 * time.Second

// health is the state of one Redis, as observed in calls by all clients in this process. It
// only observes. Callers decide what to do without Redis.
type health struct {
	breaker *outage.Breaker
	// calm is how long Redis must accept all writes before it counts as recovered. A Redis that is
	// close to its memory limit rejects some writes and accepts others.
	calm    time.Duration
	failing atomic.Bool  // the last call failed, or the breaker is open
	refused atomic.Int64 // when Redis last answered but rejected a write, Unix ns

	mu     sync.Mutex
	client redis.UniversalClient // the client from the last [Open], used by the probe
}

var (
	healthsMu sync.Mutex
	healths   = map[string]*health{} // by address
)

// healthOf returns the health of the Redis at an address. It uses client for the probes.
func healthOf(address string, client redis.UniversalClient) *health {
	healthsMu.Lock()
	defer healthsMu.Unlock()
	h := healths[address]
	if h == nil {
		h = &health{calm: calm}
		h.breaker = outage.New(outage.Config{Name: "Redis", Says: "does not answer or refuses writes; work continues without it",
			Failures: 5, Over: time.Second, Rest: time.Second, Probe: h.probe})
		healths[address] = h
	}
	h.mu.Lock()
	h.client = client
	h.mu.Unlock()
	return h
}

// probe sends a write because a Redis that only answers reads has not recovered.
func (h *health) probe(ctx context.Context) error {
	h.mu.Lock()
	client := h.client
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := client.Set(ctx, "lr:probe", 1, time.Minute).Err()
	switch {
	case errors.Is(err, redis.ErrClosed):
		return nil // this Redis is no longer used
	case err == nil && time.Since(time.Unix(0, h.refused.Load())) < h.calm:
		return errors.New("it refused a write recently")
	}
	return err
}

// heard records a call's outcome.
func (h *health) heard(err error, took time.Duration) {
	reason := reasonOf(err, took)
	if reason == "" {
		if h.failing.Load() && (err == nil || errors.Is(err, redis.Nil)) {
			h.failing.Store(false)
			h.breaker.Note(nil)
		}
		return
	}
	measured.Failed(reason)
	h.failing.Store(true)
	if reason == memory || reason == disk {
		h.refused.Store(time.Now().UnixNano())
		h.breaker.Open(err) // reads may still work, so do not wait for consecutive failures
		return
	}
	h.breaker.Note(err)
}

// watch is the hook that measures a client's calls.
type watch struct {
	*health
	calls *metrics.Calls
}

func (w watch) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		w.ended(operationOf(cmd), err, time.Since(began))
		return err
	}
}

func (w watch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		w.ended("pipeline", err, time.Since(began))
		return err
	}
}

func (w watch) ended(operation string, err error, took time.Duration) {
	w.calls.Took(operation, took)
	w.heard(err, took)
}
