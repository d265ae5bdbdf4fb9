package turns

// Names is how many names a queue remembers.
func (q *Queue) Names() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.names)
}

// Turns is how many names are about to have a turn.
func (q *Queue) Turns() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turns.Len()
}
