package video

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/linkreel/linkreel/libs/tenant"
)

// lease is how long a replica may rely on the result of a read. It starts before the
// read and uses the machine's monotonic clock.
const lease = time.Second

// leaseMargin is added when waiting for all leases to end: the clocks of machines run
// at slightly different speeds.
const leaseMargin = 100 * time.Millisecond

// leases caches reads by name for the length of a lease. Callers who ask at the same
// time share one read.
type leases[V any] struct {
	read   func(ctx context.Context, name string) (V, error)
	flight singleflight.Group

	mu    sync.Mutex
	known map[string]leased[V]
}

type leased[V any] struct {
	value V
	began time.Time // when the lease began, just before the read
}

func (l leased[V]) holds() bool { return time.Since(l.began) < lease }

// maxKnown bounds the memory. Beyond it, the cache is emptied.
const maxKnown = 10_000

func newLeases[V any](read func(context.Context, string) (V, error)) *leases[V] {
	return &leases[V]{read: read, known: map[string]leased[V]{}}
}

// of returns the value of name, which is less than a lease old or was read after the
// call began.
func (s *leases[V]) of(ctx context.Context, name string) (V, error) {
	var none V
	asked := time.Now()
	for {
		s.mu.Lock()
		k, ok := s.known[name]
		s.mu.Unlock()
		if ok && k.holds() {
			return k.value, nil
		}
		select {
		case <-ctx.Done():
			return none, ctx.Err()
		case r := <-s.flight.DoChan(name, func() (any, error) { return s.load(ctx, name) }):
			if r.Err != nil {
				return none, r.Err
			}
			// This caller may have joined a slow read that began before a change which has
			// taken effect since. The next read begins after asked, so the loop ends with it.
			if k := r.Val.(leased[V]); k.holds() || !k.began.Before(asked) {
				return k.value, nil
			}
		}
	}
}

func (s *leases[V]) load(ctx context.Context, name string) (leased[V], error) {
	// Take the time before the read: a change that the read missed came after that time, so
	// this response expires within a lease of the change.
	k := leased[V]{began: time.Now()}
	// Others wait for the same read, so it must not end with the request that started it.
	var err error
	if k.value, err = s.read(context.WithoutCancel(ctx), name); err != nil {
		return k, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[name] = k
	return k, nil
}

// standings tells whether an account's videos may be shown, with one read per account
// and lease. If the store cannot be read, it returns an error, since the account may
// have been suspended.
//
// A caller that changes an account's standing stores it, and then waits for a lease. By
// then no replica uses the old one, and the replicas need not exchange any message. So
// this also works while Redis is down, and page views cost one read a second instead of
// one each.
type standings struct{ *leases[tenant.State] }

func newStandings(read func(context.Context, string) (tenant.Standing, error)) *standings {
	return &standings{newLeases(func(ctx context.Context, account string) (tenant.State, error) {
		s, err := read(ctx, account)
		// auth sends only its decisions. An account without one is active.
		if s.State == "" {
			s.State = tenant.Active
		}
		return s.State, err
	})}
}

// Settle waits until no replica uses anything that it read about an account before the
// call.
func Settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lease + leaseMargin):
		return nil
	}
}
