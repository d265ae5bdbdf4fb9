// Package lograte keeps what happens a thousand times a second from filling the log. A
// [Limit] lets one line a minute through and counts what the line stands for. A [State]
// does the same for something that fails and works again, such as a store. The packages
// that use them write the lines themselves.
package lograte

import (
	"sync"
	"time"
)

// Every is the shortest time between two lines.
const Every = time.Minute

// Limit bounds the lines about one thing. The zero value is ready, and is safe for concurrent
// use.
type Limit struct {
	mu    sync.Mutex
	begun bool
	at    time.Time // of the last line
	count int64
}

// Due counts n occurrences. If it is time for a line, it returns how many there were since the
// last one, and the caller writes the line. Otherwise it returns 0.
func (l *Limit) Due(now time.Time, n int64) (count int64) { return l.DueAfter(Every, now, n) }

// DueAfter is Due with another time between two lines.
func (l *Limit) DueAfter(every time.Duration, now time.Time, n int64) (count int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count += n
	if l.begun && now.Sub(l.at) < every {
		return 0
	}
	count = l.count
	l.begun, l.at, l.count = true, now, 0
	return count
}

// Limits has a [Limit] of a minute for each key, such as the cause of a failure. Keys stay for
// ever, so nobody else may choose them. The zero value is ready.
type Limits[K comparable] struct {
	mu    sync.Mutex
	byKey map[K]*Limit
}

// Due counts an occurrence for the key, as [Limit.Due] does.
func (l *Limits[K]) Due(key K, now time.Time) (count int64) {
	l.mu.Lock()
	if l.byKey == nil {
		l.byKey = map[K]*Limit{}
	}
	limit := l.byKey[key]
	if limit == nil {
		limit = &Limit{}
		l.byKey[key] = limit
	}
	l.mu.Unlock()
	return limit.Due(now, 1)
}

// State bounds the lines about something that fails and works again. The zero value is ready,
// and is safe for concurrent use.
type State struct {
	limit Limit

	mu      sync.Mutex
	failing bool
	since   time.Time // when the failures began that have not ended
	told    bool      // there was a line since then
}

// Failed notes a failure. If it is time for a line, it returns how many failures there were
// since the last one, otherwise 0.
func (s *State) Failed(now time.Time) (times int64) { return s.fail(now, 1) }

// StillFailing is for a caller that counts the failures that last, with Failed, and not every
// attempt. If there was no line yet about the present one and it is time for it, it returns what
// Failed would have returned, otherwise 0.
func (s *State) StillFailing(now time.Time) (times int64) {
	s.mu.Lock()
	told := s.told
	s.mu.Unlock()
	if told {
		return 0
	}
	return s.fail(now, 0)
}

func (s *State) fail(now time.Time, n int64) (times int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.failing {
		s.failing, s.since = true, now
	}
	times = s.limit.Due(now, n)
	s.told = s.told || times > 0
	return times
}

// Worked notes that it works. If it failed before and there was a line about that, Worked
// returns for how long, and the caller writes that it is over.
func (s *State) Worked(now time.Time) (failed time.Duration, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed, tell = now.Sub(s.since), s.told
	s.failing, s.told = false, false
	return failed, tell
}
