package job

import (
	"os"
	"path/filepath"
	"sync"
)

// sourceCache retains the source of the last job, since the next one is likely to
// be a part of it or what the fast lane has left of it. The files in it are links,
// so dropping one never takes it from a job that uses it. What no job uses any more
// counts in [Scratch.reserve] and gives way to whatever needs its space.
type sourceCache struct {
	mu   sync.Mutex
	key  sourceKey
	path string
}

type sourceKey struct {
	object     string
	generation int64
}

// link gives a job's folder the retained source; the path is empty when another
// one is retained, or none.
func (c *sourceCache) link(dir string, key sourceKey) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path == "" || c.key != key {
		return "", nil
	}
	path := filepath.Join(dir, "source")
	return path, os.Link(c.path, path)
}

// retain replaces what was retained. It ignores a failure, after which the source is
// downloaded again.
func (c *sourceCache) retain(retained, path string, key sourceKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
	if os.Link(path, retained) != nil {
		return
	}
	c.key, c.path = key, retained
}

// forget drops what is retained if it is this source.
func (c *sourceCache) forget(key sourceKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key == key {
		c.drop()
	}
}

func (c *sourceCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}

// drop needs the lock.
func (c *sourceCache) drop() {
	if c.path != "" {
		_ = os.Remove(c.path)
		c.path = ""
	}
}
