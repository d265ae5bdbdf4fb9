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
	update   = flag.Bool("update", false, "after additions, write testdata/v1.txt from the document and raise info.version")
	breaking = flag.Bool("break", false, "with -update: accept that the document breaks promises")
)

const promised = "testdata/v1.txt"

// What /api/v1 has promised stays (docs/versioning.md). A line that goes away
// breaks callers, and so does a new "required" or "closed" line under request; -update then
// writes nothing unless -break is given too. Other new lines are additions, to be kept with
// -update. The first line is the info.version that has these promises: one version never
// stands for two sets of them.
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
		t.Errorf("%s has the promises of version %s, and info.version is %s. Only -update changes the two, together", promised, before, version)
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

// keep records the promises. If they changed, it first raises info.version in the document.
// It returns the version.
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

// successor returns the version of a document with the promises now, whose version before had
// those of kept: additions raise the second number, and what breaks a caller the first one.
// That is an error unless it is meant.
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
	return "", fmt.Errorf("nothing was written, because the document breaks promises (docs/versioning.md). "+
		"If it must, give -break too:\n%s", strings.Join(broken, "\n"))
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
		{"nothing changes", kept, false, "1.2.3"},
		{"an addition", append(slices.Clone(kept), "GET /b"), false, "1.3.0"},
		{"an addition, with -break", append(slices.Clone(kept), "GET /b"), true, "1.3.0"},
		{"a removal", kept[1:], false, ""},
		{"a removal, with -break", kept[1:], true, "2.0.0"},
		{"a removal beside an addition", append(slices.Clone(kept[1:]), "GET /b"), false, ""},
		{"a field becomes required", append(slices.Clone(kept), "request A.b required"), false, ""},
	} {
		if got, err := successor("1.2.3", kept, tt.now, tt.meant); got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

// Nothing is deprecated without the header that docs/versioning.md promises.
func TestWhatIsDeprecatedSaysSoInItsAnswers(t *testing.T) {
	t.Parallel()
	doc := document(t)
	for _, op := range operations(doc) {
		if op.value["deprecated"] == true {
			for status, r := range walk(op.value, "responses") {
				if status[0] == '2' && walk(r, "headers", "Deprecation") == nil {
					t.Errorf("%s is deprecated, and its answer %s has no header Deprecation", op.name, status)
				}
			}
			delete(op.value, "deprecated")
		}
	}
	visit(doc, "", func(at string, m map[string]any) {
		if m["deprecated"] == true {
			t.Errorf("%s is deprecated: an answer cannot say so of a part of it. Deprecate the operation, or keep the part", at)
		}
	})
}

// addition begins the complaint about a line that breaks no caller.
const addition = "new, keep it with"

func compare(before, now []string) (complaints []string) {
	for _, line := range before {
		if !slices.Contains(now, line) {
			complaints = append(complaints, "a promise is gone: "+line)
		}
	}
	for _, line := range now {
		switch {
		case slices.Contains(before, line):
		case strings.Contains(line, "request ") && strings.HasSuffix(line, " closed") && slices.Contains(before, described(line)):
			complaints = append(complaints, "a request must no longer carry a name that was listed in ignoredFields: "+line)
		case strings.Contains(line, "request ") && strings.HasSuffix(line, " required") && slices.Contains(before, described(line)):
			complaints = append(complaints, "a request must now carry what it could leave out: "+line)
		default:
			complaints = append(complaints, addition+" go test ./libs/apispec -run Promised -update: "+line)
		}
	}
	return complaints
}

// described is the line of the schema or operation that a field's line is of.
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
		{"an operation goes", `"/api/v1/links/bulk":`, `"/api/v1/links/many":`},
		{"a status goes", `"207":`, `"208":`},
		{"a field of an answer goes", `"shortUrl":{`, `"shortURL":{`},
		{"a field changes its type", `"clicks":{"type":"integer"`, `"clicks":{"type":"string"`},
		{"a bound narrows", `"maxItems":100`, `"maxItems":50`},
		{"a scope is asked for", `"x-scope":"links:read"`, `"x-scope":"links:write"`},
		{"a field becomes required", `"required":["url"]`, `"required":["url","title"]`},
		{"a request is closed", `"LinkCreate":{"type":"object"`, `"LinkCreate":{"additionalProperties":false,"type":"object"`},
		{"a value of a list goes", `"unlisted",`, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := string(apispec.Load().JSON())
			if !strings.Contains(src, tt.old) {
				t.Fatalf("the document has no %s", tt.old)
			}
			var doc map[string]any
			if err := json.Unmarshal([]byte(strings.ReplaceAll(src, tt.old, tt.new)), &doc); err != nil {
				t.Fatal(err)
			}
			complaints := compare(kept, promises(doc))
			if !slices.ContainsFunc(complaints, func(c string) bool { return !strings.HasPrefix(c, addition) }) {
				t.Errorf("nothing was noticed but %q", complaints)
			}
		})
	}
}

// promises flattens the document to one line for each thing that callers may
// rely on, sorted.
func promises(doc map[string]any) []string {
	w := &surface{doc: doc, lines: map[string]bool{}}
	for route, item := range obj(doc["paths"]) {
		if strings.HasPrefix(route, "/admin/") {
			continue // the operator's API follows releases
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

// message adds a request that we send. Its fields are promised like those of an answer.
func (w *surface) message(at string, item any) {
	w.add(at)
	for media, c := range walk(item, "post", "requestBody", "content") {
		w.schema("answer", at+" "+media, obj(c)["schema"])
	}
}

// schema adds what a schema says. One that has a name is described once for
// requests and once for answers, since other things break callers there.
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
