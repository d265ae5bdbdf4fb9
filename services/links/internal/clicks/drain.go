package clicks

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// retry is the pause between tries to reach Redis again.
const retry = 250 * time.Millisecond

// Run drains the spool, repeats announcements that failed, and takes over what
// dead processes left, until ctx ends. It then brings the last clicks into Redis
// if that is possible within a moment; else they wait in the spool.
func (l *Log) Run(ctx context.Context) error {
	l.adopt(ctx)
	tick := time.NewTicker(retry)
	defer tick.Stop()
	adopt := time.NewTicker(5 * time.Second)
	defer adopt.Stop()
	for {
		select {
		case <-ctx.Done():
			return l.close()
		case <-adopt.C:
			l.adopt(ctx)
		case <-l.announcer.wake:
		case <-tick.C:
		}
		l.drain(ctx)
		l.repeat(ctx)
	}
}

func (l *Log) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	l.mu.Lock()
	l.quit = true
	rest := l.open
	l.mu.Unlock()
	if len(rest.items) > 0 {
		<-rest.done
	}
	close(l.wake)
	<-l.stopped
	l.drain(ctx)
	l.repeat(ctx)
	l.state.Lock()
	defer l.state.Unlock()
	return errors.Join(l.state.spool.close(), l.fast.Close(), l.slow.Close())
}

// drain brings the spool into Redis and, once it is empty and all invalidations
// are heard, ends the spooling.
func (l *Log) drain(ctx context.Context) {
	st := &l.state
	for ctx.Err() == nil {
		st.Lock()
		if !st.spooling {
			st.Unlock()
			return
		}
		records, err := st.spool.next(1 << 20)
		if err != nil {
			slog.Error("click spool", "error", err)
		}
		at, force := st.at, st.force
		st.Unlock()
		if len(records) == 0 {
			if l.back(ctx, at) {
				return
			}
			continue
		}
		for _, rec := range records {
			r, err := send(ctx, l.slow, at, l.producer, rec.batch, rec.payload, force)
			if err != nil {
				return
			}
			if r.verdict == gap { // without the lock: redirects need it, and this takes its time
				st.Lock()
				list := slices.Clone(st.kept)
				st.Unlock()
				l.resend(l.slow, at, list, r.last, l.hearLocked)
			}
			st.Lock()
			switch r.verdict {
			case accepted:
				st.force, force = false, false
				l.keep(rec.batch, rec.payload)
				err = st.spool.drained(rec.size)
			case gap:
				st.force = true
			default:
				l.hear(r)
			}
			st.Unlock()
			if err != nil {
				slog.Error("click spool", "error", err)
			}
			if r.verdict != accepted {
				break // with what was learned, from this record on
			}
		}
	}
}

func (l *Log) hearLocked(r reply) position {
	l.state.Lock()
	defer l.state.Unlock()
	return l.hear(r)
}

// back asks Redis whether all is heard, and returns to it when the spool is
// still empty then. It reports whether there is nothing more to do for now.
func (l *Log) back(ctx context.Context, at position) bool {
	r, err := send(ctx, l.slow, at, l.producer, 0, nil, false)
	if err != nil {
		return true
	}
	st := &l.state
	st.Lock()
	defer st.Unlock()
	if r.verdict != accepted {
		l.hear(r)
		return false
	}
	if !st.spool.empty() {
		return false
	}
	st.spooling = false
	l.targets.SetSynced(true)
	spooling.Set(0)
	slog.Info("clicks go to redis again")
	return true
}

// adopt brings in what processes that are no more have left in the directory.
func (l *Log) adopt(ctx context.Context) {
	spools, producers := leftSpools(l.cfg.SpoolDir, l.producer)
	for i, s := range spools {
		l.adoptOne(ctx, s, producers[i])
		if err := s.close(); err != nil {
			slog.Error("click spool", "error", err)
		}
	}
}

func (l *Log) adoptOne(ctx context.Context, s *spool, producer string) {
	n, force := 0, false
	for ctx.Err() == nil {
		records, err := s.next(1 << 20)
		if err != nil || len(records) == 0 {
			if n > 0 {
				slog.Info("took over the clicks of a process that is gone", "producer", producer, "batches", n)
			}
			return
		}
		for _, rec := range records {
			l.state.Lock()
			at := l.state.at
			l.state.Unlock()
			r, err := send(ctx, l.slow, at, producer, rec.batch, rec.payload, force)
			if err != nil {
				return // later
			}
			switch r.verdict {
			case accepted:
				n, force = n+1, false
				if err := s.drained(rec.size); err != nil {
					slog.Error("click spool", "error", err)
					return
				}
				continue
			case gap:
				force = true // its producer is not there to fill it
			default:
				l.state.Lock()
				l.hear(r)
				l.state.Unlock()
			}
			break
		}
	}
}

// announcer keeps invalidations that could not be announced.
type announcer struct {
	mu      sync.Mutex
	pending map[string]bool
	wake    chan struct{}
}

func (a *announcer) nudge() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *announcer) add(keys []string) {
	a.mu.Lock()
	if a.pending == nil {
		a.pending = map[string]bool{}
	}
	for _, k := range keys {
		a.pending[k] = true
	}
	a.mu.Unlock()
	a.nudge()
}

func (a *announcer) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	keys := make([]string, 0, len(a.pending))
	for k := range a.pending {
		keys = append(keys, k)
	}
	a.pending = nil
	return keys
}

// announceBudget is how long the author of a change waits for Redis.
const announceBudget = 300 * time.Millisecond

// Announce tells every replica that keys have changed. When it returns, no
// replica that reaches Redis gives an answer from before. While Redis is away
// the announcement is repeated in the background, and replicas trust their
// memory for seconds only.
func (l *Log) Announce(ctx context.Context, keys ...string) {
	if len(keys) == 0 {
		return
	}
	l.targets.Invalidate(keys...)
	l.state.Lock()
	away := l.state.spooling
	l.state.Unlock()
	if !away {
		// The change is made: its announcement must not end with the request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceBudget)
		defer cancel()
		if l.announce(ctx, keys) == nil {
			return
		}
	}
	l.announcer.add(keys)
}

func (l *Log) announce(ctx context.Context, keys []string) error {
	return announceScript.Run(ctx, l.slow, []string{keyHead, keyInv}, strings.Join(keys, "\n"), l.producer).Err()
}

func (l *Log) repeat(ctx context.Context) {
	keys := l.announcer.take()
	if len(keys) == 0 {
		return
	}
	if err := l.announce(ctx, keys); err != nil {
		l.announcer.mu.Lock()
		if l.announcer.pending == nil {
			l.announcer.pending = map[string]bool{}
		}
		for _, k := range keys {
			l.announcer.pending[k] = true
		}
		l.announcer.mu.Unlock()
	}
}

// Synced reports whether Redis is in use; it is for readiness and tests.
func (l *Log) Synced() bool {
	l.state.Lock()
	defer l.state.Unlock()
	return !l.state.spooling
}
