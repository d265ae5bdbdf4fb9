package dedup

import "time"

// Patient makes s wait long enough for Redis even on a busy machine.
func Patient(s *Seen) *Seen {
	s.budget = 30 * time.Second
	return s
}
