package turns

import "sync"

// Slots bound how much of one kind of work runs at a time in this process, for each
// name (an account, say) and in all. Who finds none free is refused at once, since
// what waited would be held as well.
type Slots struct {
	each, all int

	mu    sync.Mutex
	taken map[string]int
	total int
}

// NewSlots makes slots, all of them free: each for one name, all together.
func NewSlots(each, all int) *Slots {
	return &Slots{each: each, all: all, taken: map[string]int{}}
}

// Take takes one of name's slots. release gives it back and is called once; ok is
// false where none is free.
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
		// A name without a slot is forgotten, so that memory goes by what runs.
		if s.taken[name]--; s.taken[name] == 0 {
			delete(s.taken, name)
		}
	}, true
}

// Taken is how many slots are taken in all.
func (s *Slots) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}
