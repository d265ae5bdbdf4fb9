package firestoredb

import (
	"context"
	"io"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

// MeasureForTest records the metrics for a read that returns messages and for a commit with writes,
// as the interceptors do.
func MeasureForTest(writes []*pb.Write, messages ...any) {
	began, reads := time.Now(), 0
	for _, m := range messages {
		reads += readIn(m)
	}
	took("/google.firestore.v1.Firestore/BatchGetDocuments", began, io.EOF)
	read(reads)
	began = time.Now()
	took("/google.firestore.v1.Firestore/Commit", began, nil)
	wrote(writes)
}

// PeekAfterReadForTest runs the part of [DB.Peek] that follows after it has found no identity. It
// returns the id.
func (db *DB) PeekAfterReadForTest(ctx context.Context) (string, error) {
	d, err := db.nothingStored(firstContact{ctx}, db.Collection("installation").Doc("database"))
	return d.ID, err
}
