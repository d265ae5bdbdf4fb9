package share

import (
	"time"

	"github.com/maypok86/otter/v2"
)

// kept is a cache that limits bytes rather than items because keys and values can be a thousand
// times longer than usual. It never returns an expired item. Expired items remain in the cache
// until they are evicted like any other item.
type kept[T any] struct{ items *otter.Cache[string, item[T]] }

type item[T any] struct {
	value T
	until time.Time
}

// perItem is the approximate overhead of an item in bytes, excluding its key and value.
const perItem = 200

func newKept[T any](most uint64, size func(T) int) kept[T] {
	return kept[T]{otter.Must(&otter.Options[string, item[T]]{
		MaximumWeight: most,
		Weigher:       func(key string, i item[T]) uint32 { return uint32(perItem + len(key) + size(i.value)) },
	})}
}

func (k kept[T]) get(key string, now time.Time) (value T, ok bool) {
	i, found := k.items.GetIfPresent(key)
	if !found || !now.Before(i.until) {
		return value, false
	}
	return i.value, true
}

func (k kept[T]) put(key string, value T, until time.Time) {
	k.items.Set(key, item[T]{value, until})
}
