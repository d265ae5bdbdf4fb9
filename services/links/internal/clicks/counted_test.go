package clicks

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

func (b *book) marks(ctx context.Context, _ int) (map[string]link.Mark, bool, error) {
	p, err := b.Progress(ctx)
	return p.Producers, true, err
}

// allCounted waits until ask returns true. If want is false, it checks instead that ask keeps
// returning false until the process has updated its entry three times.
func allCounted(t *testing.T, p process, ask func(context.Context) (bool, error), want bool, what string) {
	t.Helper()
	if want {
		eventually(t, what, func() bool { ok, err := ask(t.Context()); return ok && err == nil })
		return
	}
	entry := func() (n int64) {
		text, _ := p.slow.HGet(t.Context(), producersKey, p.id).Result()
		s, _ := parseSign(text)
		return s.n
	}
	from := entry()
	eventually(t, "the process updates its entry three times", func() bool {
		if ok, _ := ask(t.Context()); ok {
			t.Fatalf("ask = true, want false: %s", what)
		}
		return entry() >= from+3
	})
}

func TestAllIsCountedOnlyWhenEveryClickIs(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	by := redistest.NewProxy(t, addr)
	near, far, b := start(t, addr), start(t, by.Addr()), newBook()
	near.confirm(t, 3, "l")
	far.confirm(t, 2, "l")
	ask := near.Counted(b.marks)
	allCounted(t, near, ask, false, "nothing has been flushed")
	flush(t, addr, b)
	allCounted(t, near, ask, true, "all clicks are flushed")

	end := by.Stall()
	far.confirm(t, 4, "l") // written to its spool file
	ask = near.Counted(b.marks)
	allCounted(t, near, ask, false, "a process cannot reach Redis")
	end()
	eventually(t, "the spool file is empty", func() bool { return !far.spooled() })
	flush(t, addr, b)
	allCounted(t, near, ask, true, "the clicks from the file are flushed")
	if n := b.of("l"); n != 9 {
		t.Errorf("counted %d clicks, want 9", n)
	}
}

// The clicks from a process that has signed off remain in the log.
func TestAllIsCountedOnlyWhenTheClicksOfAGoneProcessAre(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, gone, b := start(t, addr), start(t, addr), newBook()
	gone.confirm(t, 5, "l")
	gone.stop()
	ask := p.Counted(b.marks)
	allCounted(t, p, ask, false, "a stopped process's clicks are pending")
	flush(t, addr, b)
	allCounted(t, p, ask, true, "the stopped process's clicks are flushed")
}

// If Redis has lost its data, the log is empty, but the process still has the clicks.
func TestAnEmptiedRedisDoesNotMakeAllCounted(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	p, b := start(t, addr), newBook()
	p.confirm(t, 5, "l")
	ask := p.Counted(b.marks)
	empty(t, addr)
	allCounted(t, p, ask, false, "Redis was emptied")
	eventually(t, "the clicks are counted", func() bool { flush(t, addr, b); return b.of("l") == 5 })
	allCounted(t, p, ask, true, "the clicks have been sent again")
}

func TestASilentProducerIsForgotten(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	var hours atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(hours.Load()) * time.Hour) }
	p, b := start(t, addr, func(c *Config) { c.Now = now }), newBook()
	p.confirm(t, 5, "l")
	flush(t, addr, b)
	hours.Store(15 * 24) // marks are removed from Firestore after 14 days
	b.mu.Lock()
	clear(b.progress.Producers)
	b.mu.Unlock()
	allCounted(t, p, p.Counted(b.marks), true, "no clicks are pending")
}
