package record

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// indexFile is a firestore.indexes.json. This package only adds entries to it.
type indexFile struct {
	Indexes        []json.RawMessage `json:"indexes"`
	FieldOverrides []json.RawMessage `json:"fieldOverrides"`
}

// Indexes adds the indexes of the set's kinds to the contents of a firestore.indexes.json. Each
// kind is indexed by account, for the pages of its lists, and by due time if it has one. All other fields are exempt from
// indexing: an unused index costs a write, and an index on increasing times accepts only 500 writes
// a second across all accounts. Indexes does not change fields that are already in the file.
//
// Like the Firestore client, Indexes derives a document's fields from the tags of its Go type. It
// is called only to deploy or check indexes, never for a request.
func (s *Set) Indexes(file []byte) []byte {
	var f indexFile
	if err := json.Unmarshal(file, &f); err != nil {
		panic(fmt.Errorf("firestore.indexes.json: %w", err)) // the file is part of the program
	}
	decided := decidedIn(f.FieldOverrides)
	for _, k := range s.kinds {
		k.addIndexes(&f, decided)
	}
	out, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		panic(err) // cannot happen: f was parsed above
	}
	return out
}

func (k *Kept[T]) addIndexes(f *indexFile, decided map[string]bool) {
	if k.k.Paged {
		f.Indexes = append(f.Indexes, jsonOf(
			`{"collectionGroup":%q,"queryScope":"COLLECTION","fields":[{"fieldPath":"accountId","order":"ASCENDING"},{"fieldPath":"createdAt","order":"DESCENDING"}]}`,
			k.k.Collection))
	}
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

// This package does not know about the document types of traces, so the file must list their
// indexes.
func (Traces) addIndexes(*indexFile, map[string]bool) {}

func jsonOf(format string, values ...any) json.RawMessage { return fmt.Appendf(nil, format, values...) }

// decidedIn returns the fields for which a file has an entry, either for the field itself or for a
// part of it.
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

// fieldsOf returns the fields of a document, which is a struct or a pointer to one.
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
