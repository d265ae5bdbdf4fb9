// Package contract parses the API's contract, libs/apispec/openapi.yaml, for code generators. It
// extracts the body schemas, and the properties of each operation that clients need.
package contract

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Contract is the document's content, in document order.
type Contract struct {
	Version    string // info.version
	Operations []*Operation
	Schemas    Schemas // the named schemas
}

// Operation is one method of one path.
type Operation struct {
	ID          string // such as createLink
	Tag         string // such as Links, or Operator for the operator's API
	Summary     string // one line without a full stop
	Description string // Markdown; may be empty
	Method      string // in upper case
	Path        string // such as /api/v1/links/{id}
	Public      bool   // does not require a key
	Plan, Scope string // requirements for the key, or "" for any plan or key
	// PathParameters are in path order.
	PathParameters []*Parameter
	Query          []*Parameter
	Headers        []*Parameter
	Body           *Body    // nil if the operation does not accept one
	Answers        []Answer // successful responses, sorted by status, then by media type
	Paging         Paging
	// Item is the schema of one record in a list. It is nil if the response is not a list.
	Item *Schema
	// All is the name of the iterator over all pages: links for listLinks, adminAccounts for
	// adminListAccounts. It is empty if the response is not a list.
	All string
}

// Paging tells how a client finds the next page of a list.
type Paging string

// The forms of paging. In each, the data field in the response contains the records.
const (
	NoList      Paging = ""       // the response is not a list
	Whole       Paging = "whole"  // there is only one page
	InBody      Paging = "body"   // the response has hasMore and nextCursor
	LinkHeader  Paging = "header" // the Link header with rel="next" contains the URL of the next page
	cursorParam        = "cursor"
)

// Parameter is a path, query or header parameter in a request.
type Parameter struct {
	Name, In, Description string
	Required              bool
	Schema                *Schema
}

// Body is a request body.
type Body struct {
	Required bool
	Type     string // application/json or another media type
	Schema   *Schema
}

// Answer is a successful response.
type Answer struct {
	Status int
	Type   string  // media type, or "" without a body
	Schema *Schema // nil without a body
}

// JSON reports whether the response is JSON.
func (a Answer) JSON() bool { return a.Type == "application/json" }

// Operator reports whether the operation belongs to the operator's API, which has a separate
// address and token.
func (o *Operation) Operator() bool { return o.Tag == "Operator" }

// Answer returns the response that clients decode. If there are several, it returns the one with
// the highest status, which also describes the others: the 207 from a bulk request can contain
// everything that a 201 can.
func (o *Operation) Answer() Answer {
	best := o.Answers[0]
	for _, a := range o.Answers {
		if a.Status != 304 && a.Status > best.Status {
			best = a
		}
	}
	return best
}

// Takes reports whether the operation accepts a header, such as Idempotency-Key, If-Match or
// If-None-Match.
func (o *Operation) Takes(header string) bool {
	return slices.ContainsFunc(o.Headers, func(p *Parameter) bool { return strings.EqualFold(p.Name, header) })
}

// Once reports whether a client must not repeat the call if an earlier attempt may have succeeded.
// That applies to a POST without Idempotency-Key, unless repeating it is harmless.
func (o *Operation) Once() bool {
	return o.Method == http.MethodPost && !o.Takes("Idempotency-Key") && !harmlessTwice[o.ID]
}

// harmlessTwice lists POSTs without Idempotency-Key that may be repeated because an unused code
// expires and a key is returned only once.
var harmlessTwice = map[string]bool{"createDeviceCode": true, "collectDeviceKey": true}

// Parse parses the document.
func Parse(yamlText []byte) (*Contract, error) {
	var doc document
	if err := yaml.Unmarshal(yamlText, &doc); err != nil {
		return nil, err
	}
	c := &Contract{Version: doc.Info.Version, Schemas: doc.Components.Schemas}
	for i := 0; i+1 < len(doc.Paths.Content); i += 2 {
		at, item := doc.Paths.Content[i].Value, doc.Paths.Content[i+1]
		if err := c.read(&doc, at, item); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
	}
	return c, nil
}

// document is the document without its schemas.
type document struct {
	Info       struct{ Version string }
	Paths      yaml.Node
	Components struct {
		Schemas    Schemas
		Parameters map[string]*parameter
		Responses  map[string]*response
	}
}

type parameter struct {
	Ref       string `yaml:"$ref"`
	Parameter `yaml:",inline"`
}

type response struct {
	Ref     string `yaml:"$ref"`
	Content map[string]struct{ Schema *Schema }
}

type operation struct {
	ID          string `yaml:"operationId"`
	Tags        []string
	Summary     string
	Description string
	Security    *[]map[string][]string
	Plan        string `yaml:"x-plan"`
	Scope       string `yaml:"x-scope"`
	Parameters  []*parameter
	Body        *struct {
		Required bool
		Content  map[string]struct{ Schema *Schema }
	} `yaml:"requestBody"`
	Responses map[string]*response
}

// read adds the operations of one path.
func (c *Contract) read(doc *document, at string, item *yaml.Node) error {
	var shared struct{ Parameters []*parameter }
	if err := item.Decode(&shared); err != nil {
		return err
	}
	for i := 0; i+1 < len(item.Content); i += 2 {
		method := item.Content[i].Value
		if !slices.Contains([]string{"get", "put", "post", "patch", "delete"}, method) {
			continue
		}
		var op operation
		if err := item.Content[i+1].Decode(&op); err != nil {
			return err
		}
		op.Parameters = slices.Concat(shared.Parameters, op.Parameters)
		made, err := doc.operation(&op, strings.ToUpper(method), at)
		if err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		c.list(made)
		c.Operations = append(c.Operations, made)
	}
	return nil
}

func (d *document) operation(op *operation, method, at string) (*Operation, error) {
	if op.ID == "" || len(op.Tags) != 1 {
		return nil, fmt.Errorf("the operation must have an operationId and one tag")
	}
	out := &Operation{
		ID: op.ID, Tag: op.Tags[0], Summary: op.Summary, Description: strings.TrimSpace(op.Description), Method: method, Path: at,
		Public: op.Security != nil && len(*op.Security) == 0, Plan: op.Plan, Scope: op.Scope,
	}
	for _, p := range op.Parameters {
		if p.Ref != "" {
			p = d.Components.Parameters[path.Base(p.Ref)]
		}
		switch p.In {
		case "path":
			out.PathParameters = append(out.PathParameters, &p.Parameter)
		case "query":
			out.Query = append(out.Query, &p.Parameter)
		case "header":
			out.Headers = append(out.Headers, &p.Parameter)
		}
	}
	slices.SortStableFunc(out.PathParameters, func(a, b *Parameter) int {
		return cmp.Compare(strings.Index(at, "{"+a.Name+"}"), strings.Index(at, "{"+b.Name+"}"))
	})
	if op.Body != nil {
		for kind, m := range op.Body.Content {
			out.Body = &Body{Required: op.Body.Required, Type: kind, Schema: m.Schema}
		}
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		n, err := strconv.Atoi(status)
		if err != nil || n >= 400 {
			continue
		}
		r := op.Responses[status]
		if r.Ref != "" {
			r = d.Components.Responses[path.Base(r.Ref)]
		}
		if len(r.Content) == 0 {
			out.Answers = append(out.Answers, Answer{Status: n})
		}
		for _, kind := range slices.Sorted(maps.Keys(r.Content)) {
			out.Answers = append(out.Answers, Answer{Status: n, Type: kind, Schema: r.Content[kind].Schema})
		}
	}
	if len(out.Answers) == 0 {
		return nil, fmt.Errorf("%s has no successful response", op.ID)
	}
	return out, nil
}

// list sets the fields for an operation that lists records.
func (c *Contract) list(o *Operation) {
	before, after, found := strings.Cut(o.ID, "list")
	if !found {
		before, after, found = strings.Cut(o.ID, "List")
	}
	answer := o.Answer()
	if !found || !answer.JSON() {
		return
	}
	fields := c.Properties(answer.Schema)
	i := slices.IndexFunc(fields, func(p Property) bool { return p.Name == "data" })
	if i < 0 {
		return
	}
	o.Item = c.Follow(fields[i].Schema).Items
	o.All = before + after
	if before == "" {
		o.All = strings.ToLower(after[:1]) + after[1:]
	}
	switch {
	case slices.ContainsFunc(fields, func(p Property) bool { return p.Name == "nextCursor" }):
		o.Paging = InBody
	case slices.ContainsFunc(o.Query, func(p *Parameter) bool { return p.Name == cursorParam }):
		o.Paging = LinkHeader
	default:
		o.Paging = Whole
	}
}
