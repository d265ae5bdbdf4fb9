// Package cache keeps the data for redirects in the process's memory.
//
// A hit does not require any I/O. A loader provides the values, with at most one load per key at a
// time. A value is reloaded when it is older than [Options.Fresh], no matter how often it is read.
// The cache also briefly remembers that a key has no value. When the loader fails, the cache keeps
// serving the last value. If there is none, it returns the loader's error.
//
// The caller feeds the cache a stream of invalidated keys, and the cache numbers the invalidations.
// An entry records the latest number when its load starts, and a lookup records the latest number
// when it runs. [Cache.Current] compares these with the number of the key's last invalidation. This
// way, a value that was read before a change is never served, even if it was stored after the
// change. Deleting the key from the cache would not prevent that race. While the stream is
// interrupted ([Cache.SetSynced]), values live only for [Options.Unsynced]. While the caller cannot
// tell whether the stream is interrupted ([Cache.MarkUncertain]), every lookup loads the value
// again.
package cache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"github.com/linkreel/linkreel/libs/outage"
)

// Options configure a [Cache]. Load is required; the other fields have defaults.
type Options[V any] struct {
	// Load reads a key's value. Its ctx has its own deadline instead of the caller's because other
	// callers may be waiting for the same load.
	Load func(ctx context.Context, key string) (value V, found bool, err error)
	// Weigh returns a value's size in bytes, not counting its key and overhead. If it is nil, every
	// value counts as 0 bytes.
	Weigh func(value V) int

	Capacity int64         // maximum size of all entries in total, in bytes; 64 MiB
	Fresh    time.Duration // how long a value is fresh after it is loaded; 30 s
	Unsynced time.Duration // how long a value is fresh while no invalidations arrive; 5 s
	Absent   time.Duration // how long a missing value is cached; 2 s
	Stale    time.Duration // how long a value may be served while loads fail; 24 h
	Timeout  time.Duration // deadline for a load; 2 s
	Patience time.Duration // how long a caller without a value waits; 2 s, or an eighth while loads fail
	Wait     time.Duration // how long a caller with an expired value waits for a fresh one; 100 ms
	Now      func() time.Time
}

// Entry holds the result of a load. Entries are shared and immutable.
type Entry[V any] struct {
	Value V
	Found bool

	loaded  int64 // ns
	version uint64
}

// Lookup is the result of looking up a key.
type Lookup[V any] struct {
	*Entry[V]
	key  string
	seen uint64 // number of the last invalidation at the time of the lookup
	// Stale is set if the entry has expired and the loader failed.
	Stale bool
}

// Cache is safe for concurrent use.
type Cache[V any] struct {
	opt     Options[V]
	entries *otter.Cache[string, *Entry[V]]
	flights singleflight.Group

	synced  atomic.Bool
	doubted atomic.Int64  // when the last uncertainty began, ns
	version atomic.Uint64 // number of the last invalidation
	floor   atomic.Uint64 // entries with a lower version missed invalidations
	loader  *outage.Breaker

	mu        sync.RWMutex
	recent    map[string]uint64 // number of each key's last invalidation
	log       []invalidated     // the latest invalidations, oldest first
	forgotten uint64            // invalidations up to this one may be missing in recent

	queueMu sync.Mutex
	queues  map[string]*queue[V] // by key, while the key is being verified
}

// queue holds the load that runs after a key's in-flight load.
type queue[V any] struct{ next *verification[V] }

// verification is a load that callers wait for. A queued verification has not started.
type verification[V any] struct {
	done  chan struct{}
	entry *Entry[V]
	err   error
}

type invalidated struct {
	key     string
	version uint64
	at      int64
}

// perEntry is the memory overhead of an entry in bytes, in addition to its key and value.
const perEntry = 130

// The cache remembers invalidations because loads and requests may hold an older entry. After the
// cache has forgotten an invalidation, a load or request that still holds an older entry must look
// up its key again. These bounds therefore limit memory use without affecting correctness. Without
// them, thousands of changes a second would accumulate.
const (
	remember    = 10 * time.Second
	rememberMax = 100_000
)

// uncertainty is how long [Cache.MarkUncertain] lasts. After that, an interruption is certain, and
// [Options.Unsynced] bounds the age of served values.
const uncertainty = time.Second

// rest is how long after a failure only one caller retries, to protect a failing loader. Other
// callers get the old value, if there is one.
const rest = 250 * time.Millisecond

// New returns an empty cache that counts as synced.
func New[V any](opt Options[V]) *Cache[V] {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&opt.Fresh, 30*time.Second)
	def(&opt.Unsynced, 5*time.Second)
	def(&opt.Absent, 2*time.Second)
	def(&opt.Stale, 24*time.Hour)
	def(&opt.Timeout, 2*time.Second)
	def(&opt.Patience, 2*time.Second)
	def(&opt.Wait, 100*time.Millisecond)
	if opt.Capacity <= 0 {
		opt.Capacity = 64 << 20
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	c := &Cache[V]{opt: opt, loader: outage.New(outage.Config{Rest: rest, Now: opt.Now}), recent: map[string]uint64{}, queues: map[string]*queue[V]{}}
	c.entries = otter.Must(&otter.Options[string, *Entry[V]]{
		MaximumWeight: uint64(opt.Capacity),
		Weigher: func(key string, e *Entry[V]) uint32 {
			w := perEntry + len(key)
			if opt.Weigh != nil {
				w += opt.Weigh(e.Value)
			}
			return uint32(w)
		},
	})
	c.synced.Store(true)
	return c
}

// SetSynced tells the cache whether invalidations are arriving.
func (c *Cache[V]) SetSynced(synced bool) { c.synced.Store(synced) }

// MarkUncertain is like SetSynced(false), but for an interruption that may be short. Other replicas
// may still receive changes and serve them, so every lookup loads again for a second.
func (c *Cache[V]) MarkUncertain() {
	c.doubted.Store(c.opt.Now().UnixNano())
	c.synced.Store(false)
}

func (c *Cache[V]) uncertain(now int64) bool {
	return !c.synced.Load() && now-c.doubted.Load() < int64(uncertainty)
}

// Len returns the approximate number of entries.
func (c *Cache[V]) Len() int { return c.entries.EstimatedSize() }

// Peek returns the cached value of key if it is available without waiting. at is the current time.
// It is a parameter because reading the clock is a large part of the cost of a hit, and a caller
// may peek into several caches.
func (c *Cache[V]) Peek(key string, at time.Time) (Lookup[V], bool) {
	now := at.UnixNano()
	// Read the number before the entry. An invalidation first removes the entry and then publishes
	// its number, so an entry that is found here is newer than every invalidation up to seen.
	seen := c.version.Load()
	e, _ := c.entries.GetIfPresent(key)
	if e == nil || c.uncertain(now) {
		return Lookup[V]{}, false
	}
	age, life := time.Duration(now-e.loaded), c.life(e)
	if age >= life {
		return Lookup[V]{}, false
	}
	// The entry is in use and expires soon, so reload it in the background.
	if e.Found && age >= life-life/4 && c.loader.Allow() {
		c.start(context.Background(), key, e)
	}
	return Lookup[V]{Entry: e, key: key, seen: seen}, true
}

// Holds reports whether the cache has a value for key, fresh or not.
func (c *Cache[V]) Holds(key string) bool {
	e, ok := c.entries.GetIfPresent(key)
	return ok && e.Found
}

// Get finds or loads key. It returns the loader's error only when it has no value to serve. A load
// that it starts has ctx's values but not its deadline, because other callers may wait for it too.
func (c *Cache[V]) Get(ctx context.Context, key string) (Lookup[V], error) {
	if l, ok := c.Peek(key, c.opt.Now()); ok {
		return l, nil
	}
	// Read the clock before the lookup. If Get waited between the lookup and the load, concurrent
	// callers for one key would load it one after another.
	now := c.opt.Now().UnixNano()
	seen := c.version.Load()
	e, _ := c.entries.GetIfPresent(key)
	old := Lookup[V]{Entry: e, key: key, seen: seen, Stale: true}
	if c.uncertain(now) {
		return c.verify(ctx, old)
	}
	if e == nil {
		return c.cold(ctx, key, e)
	}
	age := time.Duration(now - e.loaded)
	switch {
	case age < c.life(e): // another caller has just loaded it
		old.Stale = false
		return old, nil
	case !e.Found || age > c.opt.Stale:
		return c.cold(ctx, key, e)
	case !c.loader.Allow():
		return old, nil
	}
	wait, cancel := context.WithTimeout(ctx, c.opt.Wait)
	defer cancel()
	fresh, err := c.load(wait, key, e)
	if err != nil && c.untouched(old) {
		return old, nil
	}
	return fresh, err
}

func (c *Cache[V]) life(e *Entry[V]) time.Duration {
	switch {
	case e.version < c.floor.Load():
		return 0
	case !e.Found:
		return c.opt.Absent
	case c.synced.Load():
		return c.opt.Fresh
	}
	return c.opt.Unsynced
}

// cold loads a value for a caller that has none. The caller may stop waiting before the load
// finishes, and waits only briefly while loads fail. The load continues, so the next caller may
// find its value.
func (c *Cache[V]) cold(ctx context.Context, key string, old *Entry[V]) (Lookup[V], error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	return c.load(ctx, key, old)
}

// patience returns how long a caller waits for a new value that it needs.
func (c *Cache[V]) patience() time.Duration {
	if _, away := c.loader.Away(); away {
		return c.opt.Patience / 8
	}
	return c.opt.Patience
}

// load loads key, or joins a load that began after the key's last invalidation.
func (c *Cache[V]) load(ctx context.Context, key string, old *Entry[V]) (Lookup[V], error) {
	for {
		select {
		case r := <-c.start(ctx, key, old):
			if r.Err != nil {
				return Lookup[V]{}, r.Err
			}
			l := c.loaded(key, r.Val.(*Entry[V]))
			if !c.Current(l) {
				continue // invalidated during the load; the next load sees the change
			}
			return l, nil
		// Only this caller gives up. The shared load continues and still fills the cache.
		case <-ctx.Done():
			return Lookup[V]{}, late(ctx.Err())
		}
	}
}

// late returns the error for a caller that stopped waiting. Its text names the store, so the log
// shows what the caller waited for during an outage.
func late(err error) error { return fmt.Errorf("the store has not answered: %w", err) }

// loaded returns the lookup for an entry that was just loaded.
func (c *Cache[V]) loaded(key string, e *Entry[V]) Lookup[V] {
	return Lookup[V]{Entry: e, key: key, seen: e.version}
}

// verify returns the result of a load that starts after the call. The result of an in-flight load
// could miss a change that was acknowledged before the call. Concurrent callers share the next
// load. If it fails and old has a value, verify returns old.
func (c *Cache[V]) verify(ctx context.Context, old Lookup[V]) (Lookup[V], error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	v := c.next(old.key)
	var err error
	select {
	case <-v.done:
		if err = v.err; err == nil {
			return c.loaded(old.key, v.entry), nil
		}
	case <-ctx.Done():
		err = late(ctx.Err())
	}
	// An old "not found" is not returned, because the key may have been created since. An error is
	// better than a wrong response.
	if old.Entry != nil && old.Found && c.untouched(old) {
		return old, nil
	}
	return Lookup[V]{}, err
}

// next returns the key's next load, and queues it if necessary.
func (c *Cache[V]) next(key string) *verification[V] {
	c.queueMu.Lock()
	defer c.queueMu.Unlock()
	q := c.queues[key]
	if q == nil {
		q = &queue[V]{}
		c.queues[key] = q
		go c.work(key, q)
	}
	if q.next == nil {
		q.next = &verification[V]{done: make(chan struct{})}
	}
	return q.next
}

// work runs one load after another while callers wait for the next one.
func (c *Cache[V]) work(key string, q *queue[V]) {
	for {
		c.queueMu.Lock()
		v := q.next
		if q.next = nil; v == nil {
			delete(c.queues, key)
			c.queueMu.Unlock()
			return
		}
		c.queueMu.Unlock()
		v.entry, v.err = c.fetch(context.Background(), key)
		close(v.done)
	}
}

// start loads key unless another caller has loaded it since this caller found old. Without this
// check, a delayed caller would load the key again. old is the entry that the caller rejected, or
// nil.
func (c *Cache[V]) start(ctx context.Context, key string, old *Entry[V]) <-chan singleflight.Result {
	return c.flights.DoChan(key, func() (any, error) {
		if e, ok := c.entries.GetIfPresent(key); ok && e != old && c.Current(c.loaded(key, e)) {
			return e, nil
		}
		return c.fetch(ctx, key)
	})
}

// fetch loads key and caches the result, unless the key was invalidated during the load.
func (c *Cache[V]) fetch(ctx context.Context, key string) (*Entry[V], error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opt.Timeout)
	defer cancel()
	e := &Entry[V]{version: c.version.Load(), loaded: c.opt.Now().UnixNano()}
	var err error
	e.Value, e.Found, err = c.opt.Load(ctx, key)
	if outage.Down(err) {
		c.loader.Fail()
	} else {
		c.loader.OK() // the store responded, even if only with an error about this key
	}
	if err != nil {
		return nil, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.recent[key] <= e.version && e.version >= c.forgotten {
		c.entries.Set(key, e)
	}
	return e, nil
}

// Current reports whether the result may still be served: its key has not been invalidated since
// the lookup, and no invalidations were missed. If no fresher value was available (Stale), only the
// first condition applies.
func (c *Cache[V]) Current(l Lookup[V]) bool {
	return (l.Stale || l.version >= c.floor.Load()) && c.untouched(l)
}

// untouched reports whether the key has not been invalidated since the lookup.
func (c *Cache[V]) untouched(l Lookup[V]) bool {
	if l.seen == c.version.Load() {
		return true
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return l.seen >= c.forgotten && c.recent[l.key] <= l.seen
}

// Age returns the time since the result was loaded.
func (c *Cache[V]) Age(l Lookup[V]) time.Duration {
	return time.Duration(c.opt.Now().UnixNano() - l.Entry.loaded)
}

// Expired reports whether the result is too old to serve while no invalidations arrive. An entry
// loaded before the uncertainty began may be stale, so it counts as expired. A Stale result does
// not count as expired, because no fresher value was available.
func (c *Cache[V]) Expired(l Lookup[V]) bool {
	switch {
	case l.Stale:
		return false
	case c.uncertain(c.opt.Now().UnixNano()):
		return l.Entry.loaded < c.doubted.Load()
	}
	return c.Age(l) > c.opt.Unsynced
}

// Invalidate removes keys. Values that were loaded earlier are not served again, even by callers
// that hold them ([Cache.Current]), and an in-flight load does not store its result.
func (c *Cache[V]) Invalidate(keys ...string) {
	if len(keys) == 0 {
		return
	}
	now := c.opt.Now().UnixNano()
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.version.Load() + 1
	for _, key := range keys {
		c.recent[key] = v
		c.log = append(c.log, invalidated{key, v, now})
		c.flights.Forget(key)
		c.entries.Invalidate(key)
	}
	for len(c.log) > 0 && (now-c.log[0].at > int64(remember) || len(c.log) > rememberMax) {
		old := c.log[0]
		if c.recent[old.key] == old.version {
			delete(c.recent, old.key)
		}
		c.forgotten = max(c.forgotten, old.version)
		c.log = c.log[1:]
	}
	c.version.Store(v) // must be last; see Peek
}

// InvalidateAll makes every entry due for a reload. Call it after invalidations have been missed.
// The old values are still served while the loader fails.
func (c *Cache[V]) InvalidateAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.version.Load() + 1
	c.floor.Store(v)
	c.version.Store(v)
}
