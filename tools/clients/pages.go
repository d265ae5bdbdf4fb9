package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/linkreel/linkreel/tools/internal/contract"
)

const (
	pagesFolder = "docs/api"
	answersFile = "docs/api/answers.json"
)

// writePages generates the parts between marks on the pages in docs/api:
//
//	<!-- setup -->                       what the page's examples need
//	<!-- operations createLink … -->     these operations, in this order
//	<!-- end -->
//
// Everything else on a page is written by hand. A reader can paste all blocks in a language, from
// the top of the page to the bottom, as tests/contract does.
func writePages(dir string, c *contract.Contract) error {
	all, err := readExamples(dir, c)
	if err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(dir, pagesFolder, "*.md"))
	if err != nil {
		return err
	}
	shown := map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		out, err := all.page(string(text), shown)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
			return err
		}
	}
	for _, op := range c.Operations {
		if !shown[op.ID] {
			return fmt.Errorf("no page in %s shows %s", pagesFolder, op.ID)
		}
	}
	return nil
}

var marks = regexp.MustCompile(`(?s)<!-- (setup|operations)([^>]*?) -->\n.*?<!-- end -->`)

// page generates the marked parts of one page, and records the operations in them.
func (e *examples) page(text string, shown map[string]bool) (string, error) {
	var names []string
	for _, m := range marks.FindAllStringSubmatch(text, -1) {
		if m[1] == "operations" {
			names = append(names, strings.Fields(m[2])...)
		}
	}
	code, err := e.code(names)
	if err != nil {
		return "", err
	}
	out := marks.ReplaceAllStringFunc(text, func(place string) string {
		m := marks.FindStringSubmatch(place)
		var b bytes.Buffer
		fmt.Fprintf(&b, "<!-- %s%s -->\n\n", m[1], m[2])
		if m[1] == "setup" {
			e.setup(&b, names, code)
			if strings.Contains(m[2], "video") {
				b.WriteString("They also need a file `clip.mp4`. Use any video, or create one:\n\n```sh\n" +
					"ffmpeg -v error -y -f lavfi -i testsrc2=size=320x180:duration=2 -pix_fmt yuv420p clip.mp4\n```\n\n")
			}
		} else {
			for _, name := range strings.Fields(m[2]) {
				e.section(&b, name, code[name])
				shown[name] = true
			}
		}
		b.WriteString("<!-- end -->")
		return b.String()
	})
	return out, nil
}

// code generates the calls in a page's examples in all languages.
func (e *examples) code(names []string) (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	for i, name := range names {
		if e.byName[name] == nil {
			return nil, fmt.Errorf("examples.yaml has no %s", name)
		}
		out[name] = map[string]string{}
		var later strings.Builder
		for _, next := range names[i+1:] {
			x := e.byName[next]
			fmt.Fprintln(&later, x.IDs, flat(&x.Query), flat(&x.Body))
		}
		for _, l := range languages {
			s := &snippet{example: e.byName[name], all: e, op: e.operation(name), lang: l.key, later: later.String()}
			if keep, _, _ := strings.Cut(s.Save, "."); keep != "" && s.Then[l.key] != "" {
				s.later += "{" + keep + "}"
			}
			text, err := "", error(nil)
			if !s.Only {
				text, err = l.call(s)
			}
			if err != nil {
				return nil, err
			}
			if then := strings.TrimRight(s.Then[l.key], "\n"); then != "" {
				text = strings.TrimLeft(text+"\n"+then, "\n")
			}
			out[name][l.key] = text
		}
	}
	return out, nil
}

// setup generates the first steps on a page.
func (e *examples) setup(b *bytes.Buffer, names []string, code map[string]map[string]string) {
	operator := slices.ContainsFunc(names, func(name string) bool { return e.operation(name).Operator() })
	b.WriteString("The examples need the stack that `make run` starts, and [jq](https://jqlang.org). On another deployment, ")
	if operator {
		b.WriteString("set `ADMIN` and `TOKEN` to its operator address and token.\n\n")
		b.WriteString("```sh\nexport ADMIN=$(jq -r .adminUrl .local/stack.json) TOKEN=$(jq -r .adminToken .local/stack.json)\n")
		b.WriteString("export BASE=$(jq -r .baseUrl .local/stack.json) KEY=$(jq -r .keys.business .local/stack.json)\n```\n\n")
	} else {
		b.WriteString("set `BASE` to its address and `KEY` to an API key.\n\n")
		b.WriteString("```sh\nexport BASE=$(jq -r .baseUrl .local/stack.json) KEY=$(jq -r .keys.business .local/stack.json)\n```\n\n")
	}
	if len(names) == 0 {
		return
	}
	var contents []string
	for _, name := range names {
		if title := e.title(name); !e.byName[name].Brief {
			contents = append(contents, "["+title+"](#"+anchor(title)+")")
		}
	}
	if len(contents) > 1 {
		b.WriteString("Operations: " + strings.Join(contents, " · ") + "\n\n")
	}
	all := map[string]string{}
	for _, name := range names {
		for lang, text := range code[name] {
			all[lang] += text + "\n"
		}
	}
	b.WriteString("[Clients](../../libs/clients/README.md#install) explains how to install the packages, with and without network access. Run the examples of a language in order, because an example may use values from earlier ones.\n\n")
	b.WriteString("**Go**: put all lines into `main` of this program.\n\n```go\n" + goFrame(all["go"], operator) + "```\n\n")
	b.WriteString("**TypeScript**\n\n```ts\n")
	classes, clients := "Linkreel", "const linkreel = new Linkreel({ baseUrl: process.env.BASE ?? \"\", key: process.env.KEY ?? \"\" });\n"
	if operator {
		classes, clients = "Linkreel, Operator", clients+"const operator = new Operator({ baseUrl: process.env.ADMIN ?? \"\", key: process.env.TOKEN ?? \"\" });\n"
	}
	b.WriteString("import { " + classes + " } from \"@linkreel/client\";\n\n" + clients + "```\n\n")
	b.WriteString("**Python**\n\n```python\nimport os\n")
	if strings.Contains(all["python"], "APIError") {
		b.WriteString("from linkreel import APIError, Client\n\n")
	} else {
		b.WriteString("from linkreel import Client\n\n")
	}
	b.WriteString("client = Client(os.environ[\"BASE\"], os.environ[\"KEY\"])\n")
	if operator {
		b.WriteString("operator = Client(os.environ[\"ADMIN\"], os.environ[\"TOKEN\"])\n")
	}
	b.WriteString("```\n\n")
	if strings.TrimSpace(all["cli"]) != "" {
		b.WriteString("**[Command line](../cli.md)**\n\n```sh cli\nexport LINKREEL_BASE_URL=$BASE LINKREEL_API_KEY=$KEY\n")
		if operator {
			b.WriteString("export LINKREEL_ADMIN_URL=$ADMIN LINKREEL_ADMIN_TOKEN=$TOKEN\n")
		}
		b.WriteString("```\n\n")
	}
}

// goFrame returns the program that contains a page's lines.
func goFrame(lines string, operator bool) string {
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n")
	imports := []string{"context", "encoding/json", "fmt", "log", "os"}
	for _, pkg := range []string{"io", "time"} {
		if regexp.MustCompile(`\b` + pkg + `\.[A-Z]`).MatchString(lines) {
			imports = append(imports, pkg)
		}
	}
	slices.Sort(imports)
	for _, pkg := range imports {
		fmt.Fprintf(&b, "\t%q\n", pkg)
	}
	b.WriteString("\n\tclient \"github.com/linkreel/linkreel/libs/clients/go\"\n)\n\nfunc main() {\n\tctx := context.Background()\n")
	if strings.Contains(lines, "c.") {
		b.WriteString("\tc, err := client.New(client.Config{BaseURL: os.Getenv(\"BASE\"), Key: os.Getenv(\"KEY\")})\n\tcheck(err)\n")
	}
	if operator {
		b.WriteString("\to, err := client.NewOperator(client.Config{BaseURL: os.Getenv(\"ADMIN\"), Key: os.Getenv(\"TOKEN\")})\n\tcheck(err)\n")
	}
	b.WriteString("\t// the lines of the examples\n}\n\n")
	b.WriteString("func check(err error) {\n\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n}\n\n")
	b.WriteString("func show[T any](answer T, err error) T {\n\tcheck(err)\n\ttext, err := json.MarshalIndent(answer, \"\", \"  \")\n\tcheck(err)\n\tfmt.Println(string(text))\n\treturn answer\n}\n")
	return b.String()
}

// title returns the heading for an example.
func (e *examples) title(name string) string {
	summary := e.operation(name).Summary
	switch x := e.byName[name]; {
	case x.Title != "":
		return x.Title
	case x.Brief:
		return "First: " + strings.ToLower(summary[:1]) + summary[1:]
	}
	return summary
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}\-_ ]+`)

// anchor returns the fragment for a heading on GitHub and in a deployment.
func anchor(title string) string {
	return strings.ReplaceAll(strings.ToLower(notInAnchors.ReplaceAllString(title, "")), " ", "-")
}

// section generates an operation's requirements, fields, calls, and response.
func (e *examples) section(b *bytes.Buffer, name string, code map[string]string) {
	op, x := e.operation(name), e.byName[name]
	fmt.Fprintf(b, "### %s\n\n", e.title(name))
	if !x.Brief {
		fmt.Fprintf(b, "`%s %s`%s\n\n", op.Method, op.Path, needs(op))
		if rows := e.fields(op); len(rows) > 0 {
			b.WriteString("| Field | Type | |\n|---|---|---|\n" + strings.Join(rows, "") + "\n")
		}
	}
	if x.Note != "" {
		b.WriteString(strings.TrimSpace(x.Note) + "\n\n")
	}
	for _, l := range languages {
		if code[l.key] != "" {
			fmt.Fprintf(b, "**%s**\n\n```%s\n%s\n```\n\n", l.name, l.fence, code[l.key])
		}
	}
	if x.Brief {
		return
	}
	switch a := e.answers[name]; {
	case a.Status == 0:
	case len(a.Body) == 0:
		fmt.Fprintf(b, "Answer: %d, without a body.\n\n", a.Status)
	case a.Type != "":
		var text string
		if json.Unmarshal(a.Body, &text) == nil && text != "" {
			fmt.Fprintf(b, "Answer: %d, `%s`\n\n```text\n%s\n```\n\n", a.Status, a.Type, strings.TrimRight(text, "\n"))
		} else {
			fmt.Fprintf(b, "Answer: %d, `%s`.\n\n", a.Status, a.Type)
		}
	default:
		var text bytes.Buffer
		_ = json.Indent(&text, a.Body, "", "  ") // the file was parsed as JSON
		fmt.Fprintf(b, "Answer: %d\n\n```json\n%s\n```\n\n", a.Status, &text)
	}
}

// needs returns the requirements for a caller, and the headers that the operation accepts.
func needs(op *contract.Operation) string {
	var out []string
	switch {
	case op.Operator():
		out = append(out, "the operator's token")
	case op.Public:
		out = append(out, "no key")
	}
	if op.Plan != "" && op.Plan != "free" {
		out = append(out, "plan `"+op.Plan+"` or higher")
	}
	if op.Scope != "" {
		out = append(out, "scope `"+op.Scope+"`")
	}
	for _, header := range []string{"Idempotency-Key", "If-Match", "If-None-Match"} {
		if op.Takes(header) {
			out = append(out, "takes `"+header+"`")
		}
	}
	if op.All != "" && op.Paging != contract.Whole {
		out = append(out, fmt.Sprintf("`%s` of the clients iterates over all pages (`%s` in Go, `%s` in Python)", op.All, goName(op.All), pythonName(op.All)))
	}
	if len(out) == 0 {
		return ""
	}
	return " · " + strings.Join(out, " · ")
}

// fields generates the table rows for the parameters and the body fields, required ones first.
func (e *examples) fields(op *contract.Operation) []string {
	var required, others []string
	row := func(name, kind, text string, needed bool) {
		text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
		if needed {
			required = append(required, fmt.Sprintf("| `%s` | %s, required | %s |\n", name, kind, text))
		} else {
			others = append(others, fmt.Sprintf("| `%s` | %s | %s |\n", name, kind, text))
		}
	}
	for _, p := range slices.Concat(op.PathParameters, op.Query) {
		row(p.Name, e.kind(p.Schema)+" in the "+p.In, p.Description, p.Required)
	}
	if op.Body != nil && op.Body.Type == "application/json" {
		e.rows("", op.Body.Schema, true, row)
	} else if op.Body != nil {
		row("body", op.Body.Type, "The content of the file.", true)
	}
	return append(required, others...)
}

// rows calls row for each field in an object and in its nested objects.
func (e *examples) rows(before string, s *contract.Schema, needed bool, row func(name, kind, text string, needed bool)) {
	for _, f := range e.doc.Properties(s) {
		if f.Schema.ReadOnly {
			continue
		}
		full := e.doc.Follow(f.Schema)
		text := f.Schema.Description
		if text == "" {
			text = full.Description
		}
		must := needed && e.doc.Needs(s, f.Name)
		row(before+f.Name, e.kind(f.Schema), text, must)
		switch {
		case full.Is("array") && full.Items != nil && full.Items.Name() == "BulkItem": // the fields of a create
		case full.Is("array") && full.Items != nil:
			e.rows(before+f.Name+"[].", full.Items, false, row)
		case full.Is("object"):
			e.rows(before+f.Name+".", f.Schema, must, row)
		}
	}
}

// kind describes a schema's type.
func (e *examples) kind(s *contract.Schema) string {
	full := e.doc.Follow(s)
	var kinds []string
	for _, k := range full.Type {
		if k == "array" && full.Items != nil {
			k = "array of " + e.kind(full.Items)
		}
		if !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	var values []string
	for _, v := range full.Enum {
		if v != nil {
			values = append(values, fmt.Sprintf("`%v`", v))
		}
	}
	if len(values) > 0 && len(values) <= 6 && !slices.Contains(full.Type, "array") {
		kinds = []string{strings.Join(values, ", ")}
	}
	if len(kinds) == 0 {
		kinds = []string{"object"}
	}
	if full.Null {
		kinds = append(kinds, "null")
	}
	return strings.Join(kinds, " or ")
}
