package firestore

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

// These are the kinds of value in production's sort order.
const (
	kindNull = iota
	kindBool
	kindNumber
	kindTimestamp
	kindString
	kindBytes
	kindReference
	kindGeoPoint
	kindArray
	kindVector
	kindMap
	kindUnknown
)

func kindOf(v *pb.Value) int {
	switch x := v.GetValueType().(type) {
	case nil, *pb.Value_NullValue:
		return kindNull
	case *pb.Value_BooleanValue:
		return kindBool
	case *pb.Value_IntegerValue, *pb.Value_DoubleValue:
		return kindNumber
	case *pb.Value_TimestampValue:
		return kindTimestamp
	case *pb.Value_StringValue:
		return kindString
	case *pb.Value_BytesValue:
		return kindBytes
	case *pb.Value_ReferenceValue:
		return kindReference
	case *pb.Value_GeoPointValue:
		return kindGeoPoint
	case *pb.Value_ArrayValue:
		return kindArray
	case *pb.Value_MapValue:
		if x.MapValue.GetFields()["__type__"].GetStringValue() == "__vector__" {
			return kindVector
		}
		return kindMap
	}
	return kindUnknown
}

func isNaN(v *pb.Value) bool {
	d, ok := v.GetValueType().(*pb.Value_DoubleValue)
	return ok && math.IsNaN(d.DoubleValue)
}

// compareValues compares two values in production's total order. Numbers compare by their exact
// value: 2^53+1 is greater than the double 2^53, and 1 equals 1.0.
func compareValues(a, b *pb.Value) int {
	ka, kb := kindOf(a), kindOf(b)
	if ka != kb {
		return cmp.Compare(ka, kb)
	}
	switch ka {
	case kindBool:
		return cmp.Compare(boolRank(a), boolRank(b))
	case kindNumber:
		return compareNumbers(a, b)
	case kindTimestamp:
		return a.GetTimestampValue().AsTime().Compare(b.GetTimestampValue().AsTime())
	case kindString:
		return strings.Compare(a.GetStringValue(), b.GetStringValue())
	case kindBytes:
		return bytes.Compare(a.GetBytesValue(), b.GetBytesValue())
	case kindReference:
		return compareNames(a.GetReferenceValue(), b.GetReferenceValue())
	case kindGeoPoint:
		x, y := a.GetGeoPointValue(), b.GetGeoPointValue()
		return cmp.Or(cmp.Compare(x.GetLatitude(), y.GetLatitude()), cmp.Compare(x.GetLongitude(), y.GetLongitude()))
	case kindArray:
		return slices.CompareFunc(a.GetArrayValue().GetValues(), b.GetArrayValue().GetValues(), compareValues)
	case kindVector:
		x, y := vectorElements(a), vectorElements(b)
		return cmp.Or(cmp.Compare(len(x), len(y)), slices.CompareFunc(x, y, compareValues))
	case kindMap:
		return compareMaps(a.GetMapValue().GetFields(), b.GetMapValue().GetFields())
	}
	return 0
}

func boolRank(v *pb.Value) int {
	if v.GetBooleanValue() {
		return 1
	}
	return 0
}

func vectorElements(v *pb.Value) []*pb.Value {
	return v.GetMapValue().GetFields()["value"].GetArrayValue().GetValues()
}

func compareMaps(x, y map[string]*pb.Value) int {
	xk, yk := sortedKeys(x), sortedKeys(y)
	for i := range min(len(xk), len(yk)) {
		if c := cmp.Or(strings.Compare(xk[i], yk[i]), compareValues(x[xk[i]], y[yk[i]])); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(xk), len(yk))
}

func sortedKeys(m map[string]*pb.Value) []string { return slices.Sorted(maps.Keys(m)) }

func compareNumbers(a, b *pb.Value) int {
	ai, aInt := a.GetValueType().(*pb.Value_IntegerValue)
	bi, bInt := b.GetValueType().(*pb.Value_IntegerValue)
	// An integer is never converted to a double, because adjacent integers above 2^53 would become
	// equal.
	switch {
	case aInt && bInt:
		return cmp.Compare(ai.IntegerValue, bi.IntegerValue)
	case aInt:
		return compareIntDouble(ai.IntegerValue, b.GetDoubleValue())
	case bInt:
		return -compareIntDouble(bi.IntegerValue, a.GetDoubleValue())
	}
	return cmp.Compare(a.GetDoubleValue(), b.GetDoubleValue()) // sorts NaN first and treats -0 and 0 as equal
}

func compareIntDouble(i int64, d float64) int {
	switch {
	case math.IsNaN(d), d < -0x1p63:
		return 1
	case d >= 0x1p63:
		return -1
	}
	t := int64(d)
	return cmp.Or(cmp.Compare(i, t), -cmp.Compare(d-float64(t), 0))
}

// compareNames compares resource names segment by segment. It cannot compare whole strings because
// '!' sorts before '/'.
func compareNames(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "/"), strings.Split(b, "/"), compareSegments)
}

func compareSegments(a, b string) int {
	an, aNumeric := numericID(a)
	bn, bNumeric := numericID(b)
	switch {
	case aNumeric && bNumeric:
		return cmp.Compare(an, bn)
	case aNumeric:
		return -1
	case bNumeric:
		return 1
	}
	return strings.Compare(a, b)
}

// numericID recognises the IDs of data imported from Datastore, such as __id7__. They sort before
// all other IDs, by number.
func numericID(s string) (int64, bool) {
	if len(s) > 6 && strings.HasPrefix(s, "__id") && strings.HasSuffix(s, "__") {
		n, err := strconv.ParseInt(s[4:len(s)-2], 10, 64)
		return n, err == nil && strconv.FormatInt(n, 10) == s[4:len(s)-2]
	}
	return 0, false
}

func mapValue(m map[string]*pb.Value) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_MapValue{MapValue: &pb.MapValue{Fields: m}}}
}

func intValue(i int64) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_IntegerValue{IntegerValue: i}}
}

func doubleValue(f float64) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_DoubleValue{DoubleValue: f}}
}

var nanValue = doubleValue(math.NaN())

func nullValue() *pb.Value { return &pb.Value{ValueType: &pb.Value_NullValue{}} }

func arrayValue(a []*pb.Value) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_ArrayValue{ArrayValue: &pb.ArrayValue{Values: a}}}
}

func referenceValue(name string) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_ReferenceValue{ReferenceValue: name}}
}
