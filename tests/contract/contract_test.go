package contract_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/tests/contract"
)

const requestID = "4bf92f3577b34da6a3ce929d0e0e4736"

func answer(extra ...string) http.Header {
	h := http.Header{}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "X-Request-Id": requestID,
		"RateLimit-Policy": `"default";q=600;w=60`, "RateLimit": `"default";r=599;t=1`,
		"X-RateLimit-Limit": "600", "X-RateLimit-Remaining": "599", "X-RateLimit-Reset": "1790000060",
	} {
		h.Set(k, v)
	}
	for i := 0; i < len(extra); i += 2 {
		if extra[i+1] == "" {
			h.Del(extra[i])
			continue
		}
		h.Set(extra[i], extra[i+1])
	}
	return h
}

func fault(code, more string) string {
	return fmt.Sprintf(`{"error":{"code":%q,"message":"m","requestId":%q,"docUrl":%q%s}}`, code, requestID, apierr.Code(code).DocURL(), more)
}

const createdLink = `{"id":"lnk_1","shortUrl":"http://s/x","slug":"x","destinationUrl":"https://example.com","createdAt":"2026-11-20T10:15:30.000Z","tags":[],"externalId":null,"archived":false,"link":` + oneLink + `}`

// oneLink and oneVideo are records that the document allows.
const (
	oneLink  = `{"_id":"lnk_1","id":"lnk_1","slug":"x","destinationUrl":"https://example.com","title":"","clicks":0,"createdAt":1,"shortUrl":"http://s/x","domainId":null,"expiresAt":null,"status":"active","tags":[],"externalId":null,"archived":false,"redirectType":302,"forwardQuery":false,"forwardPath":false,"startsAt":null,"expiredUrl":null,"hasPassword":false,"maxClicks":null,"hasRules":false,"updatedAt":1,"ogTitle":null,"ogDescription":null,"ogImage":null,"takenDown":null,"rules":[]}`
	oneVideo = `{"_id":"v","id":"v","title":"","description":null,"slug":"s","status":"uploading","privacy":"public","shareUrl":"u","createdAt":1,"updatedAt":1,"expiresAt":null,"progress":0,"duration":null,"width":null,"height":null,"posterUrl":null,"playbackUrl":null,"downloadUrl":null,"renditions":[],"captions":[],"views":0,"tags":[],"externalId":null,"thumbnailTime":null,"takenDown":null,"uploadUrl":"u","uploadUrlExpiresAt":5}`
)

// exchanges are requests and responses that the document allows.
var exchanges = map[string]struct {
	method, uri, body string
	status            int
	header            http.Header
	answer            string
}{
	"create":          {"POST", "/api/v1/links", `{"url":"https://example.com","extra":1}`, 201, answer("Location", "/api/v1/links/lnk_1"), createdLink},
	"list":            {"GET", "/api/v1/links?limit=5", ``, 200, answer(), `{"data":[{"_id":"lnk_1","id":"lnk_1","slug":"x","destinationUrl":"https://example.com","title":"","clicks":0,"createdAt":1,"shortUrl":"http://s/x","domainId":null,"expiresAt":null,"status":"active","tags":[],"externalId":null,"archived":false,"redirectType":302,"forwardQuery":false,"forwardPath":false,"startsAt":null,"expiredUrl":null,"hasPassword":false,"maxClicks":null,"hasRules":false}],"hasMore":false,"nextCursor":null}`},
	"explain":         {"GET", "/api/v1/links/lnk_1/explain?device=phone&percent=0", ``, 200, answer(), `{"status":302,"location":"https://example.com","rule":null,"why":"No rule holds."}`},
	"available":       {"GET", "/api/v1/links/available?slug=x", ``, 200, answer(), `{"available":false,"reason":"taken"}`},
	"delete":          {"DELETE", "/api/v1/links/lnk_1", ``, 204, answer("Content-Type", ""), ``},
	"bulk":            {"POST", "/api/v1/links/bulk", `{"urls":[{"url":"https://example.com"},5]}`, 207, answer(), `{"results":[{"status":201,"data":{"id":"a","shortUrl":"b","slug":"c","destinationUrl":"d"}},{"status":400,"error":{"code":"VALIDATION_ERROR","message":"m","docUrl":"/docs/guides/errors#validation_error","url":""}}]}`},
	"invalid":         {"POST", "/api/v1/links", `{"url":5}`, 400, answer(), fault("VALIDATION_ERROR", `,"details":[{"field":"url","code":"invalid_type","message":"m"}]`)},
	"no key":          {"GET", "/api/v1/videos", ``, 401, answer("WWW-Authenticate", "Bearer"), fault("MISSING_API_KEY", "")},
	"plan":            {"POST", "/api/v1/links/bulk", `{"urls":[1]}`, 403, answer(), fault("PLAN_REQUIRED", `,"requiredPlan":"business","currentPlan":"free"`)},
	"too fast":        {"GET", "/api/v1/links", ``, 429, answer("Retry-After", "1"), fault("RATE_LIMITED", "")},
	"unknown path":    {"GET", "/api/v1/nothing", ``, 404, answer(), fault("NOT_FOUND", "")},
	"wrong method":    {"PUT", "/api/v1/links", ``, 405, answer("Allow", "GET, POST"), fault("METHOD_NOT_ALLOWED", "")},
	"operator":        {"POST", "/admin/v1/accounts", `{"name":"a","plan":"free"}`, 201, answer("Location", "/admin/v1/accounts/acc_1"), `{"id":"acc_1","name":"a","plan":"free","defaultDomainId":null,"state":"active","suspended":false,"limits":{"links":null,"videos":null,"domains":null,"storedBytes":null},"createdAt":1}`},
	"a huge number":   {"PATCH", "/api/v1/videos/vid_1", `{"expiresAt":1e400}`, 200, answer("ETag", `"r1"`), `{"success":true,"video":` + oneVideo + `,"ignoredFields":["expiresAt"]}`},
	"captions":        {"PUT", "/api/v1/videos/vid_1/captions/en", "WEBVTT\n", 200, answer(), `{"success":true,"language":"en"}`},
	"roll, no body":   {"POST", "/api/v1/keys/key_1/roll", ``, 404, answer(), fault("NOT_FOUND", "")},
	"slug taken":      {"POST", "/api/v1/links", `{"url":"https://example.com","slug":"x"}`, 409, answer(), fault("SLUG_TAKEN", "")},
	"head of a list":  {"HEAD", "/api/v1/links", ``, 200, answer(), ``},
	"video not ready": {"GET", "/api/v1/videos/vid_1", ``, 200, answer("ETag", `"r1"`), oneVideo},
}

func exchange(t *testing.T, name string) *contract.Exchange {
	t.Helper()
	e, ok := exchanges[name]
	if !ok {
		t.Fatalf("there is no exchange %q", name)
	}
	u, err := url.Parse("http://base.test" + e.uri)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	if strings.HasPrefix(e.body, "WEBVTT") {
		h.Set("Content-Type", "text/vtt")
	}
	return &contract.Exchange{Method: e.method, URL: u, Header: h, Body: []byte(e.body), Status: e.status, Answer: e.header.Clone(), AnswerBody: []byte(e.answer)}
}

func TestRightExchangesPass(t *testing.T) {
	t.Parallel()
	for name := range exchanges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := contract.Load().Check(exchange(t, name)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWrongExchangesAreNoticed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, of string
		spoil    func(x *contract.Exchange)
	}{
		{"an undocumented status", "create", func(x *contract.Exchange) { x.Status = 200 }},
		{"an undocumented server error", "list", func(x *contract.Exchange) { x.Status = 502 }},
		{"an undocumented field", "create", func(x *contract.Exchange) {
			x.AnswerBody = bytes.Replace(x.AnswerBody, []byte("{"), []byte(`{"internal":1,`), 1)
		}},
		{"a missing field", "create", func(x *contract.Exchange) {
			x.AnswerBody = bytes.Replace(x.AnswerBody, []byte(`"slug":"x",`), nil, 1)
		}},
		{"a wrong type", "list", func(x *contract.Exchange) {
			x.AnswerBody = bytes.Replace(x.AnswerBody, []byte(`"clicks":0`), []byte(`"clicks":"0"`), 1)
		}},
		{"an undocumented field in a list", "list", func(x *contract.Exchange) {
			x.AnswerBody = bytes.Replace(x.AnswerBody, []byte(`"clicks":0`), []byte(`"clicks":0,"owner":"a"`), 1)
		}},
		{"a missing rate limit header", "list", func(x *contract.Exchange) { x.Answer.Del("RateLimit") }},
		{"a missing Location", "create", func(x *contract.Exchange) { x.Answer.Del("Location") }},
		{"a missing Retry-After", "too fast", func(x *contract.Exchange) { x.Answer.Del("Retry-After") }},
		{"a missing WWW-Authenticate", "no key", func(x *contract.Exchange) { x.Answer.Del("WWW-Authenticate") }},
		{"an error code for a different status", "slug taken", func(x *contract.Exchange) { x.AnswerBody = []byte(fault("LINK_NOT_FOUND", "")) }},
		{"an unknown detail code", "invalid", func(x *contract.Exchange) {
			x.AnswerBody = bytes.Replace(x.AnswerBody, []byte("invalid_type"), []byte("wrong"), 1)
		}},
		{"a different request ID", "invalid", func(x *contract.Exchange) { x.Answer.Set("X-Request-Id", "other") }},
		{"a body with 204", "delete", func(x *contract.Exchange) { x.AnswerBody = []byte("{}") }},
		{"an error as HTML", "unknown path", func(x *contract.Exchange) { x.Answer.Set("Content-Type", "text/html") }},
		{"405 without Allow", "wrong method", func(x *contract.Exchange) { x.Answer.Del("Allow") }},
		{"success for an invalid body", "create", func(x *contract.Exchange) { x.Body = []byte(`{"url":5}`) }},
		{"success for an invalid query", "list", func(x *contract.Exchange) { x.URL.RawQuery = "limit=101" }},
		{"a failed bulk item without an error", "bulk", func(x *contract.Exchange) {
			x.AnswerBody = []byte(`{"results":[{"status":400}]}`)
		}},
		{"an account's key on an operator's route", "operator", func(x *contract.Exchange) {
			x.AnswerBody = bytes.Replace(x.AnswerBody, []byte("{"), []byte(`{"adminToken":"x",`), 1)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := exchange(t, tt.of)
			tt.spoil(x)
			if err := contract.Load().Check(x); err == nil {
				t.Error("Check returned nil, want an error")
			}
		})
	}
}

// Each change breaks the document, so Check must reject a correct exchange.
func TestABrokenDocumentIsNoticed(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, of, old, new string }{
		{"a status is missing", "create", `"201":{"description":"The link exists`, `"202":{"description":"The link exists`},
		{"a field has a different type", "list", `"clicks":{"type":"integer"`, `"clicks":{"type":"string"`},
		{"a field is renamed", "create", `"shortUrl":{"type":"string","description":"The whole`, `"shortURL":{"type":"string","description":"The whole`},
		{"a field is missing", "list", `"hasMore":{"type":"boolean","description":"Whether there is a next page."},`, ``},
		{"null is not allowed", "list", `"type":["integer","null"],"minimum":0,"maximum":9007199254740991`, `"type":"integer"`},
		{"a bound is too low", "list", `"minimum":1,"maximum":100,"default":20`, `"minimum":1,"maximum":4,"default":2`},
		{"an error code is missing", "slug taken", `"enum":["SLUG_TAKEN","EXTERNAL_ID_TAKEN"`, `"enum":["EXTERNAL_ID_TAKEN"`},
		{"an operation is missing", "captions", `"put":{"operationId":"putCaptions"`, `"post":{"operationId":"putCaptions"`},
		{"a path is misspelt", "roll, no body", `"/api/v1/keys/{id}/roll"`, `"/api/v1/keys/{id}/rolls"`},
		{"a request field has a different type", "create", `"url":{"description":"Destination, http or https.","type":"string"`, `"url":{"description":"Destination, http or https.","type":"integer"`},
		{"a field is required", "video not ready", `"playbackUrl","downloadUrl","renditions"`, `"playbackUrl","error","downloadUrl","renditions"`},
		{"a plan is missing", "plan", `"enum":["free","creator","business","enterprise"]`, `"enum":["creator","business","enterprise"]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			doc := string(apispec.Load().JSON())
			if n := strings.Count(doc, tt.old); n == 0 {
				t.Fatalf("the document does not contain %s", tt.old)
			}
			c, err := contract.Parse([]byte(strings.ReplaceAll(doc, tt.old, tt.new)))
			if err != nil {
				t.Fatal(err)
			}
			x := exchange(t, tt.of)
			if err := c.Check(x); err == nil && x.OperationID != "" {
				t.Error("Check returned nil for an exchange that violates the document")
			}
		})
	}
}

func TestTransportChecksOnlyTheAPIAndHandsBodiesOn(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"got":%q}`, body)
	}))
	defer s.Close()
	var faults, calls int
	client := &http.Client{Transport: contract.NewReporter(nil, func(_ *contract.Exchange, err error) {
		calls++
		if err != nil {
			faults++
		}
	})}
	for _, path := range []string{"/v/demo", "/api/v1/links"} {
		res, err := client.Post(s.URL+path, "application/json", strings.NewReader(`{"url":"https://example.com"}`))
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Got string }
		if err := json.NewDecoder(res.Body).Decode(&got); err != nil || got.Got != `{"url":"https://example.com"}` {
			t.Errorf("%s: the body arrived as %q, %v", path, got.Got, err)
		}
		_ = res.Body.Close()
	}
	if calls != 1 || faults != 1 {
		t.Errorf("the transport checked %d calls and found %d faults, want 1 and 1", calls, faults)
	}
}

func TestDiffRoutesNamesBothDirections(t *testing.T) {
	t.Parallel()
	var served []apispec.Route
	for _, r := range apispec.Load().Routes() {
		r.Path = strings.NewReplacer("{", ":", "}", "").Replace(r.Path)
		served = append(served, r, apispec.Route{Method: "HEAD", Path: r.Path})
	}
	served = append(served, apispec.Route{Method: "GET", Path: "/v/:slug"})
	if diff := contract.DiffRoutes(served); diff != "" {
		t.Errorf("DiffRoutes reported a difference between identical routes:\n%s", diff)
	}
	served[0].Path = "/api/v1/other"
	if diff := contract.DiffRoutes(served); strings.Count(diff, "\n") != 1 {
		t.Errorf("DiffRoutes returned this text, want one line for each direction:\n%s", diff)
	}
}
