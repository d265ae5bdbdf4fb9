package firestoredb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	firestore "cloud.google.com/go/firestore/apiv1"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/linkreel/linkreel/libs/outage"
)

// Documents reads and writes documents in their wire format. It is for programs that copy a whole
// database. Unlike [DB], it neither converts values nor checks the database's format. It retries
// failed calls until Patience has passed without progress.
type Documents struct {
	// Database is the database's name: projects/…/databases/….
	Database string
	// Patience is how long calls are retried while the database is unreachable; 0 means five
	// minutes.
	Patience time.Duration

	client *firestore.Client
}

// Limits for one commit. Firestore accepts 500 writes and 10 MiB, but index entries may count
// towards the 10 MiB. Firestore's documentation also recommends smaller commits for steady loads.
const (
	MaxWrites      = 250
	maxCommitBytes = 3 << 20
)

// OpenDocuments returns a Documents without waiting for the server. cfg.Timeout bounds each
// request.
func OpenDocuments(ctx context.Context, cfg Config) (*Documents, error) {
	opts, database, err := dial(cfg)
	if err != nil {
		return nil, err
	}
	client, err := firestore.NewClient(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("open firestore: %w", err)
	}
	return &Documents{Database: "projects/" + cfg.Project + "/databases/" + database, client: client}, nil
}

// Close closes the connection.
func (d *Documents) Close() error { return d.client.Close() }

// Name returns the full name of the document at a path such as "links/lnk_1".
func (d *Documents) Name(path string) string { return d.Database + "/documents/" + path }

// in adds the headers that Google uses to route a request to the database. The client library that
// [DB] uses adds the same headers.
func (d *Documents) in(ctx context.Context) context.Context {
	name := strings.Split(d.Database, "/")
	return metadata.AppendToOutgoingContext(ctx, "google-cloud-resource-prefix", d.Database,
		"x-goog-request-params", fmt.Sprintf("project_id=%s&database_id=%s", url.QueryEscape(name[1]), url.QueryEscape(name[3])))
}

// Get reads one document. It returns nil if the document does not exist.
func (d *Documents) Get(ctx context.Context, path string) (found *pb.Document, err error) {
	err = d.patiently(ctx, func() (bool, error) {
		found, err = d.client.GetDocument(d.in(ctx), &pb.GetDocumentRequest{Name: d.Name(path)}, once)
		if status.Code(err) == codes.NotFound {
			found, err = nil, nil
		}
		return err == nil, err
	})
	return found, err
}

// Each calls fn for the first limit documents in the database in name order, or for all documents
// if limit is 0. Documents may change while Each runs, so the result is not a consistent snapshot.
func (d *Documents) Each(ctx context.Context, limit int, fn func(*pb.Document) error) error {
	var last string
	read := 0
	return d.patiently(ctx, func() (moved bool, err error) {
		// A selector without a collection matches all documents, at any depth.
		q := &pb.StructuredQuery{
			From:    []*pb.StructuredQuery_CollectionSelector{{AllDescendants: true}},
			OrderBy: []*pb.StructuredQuery_Order{{Field: &pb.StructuredQuery_FieldReference{FieldPath: "__name__"}, Direction: pb.StructuredQuery_ASCENDING}},
		}
		if last != "" { // Firestore ends a query after a minute, so resume after the last document
			q.StartAt = &pb.Cursor{Values: []*pb.Value{{ValueType: &pb.Value_ReferenceValue{ReferenceValue: last}}}}
		}
		if limit > 0 {
			q.Limit = wrapperspb.Int32(int32(limit - read))
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop() // stops the stream if fn fails
		s, err := d.client.RunQuery(d.in(ctx), &pb.RunQueryRequest{
			Parent: d.Database + "/documents", QueryType: &pb.RunQueryRequest_StructuredQuery{StructuredQuery: q},
		}, once)
		for err == nil {
			var r *pb.RunQueryResponse
			if r, err = s.Recv(); err != nil || r.GetDocument() == nil {
				continue
			}
			if e := fn(r.GetDocument()); e != nil {
				return true, final{e}
			}
			last, moved = r.GetDocument().GetName(), true
			read++
		}
		if errors.Is(err, io.EOF) || limit > 0 && read == limit {
			return true, nil
		}
		return moved, err
	})
}

// Commit applies writes in order, in as many commits as their size requires. Each commit is atomic.
// If the response to a commit is lost, Commit sends the commit again, so the writes must be
// idempotent. They must use document names from this database.
func (d *Documents) Commit(ctx context.Context, writes ...*pb.Write) error {
	for len(writes) > 0 {
		n, size := 0, 0
		for n < len(writes) && n < MaxWrites && (n == 0 || size+proto.Size(writes[n]) <= maxCommitBytes) {
			size += proto.Size(writes[n])
			n++
		}
		if err := d.commit(ctx, writes[:n]); err != nil {
			return err
		}
		writes = writes[n:]
	}
	return nil
}

func (d *Documents) commit(ctx context.Context, writes []*pb.Write) error {
	err := d.patiently(ctx, func() (bool, error) {
		_, err := d.client.Commit(d.in(ctx), &pb.CommitRequest{Database: d.Database, Writes: writes}, once)
		return err == nil, err
	})
	// Index entries count too, so a commit may be too large even if its documents are not.
	if status.Code(err) == codes.InvalidArgument && len(writes) > 1 {
		half := len(writes) / 2
		return errors.Join(d.commit(ctx, writes[:half]), d.commit(ctx, writes[half:]))
	}
	if err != nil && len(writes) == 1 {
		w := writes[0]
		return fmt.Errorf("write %s: %w", cmp.Or(w.GetUpdate().GetName(), w.GetDelete()), err)
	}
	return err
}

// once turns off the client's own retries because patiently retries instead.
var once = gax.WithRetry(func() gax.Retryer { return nil })

// final marks an error that a retry cannot fix.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// patiently calls try until it succeeds, its error is final, or Patience has passed without
// progress. try also reports whether it made progress, even if it failed afterwards.
func (d *Documents) patiently(ctx context.Context, try func() (moved bool, err error)) error {
	patience := d.Patience
	if patience == 0 {
		patience = 5 * time.Minute
	}
	end, most := time.Now().Add(patience), 100*time.Millisecond
	for {
		moved, err := try()
		if err == nil {
			return nil
		}
		if moved {
			end, most = time.Now().Add(patience), 100*time.Millisecond
		}
		if f := (final{}); errors.As(err, &f) {
			return f.error
		}
		if !passing(status.Code(err)) || time.Now().After(end) {
			return err
		}
		// Firestore asks clients that write too fast to use exponential backoff.
		if !outage.Pause(ctx, most/2+rand.N(most)) {
			return errors.Join(ctx.Err(), err)
		}
		most = min(2*most, 20*time.Second)
	}
}

// passing reports whether a request that failed with code may succeed if it is retried.
func passing(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.ResourceExhausted, codes.Aborted, codes.DeadlineExceeded, codes.Internal, codes.Unknown:
		return true
	}
	return false
}
