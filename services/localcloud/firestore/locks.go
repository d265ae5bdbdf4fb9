package firestore

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	errLockTimeout = status.Error(codes.Aborted, "Transaction lock timeout.")
	errContention  = status.Error(codes.Aborted, "Too much contention on these documents. Please try again.")
)

// lockTable makes writers wait for transactions that have read the same documents. Its behaviour
// depends on the mode; see Mode.
type lockTable struct {
	mode    Mode
	timeout time.Duration

	mu      sync.Mutex
	changed *sync.Cond
	readers map[string]map[*transaction]struct{} // pessimistic: the transactions that have read the document
	writers map[string]int                       // pessimistic: the number of the document's in-flight commits
	turn    map[string]*transaction              // fast: the transaction whose turn it is
}

func newLockTable(mode Mode, timeout time.Duration) *lockTable {
	l := &lockTable{
		mode: mode, timeout: timeout,
		readers: map[string]map[*transaction]struct{}{}, writers: map[string]int{}, turn: map[string]*transaction{},
	}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// wait waits until the table changes, the deadline passes or ctx is done. It returns false without
// waiting if the deadline has passed or ctx is done. The caller holds mu.
func (l *lockTable) wait(ctx context.Context, deadline time.Time) bool {
	if ctx.Err() != nil || !time.Now().Before(deadline) {
		return false
	}
	wake := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed.Broadcast()
	}
	timer := time.AfterFunc(time.Until(deadline), wake)
	defer timer.Stop()
	stop := context.AfterFunc(ctx, wake)
	defer stop()
	l.changed.Wait()
	return true
}

// read registers that t has read the document.
func (l *lockTable) read(ctx context.Context, t *transaction, name string) error {
	if l.mode == Optimistic || t.optimistic {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline := time.Now().Add(l.timeout)
	if l.mode == Fast {
		for l.turn[name] != nil && l.turn[name] != t && l.wait(ctx, deadline) {
		}
		if l.turn[name] == nil && !t.ended {
			l.turn[name] = t
			t.locked = append(t.locked, name)
		}
		return ctx.Err()
	}
	for l.writers[name] > 0 {
		if !l.wait(ctx, deadline) {
			return errLockTimeout
		}
	}
	if _, held := l.readers[name][t]; held || t.ended {
		return nil
	}
	if l.readers[name] == nil {
		l.readers[name] = map[*transaction]struct{}{}
	}
	l.readers[name][t] = struct{}{}
	t.locked = append(t.locked, name)
	return nil
}

// write waits until no transaction other than t holds a read lock on the documents. t may be nil.
// If write gives up, it returns the names that are still blocked. It locks the other documents
// until the caller calls release. If two transactions wait for each other, the second one gives up
// immediately.
func (l *lockTable) write(ctx context.Context, t *transaction, names []string) (blocked map[string]bool, release func()) {
	if l.mode != Pessimistic {
		return nil, func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline := time.Now().Add(l.timeout)
	for {
		var deadlock bool
		blocked, deadlock = l.blocked(t, names)
		if len(blocked) == 0 || deadlock {
			break
		}
		if t != nil {
			t.waiting = true
		}
		woken := l.wait(ctx, deadline)
		if t != nil {
			t.waiting = false
		}
		if !woken {
			break
		}
	}
	var taken []string
	for _, n := range names {
		if !blocked[n] {
			l.writers[n]++
			taken = append(taken, n)
		}
	}
	return blocked, func() { l.releaseWriters(taken) }
}

func (l *lockTable) blocked(t *transaction, names []string) (blocked map[string]bool, deadlock bool) {
	for _, n := range names {
		for other := range l.readers[n] {
			if other == t {
				continue
			}
			if blocked == nil {
				blocked = map[string]bool{}
			}
			blocked[n] = true
			deadlock = deadlock || t != nil && other.waiting
		}
	}
	return blocked, deadlock
}

func (l *lockTable) releaseWriters(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range names {
		// writers is a count because commits to the same document may overlap.
		if l.writers[n]--; l.writers[n] == 0 {
			delete(l.writers, n)
		}
	}
	l.changed.Broadcast()
}

// end releases all locks held by t. Later reads by t do not take any locks.
func (l *lockTable) end(t *transaction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.ended = true
	for _, n := range t.locked {
		if l.turn[n] == t {
			delete(l.turn, n)
		}
		delete(l.readers[n], t)
		if len(l.readers[n]) == 0 {
			delete(l.readers, n)
		}
	}
	t.locked = nil
	l.changed.Broadcast()
}
