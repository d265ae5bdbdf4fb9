package storage

// LiveSessions is how many resumable sessions are in memory.
func (s *Server) LiveSessions() int {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	return len(s.sessions.live)
}

// ExpireSessions does what the server does every hour.
func (s *Server) ExpireSessions() error { return s.sessions.expire() }
