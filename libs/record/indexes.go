package record

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// indexFile is a firestore.indexes.json, of which this package adds entries only.
type indexFile struct {
	Indexes        []json.RawMessage `json:"indexes"`
	FieldOverrides []json.RawMessage `json:"fieldOverrides"`
}

// Indexes adds to the contents of a firestore.indexes.json what follows from the kinds of
// the set: each of them is found by its account, and by its due time if it has one. All
// other fields are exempt from indexing, since an index that nothing asks costs a write,
// and one of rising times takes 500 writes a second for all accounts together. For a
// field that is asked for, the file says so, and is left as it is.
//
// Firestore knows a document's fields from the tags of its Go type, and so does this: it
// is called by those who deploy or check indexes, never on the way of a record.
func (s *Set) Indexes(file []byte) []byte {
	var f indexFile
	if err := json.Unmarshal(file, &f); err != nil {
		panic(fmt.Errorf("firestore.indexes.json: %w", err)) // it is part of the program
	}
	decided := decidedIn(f.FieldOverrides)
	for _, k := range s.kinds {
		k.addIndexes(&f, decided)
	}
	out, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		panic(err) // it was read a moment ago
	}
	return out
}

func (k *Kept[T]) addIndexes(f *indexFile, decided map[string]bool) {
	for _, field := range fieldsOf(k.k.Doc(new(T))) {
		if field == "due" {
			f.Indexes = append(f.Indexes, jsonOf(
				`{"collectionGroup":%q,"queryScope":"COLLECTION","fields":[{"fieldPath":"due.bucket","order":"ASCENDING"},{"fieldPath":"due.at","order":"ASCENDING"}]}`,
				k.k.Collection))
		}
		index := ""
		if field == "accountId" {
			index = `{"queryScope":"COLLECTION","order":"ASCENDING"}`
		}
		if !decided[k.k.Collection+"."+field] {
			f.FieldOverrides = append(f.FieldOverrides, jsonOf(`{"collectionGroup":%q,"fieldPath":%q,"indexes":[%s]}`, k.k.Collection, field, index))
		}
	}
}

// The type of what traces hold is not known here, so the file says what they need.
func (Traces) addIndexes(*indexFile, map[string]bool) {}

func jsonOf(format string, values ...any) json.RawMessage { return fmt.Appendf(nil, format, values...) }

// decidedIn names the fields that a file has an entry for, or for a part of.
func decidedIn(overrides []json.RawMessage) map[string]bool {
	out := map[string]bool{}
	for _, raw := range overrides {
		var o struct{ CollectionGroup, FieldPath string }
		if err := json.Unmarshal(raw, &o); err != nil {
			panic(fmt.Errorf("firestore.indexes.json: %w", err))
		}
		field, _, _ := strings.Cut(o.FieldPath, ".")
		out[o.CollectionGroup+"."+field] = true
	}
	return out
}

// fieldsOf lists the fields of a document that is a struct or a pointer to one.
func fieldsOf(doc any) []string {
	t := reflect.TypeOf(doc)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var out []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("firestore"), ","); name != "" && name != "-" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
