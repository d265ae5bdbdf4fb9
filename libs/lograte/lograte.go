// Package lograte limits how often a frequent occurrence is logged. A [Limit] allows one line a
// minute and counts the occurrences that the line represents. A [State] does the same for something
// that fails and recovers, such as a store. The callers write the lines.
package lograte

import (
	"sync"
	"time"
)

// Every is the minimum time between lines.
const Every = time.Minute

// Limit limits the lines about one kind of occurrence. The zero value is ready for use. A Limit is
// safe for concurrent use.
type Limit struct {
	mu    sync.Mutex
	begun bool
	at    time.Time // time of the last line
	count int64
}

// Due counts n occurrences. If a line is due, it returns the number of occurrences since the last
// line, and the caller writes the line. Otherwise it returns 0.
func (l *Limit) Due(now time.Time, n int64) (count int64) { return l.DueAfter(Every, now, n) }

// DueAfter is like Due, but with every as the minimum time between lines.
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

// Limits has a one-minute [Limit] for each key, such as the cause of a failure. Keys are never
// removed, so callers of the API must not be able to choose them. The zero value is ready for use.
type Limits[K comparable] struct {
	mu    sync.Mutex
	byKey map[K]*Limit
}

// Due counts an occurrence for the key, like [Limit.Due].
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

// State limits the lines about something that fails and recovers. The zero value is ready for use.
// A State is safe for concurrent use.
type State struct {
	limit Limit

	mu      sync.Mutex
	failing bool
	since   time.Time // start of the current failure
	told    bool      // a line was written since then
}

// Failed counts a failure. If a line is due, it returns the number of failures since the last line.
// Otherwise it returns 0.
func (s *State) Failed(now time.Time) (times int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.failing {
		s.failing, s.since = true, now
	}
	return s.due(now, 1)
}

// StillFailing is for callers that call Failed once per outage rather than once per attempt. If
// nothing has been logged about the current outage yet and a line is due, it returns the same
// number as Failed. Otherwise it returns 0, for example because the outage has just ended.
func (s *State) StillFailing(now time.Time) (times int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.failing || s.told {
		return 0
	}
	return s.due(now, 0)
}

func (s *State) due(now time.Time, n int64) (times int64) {
	times = s.limit.Due(now, n)
	s.told = s.told || times > 0
	return times
}

// Worked records a success. If it ends a failure that was logged, Worked returns how long the
// failure lasted, and the caller logs the recovery.
func (s *State) Worked(now time.Time) (failed time.Duration, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed, tell = now.Sub(s.since), s.told
	s.failing, s.told = false, false
	return failed, tell
}
