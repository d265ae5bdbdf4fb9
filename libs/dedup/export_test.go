package dedup

import "time"

// Patient makes s wait for Redis for as long as a busy machine may need.
func Patient(s *Seen) *Seen {
	s.budget = 30 * time.Second
	return s
}
