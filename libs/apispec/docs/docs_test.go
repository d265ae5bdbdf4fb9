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
			t.Errorf("%s: %v, type %q, %d bytes, ETag %s", path, ok, f.ContentType, len(f.Bytes), f.ETag)
		}
		if len(f.Bytes) >= 2<<20 {
			t.Errorf("%s has %d bytes", path, len(f.Bytes))
		}
	}
	if len(docs.Files()) != len(want) {
		t.Errorf("%d files, want %d", len(docs.Files()), len(want))
	}
	if got, want := slices.Sorted(slices.Values(docs.Paths())), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
		t.Errorf("paths %q, want %q", got, want)
	}
}

// Every error leads to a heading of its own on the page about errors, which stands below the
// status of its code. Nothing else on the page looks like a code.
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
				t.Errorf("%s is not explained: %q", code, words)
			}
			status[code] = title
		}
	}
	for _, code := range apierr.Codes() {
		if want := fmt.Sprintf("Status %d", code.Status()); status[string(code)] != want {
			t.Errorf("%s is in %q, want %q", code, status[string(code)], want)
		}
		_, anchor, _ := strings.Cut(code.DocURL(), "#")
		if !strings.Contains(page, ` id="`+anchor+`"`) {
			t.Errorf("the page has no place for %s", code.DocURL())
		}
		delete(status, string(code))
	}
	for _, code := range transcode.Codes {
		if code != transcode.Internal && status[string(code)] != "Failed videos" {
			t.Errorf("the failure %s of a video is not explained", code)
		}
		if _, anchor, _ := strings.Cut(apierr.Code(code).DocURL(), "#"); !strings.Contains(page, ` id="`+anchor+`"`) {
			t.Errorf("the page has no place for the failure %s of a video", code)
		}
		delete(status, string(code))
	}
	for code := range status {
		t.Errorf("%s is explained, but no response has it", code)
	}
}

// The guides are copies of the documents, as tools/webassets made them last.
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
			t.Errorf("%s is not %s any more (%v): run go -C tools run ./webassets", name, from, err)
		}
	}
	if n < 20 {
		t.Errorf("only %d guides", n)
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
			t.Errorf("%s: the compressed form differs (%v)", path, err)
		}
	}
	if n == 0 {
		t.Error("nothing is compressed")
	}
}

func TestPageNeedsNoExceptionFromThePolicy(t *testing.T) {
	t.Parallel()
	if strings.Contains(docs.ContentSecurityPolicy, "unsafe") {
		t.Error("the policy has an unsafe exception")
	}
	page := string(docs.Files()["/docs/try"].Bytes)
	for _, bad := range []string{"<style", " style=", "onclick", "onload", "javascript:"} {
		if strings.Contains(page, bad) {
			t.Errorf("page has %q", bad)
		}
	}
	for _, m := range regexp.MustCompile(`<script([^>]*)>([^<]*)`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(m[1], `src="/docs/`) || strings.TrimSpace(m[2]) != "" {
			t.Errorf("inline or foreign script: %s", m[0])
		}
	}
}

var (
	attribute = regexp.MustCompile(` (?:id|href)="([^"]*)"`)
	tag       = regexp.MustCompile(`<(/?)([a-z0-9]+)[^>]*>`)
)

// Each page made from the contract and the guides is well formed, has one main
// heading, no script but that of /docs/try, and links only to what is there.
func TestReferenceAndGuidesAreWholePages(t *testing.T) {
	t.Parallel()
	ids := map[string]map[string]bool{}
	for path, f := range docs.Files() {
		ids[path] = map[string]bool{}
		for _, m := range attribute.FindAllStringSubmatch(string(f.Bytes), -1) {
			if strings.HasPrefix(m[0], " id=") {
				if ids[path][m[1]] {
					t.Errorf("%s has two elements %q", path, m[1])
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
			t.Errorf("%s has another number of h1 than one, a script or a style", path)
		}
		if strings.Contains(page, "raw HTML") { // goldmark leaves it out
			t.Errorf("%s has lost something that looks like HTML: put it between backticks", path)
		}
		var open []string
		for _, m := range tag.FindAllStringSubmatch(page, -1) {
			switch name := m[2]; {
			case name == "meta" || name == "link" || name == "img" || name == "input":
			case m[1] == "":
				open = append(open, name)
			case len(open) == 0 || open[len(open)-1] != name:
				t.Fatalf("%s: </%s> closes %v", path, name, open)
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
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
	}
}

// The page that makes calls has a form for each operation with a field for each part
// of its path and, where it takes one, a body that the contract accepts.
func TestTryHasAFormForEachOperation(t *testing.T) {
	t.Parallel()
	page := string(docs.Files()["/docs/try"].Bytes)
	d := apispec.Load()
	for _, r := range d.Routes() {
		_, part, ok := strings.Cut(page, `<details class="op" id="`+r.OperationID+`">`)
		if ok == (r.Tag == "Operator") {
			t.Errorf("%s is shown: %v", r.OperationID, ok)
		}
		if !ok {
			continue
		}
		part, _, _ = strings.Cut(part, "</form>")
		if !strings.Contains(part, `<form data-method="`+r.Method+`" data-path="`+r.Path+`">`) {
			t.Errorf("%s: the form does not call %s %s", r.OperationID, r.Method, r.Path)
		}
		for _, m := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(r.Path, -1) {
			if !strings.Contains(part, ` name="`+m[1]+`" data-in="path"`) {
				t.Errorf("%s: no field for %s", r.OperationID, m[0])
			}
		}
		schema := d.Operation(r.Method, r.Path).Schema
		_, area, ok := strings.Cut(part, `data-type="application/json"`)
		if ok != (schema != nil) {
			t.Errorf("%s has a JSON body: %v", r.OperationID, ok)
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
			t.Errorf("%s: the body is %s: %v", r.OperationID, text, err)
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
				t.Errorf("%s is shown, which callers cannot reach", r.OperationID)
			}
			continue
		}
		part, _, _ = strings.Cut(part, "</article>")
		for _, m := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(r.Path, -1) {
			if !strings.Contains(part, "<td><code>"+m[1]+"</code></td>") {
				t.Errorf("%s: no line for %s", r.OperationID, m[0])
			}
		}
		if !ok || !strings.Contains(part, "<code>"+r.Path+"</code>") || !strings.Contains(part, ">"+r.Method+"<") || r.Scope != "" && !strings.Contains(part, r.Scope) || r.Plan != "" && !strings.Contains(part, "<strong>"+r.Plan+"<") {
			t.Errorf("%s %s: plan %q and scope %q are not shown", r.Method, r.Path, r.Plan, r.Scope)
		}
		if !strings.Contains(models, "`"+r.Method+" "+r.Path+"`") {
			t.Errorf("llms.txt lacks %s %s", r.Method, r.Path)
		}
		if !strings.Contains(part, `<a href="/docs/guides/api/`) {
			t.Errorf("%s leads to no examples", r.OperationID)
		}
	}
}
