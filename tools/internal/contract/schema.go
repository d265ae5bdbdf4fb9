package contract

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Schema is a schema in the contract, limited to the features that our languages' types can
// express.
type Schema struct {
	Ref                 string `yaml:"$ref"`
	Type                Words
	Format              string
	Enum                []any
	Const               any
	Description         string
	Properties          Schemas
	Required            []string
	Items               *Schema
	Values              *Schema `yaml:"additionalProperties"` // schema of the values in an object with arbitrary field names
	AnyOf, OneOf, AllOf []*Schema
	Default             any
	Minimum             *float64
	Maximum             *float64
	MinItems            int  `yaml:"minItems"`
	MaxItems            int  `yaml:"maxItems"`
	ReadOnly            bool `yaml:"readOnly"`
	// Discriminator selects one schema of OneOf by the value of a field. Mapping contains a
	// reference for each value.
	Discriminator struct{ Mapping map[string]string }

	// Null means that the value may be null. [Contract.Follow] sets it.
	Null bool `yaml:"-"`
}

// UnmarshalYAML decodes a schema with OpenAPI's names.
func (s *Schema) UnmarshalYAML(n *yaml.Node) error {
	type plain Schema
	if n.Kind != yaml.MappingNode { // additionalProperties: false
		return nil
	}
	var lists struct {
		AnyOf []*Schema `yaml:"anyOf"`
		OneOf []*Schema `yaml:"oneOf"`
		AllOf []*Schema `yaml:"allOf"`
	}
	if err := n.Decode((*plain)(s)); err != nil {
		return err
	}
	err := n.Decode(&lists)
	s.AnyOf, s.OneOf, s.AllOf = lists.AnyOf, lists.OneOf, lists.AllOf
	return err
}

// Words is a word or a list of words.
type Words []string

// UnmarshalYAML decodes a single word or a list.
func (w *Words) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*w = Words{n.Value}
		return nil
	}
	return n.Decode((*[]string)(w))
}

// Property is a schema with a name: a field, or a named schema.
type Property struct {
	Name   string
	Schema *Schema
}

// Schemas are schemas by name, in contract order.
type Schemas struct{ List []Property }

// UnmarshalYAML keeps the document's order.
func (o *Schemas) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		p := Property{n.Content[i].Value, &Schema{}}
		if err := n.Content[i+1].Decode(p.Schema); err != nil {
			return err
		}
		o.List = append(o.List, p)
	}
	return nil
}

// Get returns the schema with this name, or an empty schema.
func (o Schemas) Get(name string) *Schema {
	i := slices.IndexFunc(o.List, func(p Property) bool { return p.Name == name })
	if i < 0 {
		return &Schema{}
	}
	return o.List[i].Schema
}

// At returns a named schema, or the schema of one of its fields, such as BulkItemCreated.data.
func (c *Contract) At(place string) *Schema {
	name, field, inside := strings.Cut(place, ".")
	s := c.Schemas.Get(name)
	if inside {
		return s.Properties.Get(field)
	}
	return s
}

// Name returns the name of the schema that s refers to, or "" for an inline schema.
func (s *Schema) Name() string {
	if s.Ref == "" {
		return ""
	}
	return path.Base(s.Ref)
}

// Is reports whether a value can have this JSON type, such as string.
func (s *Schema) Is(kind string) bool { return slices.Contains(s.Type, kind) }

// Follow resolves references, and converts "or null" in the type to the Null field.
func (c *Contract) Follow(s *Schema) *Schema {
	for s.Ref != "" {
		s = c.Schemas.Get(s.Name())
	}
	out := *s
	for _, part := range s.AnyOf {
		part = c.Follow(part)
		out.Type = append(slices.Clone(out.Type), part.Type...)
		if part.Items != nil {
			out.Items = part.Items
		}
		out.Properties.List = append(slices.Clone(out.Properties.List), part.Properties.List...)
		out.Required = append(slices.Clone(out.Required), part.Required...)
		out.Null = out.Null || part.Null
	}
	if i := slices.Index(out.Type, "null"); i >= 0 {
		out.Type, out.Null = slices.Delete(slices.Clone(out.Type), i, i+1), true
	}
	return &out
}

// Properties returns the fields of an object. For a oneOf, it returns the fields of all its
// schemas.
func (c *Contract) Properties(s *Schema) []Property {
	s = c.Follow(s)
	all := slices.Clone(s.Properties.List)
	for _, part := range s.OneOf {
		for _, p := range c.Properties(part) {
			if !slices.ContainsFunc(all, func(have Property) bool { return have.Name == p.Name }) {
				all = append(all, p)
			}
		}
	}
	return all
}

// Needs reports whether a field is always present.
func (c *Contract) Needs(s *Schema, name string) bool {
	s = c.Follow(s)
	for _, part := range s.OneOf {
		if !c.Needs(part, name) {
			return false
		}
	}
	return len(s.OneOf) > 0 || slices.Contains(s.Required, name)
}
