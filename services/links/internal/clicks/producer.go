package clicks

import (
	"slices"
	"time"
)

const (
	// keepFor is how long a producer keeps batches in memory, to resend them if Redis loses its
	// data. Clicks are usually pending for less time than that.
	keepFor = 15 * time.Second
	// keepBytes limits the size of the batches that a producer keeps.
	keepBytes = 16 << 20
)

// producer is one sequence of numbered batches.
type producer struct {
	name  string
	next  int64 // number of the next batch
	total int64 // clicks in all batches so far
	acked int64 // last batch that Redis is known to have
	kept  []numbered
	size  int       // bytes in the kept batches
	at    time.Time // time of the last batch
}

// add adds the next batch. The producer keeps the batch until Redis has it, and for a few more
// seconds in case Redis loses it.
func (p *producer) add(b numbered, clicks int64) {
	p.next, p.total, p.at = b.number+1, p.total+clicks, b.at
	p.keep(b)
}

func (p *producer) keep(b numbered) {
	p.kept = append(p.kept, b)
	p.size += len(b.payload)
	drop := 0
	for drop < len(p.kept) && p.kept[drop].number <= p.acked && (b.at.Sub(p.kept[drop].at) > keepFor || p.size > keepBytes) {
		p.size -= len(p.kept[drop].payload)
		p.kept[drop].payload = nil
		drop++
	}
	p.kept = p.kept[drop:]
}

// missing appends the kept batches that Redis might not have to dst, up to limit bytes. all is
// false if some did not fit. Usually, Redis has every kept batch.
func (p *producer) missing(dst []numbered, limit int) (_ []numbered, all bool) {
	if n := len(p.kept); n == 0 || p.kept[n-1].number <= p.acked {
		return dst, true
	}
	from, _ := slices.BinarySearchFunc(p.kept, p.acked+1, func(b numbered, n int64) int { return int(b.number - n) })
	for _, b := range p.kept[from:] {
		if limit -= len(b.payload); limit < 0 && len(dst) > 0 {
			return dst, false
		}
		dst = append(dst, b)
	}
	return dst, true
}

// learn records the last batch that a call found in Redis. before is acked's value at the start of
// the call. If another call has changed acked since then, that newer result is kept.
func (p *producer) learn(before, last int64) {
	if p.acked == before {
		p.acked = last
	}
}

// skips reports whether there is a gap before batches. Redis must accept that gap because the
// producer no longer keeps the missing batches.
func (p *producer) skips(batches []numbered) bool {
	return len(batches) > 0 && batches[0].number > p.acked+1
}
