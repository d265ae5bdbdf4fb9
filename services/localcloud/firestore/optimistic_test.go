package firestore

import (
	"context"
	"testing"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

func TestATransactionThatAskedToBeOptimisticLocksNothing(t *testing.T) {
	t.Parallel()
	s, err := Open(Options{LockTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	client, err := s.Client(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	doc := client.Doc("a/b")
	if _, err := doc.Create(t.Context(), map[string]any{"x": 1}); err != nil {
		t.Fatal(err)
	}
	name := "projects/p/databases/(default)"
	for _, tc := range []struct {
		mode    pb.TransactionOptions_ConcurrencyMode
		blocked bool
	}{
		{pb.TransactionOptions_CONCURRENCY_MODE_UNSPECIFIED, true},
		{pb.TransactionOptions_OPTIMISTIC, false},
	} {
		t.Run(tc.mode.String(), func(t *testing.T) {
			calls := &service{Server: s}
			begun, err := calls.BeginTransaction(t.Context(), &pb.BeginTransactionRequest{Database: name, Options: &pb.TransactionOptions{
				Mode: &pb.TransactionOptions_ReadWrite_{ReadWrite: &pb.TransactionOptions_ReadWrite{ConcurrencyMode: tc.mode}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			tx, err := s.txs.lookup(begun.GetTransaction())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.locks.read(t.Context(), tx, name+"/documents/a/b"); err != nil {
				t.Fatal(err)
			}
			blocked, release := s.locks.write(context.Background(), nil, []string{name + "/documents/a/b"})
			release()
			s.locks.end(tx)
			if (len(blocked) > 0) != tc.blocked {
				t.Errorf("blocked = %v for another writer, want %v", blocked, tc.blocked)
			}
		})
	}
}
