package clicks

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// away returns the lane for a process that cannot reach Redis, with a spool of about size bytes.
func away(t testing.TB, size int64) *lane {
	t.Helper()
	l := open(t, "redis://127.0.0.1:1", 1).lanes[0] // nothing listens on this port
	l.away.Store(true)
	for n := int64(1); l.spool.bytes() < size; n++ {
		if err := l.spool.append(record{late: true, number: n, payload: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// During an outage, Redis is probed many times per second while the spool grows, so the probes must
// not read the spool.
func TestAnOutageDoesNotReadTheSpool(t *testing.T) {
	t.Parallel()
	l := away(t, 100<<10)
	// Reading the spool now would discard it because its file is truncated.
	if err := os.Truncate(l.spool.files[0].path, 0); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if l.drain(t.Context(), time.Now().Add(time.Hour)) {
			t.Error("drain = true, want false: no retry before the next probe")
		}
	}
	if l.spool.empty() {
		t.Error("drain read the spool while Redis did not answer, want it unread")
	}
}

// BenchmarkOutage measures an attempt to drain the spool while Redis does not answer.
func BenchmarkOutage(b *testing.B) {
	for _, size := range []int64{0, 64 << 10, 512 << 10, 4 << 20} {
		b.Run(fmt.Sprintf("%d KiB", size>>10), func(b *testing.B) {
			l := away(b, size)
			b.ReportAllocs()
			for b.Loop() {
				l.drain(b.Context(), time.Now().Add(time.Hour))
			}
		})
	}
}
