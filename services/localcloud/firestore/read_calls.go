package firestore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// BeginTransaction implements the protocol.
func (s *service) BeginTransaction(_ context.Context, r *pb.BeginTransactionRequest) (*pb.BeginTransactionResponse, error) {
	id, err := s.begin(r.GetOptions())
	if err != nil {
		return nil, err
	}
	return &pb.BeginTransactionResponse{Transaction: id}, nil
}

func (s *Server) begin(o *pb.TransactionOptions) ([]byte, error) {
	now, err := s.now()
	if err != nil {
		return nil, err
	}
	_, id := s.txs.begin(o, now)
	return id, nil
}

// now returns the read time of the newest state.
func (s *Server) now() (int64, error) {
	var at int64
	err := s.store.read(latest, func(sn *snapshot) error {
		at = s.clock.readTime(sn.at)
		return nil
	})
	return at, err
}

// Rollback implements the protocol. It accepts an unknown transaction because the transaction may
// have expired.
func (s *service) Rollback(_ context.Context, r *pb.RollbackRequest) (*empty, error) {
	if t, err := s.txs.take(r.GetTransaction()); err == nil {
		s.locks.end(t)
	}
	return &empty{}, nil
}

// consistency contains the methods that all read requests share.
type consistency interface {
	GetTransaction() []byte
	GetReadTime() *timestamppb.Timestamp
}

// reading describes which state a call reads: the state of a transaction, the state at a given
// time, or the newest state.
type reading struct {
	s   *Server
	tx  *transaction
	new []byte // ID of a transaction that this call began
	at  int64
}

func (s *Server) startReading(c consistency, begin *pb.TransactionOptions) (*reading, error) {
	r := &reading{s: s, at: latest}
	id := c.GetTransaction()
	if begin != nil {
		var err error
		if r.new, err = s.begin(begin); err != nil {
			return nil, err
		}
		id = r.new
	}
	if len(id) > 0 {
		var err error
		if r.tx, err = s.txs.lookup(id); err != nil {
			return nil, err
		}
		if r.at, err = r.transactionTime(); err != nil {
			return nil, err
		}
	} else if t := c.GetReadTime(); t != nil {
		if t.GetNanos()%1000 != 0 {
			return nil, invalid("The read time must have microsecond precision.")
		}
		r.at = micros(t)
		now, err := s.now()
		if err != nil {
			return nil, err
		}
		if r.at > now {
			return nil, invalid("The read time cannot be in the future.")
		}
	}
	return r, nil
}

// transactionTime returns the time of the state that an optimistic transaction sees, which its
// first read determines. Other transactions see the newest commits. Their locks and the check at
// commit keep them consistent.
func (r *reading) transactionTime() (int64, error) {
	r.tx.mu.Lock()
	defer r.tx.mu.Unlock()
	if r.tx.readAt == 0 && (r.s.locks.mode == Optimistic || r.tx.optimistic) {
		now, err := r.s.now()
		if err != nil {
			return 0, err
		}
		r.tx.readAt = now
	}
	if r.tx.readAt == 0 {
		return latest, nil
	}
	return r.tx.readAt, nil
}

func (r *reading) locks() bool { return r.tx != nil && !r.tx.readOnly }

// readTime returns the time of a snapshot for the response.
func (r *reading) readTime(sn *snapshot) int64 {
	if r.at != latest {
		return r.at
	}
	return r.s.clock.readTime(sn.at)
}

// get reads one document in its own snapshot.
func (r *reading) get(ctx context.Context, name string) (d *pb.Document, at int64, err error) {
	if _, _, err := splitDocument(name); err != nil {
		return nil, 0, err
	}
	// Lock first, so in Pessimistic mode commits wait until the transaction has ended.
	if r.locks() {
		if err := r.s.locks.read(ctx, r.tx, name); err != nil {
			return nil, 0, err
		}
	}
	err = r.s.store.read(r.at, func(sn *snapshot) error {
		at = r.readTime(sn)
		d, err = sn.get(name)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	if r.locks() {
		err = r.remember(d, name)
	}
	return d, at, err
}

// remember records the version of a document that the transaction has seen. If the transaction sees
// two versions of one document, its commit cannot succeed, so the call fails immediately.
func (r *reading) remember(d *pb.Document, name string) error {
	r.tx.mu.Lock()
	defer r.tx.mu.Unlock()
	if old, ok := r.tx.reads[name]; ok && old != versionOf(d) {
		return errContention
	}
	r.tx.reads[name] = versionOf(d)
	return nil
}

// GetDocument implements the protocol.
func (s *service) GetDocument(ctx context.Context, req *pb.GetDocumentRequest) (*pb.Document, error) {
	if err := checkMask(req.GetMask()); err != nil {
		return nil, err
	}
	r, err := s.startReading(req, nil)
	if err != nil {
		return nil, err
	}
	d, _, err := r.get(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, status.Errorf(codes.NotFound, "Document not found: %s", req.GetName())
	}
	s.stats.read(1)
	return project(d, req.GetMask().GetFieldPaths()), nil
}

// BatchGetDocuments implements the protocol. It returns each document only once, even if it was
// requested twice: Google's client rejects a second response.
func (s *service) BatchGetDocuments(req *pb.BatchGetDocumentsRequest, stream pb.Firestore_BatchGetDocumentsServer) error {
	if err := checkMask(req.GetMask()); err != nil {
		return err
	}
	r, err := s.startReading(req, req.GetNewTransaction())
	if err != nil {
		return err
	}
	var out []*pb.BatchGetDocumentsResponse
	add := func(name string, d *pb.Document, at int64) {
		m := &pb.BatchGetDocumentsResponse{ReadTime: timestamp(at)}
		if len(out) == 0 {
			m.Transaction = r.new
		}
		if d == nil {
			m.Result = &pb.BatchGetDocumentsResponse_Missing{Missing: name}
		} else {
			m.Result = &pb.BatchGetDocumentsResponse_Found{Found: project(d, req.GetMask().GetFieldPaths())}
		}
		out = append(out, m)
	}
	if err := r.getAll(stream.Context(), req.GetDocuments(), add); err != nil {
		return err
	}
	if len(out) == 0 && r.new != nil {
		out = append(out, &pb.BatchGetDocumentsResponse{Transaction: r.new})
	}
	s.stats.read(len(out))
	for _, m := range out {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// getAll reads documents from one snapshot. If each document has to be locked first, it reads them
// one by one.
func (r *reading) getAll(ctx context.Context, names []string, add func(string, *pb.Document, int64)) error {
	var unique []string
	seen := map[string]bool{}
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			unique = append(unique, n)
		}
	}
	if r.locks() {
		for _, n := range unique {
			d, at, err := r.get(ctx, n)
			if err != nil {
				return err
			}
			add(n, d, at)
		}
		return nil
	}
	return r.s.store.read(r.at, func(sn *snapshot) error {
		at := r.readTime(sn)
		for _, n := range unique {
			d, err := sn.get(n)
			if err != nil {
				return err
			}
			add(n, d, at)
		}
		return nil
	})
}

// compile checks a query. If indexes are enforced, it also checks that production would have an
// index for the query.
func (s *Server) compile(parent string, sq *pb.StructuredQuery, aggregated ...string) (*query, error) {
	q, err := compileQuery(parent, sq, aggregated...)
	if err != nil || s.indexes == nil {
		return q, err
	}
	if missing := s.indexes.missingIndex(q); missing != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "The query requires an index: %s", missing)
	}
	return q, nil
}

// query runs q. It first calls start with the read time, then calls emit with each document in the
// result.
func (r *reading) query(ctx context.Context, q *query, start func(at int64), emit func(*pb.Document) error) error {
	if r.locks() {
		return r.lockingQuery(ctx, q, start, emit)
	}
	return r.s.indexed(q, r.at, func(sn *snapshot) error {
		start(r.readTime(sn))
		return r.s.store.run(sn, q, func(d *pb.Document) error {
			if err := ctx.Err(); err != nil {
				return status.FromContextError(err).Err()
			}
			return emit(d)
		})
	})
}

// indexed calls f, which runs q. If q needs an index that does not exist yet, indexed builds the
// index and calls f again. If building fails, for example because the disk is full, q runs without
// the index.
func (s *Server) indexed(q *query, at int64, f func(*snapshot) error) error {
	err := s.store.read(at, func(sn *snapshot) error {
		sn.strict = true
		return f(sn)
	})
	var wants *wantsIndex
	if !errors.As(err, &wants) {
		return err
	}
	if err := s.buildAdaptive(q.database, wants.defs); err != nil {
		slog.Warn("cannot build an index; queries run without it", "collection", q.collection, "error", err)
	}
	return s.store.read(at, f)
}

// lockingQuery locks the documents in the result. If any of them changed before it was locked,
// lockingQuery repeats the query.
func (r *reading) lockingQuery(ctx context.Context, q *query, start func(at int64), emit func(*pb.Document) error) error {
	var docs []*pb.Document
	var read queryRead
	var shown int64
	for range 3 {
		docs, read = nil, queryRead{query: q}
		sig := newSignature()
		err := r.s.indexed(q, r.at, func(sn *snapshot) error {
			read.at, shown = sn.at, r.readTime(sn)
			return r.s.store.run(sn, q, func(d *pb.Document) error {
				docs = append(docs, d)
				return sig.add(d)
			})
		})
		if err != nil {
			return err
		}
		read.signature = sig.String()
		for _, d := range docs {
			if err := r.s.locks.read(ctx, r.tx, d.GetName()); err != nil {
				return err
			}
		}
		if r.at != latest || !r.s.store.history.touched(read.at, q.mayHold) {
			break
		}
	}
	r.tx.mu.Lock()
	r.tx.queries = append(r.tx.queries, read)
	r.tx.mu.Unlock()
	start(shown)
	for _, d := range docs {
		if err := emit(d); err != nil {
			return err
		}
	}
	return nil
}

// RunQuery implements the protocol. Even an empty result needs one response, with the read time.
func (s *service) RunQuery(req *pb.RunQueryRequest, stream pb.Firestore_RunQueryServer) error {
	q, err := s.compile(req.GetParent(), req.GetStructuredQuery())
	if err != nil {
		return err
	}
	s.stats.queried(q.collection)
	r, err := s.startReading(req, req.GetNewTransaction())
	if err != nil {
		return err
	}
	if r.new != nil {
		if err := stream.Send(&pb.RunQueryResponse{Transaction: r.new}); err != nil {
			return err
		}
	}
	var at *timestamppb.Timestamp
	sent := 0
	err = r.query(stream.Context(), q, func(us int64) { at = timestamp(us) }, func(d *pb.Document) error {
		sent++
		return stream.Send(&pb.RunQueryResponse{Document: project(d, q.fields), ReadTime: at})
	})
	s.stats.read(sent)
	if err != nil || sent > 0 {
		return err
	}
	return stream.Send(&pb.RunQueryResponse{ReadTime: at})
}

// RunAggregationQuery implements the protocol.
func (s *service) RunAggregationQuery(req *pb.RunAggregationQueryRequest, stream pb.Firestore_RunAggregationQueryServer) error {
	a := req.GetStructuredAggregationQuery()
	g, err := newAggregator(a.GetAggregations())
	if err != nil {
		return err
	}
	q, err := s.compile(req.GetParent(), a.GetStructuredQuery(), g.fields()...)
	if err != nil {
		return err
	}
	s.stats.queried(q.collection)
	r, err := s.startReading(req, req.GetNewTransaction())
	if err != nil {
		return err
	}
	at, counted, err := r.count(q, g)
	if err == nil && !counted {
		err = r.query(stream.Context(), q, func(us int64) { at = us }, func(d *pb.Document) error {
			g.add(d)
			return nil
		})
	}
	if err != nil {
		return err
	}
	return stream.Send(&pb.RunAggregationQueryResponse{
		Transaction: r.new, ReadTime: timestamp(at), Result: &pb.AggregationResult{AggregateFields: g.result()},
	})
}

// count computes g from an index alone. ok is false if that is not possible.
func (r *reading) count(q *query, g *aggregator) (at int64, ok bool, err error) {
	if r.locks() || len(g.fields()) > 0 {
		return 0, false, nil
	}
	err = r.s.indexed(q, r.at, func(sn *snapshot) (err error) {
		at = r.readTime(sn)
		g.rows, ok, err = r.s.store.count(sn, q)
		return err
	})
	return at, ok, err
}

// ListCollectionIds implements the protocol. It lists a collection as long as the collection, or
// one nested in it, contains a document.
func (s *service) ListCollectionIds(_ context.Context, req *pb.ListCollectionIdsRequest) (*pb.ListCollectionIdsResponse, error) { //nolint:revive // the protocol's name
	database, parent, err := splitParent(req.GetParent())
	if err != nil {
		return nil, err
	}
	out := &pb.ListCollectionIdsResponse{}
	err = s.store.read(latest, func(sn *snapshot) error {
		p := sn.partition(database)
		if p.colls == nil {
			return nil
		}
		below := appendSegments(nil, parent)
		after := req.GetPageToken()
		c := p.colls.Cursor()
		for k, _ := c.Seek(below); k != nil && bytes.HasPrefix(k, below); {
			path, _ := decodeSegments(k[len(below):])
			id := path[0]
			if compareSegments(id, after) > 0 || after == "" {
				if n := int(req.GetPageSize()); n > 0 && len(out.CollectionIds) == n {
					out.NextPageToken = out.CollectionIds[n-1]
					break
				}
				out.CollectionIds = append(out.CollectionIds, id)
			}
			k, _ = c.Seek(append(appendSegments(slices.Clone(below), path[:1]), 0xff)) // skip everything under this collection
		}
		return nil
	})
	return out, err
}

// ListDocuments implements the protocol.
func (s *service) ListDocuments(ctx context.Context, req *pb.ListDocumentsRequest) (*pb.ListDocumentsResponse, error) {
	if o := req.GetOrderBy(); o != "" && o != nameField {
		return nil, status.Error(codes.Unimplemented, "The local Firestore lists documents by name only; run a query to sort them.")
	}
	if err := checkMask(req.GetMask()); err != nil {
		return nil, err
	}
	sq := &pb.StructuredQuery{From: []*pb.StructuredQuery_CollectionSelector{{CollectionId: req.GetCollectionId()}}}
	if req.GetPageToken() != "" {
		sq.StartAt = &pb.Cursor{Values: []*pb.Value{referenceValue(req.GetPageToken())}}
	}
	n := int(req.GetPageSize())
	if n > 0 {
		sq.Limit = wrapperspb.Int32(int32(n) + 1) // read one more document to see whether there is another page
	}
	q, err := compileQuery(req.GetParent(), sq)
	if err != nil {
		return nil, err
	}
	r, err := s.startReading(req, nil)
	if err != nil {
		return nil, err
	}
	out := &pb.ListDocumentsResponse{}
	add := func(d *pb.Document) error {
		out.Documents = append(out.Documents, project(d, req.GetMask().GetFieldPaths()))
		return nil
	}
	if err := r.query(ctx, q, func(int64) {}, add); err != nil {
		return nil, err
	}
	if req.GetShowMissing() {
		if err := s.addMissing(r.at, q, req.GetPageToken(), out); err != nil {
			return nil, err
		}
	}
	if n > 0 && len(out.GetDocuments()) > n {
		out.Documents = out.GetDocuments()[:n]
		out.NextPageToken = out.GetDocuments()[n-1].GetName()
	}
	s.stats.read(len(out.GetDocuments()))
	return out, nil
}

// addMissing adds the names of missing documents that have subcollections with documents.
func (s *Server) addMissing(at int64, q *query, after string, out *pb.ListDocumentsResponse) error {
	there := map[string]bool{}
	for _, d := range out.GetDocuments() {
		there[d.GetName()] = true
	}
	return s.store.read(at, func(sn *snapshot) error {
		for _, name := range sn.parents(q) {
			if there[name] || after != "" && compareNames(name, after) <= 0 {
				continue
			}
			d, err := sn.get(name) // the document may be on a later page
			if err != nil {
				return err
			}
			if d == nil {
				out.Documents = append(out.Documents, &pb.Document{Name: name})
			}
		}
		slices.SortFunc(out.Documents, func(a, b *pb.Document) int { return compareNames(a.GetName(), b.GetName()) })
		return nil
	})
}

// parents returns the names in the query's collection that have documents under them. A document
// with such a name may or may not exist.
func (sn *snapshot) parents(q *query) []string {
	p := sn.partition(q.database)
	if p.colls == nil {
		return nil
	}
	var out []string
	collection := append(slices.Clone(q.parent), q.collection)
	below := appendSegments(nil, collection)
	c := p.colls.Cursor()
	for k, _ := c.Seek(append(slices.Clone(below), endOfPath+1)); k != nil && bytes.HasPrefix(k, below); {
		path, _ := decodeSegments(k[len(below):])
		out = append(out, joinName(q.database, append(slices.Clone(collection), path[0])))
		k, _ = c.Seek(append(appendSegments(slices.Clone(below), path[:1]), 0xff))
	}
	return out
}
