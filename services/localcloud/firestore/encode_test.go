package firestore

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/genproto/googleapis/type/latlng"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"
)

// anyValue generates values that are similar, so many encodings differ only in their last bytes.
func anyValue(t *rapid.T, depth int) *pb.Value {
	kinds := 9
	if depth < 3 {
		kinds = 12
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nullValue()
	case 1:
		return &pb.Value{ValueType: &pb.Value_BooleanValue{BooleanValue: rapid.Bool().Draw(t, "bool")}}
	case 2:
		return intValue(rapid.OneOf(rapid.Int64(), rapid.Int64Range(-2, 2), rapid.Int64Range(1<<53-2, 1<<53+2), rapid.Int64Range(math.MaxInt64-1025, math.MaxInt64)).Draw(t, "int"))
	case 3:
		return doubleValue(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1 << 53, 0x1p63, -0x1p63, 0.5})).Draw(t, "double"))
	case 4:
		return &pb.Value{ValueType: &pb.Value_TimestampValue{TimestampValue: &timestamppb.Timestamp{
			Seconds: rapid.Int64Range(-2, 2).Draw(t, "seconds"), Nanos: rapid.Int32Range(0, 3).Draw(t, "nanos") * 1000,
		}}}
	case 5:
		return &pb.Value{ValueType: &pb.Value_StringValue{StringValue: rapid.StringOf(rapid.SampledFrom([]rune("\x00\x01aé\uffff😀"))).Draw(t, "string")}}
	case 6:
		return &pb.Value{ValueType: &pb.Value_BytesValue{BytesValue: rapid.SliceOf(rapid.SampledFrom([]byte{0, 1, 2, 0xfe, 0xff})).Draw(t, "bytes")}}
	case 7:
		segments := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a!", "b", "__id7__", "__id-7__", "__id70__"}), 1, 4).Draw(t, "path")
		return referenceValue("projects/p/databases/d/documents/" + strings.Join(segments, "/"))
	case 8:
		return &pb.Value{ValueType: &pb.Value_GeoPointValue{GeoPointValue: &latlng.LatLng{
			Latitude: rapid.Float64Range(-1, 1).Draw(t, "lat"), Longitude: rapid.Float64Range(-1, 1).Draw(t, "lng"),
		}}}
	case 9:
		return arrayValue(someValues(t, depth))
	case 10:
		return mapValue(map[string]*pb.Value{"__type__": {ValueType: &pb.Value_StringValue{StringValue: "__vector__"}}, "value": arrayValue([]*pb.Value{doubleValue(rapid.Float64().Draw(t, "x"))})})
	}
	m := map[string]*pb.Value{}
	for _, v := range someValues(t, depth) {
		m[rapid.SampledFrom([]string{"a", "aa", "b", "a\x00"}).Draw(t, "key")] = v
	}
	return mapValue(m)
}

func someValues(t *rapid.T, depth int) (vs []*pb.Value) {
	for range rapid.IntRange(0, 3).Draw(t, "length") {
		vs = append(vs, anyValue(t, depth+1))
	}
	return vs
}

func TestEncodingOrdersLikeValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyValue(t, 0), anyValue(t, 0)
		x, y := appendValue(nil, a), appendValue(nil, b)
		if got, want := bytes.Compare(x, y), compareValues(a, b); cmp.Compare(got, 0) != cmp.Compare(want, 0) {
			t.Fatalf("%v and %v: the encodings compare as %d, want %d", a, b, got, want)
		}
		if !bytes.Equal(x, y) && (bytes.HasPrefix(x, y) || bytes.HasPrefix(y, x)) {
			t.Fatalf("%v and %v: one encoding is a prefix of the other, want no prefix", a, b)
		}
		invert(x)
		invert(y)
		if got, want := bytes.Compare(y, x), compareValues(a, b); cmp.Compare(got, 0) != cmp.Compare(want, 0) {
			t.Fatalf("%v and %v: the inverted encodings compare as %d, want %d", a, b, got, want)
		}
	})
}

func TestDocumentKeyIsReversibleAndOrdersLikeNames(t *testing.T) {
	t.Parallel()
	id := rapid.OneOf(rapid.SampledFrom([]string{"a", "a!", "b", "__id7__", "__id-7__", "__id007__", "a\x00", "é"}), rapid.StringN(1, 5, -1))
	rapid.Check(t, func(t *rapid.T) {
		parent := rapid.SliceOfN(id, 1, 1).Draw(t, "collection")
		a, b := append(slices.Clone(parent), id.Draw(t, "a")), append(slices.Clone(parent), id.Draw(t, "b"))
		if got := decodeDocumentKey(documentKey(a)); !slices.Equal(got, a) {
			t.Fatalf("decodeDocumentKey returned %[2]q, want %[1]q", a, got)
		}
		if got, want := bytes.Compare(documentKey(a), documentKey(b)), slices.CompareFunc(a, b, compareSegments); cmp.Compare(got, 0) != cmp.Compare(want, 0) {
			t.Fatalf("%q and %q: the keys compare as %d, want %d", a, b, got, want)
		}
	})
}

func TestParseFieldPath(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a": "a", "a.b": "a|b", "`a.b`.c": "a.b|c", "`a\\`b`": "a`b", "`\\\\`": "\\", "é.😀": "é|😀",
		"": "error", ".a": "error", "a.": "error", "a..b": "error", "`a": "error", "`a`b": "error", "``": "error",
	} {
		got := "error"
		if path, err := parseFieldPath(in); err == nil {
			got = strings.Join(path, "|")
		}
		if got != want {
			t.Errorf("parseFieldPath(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzRunQuery sends queries that no client would send. The server must respond to each of them,
// and an index must not change the result.
func FuzzRunQuery(f *testing.F) {
	for _, q := range []*pb.StructuredQuery{
		{From: []*pb.StructuredQuery_CollectionSelector{{CollectionId: "k"}}},
		{From: []*pb.StructuredQuery_CollectionSelector{{CollectionId: "k", AllDescendants: true}}, OrderBy: []*pb.StructuredQuery_Order{{Field: &pb.StructuredQuery_FieldReference{FieldPath: "n"}, Direction: pb.StructuredQuery_DESCENDING}}},
		{
			From: []*pb.StructuredQuery_CollectionSelector{{CollectionId: "k"}},
			Where: &pb.StructuredQuery_Filter{FilterType: &pb.StructuredQuery_Filter_FieldFilter{FieldFilter: &pb.StructuredQuery_FieldFilter{
				Field: &pb.StructuredQuery_FieldReference{FieldPath: "n"}, Op: opIn, Value: arrayValue([]*pb.Value{intValue(1), nullValue()}),
			}}},
			StartAt: &pb.Cursor{Values: []*pb.Value{intValue(1)}},
		},
	} {
		b, err := proto.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	plain, indexed := fuzzStore(f), fuzzStore(f)
	IndexEverything(indexed)
	f.Fuzz(func(t *testing.T, b []byte) {
		var sq pb.StructuredQuery
		if proto.Unmarshal(b, &sq) != nil {
			return
		}
		var results [2]string
		for i, s := range []*Server{plain, indexed} {
			q, err := s.compile("projects/p/databases/d/documents", &sq)
			if err != nil {
				return
			}
			sig := newSignature()
			err = s.indexed(q, latest, func(sn *snapshot) error { return s.store.run(sn, q, sig.add) })
			if err != nil {
				t.Fatalf("the query %v failed: %v", &sq, err)
			}
			results[i] = sig.String()
		}
		if results[0] != results[1] {
			t.Fatalf("the query %v returned %q without indexes but %q with indexes", &sq, results[0], results[1])
		}
	})
}

// fuzzStore returns a server with a few documents of every kind. Each call creates the same
// documents.
func fuzzStore(tb testing.TB) *Server {
	tb.Helper()
	s, err := Open(Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	var writes []*pb.Write
	for i, v := range []*pb.Value{nullValue(), intValue(1), doubleValue(1.5), nanValue, arrayValue([]*pb.Value{intValue(1)}), mapValue(map[string]*pb.Value{"n": intValue(1)})} {
		for _, c := range []string{"k/", "x/1/k/"} {
			writes = append(writes, &pb.Write{Operation: &pb.Write_Update{Update: &pb.Document{
				Name: "projects/p/databases/d/documents/" + c + string(rune('a'+i)), Fields: map[string]*pb.Value{"n": v, "m": intValue(int64(i % 2))},
			}}})
		}
	}
	req := &commitRequest{writes: writes}
	if err := s.commit(tb.Context(), req); err != nil {
		tb.Fatal(err)
	}
	// identical times in all stores make the results comparable
	if err := s.writer.administer(func(sn *snapshot) ([]change, error) {
		for _, c := range req.changes {
			d := proto.CloneOf(c.after)
			d.UpdateTime, d.CreateTime = timestamp(1), timestamp(1)
			if err := s.store.put(sn, change{at: 1, name: c.name, before: c.after, after: d}); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}); err != nil {
		tb.Fatal(err)
	}
	return s
}
