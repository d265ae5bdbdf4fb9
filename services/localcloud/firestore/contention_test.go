package firestore_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	gc "cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

const database = "projects/linkreel/databases/(default)"

// session makes the individual calls of a transaction, which client libraries hide.
type session struct {
	t *testing.T
	pb.FirestoreClient
	server *firestore.Server
}

func newSession(t *testing.T, o firestore.Options) *session {
	s := open(t, o)
	return &session{t, raw(t, s), s}
}

func (s *session) begin() []byte {
	s.t.Helper()
	r, err := s.BeginTransaction(ctxOf(s.t), &pb.BeginTransactionRequest{Database: database})
	must(s.t, err)
	return r.GetTransaction()
}

func (s *session) read(tx []byte, id string) error {
	req := getRequest(id)
	if tx != nil {
		req.ConsistencySelector = &pb.GetDocumentRequest_Transaction{Transaction: tx}
	}
	_, err := s.GetDocument(ctxOf(s.t), req)
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

func getRequest(id string) *pb.GetDocumentRequest {
	return &pb.GetDocumentRequest{Name: database + "/documents/k/" + id}
}

// find runs a query for up to two documents with n == 1 and returns the size of the result.
func (s *session) find(tx []byte) (n int) {
	s.t.Helper()
	stream, err := s.RunQuery(ctxOf(s.t), &pb.RunQueryRequest{
		Parent:              database + "/documents",
		ConsistencySelector: &pb.RunQueryRequest_Transaction{Transaction: tx},
		QueryType: &pb.RunQueryRequest_StructuredQuery{StructuredQuery: &pb.StructuredQuery{
			From:  []*pb.StructuredQuery_CollectionSelector{{CollectionId: "k"}},
			Limit: wrapperspb.Int32(2),
			Where: &pb.StructuredQuery_Filter{FilterType: &pb.StructuredQuery_Filter_FieldFilter{FieldFilter: &pb.StructuredQuery_FieldFilter{
				Field: &pb.StructuredQuery_FieldReference{FieldPath: "n"}, Op: pb.StructuredQuery_FieldFilter_EQUAL, Value: integer(1),
			}}},
		}},
	})
	must(s.t, err)
	for {
		r, err := stream.Recv()
		if err != nil {
			return n
		}
		if r.GetDocument() != nil {
			n++
		}
	}
}

func (s *session) write(tx []byte, id string, n int64) error {
	_, err := s.Commit(ctxOf(s.t), &pb.CommitRequest{Database: database, Transaction: tx, Writes: []*pb.Write{{
		Operation: &pb.Write_Update{Update: &pb.Document{Name: database + "/documents/k/" + id, Fields: map[string]*pb.Value{"n": integer(n)}}},
	}}})
	return err
}

func TestContention(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		mode firestore.Mode
		run  func(t *testing.T, s *session)
	}{
		{"pessimistic: a write waits for a transaction that read the document and is then Aborted", firestore.Pessimistic, func(t *testing.T, s *session) {
			tx := s.begin()
			must(t, s.read(tx, "a"))
			start := time.Now()
			wantCode(t, s.write(nil, "a", 1), codes.Aborted)
			if took := time.Since(start); took < 50*time.Millisecond {
				t.Errorf("the write was Aborted after %v, want at least 50 ms", took)
			}
			must(t, s.write(tx, "a", 2))
			must(t, s.write(nil, "a", 3))
		}},
		{"pessimistic: plain reads do not wait", firestore.Pessimistic, func(t *testing.T, s *session) {
			tx := s.begin()
			must(t, s.read(tx, "a"))
			must(t, s.read(nil, "a"))
		}},
		{"pessimistic: other documents are not locked", firestore.Pessimistic, func(t *testing.T, s *session) {
			tx := s.begin()
			must(t, s.read(tx, "a"))
			must(t, s.write(nil, "b", 1))
		}},
		{"pessimistic: a deadlock aborts one of two transactions immediately", firestore.Pessimistic, func(t *testing.T, s *session) {
			one, two := s.begin(), s.begin()
			must(t, s.read(one, "a"))
			must(t, s.read(two, "a"))
			errs := make(chan error, 2)
			var wg sync.WaitGroup
			for _, tx := range [][]byte{one, two} {
				wg.Go(func() { errs <- s.write(tx, "a", 1) })
			}
			wg.Wait()
			first, second := <-errs, <-errs
			if (first == nil) == (second == nil) {
				t.Errorf("the transactions returned %v and %v, want one success", first, second)
			}
		}},
		{"pessimistic: a rollback releases waiting writes", firestore.Pessimistic, func(t *testing.T, s *session) {
			tx := s.begin()
			must(t, s.read(tx, "a"))
			_, err := s.Rollback(ctxOf(t), &pb.RollbackRequest{Database: database, Transaction: tx})
			must(t, err)
			must(t, s.write(nil, "a", 1))
			wantCode(t, s.write(tx, "a", 2), codes.InvalidArgument)
		}},
		{"pessimistic: the results of a query are locked", firestore.Pessimistic, func(t *testing.T, s *session) {
			must(t, s.write(nil, "a", 1))
			tx := s.begin()
			wantEqual(t, s.find(tx), 1)
			wantCode(t, s.write(nil, "a", 2), codes.Aborted)
			must(t, s.write(tx, "b", 2))
		}},
		{"pessimistic: a write that would change a query's result aborts the transaction", firestore.Pessimistic, func(t *testing.T, s *session) {
			tx := s.begin()
			wantEqual(t, s.find(tx), 0)
			must(t, s.write(nil, "a", 1))
			wantCode(t, s.write(tx, "b", 2), codes.Aborted)
		}},
		{"pessimistic: an idle transaction expires", firestore.Pessimistic, func(t *testing.T, s *session) {
			tx := s.begin()
			must(t, s.read(tx, "a"))
			firestore.ExpireTransactions(s.server, time.Hour)
			must(t, s.write(nil, "a", 1))
			wantCode(t, s.read(tx, "a"), codes.InvalidArgument)
		}},
		{"optimistic: a write does not wait, and the transaction is Aborted", firestore.Optimistic, func(t *testing.T, s *session) {
			tx := s.begin()
			must(t, s.read(tx, "a"))
			must(t, s.write(nil, "a", 1))
			wantCode(t, s.write(tx, "a", 2), codes.Aborted)
		}},
		{"optimistic: creating a document that was read as missing aborts the transaction", firestore.Optimistic, func(t *testing.T, s *session) {
			tx := s.begin()
			must(t, s.read(tx, "a"))
			must(t, s.write(nil, "a", 1))
			wantCode(t, s.write(tx, "b", 2), codes.Aborted)
		}},
		{"optimistic: a write that would change a query's result aborts the transaction", firestore.Optimistic, func(t *testing.T, s *session) {
			tx := s.begin()
			wantEqual(t, s.find(tx), 0)
			must(t, s.write(nil, "a", 1))
			wantCode(t, s.write(tx, "b", 2), codes.Aborted)
		}},
		{"optimistic: all reads see a consistent state", firestore.Optimistic, func(t *testing.T, s *session) {
			tx := s.begin()
			must(t, s.read(tx, "other"))
			must(t, s.write(nil, "a", 1))
			wantEqual(t, s.find(tx), 0)
		}},
		{"fast: a second reader waits for the first transaction", firestore.Fast, func(t *testing.T, s *session) {
			one, two := s.begin(), s.begin()
			must(t, s.read(one, "a"))
			read := make(chan error, 1)
			go func() { read <- s.read(two, "a") }()
			must(t, s.write(one, "a", 1))
			must(t, <-read)
			must(t, s.write(two, "a", 2))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			timeout := 100 * time.Millisecond
			if tt.mode == firestore.Fast {
				timeout = 10 * time.Second
			}
			tt.run(t, newSession(t, firestore.Options{Mode: tt.mode, LockTimeout: timeout}))
		})
	}
}

// TestContentionLosesNoIncrement lets concurrent callers increment one document in transactions
// through Google's client, in every mode.
func TestContentionLosesNoIncrement(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]firestore.Mode{"pessimistic": firestore.Pessimistic, "optimistic": firestore.Optimistic, "fast": firestore.Fast} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, firestore.Options{Path: filepath.Join(t.TempDir(), "data.db"), Mode: mode})
			c := client(t, s)
			set(t, c, "k/a", fields{"n": 0})
			callers, each := 4, 5
			if mode == firestore.Fast {
				callers, each = 8, 50
			}
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range each {
						if err := c.RunTransaction(context.Background(), addOne(c), gc.MaxAttempts(100)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			wantFields(t, c, "k/a", fields{"n": int64(callers * each)})
			t.Logf("%d transactions were aborted", s.Stats().Errors[codes.Aborted])
		})
	}
}
