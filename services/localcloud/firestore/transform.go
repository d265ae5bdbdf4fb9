package firestore

import (
	"math"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

// applyTransform returns the field's new value and the value to send in the response. Array
// transforms return null in the response.
func applyTransform(old *pb.Value, t *pb.DocumentTransform_FieldTransform, now int64) (stored, reported *pb.Value, err error) {
	isNumber := old != nil && kindOf(old) == kindNumber
	switch x := t.GetTransformType().(type) {
	case *pb.DocumentTransform_FieldTransform_SetToServerValue:
		if x.SetToServerValue != pb.DocumentTransform_FieldTransform_REQUEST_TIME {
			return nil, nil, invalid("Unknown server value.")
		}
		// production truncates to milliseconds
		v := &pb.Value{ValueType: &pb.Value_TimestampValue{TimestampValue: timestamp(now / 1000 * 1000)}}
		return v, v, nil
	case *pb.DocumentTransform_FieldTransform_Increment:
		if kindOf(x.Increment) != kindNumber {
			return nil, nil, invalid("increment requires a number")
		}
		v := x.Increment
		if isNumber {
			v = addNumbers(old, x.Increment)
		}
		return v, v, nil
	case *pb.DocumentTransform_FieldTransform_Maximum:
		if kindOf(x.Maximum) != kindNumber {
			return nil, nil, invalid("maximum requires a number")
		}
		// NaN takes precedence over every number, for both the maximum and the minimum. If both
		// values are equal, the stored one is kept, so 3 does not become 3.0.
		v := x.Maximum
		if isNumber && !isNaN(v) && (isNaN(old) || compareNumbers(old, v) >= 0) {
			v = old
		}
		return v, v, nil
	case *pb.DocumentTransform_FieldTransform_Minimum:
		if kindOf(x.Minimum) != kindNumber {
			return nil, nil, invalid("minimum requires a number")
		}
		v := x.Minimum
		if isNumber && !isNaN(v) && (isNaN(old) || compareNumbers(old, v) <= 0) {
			v = old
		}
		return v, v, nil
	case *pb.DocumentTransform_FieldTransform_AppendMissingElements:
		out := append([]*pb.Value{}, old.GetArrayValue().GetValues()...)
		cutTimes(x.AppendMissingElements)
		for _, e := range x.AppendMissingElements.GetValues() {
			if !containsValue(out, e) {
				out = append(out, e)
			}
		}
		return arrayValue(out), nullValue(), nil
	case *pb.DocumentTransform_FieldTransform_RemoveAllFromArray:
		out := []*pb.Value{}
		cutTimes(x.RemoveAllFromArray)
		for _, e := range old.GetArrayValue().GetValues() {
			if !containsValue(x.RemoveAllFromArray.GetValues(), e) {
				out = append(out, e)
			}
		}
		return arrayValue(out), nullValue(), nil
	}
	return nil, nil, invalid("A field transform needs a type.")
}

// cutTimes truncates timestamps to the stored precision, so that they compare equal to stored
// values. Other errors in them are reported when the document is checked.
func cutTimes(a *pb.ArrayValue) {
	for _, v := range a.GetValues() {
		_, _ = checkValue(v, 0, false)
	}
}

// addNumbers returns an integer if both numbers are integers. It saturates instead of wrapping
// around.
func addNumbers(a, b *pb.Value) *pb.Value {
	x, xInt := a.GetValueType().(*pb.Value_IntegerValue)
	y, yInt := b.GetValueType().(*pb.Value_IntegerValue)
	if !xInt || !yInt {
		return doubleValue(asDouble(a) + asDouble(b))
	}
	i, j := x.IntegerValue, y.IntegerValue
	switch {
	case j > 0 && i > math.MaxInt64-j:
		return intValue(math.MaxInt64)
	case j < 0 && i < math.MinInt64-j:
		return intValue(math.MinInt64)
	}
	return intValue(i + j)
}

func asDouble(v *pb.Value) float64 {
	if i, ok := v.GetValueType().(*pb.Value_IntegerValue); ok {
		return float64(i.IntegerValue)
	}
	return v.GetDoubleValue()
}
