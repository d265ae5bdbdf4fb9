package ratelimit

import (
	"net/netip"
	"sync"
	"time"
)

// Misses is a budget, for each network, of questions whose answer is "there is
// nothing here": unknown slugs, unknown keys. Only misses spend it, so a network
// that asks for what exists is never slowed down. A network that has spent its
// budget gets one question a second, and its answers from caches.
//
// It lives in one process: a caller that scans meets every replica's budget, and
// what it can ask of the whole system grows with the replicas only.
//
// A network is one IPv4 address, or a /64 of IPv6, since every client of IPv6 has
// at least one of those to itself.
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
	Burst    int           // misses a network may have at once; 300
	Every    time.Duration // in which one miss comes back; 1 s
	Networks int           // networks in memory; 50,000 (about 8 MiB)
	Now      func() time.Time
}

// spent is what a network has used up, as of a time.
type spent struct {
	misses float64
	at     time.Time
	next   time.Time // when an exhausted network may ask again
}

// NewMisses makes budgets, all of them full.
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

// Network is the network that an address belongs to here. The zero address, of a
// peer that has none, is a network of its own.
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

// Wait is asked before a store is: zero lets addr's network ask, else the answer
// is RATE_LIMITED for that long. Call [Misses.Miss] when the store had nothing.
//
// Questions that are in flight at once may together overdraw the budget. Misses
// counts them all the same, so the network pays for them afterwards. The
// alternative, to reserve a miss for each question, would refuse a network that
// asks for many existing records at once.
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
	// This question takes the second; whoever asks next waits for the one after.
	s.next = now.Add(m.every)
	m.networks[network] = s
	return 0
}

// Missed reports whether addr's network has not earned back all of its misses.
func (m *Misses) Missed(addr netip.Addr) bool {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.networks[Network(addr)]
	return known && m.left(s, now) < m.burst
}

// Miss notes that a question of addr's network found nothing.
func (m *Misses) Miss(addr netip.Addr) {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	network := Network(addr)
	s, known := m.networks[network]
	if !known && len(m.networks) >= m.most {
		m.makeRoom(now)
	}
	// At most one budget of debt: a network is not locked out for longer than it
	// takes to earn two.
	m.networks[network] = spent{misses: min(m.burst-m.left(s, now)+1, 2*m.burst), at: now, next: now.Add(m.every)}
}

// left is what remains of the budget; negative for a network in debt.
func (m *Misses) left(s spent, now time.Time) float64 {
	if s.at.IsZero() {
		return m.burst
	}
	back := max(0, now.Sub(s.at).Seconds()/m.every.Seconds())
	return min(m.burst, m.burst-s.misses+back)
}

// makeRoom forgets the networks whose budget is full again, and when there are
// none, some of the others: a scan from more networks than fit in memory is
// slowed down less, but memory stays bounded.
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
