package firestore

import (
	"sync"
	"time"
)

// commitClock returns strictly increasing commit times. Its read times are never later than the
// time of a future commit.
type commitClock struct {
	now func() time.Time

	mu      sync.Mutex
	last    int64 // the most recently returned commit time
	visible int64 // the newest commit that readers can see
	pending bool  // a batch has commit times that readers cannot see yet
}

// tick returns the time of the next commit.
func (c *commitClock) tick() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, c.now().UnixMicro())
	c.pending = true
	return c.last
}

// settled ends a batch. Its commits are now visible, or have failed.
func (c *commitClock) settled(visible int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.visible = max(c.visible, visible)
	c.pending = false
}

// readTime returns the latest time at which newest is still the newest commit. This is the current
// time, unless a later commit is about to become visible.
func (c *commitClock) readTime(newest int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending || c.visible != newest {
		return newest
	}
	c.last = max(c.last, c.now().UnixMicro())
	return c.last
}

// newest returns the time of the newest commit that readers can see.
func (c *commitClock) newest() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.visible
}
