package docs

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/design"
)

// The reference and the guides do not need any script: every browser shows them immediately, and
// their layout never shifts. /docs/try is rendered in the same way. Its script only submits the
// forms.

//go:embed reference guides
var sources embed.FS

// guideNames lists the documents for callers. tools/webassets copies them from docs/ and from
// libs/clients.
var guideNames = []string{
	"api", "api/links", "api/redirects", "api/statistics", "api/bulk", "api/domains", "api/videos", "api/uploads", "api/playback", "api/account",
	"api/members", "api/events", "api/webhooks", "api/operator", "api/paging", "api/idempotency", "errors", "clients", "guides", "cli", "mcp", "webhooks", "sign-in", "versioning",
}

// kept removes the markers around generated parts from a document. It also rewrites links to the
// clients' README, which is in a different folder in the repository, so they point to the served
// page.
func kept(text string) string {
	text = regexp.MustCompile(`<!-- [^>]* -->\n+`).ReplaceAllString(text, "")
	return strings.NewReplacer("(../../libs/clients/README.md", "(../clients.md", "(../libs/clients/README.md", "(clients.md").Replace(text)
}

var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.ParseFS(sources, "reference/page.html"))
})

type guide struct{ Name, Title, Text string }

type page struct {
	Title, Description string
	Script             string
	Body               template.HTML
	Guides             []guide
	Groups             []group
}

type group struct {
	Name       string
	Operations []operation
}

type operation struct {
	ID, Method, Class, Path, Summary, Plan, Scope string
	Open                                          bool
	Examples                                      string // links to examples in the guides
	Text                                          template.HTML
	Parameters, Body, Answer                      *fields
	Statuses                                      []string
	Form                                          form
}

type fields struct {
	Title, Of string
	Rows      []field
}

type field struct {
	Name, Type string
	Needed     bool
	Text       template.HTML
}

func guides() []guide {
	out := make([]guide, len(guideNames))
	for i, name := range guideNames {
		text := kept(string(source("guides/" + name + ".md")))
		title, _, _ := strings.Cut(text, "\n")
		out[i] = guide{name, strings.TrimPrefix(title, "# "), text}
	}
	return out
}

func source(name string) []byte {
	b, err := sources.ReadFile(name)
	if err != nil {
		panic(err) // cannot happen: the file is embedded
	}
	return b
}

// reference builds the pages from the contract and the guides.
func reference() map[string]File {
	var doc document
	if err := json.Unmarshal(apispec.Load().JSON(), &doc); err != nil {
		panic(err) // the contract has already been parsed
	}
	all := guides()
	doc.examples = examples(all)
	groups := doc.groups()
	out := map[string]File{
		"/docs": render("reference", page{
			Title: "Linkreel API", Description: "Linkreel API: short links and shareable videos over JSON.",
			Body: toHTML(doc.Info.Description, 3), Guides: all, Groups: groups,
		}),
		"/docs/try": render("try", page{
			Title: "Try it · Linkreel API", Description: "Call the Linkreel API from this page.",
			Script: "/docs/try.js", Groups: groups,
		}),
		"/docs/try.js":        packed("text/javascript; charset=utf-8", source("reference/try.js")),
		"/docs/reference.css": packed("text/css; charset=utf-8", slices.Concat([]byte(design.Tokens), source("reference/reference.css"))),
		"/docs/icon.svg":      packed("image/svg+xml", source("reference/icon.svg")),
		"/llms.txt":           packed("text/plain; charset=utf-8", doc.forModels(all)),
	}
	for _, g := range all {
		out["/docs/guides/"+g.Name] = render("guide", page{Title: g.Title + " · Linkreel", Description: g.Title, Body: documentHTML(g.Name, g.Text, 1)})
		out["/docs/guides/"+g.Name+".md"] = packed("text/markdown; charset=utf-8", []byte(g.Text))
	}
	return out
}

func render(name string, p page) File {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, p); err != nil {
		panic(err) // the text is embedded, so tests would have caught it
	}
	return packed("text/html; charset=utf-8", b.Bytes())
}

// packed returns a file, with a compressed copy if the file is large enough.
func packed(contentType string, data []byte) File {
	f := file(contentType, data)
	if len(data) < 2<<10 {
		return f
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	if cerr := w.Close(); err != nil || cerr != nil {
		return f // cannot happen when writing to memory; the plain bytes still work
	}
	f.Gzip = b.Bytes()
	return f
}

var exampleHeading = regexp.MustCompile("(?m)^### (.+)\n\n`([A-Z]+ /[^`]+)`")

// examples maps operations, such as "GET /api/v1/links", to links to examples in the guides.
func examples(all []guide) map[string]string {
	out := map[string]string{}
	for _, g := range all {
		for _, m := range exampleHeading.FindAllStringSubmatch(g.Text, -1) {
			out[m[2]] = "/docs/guides/" + g.Name + "#" + string(anchors{}.Generate([]byte(m[1]), 0))
		}
	}
	return out
}

// document contains the parts of the contract that the reference shows.
type document struct {
	examples map[string]string

	Info struct{ Summary, Description string }
	Tags []struct{ Name string }

	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Schemas    map[string]schema
		Parameters map[string]parameter
	}
}

type parameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                schema
	Example               json.RawMessage
}

type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Description          string
	Properties           map[string]schema
	Required             []string
	Items                *schema
	AnyOf, OneOf, AllOf  []schema
	Enum                 []any
	Const                any
	AdditionalProperties any
	ReadOnly             bool
}

type described struct {
	OperationID, Summary, Description string
	Parameters                        []parameter
	RequestBody                       struct{ Content map[string]media }
	Responses                         map[string]struct {
		Content map[string]struct{ Schema schema }
	}
}

func (d *document) groups() []group {
	out := []group{}
	for _, tag := range d.Tags {
		if tag.Name == "Operator" {
			continue // readers of this page cannot reach the operator's API
		}
		g := group{Name: tag.Name}
		for _, r := range apispec.Load().Routes() {
			if r.Tag == tag.Name {
				g.Operations = append(g.Operations, d.operation(r))
			}
		}
		out = append(out, g)
	}
	return out
}

func (d *document) operation(r apispec.Route) operation {
	var op described
	if err := json.Unmarshal(d.Paths[r.Path][strings.ToLower(r.Method)], &op); err != nil {
		panic(fmt.Sprintf("%s: %v", r.OperationID, err)) // every test in this package would fail
	}
	op.Parameters = d.parameters(r.Path, op)
	out := operation{
		ID: r.OperationID, Method: r.Method, Class: strings.ToLower(r.Method), Path: r.Path, Summary: op.Summary, Plan: r.Plan,
		Scope: r.Scope, Open: r.Open, Examples: d.examples[r.Method+" "+r.Path],
		Text: toHTML(op.Description, 4), Statuses: slices.Sorted(maps.Keys(op.Responses)),
	}
	out.Form = d.form(r, op)
	var rows []field
	for _, p := range op.Parameters {
		rows = append(rows, field{p.Name, d.kind(p.Schema) + " in " + p.In, p.Required, toSpan(p.Description)})
	}
	out.Parameters = table("Parameters", op.Summary, rows)
	out.Body = table("Body", op.Summary, d.rows(op.RequestBody.Content["application/json"].Schema))
	for _, status := range out.Statuses {
		if status[0] == '2' {
			out.Answer = table("Answer "+status, op.Summary, d.rows(op.Responses[status].Content["application/json"].Schema))
			break
		}
	}
	return out
}

// parameters returns the path's parameters, which all its operations share, together with one
// operation's.
func (d *document) parameters(path string, op described) (all []parameter) {
	if shared := d.Paths[path]["parameters"]; shared != nil {
		if err := json.Unmarshal(shared, &all); err != nil {
			panic(fmt.Sprintf("%s: %v", path, err)) // every test in this package would fail
		}
	}
	all = append(all, op.Parameters...)
	for i, p := range all {
		if p.Ref != "" {
			all[i] = d.Components.Parameters[last(p.Ref)]
		}
	}
	return all
}

func table(title, of string, rows []field) *fields {
	if len(rows) == 0 {
		return nil
	}
	return &fields{title, of, rows}
}

func (d *document) rows(s schema) (rows []field) {
	s = d.resolve(s)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		if p.ReadOnly {
			continue // accepted in a request, but has no effect
		}
		text := p.Description
		if text == "" {
			text = d.resolve(p).Description
		}
		rows = append(rows, field{name, d.kind(p), slices.Contains(s.Required, name), toSpan(text)})
	}
	return rows
}

// resolve follows references and merges the parts of an allOf.
func (d *document) resolve(s schema) schema {
	for s.Ref != "" {
		s = d.Components.Schemas[last(s.Ref)]
	}
	for _, part := range s.AllOf {
		part = d.resolve(part)
		if s.Properties == nil {
			s.Properties = map[string]schema{}
		}
		maps.Copy(s.Properties, part.Properties)
		s.Required = append(s.Required, part.Required...)
	}
	return s
}

// kind describes the type of a schema in words.
func (d *document) kind(s schema) string {
	s = d.resolve(s)
	var kinds []string
	switch t := s.Type.(type) {
	case string:
		kinds = []string{t}
	case []any:
		for _, k := range t {
			kinds = append(kinds, fmt.Sprint(k))
		}
	}
	for _, part := range append(s.AnyOf, s.OneOf...) {
		if k := d.kind(part); !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	if i := slices.Index(kinds, "array"); i >= 0 && s.Items != nil {
		kinds[i] = "array of " + d.kind(*s.Items)
	}
	if len(kinds) == 0 {
		return "object"
	}
	return strings.Join(kinds, " or ")
}

func last(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// forModels returns llms.txt (llmstxt.org), which lists the documents and has a line for each
// operation.
func (d *document) forModels(all []guide) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Linkreel\n\n> Short links that redirect, and videos that you share by link, over a JSON API. Each request "+
		"carries `Authorization: Bearer <key>`; paths start with `/api/v1`.\n\n")
	b.WriteString("## Documentation\n\n")
	for _, g := range all {
		fmt.Fprintf(&b, "- [%s](/docs/guides/%s.md)\n", g.Title, g.Name)
	}
	b.WriteString("- [The contract, OpenAPI 3.1](/openapi.yaml)\n")
	for _, g := range d.groups() {
		fmt.Fprintf(&b, "\n## %s\n\n", g.Name)
		for _, op := range g.Operations {
			needs := "no key"
			if !op.Open {
				needs = "plan " + cmp.Or(op.Plan, "any") + ", scope " + cmp.Or(op.Scope, "any")
			}
			fmt.Fprintf(&b, "- [%s](%s): `%s %s` (%s)\n", op.Summary, strings.Replace(op.Examples, "#", ".md#", 1), op.Method, op.Path, needs)
		}
	}
	return b.Bytes()
}
