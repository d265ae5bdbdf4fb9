// Package delivery delivers events to webhooks.
//
// Firestore is the source of truth. A pending delivery has a due time. A replica that takes the
// delivery sets this time to the end of its lease. If the replica dies, its deliveries become
// due again. If it is merely slow and another replica has changed the document, it drops its
// result. Every event is therefore delivered at least once, and a message that is sent twice
// has the same ID.
//
// Redis only wakes replicas. The writer of an event publishes the account as a hint. One of the
// replicas that receive the hint assigns the events their positions in the feed, and claims
// most of their deliveries in the same commit. Without Redis, a sweep every few seconds finds the
// same events.
//
// A first attempt writes nothing until it ends. Until all of an event's first attempts have ended,
// the feed lists the event as being in its first attempts, and the event remains in the outbox.
// When an attempt ends, its outcome is stored in a new document for its delivery. Storing the last
// outcome also removes the event from the outbox. If a replica dies, another one finds the event in
// the outbox after the lease has ended, and creates documents that are due immediately.
//
// Each webhook has its own lane in a replica. A lane runs a few attempts concurrently, or only
// one after a failure. It keeps a bounded number of deliveries in memory, and the others remain
// in Firestore. Failing lanes have separate slots, so hanging receivers never take slots from
// working ones. Accounts take turns using the slots, and no account has more than a twentieth
// of them, so slow receivers delay only their own account.
package delivery

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Store is the part of the store that the engine uses. It makes no decisions.
type Store interface {
	// Waiters lists accounts with events that have no position yet, starting after the given
	// account. oldest contains the time of each account's oldest such event. next is the
	// account after which to continue, or "" at the end.
	Waiters(ctx context.Context, after string) (oldest map[string]time.Time, next string, err error)
	// Expired lists accounts with recent events that have expired.
	Expired(ctx context.Context) (accounts []string, err error)
	// Waiting lists an account's events in the outbox, in commit order. Up to sending of them
	// already have a position, and the others do not. If more is true, the outbox may contain
	// further events, and at least one event in the list has no position.
	Waiting(ctx context.Context, accountID string, sending int) (list []*feed.Event, more bool, err error)
	Feed(ctx context.Context, accountID string) (*feed.Feed, error)
	// Place writes positions and deliveries in one commit. It returns feed.ErrMoved if the feed has
	// changed since p.Before.
	Place(ctx context.Context, p *feed.Placing, list []*webhook.Delivery) error

	// Receiver reads a webhook. silent means that the account must not be sent messages for now.
	Receiver(ctx context.Context, accountID, id string) (w *webhook.Webhook, silent bool, err error)
	Webhooks(ctx context.Context, accountID string) ([]*webhook.Webhook, error)
	Update(ctx context.Context, accountID, id string, fn func(*webhook.Webhook) (events.Type, error)) (*webhook.Webhook, error)
	// Signing decrypts the secrets that are in use at now. err names the secrets that no key
	// can decrypt.
	Signing(w *webhook.Webhook, now time.Time) (texts []string, err error)
	NoteHealth(ctx context.Context, id string, failingSince time.Time, cause webhook.Cause) error

	// Due, DueOf, DeferredOf and Replays set aside unreadable records. They may return results
	// together with an error.
	Due(ctx context.Context, lanes []int, behind paging.Place) (list []*webhook.Delivery, next paging.Place, err error)
	DueOf(ctx context.Context, webhookID string, n int) (list []*webhook.Delivery, full bool, err error)
	DeferredOf(ctx context.Context, webhookID string, n int) (list []*webhook.Delivery, full bool, err error)
	CountDeferred(ctx context.Context, webhookID string, most int) (int64, error)
	// Save stores a changed delivery, or creates an in-flight delivery's document. It
	// returns false if another replica has changed, created or removed the document.
	Save(ctx context.Context, d *webhook.Delivery) (bool, error)
	Drop(ctx context.Context, d *webhook.Delivery) error
	// TakeOver creates documents for in-flight deliveries that have none.
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

// Options configures an [Engine]. Zero fields use the defaults.
type Options struct {
	Now func() time.Time
	// Sweep is the interval at which the engine looks for events and deliveries that lost their
	// wake-up. The default is 10 s.
	Sweep time.Duration
	// Lanes is the number of parts into which the index of due deliveries is divided. The
	// default is 32.
	Lanes int
	// Patience is the age at which a sweep assumes that an event's wake-up was lost. The
	// default is 2 s.
	Patience time.Duration
	// Hold reports whether webhooks are paused. During a pause, no messages are sent. After a
	// pause, since is the time at which it ended, and earlier failures do not count against a
	// webhook. Call [Engine.Released] when a pause has ended. By default, webhooks are never
	// paused.
	Hold func() (held bool, since time.Time)
	// Restore returns the ID of the last database restore, or "". If it fails, no events are
	// placed. By default, it returns "".
	Restore func(ctx context.Context) (id string, err error)
}

// Engine delivers events in one replica.
type Engine struct {
	store    Store
	call     Caller
	opt      Options
	hub      *hub
	settler  *settler
	failures failures

	ctx  context.Context // the context for attempts; stop cancels it
	stop context.CancelFunc
	busy sync.WaitGroup

	mu      sync.Mutex
	lanes   map[string]*lane
	good    *pool
	bad     *pool
	stopped bool
	late    []*webhook.Delivery // deferred after the engine was stopped

	released  chan struct{}
	replaying chan struct{}
	replayed  atomic.Bool // the last search for replays found some
	// waiter is the account after which the next sweep starts to look for events without a
	// position.
	waiter string
	// beyond records, for each due lane, how far sweeps have read beyond a full first page.
	beyond [webhook.MaxLanes]paging.Place
	// former is the unused lane that the last sweep also read; see dueLanes.
	former int
}

var _ webhook.Courier = (*Engine)(nil)

// New returns an engine. The engine does nothing until Run is called.
func New(st Store, call Caller, rdb redis.UniversalClient, opt Options) *Engine {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	opt.Sweep, opt.Lanes, opt.Patience = cmp.Or(opt.Sweep, 10*time.Second), cmp.Or(opt.Lanes, 32), cmp.Or(opt.Patience, 2*time.Second)
	if opt.Hold == nil {
		opt.Hold = func() (bool, time.Time) { return false, time.Time{} }
	}
	if opt.Restore == nil {
		opt.Restore = func(context.Context) (string, error) { return "", nil }
	}
	e := &Engine{
		store: st, call: call, opt: opt, hub: newHub(rdb), lanes: map[string]*lane{},
		good: newPool(maxGood), bad: newPool(maxBad), released: make(chan struct{}, 1), replaying: make(chan struct{}, 1),
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.settler = newSettler(e.settle)
	return e
}

// Run delivers events until ctx is done. It then waits for attempts in progress and releases its
// remaining deliveries.
func (e *Engine) Run(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { e.hub.listen(gctx, func(accountID string) { e.woken(gctx, accountID) }); return nil })
	g.Go(func() error { e.sweeps(gctx); return nil })
	g.Go(func() error { e.replays(gctx); return nil })
	_ = g.Wait() // none of these functions returns an error
	e.drain()
	return nil
}

// drain waits briefly for attempts in progress. It makes the remaining deliveries due immediately, so
// that another replica can find them.
func (e *Engine) drain() {
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	ended := make(chan struct{})
	go func() { e.busy.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(8 * time.Second):
		e.stop() // another replica repeats an interrupted attempt
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
		slog.InfoContext(ctx, "cannot release deliveries; they become due again when their lease ends", "error", err)
	}
}

// saveAll changes deliveries and writes each of them in its own commit. It returns the deliveries
// that no other replica has changed.
func (e *Engine) saveAll(
	ctx context.Context, list []*webhook.Delivery, change func(*webhook.Delivery),
) (mine []*webhook.Delivery, err error) {
	var g errgroup.Group // without a context because a failure must not stop the others
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

// woken places the account's new events in the feed, unless another replica does so.
func (e *Engine) woken(ctx context.Context, accountID string) {
	// Do not block the listener. A slow Redis must not delay later hints.
	go func() {
		if e.hub.turns.Mine(ctx, "events:"+accountID, time.Second) {
			e.settler.ask(ctx, accountID)
		}
	}()
}

// Settle places all events that were committed before the call.
func (e *Engine) Settle(ctx context.Context, accountID string) {
	select {
	case <-e.settler.ask(ctx, accountID):
	case <-ctx.Done():
	}
}

// News returns a channel that is closed when the account's feed grows, and a function to stop
// waiting.
func (e *Engine) News(accountID string) (<-chan struct{}, func()) { return e.hub.news(accountID) }

// sweeps regularly looks for events and deliveries that lost their wake-up.
func (e *Engine) sweeps(ctx context.Context) {
	for ctx.Err() == nil {
		if e.hub.turns.Mine(ctx, "events-sweep", e.opt.Sweep*9/10) {
			e.Sweep(ctx)
		} else {
			// Another replica is sweeping and reports the ages. Clear the ones from this replica's
			// last sweep because they would grow forever.
			waitingAge.of(time.Time{})
			dueAge.of(time.Time{})
		}
		select {
		case <-ctx.Done():
		case <-e.released:
		case <-time.After(e.opt.Sweep):
		}
	}
}

// held reports whether webhooks are paused. During a pause, the engine does not send messages, and
// does not claim or defer deliveries. Deliveries remain unchanged in the store, and new ones are
// due immediately.
func (e *Engine) held() bool {
	held, _ := e.opt.Hold()
	return held
}

// Released sends the pending messages after a pause. It does nothing if webhooks are still paused.
// Call it on every replica because any of them may be the one that sweeps.
func (e *Engine) Released() {
	if e.held() {
		return
	}
	e.mu.Lock()
	for _, l := range e.lanes {
		e.pump(l)
	}
	e.mu.Unlock()
	select {
	case e.released <- struct{}{}:
	default:
	}
}

// Sweep looks once for events and deliveries that lost their wake-up. It looks for expired
// events and for replays less often while there are none.
func (e *Engine) Sweep(ctx context.Context) {
	if err := e.sweepFeeds(ctx); err != nil && ctx.Err() == nil {
		waitingAge.unseen(time.Now())
		slog.WarnContext(ctx, "cannot list events without a place; the next sweep retries", "error", err)
	}
	trim := dedup.Pace{What: "events-expired", Every: e.opt.Sweep, Idle: 60 * e.opt.Sweep}
	if err := e.hub.turns.Round(ctx, trim, e.trim); err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "cannot list expired events; the next sweep retries", "error", err)
	}
	var oldest time.Time
	var err error
	if !e.held() { // a pause is not a backlog and has its own metric
		oldest, err = e.sweepLanes(ctx)
	}
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "cannot list due deliveries; the next sweep retries", "error", err)
		dueAge.unseen(time.Now())
	} else {
		dueAge.of(oldest)
	}
	replays := dedup.Pace{What: "events-replays", Every: e.opt.Sweep, Idle: 3 * e.opt.Sweep}
	_ = e.hub.turns.Round(ctx, replays, func(context.Context) (found bool, err error) { // Round never returns an error here
		e.Replay()
		return e.replayed.Load(), nil
	})
}

// lanesAtOnce is the number of lanes that one query reads. A Firestore filter allows at most 30
// values.
const lanesAtOnce = 30

// sweepLanes takes due deliveries. It returns the time at which the oldest of them became due.
// Usually, only a few are due, and one page holds the due deliveries from many lanes. If the page
// is full or unreadable, sweepLanes reads each lane separately, so that one lane cannot hide the
// others.
func (e *Engine) sweepLanes(ctx context.Context) (oldest time.Time, err error) {
	var mu sync.Mutex
	seen := func(first time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if !first.IsZero() && (oldest.IsZero() || first.Before(oldest)) {
			oldest = first
		}
	}
	// Do not use errgroup.WithContext, because an unreadable lane must not stop the others.
	var g errgroup.Group
	g.SetLimit(8)
	for lanes := range slices.Chunk(e.dueLanes(), lanesAtOnce) {
		if due, more, err := e.store.Due(ctx, lanes, paging.Place{}); err == nil && more == (paging.Place{}) {
			e.take(ctx, due)
			seen(oldestOf(due))
			continue
		}
		for _, i := range lanes {
			g.Go(func() error {
				first, err := e.sweepLane(ctx, i)
				seen(first)
				return err
			})
		}
	}
	err = g.Wait()
	return oldest, err
}

// oldestOf returns when the first of the due deliveries became due, or zero if there are none.
func oldestOf(due []*webhook.Delivery) time.Time {
	if len(due) == 0 {
		return time.Time{}
	}
	return due[0].DueAt
}

// dueLanes returns the lanes that a sweep reads: all lanes in use, and one of the unused lanes
// in turn. An unused lane may still contain deliveries from when the number of lanes was
// higher.
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

// maxWaiters is the number of pages of accounts that one sweep reads. The next sweep continues
// where this one stopped.
const maxWaiters = 50

// sweepFeeds places events that have waited too long.
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
				continue // a replica has only just been woken for this account
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
	return nil
}

// trim drops expired events from feeds, and reports whether there were any.
func (e *Engine) trim(ctx context.Context) (found bool, err error) {
	expired, err := e.store.Expired(ctx)
	for _, accountID := range expired {
		e.settler.ask(ctx, accountID)
	}
	return len(expired) > 0, err
}

// pagesBeyond is the number of pages that a sweep reads after a lane's first page.
const pagesBeyond = 4

// sweepLane takes due deliveries from a lane: the oldest, and some of the pages after them. Each
// sweep continues with the pages where the previous one stopped, so one webhook's backlog does not
// hide the others.
func (e *Engine) sweepLane(ctx context.Context, i int) (oldest time.Time, err error) {
	var front paging.Place
	first, behind, err := e.store.Due(ctx, []int{i}, front)
	e.take(ctx, first)
	oldest = oldestOf(first)
	if e.beyond[i].At.After(behind.At) && behind != front {
		behind = e.beyond[i]
	}
	for n := 0; err == nil && n < pagesBeyond && behind != front; n++ {
		var page []*webhook.Delivery
		page, behind, err = e.store.Due(ctx, []int{i}, behind)
		e.take(ctx, page)
	}
	e.beyond[i] = behind
	return oldest, err
}

// take hands the deliveries that a sweep found to their lanes. It defers deliveries that exceed
// a lane's size, so that the next sweep does not find them again. The lane loads them when it
// has room. If a delivery was already deferred, take defers it for longer.
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
		// If the delivery was deferred and is due again, its lane has had no room since then.
		// The lane was woken above and also loads deferred deliveries, so the due time is only
		// a fallback.
		if d.Deferred {
			d.PutOff(now.Add(silence))
		} else {
			d.PutOff(now.Add(webhook.Defer))
		}
	}); err != nil {
		slog.DebugContext(ctx, "cannot defer deliveries; the next sweep retries", "error", err)
	}
}
