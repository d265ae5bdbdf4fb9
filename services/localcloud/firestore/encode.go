package firestore

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

func formatNumericID(n int64) string { return "__id" + strconv.FormatInt(n, 10) + "__" }

// appendValue encodes v so that the bytes sort in the same order as compareValues. No encoding is a
// prefix of another, so encoded values can be concatenated in a key.
func appendValue(b []byte, v *pb.Value) []byte {
	kind := kindOf(v)
	b = append(b, kindTag(kind))
	switch kind {
	case kindBool:
		b = append(b, byte(boolRank(v)))
	case kindNumber:
		b = appendNumber(b, v)
	case kindTimestamp:
		t := v.GetTimestampValue()
		b = binary.BigEndian.AppendUint64(b, uint64(t.GetSeconds())^1<<63)
		b = binary.BigEndian.AppendUint32(b, uint32(t.GetNanos()))
	case kindString:
		b = appendEscaped(b, v.GetStringValue())
	case kindBytes:
		b = appendEscaped(b, v.GetBytesValue())
	case kindReference:
		b = append(appendSegments(b, strings.Split(v.GetReferenceValue(), "/")), endOfPath)
	case kindGeoPoint:
		b = appendFloat(appendFloat(b, v.GetGeoPointValue().GetLatitude()), v.GetGeoPointValue().GetLongitude())
	case kindArray:
		b = appendElements(b, v.GetArrayValue().GetValues())
	case kindVector:
		x := vectorElements(v)
		b = appendElements(binary.BigEndian.AppendUint32(b, uint32(len(x))), x)
	case kindMap:
		m := v.GetMapValue().GetFields()
		for _, k := range sortedKeys(m) {
			b = appendValue(appendEscaped(append(b, stringSegment), k), m[k])
		}
		b = append(b, endOfPath)
	}
	return b
}

// kindTag returns the first byte of a value's encoding. 0x00 and 0x01 are reserved for end markers,
// which must sort before every value.
func kindTag(kind int) byte { return byte(kind) + 2 }

func appendElements(b []byte, vs []*pb.Value) []byte {
	for _, e := range vs {
		b = appendValue(b, e)
	}
	return append(b, endOfPath)
}

// appendNumber appends the greatest double that does not exceed the number. If the number is an
// integer that a double cannot represent exactly, appendNumber adds the remainder.
func appendNumber(b []byte, v *pb.Value) []byte {
	i, isInt := v.GetValueType().(*pb.Value_IntegerValue)
	if !isInt {
		return append(appendFloat(b, v.GetDoubleValue()), 0, 0)
	}
	f := float64(i.IntegerValue)
	if compareIntDouble(i.IntegerValue, f) < 0 {
		f = math.Nextafter(f, math.Inf(-1))
	}
	return binary.BigEndian.AppendUint16(appendFloat(b, f), uint16(i.IntegerValue-int64(f)))
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}
