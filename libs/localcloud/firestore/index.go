package firestore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Indexes is what the firestore.indexes.json files of a project declare.
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

// FieldOverride replaces the automatic indexes of one field and may make it the
// time at which its documents are deleted.
type FieldOverride struct {
	CollectionGroup string          `json:"collectionGroup"`
	FieldPath       string          `json:"fieldPath"`
	TTL             bool            `json:"ttl"`
	Indexes         []OverrideIndex `json:"indexes"` // nil: the automatic ones stay
}

// OverrideIndex is one single-field index that stays when others are switched off.
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
)

// ParseIndexes reads one or more firestore.indexes.json files and joins what
// they declare. It refuses what the deploy tool would refuse: unknown keys,
// directions and scopes.
func ParseIndexes(files ...[]byte) (*Indexes, error) {
	all := &Indexes{Composite: []Index{}}
	for _, b := range files {
		var one Indexes
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&one); err != nil {
			return nil, fmt.Errorf("firestore: read indexes: %w", err)
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
		return fmt.Errorf("firestore: index %s: a composite index has two fields or more; single fields are indexed by themselves", x)
	}
	for _, f := range x.Fields {
		order := f.Order == ascending || f.Order == descending
		if f.FieldPath == "" || order == (f.ArrayConfig == contains) || f.ArrayConfig != "" && f.ArrayConfig != contains {
			return fmt.Errorf("firestore: index %s: field %q needs an order (%s, %s) or arrayConfig %s", x, f.FieldPath, ascending, descending, contains)
		}
	}
	return nil
}

// String writes the index the way error messages show it.
func (x *Index) String() string {
	parts := make([]string, len(x.Fields))
	for i, f := range x.Fields {
		parts[i] = f.FieldPath + " " + f.Order + f.ArrayConfig
	}
	return fmt.Sprintf("%s [%s] %s", x.CollectionGroup, x.QueryScope, strings.Join(parts, ", "))
}

// missingIndex describes the index that production would demand for the query
// and that is not declared; empty when there is none.
func (ix *Indexes) missingIndex(q *query) string {
	equal := map[string]bool{}
	for _, f := range q.equalities {
		if f != nameField {
			equal[f] = true
		}
	}
	var sorted []order
	for _, o := range q.orders {
		if o.raw != nameField && !equal[o.raw] {
			sorted = append(sorted, o)
		}
	}
	// Single fields are indexed by themselves and can be merged, except in a
	// collection group, where even one field needs a declared index.
	if !q.group && (len(sorted) == 0 || len(sorted) == 1 && len(equal) == 0) || q.group && len(sorted) == 0 && len(equal) == 0 {
		return ""
	}
	scope := scopeCollection
	if q.group {
		scope = scopeGroup
	}
	for i := range ix.Composite {
		if x := &ix.Composite[i]; x.CollectionGroup == q.collection && x.QueryScope == scope && x.serves(equal, sorted) {
			return ""
		}
	}
	if q.group && len(equal)+len(sorted) == 1 && ix.overrideServes(q, equal, sorted) {
		return ""
	}
	var parts []string
	for f := range equal {
		parts = append(parts, f+" "+ascending)
	}
	sort.Strings(parts)
	for _, o := range sorted {
		parts = append(parts, o.raw+" "+map[bool]string{false: ascending, true: descending}[o.desc])
	}
	return fmt.Sprintf("%s [%s] %s", q.collection, scope, strings.Join(parts, ", "))
}

// serves tells whether the index has the equality fields first, in any order,
// and then the sorted ones in theirs, or all of these the other way round.
func (x *Index) serves(equal map[string]bool, sorted []order) bool {
	if len(x.Fields) != len(equal)+len(sorted) {
		return false
	}
	for _, flip := range []bool{false, true} {
		if x.servesFlipped(equal, sorted, flip) {
			return true
		}
	}
	return false
}

func (x *Index) servesFlipped(equal map[string]bool, sorted []order, flip bool) bool {
	for i, f := range x.Fields {
		if i < len(equal) {
			if !equal[f.FieldPath] {
				return false
			}
			continue
		}
		o := sorted[i-len(equal)]
		if o.raw != f.FieldPath || (o.desc != flip) != (f.Order == descending) {
			return false
		}
	}
	return true
}

func (ix *Indexes) overrideServes(q *query, equal map[string]bool, sorted []order) bool {
	for _, o := range ix.Overrides {
		if o.CollectionGroup != q.collection || !equal[o.FieldPath] && (len(sorted) == 0 || sorted[0].raw != o.FieldPath) {
			continue
		}
		if slices.ContainsFunc(o.Indexes, func(x OverrideIndex) bool { return x.QueryScope == scopeGroup }) {
			return true
		}
	}
	return false
}

// expiring are the indexes that finding expired documents takes.
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
