package web_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/signin"
	"github.com/linkreel/linkreel/services/console/internal/text"
	"github.com/linkreel/linkreel/services/console/internal/web"
)

// nasty is a malicious string that a person may enter in any field.
const nasty = `"><script>alert(1)</script>`

// desk is the console with a signed-in person and an API that returns the responses in a table.
type desk struct {
	t    *testing.T
	base string

	mu      sync.Mutex
	answers map[string]answer // by "METHOD path"
	asked   []question
	etag    string   // every record's ETag; a change must match it
	next    []answer // responses to the next POSTs, which take precedence over the table
}

type answer struct {
	status int
	header string // of Link
	body   string
}

type question struct{ call, kind, body, once string } // once is the Idempotency-Key

const session = "lr_sess_0123456789012345678901234567"

func newDesk(t *testing.T, answers map[string]answer) *desk {
	t.Helper()
	d := &desk{t: t, answers: answers}
	api := httptest.NewServer(d)
	t.Cleanup(api.Close)
	c, err := web.NewAPI(map[string]string{"/": api.URL})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.base = "http://" + listener.Addr().String()
	base, _ := url.Parse(d.base)
	pages := web.New(web.Config{Base: base, API: c, Auth: owner{}, Storage: "https://storage.example"})
	app := httpapi.New(httpapi.Options{Name: "console", Page: pages.ErrorPage})
	pages.Routes(app)
	server := &fasthttp.Server{Handler: app.Handler()}
	go server.Serve(listener)
	t.Cleanup(func() { _ = server.Shutdown() })
	return d
}

// owner implements [web.Auth] for a signed-in owner.
type owner struct{}

func (owner) Call(_ context.Context, op string, _, out any) error {
	p, ok := out.(*signin.Profile)
	if op == signin.OpMethods {
		return nil
	}
	if op != signin.OpWho && op != signin.OpProfile || !ok {
		return apierr.New(apierr.NotFound, "not in this test")
	}
	p.Member = signin.Member{ID: "mem_1", Name: nasty, Role: "owner"}
	p.Account = signin.Account{ID: "acc_1", Name: nasty}
	p.Scopes = identity.Owner.Scopes().Names()
	return nil
}

func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	call := r.Method + " " + r.URL.Path
	d.mu.Lock()
	full := call
	if r.URL.RawQuery != "" {
		full += "?" + r.URL.RawQuery
	}
	d.asked = append(d.asked, question{full, r.Header.Get("Content-Type"), string(body), r.Header.Get("Idempotency-Key")})
	a, ok := d.answers[call]
	if r.Method == http.MethodPost && len(d.next) > 0 {
		a, d.next = d.next[0], d.next[1:]
	}
	d.mu.Unlock()
	if !ok {
		a = answer{404, "", `{"error":{"code":"NOT_FOUND","message":"Nothing here."}}`}
	}
	if r.Header.Get("Authorization") != "Bearer "+session {
		a = answer{401, "", `{"error":{"code":"INVALID_API_KEY","message":"Not a key."}}`}
	}
	d.mu.Lock()
	etag := d.etag
	d.mu.Unlock()
	if match := r.Header.Get("If-Match"); match != "" && match != etag {
		a = answer{412, "", `{"error":{"code":"PRECONDITION_FAILED","message":"The record has changed since you read it."}}`}
	}
	if etag != "" {
		w.Header().Set("ETag", etag)
	}
	w.Header().Set("Content-Type", "application/json")
	if a.header != "" {
		w.Header().Set("Link", a.header)
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// said returns the last request that begins with call.
func (d *desk) said(call string) question {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(d.asked) - 1; i >= 0; i-- {
		if strings.HasPrefix(d.asked[i].call, call) {
			return d.asked[i]
		}
	}
	d.t.Errorf("the API received requests %[2]v, want one that starts with %[1]s", call, d.asked)
	return question{}
}

// all returns the requests that begin with call, in order.
func (d *desk) all(call string) (found []question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.asked {
		if strings.HasPrefix(q.call, call) {
			found = append(found, q)
		}
	}
	return found
}

func (d *desk) send(method, path, kind string, body io.Reader) (*http.Response, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.base+path, body)
	if err != nil {
		d.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	req.Header.Set("Cookie", "linkreel_session="+session)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp, string(page)
}

// page gets a page and runs the checks that apply to every page.
func (d *desk) page(path string) string {
	d.t.Helper()
	resp, page := d.send("GET", path, "", nil)
	if resp.StatusCode != 200 {
		d.t.Fatalf("GET %s returned %d, want 200:\n%s", path, resp.StatusCode, page)
	}
	checkPage(d.t, path, resp, page)
	return page
}

var tokenOf = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// post submits a form on a page.
func (d *desk) post(from, path string, form url.Values) (*http.Response, string) {
	d.t.Helper()
	form.Set("csrf", d.token(from))
	return d.send("POST", path, "application/x-www-form-urlencoded", strings.NewReader(form.Encode()))
}

func (d *desk) token(from string) string {
	d.t.Helper()
	_, page := d.send("GET", from, "", nil)
	m := tokenOf.FindStringSubmatch(page)
	if m == nil {
		d.t.Fatalf("page %s has no form token", from)
	}
	return m[1]
}

var (
	idOf    = regexp.MustCompile(`\sid="([^"]*)"`)
	refOf   = regexp.MustCompile(`\s(?:for|aria-describedby|aria-labelledby)="([^"]*)"`)
	inputOf = regexp.MustCompile(`<(?:input|select|textarea)\b[^>]*>`)
)

func checkPage(t *testing.T, path string, resp *http.Response, page string) {
	t.Helper()
	csp := resp.Header.Get("Content-Security-Policy")
	if strings.Contains(csp, "unsafe") || !strings.Contains(csp, "default-src 'none'") || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("page %s has policy %q and Cache-Control %q, want no unsafe directive, default-src 'none' and no-store", path, csp, resp.Header.Get("Cache-Control"))
	}
	if n := strings.Count(page, "<h1"); n != 1 {
		t.Errorf("page %s has %d h1 elements, want 1", path, n)
	}
	for _, bad := range []string{"<script>", " style=", " onclick=", "ZgotmplZ", "%!", "&lt;nil&gt;", "[video", "[event", "[webhook", "[nav", "[domains"} {
		if strings.Contains(page, bad) {
			t.Errorf("page %s contains %q:\n%s", path, bad, page)
		}
	}
	for _, tag := range regexp.MustCompile(`<(?:button|input)\b[^>]*>`).FindAllString(page, -1) {
		if !strings.Contains(tag, " type=") {
			t.Errorf("page %s has an element that needs a type attribute: %s", path, tag)
		}
	}
	ids := map[string]bool{}
	for _, m := range idOf.FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			t.Errorf("page %s has id %q twice, want unique ids", path, m[1])
		}
		ids[m[1]] = true
	}
	labelled := map[string]bool{}
	for _, m := range refOf.FindAllStringSubmatch(page, -1) {
		for id := range strings.FieldsSeq(m[1]) {
			if !ids[id] {
				t.Errorf("page %s refers to id %q, but there is no such element", path, id)
			}
			labelled[id] = true
		}
	}
	for _, field := range inputOf.FindAllString(page, -1) {
		id := idOf.FindStringSubmatch(field)
		boxed := strings.Contains(field, `type="checkbox"`) || strings.Contains(field, `type="radio"`) // the field is inside its label
		if !boxed && !strings.Contains(field, `type="hidden"`) && (id == nil || !labelled[id[1]]) {
			t.Errorf("page %s has no label for %s", path, field)
		}
	}
}

func quoted(s string) string { b, _ := json.Marshal(s); return string(b) }

var (
	oneVideo = `{"_id":"vid_1","id":"vid_1","title":` + quoted(nasty) + `,"slug":"abc","status":"ready","privacy":"expiring","shareUrl":"https://x.example/v/abc","createdAt":1700000000000,
		"updatedAt":1700000000000,"expiresAt":1900000012345,"duration":75.4,"progress":100,"tags":["a",` + quoted(nasty) + `],"description":` + quoted(nasty) + `,"width":640,"height":360,
		"posterUrl":"https://x.example/v/abc/hls/tok/poster.jpg","playbackUrl":"https://x.example/v/abc/hls/tok/master.m3u8","downloadUrl":"https://x.example/v/abc/hls/tok/download.mp4","views":1234,
		"thumbnailTime":null,"takenDown":null}`
	oneAccess  = `{"privacy":"expiring","expiresAt":1900000012345,"allowDownload":true,"embedOrigins":["https://www.example.com"]}`
	oneWebhook = `{"id":"wh_1","url":"https://hook.example/","events":["link.created"],"description":` + quoted(nasty) + `,"enabled":true,"disabledReason":null,"createdAt":1,"updatedAt":1}`
	noPrivacy  = `{"error":{"code":"VALIDATION_ERROR","message":"One or more fields are not valid.","details":[
		{"field":"embedOrigins.1","code":"invalid_format","message":"must be an origin"},{"field":"password","code":"required","message":"is required when privacy is password"}]}}`
)

func fullDesk(t *testing.T) *desk {
	return newDesk(t, map[string]answer{
		"GET /api/v1/videos":                {200, `<https://x.example/api/v1/videos?cursor=next+one&status=ready>; rel="next"`, `{"data":[` + oneVideo + `]}`},
		"GET /api/v1/videos/vid_1":          {200, "", oneVideo},
		"GET /api/v1/videos/vid_1/access":   {200, "", oneAccess},
		"GET /api/v1/videos/vid_1/captions": {200, "", `{"data":[{"language":"de","name":"Deutsch","updatedAt":1}]}`},
		"GET /api/v1/domains":               {200, "", `{"data":[{"id":"dom_1","hostname":"go.example.com","status":"pending","records":[{"type":"TXT","name":"_linkreel.go.example.com.","value":"linkreel-verify=x"}],"createdAt":1,"verifiedAt":null,"checkedAt":5,"reason":` + quoted(nasty) + `}]}`},
		"GET /api/v1/webhooks":              {200, "", `{"data":[` + oneWebhook + `]}`},
		"GET /api/v1/webhooks/wh_1":         {200, "", oneWebhook},
		"GET /api/v1/events":                {200, "", feed()},
		"GET /api/v1/webhooks/wh_1/deliveries": {200, "", `{"data":[{"id":"whd_1","webhookId":"wh_1","event":{"id":"evt_1","type":"link.created"},"status":"pending","createdAt":1,"nextTryAt":2,
			"attempts":[{"at":1,"status":500,"duration":12,"error":null,"response":` + quoted(nasty) + `},{"at":2,"status":null,"duration":15000,"error":"no answer within 15 s","response":""}]}],"hasMore":true,"nextCursor":"older"}`},
	})
}

// feed returns a page of events with one event of each type.
func feed() string {
	var all []string
	for _, typ := range events.Types() {
		all = append(all, fmt.Sprintf(`{"id":"evt_1","type":%q,"object":"obj_1","createdAt":1700000000000,"actor":{"type":"member","id":"mem_1","name":%s},"requestId":"req","data":{"title":%s}}`, typ, quoted(nasty), quoted(nasty)))
	}
	return `{"data":[` + strings.Join(all, ",") + `],"hasMore":true,"nextCursor":"older"}`
}

var libraryPages = []string{
	"/app/videos", "/app/videos/vid_1", "/app/upload", "/app/record", "/app/domains", "/app/webhooks", "/app/webhooks/wh_1", "/app/activity", "/app/links/import",
}

func TestPagesAreWellFormedWhateverTheRecordsHold(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	for _, path := range libraryPages {
		d.page(path)
	}
	empty := newDesk(t, map[string]answer{
		"GET /api/v1/videos": {200, "", `{"data":[]}`}, "GET /api/v1/domains": {200, "", `{"data":[]}`},
		"GET /api/v1/webhooks": {200, "", `{"data":[]}`}, "GET /api/v1/events": {200, "", `{"data":[],"hasMore":false,"nextCursor":null}`},
	})
	for path, teaches := range map[string]string{
		"/app/videos": "videos.none.text", "/app/videos?q=x": "videos.nothing.text", "/app/domains": "domains.none.text", "/app/webhooks": "webhooks.none.text",
		"/app/activity": "activity.none.text", "/app/activity?object=x": "activity.nothing",
	} {
		if page := empty.page(path); !strings.Contains(page, text.Get(teaches)) {
			t.Errorf("page %s does not contain %q", path, text.Get(teaches))
		}
	}
}

func TestEveryEventHasWords(t *testing.T) {
	t.Parallel()
	page := fullDesk(t).page("/app/activity")
	for _, typ := range events.Types() {
		if !text.Has("event."+string(typ)) || !strings.Contains(page, text.Get("event."+string(typ))) {
			t.Errorf("event type %s has no text on the page", typ)
		}
	}
}

func TestFormsWithoutTokenAreRefused(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	for _, path := range []string{
		"/app/upload", "/app/videos/vid_1/edit", "/app/videos/vid_1/access", "/app/videos/vid_1/captions", "/app/videos/vid_1/captions/de/delete", "/app/videos/vid_1/thumbnail",
		"/app/videos/vid_1/delete", "/app/domains", "/app/domains/dom_1/verify", "/app/domains/dom_1/delete", "/app/webhooks", "/app/webhooks/wh_1/edit", "/app/webhooks/wh_1/enable",
		"/app/webhooks/wh_1/test", "/app/webhooks/wh_1/roll", "/app/webhooks/wh_1/delete", "/app/webhooks/wh_1/deliveries/whd_1/retry", "/app/links/import",
	} {
		if resp, _ := d.send("POST", path, "application/x-www-form-urlencoded", strings.NewReader("title=x")); resp.StatusCode != 403 {
			t.Errorf("POST %s without a token returned %d, want 403", path, resp.StatusCode)
		}
	}
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	_ = m.WriteField("lang", "en")
	_ = m.Close()
	if resp, _ := d.send("POST", "/app/videos/vid_1/captions", m.FormDataContentType(), &b); resp.StatusCode != 403 {
		t.Errorf("a multipart form without a token returned %d, want 403", resp.StatusCode)
	}
	for _, q := range d.asked {
		if !strings.HasPrefix(q.call, "GET ") {
			t.Errorf("the API got %s from a form without a token, want only GET", q.call)
		}
	}
}

func TestVideosFilterByAddressAndPageByTheLinkHeader(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	page := d.page("/app/videos?q=blue&status=ready&privacy=nonsense")
	if got := d.said("GET /api/v1/videos").call; got != "GET /api/v1/videos?q=blue&status=ready" {
		t.Errorf("the API got %s, want the page's filters", got)
	}
	if !strings.Contains(page, `href="/app/videos?cursor=next&#43;one&amp;q=blue&amp;status=ready"`) {
		t.Errorf("the page has no link to the next page with the same filters:\n%s", page)
	}
}

func TestVideoPlaysFromThisHost(t *testing.T) {
	t.Parallel()
	page := fullDesk(t).page("/app/videos/vid_1")
	for _, want := range []string{
		`<source src="/v/abc/hls/tok/download.mp4" type="video/mp4">`, `src="/v/abc/hls/tok/captions-de.vtt"`, `poster="/v/abc/hls/tok/poster.jpg"`, "1:15", "1,234", `value="2030-03-17T17:46"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %s:\n%s", want, page)
		}
	}
}

// A missing URL must not become a link to the console's root.
func TestAVideoWithoutFilesLinksNone(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["GET /api/v1/videos/vid_1"] = answer{200, "", `{"_id":"vid_1","title":"t","status":"ready","privacy":"public","tags":[],"shareUrl":"https://x.example/v/abc","posterUrl":null,"playbackUrl":null,"downloadUrl":null}`}
	page := d.page("/app/videos/vid_1")
	for _, bad := range []string{`src="/"`, `href="/"`, `poster=`, `src=""`, `href=""`, "storyboard", text.Get("video.download")} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %s, want no link to a missing file:\n%s", bad, page)
		}
	}
}

func TestVideoThatIsNotReadySaysWhy(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]string{
		"uploading":  text.Get("video.status.uploading"),
		"processing": `value="40"`,
		"failed":     "There is no picture in the file.",
	} {
		d := fullDesk(t)
		d.answers["GET /api/v1/videos/vid_1"] = answer{200, "", `{"_id":"vid_1","status":"` + status + `","privacy":"public","progress":40,"tags":[],"error":{"code":"NOT_A_VIDEO","message":"There is no picture in the file."}}`}
		if status != "failed" {
			d.answers["GET /api/v1/videos/vid_1"] = answer{200, "", `{"_id":"vid_1","status":"` + status + `","privacy":"public","progress":40,"tags":[]}`}
		}
		if page := d.page("/app/videos/vid_1"); !strings.Contains(page, want) || strings.Contains(page, "<video") {
			t.Errorf("status %s: the page does not contain %q or has a player:\n%s", status, want, page)
		}
		if resp, body := d.send("GET", "/app/videos/vid_1/status", "", nil); resp.StatusCode != 200 || !strings.Contains(body, `"status":"`+status+`"`) {
			t.Errorf("the status request returned %d %s, want 200 and the video's status", resp.StatusCode, body)
		}
	}
}

func TestAccessSendsWhatTheChosenPrivacyNeeds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		form string
		want string
	}{
		"public removes password and expiry":   {"privacy=public&password=secret&expiresAt=2030-03-17T17:46&allowDownload=true", `{"privacy":"public","allowDownload":true,"embedOrigins":[]}`},
		"empty password keeps the current one": {"privacy=password&password=&embedOrigins=https://a.example%0D%0A%0D%0Ahttps://b.example", `{"privacy":"password","allowDownload":false,"embedOrigins":["https://a.example","https://b.example"]}`},
		"new password":                         {"privacy=password&password=+p+", `{"privacy":"password","password":" p ","allowDownload":false,"embedOrigins":[]}`},
		"unchanged expiry":                     {"privacy=expiring&expiresAt=2030-03-17T17:46", `{"privacy":"expiring","expiresAt":1900000012345,"allowDownload":false,"embedOrigins":[]}`},
		"new expiry in UTC":                    {"privacy=expiring&expiresAt=2030-03-17T17:47", `{"privacy":"expiring","expiresAt":1900000020000,"allowDownload":false,"embedOrigins":[]}`},
		"new expiry with seconds":              {"privacy=expiring&expiresAt=2030-03-17T17:47:00", `{"privacy":"expiring","expiresAt":1900000020000,"allowDownload":false,"embedOrigins":[]}`},
		"new expiry with a fraction":           {"privacy=expiring&expiresAt=2030-03-17T17:47:00.000", `{"privacy":"expiring","expiresAt":1900000020000,"allowDownload":false,"embedOrigins":[]}`},
		"new expiry with a script":             {"privacy=expiring&expiresAt=2030-03-17T19:47&expiresAtMs=1900000080000", `{"privacy":"expiring","expiresAt":1900000080000,"allowDownload":false,"embedOrigins":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := fullDesk(t)
			d.answers["PUT /api/v1/videos/vid_1/access"] = answer{200, "", oneAccess}
			form, err := url.ParseQuery(tc.form)
			if err != nil {
				t.Fatal(err)
			}
			resp, _ := d.post("/app/videos/vid_1", "/app/videos/vid_1/access", form)
			if resp.StatusCode != 303 || resp.Header.Get("Location") != "/app/videos/vid_1?done=access" {
				t.Errorf("got %d with location %s, want 303 and the video's page", resp.StatusCode, resp.Header.Get("Location"))
			}
			if got := d.said("PUT ").body; got != tc.want {
				t.Errorf("sent %s, want %s", got, tc.want)
			}
		})
	}
}

func TestRefusedAccessShowsTheReasonsAndNotThePassword(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["PUT /api/v1/videos/vid_1/access"] = answer{400, "", noPrivacy}
	resp, page := d.post("/app/videos/vid_1", "/app/videos/vid_1/access", url.Values{"privacy": {"password"}, "password": {"hunter2hunter2"}, "embedOrigins": {"https://ok.example\r\nnonsense"}})
	if resp.StatusCode != 400 || strings.Contains(page, "hunter2") {
		t.Errorf("got %d, or the page contains the password; want 400 without the password", resp.StatusCode)
	}
	checkPage(t, "access", resp, page)
	for _, want := range []string{
		"Value 2: Must be an origin", "Is required when privacy is password", "nonsense</textarea>", `<option value="password" selected>`, `id="password-error"`, `aria-describedby="password-hint password-error" aria-invalid="true"`,
		`value="a, &#34;&gt;`, // the other form shows the stored values
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s\n%s", want, page)
		}
	}
}

func TestAnEndInThePastIsRefusedInWords(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["PUT /api/v1/videos/vid_1/access"] = answer{400, "", `{"error":{"code":"VALIDATION_ERROR","message":"x","details":[{"field":"expiresAt","code":"out_of_range","message":"must be a time in the future, in milliseconds"}]}}`}
	for typed, want := range map[string]string{"2020-01-01T10:00": text.Get("video.expires.past"), "soon": html.EscapeString(text.Get("form.time"))} {
		resp, page := d.post("/app/videos/vid_1", "/app/videos/vid_1/access", url.Values{"privacy": {"expiring"}, "expiresAt": {typed}})
		if resp.StatusCode != 400 || !strings.Contains(page, `id="expiresAt-error">`+want) {
			t.Errorf("expiry %s: got %d, want 400 and error %q:\n%s", typed, resp.StatusCode, want, page)
		}
	}
}

func TestCaptionsAreSentAsTheyAre(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["PUT /api/v1/videos/vid_1/captions/pt-BR"] = answer{200, "", `{}`}
	send := func(lang, file string) (*http.Response, string) {
		var b bytes.Buffer
		m := multipart.NewWriter(&b)
		_ = m.WriteField("csrf", d.token("/app/videos/vid_1"))
		_ = m.WriteField("lang", lang)
		if file != "" {
			w, _ := m.CreateFormFile("file", "x.vtt")
			_, _ = io.WriteString(w, file)
		}
		_ = m.Close()
		return d.send("POST", "/app/videos/vid_1/captions", m.FormDataContentType(), &b)
	}
	if resp, page := send("pt-BR", "WEBVTT\n\n"); resp.StatusCode != 303 {
		t.Errorf("setting captions returned %d, want 303:\n%s", resp.StatusCode, page)
	}
	if q := d.said("PUT "); q.body != "WEBVTT\n\n" || q.kind != "text/vtt" {
		t.Errorf("sent %q as %s, want the uploaded file as text/vtt", q.body, q.kind)
	}
	for _, bad := range [][2]string{{"", "WEBVTT"}, {"..", "WEBVTT"}, {"../x", "WEBVTT"}, {"en", ""}} {
		resp, page := send(bad[0], bad[1])
		checkPage(t, "captions", resp, page)
		if resp.StatusCode != 400 || !strings.Contains(page, "-error") {
			t.Errorf("setting captions for language %q returned %d, want 400 with an error", bad, resp.StatusCode)
		}
	}
	d.answers["PUT /api/v1/videos/vid_1/captions/en"] = answer{400, "", `{"error":{"code":"VALIDATION_ERROR","message":"x","details":[{"field":"body","message":"The body is not a WebVTT file in UTF-8."}]}}`}
	if _, page := send("en", "nonsense"); !strings.Contains(page, `id="file-error">The body is not a WebVTT file`) {
		t.Errorf("the error is not shown next to the file field:\n%s", page)
	}
}

func TestThumbnailTakesClockTimes(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["PUT /api/v1/videos/vid_1/thumbnail"] = answer{200, "", `{}`}
	for typed, want := range map[string]string{"12.5": `{"time":12.5}`, "1:02": `{"time":62}`, "1:00:01": `{"time":3601}`} {
		d.post("/app/videos/vid_1", "/app/videos/vid_1/thumbnail", url.Values{"time": {typed}})
		if got := d.said("PUT ").body; got != want {
			t.Errorf("time %s: sent %s, want %s", typed, got, want)
		}
	}
	d.post("/app/videos/vid_1", "/app/videos/vid_1/thumbnail", url.Values{"time": {"3"}, "ours": {"1"}})
	if got := d.said("PUT ").body; got != `{"time":null}` {
		t.Errorf("restoring the automatic thumbnail sent %s, want a null time", got)
	}
	for _, typed := range []string{"", "x", "1:2:3:4", "-1", "1e9", "NaN"} {
		if resp, _ := d.post("/app/videos/vid_1", "/app/videos/vid_1/thumbnail", url.Values{"time": {typed}}); resp.StatusCode != 400 {
			t.Errorf("setting the thumbnail to %q returned %d, want 400", typed, resp.StatusCode)
		}
	}
}

func TestUploadAnswersItsScript(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["POST /api/v1/videos"] = answer{201, "", `{"videoId":"vid_2","slug":"s","uploadUrl":"https://storage.example/put","resumableUploadUrl":"https://storage.example/resume","shareUrl":"https://x.example/v/s"}`}
	resp, body := d.post("/app/upload", "/app/upload", url.Values{"title": {"Film"}, "privacy": {"password"}})
	var got map[string]string
	if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != 201 || got["id"] != "vid_2" || got["put"] == "" || got["resume"] == "" || got["share"] == "" {
		t.Errorf("starting an upload returned %d and %s, want 201 with the ID and the URLs", resp.StatusCode, body)
	}
	if sent := d.said("POST ").body; sent != `{"title":"Film","privacy":"unlisted"}` {
		t.Errorf("the request body is %s, want the title and privacy unlisted", sent)
	}
	d.answers["POST /api/v1/videos"] = answer{403, "", `{"error":{"code":"PLAN_REQUIRED","message":"This needs the creator plan."}}`}
	if resp, body = d.post("/app/upload", "/app/upload", url.Values{}); resp.StatusCode != 403 || body != `{"error":"This needs the creator plan."}` {
		t.Errorf("a refused upload returned %d and %s, want 403 with the reason", resp.StatusCode, body)
	}
	resp, page := d.send("GET", "/app/upload", "", nil)
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "connect-src 'self' https://storage.example;") {
		t.Errorf("the policy does not allow connections to storage: %s", csp)
	}
	if !strings.Contains(page, `<label for="video">Video</label>`) || !strings.Contains(page, "<noscript>") {
		t.Errorf("the page lacks the Video field or a message for browsers without scripts:\n%s", page)
	}
}

func TestDomainsSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["POST /api/v1/domains"] = answer{400, "", `{"error":{"code":"VALIDATION_ERROR","message":"x","details":[{"field":"hostname","message":"Use a host name."}]}}`}
	resp, page := d.post("/app/domains", "/app/domains", url.Values{"hostname": {" nonsense "}})
	checkPage(t, "domains", resp, page)
	if resp.StatusCode != 400 || !strings.Contains(page, `id="hostname-error">Use a host name.`) || d.said("POST ").body != `{"hostname":"nonsense"}` {
		t.Errorf("an invalid host name returned %d, want 400 with the error next to the field:\n%s", resp.StatusCode, page)
	}
	d.answers["POST /api/v1/domains/dom_1/verify"] = answer{200, "", `{"id":"dom_1","hostname":"go.example.com","status":"pending","reason":"There is no TXT record."}`}
	if resp, page = d.post("/app/domains", "/app/domains/dom_1/verify", url.Values{}); resp.StatusCode != 409 || !strings.Contains(page, "go.example.com: There is no TXT record.") {
		t.Errorf("a failed verification returned %d, want 409 with the reason:\n%s", resp.StatusCode, page)
	}
	d.answers["DELETE /api/v1/domains/dom_1"] = answer{409, "", `{"error":{"code":"DOMAIN_IN_USE","message":"Links use this domain."}}`}
	if resp, page = d.post("/app/domains", "/app/domains/dom_1/delete", url.Values{}); resp.StatusCode != 409 || !strings.Contains(page, "Links use this domain.") {
		t.Errorf("deleting a domain in use returned %d, want 409 with the reason:\n%s", resp.StatusCode, page)
	}
}

func TestWebhookSecretsAreShownOnce(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	made := strings.TrimSuffix(oneWebhook, "}") + `,"secret":"whsec_abc"}`
	d.answers["POST /api/v1/webhooks"] = answer{201, "", made}
	d.answers["POST /api/v1/webhooks/wh_1/roll-secret"] = answer{200, "", made}
	resp, page := d.post("/app/webhooks", "/app/webhooks", url.Values{"url": {"https://hook.example/"}, "events": {"link.created", "video.ready"}, "description": {"d"}})
	checkPage(t, "create", resp, page)
	if resp.StatusCode != 200 || !strings.Contains(page, `<code class="mono">whsec_abc</code>`) || d.said("POST ").body != `{"description":"d","events":["link.created","video.ready"],"url":"https://hook.example/"}` {
		t.Errorf("got %d and the request body %s, want 200, the secret and the form's values:\n%s", resp.StatusCode, d.said("POST ").body, page)
	}
	resp, page = d.post("/app/webhooks/wh_1", "/app/webhooks/wh_1/roll", url.Values{"overlap": {"3600"}})
	checkPage(t, "roll", resp, page)
	if !strings.Contains(page, "whsec_abc") || d.said("POST ").body != `{"overlapSeconds":3600}` {
		t.Errorf("rolling the secret returned %d, want the new secret and an overlap of an hour:\n%s", resp.StatusCode, page)
	}
	for _, path := range []string{"/app/webhooks", "/app/webhooks/wh_1"} {
		if strings.Contains(d.page(path), "whsec_") {
			t.Errorf("page %s shows the secret again, want it only once", path)
		}
	}
}

// A new secret is shown only once, so the response shows it even if the rest of the page
// cannot be loaded.
func TestANewSecretIsShownWhenItsPageCannotBeRead(t *testing.T) {
	t.Parallel()
	hook := strings.TrimSuffix(oneWebhook, "}") + `,"secret":"s3cret"}`
	for _, c := range []struct{ name, ask, made, unread, path, home string }{
		{"key", "POST /api/v1/keys", `{"key":"s3cret","name":"k"}`, "/api/v1/keys", "/app/keys", "/app/keys"},
		{"invitation", "POST /api/v1/invitations", `{"url":"s3cret","name":"n"}`, "/api/v1/members", "/app/members/invite", "/app/members"},
		{"webhook", "POST /api/v1/webhooks", hook, "/api/v1/webhooks", "/app/webhooks", "/app/webhooks/wh_1"},
		{"rolled", "POST /api/v1/webhooks/wh_1/roll-secret", hook, "/api/v1/webhooks/wh_1/deliveries", "/app/webhooks/wh_1/roll", "/app/webhooks/wh_1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := fullDesk(t)
			d.answers[c.ask] = answer{201, "", c.made}
			d.answers["GET "+c.unread] = answer{500, "", `{"error":{"code":"INTERNAL_ERROR","message":"x"}}`}
			resp, page := d.post("/app/domains", c.path, url.Values{})
			checkPage(t, c.path, resp, page)
			if resp.StatusCode != 200 || !strings.Contains(page, `<code class="mono">s3cret</code>`) || !strings.Contains(page, text.Get("secret.alone")) || !strings.Contains(page, `href="`+c.home+`">`+text.Get("secret.list")) {
				t.Errorf("the response is %d, want 200 with the secret and a link to the list:\n%s", resp.StatusCode, page)
			}
			d.answers[c.ask] = answer{400, "", `{"error":{"code":"VALIDATION_ERROR","message":"x"}}`}
			if resp, page := d.post("/app/domains", c.path, url.Values{}); resp.StatusCode < 500 || strings.Contains(page, text.Get("secret.title")) {
				t.Errorf("after a failed create, got %d, want an error without a secret:\n%s", resp.StatusCode, page)
			}
		})
	}
}

// While webhooks are paused after a restore, nothing is sent, so the page neither offers to send a
// message nor shows the time of the next retry.
func TestAPausedWebhookOffersNothingToSend(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	shown := []string{"/app/webhooks/wh_1/test", "/app/webhooks/wh_1/deliveries/whd_1/retry", text.Get("webhook.next")}
	page := d.page("/app/webhooks/wh_1")
	for _, part := range shown {
		if !strings.Contains(page, part) {
			t.Errorf("a webhook's page lacks %q", part)
		}
	}
	d.answers["GET /api/v1/webhooks/wh_1"] = answer{200, "", strings.TrimSuffix(oneWebhook, "}") + `,"paused":true}`}
	page = d.page("/app/webhooks/wh_1")
	for _, part := range shown {
		if strings.Contains(page, part) {
			t.Errorf("a paused webhook's page contains %q", part)
		}
	}
	if !strings.Contains(page, text.Get("webhook.paused")) {
		t.Errorf("the page does not say that the webhook is paused:\n%s", page)
	}
}

// The form does not show the password, so only the note can tell people that an older one is valid
// again.
func TestARestoredRuleSaysWhichPasswordIsValid(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["GET /api/v1/videos/vid_1"] = answer{200, "", strings.TrimSuffix(oneVideo, "}") + `,"accessRestoredAt":1700000000000}`}
	note, password := text.Get("video.access.restored"), text.Get("video.access.oldpassword")
	if page := d.page("/app/videos/vid_1"); !strings.Contains(page, note) || strings.Contains(page, password) {
		t.Errorf("the page for a video without a password lacks the note about the rule or has the one about the password:\n%s", page)
	}
	d.answers["GET /api/v1/videos/vid_1/access"] = answer{200, "", `{"privacy":"password","allowDownload":true,"embedOrigins":[]}`}
	if page := d.page("/app/videos/vid_1"); !strings.Contains(page, note) || !strings.Contains(page, password) {
		t.Errorf("the page for a video with a password lacks the note about the rule or the password:\n%s", page)
	}
}

func TestWebhookChoices(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["PATCH /api/v1/webhooks/wh_1"] = answer{400, "", `{"error":{"code":"VALIDATION_ERROR","message":"x","details":[{"field":"url","message":"use https"},{"field":"events.0","message":"There is no event type with this name."}]}}`}
	resp, page := d.post("/app/webhooks/wh_1", "/app/webhooks/wh_1/edit", url.Values{"url": {"http://x"}, "events": {"video.ready"}, "description": {"typed"}})
	checkPage(t, "edit", resp, page)
	for _, want := range []string{`id="url-error">Use https`, "Value 1: There is no event type", `value="typed"`, `name="events[]" value="video.ready" checked`} {
		if resp.StatusCode != 400 || !strings.Contains(page, want) {
			t.Errorf("got %d, or the page lacks %s:\n%s", resp.StatusCode, want, page)
		}
	}
	d.answers["PATCH /api/v1/webhooks/wh_1"] = answer{200, "", oneWebhook}
	d.post("/app/webhooks/wh_1", "/app/webhooks/wh_1/edit", url.Values{"url": {"https://x"}, "all": {"true"}, "events": {"video.ready"}})
	if got := d.said("PATCH ").body; got != `{"description":"","events":["*"],"url":"https://x"}` {
		t.Errorf("the request body is %s, want all events and an empty description", got)
	}
	d.post("/app/webhooks/wh_1", "/app/webhooks/wh_1/enable", url.Values{"enabled": {"false"}})
	if got := d.said("PATCH ").body; got != `{"enabled":false}` {
		t.Errorf("the request body is %s, want only enabled false", got)
	}
	d.answers["POST /api/v1/webhooks/wh_1/test"] = answer{409, "", `{"error":{"code":"WEBHOOK_DISABLED","message":"Enable it first."}}`}
	resp, page = d.post("/app/webhooks/wh_1", "/app/webhooks/wh_1/test", url.Values{})
	if resp.StatusCode != 409 || !strings.Contains(page, "Enable it first.") || !strings.Contains(page, `value="https://hook.example/"`) {
		t.Errorf("testing a disabled webhook returned %d, want 409 with the reason and the form:\n%s", resp.StatusCode, page)
	}
	d.answers["POST /api/v1/webhooks/wh_1/deliveries/whd_1/retry"] = answer{202, "", `{}`}
	if resp, _ = d.post("/app/webhooks/wh_1", "/app/webhooks/wh_1/deliveries/whd_1/retry", url.Values{}); resp.Header.Get("Location") != "/app/webhooks/wh_1?done=webhook.retry" {
		t.Errorf("retrying a delivery returned %d with location %s, want a redirect to the webhook", resp.StatusCode, resp.Header.Get("Location"))
	}
}

func TestActivityFiltersByAddress(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	page := d.page("/app/activity?type=link.created&object=lnk_1")
	if got := d.said("GET /api/v1/events").call; got != "GET /api/v1/events?object=lnk_1&type=link.created" {
		t.Errorf("the API got %s, want the page's filters", got)
	}
	if !strings.Contains(page, `href="/app/activity?cursor=older&amp;object=lnk_1&amp;type=link.created"`) {
		t.Errorf("the page has no link to older events with the same filters:\n%s", page)
	}
	d.page("/app/activity?type=nonsense")
	if got := d.said("GET /api/v1/events").call; got != "GET /api/v1/events" {
		t.Errorf("the API got %s, want no filter", got)
	}
}

func TestImportShowsWhatBecameOfEachRow(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["POST /api/v1/links/bulk"] = answer{207, "", `{"results":[{"status":201,"data":{"id":"lnk_1","shortUrl":"https://s.example/a"}},
		{"status":409,"error":{"code":"SLUG_TAKEN","message":"The slug is taken.","url":"https://b.example"}}]}`}
	resp, page := d.post("/app/links/import", "/app/links/import", url.Values{"csv": {"Tags, URL ,nonsense,slug\n\"a;b\",https://a.example,x,\n,https://b.example,,taken\n"}})
	checkPage(t, "import", resp, page)
	if got := d.said("POST ").body; got != `{"urls":[{"url":"https://a.example","tags":["a","b"]},{"url":"https://b.example","slug":"taken"}]}` {
		t.Errorf("the request body is %s, want both links with the mapped columns", got)
	}
	for _, want := range []string{`href="/app/links/lnk_1">https://s.example/a`, "The slug is taken."} {
		if resp.StatusCode != 200 || !strings.Contains(page, want) {
			t.Errorf("got %d, or the page lacks %s:\n%s", resp.StatusCode, want, page)
		}
	}
	d.post("/app/links/import", "/app/links/import", url.Values{"csv": {"https://a.example\tsale\tSummer, sale"}})
	if got := d.said("POST ").body; got != `{"urls":[{"url":"https://a.example","slug":"sale","title":"Summer, sale"}]}` {
		t.Errorf("the request body is %s, want one link from the table without a header", got)
	}
	for _, bad := range []string{"", "  \n", "\"unclosed,x\nhttps://a.example", strings.Repeat("https://a.example\n", 501), "url,slug\n"} {
		resp, page := d.post("/app/links/import", "/app/links/import", url.Values{"csv": {bad}})
		if resp.StatusCode != 400 || !strings.Contains(page, `id="csv-error"`) {
			t.Errorf("importing %.30q returned %d, want 400 with an error", bad, resp.StatusCode)
		}
	}
	d.answers["POST /api/v1/links/bulk"] = answer{403, "", `{"error":{"code":"PLAN_REQUIRED","message":"This needs the business plan."}}`}
	if resp, page := d.post("/app/links/import", "/app/links/import", url.Values{"csv": {"https://a.example"}}); resp.StatusCode != 403 || !strings.Contains(page, "This needs the business plan.") {
		t.Errorf("a refused import returned %d, want 403 with the reason:\n%s", resp.StatusCode, page)
	}
}

var hrefOf = regexp.MustCompile(`download="failed-links.csv" href="data:text/csv;charset=utf-8;base64,([^"]*)"`)

// savedRows returns the table that an import page offers as a download, or "" if there is
// none.
func savedRows(t *testing.T, page string) string {
	t.Helper()
	m := hrefOf.FindStringSubmatch(page)
	if m == nil {
		return ""
	}
	table, err := base64.StdEncoding.DecodeString(html.UnescapeString(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return string(table)
}

var (
	fieldOf = regexp.MustCompile(`(?s)<(?:input|textarea)\b([^>]*)>([^<]*)`)
	nameOf  = regexp.MustCompile(`\sname="([^"]*)"`)
	valueOf = regexp.MustCompile(`\svalue="([^"]*)"`)
)

// mendingForm returns the values that a browser would send from the form for failed rows.
func mendingForm(page string) url.Values {
	_, part, _ := strings.Cut(page, `name="rowCount"`)
	part, _, _ = strings.Cut(`<input name="rowCount"`+part, "</form>")
	form := url.Values{}
	if m := regexp.MustCompile(`name="once" value="([^"]*)"`).FindStringSubmatch(page); m != nil {
		form.Set("once", m[1])
	}
	for _, m := range fieldOf.FindAllStringSubmatch(part, -1) {
		name := nameOf.FindStringSubmatch(m[1])
		if name == nil || strings.Contains(m[1], "checkbox") {
			continue
		}
		value := m[2]
		if v := valueOf.FindStringSubmatch(m[1]); v != nil {
			value = v[1]
		}
		form.Set(name[1], strings.ReplaceAll(html.UnescapeString(value), "\n", "\r\n")) // as browsers normalize line breaks
	}
	return form
}

// People correct failed rows in a form or in a CSV file, and only those rows are sent again.
func TestFailedRowsAreCorrectedAndSentAlone(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["POST /api/v1/links/bulk"] = answer{207, "", `{"results":[{"status":201,"data":{"id":"lnk_1","shortUrl":"https://s.example/a"}},
		{"status":409,"error":{"code":"SLUG_TAKEN","message":"The slug is taken."}},
		{"status":400,"error":{"code":"VALIDATION_ERROR","message":"x","details":[{"field":"rules.0.url","code":"invalid_format","message":"Use http."}]}}]}`}
	const table = "url,slug,title,maxClicks,rules,domainId\nhttps://a.example,a,,,,\n" +
		"https://b.example,taken,\" =1, \"\"x\"\"\nand " + nastyCell + "\",7,,\nhttps://c.example,,,many,,\n" +
		`https://d.example,,,,"[{""name"":""r"",""when"":{""device"":[""phone""]},""url"":""ftp://d""}]",dom_7` + "\n"
	resp, page := d.post("/app/links/import", "/app/links/import", url.Values{"csv": {table}})
	checkPage(t, "import", resp, page)
	first := d.said("POST ").body
	for _, want := range []string{
		`id="rows-0-slug-error">The slug is taken.`, `id="rows-1-maxClicks-error">maxClicks must be a whole number`, `id="rows-2-rules-error">rules.0.url: Use http.`,
		`aria-invalid="true"`, "Row 5: https://c.example",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s\n%s", want, page)
		}
	}
	form := mendingForm(page)
	if got := form.Get("rowCount"); got != "3" || strings.Contains(page, `value="https://a.example"`) {
		t.Errorf("the form has %s rows, want 3, without the row that was created:\n%s", got, page)
	}
	file := savedRows(t, page)
	if !strings.HasPrefix(file, "url,slug,") || strings.Contains(file, "a.example") || !strings.Contains(file, "' =1,") {
		t.Errorf("the file has additional rows or unescaped formulas, want only the failed rows and escaped formulas:\n%s", file)
	}

	// Without corrections, the form and the file send the failed rows unchanged, without the
	// row that was created.
	want := `{"urls":[` + first[strings.Index(first, `},{`)+2:]
	d.post("/app/links/import", "/app/links/import", form)
	if got := d.said("POST ").body; got != want {
		t.Errorf("the form sent %s, want %s", got, want)
	}
	d.post("/app/links/import", "/app/links/import", url.Values{"csv": {file}})
	if got := d.said("POST ").body; got != want {
		t.Errorf("the file sent %s, want %s", got, want)
	}

	form.Set("rows.0.slug", " free ")
	form.Set("rows.1.maxClicks", "5")
	form.Set("rows.2.leave", "true")
	d.answers["POST /api/v1/links/bulk"] = answer{201, "", `{"results":[{"status":201,"data":{"id":"lnk_2"}},{"status":201,"data":{"id":"lnk_3"}}]}`}
	resp, page = d.post("/app/links/import", "/app/links/import", form)
	checkPage(t, "import", resp, page)
	var sent struct {
		URLs []struct{ URL, Slug, Title, DomainID string }
	}
	if err := json.Unmarshal([]byte(d.said("POST ").body), &sent); err != nil || len(sent.URLs) != 2 || sent.URLs[0].Slug != "free" ||
		sent.URLs[0].Title != " =1, \"x\"\nand "+nastyCell || sent.URLs[1].URL != "https://c.example" || sent.URLs[1].DomainID != "default" {
		t.Errorf("the request contains (error %v) %+v, want the two corrected rows", err, sent)
	}
	if savedRows(t, page) != "" || strings.Contains(page, "rowCount") {
		t.Errorf("the page has a form for failed rows even though none failed:\n%s", page)
	}

	// If the whole request is rejected, the form keeps the typed values.
	d.answers["POST /api/v1/links/bulk"] = answer{403, "", `{"error":{"code":"QUOTA_EXCEEDED","message":"The account is full."}}`}
	resp, page = d.post("/app/links/import", "/app/links/import", form)
	checkPage(t, "import", resp, page)
	if kept := mendingForm(page); resp.StatusCode != 403 || !strings.Contains(page, "The account is full.") || kept.Get("rows.0.slug") != "free" ||
		kept.Get("rowCount") != "2" || kept.Get("once") != form.Get("once") {
		t.Errorf("got %d, and the form has %v; want the error and the same rows and keys:\n%s", resp.StatusCode, kept, page)
	}
}

// nastyCell is the end of a cell. It must pass through HTML and CSV unchanged.
const nastyCell = `</textarea><script>alert(1)</script>`

// A request without a response may have created its links. Its rows are sent again as the
// same request, so the API does not create any links twice. The same applies if a browser submits a
// form again.
func TestAnImportIsRepeatedUnderItsKeys(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	var table strings.Builder
	table.WriteString("url,title\nhttps://bad.example,\"")
	table.WriteString(strings.Repeat("x", 10) + "\"\n")
	for i := range 230 {
		fmt.Fprintf(&table, "https://a.example/%d,T\n", i)
	}
	results := func(status string, n int) string {
		return `{"results":[` + strings.TrimSuffix(strings.Repeat(status+",", n), ",") + `]}`
	}
	const made = `{"status":201,"data":{"id":"lnk_1","shortUrl":"https://s.example/a"}}`
	const refused = `{"status":400,"error":{"code":"VALIDATION_ERROR","message":"No."}}`
	d.answers["POST /api/v1/links/bulk"] = answer{207, "", results(made, 100)}
	d.next = []answer{{207, "", `{"results":[` + refused + "," + strings.TrimPrefix(results(made, 99), `{"results":[`)}, {503, "", `{"error":{"code":"UNAVAILABLE","message":"Away."}}`}}
	form := url.Values{"csv": {table.String()}, "once": {"first"}}
	_, page := d.post("/app/links/import", "/app/links/import", form)
	sent := d.all("POST /api/v1/links/bulk")
	if len(sent) != 2 || sent[0].once == "" || sent[0].once == sent[1].once {
		t.Fatalf("sent %d requests: %v; want two with different keys", len(sent), sent)
	}
	// The form can contain only the lost request's hundred rows. The file contains all failed
	// rows.
	mending := mendingForm(page)
	if got := strings.Count(savedRows(t, page), "\n") - 1; mending.Get("rowCount") != "100" || got != 132 || strings.Count(page, html.EscapeString(text.Get("import.lost"))) != 200 {
		t.Errorf("the form has %s rows and the file %d, want 100 and 132:\n%.3000s", mending.Get("rowCount"), got, page)
	}

	// The browser sends the table again, with the same keys.
	d.next = []answer{{207, "", results(made, 100)}, {503, "", `{"error":{"code":"UNAVAILABLE","message":"Away."}}`}}
	d.post("/app/links/import", "/app/links/import", form)
	if again := d.all("POST /api/v1/links/bulk")[2:]; len(again) != 2 || again[0] != sent[0] || again[1] != sent[1] {
		t.Errorf("submitting the form again sent %v, want the same requests with the same keys: %v", again, sent)
	}
	// Only the lost request is repeated.
	d.post("/app/links/import", "/app/links/import", mending)
	if third := d.all("POST /api/v1/links/bulk")[4:]; len(third) != 1 || third[0] != sent[1] {
		t.Errorf("the form for failed rows sent %v, want only the lost request %v", third, sent[1])
	}
	// A request with a changed row is a different request.
	mending.Set("rows.5.title", "U")
	d.post("/app/links/import", "/app/links/import", mending)
	if fourth := d.all("POST /api/v1/links/bulk")[5:]; len(fourth) != 1 || fourth[0].once == sent[1].once {
		t.Errorf("the changed request is %v, want a different key from the first", fourth)
	}
}

func TestImportCreatesNothingIfTheDomainsCannotBeRead(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["POST /api/v1/links/bulk"] = answer{207, "", `{"results":[{"status":201,"data":{"id":"lnk_1","shortUrl":"https://s.example/a"}}]}`}
	table := url.Values{"csv": {"url,shortUrl\nhttps://a.example,https://go.example/a\n"}}
	for _, refused := range []answer{
		{429, "", `{"error":{"code":"RATE_LIMITED","message":"Too many requests."}}`},
		{503, "", `{"error":{"code":"UNAVAILABLE","message":"Try again later."}}`},
	} {
		d.answers["GET /api/v1/domains"] = refused
		resp, page := d.post("/app/links/import", "/app/links/import", table)
		// This must be the last request to the API: links must not be sent after it.
		if got := d.said("").call; resp.StatusCode != refused.status || got != "GET /api/v1/domains?limit=100" {
			t.Errorf("got %d and the last request %q, want the error from the domains request and no later request:\n%s", resp.StatusCode, got, page)
		}
	}
	d.answers["GET /api/v1/domains"] = answer{403, "", `{"error":{"code":"FORBIDDEN","message":"No scope."}}`}
	if resp, page := d.post("/app/links/import", "/app/links/import", table); resp.StatusCode != 200 || !strings.Contains(page, "https://s.example/a") {
		t.Errorf("without the scope for domains, the import returned %d, want 200 and the created link:\n%s", resp.StatusCode, page)
	}
}

func TestHomeSaysWhatToDoWhereBrowsersAllowNoPasskeys(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil) // on http, with an IP address as its host
	page := d.page("/app")
	for _, want := range []string{text.Get("home.back"), html.EscapeString(text.Get("home.back.http")), text.Get("home.back.ask")} {
		if !strings.Contains(page, want) {
			t.Errorf("the home page does not contain %q", want)
		}
	}
	if strings.Contains(page, "data-passkey") {
		t.Error("the home page offers a passkey, which browsers would reject")
	}
}

func TestSettingsSayWhyTheDefaultDomainTakesNoLinks(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"null": "", `"dom_2"`: "", `"dom_1"`: "settings.domain.lapsed", `"dom_gone"`: "settings.domain.gone"} {
		d := fullDesk(t)
		d.answers["GET /api/v1/account"] = answer{200, "", `{"id":"acc_1","name":"A","plan":"business","defaultDomainId":` + id + `}`}
		d.answers["GET /api/v1/domains"] = answer{200, "", `{"data":[{"id":"dom_1","hostname":"old.example.com","status":"failing"},{"id":"dom_2","hostname":"go.example.com","status":"verified"}]}`}
		page := d.page("/app/settings")
		for _, problem := range []string{"settings.domain.lapsed", "settings.domain.gone"} {
			if got := strings.Contains(page, html.EscapeString(text.Get(problem))); got != (problem == want) {
				t.Errorf("default domain %s: text %s is shown: %v, want the opposite:\n%s", id, problem, got, page)
			}
		}
		if listed := strings.Contains(page, `<option value="dom_1"`); listed != (id == `"dom_1"`) {
			t.Errorf("default domain %s: the unverified domain is listed: %v, want it only if it is the default", id, listed)
		}
	}
}
