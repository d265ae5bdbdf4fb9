package store

import (
	"hash/maphash"
	"slices"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

const (
	// hostsMemory bounds the bytes in which one process caches the hosts of days, all
	// partitions together.
	hostsMemory = 16 << 20
	// dayBytes is the maximum size of a day without its hosts: a slot of a map that has
	// just grown.
	dayBytes  = 96
	hostBytes = 8
)

// hostMemory caches the referring hosts of days, so that a day is not read again for
// each cycle in which it has clicks. It may forget at any time; that only costs another
// read.
//
// It keeps days and hosts as hashes, because strangers can easily send millions of
// different hosts of up to 253 bytes. If two hosts have the same hash, each is still
// counted under its own name. The day may then have one name more than [maxReferrers], but
// no count is wrong. The hashes have a secret seed, so that strangers cannot find names
// with the same hash.
type hostMemory struct {
	max   int
	seed  maphash.Seed
	days  map[uint64][]uint64
	bytes int // the approximate size of the cached days
}

func newHostMemory(limit int) *hostMemory {
	return &hostMemory{max: limit, seed: maphash.MakeSeed(), days: map[uint64][]uint64{}}
}

func (m *hostMemory) key(t *link.Tally) uint64 {
	return maphash.Comparable(m.seed, dayKey{t.LinkID, t.Day})
}

// knows reports whether the tally's day is known.
func (m *hostMemory) knows(t *link.Tally) bool { return m.days[m.key(t)] != nil }

// makeRoom forgets everything when the memory is full.
func (m *hostMemory) makeRoom() {
	if m.bytes > m.max {
		m.days, m.bytes = map[uint64][]uint64{}, 0
	}
}

// learn notes the hosts of the tally's day. stored has the hosts' keys from the day's
// document.
func (m *hostMemory) learn(t *link.Tally, stored map[string]int64) {
	if m.knows(t) {
		return
	}
	hosts := make([]uint64, 0, max(len(stored), 1))
	for key := range stored {
		hosts = append(hosts, maphash.String(m.seed, nameOf(key)))
	}
	m.days[m.key(t)] = hosts
	m.bytes += dayBytes + hostBytes*cap(hosts)
}

// bound moves hosts beyond the bound of a known day to one common entry.
func (m *hostMemory) bound(t *link.Tally) {
	key := m.key(t)
	hosts := m.days[key]
	before := cap(hosts)
	for host, n := range t.Referrers {
		sum := maphash.String(m.seed, host)
		switch {
		case host == "" || slices.Contains(hosts, sum):
		case len(hosts) < maxReferrers:
			// The commit comes later. If it fails, this day has room for one host less until the
			// memory is cleared.
			hosts = append(hosts, sum)
		default:
			delete(t.Referrers, host)
			t.Referrers[OtherReferrers] += n
		}
	}
	m.days[key] = hosts
	m.bytes += hostBytes * (cap(hosts) - before)
}
