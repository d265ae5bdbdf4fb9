// Package apispec holds the contract of the HTTP API, openapi.yaml, and makes it
// available at run time: which operations exist, and which JSON schema a request body
// must satisfy. The services validate with the same schemas that callers read, so the
// document and the code cannot disagree.
//
// The schemas cover types, lengths in code points, enumerations, required names and array sizes.
// The domain packages check what schemas cannot express: URLs, slugs, dates, and rules that involve
// several fields.
//
// A request schema with additionalProperties: false rejects names that it does not
// list. With any other schema the response lists such names in ignoredFields. A readOnly
// property is known but cannot be set: it is accepted and listed in ignoredFields.
package apispec

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var source []byte

// location is the URL against which references between schemas are resolved. Nothing is loaded from
// it.
const location = "https://api.linkreel.invalid/openapi.json"

var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// Route describes one operation in the document. Path is in OpenAPI's format, with parameters in
// braces.
type Route struct {
	Method, Path, OperationID string
	// Tag is the first tag; "Operator" marks operations that only the operator may call.
	Tag string
	// Scope and Plan are what the operation requires of the key. They are empty if it requires
	// none.
	Scope, Plan string
	// Open marks an operation that does not need a key: its security is an empty list.
	Open bool
}

// Operation describes what a request may contain.
type Operation struct {
	// Query maps each query parameter's name to true if it may be repeated.
	Query map[string]bool
	// Body is set if the operation takes a body of any type.
	Body bool
	// Schema is the schema of the JSON body; nil if the operation takes none. Decode the values to
	// validate with [jsonschema.UnmarshalJSON], which keeps numbers exact.
	Schema *jsonschema.Schema
}

// Document is the parsed contract. It is immutable and safe for concurrent use.
type Document struct {
	json       []byte
	routes     []Route
	operations map[string]*Operation // by method and path
	components map[string]*jsonschema.Schema
}

// Load returns the embedded document. The first call parses it and compiles its schemas. Load
// panics if that fails: a build with a broken contract must not run.
func Load() *Document { return load() }

var load = sync.OnceValue(func() *Document {
	d, err := Parse(source)
	if err != nil {
		panic(fmt.Sprintf("apispec: %v", err))
	}
	return d
})

// Parse reads an OpenAPI 3.1 document in YAML. It is exported for tests with broken contracts. All
// other code uses [Load].
func Parse(src []byte) (*Document, error) {
	js, err := toJSON(src)
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(js))
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	Loosen(root)
	// The document is compiled as one resource, so references between its schemas do not need
	// rewriting.
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	if err := c.AddResource(location, root); err != nil {
		return nil, fmt.Errorf("add document: %w", err)
	}
	d := &Document{json: js, operations: map[string]*Operation{}, components: map[string]*jsonschema.Schema{}}
	for name := range object(root, "components", "schemas") {
		if d.components[name], err = c.Compile(pointer("components", "schemas", name)); err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
	}
	for path, item := range object(root, "paths") {
		for _, m := range methods {
			op := object(item, m)
			if op == nil {
				continue
			}
			d.routes = append(d.routes, route(m, path, op))
			o := &Operation{Query: query(root, object(item)["parameters"], op["parameters"]), Body: op["requestBody"] != nil}
			d.operations[strings.ToUpper(m)+" "+path] = o
			if object(op, "requestBody", "content", "application/json") == nil {
				continue
			}
			o.Schema, err = c.Compile(pointer("paths", path, m, "requestBody", "content", "application/json", "schema"))
			if err != nil {
				return nil, fmt.Errorf("request schema of %s %s: %w", m, path, err)
			}
		}
	}
	sort.Slice(d.routes, func(i, j int) bool {
		a, b := d.routes[i], d.routes[j]
		return a.Path < b.Path || a.Path == b.Path && a.Method < b.Method
	})
	return d, nil
}

// Loosen removes the item schemas from the lists that are marked x-item-errors. The operation
// checks these items one by one and reports an invalid item in that item's result, so a validator
// of whole requests must accept the item. v is a document, or part of a document, as decoded by
// encoding/json. Loosen changes it in place.
func Loosen(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["x-item-errors"] == true {
			delete(v, "items")
		}
		for _, c := range v {
			Loosen(c)
		}
	case []any:
		for _, c := range v {
			Loosen(c)
		}
	}
}

func route(method, path string, op map[string]any) Route {
	r := Route{Method: strings.ToUpper(method), Path: path}
	r.OperationID, _ = op["operationId"].(string)
	r.Scope, _ = op["x-scope"].(string)
	r.Plan, _ = op["x-plan"].(string)
	if security, ok := op["security"].([]any); ok && len(security) == 0 {
		r.Open = true
	}
	if tags, _ := op["tags"].([]any); len(tags) > 0 {
		r.Tag, _ = tags[0].(string)
	}
	return r
}

// query maps each query parameter's name to true if it may be repeated.
func query(root any, lists ...any) map[string]bool {
	out := map[string]bool{}
	for _, list := range lists {
		params, _ := list.([]any)
		for _, p := range params {
			m := object(p)
			if ref, ok := m["$ref"].(string); ok {
				m = object(root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
			if name, _ := m["name"].(string); m["in"] == "query" {
				out[name] = object(m["schema"])["type"] == "array"
			}
		}
	}
	return out
}

// Operation returns the operation with this method and OpenAPI path ("/api/v1/links/{id}"), or nil
// if the document has no such operation.
func (d *Document) Operation(method, path string) *Operation {
	return d.operations[strings.ToUpper(method)+" "+path]
}

// Component returns the schema with this name under components/schemas, or nil if there is none.
// Callers need it for BulkItem because the items in a bulk request are validated one by one.
func (d *Document) Component(name string) *jsonschema.Schema { return d.components[name] }

// Routes returns every operation, sorted by path and method.
func (d *Document) Routes() []Route { return append([]Route(nil), d.routes...) }

// YAML returns the text of openapi.yaml.
func (d *Document) YAML() []byte { return source }

// JSON returns the same document as JSON, with names in their original order.
func (d *Document) JSON() []byte { return d.json }

// noLoader does not fetch anything: every reference must stay inside the document.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is outside the document", url)
}

func pointer(parts ...string) string {
	esc := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	var b strings.Builder
	b.WriteString(location + "#")
	for _, p := range parts {
		b.WriteString("/" + esc.Replace(p))
	}
	return b.String()
}

// object follows the names through nested maps. It returns nil if a name is missing.
func object(v any, names ...string) map[string]any {
	for _, n := range names {
		m, _ := v.(map[string]any)
		v = m[n]
	}
	m, _ := v.(map[string]any)
	return m
}

// toJSON converts YAML to JSON. It keeps the order of names because people read the result.
func toJSON(src []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(src, &doc); err != nil {
		return nil, err
	}
	if doc.Kind != yaml.DocumentNode {
		return nil, fmt.Errorf("empty document")
	}
	var out bytes.Buffer
	if err := writeNode(&out, doc.Content[0]); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func writeNode(out *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.AliasNode:
		return writeNode(out, n.Alias)
	case yaml.SequenceNode:
		return writeList(out, '[', ']', len(n.Content), func(i int) error { return writeNode(out, n.Content[i]) })
	case yaml.MappingNode:
		return writeList(out, '{', '}', len(n.Content)/2, func(i int) error {
			if err := writeValue(out, n.Content[2*i].Value); err != nil {
				return err
			}
			out.WriteByte(':')
			return writeNode(out, n.Content[2*i+1])
		})
	default:
		var v any
		if err := n.Decode(&v); err != nil {
			return fmt.Errorf("line %d: %w", n.Line, err)
		}
		return writeValue(out, v)
	}
}

func writeList(out *bytes.Buffer, open, end byte, n int, item func(int) error) error {
	out.WriteByte(open)
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := item(i); err != nil {
			return err
		}
	}
	out.WriteByte(end)
	return nil
}

func writeValue(out *bytes.Buffer, v any) error {
	b, err := json.Marshal(v)
	out.Write(b)
	return err
}
