package clicks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Config configures click storage.
type Config struct {
	Redis redisdb.Config
	// Bytes limits the size of the click log in Redis, across all partitions.
	Bytes int64
	// SpoolDir is the directory where clicks are stored while Redis is unreachable. It must outlive
	// the process.
	SpoolDir string
	// SpoolMax limits the spool in bytes. Clicks that do not fit are lost, and a metric counts
	// them.
	SpoolMax int64
	// Budget is how long a redirect waits for Redis before its click is spooled.
	Budget time.Duration
	Now    func() time.Time
}

// Answer is a redirect that can be sent once it is confirmed.
type Answer interface {
	// Partition returns the partition whose log confirms the response.
	Partition() int
	// Current returns false if anything the response depends on has been invalidated.
	Current() bool
	// Expired reports whether the response is too old to be sent unconfirmed.
	Expired() bool
}

// Outcome is the result of [Log.Confirm].
type Outcome struct {
	// Again means that the response is stale and the caller must resolve the URL again.
	Again bool
	// Counted means that the click is durable. The caller must not pass it to Confirm again.
	Counted bool
}

// Log collects clicks and confirms responses. It is safe for concurrent use.
type Log struct {
	cfg   Config
	id    string
	fast  redis.UniversalClient // for calls within the redirect's budget
	slow  redis.UniversalClient // for calls without a waiting redirect
	lanes []*lane
}

// Open returns a log for all of memory's partitions. Redis may be down.
func Open(cfg Config, memory *invalidation.Memory) (*Log, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Budget <= 0 {
		cfg.Budget = 50 * time.Millisecond
	}
	if cfg.SpoolMax <= 0 {
		cfg.SpoolMax = 64 << 20
	}
	if cfg.Bytes <= 0 {
		cfg.Bytes = 64 << 20
	}
	if err := os.MkdirAll(cfg.SpoolDir, 0o700); err != nil {
		return nil, fmt.Errorf("click spool directory: %w", err)
	}
	l := &Log{cfg: cfg, id: identity.NewNonce()}
	n := memory.Partitions()
	var err error
	if l.fast, err = openRedis(cfg.Redis, cfg.Budget, 2*n); err != nil {
		return nil, err
	}
	if l.slow, err = openRedis(cfg.Redis, 5*time.Second, 2*n+2); err != nil {
		return nil, errors.Join(err, l.fast.Close())
	}
	for part := range n {
		lane, err := newLane(l, part, n, memory.Follow(part))
		if err != nil {
			return nil, errors.Join(err, l.fast.Close(), l.slow.Close())
		}
		l.lanes = append(l.lanes, lane)
	}
	for _, lane := range l.lanes {
		go lane.run()
	}
	return l, nil
}

// openRedis returns a client with the given timeout for calls.
func openRedis(cfg redisdb.Config, timeout time.Duration, conns int) (redis.UniversalClient, error) {
	cfg.Timeout, cfg.PoolTimeout, cfg.PoolSize, cfg.MinIdle, cfg.Untraced = timeout, timeout, conns, 1, true
	return redisdb.Open(cfg)
}

// Ping connects to Redis.
func (l *Log) Ping(ctx context.Context) error {
	if err := l.fast.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ping click log: %w", err)
	}
	return nil
}

// Confirm makes click durable and reports whether answer may be sent. click is nil for a visit that
// is not counted.
func (l *Log) Confirm(answer Answer, click *link.Click) Outcome {
	return l.lanes[answer.Partition()].confirm(item{answer: answer, click: click})
}

// Undo removes a click that was counted even though its response was not sent.
func (l *Log) Undo(answer Answer, click link.Click) {
	l.lanes[answer.Partition()].confirm(item{click: &click, undo: true})
}

// Run maintains the log until ctx is done. It drains the spool, returns to Redis after an outage,
// and takes over dead processes' spools. Before returning, it tries for a few seconds to write the
// last clicks to Redis. Clicks that it cannot write remain in the spool.
func (l *Log) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, lane := range l.lanes {
		wg.Go(func() { lane.tend(ctx) })
	}
	wg.Go(func() { l.register(ctx) })
	wg.Go(func() {
		for {
			pause := 5 * time.Second
			if l.adopt(ctx) {
				pause = cycle / 2 // Redis was full; retry soon because the flusher is freeing memory
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
	wg.Wait()
	return l.close()
}

func (l *Log) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	var errs []error
	left := false
	for _, lane := range l.lanes {
		empty, err := lane.close(ctx)
		left = left || !empty
		errs = append(errs, err)
	}
	if !left { // otherwise, the process that takes over the spool signs off this one
		_ = l.slow.HDel(ctx, producersKey, l.id).Err() // if this fails, the process is counted as missing
	}
	return errors.Join(append(errs, l.fast.Close(), l.slow.Close())...)
}

// adopt sends to Redis the clicks that dead processes left in the directory, and signs these
// processes off. It reports whether it sent some clicks and more are left.
func (l *Log) adopt(ctx context.Context) (more bool) {
	left := map[string]bool{} // by process: whether some of its clicks are left
	for _, s := range leftSpools(l.cfg.SpoolDir, l.id) {
		batches, err := 0, ctx.Err()
		if err == nil {
			batches, err = l.adoptOne(ctx, s)
		}
		if batches > 0 {
			slog.WarnContext(ctx, "took over a dead process's clicks", "process", s.id, "batches", batches, "error", err)
		}
		left[s.id] = left[s.id] || !s.empty()
		more = more || batches > 0 && !s.empty()
		if err := s.close(); err != nil {
			slog.ErrorContext(ctx, "cannot close a dead process's spool", "error", err)
		}
	}
	for id, some := range left {
		if !some {
			_ = l.slow.HDel(ctx, producersKey, id).Err() // if this fails, the process is counted as missing
		}
	}
	return more
}

func (l *Log) adoptOne(ctx context.Context, s *spool) (batches int, err error) {
	c := newCaller(s.part, l.id, l.laneBytes(), nil)
	for ctx.Err() == nil {
		run, err := s.next(c.room())
		if err != nil || len(run) == 0 {
			return batches, err
		}
		name, list := sequenceName(s.id, run[0].late), numberedOf(run)
		r, err := c.call(ctx, l.slow, name, list, false)
		if err == nil && r.code == gap && list[0].number > r.last+1 {
			// Accept the gap because the process that could fill it has died. The flusher counts
			// the missing clicks as lost.
			r, err = c.call(ctx, l.slow, name, list, true)
		}
		if err != nil {
			return batches, err
		}
		done := upTo(run, r.last)
		if done == 0 && len(run) == 1 {
			return batches, nil // Redis is full; the next call will retry
		}
		batches += done
		if err := s.drained(run[:done]); err != nil {
			return batches, err
		}
	}
	return batches, ctx.Err()
}

func (l *Log) laneBytes() int64 { return l.cfg.Bytes / int64(max(len(l.lanes), 1)) }
