package clicks

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// away returns the lane of a process without Redis, with a spool of about size bytes.
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

// Redis is looked for many times a second. The spool grows during an outage, so the attempts must
// not read it.
func TestAnOutageDoesNotReadTheSpool(t *testing.T) {
	t.Parallel()
	l := away(t, 100<<10)
	// Whoever reads the spool now discards it, because it has been cut off.
	if err := os.Truncate(l.spool.files[0].path, 0); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if l.drain(t.Context(), time.Now().Add(time.Hour)) {
			t.Error("drain asks to be called again soon, want it to wait for the next probe")
		}
	}
	if l.spool.empty() {
		t.Error("drain read the spool while Redis did not answer")
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
