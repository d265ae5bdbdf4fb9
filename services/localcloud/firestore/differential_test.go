package firestore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/genproto/googleapis/type/latlng"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// A run has defaultOperations operations unless the environment says otherwise. operationsPerRound
// of them share a database.
const (
	defaultOperations  = 600
	operationsPerRound = 250
)

// emulator is shared by all tests in a run. TestMain stops it.
var emulator cloudtest.Emulator

// emulatorAddress returns the address of Google's emulator. The first call starts the emulator. If
// it is not installed, the test is skipped.
func emulatorAddress(t *testing.T) string {
	t.Helper()
	return emulator.Address(t, "TestConformance checks results that both servers returned earlier")
}

// startEmulator returns a connection to Google's emulator. It skips the test if the emulator is not
// installed.
func startEmulator(t *testing.T) pb.FirestoreClient {
	t.Helper()
	return dial(t, emulatorAddress(t))
}

func dial(tb testing.TB, addr string) pb.FirestoreClient {
	tb.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithPerRPCCredentials(owner{}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return pb.NewFirestoreClient(conn)
}

// owner is the credential with all permissions on Google's emulator.
type owner struct{}

func (owner) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + cloudtest.EmulatorToken}, nil
}

func (owner) RequireTransportSecurity() bool { return false }

// raw connects to a server without Google's client library because that library hides some
// responses.
func raw(tb testing.TB, s *firestore.Server) pb.FirestoreClient {
	tb.Helper()
	addr, err := s.Listen("127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return dial(tb, addr.String())
}

// TestDifferential runs the same random operations on this server and on Google's emulator and
// compares every response. LINKREEL_DIFFERENTIAL_OPERATIONS and LINKREEL_DIFFERENTIAL_SEED set the
// number of operations and the seed that selects them. The default seed is fixed, so an unrelated
// change never makes the test fail. If LINKREEL_FULL is set, five times as many operations run.
func TestDifferential(t *testing.T) {
	t.Parallel()
	theirs := startEmulator(t)
	server := open(t, firestore.Options{})
	firestore.IndexEverything(server) // so the test also covers the indexes
	ours := raw(t, server)
	byDefault := defaultOperations
	if os.Getenv("LINKREEL_FULL") != "" {
		byDefault *= 5
	}
	total := envInt(t, "LINKREEL_DIFFERENTIAL_OPERATIONS", byDefault)
	seed := uint64(envInt(t, "LINKREEL_DIFFERENTIAL_SEED", 1))
	t.Logf("running %d operations, LINKREEL_DIFFERENTIAL_SEED=%d", total, seed)
	known, kinds, errs, different := map[string]int{}, map[string]int{}, 0, 0
	for n := 0; n < total; n += operationsPerRound {
		d := newDifferential(seed+uint64(n), fmt.Sprintf("projects/p%d/databases/(default)", n), ours, theirs)
		for i := range operationsPerRound {
			op := d.operation()
			kinds[op.kind]++
			a, b := op.run(d, 0), op.run(d, 1)
			if a.code != codes.OK {
				errs++
			}
			diff := cmp.Diff(b, a, protocmp.Transform(), cmp.AllowUnexported(answer{}), cmpopts.EquateNaNs())
			if diff == "" {
				continue
			}
			if reason := op.known(a, b); reason != "" {
				known[reason]++
				continue
			}
			t.Errorf("operation %d in round %d: %s\n%s\nours %v %s, theirs %v %s\n(-emulator +ours)\n%s\nours:\n%s\ntheirs:\n%s", i, n, op.kind, op.text, a.code, a.message(), b.code, b.message(), diff, describe(a.docs...), describe(b.docs...))
			if different++; different == 10 {
				return
			}
			break // the two databases differ from here on
		}
	}
	t.Logf("operations by kind: %v; %d of them returned errors; known differences: %v", kinds, errs, known)
}

func envInt(tb testing.TB, name string, byDefault int) int {
	tb.Helper()
	s := os.Getenv(name)
	if s == "" {
		return byDefault
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		tb.Fatalf("%s is not a number: %v", name, err)
	}
	return n
}

// answer contains the response parts that can be compared. It records whether a time changed,
// not the time itself.
type answer struct {
	code   codes.Code
	docs   []*pb.Document
	values []*pb.Value
	names  []string
	moved  []bool
	err    *failure
}

// failure is the text of an error. It is logged but never compared.
type failure struct{ text string }

// Equal makes go-cmp ignore the text.
func (*failure) Equal(*failure) bool { return true }

func (a answer) message() string {
	if a.err == nil {
		return ""
	}
	return a.err.text
}

func failed(err error) answer {
	return answer{code: status.Code(err), err: &failure{err.Error()}}
}

// differential generates random operations on one database.
type differential struct {
	*rand.Rand
	database string
	clients  [2]pb.FirestoreClient
	updated  [2]map[string]*timestamppb.Timestamp // by document, for each server
}

func newDifferential(seed uint64, database string, clients ...pb.FirestoreClient) *differential {
	d := &differential{Rand: rand.New(rand.NewPCG(seed, 1)), database: database, clients: [2]pb.FirestoreClient(clients)}
	d.updated = [2]map[string]*timestamppb.Timestamp{{}, {}}
	return d
}

type operation struct {
	kind, text string
	run        func(d *differential, side int) answer
	known      func(ours, theirs answer) string
}

func (d *differential) operation() operation {
	var op operation
	switch n := d.IntN(100); {
	case n < 40:
		op = d.commit()
	case n < 75:
		op = d.query()
	case n < 83:
		op = d.aggregation()
	case n < 88:
		op = d.batchGet()
	case n < 91:
		op = d.list()
	case n < 93:
		op = d.batchWrite()
	default:
		op = d.transaction()
	}
	if op.known == nil {
		op.known = func(answer, answer) string { return "" }
	}
	return op
}

func pick[T any](d *differential, from ...T) T { return from[d.IntN(len(from))] }

var (
	fieldPool = []string{"a", "b", "c", "m", "m.x", "m.y", "m.z.q", "`w.e`", "`d-e`.f"}
	idPool    = []string{"1", "2", "10", "a", "B", "a!", "a b", "é", "😀", "~", "__id5__", "__id-7__"}
)

func (d *differential) root() string { return d.database + "/documents" }

func (d *differential) collection() string { return pick(d, "k", "k", "k", "l") }

func (d *differential) document() string {
	name := d.root() + "/" + d.collection() + "/" + pick(d, idPool...)
	for d.IntN(8) == 0 {
		name += "/" + d.collection() + "/" + pick(d, idPool[:4]...)
	}
	return name
}

func (d *differential) field() string { return pick(d, fieldPool...) }

func (d *differential) value(depth int) *pb.Value {
	n := 14
	if depth > 1 {
		n = 10
	}
	switch d.IntN(n) {
	case 0:
		return &pb.Value{ValueType: &pb.Value_NullValue{}}
	case 1:
		return &pb.Value{ValueType: &pb.Value_BooleanValue{BooleanValue: d.IntN(2) == 0}}
	case 2, 3:
		return integer(pick(d, int64(0), 1, -1, 2, 3, 1<<53, 1<<53+1, -(1<<53)-1, math.MaxInt64, math.MinInt64))
	case 4:
		return double(pick(d, 0, math.Copysign(0, -1), 1, 1.5, -2.5, 3, 1<<53, 0x1p63, -0x1p63, math.NaN(), math.Inf(1), math.Inf(-1), 5e-324))
	case 5:
		return stamp(pick(d, int64(0), 1, -1, 1_700_000_000), pick(d, int32(0), 1000, 1999, 999_999_999))
	case 6, 7:
		return text(pick(d, "", "a", "b", "B", "ab", "a\x00b", "é", "😀", "\uffff", "z"))
	case 8:
		return &pb.Value{ValueType: &pb.Value_BytesValue{BytesValue: []byte(pick(d, "", "a", "\x00", "\xff", "\x00\xff"))}}
	case 9:
		if d.IntN(2) == 0 {
			return &pb.Value{ValueType: &pb.Value_GeoPointValue{GeoPointValue: &latlng.LatLng{Latitude: pick(d, 0, 1.5, -90), Longitude: pick(d, 0, 180, -1.5)}}}
		}
		return &pb.Value{ValueType: &pb.Value_ReferenceValue{ReferenceValue: d.document()}}
	case 10, 11:
		var vs []*pb.Value
		for range d.IntN(3) {
			if v := d.value(depth + 1); v.GetArrayValue() == nil {
				vs = append(vs, v)
			}
		}
		return array(vs...)
	default:
		return mapOf(d.fields(depth + 1))
	}
}

func (d *differential) fields(depth int) map[string]*pb.Value {
	m := map[string]*pb.Value{}
	for range d.IntN(4) {
		m[pick(d, "a", "b", "c", "m", "x", "y", "z", "w.e", "d-e")] = d.value(depth)
	}
	return m
}

func (d *differential) write() (w *pb.Write, precondition string) {
	name := d.document()
	w = &pb.Write{}
	switch n := d.IntN(10); n {
	case 0:
		w.Operation = &pb.Write_Delete{Delete: name}
	case 1:
		w.Operation = &pb.Write_Transform{Transform: &pb.DocumentTransform{Document: name, FieldTransforms: d.transforms(1 + d.IntN(2))}}
	default:
		w.Operation = &pb.Write_Update{Update: &pb.Document{Name: name, Fields: d.fields(0)}}
		if n < 6 {
			w.UpdateMask = &pb.DocumentMask{}
			for range d.IntN(3) {
				if f := d.field(); !slices.ContainsFunc(w.UpdateMask.FieldPaths, func(o string) bool { return overlap(o, f) }) {
					w.UpdateMask.FieldPaths = append(w.UpdateMask.FieldPaths, f)
				}
			}
		}
		if d.IntN(4) == 0 {
			w.UpdateTransforms = d.transforms(1 + d.IntN(2))
		}
	}
	if d.IntN(5) == 0 {
		precondition = pick(d, "exists", "missing", "current", "stale")
	}
	return w, precondition
}

// overlap reports whether one path contains the other. The protocol forbids such a pair in a mask.
func overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+".") || strings.HasPrefix(b, a+".")
}

func (d *differential) transforms(n int) (out []*pb.DocumentTransform_FieldTransform) {
	for range n {
		t := &pb.DocumentTransform_FieldTransform{FieldPath: d.field()}
		number := pick(d, integer(1), integer(-3), integer(math.MaxInt64), integer(math.MinInt64), double(1.5), double(0), double(math.NaN()))
		switch d.IntN(5) {
		case 0:
			t.TransformType = &pb.DocumentTransform_FieldTransform_Increment{Increment: number}
		case 1:
			t.TransformType = &pb.DocumentTransform_FieldTransform_Maximum{Maximum: number}
		case 2:
			t.TransformType = &pb.DocumentTransform_FieldTransform_Minimum{Minimum: number}
		case 3:
			t.TransformType = &pb.DocumentTransform_FieldTransform_AppendMissingElements{AppendMissingElements: d.members(1 + d.IntN(3))}
		default:
			t.TransformType = &pb.DocumentTransform_FieldTransform_RemoveAllFromArray{RemoveAllFromArray: d.members(1 + d.IntN(3))}
		}
		out = append(out, t)
	}
	return out
}

func (d *differential) members(n int) *pb.ArrayValue {
	a := &pb.ArrayValue{}
	for len(a.Values) < n {
		if v := d.value(1); v.GetArrayValue() == nil {
			a.Values = append(a.Values, v)
		}
	}
	return a
}

// prepared sets a write's precondition for one server because update times differ between the
// servers.
func (d *differential) prepared(side int, w *pb.Write, precondition string) *pb.Write {
	w = proto.CloneOf(w)
	exists := func(b bool) *pb.Precondition {
		return &pb.Precondition{ConditionType: &pb.Precondition_Exists{Exists: b}}
	}
	at := func(t *timestamppb.Timestamp) *pb.Precondition {
		return &pb.Precondition{ConditionType: &pb.Precondition_UpdateTime{UpdateTime: t}}
	}
	switch precondition {
	case "exists":
		w.CurrentDocument = exists(true)
	case "missing":
		w.CurrentDocument = exists(false)
	case "current":
		if t := d.updated[side][target(w)]; t != nil {
			w.CurrentDocument = at(t)
		}
	case "stale":
		w.CurrentDocument = at(&timestamppb.Timestamp{Seconds: 1_600_000_000})
	}
	return w
}

func target(w *pb.Write) string {
	if w.GetUpdate() != nil {
		return w.GetUpdate().GetName()
	}
	return w.GetDelete() + w.GetTransform().GetDocument()
}

func (d *differential) commit() operation {
	var writes []*pb.Write
	var conditions []string
	for range 1 + d.IntN(3) {
		w, c := d.write()
		writes, conditions = append(writes, w), append(conditions, c)
	}
	return operation{
		kind: "commit", text: describe(writes...) + strings.Join(conditions, ","),
		run: func(d *differential, side int) answer {
			req := &pb.CommitRequest{Database: d.database}
			for i := range writes {
				req.Writes = append(req.Writes, d.prepared(side, writes[i], conditions[i]))
			}
			resp, err := d.clients[side].Commit(context.Background(), req)
			if err != nil {
				return failed(err)
			}
			a := answer{}
			d.note(side, &a, req.Writes, resp.GetWriteResults())
			return a
		},
	}
}

// note stores update times for later preconditions and records in the answer whether they changed.
func (d *differential) note(side int, a *answer, writes []*pb.Write, results []*pb.WriteResult) {
	for i, r := range results {
		name := target(writes[i])
		old := d.updated[side][name]
		a.moved = append(a.moved, !proto.Equal(old, r.GetUpdateTime()))
		a.values = append(a.values, r.GetTransformResults()...)
		if writes[i].GetDelete() != "" {
			delete(d.updated[side], name)
		} else {
			d.updated[side][name] = r.GetUpdateTime()
		}
	}
}

func (d *differential) batchWrite() operation {
	var writes []*pb.Write
	var conditions []string
	for range 1 + d.IntN(4) {
		w, c := d.write()
		if !slices.ContainsFunc(writes, func(o *pb.Write) bool { return target(o) == target(w) }) {
			writes, conditions = append(writes, w), append(conditions, c)
		}
	}
	return operation{
		kind: "batch write", text: describe(writes...),
		run: func(d *differential, side int) answer {
			req := &pb.BatchWriteRequest{Database: d.database}
			for i := range writes {
				req.Writes = append(req.Writes, d.prepared(side, writes[i], conditions[i]))
			}
			resp, err := d.clients[side].BatchWrite(context.Background(), req)
			if err != nil {
				return failed(err)
			}
			a := answer{}
			for i, st := range resp.GetStatus() {
				a.names = append(a.names, codes.Code(st.GetCode()).String())
				if st.GetCode() == 0 {
					d.note(side, &a, req.Writes[i:i+1], resp.GetWriteResults()[i:i+1])
				}
			}
			return a
		},
	}
}

func (d *differential) structured() *pb.StructuredQuery {
	q := &pb.StructuredQuery{From: []*pb.StructuredQuery_CollectionSelector{{CollectionId: d.collection(), AllDescendants: d.IntN(5) == 0}}}
	if d.IntN(4) > 0 {
		q.Where = d.filter(0)
	}
	for range max(0, d.IntN(4)-1) {
		q.OrderBy = append(q.OrderBy, &pb.StructuredQuery_Order{
			Field:     &pb.StructuredQuery_FieldReference{FieldPath: pick(d, "a", "b", "c", "m.x", "__name__")},
			Direction: pick(d, pb.StructuredQuery_ASCENDING, pb.StructuredQuery_DESCENDING),
		})
	}
	if d.IntN(3) == 0 {
		q.StartAt = d.cursor(q)
	}
	if d.IntN(4) == 0 {
		q.EndAt = d.cursor(q)
	}
	if d.IntN(3) == 0 {
		q.Limit = wrapperspb.Int32(int32(d.IntN(5)))
	}
	if d.IntN(6) == 0 {
		q.Offset = int32(d.IntN(3))
	}
	if d.IntN(5) == 0 {
		q.Select = &pb.StructuredQuery_Projection{}
		for range 1 + d.IntN(2) {
			q.Select.Fields = append(q.Select.Fields, &pb.StructuredQuery_FieldReference{FieldPath: pick(d, append([]string{"__name__"}, fieldPool...)...)})
		}
	}
	return q
}

// cursor returns a cursor with values for the query's explicit orders, sometimes one too few, and
// with a reference for the name.
func (d *differential) cursor(q *pb.StructuredQuery) *pb.Cursor {
	c := &pb.Cursor{Before: d.IntN(2) == 0}
	for _, o := range q.GetOrderBy() {
		if o.GetField().GetFieldPath() == "__name__" {
			c.Values = append(c.Values, d.reference(q))
			continue
		}
		c.Values = append(c.Values, d.value(0))
	}
	if len(c.Values) > 1 && d.IntN(4) == 0 {
		c.Values = c.Values[:len(c.Values)-1]
	}
	if len(c.Values) == 0 {
		return nil
	}
	return c
}

func (d *differential) reference(q *pb.StructuredQuery) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_ReferenceValue{
		ReferenceValue: d.root() + "/" + q.GetFrom()[0].GetCollectionId() + "/" + pick(d, idPool...),
	}}
}

func (d *differential) filter(depth int) *pb.StructuredQuery_Filter {
	if depth < 2 && d.IntN(3) == 0 {
		c := &pb.StructuredQuery_CompositeFilter{Op: pick(d, pb.StructuredQuery_CompositeFilter_AND, pb.StructuredQuery_CompositeFilter_AND, pb.StructuredQuery_CompositeFilter_OR)}
		for range 1 + d.IntN(3) {
			c.Filters = append(c.Filters, d.filter(depth+1))
		}
		return &pb.StructuredQuery_Filter{FilterType: &pb.StructuredQuery_Filter_CompositeFilter{CompositeFilter: c}}
	}
	f := &pb.StructuredQuery_FieldReference{FieldPath: pick(d, "a", "a", "b", "c", "m.x", "m")}
	if d.IntN(6) == 0 {
		return &pb.StructuredQuery_Filter{FilterType: &pb.StructuredQuery_Filter_UnaryFilter{UnaryFilter: &pb.StructuredQuery_UnaryFilter{
			Op:          pb.StructuredQuery_UnaryFilter_Operator(2 + d.IntN(4)),
			OperandType: &pb.StructuredQuery_UnaryFilter_Field{Field: f},
		}}}
	}
	op := pb.StructuredQuery_FieldFilter_Operator(1 + d.IntN(10))
	v := d.value(0)
	switch op {
	case pb.StructuredQuery_FieldFilter_IN, pb.StructuredQuery_FieldFilter_NOT_IN, pb.StructuredQuery_FieldFilter_ARRAY_CONTAINS_ANY:
		v = &pb.Value{ValueType: &pb.Value_ArrayValue{ArrayValue: d.members(1 + d.IntN(3))}}
	}
	return &pb.StructuredQuery_Filter{FilterType: &pb.StructuredQuery_Filter_FieldFilter{
		FieldFilter: &pb.StructuredQuery_FieldFilter{Field: f, Op: op, Value: v},
	}}
}

func (d *differential) query() operation {
	q := d.structured()
	return operation{
		kind: "query", text: describe(q),
		run: func(d *differential, side int) answer {
			return d.runQuery(side, &pb.RunQueryRequest{Parent: d.root(), QueryType: &pb.RunQueryRequest_StructuredQuery{StructuredQuery: q}})
		},
		known: func(ours, theirs answer) string { return knownQueryDifference(q, ours, theirs) },
	}
}

// knownQueryDifference returns the reason for a known difference, or "".
func knownQueryDifference(q *pb.StructuredQuery, ours, theirs answer) string {
	return ""
}

func (d *differential) runQuery(side int, req *pb.RunQueryRequest) answer {
	stream, err := d.clients[side].RunQuery(context.Background(), req)
	if err != nil {
		return failed(err)
	}
	a := answer{}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			return failed(err)
		}
		if r.GetDocument() != nil {
			a.docs = append(a.docs, timeless(r.GetDocument()))
		}
	}
}

// timeless removes the times because they differ between servers.
func timeless(d *pb.Document) *pb.Document {
	return &pb.Document{Name: d.GetName(), Fields: d.GetFields()}
}

func (d *differential) aggregation() operation {
	q := d.structured()
	q.Select = nil
	a := &pb.StructuredAggregationQuery{QueryType: &pb.StructuredAggregationQuery_StructuredQuery{StructuredQuery: q}}
	for i := range 1 + d.IntN(3) {
		x := &pb.StructuredAggregationQuery_Aggregation{Alias: "x" + strconv.Itoa(i)}
		f := &pb.StructuredQuery_FieldReference{FieldPath: pick(d, "a", "b", "m.x")}
		switch d.IntN(3) {
		case 0:
			count := &pb.StructuredAggregationQuery_Aggregation_Count{}
			if d.IntN(3) == 0 {
				count.UpTo = wrapperspb.Int64(int64(1 + d.IntN(4)))
			}
			x.Operator = &pb.StructuredAggregationQuery_Aggregation_Count_{Count: count}
		case 1:
			x.Operator = &pb.StructuredAggregationQuery_Aggregation_Sum_{Sum: &pb.StructuredAggregationQuery_Aggregation_Sum{Field: f}}
		default:
			x.Operator = &pb.StructuredAggregationQuery_Aggregation_Avg_{Avg: &pb.StructuredAggregationQuery_Aggregation_Avg{Field: f}}
		}
		a.Aggregations = append(a.Aggregations, x)
	}
	return operation{
		kind: "aggregation", text: describe(a),
		run: func(d *differential, side int) answer {
			stream, err := d.clients[side].RunAggregationQuery(context.Background(), &pb.RunAggregationQueryRequest{
				Parent: d.root(), QueryType: &pb.RunAggregationQueryRequest_StructuredAggregationQuery{StructuredAggregationQuery: a},
			})
			if err != nil {
				return failed(err)
			}
			r, err := stream.Recv()
			if err != nil {
				return failed(err)
			}
			out := answer{}
			for _, x := range a.GetAggregations() {
				out.values = append(out.values, r.GetResult().GetAggregateFields()[x.GetAlias()])
			}
			return out
		},
		known: func(ours, theirs answer) string { return knownQueryDifference(q, ours, theirs) },
	}
}

func (d *differential) batchGet() operation {
	var names []string
	for range 1 + d.IntN(5) {
		names = append(names, d.document())
	}
	var mask *pb.DocumentMask
	if d.IntN(3) == 0 {
		mask = &pb.DocumentMask{FieldPaths: []string{d.field()}}
	}
	return operation{
		kind: "batch get", text: fmt.Sprint(names, mask),
		run: func(d *differential, side int) answer {
			a := d.get(side, &pb.BatchGetDocumentsRequest{Database: d.database, Documents: names, Mask: mask})
			sortAnswer(&a)
			return a
		},
	}
}

// sortAnswer sorts responses whose order the protocol does not define.
func sortAnswer(a *answer) {
	slices.Sort(a.names)
	slices.SortFunc(a.docs, func(x, y *pb.Document) int { return strings.Compare(x.GetName(), y.GetName()) })
}

func (d *differential) get(side int, req *pb.BatchGetDocumentsRequest) answer {
	stream, err := d.clients[side].BatchGetDocuments(context.Background(), req)
	if err != nil {
		return failed(err)
	}
	a := answer{}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			return failed(err)
		}
		if r.GetFound() != nil {
			a.names = append(a.names, fmt.Sprint(r.GetFound().GetName(), " new: ", proto.Equal(r.GetFound().GetCreateTime(), r.GetFound().GetUpdateTime())))
			a.docs = append(a.docs, timeless(r.GetFound()))
		} else if r.GetMissing() != "" {
			a.names = append(a.names, r.GetMissing())
		}
	}
}

func (d *differential) list() operation {
	if d.IntN(2) == 0 {
		parent := d.root()
		if d.IntN(2) == 0 {
			parent = d.document()
		}
		return operation{kind: "list collections", text: parent, run: func(d *differential, side int) answer {
			r, err := d.clients[side].ListCollectionIds(context.Background(), &pb.ListCollectionIdsRequest{Parent: parent})
			if err != nil {
				return failed(err)
			}
			slices.Sort(r.GetCollectionIds())
			return answer{names: r.GetCollectionIds()}
		}}
	}
	req := &pb.ListDocumentsRequest{Parent: d.root(), CollectionId: d.collection(), ShowMissing: d.IntN(2) == 0, PageSize: int32(1 + d.IntN(20))}
	return operation{kind: "list documents", text: describe(req), run: func(d *differential, side int) answer {
		a := answer{}
		req := proto.CloneOf(req)
		for {
			r, err := d.clients[side].ListDocuments(context.Background(), req)
			if err != nil {
				return failed(err)
			}
			for _, x := range r.GetDocuments() {
				a.docs = append(a.docs, timeless(x))
			}
			if req.PageToken = r.GetNextPageToken(); req.PageToken == "" {
				return a
			}
		}
	}}
}

// transaction generates a sequence of calls in one transaction: begin, read, perhaps a concurrent
// write, commit or rollback, and perhaps another call after the transaction has ended.
func (d *differential) transaction() operation {
	readOnly, reads := d.IntN(4) == 0, []string{d.document(), d.document()}
	q := d.structured()
	useQuery := d.IntN(2) == 0
	w, condition := d.write()
	end := pick(d, "commit", "commit", "commit", "rollback", "commit twice", "commit after rollback")
	outside, _ := d.write() // a document that the transaction did not read
	interfere := !useQuery && !slices.Contains(reads, target(outside)) && d.IntN(3) == 0
	return operation{
		kind: "transaction", text: fmt.Sprintf("read only %v, %v, query %v %s, %s %s, %s, outside %v %s", readOnly, reads, useQuery, describe(q), describe(w), condition, end, interfere, describe(outside)),
		run: func(d *differential, side int) answer {
			options := &pb.TransactionOptions{}
			if readOnly {
				options.Mode = &pb.TransactionOptions_ReadOnly_{ReadOnly: &pb.TransactionOptions_ReadOnly{}}
			}
			c := d.clients[side]
			begun, err := c.BeginTransaction(context.Background(), &pb.BeginTransactionRequest{Database: d.database, Options: options})
			if err != nil {
				return failed(err)
			}
			id := begun.GetTransaction()
			a := d.get(side, &pb.BatchGetDocumentsRequest{Database: d.database, Documents: reads, ConsistencySelector: &pb.BatchGetDocumentsRequest_Transaction{Transaction: id}})
			sortAnswer(&a)
			if useQuery {
				r := d.runQuery(side, &pb.RunQueryRequest{
					Parent: d.root(), QueryType: &pb.RunQueryRequest_StructuredQuery{StructuredQuery: q},
					ConsistencySelector: &pb.RunQueryRequest_Transaction{Transaction: id},
				})
				a.docs = append(a.docs, r.docs...)
				a.names = append(a.names, r.code.String())
			}
			if interfere {
				writes := []*pb.Write{d.prepared(side, outside, "")}
				resp, err := c.Commit(context.Background(), &pb.CommitRequest{Database: d.database, Writes: writes})
				a.names = append(a.names, status.Code(err).String())
				d.note(side, &a, writes, resp.GetWriteResults())
			}
			writes := []*pb.Write{d.prepared(side, w, condition)}
			commit := func() {
				resp, err := c.Commit(context.Background(), &pb.CommitRequest{Database: d.database, Transaction: id, Writes: writes})
				a.names = append(a.names, status.Code(err).String())
				d.note(side, &a, writes, resp.GetWriteResults())
			}
			rollback := func() {
				_, err := c.Rollback(context.Background(), &pb.RollbackRequest{Database: d.database, Transaction: id})
				a.names = append(a.names, status.Code(err).String())
			}
			switch end {
			case "commit":
				commit()
			case "commit twice":
				commit()
				commit()
			case "rollback":
				rollback()
			default:
				rollback()
				commit()
			}
			// a failed commit may leave the transaction open and its locks held
			_, _ = c.Rollback(context.Background(), &pb.RollbackRequest{Database: d.database, Transaction: id})
			return a
		},
		known: func(ours, theirs answer) string {
			if useQuery {
				return knownQueryDifference(q, ours, theirs)
			}
			return ""
		},
	}
}

func describe[M proto.Message](ms ...M) string {
	var out []string
	for _, m := range ms {
		out = append(out, prototext.MarshalOptions{}.Format(m))
	}
	return strings.Join(out, "\n")
}

func integer(i int64) *pb.Value { return &pb.Value{ValueType: &pb.Value_IntegerValue{IntegerValue: i}} }

func double(f float64) *pb.Value { return &pb.Value{ValueType: &pb.Value_DoubleValue{DoubleValue: f}} }

func text(s string) *pb.Value { return &pb.Value{ValueType: &pb.Value_StringValue{StringValue: s}} }

func array(vs ...*pb.Value) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_ArrayValue{ArrayValue: &pb.ArrayValue{Values: vs}}}
}

func mapOf(m map[string]*pb.Value) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_MapValue{MapValue: &pb.MapValue{Fields: m}}}
}

func stamp(seconds int64, nanos int32) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_TimestampValue{TimestampValue: &timestamppb.Timestamp{Seconds: seconds, Nanos: nanos}}}
}
