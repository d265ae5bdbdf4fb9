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
	until time.Time
}

// maxKnown bounds the memory; beyond it all accounts are read again.
const maxKnown = 10_000

func newStandings(read func(context.Context, string) (tenant.Standing, error)) *standings {
	return &standings{read: read, known: map[string]knownState{}}
}

// of is an account's state. A store that cannot be read is an error: an account
// may have been suspended.
func (s *standings) of(ctx context.Context, account string) (tenant.State, error) {
	s.mu.Lock()
	k, ok := s.known[account]
	s.mu.Unlock()
	if ok && time.Now().Before(k.until) {
		return k.state, nil
	}
	result := s.flight.DoChan(account, func() (any, error) {
		// Time is taken before the read: what is decided after that read is decided
		// at most a lease before this answer ends.
		until := time.Now().Add(lease)
		// Others wait for the same read, so it must not end with the request that began it.
		read, err := s.read(context.WithoutCancel(ctx), account)
		if err != nil {
			return nil, err
		}
		if read.State == "" {
			read.State = tenant.Active
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.known) >= maxKnown {
			clear(s.known)
		}
		s.known[account] = knownState{read.State, until}
		return read.State, nil
	})
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-result:
		if r.Err != nil {
			return "", r.Err
		}
		return r.Val.(tenant.State), nil
	}
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
