package apikey

import (
	"context"
	"testing"
	"time"
)

// never is a source that blocks until the test ends.
type never struct{ done <-chan struct{} }

func (n never) Verify(context.Context, string) (*Record, error) {
	<-n.done
	return nil, ErrUnknownKey
}

// Redis was emptied and drops every other call. Requests that Redis answered demand a verification
// under the new incarnation. The others accept any verification that starts now, and store it under
// the old incarnation.
func TestRequestsThatRedisAnsweredAndMissedShareAVerification(t *testing.T) {
	t.Parallel()
	done, now := make(chan struct{}), time.Now()
	c := New(Config{Now: func() time.Time { return now }}, never{done}, nil)
	t.Cleanup(c.Close)
	t.Cleanup(func() { close(done) })
	flights := map[*flight]bool{}
	for range 100 {
		flights[c.start(t.Context(), "hash", nil, demand{under: 1, after: now}, true)] = true
		flights[c.start(t.Context(), "hash", nil, demand{incarnation: 2}, true)] = true
	}
	if len(flights) != 2 {
		t.Errorf("200 requests made %d verifications, want 2, one for each kind of demand", len(flights))
	}
}

// One failed verification is not an outage. An unreadable record from another account may have
// caused it.
func TestOneFailedVerificationLeavesNewKeysTheirTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := New(Config{Now: func() time.Time { return now }}, never{t.Context().Done()}, nil)
	t.Cleanup(c.Close)
	c.asking.Fail()
	for range 3 {
		if got := c.patience(false); got != c.cfg.ColdBudget {
			t.Errorf("after one failure, a request with a new key waits %v, want %v", got, c.cfg.ColdBudget)
		}
	}
	now = now.Add(lasting)
	if first, second := c.patience(false), c.patience(false); first != c.cfg.ColdBudget || second != c.cfg.Budget {
		t.Errorf("after a second of failures, requests with new keys wait %v and %v, want one full wait and then %v", first, second, c.cfg.Budget)
	}
	if got := c.patience(true); got != 0 {
		t.Errorf("a request with a known key waits %v while auth is unreachable, want 0", got)
	}
	c.asking.OK()
	if got := c.patience(false); got != c.cfg.ColdBudget {
		t.Errorf("after auth has recovered, a request with a new key waits %v, want the full time", got)
	}
}
