package turns

import "sync"

// Slots bound how much of one kind of work runs at a time in this process, for each
// name (an account, say) and in total. A caller that finds no free slot is refused at
// once, since waiting would hold its resources too.
type Slots struct {
	each, all int

	mu    sync.Mutex
	taken map[string]int
	total int
}

// NewSlots makes Slots with each slots for one name and all slots in total.
func NewSlots(each, all int) *Slots {
	return &Slots{each: each, all: all, taken: map[string]int{}}
}

// Take takes one of name's slots. release gives it back and must be called once. ok is
// false if no slot is free.
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
		// Forget a name that holds no slots, so that the running work bounds the memory.
		if s.taken[name]--; s.taken[name] == 0 {
			delete(s.taken, name)
		}
	}, true
}

// Taken returns how many slots are taken in total.
func (s *Slots) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}
