package firestore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	gc "cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"
)

var transactionBehaviours = []behaviour{
	{name: "transaction/writes after its reads", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": 1})
		must(t, c.RunTransaction(ctxOf(t), addOne(c)))
		wantFields(t, c, "k/a", fields{"n": int64(2)})
	}},
	{name: "transaction/all written documents have the same update time", run: func(t *testing.T, c *gc.Client) {
		must(t, c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
			if err := tx.Create(c.Doc("k/a"), fields{"n": 1}); err != nil {
				return err
			}
			return tx.Set(c.Doc("k/b"), fields{"n": 1})
		}))
		wantEqual(t, get(t, c, "k/a").UpdateTime, get(t, c, "k/b").UpdateTime)
	}},
	{name: "transaction/an error from its function discards its writes", run: func(t *testing.T, c *gc.Client) {
		mine := errors.New("mine")
		err := c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
			if err := tx.Set(c.Doc("k/a"), fields{"n": 1}); err != nil {
				return err
			}
			return mine
		})
		if !errors.Is(err, mine) {
			t.Errorf("the error is %v, want the function's error", err)
		}
		wantMissing(t, c, "k/a")
	}},
	{name: "transaction/a failed create rejects all writes", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/b", fields{"n": 1})
		err := c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
			if err := tx.Set(c.Doc("k/a"), fields{"n": 1}); err != nil {
				return err
			}
			return tx.Create(c.Doc("k/b"), fields{"n": 2})
		})
		wantCode(t, err, codes.AlreadyExists)
		wantMissing(t, c, "k/a")
	}},
	{name: "transaction/a missing document returns NotFound", run: func(t *testing.T, c *gc.Client) {
		must(t, c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
			_, err := tx.Get(c.Doc("k/none"))
			wantCode(t, err, codes.NotFound)
			return tx.Set(c.Doc("k/none"), fields{"n": 1})
		}))
		wantFields(t, c, "k/none", fields{"n": int64(1)})
	}},
	{name: "transaction/a query inside a transaction", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		must(t, c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
			docs, err := tx.Documents(c.Collection("k").Where("g", "==", "y")).GetAll()
			if err != nil {
				return err
			}
			return tx.Set(c.Doc("sum/y"), fields{"n": len(docs)})
		}))
		wantFields(t, c, "sum/y", fields{"n": int64(2)})
	}},
	{name: "transaction/several documents read in one call", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		must(t, c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
			docs, err := tx.GetAll([]*gc.DocumentRef{c.Doc("k/d"), c.Doc("k/none"), c.Doc("k/a")})
			if err != nil {
				return err
			}
			wantEqual(t, []any{docs[0].Data()["n"], docs[1].Exists(), docs[2].Data()["n"]}, []any{int64(3), false, int64(1)})
			return nil
		}))
	}},
	{name: "transaction/a read-only transaction sees a consistent state", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, map[string]fields{"a": {"n": 1}, "b": {"n": 1}})
		must(t, c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
			a, err := tx.Get(c.Doc("k/a"))
			if err != nil {
				return err
			}
			seed(t, c, map[string]fields{"a": {"n": 2}, "b": {"n": 2}})
			b, err := tx.Get(c.Doc("k/b"))
			if err != nil {
				return err
			}
			wantEqual(t, b.Data()["n"], a.Data()["n"])
			return nil
		}, gc.ReadOnly))
	}},
	{name: "transaction/read-only queries see a consistent state", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		must(t, c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
			if _, err := tx.Get(c.Doc("k/a")); err != nil {
				return err
			}
			seed(t, c, map[string]fields{"a": {"n": 9, "g": "y"}, "new": {"n": 0, "g": "x"}})
			_, err := c.Doc("k/b").Delete(ctxOf(t))
			must(t, err)
			docs, err := tx.Documents(c.Collection("k").Where("g", "==", "x").OrderBy("n", gc.Asc)).GetAll()
			if err != nil {
				return err
			}
			wantEqual(t, ids(docs), "a b")
			return nil
		}, gc.ReadOnly))
	}},
	{name: "transaction/a read-only transaction does not block writes", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": 1})
		must(t, c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
			if _, err := tx.Get(c.Doc("k/a")); err != nil {
				return err
			}
			set(t, c, "k/a", fields{"n": 2}) // a write that waited would be aborted
			return nil
		}, gc.ReadOnly))
	}},
	{name: "transaction/two concurrent increments", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": 0})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for range 3 {
					if err := c.RunTransaction(ctxOf(t), addOne(c), gc.MaxAttempts(50)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		wantFields(t, c, "k/a", fields{"n": int64(6)})
	}},
	{name: "transaction/only one of two concurrent creates succeeds", run: func(t *testing.T, c *gc.Client) {
		var wg sync.WaitGroup
		won := make(chan string, 2)
		for _, who := range []string{"x", "y"} {
			wg.Go(func() {
				err := c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
					d, err := tx.Get(c.Doc("k/slug"))
					if d.Exists() {
						return errors.New("taken")
					}
					wantCode(t, err, codes.NotFound)
					return tx.Create(c.Doc("k/slug"), fields{"by": who})
				}, gc.MaxAttempts(50))
				if err == nil {
					won <- who
				}
			})
		}
		wg.Wait()
		close(won)
		if len(won) != 1 {
			t.Fatalf("%d transactions succeeded, want 1", len(won))
		}
		wantFields(t, c, "k/slug", fields{"by": <-won})
	}},
	{name: "transaction/a concurrent write waits for the end of the transaction", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"n": 1})
		read, written := make(chan struct{}), make(chan error, 1)
		must(t, c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
			if _, err := tx.Get(c.Doc("k/a")); err != nil {
				return err
			}
			select {
			case <-read:
			default:
				close(read)
				go func() {
					_, err := c.Doc("k/a").Update(context.Background(), []gc.Update{{Path: "other", Value: true}})
					written <- err
				}()
			}
			return tx.Update(c.Doc("k/a"), []gc.Update{{Path: "n", Value: 2}})
		}))
		must(t, <-written)
		wantFields(t, c, "k/a", fields{"n": int64(2), "other": true})
	}},
	{name: "transaction/its writes are visible to the next read", run: func(t *testing.T, c *gc.Client) {
		for i := range 20 {
			must(t, c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
				return tx.Set(c.Doc("k/a"), fields{"n": i})
			}))
			wantFields(t, c, "k/a", fields{"n": int64(i)})
		}
	}},
	{name: "transaction/the client rejects a read after a write", run: func(t *testing.T, c *gc.Client) {
		err := c.RunTransaction(ctxOf(t), func(_ context.Context, tx *gc.Transaction) error {
			if err := tx.Set(c.Doc("k/a"), fields{"n": 1}); err != nil {
				return err
			}
			_, err := tx.Get(c.Doc("k/b"))
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "read after write") {
			t.Errorf("the error is %v, want an error about a read after a write", err)
		}
	}},
}

func ids(docs []*gc.DocumentSnapshot) string {
	var out []string
	for _, d := range docs {
		out = append(out, d.Ref.ID)
	}
	return strings.Join(out, " ")
}

// addOne returns a transaction function that reads k/a and increments its n.
func addOne(c *gc.Client) func(context.Context, *gc.Transaction) error {
	return func(_ context.Context, tx *gc.Transaction) error {
		d, err := tx.Get(c.Doc("k/a"))
		if err != nil {
			return err
		}
		return tx.Update(c.Doc("k/a"), []gc.Update{{Path: "n", Value: d.Data()["n"].(int64) + 1}})
	}
}

var listenBehaviours = []behaviour{
	{name: "listen/a document is created, changed and deleted", run: func(t *testing.T, c *gc.Client) {
		it := c.Doc("k/a").Snapshots(ctxOf(t))
		defer it.Stop()
		next := func() *gc.DocumentSnapshot {
			d, err := it.Next()
			if d == nil {
				must(t, err)
			}
			return d
		}
		wantEqual(t, next().Exists(), false)
		set(t, c, "k/a", fields{"n": 1})
		wantEqual(t, next().Data(), fields{"n": int64(1)})
		set(t, c, "k/a", fields{"n": 2})
		wantEqual(t, next().Data(), fields{"n": int64(2)})
		_, err := c.Doc("k/a").Delete(ctxOf(t))
		must(t, err)
		wantEqual(t, next().Exists(), false)
	}},
	{name: "listen/the first snapshot of a query contains its result", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		it := c.Collection("k").Where("g", "==", "x").OrderBy("n", gc.Desc).Snapshots(ctxOf(t))
		defer it.Stop()
		wantNext(t, it, "b a", "added b, added a")
	}},
	{name: "listen/the first snapshot of a query without results is empty", run: func(t *testing.T, c *gc.Client) {
		it := c.Collection("k").Snapshots(ctxOf(t))
		defer it.Stop()
		wantNext(t, it, "", "")
	}},
	{name: "listen/documents in a query are added, changed and removed", run: func(t *testing.T, c *gc.Client) {
		it := c.Collection("k").Where("g", "==", "x").OrderBy("n", gc.Asc).Snapshots(ctxOf(t))
		defer it.Stop()
		wantNext(t, it, "", "")
		set(t, c, "k/a", fields{"n": 2, "g": "x"})
		wantNext(t, it, "a", "added a")
		set(t, c, "k/b", fields{"n": 1, "g": "x"})
		wantNext(t, it, "b a", "added b")
		set(t, c, "k/b", fields{"n": 3, "g": "x"})
		wantNext(t, it, "a b", "modified b")
		set(t, c, "k/a", fields{"n": 2, "g": "y"})
		wantNext(t, it, "b", "removed a")
		_, err := c.Doc("k/b").Delete(ctxOf(t))
		must(t, err)
		wantNext(t, it, "", "removed b")
	}},
	{name: "listen/a query with a limit replaces a removed document", run: func(t *testing.T, c *gc.Client) {
		seed(t, c, numbers())
		it := c.Collection("k").OrderBy("n", gc.Asc).Limit(2).Snapshots(ctxOf(t))
		defer it.Stop()
		wantNext(t, it, "a b", "added a, added b")
		_, err := c.Doc("k/a").Delete(ctxOf(t))
		must(t, err)
		wantNext(t, it, "b c", "removed a, added c")
	}},
	{name: "listen/a batch is one snapshot", run: func(t *testing.T, c *gc.Client) {
		it := c.Collection("k").Snapshots(ctxOf(t))
		defer it.Stop()
		wantNext(t, it, "", "")
		seed(t, c, map[string]fields{"a": {}, "b": {}, "c": {}})
		wantNext(t, it, "a b c", "added a, added b, added c")
	}},
	{name: "listen/changes in other collections are ignored", run: func(t *testing.T, c *gc.Client) {
		it := c.Collection("k").Snapshots(ctxOf(t))
		defer it.Stop()
		wantNext(t, it, "", "")
		set(t, c, "other/a", fields{})
		set(t, c, "k/a/k/deep", fields{})
		set(t, c, "k/b", fields{})
		wantNext(t, it, "b", "added b")
	}},
	{name: "listen/a query on a collection group", run: func(t *testing.T, c *gc.Client) {
		it := c.CollectionGroup("k").Snapshots(ctxOf(t))
		defer it.Stop()
		wantNext(t, it, "", "")
		set(t, c, "x/1/k/a", fields{})
		wantNext(t, it, "a", "added a")
	}},
	{name: "listen/snapshots have increasing read times", run: func(t *testing.T, c *gc.Client) {
		it := c.Collection("k").Snapshots(ctxOf(t))
		defer it.Stop()
		first, err := it.Next()
		must(t, err)
		r := set(t, c, "k/a", fields{})
		second, err := it.Next()
		must(t, err)
		if !second.ReadTime.After(first.ReadTime) || second.ReadTime.Before(r.UpdateTime) {
			t.Errorf("the read times are %v and %v, want the second one later and not before the update time %v", first.ReadTime, second.ReadTime, r.UpdateTime)
		}
	}},
	{name: "listen/an invalid query ends the iterator", run: func(t *testing.T, c *gc.Client) {
		it := c.Collection("k").Where("n", "in", make([]int, 31)).Snapshots(ctxOf(t))
		defer it.Stop()
		_, err := it.Next()
		wantCode(t, err, codes.InvalidArgument)
	}},
}

// wantNext checks the documents and changes of the next snapshot.
func wantNext(t *testing.T, it *gc.QuerySnapshotIterator, want, changes string) {
	t.Helper()
	snap, err := it.Next()
	must(t, err)
	docs, err := snap.Documents.GetAll()
	must(t, err)
	wantEqual(t, ids(docs), want)
	var got []string
	for _, ch := range snap.Changes {
		got = append(got, []string{"added", "removed", "modified"}[ch.Kind]+" "+ch.Doc.Ref.ID)
	}
	wantEqual(t, strings.Join(got, ", "), changes)
}

var limitBehaviours = []behaviour{
	{name: "limit/a document of 1,000 KB is accepted", run: func(t *testing.T, c *gc.Client) {
		set(t, c, "k/a", fields{"x": strings.Repeat("x", 1_000_000)})
	}},
	{name: "limit/a document over 1 MiB returns InvalidArgument", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/a").Set(ctxOf(t), fields{"x": strings.Repeat("x", 600_000), "y": strings.Repeat("y", 600_000)})
		wantCode(t, err, codes.InvalidArgument)
		wantMissing(t, c, "k/a")
	}},
	{name: "limit/a value over 1,048,487 bytes returns InvalidArgument", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/a").Set(ctxOf(t), fields{"x": strings.Repeat("x", 1_048_488)})
		wantCode(t, err, codes.InvalidArgument)
	}},
	{name: "limit/a request over 10 MiB returns InvalidArgument", run: func(t *testing.T, c *gc.Client) {
		b := c.Batch() //nolint:staticcheck // the atomic batch
		for range 11 {
			b.Set(c.Collection("k").NewDoc(), fields{"x": strings.Repeat("x", 1_000_000)})
		}
		_, err := b.Commit(ctxOf(t))
		wantCode(t, err, codes.InvalidArgument)
	}, onlyOurs: "the emulator's transport rejects more than 4 MiB"},
	{name: "limit/an ID of 1,500 bytes is accepted", run: func(t *testing.T, c *gc.Client) {
		id := strings.Repeat("i", 1500)
		set(t, c, "k/"+id, fields{"x": 1})
		wantFields(t, c, "k/"+id, fields{"x": int64(1)})
	}},
	{name: "limit/an ID over 1,500 bytes returns InvalidArgument", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/"+strings.Repeat("i", 1501)).Set(ctxOf(t), fields{"x": 1})
		wantCode(t, err, codes.InvalidArgument)
	}},
	{name: "limit/an ID like __x__ returns InvalidArgument", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/__x__").Set(ctxOf(t), fields{"x": 1})
		wantCode(t, err, codes.InvalidArgument)
	}},
	{name: "limit/the IDs . and .. return InvalidArgument", run: func(t *testing.T, c *gc.Client) {
		for _, id := range []string{".", ".."} {
			_, err := c.Doc("k/"+id).Set(ctxOf(t), fields{"x": 1})
			wantCode(t, err, codes.InvalidArgument)
		}
	}},
	{name: "limit/a field like __x__ returns InvalidArgument", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/a").Set(ctxOf(t), fields{"__x__": 1})
		wantCode(t, err, codes.InvalidArgument)
	}},
	{name: "limit/20 levels of maps are accepted, 21 return InvalidArgument", run: func(t *testing.T, c *gc.Client) {
		nested := func(n int) fields {
			f := fields{"x": 1}
			for range n {
				f = fields{"m": f}
			}
			return f
		}
		set(t, c, "k/a", nested(19))
		_, err := c.Doc("k/b").Set(ctxOf(t), nested(21))
		wantCode(t, err, codes.InvalidArgument)
	}},
	{name: "limit/an array in an array returns InvalidArgument", run: func(t *testing.T, c *gc.Client) {
		_, err := c.Doc("k/a").Set(ctxOf(t), fields{"x": []any{[]any{1}}})
		wantCode(t, err, codes.InvalidArgument)
	}},
	{name: "limit/a filter value of 1,500 bytes or more returns InvalidArgument", run: func(t *testing.T, c *gc.Client) {
		wantQueryCode(t, c.Collection("k").Where("v", "==", strings.Repeat("x", 1500)), codes.InvalidArgument)
		wantIDs(t, c.Collection("k").Where("v", "==", strings.Repeat("x", 1499)), "")
	}},
}
