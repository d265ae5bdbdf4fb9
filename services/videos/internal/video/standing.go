package video

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/linkreel/linkreel/libs/tenant"
)

// lease is how long a replica may use the result of a read. It starts before the read and is
// measured with the machine's monotonic clock.
const lease = time.Second

// leaseMargin is added when waiting for all leases to end because the machines' clocks run at
// slightly different speeds.
const leaseMargin = 100 * time.Millisecond

// leases caches the results of reads, by name, for the duration of a lease. Concurrent callers
// share one read.
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

// maxKnown limits the number of cached results. Once the cache reaches the limit, it is emptied.
const maxKnown = 10_000

func newLeases[V any](read func(context.Context, string) (V, error)) *leases[V] {
	return &leases[V]{read: read, known: map[string]leased[V]{}}
}

// of returns the value for name. The value is younger than a lease, or was read after the call
// began.
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
			// This caller may have joined a slow read that began before a change that is now
			// in effect. The next read begins after asked, so the loop ends after that read.
			if k := r.Val.(leased[V]); k.holds() || !k.began.Before(asked) {
				return k.value, nil
			}
		}
	}
}

func (s *leases[V]) load(ctx context.Context, name string) (leased[V], error) {
	// Take the time before the read: any change that the read missed was made after that time, so
	// this value will expire within a lease of the change.
	k := leased[V]{began: time.Now()}
	// Other callers wait for the same read, so it must not end with the request that started
	// it.
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

// standings checks whether an account's videos may be shown, with one read per account per lease.
// If the store cannot be read, it returns an error because the account may have been suspended.
//
// A caller that changes an account's standing stores the new standing and then waits for a lease.
// After that, none of the replicas use the old standing. The replicas do not have to exchange
// messages, so this works even while Redis is down. An account's page views cost one read per
// second instead of one per view.
type standings struct{ *leases[tenant.State] }

func newStandings(read func(context.Context, string) (tenant.Standing, error)) *standings {
	return &standings{newLeases(func(ctx context.Context, account string) (tenant.State, error) {
		s, err := read(ctx, account)
		// auth sends only its decisions, so an account without one is active.
		if s.State == "" {
			s.State = tenant.Active
		}
		return s.State, err
	})}
}

// Settle waits until none of the replicas use a standing that they read before the call.
func Settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lease + leaseMargin):
		return nil
	}
}
