package firestoredb

import (
	"context"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"
)

// bound ends every call after a time, whoever makes it. [DB.Do] gives its calls a
// deadline already. This is for the call that somebody makes without Do: the
// client library's own defaults are one minute for a write and five for a query,
// and a handler that waits so long holds its caller's connection as well.
type bound time.Duration

func (b bound) unary() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(unbegun, optimistic, func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(b)) // an earlier deadline stays
		defer cancel()
		c, commit := req.(*pb.CommitRequest)
		try := func() error { return hear(ctx, commit, invoke(ctx, method, req, reply, cc, opts...)) }
		if commit && len(c.GetTransaction()) == 0 {
			return again(ctx, try) // it read nothing, so that the same writes may be sent again
		}
		return try()
	})
}

func (b bound) stream() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(unbegunStream, func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(b))
		s, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			cancel()
			return nil, hear(ctx, false, err)
		}
		context.AfterFunc(s.Context(), cancel) // which ends with the stream
		return heardStream{s, func(err error) error { return hear(ctx, false, err) }}, nil
	})
}
