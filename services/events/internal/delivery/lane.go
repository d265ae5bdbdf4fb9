package delivery

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Sizes of lanes and pools.
const (
	// laneSize is how many deliveries a lane holds in memory, running ones included.
	laneSize = 32
	// refill is at how few waiting ones a lane looks for more.
	refill = 8
	// abreast is how many attempts a lane runs at once while its receiver answers.
	abreast = 4
	// maxGood and maxBad bound the attempts of a replica, in lanes whose last attempt
	// went well (or that have made none) and in those that fail.
	maxGood = 1_000
	maxBad  = 500
	// accounts is the part of a pool that no account exceeds: a twentieth.
	accounts = 20
	// silence is for how long what a suspended account's webhook would be sent is
	// put off at a time. It does not have to end with that: lifting the suspension has
	// it sent, by any replica (tenancy.Service.Look).
	silence = 6 * time.Hour
	// again is when a lane asks again whose deliveries could not be read.
	again = 5 * time.Second
)

// lane is one webhook's part of the work. The engine's mutex guards it.
type lane struct {
	webhook string
	account string

	queue    []job
	reserved int // promised by reserve to deliveries that are being committed
	running  int
	failing  bool // the last attempt failed
	more     bool // Firestore may have more
	loading  bool
	queued   bool // waits in a pool
	timer    *time.Timer
	timerAt  time.Time
}

type job struct {
	delivery *webhook.Delivery
	event    *feed.Event // nil: to be read
}

func (l *lane) held() int { return len(l.queue) + l.running + l.reserved }

// lane finds or makes a webhook's lane; the caller holds the mutex.
func (e *Engine) lane(accountID, webhookID string) *lane {
	l := e.lanes[webhookID]
	if l == nil {
		l = &lane{webhook: webhookID, account: accountID}
		e.lanes[webhookID] = l
	}
	if accountID != "" {
		l.account = accountID
	}
	return l
}

// reserve promises room for a delivery that is about to be stored. A lane that
// has none is told that there is more before it is stored, so that it looks.
func (e *Engine) reserve(webhookID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lane("", webhookID)
	// What waits in Firestore already is older and goes first.
	if l.failing && l.held() >= refill || l.held() >= laneSize || l.more || l.loading {
		l.more = true
		return false
	}
	l.reserved++
	return true
}

// unreserve takes promises back whose commit failed.
func (e *Engine) unreserve(list []*webhook.Delivery) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range list {
		if !d.Deferred {
			l := e.lane("", d.WebhookID)
			l.reserved = max(0, l.reserved-1)
		}
	}
}

// accept takes a delivery that was just stored.
func (e *Engine) accept(d *webhook.Delivery, ev *feed.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lane(d.AccountID, d.WebhookID)
	if d.Deferred {
		l.more = true // again: the lane may have looked before the commit
		if e.stopped {
			e.late = append(e.late, d) // it will not look
		}
	} else {
		l.reserved = max(0, l.reserved-1)
		l.queue = append(l.queue, job{d, ev})
	}
	e.pump(l)
}

// Send looks after a webhook's due deliveries.
func (e *Engine) Send(accountID, webhookID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lane(accountID, webhookID)
	l.more = true
	e.pump(l)
}

// pump starts what the lane may start; the caller holds the mutex.
func (e *Engine) pump(l *lane) {
	if e.stopped {
		return
	}
	for len(l.queue) > 0 && l.running < l.limit() {
		p := e.good
		if l.failing {
			p = e.bad
		}
		if !p.take(l.account) {
			if !l.queued {
				l.queued = true
				p.wait(l)
			}
			break
		}
		j := l.queue[0]
		l.queue = l.queue[1:]
		l.running++
		e.busy.Add(1)
		go e.run(l, p, j)
	}
	// A failing lane makes one attempt at a time, so it takes nothing more in hand while something
	// waits.
	if l.more && !l.loading && len(l.queue) <= refill && !(l.failing && len(l.queue) > 0) {
		l.more, l.loading = false, true
		e.busy.Add(1)
		go e.load(l)
	}
	// A failing lane is kept: its next delivery has to begin in the slots of those that fail.
	if l.held() == 0 && !l.more && !l.loading && !l.queued && l.timer == nil && !l.failing {
		delete(e.lanes, l.webhook)
	}
}

func (l *lane) limit() int {
	if l.failing {
		return 1
	}
	return abreast
}

// release gives an account's slot back and lets the next lane in.
func (e *Engine) release(p *pool, account string) {
	p.give(account)
	for l := p.next(); l != nil; l = p.next() {
		l.queued = false
		e.pump(l)
	}
}

// load fetches deliveries that wait in Firestore.
func (e *Engine) load(l *lane) {
	defer e.busy.Done()
	e.mu.Lock()
	n := max(1, laneSize-l.held())
	if l.failing {
		n = max(1, refill-l.held())
	}
	account := l.account
	e.mu.Unlock()
	taken, more, err := e.claim(account, l.webhook, n)
	if err != nil {
		slog.WarnContext(e.ctx, "due deliveries cannot be read", "webhook", l.webhook, "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	l.loading = false
	for _, d := range taken {
		l.queue = append(l.queue, job{delivery: d})
	}
	l.more = l.more || more || err != nil
	if err != nil {
		// Not at once, which would be a loop while Firestore is away; and not never, since what is
		// deferred is due by itself only much later.
		e.wake(l, e.opt.Now().Add(again))
		return
	}
	e.pump(l)
}

// claim takes deliveries in hand, or puts them off while the account is suspended.
func (e *Engine) claim(accountID, webhookID string, n int) (taken []*webhook.Delivery, more bool, err error) {
	_, silent, err := e.store.Receiver(e.ctx, accountID, webhookID)
	if err != nil && !gone(err) { // what is gone is claimed and dropped
		return nil, false, err
	}
	if !silent {
		return e.store.Claim(e.ctx, webhookID, n)
	}
	if more, err = e.store.PutOff(e.ctx, webhookID, laneSize, e.opt.Now().Add(silence)); err != nil {
		return nil, false, err
	}
	return nil, more || e.resumed(accountID, webhookID), nil
}

// resumed reports whether an account that was suspended a moment ago may be sent
// things again. Whoever has put something off asks: whoever lifted the suspension
// may have looked for it just before.
func (e *Engine) resumed(accountID, webhookID string) bool {
	_, silent, err := e.store.Receiver(e.ctx, accountID, webhookID)
	return err == nil && !silent
}

// at looks after a lane at a time when one of its deliveries is due. A sweep would
// find it too, some seconds later.
func (e *Engine) at(l *lane, due time.Time) {
	// The sweep finds it. A timer would keep the lane in memory for hours.
	if due.Sub(e.opt.Now()) > 10*time.Minute {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wake(l, due)
}

// wake makes the lane look at that time; the caller holds the mutex.
func (e *Engine) wake(l *lane, due time.Time) {
	if e.stopped {
		return
	}
	// One timer a lane, for the earliest: a timer for each delivery would have no
	// bound, and the sweep finds the others.
	if l.timer != nil {
		if !due.Before(l.timerAt) {
			return
		}
		l.timer.Stop()
	}
	l.timerAt = due
	l.timer = time.AfterFunc(max(due.Sub(e.opt.Now()), 0), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		l.timer = nil
		l.more = true
		e.pump(l)
	})
}

// run makes an attempt and what follows from it.
func (e *Engine) run(l *lane, p *pool, j job) {
	defer e.busy.Done()
	e.mu.Lock()
	before := !l.failing
	e.mu.Unlock()
	ok, next := e.attempt(j, before)
	e.mu.Lock()
	l.running--
	// Before the slot is given back, so that the next attempt begins in the right pool.
	l.failing = !ok
	e.release(p, l.account)
	e.pump(l)
	e.mu.Unlock()
	if !next.IsZero() {
		e.at(l, next)
	}
}

// attempt makes one try of a delivery: it reports whether the lane is in order, which
// is as before where nothing was learned of the receiver, and when the delivery is due
// again.
func (e *Engine) attempt(j job, before bool) (ok bool, next time.Time) {
	d := j.delivery
	ctx := e.ctx
	// A delivery that has waited in memory for too long may be somebody else's by
	// now, or become it during the call.
	if now := e.opt.Now(); d.DueAt.Sub(now) < webhook.Lease/2 {
		d.DueAt = now.Add(webhook.Lease)
		if mine, err := e.store.Save(ctx, d); err != nil || !mine {
			return before, time.Time{}
		}
	}
	w, silent, err := e.store.Receiver(ctx, d.AccountID, d.WebhookID)
	if gone(err) {
		if err := e.store.Drop(ctx, d.ID); err != nil {
			slog.DebugContext(ctx, "delivery of a deleted webhook not dropped yet", "error", err)
		}
		return true, time.Time{} // a failing lane would be kept for ever
	}
	if err != nil {
		// The delivery becomes due again when its lease ends.
		slog.WarnContext(ctx, "webhook cannot be read; its delivery waits", "webhook", d.WebhookID, "error", err)
		return before, time.Time{}
	}
	if silent {
		d.DueAt, d.Deferred = e.opt.Now().Add(silence), true
		e.save(ctx, d)
		if e.resumed(d.AccountID, d.WebhookID) {
			e.Send(d.AccountID, d.WebhookID)
		}
		return before, time.Time{}
	}
	r, made := e.call(ctx, w, j)
	if !made {
		return before, time.Time{}
	}
	now := e.opt.Now()
	// Before Note, which counts this try.
	first := d.Tries == 0
	d.Note(r, now)
	e.metrics.attempted(ctx, r, first, j, now)
	e.save(ctx, d)
	if !r.Final && !r.Ours {
		e.judge(ctx, w, r, now)
	}
	return r.OK() || r.Final, d.NextTry
}

// call makes the message and sends it. made is false when nothing can be said of
// the receiver, because we could not get so far or were stopped in the middle.
func (e *Engine) call(ctx context.Context, w *webhook.Webhook, j job) (r webhook.Result, made bool) {
	d := j.delivery
	now := e.opt.Now()
	if !w.Enabled {
		return webhook.Result{Attempt: webhook.Attempt{At: now, Error: "The webhook is disabled."}, Final: true}, true
	}
	at, data := d.EventAt, d.Payload
	if data == "" {
		ev := j.event
		if ev == nil {
			var err error
			if ev, err = e.store.Event(ctx, d.EventID); err != nil {
				slog.WarnContext(ctx, "event cannot be read; its delivery waits", "event", d.EventID, "error", err)
				return r, false
			}
		}
		if ev == nil {
			return webhook.Result{Attempt: webhook.Attempt{At: now, Error: "The event is no longer kept."}, Final: true}, true
		}
		at, data = ev.At, ev.Data
	}
	body, err := Body(d.EventType, at, data)
	if err != nil {
		// Trying again would fail in the same way for ever.
		slog.ErrorContext(ctx, "message cannot be made", "event", d.EventID, "error", err)
		return webhook.Result{Attempt: webhook.Attempt{At: now, Error: "The message could not be made."}, Final: true}, true
	}
	secrets, err := e.store.Signing(w, now)
	if err != nil {
		slog.ErrorContext(ctx, "a webhook's secret does not open", "webhook", w.ID, "account", w.AccountID, "error", err)
	}
	if len(secrets) == 0 {
		return webhook.Unsigned(now), true
	}
	header, err := webhook.Headers(d.EventID, now, body, secrets)
	if err != nil {
		slog.ErrorContext(ctx, "message cannot be signed", "webhook", w.ID, "error", err)
		return webhook.Result{Attempt: webhook.Attempt{At: now, Error: "The message could not be signed."}, Final: true}, true
	}
	r = e.caller.Send(ctx, w.Target, header, body)
	r.At = now
	// A call that our own stop cut short says nothing about the receiver.
	return r, ctx.Err() == nil
}

// save writes a result down. It is tried for a while: a result that is not on
// record means that the receiver gets the message again.
func (e *Engine) save(ctx context.Context, d *webhook.Delivery) {
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		mine, err := e.store.Save(ctx, d)
		switch {
		case err == nil && !mine:
			slog.InfoContext(ctx, "a delivery was taken over or retried meanwhile; this result is dropped", "delivery", d.ID)
			return
		case err == nil:
			return
		case wait > 5*time.Second || ctx.Err() != nil:
			slog.WarnContext(ctx, "result of a delivery not written; it will be sent again", "delivery", d.ID, "error", err)
			return
		}
		pause(ctx, wait)
	}
}

// judge keeps the webhook's health, and gives up one that only fails.
func (e *Engine) judge(ctx context.Context, w *webhook.Webhook, r webhook.Result, now time.Time) {
	health, reason := w.Judge(r, now)
	var err error
	switch health {
	case webhook.Unchanged:
	case webhook.Recovered:
		err = e.store.NoteHealth(ctx, w.ID, time.Time{})
	case webhook.BeganToFail:
		err = e.store.NoteHealth(ctx, w.ID, now)
	case webhook.GiveUp:
		_, err = e.store.Update(ctx, w.AccountID, w.ID, func(fresh *webhook.Webhook) (events.Type, error) {
			// Judged again by the stored one: it may have recovered or been mended. An answer to what
			// it was before says nothing about what it is now.
			again, why := fresh.Judge(r, now)
			if again != webhook.GiveUp || !fresh.Enabled || fresh.Rev != w.Rev {
				return "", nil
			}
			fresh.GiveUp(why, now)
			return events.WebhookDisabled, nil
		})
		if err == nil {
			slog.InfoContext(ctx, "webhook disabled", "webhook", w.ID, "account", w.AccountID, "reason", reason)
		}
	}
	if err != nil && !gone(err) {
		slog.WarnContext(ctx, "health of a webhook not noted", "webhook", w.ID, "error", err)
	}
}

func gone(err error) bool { return errors.Is(err, apierr.New(apierr.WebhookNotFound, "")) }
