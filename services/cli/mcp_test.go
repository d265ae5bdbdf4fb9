package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/cli/clitest"
)

// inMemory returns a session with an MCP server that calls the API at base.
func inMemory(t *testing.T, base string, change func(*tools)) *clitest.Talk {
	t.Helper()
	c, err := client.New(client.Config{BaseURL: base, Key: "good"})
	if err != nil {
		t.Fatal(err)
	}
	tl := &tools{app: &app{env: Env{Now: time.Now, Getenv: func(string) string { return "" }, StateDir: t.TempDir()}}, client: c}
	if change != nil {
		change(tl)
	}
	ours, theirs := mcp.NewInMemoryTransports()
	if _, err := tl.server().Connect(t.Context(), ours, nil); err != nil {
		t.Fatal(err)
	}
	return clitest.TalkOver(t, theirs)
}

func toolNames(t *testing.T, k *clitest.Talk) (names []string) {
	t.Helper()
	for tool, err := range k.Session.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if tool.Description == "" || tool.InputSchema == nil || tool.OutputSchema == nil || tool.Annotations == nil {
			t.Errorf("tool %s lacks a description, a schema or annotations", tool.Name)
		}
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

func TestAssistantThatMayOnlyReadHasNoOtherTools(t *testing.T) {
	t.Parallel()
	_, base := fakeService(t)
	all := toolNames(t, inMemory(t, base, func(tl *tools) { tl.folder = t.TempDir() }))
	if diff := cmp.Diff([]string{
		"add_domain", "check_slug", "create_link", "delete_link", "delete_video", "explain_link", "find_links", "find_videos", "get_account", "get_link",
		"get_video", "link_stats", "list_domains", "list_tags", "set_captions", "set_thumbnail", "set_video_access", "update_domain", "update_link",
		"update_links", "update_video", "upload_video", "verify_domain",
	}, all); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	// If the user has not chosen a folder, none of the tools may read local files.
	if without := toolNames(t, inMemory(t, base, nil)); slices.Contains(without, "upload_video") || len(without) != len(all)-1 {
		t.Errorf("without --files, the tools are %v, want all except upload_video", without)
	}
	reading := toolNames(t, inMemory(t, base, func(tl *tools) { tl.readOnly = true }))
	if diff := cmp.Diff([]string{
		"check_slug", "explain_link", "find_links", "find_videos", "get_account", "get_link", "get_video", "link_stats", "list_domains", "list_tags",
	}, reading); diff != "" {
		t.Errorf("tools with --read-only (-want +got):\n%s", diff)
	}
	guide, err := os.ReadFile("../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if !bytes.Contains(guide, []byte("`"+name+"`")) {
			t.Errorf("docs/mcp.md does not mention %s", name)
		}
	}
}

// An assistant may disclose everything that it reads, so tools must never return an upload URL,
// whatever scopes the key has.
func TestNoToolShowsAnAddressThatWrites(t *testing.T) {
	t.Parallel()
	f, base := fakeService(t)
	f.status = "uploading"
	k := inMemory(t, base, nil)
	if v := clitest.Good[map[string]any](k, "get_video", clitest.Args{"id": "vid_1"}); v["status"] == nil {
		t.Fatalf("get_video returned %v, want a status", v)
	}
	k.Call("find_videos", nil)
	if said := k.Answers(); strings.Contains(said, "/session") || strings.Contains(said, "ploadUrl") {
		t.Errorf("the messages contain an upload URL, want none:\n%s", said)
	}
}

// Clients that use an earlier protocol version start with initialize. Standard output must contain
// only protocol messages.
func TestAssistantSpeaksTheOlderProtocolOnStandardOutputAlone(t *testing.T) {
	t.Parallel()
	_, base := fakeService(t)
	in, typed := io.Pipe()
	shown, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := Run(t.Context(), []string{"mcp"}, Env{In: in, Out: out, Err: io.Discard, Now: time.Now, ConfigDir: t.TempDir(), StateDir: t.TempDir(),
			Getenv: func(name string) string {
				return map[string]string{"LINKREEL_BASE_URL": base, "LINKREEL_API_KEY": "good"}[name]
			}})
		_ = out.Close()
		ended <- code
	}()
	lines := bufio.NewScanner(shown)
	ask := func(message string) (answer struct {
		ID     int
		Result map[string]any
		Error  any
	}) {
		t.Helper()
		if _, err := io.WriteString(typed, message+"\n"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(message, `"id"`) {
			return answer
		}
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &answer) != nil || answer.Error != nil {
			t.Fatalf("the response to %s is %q, %v; want a result", message, lines.Text(), lines.Err())
		}
		return answer
	}
	hello := ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`)
	if hello.Result["protocolVersion"] != "2025-06-18" || hello.Result["instructions"] == "" {
		t.Errorf("initialize returned %+v, want protocol version 2025-06-18 and instructions", hello)
	}
	ask(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	made := ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"create_link","arguments":{"url":"https://example.com","slug":"old"}}}`)
	if link, _ := made.Result["structuredContent"].(map[string]any); link["slug"] != "old" {
		t.Errorf("create_link returned %+v, want slug old", made)
	}
	_ = typed.Close()
	if code := <-ended; code != ExitOK {
		t.Errorf("after the client disconnected, got exit code %d, want 0", code)
	}
	for lines.Scan() {
		t.Errorf("after the session ended, the output contains %q, want nothing more", lines.Text())
	}
}

// A search takes one request, and the links in its result contain everything that an assistant needs
// to tell the user.
func TestAssistantSearchIsOneRequest(t *testing.T) {
	t.Parallel()
	s := &scripted{answers: map[string]string{
		"GET /api/v1/domains": `{"data":[{"id":"dom_1","hostname":"go.example.com","status":"verified"}]}`,
		"GET /api/v1/links":   `{"data":[{"_id":"lnk_1","id":"lnk_1","slug":"a","shortUrl":"https://go.example.com/a","tags":["x"],"status":"active","createdAt":1}],"hasMore":true,"nextCursor":77}`,
	}}
	k := inMemory(t, serve(t, s), nil)
	found := clitest.Good[findLinksOut](k, "find_links", clitest.Args{"text": "spring sale", "tags": []string{"x", "y"}, "archived": "false", "limit": 7, "cursor": "88"})
	if len(found.Links) != 1 || found.Links[0].ShortURL != "https://go.example.com/a" || found.Links[0].Tags[0] != "x" || found.NextCursor != "77" {
		t.Errorf("find_links returned %+v, want the link and next cursor 77", found)
	}
	if want := []string{"GET /api/v1/links?archived=false&cursor=88&limit=7&q=spring+sale&tag=x&tag=y"}; !slices.Equal(s.asked, want) {
		t.Errorf("the requests are %q, want %q", s.asked, want)
	}
	clitest.Good[findLinksOut](k, "find_links", clitest.Args{"domain": "GO.example.com"})
	if last := s.asked[len(s.asked)-1]; last != "GET /api/v1/links?domainId=dom_1" {
		t.Errorf("the last request is %q, want GET /api/v1/links?domainId=dom_1", last)
	}
}

// People refer to links by their short URLs.
func TestAssistantNamesALinkByItsAddressOrSlug(t *testing.T) {
	t.Parallel()
	s := &scripted{answers: map[string]string{
		"GET /api/v1/links":          `{"data":[{"_id":"lnk_1","id":"lnk_1","slug":"Sale","shortUrl":"https://go.example.com/Sale"},{"_id":"lnk_2","id":"lnk_2","slug":"sale","shortUrl":"https://other.example/sale"}]}`,
		"DELETE /api/v1/links/lnk_1": "", "DELETE /api/v1/links/lnk_2": "",
	}}
	k := inMemory(t, serve(t, s), nil)
	for name, want := range map[string]string{
		"https://go.example.com/sale": "lnk_1", "go.example.com/Sale?a=b": "lnk_1", "http://other.example/sale/more": "lnk_2", "lnk_2": "lnk_2",
	} {
		if got := clitest.Good[deletedOut](k, "delete_link", clitest.Args{"id": name}); got.ID != want {
			t.Errorf("deleting %s deleted %s, want %s", name, got.ID, want)
		}
	}
	k.Bad("delete_link", clitest.Args{"id": "sale"}, "INVALID_ARGUMENT: ", "full short URL")
	k.Bad("delete_link", clitest.Args{"id": "third.example/sale"}, "LINK_NOT_FOUND: ", "find_links")
	k.Bad("delete_link", clitest.Args{"id": "https://go.example.com/"}, "INVALID_ARGUMENT: ")
}

func TestAChangeThatIsMadeIsNotToldAsFailed(t *testing.T) {
	t.Parallel()
	s := &scripted{answers: map[string]string{ // all GETs fail
		"POST /api/v1/links":                 `{"id":"lnk_1","link":{"id":"lnk_1","slug":"made","ogTitle":"Seen"}}`,
		"PATCH /api/v1/links/lnk_1":          `{"success":true,"link":{"id":"lnk_1","slug":"made","title":"New"}}`,
		"PATCH /api/v1/videos/vid_1":         `{"success":true,"video":{"id":"vid_1","title":"New"}}`,
		"PUT /api/v1/videos/vid_1/thumbnail": `{"success":true,"video":{"id":"vid_1","title":"New"}}`,

		"GET /api/v1/videos/vid_1/access":         `{"privacy":"public","allowDownload":true}`, // set_video_access reads this first
		"PUT /api/v1/videos/vid_1/access":         `{"privacy":"unlisted","allowDownload":false}`,
		"PUT /api/v1/videos/vid_1/captions/en":    `{"success":true,"language":"en"}`,
		"DELETE /api/v1/videos/vid_1/captions/en": "",
	}}
	k := inMemory(t, serve(t, s), nil)
	if got := clitest.Good[linkOut](k, "create_link", clitest.Args{"url": "https://e.example"}); got.Slug != "made" || got.OGTitle != "Seen" {
		t.Errorf("create_link returned %+v, want the created link", got)
	}
	if got := clitest.Good[linkOut](k, "update_link", clitest.Args{"id": "lnk_1", "title": "New"}); got.Title != "New" {
		t.Errorf("update_link returned %+v, want title New", got)
	}
	if got := clitest.Good[videoOut](k, "update_video", clitest.Args{"id": "vid_1", "title": "New"}); got.Title != "New" {
		t.Errorf("update_video returned %+v, want title New", got)
	}
	if got := clitest.Good[videoOut](k, "set_thumbnail", clitest.Args{"id": "vid_1", "second": 1}); got.Title != "New" {
		t.Errorf("set_thumbnail returned %+v, want title New", got)
	}
	got := clitest.Good[videoOut](k, "set_video_access", clitest.Args{"id": "vid_1", "privacy": "unlisted", "allowDownload": false})
	if got.ID != "vid_1" || got.Privacy != "unlisted" || got.Download == nil || *got.Download {
		t.Errorf("set_video_access returned %+v, want unlisted without download", got)
	}
	for _, args := range []clitest.Args{{"vtt": "WEBVTT"}, {"remove": true}} {
		args["id"], args["language"] = "vid_1", "en"
		if got := clitest.Good[videoOut](k, "set_captions", args); got.ID != "vid_1" || !strings.Contains(got.Next, "the change was made") || !strings.Contains(got.Next, "NOT_FOUND") {
			t.Errorf("set_captions returned %+v, want a note that the change was made", got)
		}
	}
}

func TestAnUploadWhoseVideoCannotBeReadIsNotToldAsFailed(t *testing.T) {
	t.Parallel()
	for _, seconds := range []int{0, 30} {
		sent := false
		var srv *httptest.Server
		srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPost:
				_, _ = io.WriteString(w, `{"videoId":"vid_1","id":"vid_1"}`)
			case r.Method == http.MethodPut:
				sent = true
			case sent:
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, `{"error":{"code":"INSUFFICIENT_SCOPE","message":"No longer.","requestId":"r"}}`)
			default:
				_, _ = io.WriteString(w, `{"id":"vid_1","status":"uploading","shareUrl":"https://h.example/v/abc","uploadUrl":"`+srv.URL+`/bytes"}`)
			}
		}))
		t.Cleanup(srv.Close)
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "clip.mp4"), []byte("\x00\x00\x00\x18ftypmp42"), 0o600); err != nil {
			t.Fatal(err)
		}
		k := inMemory(t, srv.URL, func(tl *tools) { tl.folder = folder })
		got := clitest.Good[videoOut](k, "upload_video", clitest.Args{"path": "clip.mp4", "waitSeconds": seconds})
		if !sent || got.ShareURL != "https://h.example/v/abc" || !strings.Contains(got.Next, "INSUFFICIENT_SCOPE") {
			t.Errorf("with waitSeconds %d, the file was sent: %v, and the result is %+v; want true, the share URL and a note about INSUFFICIENT_SCOPE", seconds, sent, got)
		}
	}
}

// An assistant retries the failed links and reports the others as done.
func TestAChangeOfManyLinksSaysWhichFailed(t *testing.T) {
	t.Parallel()
	s := &scripted{answers: map[string]string{
		"GET /api/v1/links?limit=100&slug=a":  `{"data":[{"id":"lnk_1","slug":"a","shortUrl":"https://go.example.com/a"}]}`,
		"GET /api/v1/links?limit=100&slug=no": `{"data":[]}`,
		"GET /api/v1/links?limit=100&slug=x":  `{"data":[{"id":"lnk_3","slug":"x","shortUrl":"https://go.example.com/x"},{"id":"lnk_4","slug":"x","shortUrl":"https://other.example/x"}]}`,
		"PATCH /api/v1/links/bulk":            `{"results":[{"status":200,"id":"lnk_1","data":{"id":"lnk_1"}},{"status":404,"id":"lnk_2","error":{"code":"LINK_NOT_FOUND","message":"No such link."}}]}`,
	}}
	k := inMemory(t, serve(t, s), nil)
	got := clitest.Good[updateLinksOut](k, "update_links", clitest.Args{"ids": []string{"no", "a", "x", "lnk_2"}, "archived": true})
	var failed []string
	for _, f := range got.Failed {
		failed = append(failed, f.ID+" "+f.Code)
	}
	if want := []string{"no LINK_NOT_FOUND", "x INVALID_ARGUMENT", "lnk_2 LINK_NOT_FOUND"}; got.Changed != 1 || !slices.Equal(got.Done, []string{"a"}) || !slices.Equal(failed, want) {
		t.Errorf("update_links returned %+v, want one changed link and failures %q", got, want)
	}
	if last := s.asked[len(s.asked)-1]; last != `PATCH /api/v1/links/bulk {"ids":["lnk_1","lnk_2"],"set":{"archived":true}}` {
		t.Errorf("the last request is %s, want a change to lnk_1 and lnk_2", last)
	}
	if got := clitest.Good[updateLinksOut](k, "update_links", clitest.Args{"ids": []string{"no"}, "archived": true}); got.Changed != 0 || len(got.Failed) != 1 {
		t.Errorf("for a missing link, update_links returned %+v, want one failed link", got)
	}
}

func TestAChangeOfManyLinksThatBreaksOffSaysHowFarItCame(t *testing.T) {
	t.Parallel()
	refused := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Query().Get("slug") == "a" {
			_, _ = io.WriteString(w, `{"data":[{"id":"lnk_1","slug":"a"}]}`)
			return
		}
		w.WriteHeader(refused)
		_, _ = io.WriteString(w, `{"error":{"code":"SOME_CODE","message":"Because.","requestId":"r"}}`)
	}))
	t.Cleanup(srv.Close)
	k := inMemory(t, srv.URL, func(tl *tools) {
		var err error
		if tl.client, err = client.New(client.Config{BaseURL: srv.URL, Key: "good", Attempts: 1}); err != nil {
			t.Fatal(err)
		}
	})
	for _, tt := range []struct {
		status      int
		first, says string
	}{
		{503, "b", `SOME_CODE: Looking up "b" failed, and no link was changed: Because.`},
		{503, "lnk_2", "SOME_CODE: Some of the links may have been changed."},
		{400, "lnk_2", "SOME_CODE: No link was changed: Because."},
	} {
		refused = tt.status
		k.Bad("update_links", clitest.Args{"ids": []string{"a", tt.first}, "archived": true}, tt.says)
	}
}

func TestAccessIsReplacedOnlyIfItIsAsRead(t *testing.T) {
	t.Parallel()
	var sent []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			sent = append(sent, r.Header.Get("If-Match"))
		}
		w.Header().Set("ETag", `"7"`)
		_, _ = io.WriteString(w, `{"id":"vid_1","privacy":"public"}`)
	}))
	t.Cleanup(srv.Close)
	k := inMemory(t, srv.URL, nil)
	clitest.Good[videoOut](k, "set_video_access", clitest.Args{"id": "vid_1", "privacy": "unlisted"})
	env := Env{Now: time.Now, Out: io.Discard, Err: io.Discard, ConfigDir: t.TempDir(), StateDir: t.TempDir(), Getenv: func(name string) string {
		return map[string]string{"LINKREEL_BASE_URL": srv.URL, "LINKREEL_API_KEY": "good"}[name]
	}}
	if code := Run(t.Context(), []string{"videos", "access", "vid_1", "--privacy", "unlisted"}, env); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if !slices.Equal(sent, []string{`"7"`, `"7"`}) {
		t.Errorf("the If-Match headers of the changes are %q, want \"7\" twice", sent)
	}
}

func TestAssistantNamesAVideoByItsAddress(t *testing.T) {
	t.Parallel()
	s := &scripted{answers: map[string]string{
		"GET /api/v1/videos": `{"data":[{"id":"vid_1","slug":"abc"}]}`, "DELETE /api/v1/videos/vid_1": "",
	}}
	k := inMemory(t, serve(t, s), nil)
	for _, end := range []string{"", "/", "?t=30", "#t=30"} {
		if got := clitest.Good[deletedOut](k, "delete_video", clitest.Args{"id": "https://h.example/v/abc" + end}); got.ID != "vid_1" {
			t.Errorf("deleting the URL that ends in %q deleted %s, want vid_1", end, got.ID)
		}
	}
	asked := len(s.asked)
	k.Bad("delete_video", clitest.Args{"id": "https://h.example/v/?t=30"}, "INVALID_ARGUMENT: ")
	if len(s.asked) != asked {
		t.Errorf("an invalid URL caused requests %v, want none", s.asked[asked:])
	}
}

func TestAssistantChangesTagsWithoutLosingTheOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in    tagsIn
		clear []string
		want  string // JSON of the change; "refused" if it is rejected
	}{
		"nothing":        {tagsIn{}, nil, "{}"},
		"replace":        {tagsIn{Tags: []string{"c"}}, nil, `{"tags":["c"]}`},
		"add and remove": {tagsIn{AddTags: []string{"c", "A"}, RemoveTags: []string{"B"}}, nil, `{"tags":["a","c"]}`},
		"remove all":     {tagsIn{RemoveTags: []string{"a", "b"}}, nil, `{"tags":[]}`},
		"clear":          {tagsIn{}, []string{"tags"}, `{"tags":[]}`},
		"both":           {tagsIn{Tags: []string{"c"}, AddTags: []string{"d"}}, nil, "refused"},
		"clear and add":  {tagsIn{AddTags: []string{"d"}}, []string{"tags"}, "refused"},
	} {
		var change client.LinkUpdate
		got := "refused"
		if err := c.in.update(&change.Tags, c.clear, []string{"a", "b"}); err == nil {
			b, err := json.Marshal(change)
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != c.want {
			t.Errorf("%s: the change is %s, want %s", name, got, c.want)
		}
	}
}

// If a tool's schema rejects an argument, the error has a code, like all other errors.
func TestAssistantIsToldTheCodeOfAWrongArgument(t *testing.T) {
	t.Parallel()
	_, base := fakeService(t)
	k := inMemory(t, base, func(tl *tools) { tl.folder = t.TempDir() })
	for name, in := range map[string]clitest.Args{
		"find_links": {"limit": "abc"}, "find_videos": {"limit": 1000}, "create_link": {"url": "https://example.com", "slgu": "x"}, "get_link": {}, "upload_video": {"path": "x", "privacy": "secret"},
	} {
		res := k.Call(name, in)
		if text := clitest.Said(res); !res.IsError || !strings.HasPrefix(text, "INVALID_ARGUMENT: ") || strings.Contains(text, "reflect") {
			t.Errorf("%s with %v returned %q, want INVALID_ARGUMENT", name, in, text)
		}
	}
}

// Text from a stranger may tell an assistant to send a particular file. A file that is not a video
// must not leave the machine: the tool does not create a record or send anything.
func TestAssistantSendsNothingThatDoesNotBeginLikeAVideo(t *testing.T) {
	t.Parallel()
	packets := strings.Repeat("G"+strings.Repeat("x", 187), 4)
	stamped := strings.Repeat("1234G"+strings.Repeat("x", 187), 4)
	for name, head := range map[string]string{
		"mp4": "\x00\x00\x00\x18ftypmp42", "mov": "\x00\x00\x00\x08wide", "mkv": "\x1a\x45\xdf\xa3", "avi": "RIFF\x00\x00\x00\x00AVI LIST", "flv": "FLV\x01",
		"ogg": "OggS", "mpg": "\x00\x00\x01\xba", "ts": packets, "m2ts": stamped,
	} {
		if err := looksLikeVideo(file(t, name, head)); err != nil {
			t.Errorf("looksLikeVideo(%s) returned %v, want no error", name, err)
		}
	}
	folder := t.TempDir()
	s := &scripted{}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	k := inMemory(t, srv.URL, func(tl *tools) { tl.folder = folder })
	for name, content := range map[string]string{"hostname": "my-machine\n", "id_ed25519": "-----BEGIN OPENSSH PRIVATE KEY-----\n", "empty": "", "song.wav": "RIFF\x00\x00\x00\x00WAVE", "page.ts": "Good morning"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if res := k.Call("upload_video", clitest.Args{"path": name}); !res.IsError || !strings.HasPrefix(clitest.Said(res), "NOT_A_VIDEO: ") {
			t.Errorf("uploading %s returned %q, want NOT_A_VIDEO", name, clitest.Said(res))
		}
	}
	if len(s.asked) > 0 {
		t.Errorf("the service received requests %v, want none", s.asked)
	}
}

// A line that is not JSON must get an error and must not end the session.
func TestAssistantSurvivesALineOfGarbage(t *testing.T) {
	t.Parallel()
	_, base := fakeService(t)
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
this is not JSON {
{"jsonrpc":"2.0","id":2,"method":"ping"}
`)
	shown, out := io.Pipe()
	ended := make(chan int, 1)
	typed, hold := io.Pipe() // the end of the input ends the session, so keep the input open until both responses have arrived
	go func() {
		code := Run(t.Context(), []string{"mcp"}, Env{In: io.MultiReader(in, typed), Out: out, Err: io.Discard, Now: time.Now, ConfigDir: t.TempDir(), StateDir: t.TempDir(),
			Getenv: func(name string) string {
				return map[string]string{"LINKREEL_BASE_URL": base, "LINKREEL_API_KEY": "good"}[name]
			}})
		_ = out.Close()
		ended <- code
	}()
	var refused, answered bool
	lines := bufio.NewScanner(shown)
	for !(refused && answered) && lines.Scan() {
		var m struct {
			ID    *int
			Error *struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatalf("cannot parse response %q: %v", lines.Text(), err)
		}
		refused = refused || m.ID == nil && m.Error != nil && m.Error.Code == -32700
		answered = answered || m.ID != nil && *m.ID == 2 && m.Error == nil
	}
	_ = hold.Close()
	for lines.Scan() { // read until the program has exited
		continue
	}
	if code := <-ended; !refused || !answered || code != ExitOK {
		t.Errorf("got an error for the invalid line: %v, a response to the ping: %v, and exit code %d; want true, true and 0", refused, answered, code)
	}
}
