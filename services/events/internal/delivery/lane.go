package delivery

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Sizes and times for lanes and pools.
const (
	// laneSize is the number of deliveries that a lane holds in memory, including running ones.
	laneSize = 32
	// refill is the number of waiting deliveries at which a lane loads more.
	refill = 8
	// abreast is the number of concurrent attempts in a lane while its receiver is working.
	abreast = 4
	// maxBad limits a replica's concurrent attempts in failing lanes, which are those
	// where the last attempt failed. maxGood limits the attempts in all other lanes.
	maxGood = 1_000
	maxBad  = 500
	// accounts limits each account to a twentieth of a pool.
	accounts = 20
	// silence is how long a suspended account's deliveries are deferred. When the suspension
	// is lifted, [Engine.Resume] sends them immediately.
	silence = 6 * time.Hour
	// again is the pause before a lane retries a failed read of its deliveries.
	again = 5 * time.Second
)

// lane holds the work for one webhook in this replica. The engine's mutex guards it.
type lane struct {
	webhook string
	account string

	queue    []job
	reserved int // room reserved for deliveries that are being committed
	running  int
	failing  bool // the last attempt failed
	more     bool // Firestore may have more deliveries
	loading  bool
	queued   bool // the lane is waiting in a pool
	timer    *time.Timer
	timerAt  time.Time
}

type job struct {
	delivery *webhook.Delivery
	fresh    bool // the event has only just been placed
}

func (l *lane) held() int { return len(l.queue) + l.running + l.reserved }

// lane returns a webhook's lane, creating it if necessary. The caller holds the mutex.
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

// reserve reserves room for a delivery that is about to be stored. If the lane has no room, reserve
// sets more before the delivery is stored, so the lane will look for it later.
func (e *Engine) reserve(webhookID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lane("", webhookID)
	// Deliveries that are already waiting in Firestore are older and take precedence.
	if l.failing && l.held() >= refill || l.held() >= laneSize || l.more || l.loading {
		l.more = true
		return false
	}
	l.reserved++
	return true
}

// unreserve releases the reservations for a failed commit.
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

// accept takes a delivery that has just been stored.
func (e *Engine) accept(d *webhook.Delivery) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lane(d.AccountID, d.WebhookID)
	if d.Deferred {
		l.more = true // set it again because the lane may have looked before the commit
		if e.stopped {
			e.late = append(e.late, d) // a stopped engine does not load deliveries; drain releases these
		}
	} else {
		l.reserved = max(0, l.reserved-1)
		l.queue = append(l.queue, job{d, true})
	}
	e.pump(l)
}

// Send makes a webhook's lane look for due deliveries.
func (e *Engine) Send(accountID, webhookID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lane(accountID, webhookID)
	l.more = true
	e.pump(l)
}

// pump starts as many attempts as the lane may run. The caller holds the mutex.
func (e *Engine) pump(l *lane) {
	if e.stopped || e.held() {
		return
	}
	for len(l.queue) > 0 && l.running < l.limit() {
		// Failing lanes have their own slots because a hanging call occupies a slot for 15 s.
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
	// A failing lane makes one attempt at a time, so it does not load more while it has deliveries
	// in memory.
	if l.more && !l.loading && len(l.queue) <= refill && !(l.failing && len(l.queue) > 0) {
		l.more, l.loading = false, true
		e.busy.Add(1)
		go e.load(l)
	}
	// Keep a failing lane in memory, so that its next delivery uses a slot for failing lanes.
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

// release returns an account's slot and starts lanes that are waiting for one.
func (e *Engine) release(p *pool, account string) {
	p.give(account)
	for l := p.next(); l != nil; l = p.next() {
		l.queued = false
		e.pump(l)
	}
}

// load loads waiting deliveries from Firestore.
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
		slog.WarnContext(e.ctx, "cannot read due deliveries; retrying", "webhook", l.webhook, "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	l.loading = false
	for _, d := range taken {
		l.queue = append(l.queue, job{d, false})
	}
	l.more = l.more || more || err != nil
	if err != nil {
		// Retry after a pause. An immediate retry would loop while Firestore is down. Without a
		// retry, deferred deliveries would wait until their own due time, which is much later.
		e.wake(l, e.opt.Now().Add(again))
		return
	}
	e.pump(l)
}

// claim claims deliveries for the lane. While the account is suspended, it defers them.
func (e *Engine) claim(accountID, webhookID string, n int) (taken []*webhook.Delivery, more bool, err error) {
	ctx, now := e.ctx, e.opt.Now()
	_, silent, err := e.store.Receiver(ctx, accountID, webhookID)
	if err != nil && !gone(err) { // a deleted webhook's deliveries are claimed and dropped
		return nil, false, err
	}
	if silent {
		due, full, err := e.store.DueOf(ctx, webhookID, laneSize)
		if _, e := e.saveAll(ctx, due, func(d *webhook.Delivery) { d.PutOff(now.Add(silence)) }); err == nil {
			err = e
		}
		return nil, full || e.resumed(accountID, webhookID), err
	}
	found, more, err := e.waiting(ctx, webhookID, n)
	// Another replica may claim the same deliveries. Each save succeeds only if the delivery
	// has not changed since it was read, so only one replica gets it.
	taken, failed := e.saveAll(ctx, found, func(d *webhook.Delivery) { d.Claim(now) })
	if err = cmp.Or(err, failed); err != nil && len(taken) > 0 {
		more, err = true, nil // the lane will look again for the deliveries that it could not claim
	}
	return taken, more, err
}

// waiting lists up to n of a webhook's deliveries, due ones before deferred ones. This order
// keeps retries from piling up behind new deliveries.
func (e *Engine) waiting(ctx context.Context, webhookID string, n int) (list []*webhook.Delivery, full bool, err error) {
	due, full, err := e.store.DueOf(ctx, webhookID, n)
	if full || err != nil {
		return due, full, err
	}
	deferred, full, err := e.store.DeferredOf(ctx, webhookID, n)
	for _, d := range deferred {
		if len(due) == n {
			return due, true, err
		}
		if !slices.ContainsFunc(due, func(o *webhook.Delivery) bool { return o.ID == d.ID }) {
			due = append(due, d)
		}
	}
	return due, full, err
}

// Resume sends the deliveries that waited while the account was suspended, and reports whether
// there were any.
func (e *Engine) Resume(ctx context.Context, accountID string) (waited bool, err error) {
	hooks, err := e.store.Webhooks(ctx, accountID)
	for _, w := range hooks {
		n, err := e.store.CountDeferred(ctx, w.ID, 1)
		if err != nil {
			return false, err
		}
		if n > 0 {
			waited = true
			e.Send(accountID, w.ID)
		}
	}
	return waited, err
}

// resumed reports whether a suspended account may receive messages again. Call it after
// deferring deliveries: if the suspension was lifted just before, Resume looked for these
// deliveries too early.
func (e *Engine) resumed(accountID, webhookID string) bool {
	_, silent, err := e.store.Receiver(e.ctx, accountID, webhookID)
	return err == nil && !silent
}

// at makes a lane look for deliveries at the time due. A sweep would also find them, but a few
// seconds later.
func (e *Engine) at(l *lane, due time.Time) {
	// Leave a delivery that is due much later to the sweep. A timer would keep the lane in
	// memory for hours.
	if due.Sub(e.opt.Now()) > 10*time.Minute {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wake(l, due)
}

// wake makes the lane look for deliveries at the time due. The caller holds the mutex.
func (e *Engine) wake(l *lane, due time.Time) {
	if e.stopped {
		return
	}
	// Keep only one timer per lane, for the earliest delivery, and leave the others to the
	// sweep. With a timer for every delivery, the number of timers would be unbounded.
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

// run makes an attempt and acts on its result.
func (e *Engine) run(l *lane, p *pool, j job) {
	defer e.busy.Done()
	e.mu.Lock()
	before := !l.failing
	e.mu.Unlock()
	ok, next := e.attempt(j, before)
	e.mu.Lock()
	l.running--
	// Set failing before returning the slot, so that the next attempt uses a slot from the right
	// pool.
	switch {
	case ok && l.failing:
		failing.Dec()
	case !ok && !l.failing:
		failing.Inc()
	}
	l.failing = !ok
	e.release(p, l.account)
	e.pump(l)
	e.mu.Unlock()
	if !next.IsZero() {
		e.at(l, next)
	}
}
