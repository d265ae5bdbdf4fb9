package firestore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	gc "cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

const memberIndexes = `{"indexes":[{"collectionGroup":"pairs","queryScope":"COLLECTION","fields":[
	{"fieldPath":"a","order":"ASCENDING"},{"fieldPath":"list","arrayConfig":"CONTAINS"}]}],"fieldOverrides":[
	{"collectionGroup":"pairs","fieldPath":"a","indexes":[]},{"collectionGroup":"pairs","fieldPath":"list","indexes":[]},
	{"collectionGroup":"words","fieldPath":"w","indexes":[{"queryScope":"COLLECTION","order":"ASCENDING"}]},
	{"collectionGroup":"words","fieldPath":"w.not","indexes":[]},
	{"collectionGroup":"plain","fieldPath":"w","indexes":[]}]}`

const wideIndexes = `{"indexes":[{"collectionGroup":"wide","queryScope":"COLLECTION","fields":[
	{"fieldPath":"a","order":"ASCENDING"},{"fieldPath":"list","arrayConfig":"CONTAINS"}]}],"fieldOverrides":[]}`

// Production limits the size of a commit's changes, which consist of documents, including deleted
// ones, and their index entries.
func TestACommitMayChange10MiB(t *testing.T) {
	t.Parallel()
	word := strings.Repeat("a", 50)
	members := map[string]any{}
	for i := range 1500 {
		members[fmt.Sprintf("%s%04d", word, i)] = true
	}
	var list []any
	for i := range 1000 {
		list = append(list, i)
	}
	unindexed := map[string]any{"w": map[string]any{"not": members}}
	for name, c := range map[string]struct {
		collection string
		fields     map[string]any
		documents  int
		plain      bool // no indexes are declared
		want       codes.Code
	}{
		// A document has 1,500 members of 56 bytes and 1,500 entries of 150 bytes.
		"few_documents_with_many_entries":  {"words", map[string]any{"w": members}, 30, false, codes.OK},
		"many_documents_with_many_entries": {"words", map[string]any{"w": members}, 40, false, codes.InvalidArgument},
		"without_declared_indexes":         {"words", map[string]any{"w": members}, 40, true, codes.OK},
		"a_map_without_index":              {"plain", map[string]any{"w": members}, 100, false, codes.OK},
		"a_member_without_index":           {"words", unindexed, 100, false, codes.OK},
		// An ordinary field has two entries of 75 bytes.
		"ordinary_fields": {"other", map[string]any{"w": members}, 30, false, codes.InvalidArgument},
		// The list has 1,000 elements of 8 bytes and 1,000 entries of 80 bytes in the composite
		// index.
		"few_documents_in_a_composite_index":  {"pairs", map[string]any{"a": 1, "list": list}, 100, false, codes.OK},
		"many_documents_in_a_composite_index": {"pairs", map[string]any{"a": 1, "list": list}, 140, false, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := firestore.Options{Indexes: indexes(t, memberIndexes)}
			if c.plain {
				o.Indexes = nil
			}
			db := client(t, open(t, o))
			var refs []*gc.DocumentRef
			for i := range c.documents {
				ref := db.Collection(c.collection).Doc(fmt.Sprint("d", i))
				if _, err := ref.Set(t.Context(), c.fields); err != nil {
					t.Fatal(err)
				}
				refs = append(refs, ref)
			}
			each := func(what string, want codes.Code, write func(tx *gc.Transaction, ref *gc.DocumentRef) error) {
				t.Helper()
				err := db.RunTransaction(t.Context(), func(_ context.Context, tx *gc.Transaction) error {
					for _, ref := range refs {
						if err := write(tx, ref); err != nil {
							return err
						}
					}
					return nil
				})
				if status.Code(err) != want {
					t.Errorf("the commit with %s returned %v, want %v", what, err, want)
				}
			}
			each("one more field in each", codes.OK, func(tx *gc.Transaction, ref *gc.DocumentRef) error {
				return tx.Update(ref, []gc.Update{{Path: "more", Value: true}})
			})
			each("all documents deleted", c.want, func(tx *gc.Transaction, ref *gc.DocumentRef) error { return tx.Delete(ref) })
			left, err := db.Collection(c.collection).Select().Documents(t.Context()).GetAll()
			if gone := len(left) == 0; err != nil || gone != (c.want == codes.OK) || !gone && len(left) != c.documents {
				t.Errorf("%d of %d documents remain (error %v), want none if the deletion succeeded and otherwise all", len(left), c.documents, err)
			}
			refs = refs[:len(refs)/2]
			each("half of them deleted", codes.OK, func(tx *gc.Transaction, ref *gc.DocumentRef) error { return tx.Delete(ref) })
		})
	}
}

// One document has at most 40,000 index entries, with at most 8 MiB in total.
func TestADocumentHasABoundedNumberOfIndexEntries(t *testing.T) {
	t.Parallel()
	numbers := func(n int) (list []any) {
		for i := range n {
			list = append(list, i)
		}
		return list
	}
	texts := func(n int) map[string]any {
		m := map[string]any{}
		for i := range n {
			m[fmt.Sprintf("k%04d", i)] = fmt.Sprintf("%01400d", i)
		}
		return m
	}
	for name, c := range map[string]struct {
		collection string
		fields     map[string]any
		plain      bool // no indexes are declared
		want       string
	}{
		"40,000 elements in an array":                        {"other", map[string]any{"list": numbers(40_000)}, false, ""},
		"one array element too many":                         {"other", map[string]any{"list": numbers(40_001)}, false, "too many index entries"},
		"one field with two entries too many":                {"other", map[string]any{"list": numbers(39_999), "x": 1}, false, "too many index entries"},
		"entries in a composite index":                       {"pairs", map[string]any{"a": 1, "list": numbers(40_001)}, false, "too many index entries"},
		"an exempt array":                                    {"pairs", map[string]any{"list": numbers(60_000)}, false, ""},
		"an array without declared indexes":                  {"other", map[string]any{"list": numbers(60_000)}, true, ""},
		"strings of 700 kB with two entries each":            {"other", map[string]any{"w": texts(500)}, false, ""},
		"indexes that repeat a long string for each element": {"wide", map[string]any{"a": strings.Repeat("a", 1400), "list": numbers(8000)}, false, "index entries too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := firestore.Options{Indexes: indexes(t, memberIndexes, wideIndexes)}
			if c.plain {
				o.Indexes = nil
			}
			ref := client(t, open(t, o)).Collection(c.collection).Doc("d")
			_, err := ref.Set(t.Context(), c.fields)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("the write returned %v, want no error", err)
			case c.want != "" && (status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want)):
				t.Errorf("the write returned %v, want an error with %q", err, c.want)
			}
		})
	}
}

// A commit applies at most 500 transforms to one document.
func TestACommitTransformsADocument500Times(t *testing.T) {
	t.Parallel()
	db := client(t, open(t, firestore.Options{}))
	increments := func(from, to int) (m map[string]any) {
		m = map[string]any{}
		for i := from; i < to; i++ {
			m[fmt.Sprintf("k%04d", i)] = gc.Increment(1)
		}
		return m
	}
	if _, err := db.Doc("c/d").Set(t.Context(), increments(0, 500), gc.MergeAll); err != nil {
		t.Errorf("500 transforms returned %v, want no error", err)
	}
	if _, err := db.Doc("c/d").Set(t.Context(), increments(0, 501), gc.MergeAll); status.Code(err) != codes.InvalidArgument {
		t.Errorf("501 transforms returned %v, want InvalidArgument", err)
	}
	in := func(second string) error {
		return db.RunTransaction(t.Context(), func(_ context.Context, tx *gc.Transaction) error {
			if err := tx.Set(db.Doc("c/d"), increments(0, 300), gc.MergeAll); err != nil {
				return err
			}
			return tx.Set(db.Doc(second), increments(300, 600), gc.MergeAll)
		})
	}
	if err := in("c/other"); err != nil {
		t.Errorf("300 transforms in each of two documents returned %v, want no error", err)
	}
	if err := in("c/d"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("two writes with 300 transforms on one document returned %v, want InvalidArgument", err)
	}
}
