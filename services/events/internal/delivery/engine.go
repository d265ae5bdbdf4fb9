// Package delivery brings events to webhooks.
//
// Firestore is the truth: a delivery that is pending has a time at which it is
// due, and whoever takes it moves that time on by a lease. A replica that dies
// leaves deliveries that become due again; a replica that was slow finds that its
// result no longer fits the document and drops it. So everything is delivered at
// least once, and a message that is sent twice has the same id.
//
// Redis only wakes replicas. Writers name accounts with new events, and one of the
// replicas that receive the hint gives the events their places and takes most of their
// deliveries in hand in the same commit. Without Redis a sweep every few seconds finds
// the same events.
//
// Nothing is written of a first try before it ends. The feed names the events that are
// at their first tries, and they stay in the outbox. The outcome makes the delivery's
// document, and with the last outcome the event leaves the outbox. Where a replica has
// died, the event is found there after the lease, and documents are made that are due.
//
// Each webhook has a lane of its own in a replica. A lane runs a few attempts at
// once, one alone after a failure, and holds a bounded number of deliveries in
// memory; what does not fit waits in Firestore. Lanes that fail share slots of their own, so
// that receivers that hang, however many, take none from those that answer. Accounts take
// turns at the slots, and none has more than a twentieth of them, so receivers that answer
// slowly delay their own account only.
package delivery

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Store is what the engine asks of the store, which decides nothing.
type Store interface {
	// Waiters lists accounts behind the account after that have events without a place, each
	// with the time of its oldest. next is where to continue; "" at the end.
	Waiters(ctx context.Context, after string) (oldest map[string]time.Time, next string, err error)
	// Expired lists accounts of which some recent events have expired.
	Expired(ctx context.Context) (accounts []string, err error)
	// Waiting lists what has no place yet, in the order of commits, among at most sending
	// events that have one. more says that others may wait; then some of the list have none.
	Waiting(ctx context.Context, accountID string, sending int) (list []*feed.Event, more bool, err error)
	Feed(ctx context.Context, accountID string) (*feed.Feed, error)
	// Place writes places and deliveries in one commit; feed.ErrMoved when the feed is no
	// more as it was before.
	Place(ctx context.Context, p *feed.Placing, list []*webhook.Delivery) error

	// Receiver reads a webhook, and whether its account may be sent nothing now.
	Receiver(ctx context.Context, accountID, id string) (w *webhook.Webhook, silent bool, err error)
	Webhooks(ctx context.Context, accountID string) ([]*webhook.Webhook, error)
	Update(ctx context.Context, accountID, id string, fn func(*webhook.Webhook) (events.Type, error)) (*webhook.Webhook, error)
	// Signing opens the secrets that sign at now; err names those that do not open.
	Signing(w *webhook.Webhook, now time.Time) (texts []string, err error)
	NoteHealth(ctx context.Context, id string, failingSince time.Time) error

	// Due, DueOf, DeferredOf and Replays set aside what cannot be read. Beside an error
	// there may be some.
	Due(ctx context.Context, lane int, behind webhook.DeliveryPlace) (list []*webhook.Delivery, next webhook.DeliveryPlace, err error)
	DueOf(ctx context.Context, webhookID string, n int) (list []*webhook.Delivery, full bool, err error)
	DeferredOf(ctx context.Context, webhookID string, n int) (list []*webhook.Delivery, full bool, err error)
	CountDeferred(ctx context.Context, webhookID string, most int) (int64, error)
	// Save writes a delivery over the version that was read, or the document of one in
	// flight; false when somebody else has changed, made or removed it.
	Save(ctx context.Context, d *webhook.Delivery) (bool, error)
	Drop(ctx context.Context, d *webhook.Delivery) error
	// TakeOver makes documents of what was in flight, those that are not there.
	TakeOver(ctx context.Context, eventID string, list []*webhook.Delivery) error

	Replays(ctx context.Context) ([]*webhook.Replay, error)
	PlaceAt(ctx context.Context, accountID string, t time.Time) (place int64, found bool, err error)
	Page(ctx context.Context, q feed.Query) (feed.Page, error)
	Advance(ctx context.Context, r, next *webhook.Replay, list []*webhook.Delivery) error
	RestReplay(ctx context.Context, r *webhook.Replay) error
	DropReplay(ctx context.Context, id string) error
}

// Caller calls a receiver.
type Caller func(ctx context.Context, target string, header map[string]string, body []byte) webhook.Result

// Options shape an engine; zero fields have defaults.
type Options struct {
	Now func() time.Time
	// Sweep is how often the engine looks for events and deliveries whose wake-up was lost; 10 s.
	Sweep time.Duration
	// Lanes is into how many the index of due deliveries is split; 32.
	Lanes int
	// Patience is how long an event may wait before a sweep takes it for overlooked;
	// 2 s.
	Patience time.Duration
}

// Engine is one replica's part in the work.
type Engine struct {
	store   Store
	call    Caller
	opt     Options
	hub     *hub
	settler *settler

	ctx  context.Context // of attempts; set by Run
	stop context.CancelFunc
	busy sync.WaitGroup

	mu      sync.Mutex
	lanes   map[string]*lane
	good    *pool
	bad     *pool
	stopped bool
	late    []*webhook.Delivery // deferred after the stop

	replaying chan struct{}
	// waiter is the account after which the next sweep looks for events without a place.
	waiter string
	// beyond is, for each due lane, how far sweeps have read past a full page.
	beyond [webhook.MaxLanes]webhook.DeliveryPlace
	// former is the lane that the last sweep looked into beside those that are in use.
	former int
}

var _ webhook.Courier = (*Engine)(nil)

// New makes an engine. It does nothing before Run.
func New(st Store, call Caller, rdb redis.UniversalClient, opt Options) *Engine {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	opt.Sweep, opt.Lanes, opt.Patience = cmp.Or(opt.Sweep, 10*time.Second), cmp.Or(opt.Lanes, 32), cmp.Or(opt.Patience, 2*time.Second)
	e := &Engine{
		store: st, call: call, opt: opt, hub: newHub(rdb), lanes: map[string]*lane{},
		good: newPool(maxGood), bad: newPool(maxBad), replaying: make(chan struct{}, 1),
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.settler = newSettler(e.settle)
	return e
}

// Run works until ctx ends, then lets the attempts that are running come to an
// end and hands back what it holds.
func (e *Engine) Run(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { e.hub.listen(gctx, func(accountID string) { e.woken(gctx, accountID) }); return nil })
	g.Go(func() error { e.sweeps(gctx); return nil })
	g.Go(func() error { e.replays(gctx); return nil })
	_ = g.Wait() // none of them fails
	e.drain()
	return nil
}

// drain waits for what is running, a little. What is left becomes due at once, so
// that another replica finds it.
func (e *Engine) drain() {
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	ended := make(chan struct{})
	go func() { e.busy.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(8 * time.Second):
		e.stop() // an attempt that is cut short is made again by another replica
		<-ended
	}
	e.mu.Lock()
	held := e.late
	for _, l := range e.lanes {
		for _, j := range l.queue {
			held = append(held, j.delivery)
		}
		l.queue = nil
	}
	e.mu.Unlock()
	defer e.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	now := e.opt.Now()
	if _, err := e.saveAll(ctx, held, func(d *webhook.Delivery) { d.Release(now) }); err != nil {
		slog.InfoContext(ctx, "cannot hand back deliveries; they become due again when their lease ends", "error", err)
	}
}

// saveAll changes deliveries and writes each in its own commit. It returns those that no
// other replica had changed meanwhile.
func (e *Engine) saveAll(
	ctx context.Context, list []*webhook.Delivery, change func(*webhook.Delivery),
) (mine []*webhook.Delivery, err error) {
	var g errgroup.Group // without a context: one that fails stops no other
	g.SetLimit(8)
	saved := make([]bool, len(list))
	for i, d := range list {
		g.Go(func() (err error) {
			change(d)
			saved[i], err = e.store.Save(ctx, d)
			return err
		})
	}
	err = g.Wait()
	for i, d := range list {
		if saved[i] {
			mine = append(mine, d)
		}
	}
	return mine, err
}

// woken is called for an account with new events.
func (e *Engine) woken(ctx context.Context, accountID string) {
	// Beside the listener: a slow Redis must not hold up the hints behind this one.
	go func() {
		if e.hub.turns.Mine(ctx, "events:"+accountID, time.Second) {
			e.settler.ask(ctx, accountID)
		}
	}()
}

// Settle gives places to all that had committed before the call.
func (e *Engine) Settle(ctx context.Context, accountID string) {
	select {
	case <-e.settler.ask(ctx, accountID):
	case <-ctx.Done():
	}
}

// News is closed when the account's feed grows.
func (e *Engine) News(accountID string) (<-chan struct{}, func()) { return e.hub.news(accountID) }

// sweeps finds events and deliveries whose wake-up was lost.
func (e *Engine) sweeps(ctx context.Context) {
	for ctx.Err() == nil {
		if e.hub.turns.Mine(ctx, "events-sweep", e.opt.Sweep*9/10) {
			e.Sweep(ctx)
		}
		outage.Pause(ctx, e.opt.Sweep)
	}
}

// Sweep looks once.
func (e *Engine) Sweep(ctx context.Context) {
	if err := e.sweepFeeds(ctx); err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "cannot look for events without a place", "error", err)
	}
	var mu sync.Mutex
	var oldestDue time.Time
	// Not errgroup.WithContext: a lane that cannot be read stops no other.
	var g errgroup.Group
	g.SetLimit(8)
	for _, i := range e.dueLanes() {
		g.Go(func() error {
			oldest, err := e.sweepLane(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			if !oldest.IsZero() && (oldestDue.IsZero() || oldest.Before(oldestDue)) {
				oldestDue = oldest
			}
			return err
		})
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "cannot look for due deliveries", "error", err)
	}
	dueAge.of(oldestDue)
	select {
	case e.replaying <- struct{}{}:
	default:
	}
}

// dueLanes are the lanes that a sweep looks into: all that are in use, and one of the
// others in turn, in which deliveries are left when the setting was lowered.
func (e *Engine) dueLanes() []int {
	var lanes []int
	for i := range e.opt.Lanes {
		lanes = append(lanes, i)
	}
	if e.opt.Lanes == webhook.MaxLanes {
		return lanes
	}
	if e.former++; e.former < e.opt.Lanes || e.former >= webhook.MaxLanes {
		e.former = e.opt.Lanes
	}
	return append(lanes, e.former)
}

// maxWaiters is how many pages of accounts one sweep reads; the next one continues.
const maxWaiters = 50

// sweepFeeds has places given to what has waited for too long, and drops from feeds what
// has expired.
func (e *Engine) sweepFeeds(ctx context.Context) error {
	before := e.opt.Now().Add(-e.opt.Patience)
	var oldest time.Time
	for range maxWaiters {
		waiters, next, err := e.store.Waiters(ctx, e.waiter)
		if err != nil {
			return err
		}
		for accountID, since := range waiters {
			if since.After(before) {
				continue // somebody is woken for it
			}
			if oldest.IsZero() || since.Before(oldest) {
				oldest = since
			}
			e.settler.ask(ctx, accountID)
		}
		if e.waiter = next; next == "" {
			break
		}
	}
	waitingAge.of(oldest)
	expired, err := e.store.Expired(ctx)
	for _, accountID := range expired {
		e.settler.ask(ctx, accountID)
	}
	return err
}

// pagesBeyond is how many pages a sweep reads after a lane's first one.
const pagesBeyond = 4

// sweepLane takes what is due in a lane: its oldest, and some pages behind them, each
// time further on. This keeps one webhook's backlog from hiding the others.
func (e *Engine) sweepLane(ctx context.Context, i int) (oldest time.Time, err error) {
	var front webhook.DeliveryPlace
	first, behind, err := e.store.Due(ctx, i, front)
	e.take(ctx, first)
	if len(first) > 0 {
		oldest = first[0].DueAt
	}
	if e.beyond[i].At.After(behind.At) && behind != front {
		behind = e.beyond[i]
	}
	for n := 0; err == nil && n < pagesBeyond && behind != front; n++ {
		var page []*webhook.Delivery
		page, behind, err = e.store.Due(ctx, i, behind)
		e.take(ctx, page)
	}
	e.beyond[i] = behind
	return oldest, err
}

// take hands what a sweep found to its lanes. What a lane has no room for is
// deferred, so that it is not in the way of others at the next sweep; the lane comes
// back for it. What was deferred before is put off for longer.
func (e *Engine) take(ctx context.Context, due []*webhook.Delivery) {
	var tooMany []*webhook.Delivery
	count := map[string]int{}
	for _, d := range due {
		if count[d.WebhookID]++; count[d.WebhookID] == 1 {
			e.Send(d.AccountID, d.WebhookID)
		}
		if count[d.WebhookID] > laneSize {
			tooMany = append(tooMany, d)
		}
	}
	now := e.opt.Now()
	if _, err := e.saveAll(ctx, tooMany, func(d *webhook.Delivery) {
		if d.Deferred {
			d.PutOff(now.Add(silence))
		} else {
			d.PutOff(now.Add(webhook.Defer))
		}
	}); err != nil {
		slog.DebugContext(ctx, "deliveries not deferred; the next sweep retries", "error", err)
	}
}
