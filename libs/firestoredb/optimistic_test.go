package firestoredb_test

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	local "github.com/linkreel/linkreel/services/localcloud/firestore"
)

func TestATransactionThatStallsKeepsNobodyFromWriting(t *testing.T) {
	t.Parallel()
	server, err := local.Open(local.Options{LockTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	addr, err := server.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: "p", Endpoint: addr.String(), Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Identity(t.Context()); err != nil {
		t.Fatal(err)
	}
	doc := db.Doc("a/b")
	if _, err := doc.Create(t.Context(), map[string]any{"n": 0}); err != nil {
		t.Fatal(err)
	}
	tries := 0
	err = db.Tx(t.Context(), "count", func(ctx context.Context, tx *firestore.Transaction) error {
		tries++
		snap, err := tx.Get(doc)
		if err != nil {
			return err
		}
		if tries == 1 { // another writer commits during the first attempt
			if _, err := doc.Update(t.Context(), []firestore.Update{{Path: "n", Value: 10}}); err != nil {
				return err
			}
		}
		return tx.Update(doc, []firestore.Update{{Path: "n", Value: snap.Data()["n"].(int64) + 1}})
	})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := doc.Get(t.Context())
	if err != nil || snap.Data()["n"] != int64(11) || tries != 2 {
		t.Errorf("n = %v after %d attempts, error %v; want 11 after 2 attempts, because the first attempt must abort and the other write must not", snap.Data()["n"], tries, err)
	}
}
