package firestore

import (
	"math"
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// These are production's documented limits. A document that exceeds one is rejected with
// InvalidArgument before anything is written.
const (
	maxRequestBytes  = 10 << 20
	maxDocumentBytes = 1 << 20
	maxPropertyBytes = 1<<20 - 89
	maxIDBytes       = 1500
	maxIndexedBytes  = 1500
	maxNameBytes     = 6 << 10
	maxDepth         = 20
	maxDisjunctions  = 30

	// This limit applies to one document in one commit.
	maxTransforms = 500
	// These limits apply to one document across all indexes.
	maxIndexEntries    = 40_000
	maxIndexEntryBytes = 8 << 20
)

func invalid(format string, a ...any) error {
	return status.Errorf(codes.InvalidArgument, format, a...)
}

func requestSize(m proto.Message) (int, error) {
	n := proto.Size(m)
	if n > maxRequestBytes {
		return 0, invalid("Request payload size exceeds the limit: %d bytes.", maxRequestBytes)
	}
	return n, nil
}

// isReserved reports whether a name has the form __foo__, which callers may not use.
func isReserved(s string) bool {
	return len(s) >= 4 && strings.HasPrefix(s, "__") && strings.HasSuffix(s, "__")
}

// checkFields validates the new content of a document, truncates timestamps to microseconds, and
// returns the size according to production's rules.
func checkFields(m map[string]*pb.Value, depth int) (int, error) {
	size := 0
	for k, v := range m {
		if k == "" {
			return 0, invalid("The property name cannot be empty.")
		}
		if isReserved(k) && k != "__type__" {
			return 0, invalid("field name %s is reserved", k)
		}
		n, err := checkValue(v, depth, false)
		if err != nil {
			return 0, err
		}
		if depth == 0 && n > maxPropertyBytes {
			return 0, invalid("The value of property %q is longer than %d bytes.", k, maxPropertyBytes)
		}
		size += len(k) + 1 + n
	}
	return size, nil
}

func checkValue(v *pb.Value, depth int, inArray bool) (int, error) {
	if depth > maxDepth {
		return 0, invalid("Property contains an invalid nested entity: more than %d levels.", maxDepth)
	}
	switch x := v.GetValueType().(type) {
	case *pb.Value_StringValue, *pb.Value_BytesValue, *pb.Value_ReferenceValue, *pb.Value_NullValue, *pb.Value_BooleanValue,
		*pb.Value_IntegerValue, *pb.Value_DoubleValue:
		return valueSize(v), nil
	case *pb.Value_TimestampValue:
		t := x.TimestampValue
		if err := t.CheckValid(); err != nil {
			return 0, invalid("Invalid timestamp: %v", err)
		}
		if t.GetNanos()%1000 != 0 {
			x.TimestampValue = &timestamppb.Timestamp{Seconds: t.GetSeconds(), Nanos: t.GetNanos() / 1000 * 1000}
		}
		return valueSize(v), nil
	case *pb.Value_GeoPointValue:
		lat, lng := x.GeoPointValue.GetLatitude(), x.GeoPointValue.GetLongitude()
		// The negated comparisons also reject NaN.
		if !(math.Abs(lat) <= 90) || !(math.Abs(lng) <= 180) {
			return 0, invalid("Invalid geo point: latitude must be in [-90, 90] and longitude in [-180, 180].")
		}
		return valueSize(v), nil
	case *pb.Value_ArrayValue:
		if inArray {
			return 0, invalid("Cannot convert an array value in an array value.")
		}
		size := 0
		for _, e := range x.ArrayValue.GetValues() {
			n, err := checkValue(e, depth+1, true)
			if err != nil {
				return 0, err
			}
			size += n
		}
		return size, nil
	case *pb.Value_MapValue:
		return checkFields(x.MapValue.GetFields(), depth+1)
	}
	return 0, invalid("Value has no supported type.")
}
