package docs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html/template"
	"maps"
	"slices"

	"github.com/linkreel/linkreel/libs/apispec"
)

// form is the form on /docs/try for one operation.
type form struct {
	Inputs []input
	Body   *body
}

// input is one parameter. Its field is plain text even if the parameter is a number. The page does
// not validate it, so readers can see how the API reports mistakes.
type input struct {
	ID, Name, In, Example string
	Needed, Many          bool
	Choices               []string
	Text                  template.HTML
}

type body struct {
	ID, Type string
	Examples []example
}

type example struct{ Title, Text string }

// media is an example body with one content type.
type media struct {
	Schema   schema
	Examples map[string]struct {
		Summary string
		Value   json.RawMessage
	}
}

func (d *document) form(r apispec.Route, op described) form {
	var f form
	for _, p := range op.Parameters {
		s := d.resolve(p.Schema)
		in := input{
			ID: r.OperationID + "-" + p.Name, Name: p.Name, In: p.In, Example: text(p.Example), Needed: p.Required,
			Many: s.Type == "array", Text: toSpan(cmp.Or(p.Description, s.Description)),
		}
		for _, choice := range s.Enum {
			if c, ok := choice.(string); ok {
				in.Choices = append(in.Choices, c)
			}
		}
		f.Inputs = append(f.Inputs, in)
	}
	for kind, m := range op.RequestBody.Content { // every operation accepts at most one content type
		f.Body = &body{ID: r.OperationID, Type: kind, Examples: m.examples()}
	}
	return f
}

// examples returns the contract's examples, shortest first, because the shortest example shows
// only the required fields.
func (m media) examples() []example {
	var out []example
	for _, name := range slices.Sorted(maps.Keys(m.Examples)) {
		e := m.Examples[name]
		out = append(out, example{cmp.Or(e.Summary, name), text(e.Value)})
	}
	slices.SortStableFunc(out, func(a, b example) int { return len(a.Text) - len(b.Text) })
	return out
}

// text formats a JSON value as a person would type it, without quotes around strings.
func text(v json.RawMessage) string {
	var s string
	if len(v) == 0 || json.Unmarshal(v, &s) == nil {
		return s
	}
	var b bytes.Buffer
	if err := json.Indent(&b, v, "", "  "); err != nil {
		panic(err) // the contract has already been parsed
	}
	return b.String()
}
