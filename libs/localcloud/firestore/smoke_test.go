package firestore

import (
	gc "cloud.google.com/go/firestore"
	"context"
	"testing"
)

func TestSmoke(t *testing.T) {
	for _, path := range []string{"", t.TempDir() + "/x.db"} {
		s, err := Open(Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		c, err := s.Client(ctx, "p")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Doc("a/b").Create(ctx, map[string]any{"x": 1, "s": "t"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Doc("a/c").Create(ctx, map[string]any{"x": 2, "s": "t"}); err != nil {
			t.Fatal(err)
		}
		it, err := c.Collection("a").Where("x", ">", 0).OrderBy("x", gc.Desc).Limit(1).Documents(ctx).GetAll()
		if err != nil || len(it) != 1 || it[0].Ref.ID != "c" {
			t.Fatal(err, it)
		}
		err = c.RunTransaction(ctx, func(ctx context.Context, tx *gc.Transaction) error {
			d, err := tx.Get(c.Doc("a/b"))
			if err != nil {
				return err
			}
			_ = d
			return tx.Update(c.Doc("a/b"), []gc.Update{{Path: "x", Value: gc.Increment(3)}})
		})
		if err != nil {
			t.Fatal(err)
		}
		d, err := c.Doc("a/b").Get(ctx)
		if err != nil || d.Data()["x"] != int64(4) {
			t.Fatal(err, d)
		}
		sn, err := c.Doc("a/b").Snapshots(ctx).Next()
		if err != nil || !sn.Exists() {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
