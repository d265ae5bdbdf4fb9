package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// scripted is a service that returns the response set for each method and path, and records the
// requests.
type scripted struct {
	mu      sync.Mutex
	answers map[string]string // response bodies by "GET /path"
	next    map[string]string // Link header by request URI
	asked   []string          // "GET /path?query body"
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	answer, ok := s.answers[r.Method+" "+r.URL.RequestURI()]
	if !ok {
		answer, ok = s.answers[r.Method+" "+r.URL.Path]
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"code":"NOT_FOUND","message":"no","requestId":"r"}}`)
		return
	}
	if link := s.next[r.URL.RequestURI()]; link != "" {
		w.Header().Set("Link", link)
	}
	if answer == "" {
		w.WriteHeader(http.StatusNoContent)
	}
	_, _ = io.WriteString(w, answer)
}

// serve starts the service and returns its URL.
func serve(t *testing.T, s *scripted) string {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.URL
}

func (s *scripted) run(t *testing.T, in string, args ...string) result {
	t.Helper()
	base := serve(t, s)
	var out, errs bytes.Buffer
	dir := t.TempDir()
	code := Run(t.Context(), args, Env{In: strings.NewReader(in), Out: &out, Err: &errs, ConfigDir: filepath.Join(dir, "c"), StateDir: filepath.Join(dir, "s"),
		Now: func() time.Time { return time.UnixMilli(1790000000000) },
		Getenv: func(name string) string {
			return map[string]string{"LINKREEL_BASE_URL": base, "LINKREEL_API_KEY": "good", "LINKREEL_ADMIN_URL": base, "LINKREEL_ADMIN_TOKEN": "op"}[name]
		}})
	return result{code, out.String(), errs.String()}
}

func TestLibraryCommandsAskForWhatTheyAreTold(t *testing.T) {
	t.Parallel()
	const none = `{"data":[],"hasMore":false,"nextCursor":null}`
	const ok2 = `{"results":[{"status":200},{"status":404,"error":{"code":"LINK_NOT_FOUND","message":"no such link"}}]}`
	const access = `{"privacy":"public","expiresAt":null,"allowDownload":true,"embedOrigins":[]}`
	tests := []struct {
		args    string
		answers map[string]string
		asked   []string
		code    int
	}{
		{"links list --tag sale --tag spring --search coat", map[string]string{"GET /api/v1/links": none}, []string{"GET /api/v1/links?archived=false&limit=100&q=coat&tag=sale&tag=spring"}, 0},
		{"links list --archived all --domain default --slug S --external-id e1", map[string]string{"GET /api/v1/links": none},
			[]string{"GET /api/v1/links?archived=all&domainId=default&externalId=e1&limit=100&slug=S"}, 0},
		{"links create https://e.example --tag a --tag b --external-id x --archived", map[string]string{"POST /api/v1/links": `{"shortUrl":"s"}`},
			[]string{`POST /api/v1/links {"url":"https://e.example","tags":["a","b"],"externalId":"x","archived":true}`}, 0},
		{"links update lnk_1 --tag a --archived false --external-id=", map[string]string{"PATCH /api/v1/links/lnk_1": `{"slug":"s"}`},
			[]string{`PATCH /api/v1/links/lnk_1 {"tags":["a"],"externalId":null,"archived":false}`}, 0},
		{"links update lnk_1 --tag=", map[string]string{"PATCH /api/v1/links/lnk_1": `{"slug":"s"}`}, []string{`PATCH /api/v1/links/lnk_1 {"tags":[]}`}, 0},
		{"links change lnk_1 lnk_2 --add-tag a --remove-tag b --archived true", map[string]string{"PATCH /api/v1/links/bulk": ok2},
			[]string{`PATCH /api/v1/links/bulk {"ids":["lnk_1","lnk_2"],"set":{"addTags":["a"],"removeTags":["b"],"archived":true}}`}, ExitPartly},
		{"links change lnk_1", nil, nil, ExitUsage},
		{"links change lnk_1 --tag a --add-tag b", nil, nil, ExitUsage},
		{"links delete lnk_1 lnk_2", map[string]string{"POST /api/v1/links/bulk-delete": ok2}, []string{`POST /api/v1/links/bulk-delete {"ids":["lnk_1","lnk_2"]}`}, ExitPartly},
		{"tags list --search s", map[string]string{"GET /api/v1/tags?limit=100&q=s": `{"data":[{"name":"sale"}],"nextCursor":"c 1"}`, "GET /api/v1/tags": `{"data":[{"name":"spring"}],"nextCursor":null}`},
			[]string{"GET /api/v1/tags?limit=100&q=s", "GET /api/v1/tags?cursor=c+1&limit=100&q=s"}, 0},
		{"videos list --tag a --status ready --search x --privacy public", map[string]string{"GET /api/v1/videos": `{"data":[]}`},
			[]string{"GET /api/v1/videos?limit=100&privacy=public&q=x&status=ready&tag=a"}, 0},
		{"videos access vid_1", map[string]string{"GET /api/v1/videos/vid_1/access": access}, []string{"GET /api/v1/videos/vid_1/access"}, 0},
		{"videos access vid_1 --password secret --download no --embed-origin https://a.example", map[string]string{"GET /api/v1/videos/vid_1/access": access, "PUT /api/v1/videos/vid_1/access": access},
			[]string{"GET /api/v1/videos/vid_1/access", `PUT /api/v1/videos/vid_1/access {"privacy":"password","password":"secret","expiresAt":null,"allowDownload":false,"embedOrigins":["https://a.example"]}`}, 0},
		{"videos access vid_1 --expires 7d", map[string]string{"GET /api/v1/videos/vid_1/access": access, "PUT /api/v1/videos/vid_1/access": access},
			[]string{"GET /api/v1/videos/vid_1/access", `PUT /api/v1/videos/vid_1/access {"privacy":"expiring","expiresAt":1790604800000,"allowDownload":true,"embedOrigins":[]}`}, 0},
		{"videos captions vid_1", map[string]string{"GET /api/v1/videos/vid_1/captions": `{"data":[{"language":"de","name":"Deutsch"}]}`}, []string{"GET /api/v1/videos/vid_1/captions?limit=100"}, 0},
		{"videos captions vid_1 de --delete", map[string]string{"DELETE /api/v1/videos/vid_1/captions/de": ""}, []string{"DELETE /api/v1/videos/vid_1/captions/de"}, 0},
		{"videos captions vid_1 de", nil, nil, ExitUsage},
		{"videos thumbnail vid_1 2.5", map[string]string{"PUT /api/v1/videos/vid_1/thumbnail": `{}`}, []string{`PUT /api/v1/videos/vid_1/thumbnail {"time":2.5}`}, 0},
		{"videos thumbnail vid_1 default", map[string]string{"PUT /api/v1/videos/vid_1/thumbnail": `{}`}, []string{`PUT /api/v1/videos/vid_1/thumbnail {"time":null}`}, 0},
		{"keys create k --expires 2027-01-31", map[string]string{"POST /api/v1/keys": `{}`}, []string{`POST /api/v1/keys {"name":"k","expiresAt":1801353600000}`}, 0},
		{"keys create k --expires 2027-01-31T01:00", map[string]string{"POST /api/v1/keys": `{}`}, []string{`POST /api/v1/keys {"name":"k","expiresAt":1801357200000}`}, 0},
		{"keys create k --expires 2027-01-31T01:00:00+01:00", map[string]string{"POST /api/v1/keys": `{}`}, []string{`POST /api/v1/keys {"name":"k","expiresAt":1801353600000}`}, 0},
		{"webhooks replay whk_1 --from 7d", map[string]string{"POST /api/v1/webhooks/whk_1/replay": `{}`}, []string{`POST /api/v1/webhooks/whk_1/replay {"from":1789395200000,"to":1790000000000}`}, 0},
		{"webhooks replay whk_1 --from 2w --to 2026-09-20", map[string]string{"POST /api/v1/webhooks/whk_1/replay": `{}`}, []string{`POST /api/v1/webhooks/whk_1/replay {"from":1788790400000,"to":1789862400000}`}, 0},
		{"account export", map[string]string{"GET /api/v1/account/export": `{"type":"account","data":{}}`}, []string{"GET /api/v1/account/export"}, 0},
		{"admin accounts list --search ann", map[string]string{"GET /admin/v1/accounts": `{"data":[{"id":"acc_1","name":"Ann","state":"active"}],"nextCursor":null}`},
			[]string{"GET /admin/v1/accounts?limit=100&q=ann"}, 0},
		{"admin accounts suspend acc_1", map[string]string{"PATCH /admin/v1/accounts/acc_1": `{}`}, []string{`PATCH /admin/v1/accounts/acc_1 {"suspended":true}`}, 0},
		{"admin accounts delete acc_1", nil, nil, ExitUsage},
		{"admin accounts delete acc_1 --yes", map[string]string{"DELETE /admin/v1/accounts/acc_1": `{}`}, []string{"DELETE /admin/v1/accounts/acc_1"}, 0},
		{"admin takedowns add https://s.example/bad --reason phishing", map[string]string{"POST /admin/v1/takedowns": `{"id":"tkd_1"}`}, []string{`POST /admin/v1/takedowns {"url":"https://s.example/bad","reason":"phishing"}`}, 0},
		{"admin takedowns add vid_1 --reason abuse", map[string]string{"POST /admin/v1/takedowns": `{"id":"tkd_1"}`}, []string{`POST /admin/v1/takedowns {"videoId":"vid_1","reason":"abuse"}`}, 0},
		{"admin webhooks", map[string]string{"GET /admin/v1/webhooks": `{"data":[{"id":"whk_1","host":"h.example"}],"nextCursor":null}`}, []string{"GET /admin/v1/webhooks?failing=true&limit=100"}, 0},
		{"admin recovery show", map[string]string{"GET /admin/v1/recovery": `{"restoreId":"rst_1","dataAt":1790000000000,"restoredAt":1790000000000,"webhooksPaused":true}`},
			[]string{"GET /admin/v1/recovery"}, 0},
		{"admin recovery resume --webhooks", map[string]string{"GET /admin/v1/recovery": `{"restoreId":null}`}, []string{"GET /admin/v1/recovery"}, 0},
		{"admin recovery resume --janitor", map[string]string{"GET /admin/v1/recovery": `{"restoreId":"rst_1"}`, "POST /admin/v1/recovery/resume": `{"restoreId":"rst_1"}`},
			[]string{"GET /admin/v1/recovery", `POST /admin/v1/recovery/resume {"restoreId":"rst_1","janitor":true}`}, 0},
		{"admin recovery resume --webhooks --restore rst_0", map[string]string{"GET /admin/v1/recovery": `{"restoreId":"rst_1"}`, "POST /admin/v1/recovery/resume": `{"restoreId":"rst_1"}`},
			[]string{"GET /admin/v1/recovery", `POST /admin/v1/recovery/resume {"restoreId":"rst_0","webhooks":true}`}, 0},
		{"admin recovery resume", nil, nil, ExitUsage},
		{"admin takedowns list", map[string]string{"GET /admin/v1/takedowns": `{"data":[],"nextCursor":null}`}, []string{"GET /admin/v1/takedowns?limit=100"}, 0},
		{"admin takedowns lift tkd_1", map[string]string{"DELETE /admin/v1/takedowns/tkd_1": ""}, []string{"DELETE /admin/v1/takedowns/tkd_1"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			s := &scripted{answers: tt.answers}
			got := s.run(t, "", strings.Fields(tt.args)...)
			if got.code != tt.code || !slices.Equal(s.asked, tt.asked) {
				t.Errorf("exit code %d, want %d: %s\nrequests %q\nwant     %q", got.code, tt.code, got.err, s.asked, tt.asked)
			}
		})
	}
}

// `videos list` follows the Link header, but never sends the key to a different host.
func TestVideosAreListedToTheEnd(t *testing.T) {
	t.Parallel()
	s := &scripted{
		answers: map[string]string{
			"GET /api/v1/videos?limit=100":          `{"data":[{"_id":"vid_2","id":"vid_2","title":"B"}]}`,
			"GET /api/v1/videos?cursor=7&limit=100": `{"data":[{"_id":"vid_1","id":"vid_1","title":"A"}]}`,
		},
		next: map[string]string{"/api/v1/videos?limit=100": `<https://elsewhere.example/api/v1/videos?cursor=7&limit=100>; rel="next"`},
	}
	if got := s.run(t, "", "videos", "list", "--json"); got.code != 0 || strings.Count(got.out, "\n") != 2 || !strings.Contains(got.out, "vid_1") {
		t.Errorf("videos list --json returned %+v, want both pages", got)
	}
}

// Every field of another service's export that a link can keep must be in the request. Messages
// list the remaining fields.
func TestImportsKeepWhatTheSourceHas(t *testing.T) {
	t.Parallel()
	const day = 1767225600000 // 2026-01-01
	tests := []struct{ name, content, item, notKept string }{
		{"bitly.csv", "created,link,long_url,title,tags,clicks,custom_bitlinks\n2026-01-01,https://bit.ly/abc,https://e.example/,Sale,\"a,b\",12,x\n",
			fmt.Sprintf(`{"url":"https://e.example/","slug":"abc","title":"Sale","tags":["a","b"],"importedClicks":12,"createdAt":%d}`, day), "custom_bitlinks"},
		{"dub.csv", "key,domain,url,title,tags,createdAt,expiresAt,clicks,saleAmount\nabc,go.example.com,https://e.example/,Sale,\"a, b\",2026-01-01T00:00:00Z,2027-01-01T00:00:00Z,12,0\n",
			fmt.Sprintf(`{"url":"https://e.example/","slug":"abc","title":"Sale","domainId":"dom_1","expiresAt":1798761600000,"tags":["a","b"],"importedClicks":12,"createdAt":%d}`, day), "saleAmount"},
		{"dub.jsonl", `{"id":"x","key":"abc","domain":"dub.sh","url":"https://e.example/","tags":[{"id":"t","name":"a"}],"createdAt":"2026-01-01T00:00:00.000Z","clicks":12,"archived":true,"externalId":"e1","geo":null,"webhookIds":null}`,
			fmt.Sprintf(`{"url":"https://e.example/","slug":"abc","tags":["a"],"externalId":"e1","archived":true,"importedClicks":12,"createdAt":%d}`, day), "webhookIds"},
		{"shortio.csv", "originalURL,path,title,tags,createdAt,expiresAt,shortURL,clicksLimit,splitURL\nhttps://e.example/,abc,Sale,a|b,1767225600,,https://go.example.com/abc,,\n",
			fmt.Sprintf(`{"url":"https://e.example/","slug":"abc","title":"Sale","domainId":"dom_1","tags":["a","b"],"importedClicks":0,"createdAt":%d}`, day), "splitURL"},
		{"yourls.csv", "keyword,url,title,timestamp,ip,clicks\nabc,https://e.example/,Sale,2026-01-01 00:00:00,192.0.2.1,12\n",
			fmt.Sprintf(`{"url":"https://e.example/","slug":"abc","title":"Sale","importedClicks":12,"createdAt":%d}`, day), "ip"},
		{"shlink.csv", "Created at,Domain,Short URL,Short code,Long URL,Title,Tags,Visits\n2026-01-01T00:00:00+00:00,,https://s.example/abc,abc,https://e.example/,Sale,a|b,12\n",
			fmt.Sprintf(`{"url":"https://e.example/","slug":"abc","title":"Sale","tags":["a","b"],"importedClicks":12,"createdAt":%d}`, day), "s.example"},
		{"linkreel.csv", "id,slug,url,title,clicks,createdAt,shortUrl,domainId,expiresAt,tags,archived,externalId,importedClicks\nlnk_9,abc,https://e.example/, Sale ,12,2026-01-01T00:00:00.123Z,http://old.example/abc,,2027-01-01T00:00:00.456Z,\"a|b,c;d\",true,e1,30\n",
			fmt.Sprintf(`{"url":"https://e.example/","slug":"abc","title":" Sale ","domainId":"default","expiresAt":1798761600456,"tags":["a|b","c;d"],"externalId":"e1","archived":true,"importedClicks":42,"createdAt":%d}`, day+123), "old.example"},
		{"account.jsonl", `{"type":"account","data":{"id":"acc_1"}}` + "\n" + `{"type":"link","data":{"_id":"lnk_9","id":"lnk_9","slug":"abc","destinationUrl":"https://e.example/","title":"","clicks":3,"createdAt":1767225600000,"shortUrl":"http://old.example/abc","domainId":null,"expiresAt":null,"status":"active","tags":["a|b"],"externalId":null,"archived":false,"id":"lnk_9","ogTitle":"T","ogDescription":null,"ogImage":null,"updatedAt":1767225600001,"takenDown":null}}` + "\n",
			fmt.Sprintf(`{"url":"https://e.example/","slug":"abc","domainId":"default","ogTitle":"T","tags":["a|b"],"importedClicks":3,"createdAt":%d}`, day), "old.example"},
		{"plain.csv", "https://e.example/,abc,Sale\n", `{"url":"https://e.example/","slug":"abc","title":"Sale"}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{answers: map[string]string{
				"GET /api/v1/domains":     `{"data":[{"id":"dom_1","hostname":"go.example.com","status":"verified"}]}`,
				"POST /api/v1/links/bulk": `{"results":[{"status":201,"data":{"id":"lnk_1","shortUrl":"https://here.example/abc","slug":"abc","destinationUrl":"https://e.example/"},"ignoredFields":["importedClicks"]}]}`,
			}}
			got := s.run(t, "", "links", "import", file(t, tt.name, tt.content))
			var sent struct{ URLs []json.RawMessage }
			_, body, _ := strings.Cut(s.asked[len(s.asked)-1], "/bulk ")
			if err := json.Unmarshal([]byte(body), &sent); err != nil || len(sent.URLs) != 1 || string(sent.URLs[0]) != tt.item || got.code != 0 {
				t.Errorf("the import sent %s\nwant            %s\n%+v", body, tt.item, got)
			}
			if !strings.Contains(got.err, "not kept: ") || !strings.Contains(got.err, tt.notKept) || !strings.Contains(got.err, "importedClicks, which this deployment does not accept (1 link)") {
				t.Errorf("the import does not report %q as not kept: %s", tt.notKept, got.err)
			}
		})
	}
}

const wantedLinks = `
domains:
  - hostname: go.example.com
  - hostname: new.example.com
links:
  - slug: same
    url: https://e.example/same
    title: Same
    tags: [a, b]
  - {slug: moved, domain: go.example.com, url: "https://e.example/new", tags: [b], expiresAt: 2027-01-01T00:00:00Z, archived: false}
  - {slug: fresh, url: "https://e.example/fresh", title: Fresh}
`

func deployed() *scripted {
	return &scripted{answers: map[string]string{
		"GET /api/v1/domains":  `{"data":[{"id":"dom_1","hostname":"go.example.com","status":"verified"}]}`,
		"POST /api/v1/domains": `{"id":"dom_2","hostname":"new.example.com","status":"pending","records":[{"type":"TXT","name":"_linkreel.new.example.com","value":"v"}]}`,
		// A deployment that does not support the filters returns every link.
		"GET /api/v1/links":         `{"data":[{"_id":"lnk_9","id":"lnk_9","slug":"other"},{"_id":"lnk_1","id":"lnk_1","slug":"Same"},{"_id":"lnk_2","id":"lnk_2","slug":"moved","domainId":"dom_1"}],"hasMore":false,"nextCursor":null}`,
		"GET /api/v1/links/lnk_1":   `{"id":"lnk_1","slug":"same","destinationUrl":"https://e.example/same","title":"Same","tags":["a","b"]}`,
		"GET /api/v1/links/lnk_2":   `{"id":"lnk_2","slug":"moved","destinationUrl":"https://e.example/old","title":"kept","tags":[],"domainId":"dom_1"}`,
		"PATCH /api/v1/links/lnk_2": `{"success":true,"slug":"moved"}`,
		"POST /api/v1/links":        `{"id":"lnk_3"}`,
	}}
}

func (s *scripted) writes() (out []string) {
	for _, a := range s.asked {
		if !strings.HasPrefix(a, "GET ") {
			out = append(out, a)
		}
	}
	return out
}

func TestApplyMakesTheDifferenceAndNothingElse(t *testing.T) {
	t.Parallel()
	s := deployed()
	got := s.run(t, wantedLinks, "apply", "-f", "-")
	want := []string{
		`POST /api/v1/domains {"hostname":"new.example.com"}`,
		`PATCH /api/v1/links/lnk_2 {"url":"https://e.example/new","expiresAt":1798761600000,"tags":["b"]}`,
		`POST /api/v1/links {"url":"https://e.example/fresh","slug":"fresh","title":"Fresh","domainId":"default"}`,
	}
	if got.code != 0 || !slices.Equal(s.writes(), want) || !strings.Contains(got.err, "2 created, 1 changed, 2 unchanged, 0 failed") {
		t.Errorf("apply returned %+v\nwith writes %q\nwant            %q", got, s.writes(), want)
	}
	if !strings.Contains(got.out, "~ go.example.com/moved\n    url: \"https://e.example/old\" → \"https://e.example/new\"\n") {
		t.Errorf("the output lacks the changed url:\n%s", got.out)
	}
	dry := deployed()
	if got := dry.run(t, wantedLinks, "apply", "-f", "-", "--dry-run"); got.code != 0 || len(dry.writes()) != 0 || !strings.Contains(got.err, "2 created, 1 changed, 2 unchanged") {
		t.Errorf("the dry run returned %+v with writes %q, want none", got, dry.writes())
	}
}

func TestApplyRefusesAFileItCannotTrust(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"an unknown field":    "links: [{slug: a, url: 'https://e.example', titel: x}]",
		"no slug":             "links: [{url: 'https://e.example'}]",
		"the same link twice": "links: [{slug: a, url: 'https://e.example'}, {slug: A, url: 'https://e.example'}]",
		"a relative expiry":   "links: [{slug: a, url: 'https://e.example', expiresAt: 7d}]",
		"not YAML":            "links: [",
		"no host name":        "domains: [{homeUrl: 'https://e.example'}]",
		"the same host twice": "domains: [{hostname: a.example}, {hostname: A.example}]",
	} {
		s := deployed()
		if got := s.run(t, text, "apply", "-f", "-"); got.code != ExitUsage || len(s.asked) != 0 {
			t.Errorf("%s: apply returned %+v with requests %q, want exit code 2 and none", name, got, s.asked)
		}
	}
	s := deployed() // a link that cannot be created does not prevent the others from being applied
	if got := s.run(t, "links: [{slug: a, domain: none.example, url: 'https://e.example'}, {slug: fresh, url: 'https://e.example/fresh'}]", "apply", "-f", "-"); got.code != ExitPartly || len(s.writes()) != 1 {
		t.Errorf("apply returned %+v with writes %q, want exit code 6 and one write", got, s.writes())
	}
}

const wantedPages = `
domains:
  - {hostname: Go.example.com, homeUrl: "https://e.example/home", expiredUrl: ""}
  - {hostname: new.example.com, notFoundUrl: "https://e.example/lost"}
`

func TestApplySetsThePagesOfDomains(t *testing.T) {
	t.Parallel()
	have := func() *scripted {
		s := deployed()
		s.answers["GET /api/v1/domains"] = `{"data":[{"id":"dom_1","hostname":"go.example.com","status":"verified","notFoundUrl":"https://e.example/kept","expiredUrl":"https://e.example/over"}]}`
		s.answers["PATCH /api/v1/domains/dom_1"] = `{"id":"dom_1"}`
		s.answers["PATCH /api/v1/domains/dom_2"] = `{"id":"dom_2"}`
		return s
	}
	const diff = "~ domain go.example.com\n    homeUrl: \"\" → \"https://e.example/home\"\n    expiredUrl: \"https://e.example/over\" → \"\"\n" +
		"+ domain new.example.com\n    notFoundUrl: \"\" → \"https://e.example/lost\"\n"
	s := have()
	got := s.run(t, wantedPages, "apply", "-f", "-")
	want := []string{
		`PATCH /api/v1/domains/dom_1 {"homeUrl":"https://e.example/home","expiredUrl":null}`,
		`POST /api/v1/domains {"hostname":"new.example.com"}`,
		`PATCH /api/v1/domains/dom_2 {"notFoundUrl":"https://e.example/lost"}`,
	}
	if got.code != 0 || !slices.Equal(s.writes(), want) || got.out != diff || !strings.Contains(got.err, "1 created, 1 changed, 0 unchanged, 0 failed") {
		t.Errorf("apply returned %+v\nwith writes %q\nwant            %q", got, s.writes(), want)
	}
	s = have()
	if got := s.run(t, wantedPages, "apply", "-f", "-", "--dry-run"); got.code != 0 || len(s.writes()) > 0 || got.out != diff || !strings.Contains(got.err, "1 created, 1 changed") {
		t.Errorf("the dry run returned %+v with writes %q, want none", got, s.writes())
	}
	s = have() // a rejected page does not prevent the others from being applied
	delete(s.answers, "PATCH /api/v1/domains/dom_1")
	if got := s.run(t, wantedPages, "apply", "-f", "-"); got.code != ExitPartly || len(s.writes()) != 3 || !strings.Contains(got.err, "1 created, 0 changed, 0 unchanged, 1 failed") {
		t.Errorf("with a rejected page, apply returned %+v with writes %q, want exit code 6 and 3 writes", got, s.writes())
	}
}

// Applying the file in docs/cli.md to the account that the docs assume prints the sample output
// below it.
func TestTheExampleOfApplyPrintsItsSample(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language, first string) string {
		_, rest, _ := strings.Cut(string(guide), "```"+language+"\n"+first+"\n")
		text, _, _ := strings.Cut(rest, "```")
		return first + "\n" + text
	}
	s := &scripted{answers: map[string]string{
		"GET /api/v1/domains":     `{"data":[{"id":"dom_1","hostname":"go.example.com","status":"verified","homeUrl":"https://example.com/"}]}`,
		"GET /api/v1/links":       `{"data":[{"_id":"lnk_1","id":"lnk_1","slug":"docs","domainId":"dom_1"}]}`,
		"GET /api/v1/links/lnk_1": `{"id":"lnk_1","slug":"docs","destinationUrl":"https://example.com/old","domainId":"dom_1"}`,

		"PATCH /api/v1/domains/dom_1": `{"id":"dom_1"}`, "POST /api/v1/links": `{"id":"lnk_2"}`, "PATCH /api/v1/links/lnk_1": `{"slug":"docs"}`,
	}}
	got := s.run(t, block("yaml", "domains:"), "apply", "-f", "-")
	if want := block("text", "~ domain go.example.com"); got.code != 0 || got.out+got.err != want {
		t.Errorf("apply returned %+v, want the sample:\n%s", got, want)
	}
}

// `links create` prints a short URL, so the other commands accept one.
func TestCommandsNameALinkByItsAddressOrSlug(t *testing.T) {
	t.Parallel()
	const (
		both  = `{"data":[{"_id":"lnk_1","id":"lnk_1","slug":"Sale","shortUrl":"https://go.example.com/Sale"},{"_id":"lnk_2","id":"lnk_2","slug":"sale","shortUrl":"https://other.example/sale"}]}`
		one   = `{"data":[{"_id":"lnk_1","id":"lnk_1","slug":"Sale","shortUrl":"https://go.example.com/Sale"}]}`
		none  = `{"data":[]}`
		ok2   = `{"results":[{"status":200},{"status":200}]}`
		list  = "GET /api/v1/links"
		found = "GET /api/v1/links?limit=100&slug=sale"
	)
	for _, tt := range []struct {
		args    string
		answers map[string]string
		asked   []string
		code    int
		err     string
	}{
		{"links get https://other.example/sale", map[string]string{list: both, list + "/lnk_2": `{}`}, []string{found, list + "/lnk_2"}, 0, ""},
		{"links stats sale", map[string]string{list: one, list + "/lnk_1/stats": `{}`}, []string{found, list + "/lnk_1/stats"}, 0, ""},
		{"links explain sale", map[string]string{list: one, list + "/lnk_1/explain": `{}`}, []string{found, list + "/lnk_1/explain"}, 0, ""},
		{"links update go.example.com/sale --title T", map[string]string{list: both, "PATCH /api/v1/links/lnk_1": `{}`}, []string{found, `PATCH /api/v1/links/lnk_1 {"title":"T"}`}, 0, ""},
		{"links delete sale", map[string]string{list: one, "DELETE /api/v1/links/lnk_1": ""}, []string{found, "DELETE /api/v1/links/lnk_1"}, 0, "deleted lnk_1"},
		{"links delete sale lnk_1 lnk_2", map[string]string{list: one, "POST /api/v1/links/bulk-delete": ok2},
			[]string{found, `POST /api/v1/links/bulk-delete {"ids":["lnk_1","lnk_2"]}`}, 0, "deleted lnk_1\ndeleted lnk_2"},
		{"links change sale lnk_2 --add-tag a", map[string]string{list: one, "PATCH /api/v1/links/bulk": ok2},
			[]string{found, `PATCH /api/v1/links/bulk {"ids":["lnk_1","lnk_2"],"set":{"addTags":["a"]}}`}, 0, "changed lnk_1"},
		{"links delete lnk_2 sale", map[string]string{list: none}, []string{found}, ExitNotFound, "sale: No link has this short URL or slug; `linkreel links list --search` finds links. (LINK_NOT_FOUND)"},
		{"links get sale", map[string]string{list: none}, []string{found}, ExitNotFound, "/docs/guides/errors#link_not_found\n"},
		{"links delete lnk_2 sale", map[string]string{list: both}, []string{found}, ExitUsage, "sale: several domains have a link with this slug"},
	} {
		s := &scripted{answers: tt.answers}
		got := s.run(t, "", strings.Fields(tt.args)...)
		if got.code != tt.code || !slices.Equal(s.asked, tt.asked) || !strings.Contains(got.err, tt.err) {
			t.Errorf("%s made requests %q and returned %+v", tt.args, s.asked, got)
		}
	}
}

// An API error ends with the URL of the page that explains it, except with --json and --quiet.
func TestErrorsNameTheirPage(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"code":"LINK_NOT_FOUND","message":"no","docUrl":"/docs/errors#link_not_found"}}`)
	}))
	t.Cleanup(srv.Close)
	for flags, page := range map[string]string{"": "See " + srv.URL + "/docs/errors#link_not_found\n", "--quiet": "", "--json": ""} {
		var errs bytes.Buffer
		args := append([]string{"links", "get", "lnk_1"}, strings.Fields(flags)...)
		code := Run(t.Context(), args, Env{Out: io.Discard, Err: &errs, ConfigDir: t.TempDir(), Now: time.Now, Getenv: func(name string) string {
			return map[string]string{"LINKREEL_BASE_URL": srv.URL + "/", "LINKREEL_API_KEY": "good"}[name]
		}})
		if want := "linkreel: no (LINK_NOT_FOUND)\n" + page; code != ExitNotFound || errs.String() != want {
			t.Errorf("with %s, exit code %d with %q, want %q", flags, code, errs.String(), want)
		}
	}
}
