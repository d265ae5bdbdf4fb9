package storage

import (
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// LiveSessions returns the number of resumable sessions that are in memory.
func (s *Server) LiveSessions() int {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	return len(s.sessions.live)
}

// ExpireSessions runs the server's hourly cleanup.
func (s *Server) ExpireSessions() error { return s.sessions.expire() }

// FillIndex adds n bytes to the index.
func (s *Server) FillIndex(n int) error {
	value := make([]byte, 16<<20)
	for i := 0; i < n; i += len(value) {
		if err := s.st.update(false, func(t *bolt.Tx) error { return t.Bucket(inMeta).Put(fmt.Appendf(nil, "filler %d", i), value) }); err != nil {
			return err
		}
	}
	return nil
}
