// Package old is what is left of the limits of before, until links and videos have changed: it keeps an account below its limits, even when many requests
// race for the last place.
//
// Counting and then writing is not enough: forty creates that count at once all
// see the same free place. So a create of an account that has a limit reads and
// writes one small document of the account, quotas/{account}~{kind}, inside its
// own transaction. Two creates that decided on the same count conflict on that
// document; Firestore lets one of them commit, and the other counts again.
//
// That document would be written on every create of the account, and Firestore
// sustains about one write a second per document. So it is only used near the
// limit: while more than [Limit.Margin] places are left, nothing is serialized.
// An account without a limit pays nothing at all.
//
// A claim of places belongs to the read part of a transaction and [Claim.Take]
// to its write part. A request that finds its own record already in place needs
// no place, so callers subtract what they are repeating before they ask for
// room: a replayed create of the last allowed record succeeds.
package old

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
)

// Collection holds one document per account and kind that has come near a limit.
const Collection = "quotas"

// Limit is a limit of one account.
type Limit struct {
	Account string
	// Kind names what is limited: "links", "domains", "storedBytes".
	Kind string
	// Max is the most the account may have. Zero or less is no limit.
	Max int64
	// Margin is how far below Max creates stop running freely. It must exceed
	// what an account can add within a minute; zero serializes every create.
	Margin int64
}

// Gate decides whether there is room. It is safe for concurrent use.
type Gate struct {
	db  *firestoredb.DB
	now func() time.Time

	mu    sync.Mutex
	known map[string]measured
}

// measured is a count that was taken a short while ago.
type measured struct {
	used int64
	at   time.Time
}

const (
	// fresh is how long a count may serve creates far from the limit. The margin
	// has to cover what an account adds in this time.
	fresh = 30 * time.Second
	// maxKnown bounds the memory for counts; beyond it all are counted again.
	maxKnown = 10_000
)

// New makes a gate; a nil now is the system's clock.
func New(db *firestoredb.DB, now func() time.Time) *Gate {
	if now == nil {
		now = time.Now
	}
	return &Gate{db: db, now: now, known: map[string]measured{}}
}

// Claim is the room that a transaction has found.
type Claim struct {
	// Room is how much more the account may have; negative without a limit.
	Room int64

	ref *firestore.DocumentRef // nil when nothing has to be serialized
	n   int64
}

// Allows reports whether there is room for n more.
func (c Claim) Allows(n int64) bool { return c.Room < 0 || n <= c.Room }

// Room finds out how much may be added. want is how much the caller would like
// to add at most; used counts what the account has. Call it in the read part of
// tx, and [Claim.Take] in the write part if anything is added.
func (g *Gate) Room(ctx context.Context, tx *firestore.Transaction, l Limit, want int64, used func(ctx context.Context) (int64, error)) (Claim, error) {
	if l.Max <= 0 {
		return Claim{Room: -1}, nil
	}
	key := l.Account + "~" + l.Kind
	if far, ok := g.recent(key); ok && l.Margin > 0 && far+want+l.Margin <= l.Max {
		return Claim{Room: l.Max - far}, nil
	}
	// The document is read before the count is taken. A create that committed
	// before this read is in the count; one that commits after it changes the
	// document and makes this transaction start again.
	ref := g.db.Collection(Collection).Doc(key)
	var doc struct {
		N int64 `firestore:"n"`
	}
	snap, err := tx.Get(ref)
	switch {
	case snap != nil && !snap.Exists():
	case err != nil:
		return Claim{}, err
	default:
		if err := snap.DataTo(&doc); err != nil {
			return Claim{}, err
		}
	}
	n, err := used(ctx)
	if err != nil {
		return Claim{}, fmt.Errorf("count %s: %w", l.Kind, err)
	}
	g.remember(key, n)
	c := Claim{Room: max(0, l.Max-n), ref: ref, n: doc.N + 1}
	if l.Margin > 0 && n+want+l.Margin <= l.Max {
		c.ref = nil
	}
	return c, nil
}

// Take makes every other create near the limit that decided on the same count
// start again. Without a limit, or far from it, it does nothing.
func (c Claim) Take(tx *firestore.Transaction) error {
	if c.ref == nil {
		return nil
	}
	return tx.Set(c.ref, map[string]any{"n": c.n})
}

// Ref is the document of an account and kind, for whoever erases the account.
func Ref(db *firestoredb.DB, account, kind string) *firestore.DocumentRef {
	return db.Collection(Collection).Doc(account + "~" + kind)
}

func (g *Gate) recent(key string) (int64, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m, ok := g.known[key]
	return m.used, ok && g.now().Sub(m.at) < fresh
}

func (g *Gate) remember(key string, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= maxKnown {
		clear(g.known)
	}
	g.known[key] = measured{n, g.now()}
}
