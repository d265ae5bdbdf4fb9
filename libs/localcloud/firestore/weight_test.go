package firestore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	gc "cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/libs/localcloud/firestore"
)

const memberIndexes = `{"indexes":[{"collectionGroup":"pairs","queryScope":"COLLECTION","fields":[
	{"fieldPath":"a","order":"ASCENDING"},{"fieldPath":"list","arrayConfig":"CONTAINS"}]}],"fieldOverrides":[
	{"collectionGroup":"pairs","fieldPath":"a","indexes":[]},{"collectionGroup":"pairs","fieldPath":"list","indexes":[]},
	{"collectionGroup":"words","fieldPath":"w","indexes":[{"queryScope":"COLLECTION","order":"ASCENDING"}]},
	{"collectionGroup":"words","fieldPath":"w.not","indexes":[]},
	{"collectionGroup":"plain","fieldPath":"w","indexes":[]}]}`

// Production counts what a commit changes: documents, also those it deletes, and
// their index entries.
func TestACommitMayChange10MiB(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow, and one goroutine at a time")
	}
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
		plain      bool // no indexes declared
		want       codes.Code
	}{
		// A document has 1,500 members of 56 bytes, and as many entries of 150.
		"few_documents_with_many_entries":  {"words", map[string]any{"w": members}, 30, false, codes.OK},
		"many_documents_with_many_entries": {"words", map[string]any{"w": members}, 40, false, codes.InvalidArgument},
		"without_declared_indexes":         {"words", map[string]any{"w": members}, 40, true, codes.OK},
		"a_map_without_index":              {"plain", map[string]any{"w": members}, 100, false, codes.OK},
		"a_member_without_index":           {"words", unindexed, 100, false, codes.OK},
		// An ordinary field has two entries, of 75 bytes.
		"ordinary_fields": {"other", map[string]any{"w": members}, 30, false, codes.InvalidArgument},
		// 1,000 elements of 8 bytes, and as many entries of 80 in the composite index.
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
					t.Errorf("%s: %v, want %v", what, err, want)
				}
			}
			each("one more field in each", codes.OK, func(tx *gc.Transaction, ref *gc.DocumentRef) error {
				return tx.Update(ref, []gc.Update{{Path: "more", Value: true}})
			})
			each("all deleted", c.want, func(tx *gc.Transaction, ref *gc.DocumentRef) error { return tx.Delete(ref) })
			left, err := db.Collection(c.collection).Select().Documents(t.Context()).GetAll()
			if gone := len(left) == 0; err != nil || gone != (c.want == codes.OK) || !gone && len(left) != c.documents {
				t.Errorf("%d of %d documents are left, %v", len(left), c.documents, err)
			}
			refs = refs[:len(refs)/2]
			each("half of them deleted", codes.OK, func(tx *gc.Transaction, ref *gc.DocumentRef) error { return tx.Delete(ref) })
		})
	}
}
