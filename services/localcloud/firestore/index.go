package firestore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Indexes contains the declarations from a project's firestore.indexes.json files.
type Indexes struct {
	Composite []Index         `json:"indexes"`
	Overrides []FieldOverride `json:"fieldOverrides"`
}

// Index is one composite index.
type Index struct {
	CollectionGroup string       `json:"collectionGroup"`
	QueryScope      string       `json:"queryScope"`
	Fields          []IndexField `json:"fields"`
}

// IndexField has either an order (ASCENDING, DESCENDING) or an array config (CONTAINS).
type IndexField struct {
	FieldPath   string `json:"fieldPath"`
	Order       string `json:"order,omitempty"`
	ArrayConfig string `json:"arrayConfig,omitempty"`
}

// FieldOverride replaces the automatic indexes on one field. If TTL is set, a document expires at
// the time stored in the field.
type FieldOverride struct {
	CollectionGroup string          `json:"collectionGroup"`
	FieldPath       string          `json:"fieldPath"`
	TTL             bool            `json:"ttl"`
	Indexes         []OverrideIndex `json:"indexes"` // nil keeps the automatic indexes
}

// OverrideIndex is a single-field index that an override keeps. The override disables the other
// indexes on the field.
type OverrideIndex struct {
	QueryScope  string `json:"queryScope"`
	Order       string `json:"order,omitempty"`
	ArrayConfig string `json:"arrayConfig,omitempty"`
}

const (
	scopeCollection = "COLLECTION"
	scopeGroup      = "COLLECTION_GROUP"
	ascending       = "ASCENDING"
	descending      = "DESCENDING"
	contains        = "CONTAINS"

	// members is the order of an index on all members of a map. It never occurs in the files.
	members = "MEMBERS"
)

// ParseIndexes parses one or more firestore.indexes.json files and combines their declarations.
// Like the deploy tool, it rejects unknown keys, directions and scopes.
func ParseIndexes(files ...[]byte) (*Indexes, error) {
	all := &Indexes{Composite: []Index{}}
	for _, b := range files {
		var one Indexes
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&one); err != nil {
			return nil, fmt.Errorf("firestore: cannot parse the indexes: %w", err)
		}
		all.Composite = append(all.Composite, one.Composite...)
		all.Overrides = append(all.Overrides, one.Overrides...)
	}
	for i := range all.Composite {
		if err := all.Composite[i].check(); err != nil {
			return nil, err
		}
	}
	for i, o := range all.Overrides {
		if o.CollectionGroup == "" || o.FieldPath == "" {
			return nil, fmt.Errorf("firestore: field override %d needs a collectionGroup and a fieldPath", i)
		}
		for j := range o.Indexes {
			if o.Indexes[j].QueryScope == "" {
				o.Indexes[j].QueryScope = scopeCollection
			}
		}
	}
	return all, nil
}

func (x *Index) check() error {
	if x.QueryScope == "" {
		x.QueryScope = scopeCollection
	}
	if x.CollectionGroup == "" || x.QueryScope != scopeCollection && x.QueryScope != scopeGroup {
		return fmt.Errorf("firestore: index %s: collectionGroup and a queryScope of %s or %s are required", x, scopeCollection, scopeGroup)
	}
	if len(x.Fields) < 2 {
		return fmt.Errorf("firestore: index %s: a composite index needs at least two fields; single fields have automatic indexes", x)
	}
	for _, f := range x.Fields {
		order := f.Order == ascending || f.Order == descending
		if f.FieldPath == "" || order == (f.ArrayConfig == contains) || f.ArrayConfig != "" && f.ArrayConfig != contains {
			return fmt.Errorf("firestore: index %s: field %q needs an order (%s, %s) or arrayConfig %s", x, f.FieldPath, ascending, descending, contains)
		}
	}
	return nil
}

// String formats the index for error messages.
func (x *Index) String() string {
	parts := make([]string, len(x.Fields))
	for i, f := range x.Fields {
		parts[i] = f.FieldPath + " " + f.Order + f.ArrayConfig
	}
	return fmt.Sprintf("%s [%s] %s", x.CollectionGroup, x.QueryScope, strings.Join(parts, ", "))
}

// missingIndex describes an index that production would require for the query and that is not
// declared. It returns "" if no index is missing. Each disjunction needs its own index.
func (ix *Indexes) missingIndex(q *query) string {
	for _, c := range q.disjunctions() {
		if missing := ix.missingFor(q, q.indexNeed(c)); missing != "" {
			return missing
		}
	}
	return ""
}

func (ix *Indexes) missingFor(q *query, need *indexNeed) string {
	scope := scopeCollection
	if q.group {
		scope = scopeGroup
	}
	for i := range ix.Composite {
		if x := &ix.Composite[i]; x.CollectionGroup == q.collection && x.QueryScope == scope && x.serves(need) {
			return ""
		}
	}
	// Single fields have automatic indexes, which can be merged. In a collection group, even a
	// single field needs a declared index.
	equal, sorted := len(need.equal), len(need.sorted)
	switch {
	case equal+sorted == 0:
		return ""
	case q.group && equal+sorted == 1 && ix.overridden(q.collection, need.all()[0]):
		return ""
	case q.group || sorted > 1 || sorted == 1 && equal > 0:
		return (&Index{q.collection, scope, need.all()}).String()
	}
	for _, f := range need.all() {
		if ix.exempted(q.collection, f) {
			return fmt.Sprintf("a field override has removed the index of %s on %s", q.collection, f.FieldPath)
		}
	}
	return ""
}

// indexNeed describes the first fields that an index must have: the fields of equal in any order,
// and then the fields of sorted, in their directions or with all directions reversed.
type indexNeed struct{ equal, sorted []IndexField }

func (n *indexNeed) all() []IndexField { return append(slices.Clone(n.equal), n.sorted...) }

func (q *query) indexNeed(c conjunction) *indexNeed {
	n := &indexNeed{}
	for _, f := range sortedKeys(c.equal) {
		if f != nameField {
			n.equal = append(n.equal, IndexField{FieldPath: f, Order: ascending})
		}
	}
	for _, f := range sortedKeys(c.contains) {
		n.equal = append(n.equal, IndexField{FieldPath: f, ArrayConfig: contains})
	}
	for _, o := range q.sortedFields(c) {
		if c.contains[o.raw] != nil {
			continue
		}
		direction := ascending
		if o.desc {
			direction = descending
		}
		n.sorted = append(n.sorted, IndexField{FieldPath: o.raw, Order: direction})
	}
	return n
}

// serves reports whether the index has the equality fields first, in any order, and then the sorted
// fields in their order, with the same directions or with every direction reversed.
func (x *Index) serves(n *indexNeed) bool {
	fields := slices.DeleteFunc(slices.Clone(x.Fields), func(f IndexField) bool { return f.FieldPath == nameField })
	if len(fields) != len(n.equal)+len(n.sorted) {
		return false
	}
	for _, f := range fields[:len(n.equal)] {
		same := func(e IndexField) bool { return e.FieldPath == f.FieldPath && e.ArrayConfig == f.ArrayConfig }
		if !slices.ContainsFunc(n.equal, same) {
			return false
		}
	}
	rest := fields[len(n.equal):]
	flipped := make([]IndexField, len(rest))
	for i, f := range rest {
		flipped[i] = f
		switch f.Order {
		case ascending:
			flipped[i].Order = descending
		case descending:
			flipped[i].Order = ascending
		}
	}
	return slices.Equal(rest, n.sorted) || slices.Equal(flipped, n.sorted)
}

// exempted reports whether an override has disabled the field's automatic index. Such an override
// does not affect composite indexes with the field.
func (ix *Indexes) exempted(collection string, f IndexField) bool {
	o := ix.override(collection, f.FieldPath)
	return o != nil && o.Indexes != nil && !o.has(scopeCollection, f)
}

// override returns the override for a field. If there is none, it returns the override for the
// nearest enclosing map because members inherit it.
func (ix *Indexes) override(collection, path string) *FieldOverride {
	var best *FieldOverride
	for i := range ix.Overrides {
		o := &ix.Overrides[i]
		if o.CollectionGroup != collection || path != o.FieldPath && !strings.HasPrefix(path, o.FieldPath+".") {
			continue
		}
		if best == nil || len(o.FieldPath) > len(best.FieldPath) {
			best = o
		}
	}
	return best
}

// members returns an index for each map with an override that indexes the map's members.
func (ix *Indexes) members() []Index {
	var out []Index
	for _, o := range ix.Overrides {
		if o.has(scopeCollection, IndexField{Order: ascending}) {
			out = append(out, Index{
				CollectionGroup: o.CollectionGroup, QueryScope: scopeCollection,
				Fields: []IndexField{{FieldPath: o.FieldPath, Order: members}},
			})
		}
	}
	return out
}

// overridden reports whether an override enables an index on the field for a collection group.
func (ix *Indexes) overridden(collection string, f IndexField) bool {
	return slices.ContainsFunc(ix.Overrides, func(o FieldOverride) bool {
		return o.CollectionGroup == collection && o.FieldPath == f.FieldPath && o.has(scopeGroup, f)
	})
}

// has reports whether the override lists an index that serves the field. An index in one direction
// also serves the other.
func (o *FieldOverride) has(scope string, f IndexField) bool {
	return slices.ContainsFunc(o.Indexes, func(x OverrideIndex) bool {
		return x.QueryScope == scope && x.ArrayConfig == f.ArrayConfig && (x.Order != "") == (f.Order != "")
	})
}

// expiring returns the indexes that a search for expired documents needs.
func (ix *Indexes) expiring() []Index {
	var out []Index
	for _, o := range ix.Overrides {
		if o.TTL {
			out = append(out, Index{
				CollectionGroup: o.CollectionGroup, QueryScope: scopeGroup,
				Fields: []IndexField{{FieldPath: o.FieldPath, Order: ascending}},
			})
		}
	}
	return out
}
