package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/identity"
)

// keyring accepts the keys in its map.
type keyring map[string]*identity.Principal

func (k keyring) Authenticate(_ context.Context, bearer string, _ netip.Addr) (apikey.Decision, error) {
	p, ok := k[bearer]
	if !ok {
		return apikey.Decision{}, apierr.New(apierr.InvalidAPIKey, "unknown key")
	}
	limit := apikey.Limit{Limit: 60, Remaining: 59, ResetAfter: time.Second, Allowed: bearer != "busy", RetryAfter: 1500 * time.Millisecond}
	return apikey.Decision{Principal: p, Limit: limit}, nil
}

func (k keyring) Charge(context.Context, *identity.Principal, int) (apikey.Limit, error) {
	return apikey.Limit{Allowed: true}, nil
}

var keys = keyring{
	"free":      {AccountID: "a", Plan: identity.Free, Scopes: identity.AllScopes},
	"creator":   {AccountID: "b", Plan: identity.Creator, Scopes: identity.AllScopes},
	"readonly":  {AccountID: "b", Plan: identity.Creator, Scopes: identity.LinksRead},
	"suspended": {AccountID: "c", Plan: identity.Creator, Scopes: identity.AllScopes, Suspended: true},
	"busy":      {AccountID: "d", Plan: identity.Free, Suspended: true}, // rate-limited, suspended and without scopes
}

// serve runs an API in memory and returns a function that connects to the API.
func serve(t *testing.T, opt httpapi.Options, routes func(*httpapi.API)) func() net.Conn {
	t.Helper()
	opt.Name, opt.Auth = "test", keys
	a := httpapi.New(opt)
	routes(a)
	l := fasthttputil.NewInmemoryListener()
	srv := httpapi.NewServer(a.Handler())
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Shutdown(); _ = l.Close(); <-done })
	return func() net.Conn {
		c, err := l.Dial()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// ask sends raw and reads one response.
func ask(t *testing.T, dial func() net.Conn, raw string) (*http.Response, map[string]any) {
	t.Helper()
	c := dial()
	defer func() { _ = c.Close() }()
	go func() { _, _ = c.Write([]byte(raw)) }()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("response to %.60q: %v", raw, err)
	}
	defer func() { _ = res.Body.Close() }()
	var body map[string]any
	_ = json.NewDecoder(res.Body).Decode(&body) // some responses have no JSON body
	return res, body
}

func request(method, path, key, headers, body string) string {
	auth := ""
	if key != "" {
		auth = "Authorization: Bearer " + key + "\r\n"
	}
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\n%s%sContent-Length: %d\r\n\r\n%s", method, path, auth, headers, len(body), body)
}

func codeOf(body map[string]any) string {
	e, _ := body["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

func ok(c *fiber.Ctx) error { return httpapi.JSON(c, 200, map[string]string{"id": c.Params("id")}) }

func TestRefusals(t *testing.T) {
	t.Parallel()
	dial := serve(t, httpapi.Options{}, func(a *httpapi.API) {
		a.Handle("GET", "/api/v1/links/:id", httpapi.Access{Scope: identity.LinksRead}, ok)
		a.Handle("DELETE", "/api/v1/links/:id", httpapi.Access{Scope: identity.LinksWrite, Plan: identity.Creator}, ok)
		a.Public("GET", "/api/v1/panic", func(*fiber.Ctx) error { panic("secret text") })
		a.Public("GET", "/api/v1/fails", func(*fiber.Ctx) error { return fmt.Errorf("open /var/lib/secret: denied") })
		a.Public("GET", "/api/v1/down", func(*fiber.Ctx) error { return apierr.Down(fmt.Errorf("firestore at 10.0.0.1")) })
	})
	tests := []struct {
		name, method, path, key, headers, body string
		status                                 int
		code                                   string
		header                                 map[string]string
	}{
		{name: "missing key", method: "GET", path: "/api/v1/links/1", status: 401, code: "MISSING_API_KEY", header: map[string]string{"Www-Authenticate": `Bearer realm="linkreel"`}},
		{name: "unknown key", method: "GET", path: "/api/v1/links/1", key: "x", status: 401, code: "INVALID_API_KEY", header: map[string]string{"Www-Authenticate": `Bearer realm="linkreel", error="invalid_token"`}},
		{name: "unsupported scheme", method: "GET", path: "/api/v1/links/1", headers: "Authorization: Basic creator\r\n", status: 401, code: "INVALID_API_KEY"},
		{name: "two Authorization headers", method: "GET", path: "/api/v1/links/1", key: "creator", headers: "Authorization: Bearer creator\r\n", status: 401, code: "INVALID_API_KEY"},
		{name: "scheme in lower case", method: "GET", path: "/api/v1/links/1", headers: "authorization: bearer creator\r\n", status: 200},
		{name: "plan that is too low", method: "DELETE", path: "/api/v1/links/1", key: "free", status: 403, code: "PLAN_REQUIRED"},
		{name: "missing scope and plan that is too low", method: "DELETE", path: "/api/v1/links/1", key: "readonly", status: 403, code: "INSUFFICIENT_SCOPE"},
		{name: "suspended account", method: "GET", path: "/api/v1/links/1", key: "suspended", status: 403, code: "ACCOUNT_SUSPENDED"},
		{name: "exhausted limit, suspended account and missing scope", method: "DELETE", path: "/api/v1/links/1", key: "busy", status: 429, code: "RATE_LIMITED", header: map[string]string{"Retry-After": "2"}},
		{name: "unknown path", method: "GET", path: "/api/v1/nothing", status: 404, code: "NOT_FOUND"},
		{name: "path in different case", method: "GET", path: "/api/v1/LINKS/1", key: "creator", status: 404, code: "NOT_FOUND"},
		{name: "unsupported method", method: "PUT", path: "/api/v1/links/1", key: "creator", status: 405, code: "METHOD_NOT_ALLOWED", header: map[string]string{"Allow": "GET, HEAD, DELETE"}},
		{name: "panic", method: "GET", path: "/api/v1/panic", status: 500, code: "INTERNAL"},
		{name: "unknown error", method: "GET", path: "/api/v1/fails", status: 500, code: "INTERNAL"},
		{name: "dependency that is down", method: "GET", path: "/api/v1/down", status: 503, code: "UNAVAILABLE", header: map[string]string{"Retry-After": "1"}},
		{name: "large body", method: "DELETE", path: "/api/v1/links/1", key: "creator", body: strings.Repeat(" ", httpserver.MaxBody+1), status: 413, code: "BODY_TOO_LARGE"},
		{name: "large headers", method: "GET", path: "/api/v1/links/1", key: "creator", headers: "X: " + strings.Repeat("a", httpserver.MaxHeaders) + "\r\n", status: 431, code: "HEADERS_TOO_LARGE"},
		{name: "valid request", method: "GET", path: "/api/v1/links/1", key: "creator", status: 200, header: map[string]string{"X-Ratelimit-Limit": "60", "Ratelimit-Policy": `"default";q=60;w=60`, "Ratelimit": `"default";r=59;t=1`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res, body := ask(t, dial, request(tt.method, tt.path, tt.key, tt.headers, tt.body))
			if res.StatusCode != tt.status || codeOf(body) != tt.code {
				t.Fatalf("status %d with code %q, want %d with %q; body %v", res.StatusCode, codeOf(body), tt.status, tt.code, body)
			}
			if got := res.Header.Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type = %q, want application/json", got)
			}
			for k, want := range tt.header {
				if got := res.Header.Get(k); got != want {
					t.Errorf("header %s = %q, want %q", k, got, want)
				}
			}
			// docs/api.md promises these headers in every response to an authenticated request, and
			// never in a 401.
			known := tt.status == 200 || tt.status == 403 || tt.status == 429
			for _, name := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
				if got := res.Header.Get(name); (got != "") != known {
					t.Errorf("header %s = %q, want it present = %v", name, got, known)
				}
			}
			if id := res.Header.Get("X-Request-Id"); id == "" || tt.status >= 400 && body["error"].(map[string]any)["requestId"] != id {
				t.Errorf("X-Request-Id = %q, want a non-empty id, as in the body %v", id, body)
			}
			if fault, ok := body["error"].(map[string]any); ok && fault["docUrl"] != "/docs/guides/errors#"+strings.ToLower(fmt.Sprint(fault["code"])) {
				t.Errorf("docUrl = %v, want the code's anchor", fault["docUrl"])
			}
			if text := fmt.Sprint(body); strings.Contains(text, "secret") || strings.Contains(text, "firestore") {
				t.Errorf("the response contains internal text: %s", text)
			}
		})
	}
}

func TestParametersOutliveTheRequest(t *testing.T) {
	t.Parallel()
	var kept []string
	dial := serve(t, httpapi.Options{}, func(a *httpapi.API) {
		a.Public("GET", "/keep/:id", func(c *fiber.Ctx) error { kept = append(kept, c.Params("id")); return nil })
	})
	c := dial()
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for _, id := range []string{"id111", "id222", "id333"} { // one connection, so the buffer is reused
		if _, err := c.Write([]byte("GET /keep/" + id + " HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := http.ReadResponse(r, nil); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"id111", "id222", "id333"}, kept); d != "" {
		t.Errorf("kept parameters (-want +got):\n%s", d)
	}
}

func TestOnlyStrictJSONIsRead(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}" }
	tests := []struct {
		name, body string
		good       bool
	}{
		{"object", `{"a":1,"b":{"a":2},"c":[{"a":1},{"a":2}]}`, true},
		{"surrounding white space", " \r\n\t{} ", true},
		{"huge number", `{"a":1e999}`, true},
		{"deepest allowed nesting", deep(31), true},
		{"nothing", ``, false},
		{"white space only", `  `, false},
		{"array", `[]`, false},
		{"string", `"x"`, false},
		{"null", `null`, false},
		{"trailing data", `{} {}`, false},
		{"trailing comma", `{"a":1,}`, false},
		{"duplicate name", `{"a":1,"a":2}`, false},
		{"duplicate name with an escape", `{"a":1,"\u0061":2}`, false},
		{"nested duplicate name", `{"x":[{"a":1,"a":2}]}`, false},
		{"value equal to its name", `{"a":"a","b":"a"}`, true},
		{"nested too deeply", deep(32), false},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", false},
		{"byte order mark", "\ufeff{}", false},
		{"single quotes", `{'a':1}`, false},
		{"NaN", `{"a":NaN}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := httpapi.DecodeObject([]byte(tt.body), nil, &struct{}{})
			if (err == nil) != tt.good {
				t.Errorf("DecodeObject(%.40q) = %v, want success = %v", tt.body, err, tt.good)
			}
			if err != nil && apierr.CodeOf(err) != apierr.InvalidJSON {
				t.Errorf("DecodeObject failed with code %s, want INVALID_JSON", apierr.CodeOf(err))
			}
		})
	}
}

func TestDecodeObject(t *testing.T) {
	t.Parallel()
	type body struct {
		URL   string                    `json:"url"`
		Title httpapi.Optional[string]  `json:"title"`
		Count httpapi.Optional[float64] `json:"count"`
	}
	tests := []struct {
		name, raw string
		want      body
		unknown   []string
		details   []apierr.Detail
	}{
		{name: "absent, null and set fields", raw: `{"url":"u","title":null}`, want: body{URL: "u", Title: httpapi.Optional[string]{Set: true, Null: true}}},
		{name: "name in different case", raw: `{"url":"u","URL":"javascript:x","b":1,"a":2}`, want: body{URL: "u"}, unknown: []string{"URL", "b", "a"}},
		{name: "several wrong types", raw: `{"url":1,"title":[],"count":"x"}`, want: body{}, details: []apierr.Detail{
			{Field: "url", Code: apierr.InvalidType}, {Field: "title", Code: apierr.InvalidType}, {Field: "count", Code: apierr.InvalidType}}},
		{name: "NUL", raw: `{"url":"a\u0000b"}`, details: []apierr.Detail{{Field: "url", Code: apierr.InvalidValue}}},
		{name: "unpaired surrogate", raw: `{"url":"\ud83d","title":"\udc00"}`, details: []apierr.Detail{
			{Field: "url", Code: apierr.InvalidValue}, {Field: "title", Code: apierr.InvalidValue}}},
		{name: "surrogate pair", raw: `{"url":"\ud83d\ude00 \\ud83d"}`, want: body{URL: "😀 \\ud83d"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got body
			fields, err := httpapi.DecodeObject([]byte(tt.raw), nil, &got)
			if err != nil {
				t.Fatal(err)
			}
			var details []apierr.Detail
			if err := fields.Err(); err != nil {
				details = apierr.From(err).Details
			}
			for i := range details {
				details[i].Message = ""
			}
			if d := cmp.Diff(tt.details, details); d != "" {
				t.Errorf("details (-want +got):\n%s", d)
			}
			if tt.details == nil {
				if d := cmp.Diff(tt.want, got); d != "" {
					t.Errorf("value (-want +got):\n%s", d)
				}
			}
			if d := cmp.Diff(tt.unknown, fields.Unknown); d != "" {
				t.Errorf("unknown (-want +got):\n%s", d)
			}
		})
	}
}

func TestMadeUpMethodsGetTheUsualErrors(t *testing.T) {
	t.Parallel()
	dial := serve(t, httpapi.Options{Now: time.Now}, func(a *httpapi.API) {
		a.Handle("GET", "/api/v1/links", httpapi.Access{}, ok)
	})
	for path, want := range map[string]string{"/api/v1/links": "METHOD_NOT_ALLOWED", "/api/v1/nothing": "NOT_FOUND"} {
		res, body := ask(t, dial, request("PROPFIND", path, "free", "", ""))
		if codeOf(body) != want {
			t.Errorf("PROPFIND %s: status %d with body %v, want %s", path, res.StatusCode, body, want)
		}
	}
}

// For a missing page, programs get JSON and browsers get an HTML page.
func TestProgramsGetTheErrorsOfPagesAsJSON(t *testing.T) {
	t.Parallel()
	dial := serve(t, httpapi.Options{Page: func(c *fiber.Ctx, e *apierr.Error) error {
		c.Set(fiber.HeaderContentType, "text/html")
		return c.Status(e.Status()).SendString("<h1>Nothing here</h1>")
	}}, func(*httpapi.API) {})
	for header, want := range map[string]string{
		"": "text/html", "Accept: */*": "text/html", "Accept: text/html,application/xhtml+xml,*/*;q=0.8": "text/html",
		"Accept: text/html, application/json": "text/html", "Content-Type: text/plain": "text/html",
		"Accept: application/json": "application/json", "Accept: application/json, text/html;q=0.5": "application/json",
		"Content-Type: application/json": "application/json", "content-type: Application/JSON;charset=utf-8": "application/json",
	} {
		if header != "" {
			header += "\r\n"
		}
		res, body := ask(t, dial, request("POST", "/nothing", "", header, "{}"))
		if got := res.Header.Get("Content-Type"); got != want || (codeOf(body) == "NOT_FOUND") != (want == "application/json") {
			t.Errorf("headers %q: got %s and body %v, want %s", header, got, body, want)
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{"": true, "*": true, `"r3"`: true, `"r1", "r3"`: true, `"r4"`: false, `W/"r3"`: false, "r3": false, ",": false} {
		app := fiber.New()
		ctx := app.AcquireCtx(&fasthttp.RequestCtx{})
		ctx.Request().Header.Set("If-Match", header)
		err := httpapi.IfMatch(ctx).Check(3)
		if got := err == nil; got != want {
			t.Errorf("If-Match %q, Check(3) succeeded = %v, want %v", header, got, want)
		}
		var e *apierr.Error
		if errors.As(err, &e) && e.ETag != `"r3"` {
			t.Errorf("If-Match %q: the error has the ETag %s, want the record's \"r3\"", header, e.ETag)
		}
		app.ReleaseCtx(ctx)
	}
}

func FuzzStrictJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[{"b":null}]}`, `{"a":1,"a":2}`, `{"\ud800":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := httpapi.DecodeObject(b, nil, &struct{}{}); err != nil {
			return
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatalf("DecodeObject accepted %q, but encoding/json does not: %v", b, err)
		}
		type body struct {
			URL   string                `json:"url"`
			Any   any                   `json:"any"`
			Title httpapi.Optional[any] `json:"title"`
		}
		if _, err := httpapi.DecodeObject(b, nil, &body{}); err != nil {
			t.Fatalf("DecodeObject accepted %q with one destination, but not with another: %v", b, err)
		}
	})
}

func TestWhoTakesGzip(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	for accept, want := range map[string]bool{
		"": false, "gzip": true, "GZIP ; q=0.1": true, "br, gzip": true, "gzip;q=0": false, "gzip;q=0.000, *": false, "*": true, "*;q=0": false,
		"identity": false, "br": false, "gzip;q=x": false, "x-gzip": true,
	} {
		c := app.AcquireCtx(&fasthttp.RequestCtx{})
		c.Request().Header.Set(fiber.HeaderAcceptEncoding, accept)
		if got := httpapi.AcceptsGzip(c); got != want {
			t.Errorf("Accept-Encoding %q: AcceptsGzip = %v, want %v", accept, got, want)
		}
		app.ReleaseCtx(c)
	}
}

func TestTheAccessLineHasTheSizeOfAStreamThatHasOne(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	dial := serve(t, httpapi.Options{Log: slog.New(slog.NewTextHandler(&lines, nil))}, func(a *httpapi.API) {
		a.Public("GET", "/sized", func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader(strings.Repeat("x", 1234)), 1234) })
		a.Public("GET", "/endless", func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader("x")) })
	})
	for _, tt := range []struct{ method, path, want string }{
		{"GET", "/sized", "route=/sized status=200 .* bytes=1234 "},
		{"HEAD", "/sized", "route=/sized status=200 .* bytes=1234 "},
		{"GET", "/endless", "route=/endless status=200 .* bytes=0 "},
	} {
		res, _ := ask(t, dial, request(tt.method, tt.path, "", "Connection: close\r\n", ""))
		line := lines.String()
		lines.Reset()
		if !regexp.MustCompile(tt.want).MatchString(line) {
			t.Errorf("%s %s: access line %q, want %q", tt.method, tt.path, line, tt.want)
		}
		if tt.path == "/sized" && res.ContentLength != 1234 {
			t.Errorf("%s: Content-Length = %d, want 1234", tt.method, res.ContentLength)
		}
	}
}

func TestSomeRequestsWriteNoAccessLine(t *testing.T) {
	t.Parallel()
	for access, want := range map[httpserver.AccessLog][]string{
		"":                      {"200", "200", "500"},
		httpserver.AccessErrors: {`200.*"requests":100}`, "500"},
		httpserver.AccessNone:   {},
	} {
		var log bytes.Buffer
		dial := serve(t, httpapi.Options{Log: slog.New(slog.NewJSONHandler(&log, nil)), Access: access}, func(a *httpapi.API) {
			a.Public("GET", "/", httpapi.NoContent)
			a.Public("GET", "/broken", func(*fiber.Ctx) error { return errors.New("no") })
		})
		for _, path := range []string{"/", "/", "/broken"} {
			ask(t, dial, request("GET", path, "", "", ""))
		}
		lines := regexp.MustCompile(`.*"msg":"access".*`).FindAllString(log.String(), -1)
		if len(lines) != len(want) {
			t.Fatalf("%q: got %d access lines, want %d:\n%s", access, len(lines), len(want), log.String())
		}
		for i, line := range lines {
			if !regexp.MustCompile(`"status":` + strings.Replace(want[i], "200", "20[04]", 1)).MatchString(line) {
				t.Errorf("%q: access line %s, want %s", access, line, want[i])
			}
		}
	}
}

func TestTheAccessLineSaysHowLongARequestWasQueued(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	dial := serve(t, httpapi.Options{Log: slog.New(slog.NewJSONHandler(&log, nil))}, func(a *httpapi.API) {
		a.Public("GET", "/", func(c *fiber.Ctx) error {
			identity.RequestOf(c.UserContext()).Queued.Add(1_500_000)
			return httpapi.NoContent(c)
		})
	})
	ask(t, dial, request("GET", "/", "", "", ""))
	if !strings.Contains(log.String(), `"queued":1.5`) {
		t.Errorf("access line %s, want queued = 1.5", log.String())
	}
}

func TestBalancersLeaveNoLine(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	dial := serve(t, httpapi.Options{Log: slog.New(slog.NewJSONHandler(&log, nil))}, func(a *httpapi.API) { a.Public("GET", "/x", ok) })
	for range 3 {
		if res, _ := ask(t, dial, request("GET", "/", "", "", "")); res.StatusCode != 200 || res.Header.Get("X-Request-Id") != "" {
			t.Errorf("GET / = %d with headers %v, want 200 without a request id", res.StatusCode, res.Header)
		}
	}
	if log.Len() > 0 {
		t.Errorf("access log = %s, want no lines", log.String())
	}
	// Other paths and methods are treated like any other request.
	for _, tt := range []struct{ method, path string }{{"GET", "/?x=1"}, {"GET", "//"}, {"POST", "/"}} {
		if res, _ := ask(t, dial, request(tt.method, tt.path, "", "", "")); res.StatusCode != 404 && res.StatusCode != 405 {
			t.Errorf("%s %s = %d, want 404 or 405", tt.method, tt.path, res.StatusCode)
		}
	}
}

func TestChangesOfOneRecordRunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	running, let := make(chan string, 64), make(chan struct{})
	dial := serve(t, httpapi.Options{Timeout: time.Minute}, func(a *httpapi.API) {
		for _, route := range []httpapi.Route{{Method: "PATCH", Path: "/api/v1/things/:id"}, {Method: "PUT", Path: "/api/v1/things/:id/part/:part"}, {Method: "GET", Path: "/api/v1/things/:id"}, {Method: "POST", Path: "/api/v1/things"}} {
			a.Handle(route.Method, route.Path, httpapi.Access{}, func(c *fiber.Ctx) error {
				if c.Method() == "GET" || c.Params("id") != "one" || identity.FromContext(c.UserContext()).Plan == identity.Free {
					return httpapi.NoContent(c)
				}
				running <- c.Path()
				<-let
				return httpapi.NoContent(c)
			})
		}
	})
	end := sync.OnceFunc(func() { close(let) })
	statuses := make(chan int, 64)
	send := func(path string) {
		res, _ := ask(t, dial, request("PATCH", path, "creator", "", "{}"))
		statuses <- res.StatusCode
	}
	go send("/api/v1/things/one")
	<-running
	for range 40 {
		go send("/api/v1/things/one")
	}
	for range 40 - 16 { // all but the sixteen that are waiting
		select {
		case got := <-statuses:
			if got != 429 {
				t.Errorf("status %d, want 429", got)
			}
		case <-time.After(30 * time.Second):
			end()
			t.Fatalf("%d changes to one record are running at the same time, want one", 1+len(running))
		}
	}
	res, body := ask(t, dial, request("PUT", "/api/v1/things/one/part/x", "creator", "", "{}"))
	if res.StatusCode != 429 || codeOf(body) != "RATE_LIMITED" || res.Header.Get("Retry-After") != "1" {
		t.Errorf("another change to the record: status %d, body %v, Retry-After %q; want RATE_LIMITED with Retry-After 1", res.StatusCode, body, res.Header.Get("Retry-After"))
	}
	for name, raw := range map[string]string{
		"reading the record":         request("GET", "/api/v1/things/one", "creator", "", ""),
		"changing another record":    request("PATCH", "/api/v1/things/two", "creator", "", "{}"),
		"create":                     request("POST", "/api/v1/things", "creator", "", "{}"),
		"same id in another account": request("PATCH", "/api/v1/things/one", "free", "", "{}"),
	} {
		if res, body := ask(t, dial, raw); res.StatusCode != 204 {
			t.Errorf("%s: status %d with body %v, want 204", name, res.StatusCode, body)
		}
	}
	if len(running) != 0 {
		t.Errorf("%d more changes to the record ran in parallel with the first, want 0", len(running))
	}
	end()
	for range 17 {
		if got := <-statuses; got != 204 {
			t.Errorf("status of a waiting change = %d, want 204", got)
		}
	}
}

func TestAChangeThatWouldBeginTooLateIsRefusedAndNotDone(t *testing.T) {
	t.Parallel()
	running, let := make(chan time.Duration, 2), make(chan struct{})
	const most = 2 * time.Second
	dial := serve(t, httpapi.Options{Timeout: most}, func(a *httpapi.API) {
		a.Handle("PATCH", "/api/v1/things/:id", httpapi.Access{}, func(c *fiber.Ctx) error {
			end, _ := c.UserContext().Deadline()
			running <- time.Until(end)
			<-let
			return httpapi.NoContent(c)
		})
	})
	send := func() (*http.Response, map[string]any) {
		return ask(t, dial, request("PATCH", "/api/v1/things/one", "creator", "", "{}"))
	}
	first := make(chan int)
	go func() {
		res, _ := send()
		first <- res.StatusCode
	}()
	<-running
	if res, body := send(); res.StatusCode != 429 || codeOf(body) != "RATE_LIMITED" || res.Header.Get("Retry-After") != "1" {
		t.Errorf("a change that waited too long: status %d, body %v, Retry-After %q; want RATE_LIMITED with Retry-After 1", res.StatusCode, body, res.Header.Get("Retry-After"))
	}
	close(let)
	if got := <-first; got != 204 {
		t.Errorf("status of the running change = %d, want 204", got)
	}
	if len(running) != 0 {
		t.Errorf("a change started with only %v left, want it rejected", <-running)
	}
}

func TestLargeRequestsOfAnAccountRunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	running, let := make(chan string, 64), make(chan struct{})
	dial := serve(t, httpapi.Options{Timeout: time.Minute}, func(a *httpapi.API) {
		a.Handle("POST", "/api/v1/things/bulk", httpapi.Access{InTurn: true}, func(c *fiber.Ctx) error {
			running <- identity.FromContext(c.UserContext()).AccountID
			<-let
			return httpapi.NoContent(c)
		})
	})
	statuses := make(chan int, 64)
	send := func(key string) {
		res, _ := ask(t, dial, request("POST", "/api/v1/things/bulk", key, "", "{}"))
		statuses <- res.StatusCode
	}
	for range 30 {
		go send("creator")
	}
	first := <-running
	go send("free")
	if other := <-running; other == first {
		t.Error("two requests from one account ran at the same time, want one after the other")
	}
	close(let)
	for range 31 {
		if got := <-statuses; got != 204 {
			t.Errorf("status of a request that had to wait = %d, want 204", got)
		}
	}
}

func TestTheAccessLineOfALimitedRequestNamesTheAccount(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	dial := serve(t, httpapi.Options{Log: slog.New(slog.NewJSONHandler(&log, nil))}, func(a *httpapi.API) {
		a.Handle("GET", "/", httpapi.Access{Scope: identity.LinksRead}, ok)
	})
	ask(t, dial, request("GET", "/", "busy", "", ""))
	if line := regexp.MustCompile(`.*"msg":"access".*`).FindString(log.String()); !strings.Contains(line, `"status":429`) || !strings.Contains(line, `"account":"d"`) {
		t.Errorf("access line %s, want status 429 and account d", line)
	}
}
