package firestore

import (
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/protobuf/proto"
)

// Production limits both the size of a commit's request and the size of its changes. The written
// and deleted documents and their changed index entries may total at most 10 MiB. A request
// of a few kilobytes that deletes documents with many index entries can exceed this limit. The
// sizes follow "Storage size calculations" in production's documentation.
const (
	maxTransactionBytes = 10 << 20

	nameOverhead       = 16
	documentOverhead   = 32
	collectionOverhead = 32 // for each index entry
	groupOverhead      = 48 // for each index entry in a collection group
)

// checkTransaction rejects changes that are too large for one commit, and documents with more index
// entries than allowed.
func (ix *Indexes) checkTransaction(changes []change) error {
	total := 0
	for _, c := range changes {
		if err := ix.checkEntries(c.after); err != nil {
			return err
		}
		n, err := ix.weigh(c)
		if err != nil {
			return err
		}
		if total += n; total > maxTransactionBytes {
			return invalid("Transaction too big. Decrease transaction size.")
		}
	}
	return nil
}

// weigh returns the size of a change. It includes the document (its old state if it is deleted) and
// the added and removed index entries. Without declared indexes, entries do not count.
func (ix *Indexes) weigh(c change) (int, error) {
	_, path, err := splitDocument(c.name)
	if err != nil {
		return 0, err
	}
	kept := c.after
	if kept == nil {
		kept = c.before
	}
	total := nameSize(path) + documentOverhead + fieldsSize(kept.GetFields())
	if ix == nil {
		return total, nil
	}
	return total + newWeigher(ix, path).all(c), nil
}

// checkEntries rejects a document if it has too many index entries or if they are too large in
// total. Without declared indexes, entries do not count.
func (ix *Indexes) checkEntries(d *pb.Document) error {
	if ix == nil || d == nil {
		return nil
	}
	_, path, err := splitDocument(d.GetName())
	if err != nil {
		return err
	}
	w := newWeigher(ix, path)
	bytes := w.all(change{name: d.GetName(), after: d})
	switch {
	case w.count > maxIndexEntries:
		return invalid("too many index entries for entity /%s", strings.Join(path, "/"))
	case bytes > maxIndexEntryBytes:
		return invalid("index entries too large for entity /%s", strings.Join(path, "/"))
	}
	return nil
}

// weigher sums the index entries of one document.
type weigher struct {
	name, parent int
	overrides    map[string]*FieldOverride // the collection's overrides, by path
	composites   []*Index                  // the collection's composite indexes
	count        int                       // entries so far
}

func newWeigher(ix *Indexes, path []string) *weigher {
	collection := path[len(path)-2]
	w := &weigher{name: nameSize(path), parent: nameSize(path[:len(path)-2]), overrides: map[string]*FieldOverride{}}
	for i := range ix.Overrides {
		if o := &ix.Overrides[i]; o.CollectionGroup == collection {
			w.overrides[o.FieldPath] = o
		}
	}
	for i := range ix.Composite {
		if x := &ix.Composite[i]; x.CollectionGroup == collection {
			w.composites = append(w.composites, x)
		}
	}
	return w
}

// all returns the size of the entries that a change writes or deletes.
func (w *weigher) all(c change) int {
	total := w.fields("", nil, c.before.GetFields(), c.after.GetFields())
	for _, x := range w.composites {
		total += w.composite(x, c)
	}
	return total
}

// fields returns the size of the single-field entries that a change to a map's fields writes or
// deletes. Members inherit their map's override.
func (w *weigher) fields(prefix string, inherited *FieldOverride, before, after map[string]*pb.Value) int {
	total := 0
	for k, v := range after {
		total += w.field(prefix+k, inherited, before[k], v)
	}
	for k, v := range before {
		if after[k] == nil {
			total += w.field(prefix+k, inherited, v, nil)
		}
	}
	return total
}

func (w *weigher) field(path string, inherited *FieldOverride, before, after *pb.Value) int {
	o := inherited
	if own := w.overrides[path]; own != nil {
		o = own
	}
	isMap := func(v *pb.Value) bool { return v.GetMapValue() != nil }
	if isMap(before) || isMap(after) {
		total := w.fields(path+".", o, before.GetMapValue().GetFields(), after.GetMapValue().GetFields())
		for _, v := range []*pb.Value{before, after} {
			if v != nil && !isMap(v) {
				total += w.entries(path, o, v)
			}
		}
		return total
	}
	if before != nil && after != nil && proto.Equal(before, after) {
		return 0
	}
	total := 0
	for _, v := range []*pb.Value{before, after} {
		if v != nil {
			total += w.entries(path, o, v)
		}
	}
	return total
}

// entries returns the size of one value's index entries. Unless an override changes this, an array
// has one entry for each element, and any other value has two, ascending and descending.
func (w *weigher) entries(path string, o *FieldOverride, v *pb.Value) int {
	values, array := []*pb.Value{v}, v.GetArrayValue() != nil
	if array {
		values = v.GetArrayValue().GetValues()
	}
	count := func(overhead int) (total int) {
		w.count += len(values)
		for _, e := range values {
			total += w.name + len(path) + 1 + min(valueSize(e), maxIndexedBytes) + overhead
		}
		return total
	}
	if o == nil || o.Indexes == nil {
		n := count(w.parent + collectionOverhead)
		if !array {
			n *= 2
			w.count++
		}
		return n
	}
	total := 0
	for _, x := range o.Indexes {
		switch {
		case (x.ArrayConfig == contains) != array:
		case x.QueryScope == scopeGroup:
			total += count(groupOverhead)
		default:
			total += count(w.parent + collectionOverhead)
		}
	}
	return total
}

// composite returns the size of the entries that a change writes or deletes in one composite index.
func (w *weigher) composite(x *Index, c change) int {
	changed := c.before == nil || c.after == nil
	overhead, path := w.name+groupOverhead, func(f IndexField) []string { return strings.Split(f.FieldPath, ".") }
	if x.QueryScope != scopeGroup {
		overhead = w.name + w.parent + collectionOverhead
	}
	size := func(d *pb.Document) int {
		each, elements, entries := overhead, 0, 1
		for _, f := range x.Fields {
			v := getPath(d.GetFields(), path(f))
			switch {
			case f.FieldPath == nameField:
			case v == nil:
				return 0
			case f.ArrayConfig == contains: // at most one field in an index is an array
				entries = len(v.GetArrayValue().GetValues())
				for _, e := range v.GetArrayValue().GetValues() {
					elements += min(valueSize(e), maxIndexedBytes)
				}
			default:
				each += min(valueSize(v), maxIndexedBytes)
			}
		}
		w.count += entries
		return entries*each + elements
	}
	for _, f := range x.Fields {
		changed = changed || !proto.Equal(getPath(c.before.GetFields(), path(f)), getPath(c.after.GetFields(), path(f)))
	}
	if !changed {
		return 0
	}
	return size(c.before) + size(c.after)
}

// nameSize returns the size of a document's name. The root has an empty name.
func nameSize(path []string) int {
	n := nameOverhead
	for _, s := range path {
		n += len(s) + 1
	}
	return n
}

func fieldsSize(m map[string]*pb.Value) int {
	n := 0
	for k, v := range m {
		n += len(k) + 1 + valueSize(v)
	}
	return n
}

// valueSize returns the size of a value that [checkValue] has accepted.
func valueSize(v *pb.Value) int {
	switch x := v.GetValueType().(type) {
	case *pb.Value_StringValue:
		return len(x.StringValue) + 1
	case *pb.Value_BytesValue:
		return len(x.BytesValue)
	case *pb.Value_ReferenceValue:
		return len(x.ReferenceValue) + 16
	case *pb.Value_GeoPointValue:
		return 16
	case *pb.Value_ArrayValue:
		n := 0
		for _, e := range x.ArrayValue.GetValues() {
			n += valueSize(e)
		}
		return n
	case *pb.Value_MapValue:
		return fieldsSize(x.MapValue.GetFields())
	case *pb.Value_NullValue, *pb.Value_BooleanValue:
		return 1
	}
	return 8
}
