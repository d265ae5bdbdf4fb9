package clicks

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// probeFirst and probeMax bound the pause between probes while Redis is not answering. If Redis
	// is lost repeatedly, it is probed less often because each loss makes all cached entries
	// uncertain for a second.
	probeFirst = 20 * time.Millisecond
	probeMax   = 2 * time.Second
	calm       = 5 * time.Second
	// idle is the interval between checks of a partition without redirects. The partition's server
	// may be replaced, and the new server may lack the clicks from the last few seconds.
	idle = time.Second
)

// tend switches back to Redis after an outage, drains the spool, and checks Redis once per second
// while there are no redirects.
func (l *lane) tend(ctx context.Context) {
	var due, regained time.Time
	pause, checked, held := probeFirst, time.Time{}, false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wakeTend:
		case <-timer.C:
		}
		now := time.Now() // real time because this only paces the probes
		wasAway := l.away.Load()
		switch {
		case !wasAway:
			if !regained.IsZero() && now.Sub(regained) > calm {
				pause = probeFirst
			}
		case now.Before(due):
		case l.probe(ctx):
			regained = time.Now()
			pause = min(2*pause, probeMax) // in case Redis is lost again soon
		default:
			due = time.Now().Add(min(pause, 250*time.Millisecond))
			if now.Sub(regained) < calm {
				due = time.Now().Add(pause)
			}
		}
		more := l.drain(ctx, due)
		held = l.tellSpooling(held)
		if !l.away.Load() && now.Sub(checked) > idle {
			checked = now
			l.check(ctx)
		}
		switch {
		case more:
			timer.Reset(50 * time.Millisecond)
		case l.away.Load():
			timer.Reset(max(time.Until(due), probeFirst))
		default:
			timer.Reset(idle / 4)
		}
	}
}

// tellSpooling reports in a metric whether the lane uses its spool. A full Redis is not away, but
// its clicks are in the spool too. before is the result of the last call.
func (l *lane) tellSpooling(before bool) (now bool) {
	l.state.Lock()
	now = l.away.Load() || !l.spool.empty()
	l.state.Unlock()
	switch {
	case now && !before:
		spooling.Inc()
	case before && !now:
		spooling.Dec()
	}
	return now
}

// probe checks whether Redis answers within the redirects' budget, and switches back to Redis if it
// does. The call also sends the batches that Redis may lack. A Redis that consistently answers too
// slowly is still treated as lost.
func (l *lane) probe(ctx context.Context) bool {
	for range 64 {
		s, err := l.send(ctx, l.log.fast, &l.live, nil)
		if err != nil {
			return false
		}
		if s.caughtUp && s.all && s.code != gap {
			l.state.Lock()
			defer l.state.Unlock()
			l.regain()
			return true
		}
	}
	return false
}

// sent is the result of a call to send.
type sent struct {
	reply
	before   int64 // last batch that Redis was known to have before the call
	all      bool  // whether the call had room for all of the producer's batches
	caughtUp bool  // see [invalidation.Follower.Hear]
}

// send sends the producer's batches that Redis may lack. If all of them fit, it also sends the
// records in more.
func (l *lane) send(ctx context.Context, client redis.Scripter, p *producer, more []record) (s sent, err error) {
	l.state.Lock()
	list, all := p.missing(nil, l.caller.room())
	if all {
		list = append(list, numberedOf(more)...)
	}
	force := p.skips(list)
	s.before, s.all = p.acked, all
	l.state.Unlock()
	if s.reply, err = l.caller.call(ctx, client, p.name, list, force); err != nil {
		return s, err
	}
	l.state.Lock()
	defer l.state.Unlock()
	s.caughtUp = l.follower.Hear(s.news)
	p.learn(s.before, s.last)
	return s, nil
}

// drain sends the spool to Redis, many batches per call, and reports whether to call it again soon.
// While Redis is lost, drain stops when a probe is due, but not before its first step. Otherwise
// it might never stop, because redirects add to the spool, or, with a Redis that is slower than
// the pause between two probes, never send anything.
func (l *lane) drain(ctx context.Context, due time.Time) (more bool) {
	if l.away.Load() && !l.answersSlowly(ctx) {
		return false
	}
	for steps := 0; ctx.Err() == nil; steps++ {
		l.state.Lock()
		run, err := l.spool.next(l.caller.room())
		acked := l.live.acked
		l.state.Unlock()
		if err != nil {
			slog.ErrorContext(ctx, "cannot read clicks from the spool; retrying", "error", err)
		}
		if len(run) == 0 {
			return false
		}
		if steps > 0 && l.away.Load() && !time.Now().Before(due) {
			return true
		}
		if !run[0].late {
			// Live batches are in the spool only in case this process dies. As long as it is
			// running, it has them in memory and sends them with the next live call.
			done := upTo(run, acked)
			if done > 0 {
				l.drained(run[:done])
				continue
			}
			// Send with a longer timeout than redirects have.
			if s, err := l.send(ctx, l.log.slow, &l.live, nil); err != nil || s.last == s.before {
				return !l.away.Load()
			}
			continue
		}
		if !l.sendLate(ctx, run) {
			return !l.away.Load()
		}
	}
	return false
}

// answersSlowly reports whether a Redis that is too slow for redirects can still accept the clicks
// in the spool. It does not read the spool, because reads get more expensive the longer the outage
// lasts.
func (l *lane) answersSlowly(ctx context.Context) bool {
	l.state.Lock()
	empty := l.spool.empty()
	l.state.Unlock()
	if empty {
		return false
	}
	_, err := l.send(ctx, l.log.slow, &l.late, nil)
	return err == nil
}

// sendLate sends spooled batches, after resending earlier batches that Redis may have lost. It
// reports whether it shortened the spool, or another call may do so.
func (l *lane) sendLate(ctx context.Context, run []record) bool {
	s, err := l.send(ctx, l.log.slow, &l.late, run)
	if err != nil {
		return false
	}
	done := upTo(run, s.last)
	l.drained(run[:done])
	return s.code != full && (done > 0 || s.last != s.before)
}

// drained removes from the spool the records that Redis has received. It keeps their late batches
// in memory for a few seconds, in case Redis loses them.
func (l *lane) drained(run []record) {
	if len(run) == 0 {
		return
	}
	l.state.Lock()
	defer l.state.Unlock()
	now := l.log.cfg.Now()
	for _, r := range run {
		if r.late {
			l.late.keep(numbered{r.number, r.payload, now})
		}
	}
	if err := l.spool.drained(run); err != nil {
		slog.Error("cannot remove sent clicks from the spool; they may be sent again", "error", err)
	}
}

// check detects whether Redis has lost batches or is out of memory. It skips the live batches while
// there are redirects because the redirects' calls already detect this.
func (l *lane) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if time.Since(time.Unix(0, l.usedAt.Load())) > idle {
		l.checkOne(ctx, &l.live)
	}
	if l.refused.Swap(false) {
		// Either the click log has reached its limit, or Redis is out of memory. Another write
		// shows which, and the client records its outcome (see redisdb).
		_ = l.log.slow.Set(ctx, "lr:probe", 1, time.Minute).Err()
	}
	l.state.Lock()
	unused := l.late.next == 1
	l.state.Unlock()
	if !unused {
		l.checkOne(ctx, &l.late)
	}
}

func (l *lane) checkOne(ctx context.Context, p *producer) {
	for range 64 {
		s, err := l.send(ctx, l.log.slow, p, nil)
		if err != nil {
			return // redirects' calls get the same error
		}
		if s.last < s.before {
			slog.WarnContext(ctx, "Redis has lost clicks; sending them again", "partition", l.caller.part, "from", s.last+1, "to", s.before)
		}
		l.state.Lock()
		list, _ := p.missing(nil, 1)
		l.state.Unlock()
		if s.code == full || s.caughtUp && len(list) == 0 {
			return
		}
	}
}

// close settles the open batch and tries once to send the rest to Redis. If that fails, it leaves
// the spool for the next process.
func (l *lane) close(ctx context.Context) (empty bool, err error) {
	l.mu.Lock()
	l.quit = true
	waited, done := len(l.open.items) > 0, l.open.done
	l.mu.Unlock()
	if waited {
		<-done
	}
	close(l.wake)
	<-l.stopped
	if l.away.Load() {
		_, _ = l.send(ctx, l.log.slow, &l.live, nil) // batches that do not arrive are kept in the spool
	}
	l.drain(ctx, time.Now().Add(time.Hour)) // nothing more is added to the spool, so drain need not stop for a probe
	l.state.Lock()
	defer l.state.Unlock()
	return l.spool.empty(), l.spool.close()
}
