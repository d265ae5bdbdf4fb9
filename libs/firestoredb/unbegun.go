package firestoredb

import (
	"context"
	"errors"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"
)

// unbegunKey marks the context of a [DB.Commit].
type unbegunKey struct{}

func isUnbegun(ctx context.Context) bool { return ctx.Value(unbegunKey{}) != nil }

// errUnbegun is for a read that would not be of the transaction it was meant for.
var errUnbegun = errors.New("read in a commit that only writes")

// unbegun leaves out the call that begins a transaction when nothing will be read in
// it: a commit without a transaction is as atomic. The client library has no other
// way to such a commit but its deprecated batches.
func unbegun(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if isUnbegun(ctx) {
		switch req.(type) {
		case *pb.BeginTransactionRequest, *pb.RollbackRequest:
			return nil // the answer stays empty, and an empty id means no transaction
		}
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// unbegunStream refuses the reads, which all are streams.
func unbegunStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if isUnbegun(ctx) {
		return nil, errUnbegun
	}
	return open(ctx, desc, cc, method, opts...)
}
