package firestore

import (
	"slices"
	"sort"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type fieldOp = pb.StructuredQuery_FieldFilter_Operator

// These are short names for the protocol's operators.
const (
	opLess             = pb.StructuredQuery_FieldFilter_LESS_THAN
	opLessOrEqual      = pb.StructuredQuery_FieldFilter_LESS_THAN_OR_EQUAL
	opGreater          = pb.StructuredQuery_FieldFilter_GREATER_THAN
	opGreaterOrEqual   = pb.StructuredQuery_FieldFilter_GREATER_THAN_OR_EQUAL
	opEqual            = pb.StructuredQuery_FieldFilter_EQUAL
	opNotEqual         = pb.StructuredQuery_FieldFilter_NOT_EQUAL
	opIn               = pb.StructuredQuery_FieldFilter_IN
	opNotIn            = pb.StructuredQuery_FieldFilter_NOT_IN
	opArrayContains    = pb.StructuredQuery_FieldFilter_ARRAY_CONTAINS
	opArrayContainsAny = pb.StructuredQuery_FieldFilter_ARRAY_CONTAINS_ANY
)

// field is a query's field path and its segments.
type field struct {
	raw  string
	path []string
}

func (f field) of(d *pb.Document) *pb.Value { return fieldOf(d, f.raw, f.path) }

type order struct {
	field
	desc bool
}

// filter is a node in the where clause. It is either a comparison on one field, or a list of
// children joined by AND or OR. A nil filter matches everything.
type filter struct {
	children []*filter
	or       bool

	field field
	unary pb.StructuredQuery_UnaryFilter_Operator // if 0, op and value apply
	op    fieldOp
	value *pb.Value
}

func (f *filter) isJunction() bool { return f.field.raw == "" }

// query is a validated StructuredQuery with its implicit orders made explicit.
type query struct {
	database   string
	parent     []string // path of the document or root under which the query reads
	collection string   // "" means every collection if group is set
	group      bool     // include collections at any depth

	where          *filter
	orders         []order // always contains __name__
	startAt, endAt *pb.Cursor
	offset         int
	limit          int // negative means no limit
	fields         []string

	// Validation and the index rules need these facts about the filters.
	inequalities []string
	equalities   []string
	notFilters   int
	hasNotIn     bool
	hasIn        bool
	hasOr        bool
	filtered     bool // there is a filter on a field other than the name
}

// compileQuery validates a query according to production's rules. The less obvious rules were found
// by running random queries against Google's emulator. A document that lacks one of the aggregated
// fields is not in the result.
func compileQuery(parent string, s *pb.StructuredQuery, aggregated ...string) (*query, error) {
	if s == nil {
		return nil, invalid("A structured query is required.")
	}
	database, path, err := splitParent(parent)
	if err != nil {
		return nil, err
	}
	if len(s.GetFrom()) != 1 {
		return nil, invalid("Exactly one collection selector is required.")
	}
	if s.GetFindNearest() != nil {
		return nil, status.Error(codes.Unimplemented, "Vector search is not supported by the local Firestore.")
	}
	q := &query{
		database: database, parent: path,
		collection: s.GetFrom()[0].GetCollectionId(), group: s.GetFrom()[0].GetAllDescendants(),
		startAt: s.GetStartAt(), endAt: s.GetEndAt(), offset: int(s.GetOffset()), limit: -1,
	}
	if q.collection == "" && !q.group {
		return nil, invalid("A collection id is required.")
	}
	if q.collection != "" {
		if err := checkID(q.collection); err != nil {
			return nil, err
		}
	}
	if s.GetLimit() != nil {
		q.limit = int(s.GetLimit().GetValue())
		if q.limit < 0 {
			return nil, invalid("limit is negative")
		}
	}
	if q.offset < 0 {
		return nil, invalid("offset is negative")
	}
	for _, f := range s.GetSelect().GetFields() {
		if _, err := parseFieldPath(f.GetFieldPath()); err != nil {
			return nil, err
		}
		q.fields = append(q.fields, f.GetFieldPath())
	}
	if err := q.compileWhere(s.GetWhere()); err != nil {
		return nil, err
	}
	if err := q.compileOrders(s.GetOrderBy(), aggregated); err != nil {
		return nil, err
	}
	for _, c := range []*pb.Cursor{q.startAt, q.endAt} {
		if c != nil && len(c.GetValues()) > len(q.orders) {
			return nil, invalid("Cursor has too many values.")
		}
	}
	return q, nil
}

func (q *query) compileWhere(f *pb.StructuredQuery_Filter) error {
	where, disjunctions, err := q.compileFilter(f, 0)
	if err != nil {
		return err
	}
	q.where = where
	switch {
	case q.hasNotIn && (q.hasIn || q.hasOr):
		return invalid("'NOT_IN' cannot be used in the same query with 'IN', 'ARRAY_CONTAINS_ANY' or 'OR'.")
	case arrayFilters(where) > 1:
		return invalid("A maximum of 1 'ARRAY_CONTAINS' filter is allowed per disjunction.")
	case disjunctions > maxDisjunctions:
		return invalid("'IN' and 'OR' supports up to %d disjunctions, got %d.", maxDisjunctions, disjunctions)
	case q.notFilters > 1:
		return invalid("Only a single 'NOT_EQUAL', 'NOT_IN', 'IS_NOT_NAN', or 'IS_NOT_NULL' filter allowed per query.")
	case slices.Contains(q.equalities, nameField) && len(q.inequalities) > 0 && !slices.Contains(q.inequalities, nameField):
		return invalid("Equality on key is not allowed if there are other inequality fields and key does not appear in inequalities.")
	}
	return nil
}

// compileOrders appends the implicit orders: the inequality fields, sorted by name, the aggregated
// fields, and then the document's name, in the direction of the last explicit order.
func (q *query) compileOrders(explicit []*pb.StructuredQuery_Order, aggregated []string) error {
	seen := map[string]bool{}
	desc := false
	add := func(raw string) error {
		path, err := parseFieldPath(raw)
		if err != nil {
			return err
		}
		if seen[nameField] {
			return invalid("order by clause cannot contain more fields after the key")
		}
		if seen[raw] {
			return invalid("order by clause cannot contain duplicate fields %s", raw)
		}
		seen[raw] = true
		q.orders = append(q.orders, order{field{raw, path}, desc})
		return nil
	}
	if q.descendingKeyScan(explicit) {
		return status.Error(codes.FailedPrecondition, "Firestore does not support descending key scans")
	}
	for _, o := range explicit {
		desc = o.GetDirection() == pb.StructuredQuery_DESCENDING
		if err := add(o.GetField().GetFieldPath()); err != nil {
			return err
		}
	}
	sort.Strings(q.inequalities)
	for _, raw := range q.inequalities {
		if raw == nameField || seen[raw] {
			continue // the name always comes last
		}
		if err := add(raw); err != nil {
			return err
		}
	}
	slices.Sort(aggregated)
	for _, raw := range append(aggregated, nameField) {
		if seen[raw] {
			continue
		}
		if err := add(raw); err != nil {
			return err
		}
	}
	return nil
}

// descendingKeyScan reports whether the query could only be answered by reading the documents in
// reverse order. If there is a filter on any field, an index can answer the query.
func (q *query) descendingKeyScan(explicit []*pb.StructuredQuery_Order) bool {
	for _, o := range explicit {
		if o.GetField().GetFieldPath() != nameField || o.GetDirection() != pb.StructuredQuery_DESCENDING {
			return false
		}
	}
	return len(explicit) > 0 && !q.filtered
}

// compileFilter also returns the number of disjunctions into which the filter expands.
func (q *query) compileFilter(f *pb.StructuredQuery_Filter, depth int) (*filter, int, error) {
	if depth > 100 {
		return nil, 0, invalid("The filter is nested too deeply.")
	}
	switch x := f.GetFilterType().(type) {
	case nil:
		return nil, 1, nil
	case *pb.StructuredQuery_Filter_CompositeFilter:
		return q.compileJunction(x.CompositeFilter, depth)
	case *pb.StructuredQuery_Filter_UnaryFilter:
		c, err := q.compileUnary(x.UnaryFilter)
		return c, 1, err
	case *pb.StructuredQuery_Filter_FieldFilter:
		return q.compileComparison(x.FieldFilter)
	}
	return nil, 0, invalid("Unknown filter.")
}

func (q *query) compileJunction(f *pb.StructuredQuery_CompositeFilter, depth int) (*filter, int, error) {
	out := &filter{or: f.GetOp() == pb.StructuredQuery_CompositeFilter_OR}
	total := 1
	if out.or {
		total, q.hasOr = 0, true
	} else if f.GetOp() != pb.StructuredQuery_CompositeFilter_AND {
		return nil, 0, invalid("A composite filter needs an operator.")
	}
	if len(f.GetFilters()) == 0 {
		return nil, 0, invalid("A composite filter needs at least one filter.")
	}
	for _, sub := range f.GetFilters() {
		c, n, err := q.compileFilter(sub, depth+1)
		if err != nil {
			return nil, 0, err
		}
		if c == nil {
			return nil, 0, invalid("A composite filter contains an empty filter.")
		}
		out.children = append(out.children, c)
		if out.or {
			total += n
		} else {
			total *= n
		}
		if total > 1000 { // well above the limit; stop before the product overflows
			return nil, 0, invalid("'IN' and 'OR' supports up to %d disjunctions.", maxDisjunctions)
		}
	}
	return out, total, nil
}

func (q *query) compileUnary(f *pb.StructuredQuery_UnaryFilter) (*filter, error) {
	raw := f.GetField().GetFieldPath()
	path, err := parseFieldPath(raw)
	if err != nil {
		return nil, err
	}
	q.filtered = q.filtered || raw != nameField
	switch f.GetOp() {
	case pb.StructuredQuery_UnaryFilter_IS_NOT_NULL, pb.StructuredQuery_UnaryFilter_IS_NOT_NAN:
		// These are equivalent to != null and != NaN and follow the rules of !=: the result is
		// sorted by the field, and a query may contain at most one of them.
		q.notFilters++
		q.inequalities = append(q.inequalities, raw)
	case pb.StructuredQuery_UnaryFilter_IS_NULL, pb.StructuredQuery_UnaryFilter_IS_NAN:
		q.equalities = append(q.equalities, raw)
	default:
		return nil, invalid("A unary filter needs an operator.")
	}
	return &filter{field: field{raw, path}, unary: f.GetOp()}, nil
}

func (q *query) compileComparison(f *pb.StructuredQuery_FieldFilter) (*filter, int, error) {
	raw := f.GetField().GetFieldPath()
	path, err := parseFieldPath(raw)
	if err != nil {
		return nil, 0, err
	}
	out := &filter{field: field{raw, path}, op: f.GetOp(), value: f.GetValue()}
	if out.value == nil {
		return nil, 0, invalid("A filter needs a value.")
	}
	if tooLongToQuery(out.value) {
		return nil, 0, invalid("value for %s is too large to be used in a query", raw)
	}
	q.filtered = q.filtered || raw != nameField
	members := len(f.GetValue().GetArrayValue().GetValues())
	switch f.GetOp() {
	case opEqual, opArrayContains:
		q.equalities = append(q.equalities, raw)
		return out, 1, nil
	case opIn, opArrayContainsAny:
		if members == 0 {
			return nil, 0, invalid("'%s' requires a non-empty ArrayValue.", f.GetOp())
		}
		q.equalities = append(q.equalities, raw)
		q.hasIn = true
		return out, members, nil
	case opNotIn:
		if members == 0 || members > 10 {
			return nil, 0, invalid("'NOT_IN' requires an ArrayValue of 1 to 10 values.")
		}
		q.notFilters++
		q.hasNotIn = true
	case opNotEqual:
		q.notFilters++
	case opLess, opLessOrEqual, opGreater, opGreaterOrEqual:
	default:
		return nil, 0, invalid("A field filter needs an operator.")
	}
	if !neverTrue(out) {
		q.inequalities = append(q.inequalities, raw)
	}
	return out, 1, nil
}

// tooLongToQuery reports whether a value is too long for an index entry. Production could not
// distinguish such values.
func tooLongToQuery(v *pb.Value) bool {
	return max(len(v.GetStringValue()), len(v.GetBytesValue())) >= maxIndexedBytes ||
		slices.ContainsFunc(v.GetArrayValue().GetValues(), tooLongToQuery)
}

// neverTrue reports whether f is a comparison with null or NaN that no value satisfies. In that
// case, the result need not be sorted by the compared field.
func neverTrue(f *filter) bool {
	null := kindOf(f.value) == kindNull
	switch f.op {
	case opLess, opLessOrEqual, opGreater, opGreaterOrEqual:
		return null || isNaN(f.value)
	case opNotEqual:
		return null
	case opNotIn:
		vs := f.value.GetArrayValue().GetValues()
		return len(vs) > 0 && !slices.ContainsFunc(vs, func(v *pb.Value) bool { return kindOf(v) != kindNull })
	}
	return false
}

// arrayFilters returns the largest number of array filters in one disjunction.
func arrayFilters(f *filter) int {
	if f == nil {
		return 0
	}
	if !f.isJunction() {
		if f.op == opArrayContains || f.op == opArrayContainsAny {
			return 1
		}
		return 0
	}
	n := 0
	for _, c := range f.children {
		if f.or {
			n = max(n, arrayFilters(c))
		} else {
			n += arrayFilters(c)
		}
	}
	return n
}

func (f *filter) matches(d *pb.Document) bool {
	if f == nil {
		return true
	}
	if f.isJunction() {
		for _, c := range f.children {
			if c.matches(d) == f.or {
				return f.or
			}
		}
		return !f.or
	}
	v := f.field.of(d)
	if v == nil {
		return false
	}
	switch f.unary {
	case pb.StructuredQuery_UnaryFilter_IS_NULL:
		return kindOf(v) == kindNull
	case pb.StructuredQuery_UnaryFilter_IS_NOT_NULL:
		return kindOf(v) != kindNull
	case pb.StructuredQuery_UnaryFilter_IS_NAN:
		return isNaN(v)
	case pb.StructuredQuery_UnaryFilter_IS_NOT_NAN:
		return kindOf(v) != kindNull && !isNaN(v)
	}
	return compareByOperator(v, f.op, f.value)
}

func equalValues(a, b *pb.Value) bool {
	return kindOf(a) == kindOf(b) && kindOf(a) != kindNull && !isNaN(a) && compareValues(a, b) == 0
}

func compareByOperator(v *pb.Value, op fieldOp, w *pb.Value) bool {
	// inequalities match only values of the same kind, and never null or NaN
	comparable := kindOf(v) == kindOf(w) && kindOf(v) != kindNull && !isNaN(v) && !isNaN(w)
	switch op {
	case opEqual:
		return equalValues(v, w)
	case opNotEqual:
		return kindOf(v) != kindNull && kindOf(w) != kindNull && !equalValues(v, w) // NaN differs from NaN
	case opLess:
		return comparable && compareValues(v, w) < 0
	case opLessOrEqual:
		return comparable && compareValues(v, w) <= 0
	case opGreater:
		return comparable && compareValues(v, w) > 0
	case opGreaterOrEqual:
		return comparable && compareValues(v, w) >= 0
	case opIn:
		return slices.ContainsFunc(w.GetArrayValue().GetValues(), func(e *pb.Value) bool { return equalValues(v, e) })
	case opNotIn:
		for _, e := range w.GetArrayValue().GetValues() {
			if kindOf(e) == kindNull || equalValues(v, e) {
				return false
			}
		}
		return kindOf(v) != kindNull
	case opArrayContains:
		return kindOf(w) != kindNull && containsValue(v.GetArrayValue().GetValues(), w)
	case opArrayContainsAny:
		return slices.ContainsFunc(w.GetArrayValue().GetValues(), func(e *pb.Value) bool {
			return kindOf(e) != kindNull && containsValue(v.GetArrayValue().GetValues(), e)
		})
	}
	return false
}

func containsValue(vs []*pb.Value, v *pb.Value) bool {
	return slices.ContainsFunc(vs, func(e *pb.Value) bool { return compareValues(e, v) == 0 })
}

// row is a document with the values that determine its position in the result.
type row struct {
	doc  *pb.Document
	keys []*pb.Value
}

// admit reports whether the document is in the result before limit and offset apply. A document
// that lacks a field in the order is not in the result.
func (q *query) admit(d *pb.Document) (row, bool) {
	if !q.where.matches(d) {
		return row{}, false
	}
	keys := make([]*pb.Value, len(q.orders))
	for i, o := range q.orders {
		if keys[i] = o.of(d); keys[i] == nil {
			return row{}, false
		}
	}
	return row{d, keys}, !q.beforeStart(keys) && !q.afterEnd(keys)
}

func (q *query) beforeStart(keys []*pb.Value) bool {
	if q.startAt == nil {
		return false
	}
	c := q.compareKeys(keys, q.startAt.GetValues())
	return c < 0 || c == 0 && !q.startAt.GetBefore()
}

func (q *query) afterEnd(keys []*pb.Value) bool {
	if q.endAt == nil {
		return false
	}
	c := q.compareKeys(keys, q.endAt.GetValues())
	return c > 0 || c == 0 && q.endAt.GetBefore()
}

func (q *query) compareKeys(a, b []*pb.Value) int {
	for i := range min(len(a), len(b)) {
		if c := compareValues(a[i], b[i]); c != 0 {
			if q.orders[i].desc {
				return -c
			}
			return c
		}
	}
	return 0
}

// covers reports whether the query reads a collection.
func (q *query) covers(path []string) bool {
	if len(path) < len(q.parent)+1 || !slices.Equal(path[:len(q.parent)], q.parent) {
		return false
	}
	if !q.group {
		return len(path) == len(q.parent)+1 && path[len(path)-1] == q.collection
	}
	return q.collection == "" || path[len(path)-1] == q.collection
}
