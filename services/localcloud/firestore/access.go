package firestore

import (
	"bytes"
	"slices"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	bolt "go.etcd.io/bbolt"
)

// This file finds the documents for a query. The query's filter is expanded into disjunctions. Each
// disjunction is answered from one index or by scanning the documents, which are sorted by name.
// The results are then merged. Every document that an index yields is checked again against the
// full query, so an index may yield too many documents but never too few. The documents arrive in
// the query's order only if access.ordered is set.

// conjunction is one of the alternatives that a query joins with OR. All of its comparisons must be
// true.
type conjunction struct {
	equal    map[string]*pb.Value
	contains map[string]*pb.Value
	ranges   []*filter
}

// disjunctions expands the filter. Validation has already limited the number of disjunctions.
func (q *query) disjunctions() []conjunction {
	var out []conjunction
	for _, leaves := range expand(q.where) {
		c := conjunction{equal: map[string]*pb.Value{}, contains: map[string]*pb.Value{}}
		for _, f := range leaves {
			c.add(f)
		}
		out = append(out, c)
	}
	return out
}

func (c *conjunction) add(f *filter) {
	switch {
	case f.unary == pb.StructuredQuery_UnaryFilter_IS_NULL:
		c.equal[f.field.raw] = nullValue()
	case f.unary == pb.StructuredQuery_UnaryFilter_IS_NAN:
		c.equal[f.field.raw] = nanValue
	case f.unary != 0:
	case f.op == opEqual:
		c.equal[f.field.raw] = f.value
	case f.op == opArrayContains:
		c.contains[f.field.raw] = f.value
	case f.op == opLess, f.op == opLessOrEqual, f.op == opGreater, f.op == opGreaterOrEqual:
		c.ranges = append(c.ranges, f)
	}
}

// expand converts the filter to disjunctive form. IN is equivalent to several EQUALs.
func expand(f *filter) [][]*filter {
	if f == nil {
		return [][]*filter{nil}
	}
	if !f.isJunction() {
		return expandLeaf(f)
	}
	if f.or {
		var out [][]*filter
		for _, c := range f.children {
			out = append(out, expand(c)...)
		}
		return out
	}
	out := [][]*filter{nil}
	for _, c := range f.children {
		var next [][]*filter
		for _, left := range out {
			for _, right := range expand(c) {
				next = append(next, append(slices.Clone(left), right...))
			}
		}
		out = next
	}
	return out
}

func expandLeaf(f *filter) [][]*filter {
	var op fieldOp
	switch f.op {
	case opIn:
		op = opEqual
	case opArrayContainsAny:
		op = opArrayContains
	default:
		return [][]*filter{{f}}
	}
	var out [][]*filter
	seen := map[string]bool{}
	for _, v := range f.value.GetArrayValue().GetValues() {
		if key := string(appendValue(nil, v)); !seen[key] {
			seen[key] = true
			out = append(out, []*filter{{field: f.field, op: op, value: v}})
		}
	}
	return out
}

// access is a range of keys in one index.
type access struct {
	index   *indexDef // nil means the documents themselves
	entries *bolt.Bucket
	prefix  []byte
	// from and to bound the keys. Each bound includes every key with this prefix. If a bound is
	// nil, only the prefix limits the keys on that side.
	from, to []byte
	reverse  bool
	ordered  bool     // yields documents in the query's order
	merged   [][]byte // for an index on members, a document must have an entry under each prefix
	bound    int      // the number of equalities that the access uses
	ranged   bool
}

func (a *access) score() int {
	n := 4 * a.bound
	if a.ranged {
		n += 2
	}
	if a.ordered {
		n++
	}
	return n
}

// accesses chooses an access for each disjunction. wanted lists better indexes that are worth
// building.
func (s *store) accesses(sn *snapshot, q *query) (list []*access, wanted []*indexDef) {
	p := sn.partition(q.database)
	if p.docs == nil {
		return nil, nil
	}
	large := -1 // unknown
	for _, c := range q.disjunctions() {
		if a := s.memberAccess(p, q, c); a != nil {
			list = append(list, a)
			continue
		}
		best := s.bestAccess(p, q, c)
		if best == nil { // a collection group without a suitable index
			for _, prefix := range p.group(q.parent, q.collection) {
				list = append(list, &access{entries: p.docs, prefix: prefix})
			}
		} else {
			list = append(list, best)
		}
		ideal := q.idealIndex(c)
		if ideal == nil || best != nil && best.ordered && best.bound == len(c.equal)+len(c.contains) {
			continue
		}
		if large < 0 {
			large = 0
			if p.holdsMoreThan(q, s.adaptive) && len(s.indexes.list(q.database, q.collection)) < maxAdaptive+len(s.indexes.declared) {
				large = 1
			}
		}
		if large == 1 && !slices.ContainsFunc(wanted, func(x *indexDef) bool { return bytes.Equal(x.id, ideal.id) }) {
			wanted = append(wanted, ideal)
		}
	}
	return list, wanted
}

func (p *partition) holdsMoreThan(q *query, n int64) bool {
	collections := [][]byte{collectionKey(append(slices.Clone(q.parent), q.collection))}
	if q.group {
		collections = p.group(q.parent, q.collection)
	}
	for _, key := range collections {
		if n -= p.count(key); n < 0 {
			return true
		}
	}
	return false
}

// idealIndex returns the index that would answer a disjunction without reading any other document.
// It returns nil if the order of the documents by name is sufficient.
func (q *query) idealIndex(c conjunction) *indexDef {
	if q.collection == "" || q.where == nil && q.limit < 0 || c.equal[nameField] != nil {
		return nil
	}
	x := Index{CollectionGroup: q.collection, QueryScope: scopeCollection}
	if q.group {
		x.QueryScope = scopeGroup
	}
	for _, f := range sortedKeys(c.equal) {
		x.Fields = append(x.Fields, IndexField{FieldPath: f, Order: ascending})
	}
	for _, f := range sortedKeys(c.contains) {
		x.Fields = append(x.Fields, IndexField{FieldPath: f, ArrayConfig: contains})
	}
	for _, o := range q.sortedFields(c) {
		direction := ascending
		if o.desc {
			direction = descending
		}
		if _, both := c.contains[o.raw]; both {
			return nil // ARRAY_CONTAINS combined with an order on the same field is too rare
		}
		x.Fields = append(x.Fields, IndexField{FieldPath: o.raw, Order: direction})
	}
	if len(x.Fields) == 0 || len(x.Fields) > 10 {
		return nil
	}
	d, err := newIndexDef(adaptiveIndex, x)
	if err != nil {
		return nil
	}
	return d
}

// sortedFields returns the orders that still need sorting within a disjunction. It omits fields
// with an equality. The list ends with the name, which is unique.
func (q *query) sortedFields(c conjunction) []order {
	var out []order
	for _, o := range q.orders {
		if o.raw == nameField {
			break
		}
		if c.equal[o.raw] == nil {
			out = append(out, o)
		}
	}
	return out
}

func (q *query) nameDesc() bool {
	i := slices.IndexFunc(q.orders, func(o order) bool { return o.raw == nameField })
	return q.orders[i].desc
}

func (s *store) bestAccess(p *partition, q *query, c conjunction) *access {
	var best *access
	if !q.group {
		best = q.scanAccess(p, c)
		if c.equal[nameField] != nil {
			return best // at most one document
		}
	}
	for _, x := range s.indexes.list(q.database, q.collection) {
		if x.group && !q.group || !x.group && q.group {
			continue
		}
		b := p.indexes.Bucket(x.id)
		if b == nil || x.ofMembers() { // memberAccess tries the indexes on members
			continue
		}
		if a := q.indexAccess(x, b, c); a != nil && (best == nil || a.score() > best.score()) {
			best = a
		}
	}
	return best
}

// memberAccess merges the indexes on several members of one map, as production merges single-field
// indexes. Each index sorts its documents by name, so the walker can find the documents that are in
// all of them by skipping ahead in each index. memberAccess returns nil if the query does not
// compare such members for equality, or if it needs a different order.
func (s *store) memberAccess(p *partition, q *query, c conjunction) *access {
	if q.group || q.nameDesc() || len(q.sortedFields(c)) > 0 || c.equal[nameField] != nil {
		return nil
	}
	for _, x := range s.indexes.list(q.database, q.collection) {
		b := p.indexes.Bucket(x.id)
		if b == nil || !x.ofMembers() || b.Sequence() > 0 {
			continue
		}
		a := q.scanAccess(p, c) // sets the bounds on the name
		a.index, a.entries = x, b
		for _, raw := range sortedKeys(c.equal) {
			path, err := parseFieldPath(raw)
			if err != nil || len(path) != len(x.fields[0].path)+1 || !slices.Equal(path[:len(path)-1], x.fields[0].path) {
				continue
			}
			if prefix, cut := x.memberPrefix(slices.Clone(a.prefix), path[len(path)-1], c.equal[raw]); !cut {
				a.merged = append(a.merged, prefix)
			}
		}
		if len(a.merged) > 0 {
			a.bound = len(a.merged)
			return a
		}
	}
	return nil
}

// scanAccess returns an access that reads the whole collection, which is sorted by name.
func (q *query) scanAccess(p *partition, c conjunction) *access {
	a := &access{
		entries: p.docs, prefix: collectionKey(append(slices.Clone(q.parent), q.collection)),
		ordered: len(q.sortedFields(c)) == 0, reverse: q.nameDesc(),
	}
	id := func(v *pb.Value) []byte {
		_, path, err := splitDocument(v.GetReferenceValue())
		if err != nil || !q.covers(path[:len(path)-1]) {
			return nil
		}
		return appendSegments(slices.Clone(a.prefix), path[len(path)-1:])
	}
	if v := c.equal[nameField]; v != nil {
		if k := id(v); k != nil {
			a.from, a.to, a.bound = k, k, 1
		}
		return a
	}
	for _, f := range c.ranges {
		if f.field.raw != nameField {
			continue
		}
		k := id(f.value)
		if k == nil {
			continue
		}
		a.ranged = true
		if f.op == opLess || f.op == opLessOrEqual {
			a.until(k)
		} else {
			a.since(k)
		}
	}
	if a.ordered {
		a.seek(q, c, nil, func(b []byte, v *pb.Value) []byte {
			if k := id(v); k != nil {
				return append(b, k[len(a.prefix):]...)
			}
			return nil
		})
	}
	return a
}

func (a *access) since(k []byte) {
	if bytes.Compare(k, a.from) > 0 {
		a.from = k
	}
}

// until sets the upper bound to k if k is smaller than the current one. If one of the two keys is a
// prefix of the other, the longer key becomes the bound.
func (a *access) until(k []byte) {
	if a.to == nil || bytes.HasPrefix(k, a.to) || bytes.Compare(k, a.to) < 0 && !bytes.HasPrefix(a.to, k) {
		a.to = k
	}
}

// indexAccess returns nil if the index would not narrow the search. It also returns nil if
// documents in the result may lack one of the index's fields, because such documents are not in the
// index.
func (q *query) indexAccess(x *indexDef, entries *bolt.Bucket, c conjunction) *access {
	a := &access{index: x, entries: entries, prefix: x.prefix(append(slices.Clone(q.parent), q.collection))}
	fields := slices.DeleteFunc(slices.Clone(x.fields), func(f indexField) bool { return f.raw == nameField })
	for len(fields) > 0 {
		f := fields[0]
		v := c.equal[f.raw]
		if f.contains {
			v = c.contains[f.raw]
		}
		if v == nil {
			break
		}
		var cut bool
		a.prefix, cut = x.component(a.prefix, v, f.desc)
		a.bound++
		fields = fields[1:]
		if cut { // other values share this truncated prefix, so the key cannot narrow the search further
			break
		}
	}
	sorted := q.sortedFields(c)
	for _, f := range fields {
		needed := slices.ContainsFunc(sorted, func(o order) bool { return o.raw == f.raw })
		if f.contains || !needed && c.equal[f.raw] == nil {
			return nil
		}
	}
	a.reverse, a.ordered = q.direction(x, fields, sorted)
	a.ordered = a.ordered && entries.Sequence() == 0
	if len(fields) > 0 {
		a.bounds(x, fields[0], c)
	}
	if a.ordered {
		a.seek(q, c, fields, func(b []byte, v *pb.Value) []byte {
			_, path, err := splitDocument(v.GetReferenceValue())
			if err != nil || !x.group && !q.covers(path[:len(path)-1]) {
				return nil
			}
			return x.name(b, path)
		})
	}
	if a.bound == 0 && !a.ranged && !a.ordered {
		return nil
	}
	return a
}

// direction returns the direction in which the index's remaining fields yield the documents in the
// query's order. ok is false if there is no such direction.
func (q *query) direction(x *indexDef, fields []indexField, sorted []order) (reverse, ok bool) {
	if len(fields) != len(sorted) {
		return false, false
	}
	reverse = x.nameDesc() != q.nameDesc()
	for i, f := range fields {
		if f.raw != sorted[i].raw || (f.desc != sorted[i].desc) != reverse {
			return false, false
		}
	}
	return reverse, true
}

// bounds narrows the range of the first field without an equality.
func (a *access) bounds(x *indexDef, f indexField, c conjunction) {
	for _, r := range c.ranges {
		if r.field.raw != f.raw {
			continue
		}
		a.ranged = true
		low := []byte{kindTag(kindOf(r.value))} // only values of the same kind match
		high := slices.Clone(low)
		value, _ := x.component(nil, r.value, false)
		if r.op == opLess || r.op == opLessOrEqual {
			high = value
		} else {
			low = value
		}
		if f.desc {
			invert(low)
			invert(high)
			low, high = high, low
		}
		a.since(append(slices.Clone(a.prefix), low...))
		a.until(append(slices.Clone(a.prefix), high...))
	}
}

// seek narrows an ordered access to the keys between the query's cursors.
func (a *access) seek(q *query, c conjunction, fields []indexField, name func([]byte, *pb.Value) []byte) {
	for _, cursor := range []*pb.Cursor{q.startAt, q.endAt} {
		if cursor == nil {
			continue
		}
		k := a.cursorKey(q, c, fields, cursor.GetValues(), name)
		if len(k) == len(a.prefix) {
			continue
		}
		if (cursor == q.startAt) != a.reverse {
			a.since(k)
		} else {
			a.until(k)
		}
	}
}

// cursorKey returns the part of the key that the cursor's values determine.
func (a *access) cursorKey(q *query, c conjunction, fields []indexField, values []*pb.Value, name func([]byte, *pb.Value) []byte) []byte {
	k := slices.Clone(a.prefix)
	for i, v := range values {
		o := q.orders[i]
		if equal := c.equal[o.raw]; equal != nil {
			if compareValues(equal, v) != 0 {
				return k
			}
			continue
		}
		if o.raw == nameField {
			if with := name(slices.Clone(k), v); with != nil {
				return with
			}
			return k
		}
		if len(fields) == 0 {
			return k
		}
		with, cut := a.index.component(k, v, fields[0].desc)
		if cut {
			return k
		}
		k, fields = with, fields[1:]
	}
	return k
}

// walker iterates over the entries of an access.
type walker struct {
	a      *access
	cursor *bolt.Cursor
	begun  bool

	cursors []*bolt.Cursor // one for each prefix in a.merged
	target  []byte         // the smallest name that may come next
}

func (a *access) walk() *walker {
	w := &walker{a: a, cursor: a.entries.Cursor()}
	for range a.merged {
		w.cursors = append(w.cursors, a.entries.Cursor())
	}
	if len(a.from) > len(a.prefix) {
		w.target = a.from[len(a.prefix):]
	}
	return w
}

// nextMerged finds the next name that all of a.merged have. Each cursor skips to the greatest name
// that another cursor has reached.
func (w *walker) nextMerged() (key, value []byte) {
	for agreed, i := 0, 0; ; i = (i + 1) % len(w.cursors) {
		prefix := w.a.merged[i]
		key, _ = w.cursors[i].Seek(append(slices.Clip(prefix), w.target...))
		if key == nil || !bytes.HasPrefix(key, prefix) {
			return nil, nil
		}
		name := key[len(prefix):]
		// Always copy the first name: target may still share its array with a.from, and the append
		// below writes to it.
		if agreed > 0 && bytes.Equal(name, w.target) {
			agreed++
		} else {
			w.target, agreed = slices.Clone(name), 1
		}
		if agreed < len(w.cursors) {
			continue
		}
		value = append(slices.Clip(w.a.prefix), name...)
		if w.a.to != nil && bytes.Compare(value, w.a.to) > 0 && !bytes.HasPrefix(value, w.a.to) {
			return nil, nil
		}
		w.target = append(w.target, 0) // the smallest name after this one
		return key, value
	}
}

// next returns a nil key at the end.
func (w *walker) next() (key, value []byte) {
	if len(w.cursors) > 0 {
		return w.nextMerged()
	}
	switch {
	case w.begun && w.a.reverse:
		key, value = w.cursor.Prev()
	case w.begun:
		key, value = w.cursor.Next()
	case w.a.reverse:
		key, value = w.last()
	default:
		key, value = w.cursor.Seek(w.a.lowest())
	}
	w.begun = true
	if key == nil || !bytes.HasPrefix(key, w.a.prefix) {
		return nil, nil
	}
	if w.a.reverse && bytes.Compare(key, w.a.from) < 0 {
		return nil, nil
	}
	if !w.a.reverse && w.a.to != nil && bytes.Compare(key, w.a.to) > 0 && !bytes.HasPrefix(key, w.a.to) {
		return nil, nil
	}
	return key, value
}

func (a *access) lowest() []byte {
	if bytes.Compare(a.from, a.prefix) > 0 {
		return a.from
	}
	return a.prefix
}

// last returns the entry with the greatest key up to the upper bound.
func (w *walker) last() (key, value []byte) {
	bound := w.a.prefix
	if w.a.to != nil {
		bound = w.a.to
	}
	after := successor(bound)
	if after == nil {
		return w.cursor.Last()
	}
	if key, _ = w.cursor.Seek(after); key == nil {
		return w.cursor.Last()
	}
	return w.cursor.Prev()
}

// successor returns the smallest key that is greater than all keys with the prefix b, or nil if
// there is none.
func successor(b []byte) []byte {
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0xff {
			out := slices.Clone(b[:i+1])
			out[i]++
			return out
		}
	}
	return nil
}
