package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/linkreel/linkreel/tools/internal/contract"
)

//go:embed examples.yaml
var examplesText []byte

// example is a call of an operation, written once for all languages. A text such as {link} in it is
// the value that an earlier example saved by this name, and {lang} is the language.
type example struct {
	IDs   map[string]string // parameters of the path
	Query yaml.Node
	Body  yaml.Node // of JSON
	Text  string    // a body that is not JSON
	Save  string    // such as "link.id": the answer is called link, and {link} is its field id
	CLI   string    // a command that does the same
	// Error is the code of the answer, if the example shows a call that is refused.
	Error string
	// Brief leaves out everything but the calls: the page needs the record, and another page explains
	// the operation.
	Brief bool
	// Varies says that two answers differ in more than ids and times, so the test compares only their
	// fields.
	Varies bool
	Title  string            // of the section; otherwise the operation's summary
	Note   string            // a sentence or more before the calls
	Then   map[string]string // further lines, by language
	Only   bool              // the lines of Then, without the call
}

// examples are all examples, by the id of their operation, or by the id, a full stop and a word if
// the operation has several.
type examples struct {
	doc     *contract.Contract
	byName  map[string]*example
	saved   map[string]savedValue // by the name of the answer
	answers map[string]answer
}

// savedValue is a field of an answer that later examples use.
type savedValue struct {
	op   *contract.Operation
	path []string
}

// answer is what the deployment answered to the call with curl. tests/contract records it.
type answer struct {
	Status int             `json:"status"`
	Type   string          `json:"type,omitempty"` // of a body that is not JSON
	Body   json.RawMessage `json:"body,omitempty"` // a string if it is not JSON
}

func readExamples(dir string, c *contract.Contract) (*examples, error) {
	e := &examples{doc: c, byName: map[string]*example{}, saved: map[string]savedValue{}, answers: map[string]answer{}}
	if err := yaml.Unmarshal(examplesText, &e.byName); err != nil {
		return nil, fmt.Errorf("examples.yaml: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(e.byName)) {
		op := e.operation(name)
		if op == nil {
			return nil, fmt.Errorf("examples.yaml: the contract has no operation %s", name)
		}
		if save := e.byName[name].Save; save != "" {
			path := strings.Split(save, ".")
			e.saved[path[0]] = savedValue{op, path[1:]}
		}
	}
	for _, op := range c.Operations {
		if e.byName[op.ID] == nil {
			return nil, fmt.Errorf("examples.yaml: no example of %s", op.ID)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, answersFile))
	if err != nil {
		return nil, err
	}
	return e, json.Unmarshal(text, &e.answers)
}

// operation finds the operation of an example.
func (e *examples) operation(name string) *contract.Operation {
	id, _, _ := strings.Cut(name, ".")
	for _, op := range e.doc.Operations {
		if op.ID == id {
			return op
		}
	}
	return nil
}

// reference is the name in a text such as {link}; "" for any other text.
func (e *examples) reference(text string) string {
	name, ok := strings.CutPrefix(text, "{")
	if name, ok = strings.CutSuffix(name, "}"); ok && e.saved[name].op != nil {
		return name
	}
	return ""
}

// pair is a name and a value.
type pair struct {
	name  string
	value *yaml.Node
}

// pairs are the names and values of a mapping, in its order.
func pairs(n *yaml.Node) (out []pair) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		out = append(out, pair{n.Content[i].Value, n.Content[i+1]})
	}
	return out
}

// flat is the text of a value, to find the references in it.
func flat(n *yaml.Node) string {
	out := n.Value
	for _, c := range n.Content {
		out += " " + flat(c)
	}
	return out
}
