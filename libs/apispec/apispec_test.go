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
		{"link without a URL", "POST", "/api/v1/links", `{"title":"x"}`, false},
		{"unknown field on create", "POST", "/api/v1/links", `{"url":"https://example.com","clicks":"x"}`, true},
		{"title with 500 code points", "POST", "/api/v1/links", `{"url":"u","title":"` + long(500) + `"}`, true},
		{"title with 501 code points", "POST", "/api/v1/links", `{"url":"u","title":"` + long(501) + `"}`, false},
		{"null title on create", "POST", "/api/v1/links", `{"url":"u","title":null}`, true},
		{"expiry as number", "POST", "/api/v1/links", `{"url":"u","expiresAt":1790000000000.5}`, true},
		{"expiry as boolean", "POST", "/api/v1/links", `{"url":"u","expiresAt":true}`, false},
		{"expiry null on create", "POST", "/api/v1/links", `{"url":"u","expiresAt":null}`, true},
		{"null clears fields on update", "PATCH", "/api/v1/links/{id}", `{"title":null,"expiresAt":null,"ogTitle":null,"ogDescription":null,"ogImage":null}`, true},
		{"null url on update", "PATCH", "/api/v1/links/{id}", `{"url":null}`, false},
		{"read-only field on update", "PATCH", "/api/v1/links/{id}", `{"slug":5}`, true},
		{"bulk with invalid items", "POST", "/api/v1/links/bulk", `{"urls":[{"url":5},{},7,null]}`, true},
		{"bulk without items", "POST", "/api/v1/links/bulk", `{"urls":[]}`, false},
		{"bulk with 101 items", "POST", "/api/v1/links/bulk", `{"urls":[` + strings.Repeat("1,", 100) + `1]}`, false},
		{"bulk that is not a list", "POST", "/api/v1/links/bulk", `{"urls":{}}`, false},
		{"unknown video privacy", "POST", "/api/v1/videos", `{"privacy":"secret"}`, false},
		{"video expiry with a fraction", "POST", "/api/v1/videos", `{"expiresAt":1790000000000.5}`, false},
		{"video expiry written as 1.8e12", "POST", "/api/v1/videos", `{"expiresAt":1.8e12}`, true},
		{"video description set to null", "PATCH", "/api/v1/videos/{id}", `{"description":null}`, true},
		{"video description with 2001 code points", "PATCH", "/api/v1/videos/{id}", `{"description":"` + long(2001) + `"}`, false},
		{"unknown scope", "POST", "/api/v1/keys", `{"name":"k","scopes":["root"]}`, false},
		{"overlap that is too long", "POST", "/api/v1/keys/{id}/roll", `{"overlapSeconds":604801}`, false},
		{"unknown field in a key", "POST", "/api/v1/keys", `{"name":"k","scope":["links:read"]}`, false},
		{"unknown field in a key rotation", "POST", "/api/v1/keys/{id}/roll", `{"overlap_seconds":60}`, false},
		{"unknown field in a bulk change", "PATCH", "/api/v1/links/bulk", `{"ids":["a"],"set":{"archive":true}}`, false},
		{"unknown limit on an account", "PATCH", "/admin/v1/accounts/{id}", `{"limits":{"link":5}}`, false},
		{"account as returned by the API", "PATCH", "/admin/v1/accounts/{id}", `{"id":"acc_1","createdAt":5,"limits":null}`, true},
		{"video access without privacy", "PUT", "/api/v1/videos/{id}/access", `{"allowDownload":false}`, false},
		{"unknown plan", "POST", "/admin/v1/accounts", `{"name":"a","plan":"gold"}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := apispec.Load().Operation(tt.method, tt.path).Schema
			if s == nil {
				t.Fatalf("%s %s has no request schema", tt.method, tt.path)
			}
			if err := s.Validate(parse(t, []byte(tt.body))); (err == nil) != tt.ok {
				t.Errorf("Validate(%.80s) = %v, want ok = %v", tt.body, err, tt.ok)
			}
		})
	}
}

// Unknown fields in a JSON body are either rejected by a closed schema, or listed in the response's
// ignoredFields.
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
					t.Errorf("%s accepts unknown fields, but its response %s has no ignoredFields", op.name, status)
				}
			}
		}
		for name, p := range walk(schema, "properties") {
			visit(p, "/"+name, func(at string, m map[string]any) {
				if _, has := m["properties"].(map[string]any); has && m["additionalProperties"] != false {
					t.Errorf("%s: the object at %s accepts unknown fields, want additionalProperties: false", op.name, at)
				}
			})
		}
	}
}

// A client can send back a record that it has read, so each PATCH schema has every field of the
// record. Fields that cannot be changed are readOnly. In requests, a link's destinationUrl is
// called url.
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
			continue // the response to a bulk change does not contain a record
		}
		for name := range walk(record, "properties") {
			n++
			if walk(change, "properties", name) == nil && name != "destinationUrl" && name != "ignoredFields" {
				t.Errorf("%s: the request does not have the record's field %s", op.name, name)
			}
		}
	}
	if n < 50 {
		t.Errorf("found %d record fields, want at least 50", n)
	}
}

// follow returns the schema that v refers to, or nil if v is not a schema.
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
		t.Error("Query[tag] of GET /api/v1/links = false, want true, because the parameter is repeatable")
	}
	if got := query("DELETE", "/api/v1/links/{id}"); len(got) > 0 {
		t.Errorf("Query = %v, want none", got)
	}
	if apispec.Load().Operation("GET", "/v/{slug}") != nil {
		t.Error("Operation(GET /v/{slug}) found an operation, want nil for a page")
	}
}

func TestOperationsWithoutJSONBodyHaveNoSchema(t *testing.T) {
	t.Parallel()
	d := apispec.Load()
	for _, op := range [][2]string{{"GET", "/api/v1/links"}, {"POST", "/api/v1/domains/{id}/verify"}, {"PUT", "/api/v1/videos/{id}/captions/{lang}"}} {
		if d.Operation(op[0], op[1]).Schema != nil {
			t.Errorf("%s %s has a schema, want nil", op[0], op[1])
		}
	}
	if d.Component("BulkItem") == nil || d.Component("Nothing") != nil {
		t.Error("Component(BulkItem) is nil or Component(Nothing) is not nil, want only BulkItem")
	}
}

func TestEveryOperationIsDescribed(t *testing.T) {
	t.Parallel()
	doc := document(t)
	ids := map[string]bool{}
	for _, op := range operations(doc) {
		id, _ := op.value["operationId"].(string)
		if id == "" || ids[id] {
			t.Errorf("%s: operationId %q is empty or not unique", op.name, id)
		}
		ids[id] = true
		for _, k := range []string{"summary", "tags", "responses"} {
			if op.value[k] == nil {
				t.Errorf("%s has no %s", op.name, k)
			}
		}
		responses := op.value["responses"].(map[string]any)
		needs, has := op.value["security"].([]any)
		open := has && len(needs) == 0 // no key required
		for _, status := range []string{"401", "500", "503"} {
			if responses[status] == nil && !(open && status == "401") {
				t.Errorf("%s has no response %s", op.name, status)
			}
		}
		if op.value["requestBody"] != nil {
			for _, status := range []string{"400", "413", "415"} {
				if responses[status] == nil {
					t.Errorf("%s takes a body but has no response %s", op.name, status)
				}
			}
		}
		if op.method == "post" && strings.HasPrefix(op.path, "/api/") && !open {
			for _, status := range []string{"409", "422", "429"} {
				if responses[status] == nil {
					t.Errorf("%s has no response %s", op.name, status)
				}
			}
			if !strings.Contains(fmt.Sprint(op.value["parameters"]), "IdempotencyKey") {
				t.Errorf("%s has no Idempotency-Key parameter", op.name)
			}
		}
		for _, p := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(op.path, -1) {
			if !hasPathParameter(doc, op, p[1]) {
				t.Errorf("%s does not describe the %s parameter", op.name, p[1])
			}
		}
	}
	if got := len(apispec.Load().Routes()); got != len(ids) {
		t.Errorf("Routes() returned %d operations, want %d as in the document", got, len(ids))
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
					t.Errorf("%s: response %s allows code %s, but that code has status %s", op.name, status, code, got)
				}
			}
		}
	}
	for name := range walk(doc, "components", "responses") {
		if !used["#/components/responses/"+name] {
			t.Errorf("components/responses/%s is not used", name)
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
		t.Errorf("found %d schemas, want at least 70", n)
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
		t.Errorf("found %d examples, want at least 60", n)
	}
}

func TestJSONIsTheSameDocumentInTheSameOrder(t *testing.T) {
	t.Parallel()
	d := apispec.Load()
	if !json.Valid(d.JSON()) {
		t.Fatal("JSON() is not valid JSON")
	}
	dec := json.NewDecoder(bytes.NewReader(d.JSON()))
	_, _ = dec.Token()
	if first, _ := dec.Token(); first != "openapi" {
		t.Errorf("the first name in the JSON document is %v, want openapi", first)
	}
	if bytes.Contains(d.JSON(), []byte("&createdKey")) || !bytes.HasPrefix(d.YAML(), []byte("# The contract")) {
		t.Error("JSON() contains YAML anchors, or YAML() does not begin with the first comment of openapi.yaml")
	}
}

func TestParseRefusesABrokenDocument(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"empty":                         "",
		"invalid YAML":                  "a: [",
		"reference to a missing schema": "components: {schemas: {A: {$ref: '#/components/schemas/B'}}}",
		"reference to another document": "components: {schemas: {A: {$ref: 'https://example.com/s.json'}}}",
		"invalid schema":                "components: {schemas: {A: {type: strings}}}",
		"invalid request schema":        "paths: {/x: {post: {requestBody: {content: {application/json: {schema: {maxLength: -1}}}}}}}",
	} {
		if _, err := apispec.Parse([]byte(src)); err == nil {
			t.Errorf("%s: Parse succeeded, want an error", name)
		}
	}
}

// strict closes every object schema, so an example cannot show a field that the schema does not
// have.
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
			t.Errorf("the target of the reference %s does not exist", ref)
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

// Fields that are present in every response must be required, so users of a generated client need
// not check whether they are set. Only the fields in the table may be absent, each for the given
// reason.
func TestFieldsThatAreAlwaysSentAreRequired(t *testing.T) {
	t.Parallel()
	sometimes := map[string]string{
		"ignoredFields": "only if the request had ignored fields", "details": "only for VALIDATION_ERROR", "moreDetails": "only if details is incomplete",
		"requiredPlan": "only for PLAN_REQUIRED", "currentPlan": "only for PLAN_REQUIRED", "requiredScope": "only for INSUFFICIENT_SCOPE", "requiredRole": "only for INSUFFICIENT_SCOPE",
		"max": "only for rules with a bound", "min": "only for rules with a bound", "data": "alternative to error, in bulk results", "error": "only for failures",
		"restartAfter": "only for CURSOR_AHEAD", "accessRestoredAt": "only for access rules from before a restore", "paused": "only while deliveries are paused after a restore",
		"importedClicks": "only for imported links", "bandwidth": "only after measurement", "codecs": "only after measurement", "frameRate": "only after measurement",
		"linkId": "alternative to videoId", "videoId": "alternative to linkId", "uploadUrl": "only before the upload", "uploadUrlExpiresAt": "only before the upload",
		"resumableUploadUrl": "only if the store supports sessions", "signIn": "only in the list of members",
		"startsAt": "only for links that start later", "country": "alternative condition of a rule", "device": "alternative condition of a rule",
		"system": "alternative condition of a rule", "language": "alternative condition of a rule", "query": "alternative condition of a rule", "from": "alternative condition of a rule",
		"until": "alternative condition of a rule", "percent": "alternative condition of a rule",
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
			// Properties next to an allOf only narrow another schema, which already lists them as
			// required.
			if len(props) == 0 || len(required) == 0 && m["type"] != "object" {
				return
			}
			for name := range props {
				n++
				if !slices.Contains(required, name) && sometimes[name] == "" {
					t.Errorf("%s: the %s field is not required, and no reason is listed", at, name)
				}
			}
		})
	}
	seen := map[string]bool{}
	for _, op := range operations(doc) {
		check(op.name, op.value["responses"], seen)
	}
	if n < 250 {
		t.Errorf("found %d response fields, want at least 250", n)
	}
}

// The description is all that people and programs know about a field when they write a request.
func TestEveryFieldAndParameterIsDescribed(t *testing.T) {
	t.Parallel()
	n := 0
	described := func(at string, v any) {
		m, _ := v.(map[string]any)
		n++
		// A readOnly field in a request is described in the record's schema.
		if m["description"] == nil && m["$ref"] == nil && m["readOnly"] == nil {
			t.Errorf("%s has no description", at)
		}
	}
	visit(document(t), "#", func(at string, m map[string]any) {
		if strings.Contains(at, "/responses/") {
			return // these only narrow the fields of an error
		}
		if fields, ok := m["properties"].(map[string]any); ok && !strings.HasSuffix(at, "/properties") {
			for name, field := range fields {
				described(at+"/"+name, field)
			}
		}
		if params, ok := m["parameters"].([]any); ok {
			for i, param := range params {
				described(fmt.Sprint(at, "/parameters/", i), param)
			}
		}
	})
	if n < 800 {
		t.Errorf("found %d fields and parameters, want at least 800", n)
	}
}

// Lists of codes can grow within a version (docs/versioning.md), so their descriptions say how to
// handle an unknown code.
func TestListsThatGrowSaySo(t *testing.T) {
	t.Parallel()
	schemas := walk(document(t), "components", "schemas")
	for name, list := range map[string]map[string]any{
		"ErrorCode": walk(schemas, "ErrorCode"), "ErrorDetail.code": walk(schemas, "ErrorDetail", "properties", "code"),
		"Video.error.code": walk(schemas, "Video", "properties", "error", "properties", "code"), "EventType": walk(schemas, "EventType"),
	} {
		if text, _ := list["description"].(string); len(strs(list["enum"])) == 0 || !regexp.MustCompile(`New (codes|types)\s+will come; .*do(es)? not know`).MatchString(strings.Join(strings.Fields(text), " ")) {
			t.Errorf("the description of %s does not say how to handle an unknown value: %q", name, text)
		}
	}
	if s := walk(schemas, "LinkStatus"); s["enum"] != nil || !strings.Contains(fmt.Sprint(s["description"]), "More values may be added") {
		t.Error("LinkStatus is a closed list, want it open to new values")
	}
}

// The document does not describe calls that do not need a key, so the guides must show examples of
// them. TestSnippetsOfTheDocumentsRun in tests/contract runs the examples.
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
				t.Errorf("docs/%s has no example that contains %s", file, w)
			}
		}
	}
}

// Each event type has a schema for the feed and a schema for webhook messages. Both lists must
// match the code. Only webhooks receive the test message.
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
					t.Errorf("%s: the mapping does not map %s to %s", union, kind, ref)
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
			t.Errorf("webhook %s sends %v, want the schema in the mapping of Message", name, sent)
		}
	}
}

func TestGuidesNameEveryCodeAndEveryOperation(t *testing.T) {
	t.Parallel()
	var guides []byte
	files, err := filepath.Glob("../../docs/api/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d pages in docs/api, want at least 10; error %v", len(files), err)
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
			t.Errorf("docs/api.md, the pages in docs/api and docs/errors.md do not mention %s", name)
		}
	}
}
