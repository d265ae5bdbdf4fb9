package clicks

import (
	"context"
	"log/slog"
	"time"
)

const (
	// probeFirst and probeMax are between probes of a Redis that is away. A Redis
	// that comes and goes is probed less and less, since each loss makes all answers
	// uncertain for a second.
	probeFirst = 20 * time.Millisecond
	probeMax   = 2 * time.Second
	calm       = 5 * time.Second
	// idle is how long a partition without redirects goes unasked. Its server may
	// change meanwhile, and with it the clicks of the last seconds may be gone.
	idle = time.Second
)

// tend returns to Redis after an outage, drains the spool, and asks once a second
// when no redirect does.
func (l *lane) tend(ctx context.Context) {
	var due, regained time.Time
	pause, checked := probeFirst, time.Time{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wakeTend:
		case <-timer.C:
		}
		now := time.Now() // the pace of probes, not a fact of the domain
		wasAway := l.away.Load()
		switch {
		case !wasAway:
			if !regained.IsZero() && now.Sub(regained) > calm {
				pause = probeFirst
			}
		case now.Before(due):
		case l.probe(ctx):
			regained = time.Now()
			pause = min(2*pause, probeMax) // kept for a loss that follows soon
		default:
			due = time.Now().Add(min(pause, 250*time.Millisecond))
			if now.Sub(regained) < calm {
				due = time.Now().Add(pause)
			}
		}
		more := l.drain(ctx, due)
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

// probe asks Redis whether it answers within the redirects' budget, and returns to
// it if so. What may not have arrived goes along. A Redis that answers later than
// that is not returned to, however reliably it does.
func (l *lane) probe(ctx context.Context) bool {
	for range 64 {
		l.state.Lock()
		list, all := l.live.missing(nil, l.caller.room())
		force, before := l.live.skips(list), l.live.acked
		l.state.Unlock()
		r, err := l.caller.call(ctx, l.log.fast, l.live.name, list, force)
		if err != nil {
			return false
		}
		l.state.Lock()
		caughtUp := l.follower.Hear(r.news)
		l.live.learn(before, r.last)
		if ready := caughtUp && all && r.code != gap; ready {
			l.regain()
			l.state.Unlock()
			return true
		}
		l.state.Unlock()
	}
	return false
}

// drain brings the spool into Redis, many batches a call, and reports whether
// something is left that has to wait. While redirects add to the spool it gives way
// to the probe that is due: it may never find the spool empty.
func (l *lane) drain(ctx context.Context, due time.Time) (more bool) {
	for ctx.Err() == nil {
		l.state.Lock()
		run, err := l.spool.next(l.caller.room())
		acked := l.live.acked
		l.state.Unlock()
		if err != nil {
			slog.ErrorContext(ctx, "click spool", "error", err)
		}
		if len(run) == 0 {
			return false
		}
		if l.away.Load() && !time.Now().Before(due) {
			return true
		}
		if !run[0].late {
			// They are here for a successor's sake: this process has them in memory, and
			// they go with the next live call.
			done := upTo(run, acked)
			if done > 0 {
				l.drained(run[:done])
				continue
			}
			if !l.sendLive(ctx) {
				return true
			}
			continue
		}
		if !l.sendLate(ctx, run) {
			return true
		}
	}
	return false
}

// sendLive sends live batches that may not have arrived, with the patience that
// redirects do not have.
func (l *lane) sendLive(ctx context.Context) bool {
	l.state.Lock()
	list, _ := l.live.missing(nil, l.caller.room())
	force, before := l.live.skips(list), l.live.acked
	l.state.Unlock()
	r, err := l.caller.call(ctx, l.log.slow, l.live.name, list, force)
	if err != nil {
		return false
	}
	l.state.Lock()
	defer l.state.Unlock()
	l.follower.Hear(r.news)
	l.live.learn(before, r.last)
	return r.last != before
}

// sendLate sends spooled batches, behind those that Redis may have lost since
// they were sent. It reports whether the spool got shorter or the next call is
// worth a try.
func (l *lane) sendLate(ctx context.Context, run []record) bool {
	l.state.Lock()
	list, all := l.late.missing(nil, l.caller.room())
	if all {
		list = append(list, numberedOf(run)...)
	}
	force := l.late.skips(list)
	before := l.late.acked
	l.state.Unlock()
	r, err := l.caller.call(ctx, l.log.slow, l.late.name, list, force)
	if err != nil {
		return false
	}
	l.state.Lock()
	l.follower.Hear(r.news)
	l.late.learn(before, r.last)
	l.state.Unlock()
	done := upTo(run, r.last)
	l.drained(run[:done])
	if r.code == full {
		return false
	}
	return done > 0 || r.last != before
}

// drained forgets records that are in Redis, except for a copy of the last seconds.
func (l *lane) drained(run []record) {
	if len(run) == 0 {
		return
	}
	l.state.Lock()
	defer l.state.Unlock()
	now := l.log.cfg.Now()
	for _, r := range run {
		if r.late {
			l.late.keep(numbered{r.number, r.payload, now}, l.log.cfg.Keep)
		}
	}
	if err := l.spool.drained(run); err != nil {
		slog.Error("click spool", "error", err)
	}
}

// check asks whether Redis still has what it had. For the live batches the
// redirects' own calls do that, if there are any.
func (l *lane) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if time.Since(time.Unix(0, l.usedAt.Load())) > idle {
		l.checkOne(ctx, &l.live)
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
		l.state.Lock()
		list, _ := p.missing(nil, l.caller.room())
		force, before := p.skips(list), p.acked
		l.state.Unlock()
		r, err := l.caller.call(ctx, l.log.slow, p.name, list, force)
		if err != nil {
			return // the redirects' calls find out for themselves
		}
		if r.last < before {
			slog.WarnContext(ctx, "redis has lost clicks; what was kept is sent again", "partition", l.caller.part, "from", r.last+1, "to", before)
		}
		l.state.Lock()
		caughtUp := l.follower.Hear(r.news)
		p.learn(before, r.last)
		list, _ = p.missing(nil, 1)
		l.state.Unlock()
		if r.code == full || caughtUp && len(list) == 0 {
			return
		}
	}
}

// close settles what is open, brings the rest into Redis if that works at once,
// and leaves the spool to the next process otherwise.
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
		l.sendLive(ctx)
	}
	l.drain(ctx, time.Now().Add(time.Hour)) // nothing adds to it any more, and nobody probes
	l.state.Lock()
	defer l.state.Unlock()
	return l.spool.empty(), l.spool.close()
}
