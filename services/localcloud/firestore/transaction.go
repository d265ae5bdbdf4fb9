package firestore

import (
	"crypto/rand"
	"sync"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

// transactionIdle is how long a transaction may go without a call before it expires, as in
// production. Without a limit, a dead client would hold its locks forever.
const transactionIdle = time.Minute

// transaction records the reads of one transaction.
type transaction struct {
	readOnly   bool
	optimistic bool // the client requested an optimistic transaction, which takes no locks in any mode

	mu      sync.Mutex // guards the fields up to the blank line
	readAt  int64      // the time of the state that the transaction reads; 0 if not fixed
	reads   map[string]int64
	queries []queryRead
	used    time.Time

	// The lock table guards these fields.
	locked  []string
	waiting bool
	ended   bool
}

// queryRead is a query and its result. At commit, the query is run again and the results are
// compared.
type queryRead struct {
	query     *query
	at        int64
	signature string
}

type transactions struct {
	now   func() time.Time
	locks *lockTable

	mu   sync.Mutex
	byID map[string]*transaction
}

func (ts *transactions) begin(o *pb.TransactionOptions, readTime int64) (*transaction, []byte) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	t := &transaction{reads: map[string]int64{}, used: ts.now()}
	if ro := o.GetReadOnly(); ro != nil {
		t.readOnly = true
		t.readAt = readTime
		if ro.GetReadTime() != nil {
			t.readAt = micros(ro.GetReadTime())
		}
	}
	t.optimistic = o.GetReadWrite().GetConcurrencyMode() == pb.TransactionOptions_OPTIMISTIC
	ts.mu.Lock()
	ts.byID[string(id)] = t
	ts.mu.Unlock()
	return t, id
}

func (ts *transactions) lookup(id []byte) (*transaction, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.byID[string(id)]
	if t == nil {
		return nil, invalid("The referenced transaction has expired or is no longer valid.")
	}
	t.mu.Lock()
	t.used = ts.now()
	t.mu.Unlock()
	return t, nil
}

// take is like lookup, but for the last call in a transaction. It also removes the transaction.
func (ts *transactions) take(id []byte) (*transaction, error) {
	t, err := ts.lookup(id)
	if err == nil {
		ts.mu.Lock()
		delete(ts.byID, string(id))
		ts.mu.Unlock()
	}
	return t, err
}

// expire ends transactions that have been idle for longer than [transactionIdle].
func (ts *transactions) expire() {
	cut := ts.now().Add(-transactionIdle)
	var old []*transaction
	ts.mu.Lock()
	for id, t := range ts.byID {
		t.mu.Lock()
		if t.used.Before(cut) {
			old = append(old, t)
			delete(ts.byID, id)
		}
		t.mu.Unlock()
	}
	ts.mu.Unlock()
	for _, t := range old {
		ts.locks.end(t)
	}
}
