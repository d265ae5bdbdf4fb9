// Package places ensures that a link does not redirect more visits than its maxClicks, across any
// number of replicas.
//
// A visit takes a slot in Firestore before it is redirected. Its click is recorded in the click log
// like any other, so neither a lost click nor a Redis outage can let a visit exceed the limit. On
// each replica, a link has at most one commit in flight. The next commit takes slots for all visits
// that arrived in the meantime. If a process is killed before it responds to a visit, the visit's
// slot remains used. If the outcome of a commit is unknown, its visits get an error. The replica
// then retries until it knows the outcome, and gives the slots to other visits.
//
// When a link is exhausted, the change is written to its slug's record, which every replica caches.
// From then on, only a replica's first visit to the link requests a slot.
//
// If a limit is added to an existing link, some of its clicks may not be counted yet. Until all of
// them are counted, the number of remaining slots is unknown, and visits get an error for a few
// seconds.
package places

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/lograte"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// ErrChanged means that the link has changed since the visit looked it up: it no longer has a
// limit, or all its slots are taken. The visit must look the link up again.
var ErrChanged = errors.New("the link has changed")

// Store keeps the slots of links.
type Store interface {
	// Take processes the ask and returns the resulting slots. If the link is not settled, the ask
	// does not get any slots. The error is [link.ErrNoLimit] if the link has no slots. After any
	// other error the ask may have been processed.
	Take(ctx context.Context, linkID string, ask link.Ask) (granted int64, left link.Places, err error)
	// Settle counts the link's clicks as used slots and marks the link as settled. Call it only
	// after all clicks have been counted; see [Options].Counted.
	Settle(ctx context.Context, linkID string) error
}

// Options configure a [Gate].
type Options struct {
	Store Store
	// Forget drops the slugs from this replica's cache.
	Forget func(slugKeys ...string)
	// Announce notifies all replicas that the slugs have changed.
	Announce func(ctx context.Context, slugKeys ...string)
	// Counted returns a function that reports whether all clicks that any replica recorded before
	// the call to Counted have been counted. The gate calls that function until it returns true.
	Counted func() func(ctx context.Context) (bool, error)
}

// Limits on the visits that are waiting at one replica. Visits over a limit get an error
// immediately, so many visits to one link cannot use up the memory, workers or calls that other
// links need.
const (
	maxLines    = 512  // links with waiting visits
	linesEach   = 16   // links in one account with waiting visits
	maxWaiting  = 8192 // waiting visits
	waitingEach = 1024 // waiting visits to one link
	waitingOf   = 2048 // waiting visits to all links in one account
	callTime    = 4 * time.Second
	// maxUnsure limits the number of asks with an unknown outcome that a line remembers. Slots from
	// older asks remain used.
	maxUnsure = 32
	// settleFor is how long a line keeps trying to settle its link after the last visit.
	settleFor = time.Minute
)

// The pause between two commits for a link. Firestore accepts only a few writes per second to one
// document. The pauses therefore grow while visits keep arriving, and more visits share a commit.
// The first visit after a quiet period does not wait.
const (
	restMin        = 100 * time.Millisecond
	restMax        = 500 * time.Millisecond
	restAfterError = 250 * time.Millisecond
	restErrorMax   = 2 * time.Second
)

// Gate assigns slots to visits. It is safe for concurrent use.
type Gate struct {
	opt    Options
	stop   chan struct{} // closed when the process stops
	wg     sync.WaitGroup
	failed lograte.Limit // rate limit for log lines about failed asks

	mu       sync.Mutex
	stopped  bool
	lines    map[string]*line // by link
	accounts map[string]*share
	waiting  int
}

// share counts an account's lines and waiting visits.
type share struct{ lines, waiting int }

// line is a link with waiting visits. One goroutine serves it.
type line struct {
	account, link, key string
	waiting            []chan error // Gate.mu guards waiting and back
	back               int64

	// The fields below are used only by the line's goroutine.
	unsure  []string
	counted func(ctx context.Context) (bool, error) // set while the link is not settled
	until   time.Time                               // when the line stops trying to settle its link
}

// New returns a gate.
func New(opt Options) *Gate {
	return &Gate{opt: opt, stop: make(chan struct{}), lines: map[string]*line{}, accounts: map[string]*share{}}
}

// Run waits until ctx is canceled, stops the gate and waits for its goroutines.
func (g *Gate) Run(ctx context.Context) error {
	<-ctx.Done()
	g.mu.Lock()
	if !g.stopped {
		g.stopped = true
		close(g.stop)
	}
	g.mu.Unlock()
	g.wg.Wait()
	return nil
}

// Take takes a slot for a visit to the link with this slug. It waits until the slot is durable.
// After any error except ErrChanged, the visit may be retried later.
func (g *Gate) Take(accountID, linkID, slugKey string) error {
	g.mu.Lock()
	l := g.line(accountID, linkID, slugKey)
	if l == nil || len(l.waiting) >= waitingEach || g.accounts[accountID].waiting >= waitingOf || g.waiting >= maxWaiting {
		g.mu.Unlock()
		refused.Inc()
		return errBusy
	}
	done := make(chan error, 1)
	l.waiting = append(l.waiting, done)
	g.waiting++
	g.accounts[accountID].waiting++
	g.mu.Unlock()
	return <-done
}

// Back returns a slot after its visit was not redirected.
func (g *Gate) Back(accountID, linkID, slugKey string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.line(accountID, linkID, slugKey); l != nil { // otherwise, the slot remains used
		l.back++
	}
}

// line returns the line for a link, or nil if there are too many lines.
func (g *Gate) line(accountID, linkID, slugKey string) *line {
	if l := g.lines[linkID]; l != nil {
		return l
	}
	own := g.accounts[accountID]
	if g.stopped || len(g.lines) >= maxLines || own != nil && own.lines >= linesEach {
		return nil
	}
	if own == nil {
		own = &share{}
		g.accounts[accountID] = own
	}
	l := &line{account: accountID, link: linkID, key: slugKey}
	g.lines[linkID] = l
	own.lines++
	g.wg.Go(func() { g.serve(l) })
	return l
}

// serve takes slots for the waiting visits, one commit after another, and returns when no work is
// left.
func (g *Gate) serve(l *line) {
	pause := time.Duration(0)
	for first := true; ; first = false {
		visits, back, ok := g.next(l)
		if !ok {
			return
		}
		started := time.Now() // real time because this only paces the commits
		err := g.take(l, visits, back)
		if err == nil && l.counted != nil {
			err = g.settle(l)
		}
		took := time.Since(started)
		switch {
		case err != nil:
			pause = min(max(2*pause, restAfterError), restErrorMax)
		case first:
			pause = min(took, restMax)
		default:
			// Firestore slows down when a document has too many writers, so pause longer after a
			// slow commit.
			pause = max(min(pause*3/2, restMax), restMin, min(took, 2*restMax))
		}
		select {
		case <-g.stop:
		case <-time.After(pause):
		}
	}
}

// next returns the visits for the next commit and the number of slots to return. If no work is
// left, it removes the line.
func (g *Gate) next(l *line) (visits []chan error, back int64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	visits, back = l.waiting, l.back
	l.waiting, l.back = nil, 0
	own := g.accounts[l.account]
	g.waiting, own.waiting = g.waiting-len(visits), own.waiting-len(visits)
	if len(visits) > 0 {
		l.until = time.Now().Add(settleFor)
	}
	busy := len(l.unsure) > 0 || l.counted != nil && time.Now().Before(l.until)
	if len(visits) > 0 || back > 0 || busy && !g.stopped {
		return visits, back, true
	}
	delete(g.lines, l.link)
	if own.lines--; own.lines == 0 {
		delete(g.accounts, l.account)
	}
	return nil, 0, false
}

// call runs fn on behalf of the link's account, for at most callTime.
func (g *Gate) call(l *line, fn func(ctx context.Context) error) error {
	ctx := identity.WithPrincipal(context.Background(), &identity.Principal{AccountID: l.account})
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return fn(ctx)
}

// take requests slots and responds to the visits.
func (g *Gate) take(l *line, visits []chan error, back int64) error {
	ask := link.Ask{ID: identity.NewNonce(), Want: int64(len(visits)), Back: back, Unsure: l.unsure}
	var granted int64
	var left link.Places
	err := g.call(l, func(ctx context.Context) (err error) {
		granted, left, err = g.opt.Store.Take(ctx, l.link, ask)
		return err
	})
	gone := errors.Is(err, link.ErrNoLimit)
	if err != nil {
		granted = 0
	}
	var rest error // for visits without a slot
	switch {
	case err != nil && !gone:
		if times := g.failed.Due(time.Now(), 1); times > 0 {
			slog.Warn("cannot take slots for a link with maxClicks; retrying", "link", l.link, "error", err, "times", times)
		}
		l.unsure = append(l.unsure[max(0, len(l.unsure)-maxUnsure+1):], ask.ID)
		rest = err
	case gone || left.Full():
		l.unsure, l.counted, err, rest = nil, nil, nil, ErrChanged
		if len(visits) > int(granted) {
			g.opt.Forget(l.key) // must precede the visits' next lookup of the link
		}
	case !left.Settled:
		l.unsure, rest = nil, errUnsettled
		if l.counted == nil {
			g.begin(l)
		}
	default:
		l.unsure, l.counted = nil, nil
	}
	for i, done := range visits {
		if int64(i) < granted {
			done <- nil
			continue
		}
		if !errors.Is(rest, ErrChanged) {
			refused.Inc()
		}
		done <- rest
	}
	return err
}

var refused = promauto.NewCounter(prometheus.CounterOpts{Name: "linkreel_places_refused_total",
	Help: "Visits to links with maxClicks that got a 503 because the number of remaining clicks was uncertain."})

var (
	errBusy      = errors.New("too many visits to links with maxClicks are waiting")
	errUnsettled = errors.New("clicks from before the limit are still being counted")
)

// begin starts settling a link. It first announces the link because replicas that do not know about
// its limit yet would redirect visits without a slot.
func (g *Gate) begin(l *line) {
	_ = g.call(l, func(ctx context.Context) error { g.opt.Announce(ctx, l.key); return nil })
	l.counted = g.opt.Counted()
}

// settle marks the link as settled if all its earlier clicks have been counted.
func (g *Gate) settle(l *line) error {
	return g.call(l, func(ctx context.Context) error {
		done, err := l.counted(ctx)
		if err != nil || !done {
			return err
		}
		err = g.opt.Store.Settle(ctx, l.link)
		if err == nil || errors.Is(err, link.ErrNoLimit) {
			l.counted, err = nil, nil
		}
		return err
	})
}
