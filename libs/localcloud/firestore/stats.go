package firestore

import (
	"context"
	"time"

	"google.golang.org/grpc"
)

type stats struct{}

func newStats(now func() time.Time) *stats { return &stats{} }

func (s *stats) committed(changes []change) {}

func (s *Server) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(ctx, req)
}

func (s *Server) interceptStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, ss)
}

func (s *store) openIndexes(*Indexes) error { return nil }

// DeleteExpired deletes expired documents.
func (s *Server) DeleteExpired(ctx context.Context) (int, error) { return 0, nil }
