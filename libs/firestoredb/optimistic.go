package firestoredb

import (
	"context"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"
)

// optimistic makes every transaction one that locks nothing and is aborted at
// commit if what it read has changed. The database's default is to lock what a
// transaction reads; a process killed in the middle then keeps everybody else
// from writing those documents until the server gives its transaction up, a
// minute later. The client library has no option for it.
func optimistic(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if begin, ok := req.(*pb.BeginTransactionRequest); ok {
		if rw := begin.GetOptions().GetReadWrite(); rw != nil {
			rw.ConcurrencyMode = pb.TransactionOptions_OPTIMISTIC
		} else if begin.GetOptions().GetReadOnly() == nil {
			begin.Options = &pb.TransactionOptions{Mode: &pb.TransactionOptions_ReadWrite_{
				ReadWrite: &pb.TransactionOptions_ReadWrite{ConcurrencyMode: pb.TransactionOptions_OPTIMISTIC},
			}}
		}
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}
