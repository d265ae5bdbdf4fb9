package ratelimit

import (
	"net/netip"
	"sync"
	"time"
)

// Misses gives each network a budget of lookups that find nothing, such as unknown slugs or keys.
// Only misses use it up, so a network that requests existing records is never slowed down. A
// network that has used up its budget gets one lookup a second, and can still get cached responses.
//
// Each process has its own Misses, so a scanner can cause more misses only if there are more
// replicas.
//
// A network is one IPv4 address or one IPv6 /64, because every IPv6 client has at least a /64.
type Misses struct {
	burst float64
	every time.Duration
	most  int
	now   func() time.Time

	mu       sync.Mutex
	networks map[netip.Prefix]spent
}

// MissOptions tune [Misses]; zero fields take the defaults.
type MissOptions struct {
	Burst    int           // misses that a network may cause in a burst; 300
	Every    time.Duration // how long it takes to regain one miss; 1 s
	Networks int           // networks in memory; 50,000 (about 8 MiB)
	Now      func() time.Time
}

// spent records how much of a network's budget was used at a given time.
type spent struct {
	misses float64
	at     time.Time
	next   time.Time // when a network without budget may ask again
}

// NewMisses returns a Misses with full budgets.
func NewMisses(o MissOptions) *Misses {
	if o.Burst <= 0 {
		o.Burst = 300
	}
	if o.Every <= 0 {
		o.Every = time.Second
	}
	if o.Networks <= 0 {
		o.Networks = 50_000
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Misses{burst: float64(o.Burst), every: o.Every, most: o.Networks, now: o.Now, networks: map[netip.Prefix]spent{}}
}

// Network returns the network to which Misses assigns an address. All peers without an
// address (the zero address) form one network.
func Network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// Wait returns how long addr's network must wait before a lookup in a store. If it returns zero,
// look up now, and call [Misses.Miss] if the store finds nothing. Otherwise return RATE_LIMITED
// with the returned time.
//
// Concurrent lookups may together overdraw the budget. Their misses are still counted as a debt.
// The alternative, reserving a miss for each lookup, would refuse a network that requests many
// existing records at the same time.
func (m *Misses) Wait(addr netip.Addr) time.Duration {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	network := Network(addr)
	s, known := m.networks[network]
	if !known || m.left(s, now) >= 1 {
		return 0
	}
	if wait := s.next.Sub(now); wait > 0 {
		return wait
	}
	// The budget is used up, so the network gets one lookup per m.every. Count this lookup before
	// its outcome is known, so concurrent lookups do not all get through.
	s.next = now.Add(m.every)
	m.networks[network] = s
	return 0
}

// Missed reports whether addr's network has used any of its budget.
func (m *Misses) Missed(addr netip.Addr) bool {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.networks[Network(addr)]
	return known && m.left(s, now) < m.burst
}

// Miss counts a lookup from addr's network that found nothing.
func (m *Misses) Miss(addr netip.Addr) {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	network := Network(addr)
	s, known := m.networks[network]
	if !known && len(m.networks) >= m.most {
		m.makeRoom(now)
	}
	// The debt is at most one budget, so a network is never locked out for longer than it
	// takes to regain two budgets.
	m.networks[network] = spent{misses: min(m.burst-m.left(s, now)+1, 2*m.burst), at: now, next: now.Add(m.every)}
}

// left returns the remaining budget. It is negative for a network in debt.
func (m *Misses) left(s spent, now time.Time) float64 {
	if s.at.IsZero() {
		return m.burst
	}
	back := max(0, now.Sub(s.at).Seconds()/m.every.Seconds())
	return min(m.burst, m.burst-s.misses+back)
}

// makeRoom forgets networks with a full budget and, if that is not enough, some of the other
// networks. A scan from more networks than fit in memory is slowed down less, but memory use is
// bounded.
func (m *Misses) makeRoom(now time.Time) {
	for n, s := range m.networks {
		if m.left(s, now) >= m.burst {
			delete(m.networks, n)
		}
	}
	for n := range m.networks {
		if len(m.networks) < m.most-m.most/8 {
			return
		}
		delete(m.networks, n)
	}
}
