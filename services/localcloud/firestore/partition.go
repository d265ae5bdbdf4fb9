package firestore

import (
	"context"
	"strconv"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

// PartitionQuery implements the protocol. It returns the names that split a collection group into
// parts of about the same size.
func (s *service) PartitionQuery(ctx context.Context, req *pb.PartitionQueryRequest) (*pb.PartitionQueryResponse, error) {
	q, err := compileQuery(req.GetParent(), req.GetStructuredQuery())
	if err != nil {
		return nil, err
	}
	switch {
	case !q.group || q.where != nil || q.limit >= 0 || q.offset > 0 || q.startAt != nil || q.endAt != nil:
		return nil, invalid("A partition query must read a whole collection group, without filters, limits, offsets or cursors.")
	case len(q.orders) != 1 || q.orders[0].desc:
		return nil, invalid("A partition query must be ordered by name, ascending.")
	case req.GetPartitionCount() <= 0:
		return nil, invalid("The number of partitions must be positive.")
	}
	r, err := s.startReading(partitionReading{req}, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	err = r.query(ctx, q, func(int64) {}, func(d *pb.Document) error {
		names = append(names, d.GetName())
		return nil
	})
	if err != nil {
		return nil, err
	}
	// n points create n+1 parts, none of which may be empty
	points := min(int(req.GetPartitionCount()), len(names)-1)
	from := 0
	if req.GetPageToken() != "" {
		if from, err = strconv.Atoi(req.GetPageToken()); err != nil || from < 0 {
			return nil, invalid("This server did not issue the page token.")
		}
	}
	out := &pb.PartitionQueryResponse{}
	for i := from; i < points; i++ {
		if n := int(req.GetPageSize()); n > 0 && len(out.Partitions) == n {
			out.NextPageToken = strconv.Itoa(i)
			break
		}
		name := names[(i+1)*len(names)/(points+1)]
		out.Partitions = append(out.Partitions, &pb.Cursor{Values: []*pb.Value{referenceValue(name)}, Before: true})
	}
	return out, nil
}

// partitionReading adds the GetTransaction method, which a partition query lacks.
type partitionReading struct{ *pb.PartitionQueryRequest }

func (partitionReading) GetTransaction() []byte { return nil }
