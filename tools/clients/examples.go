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

// example is an example call to an operation, for all languages. A placeholder such as {link}
// stands for the value that an earlier example saved under that name, and {lang} stands for the
// language.
type example struct {
	IDs   map[string]string // path parameters
	Query yaml.Node
	Body  yaml.Node // JSON body
	Text  string    // a body that is not JSON
	Save  string    // such as "link.id": saves the response as link and its id field as {link}
	CLI   string    // equivalent command
	// Error is the error code in the response, if the example shows a rejected call.
	Error string
	// Brief omits everything except the calls because another page explains the operation.
	Brief bool
	// Varies means that two responses differ in more than IDs and times. In that case, the test
	// only compares their fields.
	Varies bool
	Title  string            // section title; by default the operation's summary
	Note   string            // text before the calls
	Then   map[string]string // additional lines, by language
	Only   bool              // only the lines of Then, without the call
}

// examples contains all examples by operation ID. If an operation has several examples, the key is
// its ID, a full stop and a word.
type examples struct {
	doc     *contract.Contract
	byName  map[string]*example
	saved   map[string]savedValue // by response name
	answers map[string]answer
}

// savedValue is a field in a response that later examples use.
type savedValue struct {
	op   *contract.Operation
	path []string
}

// answer is the deployment's response to the curl call, as recorded by tests/contract.
type answer struct {
	Status int             `json:"status"`
	Type   string          `json:"type,omitempty"` // media type of a body that is not JSON
	Body   json.RawMessage `json:"body,omitempty"` // a string if the body is not JSON
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
			return nil, fmt.Errorf("examples.yaml: no example for %s", op.ID)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, answersFile))
	if err != nil {
		return nil, err
	}
	return e, json.Unmarshal(text, &e.answers)
}

// operation returns the operation in an example.
func (e *examples) operation(name string) *contract.Operation {
	id, _, _ := strings.Cut(name, ".")
	for _, op := range e.doc.Operations {
		if op.ID == id {
			return op
		}
	}
	return nil
}

// reference returns the name in a placeholder such as {link}, or "" if text is not a placeholder.
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

// pairs returns the names and values of a mapping, in order.
func pairs(n *yaml.Node) (out []pair) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		out = append(out, pair{n.Content[i].Value, n.Content[i+1]})
	}
	return out
}

// flat returns a value as text, so that references in it can be found.
func flat(n *yaml.Node) string {
	out := n.Value
	for _, c := range n.Content {
		out += " " + flat(c)
	}
	return out
}
