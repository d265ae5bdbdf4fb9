package main

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is the part of the contract that describes bodies.
type document struct {
	Paths map[string]map[string]operation

	Components struct{ Schemas ordered }
}

// operation is a method of a path. A path also has parameters, which have no body.
type operation struct {
	RequestBody struct {
		Content map[string]struct{ Schema schema }
	} `yaml:"requestBody"`
}

// UnmarshalYAML reads operations and skips everything else in a path.
func (o *operation) UnmarshalYAML(n *yaml.Node) error {
	type plain operation
	if n.Kind != yaml.MappingNode {
		return nil
	}
	return n.Decode((*plain)(o))
}

// schema is a schema of the contract, as far as Go's types can express it.
type schema struct {
	Ref                 string `yaml:"$ref"`
	Type                words
	Description         string
	Properties          ordered
	Required            []string
	Items               *schema
	Values              *schema `yaml:"additionalProperties"` // of an object with any names
	AnyOf, OneOf, AllOf []*schema
	Default             any
	Minimum             *float64
	MinItems            int  `yaml:"minItems"`
	ReadOnly            bool `yaml:"readOnly"`
	Discriminator       struct{ Mapping map[string]string }

	null bool // the value may be null
}

// UnmarshalYAML reads a schema with the names that OpenAPI uses.
func (s *schema) UnmarshalYAML(n *yaml.Node) error {
	type plain schema
	if n.Kind != yaml.MappingNode { // additionalProperties: false
		return nil
	}
	var lists struct {
		AnyOf []*schema `yaml:"anyOf"`
		OneOf []*schema `yaml:"oneOf"`
		AllOf []*schema `yaml:"allOf"`
	}
	if err := n.Decode((*plain)(s)); err != nil {
		return err
	}
	err := n.Decode(&lists)
	s.AnyOf, s.OneOf, s.AllOf = lists.AnyOf, lists.OneOf, lists.AllOf
	return err
}

// words is a word or a list of words.
type words []string

// UnmarshalYAML reads both forms.
func (w *words) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*w = words{n.Value}
		return nil
	}
	return n.Decode((*[]string)(w))
}

type component struct {
	name   string
	schema *schema
}

// ordered are schemas by name, in the order of the contract.
type ordered struct{ list []component }

// UnmarshalYAML keeps the order.
func (o *ordered) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		c := component{n.Content[i].Value, &schema{}}
		if err := n.Content[i+1].Decode(c.schema); err != nil {
			return err
		}
		o.list = append(o.list, c)
	}
	return nil
}

func (o ordered) get(name string) *schema {
	i := slices.IndexFunc(o.list, func(c component) bool { return c.name == name })
	if i < 0 {
		return &schema{}
	}
	return o.list[i].schema
}

// at is the schema of a component, or of a component's field, such as
// BulkItemCreated.data.
func (d *document) at(place string) *schema {
	name, field, inside := strings.Cut(place, ".")
	s := d.Components.Schemas.get(name)
	if inside {
		return s.Properties.get(field)
	}
	return s
}

// name is the component that a schema refers to, "" for an inline schema.
func (s *schema) name() string {
	if s.Ref == "" {
		return ""
	}
	return path.Base(s.Ref)
}

func (s *schema) is(kind string) bool { return slices.Contains(s.Type, kind) }

// follow resolves references, and replaces "or null" in the type by the field null.
func (d *document) follow(s *schema) *schema {
	for s.Ref != "" {
		s = d.Components.Schemas.get(s.name())
	}
	out := *s
	for _, part := range s.AnyOf {
		part = d.follow(part)
		out.Type = append(slices.Clone(out.Type), part.Type...)
		if part.Items != nil {
			out.Items = part.Items
		}
		out.Properties.list = append(slices.Clone(out.Properties.list), part.Properties.list...)
		out.Required = append(slices.Clone(out.Required), part.Required...)
		out.null = out.null || part.null
	}
	if i := slices.Index(out.Type, "null"); i >= 0 {
		out.Type, out.null = slices.Delete(slices.Clone(out.Type), i, i+1), true
	}
	return &out
}

// properties are the fields of an object. For a oneOf they are the fields of all its
// schemas.
func (s *schema) properties(d *document) []component {
	s = d.follow(s)
	all := slices.Clone(s.Properties.list)
	for _, part := range s.OneOf {
		for _, p := range part.properties(d) {
			if !slices.ContainsFunc(all, func(c component) bool { return c.name == p.name }) {
				all = append(all, p)
			}
		}
	}
	return all
}

// needs reports whether a field is always present.
func (s *schema) needs(d *document, name string) bool {
	s = d.follow(s)
	for _, part := range s.OneOf {
		if !part.needs(d, name) {
			return false
		}
	}
	return len(s.OneOf) > 0 || slices.Contains(s.Required, name)
}
