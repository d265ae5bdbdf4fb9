package firestoredb

import (
	"context"
	"io"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"
)

// MeasureForTest records the metrics for a read that returns messages and for a commit with writes,
// as the interceptors do.
func MeasureForTest(writes []*pb.Write, messages ...any) {
	stream := heardStream{ClientStream: &ending{left: len(messages)}, call: context.Background(), method: "/google.firestore.v1.Firestore/BatchGetDocuments", began: time.Now()}
	for _, m := range messages {
		_ = stream.RecvMsg(m)
	}
	_ = stream.RecvMsg(nil) // io.EOF
	took("/google.firestore.v1.Firestore/Commit", time.Now(), nil)
	wrote(writes)
}

// ending is a stream that ends after some messages.
type ending struct {
	grpc.ClientStream
	left int
}

func (e *ending) RecvMsg(any) error {
	if e.left--; e.left < 0 {
		return io.EOF
	}
	return nil
}

// PeekAfterReadForTest runs the rest of [DB.Peek] after it has found no identity. It returns the
// id.
func (db *DB) PeekAfterReadForTest(ctx context.Context) (string, error) {
	d, err := db.nothingStored(firstContact{ctx}, db.Collection("installation").Doc("database"))
	return d.ID, err
}
