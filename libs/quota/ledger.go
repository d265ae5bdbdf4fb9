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

// Collection holds a ledger for each account and kind that has a limit,
// {account}~{kind}, and the fences of its leases, {account}~{kind}~{lease}.
const Collection = "quotas"

// Forget removes all that is kept about an account that is erased.
func Forget(ctx context.Context, db *firestoredb.DB, account string) error {
	return db.EraseAll(ctx, "remove ledgers", db.Collection(Collection).Where("accountId", "==", account), 450)
}

// document is a ledger or a fence. A ledger's state is one text, since nobody asks for
// its parts, and an index of times that rise in all ledgers at once would be hot.
type document struct {
	AccountID string `firestore:"accountId"`
	State     string `firestore:"state"`
}

// ledger is the state of a ledger, as one transaction reads and changes it.
type ledger struct {
	// Granted is how many places were given out: to records and on lease.
	Granted int64 `json:"granted"`
	// Next is when the ledger may be written again, a burst apart.
	Next time.Time `json:"next"`
	// Counted is when Granted was last corrected by a count.
	Counted time.Time         `json:"counted"`
	Leases  map[string]*entry `json:"leases,omitempty"`

	now time.Time // Firestore's
}

// entry is a lease in the ledger.
type entry struct {
	// N is at least how many places are left or under way.
	N int64 `json:"n"`
	// At is when it was leased. Zero is the time of the ledger's last write: whoever
	// leases does not know Firestore's time of its own commit.
	At     time.Time `json:"at,omitzero"`
	Fenced bool      `json:"fenced,omitempty"`
}

const (
	pace  = 1100 * time.Millisecond // between two writes of a ledger
	burst = 2 * pace                // ahead of the pace: three writes in a row
	// drift is how long Granted is believed far from the limit. A replica that learnt
	// late of a new limit has created without asking.
	drift = time.Hour
	// young is how long a fenced lease is left to its holder, who mostly has changes
	// waiting for it.
	young = 2 * time.Second
	// countsPerSecond is how many records are counted for one account and process,
	// 1,000 for the price of a read. It spaces the counts of a large account that asks
	// again and again for a place that it does not have.
	countsPerSecond = 100_000
)

func (g *Gate) ledger(key string) *firestore.DocumentRef { return g.db.Collection(Collection).Doc(key) }

func (g *Gate) fence(key, lease string) *firestore.DocumentRef { return g.ledger(key + "~" + lease) }

func exists(tx *firestore.Transaction, ref *firestore.DocumentRef) (bool, error) {
	snaps, err := tx.GetAll([]*firestore.DocumentRef{ref})
	return err == nil && snaps[0].Exists(), err
}

// read reads the ledger. One that is not there, or cannot be read, is empty and was
// never counted.
func (c *Claim) read(tx *firestore.Transaction) (*ledger, error) {
	snaps, err := tx.GetAll([]*firestore.DocumentRef{c.g.ledger(c.a.key)})
	if err != nil {
		return nil, err
	}
	snap, d := snaps[0], &ledger{}
	var doc document
	if snap.Exists() {
		if snap.DataTo(&doc) != nil || json.Unmarshal([]byte(doc.State), d) != nil {
			d = &ledger{}
		}
	}
	// A read may be of a moment before the write that it shows.
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

// early is how long the ledger has to be left alone.
func (d *ledger) early() time.Duration {
	wait := d.Next.Sub(d.now) - burst
	if wait <= 0 || wait > 10*pace { // no writer is that far ahead: the clock was set back
		return 0
	}
	// Of several replicas that wait for the same moment, most read the ledger once more.
	return wait + mathrand.N(pace/5)
}

func (d *ledger) leased() (n int64) {
	for _, e := range d.Leases {
		n += e.N
	}
	return n
}

// grant is what a transaction changes in the ledger.
type grant struct {
	g      *Gate
	key    string
	limit  Limit
	ledger *ledger
	since  time.Time // before the ledger was read
	gone   []string  // leases that end and have a fence
	lease  *lease    // the new one; nil for none
	held   []*lease  // what this process holds when it has committed
	// returned is how many places of each lease are back in the ledger by then.
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

// ask asks the ledger for places: for this change, which then has them with its own
// commit, and on lease for those that follow.
func (c *Claim) ask(ctx context.Context, tx *firestore.Transaction) (room int64, err error) {
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
		// What they have used is certain only when nobody can use them any more.
		return 0, &again{c.takeBack}
	case left < room || d.Counted.IsZero():
		if room, err = c.count(ctx, d, began); err != nil || room == 0 {
			return 0, err
		}
	case d.now.Sub(d.Counted) > drift:
		// Nobody waits for this count, so a slow one is left for the next time.
		brief, end := context.WithTimeout(ctx, time.Second)
		defer end()
		if room, err = c.count(brief, d, began); err != nil && brief.Err() != nil && ctx.Err() == nil {
			room, d.Counted, err = c.want, d.now, nil
		}
		if err != nil || room == 0 {
			return 0, err
		}
	default:
		for _, id := range d.old(leaseTime + delivery) { // of processes that are gone
			t.end(id)
		}
	}
	d.Granted += room
	c.lease(t)
	c.want, c.grant = room, t
	return room, nil
}

// settle returns what this process has not used of its leases.
func (c *Claim) settle(t *grant) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	for _, l := range c.a.held {
		e := t.ledger.Leases[l.id]
		if e == nil {
			continue // it was taken back
		}
		t.ledger.Granted -= l.have
		t.returned[l] = l.have
		if e.N = l.out; l.out == 0 {
			t.end(l.id)
			continue
		}
		t.held = append(t.held, l) // it covers the changes that are still under way
	}
}

// end takes a lease out of the ledger.
func (t *grant) end(id string) {
	if t.ledger.Leases[id].Fenced {
		t.gone = append(t.gone, id)
	}
	delete(t.ledger.Leases, id)
}

// count corrects the ledger and finds how many of the wanted places there are. None,
// or fewer, is only said when it is certain.
func (c *Claim) count(ctx context.Context, d *ledger, began time.Time) (room int64, err error) {
	c.g.mu.Lock()
	rest := time.Until(c.a.rest)
	c.g.mu.Unlock()
	if rest > 0 {
		return 0, pause(min(rest, patience))
	}
	n, err := c.limit.Count(ctx)
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", c.limit.Kind, err)
	}
	leased := d.leased()
	d.Granted, d.Counted = n+leased, d.now
	left := c.limit.Max - d.Granted
	if left < c.want && leased > 0 && n < c.limit.Max {
		return 0, pause(pace/4 + mathrand.N(pace/4)) // their holders may use them or not
	}
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	c.a.rest = time.Now().Add(time.Duration(n) * time.Second / countsPerSecond)
	if left <= 0 {
		c.a.full, c.a.fullAt = began, c.limit.Max
	}
	return min(c.want, max(left, 0)), nil
}

// lease adds a lease for the changes that wait and that follow.
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
	far        = 32 // a lease without a fence is at most this part of what is left
	near       = 2  // a fenced one this
)

// chunkOf is how many of the places that are left are leased, when last were leased
// idle before, and waiting are waited for.
func chunkOf(left, last, waiting int64, idle time.Duration) (n int64, fenced bool) {
	switch {
	case waiting > 0 || idle < young: // The last lease was too small. The next chance may be seconds away.
		last = max(4*last, 16*waiting)
	case idle > leaseTime/4:
		last /= 1 + int64(idle/(leaseTime/4))
	}
	want := min(max(firstChunk, last), mostChunk)
	// Near the limit whoever is alone gets his own place and no lease: what another
	// process has on lease may be what the last create waits for.
	if want <= left/far || waiting == 0 && idle > young {
		return min(want, left/far), false
	}
	return min(want, left/near), true
}

// old lists the leases that may be taken back: fenced ones from an age on.
func (d *ledger) old(fenced time.Duration) (ids []string) {
	for id, e := range d.Leases {
		if age := d.now.Sub(e.At); age > leaseTime+delivery || e.Fenced && age > fenced {
			ids = append(ids, id)
		}
	}
	return ids
}

// takeBack ends old leases. Their places stay granted: a create that was faster is
// found by the next count, which reads the ledger after this.
func (c *Claim) takeBack(ctx context.Context) error {
	return c.g.db.Tx(ctx, "take back places", func(_ context.Context, tx *firestore.Transaction) error {
		d, err := c.read(tx)
		if err != nil {
			return err
		}
		old := d.old(young)
		if len(old) == 0 {
			return nil // another replica was faster
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
