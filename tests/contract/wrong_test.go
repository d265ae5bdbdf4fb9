package contract_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/apierr"
)

// wrong is an invalid request that a caller could send, and the expected response.
type wrong struct {
	// request is a method and a path. The prefix short: or admin: selects a base URL other than the
	// default. Placeholders such as {link} stand for the records in newWrongWorld.
	request string
	body    string
	// header has one header per line. "As: free" selects the caller. The default is an owner's key.
	// The default Content-Type for a body is application/json.
	header string
	status int
	code   apierr.Code
	// words contains parts of the expected message in order, separated by " … ". The message must
	// tell the caller what to do.
	words string
}

// For every invalid request, the response must say what is wrong, what to do, and where to find
// more.
func TestWrongRequestsAreToldWhatToDo(t *testing.T) {
	t.Parallel()
	w := newWrongWorld(t)
	n := 0
	for _, group := range wrongRequests {
		for _, row := range group.rows {
			n++
			status, body := w.send(t, row)
			var answer struct {
				Error struct {
					Code            apierr.Code
					Message, DocURL string
					Details         []apierr.Detail
				}
			}
			if err := json.Unmarshal([]byte(body), &answer); err != nil {
				t.Errorf("%s: %s %s returned %d without a JSON error: %.200s", group.name, row.request, row.body, status, body)
				continue
			}
			fault := answer.Error
			said := []string{fault.Message}
			for _, d := range fault.Details {
				said = append(said, d.Field+": "+d.Message)
			}
			if text := strings.Join(said, " "); status != row.status || fault.Code != row.code || !says(text, row.words) {
				t.Errorf("%s: %s %.100s\n got %d %s %s\nwant %d %s %s", group.name, row.request, row.body, status, fault.Code, text, row.status, row.code, row.words)
			}
			if fault.DocURL != row.code.DocURL() {
				t.Errorf("%s: the docUrl of %s is %s, which is not the page for its code", group.name, row.request, fault.DocURL)
			}
			for _, d := range append(fault.Details, apierr.Detail{Message: fault.Message}) {
				if !sentence.MatchString(d.Message) {
					t.Errorf("%s: %s %.100s: the message %q is not a sentence", group.name, row.request, row.body, d.Message)
				}
			}
		}
	}
	if n < 300 {
		t.Errorf("the table has only %d requests, want at least 300", n)
	}
}

var sentence = regexp.MustCompile("^[A-Z`\"].*[.?]$")

// says reports whether text contains all parts of words, in order.
func says(text, words string) bool {
	for part := range strings.SplitSeq(words, " … ") {
		_, after, ok := strings.Cut(text, part)
		if text = after; !ok {
			return false
		}
	}
	return true
}

// wrongWorld holds the callers and the records for invalid requests.
type wrongWorld struct {
	c       *http.Client // checks each exchange against the contract
	callers map[string]string
	fill    *strings.Replacer
}

func newWrongWorld(t *testing.T) *wrongWorld {
	t.Helper()
	its := newNamesWorld(t)
	post := func(path string, body map[string]any) map[string]any {
		t.Helper()
		got := its.send(t, http.MethodPost, running.BaseURL+path, body)
		if got.status != http.StatusCreated {
			t.Fatalf("POST %s returned %d, want 201: %s", path, got.status, got.text)
		}
		return got.body
	}
	link := func(fields map[string]any) string {
		fields["url"] = "https://example.com"
		return fmt.Sprint(post("/api/v1/links", fields)["slug"])
	}
	w := &wrongWorld{c: its.c, callers: map[string]string{"owner": its.key, "operator": running.AdminToken}}
	w.callers["free"], _ = key(t, w.c, "free", nil)
	w.callers["hooks"], _ = key(t, w.c, "free", []string{"webhooks:write"})
	w.callers["creator"], _ = key(t, w.c, "creator", nil)
	for name, scopes := range map[string][]string{"reader": {"links:read"}, "keys": {"keys:write", "links:read"}, "revoked": {"links:read"}} {
		made := post("/api/v1/keys", map[string]any{"name": name, "scopes": scopes})
		if w.callers[name] = fmt.Sprint(made["key"]); name == "revoked" {
			its.send(t, http.MethodDelete, running.BaseURL+"/api/v1/keys/"+fmt.Sprint(made["id"]), nil)
		}
	}
	its.caller = w.callers["creator"]
	foreign := post("/api/v1/links", map[string]any{"url": "https://example.com"})
	its.caller = its.key
	link(map[string]any{"externalId": "taken"})
	video := post("/api/v1/videos", map[string]any{})
	many := func(n int, part string) string { return strings.TrimSuffix(strings.Repeat(part, n), ",") }
	w.fill = strings.NewReplacer(
		"{key}", its.key, "{link}", its.ids["links"], "{video}", its.ids["videos"], "{domain}", its.ids["domains"], "{webhook}", its.ids["webhooks"],
		"{keyid}", its.ids["keys"], "{member}", its.ids["members"], "{account}", its.ids["accounts"], "{foreign}", fmt.Sprint(foreign["id"]),
		"{slug}", link(map[string]any{}), "{expired}", link(map[string]any{"expiresAt": "2020-01-01"}), "{locked}", link(map[string]any{"password": "x"}),
		"{videoslug}", fmt.Sprint(video["slug"]), "{short}", running.ShortBaseURL,
		"{s101}", many(101, "s"), "{t51}", many(51, "x"), "{t256}", many(256, "x"), "{t257}", many(257, "x"), "{t501}", many(501, "x"),
		"{t600}", many(600, "x"), "{t1001}", many(1001, "x"), "{t2001}", many(2001, "x"), "{long}", many(8192, "x"),
		"{big}", `{"url":"`+many(1<<20, "x")+`"}`, "{101}", many(101, `{"url":"https://example.com"},`),
	)
	status, body := w.send(t, wrong{request: "POST /api/v1/links", body: `{"url":"https://example.com"}`, header: "Idempotency-Key: used"})
	if status != http.StatusCreated {
		t.Fatalf("creating a link with an Idempotency-Key returned %d, want 201: %s", status, body)
	}
	return w
}

func (w *wrongWorld) send(t *testing.T, row wrong) (status int, body string) {
	t.Helper()
	method, path, _ := strings.Cut(w.fill.Replace(row.request), " ")
	target := running.BaseURL + path
	if rest, ok := strings.CutPrefix(path, "short:"); ok {
		target = running.ShortBaseURL + rest
	} else if rest, ok := strings.CutPrefix(path, "admin:"); ok {
		target = running.AdminURL + rest
	}
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(w.fill.Replace(row.body)))
	if err != nil {
		t.Fatal(err)
	}
	if row.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	caller := "owner"
	for line := range strings.SplitSeq(w.fill.Replace(row.header), "\n") {
		switch name, value, _ := strings.Cut(line, ": "); name {
		case "As":
			caller = value
		case "":
		default:
			req.Header.Set(name, value)
		}
	}
	if secret := w.callers[caller]; secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	c := w.c
	if strings.HasPrefix(path, "short:") { // the contract does not describe short URLs
		c = http.DefaultClient
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatalf("%s %s failed: %v", method, path, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

var wrongRequests = []struct {
	name string
	rows []wrong
}{
	{"keys", []wrong{
		{"GET /api/v1/account", "", "As: nobody", 401, "MISSING_API_KEY", "Send your API key as `Authorization: Bearer <key>`."},
		{"GET /api/v1/account", "", "As: nobody\nAuthorization: {key}", 401, "INVALID_API_KEY", "Send your API key as `Authorization: Bearer <key>`."},
		{"GET /api/v1/account", "", "As: nobody\nAuthorization: Basic dXNlcjpwYXNz", 401, "INVALID_API_KEY", "Send your API key as `Authorization: Bearer <key>`."},
		{"GET /api/v1/account", "", "As: nobody\nAuthorization: Bearer", 401, "INVALID_API_KEY", "Send your API key as `Authorization: Bearer <key>`."},
		{"GET /api/v1/account", "", "As: nobody\nAuthorization: Token {key}", 401, "INVALID_API_KEY", "Send your API key as `Authorization: Bearer <key>`."},
		{"GET /api/v1/account", "", "As: nobody\nAuthorization: Bearer {key}x", 401, "INVALID_API_KEY", "This is not a valid API key. Check that it is complete, and that it belongs to this deployment."},
		{"GET /api/v1/account", "", "As: nobody\nAuthorization: Bearer lr_live_1234", 401, "INVALID_API_KEY", "This is not a valid API key. Check that it is complete, and that it belongs to this deployment."},
		{"GET /api/v1/account", "", "As: nobody\nX-Api-Key: {key}", 401, "MISSING_API_KEY", "Send your API key as `Authorization: Bearer <key>`."},
		{"GET /api/v1/account?key={key}", "", "As: nobody", 401, "MISSING_API_KEY", "Send your API key as `Authorization: Bearer <key>`."},
		{"GET /api/v1/account", "", "As: revoked", 401, "API_KEY_REVOKED", "This API key has been revoked. Use another key."},
		{"GET /api/v1/account", "", "As: operator", 401, "INVALID_API_KEY", "This is not a valid API key. Check that it is complete, and that it belongs to this deployment."},
		{"GET admin:/admin/v1/accounts", "", "As: nobody", 401, "MISSING_API_KEY", "Send the operator's token as `Authorization: Bearer <token>`."},
		{"GET admin:/admin/v1/accounts", "", "As: owner", 401, "INVALID_API_KEY", "Send the operator's token as `Authorization: Bearer <token>`."},
		{"POST admin:/admin/v1/accounts", `{"name":"a"}`, "As: owner", 401, "INVALID_API_KEY", "Send the operator's token as `Authorization: Bearer <token>`."},
	}}, {"permissions", []wrong{
		{"POST /api/v1/links", `{"url":"https://example.com"}`, "As: free", 403, "PLAN_REQUIRED", "This operation needs the creator plan or higher."},
		{"POST /api/v1/links/bulk", `{"urls":[{"url":"https://example.com"}]}`, "As: creator", 403, "PLAN_REQUIRED", "This operation needs the business plan or higher."},
		{"POST /api/v1/videos", "{}", "As: free", 403, "PLAN_REQUIRED", "This operation needs the creator plan or higher."},
		{"POST /api/v1/domains", `{"hostname":"go.example.com"}`, "As: free", 403, "PLAN_REQUIRED", "This operation needs the creator plan or higher."},
		{"POST /api/v1/webhooks", `{"url":"https://example.com","events":["*"]}`, "As: hooks", 403, "PLAN_REQUIRED", "This operation needs the creator plan or higher."},
		{"POST /api/v1/links", `{"url":"https://example.com"}`, "As: reader", 403, "INSUFFICIENT_SCOPE", "This key lacks the scope links:write. Use a key with this scope."},
		{"GET /api/v1/videos", "", "As: reader", 403, "INSUFFICIENT_SCOPE", "This key lacks the scope videos:read. Use a key with this scope."},
		{"GET /api/v1/events", "", "As: reader", 403, "INSUFFICIENT_SCOPE", "This key lacks the scope events:read. Use a key with this scope."},
		{"GET /api/v1/account/export", "", "As: reader", 403, "INSUFFICIENT_SCOPE", "An export needs every read scope. This key lacks videos:read."},
		{"POST /api/v1/keys", `{"name":"x"}`, "As: reader", 403, "INSUFFICIENT_SCOPE", "This key lacks the scope keys:write. Use a key with this scope."},
		{"POST /api/v1/keys", `{"name":"x","scopes":["links:write","events:read"]}`, "As: keys", 403, "INSUFFICIENT_SCOPE", "A key cannot grant the scope links:write, which it does not have."},
		{"DELETE /api/v1/members/{member}", "", "As: reader", 403, "INSUFFICIENT_SCOPE", "This key lacks the scope members:write. Use a key with this scope."},
		{"POST /api/v1/members/{member}/sign-in-links", "", "", 403, "INSUFFICIENT_SCOPE", "An API key cannot make sign-in links. Sign in to the console as an admin or an owner."},
	}}, {"paths and methods", []wrong{
		{"GET /api/v1/links/", "", "", 404, "NOT_FOUND", "There is nothing at this address. Did you mean /api/v1/links?"},
		{"GET /api/links", "", "", 404, "NOT_FOUND", "There is nothing at this address. Did you mean /api/v1/links?"},
		{"GET /v1/links", "", "", 404, "NOT_FOUND", "There is nothing at this address. Did you mean /api/v1/links?"},
		{"GET /links", "", "", 404, "NOT_FOUND", "There is nothing at this address. Did you mean /api/v1/links?"},
		{"GET /api/v2/links", "", "", 404, "NOT_FOUND", "There is nothing at this address. Did you mean /api/v1/links?"},
		{"GET /api/v1/link", "", "", 404, "NOT_FOUND", "There is nothing at this address. Did you mean /api/v1/links?"},
		{"GET /api/v1/Links", "", "", 404, "NOT_FOUND", "There is nothing at this address. Did you mean /api/v1/links?"},
		{"GET /api/v1//links", "", "", 404, "NOT_FOUND", "There is nothing at this address. Did you mean /api/v1/links?"},
		{"POST /api/v1/shorten", `{"url":"https://example.com"}`, "", 404, "NOT_FOUND", "There is nothing at this address. The page /docs lists all addresses."},
		{"GET /api/v1/links/{link}/statistics", "", "", 404, "NOT_FOUND", "There is nothing at this address. The page /docs lists all addresses."},
		{"GET /api/v1/links/{link}/clicks", "", "", 404, "NOT_FOUND", "There is nothing at this address. The page /docs lists all addresses."},
		{"POST /api/v1/video", "{}", "", 404, "NOT_FOUND", "There is nothing at this address. Did you mean /api/v1/videos?"},
		{"PUT /api/v1/links/{link}", `{"title":"x"}`, "", 405, "METHOD_NOT_ALLOWED", "This address accepts only GET, HEAD, DELETE and PATCH."},
		{"POST /api/v1/links/{link}", `{"title":"x"}`, "", 405, "METHOD_NOT_ALLOWED", "This address accepts only GET, HEAD, DELETE and PATCH."},
		{"DELETE /api/v1/links", "", "", 405, "METHOD_NOT_ALLOWED", "This address accepts only GET, HEAD and POST."},
		{"PUT /api/v1/links", "{}", "", 405, "METHOD_NOT_ALLOWED", "This address accepts only GET, HEAD and POST."},
		{"PATCH /api/v1/keys/{keyid}", `{"name":"x"}`, "", 405, "METHOD_NOT_ALLOWED", "This address accepts only GET, HEAD and DELETE."},
		{"GET /api/v1/links/bulk-delete", "", "", 404, "LINK_NOT_FOUND", "This account has no link with this id."},
		{"GET /api/v1/keys/{keyid}/roll", "", "", 405, "METHOD_NOT_ALLOWED", "This address accepts only POST."},
		{"PATCH /api/v1/videos/{video}/access", `{"privacy":"public"}`, "", 405, "METHOD_NOT_ALLOWED", "This address accepts only GET, HEAD and PUT."},
		{"POST /api/v1/videos/{video}/captions/en", "WEBVTT\n", "Content-Type: text/vtt", 405, "METHOD_NOT_ALLOWED", "This address accepts only PUT and DELETE."},
		{"TRACE /api/v1/links", "", "", 405, "METHOD_NOT_ALLOWED", "This address accepts only GET, HEAD and POST."},
		{"GET /api/v1/links/..", "", "", 400, "BAD_REQUEST", `The path has the segment "." or "..". Proxies resolve … they are rejected. Send the resolved path.`},
		{"DELETE /api/v1/videos/{video}/captions/..", "", "", 400, "BAD_REQUEST", `The path has the segment "." or "..". Proxies resolve … they are rejected. Send the resolved path.`},
	}}, {"the short address", []wrong{
		{"POST short:/api/v1/links", `{"url":"https://example.com"}`, "", 405, "METHOD_NOT_ALLOWED", "This address accepts only GET and HEAD. The API is at … /api/v1."},
		{"GET short:/api/v1/links", "", "Accept: application/json", 404, "NOT_FOUND", "There is no link at this address. The API is at … /api/v1."},
		{"PUT short:/x", "{}", "", 405, "METHOD_NOT_ALLOWED", "This address accepts only GET and HEAD. The API is at … /api/v1."},
		{"DELETE short:/x", "", "Accept: application/json", 405, "METHOD_NOT_ALLOWED", "This address accepts only GET and HEAD."},
		{"GET short:/nothing-here", "", "Accept: application/json", 404, "NOT_FOUND", "There is no link at this address."},
		{"GET short:/{expired}", "", "Accept: application/json", 410, "GONE", "This link has expired."},
		{"POST short:/{slug}", `{"password":"x"}`, "", 405, "METHOD_NOT_ALLOWED", "This address accepts only GET and HEAD. The API is at … /api/v1."},
		{"POST short:/{locked}", `{"password":"x"}`, "", 415, "UNSUPPORTED_MEDIA_TYPE", "Send the password as a form (application/x-www-form-urlencoded), without a Content-Encoding."},
	}}, {"pages", []wrong{
		{"GET /v/nothing-here", "", "Accept: application/json", 404, "VIDEO_NOT_FOUND", "There is no such video."},
		{"POST /v/{videoslug}", "{}", "", 405, "METHOD_NOT_ALLOWED", "This address accepts only GET and HEAD."},
		{"GET /nothing-here", "", "Accept: application/json", 404, "NOT_FOUND", "There is nothing at this address."},
		{"GET /app/nothing-here", "", "Accept: application/json", 404, "NOT_FOUND", "There is nothing at this address."},
	}}, {"bodies that are not JSON", []wrong{
		{"POST /api/v1/links", "", "Content-Type: application/json", 400, "INVALID_JSON", "The body is empty. Send a JSON object."},
		{"POST /api/v1/links", `{"url":"https://example.com",}`, "", 400, "INVALID_JSON", "The body is not valid JSON. Line 1, column 30 has } … quotes belongs. Remove the comma before it."},
		{"POST /api/v1/links", "{'url':'https://example.com'}", "", 400, "INVALID_JSON", "The body is not valid JSON. Line 1, column 2 has a … double quotes belongs. JSON uses double quotes."},
		{"POST /api/v1/links", `{"url":"https://example.com"} // why`, "", 400, "INVALID_JSON", "The body is not valid JSON. Line 1, column 31 has / where the end of the body belongs. JSON has no comments."},
		{"POST /api/v1/links", "\ufeff{\"url\":\"https://example.com\"}", "", 400, "INVALID_JSON", "The body begins with a byte order mark. Send it as UTF-8 without one."},
		{"POST /api/v1/links", `{"url":"https://example.com"`, "", 400, "INVALID_JSON", "The body is not valid JSON. It ends too early: a quote, a bracket or a brace is not closed."},
		{"POST /api/v1/links", `{url:"https://example.com"}`, "", 400, "INVALID_JSON", "The body is not valid JSON. Line 1, column 2 has u where a field name in double quotes belongs."},
		{"POST /api/v1/links", `{"url":"https://example.com"}{}`, "", 400, "INVALID_JSON", "The body is not valid JSON. Line 1, column 30 has { where the end of the body belongs."},
		{"POST /api/v1/links", `["https://example.com"]`, "", 400, "INVALID_JSON", "The body must be a JSON object."},
		{"POST /api/v1/links", `"https://example.com"`, "", 400, "INVALID_JSON", "The body must be a JSON object."},
		{"POST /api/v1/links", "null", "", 400, "INVALID_JSON", "The body must be a JSON object."},
		{"POST /api/v1/links", `{"url":"https://example.com","url":"https://example.org"}`, "", 400, "INVALID_JSON", `The body contains the field "url" twice. Send it once.`},
		{"POST /api/v1/links", `{"url":True}`, "", 400, "INVALID_JSON", "The body is not valid JSON. Line 1, column 8 has T where a value belongs."},
		{"POST /api/v1/links", `{"url":"https://example.com" "title":"x"}`, "", 400, "INVALID_JSON", `The body is not valid JSON. Line 1, column 30 has " where a comma or } belongs.`},
		{"POST /api/v1/links", "url=https://example.com", "", 400, "INVALID_JSON", "The body is not valid JSON. Line 1, column 1 has u where a value belongs."},
		{"POST /api/v1/links", "{\"title\":\"\xff\",\"url\":\"https://example.com\"}", "", 400, "INVALID_JSON", "The body is not valid UTF-8."},
		{"POST /api/v1/links", "{\"url\":\"a\nb\"}", "", 400, "INVALID_JSON", "The body is not valid JSON. Line 1, column 10 has a line break … such as \\n belongs."},
		{"POST /api/v1/links", `{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}`, "", 400, "INVALID_JSON", "The body is nested more than 32 levels deep."},
		{"PATCH /api/v1/links/{link}", "{title}", "", 400, "INVALID_JSON", "The body is not valid JSON. Line 1, column 2 has t where a field name in double quotes belongs."},
		{"PUT /api/v1/videos/{video}/access", "", "Content-Type: application/json", 400, "INVALID_JSON", "The body is empty. Send a JSON object."},
	}}, {"content types", []wrong{
		{"POST /api/v1/links", "url=https://example.com", "Content-Type: application/x-www-form-urlencoded", 415, "UNSUPPORTED_MEDIA_TYPE", "Send the body as application/json."},
		{"POST /api/v1/links", `{"url":"https://example.com"}`, "Content-Type: text/plain", 415, "UNSUPPORTED_MEDIA_TYPE", "Send the body as application/json."},
		{"POST /api/v1/links", "--b\r\nContent-Disposition: form-data; name=\"url\"\r\n\r\nx\r\n--b--", "Content-Type: multipart/form-data; boundary=b", 415, "UNSUPPORTED_MEDIA_TYPE", "Send the body as application/json."},
		{"POST /api/v1/links", `{"url":"https://example.com"}`, "Content-Type: application/json; charset=latin1", 415, "UNSUPPORTED_MEDIA_TYPE", "Send the body as application/json."},
		{"POST /api/v1/links", `{"url":"https://example.com"}`, "Content-Encoding: gzip", 415, "UNSUPPORTED_MEDIA_TYPE", "Send the body without a Content-Encoding."},
		{"PUT /api/v1/videos/{video}/captions/en", "WEBVTT\n", "Content-Type: application/json", 415, "UNSUPPORTED_MEDIA_TYPE", "Send the captions as text/vtt."},
		{"PUT /api/v1/videos/{video}/captions/en", "1\n00:00:00,000 --> 00:00:01,000\nHello", "Content-Type: text/vtt", 400, "VALIDATION_ERROR", "body: The body is not a WebVTT file in UTF-8."},
		{"POST /api/v1/links", "{big}", "", 413, "BODY_TOO_LARGE", "The body is larger than 1 MiB. Send fewer items per request, and send files to their upload address."},
	}}, {"destinations", []wrong{
		{"POST /api/v1/links", "{}", "", 400, "VALIDATION_ERROR", "url: This field is required."},
		{"POST /api/v1/links", `{"destinationUrl":"https://example.com"}`, "", 400, "VALIDATION_ERROR", `url: This field is required. The body has "destinationUrl". Did you mean url?`},
		{"POST /api/v1/links", `{"long_url":"https://example.com"}`, "", 400, "VALIDATION_ERROR", `url: This field is required. The body has "long_url". Did you mean url?`},
		{"POST /api/v1/links", `{"URL":"https://example.com"}`, "", 400, "VALIDATION_ERROR", `url: This field is required. The body has "URL". Did you mean url?`},
		{"POST /api/v1/links", `{"uri":"https://example.com"}`, "", 400, "VALIDATION_ERROR", `url: This field is required. The body has "uri". Did you mean url?`},
		{"POST /api/v1/links", `{"url":null}`, "", 400, "VALIDATION_ERROR", "url: Use a string."},
		{"POST /api/v1/links", `{"url":""}`, "", 400, "VALIDATION_ERROR", "url: The address must start with http:// or https://."},
		{"POST /api/v1/links", `{"url":5}`, "", 400, "VALIDATION_ERROR", "url: Use a string."},
		{"POST /api/v1/links", `{"url":["https://example.com"]}`, "", 400, "VALIDATION_ERROR", "url: Use a string."},
		{"POST /api/v1/links", `{"url":"example.com"}`, "", 400, "VALIDATION_ERROR", "url: The address must start with http:// or https://."},
		{"POST /api/v1/links", `{"url":"www.example.com/a"}`, "", 400, "VALIDATION_ERROR", "url: The address must start with http:// or https://."},
		{"POST /api/v1/links", `{"url":"//example.com"}`, "", 400, "VALIDATION_ERROR", "url: The address must start with http:// or https://."},
		{"POST /api/v1/links", `{"url":"ftp://example.com"}`, "", 400, "VALIDATION_ERROR", "url: The address must start with http:// or https://."},
		{"POST /api/v1/links", `{"url":"javascript:alert(1)"}`, "", 400, "VALIDATION_ERROR", "url: The address must start with http:// or https://."},
		{"POST /api/v1/links", `{"url":"mailto:a@example.com"}`, "", 400, "VALIDATION_ERROR", "url: The address must start with http:// or https://."},
		{"POST /api/v1/links", `{"url":"https://"}`, "", 400, "VALIDATION_ERROR", "url: The address has no host."},
		{"POST /api/v1/links", `{"url":"https:///path"}`, "", 400, "VALIDATION_ERROR", "url: The address has no host."},
		{"POST /api/v1/links", `{"url":"https://user:pass@example.com"}`, "", 400, "VALIDATION_ERROR", "url: The address must not contain a user name or password."},
		{"POST /api/v1/links", `{"url":"https://exa mple.com"}`, "", 400, "VALIDATION_ERROR", "url: This is not a valid address. Check the host and port."},
		{"POST /api/v1/links", `{"url":" https://example.com"}`, "", 400, "VALIDATION_ERROR", "url: The address must start with http:// or https://."},
		{"POST /api/v1/links", `{"url":"https://example.com:99999"}`, "", 400, "VALIDATION_ERROR", "url: This is not a valid address. Check the host and port."},
		{"POST /api/v1/links", `{"url":"{short}/x"}`, "", 400, "VALIDATION_ERROR", "url: The address is on one of our own short … could end up in a redirect loop. Use the final destination."},
		{"POST /api/v1/links", `{"url":"https://example.com/{long}"}`, "", 400, "VALIDATION_ERROR", "url: Use at most 8192 characters."},
		{"POST /api/v1/links", `{"url":"https://example.com/a\u0000b"}`, "", 400, "VALIDATION_ERROR", "url: The text contains a NUL character."},
	}}, {"slugs", []wrong{
		{"POST /api/v1/links", `{"url":"https://example.com","slug":"spring sale"}`, "", 400, "VALIDATION_ERROR", "slug: Use letters, digits, '_', '.' and '-', and start with a letter or a digit."},
		{"POST /api/v1/links", `{"url":"https://example.com","slug":"spring/sale"}`, "", 400, "VALIDATION_ERROR", "slug: Use letters, digits, '_', '.' and '-', and start with a letter or a digit."},
		{"POST /api/v1/links", `{"url":"https://example.com","slug":"-spring"}`, "", 400, "VALIDATION_ERROR", "slug: Use letters, digits, '_', '.' and '-', and start with a letter or a digit."},
		{"POST /api/v1/links", `{"url":"https://example.com","slug":"früh"}`, "", 400, "VALIDATION_ERROR", "slug: Use letters, digits, '_', '.' and '-', and start with a letter or a digit."},
		{"POST /api/v1/links", `{"url":"https://example.com","slug":"api"}`, "", 400, "VALIDATION_ERROR", "slug: This word is reserved. Choose another."},
		{"POST /api/v1/links", `{"url":"https://example.com","slug":"robots.txt"}`, "", 400, "VALIDATION_ERROR", "slug: This word is reserved. Choose another."},
		{"POST /api/v1/links", `{"url":"https://example.com","slug":""}`, "", 400, "VALIDATION_ERROR", "slug: Use at least one character, or leave the slug out to have one generated."},
		{"POST /api/v1/links", `{"url":"https://example.com","slug":"{s101}"}`, "", 400, "VALIDATION_ERROR", "slug: Use at most 100 characters."},
		{"POST /api/v1/links", `{"url":"https://example.com","slug":5}`, "", 400, "VALIDATION_ERROR", "slug: Use a string, or null."},
		{"POST /api/v1/links", `{"url":"https://example.com","slug":"{slug}"}`, "", 409, "SLUG_TAKEN", "The slug … is already taken. Choose another, or leave it out to have one generated."},
		{"GET /api/v1/links/available", "", "", 400, "VALIDATION_ERROR", "slug: Send the slug to check."},
		{"GET /api/v1/links/available?name=x", "", "", 400, "VALIDATION_ERROR", "name: There is no such parameter here. The parameters are domainId and slug."},
	}}, {"text fields of links", []wrong{
		{"POST /api/v1/links", `{"url":"https://example.com","title":"{t501}"}`, "", 400, "VALIDATION_ERROR", "title: Use at most 500 characters."},
		{"POST /api/v1/links", `{"url":"https://example.com","title":5}`, "", 400, "VALIDATION_ERROR", "title: Use a string, or null."},
		{"POST /api/v1/links", `{"url":"https://example.com","ogTitle":"{t501}"}`, "", 400, "VALIDATION_ERROR", "ogTitle: Use at most 500 characters."},
		{"POST /api/v1/links", `{"url":"https://example.com","ogDescription":"{t1001}"}`, "", 400, "VALIDATION_ERROR", "ogDescription: Use at most 1000 characters."},
		{"POST /api/v1/links", `{"url":"https://example.com","ogImage":"not an address"}`, "", 400, "VALIDATION_ERROR", "ogImage: The address must start with http:// or https://."},
		{"POST /api/v1/links", `{"url":"https://example.com","tags":"sale"}`, "", 400, "VALIDATION_ERROR", "tags: Use a list, or null."},
		{"POST /api/v1/links", `{"url":"https://example.com","tags":["a,b"]}`, "", 400, "VALIDATION_ERROR", "tags.0: A tag cannot contain a comma or a control character."},
		{"POST /api/v1/links", `{"url":"https://example.com","tags":[""]}`, "", 400, "VALIDATION_ERROR", "tags.0: A tag needs at least one character."},
		{"POST /api/v1/links", `{"url":"https://example.com","tags":[1]}`, "", 400, "VALIDATION_ERROR", "tags.0: Use a string."},
		{"POST /api/v1/links", `{"url":"https://example.com","tags":["{t51}"]}`, "", 400, "VALIDATION_ERROR", "tags.0: A tag can have at most 50 characters."},
		{"POST /api/v1/links", `{"url":"https://example.com","externalId":""}`, "", 400, "VALIDATION_ERROR", "externalId: Use at least one character, or null for no id."},
		{"POST /api/v1/links", `{"url":"https://example.com","externalId":"ä"}`, "", 400, "VALIDATION_ERROR", "externalId: Use printable ASCII characters."},
		{"POST /api/v1/links", `{"url":"https://example.com","archived":"yes"}`, "", 400, "VALIDATION_ERROR", "archived: Use true or false, or null."},
		{"POST /api/v1/links", `{"url":"https://example.com","domainId":"dom_nothing"}`, "", 404, "DOMAIN_NOT_FOUND", "This account has no domain with this id. Send the id (dom_…), not the host name."},
		{"POST /api/v1/links", `{"url":"https://example.com","domainId":"go.example.com"}`, "", 404, "DOMAIN_NOT_FOUND", "This account has no domain with this id. Send the id (dom_…), not the host name."},
		{"POST /api/v1/links", `{"url":"https://example.com","title":"a\u0000b"}`, "", 400, "VALIDATION_ERROR", "title: The text contains a NUL character."},
		{"POST /api/v1/links", `{"url":"https://example.com","title":"\ud800"}`, "", 400, "VALIDATION_ERROR", "title: The text contains half of a surrogate pair."},
		{"POST /api/v1/links", `{"url":"https://example.com","domainId":"{domain}"}`, "", 409, "DOMAIN_NOT_VERIFIED", "The domain is not verified. Add its TXT record, verify it, and try again."},
		{"POST /api/v1/links", `{"url":"https://example.com","externalId":"taken"}`, "", 409, "EXTERNAL_ID_TAKEN", "This account already has a link with this externalId. Use another externalId, or remove it from that link first."},
	}}, {"times", []wrong{
		{"POST /api/v1/links", `{"url":"https://example.com","expiresAt":"soon"}`, "", 400, "VALIDATION_ERROR", "expiresAt: This is not a date that JavaScript can … or a number of milliseconds."},
		{"POST /api/v1/links", `{"url":"https://example.com","expiresAt":"31.12.2027"}`, "", 400, "VALIDATION_ERROR", "expiresAt: This is not a date that JavaScript can … or a number of milliseconds."},
		{"POST /api/v1/links", `{"url":"https://example.com","expiresAt":true}`, "", 400, "VALIDATION_ERROR", "expiresAt: Use a string or a number, or null."},
		{"POST /api/v1/links", `{"url":"https://example.com","expiresAt":{}}`, "", 400, "VALIDATION_ERROR", "expiresAt: Use a string or a number, or null."},
		{"POST /api/v1/links", `{"url":"https://example.com","expiresAt":""}`, "", 400, "VALIDATION_ERROR", "expiresAt: This is not a date that JavaScript can … or a number of milliseconds."},
		{"POST /api/v1/links", `{"url":"https://example.com","expiresAt":1e30}`, "", 400, "VALIDATION_ERROR", "expiresAt: This number of milliseconds is out of range for a date. Use -8640000000000000 to 8640000000000000."},
		{"POST /api/v1/links", `{"url":"https://example.com","startsAt":"2028-01-01","expiresAt":"2027-01-01"}`, "", 400, "VALIDATION_ERROR", "startsAt: The link would expire before it starts. startsAt must be earlier than expiresAt."},
		{"POST /api/v1/videos", `{"privacy":"expiring","expiresAt":1830000000}`, "", 400, "VALIDATION_ERROR", "expiresAt: "},
		{"POST /api/v1/videos", `{"privacy":"expiring","expiresAt":"2020-01-01T00:00:00Z"}`, "", 400, "VALIDATION_ERROR", "expiresAt: "},
		{"POST /api/v1/videos", `{"privacy":"expiring","expiresAt":"2030-01-01"}`, "", 400, "VALIDATION_ERROR", "expiresAt: "},
		{"POST /api/v1/keys", `{"name":"x","expiresAt":"yesterday"}`, "", 400, "VALIDATION_ERROR", "expiresAt: "},
		{"GET /api/v1/links/{link}/stats?from=yesterday", "", "", 400, "VALIDATION_ERROR", "from: Use a day such as 2026-11-20."},
		{"GET /api/v1/links/{link}/stats?from=2026-11-20&to=2026-11-10", "", "", 400, "VALIDATION_ERROR", "from: Request 1 to 366 days."},
		{"GET /api/v1/links/{link}/stats?from=2020-01-01&to=2026-01-01", "", "", 400, "VALIDATION_ERROR", "from: Request 1 to 366 days."},
	}}, {"redirect settings and rules", []wrong{
		{"POST /api/v1/links", `{"url":"https://example.com","redirectType":307}`, "", 400, "VALIDATION_ERROR", "redirectType: Use 301, 302 or 308."},
		{"POST /api/v1/links", `{"url":"https://example.com","redirectType":"302"}`, "", 400, "VALIDATION_ERROR", "redirectType: Use a whole number, or null."},
		{"POST /api/v1/links", `{"url":"https://example.com","forwardQuery":"yes"}`, "", 400, "VALIDATION_ERROR", "forwardQuery: Use true or false, or null."},
		{"POST /api/v1/links", `{"url":"https://example.com","maxClicks":0}`, "", 400, "VALIDATION_ERROR", "maxClicks: This number is too small. Use at least 1."},
		{"POST /api/v1/links", `{"url":"https://example.com","maxClicks":"10"}`, "", 400, "VALIDATION_ERROR", "maxClicks: Use a whole number, or null."},
		{"POST /api/v1/links", `{"url":"https://example.com","redirectType":301,"maxClicks":5}`, "", 400, "VALIDATION_ERROR", "redirectType: Use redirectType 302 for a link with … keep a 301 or 308 and do not ask again."},
		{"POST /api/v1/links", `{"url":"https://example.com","rules":{}}`, "", 400, "VALIDATION_ERROR", "rules: Use a list, or null."},
		{"POST /api/v1/links", `{"url":"https://example.com","rules":[{"name":"a"}]}`, "", 400, "VALIDATION_ERROR", "rules.0.when: This field is required. rules.0.url: This field is required."},
		{"POST /api/v1/links", `{"url":"https://example.com","rules":[{"name":"a","when":{},"url":"https://example.com"}]}`, "", 400, "VALIDATION_ERROR", "rules.0.when: Set at least 1 field of this object."},
		{"POST /api/v1/links", `{"url":"https://example.com","rules":[{"name":"a","when":{"country":"DE"},"url":"https://example.com"}]}`, "", 400, "VALIDATION_ERROR", "rules.0.when.country: Use a list."},
		{"POST /api/v1/links", `{"url":"https://example.com","rules":[{"name":"a","when":{"country":["Germany"]},"url":"https://example.com"}]}`, "", 400, "VALIDATION_ERROR", "rules.0.when.country: This installation cannot determine a … two-letter country code (ISO 3166-1), such as DE."},
		{"POST /api/v1/links", `{"url":"https://example.com","rules":[{"name":"a","when":{"device":["iphone"]},"url":"https://example.com"}]}`, "", 400, "VALIDATION_ERROR", "rules.0.when.device.0: Use one of desktop, phone, tablet, mobile."},
		{"POST /api/v1/links", `{"url":"https://example.com","rules":[{"name":"a","when":{"percent":100},"url":"https://example.com"}]}`, "", 400, "VALIDATION_ERROR", "rules.0.when.percent: This number is too large. Use at most 99."},
		{"POST /api/v1/links", `{"url":"https://example.com","rules":[{"name":"a","when":{"devices":["phone"]},"url":"https://example.com"}]}`, "", 400, "VALIDATION_ERROR", "rules.0.when.devices: There is no such field here. Did you mean device?"},
		{"POST /api/v1/links", `{"url":"https://example.com","rules":[{"name":"a","when":{"device":["phone"]},"url":"example.com"}]}`, "", 400, "VALIDATION_ERROR", "rules.0.url: The address must start with http:// or https://."},
		{"POST /api/v1/links", `{"url":"https://example.com","password":""}`, "", 400, "VALIDATION_ERROR", "password: Use at least 1 character."},
		{"POST /api/v1/links", `{"url":"https://example.com","expiredUrl":"/over"}`, "", 400, "VALIDATION_ERROR", "expiredUrl: The address must start with http:// or https://."},
	}}, {"lists", []wrong{
		{"GET /api/v1/links?limit=0", "", "", 400, "VALIDATION_ERROR", "limit: Use a whole number from 1 to 100."},
		{"GET /api/v1/links?limit=101", "", "", 400, "VALIDATION_ERROR", "limit: Use a whole number from 1 to 100."},
		{"GET /api/v1/links?limit=ten", "", "", 400, "VALIDATION_ERROR", "limit: Use a whole number from 1 to 100."},
		{"GET /api/v1/links?limit=-1", "", "", 400, "VALIDATION_ERROR", "limit: Use a whole number from 1 to 100."},
		{"GET /api/v1/links?limit=5&limit=6", "", "", 400, "VALIDATION_ERROR", "limit: Send this parameter once. It accepts only one value."},
		{"GET /api/v1/links?cursor=abc", "", "", 400, "INVALID_CURSOR", "This cursor does not come from a list. Pass the nextCursor from the previous page, unchanged."},
		{"GET /api/v1/links?cursor=", "", "", 400, "INVALID_CURSOR", "This cursor does not come from a list. Pass the nextCursor from the previous page, unchanged."},
		{"GET /api/v1/links?page=2", "", "", 400, "VALIDATION_ERROR", "page: There is no such parameter here. The parameters … domainId, externalId, limit, q, slug and tag."},
		{"GET /api/v1/links?offset=20", "", "", 400, "VALIDATION_ERROR", "offset: There is no such parameter here. The … domainId, externalId, limit, q, slug and tag."},
		{"GET /api/v1/links?tags=sale", "", "", 400, "VALIDATION_ERROR", "tags: There is no such parameter here. Did you mean tag?"},
		{"GET /api/v1/links?search=x", "", "", 400, "VALIDATION_ERROR", "search: There is no such parameter here. The … domainId, externalId, limit, q, slug and tag."},
		{"GET /api/v1/links?sort=-clicks", "", "", 400, "VALIDATION_ERROR", "sort: There is no such parameter here. The parameters … domainId, externalId, limit, q, slug and tag."},
		{"GET /api/v1/links?archived=yes", "", "", 400, "VALIDATION_ERROR", "archived: Use all, true or false."},
		{"GET /api/v1/links?domainId=go.example.com", "", "", 400, "VALIDATION_ERROR", "domainId: Use the id of a domain, or default for the default host."},
		{"GET /api/v1/links?tag=a&tag=b&tag=c&tag=d&tag=e&tag=f", "", "", 400, "VALIDATION_ERROR", "tag: Filter by at most 5 tags."},
		{"GET /api/v1/links?order=desc", "", "", 400, "VALIDATION_ERROR", "order: There is no such parameter here. The parameters … domainId, externalId, limit, q, slug and tag."},
		{"GET /api/v1/links?q={t600}", "", "", 400, "VALIDATION_ERROR", "q: Search for at most 500 characters of text."},
		{"GET /api/v1/videos?status=done", "", "", 400, "VALIDATION_ERROR", "status: Use one of uploading, processing, ready, failed."},
		{"GET /api/v1/videos?privacy=secret", "", "", 400, "VALIDATION_ERROR", "privacy: Use one of public, unlisted, password, expiring."},
		{"GET /api/v1/videos?cursor=zzz", "", "", 400, "INVALID_CURSOR", "This cursor does not come from a list of videos. Start again without a cursor."},
		{"GET /api/v1/events?type=link.created,link.deleted", "", "", 400, "VALIDATION_ERROR", "type: Specify one type each time, and repeat the parameter: type=link.created&type=link.deleted."},
		{"GET /api/v1/events?types=link.created", "", "", 400, "VALIDATION_ERROR", "types: There is no such parameter here. Did you mean type?"},
		{"GET /api/v1/events?type=link.made", "", "", 400, "VALIDATION_ERROR", "type: There is no event type with this name. Use one such as link.created."},
		{"GET /api/v1/events?after=nonsense", "", "", 400, "INVALID_CURSOR", "This cursor does not come from an earlier response to … unchanged, or leave it out to start again."},
		{"GET /api/v1/events?wait=60&after=", "", "", 400, "VALIDATION_ERROR", "wait: Use whole seconds from 0 to 25."},
		{"GET /api/v1/events?after=&cursor=x", "", "", 400, "VALIDATION_ERROR", "cursor: Use `cursor` to read backwards or `after` to read forwards, not both."},
		{"GET /api/v1/tags?cursor=zzz", "", "", 400, "INVALID_CURSOR", "This cursor does not come from this list. Pass the nextCursor from the previous page, unchanged."},
		{"GET /api/v1/account?fields=name", "", "", 400, "VALIDATION_ERROR", "fields: There is no such parameter here."},
	}}, {"missing records", []wrong{
		{"GET /api/v1/links/lnk_nothing", "", "", 404, "LINK_NOT_FOUND", "This account has no link with this id."},
		{"GET /api/v1/links/{slug}", "", "", 404, "LINK_NOT_FOUND", "This account has no link with this id."},
		{"GET /api/v1/links/{foreign}", "", "", 404, "LINK_NOT_FOUND", "This account has no link with this id."},
		{"GET /api/v1/videos/vid_nothing", "", "", 404, "VIDEO_NOT_FOUND", "There is no such video."},
		{"GET /api/v1/videos/{link}", "", "", 404, "VIDEO_NOT_FOUND", "There is no such video."},
		{"GET /api/v1/domains/go.example.com", "", "", 404, "DOMAIN_NOT_FOUND", "This account has no domain with this id. Send the id (dom_…), not the host name."},
		{"GET /api/v1/webhooks/whk_nothing", "", "", 404, "WEBHOOK_NOT_FOUND", "There is no webhook with this id."},
		{"POST /api/v1/webhooks/{webhook}/deliveries/whd_x/retry", "", "", 404, "DELIVERY_NOT_FOUND", "There is no delivery with this id. Deliveries are kept for 30 days."},
		{"GET /api/v1/keys/key_nothing", "", "", 404, "NOT_FOUND", "There is no key with this id."},
		{"GET /api/v1/links/undefined", "", "", 404, "LINK_NOT_FOUND", "This account has no link with this id."},
		{"GET /api/v1/links/null/stats", "", "", 404, "LINK_NOT_FOUND", "This account has no link with this id."},
		{"DELETE /api/v1/members/mem_nothing", "", "", 404, "NOT_FOUND", "There is no member with this id."},
		{"DELETE /api/v1/invitations/inv_nothing", "", "", 404, "NOT_FOUND", "There is no invitation with this id."},
		{"GET /api/v1/links/%20", "", "", 404, "LINK_NOT_FOUND", "This account has no link with this id."},
	}}, {"changes", []wrong{
		{"PATCH /api/v1/links/{link}", `{"destinationUrl":"https://example.com"}`, "", 400, "VALIDATION_ERROR", "destinationUrl: There is no such field here. Did you mean url?"},
		{"PATCH /api/v1/links/{link}", `{"Title":"x"}`, "", 400, "VALIDATION_ERROR", "Title: There is no such field here. Did you mean title?"},
		{"PATCH /api/v1/links/{link}", `{"url":null}`, "", 400, "VALIDATION_ERROR", "url: Use a string."},
		{"PATCH /api/v1/links/{link}", `{"tittle":"x"}`, "", 400, "VALIDATION_ERROR", "tittle: There is no such field here. Did you mean title?"},
		{"PATCH /api/v1/links/{link}", `{"title":5}`, "", 400, "VALIDATION_ERROR", "title: Use a string, or null."},
		{"PATCH /api/v1/links/{link}", `{"nothing":1,"known":2}`, "", 400, "VALIDATION_ERROR", "known: There is no such field here. The fields are … and url. nothing: There is no such field here."},
		{"PATCH /api/v1/links/{link}", `{"expires_at":"2027-01-01"}`, "", 400, "VALIDATION_ERROR", "expires_at: There is no such field here. Did you mean expiresAt?"},
		{"PATCH /api/v1/links/{link}", `{"redirectType":null,"url":"x"}`, "", 400, "VALIDATION_ERROR", "url: The address must start with http:// or https://."},
		{"PATCH /api/v1/links/{link}", `{"tags":null,"archived":5}`, "", 400, "VALIDATION_ERROR", "archived: Use true or false, or null."},
		{"PATCH /api/v1/links/{link}", `{"title":"x"}`, `If-Match: "r999"`, 412, "PRECONDITION_FAILED", "The record has changed since you read it. Read it again, and send the new ETag."},
		{"PATCH /api/v1/links/{link}", `{"title":"x"}`, "If-Match: r1", 412, "PRECONDITION_FAILED", "The record has changed since you read it. Read it again, and send the new ETag."},
		{"PATCH /api/v1/videos/{video}", `{"title":"{t501}"}`, "", 400, "VALIDATION_ERROR", "title: Use at most 500 characters."},
		{"PATCH /api/v1/videos/{video}", `{"description":"{t2001}"}`, "", 400, "VALIDATION_ERROR", "description: Use at most 2000 characters."},
		{"PATCH /api/v1/account", `{"defaultDomainId":"dom_x"}`, "", 404, "DOMAIN_NOT_FOUND", "This account has no domain with this id. Send the id (dom_…), not the host name."},
		{"PATCH /api/v1/domains/{domain}", `{"homeUrl":"home"}`, "", 400, "VALIDATION_ERROR", "homeUrl: The address must start with http:// or https://."},
		{"PATCH /api/v1/members/{member}", `{"role":"boss"}`, "", 400, "VALIDATION_ERROR", "role: Use one of viewer, member, admin, owner."},
		{"PATCH /api/v1/webhooks/{webhook}", `{"events":[]}`, "", 400, "VALIDATION_ERROR", "events: Use at least 1 item."},
	}}, {"bulk", []wrong{
		{"POST /api/v1/links/bulk", "{}", "", 400, "VALIDATION_ERROR", "urls: This field is required."},
		{"POST /api/v1/links/bulk", `{"links":[{"url":"https://example.com"}]}`, "", 400, "VALIDATION_ERROR", `urls: This field is required. The body has the unknown field "links".`},
		{"POST /api/v1/links/bulk", `{"urls":[]}`, "", 400, "VALIDATION_ERROR", "urls: Use at least 1 item."},
		{"POST /api/v1/links/bulk", `{"urls":{}}`, "", 400, "VALIDATION_ERROR", "urls: Use a list."},
		{"POST /api/v1/links/bulk", `{"urls":"https://example.com"}`, "", 400, "VALIDATION_ERROR", "urls: Use a list."},
		{"POST /api/v1/links/bulk", `{"urls":[{101}]}`, "", 400, "VALIDATION_ERROR", "urls: Use at most 100 items."},
		{"PATCH /api/v1/links/bulk", `{"ids":["{link}"]}`, "", 400, "VALIDATION_ERROR", "set: This field is required."},
		{"PATCH /api/v1/links/bulk", `{"ids":["{link}"],"set":{"title":"x"}}`, "", 400, "VALIDATION_ERROR", "set.title: There is no such field here. The fields are addTags, archived, expiresAt, removeTags and tags."},
		{"PATCH /api/v1/links/bulk", `{"ids":["{link}"],"set":{"archive":true}}`, "", 400, "VALIDATION_ERROR", "set.archive: There is no such field here. Did you mean archived?"},
		{"PATCH /api/v1/links/bulk", `{"ids":["{link}"],"set":{"tags":["a"],"addTags":["b"]}}`, "", 400, "VALIDATION_ERROR", "set.tags: Use tags to replace all tags, or addTags and removeTags to change some, not both."},
		{"PATCH /api/v1/links/bulk", `{"ids":[],"set":{"archived":true}}`, "", 400, "VALIDATION_ERROR", "ids: Use at least 1 item."},
		{"POST /api/v1/links/bulk-delete", `{"id":["{link}"]}`, "", 400, "VALIDATION_ERROR", `ids: This field is required. The body has "id". Did you mean ids?`},
		{"POST /api/v1/links/bulk-delete", `{"ids":"{link}"}`, "", 400, "VALIDATION_ERROR", "ids: Use a list."},
		{"DELETE /api/v1/links/bulk", `{"ids":["{link}"]}`, "", 404, "LINK_NOT_FOUND", "This account has no link with this id."},
	}}, {"videos", []wrong{
		{"POST /api/v1/videos", `{"privacy":"private"}`, "", 400, "VALIDATION_ERROR", "privacy: Use one of public, unlisted, password, expiring."},
		{"POST /api/v1/videos", `{"privacy":"password"}`, "", 400, "VALIDATION_ERROR", "password: This field is required when privacy is password."},
		{"POST /api/v1/videos", `{"password":"x"}`, "", 400, "VALIDATION_ERROR", "password: A password has no effect unless privacy is password. Set both, or leave it out."},
		{"POST /api/v1/videos", `{"privacy":"password","password":""}`, "", 400, "VALIDATION_ERROR", "password: Use at least 1 character."},
		{"POST /api/v1/videos", `{"privacy":"expiring"}`, "", 400, "VALIDATION_ERROR", "expiresAt: This field is required when privacy is expiring."},
		{"POST /api/v1/videos", `{"expiresAt":1900000000000}`, "", 400, "VALIDATION_ERROR", "expiresAt: A time has no effect unless privacy is expiring. Set both, or leave it out."},
		{"POST /api/v1/videos", `{"title":"{t501}"}`, "", 400, "VALIDATION_ERROR", "title: Use at most 500 characters."},
		{"POST /api/v1/videos", `{"recording":"yes"}`, "", 400, "VALIDATION_ERROR", "recording: Use true or false."},
		{"POST /api/v1/videos", `{"privacy":"password","password":"{t257}"}`, "", 400, "VALIDATION_ERROR", "password: Use at most 256 characters."},
		{"PUT /api/v1/videos/{video}/access", "{}", "", 400, "VALIDATION_ERROR", "privacy: This field is required."},
		{"PUT /api/v1/videos/{video}/access", `{"privacy":"unlisted","embedOrigins":["https://example.com/page"]}`, "", 400, "VALIDATION_ERROR", "embedOrigins.0: Use an origin such as https://www.example.com, without a path."},
		{"PUT /api/v1/videos/{video}/thumbnail", `{"time":1}`, "", 400, "VALIDATION_ERROR", "time: The video has no picture until it is ready."},
		{"PUT /api/v1/videos/{video}/thumbnail", `{"time":"1s"}`, "", 400, "VALIDATION_ERROR", "time: Use a number, or null."},
		{"PUT /api/v1/videos/{video}/thumbnail", "{}", "", 400, "VALIDATION_ERROR", "time: This field is required."},
		{"PUT /api/v1/videos/{video}/captions/english", "WEBVTT\n", "Content-Type: text/vtt", 400, "VALIDATION_ERROR", "lang: Use a language tag such as en, de or pt-BR."},
		{"PUT /api/v1/videos/{video}/captions/en", "", "Content-Type: text/vtt", 400, "VALIDATION_ERROR", "body: The body is not a WebVTT file in UTF-8."},
		{"DELETE /api/v1/videos/{video}/captions/de", "", "", 404, "NOT_FOUND", "This video has no captions in this language."},
	}}, {"domains, keys, webhooks and members", []wrong{
		{"POST /api/v1/domains", "{}", "", 400, "VALIDATION_ERROR", "hostname: This field is required."},
		{"POST /api/v1/domains", `{"hostname":"localhost"}`, "", 400, "VALIDATION_ERROR", "hostname: Use a DNS name of two or more labels, such as go.example.com."},
		{"POST /api/v1/domains", `{"hostname":"https://go.example.com"}`, "", 400, "VALIDATION_ERROR", "hostname: Use a DNS name without https://, path, port, … dot; write other alphabets in Punycode (xn--…)."},
		{"POST /api/v1/domains", `{"hostname":"go.example.com:8080"}`, "", 400, "VALIDATION_ERROR", "hostname: Use a DNS name without https://, path, port, … dot; write other alphabets in Punycode (xn--…)."},
		{"POST /api/v1/domains", `{"hostname":"*.example.com"}`, "", 400, "VALIDATION_ERROR", "hostname: Use a DNS name without https://, path, port, … dot; write other alphabets in Punycode (xn--…)."},
		{"POST /api/v1/domains", `{"hostname":"192.0.2.1"}`, "", 400, "VALIDATION_ERROR", "hostname: Use a DNS name, not an IP address."},
		{"POST /api/v1/domains", `{"hostname":"go_.example..com"}`, "", 400, "VALIDATION_ERROR", "hostname: Use a DNS name without https://, path, port, … dot; write other alphabets in Punycode (xn--…)."},
		{"POST /api/v1/domains", `{"domain":"go.example.com"}`, "", 400, "VALIDATION_ERROR", `hostname: This field is required. The body has the unknown field "domain".`},
		{"POST /api/v1/domains/{domain}/verify", `{"force":true}`, "", 400, "VALIDATION_ERROR", "force: There is no such field here."},
		{"POST /api/v1/keys", "{}", "", 400, "VALIDATION_ERROR", "name: This field is required."},
		{"POST /api/v1/keys", `{"name":"x","scope":["links:read"]}`, "", 400, "VALIDATION_ERROR", "scope: There is no such field here. Did you mean scopes?"},
		{"POST /api/v1/keys", `{"name":"x","scopes":["links"]}`, "", 400, "VALIDATION_ERROR", "scopes.0: Use one of links:read, links:write, … members:read, members:write, account:write."},
		{"POST /api/v1/keys", `{"name":"x","scopes":"links:read"}`, "", 400, "VALIDATION_ERROR", "scopes: Use a list, or null."},
		{"POST /api/v1/keys", `{"name":"x","scopes":[]}`, "", 400, "VALIDATION_ERROR", "scopes: Use at least 1 item."},
		{"POST /api/v1/keys", `{"name":""}`, "", 400, "VALIDATION_ERROR", "name: Use at least 1 character."},
		{"POST /api/v1/keys", `{"name":"x","expires_at":"2027-01-01"}`, "", 400, "VALIDATION_ERROR", "expires_at: There is no such field here. Did you mean expiresAt?"},
		{"POST /api/v1/keys/{keyid}/roll", `{"overlap_seconds":60}`, "", 400, "VALIDATION_ERROR", "overlap_seconds: There is no such field here. Did you mean overlapSeconds?"},
		{"POST /api/v1/keys/{keyid}/roll", `{"overlapSeconds":9999999}`, "", 400, "VALIDATION_ERROR", "overlapSeconds: This number is too large. Use at most 604800."},
		{"POST /api/v1/keys/{keyid}/roll", `{"overlapSeconds":"1h"}`, "", 400, "VALIDATION_ERROR", "overlapSeconds: Use a whole number."},
		{"POST /api/v1/webhooks", "{}", "", 400, "VALIDATION_ERROR", "url: This field is required. events: This field is required."},
		{"POST /api/v1/webhooks", `{"url":"https://example.com/hook"}`, "", 400, "VALIDATION_ERROR", "events: This field is required."},
		{"POST /api/v1/webhooks", `{"url":"https://example.com/hook","events":["link.made"]}`, "", 400, "VALIDATION_ERROR", `events.0: There is no event type with this name. Use the names in the documentation, or "*" for all.`},
		{"POST /api/v1/webhooks", `{"url":"https://example.com/hook","events":"*"}`, "", 400, "VALIDATION_ERROR", "events: Use a list."},
		{"POST /api/v1/webhooks", `{"url":"https://169.254.1.1/","events":["*"]}`, "", 400, "VALIDATION_ERROR", "url: Use a public address."},
		{"POST /api/v1/webhooks", `{"url":"example.com/hook","events":["*"]}`, "", 400, "VALIDATION_ERROR", "url: Use an address that starts with https:// and names a host."},
		{"POST /api/v1/webhooks", `{"url":"https://example.com/hook","event":["*"]}`, "", 400, "VALIDATION_ERROR", `events: This field is required. The body has "event". … is no such field here. Did you mean events?`},
		{"POST /api/v1/invitations", "{}", "", 400, "VALIDATION_ERROR", "role: This field is required."},
		{"POST /api/v1/invitations", `{"role":"editor"}`, "", 400, "VALIDATION_ERROR", "role: Use one of viewer, member, admin, owner."},
		{"POST /api/v1/device-codes", `{"scope":["links:read"]}`, "", 400, "VALIDATION_ERROR", "scope: There is no such field here. Did you mean scopes?"},
		{"POST /api/v1/device-codes/token", "{}", "", 400, "VALIDATION_ERROR", "deviceCode: This field is required."},
	}}, {"idempotency", []wrong{
		{"POST /api/v1/links", `{"url":"https://example.com"}`, "Idempotency-Key: {t256}", 400, "VALIDATION_ERROR", "Idempotency-Key: Use 1 to 255 printable ASCII characters."},
		{"POST /api/v1/links", `{"url":"https://example.com"}`, "Idempotency-Key: ü", 400, "VALIDATION_ERROR", "Idempotency-Key: Use 1 to 255 printable ASCII characters."},
		{"POST /api/v1/links", `{"url":"https://example.com/other"}`, "Idempotency-Key: used", 422, "IDEMPOTENCY_KEY_REUSED", "This Idempotency-Key was already used with another body. Use a new key for a new request."},
	}}, {"the operator", []wrong{
		{"POST admin:/admin/v1/accounts", "{}", "As: operator", 400, "VALIDATION_ERROR", "name: This field is required. plan: This field is required."},
		{"POST admin:/admin/v1/accounts", `{"name":"x","plan":"gold"}`, "As: operator", 400, "VALIDATION_ERROR", "plan: Use one of free, creator, business, enterprise."},
		{"POST admin:/admin/v1/accounts", `{"name":""}`, "As: operator", 400, "VALIDATION_ERROR", "plan: This field is required. name: Use at least 1 character."},
		{"POST admin:/admin/v1/accounts", `{"name":"x","tier":"free"}`, "As: operator", 400, "VALIDATION_ERROR", `plan: This field is required. The body has the unknown field "tier". … such field here. The fields are name and plan.`},
		{"GET admin:/admin/v1/accounts/acc_nothing", "", "As: operator", 404, "NOT_FOUND", "There is no account with this id."},
		{"DELETE admin:/admin/v1/accounts/{account}", "", "As: operator", 409, "ACCOUNT_NOT_SUSPENDED", "Suspend the account before you delete it."},
		{"POST admin:/admin/v1/takedowns", `{"url":"https://example.com/x","reason":"x"}`, "As: operator", 404, "NOT_FOUND", "No link or video has this address."},
		{"POST admin:/admin/v1/takedowns", `{"linkId":"{link}"}`, "As: operator", 400, "VALIDATION_ERROR", "reason: This field is required."},
		{"POST admin:/admin/v1/accounts/{account}/sign-in-links", "{}", "As: operator", 400, "VALIDATION_ERROR", "name: Identify an existing member by memberId, or send … new one. role: Send the new member's role."},
		{"PATCH admin:/admin/v1/accounts/{account}", `{"suspend":true}`, "As: operator", 400, "VALIDATION_ERROR", "suspend: There is no such field here. Did you mean suspended?"},
	}},
}
