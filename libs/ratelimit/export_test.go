package ratelimit

// Len is how many networks are in memory.
func (m *Misses) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.networks)
}
