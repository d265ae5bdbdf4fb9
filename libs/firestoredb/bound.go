package firestoredb

import (
	"context"
	"time"

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
		return invoke(ctx, method, req, reply, cc, opts...)
	})
}

func (b bound) stream() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(unbegunStream, func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(b))
		s, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			cancel()
			return nil, err
		}
		context.AfterFunc(s.Context(), cancel) // which ends with the stream
		return s, nil
	})
}
