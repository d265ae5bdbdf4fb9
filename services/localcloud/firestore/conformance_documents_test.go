package firestore_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	gc "cloud.google.com/go/firestore"
	"google.golang.org/api/iterator"
	"google.golang.org/genproto/googleapis/type/latlng"
	"google.golang.org/grpc/codes"
)

var documentBehaviours = []behaviour{
	{name: "create/a new document can be read back", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/a").Create(ctxOf(t), fields{"x": 1, "s": "text"})
		must(t, err)
		wantFields(t, c, "k/a", fields{"x": int64(1), "s": "text"})
	}},
	{name: "create/an existing document returns AlreadyExists and is not changed", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1})
		_, err := c.Doc("k/a").Create(ctxOf(t), fields{"x": 2})
		wantCode(t, err, codes.AlreadyExists)
		wantFields(t, c, "k/a", fields{"x": int64(1)})
	}},
	{name: "create/a document without fields", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/a").Create(ctxOf(t), fields{})
		must(t, err)
		wantFields(t, c, "k/a", nil)
	}},
	{name: "create/add generates an ID of 20 characters", run: func(t *testing.T, c *gc.Client) {
		ref, _, err := c.Collection("k").Add(ctxOf(t), fields{"x": 1})
		must(t, err)
		if len(ref.ID) != 20 {
			t.Errorf("the generated ID is %q, want 20 characters", ref.ID)
		}
		wantFields(t, c, "k/"+ref.ID, fields{"x": int64(1)})
	}},
	{name: "get/a missing document returns NotFound", run: func(t *testing.T, c *gc.Client) {
		wantMissing(t, c, "k/none")
	}},
	{name: "get/a missing document below an existing one returns NotFound", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1})
		wantMissing(t, c, "k/a/s/b")
	}},
	{name: "get/create and update time are equal after creation", run: func(t *testing.T, c *gc.Client) {
		r := set(t, c, "k/a", fields{"x": 1})
		d := get(t, c, "k/a")
		wantEqual(t, d.CreateTime, d.UpdateTime)
		wantEqual(t, d.UpdateTime, r.UpdateTime)
	}},
	{name: "get/the read time is not before the update time", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1})
		if d := get(t, c, "k/a"); d.ReadTime.Before(d.UpdateTime) {
			t.Errorf("the read time %v is before the update time %v", d.ReadTime, d.UpdateTime)
		}
	}},
	{name: "get/many documents in the requested order, including missing ones", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, map[string]fields{"a": {"x": 1}, "b": {"x": 2}})
		docs, err := c.GetAll(ctxOf(t), []*gc.DocumentRef{c.Doc("k/b"), c.Doc("k/none"), c.Doc("k/a")})
		must(t, err)
		wantEqual(t, []any{docs[0].Data()["x"], docs[1].Exists(), docs[2].Data()["x"]}, []any{int64(2), false, int64(1)})
	}},
	{name: "get/a document twice in one call", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1})
		docs, err := c.GetAll(ctxOf(t), []*gc.DocumentRef{c.Doc("k/a"), c.Doc("k/a")})
		must(t, err)
		wantEqual(t, []any{docs[0].Data()["x"], docs[1].Data()["x"]}, []any{int64(1), int64(1)})
	}},
	{name: "set/replaces the whole document", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1, "y": 2})
		set(t, c, "k/a", fields{"x": 3})
		wantFields(t, c, "k/a", fields{"x": int64(3)})
	}},
	{name: "set/keeps the create time and advances the update time", run: func(t *testing.T, c *gc.Client) {
		first := set(t, c, "k/a", fields{"x": 1})
		second := set(t, c, "k/a", fields{"x": 2})
		d := get(t, c, "k/a")
		wantEqual(t, d.CreateTime, first.UpdateTime)
		wantEqual(t, d.UpdateTime, second.UpdateTime)
		if !second.UpdateTime.After(first.UpdateTime) {
			t.Errorf("the second update time %v is not after the first one, %v", second.UpdateTime, first.UpdateTime)
		}
	}},
	{name: "set/without a change keeps the update time", run: func(t *testing.T, c *gc.Client) {
		first := set(t, c, "k/a", fields{"x": 1})
		second := set(t, c, "k/a", fields{"x": 1})
		wantEqual(t, second.UpdateTime, first.UpdateTime)
	}},
	{name: "set/merge keeps the other fields", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1, "m": fields{"p": 1, "q": 2}})
		set(t, c, "k/a", fields{"m": fields{"q": 3}}, gc.MergeAll)
		wantFields(t, c, "k/a", fields{"x": int64(1), "m": fields{"p": int64(1), "q": int64(3)}})
	}},
	{name: "set/merge creates a missing document", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1}, gc.MergeAll)
		wantFields(t, c, "k/a", fields{"x": int64(1)})
	}},
	{name: "set/merge of listed paths keeps the others", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1, "y": 1})
		set(t, c, "k/a", fields{"x": 2, "m": fields{"p": 5}}, gc.Merge(gc.FieldPath{"m", "p"}, gc.FieldPath{"x"}))
		wantFields(t, c, "k/a", fields{"x": int64(2), "y": int64(1), "m": fields{"p": int64(5)}})
	}},
	{name: "set/merge with a delete marker removes the field", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1, "y": 1})
		set(t, c, "k/a", fields{"x": gc.Delete}, gc.MergeAll)
		wantFields(t, c, "k/a", fields{"y": int64(1)})
	}},
	{name: "set/a struct uses its tags", run: func(t *testing.T, c *gc.Client) {
		type link struct {
			Slug  string `firestore:"slug"`
			Empty string `firestore:"empty,omitempty"`
		}
		set(t, c, "k/a", link{Slug: "s"})
		wantFields(t, c, "k/a", fields{"slug": "s"})
		var back link
		must(t, get(t, c, "k/a").DataTo(&back))
		wantEqual(t, back, link{Slug: "s"})
	}},
	{name: "update/a missing document returns NotFound", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/none").Update(ctxOf(t), []gc.Update{{Path: "x", Value: 1}})
		wantCode(t, err, codes.NotFound)
		wantMissing(t, c, "k/none")
	}},
	{name: "update/one field keeps the others", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1, "y": 1})
		_, err := c.Doc("k/a").Update(ctxOf(t), []gc.Update{{Path: "x", Value: 2}})
		must(t, err)
		wantFields(t, c, "k/a", fields{"x": int64(2), "y": int64(1)})
	}},
	{name: "update/a nested path changes only that leaf", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"m": fields{"p": 1, "q": fields{"r": 1, "s": 2}}})
		_, err := c.Doc("k/a").Update(ctxOf(t), []gc.Update{{Path: "m.q.r", Value: 9}})
		must(t, err)
		wantFields(t, c, "k/a", fields{"m": fields{"p": int64(1), "q": fields{"r": int64(9), "s": int64(2)}}})
	}},
	{name: "update/a map value replaces the whole map", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"m": fields{"p": 1, "q": 2}})
		_, err := c.Doc("k/a").Update(ctxOf(t), []gc.Update{{Path: "m", Value: fields{"z": 1}}})
		must(t, err)
		wantFields(t, c, "k/a", fields{"m": fields{"z": int64(1)}})
	}},
	{name: "update/a path through a value that is not a map replaces the value", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"m": 7})
		_, err := c.Doc("k/a").Update(ctxOf(t), []gc.Update{{Path: "m.p", Value: 1}})
		must(t, err)
		wantFields(t, c, "k/a", fields{"m": fields{"p": int64(1)}})
	}},
	{name: "update/a field is deleted", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1, "m": fields{"p": 1, "q": 2}})
		_, err := c.Doc("k/a").Update(ctxOf(t), []gc.Update{{Path: "x", Value: gc.Delete}, {Path: "m.p", Value: gc.Delete}})
		must(t, err)
		wantFields(t, c, "k/a", fields{"m": fields{"q": int64(2)}})
	}},
	{name: "update/deleting a missing field changes nothing", run: func(t *testing.T, c *gc.Client) {
		first := set(t, c, "k/a", fields{"x": 1})
		second, err := c.Doc("k/a").Update(ctxOf(t), []gc.Update{{Path: "none.deep", Value: gc.Delete}})
		must(t, err)
		wantEqual(t, second.UpdateTime, first.UpdateTime)
	}},
	{name: "update/field names with dots and quotes are single path segments", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1})
		_, err := c.Doc("k/a").Update(ctxOf(t), []gc.Update{{FieldPath: gc.FieldPath{"a.b`c\\d"}, Value: 1}})
		must(t, err)
		wantFields(t, c, "k/a", fields{"x": int64(1), "a.b`c\\d": int64(1)})
	}},
	{name: "precondition/an update with the current update time succeeds", run: func(t *testing.T, c *gc.Client) {
		r := set(t, c, "k/a", fields{"x": 1})
		_, err := c.Doc("k/a").Update(ctxOf(t), []gc.Update{{Path: "x", Value: 2}}, gc.LastUpdateTime(r.UpdateTime))
		must(t, err)
		wantFields(t, c, "k/a", fields{"x": int64(2)})
	}},
	{name: "precondition/an update with an old update time returns FailedPrecondition", run: func(t *testing.T, c *gc.Client) {
		r := set(t, c, "k/a", fields{"x": 1})
		set(t, c, "k/a", fields{"x": 2})
		_, err := c.Doc("k/a").Update(ctxOf(t), []gc.Update{{Path: "x", Value: 3}}, gc.LastUpdateTime(r.UpdateTime))
		wantCode(t, err, codes.FailedPrecondition)
		wantFields(t, c, "k/a", fields{"x": int64(2)})
	}},
	{name: "precondition/an update time for a missing document returns FailedPrecondition", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/none").Update(ctxOf(t), []gc.Update{{Path: "x", Value: 3}}, gc.LastUpdateTime(time.Unix(1_700_000_000, 0)))
		wantCode(t, err, codes.FailedPrecondition)
	}},
	{name: "precondition/the update time is still valid after an update without a change", run: func(t *testing.T, c *gc.Client) {
		r := set(t, c, "k/a", fields{"x": 1})
		set(t, c, "k/a", fields{"x": 1})
		_, err := c.Doc("k/a").Update(ctxOf(t), []gc.Update{{Path: "x", Value: 2}}, gc.LastUpdateTime(r.UpdateTime))
		must(t, err)
	}},
	{name: "precondition/a delete with an old update time returns FailedPrecondition", run: func(t *testing.T, c *gc.Client) {
		r := set(t, c, "k/a", fields{"x": 1})
		set(t, c, "k/a", fields{"x": 2})
		_, err := c.Doc("k/a").Delete(ctxOf(t), gc.LastUpdateTime(r.UpdateTime))
		wantCode(t, err, codes.FailedPrecondition)
		wantFields(t, c, "k/a", fields{"x": int64(2)})
	}},
	{name: "delete/removes the document", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1})
		_, err := c.Doc("k/a").Delete(ctxOf(t))
		must(t, err)
		wantMissing(t, c, "k/a")
	}},
	{name: "delete/a missing document succeeds", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/none").Delete(ctxOf(t))
		must(t, err)
	}},
	{name: "delete/a missing document that must exist returns NotFound", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/none").Delete(ctxOf(t), gc.Exists)
		wantCode(t, err, codes.NotFound)
	}},
	{name: "delete/keeps documents in subcollections", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1})
		set(t, c, "k/a/s/b", fields{"x": 2})
		_, err := c.Doc("k/a").Delete(ctxOf(t))
		must(t, err)
		wantFields(t, c, "k/a/s/b", fields{"x": int64(2)})
	}},
	{name: "delete/a recreated document has a new create time", run: func(t *testing.T, c *gc.Client) {
		first := set(t, c, "k/a", fields{"x": 1})
		_, err := c.Doc("k/a").Delete(ctxOf(t))
		must(t, err)
		set(t, c, "k/a", fields{"x": 1})
		if d := get(t, c, "k/a"); !d.CreateTime.After(first.UpdateTime) {
			t.Errorf("the create time %v is not after that of the first document, %v", d.CreateTime, first.UpdateTime)
		}
	}},
	{name: "values/every type is returned unchanged", run: func(t *testing.T, c *gc.Client) {
		want := fields{
			"null": nil, "true": true, "int": int64(math.MaxInt64), "min": int64(math.MinInt64), "double": 1.5,
			"string": "ü😀\x00", "bytes": []byte{0, 255}, "time": time.Date(2024, 2, 29, 1, 2, 3, 456000, time.UTC),
			"array": []any{int64(1), "a", nil, fields{"x": int64(1)}}, "map": fields{"": nil},
			"inf": math.Inf(-1), "empty array": []any{}, "empty map": fields{},
		}
		delete(want["map"].(fields), "")
		want["map"] = fields{"deep": fields{"er": int64(1)}}
		set(t, c, "k/a", want)
		wantFields(t, c, "k/a", want)
	}},
	{name: "values/references and geo points are returned unchanged", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"ref": c.Doc("k/b/s/c"), "geo": &latlng.LatLng{Latitude: 1.5, Longitude: -180}})
		d := get(t, c, "k/a").Data()
		wantEqual(t, d["ref"].(*gc.DocumentRef).Path, c.Doc("k/b/s/c").Path)
		wantEqual(t, d["geo"].(*latlng.LatLng).GetLongitude(), -180.0)
	}},
	{name: "values/NaN is returned as NaN", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": math.NaN()})
		wantFields(t, c, "k/a", fields{"x": math.NaN()})
	}},
	{name: "values/vectors are returned unchanged", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"v": gc.Vector64{1, 2.5}})
		wantFields(t, c, "k/a", fields{"v": gc.Vector64{1, 2.5}})
	}},
	{name: "values/times are truncated to microseconds", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": time.Unix(1, 1_999).UTC()})
		wantFields(t, c, "k/a", fields{"x": time.Unix(1, 1_000).UTC()})
	}},
	{name: "values/times before 1970 are kept", run: func(t *testing.T, c *gc.Client) {
		want := time.Date(1815, 12, 10, 0, 0, 0, 5000, time.UTC)
		set(t, c, "k/a", fields{"x": want})
		wantFields(t, c, "k/a", fields{"x": want})
	}},
	{name: "listing/collections at the root", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "b/1", fields{})
		set(t, c, "a/1", fields{})
		set(t, c, "a/2/deep/1", fields{})
		wantEqual(t, collections(t, c.Collections(ctxOf(t))), "a b")
	}},
	{name: "listing/subcollections of a document, even a missing one", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "a/1/x/1", fields{})
		set(t, c, "a/1/y/1/z/1", fields{})
		wantEqual(t, collections(t, c.Doc("a/1").Collections(ctxOf(t))), "x y")
	}},
	{name: "listing/an emptied collection is not listed", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "a/1", fields{})
		set(t, c, "b/1", fields{})
		_, err := c.Doc("a/1").Delete(ctxOf(t))
		must(t, err)
		wantEqual(t, collections(t, c.Collections(ctxOf(t))), "b")
	}},
	{name: "listing/documents include missing ones with subcollections", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/b", fields{})
		set(t, c, "k/a/s/1", fields{})
		set(t, c, "k/c/s/1/t/1", fields{})
		refs, err := c.Collection("k").DocumentRefs(ctxOf(t)).GetAll()
		must(t, err)
		var ids []string
		for _, r := range refs {
			ids = append(ids, r.ID)
		}
		wantEqual(t, strings.Join(ids, " "), "a b c")
	}},
}

func collections(t *testing.T, it *gc.CollectionIterator) string {
	t.Helper()
	var ids []string
	for {
		c, err := it.Next()
		if errors.Is(err, iterator.Done) {
			return strings.Join(ids, " ")
		}
		must(t, err)
		ids = append(ids, c.ID)
	}
}

var transformBehaviours = []behaviour{
	{name: "transform/the server time has millisecond precision", run: func(t *testing.T, c *gc.Client) {
		r := set(t, c, "k/a", fields{"at": gc.ServerTimestamp, "m": fields{"at": gc.ServerTimestamp}})
		d := get(t, c, "k/a").Data()
		wantServerTime(t, d["at"], r)
		wantEqual(t, d["m"].(fields)["at"], d["at"])
	}},
	{name: "transform/the server time from a struct tag", run: func(t *testing.T, c *gc.Client) {
		type doc struct {
			At time.Time `firestore:"at,serverTimestamp"`
		}
		r := set(t, c, "k/a", doc{})
		wantServerTime(t, get(t, c, "k/a").Data()["at"], r)
	}},
	{name: "transform/increment adds", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": 5})
		update(t, c, "n", gc.Increment(3))
		wantFields(t, c, "k/a", fields{"n": int64(8)})
	}},
	{name: "transform/increment of a double is a double", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": 5})
		update(t, c, "n", gc.Increment(0.5))
		wantFields(t, c, "k/a", fields{"n": 5.5})
	}},
	{name: "transform/increment of a missing field sets it", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{})
		update(t, c, "n", gc.Increment(3))
		wantFields(t, c, "k/a", fields{"n": int64(3)})
	}},
	{name: "transform/increment replaces a value that is not a number", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": "text"})
		update(t, c, "n", gc.Increment(3))
		wantFields(t, c, "k/a", fields{"n": int64(3)})
	}},
	{name: "transform/increment saturates at the greatest integer", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": int64(math.MaxInt64 - 1)})
		update(t, c, "n", gc.Increment(3))
		wantFields(t, c, "k/a", fields{"n": int64(math.MaxInt64)})
	}},
	{name: "transform/increment saturates at the least integer", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": int64(math.MinInt64 + 1)})
		update(t, c, "n", gc.Increment(-3))
		wantFields(t, c, "k/a", fields{"n": int64(math.MinInt64)})
	}},
	{name: "transform/increment in a merge creates the document", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"m": fields{"n": gc.Increment(2)}}, gc.MergeAll)
		set(t, c, "k/a", fields{"m": fields{"n": gc.Increment(2)}}, gc.MergeAll)
		wantFields(t, c, "k/a", fields{"m": fields{"n": int64(4)}})
	}},
	{name: "transform/an update that increments a field of a missing document returns NotFound", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/none").Update(ctxOf(t), []gc.Update{{Path: "n", Value: gc.Increment(1)}})
		wantCode(t, err, codes.NotFound)
	}},
	{name: "transform/maximum keeps the greater number", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": 5, "m": 5})
		update(t, c, "n", gc.FieldTransformMaximum(7))
		update(t, c, "m", gc.FieldTransformMaximum(3))
		wantFields(t, c, "k/a", fields{"n": int64(7), "m": int64(5)})
	}},
	{name: "transform/minimum keeps the lesser number", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": 5, "m": 5})
		update(t, c, "n", gc.FieldTransformMinimum(7))
		update(t, c, "m", gc.FieldTransformMinimum(3.5))
		wantFields(t, c, "k/a", fields{"n": int64(5), "m": 3.5})
	}},
	{name: "transform/maximum replaces a value that is not a number", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": "text"})
		update(t, c, "n", gc.FieldTransformMaximum(-1))
		wantFields(t, c, "k/a", fields{"n": int64(-1)})
	}},
	{name: "transform/array union appends missing elements in order", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"t": []any{"a", 1}})
		update(t, c, "t", gc.ArrayUnion("b", 1.0, "a", "b", "c"))
		wantFields(t, c, "k/a", fields{"t": []any{"a", int64(1), "b", "c"}})
	}},
	{name: "transform/array union replaces a value that is not an array", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"t": 5})
		update(t, c, "t", gc.ArrayUnion("b"))
		wantFields(t, c, "k/a", fields{"t": []any{"b"}})
	}},
	{name: "transform/array remove removes all equal elements", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"t": []any{"a", 1, "a", 1.0, "b"}})
		update(t, c, "t", gc.ArrayRemove("a", 1))
		wantFields(t, c, "k/a", fields{"t": []any{"b"}})
	}},
	{name: "transform/array remove from a missing field sets an empty array", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{})
		update(t, c, "t", gc.ArrayRemove("a"))
		wantFields(t, c, "k/a", fields{"t": []any{}})
	}},
	{name: "transform/a transform and an update in one write", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": 1, "x": "old"})
		_, err := c.Doc("k/a").Update(ctxOf(t), []gc.Update{{Path: "x", Value: "new"}, {Path: "n", Value: gc.Increment(1)}})
		must(t, err)
		wantFields(t, c, "k/a", fields{"n": int64(2), "x": "new"})
	}},
}

func wantServerTime(t *testing.T, got any, r *gc.WriteResult) {
	t.Helper()
	at := got.(time.Time)
	if before := r.UpdateTime.Sub(at); before < 0 || before > time.Minute || !at.Equal(at.Truncate(time.Millisecond)) {
		t.Errorf("the server time is %v, want whole milliseconds and at most a minute before the update time %v", at, r.UpdateTime)
	}
}

// update changes one field of k/a.
func update(t *testing.T, c *gc.Client, path string, value any) {
	t.Helper()
	_, err := c.Doc("k/a").Update(ctxOf(t), []gc.Update{{Path: path, Value: value}})
	must(t, err)
}

var batchBehaviours = []behaviour{
	{name: "batch/all writes have the same time", run: func(t *testing.T, c *gc.Client) {
		results, err := c.Batch().Set(c.Doc("k/a"), fields{"x": 1}).Create(c.Doc("k/b"), fields{"x": 2}).Commit(ctxOf(t)) //nolint:staticcheck // the atomic batch
		must(t, err)
		wantEqual(t, results[0].UpdateTime, results[1].UpdateTime)
		wantEqual(t, get(t, c, "k/a").CreateTime, get(t, c, "k/b").CreateTime)
	}},
	{name: "batch/one failing write rejects the whole batch", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/b", fields{"x": 1})
		_, err := c.Batch().Set(c.Doc("k/a"), fields{"x": 1}).Create(c.Doc("k/b"), fields{"x": 2}).Commit(ctxOf(t)) //nolint:staticcheck // the atomic batch
		wantCode(t, err, codes.AlreadyExists)
		wantMissing(t, c, "k/a")
	}},
	{name: "batch/an update to a missing document rejects the whole batch", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Batch().Set(c.Doc("k/a"), fields{"x": 1}).Update(c.Doc("k/b"), []gc.Update{{Path: "x", Value: 1}}).Commit(ctxOf(t)) //nolint:staticcheck // the atomic batch
		wantCode(t, err, codes.NotFound)
		wantMissing(t, c, "k/a")
	}},
	{name: "batch/several writes to one document", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Batch().Set(c.Doc("k/a"), fields{"n": 1}).Update(c.Doc("k/a"), []gc.Update{{Path: "n", Value: gc.Increment(1)}}).Commit(ctxOf(t)) //nolint:staticcheck // the atomic batch
		must(t, err)
		wantFields(t, c, "k/a", fields{"n": int64(2)})
	}},
	{name: "batch/a create after a write to the same document returns InvalidArgument", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Batch().Set(c.Doc("k/a"), fields{"n": 1}).Create(c.Doc("k/a"), fields{"n": 1}).Commit(ctxOf(t)) //nolint:staticcheck // the atomic batch
		wantCode(t, err, codes.InvalidArgument)
	}},
	{name: "batch/501 writes are accepted", run: func(t *testing.T, c *gc.Client) {
		b := c.Batch() //nolint:staticcheck // the atomic batch
		for i := range 501 {
			b.Set(c.Collection("k").NewDoc(), fields{"i": i})
		}
		_, err := b.Commit(ctxOf(t))
		must(t, err)
	}},
	{name: "bulk writer/each write succeeds or fails independently", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/b", fields{"x": 1})
		w := c.BulkWriter(ctxOf(t))
		good, err := w.Create(c.Doc("k/a"), fields{"x": 1})
		must(t, err)
		bad, err := w.Create(c.Doc("k/b"), fields{"x": 2})
		must(t, err)
		w.End()
		_, err = good.Results()
		must(t, err)
		_, err = bad.Results()
		wantCode(t, err, codes.AlreadyExists)
		wantFields(t, c, "k/a", fields{"x": int64(1)})
		wantFields(t, c, "k/b", fields{"x": int64(1)})
	}},
	{name: "bulk writer/deletes and updates", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, map[string]fields{"a": {"x": 1}, "b": {"x": 1}})
		w := c.BulkWriter(ctxOf(t))
		_, err := w.Delete(c.Doc("k/a"))
		must(t, err)
		_, err = w.Update(c.Doc("k/b"), []gc.Update{{Path: "x", Value: gc.Increment(1)}})
		must(t, err)
		w.End()
		wantMissing(t, c, "k/a")
		wantFields(t, c, "k/b", fields{"x": int64(2)})
	}},
}
