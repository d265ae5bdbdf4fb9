package transcode

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
)

// Segments is the table of a rendition's segments. Its JSON form packs a segment into three small
// numbers because a four-hour video has about ten thousand segments. Durations are exact to the
// microsecond.
type Segments []Segment

var errSegments = errors.New("malformed segment table")

// MarshalJSON packs the table as unsigned varints in base64. Each segment is stored as the gap
// after the previous one (for the first, its offset), its size and its duration.
func (s Segments) MarshalJSON() ([]byte, error) {
	buf := make([]byte, 0, 8*len(s))
	var end int64
	for _, seg := range s {
		gap := seg.Offset - end
		if gap < 0 || seg.Size < 0 || seg.Duration < 0 {
			return nil, errSegments
		}
		buf = binary.AppendUvarint(buf, uint64(gap))
		buf = binary.AppendUvarint(buf, uint64(seg.Size))
		buf = binary.AppendUvarint(buf, uint64(math.Round(seg.Duration*1e6)))
		end = seg.Offset + seg.Size
	}
	return json.Marshal(base64.RawStdEncoding.EncodeToString(buf))
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (s *Segments) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	buf, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return errSegments
	}
	var table Segments
	var end int64
	for len(buf) > 0 {
		var n [3]uint64
		for i := range n {
			v, used := binary.Uvarint(buf)
			// Larger values could overflow the sums below without becoming negative.
			if used <= 0 || v > math.MaxInt64/4 {
				return errSegments
			}
			n[i], buf = v, buf[used:]
		}
		seg := Segment{Range: Range{Offset: end + int64(n[0]), Size: int64(n[1])}, Duration: float64(n[2]) / 1e6}
		if seg.Offset < 0 || seg.Offset+seg.Size < 0 {
			return errSegments
		}
		end = seg.Offset + seg.Size
		table = append(table, seg)
	}
	*s = table
	return nil
}
