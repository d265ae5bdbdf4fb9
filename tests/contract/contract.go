// Package contract checks every HTTP exchange in a test against openapi.yaml, in both directions. A
// response must have a documented status, the documented headers, and a body with the documented
// fields and no others. A request that the document does not allow must not succeed.
//
// [NewTransport] adds these checks to a test's HTTP client. It checks only API requests. Requests
// for share pages, redirects and object storage are not checked.
package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/linkreel/linkreel/libs/apispec"
)

// Contract is a parsed document. It is safe for concurrent use.
type Contract struct {
	doc   *openapi3.T
	paths []string
}

// Load returns this repository's contract. It parses the document only once.
var Load = sync.OnceValue(func() *Contract {
	c, err := Parse(apispec.Load().JSON())
	if err != nil {
		panic(err)
	}
	return c
})

// Parse reads a JSON document. It forbids unknown fields in the document's objects, so a response
// with an undocumented field breaks the contract. Real callers must tolerate new fields.
func Parse(document []byte) (*Contract, error) {
	var raw map[string]any
	if err := json.Unmarshal(document, &raw); err != nil {
		return nil, err
	}
	open := requestSchemas(raw)
	apispec.Loosen(raw)
	closeObjects(raw, "", open)
	allowNull(raw)
	strict, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(strict)
	if err != nil {
		return nil, fmt.Errorf("cannot load the document: %w", err)
	}
	if err := doc.Validate(context.Background(), openapi3.DisableExamplesValidation()); err != nil {
		return nil, fmt.Errorf("the document is invalid: %w", err)
	}
	c := &Contract{doc: doc}
	for path := range doc.Paths.Map() {
		c.paths = append(c.paths, path)
	}
	// Fixed segments take precedence over parameters, as in the services.
	slices.SortFunc(c.paths, func(a, b string) int {
		return strings.Compare(strings.ReplaceAll(a, "{", "\x7f"), strings.ReplaceAll(b, "{", "\x7f"))
	})
	return c, nil
}

// Only captions, QR codes and exports have bodies that are not JSON. The decoder registry is
// global, so this code runs once rather than for each contract.
func init() {
	openapi3filter.RegisterBodyDecoder("text/vtt", openapi3filter.PlainBodyDecoder)
	openapi3filter.RegisterBodyDecoder("image/svg+xml", openapi3filter.PlainBodyDecoder)
	openapi3filter.RegisterBodyDecoder("image/png", openapi3filter.FileBodyDecoder)
	openapi3filter.RegisterBodyDecoder("application/jsonl", openapi3filter.PlainBodyDecoder)
}

// Exchange is one request and its response.
type Exchange struct {
	Method      string
	URL         *url.URL
	Header      http.Header
	Body        []byte
	Status      int
	Answer      http.Header
	AnswerBody  []byte
	OperationID string // set by Check; empty if the document has no such operation
}

// Covers reports whether a URL belongs to the API.
func Covers(u *url.URL) bool {
	return strings.HasPrefix(u.Path, "/api/") || strings.HasPrefix(u.Path, "/admin/")
}

// Check returns an error that describes how the exchange breaks the contract, or nil.
func (c *Contract) Check(x *Exchange) error {
	path, params := c.match(x.Method, x.URL)
	if path == "" {
		// A router may treat the path as a record with an odd ID. If it does, it may reject the
		// caller or a reused Idempotency-Key before it looks up the record.
		return c.checkError(x, http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests,
			http.StatusMethodNotAllowed, http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge)
	}
	item := c.doc.Paths.Value(path)
	method := x.Method
	if method == http.MethodHead && item.Get != nil {
		method = http.MethodGet
	}
	op := item.GetOperation(method)
	if op == nil {
		if x.Status == http.StatusMethodNotAllowed && x.Answer.Get("Allow") == "" {
			return errors.New("status 405 without an Allow header")
		}
		return c.checkError(x, http.StatusMethodNotAllowed, http.StatusNotFound, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge)
	}
	x.OperationID = op.OperationID
	route := &routers.Route{Spec: c.doc, Path: path, PathItem: item, Method: method, Operation: op}
	if x.Status < 400 {
		if err := c.checkRequest(x, route, params); err != nil {
			return fmt.Errorf("status %d for a request that the document does not allow: %w", x.Status, err)
		}
	}
	return c.checkResponse(x, route)
}

// Wrong returns an error that describes how the request violates the document, regardless of the
// response. It returns nil for an allowed request and for a request that does not match any
// operation.
func (c *Contract) Wrong(x *Exchange) error {
	path, params := c.match(x.Method, x.URL)
	if path == "" {
		return nil
	}
	item := c.doc.Paths.Value(path)
	op := item.GetOperation(x.Method)
	if op == nil {
		return nil
	}
	return c.checkRequest(x, &routers.Route{Spec: c.doc, Path: path, PathItem: item, Method: x.Method, Operation: op}, params)
}

func (c *Contract) options() *openapi3filter.Options {
	return &openapi3filter.Options{
		IncludeResponseStatus: true,
		MultiError:            true,
		SkipSettingDefaults:   true,
		AuthenticationFunc:    openapi3filter.NoopAuthenticationFunc, // the tests check keys themselves
		// The services accept a readOnly property in a PATCH and list it in ignoredFields.
		ExcludeReadOnlyValidations: true,
	}
}

func (c *Contract) input(x *Exchange, route *routers.Route, params map[string]string) *openapi3filter.RequestValidationInput {
	header := x.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if len(x.Body) > 0 && header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/json") // the services assume this type
	}
	req := &http.Request{
		Method: x.Method, URL: x.URL, Header: header, Host: x.URL.Host,
		Body: io.NopCloser(bytes.NewReader(x.Body)), ContentLength: int64(len(x.Body)),
	}
	return &openapi3filter.RequestValidationInput{
		Request: req, PathParams: params, QueryParams: x.URL.Query(), Route: route, Options: c.options(),
	}
}

func (c *Contract) checkRequest(x *Exchange, route *routers.Route, params map[string]string) error {
	known := apispec.Load().Operation(route.Method, route.Path).Query
	for name, values := range x.URL.Query() {
		if repeatable, ok := known[name]; name != "" && (!ok || len(values) > 1 && !repeatable) {
			return fmt.Errorf("the operation has no query parameter %q or does not accept it twice", name)
		}
	}
	err := openapi3filter.ValidateRequest(context.Background(), c.input(x, route, params))
	if errors.Is(err, strconv.ErrRange) {
		// The validator cannot represent numbers outside the float64 range. It rejects any field
		// with such a number, even one that allows any value. The service reads the number as
		// infinity.
		return nil
	}
	return err
}

func (c *Contract) checkResponse(x *Exchange, route *routers.Route) error {
	if x.Status == http.StatusRequestHeaderFieldsTooLarge || x.Status == http.StatusRequestEntityTooLarge {
		return c.checkError(x, x.Status) // rejected before routing
	}
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: c.input(x, route, nil),
		Status:                 x.Status,
		Header:                 x.Answer,
		Body:                   io.NopCloser(bytes.NewReader(x.AnswerBody)),
		Options:                c.options(),
	})
	if err != nil {
		return fmt.Errorf("status %d: %w", x.Status, err)
	}
	if x.Status == http.StatusNoContent && len(x.AnswerBody) > 0 {
		return fmt.Errorf("status 204 with a body of %d bytes", len(x.AnswerBody))
	}
	if x.Status >= 400 && x.Method != http.MethodHead {
		return sameRequestID(x)
	}
	return nil
}

// checkError checks responses that are not documented for any operation. They must have the shape
// of an error and one of the given statuses.
func (c *Contract) checkError(x *Exchange, statuses ...int) error {
	if !slices.Contains(statuses, x.Status) {
		return fmt.Errorf("status %d for a request that does not match any operation, want one of %v", x.Status, statuses)
	}
	if x.Method == http.MethodHead {
		return nil
	}
	if ct := x.Answer.Get("Content-Type"); ct != "application/json" {
		return fmt.Errorf("status %d: Content-Type is %q, want application/json", x.Status, ct)
	}
	var v any
	if err := json.Unmarshal(x.AnswerBody, &v); err != nil {
		return fmt.Errorf("status %d: the body is not JSON: %w", x.Status, err)
	}
	if err := c.doc.Components.Schemas["Error"].Value.VisitJSON(v, openapi3.EnableJSONSchema2020(), openapi3.MultiErrors()); err != nil {
		return fmt.Errorf("status %d: the body does not match the Error schema: %w", x.Status, err)
	}
	return sameRequestID(x)
}

func sameRequestID(x *Exchange) error {
	if x.Answer.Get("Idempotent-Replayed") != "" {
		return nil // a replayed response has the body from the first exchange
	}
	var body struct {
		Error struct {
			RequestID string `json:"requestId"`
		} `json:"error"`
	}
	if err := json.Unmarshal(x.AnswerBody, &body); err != nil {
		return err
	}
	if id := x.Answer.Get("X-Request-Id"); id != body.Error.RequestID {
		return fmt.Errorf("requestId is %q, but X-Request-Id is %q", body.Error.RequestID, id)
	}
	return nil
}

// match finds the documented path for a URL. A path that supports the method takes precedence. For
// every method except POST, "bulk" in /links/bulk is an ID.
func (c *Contract) match(method string, u *url.URL) (path string, params map[string]string) {
	for _, p := range c.paths {
		found := fit(p, u)
		if found == nil {
			continue
		}
		if item := c.doc.Paths.Value(p); item.GetOperation(method) != nil || method == http.MethodHead && item.Get != nil {
			return p, found
		}
		if path == "" {
			path, params = p, found
		}
	}
	return path, params
}

// fit returns the parameters in a URL that matches path, or nil if the URL does not match.
func fit(path string, u *url.URL) map[string]string {
	given, want := strings.Split(u.EscapedPath(), "/"), strings.Split(path, "/")
	if len(want) != len(given) {
		return nil
	}
	params := map[string]string{}
	for i, w := range want {
		if !strings.HasPrefix(w, "{") {
			if w != given[i] {
				return nil
			}
			continue
		}
		value, err := url.PathUnescape(given[i])
		if err != nil || value == "" || value == "." || value == ".." || strings.Contains(value, "/") {
			return nil // proxies might not treat it as one segment
		}
		params[strings.Trim(w, "{}")] = value
	}
	return params
}

// Transport checks the exchanges that a client sends through it.
type Transport struct {
	base   http.RoundTripper
	report func(x *Exchange, err error)
	check  *Contract
}

// NewTransport returns a transport that fails t for each exchange that breaks the contract. If base
// is nil, it uses [http.DefaultTransport].
func NewTransport(t testing.TB, base http.RoundTripper) *Transport {
	return NewReporter(base, func(x *Exchange, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("contract: %s %s: %v\nrequest: %.500s\nresponse: %.1000s", x.Method, x.URL.RequestURI(), err, x.Body, x.AnswerBody)
		}
	})
}

// NewReporter returns a transport that calls report with each API exchange and its error. The error
// for a correct exchange is nil.
func NewReporter(base http.RoundTripper, report func(x *Exchange, err error)) *Transport {
	if base == nil {
		base = http.DefaultTransport
	}
	return &Transport{base: base, report: report, check: Load()}
}

// RoundTrip reads both bodies into memory. The API's bodies are small.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !Covers(req.URL) {
		return t.base.RoundTrip(req)
	}
	x := &Exchange{Method: req.Method, URL: req.URL, Header: req.Header}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		_ = req.Body.Close() // the body has been read completely
		if err != nil {
			return nil, fmt.Errorf("cannot read the request body: %w", err)
		}
		x.Body = body
		again := *req
		again.Body = io.NopCloser(bytes.NewReader(body))
		again.ContentLength = int64(len(body))
		if len(body) == 0 {
			again.Body = http.NoBody
		}
		req = &again
	}
	res, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close() // the body has been read completely
	if err != nil {
		return nil, fmt.Errorf("cannot read the response body: %w", err)
	}
	x.Status, x.Answer, x.AnswerBody = res.StatusCode, res.Header, body
	t.report(x, t.check.Check(x))
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

// DiffRoutes compares the services' routes with the document's. It returns "" if they are the same.
// A route's path can be in the router's format (":id") or the document's ("{id}"). Parameter names
// may differ, and routes outside the API are ignored.
func DiffRoutes(served []apispec.Route) string {
	key := func(r apispec.Route) string {
		parts := strings.Split(r.Path, "/")
		for i, p := range parts {
			if strings.HasPrefix(p, ":") || strings.HasPrefix(p, "{") {
				parts[i] = "{}"
			}
		}
		return r.Method + " " + strings.Join(parts, "/")
	}
	has := map[string]int{}
	for _, r := range apispec.Load().Routes() {
		has[key(r)] |= 1
	}
	for _, r := range served {
		if r.Method != http.MethodHead && (strings.HasPrefix(r.Path, "/api/") || strings.HasPrefix(r.Path, "/admin/")) {
			has[key(r)] |= 2
		}
	}
	var out []string
	for k, v := range has {
		switch v {
		case 1:
			out = append(out, "documented but not served: "+k)
		case 2:
			out = append(out, "served but not documented: "+k)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// requestSchemas returns the names of the components that only requests use. Parse does not change
// these components because the document says which of them reject unknown fields.
func requestSchemas(doc map[string]any) map[string]bool {
	open := map[string]bool{}
	var note func(v any)
	note = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				name := strings.TrimPrefix(ref, "#/components/schemas/")
				if !open[name] {
					open[name] = true
					note(dig(doc, "components", "schemas", name))
				}
			}
			for _, c := range v {
				note(c)
			}
		case []any:
			for _, c := range v {
				note(c)
			}
		}
	}
	paths, _ := dig(doc, "paths").(map[string]any)
	for _, item := range paths {
		ops, _ := item.(map[string]any)
		for _, op := range ops {
			if body := dig(op, "requestBody"); body != nil {
				note(body)
			}
		}
	}
	return open
}

func dig(v any, names ...string) any {
	for _, n := range names {
		m, _ := v.(map[string]any)
		v = m[n]
	}
	return v
}

// allowNull makes the validator accept any value, including null, for a schema without a type.
// Fields that exist but cannot be edited have schemas without a type.
func allowNull(v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 1 && v["readOnly"] == true {
			v["type"] = []any{"string", "number", "boolean", "array", "object", "null"}
		}
		for _, c := range v {
			allowNull(c)
		}
	case []any:
		for _, c := range v {
			allowNull(c)
		}
	}
}

func closeObjects(v any, at string, open map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		if name, ok := strings.CutPrefix(at, "/components/schemas/"); ok && open[name] {
			return
		}
		if _, has := v["properties"].(map[string]any); has && v["type"] == "object" {
			v["additionalProperties"] = false
		}
		for k, c := range v {
			if k != "example" && k != "examples" && k != "requestBody" {
				closeObjects(c, at+"/"+k, open)
			}
		}
	case []any:
		for _, c := range v {
			closeObjects(c, at+"/-", open)
		}
	}
}
