package apispec_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/apispec"
)

var (
	update   = flag.Bool("update", false, "write testdata/v1.txt from the document and raise info.version after additions")
	breaking = flag.Bool("break", false, "with -update, accept that the document breaks promises")
)

const promised = "testdata/v1.txt"

// The document keeps the /api/v1 promises recorded in testdata/v1.txt (docs/versioning.md).
// Removing a line breaks callers, and so does adding a "required" or "closed" line for a request.
// The -update flag accepts such a change only together with -break. It accepts any other new line
// without -break. The first line of the file is the info.version that makes these promises. Each
// version covers one set of promises.
func TestDocumentKeepsWhatItHasPromised(t *testing.T) {
	t.Parallel()
	var doc map[string]any
	if err := json.Unmarshal(apispec.Load().JSON(), &doc); err != nil {
		t.Fatal(err)
	}
	version, _ := obj(doc["info"])["version"].(string)
	now := promises(doc)
	if *update {
		version = keep(t, version, now)
	}
	before, kept := recorded(t)
	for _, complaint := range compare(kept, now) {
		t.Error(complaint)
	}
	if before != version {
		t.Errorf("%s has the promises of version %s, but info.version is %s. Change both together with -update", promised, before, version)
	}
}

// recorded reads testdata/v1.txt: a version and its promises.
func recorded(t *testing.T) (version string, lines []string) {
	t.Helper()
	text, err := os.ReadFile(promised)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.TrimPrefix(all[0], "# "), all[1:]
}

// keep records the promises and returns their version. If the promises have changed, it first
// raises info.version in the document.
func keep(t *testing.T, version string, now []string) string {
	t.Helper()
	_, kept := recorded(t)
	next, err := successor(version, kept, now, *breaking)
	if err != nil {
		t.Fatal(err)
	}
	if next != version {
		src, err := os.ReadFile("openapi.yaml")
		if err != nil {
			t.Fatal(err)
		}
		src = bytes.Replace(src, []byte("\n  version: "+version+"\n"), []byte("\n  version: "+next+"\n"), 1)
		if err := os.WriteFile("openapi.yaml", src, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(promised, []byte("# "+next+"\n"+strings.Join(now, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return next
}

// successor returns the next version of a document whose promises have changed from kept to now.
// Additions raise the second number. Changes that break callers raise the first number, and are an
// error without -break.
func successor(version string, kept, now []string, meant bool) (string, error) {
	if slices.Equal(kept, now) {
		return version, nil
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d.", &major, &minor); err != nil {
		return "", fmt.Errorf("info.version is %q: %w", version, err)
	}
	broken := slices.DeleteFunc(compare(kept, now), func(c string) bool { return strings.HasPrefix(c, addition) })
	switch {
	case len(broken) == 0:
		return fmt.Sprintf("%d.%d.0", major, minor+1), nil
	case meant:
		return fmt.Sprintf("%d.0.0", major+1), nil
	}
	return "", fmt.Errorf("no files were written because the document breaks promises (docs/versioning.md). "+
		"If this is intended, add -break:\n%s", strings.Join(broken, "\n"))
}

func TestAnUpdateKeepsPromisesUnlessTheBreakIsMeant(t *testing.T) {
	t.Parallel()
	kept := []string{"GET /a", "request A", "request A.b"}
	for _, tt := range []struct {
		name  string
		now   []string
		meant bool
		want  string // "" is an error
	}{
		{"no change", kept, false, "1.2.3"},
		{"addition", append(slices.Clone(kept), "GET /b"), false, "1.3.0"},
		{"addition with -break", append(slices.Clone(kept), "GET /b"), true, "1.3.0"},
		{"removal", kept[1:], false, ""},
		{"removal with -break", kept[1:], true, "2.0.0"},
		{"removal and addition without -break", append(slices.Clone(kept[1:]), "GET /b"), false, ""},
		{"field becomes required", append(slices.Clone(kept), "request A.b required"), false, ""},
	} {
		if got, err := successor("1.2.3", kept, tt.now, tt.meant); got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s: successor = %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

// Every deprecated operation has the response header that docs/versioning.md promises.
func TestWhatIsDeprecatedSaysSoInItsAnswers(t *testing.T) {
	t.Parallel()
	doc := document(t)
	for _, op := range operations(doc) {
		if op.value["deprecated"] == true {
			for status, r := range walk(op.value, "responses") {
				if status[0] == '2' && walk(r, "headers", "Deprecation") == nil {
					t.Errorf("%s is deprecated, but its %s response has no Deprecation header", op.name, status)
				}
			}
			delete(op.value, "deprecated")
		}
	}
	visit(doc, "", func(at string, m map[string]any) {
		if m["deprecated"] == true {
			t.Errorf("%s is deprecated, but a response can announce only that a whole operation is deprecated. Deprecate the operation, or keep the field", at)
		}
	})
}

// addition is the prefix of a complaint about a line that does not break callers.
const addition = "a new promise; accept it with"

func compare(before, now []string) (complaints []string) {
	for _, line := range before {
		if !slices.Contains(now, line) {
			complaints = append(complaints, "a promise was removed: "+line)
		}
	}
	for _, line := range now {
		switch {
		case slices.Contains(before, line):
		case strings.Contains(line, "request ") && strings.HasSuffix(line, " closed") && slices.Contains(before, described(line)):
			complaints = append(complaints, "a request is now rejected for a field that was previously listed in ignoredFields: "+line)
		case strings.Contains(line, "request ") && strings.HasSuffix(line, " required") && slices.Contains(before, described(line)):
			complaints = append(complaints, "a request now requires a field that was previously optional: "+line)
		default:
			complaints = append(complaints, addition+" go test ./libs/apispec -run Promised -update: "+line)
		}
	}
	return complaints
}

// described returns the line for the schema or operation that the field in line belongs to.
func described(line string) string {
	words := strings.Fields(line)
	if words[0] == "request" {
		name, _, _ := strings.Cut(words[1], ".")
		return "request " + name
	}
	return strings.Join(words[:2], " ")
}

func TestBrokenPromisesAreNoticed(t *testing.T) {
	t.Parallel()
	_, kept := recorded(t)
	tests := []struct{ name, old, new string }{
		{"operation removed", `"/api/v1/links/bulk":`, `"/api/v1/links/many":`},
		{"status removed", `"207":`, `"208":`},
		{"response field removed", `"shortUrl":{`, `"shortURL":{`},
		{"field type changed", `"clicks":{"type":"integer"`, `"clicks":{"type":"string"`},
		{"bound narrowed", `"maxItems":100`, `"maxItems":50`},
		{"different scope required", `"x-scope":"links:read"`, `"x-scope":"links:write"`},
		{"field becomes required", `"required":["url"]`, `"required":["url","title"]`},
		{"request schema closed", `"LinkCreate":{"type":"object"`, `"LinkCreate":{"additionalProperties":false,"type":"object"`},
		{"enum value removed", `"unlisted",`, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := string(apispec.Load().JSON())
			if !strings.Contains(src, tt.old) {
				t.Fatalf("the document does not contain %s", tt.old)
			}
			var doc map[string]any
			if err := json.Unmarshal([]byte(strings.ReplaceAll(src, tt.old, tt.new)), &doc); err != nil {
				t.Fatal(err)
			}
			complaints := compare(kept, promises(doc))
			if !slices.ContainsFunc(complaints, func(c string) bool { return !strings.HasPrefix(c, addition) }) {
				t.Errorf("complaints = %q, want one about a broken promise", complaints)
			}
		})
	}
}

// promises flattens the document into sorted lines, one for each property that callers may rely on.
func promises(doc map[string]any) []string {
	w := &surface{doc: doc, lines: map[string]bool{}}
	for route, item := range obj(doc["paths"]) {
		if strings.HasPrefix(route, "/admin/") {
			continue // the operator's API may change with each release
		}
		for method, v := range obj(item) {
			op, ok := v.(map[string]any)
			if !ok || op["responses"] == nil {
				continue
			}
			at := strings.ToUpper(method) + " " + route
			w.add(at)
			w.add(at, "needs", op["x-scope"], op["x-plan"])
			params, _ := op["parameters"].([]any)
			shared, _ := obj(item)["parameters"].([]any)
			for _, p := range append(params, shared...) {
				p := w.resolve(p)
				name := fmt.Sprint(p["in"], ".", p["name"])
				if p["required"] == true {
					w.add(at, "request", name, "required")
				}
				w.schema("request", at+" request "+name, p["schema"])
			}
			for media, c := range obj(w.resolve(op["requestBody"])["content"]) {
				w.schema("request", at+" request "+media, obj(c)["schema"])
			}
			for name, c := range obj(op["callbacks"]) {
				for _, item := range obj(c) {
					w.message(at+" callback "+name, item)
				}
			}
			for status, r := range obj(op["responses"]) {
				res := w.resolve(r)
				w.add(at, status)
				for name := range obj(res["headers"]) {
					w.add(at, status, "header", name)
				}
				for media, c := range obj(res["content"]) {
					w.schema("answer", at+" "+status+" "+media, obj(c)["schema"])
				}
			}
		}
	}
	for name, item := range obj(doc["webhooks"]) {
		w.message("WEBHOOK "+name, item)
	}
	return slices.Sorted(maps.Keys(w.lines))
}

type surface struct {
	doc   map[string]any
	lines map[string]bool
}

func (w *surface) add(words ...any) { w.lines[strings.TrimSpace(fmt.Sprintln(words...))] = true }

// resolve follows a reference inside the document.
func (w *surface) resolve(v any) map[string]any {
	m := obj(v)
	for range 10 {
		ref, ok := m["$ref"].(string)
		if !ok {
			break
		}
		var at any = w.doc
		for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = obj(at)[part]
		}
		m = obj(at)
	}
	return m
}

// message adds the body of a request that Linkreel sends. It makes the same promises as a response.
func (w *surface) message(at string, item any) {
	w.add(at)
	for media, c := range walk(item, "post", "requestBody", "content") {
		w.schema("answer", at+" "+media, obj(c)["schema"])
	}
}

// schema adds the lines for a schema. A named schema is added once for requests and once for
// responses because different changes break callers in each.
func (w *surface) schema(use, at string, v any) {
	if ref, ok := obj(v)["$ref"].(string); ok {
		name := use + " " + path.Base(ref)
		w.add(at, "is", path.Base(ref))
		if !w.lines[name] {
			w.add(name)
			w.schema(use, name, w.resolve(v))
		}
		return
	}
	s := obj(v)
	switch kinds := s["type"].(type) {
	case string:
		w.add(at, "type", kinds)
	case []any:
		for _, k := range kinds {
			w.add(at, "type", k)
		}
	}
	for _, bound := range []string{"maxLength", "minLength", "maximum", "minimum", "maxItems", "minItems", "pattern", "format", "default", "const"} {
		if b, ok := s[bound]; ok {
			w.add(at, bound, b)
		}
	}
	for _, name := range list(s["required"]) {
		w.add(at+"."+fmt.Sprint(name), "required")
	}
	for _, value := range list(s["enum"]) {
		w.add(at, "value", value)
	}
	for name, p := range obj(s["properties"]) {
		w.add(at + "." + name)
		w.schema(use, at+"."+name, p)
	}
	if s["items"] != nil {
		w.schema(use, at+"[]", s["items"])
	}
	if use == "request" && s["additionalProperties"] == false {
		w.add(at, "closed")
	}
	if _, ok := s["additionalProperties"].(map[string]any); ok {
		w.schema(use, at+".*", s["additionalProperties"])
	}
	for _, join := range []string{"allOf", "anyOf", "oneOf"} {
		for _, part := range list(s[join]) {
			w.schema(use, at, part)
		}
	}
}

func obj(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}
