package quota_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	local "github.com/linkreel/linkreel/services/localcloud/firestore"
)

func open(t *testing.T) (*firestoredb.DB, *local.Server) {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{})
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: "p", Endpoint: cloud.Endpoint, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, cloud.Firestore
}

var errFull = errors.New("full")

func add(ctx context.Context, db *firestoredb.DB, g *quota.Gate, l quota.Limit, id string) error {
	things := db.Collection("things")
	return db.Tx(ctx, "add", func(ctx context.Context, tx *firestore.Transaction) error {
		claim, err := g.Room(ctx, tx, l, 1, func(ctx context.Context) (int64, error) {
			found, err := things.NewAggregationQuery().WithCount("n").Get(ctx)
			if err != nil {
				return 0, err
			}
			return found["n"].(*firestorepb.Value).GetIntegerValue(), nil
		})
		if err != nil {
			return err
		}
		if !claim.Allows(1) {
			return errFull
		}
		if err := tx.Create(things.Doc(id), map[string]any{"x": 1}); err != nil {
			return err
		}
		return claim.Take(tx)
	})
}

func TestOfManyCreatesAtOnceExactlyTheAllowedOnesSucceed(t *testing.T) {
	t.Parallel()
	db, _ := open(t)
	gates := []*quota.Gate{quota.New(db, nil), quota.New(db, nil)} // two replicas
	var made, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			for { // losers of a race are told to come back; that is no refusal
				err := add(t.Context(), db, gates[i%2], quota.Limit{Account: "a", Kind: "things", Max: 5}, fmt.Sprint(i))
				switch {
				case err == nil:
					made.Add(1)
				case errors.Is(err, errFull):
					refused.Add(1)
				default:
					continue
				}
				return
			}
		})
	}
	wg.Wait()
	if made.Load() != 5 || refused.Load() != 35 {
		t.Errorf("%d made and %d refused, want 5 and 35", made.Load(), refused.Load())
	}
}

func TestFarFromTheLimitNothingIsSerialized(t *testing.T) {
	t.Parallel()
	db, server := open(t)
	g := quota.New(db, nil)
	if err := add(t.Context(), db, g, quota.Limit{Account: "a", Kind: "things"}, "free"); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := add(t.Context(), db, g, quota.Limit{Account: "a", Kind: "things", Max: 100, Margin: 50}, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if snap, err := quota.Ref(db, "a", "things").Get(t.Context()); snap == nil || snap.Exists() {
		t.Errorf("an account far from its limit has a document: %v, %v", snap, err)
	}
	if calls := server.Stats().Calls["RunAggregationQuery"]; calls != 1 {
		t.Errorf("%d counts for five creates, want 1", calls)
	}
}
