package turns

import "sync"

// Slots limits how much of one kind of work runs at the same time in this process, for each name
// (for example an account) and in total. If no slot is free, the caller is refused immediately,
// because a waiting caller would keep its resources.
type Slots struct {
	each, all int

	mu    sync.Mutex
	taken map[string]int
	total int
}

// NewSlots returns Slots that allow each slots per name and all slots in total.
func NewSlots(each, all int) *Slots {
	return &Slots{each: each, all: all, taken: map[string]int{}}
}

// Take takes one of name's slots. release returns the slot and must be called once. ok is false if
// no slot is free.
func (s *Slots) Take(name string) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[name] >= s.each || s.total >= s.all {
		return nil, false
	}
	s.taken[name]++
	s.total++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.total--
		// Drop a name without slots, so memory use depends only on the running work.
		if s.taken[name]--; s.taken[name] == 0 {
			delete(s.taken, name)
		}
	}, true
}

// Taken returns the total number of taken slots.
func (s *Slots) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}
