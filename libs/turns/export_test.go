package turns

// Names returns how many names a queue remembers.
func (q *Queue) Names() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.names)
}

// Turns returns how many names have a place among the turns.
func (q *Queue) Turns() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turns.Len()
}
