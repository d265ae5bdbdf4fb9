package delivery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// settler places events in the feed. It makes one commit per account at a time, at
// a rate that the account's feed document can sustain.
type settler struct {
	settle func(ctx context.Context, accountID string) (n int, more bool, err error)
	slots  *semaphore.Weighted

	mu       sync.Mutex
	accounts map[string]*turn
}

// turn is the state of an account that is being settled.
type turn struct {
	running bool
	// next is closed after the round that follows the running one. A caller that arrives during a
	// round waits for the next one because the running round may have read before the caller's
	// change.
	next chan struct{}
	// pace limits commits. Firestore sustains about one write per second to a document, and more
	// for a short time.
	pace *rate.Limiter
}

const burst = 10

func newSettler(settle func(context.Context, string) (int, bool, error)) *settler {
	return &settler{settle: settle, slots: semaphore.NewWeighted(16), accounts: map[string]*turn{}}
}

// ask ensures that a round for the account starts after this call. It returns a channel that is
// closed when this round ends. The round continues if the caller stops waiting.
func (s *settler) ask(ctx context.Context, accountID string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.accounts[accountID]
	if t == nil {
		t = &turn{pace: rate.NewLimiter(1, burst)}
		s.accounts[accountID] = t
	}
	if t.next == nil {
		t.next = make(chan struct{})
	}
	ended := t.next
	if !t.running {
		t.running = true
		go s.run(context.WithoutCancel(ctx), accountID, t)
	}
	return ended
}

// run executes rounds until no caller is waiting for another one.
func (s *settler) run(ctx context.Context, accountID string, t *turn) {
	for {
		// Pause before starting the round, so that callers who arrive during the pause share
		// it.
		outage.Pause(ctx, s.wait(t))
		s.mu.Lock()
		ended := t.next
		t.next = nil
		if ended == nil {
			t.running = false
			s.forget()
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		t.pace.ReserveN(time.Now(), s.round(ctx, accountID))
		close(ended)
	}
}

// round settles an account until no events are waiting, and returns the number of commits. It does
// not pause during a backlog. Accounts take turns using the slots, for one commit each, so an
// account with a single event does not wait for other accounts' backlogs.
func (s *settler) round(ctx context.Context, accountID string) (commits int) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		if s.slots.Acquire(ctx, 1) != nil {
			return min(commits, burst)
		}
		n, more, err := s.settle(ctx, accountID)
		s.slots.Release(1)
		if err != nil {
			slog.WarnContext(ctx, "cannot place an account's events in the feed; the next sweep retries", "account", accountID, "error", err)
		}
		if n > 0 {
			commits++
		}
		// Count at most burst commits. Otherwise, the account would pause for many seconds
		// after a large backlog.
		if err != nil || !more {
			return min(commits, burst)
		}
	}
}

func (s *settler) wait(t *turn) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.next == nil {
		return 0
	}
	return time.Duration(max(0, -t.pace.Tokens()) * float64(time.Second))
}

// forget drops idle accounts that have regained all their tokens.
func (s *settler) forget() {
	if len(s.accounts) < 10_000 {
		return
	}
	for id, other := range s.accounts {
		if !other.running && other.pace.Tokens() >= burst {
			delete(s.accounts, id)
		}
	}
}

// settle makes one commit. n is the number of events that were placed. Once the engine has stopped,
// settle does nothing because this replica could no longer send the deliveries.
func (e *Engine) settle(ctx context.Context, accountID string) (n int, more bool, err error) {
	e.mu.Lock()
	stopped := e.stopped
	if !stopped {
		e.busy.Add(1)
	}
	e.mu.Unlock()
	if stopped {
		return 0, false, nil
	}
	defer e.busy.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	// ErrMoved means that the feed has changed since it was read, so read it again. If all
	// attempts fail, the events remain in the outbox and the sweep finds them.
	for range 8 {
		if n, more, err = e.place(ctx, accountID); !errors.Is(err, feed.ErrMoved) {
			break
		}
	}
	return n, more, err
}

// place assigns positions to an account's waiting events, in commit order, and creates the
// deliveries. It returns feed.ErrMoved if the caller must try again.
//
// For each object, positions follow commit order. A later change to an object reads the result of
// the earlier change, so the earlier event has already been committed. Reading the waiting events
// returns every event that was committed before the read started. The result therefore never
// contains the later event without the earlier one.
func (e *Engine) place(ctx context.Context, accountID string) (n int, more bool, err error) {
	// Read the feed before the waiting events. If the feed is unchanged at commit time, none of
	// these events has been placed since then. Read both outside the transaction. Otherwise, every
	// change to the account would abort it.
	before, err := e.store.Feed(ctx, accountID)
	if err != nil {
		return 0, false, err
	}
	waiting, more, err := e.store.Waiting(ctx, accountID, len(before.Sending))
	if err != nil {
		return 0, false, err
	}
	restore, err := e.opt.Restore(ctx)
	if err != nil {
		return 0, false, err
	}
	before.Since(restore)
	waiting, lapsed := before.Apart(waiting, more, e.opt.Now().Add(-webhook.Lease))
	e.takeOver(ctx, lapsed)
	p := before.Place(waiting)
	if p == nil {
		return 0, false, nil
	}
	list := e.deliveries(p)
	if err := e.store.Place(ctx, p, list); err != nil {
		e.unreserve(list) // release the room that lanes reserved for deliveries that were not stored
		return 0, false, err
	}
	if len(p.Placed) > 0 {
		e.hub.announce(ctx, accountID)
	}
	for _, d := range list {
		e.accept(d)
	}
	return len(p.Placed), more || len(p.Placed) < len(waiting), nil
}

// deliveries creates the deliveries of newly placed events, and reserves room for them in each
// webhook's lane.
func (e *Engine) deliveries(p *feed.Placing) (list []*webhook.Delivery) {
	now, held := e.opt.Now(), e.held()
	for _, ev := range p.Placed {
		var inHand []*webhook.Delivery
		var ids []string
		for _, id := range p.After.Wanting(ev.Type) {
			d := webhook.Send(id, id, ev, !held && e.reserve(id), now)
			if held {
				d.PutOff(now) // so that the first sweep after the pause finds it, even if this replica has died
			}
			list = append(list, d)
			if !d.Deferred {
				inHand, ids = append(inHand, d), append(ids, id)
			}
		}
		if p.Send(ev, ids, now) {
			webhook.Fly(inHand)
		}
	}
	return list
}

// takeOver creates documents for a dead replica's first attempts, so that they are
// retried.
func (e *Engine) takeOver(ctx context.Context, lapsed []feed.Sending) {
	var g errgroup.Group
	g.SetLimit(8) // one at a time, a hundred of them would occupy the settler's slot for seconds
	for _, s := range lapsed {
		g.Go(func() error {
			var list []*webhook.Delivery
			for _, id := range s.Webhooks {
				d := webhook.Send(id, id, s.Event, true, s.Since)
				d.Release(e.opt.Now())
				list = append(list, d)
			}
			if err := e.store.TakeOver(ctx, s.EventID, list); err != nil {
				slog.WarnContext(ctx, "cannot take over a dead replica's first attempts; the next round retries", "event", s.EventID, "error", err)
				return nil
			}
			for _, d := range list {
				e.Send(d.AccountID, d.WebhookID)
			}
			return nil
		})
	}
	_ = g.Wait() // none of these functions returns an error
}
