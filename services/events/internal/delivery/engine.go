// Package delivery brings events to webhooks.
//
// Firestore is the truth: a delivery that is pending has a time at which it is
// due, and whoever takes it moves that time on by a lease. A replica that dies
// leaves deliveries that become due again; a replica that was slow finds that its
// result no longer fits the document and drops it. So everything is delivered at
// least once, and a message that is sent twice has the same id.
//
// Redis only wakes: writers name accounts with new events, and one of the replicas
// that hear it gives the events their places and makes their deliveries, most of
// which it takes in hand in the same commit. Without Redis a look every few
// seconds finds the same.
//
// Each webhook has a lane of its own in a replica. A lane runs a few attempts at
// once, one alone after a failure, and holds a bounded number of deliveries in
// memory; what does not fit waits in Firestore. Lanes that fail share slots of their own, so
// that receivers that hang, however many, take none from those that answer.
package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/store"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Store is what the engine asks of the store.
type Store interface {
	Settle(ctx context.Context, accountID string, room func(webhookID string) bool) (store.Settled, error)
	Overlooked(ctx context.Context, before time.Time) (accounts []string, oldest time.Time, err error)
	Event(ctx context.Context, id string) (*feed.Event, error)
	Webhook(ctx context.Context, accountID, id string) (*webhook.Webhook, error)
	// Receiver is Webhook, and whether the account may be sent nothing now.
	Receiver(ctx context.Context, accountID, id string) (w *webhook.Webhook, silent bool, err error)
	PutOff(ctx context.Context, webhookID string, n int, t time.Time) (more bool, err error)
	Update(ctx context.Context, accountID, id string, fn func(*webhook.Webhook) (events.Type, error)) (*webhook.Webhook, error)
	// Signing opens the secrets that sign at now; err tells of those that do not open.
	Signing(w *webhook.Webhook, now time.Time) (texts []string, err error)
	NoteHealth(ctx context.Context, id string, failingSince time.Time) error
	Claim(ctx context.Context, webhookID string, n int) (taken []*webhook.Delivery, more bool, err error)
	Save(ctx context.Context, d *webhook.Delivery) (bool, error)
	Drop(ctx context.Context, id string) error
	// Due and Replays set aside what cannot be read. Beside an error there may be some.
	Due(ctx context.Context, lane int) (store.Due, error)
	Replays(ctx context.Context) ([]*webhook.Replay, error)
	Advance(ctx context.Context, r *webhook.Replay, w *webhook.Webhook) (done bool, err error)
	DropReplay(ctx context.Context, id string) error
}

// Caller calls receivers.
type Caller interface {
	Send(ctx context.Context, target string, header map[string]string, body []byte) webhook.Result
}

// Options shape an engine; zero fields have defaults.
type Options struct {
	Now func() time.Time
	// Sweep is how often the engine looks for what nobody was woken for; 10 s.
	Sweep time.Duration
	// Patience is how long an event may wait before a sweep takes it for overlooked;
	// 2 s.
	Patience time.Duration
}

// Engine is one replica's part in the work.
type Engine struct {
	store   Store
	caller  Caller
	opt     Options
	hub     *hub
	settler *settler
	metrics *metrics

	ctx  context.Context // of attempts; set by Run
	stop context.CancelFunc
	busy sync.WaitGroup

	mu      sync.Mutex
	lanes   map[string]*lane
	good    pool
	bad     pool
	stopped bool

	replaying chan struct{}
}

var (
	_ feed.Settler    = (*Engine)(nil)
	_ webhook.Courier = (*Engine)(nil)
)

// New makes an engine. It does nothing before Run.
func New(st Store, caller Caller, rdb redis.UniversalClient, opt Options) *Engine {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Sweep <= 0 {
		opt.Sweep = 10 * time.Second
	}
	if opt.Patience <= 0 {
		opt.Patience = 2 * time.Second
	}
	e := &Engine{
		store: st, caller: caller, opt: opt, hub: newHub(rdb, identity.NewNonce()), lanes: map[string]*lane{},
		good: pool{free: maxGood}, bad: pool{free: maxBad}, replaying: make(chan struct{}, 1),
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.settler = newSettler(e.settle)
	e.metrics = newMetrics(e)
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

// drain waits for running attempts, a little. What is left becomes due again.
func (e *Engine) drain() {
	e.mu.Lock()
	e.stopped = true
	var held []*webhook.Delivery
	for _, l := range e.lanes {
		for _, j := range l.queue {
			held = append(held, j.delivery)
		}
		l.queue = nil
	}
	e.mu.Unlock()
	ended := make(chan struct{})
	go func() { e.busy.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(8 * time.Second):
		e.stop() // an attempt that is cut short is made again by another replica
		<-ended
	}
	defer e.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, d := range held {
		g.Go(func() error {
			// Due at once for other replicas, instead of at the end of the lease.
			d.DueAt = e.opt.Now()
			_, err := e.store.Save(ctx, d)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		slog.InfoContext(ctx, "deliveries are not handed back; they become due again by themselves", "error", err)
	}
}

// woken hears of an account with new events.
func (e *Engine) woken(ctx context.Context, accountID string) {
	// Beside the listener: a slow Redis must not hold up the hints behind this one.
	go func() {
		if e.hub.mine(ctx, accountID, time.Second) {
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

// settle does one commit's worth. n is how many events got their places.
func (e *Engine) settle(ctx context.Context, accountID string) (n int, more bool, err error) {
	var out store.Settled
	for range 8 {
		if out, err = e.store.Settle(ctx, accountID, e.reserve); err == nil {
			break
		}
		// Lanes promised room for deliveries that were not made.
		e.unreserve(out.Deliveries)
		if !errors.Is(err, store.ErrMoved) {
			return 0, false, err
		}
	}
	if err != nil || len(out.Events) == 0 {
		return 0, false, err
	}
	e.hub.announce(ctx, accountID)
	byID := map[string]*feed.Event{}
	for _, ev := range out.Events {
		byID[ev.ID] = ev
	}
	for _, d := range out.Deliveries {
		e.accept(d, byID[d.EventID])
	}
	return len(out.Events), out.More, nil
}

// sweeps looks for what nobody was woken for.
func (e *Engine) sweeps(ctx context.Context) {
	for ctx.Err() == nil {
		if e.hub.mine(ctx, "sweep", e.opt.Sweep*9/10) {
			e.Sweep(ctx)
		}
		pause(ctx, e.opt.Sweep)
	}
}

// Sweep looks once.
func (e *Engine) Sweep(ctx context.Context) {
	accounts, oldest, err := e.store.Overlooked(ctx, e.opt.Now().Add(-e.opt.Patience))
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "cannot look for events without a place", "error", err)
	}
	e.metrics.waitingSince(oldest)
	for _, accountID := range accounts {
		e.settler.ask(ctx, accountID)
	}
	var mu sync.Mutex
	var oldestDue time.Time
	// Not errgroup.WithContext: a lane that cannot be read stops no other.
	var g errgroup.Group
	g.SetLimit(8)
	for i := range store.DueLanes {
		g.Go(func() error {
			due, err := e.store.Due(ctx, i)
			mu.Lock()
			if !due.Oldest.IsZero() && (oldestDue.IsZero() || due.Oldest.Before(oldestDue)) {
				oldestDue = due.Oldest
			}
			mu.Unlock()
			e.take(ctx, due.Deliveries)
			return err
		})
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "cannot look for due deliveries", "error", err)
	}
	e.metrics.dueSince(oldestDue)
	select {
	case e.replaying <- struct{}{}:
	default:
	}
}

// take hands what a sweep found to its lanes. What a lane has no room for is
// deferred, so that it does not hide others' from the next sweep; the lane comes
// back for it.
func (e *Engine) take(ctx context.Context, due []*webhook.Delivery) {
	count := map[string]int{}
	for _, d := range due {
		if count[d.WebhookID]++; count[d.WebhookID] == 1 {
			e.Send(d.AccountID, d.WebhookID)
		}
		if count[d.WebhookID] > laneSize && !d.Deferred {
			d.Deferred, d.DueAt = true, e.opt.Now().Add(webhook.Defer)
			if _, err := e.store.Save(ctx, d); err != nil {
				return // the next sweep goes on
			}
		}
	}
}

// Replay looks after replays, soon.
func (e *Engine) Replay() {
	select {
	case e.replaying <- struct{}{}:
	default:
	}
}

func (e *Engine) replays(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.replaying:
		}
		list, err := e.store.Replays(ctx)
		if err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "cannot look for replays", "error", err)
		}
		for _, r := range list {
			if err := e.replay(ctx, r); err != nil && ctx.Err() == nil {
				// It becomes due again; the others do not wait for it.
				slog.WarnContext(ctx, "replay interrupted", "replay", r.ID, "error", err)
			}
		}
	}
}

func (e *Engine) replay(ctx context.Context, r *webhook.Replay) error {
	for ctx.Err() == nil {
		w, err := e.store.Webhook(ctx, r.AccountID, r.WebhookID)
		if gone(err) {
			return e.store.DropReplay(ctx, r.ID)
		}
		if err != nil {
			return err
		}
		done, err := e.store.Advance(ctx, r, w)
		if err != nil {
			return err
		}
		e.Send(r.AccountID, r.WebhookID)
		if done {
			return nil
		}
	}
	return ctx.Err()
}

// Body is a message as Standard Webhooks has it. data is JSON already and is kept
// to the letter.
func Body(t events.Type, at time.Time, data string) ([]byte, error) {
	return json.Marshal(struct {
		Type      events.Type     `json:"type"`
		Timestamp string          `json:"timestamp"`
		Data      json.RawMessage `json:"data"`
	}{t, at.UTC().Format("2006-01-02T15:04:05.000Z"), json.RawMessage(data)})
}
