package apikey

import (
	"context"
	"testing"
	"time"
)

// never is a source whose answers wait for the end of the test.
type never struct{ done <-chan struct{} }

func (n never) Verify(context.Context, string) (*Record, error) {
	<-n.done
	return nil, ErrUnknownKey
}

// Redis was emptied and misses every other call. Some requests ask for its new
// incarnation, the others for any verification from now on, noted under the old one.
func TestRequestsThatRedisAnsweredAndMissedShareAVerification(t *testing.T) {
	t.Parallel()
	done, now := make(chan struct{}), time.Now()
	c := New(Config{Now: func() time.Time { return now }}, never{done}, nil)
	t.Cleanup(c.Close)
	t.Cleanup(func() { close(done) })
	flights := map[*flight]bool{}
	for range 100 {
		flights[c.start(t.Context(), "hash", nil, demand{under: "old", after: now})] = true
		flights[c.start(t.Context(), "hash", nil, demand{incarnation: "new"})] = true
	}
	if len(flights) != 2 {
		t.Errorf("200 requests made %d verifications, want one of each kind", len(flights))
	}
}
