package main

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/linkreel/linkreel/tools/internal/contract"
)

// language generates the calls in the examples in one language.
type language struct {
	name  string // name in headings
	fence string // the code block's info string
	key   string // key in [example.Then] and value of {lang}
	call  func(*snippet) (string, error)
}

var languages = []language{
	{"curl", "sh", "curl", (*snippet).curl},
	{"Go", "go", "go", (*snippet).golang},
	{"TypeScript", "ts", "ts", (*snippet).typescript},
	{"Python", "python", "python", (*snippet).python},
	{"Command line", "sh cli", "cli", func(s *snippet) (string, error) { return strings.TrimRight(s.CLI, "\n"), nil }},
}

// snippet is an example in one language. later are the following examples on its page.
type snippet struct {
	*example

	all   *examples
	op    *contract.Operation
	lang  string
	later string // text of the following examples on the page, used to find the values that they need
}

// keeps reports whether a later example uses the response, and returns the name of the response.
func (s *snippet) keeps() (string, bool) {
	name, _, _ := strings.Cut(s.Save, ".")
	return name, name != "" && strings.Contains(s.later, "{"+name+"}")
}

func (s *snippet) text(n *yaml.Node) string { return strings.ReplaceAll(n.Value, "{lang}", s.lang) }

// json converts a value to JSON on one line. It converts references with ref.
func (s *snippet) json(n *yaml.Node, ref func(name string) string) string {
	switch n.Kind {
	case yaml.MappingNode:
		var parts []string
		for _, p := range pairs(n) {
			parts = append(parts, strconv.Quote(p.name)+": "+s.json(p.value, ref))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case yaml.SequenceNode:
		var parts []string
		for _, c := range n.Content {
			parts = append(parts, s.json(c, ref))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	switch n.Tag {
	case "!!int", "!!float", "!!bool", "!!null":
		return n.Value
	}
	if name := s.all.reference(n.Value); name != "" {
		return ref(name)
	}
	return strconv.Quote(s.text(n))
}

func shellName(name string) string {
	out := ""
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			out += "_"
		}
		out += string(unicode.ToUpper(r))
	}
	return out
}

// curl generates a shell command.
func (s *snippet) curl() (string, error) {
	base, token := "$BASE", "$KEY"
	if s.op.Operator() {
		base, token = "$ADMIN", "$TOKEN"
	}
	target := s.op.Path
	for _, p := range s.op.PathParameters {
		id := s.IDs[p.Name]
		if id == "" {
			return "", fmt.Errorf("the example for %s has no %s", s.op.ID, p.Name)
		}
		if name := s.all.reference(id); name != "" {
			id = "$" + shellName(name)
		}
		target = strings.Replace(target, "{"+p.Name+"}", id, 1)
	}
	sep := "?"
	for _, q := range pairs(&s.Query) {
		values := []*yaml.Node{q.value}
		if q.value.Kind == yaml.SequenceNode {
			values = q.value.Content
		}
		for _, v := range values {
			text := strings.ReplaceAll(url.QueryEscape(s.text(v)), "%2A", "*")
			if name := s.all.reference(v.Value); name != "" {
				text = "$" + shellName(name)
			}
			target += sep + q.name + "=" + text
			sep = "&"
		}
	}
	line := "curl -s "
	body := s.Body.Kind != 0
	if m := s.op.Method; m != http.MethodGet && (m != http.MethodPost || !body) {
		line += "-X " + m + " "
	}
	line += `"` + base + target + `"`
	if !s.op.Public {
		line += ` -H "Authorization: Bearer ` + token + `"`
	}
	switch {
	case body:
		if plain := s.json(&s.Body, func(string) string { return "" }); strings.Contains(plain, "'") {
			return "", fmt.Errorf("the example for %s contains a single quote, which would end the shell's string", s.op.ID)
		}
		text := s.json(&s.Body, func(name string) string { return `"'"$` + shellName(name) + `"'"` })
		line += " -H 'Content-Type: application/json' \\\n  -d '" + text + "'"
	case s.Text != "":
		line += " -H 'Content-Type: " + s.op.Body.Type + "' \\\n  --data-binary @- <<'END'"
	}
	switch name, kept := s.keeps(); {
	case kept && s.Text != "":
		return "", fmt.Errorf("the response from %s cannot be stored", s.op.ID)
	case kept:
		path := regexp.MustCompile(`\.(\d+)`).ReplaceAllString("."+strings.Join(s.all.saved[name].path, "."), "[$1]")
		line += fmt.Sprintf(" | tee %s.json\n%s=$(jq -r '%s' %s.json)", name, shellName(name), path, name)
	case s.Text != "":
		line += "\n" + strings.TrimRight(s.Text, "\n") + "\nEND"
	case !s.op.Answer().JSON() && s.op.Answer().Type != "" && s.op.Answer().Type != "application/jsonl":
		line += " -o answer"
	}
	return line, nil
}

var plainName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

// script converts a value to JavaScript.
func (s *snippet) script(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		var parts []string
		for _, p := range pairs(n) {
			if !plainName.MatchString(p.name) {
				p.name = strconv.Quote(p.name)
			}
			parts = append(parts, p.name+": "+s.script(p.value))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case yaml.SequenceNode:
		var parts []string
		for _, c := range n.Content {
			parts = append(parts, s.script(c))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return s.json(n, s.scriptRef)
}

func (s *snippet) scriptRef(name string) string {
	out := name
	for _, part := range s.all.saved[name].path {
		if _, err := strconv.Atoi(part); err == nil {
			out += "[" + part + "]!"
		} else {
			out += "." + part
		}
	}
	return out
}

func (s *snippet) typescript() (string, error) {
	on := "linkreel"
	if s.op.Operator() {
		on = "operator"
	}
	var args []string
	for _, p := range s.op.PathParameters {
		args = append(args, s.script(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s.IDs[p.Name]}))
	}
	if s.Body.Kind != 0 {
		args = append(args, s.script(&s.Body))
	}
	if s.Text != "" {
		args = append(args, strconv.Quote(s.Text))
	}
	var query []string
	for _, q := range pairs(&s.Query) {
		if !s.fixed(q.name) {
			query = append(query, q.name+": "+s.script(q.value))
		}
	}
	if len(query) > 0 {
		args = append(args, "{ "+strings.Join(query, ", ")+" }")
	}
	call := on + "." + s.op.ID + "(" + strings.Join(args, ", ") + ")"
	answer := s.op.Answer()
	switch name, kept := s.keeps(); {
	case s.Error != "":
		return "await " + call + ".catch((error) => console.log(error.code));", nil
	case kept:
		return "const " + name + " = await " + call + ";\nconsole.log(" + name + ");", nil
	case answer.Type == "":
		return "await " + call + ";", nil
	case answer.Type == "application/jsonl":
		return "for await (const line of " + call + ") console.log(line.type, line.data);", nil
	case !answer.JSON():
		return "console.log(await (await " + call + ").text());", nil
	}
	return "console.log(await " + call + ");", nil
}

// fixed reports whether a query parameter has only one possible value. The Go and TypeScript
// clients add such a parameter themselves.
func (s *snippet) fixed(name string) bool {
	for _, p := range s.op.Query {
		if p.Name == name {
			return p.Required && len(s.all.doc.Follow(p.Schema).Enum) == 1
		}
	}
	return false
}

// pythonValue converts a value to Python.
func (s *snippet) pythonValue(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		var parts []string
		for _, p := range pairs(n) {
			parts = append(parts, strconv.Quote(p.name)+": "+s.pythonValue(p.value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case yaml.SequenceNode:
		var parts []string
		for _, c := range n.Content {
			parts = append(parts, s.pythonValue(c))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	switch n.Tag {
	case "!!bool":
		return strings.ToUpper(n.Value[:1]) + n.Value[1:]
	case "!!null":
		return "None"
	}
	return s.json(n, func(name string) string {
		out := name
		for _, part := range s.all.saved[name].path {
			if _, err := strconv.Atoi(part); err == nil {
				out += "[" + part + "]"
			} else {
				out += "[" + strconv.Quote(part) + "]"
			}
		}
		return out
	})
}

func (s *snippet) python() (string, error) {
	on := "client"
	if s.op.Operator() {
		on = "operator"
	}
	var args []string
	for _, p := range s.op.PathParameters {
		args = append(args, s.pythonValue(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s.IDs[p.Name]}))
	}
	var needed []string
	given := append(pairs(&s.Body), pairs(&s.Query)...)
	if s.op.Body != nil && s.op.Body.Type == "application/json" {
		for _, f := range s.all.doc.Properties(s.op.Body.Schema) {
			if s.all.doc.Needs(s.op.Body.Schema, f.Name) {
				needed = append(needed, f.Name)
			}
		}
	}
	for _, q := range s.op.Query {
		if q.Required {
			needed = append(needed, q.Name)
		}
	}
	if s.Text != "" {
		args = append(args, strconv.Quote(s.Text))
	}
	var named []string
	for _, p := range given {
		value := s.pythonValue(p.value)
		if len(needed) == 1 && needed[0] == p.name && p.value.Kind == yaml.ScalarNode {
			args = append(args, value)
		} else {
			named = append(named, pythonName(p.name)+"="+value)
		}
	}
	args = append(args, named...)
	call := on + "." + pythonName(s.op.ID) + "(" + strings.Join(args, ", ") + ")"
	answer := s.op.Answer()
	switch name, kept := s.keeps(); {
	case s.Error != "":
		return "try:\n    " + call + "\nexcept APIError as error:\n    print(error.code)", nil
	case kept:
		return name + " = " + call + "\nprint(" + name + ")", nil
	case answer.Type == "":
		return call, nil
	case answer.Type == "application/jsonl":
		return "for line in " + call + ":\n    print(line[\"type\"], line[\"data\"])", nil
	}
	return "print(" + call + ")", nil
}

// goRef returns the Go expression for a saved value.
func (s *snippet) goRef(name string) string {
	at := s.all.saved[name]
	schema, out := at.op.Answer().Schema, name
	for _, part := range at.path {
		if n, err := strconv.Atoi(part); err == nil {
			out += fmt.Sprintf("[%d]", n)
			schema = s.all.doc.Follow(schema).Items
			continue
		}
		field := fieldNames[schema.Name()+"."+part]
		if field == "" {
			field = goName(part)
		}
		out += "." + field
		for _, p := range s.all.doc.Properties(schema) {
			if p.Name == part {
				schema = p.Schema
			}
		}
	}
	return out
}

func (s *snippet) golang() (string, error) {
	on := "c"
	if s.op.Operator() {
		on = "o"
	}
	args := []string{"ctx"}
	for _, p := range s.op.PathParameters {
		id := s.IDs[p.Name]
		if name := s.all.reference(id); name != "" {
			args = append(args, s.goRef(name))
		} else {
			args = append(args, strconv.Quote(id))
		}
	}
	switch {
	case s.op.Body == nil:
	case s.op.Body.Type != "application/json":
		args = append(args, "[]byte("+strconv.Quote(s.Text)+")")
	default:
		name := s.op.Body.Schema.Name()
		g := &goValues{snippet: s, w: newWriter(s.all.doc, clientTypes)}
		at := place{path: name, request: true, update: strings.HasSuffix(name, "Update")}
		text, err := g.object(goTypeName(name), s.op.Body.Schema, &s.Body, at)
		if err != nil {
			return "", err
		}
		args = append(args, text)
	}
	if len(s.op.Query) > 0 {
		args = append(args, s.goQuery())
	}
	call := on + "." + goName(s.op.ID) + "(" + strings.Join(args, ", ") + ")"
	answer := s.op.Answer()
	switch name, kept := s.keeps(); {
	case s.Error != "":
		return "_, err = " + call + "\nfmt.Println(client.HasCode(err, " + strconv.Quote(s.Error) + "))", nil
	case kept:
		return name + " := show(" + call + ")", nil
	case answer.Type == "":
		return "check(" + call + ")", nil
	case answer.Type == "application/jsonl":
		return "lines, err := " + call + "\ncheck(err)\n_, err = io.Copy(os.Stdout, lines)\ncheck(err)", nil
	case !answer.JSON():
		return "picture, err := " + call + "\ncheck(err)\nfmt.Printf(\"%s\\n\", picture)", nil
	}
	return "show(" + call + ")", nil
}

// goQuery generates the struct for an operation's query, following the rules of
// [goWriter.queryType].
func (s *snippet) goQuery() string {
	var fields []string
	for _, q := range pairs(&s.Query) {
		if s.fixed(q.name) {
			continue
		}
		for _, p := range s.op.Query {
			if p.Name != q.name {
				continue
			}
			schema := s.all.doc.Follow(p.Schema)
			value := s.json(q.value, s.goRef)
			switch {
			case q.value.Kind == yaml.SequenceNode:
				value = "[]string{" + strings.Trim(value, "[]") + "}"
			case schema.Is("array"):
				value = "[]string{" + value + "}"
			case schema.Is("integer") && p.Name == "cursor":
				value = "new(int64(" + value + "))"
			case p.Name == "cursor" || absentIsNotEmpty[s.op.ID+"."+p.Name], schema.Is("integer") && (schema.Minimum == nil || *schema.Minimum <= 0):
				value = "new(" + value + ")"
			}
			fields = append(fields, goName(q.name)+": "+value)
		}
	}
	return "client." + goName(s.op.ID) + "Query{" + strings.Join(fields, ", ") + "}"
}

// goValues converts the values in a body to the Go client's types.
type goValues struct {
	*snippet

	w *writer
}

func (g *goValues) object(kind string, schema *contract.Schema, n *yaml.Node, at place) (string, error) {
	var fields []string
	all := g.all.doc.Properties(schema)
	for _, p := range pairs(n) {
		found := false
		for _, f := range all {
			if f.Name != p.name {
				continue
			}
			found = true
			here := place{at.path + "." + f.Name, at.request, at.update}
			want, _, err := g.w.kind(f, g.all.doc.Needs(schema, f.Name), here)
			if err != nil {
				return "", err
			}
			value, err := g.value(want, f.Schema, p.value, here)
			if err != nil {
				return "", err
			}
			name := fieldNames[here.path]
			if name == "" {
				name = goName(f.Name)
			}
			fields = append(fields, name+": "+value)
		}
		if !found {
			return "", fmt.Errorf("%s has no %s field", at.path, p.name)
		}
	}
	return "client." + kind + "{" + strings.Join(fields, ", ") + "}", nil
}

// value converts a value to one of the client's Go types.
func (g *goValues) value(kind string, schema *contract.Schema, n *yaml.Node, at place) (string, error) {
	if of, ok := strings.CutPrefix(kind, "Field["); ok {
		of = strings.TrimSuffix(of, "]")
		if n.Tag == "!!null" {
			return "client.Clear[" + qualified(of) + "]()", nil
		}
		text, err := g.value(of, schema, n, at)
		if of == "int64" {
			text = "int64(" + text + ")"
		}
		return "client.Set(" + text + ")", err
	}
	if of, ok := strings.CutPrefix(kind, "*"); ok {
		text, err := g.value(of, schema, n, at)
		switch of {
		case "int64", "float64":
			text = of + "(" + text + ")"
		}
		return "new(" + text + ")", err
	}
	s := g.all.doc.Follow(schema)
	if of, ok := strings.CutPrefix(kind, "[]"); ok {
		var parts []string
		for _, c := range n.Content {
			text, err := g.value(of, s.Items, c, place{at.path + "[]", at.request, at.update})
			if err != nil {
				return "", err
			}
			parts = append(parts, strings.TrimPrefix(text, "client."+of))
		}
		return "[]" + qualified(of) + "{" + strings.Join(parts, ", ") + "}", nil
	}
	switch {
	case kind == "Time":
		return "client.Text(" + strconv.Quote(n.Value) + ")", nil
	case n.Kind == yaml.MappingNode:
		if g.w.own[at.path] != "" { // such as an item of a bulk request, which is a create's body
			schema = g.all.doc.Schemas.Get(kind)
			at.path = kind
		}
		if name := schema.Name(); name != "" { // a separate type has the same rules wherever it is used
			at = place{name, g.w.requests[name], strings.HasSuffix(name, "Update")}
		}
		return g.object(kind, schema, n, at)
	}
	return g.json(n, g.goRef), nil
}

func qualified(kind string) string {
	if of, ok := strings.CutPrefix(kind, "[]"); ok {
		return "[]" + qualified(of)
	}
	if unicode.IsUpper(rune(kind[0])) {
		return "client." + kind
	}
	return kind
}
