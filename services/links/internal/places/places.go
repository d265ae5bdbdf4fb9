// Package places lets no more visits through to a link than its maxClicks allow, over any
// number of replicas.
//
// A visit gets its place in Firestore before it is led on, and its click goes through the
// click log like any other. So neither a lost click nor a lost Redis can let one visit more
// through. The visits that wait at one replica for one link share a commit: a link has at
// most one commit in flight at each replica, and the next one takes all that have come
// meanwhile. A place whose visit was not answered because its process was killed stays
// used. If the outcome of a commit is not known, its visits get an error, and the replica
// asks until it knows; then the places go to other visits.
//
// A link that is used up says so in its slug's record, which every replica has in memory.
// Only a replica's first visit after that asks for a place in vain.
//
// A link that gets its limit later may have clicks that still wait to be counted. Until all
// are counted nobody knows how many places are left, so visits get an error for some
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
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// ErrChanged means that the link is not what the visit took it for: it has no limit any
// more, or all its places are taken. The visit has to look it up again.
var ErrChanged = errors.New("the link has changed")

// Store keeps the places of links.
type Store interface {
	// Take carries out the ask, and returns the places as they are then. It gives no place
	// of a link that is not settled. The error is [link.ErrNoLimit] if the link has no places. After
	// any other error the ask may have been carried out.
	Take(ctx context.Context, linkID string, ask link.Ask) (granted int64, left link.Places, err error)
	// Settle counts the clicks that the link has, and lets it give places. All of them must
	// be counted; see [Options].Counted.
	Settle(ctx context.Context, linkID string) error
}

// Options configure a [Gate].
type Options struct {
	Store Store
	// Forget drops what this replica remembers of a slug.
	Forget func(slugKeys ...string)
	// Announce tells all replicas that a slug has changed.
	Announce func(ctx context.Context, slugKeys ...string)
	// Counted returns a function that reports whether all clicks are counted that any
	// replica took before Counted was called. It is called again until it does.
	Counted func() func(ctx context.Context) (bool, error)
}

// Bounds of what waits at one replica. Beyond them visits get an error at once, so that one
// link's flood takes no memory, and neither workers nor calls from other links.
const (
	maxLines    = 512  // links with waiting visits
	linesEach   = 16   // of them of one account
	maxWaiting  = 8192 // visits
	waitingEach = 1024 // of them at one link
	waitingOf   = 2048 // of them at all links of one account
	callTime    = 4 * time.Second
	// maxUnsure bounds the asks of unknown outcome that a link remembers. The places of
	// older ones stay used.
	maxUnsure = 32
	// settleFor is how long a link tries to settle after the last visit.
	settleFor = time.Minute
)

// The pause between two commits of a link. Firestore takes few writes a second of one
// document. So while visits keep coming, the pauses grow, and more visits share a commit.
// The first visit after a quiet time does not wait.
const (
	restMin        = 100 * time.Millisecond
	restMax        = 500 * time.Millisecond
	restAfterError = 250 * time.Millisecond
	restErrorMax   = 2 * time.Second
)

// Gate gives places. It is safe for concurrent use.
type Gate struct {
	opt  Options
	stop chan struct{} // closed when the process ends
	wg   sync.WaitGroup

	mu       sync.Mutex
	stopped  bool
	lines    map[string]*line // by link
	accounts map[string]*share
	waiting  int
}

// share is what one account has of the gate.
type share struct{ lines, waiting int }

// line is a link at which visits wait. One goroutine serves it.
type line struct {
	account, link, key string
	waiting            []chan error // guarded by Gate.mu, as back
	back               int64

	// Only the line's goroutine uses the fields below.
	unsure  []string
	counted func(ctx context.Context) (bool, error) // while the link is not settled
	until   time.Time                               // when it stops trying to settle
}

// New makes a gate.
func New(opt Options) *Gate {
	return &Gate{opt: opt, stop: make(chan struct{}), lines: map[string]*line{}, accounts: map[string]*share{}}
}

// Run waits until ctx ends and then ends all work of the gate.
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

// Take takes a place for a visit to the link with this slug. It waits until the place is
// durable. After any error but ErrChanged the visit may try again later.
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

// Back gives back a place whose visit was not led on.
func (g *Gate) Back(accountID, linkID, slugKey string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.line(accountID, linkID, slugKey); l != nil { // otherwise the place stays used
		l.back++
	}
}

// line returns the line of a link; nil if there are too many.
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

// serve takes places for the visits that wait, one commit after the other, and ends when
// there is nothing left to do.
func (g *Gate) serve(l *line) {
	pause := time.Duration(0)
	for first := true; ; first = false {
		visits, back, ok := g.next(l)
		if !ok {
			return
		}
		started := time.Now() // real time: it only paces the commits
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
			// A document with too many writers answers late. Then rest longer, too.
			pause = max(min(pause*3/2, restMax), restMin, min(took, 2*restMax))
		}
		select {
		case <-g.stop:
		case <-time.After(pause):
		}
	}
}

// next returns the visits of the next commit and how many places to give back. If nothing
// is left to do, it removes the line.
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

// call runs fn within the time that a visit waits for it, in the turn of the link's
// account.
func (g *Gate) call(l *line, fn func(ctx context.Context) error) error {
	ctx := identity.WithPrincipal(context.Background(), &identity.Principal{AccountID: l.account})
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return fn(ctx)
}

// take asks for places and answers the visits.
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
	var rest error // for visits without a place
	switch {
	case err != nil && !gone:
		slog.Warn("cannot take places of a link with maxClicks; retrying", "link", l.link, "error", err)
		l.unsure = append(l.unsure[max(0, len(l.unsure)-maxUnsure+1):], ask.ID)
		rest = err
	case gone || left.Full():
		l.unsure, l.counted, err, rest = nil, nil, nil, ErrChanged
		if len(visits) > int(granted) {
			g.opt.Forget(l.key) // before the visits look the link up again
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
	Help: "Visits to links with maxClicks that got a 503 because it was not certain that a click was left."})

var (
	errBusy      = errors.New("too many visits wait for their places")
	errUnsettled = errors.New("clicks from before the limit are still being counted")
)

// begin begins to settle a link. Replicas that do not know of its limit yet would still
// lead visits on without a place.
func (g *Gate) begin(l *line) {
	_ = g.call(l, func(ctx context.Context) error { g.opt.Announce(ctx, l.key); return nil })
	l.counted = g.opt.Counted()
}

// settle lets the link give places if all its earlier clicks are counted.
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
