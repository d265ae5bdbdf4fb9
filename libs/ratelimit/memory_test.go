package ratelimit

import (
	"fmt"
	"testing"
	"time"
)

// If a video's budget is used up, a refused attempt must not store a rule for the network that made
// it.
func TestRefusedTriesTakeNoMemory(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	l := New(nil, func() time.Time { return now })
	video := Rule{Key: "video", Max: 1, Window: time.Hour}
	network := func(i int) Rule { return Rule{Key: fmt.Sprint("network ", i), Max: 5, Window: time.Hour} }
	first, wait := l.Take(t.Context(), video, network(0))
	if wait > 0 {
		t.Fatal(wait)
	}
	for i := 1; i <= 1000; i++ {
		refused, wait := l.Take(t.Context(), video, network(i))
		if wait == 0 {
			t.Fatalf("attempt %d was allowed, want it refused", i)
		}
		l.Refund(t.Context(), refused)
	}
	if n := len(l.tries); n != 2 {
		t.Errorf("%d keys in memory, want the counted attempt's 2 keys", n)
	}
	l.Refund(t.Context(), first)
	if n := len(l.tries); n != 0 {
		t.Errorf("%d keys in memory after the refund, want 0", n)
	}
}
