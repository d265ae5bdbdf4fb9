package firestore

import (
	"context"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

type empty = emptypb.Empty

// Commit implements the protocol. When it returns, either all writes are on disk or none are.
func (s *service) Commit(ctx context.Context, r *pb.CommitRequest) (*pb.CommitResponse, error) {
	size, err := requestSize(r)
	if err != nil {
		return nil, err
	}
	var t *transaction
	if len(r.GetTransaction()) > 0 {
		if t, err = s.txs.take(r.GetTransaction()); err != nil {
			return nil, err
		}
		defer s.locks.end(t)
		if t.readOnly && len(r.GetWrites()) > 0 {
			return nil, invalid("Cannot modify entities in a read-only transaction.")
		}
	}
	req := &commitRequest{writes: r.GetWrites(), size: size, tx: t}
	if err := s.commit(ctx, req); err != nil {
		return nil, err
	}
	return &pb.CommitResponse{WriteResults: req.results, CommitTime: timestamp(req.at)}, nil
}

// commit waits for the locks and then for the disk. A submitted commit is completed even if ctx is
// done.
func (s *Server) commit(ctx context.Context, req *commitRequest) error {
	names, err := checkWrites(req.writes)
	if err != nil {
		return err
	}
	blocked, release := s.locks.write(ctx, req.tx, names)
	defer release()
	if len(blocked) > 0 {
		if err := ctx.Err(); err != nil {
			return status.FromContextError(err).Err()
		}
		return errLockTimeout
	}
	s.writer.submit(req)
	<-req.done
	return req.err
}

// BatchWrite implements the protocol. Each write succeeds or fails independently.
func (s *service) BatchWrite(ctx context.Context, r *pb.BatchWriteRequest) (*pb.BatchWriteResponse, error) {
	size, err := requestSize(r)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(r.GetWrites()))
	reqs := make([]*commitRequest, len(r.GetWrites()))
	seen := map[string]bool{}
	for i, w := range r.GetWrites() {
		reqs[i] = &commitRequest{writes: []*pb.Write{w}, size: size / len(r.GetWrites())}
		if names[i], err = checkWrite(w); err != nil {
			return nil, err // an invalid write fails the whole request
		}
		if seen[names[i]] {
			return nil, invalid("A document cannot be written more than once in one BatchWrite: %s", names[i])
		}
		seen[names[i]] = true
	}
	blocked, release := s.locks.write(ctx, nil, names)
	defer release()
	var submitted []*commitRequest
	for i, req := range reqs {
		if blocked[names[i]] {
			req.err = errLockTimeout
			continue
		}
		submitted = append(submitted, req)
	}
	s.writer.submit(submitted...)
	for _, req := range submitted {
		<-req.done
	}
	out := &pb.BatchWriteResponse{}
	for _, req := range reqs {
		st, result := status.Convert(req.err), &pb.WriteResult{}
		if req.err == nil {
			result = req.results[0]
		}
		out.WriteResults = append(out.WriteResults, result)
		out.Status = append(out.Status, &rpcstatus.Status{Code: int32(st.Code()), Message: st.Message()})
	}
	return out, nil
}
