package clicks

import (
	"encoding/binary"
	"errors"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

// A payload is a batch of clicks. It consists of a version, the producer's running total after this
// batch, and distinct clicks with their counts. The producer merges identical clicks, so a popular
// link takes one entry per batch rather than one per visit. A negative count undoes clicks. A bit
// in the device byte indicates that a rule's name follows, so links without rules do not need an
// extra byte.
const (
	payloadVersion = 1
	withRule       = 0x80 // flag in the device byte
)

var errPayload = errors.New("malformed click payload")

type tuple struct {
	click link.Click
	n     int64
}

// sums adds up the clicks in one batch. It is reused for the next batch.
type sums struct {
	index map[link.Click]int
	list  []tuple
	total int64
}

// add counts n clicks equal to c. A negative n undoes clicks.
func (s *sums) add(c link.Click, n int64) {
	s.total += n
	if last := len(s.list) - 1; last >= 0 && s.list[last].click == c {
		s.list[last].n += n
		return
	}
	if i, ok := s.index[c]; ok {
		s.list[i].n += n
		return
	}
	if s.index == nil {
		s.index = map[link.Click]int{}
	}
	s.index[c] = len(s.list)
	s.list = append(s.list, tuple{c, n})
}

func (s *sums) reset() {
	clear(s.index)
	clear(s.list)
	s.list, s.total = s.list[:0], 0
}

// encode returns the batch as a payload. runningTotal includes this batch.
func (s *sums) encode(runningTotal int64) []byte {
	b := make([]byte, 0, 16+len(s.list)*48)
	b = binary.AppendVarint(append(b, payloadVersion), runningTotal)
	for _, t := range s.list {
		b = binary.AppendVarint(b, t.n)
		b = binary.AppendUvarint(b, uint64(t.click.Day))
		device := byte(t.click.Device)
		if t.click.Rule != "" {
			device |= withRule
		}
		b = append(b, device)
		for _, text := range []string{t.click.LinkID, t.click.Referrer, t.click.Country} {
			b = appendText(b, text)
		}
		if t.click.Rule != "" {
			b = appendText(b, t.click.Rule)
		}
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// decode parses a payload and calls each for every distinct click with its count.
func decode(b []byte, each func(c link.Click, n int64)) (runningTotal int64, err error) {
	if len(b) == 0 || b[0] != payloadVersion {
		return 0, errPayload
	}
	r := reader{b: b[1:]}
	runningTotal = r.varint()
	for len(r.b) > 0 && !r.bad {
		n := r.varint()
		c := link.Click{Day: link.Day(r.uvarint())}
		device := r.byte()
		c.Device = link.Device(device &^ withRule)
		c.LinkID, c.Referrer, c.Country = r.text(), r.text(), r.text()
		if device&withRule != 0 {
			c.Rule = r.text()
		}
		if r.bad {
			return 0, errPayload
		}
		each(c, n)
	}
	if r.bad {
		return 0, errPayload
	}
	return runningTotal, nil
}

type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<53 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 || v > 1<<53 || v < -1<<53 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	v := string(r.b[:n])
	r.b = r.b[n:]
	return v
}
