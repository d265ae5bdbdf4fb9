package firestore

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

// wantsIndex is the error that run returns if an index should be built instead of reading a large
// collection.
type wantsIndex struct{ defs []*indexDef }

func (w *wantsIndex) Error() string { return "an index should be built first" }

// errStop ends an iteration early, without an error.
var errStop = errors.New("stop")

// run calls emit with each document in the query's result, in order. If sn.strict is set, it may
// return wantsIndex before it emits anything.
func (s *store) run(sn *snapshot, q *query, emit func(*pb.Document) error) error {
	list, wanted := s.accesses(sn, q)
	if sn.strict && len(wanted) > 0 {
		return &wantsIndex{wanted}
	}
	skip, left := q.offset, q.limit
	err := s.rows(sn, q, list, func(r row) error {
		if skip > 0 {
			skip--
			return nil
		}
		if left == 0 {
			return errStop
		}
		if err := emit(r.doc); err != nil {
			return err
		}
		if left--; left == 0 {
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// rows calls f with each row in order, before the offset and the limit are applied.
func (s *store) rows(sn *snapshot, q *query, list []*access, f func(row) error) error {
	if q.limit == 0 {
		return nil
	}
	past, err := sn.pastRows(q)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(a *access) bool { return !a.ordered }) {
		return sn.sortedRows(q, list, past, f)
	}
	return sn.mergedRows(q, list, past, f)
}

// pastRows returns the documents that have changed since the snapshot's time, as they were at that
// time. The indexes contain only the current state of these documents.
func (sn *snapshot) pastRows(q *query) ([]row, error) {
	var out []row
	for name, record := range sn.changed {
		if record == nil || !q.mayHold(name) {
			continue
		}
		d, err := decodeDocument(name, record)
		if err != nil {
			return nil, err
		}
		if r, ok := q.admit(d); ok {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b row) int { return q.compareKeys(a.keys, b.keys) })
	return out, nil
}

// sortedRows collects all rows, sorts them and calls f with each.
func (sn *snapshot) sortedRows(q *query, list []*access, rows []row, f func(row) error) error {
	seen := map[string]bool{}
	for _, a := range list {
		src := source{sn: sn, q: q, w: a.walk()}
		for {
			r, ok, err := src.next()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if len(list) > 1 {
				if seen[r.doc.GetName()] {
					continue
				}
				seen[r.doc.GetName()] = true
			}
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return q.compareKeys(a.keys, b.keys) })
	for _, r := range rows {
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// mergedRows merges sources that are already sorted. It reads only as far as f needs.
func (sn *snapshot) mergedRows(q *query, list []*access, past []row, f func(row) error) error {
	sources := []*source{{rows: past}}
	for _, a := range list {
		sources = append(sources, &source{sn: sn, q: q, w: a.walk()})
	}
	heads := make([]row, 0, len(sources))
	live := make([]*source, 0, len(sources))
	for _, src := range sources {
		r, ok, err := src.next()
		if err != nil {
			return err
		}
		if ok {
			heads, live = append(heads, r), append(live, src)
		}
	}
	last := ""
	for len(live) > 0 {
		least := 0
		for i := 1; i < len(heads); i++ {
			if q.compareKeys(heads[i].keys, heads[least].keys) < 0 {
				least = i
			}
		}
		// A document that matches several branches of an OR appears several times in a row.
		if r := heads[least]; r.doc.GetName() != last {
			last = r.doc.GetName()
			if err := f(r); err != nil {
				return err
			}
		}
		r, ok, err := live[least].next()
		if err != nil {
			return err
		}
		if ok {
			heads[least] = r
		} else {
			heads, live = slices.Delete(heads, least, least+1), slices.Delete(live, least, least+1)
		}
	}
	return nil
}

// source returns the rows from one access that belong in the result.
type source struct {
	rows []row // rows to return before those of w

	sn *snapshot
	q  *query
	w  *walker // nil if the source has only rows
}

func (s *source) next() (row, bool, error) {
	if len(s.rows) > 0 {
		r := s.rows[0]
		s.rows = s.rows[1:]
		return r, true, nil
	}
	if s.w == nil {
		return row{}, false, nil
	}
	for {
		key, record := s.w.next()
		if key == nil {
			return row{}, false, nil
		}
		if s.w.a.index != nil {
			key = record
			if record = s.sn.partition(s.q.database).docs.Get(key); record == nil {
				return row{}, false, fmt.Errorf("firestore: index %s has an entry for a document that does not exist", s.w.a.index.id)
			}
		}
		name := joinName(s.q.database, decodeDocumentKey(key))
		if _, ok := s.sn.changed[name]; ok {
			continue
		}
		if s.w.a.index != nil && s.q.group && !s.q.mayHold(name) {
			continue // the index covers the whole collection group, but the query may be limited to one parent document
		}
		s.sn.store.examined.Add(1)
		d, err := decodeDocument(name, record)
		if err != nil {
			return row{}, false, err
		}
		if r, ok := s.q.admit(d); ok {
			return r, true, nil
		}
	}
}

// mayHold reports whether a document is in a collection that the query reads.
func (q *query) mayHold(name string) bool {
	rest, ok := strings.CutPrefix(name, q.database+"/documents/")
	if !ok {
		return false
	}
	path := strings.Split(rest, "/")
	return q.covers(path[:len(path)-1])
}

// signature summarizes a result. Results have the same signature if they contain the same documents
// in the same versions.
type signature struct{ strings.Builder }

func newSignature() *signature { return &signature{} }

func (s *signature) add(d *pb.Document) error {
	_, err := fmt.Fprintf(s, "%s@%d;", d.GetName(), versionOf(d))
	return err
}
