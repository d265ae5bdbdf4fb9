package quota

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
)

// Collection contains a ledger for each limited kind in each account, {account}~{kind}, and the
// fences for the ledgers' leases, {account}~{kind}~{lease}.
const Collection = "quotas"

// Forget removes all ledgers and fences of an account that is being erased.
func Forget(ctx context.Context, db *firestoredb.DB, account string) error {
	return db.EraseAll(ctx, "remove ledgers", db.Collection(Collection).Where("accountId", "==", account), 450)
}

// document is a ledger or a fence. The state of a ledger is stored as one string: queries do not
// need its parts, and an index on times, which keep increasing in all ledgers, would be a hot spot.
type document struct {
	AccountID string `firestore:"accountId"`
	State     string `firestore:"state"`
}

// ledger is the state of a ledger while a transaction reads and changes it.
type ledger struct {
	// Granted is the number of granted slots, used by records or leased.
	Granted int64 `json:"granted"`
	// Next is when the ledger may be written again. In a burst, writes may come earlier.
	Next time.Time `json:"next"`
	// Counted is the time of the last count that corrected Granted.
	Counted time.Time         `json:"counted"`
	Leases  map[string]*entry `json:"leases,omitempty"`

	now     time.Time // by Firestore's clock
	updated time.Time // time of the last write to the ledger; zero if never written
}

// entry is a lease in the ledger.
type entry struct {
	// N is an upper bound on the number of slots that are unused or taken by in-flight
	// changes.
	N int64 `json:"n"`
	// At is the time of the lease. Zero means the time of the ledger's last write, because a
	// process does not learn Firestore's time for its own commit.
	At     time.Time `json:"at,omitzero"`
	Fenced bool      `json:"fenced,omitempty"`
}

const (
	pace  = 1100 * time.Millisecond // the time between two writes to a ledger
	burst = 2 * pace                // how far writes may be ahead of the pace, which allows three consecutive writes
	// drift is how long Granted is trusted while it is far from the limit. Granted may be too low
	// because a replica that learned of a new limit late may have created records without the
	// ledger.
	drift = time.Hour
	// young is how long other processes leave a fenced lease alone, because its holder usually has
	// pending changes.
	young = 2 * time.Second
	// countsPerSecond limits how many records a process counts per second for one account.
	// Firestore charges one read per 1,000. This limits the cost when a large account is full and
	// keeps sending create requests.
	countsPerSecond = 100_000
)

func (g *Gate) ledger(key string) *firestore.DocumentRef { return g.db.Collection(Collection).Doc(key) }

func (g *Gate) fence(key, lease string) *firestore.DocumentRef { return g.ledger(key + "~" + lease) }

func exists(tx *firestore.Transaction, ref *firestore.DocumentRef) (bool, error) {
	snaps, err := tx.GetAll([]*firestore.DocumentRef{ref})
	return err == nil && snaps[0].Exists(), err
}

// read reads the ledger. It treats a ledger that does not exist, or cannot be decoded,
// as empty and never corrected by a count.
func (c *Claim) read(tx *firestore.Transaction) (*ledger, error) {
	snaps, err := tx.GetAll([]*firestore.DocumentRef{c.g.ledger(c.a.key)})
	if err != nil {
		return nil, err
	}
	snap, d := snaps[0], &ledger{}
	var doc document
	if snap.Exists() {
		if snap.DataTo(&doc) != nil || json.Unmarshal([]byte(doc.State), d) != nil {
			// Do not return an error, which would block every create in the account until the
			// ledger is repaired. With an empty ledger, the records are counted before slots are
			// granted, and the ledger is written again. Its leases are lost, so the account may
			// exceed its limit by the leased slots.
			d = &ledger{}
		}
	}
	// A read's time may be earlier than the time of the write that it returns.
	d.updated = snap.UpdateTime
	if d.now = snap.ReadTime; snap.UpdateTime.After(d.now) {
		d.now = snap.UpdateTime
	}
	for _, e := range d.Leases {
		if e.At.IsZero() {
			e.At = snap.UpdateTime
		}
	}
	return d, nil
}

// early returns how long to wait before the ledger may be written.
func (d *ledger) early() time.Duration {
	wait := d.Next.Sub(d.now) - burst
	if wait <= 0 || wait > 10*pace { // no writer can be that far ahead of the pace, so the clock must have been set back
		return 0
	}
	// The wait is randomized because several replicas may be waiting at the same time, and the
	// losers must read the ledger again.
	return wait + mathrand.N(pace/5)
}

func (d *ledger) leased() (n int64) {
	for _, e := range d.Leases {
		n += e.N
	}
	return n
}

// grant is a transaction's change to the ledger.
type grant struct {
	g      *Gate
	key    string
	limit  Limit
	ledger *ledger
	since  time.Time // a time just before the ledger was read
	gone   []string  // fenced leases to end
	lease  *lease    // the new lease, or nil
	held   []*lease  // this process's leases after the commit
	// returned is how many slots of each lease the commit returns to the ledger.
	returned map[*lease]int64
}

func (t *grant) write(tx *firestore.Transaction) error {
	d := t.ledger
	if d.Next.Before(d.now) || d.Next.Sub(d.now) > 10*pace {
		d.Next = d.now
	}
	d.Next = d.Next.Add(pace)
	state, err := json.Marshal(d)
	if err != nil {
		return err
	}
	for _, id := range t.gone {
		if err := tx.Delete(t.g.fence(t.key, id)); err != nil {
			return err
		}
	}
	if t.lease != nil && t.lease.fenced {
		if err := tx.Create(t.g.fence(t.key, t.lease.id), document{AccountID: t.limit.Account}); err != nil {
			return err
		}
	}
	return tx.Set(t.g.ledger(t.key), document{AccountID: t.limit.Account, State: string(state)})
}

// ask takes slots from the ledger. The slots for this change are used by its commit. The slots
// for later changes are leased.
func (c *Claim) ask(ctx context.Context, tx *firestore.Transaction) (room int64, err error) {
	// Take both times before the read so that counts and leases do not appear newer than they are.
	began, since := time.Now(), c.g.now()
	d, err := c.read(tx)
	if err != nil {
		return 0, err
	}
	if wait := d.early(); wait > 0 {
		return 0, pause(wait)
	}
	t := &grant{g: c.g, key: c.a.key, limit: c.limit, ledger: d, since: since, returned: map[*lease]int64{}}
	c.settle(t)
	room = c.want
	switch left := c.limit.Max - d.Granted; {
	case left < room && len(d.old(young)) > 0:
		// While a lease can still be used, we cannot tell how many of its slots are used, so end
		// the old leases first.
		return 0, &again{c.takeBack}
	case left < room || d.Counted.IsZero():
		if room, err = c.count(ctx, d, began); err != nil || room == 0 {
			return 0, err
		}
	case d.now.Sub(d.Counted) > drift:
		// This count is not urgent. If it is slow, leave it for next time.
		brief, end := context.WithTimeout(ctx, time.Second)
		defer end()
		if room, err = c.count(brief, d, began); err != nil && brief.Err() != nil && ctx.Err() == nil {
			// Record it as counted so that later changes do not wait for the slow count again.
			room, d.Counted, err = c.want, d.now, nil
		}
		if err != nil || room == 0 {
			return 0, err
		}
	default:
		for _, id := range d.old(leaseTime + delivery) { // leases from processes that have exited
			t.end(id)
		}
	}
	d.Granted += room
	c.lease(t)
	c.want, c.grant = room, t
	return room, nil
}

// settle gives the unused slots of this process's leases back to the ledger.
func (c *Claim) settle(t *grant) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	for _, l := range c.a.held {
		e := t.ledger.Leases[l.id]
		if e == nil {
			continue // the lease was taken back
		}
		t.ledger.Granted -= l.have
		t.returned[l] = l.have
		if e.N = l.out; l.out == 0 {
			t.end(l.id)
			continue
		}
		t.held = append(t.held, l) // the lease covers changes that are still in flight
	}
}

// end removes a lease from the ledger.
func (t *grant) end(id string) {
	if t.ledger.Leases[id].Fenced {
		t.gone = append(t.gone, id)
	}
	delete(t.ledger.Leases, id)
}

// count corrects the ledger and returns how many of the wanted slots are free. It returns fewer
// only if the account definitely has no more free slots.
func (c *Claim) count(ctx context.Context, d *ledger, began time.Time) (room int64, err error) {
	c.g.mu.Lock()
	rest, last := time.Until(c.a.rest), c.a.last
	c.g.mu.Unlock()
	switch {
	case last.began.After(c.began) && last.ledger.Equal(d.updated):
		// Another change has already counted for this request. The count is still valid because
		// since then only leased slots can have become records.
	case rest > 0:
		return 0, pause(min(rest, patience))
	default:
		last = counted{began: began, ledger: d.updated}
		if last.n, err = c.limit.Count(ctx); err != nil {
			return 0, fmt.Errorf("count %s: %w", c.limit.Kind, err)
		}
	}
	n, leased := last.n, d.leased()
	d.Granted, d.Counted = n+leased, d.now
	left := c.limit.Max - d.Granted
	if left < c.want && leased > 0 && n < c.limit.Max {
		return 0, pause(pace/4 + mathrand.N(pace/4)) // holders may still use their leased slots
	}
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if last != c.a.last {
		c.a.last, c.a.rest = last, time.Now().Add(time.Duration(n)*time.Second/countsPerSecond)
	}
	if left <= 0 {
		c.a.full, c.a.fullAt = last.began, c.limit.Max
	}
	return min(c.want, max(left, 0)), nil
}

// lease adds a lease for waiting and later changes.
func (c *Claim) lease(t *grant) {
	c.g.mu.Lock()
	waiting, last, idle := c.a.waiting, c.a.chunk, t.since.Sub(c.a.asked)
	c.g.mu.Unlock()
	n, fenced := chunkOf(c.limit.Max-t.ledger.Granted, last, waiting, idle)
	if n == 0 {
		return
	}
	t.lease = &lease{id: rand.Text()[:12], fenced: fenced, since: t.since, have: n}
	t.held = append(t.held, t.lease)
	t.ledger.Granted += n
	if t.ledger.Leases == nil {
		t.ledger.Leases = map[string]*entry{}
	}
	t.ledger.Leases[t.lease.id] = &entry{N: n, Fenced: fenced}
}

const (
	firstChunk = 8
	mostChunk  = 10_000
	far        = 32 // a lease without a fence takes at most 1/far of the remaining slots
	near       = 2  // a lease with a fence takes at most 1/near
)

// chunkOf returns how many slots to lease at once. left is the number of free slots, last is the
// size of the last lease, idle is the time since that lease, and waiting is the number of slots
// that waiting changes need.
func chunkOf(left, last, waiting int64, idle time.Duration) (n int64, fenced bool) {
	switch {
	case waiting > 0 || idle < young: // The last lease was too small, and the next lease may not be possible for several seconds.
		last = max(4*last, 16*waiting)
	case idle > leaseTime/4:
		last /= 1 + int64(idle/(leaseTime/4))
	}
	want := min(max(firstChunk, last), mostChunk)
	// Near the limit, a single change gets only its own slot without a lease, because a create in
	// another process may need the other slots.
	if want <= left/far || waiting == 0 && idle > young {
		return min(want, left/far), false
	}
	return min(want, left/near), true
}

// old returns the leases that may be taken back: expired leases, and leases with a fence that are
// older than fenced.
func (d *ledger) old(fenced time.Duration) (ids []string) {
	for id, e := range d.Leases {
		if age := d.now.Sub(e.At); age > leaseTime+delivery || e.Fenced && age > fenced {
			ids = append(ids, id)
		}
	}
	return ids
}

// takeBack ends old leases. Their slots remain granted until the next count. That count reads the
// ledger after this change, so it includes creates that were committed earlier.
func (c *Claim) takeBack(ctx context.Context) error {
	return c.g.db.Tx(ctx, "take back slots", func(_ context.Context, tx *firestore.Transaction) error {
		d, err := c.read(tx)
		if err != nil {
			return err
		}
		old := d.old(young)
		if len(old) == 0 {
			return nil // another replica got there first
		}
		if wait := d.early(); wait > 0 {
			return pause(wait)
		}
		t := &grant{g: c.g, key: c.a.key, limit: c.limit, ledger: d}
		for _, id := range old {
			t.end(id)
		}
		return t.write(tx)
	})
}
