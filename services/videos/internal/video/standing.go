package video

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/linkreel/linkreel/libs/tenant"
)

// lease is how long a replica may go on by what it read. It counts from before the
// read, in the machine's monotonic time.
const lease = time.Second

// leaseMargin is added by whoever waits for all leases to end: clocks of machines
// run at slightly different speeds.
const leaseMargin = 100 * time.Millisecond

// leases remember what was read for a lease, by a name, and read it once for all
// who ask at the same time.
type leases[V any] struct {
	read   func(ctx context.Context, name string) (V, error)
	flight singleflight.Group

	mu    sync.Mutex
	known map[string]leased[V]
}

type leased[V any] struct {
	value V
	began time.Time // before the read
}

func (l leased[V]) holds() bool { return time.Since(l.began) < lease }

// maxKnown bounds the memory; beyond it everything is read again.
const maxKnown = 10_000

func newLeases[V any](read func(context.Context, string) (V, error)) *leases[V] {
	return &leases[V]{read: read, known: map[string]leased[V]{}}
}

// of is what is true of name, or was less than a lease ago.
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
			// This caller may have joined a slow read that began before a change which has been
			// answered since. The next read begins after asked, so the loop ends with it.
			if k := r.Val.(leased[V]); k.holds() || !k.began.Before(asked) {
				return k.value, nil
			}
		}
	}
}

func (s *leases[V]) load(ctx context.Context, name string) (leased[V], error) {
	// Time is taken before the read: what is decided after that read is decided
	// at most a lease before this answer ends.
	k := leased[V]{began: time.Now()}
	// Others wait for the same read, so it must not end with the request that began it.
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

// standings answers whether an account's videos may be shown, with one read per
// account and lease. A store that cannot be read is an error: an account may have
// been suspended.
//
// Whoever changes an account's standing stores it and then waits for a lease: by
// then no replica goes by the old one, without any message to them. So it holds
// with Redis down too, and costs page views a read a second instead of one each.
type standings struct{ *leases[tenant.State] }

func newStandings(read func(context.Context, string) (tenant.Standing, error)) *standings {
	return &standings{newLeases(func(ctx context.Context, account string) (tenant.State, error) {
		s, err := read(ctx, account)
		if s.State == "" {
			s.State = tenant.Active
		}
		return s.State, err
	})}
}

// Settle waits until no replica goes by what it read of an account before now.
func Settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lease + leaseMargin):
		return nil
	}
}
