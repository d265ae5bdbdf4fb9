package docs_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"html"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/apispec/docs"
	"github.com/linkreel/linkreel/libs/transcode"
)

func TestFilesAreThePageItsPartsAndTheContract(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"/docs":               "text/html; charset=utf-8",
		"/docs/reference.css": "text/css; charset=utf-8",
		"/docs/try":           "text/html; charset=utf-8",
		"/llms.txt":           "text/plain; charset=utf-8",
		"/docs/try.js":        "text/javascript; charset=utf-8",
		"/docs/icon.svg":      "image/svg+xml",
		"/openapi.json":       "application/json",
		"/openapi.yaml":       "application/yaml",
	}
	for _, guide := range []string{
		"api", "api/links", "api/redirects", "api/statistics", "api/bulk", "api/domains", "api/videos", "api/uploads", "api/playback", "api/account",
		"api/members", "api/events", "api/webhooks", "api/operator", "api/paging", "api/idempotency", "errors", "clients", "guides", "cli", "mcp", "webhooks", "sign-in", "versioning",
	} {
		want["/docs/guides/"+guide] = "text/html; charset=utf-8"
		want["/docs/guides/"+guide+".md"] = "text/markdown; charset=utf-8"
	}
	for path, contentType := range want {
		f, ok := docs.Files()[path]
		if !ok || f.ContentType != contentType || len(f.Bytes) == 0 || len(f.ETag) < 10 {
			t.Errorf("%s: found = %v, type %q, %d bytes, ETag %q; want type %q, a body and an ETag", path, ok, f.ContentType, len(f.Bytes), f.ETag, contentType)
		}
		if len(f.Bytes) >= 2<<20 {
			t.Errorf("%s is %d bytes long, want less than 2 MiB", path, len(f.Bytes))
		}
	}
	if len(docs.Files()) != len(want) {
		t.Errorf("found %d files, want %d", len(docs.Files()), len(want))
	}
	if got, want := slices.Sorted(slices.Values(docs.Paths())), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
		t.Errorf("Paths() = %q, want %q", got, want)
	}
}

// Every error code has its own heading on the errors page, in the section for its status. No other
// heading on the page looks like a code.
func TestEveryErrorIsExplained(t *testing.T) {
	t.Parallel()
	text, page := string(docs.Files()["/docs/guides/errors.md"].Bytes), string(docs.Files()["/docs/guides/errors"].Bytes)
	status := map[string]string{}
	for section := range strings.SplitSeq(text, "\n## ") {
		title, rest, _ := strings.Cut(section, "\n")
		for entry := range strings.SplitSeq("\n"+rest, "\n### ") {
			code, words, ok := strings.Cut(entry, "\n")
			if !ok || code == "" {
				continue
			}
			if status[code] != "" {
				t.Errorf("%s has two headings", code)
			}
			if len(strings.TrimSpace(words)) < 40 {
				t.Errorf("the text about %s is shorter than 40 bytes: %q", code, words)
			}
			status[code] = title
		}
	}
	for _, code := range apierr.Codes() {
		if want := fmt.Sprintf("Status %d", code.Status()); status[string(code)] != want {
			t.Errorf("%s is in the section %q, want %q", code, status[string(code)], want)
		}
		_, anchor, _ := strings.Cut(code.DocURL(), "#")
		if !strings.Contains(page, ` id="`+anchor+`"`) {
			t.Errorf("the page has no anchor for %s", code.DocURL())
		}
		delete(status, string(code))
	}
	for _, code := range transcode.Codes {
		if code != transcode.Internal && status[string(code)] != "Failed videos" {
			t.Errorf("the failure code %s is not in the Failed videos section", code)
		}
		if _, anchor, _ := strings.Cut(apierr.Code(code).DocURL(), "#"); !strings.Contains(page, ` id="`+anchor+`"`) {
			t.Errorf("the page has no anchor for the failure code %s", code)
		}
		delete(status, string(code))
	}
	for code := range status {
		t.Errorf("the page has the heading %s, but no error has this code", code)
	}
}

// The guides are up-to-date copies of the documents, made by tools/webassets.
func TestGuidesAreCopiesOfTheDocuments(t *testing.T) {
	t.Parallel()
	n := 0
	for path := range docs.Files() {
		name, ok := strings.CutPrefix(path, "/docs/guides/")
		if !ok || !strings.HasSuffix(name, ".md") {
			continue
		}
		n++
		from := "../../../docs/" + name
		if name == "clients.md" {
			from = "../../clients/README.md"
		}
		want, err := os.ReadFile(from)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		got, err := os.ReadFile("guides/" + name)
		if err != nil || !bytes.Equal(want, got) {
			t.Errorf("%s differs from %s (error %v): run go -C tools run ./webassets", name, from, err)
		}
	}
	if n < 20 {
		t.Errorf("found %d guides, want at least 20", n)
	}
}

func TestCompressedFormsHoldTheSameBytes(t *testing.T) {
	t.Parallel()
	n := 0
	for path, f := range docs.Files() {
		if f.Gzip == nil {
			continue
		}
		n++
		r, err := gzip.NewReader(bytes.NewReader(f.Gzip))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		plain, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(plain, f.Bytes) {
			t.Errorf("%s: the compressed body differs from the plain body (error %v)", path, err)
		}
	}
	if n == 0 {
		t.Error("found no compressed files")
	}
}

func TestPageNeedsNoExceptionFromThePolicy(t *testing.T) {
	t.Parallel()
	if strings.Contains(docs.ContentSecurityPolicy, "unsafe") {
		t.Error("the policy contains the word unsafe")
	}
	page := string(docs.Files()["/docs/try"].Bytes)
	for _, bad := range []string{"<style", " style=", "onclick", "onload", "javascript:"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q, want it absent", bad)
		}
	}
	for _, m := range regexp.MustCompile(`<script([^>]*)>([^<]*)`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(m[1], `src="/docs/`) || strings.TrimSpace(m[2]) != "" {
			t.Errorf("found an inline script or a script from another host: %s", m[0])
		}
	}
}

var (
	attribute = regexp.MustCompile(` (?:id|href)="([^"]*)"`)
	tag       = regexp.MustCompile(`<(/?)([a-z0-9]+)[^>]*>`)
)

// Each page that is built from the contract or a guide is well formed, has one h1, and links only
// to existing targets. Only /docs/try has a script.
func TestReferenceAndGuidesAreWholePages(t *testing.T) {
	t.Parallel()
	ids := map[string]map[string]bool{}
	for path, f := range docs.Files() {
		ids[path] = map[string]bool{}
		for _, m := range attribute.FindAllStringSubmatch(string(f.Bytes), -1) {
			if strings.HasPrefix(m[0], " id=") {
				if ids[path][m[1]] {
					t.Errorf("%s has two elements with the id %q", path, m[1])
				}
				ids[path][m[1]] = true
			}
		}
	}
	for path, f := range docs.Files() {
		if path != "/docs" && path != "/docs/try" && (!strings.HasPrefix(path, "/docs/guides/") || strings.HasSuffix(path, ".md")) {
			continue
		}
		page := string(f.Bytes)
		if strings.Count(page, "<h1") != 1 || strings.Contains(page, "<script") != (path == "/docs/try") || strings.Contains(page, ` style="`) {
			t.Errorf("%s must have exactly one h1, no style attribute, and a script only on /docs/try", path)
		}
		if strings.Contains(page, "raw HTML") { // goldmark omits it
			t.Errorf("%s has lost text that looks like HTML: put the text in backticks", path)
		}
		var open []string
		for _, m := range tag.FindAllStringSubmatch(page, -1) {
			switch name := m[2]; {
			case name == "meta" || name == "link" || name == "img" || name == "input":
			case m[1] == "":
				open = append(open, name)
			case len(open) == 0 || open[len(open)-1] != name:
				t.Fatalf("%s: </%s> does not match the open elements %v", path, name, open)
			default:
				open = open[:len(open)-1]
			}
		}
		for _, m := range attribute.FindAllStringSubmatch(page, -1) {
			if !strings.HasPrefix(m[0], " href=") || strings.HasPrefix(m[1], "https://") {
				continue
			}
			to, fragment, _ := strings.Cut(m[1], "#")
			if to == "" {
				to = path
			}
			if _, ok := docs.Files()[to]; !ok || fragment != "" && !ids[to][fragment] {
				t.Errorf("%s links to %s, which does not exist", path, m[1])
			}
		}
	}
}

// The /docs/try page has a form for each operation. The form has a field for each path parameter.
// If the operation takes a JSON body, the form contains a valid example.
func TestTryHasAFormForEachOperation(t *testing.T) {
	t.Parallel()
	page := string(docs.Files()["/docs/try"].Bytes)
	d := apispec.Load()
	for _, r := range d.Routes() {
		_, part, ok := strings.Cut(page, `<details class="op" id="`+r.OperationID+`">`)
		if ok == (r.Tag == "Operator") {
			t.Errorf("%s: shown = %v, want true for every operation except the operator's", r.OperationID, ok)
		}
		if !ok {
			continue
		}
		part, _, _ = strings.Cut(part, "</form>")
		if !strings.Contains(part, `<form data-method="`+r.Method+`" data-path="`+r.Path+`">`) {
			t.Errorf("%s: the page has no form for %s %s", r.OperationID, r.Method, r.Path)
		}
		for _, m := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(r.Path, -1) {
			if !strings.Contains(part, ` name="`+m[1]+`" data-in="path"`) {
				t.Errorf("%s: the form has no field for %s", r.OperationID, m[0])
			}
		}
		schema := d.Operation(r.Method, r.Path).Schema
		_, area, ok := strings.Cut(part, `data-type="application/json"`)
		if ok != (schema != nil) {
			t.Errorf("%s: form has a JSON body = %v, want %v", r.OperationID, ok, schema != nil)
		}
		if schema == nil || !ok {
			continue
		}
		_, text, _ := strings.Cut(area, ">")
		text, _, _ = strings.Cut(text, "</textarea>")
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(html.UnescapeString(text)))
		if err == nil {
			err = schema.Validate(v)
		}
		if err != nil {
			t.Errorf("%s: the example body %s is invalid: %v", r.OperationID, text, err)
		}
	}
}

func TestReferenceShowsWhatEachOperationNeeds(t *testing.T) {
	t.Parallel()
	page, models := string(docs.Files()["/docs"].Bytes), string(docs.Files()["/llms.txt"].Bytes)
	for _, r := range apispec.Load().Routes() {
		_, part, ok := strings.Cut(page, `<article id="`+r.OperationID+`">`)
		if r.Tag == "Operator" {
			if ok {
				t.Errorf("%s is shown, but callers cannot reach the operator's API", r.OperationID)
			}
			continue
		}
		part, _, _ = strings.Cut(part, "</article>")
		for _, m := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(r.Path, -1) {
			if !strings.Contains(part, "<td><code>"+m[1]+"</code></td>") {
				t.Errorf("%s: the reference has no line for %s", r.OperationID, m[0])
			}
		}
		if !ok || !strings.Contains(part, "<code>"+r.Path+"</code>") || !strings.Contains(part, ">"+r.Method+"<") || r.Scope != "" && !strings.Contains(part, r.Scope) || r.Plan != "" && !strings.Contains(part, "<strong>"+r.Plan+"<") {
			t.Errorf("%s %s: the reference does not show the operation with plan %q and scope %q", r.Method, r.Path, r.Plan, r.Scope)
		}
		if !strings.Contains(models, "`"+r.Method+" "+r.Path+"`") {
			t.Errorf("llms.txt does not list %s %s", r.Method, r.Path)
		}
		if !strings.Contains(part, `<a href="/docs/guides/api/`) {
			t.Errorf("%s has no link to an example in the guides", r.OperationID)
		}
	}
}
