package firestore_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gc "cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

const declared = `{
	"indexes": [
		{"collectionGroup": "k", "queryScope": "COLLECTION", "fields": [
			{"fieldPath": "g", "order": "ASCENDING"}, {"fieldPath": "n", "order": "DESCENDING"}]},
		{"collectionGroup": "k", "queryScope": "COLLECTION", "fields": [
			{"fieldPath": "t", "arrayConfig": "CONTAINS"}, {"fieldPath": "n", "order": "ASCENDING"}]},
		{"collectionGroup": "k", "queryScope": "COLLECTION_GROUP", "fields": [
			{"fieldPath": "g", "order": "ASCENDING"}, {"fieldPath": "n", "order": "ASCENDING"}]},
		{"collectionGroup": "k", "queryScope": "COLLECTION", "fields": [
			{"fieldPath": "g", "order": "ASCENDING"}, {"fieldPath": "off", "order": "DESCENDING"}]}
	],
	"fieldOverrides": [
		{"collectionGroup": "k", "fieldPath": "one", "indexes": [
			{"queryScope": "COLLECTION", "order": "ASCENDING"}, {"queryScope": "COLLECTION_GROUP", "order": "ASCENDING"}]},
		{"collectionGroup": "k", "fieldPath": "off", "indexes": []},
		{"collectionGroup": "k", "fieldPath": "expires", "ttl": true}
	]
}`

func TestIndexEnforcement(t *testing.T) {
	t.Parallel()
	const refused = codes.FailedPrecondition
	for _, tt := range []struct {
		name  string
		query func(c *gc.Client) gc.Query
		want  codes.Code
	}{
		{"a single field does not need an index", func(c *gc.Client) gc.Query { return c.Collection("k").Where("x", "==", 1) }, codes.OK},
		{"a range on a single field does not need an index", func(c *gc.Client) gc.Query { return c.Collection("k").Where("x", ">", 1).OrderBy("x", gc.Desc) }, codes.OK},
		{"several equalities are merged", func(c *gc.Client) gc.Query { return c.Collection("k").Where("x", "==", 1).Where("y", "==", 1) }, codes.OK},
		{"an equality and an order need an index", func(c *gc.Client) gc.Query { return c.Collection("k").Where("x", "==", 1).OrderBy("n", gc.Desc) }, refused},
		{"an equality and an order with their index", func(c *gc.Client) gc.Query { return c.Collection("k").Where("g", "==", 1).OrderBy("n", gc.Desc) }, codes.OK},
		{"an index also serves the other direction", func(c *gc.Client) gc.Query { return c.Collection("k").Where("g", "==", 1).OrderBy("n", gc.Asc) }, codes.OK},
		{"in and an order with their index", func(c *gc.Client) gc.Query {
			return c.Collection("k").Where("g", "in", []int{1, 2}).OrderBy("n", gc.Asc)
		}, codes.OK},
		{"an equality and a range with their index", func(c *gc.Client) gc.Query { return c.Collection("k").Where("g", "==", 1).Where("n", "<", 5) }, codes.OK},
		{"two orders with their index", func(c *gc.Client) gc.Query { return c.Collection("k").OrderBy("g", gc.Asc).OrderBy("n", gc.Desc) }, codes.OK},
		{"two orders in different directions need a different index", func(c *gc.Client) gc.Query { return c.Collection("k").OrderBy("g", gc.Asc).OrderBy("n", gc.Asc) }, refused},
		{"array contains and an order with their index", func(c *gc.Client) gc.Query {
			return c.Collection("k").Where("t", "array-contains", 1).OrderBy("n", gc.Asc)
		}, codes.OK},
		{"an equality does not use an array index", func(c *gc.Client) gc.Query { return c.Collection("k").Where("t", "==", 1).OrderBy("n", gc.Asc) }, refused},
		{"array contains does not use an equality's index", func(c *gc.Client) gc.Query {
			return c.Collection("k").Where("g", "array-contains", 1).OrderBy("n", gc.Asc)
		}, refused},
		{"another collection needs its own index", func(c *gc.Client) gc.Query { return c.Collection("other").Where("g", "==", 1).OrderBy("n", gc.Desc) }, refused},
		{"a collection group with its index", func(c *gc.Client) gc.Query { return c.CollectionGroup("k").Where("g", "==", 1).OrderBy("n", gc.Asc) }, codes.OK},
		{"a collection group needs an index even for a single field", func(c *gc.Client) gc.Query { return c.CollectionGroup("k").Where("x", "==", 1) }, refused},
		{"a collection group with an index from a field override", func(c *gc.Client) gc.Query { return c.CollectionGroup("k").Where("one", "==", 1) }, codes.OK},
		{"a collection group without a filter or an order does not need an index", func(c *gc.Client) gc.Query { return c.CollectionGroup("k").Query }, codes.OK},
		{"each side of an or needs its own index", func(c *gc.Client) gc.Query {
			return c.Collection("k").WhereEntity(gc.OrFilter{Filters: []gc.EntityFilter{
				gc.PropertyFilter{Path: "g", Operator: "==", Value: 1}, gc.PropertyFilter{Path: "x", Operator: "==", Value: 1},
			}}).OrderBy("n", gc.Desc)
		}, refused},
		{"an exempted field cannot be compared", func(c *gc.Client) gc.Query { return c.Collection("k").Where("off", "==", 1) }, refused},
		{"an exempted field can be in composite indexes", func(c *gc.Client) gc.Query {
			return c.Collection("k").Where("g", "==", 1).OrderBy("off", gc.Desc)
		}, codes.OK},
		{"an exempted field cannot order the results", func(c *gc.Client) gc.Query { return c.Collection("k").OrderBy("off", gc.Asc) }, refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := client(t, open(t, firestore.Options{Indexes: indexes(t, declared)}))
			_, err := tt.query(c).Documents(ctxOf(t)).GetAll()
			if status.Code(err) != tt.want {
				t.Errorf("the error is %v, want %v", err, tt.want)
			}
			if tt.want == refused && !strings.Contains(err.Error(), "The query requires an index") {
				t.Errorf("the error does not contain the missing index: %v", err)
			}
		})
	}
}

func TestIndexEnforcementSumNeedsAnIndexWithItsField(t *testing.T) {
	t.Parallel()
	c := client(t, open(t, firestore.Options{Indexes: indexes(t, declared)}))
	q := c.Collection("k").Where("g", "==", 1)
	if _, err := q.NewAggregationQuery().WithSum("n", "s").Get(ctxOf(t)); err != nil {
		t.Errorf("the sum of n returned %v, want no error", err)
	}
	_, err := q.NewAggregationQuery().WithSum("x", "s").Get(ctxOf(t))
	wantCode(t, err, codes.FailedPrecondition)
}

func TestParseIndexes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"invalid JSON", `{`, "unexpected EOF"},
		{"unknown keys", `{"indices": []}`, "unknown field"},
		{"a single field", `{"indexes": [{"collectionGroup": "k", "fields": [{"fieldPath": "a", "order": "ASCENDING"}]}]}`, "at least two fields"},
		{"no direction", `{"indexes": [{"collectionGroup": "k", "fields": [{"fieldPath": "a"}, {"fieldPath": "b", "order": "ASCENDING"}]}]}`, "needs an order"},
		{"wrong direction", `{"indexes": [{"collectionGroup": "k", "fields": [{"fieldPath": "a", "order": "UP"}, {"fieldPath": "b", "order": "ASCENDING"}]}]}`, "needs an order"},
		{"wrong scope", `{"indexes": [{"collectionGroup": "k", "queryScope": "ALL", "fields": []}]}`, "queryScope"},
		{"an override without a collection group", `{"fieldOverrides": [{"fieldPath": "a"}]}`, "collectionGroup"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := firestore.ParseIndexes([]byte(tt.in)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseIndexes(%s) = %v, want an error with %q", tt.in, err, tt.want)
			}
		})
	}
	ix, err := firestore.ParseIndexes([]byte(declared), []byte(`{"indexes": []}`), []byte(benchIndexes))
	if err != nil || len(ix.Composite) != 5 || len(ix.Overrides) != 3 {
		t.Errorf("ParseIndexes(several files) = %+v, %v; want 5 indexes and 3 overrides", ix, err)
	}
}

// TestQueryCost counts the documents that queries read. A limited query must read only the
// documents that it needs.
func TestQueryCost(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{Indexes: indexes(t, benchIndexes)})
	c := client(t, s)
	load(t, s, 5000)
	newest := c.Collection("links").Where("accountId", "==", "acc3").OrderBy("seq", gc.Desc)
	first, err := newest.Limit(20).Documents(ctxOf(t)).GetAll()
	must(t, err)
	for _, tt := range []struct {
		name  string
		query gc.Query
		most  int64
	}{
		{"newest 20 of an account", newest.Limit(20), 20},
		{"the next page by document", newest.StartAfter(first[19]).Limit(20), 21},
		{"the next page by value", newest.StartAfter(first[19].Data()["seq"]).Limit(20), 21},
		{"oldest 20, with the index read backwards", c.Collection("links").Where("accountId", "==", "acc3").OrderBy("seq", gc.Asc).Limit(20), 20},
		{"accounts merged in order", c.Collection("links").Where("accountId", "in", []string{"acc1", "acc2"}).OrderBy("seq", gc.Desc).Limit(20), 22},
		{"one field, with an index built on demand", c.Collection("links").Where("slug", "==", "s0000007"), 1},
		{"a range, with an index built on demand", c.Collection("links").Where("created", ">=", time.Unix(1_700_004_990, 0)), 10},
		{"an array element, with an index built on demand", c.Collection("links").Where("tags", "array-contains", "none"), 0},
		{"first by id", c.Collection("links").OrderBy(gc.DocumentID, gc.Asc).Limit(5), 5},
		{"one id", c.Collection("links").Where(gc.DocumentID, "==", first[0].Ref), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := firestore.Examined(s)
			_, err := tt.query.Documents(ctxOf(t)).GetAll()
			must(t, err)
			if n := firestore.Examined(s) - before; n > tt.most {
				t.Errorf("the query read %d documents, want at most %d", n, tt.most)
			}
		})
	}
}

func TestCountCost(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{Indexes: indexes(t, benchIndexes)})
	c := client(t, s)
	load(t, s, 2000)
	before := firestore.Examined(s)
	for _, tt := range []struct {
		query gc.Query
		want  int64
	}{
		{c.Collection("links").Query, 2000},
		{c.Collection("links").Where("accountId", "==", "acc3"), 200},
		{c.Collection("links").Where("accountId", "==", "acc3").Where("active", "==", true), 200},
		{c.Collection("links").Where("accountId", "==", "acc3").Offset(150).Limit(100), 50},
		{c.Collection("links").Where("accountId", "==", "none"), 0},
	} {
		wantEqual(t, aggregate(t, tt.query.NewAggregationQuery().WithCount("n")), map[string]any{"n": tt.want})
	}
	if n := firestore.Examined(s) - before; n > 0 {
		t.Errorf("the count read %d documents, want 0", n)
	}
}

func TestIndexesSurviveReopeningAndFollowTheDeclaration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data.db")
	newest := func(c *gc.Client) gc.Query {
		return c.Collection("links").Where("accountId", "==", "acc3").OrderBy("seq", gc.Desc).Limit(3)
	}
	var ids []string
	for i, declaration := range []string{benchIndexes, benchIndexes, `{}`, benchIndexes} {
		ix := indexes(t, declaration)
		s, err := firestore.Open(firestore.Options{Path: path, Indexes: ix})
		must(t, err)
		c := client(t, s)
		if i == 0 {
			load(t, s, 2000)
		}
		before := firestore.Examined(s)
		docs, err := newest(c).Documents(ctxOf(t)).GetAll()
		if declaration == `{}` {
			wantCode(t, err, codes.FailedPrecondition)
		} else {
			must(t, err)
			var got []string
			for _, d := range docs {
				got = append(got, d.Ref.ID)
			}
			if ids == nil {
				ids = got
			}
			if !slices.Equal(got, ids) || firestore.Examined(s)-before > 3 {
				t.Errorf("opening %d: the query returned %v and read %d documents, want %v and at most 3", i, got, firestore.Examined(s)-before, ids)
			}
		}
		must(t, firestore.CheckConsistency(s))
		must(t, s.Close())
	}
}

func TestIndexesKeepValuesThatAreTooLongInOrder(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{})
	firestore.IndexEverything(s)
	c := client(t, s)
	long := strings.Repeat("x", 5000)
	seed(t, c, map[string]fields{"a": {"v": long + "b"}, "b": {"v": long + "a"}, "c": {"v": "y"}, "d": {"v": "a"}})
	q := c.Collection("k").OrderBy("v", gc.Asc)
	wantIDs(t, q, "d b a c")
	wantIDs(t, q.Limit(2), "d b")
	set(t, c, "k/b", fields{"v": "z"})
	set(t, c, "k/a", fields{"v": "zz"})
	wantIDs(t, q.Limit(3), "d c b")
	must(t, firestore.CheckConsistency(s))
}

func TestIndexesAreConsistentAfterManyChanges(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{Indexes: indexes(t, declared)})
	firestore.IndexEverything(s)
	c := client(t, s)
	for i := range 300 {
		path := fmt.Sprintf("k/%d", i%17)
		switch i % 5 {
		case 0:
			set(t, c, path, fields{"g": i % 3, "n": i, "t": []int{i % 4, i % 7}})
		case 1:
			set(t, c, path, fields{"n": i, "one": i}, gc.MergeAll)
		case 2:
			_, err := c.Doc(path).Delete(ctxOf(t))
			must(t, err)
		case 3:
			_, err := c.Collection("k").Where("n", ">", i%50).Documents(ctxOf(t)).GetAll()
			must(t, err)
		default:
			set(t, c, path+"/k/deep", fields{"g": i, "t": "none", "expires": time.Now()})
		}
	}
	must(t, firestore.CheckConsistency(s))
}
