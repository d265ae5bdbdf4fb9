package firestore

import (
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

// count returns the number of documents in the result without reading them. ok is true only if all
// of the query's conditions are equalities, the query reads the current state, and one index
// contains exactly the documents in the result.
func (s *store) count(sn *snapshot, q *query) (n int64, ok bool, err error) {
	leaves, simple := q.onlyEqualities()
	if !simple || q.group || len(sn.changed) > 0 {
		return 0, false, nil
	}
	if q.where == nil {
		n = sn.partition(q.database).count(collectionKey(append(q.parent[:len(q.parent):len(q.parent)], q.collection)))
		return q.window(n), true, nil
	}
	list, wanted := s.accesses(sn, q)
	if sn.strict && len(wanted) > 0 {
		return 0, false, &wantsIndex{wanted}
	}
	if len(list) == 0 {
		return 0, true, nil
	}
	a := list[0]
	if a.index == nil || a.bound != leaves || len(a.index.fields) != leaves || a.entries.Sequence() > 0 {
		return 0, false, nil
	}
	w := a.walk()
	for k, _ := w.next(); k != nil; k, _ = w.next() {
		n++
	}
	return q.window(n), true, nil
}

// onlyEqualities reports whether the query is an unordered conjunction of equalities on different
// fields, and returns the number of equalities.
func (q *query) onlyEqualities() (leaves int, ok bool) {
	if q.startAt != nil || q.endAt != nil || len(q.orders) > 1 {
		return 0, false
	}
	disjunctions := expand(q.where)
	if len(disjunctions) != 1 {
		return 0, false
	}
	seen := map[string]bool{nameField: true}
	for _, f := range disjunctions[0] {
		null := f.unary == pb.StructuredQuery_UnaryFilter_IS_NULL || f.unary == pb.StructuredQuery_UnaryFilter_IS_NAN
		equal := f.unary == 0 && f.op == opEqual && kindOf(f.value) != kindNull && !isNaN(f.value)
		if seen[f.field.raw] || !null && !equal {
			return 0, false
		}
		seen[f.field.raw] = true
	}
	return len(disjunctions[0]), true
}

// window returns the number of documents that remain of n after offset and limit.
func (q *query) window(n int64) int64 {
	n = max(0, n-int64(q.offset))
	if q.limit >= 0 {
		n = min(n, int64(q.limit))
	}
	return n
}
