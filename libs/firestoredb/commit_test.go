package firestoredb_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/firestoredb"
	local "github.com/linkreel/linkreel/services/localcloud/firestore"
)

func openTest(t *testing.T) (*firestoredb.DB, *local.Server) {
	t.Helper()
	db, server := openWithin(t, 20*time.Second)
	server.ResetStats()
	return db, server
}

func create(refs ...*firestore.DocumentRef) func(context.Context, *firestore.Transaction) error {
	return func(_ context.Context, tx *firestore.Transaction) error {
		for _, ref := range refs {
			if err := tx.Create(ref, map[string]any{"n": 1}); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestACommitIsOneCallAndAllOrNothing(t *testing.T) {
	t.Parallel()
	db, server := openTest(t)
	a, b, c := db.Doc("k/a"), db.Doc("k/b"), db.Doc("k/c")
	if err := db.Commit(t.Context(), "create", create(a, b)); err != nil {
		t.Fatal(err)
	}
	if calls := server.Stats().Calls; calls["Commit"] != 1 || calls["BeginTransaction"] != 0 {
		t.Errorf("calls = %v, want one Commit", calls)
	}
	if err := db.Commit(t.Context(), "create", create(c, a)); !errors.Is(err, firestoredb.ErrExists) || errors.Is(err, firestoredb.ErrUncertain) {
		t.Errorf("Commit for an existing document: got %v, want ErrExists without ErrUncertain", err)
	}
	if calls := server.Stats().Calls; calls["Rollback"] != 0 {
		t.Errorf("calls = %v, want no Rollback, because no transaction was begun", calls)
	}
	snaps, err := db.GetAll(t.Context(), []*firestore.DocumentRef{a, b, c})
	if err != nil || !snaps[0].Exists() || !snaps[1].Exists() || snaps[2].Exists() {
		t.Errorf("GetAll = %v, %v; want only the two documents from the first commit", snaps, err)
	}
}

// If the first attempt was committed, the error says that the document exists and that the caller
// may have written it. The caller must read the document to find out.
func TestACommitWhoseAnswerIsLostIsSentAgain(t *testing.T) {
	t.Parallel()
	db, server := openTest(t)
	server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Times: 1, LoseAnswer: true, Code: codes.Unavailable})
	if err := db.Commit(t.Context(), "create", create(db.Doc("k/a"))); !errors.Is(err, firestoredb.ErrExists) || !errors.Is(err, firestoredb.ErrUncertain) {
		t.Errorf("got %v, want ErrExists and ErrUncertain", err)
	}
}

func TestACommitThatLosesARaceIsTriedAgain(t *testing.T) {
	t.Parallel()
	db, server := openTest(t)
	server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Times: 1, Code: codes.Aborted})
	if err := db.Commit(t.Context(), "create", create(db.Doc("k/a"))); err != nil {
		t.Error(err)
	}
}

// A value read in a Commit could change before the commit.
func TestACommitRefusesToRead(t *testing.T) {
	t.Parallel()
	db, server := openTest(t)
	for name, read := range map[string]func(tx *firestore.Transaction) error{
		"document": func(tx *firestore.Transaction) error { _, err := tx.Get(db.Doc("k/a")); return err },
		"query":    func(tx *firestore.Transaction) error { _, err := tx.Documents(db.Collection("k")).GetAll(); return err },
	} {
		err := db.Commit(t.Context(), "read", func(_ context.Context, tx *firestore.Transaction) error { return read(tx) })
		if err == nil {
			t.Errorf("reading a %s in a Commit succeeded, want an error", name)
		}
	}
	if calls := server.Stats().Calls; len(calls) != 0 {
		t.Errorf("calls = %v, want none", calls)
	}
}

func TestATransactionIsBegun(t *testing.T) {
	t.Parallel()
	db, server := openTest(t)
	if err := db.Tx(t.Context(), "create", create(db.Doc("k/a"))); err != nil {
		t.Fatal(err)
	}
	if calls := server.Stats().Calls; calls["BeginTransaction"] != 1 {
		t.Errorf("calls = %v, want one BeginTransaction", calls)
	}
}
