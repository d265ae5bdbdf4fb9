package firestore_test

import (
	"math"
	"strings"
	"testing"
	"time"

	gc "cloud.google.com/go/firestore"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/genproto/googleapis/type/latlng"
	"google.golang.org/grpc/codes"
)

// mixed has one document for each kind of value. The names sort in the order of the values.
var mixed = map[string]fields{
	"a-null": {"v": nil}, "b-false": {"v": false}, "c-true": {"v": true}, "d-nan": {"v": math.NaN()},
	"e-minf": {"v": math.Inf(-1)}, "f-1": {"v": 1}, "g-1.5": {"v": 1.5}, "h-time": {"v": time.Unix(0, 0)},
	"i-empty": {"v": ""}, "j-text": {"v": "text"}, "k-bytes": {"v": []byte("b")},
	"n-geo": {"v": &latlng.LatLng{}}, "o-array": {"v": []any{1}}, "p-vector": {"v": gc.Vector64{1}}, "q-map": {"v": fields{"a": 1}},
	"z-missing": {"other": 1},
}

func numbers() map[string]fields {
	return map[string]fields{
		"a": {"n": 1, "g": "x"}, "b": {"n": 2, "g": "x"}, "c": {"n": 2, "g": "y"}, "d": {"n": 3, "g": "y"}, "e": {"g": "x"},
	}
}

// on returns a test that fills the collection k with documents and runs a query on it.
func on(docs map[string]fields, query func(gc.Query) gc.Query, want string) func(*testing.T, *gc.Client) {
	return func(t *testing.T, c *gc.Client) {
		seed(t, c, docs)
		wantIDs(t, query(c.Collection("k").Query), want)
	}
}

// refused returns a test that a query fails with the code want.
func refused(query func(gc.Query) gc.Query, want codes.Code) func(*testing.T, *gc.Client) {
	return func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		wantQueryCode(t, query(c.Collection("k").Query), want)
	}
}

var queryBehaviours = []behaviour{
	{name: "query/all documents in the order of their IDs", run: on(numbers(), func(q gc.Query) gc.Query { return q }, "a b c d e")},
	{name: "query/IDs are ordered by bytes, not by letters or numbers", run: on(map[string]fields{"10": {}, "2": {}, "B": {}, "a": {}, "é": {}, "~": {}},
		func(q gc.Query) gc.Query { return q }, "10 2 B a ~ é")},
	{name: "query/an empty collection has no results", run: func(t *testing.T, c *gc.Client) { wantIDs(t, c.Collection("none").Query, "") }},
	{name: "query/subcollections are not included", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{})
		set(t, c, "k/a/k/b", fields{})
		wantIDs(t, c.Collection("k").Query, "a")
	}},
	{name: "where/equal", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", "==", 2) }, "b c")},
	{name: "where/equal compares integers and doubles by value", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", "==", 2.0) }, "b c")},
	{name: "where/equal to null finds null, not missing fields", run: on(mixed, func(q gc.Query) gc.Query { return q.Where("v", "==", nil) }, "a-null")},
	{name: "where/equal to NaN finds NaN", run: on(mixed, func(q gc.Query) gc.Query { return q.Where("v", "==", math.NaN()) }, "d-nan")},
	{name: "where/equal to an array compares all elements", run: on(map[string]fields{"a": {"v": []any{1, 2}}, "b": {"v": []any{1}}},
		func(q gc.Query) gc.Query { return q.Where("v", "==", []any{1}) }, "b")},
	{name: "where/equal to a map compares all members", run: on(map[string]fields{"a": {"v": fields{"x": 1, "y": 1}}, "b": {"v": fields{"x": 1}}},
		func(q gc.Query) gc.Query { return q.Where("v", "==", fields{"x": 1}) }, "b")},
	{name: "where/not equal omits null and missing fields", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", "!=", 2) }, "a d")},
	{name: "where/not equal to null finds all other values", run: on(mixed, func(q gc.Query) gc.Query { return q.Where("v", "!=", nil).Limit(3) }, "b-false c-true d-nan")},
	{name: "where/less than", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", "<", 2) }, "a")},
	{name: "where/less or equal", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", "<=", 2) }, "a b c")},
	{name: "where/greater than", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", ">", 2) }, "d")},
	{name: "where/greater or equal", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", ">=", 2) }, "b c d")},
	{name: "where/a range on one field", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", ">", 1).Where("n", "<", 3) }, "b c")},
	{name: "where/greater matches values of the same kind only", run: on(mixed, func(q gc.Query) gc.Query { return q.Where("v", ">", 0) }, "f-1 g-1.5")},
	{name: "where/less matches values of the same kind only", run: on(mixed, func(q gc.Query) gc.Query { return q.Where("v", "<", "u") }, "i-empty j-text")},
	{name: "where/no range contains NaN", run: on(mixed, func(q gc.Query) gc.Query { return q.Where("v", "<=", 1) }, "e-minf f-1")},
	{name: "where/several equalities", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", "==", 2).Where("g", "==", "y") }, "c")},
	{name: "where/an equality and a range", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("g", "==", "x").Where("n", ">", 1) }, "b")},
	{name: "where/ranges on two fields", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", ">=", 2).Where("g", ">", "x") }, "c d")},
	{name: "where/a nested path", run: on(map[string]fields{"a": {"m": fields{"p": 1}}, "b": {"m": fields{"p": 2}}, "c": {"m": 1}},
		func(q gc.Query) gc.Query { return q.Where("m.p", "==", 2) }, "b")},
	{name: "where/a quoted path", run: on(map[string]fields{"a": {"m.p": 1}, "b": {"m": fields{"p": 1}}},
		func(q gc.Query) gc.Query { return q.WherePath(gc.FieldPath{"m.p"}, "==", 1) }, "a")},
	{name: "where/in", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", "in", []int{1, 3}) }, "a d")},
	{name: "where/in returns a document once", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", "in", []any{2, 2.0, 2}) }, "b c")},
	{name: "where/in with an order", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("g", "in", []string{"x", "y"}).OrderBy("n", gc.Desc) }, "d c b a")},
	{name: "where/not in omits missing fields", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", "not-in", []int{1, 3}) }, "b c")},
	{name: "where/array contains", run: on(map[string]fields{"a": {"t": []any{1, "x"}}, "b": {"t": []any{2}}, "c": {"t": "x"}},
		func(q gc.Query) gc.Query { return q.Where("t", "array-contains", "x") }, "a")},
	{name: "where/array contains any", run: on(map[string]fields{"a": {"t": []any{1, "x"}}, "b": {"t": []any{2}}, "c": {"t": []any{3}}},
		func(q gc.Query) gc.Query { return q.Where("t", "array-contains-any", []any{2, "x", 1}) }, "a b")},
	{name: "where/array contains and an equality", run: on(map[string]fields{"a": {"t": []any{1}, "g": 1}, "b": {"t": []any{1}, "g": 2}},
		func(q gc.Query) gc.Query { return q.Where("t", "array-contains", 1).Where("g", "==", 2) }, "b")},
	{name: "where/or", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		or := gc.OrFilter{Filters: []gc.EntityFilter{gc.PropertyFilter{Path: "n", Operator: "==", Value: 1}, gc.PropertyFilter{Path: "g", Operator: "==", Value: "y"}}}
		wantIDs(t, c.Collection("k").WhereEntity(or), "a c d")
	}},
	{name: "where/or within and", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		or := gc.OrFilter{Filters: []gc.EntityFilter{gc.PropertyFilter{Path: "n", Operator: "==", Value: 1}, gc.PropertyFilter{Path: "n", Operator: "==", Value: 2}}}
		and := gc.AndFilter{Filters: []gc.EntityFilter{or, gc.PropertyFilter{Path: "g", Operator: "==", Value: "x"}}}
		wantIDs(t, c.Collection("k").WhereEntity(and), "a b")
	}},
	{name: "where/by document id", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		wantIDs(t, c.Collection("k").Where(gc.DocumentID, "==", c.Doc("k/c")), "c")
	}},
	{name: "where/a range of document ids", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		wantIDs(t, c.Collection("k").Where(gc.DocumentID, ">", c.Doc("k/b")).Where(gc.DocumentID, "<=", c.Doc("k/d")), "c d")
	}},
	{name: "where/in with document ids", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		wantIDs(t, c.Collection("k").Where(gc.DocumentID, "in", []*gc.DocumentRef{c.Doc("k/d"), c.Doc("k/none"), c.Doc("k/a")}), "a d")
	}},
	{name: "where/31 disjunctions return InvalidArgument", run: refused(func(q gc.Query) gc.Query { return q.Where("n", "in", make([]int, 31)) }, codes.InvalidArgument)},
	{name: "where/an empty in returns InvalidArgument", run: refused(func(q gc.Query) gc.Query { return q.Where("n", "in", []int{}) }, codes.InvalidArgument)},
	{name: "where/two not-equals return InvalidArgument", run: refused(func(q gc.Query) gc.Query { return q.Where("n", "!=", 1).Where("g", "!=", "x") }, codes.InvalidArgument)},
	{name: "where/not-in together with in returns InvalidArgument", run: refused(func(q gc.Query) gc.Query { return q.Where("n", "not-in", []int{1}).Where("g", "in", []string{"x"}) }, codes.InvalidArgument)},
	{name: "where/two array-contains return InvalidArgument", run: refused(func(q gc.Query) gc.Query { return q.Where("n", "array-contains", 1).Where("g", "array-contains", 1) }, codes.InvalidArgument)},
	{name: "order/ascending, ties by id", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Asc) }, "a b c d")},
	{name: "order/descending, ties by id descending", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Desc) }, "d c b a")},
	{name: "order/two fields", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("g", gc.Desc).OrderBy("n", gc.Asc) }, "c d a b")},
	{name: "order/values of different kinds", run: on(mixed, func(q gc.Query) gc.Query { return q.OrderBy("v", gc.Asc) },
		"a-null b-false c-true d-nan e-minf f-1 g-1.5 h-time i-empty j-text k-bytes n-geo o-array p-vector q-map")},
	{name: "order/values of different kinds, descending", run: on(mixed, func(q gc.Query) gc.Query { return q.OrderBy("v", gc.Desc).Limit(4) }, "q-map p-vector o-array n-geo")},
	{name: "order/large integers compare exactly with doubles", run: on(map[string]fields{"a": {"v": int64(1<<53) + 1}, "b": {"v": float64(1 << 53)}, "c": {"v": int64(1 << 53)}},
		func(q gc.Query) gc.Query { return q.OrderBy("v", gc.Asc) }, "b c a")},
	{name: "order/strings compare by UTF-8 bytes", run: on(map[string]fields{"a": {"v": "\uffff"}, "b": {"v": "😀"}, "c": {"v": "a"}, "d": {"v": "B"}},
		func(q gc.Query) gc.Query { return q.OrderBy("v", gc.Asc) }, "d c a b")},
	{name: "order/arrays compare element by element, then by length", run: on(map[string]fields{"a": {"v": []any{2}}, "b": {"v": []any{1, 5}}, "c": {"v": []any{1}}, "d": {"v": []any{}}},
		func(q gc.Query) gc.Query { return q.OrderBy("v", gc.Asc) }, "d c b a")},
	{name: "order/maps compare key by key", run: on(map[string]fields{"a": {"v": fields{"b": 1}}, "b": {"v": fields{"a": 2}}, "c": {"v": fields{"a": 1, "z": 1}}, "d": {"v": fields{"a": 1}}},
		func(q gc.Query) gc.Query { return q.OrderBy("v", gc.Asc) }, "d c b a")},
	{name: "order/references compare segment by segment", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, map[string]fields{"a": {"v": c.Doc("x/a!")}, "b": {"v": c.Doc("x/a/y/b")}, "c": {"v": c.Doc("x/a")}})
		wantIDs(t, c.Collection("k").OrderBy("v", gc.Asc), "c b a")
	}},
	{name: "order/a document without the field is omitted", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Asc).OrderBy("g", gc.Asc) }, "a b c d")},
	{name: "order/by a field that the range does not use", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("n", ">", 1).OrderBy("g", gc.Desc) }, "d c b")},
	{name: "order/descending by id alone returns FailedPrecondition", run: refused(func(q gc.Query) gc.Query { return q.OrderBy(gc.DocumentID, gc.Desc) }, codes.FailedPrecondition)},
	{name: "order/descending by id with a filter works", run: on(numbers(), func(q gc.Query) gc.Query { return q.Where("g", "==", "x").OrderBy(gc.DocumentID, gc.Desc) }, "e b a")},
	{name: "order/a repeated field returns InvalidArgument", run: refused(func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Asc).OrderBy("n", gc.Asc) }, codes.InvalidArgument)},
	{name: "order/a field after the id returns InvalidArgument", run: refused(func(q gc.Query) gc.Query { return q.OrderBy(gc.DocumentID, gc.Asc).OrderBy("n", gc.Asc) }, codes.InvalidArgument)},
	{name: "limit/returns the first documents", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Asc).Limit(2) }, "a b")},
	{name: "limit/above the number of documents", run: on(numbers(), func(q gc.Query) gc.Query { return q.Limit(100) }, "a b c d e")},
	{name: "limit/to last returns the last documents in the query's order", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Asc).LimitToLast(2) }, "c d")},
	{name: "offset/skips", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Asc).Offset(1).Limit(2) }, "b c")},
	{name: "offset/beyond the end has no results", run: on(numbers(), func(q gc.Query) gc.Query { return q.Offset(10) }, "")},
	{name: "select/named fields only", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1, "m": fields{"p": 1, "q": 2}, "y": 1})
		docs, err := c.Collection("k").Select("x", "m.p", "none").Documents(ctxOf(t)).GetAll()
		must(t, err)
		wantEqual(t, docs[0].Data(), fields{"x": int64(1), "m": fields{"p": int64(1)}})
	}},
	{name: "select/names only", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": 1})
		docs, err := c.Collection("k").Select().Documents(ctxOf(t)).GetAll()
		must(t, err)
		wantEqual(t, docs[0].Data(), fields{})
		wantEqual(t, docs[0].Ref.ID, "a")
	}},
	{name: "group/includes collections with one ID at any depth, ordered by path", run: func(t *testing.T, c *gc.Client) {
		for _, p := range []string{"k/b", "k/a/k/z", "x/1/k/y", "k/a", "k/a!", "other/1"} {
			set(t, c, p, fields{"p": p})
		}
		docs, err := c.CollectionGroup("k").Documents(ctxOf(t)).GetAll()
		must(t, err)
		var got []string
		for _, d := range docs {
			got = append(got, d.Data()["p"].(string))
		}
		wantEqual(t, strings.Join(got, " "), "k/a k/a/k/z k/a! k/b x/1/k/y")
	}},
	{name: "group/a filter on a collection group", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": 1})
		set(t, c, "x/1/k/b", fields{"n": 1})
		set(t, c, "x/1/k/c", fields{"n": 2})
		wantIDs(t, c.CollectionGroup("k").Where("n", "==", 1), "a b")
	}},
	{name: "group/partitions cover each document exactly once", run: func(t *testing.T, c *gc.Client) {
		for _, p := range []string{"k/a", "k/b", "x/1/k/c", "x/1/k/d", "x/2/k/e"} {
			set(t, c, p, fields{})
		}
		queries, err := c.CollectionGroup("k").GetPartitionedQueries(ctxOf(t), 3)
		must(t, err)
		n := 0
		for _, q := range queries {
			docs, err := q.Documents(ctxOf(t)).GetAll()
			must(t, err)
			n += len(docs)
		}
		if n != 5 || len(queries) < 2 {
			t.Errorf("the partitions have %d documents in %d parts, want 5 in at least 2", n, len(queries))
		}
	}, onlyOurs: "the emulator does not partition small collections"},
	{name: "query/5,000 documents", run: func(t *testing.T, c *gc.Client) {
		for range 10 {
			b := c.Batch() //nolint:staticcheck // the atomic batch
			for range 500 {
				b.Set(c.Collection("k").NewDoc(), fields{"n": 1})
			}
			_, err := b.Commit(ctxOf(t))
			must(t, err)
		}
		docs, err := c.Collection("k").Where("n", "==", 1).Documents(ctxOf(t)).GetAll()
		must(t, err)
		wantEqual(t, len(docs), 5000)
	}},
}

var cursorBehaviours = []behaviour{
	{name: "cursor/start at includes equal values", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Asc).StartAt(2) }, "b c d")},
	{name: "cursor/start after omits equal values", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Asc).StartAfter(2) }, "d")},
	{name: "cursor/end at includes equal values", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Asc).EndAt(2) }, "a b c")},
	{name: "cursor/end before omits equal values", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Asc).EndBefore(2) }, "a")},
	{name: "cursor/start after, descending", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Desc).StartAfter(2) }, "a")},
	{name: "cursor/two fields", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("g", gc.Asc).OrderBy("n", gc.Asc).StartAfter("x", 1) }, "b c d")},
	{name: "cursor/a value of a different kind", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Asc).EndAt("text") }, "a b c d")},
	{name: "cursor/by document id", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		wantIDs(t, c.Collection("k").OrderBy(gc.DocumentID, gc.Asc).StartAfter("b").EndAt("d"), "c d")
	}},
	{name: "cursor/a document as cursor pages through ties", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		pages(t, c.Collection("k").OrderBy("n", gc.Asc), "a b c d")
	}},
	{name: "cursor/a document as cursor, descending with a filter", run: func(t *testing.T, c *gc.Client) {
		docs := numbers()
		docs["f"] = fields{"n": 2, "g": "x"}
		seed(t, c, docs)
		pages(t, c.Collection("k").Where("g", "==", "x").OrderBy("n", gc.Desc), "f b a")
	}},
	{name: "cursor/a document as cursor without an order", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		pages(t, c.Collection("k").Query, "a b c d e")
	}},
	{name: "cursor/beyond the end has no results", run: on(numbers(), func(q gc.Query) gc.Query { return q.OrderBy("n", gc.Asc).StartAfter(99) }, "")},
	{name: "cursor/an order bound by an equality", run: on(numbers(), func(q gc.Query) gc.Query {
		return q.Where("g", "==", "x").OrderBy("g", gc.Asc).OrderBy("n", gc.Asc).StartAfter("x", 1)
	}, "b")},
}

// pages reads a query in pages of one document. Each page starts after the document on the previous
// page.
func pages(t *testing.T, q gc.Query, want string) {
	t.Helper()
	var got []string
	page := q.Limit(1)
	for {
		docs, err := page.Documents(ctxOf(t)).GetAll()
		must(t, err)
		if len(docs) == 0 {
			break
		}
		got = append(got, docs[0].Ref.ID)
		page = q.StartAfter(docs[0]).Limit(1)
	}
	wantEqual(t, strings.Join(got, " "), want)
}

// aggregate returns the aggregates of a query on the k collection.
func aggregate(t *testing.T, a *gc.AggregationQuery) map[string]any {
	t.Helper()
	r, err := a.Get(ctxOf(t))
	must(t, err)
	out := map[string]any{}
	for k, v := range r {
		switch x := v.(*pb.Value).GetValueType().(type) {
		case *pb.Value_IntegerValue:
			out[k] = x.IntegerValue
		case *pb.Value_DoubleValue:
			out[k] = x.DoubleValue
		default:
			out[k] = nil
		}
	}
	return out
}

var aggregateBehaviours = []behaviour{
	{name: "aggregate/count", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		wantEqual(t, aggregate(t, c.Collection("k").NewAggregationQuery().WithCount("n")), map[string]any{"n": int64(5)})
	}},
	{name: "aggregate/count with a filter", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		q := c.Collection("k").Where("g", "==", "x")
		wantEqual(t, aggregate(t, q.NewAggregationQuery().WithCount("n")), map[string]any{"n": int64(3)})
	}},
	{name: "aggregate/count with a limit", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		q := c.Collection("k").Limit(2)
		wantEqual(t, aggregate(t, q.NewAggregationQuery().WithCount("n")), map[string]any{"n": int64(2)})
	}},
	{name: "aggregate/count of no documents is 0", run: func(t *testing.T, c *gc.Client) {
		wantEqual(t, aggregate(t, c.Collection("k").NewAggregationQuery().WithCount("n")), map[string]any{"n": int64(0)})
	}},
	{name: "aggregate/sum of integers is an integer", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		wantEqual(t, aggregate(t, c.Collection("k").NewAggregationQuery().WithSum("n", "s")), map[string]any{"s": int64(8)})
	}},
	{name: "aggregate/sum with a double is a double", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, map[string]fields{"a": {"n": 1}, "b": {"n": 0.5}, "c": {"n": "text"}})
		wantEqual(t, aggregate(t, c.Collection("k").NewAggregationQuery().WithSum("n", "s")), map[string]any{"s": 1.5})
	}},
	{name: "aggregate/sum of no documents is 0", run: func(t *testing.T, c *gc.Client) {
		wantEqual(t, aggregate(t, c.Collection("k").NewAggregationQuery().WithSum("n", "s")), map[string]any{"s": int64(0)})
	}},
	{name: "aggregate/sum that overflows is a double", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, map[string]fields{"a": {"n": int64(math.MaxInt64)}, "b": {"n": int64(math.MaxInt64)}})
		wantEqual(t, aggregate(t, c.Collection("k").NewAggregationQuery().WithSum("n", "s")), map[string]any{"s": 2 * float64(math.MaxInt64)})
	}},
	{name: "aggregate/average", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		wantEqual(t, aggregate(t, c.Collection("k").NewAggregationQuery().WithAvg("n", "s")), map[string]any{"s": 2.0})
	}},
	{name: "aggregate/average of no documents is null", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, map[string]fields{"a": {"n": "text"}})
		wantEqual(t, aggregate(t, c.Collection("k").NewAggregationQuery().WithAvg("n", "s")), map[string]any{"s": nil})
	}},
	{name: "aggregate/a count with a sum omits documents without the field", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		wantEqual(t, aggregate(t, c.Collection("k").NewAggregationQuery().WithCount("n").WithSum("n", "s")), map[string]any{"n": int64(4), "s": int64(8)})
	}},
}
