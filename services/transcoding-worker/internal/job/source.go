package job

import (
	"os"
	"path/filepath"
	"sync"
)

// sourceCache retains the last job's source because the next job may need it too. The next job may
// encode a part of the same video, or the fast lane may have just inspected it. The cached file is
// a hard link, so dropping it does not affect a job that is using the source. A source that no job
// uses still counts in [Scratch.reserve], and is dropped if a job needs its space.
type sourceCache struct {
	mu   sync.Mutex
	key  sourceKey
	path string
}

type sourceKey struct {
	object     string
	generation int64
}

// link links the source with this key into a job's folder. The path is empty if that
// source is not the retained one.
func (c *sourceCache) link(dir string, key sourceKey) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path == "" || c.key != key {
		return "", nil
	}
	path := filepath.Join(dir, "source")
	return path, os.Link(c.path, path)
}

// retain replaces the retained source. It ignores errors because the source can be downloaded
// again.
func (c *sourceCache) retain(retained, path string, key sourceKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
	if os.Link(path, retained) != nil {
		return
	}
	c.key, c.path = key, retained
}

// forget drops the retained source if it has this key.
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

// drop drops the retained source. The caller holds c.mu.
func (c *sourceCache) drop() {
	if c.path != "" {
		_ = os.Remove(c.path)
		c.path = ""
	}
}
