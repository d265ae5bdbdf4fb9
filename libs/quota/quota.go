// Package quota enforces account limits at almost no cost per create. It works at any create rate
// and with any number of replicas.
//
// Counting before each write is not enough: forty concurrent creates would all find the same free
// slot. Therefore, each account and kind has one small document, the ledger, which grants slots.
// It records how many slots are granted, used or leased. A create gets its slot in one of three
// ways:
//
//	who                     how                                                  costs
//	first in this process   its own transaction updates the ledger, and leases   1 read, 1 write
//	                        slots for later creates
//	later, far from the     takes a leased slot from memory                     nothing
//	limit
//	later, near the         the same, and its transaction reads the lease        1 read
//	limit
//
// Firestore accepts about one write a second to a document, so after a burst of three, a ledger is
// written at most once a second. It records the time of the next allowed write, by Firestore's
// clock. In each process, only one change at a time asks the ledger. The other changes wait for the
// slots that this change leases.
//
// Limits are never exceeded because this invariant always holds:
//
//	records + slots that may yet become records <= granted
//
// These rules preserve it:
//
//   - Granted rises before a slot is used, in a transaction that checks it against the
//     limit.
//   - Granted decreases only to a count of the records plus all leased slots. The ledger
//     is read before the records are counted, so if another transaction leases, returns or
//     takes back slots at the same time, this one starts again.
//   - A lease near the limit has its own document, the fence, which every create under the
//     lease reads in its transaction. Taking the lease back deletes the fence. After that,
//     even a process that was suspended, or has a wrong clock, cannot commit.
//   - A lease far from the limit has no fence, only an expiry: its holder uses it for
//     [leaseTime] after asking, and other processes take it back [delivery] later. A commit
//     has a deadline of a few seconds.
//   - The slots of a lease that was taken back remain granted until a later transaction
//     counts. A create that committed before the lease was taken back is in that count.
//
// Deletions do not change the ledger. When it has no slots left, a count corrects it. Only a count
// can establish that an account is full. While other processes hold leased slots, a create waits,
// and then returns an error that asks the caller to retry.
//
// See docs/adr/0018-quotas-are-leased.md for the reasons and the alternatives.
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
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/outage"
)

// Limit is a limit on one account.
type Limit struct {
	Account string
	// Kind is the limited kind of record: "links", "domains".
	Kind string
	// Max is how many records the account may have. Zero or less means no limit.
	Max int64
	// Count counts the account's records.
	Count func(context.Context) (int64, error)
}

// ErrAsk means that a change without reads cannot get its slots, because this process has no
// leased slots, or because their lease has a fence, which must be read.
var ErrAsk = errors.New("the ledger must be read")

// Gate grants slots. It is safe for concurrent use.
type Gate struct {
	db  *firestoredb.DB
	now func() time.Time

	mu       sync.Mutex
	accounts map[string]*account
}

// account is the state of one account's slots of one kind in this process.
type account struct {
	key     string
	chunk   int64         // size of the last lease
	asked   time.Time     // when the ledger last granted slots
	current *lease        // the lease in use; nil while a change is asking the ledger
	held    []*lease      // all leases that are not yet settled in the ledger
	asking  chan struct{} // closed when the change that asks the ledger has ended
	waiting int64         // slots needed by changes that are waiting for another to ask the ledger
	// full is when the last count that found no free slots began. It applied the limit fullAt.
	full   time.Time
	fullAt int64
	rest   time.Time // do not count before this time: a large count is expensive
	last   counted
}

// counted is the result of a count.
type counted struct {
	n      int64
	began  time.Time
	ledger time.Time // when the ledger was last written
}

// lease is a number of slots that the ledger has leased to this process.
type lease struct {
	id     string
	fenced bool
	since  time.Time // a time just before asking the ledger
	have   int64     // slots that no change has taken
	out    int64     // slots held by in-flight changes
}

// fresh reports whether the slots may be used. If the clock was set back, the lease's age is
// unknown, so its slots must not be used.
func (l *lease) fresh(now time.Time) bool {
	age := now.Sub(l.since)
	return age >= 0 && age < leaseTime
}

const (
	// leaseTime is how long leased slots may be used.
	leaseTime = 20 * time.Second
	// delivery is longer than a commit can be in flight. Together, leaseTime and delivery are less
	// than a minute, so the slots of a killed process are free again within a minute.
	delivery = 35 * time.Second
	// patience is how long a create waits for a slot before it returns an error that asks the
	// caller to retry.
	patience = 5 * time.Second
	// commitTime is how much of a request's time is reserved for its commit.
	commitTime = 3 * time.Second
	// maxAccounts limits memory use. Beyond this number, the process forgets all accounts and their
	// leases.
	maxAccounts = 10_000
)

// New returns a gate. If now is nil, the gate uses the system clock.
func New(db *firestoredb.DB, now func() time.Time) *Gate {
	if now == nil {
		now = time.Now
	}
	return &Gate{db: db, now: now, accounts: map[string]*account{}}
}

// Claim holds the slots for one change. It belongs to one goroutine.
type Claim struct {
	g     *Gate
	began time.Time // when the request began; only a later count can establish that the account is full
	since time.Time // when this particular change began
	limit Limit
	a     *account
	from  *lease // the lease that the slots come from
	n     int64
	doubt *lease // a fenced lease; an earlier attempt did not find its fence
	want  int64  // how many slots the commit uses
	leads bool   // this change asks the ledger, and other changes wait for it
	grant *grant // the change to the ledger in this attempt's commit
	seen  *grant // for a sum: becomes grant when the change adds to the sum
	sent  bool   // this attempt has reached its commit
}

// Claim starts a change under a limit. ctx is its request's context. The request may make several
// changes.
func (g *Gate) Claim(ctx context.Context) *Claim {
	now := time.Now()
	c := &Claim{g: g, began: now, since: now}
	if r := identity.RequestOf(ctx); !r.Began.IsZero() {
		c.began = r.Began
	}
	return c
}

// again is the error from an attempt that does not have a slot yet. Call after before the next
// attempt.
type again struct {
	after func(context.Context) error
}

func (again) Error() string { return "no slot yet" }

func pause(d time.Duration) error {
	return &again{func(ctx context.Context) error {
		if !outage.Pause(ctx, d) {
			return apierr.Contended(ctx.Err())
		}
		return nil
	}}
}

// Settle must be called with the error from a change that has called [Claim.Room] or [Claim.Watch].
// It retries the change until the change no longer needs to wait for a slot.
func (c *Claim) Settle(ctx context.Context, err error, change func() error) error {
	defer c.leave()
	for {
		c.end(err)
		var w *again
		if !errors.As(err, &w) {
			return err
		}
		for w != nil {
			if time.Since(c.since) > patience {
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

// errLeft is the error from an attempt that ended without [Claim.Settle].
var errLeft = errors.New("the change has ended")

// Leave ends the change. Call it even after a panic because other changes may be waiting for this
// change to ask the ledger.
func (c *Claim) Leave() {
	c.end(errLeft)
	c.leave()
}

// Retry starts another attempt within the same transaction. It drops the ledger update that the
// previous attempt prepared. The new attempt may not need a slot, in which case it must not write
// that update.
func (c *Claim) Retry() {
	c.sent, c.grant, c.seen = false, nil, nil
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	c.put()
}

// Room returns how many of the wanted slots the change may use: all of them, unless the account is
// full. Call it with a transaction's other reads. For a change without reads, tx is nil, and Room
// may return [ErrAsk].
func (c *Claim) Room(ctx context.Context, tx *firestore.Transaction, l Limit, want int64) (int64, error) {
	c.sent, c.grant, c.want = false, nil, want // reset the state from an earlier attempt at the transaction
	if l.Max <= 0 || want <= 0 {
		return want, nil
	}
	if c.a != nil && (c.limit.Account != l.Account || c.limit.Kind != l.Kind) {
		return 0, fmt.Errorf("a change needs slots for %s and for %s; only one kind is allowed", c.limit.Kind, l.Kind)
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
	noRoom         // a count that began after this request found no free slots
	busy           // another change is asking the ledger
	ask            // this change must ask the ledger
)

// take takes slots from memory, or returns how to get them.
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
		// From here on, changes do not take slots from the current lease, so its unused slots can
		// be returned.
		a.current, a.asking, c.leads = nil, make(chan struct{}), true
	}
	return ask
}

// account returns an account's entry, and creates it if necessary. The caller holds the lock.
func (g *Gate) account(key string) *account {
	a := g.accounts[key]
	if a == nil {
		if len(g.accounts) >= maxAccounts {
			clear(g.accounts) // their leases are taken back when the slots are needed
		}
		a = &account{key: key}
		g.accounts[key] = a
	}
	return a
}

// put gives back slots that this change has taken but not used. The caller holds the lock.
func (c *Claim) put() {
	if c.from != nil {
		c.from.out -= c.n
		c.from.have += c.n
		c.from, c.n = nil, 0
	}
}

// fence reads the fence of the slots' lease so that the commit fails if the lease has since been
// taken back. A transaction reads from a snapshot taken at its first read, which may be older than
// the lease, so a missing fence is not conclusive at first. The lease has ended only if the next
// attempt does not find the fence either.
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

// forget stops using a lease. Another transaction will take it back. The caller holds
// the lock.
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

// wait waits until another change has asked the ledger.
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
		// The other change may not start counting until its patience has almost run out. Wait for
		// it because its result also applies to this change, which would otherwise have to wait
		// for the next count. But reserve time for the commit.
		most := 2 * patience
		if end, ok := ctx.Deadline(); ok {
			left := time.Until(end)
			most = min(most, max(left-commitTime, left/2))
		}
		late := time.NewTimer(most)
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

// Watch is for a limit on a sum, such as bytes, and for a change that only learns during its
// transaction whether it adds to the sum. Watch reads the ledger. The caller then computes the
// current sum. Call Watch with the transaction's other reads.
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

// Grow records that the change adds to the sum. It writes the ledger, so all other changes that
// have read the same sum are retried. About one change a second can succeed.
func (c *Claim) Grow() error {
	if c.seen == nil {
		return nil // Watch was not called, so there is no limit
	}
	if wait := c.seen.ledger.early(); wait > 0 {
		return pause(wait)
	}
	c.grant = c.seen
	return nil
}

// Take makes the transaction's last write. It does nothing if the change has no limit.
func (c *Claim) Take(tx *firestore.Transaction) error {
	c.sent = true
	if c.grant == nil {
		return nil
	}
	return c.grant.write(tx)
}

// end settles the slots that this attempt has taken. After an error, a slot may have been
// used only if the attempt has reached its commit.
func (c *Claim) end(err error) {
	if c.a == nil {
		return
	}
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	// Nothing was written if the attempt did not reach its commit, if another writer won, or if
	// another change's document already existed.
	exists := errors.Is(err, firestoredb.ErrExists)
	undone := err != nil && (!c.sent || errors.Is(err, firestoredb.ErrContended) || exists && !errors.Is(err, firestoredb.ErrUncertain))
	if l := c.from; l != nil {
		switch {
		case undone:
			c.put()
		case err == nil, exists: // the existing document may be its own, if the response to the commit was lost
			l.out -= c.n
		default:
			// The commit may still take effect. The lease covers it until the lease is taken back.
			c.a.forget(l)
		}
		c.from, c.n = nil, 0
	}
	switch {
	case c.grant == nil || undone:
	case err == nil:
		c.a.leased(c.grant)
	default:
		c.a.held, c.a.current = nil, nil // the ledger's state is unknown
	}
	c.grant = nil
}

// leased updates the account after a commit that changed the ledger. The caller holds
// the lock.
func (a *account) leased(t *grant) {
	for l, n := range t.returned {
		l.have -= n
	}
	a.held, a.current, a.asked, a.chunk = t.held, t.lease, t.since, 0
	if t.lease != nil {
		a.chunk = t.lease.have
	}
}

// leave allows the next change to ask the ledger.
func (c *Claim) leave() {
	if !c.leads {
		return
	}
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	close(c.a.asking)
	c.a.asking, c.leads = nil, false
}
