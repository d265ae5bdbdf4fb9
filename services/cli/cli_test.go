package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// fake implements the part of the API that the commands need: bulk link creates with idempotency
// keys, and a video with an upload session that can break.
type fake struct {
	mu       sync.Mutex
	links    []map[string]any
	slugs    map[string]bool
	replies  map[string][]byte
	requests []string
	plan     string
	after    func(request string) // called after a request has taken effect

	checks, proven int // number of domain checks so far, and the number of the check that finds the record

	videos   int
	got      []byte
	size     int
	status   string
	breakOff int // close the connection after this many bytes of a part
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	f.mu.Lock()
	defer f.mu.Unlock()
	name := r.Method + " " + r.URL.Path
	f.requests = append(f.requests, name)
	if len(body) > 1<<20 && r.URL.Path != "/session" { // the API has the same limit
		f.refuse(w, 413, "BODY_TOO_LARGE")
		return
	}
	if r.Header.Get("Authorization") != "Bearer good" && r.URL.Path != "/session" {
		f.refuse(w, 401, "INVALID_API_KEY")
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if old, ok := f.replies[name+key]; ok && key != "" {
		w.WriteHeader(201)
		_, _ = w.Write(old)
		return
	}
	var in struct {
		URL       string
		Slug      string
		URLs      []struct{ URL, Slug, Title string }
		ExpiresAt any
	}
	_ = json.Unmarshal(body, &in)
	reply := func(status int, v any) {
		b, _ := json.Marshal(v)
		if key != "" {
			f.replies[name+key] = b
		}
		if f.after != nil {
			f.after(name)
		}
		w.WriteHeader(status)
		_, _ = w.Write(b)
	}
	switch {
	case name == "GET /api/v1/account":
		reply(200, map[string]any{"id": "acc_1", "name": "Test", "plan": "business"})
	case name == "POST /api/v1/links":
		l, code := f.add(in.URL, in.Slug, "")
		if code != "" {
			f.refuse(w, 409, code)
			return
		}
		if in.ExpiresAt == "10" { // JavaScript parses this as a date in 2001
			l["status"], l["expiresAt"] = "expired", 1001894400000
		}
		whole := l
		l = maps.Clone(l)
		l["link"] = whole
		l["createdAt"] = "2026-11-20T00:00:00.000Z"
		reply(201, l)
	case name == "POST /api/v1/links/bulk" && f.plan == "creator":
		f.refuse(w, 403, "PLAN_REQUIRED")
	case name == "POST /api/v1/links/bulk":
		var results []any
		for _, u := range in.URLs {
			if l, code := f.add(u.URL, u.Slug, u.Title); code != "" {
				results = append(results, map[string]any{"status": 409, "error": map[string]any{"code": code, "message": "taken", "url": u.URL}})
			} else {
				results = append(results, map[string]any{"status": 201, "data": l})
			}
		}
		reply(207, map[string]any{"results": results})
	case name == "POST /api/v1/domains/dom_1/verify":
		f.checks++
		status, reason := "pending", any("No TXT record was found.")
		if f.checks == f.proven {
			status, reason = "verified", nil
		}
		reply(200, map[string]any{"id": "dom_1", "hostname": "go.example.com", "status": status, "reason": reason, "certificate": map[string]any{"status": "none"}})
	case name == "GET /api/v1/links":
		reply(200, f.page(r.URL.Query()))
	case r.Method == "GET" && f.link(path.Base(r.URL.Path)) != nil:
		reply(200, f.link(path.Base(r.URL.Path)))
	case name == "POST /api/v1/videos":
		f.videos++
		f.status = "uploading"
		reply(201, map[string]any{"videoId": "vid_1", "shareUrl": "http://share/v/x", "uploadUrl": "http://" + r.Host + "/session", "slug": "x"})
	case name == "GET /api/v1/videos/vid_1":
		if f.status == "processing" {
			f.status = "ready"
		}
		if f.status == "uploading" && len(f.got) == f.size {
			f.status = "processing"
		}
		reply(200, map[string]any{"id": "vid_1", "status": f.status, "shareUrl": "http://share/v/x", "uploadUrl": "http://" + r.Host + "/session", "resumableUploadUrl": "http://" + r.Host + "/session"})
	case name == "PUT /session":
		f.session(w, r, body)
	case strings.HasPrefix(name, "DELETE /api/v1/links/"):
		if strings.HasSuffix(name, "/lnk_gone") {
			f.refuse(w, 404, "LINK_NOT_FOUND")
			return
		}
		w.WriteHeader(204)
	default:
		f.refuse(w, 404, "NOT_FOUND")
	}
}

// page returns a page of links. Its cursor is the number of links so far.
func (f *fake) page(q url.Values) map[string]any {
	from, _ := strconv.Atoi(q.Get("cursor"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	to := min(from+limit, len(f.links))
	if to == len(f.links) {
		return map[string]any{"data": f.links[from:], "hasMore": false, "nextCursor": nil}
	}
	return map[string]any{"data": f.links[from:to], "hasMore": true, "nextCursor": to}
}

func (f *fake) link(id string) map[string]any {
	for _, l := range f.links {
		if l["id"] == id {
			return l
		}
	}
	return nil
}

func (f *fake) add(url, slug, title string) (map[string]any, string) {
	if f.slugs[slug] && slug != "" {
		return nil, "SLUG_TAKEN"
	}
	id := fmt.Sprintf("lnk_%d", len(f.links)+1)
	if slug == "" {
		slug = "gen" + id
	}
	f.slugs[slug] = true
	l := map[string]any{"id": id, "_id": id, "slug": slug, "shortUrl": "http://s/" + slug, "destinationUrl": url, "title": title, "clicks": 3, "createdAt": 1790000000000}
	f.links = append(f.links, l)
	return l, ""
}

func (f *fake) session(w http.ResponseWriter, r *http.Request, body []byte) {
	var from, to, size int
	if n, _ := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &size); n == 3 {
		if from != len(f.got) {
			w.WriteHeader(503)
			return
		}
		if f.breakOff > 0 && len(body) > f.breakOff {
			f.got = append(f.got, body[:f.breakOff]...)
			f.breakOff = 0
			if f.after != nil {
				f.after("broken")
			}
			panic(http.ErrAbortHandler)
		}
		f.got = append(f.got, body...)
	}
	if len(f.got) == f.size {
		w.WriteHeader(200)
		return
	}
	if len(f.got) > 0 {
		w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(f.got)-1))
	}
	w.WriteHeader(308)
}

func (f *fake) refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%q,"message":"no","requestId":"r1"}}`, code)
}

func (f *fake) count(name string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		if r == name {
			n++
		}
	}
	return n
}

type result struct {
	code     int
	out, err string
}

// fakeService returns a fake API and its base URL.
func fakeService(t *testing.T) (*fake, string) {
	t.Helper()
	f := &fake{slugs: map[string]bool{}, replies: map[string][]byte{}, plan: "business"}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	return f, srv.URL
}

// world returns a fake and a function that runs commands against it, with their own folders.
func world(t *testing.T) (*fake, func(ctx context.Context, in string, args ...string) result) {
	t.Helper()
	f, base := fakeService(t)
	dir := t.TempDir()
	return f, func(ctx context.Context, in string, args ...string) result {
		var out, errs bytes.Buffer
		code := Run(ctx, args, Env{
			In: strings.NewReader(in), Out: &out, Err: &errs, ConfigDir: filepath.Join(dir, "config"), StateDir: filepath.Join(dir, "state"),
			Now:   func() time.Time { return time.UnixMilli(1790000000000) },
			Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
			Getenv: func(name string) string {
				return map[string]string{"LINKREEL_BASE_URL": base, "LINKREEL_API_KEY": "good"}[name]
			},
		})
		return result{code, out.String(), errs.String()}
	}
}

func TestResultsGoToStandardOutputAlone(t *testing.T) {
	t.Parallel()
	_, run := world(t)
	if got := run(t.Context(), "", "links", "create", "https://example.com", "--slug", "demo"); got.code != 0 || got.out != "http://s/demo\n" || got.err != "id lnk_1\n" {
		t.Errorf("links create returned %+v, want the short URL on standard output and the id on standard error", got)
	}
	got := run(t.Context(), "", "links", "create", "--json", "https://example.com")
	var l map[string]any
	if err := json.Unmarshal([]byte(got.out), &l); err != nil || l["slug"] != "genlnk_2" || strings.Count(got.out, "\n") != 1 {
		t.Errorf("the command returned %+v, want one JSON object with a generated slug (error %v)", got, err)
	}
	if got := run(t.Context(), "", "links", "list", "--json"); got.code != 0 || strings.Count(got.out, "\n") != 2 {
		t.Errorf("links list --json returned %+v, want two lines", got)
	}
	if got := run(t.Context(), "", "links", "export"); got.code != 0 || !strings.HasPrefix(got.out, "id,slug,url,title,clicks,createdAt,shortUrl,domainId,expiresAt,tags,archived,externalId,importedClicks,redirectType,forwardQuery,forwardPath,startsAt,expiredUrl,hasPassword,maxClicks,rules\nlnk_1,demo,https://example.com,") {
		t.Errorf("links export returned %+v, want the header and the first link", got)
	}
}

// 10 is a date in 2001, but the user probably meant 10d.
func TestALinkThatHasAlreadyEndedIsNoted(t *testing.T) {
	t.Parallel()
	f, run := world(t)
	for expires, want := range map[string]string{
		"10":         "This link has already ended, on 2001-10-01 00:00:00. To set a time from now, use a unit, such as 10d.\n",
		"2099-01-01": "", "10d": "",
	} {
		if got := run(t.Context(), "", "links", "create", "https://example.com", "--expires", expires); got.code != 0 || !strings.HasPrefix(got.err, want+"id lnk_") || got.out == "" {
			t.Errorf("--expires %s returned %+v, want %q", expires, got, want)
		}
	}
	if n := len(f.links); n != 3 {
		t.Errorf("the account has %d links, want 3", n)
	}
}

func TestExitCodesSayWhatKindOfFailureItWas(t *testing.T) {
	t.Parallel()
	_, run := world(t)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	tests := []struct {
		name string
		ctx  context.Context
		args string
		want int
	}{
		{"help", t.Context(), "help", ExitOK},
		{"help for a command", t.Context(), "links create --help", ExitOK},
		{"an unknown command", t.Context(), "links fly", ExitUsage},
		{"an unknown group", t.Context(), "fly", ExitUsage},
		{"help for an unknown command", t.Context(), "help fly", ExitUsage},
		{"version", t.Context(), "version", ExitOK},
		{"version as a flag", t.Context(), "--version", ExitOK},
		{"an unused port", t.Context(), "account --base-url http://127.0.0.1:1 --key k", ExitUnavailable},
		{"an export from an unused port", t.Context(), "links export --base-url http://127.0.0.1:1 --key k", ExitUnavailable},
		{"an unknown flag", t.Context(), "links create --fast https://example.com", ExitUsage},
		{"too few words", t.Context(), "links create", ExitUsage},
		{"too many words", t.Context(), "links list x", ExitUsage},
		{"bad key", t.Context(), "account --key bad", ExitAuth},
		{"a missing link", t.Context(), "links get x", ExitNotFound},
		{"one of two links missing", t.Context(), "links delete lnk_a lnk_gone", ExitPartly},
		{"one missing link", t.Context(), "links delete lnk_gone", ExitNotFound},
		{"stopped", stopped, "links list", ExitInterrupted},
		{"a password and an expiry", t.Context(), "videos upload --password x --expires 7d f.mp4", ExitUsage},
		{"no file", t.Context(), "links bulk /does/not/exist.csv", ExitFailed},
		{"bad address", t.Context(), "account --base-url nowhere --key k", ExitFailed},
	}
	for _, tt := range tests {
		if got := run(tt.ctx, "", strings.Fields(tt.args)...); got.code != tt.want {
			t.Errorf("%s: exit code %d, want %d: %s", tt.name, got.code, tt.want, got.err)
		}
	}
	run(t.Context(), "", "links", "create", "https://example.com", "--slug", "a")
	if got := run(t.Context(), "", "links", "create", "https://example.com", "--slug", "a"); got.code != ExitRefused || !strings.Contains(got.err, "SLUG_TAKEN") || !strings.Contains(got.err, "r1") {
		t.Errorf("a taken slug returned %+v, want SLUG_TAKEN and the request ID", got)
	}
}

func TestMistypedCommandsAndFlagsNameTheRightOnes(t *testing.T) {
	t.Parallel()
	_, run := world(t)
	for args, want := range map[string]string{
		"links creat https://example.com":        `unknown command "links creat". Did you mean "links create"?`,
		"link list":                              `unknown command "link list". Did you mean "links list"?`,
		"admin accounts crate x":                 `unknown command "admin accounts crate". Did you mean "admin accounts create"?`,
		"linsk":                                  `unknown command "linsk". Did you mean "links"?`,
		"acount":                                 `unknown command "acount". Did you mean "account"?`,
		"links fly":                              "unknown command \"links fly\"; run `linkreel help links`",
		"fly to the moon":                        "unknown command \"fly to the\"; run `linkreel help`",
		"help link create":                       `unknown command "link create". Did you mean "links create"?`,
		"links create --slgu a https://x.test":   "there is no flag --slgu. Did you mean --slug? See linkreel links create --help",
		"links create --expire 7d https://x.tst": "there is no flag --expire. Did you mean --expires?",
		"links create --fast https://x.test":     "there is no flag --fast; see linkreel links create --help",
	} {
		if got := run(t.Context(), "", strings.Fields(args)...); got.code != ExitUsage || !strings.Contains(got.err, want) {
			t.Errorf("%s returned %+v, want %s", args, got, want)
		}
	}
}

func TestFlagsOfEveryCommandMayStandBeforeIt(t *testing.T) {
	t.Parallel()
	_, run := world(t)
	after := run(t.Context(), "", "account", "--json")
	for _, args := range [][]string{{"--json", "account"}, {"-json", "--quiet", "--key", "good", "account"}, {"--json=true", "--key=good", "account"}} {
		if got := run(t.Context(), "", args...); got != after || got.code != 0 {
			t.Errorf("%q returned %+v, want %+v", args, got, after)
		}
	}
	if got := run(t.Context(), "", "--base-url", "http://127.0.0.1:1", "links", "list"); got.code != ExitUnavailable {
		t.Errorf("an address before the command returned %+v, want exit code 7", got)
	}
	for _, args := range [][]string{{"--json"}, {"--json", "help"}} {
		if got := run(t.Context(), "", args...); got.code != 0 || !strings.Contains(got.out, "Exit codes") {
			t.Errorf("%q returned %+v, want the help", args, got)
		}
	}
	if got := run(t.Context(), "", "--json", "version"); got.code != 0 || !strings.HasPrefix(got.out, "{") {
		t.Errorf("version returned %+v, want JSON", got)
	}
}

// A script can wait for a domain. The exit code shows whether the domain is verified.
func TestDomainsVerifyWaitsAndFailsUnlessVerified(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args           string
		proven         int
		code, checks   int
		status, notice string
	}{
		"verified immediately":   {"", 1, ExitOK, 1, "verified", ""},
		"not verified":           {"", 0, ExitRefused, 1, "pending", "No TXT record was found. (DOMAIN_NOT_VERIFIED)"},
		"verified while waiting": {"--wait 10m", 5, ExitOK, 5, "verified", "not verified yet: No TXT record was found.\n"},
		"never verified":         {"--wait 40s", 0, ExitRefused, 4, "pending", "(DOMAIN_NOT_VERIFIED)"},
		"not a duration":         {"--wait soon", 1, ExitUsage, 0, "", "--wait must be a duration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, base := fakeService(t)
			f.proven = tt.proven
			now := time.UnixMilli(1790000000000)
			var out, errs bytes.Buffer
			code := Run(t.Context(), append([]string{"domains", "verify", "dom_1"}, strings.Fields(tt.args)...), Env{
				Out: &out, Err: &errs, ConfigDir: t.TempDir(), Now: func() time.Time { return now },
				Sleep: func(_ context.Context, d time.Duration) error { now = now.Add(d); return nil },
				Getenv: func(name string) string {
					return map[string]string{"LINKREEL_BASE_URL": base, "LINKREEL_API_KEY": "good"}[name]
				},
			})
			if code != tt.code || f.checks != tt.checks || !strings.Contains(out.String(), tt.status) || !strings.Contains(errs.String(), tt.notice) {
				t.Errorf("exit code %d after %d checks, with %q and %q; want %+v", code, f.checks, &out, &errs, tt)
			}
		})
	}
}

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func manyRows(n int) string {
	var b strings.Builder
	b.WriteString("url,slug,title\n")
	for i := range n {
		fmt.Fprintf(&b, "https://example.com/%d,s%d,Title %d\n", i, i, i)
	}
	return b.String()
}

func TestBulkTwiceCreatesNothingTwice(t *testing.T) {
	t.Parallel()
	f, run := world(t)
	path := file(t, "links.csv", manyRows(250)+"https://example.com/x,S0,taken? no\nhttps://example.com/y,s1,taken\n")
	f.slugs["s7"] = true
	got := run(t.Context(), "", "links", "bulk", path)
	if got.code != ExitPartly || len(f.links) != 250 || !strings.Contains(got.err, "line 9: SLUG_TAKEN: taken \"https://example.com/7\"\n") || !strings.Contains(got.err, "line 253: SLUG_TAKEN") || !strings.Contains(got.err, "created 250 links, 2 rows failed") {
		t.Errorf("the account has %d links, want 250; the command returned %+v", len(f.links), got)
	}
	again := run(t.Context(), "", "links", "import", path)
	if len(f.links) != 250 || f.count("POST /api/v1/links/bulk") != 3 || again.code != ExitPartly || !strings.Contains(again.err, "line 9: SLUG_TAKEN") ||
		!strings.Contains(again.err, "Resuming after 252 finished rows (") ||
		!strings.Contains(again.err, "created 0 links, 2 rows failed; an earlier run had created 250 links") {
		t.Errorf("after the second run, the account has %d links from %d requests, want 250 from 3; the command returned %+v", len(f.links), f.count("POST /api/v1/links/bulk"), again)
	}
}

func TestBulkStoppedAtAnyMomentGoesOn(t *testing.T) {
	t.Parallel()
	var rows strings.Builder // without slugs, so only the idempotency keys prevent duplicates
	rows.WriteString("url\n")
	for i := range 300 {
		fmt.Fprintf(&rows, "https://example.com/%d\n", i)
	}
	for stopAfter := 1; stopAfter <= 3; stopAfter++ {
		f, run := world(t)
		path := file(t, "links.csv", rows.String())
		ctx, stop := context.WithCancel(t.Context())
		requests := 0
		f.after = func(string) {
			if requests++; requests == stopAfter {
				stop() // the links exist, but the response is lost
				panic(http.ErrAbortHandler)
			}
		}
		if got := run(ctx, "", "links", "bulk", path); got.code != ExitInterrupted || !strings.Contains(got.err, "Run the same command to resume. --restart imports every row again") {
			t.Errorf("stopped after %d requests, the command returned %+v, want exit code 130 and how to continue", stopAfter, got)
		}
		f.after = nil
		tear(t, path+".linkreel-journal") // a kill may also cut off a line
		if got := run(t.Context(), "", "links", "bulk", path); got.code != 0 || len(f.links) != 300 {
			t.Errorf("stopped after %d requests, the second run made %d links, want 300; it returned %+v", stopAfter, len(f.links), got)
		}
	}
}

func tear(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString(`{"chunk":7,"su`); err != nil {
		t.Fatal(err)
	}
}

func TestBulkNoticesAChangedFileAndAnotherDeployment(t *testing.T) {
	t.Parallel()
	f, run := world(t)
	path := file(t, "links.csv", manyRows(10))
	run(t.Context(), "", "links", "bulk", path)
	if err := os.WriteFile(path, []byte(manyRows(11)), 0o600); err != nil {
		t.Fatal(err)
	}
	const changed = "linkreel: the file has changed since an earlier run: import new and corrected rows from a separate file. " +
		"--restart imports every row again, and creates links without a slug twice\n"
	if got := run(t.Context(), "", "links", "bulk", path); got.code != ExitFailed || got.err != changed {
		t.Errorf("importing a changed file returned %+v, want an error about the change", got)
	}
	if got := run(t.Context(), "", "links", "bulk", path, "--base-url", "http://127.0.0.1:1", "--key", "k"); got.code != ExitFailed || !strings.Contains(got.err, "belongs to") {
		t.Errorf("importing into another account returned %+v, want an error", got)
	}
	if got := run(t.Context(), "", "links", "bulk", "--restart", path); got.code != ExitPartly || len(f.links) != 11 {
		t.Errorf("after --restart, the account has %d links, want 11; the command returned %+v", len(f.links), got)
	}
}

func TestBulkReadsManyKindsOfFile(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, content, want string }{
		{"own.csv", "\ufeffurl,slug,title\nhttps://example.com/a,a,A\n", "a https://example.com/a A"},
		{"bare.csv", "https://example.com/a,a,A\n", "a https://example.com/a A"},
		{"other.csv", "Title,Long URL,Custom back-half\n\"A, b\",https://example.com/a,a\n", "a https://example.com/a A, b"},
		{"dash.csv", "key,url,clicks\na,https://example.com/a,5\n", "a https://example.com/a "},
		{"export.jsonl", `{"_id":"x","id":"x","slug":"a","destinationUrl":"https://example.com/a","title":"A","clicks":1}` + "\n\n", "a https://example.com/a A"},
		{"short.jsonl", `{"link":"https://other.example/a","long_url":"https://example.com/a","shortLink":"https://other.example/a"}`, "a https://example.com/a "},
		{"bitly.csv", "created,link,long_url,title\n2026-01-01,https://bit.example/a,https://example.com/a,A\n", "a https://example.com/a A"},
		{"quotes.csv", "url,title\nhttps://example.com/a,He said \"no\"\n", "genlnk_1 https://example.com/a He said \"no\""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, run := world(t)
			if got := run(t.Context(), "", "links", "bulk", file(t, tt.name, tt.content)); got.code != 0 {
				t.Fatalf("links bulk returned %+v, want exit code 0", got)
			}
			if got := fmt.Sprint(f.links[0]["slug"], " ", f.links[0]["destinationUrl"], " ", f.links[0]["title"]); got != tt.want {
				t.Errorf("the import made %q, want %q", got, tt.want)
			}
		})
	}
}

func TestBulkSendsNoRequestThatIsTooLarge(t *testing.T) {
	t.Parallel()
	f, run := world(t)
	var b strings.Builder
	b.WriteString("url,slug,ogDescription\n")
	for i := range 250 {
		fmt.Fprintf(&b, "https://example.com/%d,s%d,%s\n", i, i, strings.Repeat("x", i%3*20_000))
	}
	if got := run(t.Context(), "", "links", "bulk", file(t, "large.csv", b.String())); got.code != 0 || len(f.links) != 250 || f.links[249]["slug"] != "s249" {
		t.Errorf("the account has %d links, want 250; the command returned %+v", len(f.links), got)
	}
}

// Links are created for the rows before and after an invalid row, and the error message identifies
// that row.
func TestBulkReadsHostileFiles(t *testing.T) {
	t.Parallel()
	wide := "\xff\xfe"
	for _, c := range "url,slug\nhttps://example.com/a,a\n" {
		wide += string([]byte{byte(c), 0})
	}
	many := strings.Repeat("column,", 10_000)
	for name, tt := range map[string]struct {
		content, want string
		links, code   int
	}{
		"utf16.csv":    {wide, "created 1 link, 0 rows failed", 1, 0},
		"latin1.csv":   {"url,title\nhttps://example.com/a,Gr\xfc\xdfe\nhttps://example.com/b,b\n", "line 2: INVALID_ROW: not valid UTF-8; save the file as UTF-8 \"https://example.com/a\"\n", 1, ExitPartly},
		"quote.csv":    {"url,title\nhttps://example.com/a,a\nhttps://example.com/b,\"b\nhttps://example.com/c,c\n", "line 3: INVALID_ROW: a quotation mark is missing, so lines 3 to 4 were read as one row\n", 1, ExitPartly},
		"cell.csv":     {"url,title\nhttps://example.com/a," + strings.Repeat("x", 10<<20) + "\nhttps://example.com/b,b\n", "line 2: INVALID_ROW: the row is longer than 1 MiB", 1, ExitPartly},
		"line.jsonl":   {`{"url":"` + strings.Repeat("x", 10<<20) + "\"}\n" + `{"url":"https://example.com/b"}`, "line 1: INVALID_ROW: the line is longer than 1 MiB", 1, ExitPartly},
		"columns.csv":  {many + "url\n" + strings.Repeat(",", 10_000) + "https://example.com/a\n", "not kept: the columns column, column, ", 1, 0},
		"none.csv":     {many + "\n", "no column holds the destination: rename that column to url (found column, column, ", 0, ExitFailed},
		"twice.csv":    {"url,slug,url\nhttps://example.com/a,a,https://example.com/b\n", "not kept: the columns a second url\n", 1, 0},
		"control.csv":  {"url,\x1b[2Jcolumn\nhttps://example.com/a,\n", "not kept: the columns", 1, 0},
		"picture.csv":  {"\x89PNG\r\n\x1a\n\x00\xff\xfe", "no column holds the destination", 0, ExitFailed},
		"nothing.csv":  {"", "created 0 links, 0 rows failed", 0, 0},
		"deep.jsonl":   {strings.Repeat(`{"a":`, 100_000), "line 1: INVALID_ROW: not a JSON object", 0, ExitPartly},
		"segments.csv": {"key,url\na/b,https://example.com/a\nb,https://example.com/b\n", "line 2: INVALID_ROW: the slug a/b contains a slash, which Linkreel does not support", 1, ExitPartly},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, run := world(t)
			got := run(t.Context(), "", "links", "import", file(t, name, tt.content))
			if got.code != tt.code || len(f.links) != tt.links || !strings.Contains(got.err, tt.want) || strings.ContainsRune(got.err, 0x1b) || len(got.err) > 8<<10 {
				t.Errorf("the import made %d links with exit code %d and printed %.3000s", len(f.links), got.code, got.err)
			}
		})
	}
}

func TestBulkDryRunSendsNothing(t *testing.T) {
	t.Parallel()
	f, run := world(t)
	path := file(t, "links.csv", "url,slug\nhttps://example.com,a\nexample.com,b\nhttps://example.com,A\nhttps://example.com,-x\nhttp:///x,\n")
	got := run(t.Context(), "", "links", "import", "--dry-run", path)
	if got.code != ExitPartly || len(f.requests) != 0 {
		t.Errorf("a dry run sent %d requests, want 0; it returned %+v", len(f.requests), got)
	}
	for _, want := range []string{"line 3: VALIDATION_ERROR", "line 4: SLUG_TAKEN: line 2", "line 5: VALIDATION_ERROR", "line 6: VALIDATION_ERROR", "would create 1 link, 4 rows failed"} {
		if !strings.Contains(got.err, want) {
			t.Errorf("the output lacks %q:\n%s", want, got.err)
		}
	}
}

func TestBulkWorksOnAPlanWithoutBulkAndFromAPipe(t *testing.T) {
	t.Parallel()
	f, run := world(t)
	f.plan = "creator"
	f.slugs["taken"] = true
	got := run(t.Context(), "https://example.com/1,one\nhttps://example.com/2,taken\nhttps://example.com/3\n", "links", "bulk", "-", "--json")
	if got.code != ExitPartly || len(f.links) != 2 || strings.Count(got.out, "\n") != 3 || !strings.Contains(got.out, `"line":2,"status":409`) {
		t.Errorf("the account has %d links, want 2; the command returned %+v", len(f.links), got)
	}
}

func TestUploadGoesOnAfterAKillAndMakesOneRecord(t *testing.T) {
	t.Parallel()
	f, run := world(t)
	content := strings.Repeat("0123456789", 100_000)
	path := file(t, "demo.mp4", content)
	f.size, f.breakOff = len(content), 300_000
	ctx, stop := context.WithCancel(t.Context())
	f.after = func(what string) {
		if what == "broken" {
			stop()
		}
	}
	if got := run(ctx, "", "videos", "upload", path); got.code != ExitInterrupted || !strings.Contains(got.err, "Run the same command to resume") {
		t.Errorf("an interrupted upload returned %+v, want advice to run the command again", got)
	}
	f.after = nil
	got := run(t.Context(), "", "videos", "upload", path)
	if got.code != 0 || got.out != "http://share/v/x\n" || f.videos != 1 || string(f.got) != content {
		t.Errorf("the service has %d records and %d bytes, want one record with the file; the command returned %+v", f.videos, len(f.got), got)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "..", "*", "state", "linkreel", "uploads", "*.json")); len(left) > 0 {
		t.Errorf("after the upload, the state files %v remain", left)
	}
}

func TestLoginStoresAKeyThatWorksForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	f := &fake{slugs: map[string]bool{}, replies: map[string][]byte{}}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	run := func(in string, args ...string) result {
		var out, errs bytes.Buffer
		code := Run(t.Context(), args, Env{In: strings.NewReader(in), Out: &out, Err: &errs, ConfigDir: dir, Now: time.Now, Getenv: func(string) string { return "" }})
		return result{code, out.String(), errs.String()}
	}
	if got := run("", "account"); got.code != ExitAuth || !strings.Contains(got.err, "linkreel login") {
		t.Errorf("without a login, the command returned %+v, want advice to log in", got)
	}
	if got := run(srv.URL+"\nbad\n", "login"); got.code != ExitAuth {
		t.Errorf("a login with an invalid key returned %+v, want exit code 3", got)
	}
	if got := run(srv.URL+"\ngood\n", "login"); got.code != 0 {
		t.Fatalf("a login with a valid key returned %+v, want exit code 0", got)
	}
	info, err := os.Stat(filepath.Join(dir, "linkreel", "credentials.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v (error %v), want 0600", info.Mode(), err)
	}
	if got := run("", "account"); got.code != 0 || !strings.Contains(got.out, "business") {
		t.Errorf("after the login, the command returned %+v, want the account", got)
	}
	// The CLI only sends the stored key to the stored address.
	if got := run("", "account", "--base-url", "http://127.0.0.1:1"); got.code != ExitAuth {
		t.Errorf("with a different address, the command returned %+v, want exit code 3", got)
	}
	if got := run("", "logout"); got.code != 0 || run("", "account").code != ExitAuth {
		t.Errorf("logout returned %+v, want the key to be deleted", got)
	}
}

func TestTextFromOutsideCannotDriveTheTerminal(t *testing.T) {
	t.Parallel()
	if got := clean("a\x1b[2Jb\r\n\u009bc\u202ed"); strings.ContainsAny(got, "\x1b\r\n\u009b\u202e") {
		t.Errorf("clean returned %q, want no control characters", got)
	}
}

func TestSpansAndMoments(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{"7d": 168 * time.Hour, "2w": 336 * time.Hour, "12h": 12 * time.Hour, "90s": 90 * time.Second, "0.5d": 12 * time.Hour} {
		if got, ok := span(in); !ok || got != want {
			t.Errorf("span(%q) = %v, %v; want %v", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "7", "d", "-1d", "-5m", "2027-01-01", "NaNd", "Infd"} {
		if got, ok := span(in); ok {
			t.Errorf("span(%q) = %v, want an error", in, got)
		}
	}
}

func TestCompletionKnowsCommandsAndFlags(t *testing.T) {
	t.Parallel()
	_, run := world(t)
	if got := run(t.Context(), "", "__complete"); !strings.Contains(got.out, "links\n") || !strings.Contains(got.out, "completion\n") {
		t.Errorf("the completion is %q, want links and completion", got.out)
	}
	if got := run(t.Context(), "", "__complete", "videos"); !strings.Contains(got.out, "upload\n") || strings.Contains(got.out, "bulk") {
		t.Errorf("the completion for videos is %q, want upload but not bulk", got.out)
	}
	if got := run(t.Context(), "", "__complete", "links", "create"); !strings.Contains(got.out, "--slug\n") {
		t.Errorf("the completion for links create is %q, want --slug", got.out)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := run(t.Context(), "", "completion", shell); got.code != 0 || !strings.Contains(got.out, "__complete") {
			t.Errorf("completion for %s returned %+v, want a script", shell, got)
		}
	}
}

func TestBarShowsShareSpeedAndTimeLeft(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.UnixMilli(0)
	a := &app{env: Env{Err: &out, Terminal: true, Now: func() time.Time { return now }}}
	b := a.bar("demo.mp4", 1_000_000_000)
	b.start(0)
	for i := range int64(5) {
		now = now.Add(time.Second)
		b.set((i + 1) * 100_000_000)
	}
	b.end()
	lines := strings.Split(strings.TrimSpace(out.String()), "\r\x1b[2K")
	if want := "demo.mp4             ████████████░░░░░░░░░░░░  50 %  500.0 MB/1.00 GB  100.0 MB/s  0:05 left"; lines[len(lines)-1] != want {
		t.Errorf("\n got %q\nwant %q", lines[len(lines)-1], want)
	}
}

func TestGuideNamesEveryCommandAndExitCode(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands() {
		if !bytes.Contains(guide, []byte("`"+c.name)) {
			t.Errorf("docs/cli.md does not mention %q", c.name)
		}
	}
	for _, code := range []int{ExitOK, ExitFailed, ExitUsage, ExitAuth, ExitNotFound, ExitRefused, ExitPartly, ExitUnavailable, ExitVideoFailed, ExitInterrupted} {
		if !bytes.Contains(guide, fmt.Appendf(nil, "\n| %d |", code)) {
			t.Errorf("docs/cli.md does not explain exit code %d", code)
		}
	}
}

func TestLoginFindsTheStackWhoseDataDirectoryIsNamed(t *testing.T) {
	t.Parallel()
	_, base := fakeService(t)
	data := t.TempDir()
	if err := save(filepath.Join(data, "stack.json"), stack{BaseURL: base, Keys: map[string]string{"business": "good"}}); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	code := Run(t.Context(), []string{"login", "--local"}, Env{Out: io.Discard, Err: &errs, ConfigDir: t.TempDir(), Now: time.Now, Getenv: func(name string) string {
		return map[string]string{"LINKREEL_DATA_DIR": data}[name]
	}})
	if code != 0 || errs.String() != "logged in to "+base+" as Test\n" {
		t.Errorf("login returned exit code %d and %q, want the stack's account", code, errs.String())
	}
}

// Without a terminal, an upload prints one line for each step.
func TestAnUploadTellsEachStepOnce(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	w := &bars{app: &app{env: Env{Err: &errs, Now: time.Now}}, file: "clip.mp4"}
	w.sent(0, 6_800_000)
	w.sent(6_800_000, 6_800_000)
	for _, status := range []string{"uploading", "uploading", "processing", "processing", "ready"} {
		w.prepared(&client.Video{VideoSummary: client.VideoSummary{Status: status}})
	}
	if got, want := errs.String(), "clip.mp4: uploading 6.8 MB\nclip.mp4: processing\nclip.mp4: ready\n"; got != want {
		t.Errorf("the upload printed %q, want %q", got, want)
	}
}

// In any other folder, the error must say where to run the command.
func TestLoginElsewhereSaysWhereToRun(t *testing.T) {
	t.Chdir(t.TempDir())
	var errs bytes.Buffer
	code := Run(t.Context(), []string{"login", "--local"}, Env{Out: io.Discard, Err: &errs, ConfigDir: t.TempDir(), Now: time.Now, Getenv: func(string) string { return "" }})
	if code != ExitFailed || !strings.Contains(errs.String(), "run this in the folder in which `make run` runs, or with the LINKREEL_DATA_DIR") {
		t.Errorf("login returned exit code %d and %q, want advice on where to run it", code, errs.String())
	}
}

func TestErrorsOfAnAddedCommandAreOnOneLine(t *testing.T) {
	var errs bytes.Buffer
	failing := Command{Name: "break", Run: func(context.Context, []string, Env) error {
		return errors.Join(errors.New("the first"), errors.New("the second"))
	}}
	Run(t.Context(), []string{"break"}, Env{Out: io.Discard, Err: &errs, Now: time.Now, Getenv: func(string) string { return "" }}, failing)
	if got, want := errs.String(), "linkreel: the first; the second\n"; got != want {
		t.Errorf("two errors are reported as %q, want %q", got, want)
	}
}

func TestBulkOfOneBadRowCountsOne(t *testing.T) {
	t.Parallel()
	f, run := world(t)
	f.slugs["taken"] = true
	path := file(t, "links.csv", "url,slug\nhttps://example.com/a,a\nhttps://example.com/b,taken\n")
	if got := run(t.Context(), "", "links", "import", path); !strings.Contains(got.err, "created 1 link, 1 row failed\n") {
		t.Errorf("links import returned %+v, want one created and one failed row", got)
	}
}
