package firestore

import (
	"testing"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestAReadOnlyServerReadsAndChangesNothing(t *testing.T) {
	t.Parallel()
	indexes, err := ParseIndexes([]byte(`{"fieldOverrides": [{"collectionGroup": "c", "fieldPath": "until", "ttl": true, "indexes": []}]}`))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Options{Indexes: indexes, TTLInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := s.Client(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	doc := c.Collection("c").Doc("d")
	if _, err := doc.Set(t.Context(), map[string]any{"n": 1, "until": time.Now().Add(-time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetReadOnly(true); err != nil {
		t.Fatal(err)
	}
	// Call the service directly because the client would retry the call.
	_, err = (&service{Server: s}).Commit(t.Context(), &pb.CommitRequest{Database: "projects/p/databases/(default)", Writes: []*pb.Write{
		{Operation: &pb.Write_Delete{Delete: doc.Path}},
	}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a delete returned %v, want RESOURCE_EXHAUSTED", err)
	}
	if n, err := s.DeleteExpired(t.Context()); n != 0 || err != nil {
		t.Errorf("DeleteExpired deleted %d documents (error %v), want 0", n, err)
	}
	snap, err := doc.Get(t.Context())
	if err != nil || snap.Data()["n"] != int64(1) {
		t.Errorf("the document is %v (error %v), want n to be 1", snap.Data(), err)
	}
	if err := s.SetReadOnly(false); err != nil {
		t.Fatal(err)
	}
	if _, err := doc.Set(t.Context(), map[string]any{"n": 3}); err != nil {
		t.Errorf("a write after read-only mode ended returned %v, want no error", err)
	}
}
