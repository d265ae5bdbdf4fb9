package video

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/linkreel/linkreel/libs/tenant"
)

// lease is how long a replica may go on by what it read about an account. It
// counts from before the read, in the machine's monotonic time.
const lease = time.Second

// leaseMargin is added by whoever waits for all leases to end: clocks of machines
// run at slightly different speeds.
const leaseMargin = 100 * time.Millisecond

// standings answers whether an account's videos may be shown, with one read per
// account and lease.
//
// Whoever changes an account's standing stores it and then waits for a lease: by
// then no replica goes by the old one, without any message to them. So it holds
// with Redis down too, and costs page views a read a second instead of one each.
type standings struct {
	read   func(ctx context.Context, account string) (tenant.Standing, error)
	flight singleflight.Group

	mu    sync.Mutex
	known map[string]knownState
}

type knownState struct {
	state tenant.State
	began time.Time // before the read
}

func (k knownState) holds() bool { return time.Since(k.began) < lease }

// maxKnown bounds the memory; beyond it all accounts are read again.
const maxKnown = 10_000

func newStandings(read func(context.Context, string) (tenant.Standing, error)) *standings {
	return &standings{read: read, known: map[string]knownState{}}
}

// of is an account's state. A store that cannot be read is an error: an account
// may have been suspended.
func (s *standings) of(ctx context.Context, account string) (tenant.State, error) {
	asked := time.Now()
	for {
		s.mu.Lock()
		k, ok := s.known[account]
		s.mu.Unlock()
		if ok && k.holds() {
			return k.state, nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case r := <-s.flight.DoChan(account, func() (any, error) { return s.load(ctx, account) }):
			if r.Err != nil {
				return "", r.Err
			}
			// This caller may have joined a slow read that began before a change which has been
			// answered since. The next read begins after asked, so the loop ends with it.
			if k := r.Val.(knownState); k.holds() || !k.began.Before(asked) {
				return k.state, nil
			}
		}
	}
}

func (s *standings) load(ctx context.Context, account string) (knownState, error) {
	// Time is taken before the read: what is decided after that read is decided
	// at most a lease before this answer ends.
	began := time.Now()
	// Others wait for the same read, so it must not end with the request that began it.
	read, err := s.read(context.WithoutCancel(ctx), account)
	if err != nil {
		return knownState{}, err
	}
	if read.State == "" {
		read.State = tenant.Active
	}
	k := knownState{read.State, began}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[account] = k
	return k, nil
}

// settle waits until no replica goes by what it read before now.
func (s *standings) settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lease + leaseMargin):
		return nil
	}
}
