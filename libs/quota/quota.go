// Package quota keeps an account below its limits, however fast it creates and on
// however many replicas, and costs a create next to nothing.
//
// Counting and then writing is not enough: forty creates that count at once all see
// the same free place. So places are given out by one small document for each account
// and kind, the ledger. It says how many places were given out, for good or on lease.
// A create gets its place in one of three ways:
//
//	who                     how                                                  costs
//	first of this process   its own transaction moves the ledger on, and leases  1 read, 1 write
//	                        places for those that follow
//	follows, far from the   takes a leased place from memory                     nothing
//	limit
//	follows, near the       the same, and its transaction reads the lease        1 read
//	limit
//
// What may be written once a second is written at most once a second, after a burst of
// three: the ledger says itself when it may be written next, by Firestore's clock. In a
// process one change at a time asks it; the others wait for what that one leases.
//
// No limit is passed, because one sentence always holds:
//
//		records + places that may yet become records <= granted
//
//	  - Granted rises before a place is used, in a transaction that checks it against
//	    the limit.
//	  - Granted falls only to a count of the records plus all places on lease. The
//	    ledger is read before the records are counted, so whoever leases, returns or
//	    takes back places meanwhile makes this transaction start again.
//	  - A lease near the limit has a document of its own, the fence, which every create
//	    under it reads in its transaction. Taking the lease back deletes the fence. A
//	    process that slept cannot commit past that, whatever its clock says.
//	  - A lease far from the limit has no fence but time: its holder uses it for
//	    [leaseTime] after asking, and others take it back [delivery] after that. A commit
//	    has a deadline of a few seconds.
//	  - A lease that is taken back stays granted until a later transaction counts, so
//	    that a create which was faster than the taking back is in that count.
//
// Deletions do not touch the ledger. When it has no place left it is corrected by a
// count, and only a count says that an account is full: as long as places are on lease
// elsewhere, a create waits, and then is asked to come back.
//
// The reasons and what lost are in docs/adr/0018-quotas-are-leased.md.
package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/outage"
)

// Limit is a limit of one account.
type Limit struct {
	Account string
	// Kind names what is limited: "links", "domains".
	Kind string
	// Max is the most the account may have. Zero or less is no limit.
	Max int64
	// Count counts what the account has.
	Count func(context.Context) (int64, error)
}

// ErrAsk says that a change which reads nothing cannot have its places: this process
// has none on lease, or only such as ask for a read.
var ErrAsk = errors.New("the ledger has to be read")

// Gate gives out places. It is safe for concurrent use.
type Gate struct {
	db  *firestoredb.DB
	now func() time.Time

	mu       sync.Mutex
	accounts map[string]*account
}

// account is what this process knows of an account's places of one kind.
type account struct {
	key     string
	chunk   int64         // places that were leased last
	asked   time.Time     // when the ledger gave places last
	current *lease        // whose places are taken; nil while the ledger is asked
	held    []*lease      // all whose places are not settled in the ledger
	asking  chan struct{} // closed when the change that asks the ledger has ended
	waiting int64         // places that changes wait for meanwhile
	// full is when a count began that found no room below fullAt.
	full   time.Time
	fullAt int64
	rest   time.Time // until then nothing is counted again: a large count is dear
}

// lease is places that the ledger has given to this process.
type lease struct {
	id     string
	fenced bool
	since  time.Time // before the ledger was asked
	have   int64     // that no change has taken
	out    int64     // that changes have taken which have not ended
}

// fresh reports whether the places may be used. A clock that was set back proves nothing.
func (l *lease) fresh(now time.Time) bool {
	age := now.Sub(l.since)
	return age >= 0 && age < leaseTime
}

const (
	// leaseTime is how long places are used after they were leased.
	leaseTime = 20 * time.Second
	// delivery is more than a commit can be under way. Lease and delivery together stay
	// below a minute, after which the places of a killed process are free again.
	delivery = 35 * time.Second
	// patience is how long a create waits for a place before it is asked to come back.
	patience = 5 * time.Second
	// maxAccounts bounds the memory; beyond it all unused leases are forgotten.
	maxAccounts = 10_000
)

// New makes a gate; a nil now is the system's clock.
func New(db *firestoredb.DB, now func() time.Time) *Gate {
	if now == nil {
		now = time.Now
	}
	return &Gate{db: db, now: now, accounts: map[string]*account{}}
}

// Claim is the places of one change. It belongs to one goroutine.
type Claim struct {
	g     *Gate
	began time.Time
	limit Limit
	a     *account
	from  *lease // whose places these are
	n     int64
	doubt *lease // whose fence a try has not found
	want  int64  // how many of them the commit uses
	leads bool   // this change asks the ledger, and others wait for it
	grant *grant // what the commit of this try changes in the ledger
	seen  *grant // the same, of a sum that may not change
	sent  bool   // this try has come to its commit
	blind bool   // which is one without a transaction, and so may have been made twice
}

// Claim begins a change under a limit.
func (g *Gate) Claim() *Claim { return &Claim{g: g, began: time.Now()} }

// again is the error of a try that has no place yet: it says what to do before the
// change is made again.
type again struct {
	after func(context.Context) error
}

func (again) Error() string { return "no place yet" }

func pause(d time.Duration) error {
	return &again{func(ctx context.Context) error {
		if !outage.Pause(ctx, d) {
			return apierr.Contended(ctx.Err())
		}
		return nil
	}}
}

// Settle is told how a try of the change ended in which it was asked for [Claim.Room] or
// [Claim.Watch], and makes the change again, as often as it has to wait for a place.
func (c *Claim) Settle(ctx context.Context, err error, change func() error) error {
	defer c.leave()
	for {
		c.end(err)
		var w *again
		if !errors.As(err, &w) {
			return err
		}
		for w != nil {
			if time.Since(c.began) > patience {
				return apierr.Contended(err)
			}
			err, w = w.after(ctx), nil
			if err != nil && !errors.As(err, &w) {
				return err
			}
		}
		err = change()
	}
}

// errLeft ends a try of which [Claim.Settle] was not told.
var errLeft = errors.New("the change has ended")

// Leave ends the change, also one that panics: others wait for a change that asks the ledger.
func (c *Claim) Leave() {
	c.end(errLeft)
	c.leave()
}

// Retry begins another try within the same transaction. It may not ask again, and must
// not write what the one before it wanted to change in the ledger.
func (c *Claim) Retry() {
	c.sent, c.grant, c.seen = false, nil, nil
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	c.put()
}

// Room is how many of want places the change may use, all of them unless the account
// is full. It belongs to the reads of a transaction; with a nil tx, for a change that
// reads nothing, it may return [ErrAsk].
func (c *Claim) Room(ctx context.Context, tx *firestore.Transaction, l Limit, want int64) (int64, error) {
	c.sent, c.grant, c.want, c.blind = false, nil, want, tx == nil // a try of the same transaction may have been before
	if l.Max <= 0 || want <= 0 {
		return want, nil
	}
	if c.a != nil && (c.limit.Account != l.Account || c.limit.Kind != l.Kind) {
		return 0, fmt.Errorf("a change asks for %s and for %s", c.limit.Kind, l.Kind)
	}
	c.limit = l
	switch c.take(tx != nil) {
	case taken:
		return want, c.fence(tx)
	case noRoom:
		return 0, nil
	case busy:
		return 0, c.wait()
	}
	if tx == nil {
		return 0, ErrAsk
	}
	return c.ask(ctx, tx)
}

type outcome int

const (
	taken  outcome = iota
	noRoom         // a count that began after this change says so
	busy           // another change asks the ledger
	ask            // this change is to ask it
)

// take takes places from memory, or says how to get some.
func (c *Claim) take(mayRead bool) outcome {
	g := c.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.a == nil {
		c.a = g.account(c.limit.Account + "~" + c.limit.Kind)
	}
	a := c.a
	c.put()
	switch l := a.current; {
	case l != nil && l.have >= c.want && l.fresh(g.now()) && (mayRead || !l.fenced):
		l.have -= c.want
		l.out += c.want
		c.from, c.n = l, c.want
		return taken
	case c.leads:
		return ask
	case mayRead && a.full.After(c.began) && a.fullAt >= c.limit.Max:
		return noRoom
	case a.asking != nil:
		return busy
	case mayRead:
		// From now on nobody takes from the present lease, so what it has can be returned.
		a.current, a.asking, c.leads = nil, make(chan struct{}), true
	}
	return ask
}

// account finds or makes what is known of an account. The caller holds the lock.
func (g *Gate) account(key string) *account {
	a := g.accounts[key]
	if a == nil {
		if len(g.accounts) >= maxAccounts {
			clear(g.accounts) // their leases are taken back when somebody needs the places
		}
		a = &account{key: key}
		g.accounts[key] = a
	}
	return a
}

// put gives places back that this change has taken and not used. The caller holds the lock.
func (c *Claim) put() {
	if c.from != nil {
		c.from.out -= c.n
		c.from.have += c.n
		c.from, c.n = nil, 0
	}
}

// fence reads the lease that the places are of, so that the commit fails if it was
// taken back meanwhile. A transaction sees the database as it was at its first read, which
// may be before the lease was given: only a try that began after one which had not found
// the fence either knows that it is gone.
func (c *Claim) fence(tx *firestore.Transaction) error {
	if !c.from.fenced {
		return nil
	}
	there, err := exists(tx, c.g.fence(c.a.key, c.from.id))
	if err != nil || there {
		return err
	}
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if c.doubt == c.from {
		c.a.forget(c.from)
	}
	c.doubt = c.from
	c.put()
	return pause(0)
}

// forget leaves a lease to whoever takes it back. The caller holds the lock.
func (a *account) forget(l *lease) {
	if a.current == l {
		a.current = nil
	}
	for i := range a.held {
		if a.held[i] == l {
			a.held = append(a.held[:i:i], a.held[i+1:]...)
			return
		}
	}
}

// wait is for a change that waits until another has asked the ledger.
func (c *Claim) wait() error {
	return &again{func(ctx context.Context) error {
		c.g.mu.Lock()
		asking := c.a.asking
		c.a.waiting += c.want
		c.g.mu.Unlock()
		defer func() {
			c.g.mu.Lock()
			c.a.waiting -= c.want
			c.g.mu.Unlock()
		}()
		if asking == nil {
			return nil
		}
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case <-asking:
		case <-late.C:
		case <-ctx.Done():
			return apierr.Contended(ctx.Err())
		}
		return nil
	}}
}

// Watch is for a limit of a sum, such as bytes, of which a change knows only while it is
// made whether it adds to it. It reads the ledger; the caller then sums up what there
// is. It belongs to the reads.
func (c *Claim) Watch(tx *firestore.Transaction, l Limit) error {
	c.sent, c.grant, c.seen, c.limit = false, nil, nil, l
	c.g.mu.Lock()
	c.a = c.g.account(l.Account + "~" + l.Kind)
	c.g.mu.Unlock()
	d, err := c.read(tx)
	if err == nil {
		c.seen = &grant{g: c.g, key: c.a.key, limit: l, ledger: d}
	}
	return err
}

// Grow says that the change adds to the sum. It writes the ledger, so that all changes
// which have read the same sum start again. There is one a second.
func (c *Claim) Grow() error {
	if c.seen == nil {
		return nil
	}
	if wait := c.seen.ledger.early(); wait > 0 {
		return pause(wait)
	}
	c.grant = c.seen
	return nil
}

// Take is the last write of the transaction. Without a limit it does nothing.
func (c *Claim) Take(tx *firestore.Transaction) error {
	c.sent = true
	if c.grant == nil {
		return nil
	}
	return c.grant.write(tx)
}

// end settles what this try has taken. Only a try that has come to its commit may have
// used its places in spite of an error.
func (c *Claim) end(err error) {
	if c.a == nil {
		return
	}
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	// Nothing was written if the try never came to its commit, if another writer won, or if a
	// document existed before. A blind commit may have been repeated, so there the document that
	// exists may be its own.
	exists := errors.Is(err, firestoredb.ErrExists)
	undone := err != nil && (!c.sent || errors.Is(err, firestoredb.ErrContended) || exists && !c.blind)
	if l := c.from; l != nil {
		switch {
		case undone:
			c.put()
		case err == nil, exists: // what exists may be its own, of a commit whose answer was lost
			l.out -= c.n
		default:
			// The commit may come late. The lease covers it until it is taken back.
			c.a.forget(l)
		}
		c.from, c.n = nil, 0
	}
	switch {
	case c.grant == nil || undone:
	case err == nil:
		c.a.leased(c.grant)
	default:
		c.a.held, c.a.current = nil, nil // nobody knows what the ledger says now
	}
	c.grant = nil
}

// leased notes what a commit has made of the ledger. The caller holds the lock.
func (a *account) leased(t *grant) {
	for l, n := range t.returned {
		l.have -= n
	}
	a.held, a.current, a.asked, a.chunk = t.held, t.lease, t.since, 0
	if t.lease != nil {
		a.chunk = t.lease.have
	}
}

// leave lets the next change ask the ledger.
func (c *Claim) leave() {
	if !c.leads {
		return
	}
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	close(c.a.asking)
	c.a.asking, c.leads = nil, false
}
