package contract_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/tests/contract"
)

// The test calls every operation in the document with an unknown name, and with a known name
// without its last letter, in its query and in its body. The service must not silently ignore such
// names. It must reject an unknown query parameter, and an unknown field if the schema is closed.
// Otherwise it must list the field in ignoredFields.
func TestEveryOperationNamesOrRejectsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	w := newNamesWorld(t)
	n := 0
	for _, r := range apispec.Load().Routes() {
		op := w.operation(r)
		n++
		caller := w.key
		if r.OperationID == "createMemberSignInLink" { // keys cannot call this operation
			caller = w.session
		}
		w.refusals(t, op)
		w.caller = caller
		w.queries(t, op)
		w.bodies(t, op)
	}
	if n < 60 {
		t.Errorf("only %d operations were called, want at least 60", n)
	}
}

type namesWorld struct {
	c   *http.Client
	key string
	// session is an owner's session, weak is a key with almost no scopes, and caller is the
	// credential for the next request.
	session, weak, caller string
	doc                   map[string]any
	ids                   map[string]string // keyed by the path segment before {id}, or by the parameter
	pair, owner           string            // IDs of a second link, for bulk requests, and of the session's member
}

// op is an operation with a valid request.
type op struct {
	apispec.Route
	target  string
	missing []string // the URL with a nonexistent ID, for each parameter
	schema  map[string]any
	body    map[string]any // nil for an operation without a JSON body
}

func newNamesWorld(t *testing.T) *namesWorld {
	t.Helper()
	w := &namesWorld{c: &http.Client{Transport: contract.NewTransport(t, nil), Timeout: 30 * time.Second}, ids: map[string]string{}}
	if err := json.Unmarshal(apispec.Load().JSON(), &w.doc); err != nil {
		t.Fatal(err)
	}
	var account string
	w.key, account = key(t, w.c, "enterprise", identity.AllScopes.Names())
	w.caller = w.key
	make := func(method, path string, body map[string]any) map[string]any {
		t.Helper()
		base := running.BaseURL
		if strings.HasPrefix(path, "/admin/") {
			base = running.AdminURL
		}
		got := w.send(t, method, base+path, body)
		if got.status >= 300 {
			t.Fatalf("%s %s returned %d, want success: %s", method, path, got.status, got.text)
		}
		return got.body
	}
	text := func(v any) string { s, _ := v.(string); return s }
	w.ids["links"] = text(make("POST", "/api/v1/links", map[string]any{"url": "https://example.com"})["id"])
	w.pair = text(make("POST", "/api/v1/links", map[string]any{"url": "https://example.com"})["id"])
	w.ids["videos"] = text(make("POST", "/api/v1/videos", map[string]any{})["videoId"])
	w.ids["domains"] = text(make("POST", "/api/v1/domains", map[string]any{"hostname": "names." + strings.ReplaceAll(account, "_", "-") + ".invalid"})["id"])
	w.ids["webhooks"] = text(make("POST", "/api/v1/webhooks", map[string]any{"url": "https://example.com/hook", "events": []string{"*"}})["id"])
	w.ids["{delivery}"] = text(make("POST", "/api/v1/webhooks/"+w.ids["webhooks"]+"/test", nil)["id"])
	w.ids["{lang}"] = "en"
	make("PUT", "/api/v1/videos/"+w.ids["videos"]+"/captions/en", nil)
	weak := make("POST", "/api/v1/keys", map[string]any{"name": "names", "scopes": []string{"domains:read"}})
	w.ids["keys"], w.weak = text(weak["id"]), text(weak["key"])
	w.ids["invitations"] = text(make("POST", "/api/v1/invitations", map[string]any{"role": "member"})["id"])
	w.ids["members"] = text(make("POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"name": "Names", "role": "member"})["memberId"])
	w.ids["accounts"] = account
	owner := make("POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"name": "Owner", "role": "owner"})
	w.owner, w.session = text(owner["memberId"]), signIn(t, text(owner["url"]))
	taken := text(make("POST", "/api/v1/links", map[string]any{"url": "https://example.com"})["id"])
	w.ids["takedowns"] = text(make("POST", "/admin/v1/takedowns", map[string]any{"linkId": taken, "reason": "names"})["id"])
	return w
}

// signIn opens a one-time link the way a browser does, and returns the session.
func signIn(t *testing.T, link string) string {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: 30 * time.Second}
	do := func(method, address string, form url.Values) []byte {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		if form != nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		page, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = page.Body.Close() }()
		text, err := io.ReadAll(page.Body)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := do(http.MethodGet, link, nil)
	csrf := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindSubmatch(text)
	u, err := url.Parse(link)
	if err != nil || csrf == nil {
		t.Fatalf("the page for a sign-in link has no token: %v\n%s", err, text)
	}
	do(http.MethodPost, running.BaseURL+"/app/sign-in", url.Values{"csrf": {string(csrf[1])}, "link": {u.Query().Get("link")}})
	for _, c := range jar.Cookies(u) {
		if strings.HasPrefix(c.Value, "lr_sess_") {
			return c.Value
		}
	}
	t.Fatal("signing in returned no session")
	return ""
}

func (w *namesWorld) operation(r apispec.Route) op {
	base := running.BaseURL
	if r.Tag == "Operator" {
		base = running.AdminURL
	}
	out := op{Route: r, target: base + r.Path}
	segments := strings.Split(r.Path, "/")
	params := []string{}
	for i, s := range segments {
		if s == "{id}" {
			w.ids[s] = w.ids[segments[i-1]]
		}
		if strings.HasPrefix(s, "{") {
			params = append(params, s)
		}
	}
	// at returns the URL with a nonexistent ID for the parameter missing.
	at := func(missing string) string {
		path := r.Path
		for _, p := range params {
			id := w.ids[p]
			if p == missing {
				id = map[string]string{"{id}": "none_0", "{delivery}": "none_1", "{lang}": "fr"}[p]
			}
			path = strings.Replace(path, p, id, 1)
		}
		return base + path
	}
	out.target = at("")
	for _, p := range params {
		if p != "{lang}" || r.Method != http.MethodPut { // PUT creates a missing record
			out.missing = append(out.missing, at(p))
		}
	}
	media := object(w.doc, "paths", r.Path, strings.ToLower(r.Method), "requestBody", "content", "application/json")
	if media == nil {
		return out
	}
	out.schema = w.resolve(media["schema"])
	out.body = map[string]any{}
	switch examples := object(media, "examples"); r.OperationID {
	case "bulkUpdateLinks":
		out.body = map[string]any{"ids": []string{w.pair}, "set": map[string]any{"archived": true}}
	case "bulkDeleteLinks":
		out.body = map[string]any{"ids": []string{"lnk_0000000000000000"}}
	case "bulkCreateLinks":
		out.body = map[string]any{"urls": []any{map[string]any{"url": "https://example.com/one"}}}
	case "createLink":
		out.body = map[string]any{"url": "https://example.com"}
	case "createDomain":
		out.body = map[string]any{"hostname": "more." + strings.ReplaceAll(w.ids["accounts"], "_", "-") + ".invalid"}
	case "updateMember":
		out.body = map[string]any{"name": "Other"}
	case "createInvitation":
		out.body = map[string]any{"role": "viewer"}
	case "setVideoAccess":
		out.body = map[string]any{"privacy": "unlisted"}
	case "setVideoThumbnail":
		out.body = map[string]any{"time": nil}
	case "createVideo", "updateVideo", "updateLink":
		out.body = map[string]any{"title": "names"}
	default: // an operation that rejects unknown names never needs its example
		for _, name := range slices.Sorted(maps.Keys(examples))[:min(1, len(examples))] {
			out.body, _ = object(examples, name)["value"].(map[string]any)
		}
	}
	return out
}

// queries tries an unknown parameter, and each of the operation's parameters without its last
// letter. It also repeats each parameter that may occur only once.
func (w *namesWorld) queries(t *testing.T, o op) {
	t.Helper()
	known := apispec.Load().Operation(o.Method, o.Path).Query
	body := maps.Clone(o.body)
	refused := func(query, field, hint string) {
		t.Helper()
		if got := w.send(t, o.Method, o.target+"?"+query, body); !got.unknown(field, hint) {
			t.Errorf("%s with ?%s returned %d %s, want 400 for the unknown name %s, with the hint %q", o.OperationID, query, got.status, got.text, field, hint)
		}
	}
	refused("nobodyKnowsThis=1", "nobodyKnowsThis", "")
	for name, repeatable := range known {
		if len(name) >= 3 {
			wrong := name[:len(name)-1]
			refused(wrong+"=1", wrong, "Did you mean "+name+"?")
		}
		if !repeatable {
			refused(name+"=1&"+name+"=1", name, "once")
		}
	}
	for _, missing := range o.missing {
		if got := w.send(t, o.Method, missing+"?nobodyKnowsThis=1", body); got.status != http.StatusNotFound {
			t.Errorf("%s on the nonexistent %s returned %d %s, want 404, not 400", o.OperationID, missing, got.status, got.text)
		}
	}
}

// refusals sends an unknown name as callers that are not allowed to call the operation.
func (w *namesWorld) refusals(t *testing.T, o op) {
	t.Helper()
	if strings.HasPrefix(o.Path, "/api/v1/device-codes") {
		return // these operations do not require a key
	}
	for who, caller := range map[string]string{"a caller without a key": "", "a weak key": w.weak} {
		w.caller = caller
		before := w.send(t, o.Method, o.target, o.body)
		if caller == "" && before.status != http.StatusUnauthorized {
			t.Errorf("%s without a key returned %d %s, want 401", o.OperationID, before.status, before.text)
		}
		if before.status != http.StatusUnauthorized && before.status != http.StatusForbidden {
			continue
		}
		if got := w.send(t, o.Method, o.target+"?nobodyKnowsThis=1", o.body); got.status != before.status {
			t.Errorf("%s by %s with an unknown name returned %d %s, want %d", o.OperationID, who, got.status, got.text, before.status)
		}
	}
}

// A key cannot change an owner. A missing permission takes precedence over an invalid request.
func TestWhatMayNotBeDoneToAnOwnerIsRefusedWhateverTheNames(t *testing.T) {
	t.Parallel()
	w := newNamesWorld(t)
	w.caller = w.session
	invited := w.send(t, "POST", running.BaseURL+"/api/v1/invitations", map[string]any{"role": "owner"})
	id, _ := invited.body["id"].(string)
	if id == "" {
		t.Fatalf("inviting an owner returned %d: %s", invited.status, invited.text)
	}
	w.caller = w.key
	for _, target := range []string{"/api/v1/members/" + w.owner, "/api/v1/invitations/" + id} {
		if got := w.send(t, "DELETE", running.BaseURL+target+"?nobodyKnowsThis=1", nil); got.status != http.StatusForbidden {
			t.Errorf("a key's DELETE %s of an owner returned %d %s, want 403, not 400", target, got.status, got.text)
		}
	}
}

// bodies tries an unknown field, and a known one without its last letter.
func (w *namesWorld) bodies(t *testing.T, o op) {
	t.Helper()
	with := func(body map[string]any, name string, value any) map[string]any {
		out := maps.Clone(body)
		out[name] = value
		return out
	}
	if o.body == nil {
		if o.Method == http.MethodPost && !apispec.Load().Operation(o.Method, o.Path).Body {
			if got := w.send(t, o.Method, o.target, map[string]any{"nobodyKnowsThis": 1}); !got.unknown("nobodyKnowsThis", "") {
				t.Errorf("%s does not accept a body, but given one it returned %d %s, want 400", o.OperationID, got.status, got.text)
			}
		}
		return
	}
	closed := o.schema["additionalProperties"] == false
	judge := func(body map[string]any, name, hint string) {
		t.Helper()
		got := w.send(t, o.Method, o.target, body)
		if rejected := got.unknown(name, hint); closed && !rejected || !closed && !rejected && !got.ignored(name) {
			t.Errorf("%s with the unknown %s returned %d %s, want 400 or the name in ignoredFields", o.OperationID, name, got.status, got.text)
		}
	}
	judge(with(o.body, "nobodyKnowsThis", 1), "nobodyKnowsThis", "")
	if got := w.send(t, o.Method, o.target, map[string]any{"nobodyKnowsThis": 1}); o.Method == http.MethodPatch && got.status != http.StatusBadRequest {
		t.Errorf("%s with only an unknown field returned %d %s, want 400", o.OperationID, got.status, got.text)
	}
	required, _ := o.schema["required"].([]any)
	for name, p := range object(o.schema, "properties") {
		if object(p)["readOnly"] == true || len(name) < 3 {
			continue
		}
		wrong := name[:len(name)-1]
		if slices.Contains(required, any(name)) {
			body := with(o.body, wrong, o.body[name])
			delete(body, name)
			got := w.send(t, o.Method, o.target, body)
			if got.status != http.StatusBadRequest || !strings.Contains(got.text, wrong) || !strings.Contains(got.text, "Did you mean "+name+"?") {
				t.Errorf("%s with %s instead of %s returned %d %s, want 400 with a suggestion", o.OperationID, wrong, name, got.status, got.text)
			}
		} else {
			hint := "" // ignoredFields contains only names
			if closed {
				hint = "Did you mean "
			}
			judge(with(o.body, wrong, nil), wrong, hint)
		}
		inner := w.resolve(p)
		for field := range object(inner, "properties") {
			wrong := field[:len(field)-1]
			if got := w.send(t, o.Method, o.target, with(o.body, name, map[string]any{wrong: 1})); !got.unknown(name+"."+wrong, "Did you mean ") {
				t.Errorf("%s with the unknown %s.%s returned %d %s, want 400 with a suggestion", o.OperationID, name, wrong, got.status, got.text)
			}
		}
	}
}

func (w *namesWorld) resolve(v any) map[string]any {
	m := object(v)
	for ref, ok := m["$ref"].(string); ok; ref, ok = m["$ref"].(string) {
		m = object(w.doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return m
}

func object(v any, names ...string) map[string]any {
	for _, n := range names {
		m, _ := v.(map[string]any)
		v = m[n]
	}
	m, _ := v.(map[string]any)
	return m
}

type namedAnswer struct {
	status int
	text   string
	body   map[string]any
}

// unknown reports whether the response rejects field as unknown, with a message that contains hint.
func (a namedAnswer) unknown(field, hint string) bool {
	fault := object(a.body, "error")
	details, _ := fault["details"].([]any)
	return a.status == http.StatusBadRequest && fault["code"] == "VALIDATION_ERROR" && slices.ContainsFunc(details, func(d any) bool {
		m := object(d)
		return m["field"] == field && m["code"] == "unknown" && strings.Contains(fmt.Sprint(m["message"]), hint)
	})
}

// ignored reports whether a successful response lists field in ignoredFields.
func (a namedAnswer) ignored(field string) bool {
	names, _ := a.body["ignoredFields"].([]any)
	return a.status < 300 && slices.Contains(names, any(field))
}

func (w *namesWorld) send(t *testing.T, method, target string, body map[string]any) namedAnswer {
	t.Helper()
	var in []byte
	if strings.Contains(target, "/captions/") && method == http.MethodPut {
		in = []byte("WEBVTT\n")
	}
	if body != nil {
		var err error
		if in, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, target, bytes.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	if w.caller != "" {
		req.Header.Set("Authorization", "Bearer "+w.caller)
	}
	if strings.HasPrefix(target, running.AdminURL) && (w.caller == w.key || w.caller == w.session) {
		req.Header.Set("Authorization", "Bearer "+running.AdminToken)
	}
	if strings.Contains(target, "/captions/") {
		req.Header.Set("Content-Type", "text/vtt")
	}
	res, err := w.c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	out := namedAnswer{status: res.StatusCode}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	out.text = fmt.Sprintf("%.600s", text)
	_ = json.Unmarshal(text, &out.body) // a response that is not an object has no ignoredFields
	return out
}
