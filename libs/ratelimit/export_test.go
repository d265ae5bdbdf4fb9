package ratelimit

// Len returns the number of networks in memory.
func (m *Misses) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.networks)
}
