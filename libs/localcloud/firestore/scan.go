package firestore

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

// run calls emit with each document of the query's result, in order.
func (s *store) run(sn *snapshot, q *query, emit func(*pb.Document) error) error {
	var rows []row
	err := sn.eachCandidate(q, func(d *pb.Document) {
		if r, ok := q.admit(d); ok {
			rows = append(rows, r)
		}
	})
	if err != nil {
		return err
	}
	slices.SortFunc(rows, func(a, b row) int { return q.compareKeys(a.keys, b.keys) })
	rows = rows[min(q.offset, len(rows)):]
	if q.limit >= 0 && q.limit < len(rows) {
		rows = rows[:q.limit]
	}
	for _, r := range rows {
		if err := emit(r.doc); err != nil {
			return err
		}
	}
	return nil
}

func (sn *snapshot) eachCandidate(q *query, f func(*pb.Document)) error {
	for name, record := range sn.changed {
		if d, err := decodeDocument(name, record); err != nil {
			return err
		} else if d != nil && q.mayHold(name) {
			f(d)
		}
	}
	p := sn.partition(q.database)
	if p.docs == nil {
		return nil
	}
	for _, prefix := range sn.collections(q) {
		c := p.docs.Cursor()
		for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
			name := joinName(q.database, decodeDocumentKey(k))
			if _, ok := sn.changed[name]; ok {
				continue
			}
			d, err := decodeDocument(name, v)
			if err != nil {
				return err
			}
			f(d)
		}
	}
	return nil
}

// collections are the key prefixes of the collections that q looks at.
func (sn *snapshot) collections(q *query) [][]byte {
	if !q.group {
		return [][]byte{collectionKey(append(slices.Clone(q.parent), q.collection))}
	}
	p := sn.partition(q.database)
	var out [][]byte
	below := appendSegments(nil, q.parent)
	if q.collection == "" {
		c := p.colls.Cursor()
		for k, _ := c.Seek(below); bytes.HasPrefix(k, below); k, _ = c.Next() {
			out = append(out, slices.Clone(k))
		}
		return out
	}
	prefix := append([]byte(q.collection), 0)
	below = append(slices.Clone(prefix), below...)
	c := p.groups.Cursor()
	for k, _ := c.Seek(below); bytes.HasPrefix(k, below); k, _ = c.Next() {
		out = append(out, slices.Clone(k[len(prefix):]))
	}
	return out
}

// mayHold tells whether a document is in a collection that the query looks at.
func (q *query) mayHold(name string) bool {
	rest, ok := strings.CutPrefix(name, q.database+"/documents/")
	if !ok {
		return false
	}
	path := strings.Split(rest, "/")
	return q.covers(path[:len(path)-1])
}

// signature condenses a result: the same documents in the same versions give
// the same text.
type signature struct{ strings.Builder }

func newSignature() *signature { return &signature{} }

func (s *signature) add(d *pb.Document) error {
	_, err := fmt.Fprintf(s, "%s@%d;", d.GetName(), versionOf(d))
	return err
}
