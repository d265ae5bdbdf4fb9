package apispec_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/events"
)

func TestRequestSchemasJudgeBodies(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("ü", n) }
	tests := []struct {
		name, method, path, body string
		ok                       bool
	}{
		{"smallest link", "POST", "/api/v1/links", `{"url":"https://example.com"}`, true},
		{"link without url", "POST", "/api/v1/links", `{"title":"x"}`, false},
		{"unknown field on create", "POST", "/api/v1/links", `{"url":"https://example.com","clicks":"x"}`, true},
		{"title of 500 code points", "POST", "/api/v1/links", `{"url":"u","title":"` + long(500) + `"}`, true},
		{"title of 501 code points", "POST", "/api/v1/links", `{"url":"u","title":"` + long(501) + `"}`, false},
		{"null title on create", "POST", "/api/v1/links", `{"url":"u","title":null}`, true},
		{"expiry as number", "POST", "/api/v1/links", `{"url":"u","expiresAt":1790000000000.5}`, true},
		{"expiry as boolean", "POST", "/api/v1/links", `{"url":"u","expiresAt":true}`, false},
		{"expiry null on create", "POST", "/api/v1/links", `{"url":"u","expiresAt":null}`, true},
		{"null clears on update", "PATCH", "/api/v1/links/{id}", `{"title":null,"expiresAt":null,"ogTitle":null,"ogDescription":null,"ogImage":null}`, true},
		{"null url on update", "PATCH", "/api/v1/links/{id}", `{"url":null}`, false},
		{"not editable field on update", "PATCH", "/api/v1/links/{id}", `{"slug":5}`, true},
		{"bulk with bad items", "POST", "/api/v1/links/bulk", `{"urls":[{"url":5},{},7,null]}`, true},
		{"bulk without items", "POST", "/api/v1/links/bulk", `{"urls":[]}`, false},
		{"bulk of 101", "POST", "/api/v1/links/bulk", `{"urls":[` + strings.Repeat("1,", 100) + `1]}`, false},
		{"bulk that is no list", "POST", "/api/v1/links/bulk", `{"urls":{}}`, false},
		{"video privacy", "POST", "/api/v1/videos", `{"privacy":"secret"}`, false},
		{"video expiry with fraction", "POST", "/api/v1/videos", `{"expiresAt":1790000000000.5}`, false},
		{"video expiry written as 1.8e12", "POST", "/api/v1/videos", `{"expiresAt":1.8e12}`, true},
		{"video description cleared", "PATCH", "/api/v1/videos/{id}", `{"description":null}`, true},
		{"video description of 2001", "PATCH", "/api/v1/videos/{id}", `{"description":"` + long(2001) + `"}`, false},
		{"unknown scope", "POST", "/api/v1/keys", `{"name":"k","scopes":["root"]}`, false},
		{"overlap too long", "POST", "/api/v1/keys/{id}/roll", `{"overlapSeconds":604801}`, false},
		{"unknown field of a key", "POST", "/api/v1/keys", `{"name":"k","scope":["links:read"]}`, false},
		{"unknown field of a roll", "POST", "/api/v1/keys/{id}/roll", `{"overlap_seconds":60}`, false},
		{"unknown field of a bulk change", "PATCH", "/api/v1/links/bulk", `{"ids":["a"],"set":{"archive":true}}`, false},
		{"unknown limit of an account", "PATCH", "/admin/v1/accounts/{id}", `{"limits":{"link":5}}`, false},
		{"account as it was answered", "PATCH", "/admin/v1/accounts/{id}", `{"id":"acc_1","createdAt":5,"limits":null}`, true},
		{"access without privacy", "PUT", "/api/v1/videos/{id}/access", `{"allowDownload":false}`, false},
		{"unknown plan", "POST", "/admin/v1/accounts", `{"name":"a","plan":"gold"}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := apispec.Load().Operation(tt.method, tt.path).Schema
			if s == nil {
				t.Fatalf("no request schema for %s %s", tt.method, tt.path)
			}
			if err := s.Validate(parse(t, []byte(tt.body))); (err == nil) != tt.ok {
				t.Errorf("Validate(%.80s) = %v, want ok = %v", tt.body, err, tt.ok)
			}
		})
	}
}

// Whatever a JSON body names and the operation does not know is rejected by a closed
// schema, or named in ignoredFields of the answer.
func TestNoBodyHasRoomForANameThatIsDropped(t *testing.T) {
	t.Parallel()
	doc := document(t)
	for _, op := range operations(doc) {
		schema := follow(t, doc, walk(op.value, "requestBody", "content", "application/json")["schema"])
		if schema == nil {
			continue
		}
		if schema["additionalProperties"] != false {
			for status, r := range op.value["responses"].(map[string]any) {
				if !strings.HasPrefix(status, "2") {
					continue
				}
				answer := follow(t, doc, walk(r, "content", "application/json")["schema"])
				if walk(answer, "properties", "ignoredFields") == nil {
					t.Errorf("%s takes unknown fields, and its answer %s has no ignoredFields", op.name, status)
				}
			}
		}
		for name, p := range walk(schema, "properties") {
			visit(p, "/"+name, func(at string, m map[string]any) {
				if _, has := m["properties"].(map[string]any); has && m["additionalProperties"] != false {
					t.Errorf("%s: the object at %s takes unknown fields, which nothing would name", op.name, at)
				}
			})
		}
	}
}

// A record that was read can be sent back: a PATCH knows each of its fields, those
// that it cannot change as readOnly. The destination of a link is url in a request.
func TestAPatchKnowsEveryFieldOfItsRecord(t *testing.T) {
	t.Parallel()
	doc := document(t)
	n := 0
	for _, op := range operations(doc) {
		reads := walk(op.item, "get", "responses", "200", "content", "application/json")["schema"]
		if op.method != "patch" {
			continue
		}
		if reads == nil {
			reads = walk(op.value, "responses", "200", "content", "application/json")["schema"]
		}
		record, change := follow(t, doc, reads), follow(t, doc, walk(op.value, "requestBody", "content", "application/json")["schema"])
		if walk(record, "properties", "results") != nil {
			continue // a bulk change answers with no record
		}
		for name := range walk(record, "properties") {
			n++
			if walk(change, "properties", name) == nil && name != "destinationUrl" && name != "ignoredFields" {
				t.Errorf("%s does not know %s, which the record shows", op.name, name)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d fields of records found", n)
	}
}

// follow is the schema behind references; nil for none.
func follow(t *testing.T, doc any, v any) map[string]any {
	t.Helper()
	m, _ := v.(map[string]any)
	for m["$ref"] != nil {
		m = resolve(t, doc, m["$ref"].(string)).(map[string]any)
	}
	return m
}

func TestQueryParametersAreKnownByName(t *testing.T) {
	t.Parallel()
	query := func(method, path string) map[string]bool { return apispec.Load().Operation(method, path).Query }
	got := query("GET", "/api/v1/tags")
	if diff := cmp.Diff(map[string]bool{"limit": false, "cursor": false, "q": false}, got); diff != "" {
		t.Errorf("Query (-want +got):\n%s", diff)
	}
	if got := query("GET", "/api/v1/links"); !got["tag"] {
		t.Error("tag may be repeated")
	}
	if got := query("DELETE", "/api/v1/links/{id}"); len(got) > 0 {
		t.Errorf("Query = %v, want an operation without parameters", got)
	}
	if apispec.Load().Operation("GET", "/v/{slug}") != nil {
		t.Error("a page is no operation")
	}
}

func TestOperationsWithoutJSONBodyHaveNoSchema(t *testing.T) {
	t.Parallel()
	d := apispec.Load()
	for _, op := range [][2]string{{"GET", "/api/v1/links"}, {"POST", "/api/v1/domains/{id}/verify"}, {"PUT", "/api/v1/videos/{id}/captions/{lang}"}} {
		if d.Operation(op[0], op[1]).Schema != nil {
			t.Errorf("the schema of %s %s is not nil", op[0], op[1])
		}
	}
	if d.Component("BulkItem") == nil || d.Component("Nothing") != nil {
		t.Error("Component: want BulkItem and nothing else")
	}
}

func TestEveryOperationIsDescribed(t *testing.T) {
	t.Parallel()
	doc := document(t)
	ids := map[string]bool{}
	for _, op := range operations(doc) {
		id, _ := op.value["operationId"].(string)
		if id == "" || ids[id] {
			t.Errorf("%s: operationId %q is empty or taken", op.name, id)
		}
		ids[id] = true
		for _, k := range []string{"summary", "tags", "responses"} {
			if op.value[k] == nil {
				t.Errorf("%s: no %s", op.name, k)
			}
		}
		responses := op.value["responses"].(map[string]any)
		needs, has := op.value["security"].([]any)
		open := has && len(needs) == 0 // needs no key
		for _, status := range []string{"401", "500", "503"} {
			if responses[status] == nil && !(open && status == "401") {
				t.Errorf("%s: no answer %s", op.name, status)
			}
		}
		if op.value["requestBody"] != nil {
			for _, status := range []string{"400", "413", "415"} {
				if responses[status] == nil {
					t.Errorf("%s takes a body and has no answer %s", op.name, status)
				}
			}
		}
		if op.method == "post" && strings.HasPrefix(op.path, "/api/") && !open {
			for _, status := range []string{"409", "422", "429"} {
				if responses[status] == nil {
					t.Errorf("%s: no answer %s", op.name, status)
				}
			}
			if !strings.Contains(fmt.Sprint(op.value["parameters"]), "IdempotencyKey") {
				t.Errorf("%s: no Idempotency-Key", op.name)
			}
		}
		for _, p := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(op.path, -1) {
			if !hasPathParameter(doc, op, p[1]) {
				t.Errorf("%s: parameter %s is not described", op.name, p[1])
			}
		}
	}
	if got := len(apispec.Load().Routes()); got != len(ids) {
		t.Errorf("Routes() has %d operations, document %d", got, len(ids))
	}
}

func TestErrorCodesAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	var want []string
	for _, c := range apierr.Codes() {
		want = append(want, string(c))
	}
	got := strs(walk(document(t), "components", "schemas", "ErrorCode")["enum"])
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("error codes (-apierr +document):\n%s", diff)
	}
}

func TestErrorAnswersHaveTheStatusOfTheirCodes(t *testing.T) {
	t.Parallel()
	doc := document(t)
	used := map[string]bool{}
	for _, op := range operations(doc) {
		for status, r := range op.value["responses"].(map[string]any) {
			ref, _ := r.(map[string]any)["$ref"].(string)
			if ref == "" {
				continue
			}
			used[ref] = true
			res := resolve(t, doc, ref).(map[string]any)
			allOf := walk(res, "content", "application/json", "schema", "properties", "error")["allOf"].([]any)
			for _, code := range strs(walk(allOf[1], "properties", "code")["enum"]) {
				if got := fmt.Sprint(apierr.Code(code).Status()); got != status {
					t.Errorf("%s: answer %s allows %s, which is a %s", op.name, status, code, got)
				}
			}
		}
	}
	for name := range walk(doc, "components", "responses") {
		if !used["#/components/responses/"+name] {
			t.Errorf("response %s is not used", name)
		}
	}
}

func TestEveryReferenceResolvesAndEveryComponentIsUsed(t *testing.T) {
	t.Parallel()
	doc := document(t)
	used := map[string]bool{}
	visit(doc, "", func(_ string, m map[string]any) {
		if ref, ok := m["$ref"].(string); ok {
			used[ref] = true
			resolve(t, doc, ref)
		}
	})
	for kind, items := range walk(doc, "components") {
		if kind == "securitySchemes" {
			continue
		}
		for name := range items.(map[string]any) {
			if !used["#/components/"+kind+"/"+name] {
				t.Errorf("components/%s/%s is not used", kind, name)
			}
		}
	}
}

func TestEverySchemaIsValidJSONSchema(t *testing.T) {
	t.Parallel()
	doc := document(t)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("https://t.invalid/d", doc); err != nil {
		t.Fatal(err)
	}
	n := 0
	visit(doc, "", func(at string, m map[string]any) {
		if _, ok := m["schema"].(map[string]any); !ok {
			return
		}
		n++
		if _, err := c.Compile("https://t.invalid/d#" + at + "/schema"); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	})
	if n < 70 {
		t.Errorf("only %d schemas found", n)
	}
}

func TestEveryExampleSatisfiesItsSchema(t *testing.T) {
	t.Parallel()
	doc := document(t)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("https://t.invalid/d", strict(document(t))); err != nil {
		t.Fatal(err)
	}
	n := 0
	visit(doc, "", func(at string, m map[string]any) {
		if _, ok := m["schema"].(map[string]any); !ok {
			return
		}
		examples := map[string]any{}
		if v, ok := m["example"]; ok {
			examples["example"] = v
		}
		for name, e := range walk(m, "examples") {
			examples[name] = e.(map[string]any)["value"]
		}
		for name, v := range examples {
			n++
			s, err := c.Compile("https://t.invalid/d#" + at + "/schema")
			if err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			if err := s.Validate(v); err != nil {
				t.Errorf("%s: example %s: %v", at, name, err)
			}
		}
	})
	if n < 60 {
		t.Errorf("only %d examples found", n)
	}
}

func TestJSONIsTheSameDocumentInTheSameOrder(t *testing.T) {
	t.Parallel()
	d := apispec.Load()
	if !json.Valid(d.JSON()) {
		t.Fatal("JSON() is not JSON")
	}
	dec := json.NewDecoder(bytes.NewReader(d.JSON()))
	_, _ = dec.Token()
	if first, _ := dec.Token(); first != "openapi" {
		t.Errorf("first name is %v, want openapi", first)
	}
	if bytes.Contains(d.JSON(), []byte("&createdKey")) || !bytes.HasPrefix(d.YAML(), []byte("# The contract")) {
		t.Error("YAML() or JSON() is not the document")
	}
}

func TestParseRefusesABrokenDocument(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"empty":             "",
		"no YAML":           "a: [",
		"reference to none": "components: {schemas: {A: {$ref: '#/components/schemas/B'}}}",
		"outside reference": "components: {schemas: {A: {$ref: 'https://example.com/s.json'}}}",
		"bad schema":        "components: {schemas: {A: {type: strings}}}",
		"bad request":       "paths: {/x: {post: {requestBody: {content: {application/json: {schema: {maxLength: -1}}}}}}}",
	} {
		if _, err := apispec.Parse([]byte(src)); err == nil {
			t.Errorf("%s: Parse succeeded", name)
		}
	}
}

// strict closes every object schema, so that an example cannot show a field
// that the schema does not have.
func strict(doc any) any {
	visit(doc, "", func(at string, m map[string]any) {
		_, has := m["properties"].(map[string]any)
		if m["type"] == "object" && has && !strings.HasSuffix(at, "/properties") {
			m["additionalProperties"] = false
		}
	})
	return doc
}

type operation struct {
	name, method, path string
	item, value        map[string]any
}

func operations(doc any) []operation {
	var out []operation
	for path, item := range walk(doc, "paths") {
		for _, m := range []string{"get", "put", "post", "patch", "delete"} {
			if op := walk(item, m); op != nil {
				out = append(out, operation{m + " " + path, m, path, item.(map[string]any), op})
			}
		}
	}
	return out
}

func hasPathParameter(doc any, op operation, name string) bool {
	for _, list := range []any{op.item["parameters"], op.value["parameters"]} {
		ps, _ := list.([]any)
		for _, p := range ps {
			m := p.(map[string]any)
			if ref, ok := m["$ref"].(string); ok {
				m = walk(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
			if m["name"] == name && m["in"] == "path" && m["required"] == true {
				return true
			}
		}
	}
	return false
}

func document(t *testing.T) any { t.Helper(); return parse(t, apispec.Load().JSON()) }

func parse(t *testing.T, b []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func resolve(t *testing.T, doc any, ref string) any {
	t.Helper()
	v := doc
	for _, p := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		m, _ := v.(map[string]any)
		if v = m[p]; v == nil {
			t.Errorf("%s leads nowhere", ref)
			return map[string]any{}
		}
	}
	return v
}

func walk(v any, names ...string) map[string]any {
	for _, n := range names {
		m, _ := v.(map[string]any)
		v = m[n]
	}
	m, _ := v.(map[string]any)
	return m
}

func visit(v any, at string, f func(at string, m map[string]any)) {
	esc := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	switch v := v.(type) {
	case map[string]any:
		f(at, v)
		for k, c := range v {
			if k != "example" && k != "examples" {
				visit(c, at+"/"+esc.Replace(k), f)
			}
		}
	case []any:
		for i, c := range v {
			visit(c, fmt.Sprintf("%s/%d", at, i), f)
		}
	}
}

func strs(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, s := range list {
		out = append(out, s.(string))
	}
	return out
}

// A field that an answer always has is required, so that generated clients need no
// check for it. These alone may be absent, each for the reason beside it.
func TestFieldsThatAreAlwaysSentAreRequired(t *testing.T) {
	t.Parallel()
	sometimes := map[string]string{
		"ignoredFields": "only when a request had some", "details": "of validation errors", "moreDetails": "when there are more",
		"requiredPlan": "of that refusal", "currentPlan": "of that refusal", "requiredScope": "of that refusal", "requiredRole": "of that refusal",
		"max": "of rules with a bound", "min": "of rules with a bound", "data": "or error, in bulk", "error": "of failures",
		"restartAfter": "of places that a restore has lost", "accessRestoredAt": "of rules older than a restore", "paused": "while webhooks wait since a restore",
		"importedClicks": "of imported links", "bandwidth": "once measured", "codecs": "once measured", "frameRate": "once measured",
		"linkId": "or videoId", "videoId": "or linkId", "uploadUrl": "while a file is awaited", "uploadUrlExpiresAt": "while a file is awaited",
		"resumableUploadUrl": "where there are sessions", "signIn": "in the list of members",
		"startsAt": "of links that begin later", "country": "or another condition of a rule", "device": "or another condition",
		"system": "or another condition", "language": "or another condition", "query": "or another condition", "from": "or another condition",
		"until": "or another condition", "percent": "or another condition",
	}
	doc := document(t)
	n := 0
	var check func(at string, v any, seen map[string]bool)
	check = func(at string, v any, seen map[string]bool) {
		visit(v, at, func(at string, m map[string]any) {
			if ref, ok := m["$ref"].(string); ok && !seen[ref] {
				seen[ref] = true
				check(ref, resolve(t, doc, ref), seen)
			}
			props, _ := m["properties"].(map[string]any)
			required := strs(m["required"])
			// What stands beside allOf narrows a schema that says it already.
			if len(props) == 0 || len(required) == 0 && m["type"] != "object" {
				return
			}
			for name := range props {
				n++
				if !slices.Contains(required, name) && sometimes[name] == "" {
					t.Errorf("%s: %s is not required", at, name)
				}
			}
		})
	}
	seen := map[string]bool{}
	for _, op := range operations(doc) {
		check(op.name, op.value["responses"], seen)
	}
	if n < 250 {
		t.Errorf("only %d fields of answers found", n)
	}
}

// Lists of codes grow within a version (docs/versioning.md), so each says what to
// do with one that a caller does not know.
func TestListsThatGrowSaySo(t *testing.T) {
	t.Parallel()
	schemas := walk(document(t), "components", "schemas")
	for name, list := range map[string]map[string]any{
		"ErrorCode": walk(schemas, "ErrorCode"), "ErrorDetail.code": walk(schemas, "ErrorDetail", "properties", "code"),
		"Video.error.code": walk(schemas, "Video", "properties", "error", "properties", "code"), "EventType": walk(schemas, "EventType"),
	} {
		if text, _ := list["description"].(string); len(strs(list["enum"])) == 0 || !regexp.MustCompile(`New (codes|types)\s+will come; .*do(es)? not know`).MatchString(strings.Join(strings.Fields(text), " ")) {
			t.Errorf("%s does not say what to do with an unknown one: %q", name, text)
		}
	}
	if s := walk(schemas, "LinkStatus"); s["enum"] != nil || !strings.Contains(fmt.Sprint(s["description"]), "More values may be added") {
		t.Error("LinkStatus is a closed list")
	}
}

// What needs no key is in no operation, so the guides show how to call it. That the
// examples work is tests/contract's TestSnippetsOfTheDocumentsRun.
func TestGuidesShowWhatTheDocumentLeavesOut(t *testing.T) {
	t.Parallel()
	for file, wanted := range map[string][]string{"api/redirects.md": {"shortUrl"}, "api/uploads.md": {"Content-Range: bytes"}, "guides.md": {"/oembed?url="}} {
		guide, err := os.ReadFile("../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var examples []byte
		for _, b := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(guide, -1) {
			examples = append(examples, b[1]...)
		}
		for _, w := range wanted {
			if !bytes.Contains(examples, []byte(w)) {
				t.Errorf("docs/%s has no example with %s", file, w)
			}
		}
	}
}

// Each type of event has its form in the feed and its form as a message, and both lists are
// those of the code. Only webhooks get the test message.
func TestEventsAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	doc := document(t)
	schemas := walk(doc, "components", "schemas")
	var want []string
	for _, kind := range events.Types() {
		want = append(want, string(kind))
	}
	slices.Sort(want)
	tested := slices.Sorted(slices.Values(append([]string{string(events.WebhookTest)}, want...)))
	same := func(what string, want, got []string) {
		t.Helper()
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-code +document):\n%s", what, diff)
		}
	}
	same("EventType", want, strs(walk(schemas, "EventType")["enum"]))
	for union, want := range map[string][]string{"Event": want, "Message": tested} {
		same("mapping of "+union, want, slices.Collect(maps.Keys(walk(schemas, union, "discriminator", "mapping"))))
		var all []string
		for _, form := range walk(schemas, union)["oneOf"].([]any) {
			ref := form.(map[string]any)["$ref"].(string)
			for _, kind := range strs(walk(resolve(t, doc, ref), "properties", "type")["enum"]) {
				if all = append(all, kind); walk(schemas, union, "discriminator", "mapping")[kind] != ref {
					t.Errorf("%s: %s is in %s, which the mapping does not say", union, kind, ref)
				}
			}
		}
		same("types of "+union, want, all)
	}
	hooks := walk(doc, "webhooks")
	same("webhooks", tested, slices.Collect(maps.Keys(hooks)))
	for name, hook := range hooks {
		sent := walk(hook, "post", "requestBody", "content", "application/json", "schema")["$ref"]
		if sent != walk(schemas, "Message", "discriminator", "mapping")[name] {
			t.Errorf("webhook %s sends %v", name, sent)
		}
	}
}

func TestGuidesNameEveryCodeAndEveryOperation(t *testing.T) {
	t.Parallel()
	var guides []byte
	files, err := filepath.Glob("../../docs/api/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d pages of the API, %v", len(files), err)
	}
	for _, file := range append(files, "../../docs/api.md", "../../docs/errors.md") {
		guide, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		guides = append(guides, guide...)
	}
	doc := document(t)
	schemas := walk(doc, "components", "schemas")
	names := strs(walk(schemas, "ErrorCode")["enum"])
	names = append(names, strs(walk(schemas, "ErrorDetail", "properties", "code")["enum"])...)
	names = append(names, strs(walk(schemas, "Video", "properties", "error", "properties", "code")["enum"])...)
	names = append(names, strs(walk(schemas, "Scope")["enum"])...)
	for path := range walk(doc, "paths") {
		if !strings.HasPrefix(path, "/admin/v1/") && path != "/api/v1/keys/{id}" {
			names = append(names, path)
		}
	}
	for _, name := range names {
		if !bytes.Contains(guides, []byte("`"+name)) && !bytes.Contains(guides, []byte(" "+name)) {
			t.Errorf("neither docs/api.md, a page of docs/api nor docs/errors.md names %s", name)
		}
	}
}
