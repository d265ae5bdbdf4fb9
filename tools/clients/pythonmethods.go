package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/linkreel/linkreel/tools/internal/contract"
)

// pythonMethods generates the methods of Client or of AsyncClient.
func pythonMethods(async bool) func(*contract.Contract) ([]byte, error) {
	return func(c *contract.Contract) ([]byte, error) {
		m := &pythonClass{python: newPython(c), async: async}
		core, name, options, walk := "Core", "Operations", "Options", "Iterator"
		if async {
			core, name, options, walk = "AsyncCore", "AsyncOperations", "AsyncOptions", "AsyncIterator"
		}
		m.options, m.walk = options, walk
		fmt.Fprintf(&m.out, pythonHead, "A method for each operation of the API.")
		fmt.Fprintf(&m.out, "from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Union, cast\nfrom typing import %s\n\n", walk)
		if async {
			m.out.WriteString("from ._async_core import AsyncCore\nfrom ._core import AsyncOptions\n")
		} else {
			m.out.WriteString("from ._core import Core, Options\n")
		}
		m.out.WriteString("from ._values import UNSET, Day, Time, Unset, day\nfrom . import types\n")
		fmt.Fprintf(&m.out, "\n\nclass %s(%s):\n    \"\"\"A method for each operation of the API.\"\"\"\n\n", name, core)
		most := c.Follow(c.At("BulkCreate.urls")).MaxItems
		fmt.Fprintf(&m.out, "    #: Maximum number of items in a bulk request.\n    BULK_ITEMS = %d\n", most)
		for _, o := range c.Operations {
			m.method(o)
			if o.All != "" {
				m.iterator(o)
			}
		}
		return m.out.Bytes(), m.err
	}
}

type pythonClass struct {
	*python

	async         bool
	options, walk string
	out           bytes.Buffer
}

// pythonArgument is a method argument.
type pythonArgument struct {
	name, kind, value string // value is the default, or "" if the argument is required
	send              string // expression for the value in the request
	wire              string // name in the request
	doc               string
}

// pythonCall contains a method's arguments and how the method sends them.
type pythonCall struct {
	path, needed, free []pythonArgument // path parameters, required arguments, and keyword-only arguments
	query, body        []pythonArgument
	content            string // argument for a body that is not JSON
}

func (m *pythonClass) read(o *contract.Operation, leave ...string) *pythonCall {
	k := &pythonCall{}
	for _, a := range o.PathParameters {
		k.path = append(k.path, pythonArgument{name: pythonName(a.Name), kind: "str", wire: a.Name, doc: a.Description})
	}
	for _, q := range o.Query {
		if slices.Contains(leave, q.Name) {
			continue
		}
		a := pythonArgument{name: pythonName(q.Name), wire: q.Name, doc: q.Description, kind: m.queryKind(q)}
		a.send = a.name
		if a.kind == "Day" {
			a.send = "day(" + a.name + ")"
		}
		if !q.Required {
			a.kind, a.value = "Optional["+a.kind+"]", "None"
		}
		k.query = append(k.query, a)
	}
	switch {
	case o.Body == nil:
	case o.Body.Type != "application/json":
		k.content = "content"
		k.needed = append(k.needed, pythonArgument{name: "content", kind: "Union[str, bytes]", doc: "The content of the file."})
	default:
		k.body = m.bodyOf(o)
	}
	for _, a := range slices.Concat(k.body, k.query) {
		if a.value == "" {
			k.needed = append(k.needed, a)
		} else {
			k.free = append(k.free, a)
		}
	}
	seen := map[string]bool{"options": true}
	for _, a := range slices.Concat(k.path, k.needed, k.free) {
		if seen[a.name] {
			m.err = fmt.Errorf("%s has two arguments %s", o.ID, a.name)
		}
		seen[a.name] = true
	}
	return k
}

func (m *pythonClass) queryKind(q *contract.Parameter) string {
	s := m.c.Follow(q.Schema)
	switch {
	case q.Name == "at":
		return "Time"
	case (q.Name == "from" || q.Name == "to") && s.Is("string"):
		return "Day"
	case q.Schema.Ref != "":
		return m.outside(m.kind(q.Name, q.Schema, place{path: q.Name}, true))
	case s.Is("array"):
		return "Union[str, Sequence[" + m.outside(m.part(s.Items, place{path: q.Name + "[]"}, true)) + "]]"
	}
	return m.value(q.Name, s, place{path: q.Name}, true)
}

func (m *pythonClass) bodyOf(o *contract.Operation) (out []pythonArgument) {
	name := o.Body.Schema.Name()
	for _, f := range m.fields(o.Body.Schema) {
		kind := m.outside(m.kind(f.Name, f.Schema, place{path: name + "." + f.Name, request: true}, true))
		a := pythonArgument{name: pythonName(f.Name), kind: kind, wire: f.Name, doc: f.Schema.Description}
		a.send = a.name
		if !m.c.Needs(o.Body.Schema, f.Name) {
			a.kind, a.value = "Union["+kind+", Unset]", "UNSET"
			if inner, ok := strings.CutPrefix(kind, "Optional["); ok {
				a.kind = "Union[" + strings.TrimSuffix(inner, "]") + ", None, Unset]"
			}
		}
		out = append(out, a)
	}
	return out
}

// outside prefixes the names of types with their module.
func (m *pythonClass) outside(kind string) string {
	if strings.HasPrefix(kind, "Literal[") || strings.HasPrefix(kind, "Optional[Literal[") {
		return kind
	}
	var out strings.Builder
	for word := range strings.FieldsFuncSeq(pythonSpaced(kind), func(r rune) bool { return r == '\x00' }) {
		switch {
		case m.c.Schemas.Get(word).Type != nil, m.known(word):
			out.WriteString("types." + word)
		default:
			out.WriteString(word)
		}
	}
	return out.String()
}

// known reports whether a word is the name of a type in types.py.
func (m *pythonClass) known(word string) bool {
	for _, s := range m.c.Schemas.List {
		if s.Name == word {
			return true
		}
	}
	for _, name := range objectNames {
		if name == word {
			return true
		}
	}
	return m.made[word]
}

// pythonSpaced separates words and punctuation with NUL characters.
func pythonSpaced(kind string) string {
	return strings.NewReplacer("[", "\x00[\x00", "]", "\x00]\x00", ", ", "\x00, \x00").Replace(kind)
}

func (m *pythonClass) method(o *contract.Operation) {
	k, answer := m.read(o), o.Answer()
	var returns, caller, more string
	switch {
	case answer.JSON():
		returns, caller = m.outside(m.kind("", answer.Schema, place{path: o.ID}, true)), "_json"
		if o.Paging == contract.LinkHeader {
			more = ", link=True"
		}
	case answer.Type == "":
		returns, caller = "None", "_none"
	case answer.Type == "application/jsonl":
		returns, caller = m.walk+"[Dict[str, Any]]", "_lines"
	default:
		returns, caller = "bytes", "_bytes"
	}
	if caller == "_lines" || caller == "_bytes" {
		more = ", accept=(" + strings.Join(pythonAccept(o.Answers), ", ") + ",)"
	}
	if k.content != "" {
		more += fmt.Sprintf(", content=%s.encode() if isinstance(%[1]s, str) else %[1]s, content_type=%q", k.content, o.Body.Type)
	}
	if o.Once() {
		more += ", once=True"
	}
	m.signature(pythonName(o.ID), k, returns, m.async && caller != "_lines")
	m.doc(o.Summary, o.Description, k)
	m.send(o, k, caller, more, returns)
}

func pythonAccept(answers []contract.Answer) (out []string) {
	for _, a := range answers {
		if a.Type != "" {
			out = append(out, strconv.Quote(a.Type))
		}
	}
	return out
}

// iterator generates the method that iterates over all pages in a list.
func (m *pythonClass) iterator(o *contract.Operation) {
	k := m.read(o, "limit", "cursor", "after", "wait")
	answer := o.Answer().Schema
	item := m.outside(m.kind("", o.Item, place{path: answer.Name() + ".data[]"}, true))
	m.signature(pythonName(o.All), k, m.walk+"["+item+"]", false)
	m.doc("Iterate over all pages of "+pythonName(o.ID), "", k)
	if slices.ContainsFunc(o.Query, func(q *contract.Parameter) bool { return q.Name == "limit" }) {
		k.query = append(k.query, pythonArgument{wire: "limit", send: "100"})
	}
	more := ""
	if o.Paging == contract.LinkHeader {
		more = ", link=True"
	}
	m.send(o, k, "_pages", more, m.walk+"["+item+"]")
}

func (m *pythonClass) signature(name string, k *pythonCall, returns string, async bool) {
	def := "def"
	if async {
		def = "async def"
	}
	fmt.Fprintf(&m.out, "\n    %s %s(\n        self,\n", def, name)
	for _, a := range k.path {
		fmt.Fprintf(&m.out, "        %s: %s,\n", a.name, a.kind)
	}
	if len(k.path) > 0 {
		m.out.WriteString("        /,\n")
	}
	for _, a := range k.needed {
		fmt.Fprintf(&m.out, "        %s: %s,\n", a.name, a.kind)
	}
	m.out.WriteString("        *,\n")
	for _, a := range k.free {
		fmt.Fprintf(&m.out, "        %s: %s = %s,\n", a.name, a.kind, a.value)
	}
	fmt.Fprintf(&m.out, "        options: Optional[%s] = None,\n    ) -> %s:\n", m.options, returns)
}

func (m *pythonClass) doc(summary, description string, k *pythonCall) {
	text := summary + "."
	if description != "" {
		text += "\n\n" + description
	}
	doc := pythonDoc("        ", text)
	arguments := ""
	for _, a := range slices.Concat(k.path, k.needed, k.free) {
		if a.doc == "" {
			continue
		}
		lines := pythonWrap(strings.ReplaceAll(a.name+": "+a.doc, `\`, `\\`), 80)
		arguments += "            " + strings.Join(lines, "\n                ") + "\n"
	}
	if arguments != "" {
		doc = strings.TrimRight(strings.TrimSuffix(doc, `"""`), " \n") + "\n\n        Args:\n" + arguments + `        """`
	}
	m.out.WriteString(doc + "\n")
}

func (m *pythonClass) send(o *contract.Operation, k *pythonCall, caller, more, returns string) {
	arguments := ""
	if caller != "_pages" {
		arguments = strconv.Quote(o.Method) + ", "
	}
	arguments += strconv.Quote(o.Path)
	if len(k.path) > 0 {
		var pairs []string
		for _, a := range k.path {
			pairs = append(pairs, fmt.Sprintf("%q: %s", a.wire, a.name))
		}
		arguments += ", {" + strings.Join(pairs, ", ") + "}"
	}
	for _, part := range []struct {
		name string
		list []pythonArgument
	}{{"query", k.query}, {"body", k.body}} {
		if len(part.list) == 0 {
			continue
		}
		arguments += ", " + part.name + "={\n"
		for _, a := range part.list {
			arguments += fmt.Sprintf("            %q: %s,\n", a.wire, a.send)
		}
		arguments += "        }"
	}
	text := "self." + caller + "(" + arguments + more + ", options=options)"
	if m.async && caller != "_pages" && caller != "_lines" {
		text = "await " + text
	}
	switch caller {
	case "_json":
		text = fmt.Sprintf("return cast(%q, %s)", returns, text)
	case "_bytes", "_lines", "_pages":
		text = "return " + text
	}
	fmt.Fprintf(&m.out, "        %s\n", text)
}
