package store

import (
	"hash/maphash"
	"slices"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

const (
	// namesMemory limits the memory that one process uses to cache days' names, for all partitions
	// in total.
	namesMemory = 16 << 20
	// dayBytes is the maximum size of a day without its names, in a map that has just been
	// enlarged.
	dayBytes  = 96
	nameBytes = 8
)

// nameMemory caches days' referring hosts and rules, so a day is not read again for each cycle in
// which it has clicks. It may forget a day at any time, in which case the day is read again.
//
// It stores days and names as hashes because clients can easily send millions of different hosts of
// up to 253 bytes. If two names have the same hash, each is still counted under its own name. In
// that case, the day may exceed its limit by one name, but all counts are still correct. The hashes
// use a secret seed, so clients cannot find names with the same hash.
type nameMemory struct {
	max   int
	seed  maphash.Seed
	days  map[uint64][]uint64
	bytes int // size of days
}

func newNameMemory(limit int) *nameMemory {
	return &nameMemory{max: limit, seed: maphash.MakeSeed(), days: map[uint64][]uint64{}}
}

func (m *nameMemory) key(t *link.Tally) uint64 {
	return maphash.Comparable(m.seed, dayKey{t.LinkID, t.Day})
}

// kind is the last bit of a name's hash. It distinguishes hosts from rules. A day has one list for
// both because few links have rules.
type kind uint64

const (
	aHost kind = iota
	aRule
)

func (m *nameMemory) hash(k kind, name string) uint64 {
	return maphash.String(m.seed, name)&^1 | uint64(k)
}

// knows reports whether the tally's day is known.
func (m *nameMemory) knows(t *link.Tally) bool { return m.days[m.key(t)] != nil }

// makeRoom forgets all days when the memory is full.
func (m *nameMemory) makeRoom() {
	if m.bytes > m.max {
		m.days, m.bytes = map[uint64][]uint64{}, 0
	}
}

// learn caches the stored names of the tally's day.
func (m *nameMemory) learn(t *link.Tally, stored *dayDoc) {
	if m.knows(t) {
		return
	}
	names := make([]uint64, 0, max(len(stored.Referrers)+len(stored.Rules), 1))
	for key := range stored.Referrers {
		names = append(names, m.hash(aHost, nameOf(key)))
	}
	for key := range stored.Rules {
		names = append(names, m.hash(aRule, nameOf(key)))
	}
	m.days[m.key(t)] = names
	m.bytes += dayBytes + nameBytes*cap(names)
}

// bound counts names that exceed a known day's limits under [OtherNames].
func (m *nameMemory) bound(t *link.Tally) {
	key := m.key(t)
	names := m.days[key]
	before := cap(names)
	names = m.boundKind(names, t.Referrers, aHost, maxReferrers)
	names = m.boundKind(names, t.Rules, aRule, maxRuleNames)
	m.days[key] = names
	m.bytes += nameBytes * (cap(names) - before)
}

func (m *nameMemory) boundKind(names []uint64, counts map[string]int64, k kind, most int) []uint64 {
	known := 0
	for _, sum := range names {
		if sum&1 == uint64(k) {
			known++
		}
	}
	for name, n := range counts {
		sum := m.hash(k, name)
		switch {
		case name == "" || slices.Contains(names, sum):
		case known < most:
			// The commit happens later. If it fails, this day has room for one fewer name until the
			// memory is cleared.
			names = append(names, sum)
			known++
		default:
			delete(counts, name)
			counts[OtherNames] += n
		}
	}
	return names
}
