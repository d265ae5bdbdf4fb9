// Package apispec holds the contract of the HTTP API, openapi.yaml, and makes it
// available at run time: which operations exist, and which JSON schema a request body
// must satisfy. The services validate with the same schemas that callers read, so the
// document and the code cannot disagree.
//
// The schemas cover types, lengths in code points, enumerations, required names and
// array sizes. The domain packages check what schemas cannot express: addresses, slugs,
// dates, rules between fields.
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

// location is the name under which the schemas refer to each other. Nothing is loaded
// from it.
const location = "https://api.linkreel.invalid/openapi.json"

var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// Route is one operation of the document. Path is in OpenAPI's format, with parameters
// in braces.
type Route struct {
	Method, Path, OperationID string
	// Tag is the first tag; "Operator" marks operations that only the operator may call.
	Tag string
	// Scope and Plan are what a key needs; empty if the operation requires none.
	Scope, Plan string
	// Open marks an operation that needs no key: its security is an empty list.
	Open bool
}

// Operation says what a request may contain.
type Operation struct {
	// Query maps the name of each query parameter to whether it may be repeated.
	Query map[string]bool
	// Body is set if the operation takes a body of any type.
	Body bool
	// Schema is the schema of the JSON body; nil if the operation takes none. Values to
	// validate must keep numbers exact, as [jsonschema.UnmarshalJSON] does.
	Schema *jsonschema.Schema
}

// Document is the parsed contract. It is immutable and safe for concurrent use.
type Document struct {
	json       []byte
	routes     []Route
	operations map[string]*Operation // by method and path
	components map[string]*jsonschema.Schema
}

// Load returns the embedded document. The first call parses it and compiles its
// schemas. If that fails, the build is broken and must not run, so Load panics.
func Load() *Document { return load() }

var load = sync.OnceValue(func() *Document {
	d, err := Parse(source)
	if err != nil {
		panic(fmt.Sprintf("apispec: %v", err))
	}
	return d
})

// Parse reads an OpenAPI 3.1 document in YAML. It is exported for tests that break the
// contract on purpose; all other code uses [Load].
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
	// The whole document is one resource, so that references between its schemas need no rewriting.
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
				return nil, fmt.Errorf("request of %s %s: %w", m, path, err)
			}
		}
	}
	sort.Slice(d.routes, func(i, j int) bool {
		a, b := d.routes[i], d.routes[j]
		return a.Path < b.Path || a.Path == b.Path && a.Method < b.Method
	})
	return d, nil
}

// Loosen removes the schemas of items from the lists that are marked x-item-errors. The
// operation checks each of these items by itself and answers an invalid one as an error of
// that item, so whoever validates whole requests must let the item pass. v is a document or
// a part of one, as encoding/json decodes it, and is changed in place.
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

// query maps the name of each query parameter to whether it may be repeated.
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

// Operation finds an operation by method and OpenAPI path ("/api/v1/links/{id}"). It
// returns nil if the document does not have it.
func (d *Document) Operation(method, path string) *Operation {
	return d.operations[strings.ToUpper(method)+" "+path]
}

// Component finds a schema under components/schemas by name. It returns nil if there is
// none. The code uses it for BulkItem, because a bulk request is validated item by item.
func (d *Document) Component(name string) *jsonschema.Schema { return d.components[name] }

// Routes lists every operation, by path and method.
func (d *Document) Routes() []Route { return append([]Route(nil), d.routes...) }

// YAML returns the document as it is in openapi.yaml.
func (d *Document) YAML() []byte { return source }

// JSON returns the same document as JSON, with names in their original order.
func (d *Document) JSON() []byte { return d.json }

// noLoader fetches nothing: every reference must stay inside the document.
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

// object walks down nested maps by name. It returns nil if a step is missing.
func object(v any, names ...string) map[string]any {
	for _, n := range names {
		m, _ := v.(map[string]any)
		v = m[n]
	}
	m, _ := v.(map[string]any)
	return m
}

// toJSON keeps the order of names, because people read the result.
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
