package firestore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"cloud.google.com/go/firestore"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	local "github.com/linkreel/linkreel/services/localcloud/firestore"
)

// An override indexes the members of a map. With this index, queries that compare several members
// must return the documents in name order, as production does when it merges single-field indexes.
func TestMergedMembersOfAMap(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	indexes, err := local.ParseIndexes([]byte(`{"indexes":[],"fieldOverrides":[
		{"collectionGroup":"words","fieldPath":"w","indexes":[{"queryScope":"COLLECTION","order":"ASCENDING"}]},
		{"collectionGroup":"words","fieldPath":"off","indexes":[]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	server, err := local.Open(local.Options{Indexes: indexes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	addr, err := server.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(addr.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client, err := firestore.NewClient(ctx, "p", option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	words := client.Collection("words")
	rng := rand.New(rand.NewPCG(1, 2))
	has := map[string]map[string]bool{}
	put := func(id string) {
		w := map[string]bool{}
		for _, word := range []string{"a", "b", "ab", "ß.`\\", "c"} {
			if rng.IntN(3) > 0 {
				w[word] = true
			}
		}
		has[id] = w
		if _, err := words.Doc(id).Set(ctx, map[string]any{"w": w, "n": 1}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 150 {
		put(fmt.Sprintf("x~%03d", i))
		put(fmt.Sprintf("y~%03d", i))
	}
	for i := range 40 { // change some documents and delete others
		put(fmt.Sprintf("x~%03d", i*3))
		id := fmt.Sprintf("y~%03d", i*3)
		if _, err := words.Doc(id).Delete(ctx); err != nil {
			t.Fatal(err)
		}
		delete(has, id)
	}
	for _, wanted := range [][]string{{"a"}, {"a", "b"}, {"ß.`\\", "ab", "c"}, {"a", "b", "ab", "c"}, {"nothing"}, {"a", "nothing"}} {
		for _, span := range [][2]string{{"x~", "x~~"}, {"x~050", "x~100"}, {"a", "z"}} {
			q := words.OrderBy(firestore.DocumentID, firestore.Asc).Where(firestore.DocumentID, ">", words.Doc(span[0])).Where(firestore.DocumentID, "<", words.Doc(span[1])).Limit(60)
			for _, word := range wanted {
				q = q.WherePath(firestore.FieldPath{"w", word}, "==", true)
			}
			var want, got []string
			for id, w := range has {
				if id > span[0] && id < span[1] && !slices.ContainsFunc(wanted, func(word string) bool { return !w[word] }) {
					want = append(want, id)
				}
			}
			slices.Sort(want)
			want = want[:min(60, len(want))]
			for it := q.Documents(ctx); ; {
				snap, err := it.Next()
				if errors.Is(err, iterator.Done) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, snap.Ref.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the query for %q in %q returned %v, want %v", wanted, span, got, want)
			}
		}
	}
	if _, err := words.WherePath(firestore.FieldPath{"off", "x"}, "==", true).Documents(ctx).GetAll(); err == nil {
		t.Error("a query on a member of an exempt map succeeded, want an error")
	}
}
