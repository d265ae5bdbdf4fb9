package firestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	bolt "go.etcd.io/bbolt"
)

// There are two kinds of index. Declared indexes exist from the start. An adaptive index is built
// by the first query that would otherwise read many documents, and is then kept. Most adaptive
// indexes are on single fields, which production indexes automatically. The kind's letter is part
// of the bucket's name.
const (
	declaredIndex = 'd'
	adaptiveIndex = 'a'
)

const (
	adaptiveThreshold = 100 // minimum size of the collection; scanning a thousand documents takes 8 ms of CPU time
	maxAdaptive       = 32  // per collection; each one slows down every write
	maxIndexKeyBytes  = 24000
)

// indexDef is an index on one collection, or on all collections with the same ID. For each document
// with all the fields, it contains a key that consists of the encoded fields and the document's
// name.
type indexDef struct {
	collection string
	group      bool
	fields     []indexField
	id         []byte // the name of its bucket
}

type indexField struct {
	field
	desc     bool
	contains bool // one entry for each element in an array
	members  bool // one entry for each member in a map, instead of one index per member
}

func newIndexDef(kind byte, x Index) (*indexDef, error) {
	d := &indexDef{collection: x.CollectionGroup, group: x.QueryScope == scopeGroup}
	for _, f := range x.Fields {
		path, err := parseFieldPath(f.FieldPath)
		if err != nil {
			return nil, fmt.Errorf("firestore: invalid index %s: %w", &x, err)
		}
		d.fields = append(d.fields, indexField{field{f.FieldPath, path}, f.Order == descending, f.ArrayConfig == contains, f.Order == members})
	}
	name, err := json.Marshal(x)
	if err != nil {
		return nil, fmt.Errorf("firestore: invalid index %s: %w", &x, err)
	}
	d.id = append([]byte{kind}, name...)
	return d, nil
}

// nameDesc reports whether the name, the last component of every key, is sorted in descending
// order.
func (x *indexDef) nameDesc() bool {
	last := x.fields[len(x.fields)-1]
	return last.raw != nameField && last.desc
}

func (x *indexDef) componentLimit() int {
	return min(maxIndexedBytes, maxIndexKeyBytes/len(x.fields))
}

// ofMembers reports whether this is the index on a map's members. Such an index exists for each map
// with an override that makes production index its members. These maps have too many different
// members for an adaptive index on each.
func (x *indexDef) ofMembers() bool { return x.fields[0].members }

// memberPrefix returns the common prefix of all keys in which a given member of the map has a given
// value.
func (x *indexDef) memberPrefix(b []byte, member string, v *pb.Value) ([]byte, bool) {
	return x.component(appendEscaped(append(b, stringSegment), member), v, false)
}

// memberKeys returns the keys of a document's entries in an index on members.
func (x *indexDef) memberKeys(d *pb.Document, path []string) (keys [][]byte, cut bool) {
	v := x.fields[0].of(d)
	if v == nil || kindOf(v) != kindMap {
		return nil, false
	}
	prefix := x.prefix(path[:len(path)-1])
	for member, value := range v.GetMapValue().GetFields() {
		k, c := x.memberPrefix(slices.Clone(prefix), member, value)
		keys, cut = append(keys, x.name(k, path)), cut || c
	}
	// Maps are unordered, but update finds keys by binary search.
	slices.SortFunc(keys, bytes.Compare)
	return keys, cut
}

// component encodes one field's value. It truncates long values, so two long values may have the
// same encoding.
func (x *indexDef) component(b []byte, v *pb.Value, desc bool) (out []byte, cut bool) {
	start := len(b)
	b = appendValue(b, v)
	if limit := x.componentLimit(); len(b)-start > limit {
		b, cut = b[:start+limit], true
	}
	if desc {
		invert(b[start:])
	}
	return b, cut
}

// prefix returns the common prefix of all keys in the query's collection.
func (x *indexDef) prefix(collection []string) []byte {
	if x.group {
		return nil
	}
	return collectionKey(collection)
}

// name encodes a document's name as the last component of a key.
func (x *indexDef) name(b []byte, path []string) []byte {
	start := len(b)
	if x.group {
		b = append(appendSegments(b, path), endOfPath)
	} else {
		b = appendSegments(b, path[len(path)-1:])
	}
	if x.nameDesc() {
		invert(b[start:])
	}
	return b
}

// keys returns the keys of the document's entries. cut reports whether a value was truncated.
func (x *indexDef) keys(d *pb.Document, path []string) (keys [][]byte, cut bool) {
	if d == nil {
		return nil, false
	}
	if x.ofMembers() {
		return x.memberKeys(d, path)
	}
	keys = [][]byte{x.prefix(path[:len(path)-1])}
	for _, f := range x.fields {
		if f.raw == nameField {
			continue // every key ends with the name anyway
		}
		v := f.of(d)
		if v == nil {
			return nil, false
		}
		values := []*pb.Value{v}
		if f.contains {
			if kindOf(v) != kindArray {
				return nil, false
			}
			values = v.GetArrayValue().GetValues()
		}
		next := make([][]byte, 0, len(keys)*len(values))
		for _, k := range keys {
			for _, e := range values {
				b, c := x.component(slices.Clip(slices.Clone(k)), e, f.desc)
				next, cut = append(next, b), cut || c
			}
		}
		keys = next
	}
	for i := range keys {
		keys[i] = x.name(keys[i], path)
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal), cut
}

// update replaces the entries for a changed document. The bucket's sequence counts the documents
// with a truncated value. While it is not zero, queries do not rely on the order of the keys.
func (x *indexDef) update(b *bolt.Bucket, path []string, documentKey []byte, c change) error {
	old, oldCut := x.keys(c.before, path)
	next, nextCut := x.keys(c.after, path)
	for _, k := range old {
		if _, keep := slices.BinarySearchFunc(next, k, bytes.Compare); !keep {
			if err := b.Delete(k); err != nil {
				return err
			}
		}
	}
	if x.ofMembers() {
		documentKey = nil // can be derived from the entry's key
	}
	for _, k := range next {
		if _, there := slices.BinarySearchFunc(old, k, bytes.Compare); !there {
			if err := b.Put(k, documentKey); err != nil {
				return err
			}
		}
	}
	switch {
	case nextCut && !oldCut:
		return b.SetSequence(b.Sequence() + 1)
	case oldCut && !nextCut:
		return b.SetSequence(b.Sequence() - 1)
	}
	return nil
}

// indexRegistry lists the existing indexes. A snapshot from before an index was created does not
// use it.
type indexRegistry struct {
	declared []*indexDef

	mu sync.RWMutex
	by map[string]map[string][]*indexDef // by database and collection ID
}

func (r *indexRegistry) list(database, collection string) []*indexDef {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.by[database][collection]
}

func (r *indexRegistry) add(database string, defs ...*indexDef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by[database] == nil {
		r.by[database] = map[string][]*indexDef{}
	}
	for _, d := range defs {
		have := r.by[database][d.collection]
		if !slices.ContainsFunc(have, func(x *indexDef) bool { return bytes.Equal(x.id, d.id) }) {
			// create a new slice because readers use the old one
			r.by[database][d.collection] = append(slices.Clip(have), d)
		}
	}
}

// reindex updates all indexes on a document's collection after the document has changed.
func (s *store) reindex(p *partition, database string, path []string, key []byte, c change) error {
	for _, x := range s.indexes.list(database, path[len(path)-2]) {
		if b := p.indexes.Bucket(x.id); b != nil {
			if err := x.update(b, path, key, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// openIndexes makes the file's indexes match the current declarations.
func (s *store) openIndexes(declared *Indexes) error {
	s.indexes = &indexRegistry{by: map[string]map[string][]*indexDef{}}
	if declared != nil {
		for _, x := range slices.Concat(declared.Composite, declared.expiring(), declared.members()) {
			d, err := newIndexDef(declaredIndex, x)
			if err != nil {
				return err
			}
			s.indexes.declared = append(s.indexes.declared, d)
		}
	}
	var stale bool
	err := s.db.View(func(tx *bolt.Tx) error {
		return eachDatabase(tx, func(database string, b *bolt.Bucket) error {
			changed, err := s.loadIndexes(database, b.Bucket(indexBucket), declared != nil)
			stale = stale || changed
			return err
		})
	})
	if err != nil || !stale {
		return err
	}
	return s.db.Update(s.rebuildIndexes)
}

func eachDatabase(tx *bolt.Tx, f func(database string, b *bolt.Bucket) error) error {
	return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		if bytes.Equal(name, metaBucket) {
			return nil
		}
		return f(string(name), b)
	})
}

// loadIndexes registers the indexes in one database, and reports whether some are missing or no
// longer declared.
func (s *store) loadIndexes(database string, b *bolt.Bucket, enforced bool) (stale bool, err error) {
	err = b.ForEachBucket(func(id []byte) error {
		if enforced && id[0] == declaredIndex && !s.indexes.isDeclared(id) {
			stale = true
			return nil
		}
		var x Index
		if err := json.Unmarshal(id[1:], &x); err != nil {
			return fmt.Errorf("firestore: index %q: %w", id, err)
		}
		d, err := newIndexDef(id[0], x)
		if err != nil {
			return err
		}
		s.indexes.add(database, d)
		return nil
	})
	for _, d := range s.indexes.declared {
		s.indexes.add(database, d)
		stale = stale || b.Bucket(d.id) == nil
	}
	return stale, err
}

func (r *indexRegistry) isDeclared(id []byte) bool {
	return slices.ContainsFunc(r.declared, func(d *indexDef) bool { return bytes.Equal(d.id, id) })
}

// rebuildIndexes drops indexes that are no longer declared and fills new ones.
func (s *store) rebuildIndexes(tx *bolt.Tx) error {
	sn := &snapshot{store: s, tx: tx, at: latest, partitions: map[string]*partition{}}
	return eachDatabase(tx, func(database string, b *bolt.Bucket) error {
		indexes := b.Bucket(indexBucket)
		var drop [][]byte
		err := indexes.ForEachBucket(func(id []byte) error {
			if id[0] == declaredIndex && !s.indexes.isDeclared(id) {
				drop = append(drop, slices.Clone(id))
			}
			return nil
		})
		for _, id := range drop {
			err = errors.Join(err, indexes.DeleteBucket(id))
		}
		if err != nil {
			return err
		}
		for _, d := range s.indexes.declared {
			if indexes.Bucket(d.id) == nil {
				if err := sn.build(database, d); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// build fills a new index from the documents.
func (sn *snapshot) build(database string, x *indexDef) error {
	p := sn.partition(database)
	b, err := p.indexes.CreateBucket(x.id)
	if err != nil {
		return err
	}
	type entry struct{ key, doc []byte }
	var entries []entry
	var long uint64
	err = sn.eachInGroup(p, nil, x.collection, func(key, record []byte) error {
		path := decodeDocumentKey(key)
		d, err := decodeDocument(joinName(database, path), record)
		if err != nil {
			return err
		}
		keys, cut := x.keys(d, path)
		if cut {
			long++
		}
		if key = slices.Clone(key); x.ofMembers() {
			key = nil
		}
		for _, k := range keys {
			entries = append(entries, entry{k, key})
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	for _, e := range entries { // in key order, so the file is filled page by page
		if err := b.Put(e.key, e.doc); err != nil {
			return err
		}
	}
	return b.SetSequence(long)
}

// eachInGroup calls f with the key and the record of each document in the collections under a path
// that have the given ID. Both are valid only during the call.
func (sn *snapshot) eachInGroup(p *partition, below []string, collection string, f func(key, record []byte) error) error {
	for _, prefix := range p.group(below, collection) {
		c := p.docs.Cursor()
		for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
			if err := f(k, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// group lists the keys of the collections under a path that have the given ID. If the ID is empty,
// it lists all collections under the path.
func (p *partition) group(below []string, collection string) [][]byte {
	if p.docs == nil {
		return nil
	}
	var out [][]byte
	start := appendSegments(nil, below)
	if collection == "" {
		c := p.colls.Cursor()
		for k, _ := c.Seek(start); k != nil && bytes.HasPrefix(k, start); k, _ = c.Next() {
			out = append(out, slices.Clone(k))
		}
		return out
	}
	// A key of groups consists of the collection's ID, a 0, and the key in colls. All paths for an
	// ID are therefore in one range, and the 0 keeps "a" from matching "ab".
	id := append([]byte(collection), 0)
	start = append(slices.Clone(id), start...)
	c := p.groups.Cursor()
	for k, _ := c.Seek(start); k != nil && bytes.HasPrefix(k, start); k, _ = c.Next() {
		out = append(out, slices.Clone(k[len(id):]))
	}
	return out
}

// buildAdaptive builds the indexes that a query needs, unless another query has already built them.
// Commits wait until the build has finished.
func (s *Server) buildAdaptive(database string, defs []*indexDef) error {
	return s.writer.administer(func(sn *snapshot) ([]change, error) {
		p := sn.partition(database)
		if p.indexes == nil {
			return nil, nil
		}
		for _, x := range defs {
			if p.indexes.Bucket(x.id) != nil {
				continue
			}
			if err := sn.build(database, x); err != nil {
				return nil, err
			}
			s.store.indexes.add(database, x)
		}
		return nil, nil
	})
}
