// Command gotypes writes the Go types of the API's bodies from its contract,
// libs/apispec/openapi.yaml: once for the Go client, and once for the services, which
// read the requests and write the answers. Its output is committed. Run it from anywhere
// in the repository:
//
//	go -C tools run ./gotypes
//
// The contract says which fields there are, their types, and which are required or may be
// null. names.go adds Go names for the objects that have no name in the contract.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/linkreel/linkreel/tools/internal/root"
)

// target is one file that is written.
type target struct {
	file, pkg string
	imports   []string
	types     map[string]string // Go types for names and places in the contract that get no type of their own
	// The types of fields.
	answerTime   string // a point in time in an answer
	requestTime  string // any form of a point in time in a request
	requestWhole string // a whole number in a request
	change       string // a field of an update: absent, null or a value
	zeroOmitted  bool   // an optional field of a request is left out when it is zero
}

var targets = []target{{
	file: "libs/clients/go/types.go", pkg: "client",
	types: map[string]string{
		"ErrorDetail": "Detail", "ErrorCode": "string", "BulkCreate.urls[]": "LinkCreate", "Error": "", "ErrorBody": "", "BulkItem": "",
		"Event.data": "json.RawMessage", "Message": "",
	},
	imports:    []string{"encoding/json"},
	answerTime: "Millis", requestTime: "Moment", requestWhole: "int64", change: "Field", zeroOmitted: true,
}, {
	file: "libs/apispec/wire/wire.go", pkg: "wire",
	types: map[string]string{
		"ErrorDetail": "apierr.Detail", "ErrorCode": "apierr.Code", "Role": "identity.Role",
		"BulkCreate.urls[]": "json.RawMessage", "Error": "", "ErrorBody": "", "BulkItem": "", "Event.data": "json.RawMessage", "Message": "",
		"LinkCreate.domainId": "httpapi.Optional[string]", // absent and null differ
	},
	imports: []string{
		"encoding/json", "",
		"github.com/linkreel/linkreel/libs/apierr", "github.com/linkreel/linkreel/libs/httpapi",
		"github.com/linkreel/linkreel/libs/identity", "github.com/linkreel/linkreel/libs/jsdate",
	},
	answerTime: "int64", requestTime: "jsdate.Moment", requestWhole: "float64", change: "httpapi.Optional",
}}

func main() {
	log.SetFlags(0)
	dir, err := root.Dir()
	if err != nil {
		log.Fatal(err)
	}
	src, err := os.ReadFile(filepath.Join(dir, "libs/apispec/openapi.yaml"))
	if err != nil {
		log.Fatal(err)
	}
	var doc document
	if err := yaml.Unmarshal(src, &doc); err != nil {
		log.Fatal(err)
	}
	for _, t := range targets {
		out, err := newWriter(&doc, t).file()
		if err != nil {
			log.Fatalf("%s: %v", t.file, err)
		}
		path := filepath.Join(dir, t.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(path, out, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// writer makes the types of one target.
type writer struct {
	target
	doc      *document
	requests map[string]bool // the schemas of requests, by name
	forms    map[string]bool // schemas that a discriminator chooses from: one type has the fields of all of them
	out      bytes.Buffer
	made     map[string]*schema // by Go name
	used     map[string]bool    // names of the name tables that were used
	later    []later            // nameless objects found so far, to be written later
}

type later struct {
	name string
	s    *schema
	at   place
}

// place is the position of a field in the contract.
type place struct {
	path            string // such as LinkStats.days[]
	request, update bool
}

func newWriter(doc *document, t target) *writer {
	w := &writer{target: t, doc: doc, requests: map[string]bool{}, forms: map[string]bool{}, made: map[string]*schema{}, used: map[string]bool{}}
	for _, c := range doc.Components.Schemas.list {
		for _, ref := range c.schema.Discriminator.Mapping {
			w.forms[path.Base(ref)] = true
		}
	}
	for _, item := range doc.Paths {
		for _, op := range item {
			for _, m := range op.RequestBody.Content {
				w.requests[m.Schema.name()] = true
			}
		}
	}
	return w
}

func (w *writer) file() ([]byte, error) {
	for _, c := range w.doc.Components.Schemas.list {
		if _, other := w.types[c.name]; other || w.forms[c.name] || len(c.schema.properties(w.doc)) == 0 {
			continue
		}
		at := place{path: c.name, request: w.requests[c.name], update: strings.HasSuffix(c.name, "Update")}
		if err := w.object(goTypeName(c.name), c.schema, at); err != nil {
			return nil, err
		}
		for len(w.later) > 0 {
			l := w.later[0]
			w.later = w.later[1:]
			if err := w.object(l.name, l.s, l.at); err != nil {
				return nil, err
			}
		}
	}
	for at := range objectNames {
		if !w.used[at] {
			return nil, fmt.Errorf("names.go names %s, which the contract does not have", at)
		}
	}
	var head bytes.Buffer
	head.WriteString("// Code generated by tools/gotypes from libs/apispec/openapi.yaml. DO NOT EDIT.\n\n")
	fmt.Fprintf(&head, "package %s\n\nimport (\n", w.pkg)
	for _, path := range w.imports {
		if path != "" {
			path = `"` + path + `"`
		}
		fmt.Fprintf(&head, "\t%s\n", path)
	}
	head.WriteString(")\n\n")
	return format.Source(append(head.Bytes(), w.out.Bytes()...))
}

// object writes a struct. Two places may share a name if the fields that both have are
// alike. The first place must have all fields.
func (w *writer) object(name string, s *schema, at place) error {
	fields := s.properties(w.doc)
	if before := w.made[name]; before != nil {
		have := before.properties(w.doc)
		for _, f := range fields {
			if !slices.ContainsFunc(have, func(h component) bool { return h.name == f.name && slices.Equal(h.schema.Type, f.schema.Type) }) {
				return fmt.Errorf("%s is called %s, and its field %s is not there", at.path, name, f.name)
			}
		}
		return nil
	}
	w.made[name] = s
	comment(&w.out, "", typeComment(name, w.doc.follow(s).Description))
	fmt.Fprintf(&w.out, "type %s struct {\n", name)
	inherited := map[string]bool{}
	if base := bases[at.path]; base != "" {
		fmt.Fprintf(&w.out, "\t%s\n\n", goTypeName(base))
		from := w.doc.at(base)
		for _, f := range from.properties(w.doc) {
			if needed := from.needs(w.doc, f.name); needed != s.needs(w.doc, f.name) {
				return fmt.Errorf("%s is not all that %s is: %s", at.path, base, f.name)
			}
			inherited[f.name] = true
		}
	}
	for _, f := range fields {
		if inherited[f.name] || f.schema.ReadOnly {
			continue // readOnly in a request: accepted, but without effect
		}
		if err := w.field(f, s.needs(w.doc, f.name), place{at.path + "." + f.name, at.request, at.update}); err != nil {
			return err
		}
	}
	w.out.WriteString("}\n\n")
	return nil
}

func (w *writer) field(f component, needed bool, at place) error {
	name := fieldNames[at.path]
	if name == "" {
		name = goName(f.name)
	}
	kind, tag, err := w.kind(f, needed, at)
	if err != nil {
		return err
	}
	comment(&w.out, "\t", f.schema.Description)
	fmt.Fprintf(&w.out, "\t%s %s `json:\"%s%s\"`\n", name, kind, f.name, tag)
	return nil
}

// kind returns the Go type of a field, and the part of its tag after the name.
func (w *writer) kind(f component, needed bool, at place) (kind, tag string, err error) {
	s := w.doc.follow(f.schema)
	if kind, err = w.base(f.name, f.schema, at); err != nil {
		return "", "", err
	}
	list, text, whole := strings.HasPrefix(kind, "[]"), kind == "string", kind == "int" || kind == "int64"
	object, time := s.is("object") && kind != "json.RawMessage" && !strings.HasPrefix(kind, "map["), isTime(f.name, f.schema.name())
	switch {
	case at.update && !needed && list && !s.null: // an empty list is no change
		if w.zeroOmitted {
			tag = ",omitempty"
		}
	case at.update && !needed:
		kind = w.change + "[" + kind + "]"
		if w.zeroOmitted {
			tag = ",omitzero"
		}
	case at.request && needed:
		if s.null {
			kind = "*" + kind
		}
	case at.request && w.zeroOmitted:
		tag = ",omitempty"
		switch {
		case kind == w.requestTime:
			tag = ",omitzero"
		case s.Default == true, whole, time, object:
			kind = "*" + kind
		}
	case at.request && strings.HasPrefix(kind, w.change): // it says itself whether it is null
	case at.request:
		if !list && (s.null && kind != "bool" || s.Default == true || kind == w.requestTime) {
			kind = "*" + kind
		}
	case needed:
		if s.null && !list {
			kind = "*" + kind
		}
	default:
		tag = ",omitempty"
		never := s.Minimum != nil && *s.Minimum > 0 || time || s.MinItems > 0 // a value that is present is never the zero value
		switch {
		case kind == w.requestTime: // in a part that requests and answers share
			kind = "*" + kind
		case strings.HasPrefix(kind, "map["):
		case list && !never:
			tag = ",omitzero" // an empty list is shown
		case list, text: // an empty text is none
		case object, w.zeroOmitted && time, !w.zeroOmitted && !never:
			kind = "*" + kind
		}
	}
	return kind, tag, nil
}

// base is the Go type of a value that is present.
func (w *writer) base(name string, s *schema, at place) (string, error) {
	if special := w.special(s, at); special != "" {
		return special, nil
	}
	named := s.name()
	s = w.doc.follow(s)
	if len(s.properties(w.doc)) > 0 {
		if named == "" {
			if named = objectNames[at.path]; named == "" {
				return "", fmt.Errorf("%s has no name: give it one in names.go", at.path)
			}
			w.used[at.path] = true
			w.later = append(w.later, later{named, s, at})
			return named, nil
		}
		return goTypeName(named), nil
	}
	switch {
	case s.is("string") && s.is("number"):
		return w.requestTime, nil
	case s.is("array"):
		of, err := w.base(name, s.Items, place{at.path + "[]", at.request, at.update})
		return "[]" + of, err
	case s.Values != nil && s.Values.Type != nil:
		of, err := w.base(name, s.Values, place{at.path + "{}", at.request, at.update})
		return "map[string]" + of, err
	case s.is("integer"):
		return w.number(name, named, at), nil
	case s.is("number"):
		return "float64", nil
	case s.is("boolean"):
		return "bool", nil
	case s.is("string"):
		return "string", nil
	}
	return "", fmt.Errorf("%s has no type that Go has", at.path)
}

// special is the type that the target uses instead of a generated one; "" if there is
// none.
func (w *writer) special(s *schema, at place) string {
	if t := w.types[at.path]; t != "" {
		return t
	}
	if at.request {
		return "" // a caller may send a value that is not listed
	}
	return w.types[s.name()]
}

func (w *writer) number(name, named string, at place) string {
	switch {
	case isTime(name, named):
		if at.request && !w.zeroOmitted {
			return w.requestWhole
		}
		return w.answerTime
	case at.request:
		return w.requestWhole
	case slices.Contains(large, name):
		return "int64"
	}
	return "int"
}

func isTime(name, schema string) bool { return schema == "Timestamp" || strings.HasSuffix(name, "At") }

// goTypeName is the Go name of a schema.
func goTypeName(name string) string {
	if other := objectNames[name]; other != "" {
		return other
	}
	if other := typeNames[name]; other != "" {
		return other
	}
	return goName(name)
}

// goName is a name of the contract as Go writes it: shortUrl is ShortURL.
func goName(name string) string {
	var words []string
	for _, r := range strings.TrimPrefix(name, "_") {
		if len(words) == 0 || unicode.IsUpper(r) {
			words = append(words, "")
		}
		words[len(words)-1] += string(r)
	}
	for i, word := range words {
		switch lower := strings.ToLower(word); lower {
		case "id", "url":
			words[i] = strings.ToUpper(word)
		case "ids", "urls":
			words[i] = strings.ToUpper(word[:len(word)-1]) + "s"
		case "og":
			words[i] = "OG"
		default:
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

func typeComment(name, description string) string {
	if text := comments[name]; text != "" {
		return name + " " + text
	}
	if description != "" {
		return name + ": " + description
	}
	return name + " is a body of the API or a part of one."
}

// comment writes text in lines of a readable length.
func comment(out *bytes.Buffer, indent, text string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+len(word) > 96 {
			fmt.Fprintf(out, "%s// %s\n", indent, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	if line != "" {
		fmt.Fprintf(out, "%s// %s\n", indent, line)
	}
}
