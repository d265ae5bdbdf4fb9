package turns

// Names returns the number of names in a queue.
func (q *Queue) Names() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.names)
}

// Turns returns how many names have a turn.
func (q *Queue) Turns() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turns.Len()
}
