package contract_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apispec"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/tests/contract"
)

// needNode skips a test of the TypeScript client if the machine does not have a supported version
// of Node. Debian's version is too old, so `make tools` cannot install a supported one.
func needNode(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	var major int
	if _, serr := fmt.Sscanf(string(out), "v%d.", &major); err != nil || serr != nil || major < 20 {
		t.Skipf("the Node version is %q, but the TypeScript client needs 20 or later (%v); the Go and Python client tests make the same calls", strings.TrimSpace(string(out)), err)
	}
}

// stackFile writes the running stack's stack.json for the clients' scripts.
func stackFile(t *testing.T) string {
	t.Helper()
	b, err := json.MarshalIndent(running, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), ".local", "stack.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func clip(t *testing.T, path string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc2=s=320x180:d=2", "-pix_fmt", "yuv420p", path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot make a clip: %v: %s", err, out)
	}
}

func run(t *testing.T, dir string, cmd *exec.Cmd, env ...string) {
	t.Helper()
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(cmd.Args[:1], " "), err, out.Bytes()[max(0, out.Len()-4000):])
	}
}

func TestTypeScriptClient(t *testing.T) {
	t.Parallel()
	needNode(t)
	run(
		t, "../../libs/clients/typescript", exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec", "test/"), // the output ends with the failed tests
		"LINKREEL_STACK="+stackFile(t), "LINKREEL_OPENAPI="+documentFile(t),
	)
}

// documentFile writes the API document as JSON for programs in other languages.
func documentFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "openapi.json")
	if err := os.WriteFile(path, apispec.Load().JSON(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The Go client sends its requests through the contract's transport, which checks each of them
// against the document.
func TestGoClient(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	secret, _ := key(t, &http.Client{Timeout: 30 * time.Second}, "business", nil)
	c, err := client.New(client.Config{BaseURL: running.BaseURL, Key: secret, HTTPClient: &http.Client{Transport: contract.NewTransport(t, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	made, err := c.CreateLink(ctx, client.LinkCreate{URL: "https://example.com/go", Title: "Go", ExpiresAt: client.At(time.Now().Add(time.Hour))})
	must(err)
	_, err = c.UpdateLink(ctx, made.ID, client.LinkUpdate{Title: client.Clear[string](), ExpiresAt: client.Clear[client.Time](), OGTitle: client.Set("Preview")})
	must(err)
	l, err := c.GetLink(ctx, made.ID)
	must(err)
	if l.Title != "" || l.ExpiresAt != nil || l.OGTitle == nil || *l.OGTitle != "Preview" {
		t.Errorf("the updated link is %+v, want no title, no expiry and the preview title", l)
	}
	_, err = c.GetLinkStats(ctx, made.ID, client.GetLinkStatsQuery{})
	must(err)
	rules := []client.LinkRule{{Name: "phones", When: client.LinkRuleWhen{Device: []string{"phone"}, Percent: 50}, URL: "https://example.com/app"}}
	_, err = c.UpdateLink(ctx, made.ID, client.LinkUpdate{Rules: client.Set(rules), ForwardQuery: client.Set(true)})
	must(err)
	told, err := c.ExplainLink(ctx, made.ID, client.ExplainLinkQuery{
		Device: "phone", Query: "a=1", Percent: new(0), At: client.At(time.Now().Add(time.Hour)).String(),
	})
	must(err)
	if told.Rule == nil || *told.Rule != "phones" || told.Location == nil || *told.Location != "https://example.com/app?a=1" {
		t.Errorf("the explanation is %+v, want the rule phones and its location", told)
	}
	free, err := c.CheckSlug(ctx, client.CheckSlugQuery{Slug: made.Slug})
	must(err)
	if free.Available || free.Reason == nil || *free.Reason != "taken" {
		t.Errorf("checking an existing link's slug returned %+v, want taken", free)
	}
	const many = client.BulkMax + 20 // two requests
	items := make([]client.LinkCreate, many)
	for i := range items {
		items[i] = client.LinkCreate{URL: "https://example.com/bulk"}
	}
	items[7].URL = "not a link"
	results, err := c.CreateLinks(ctx, items)
	must(err)
	if results[7].Error == nil || results[7].Error.URL != "not a link" || results[8].Data == nil {
		t.Errorf("the results are %+v and %+v, want an error for \"not a link\" and then a link", results[7], results[8])
	}
	n := 0
	for _, err := range c.Links(ctx, client.ListLinksQuery{}) {
		must(err)
		n++
	}
	if n != many {
		t.Errorf("the iterator returned %d links, want %d", n, many)
	}
	must(c.DeleteLink(ctx, made.ID))
	if _, err := c.GetLink(ctx, made.ID); !client.HasCode(err, "LINK_NOT_FOUND") {
		t.Errorf("reading a deleted link returned %v, want LINK_NOT_FOUND", err)
	}

	d, err := c.CreateDomain(ctx, client.DomainCreate{Hostname: "go.client-test.example"})
	must(err)
	_, err = client.All(c.Domains(ctx))
	must(err)
	must(c.DeleteDomain(ctx, d.ID))

	k, err := c.CreateKey(ctx, client.KeyCreate{Name: "k", Scopes: []string{"links:read"}})
	must(err)
	rolled, err := c.RollKey(ctx, k.ID, client.KeyRoll{OverlapSeconds: new(int64(60))})
	must(err)
	must(c.RevokeKey(ctx, rolled.ID))
	_, err = client.All(c.Keys(ctx))
	must(err)
	acc, err := c.GetAccount(ctx)
	must(err)
	if acc.Plan != "business" || acc.Usage.Links != many-1 {
		t.Errorf("the account is %+v, want the business plan and %d links", acc, many-1)
	}

	video(t, c)
}

func video(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "clip.mp4")
	clip(t, path)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	// A file that is not a video fails with a reason. After that, the same record must accept a
	// valid file.
	made, err := c.CreateVideo(ctx, client.VideoCreate{Title: "Clip", Privacy: "unlisted"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Upload(ctx, client.Upload{File: strings.NewReader("no video"), Size: 8, URL: made.UploadURL}); err != nil {
		t.Fatal(err)
	}
	var why *client.VideoError
	if _, err := c.WaitVideo(ctx, made.VideoID, nil); !errors.As(err, &why) {
		t.Fatalf("waiting for a text file returned %v, want a VideoError", err)
	}
	again, err := c.GetVideo(ctx, made.VideoID)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SendVideo(ctx, again, f, nil); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	// The status stays failed until the service notices the new file.
	for deadline := time.Now().Add(2 * time.Minute); ; {
		v, err := c.WaitVideo(ctx, made.VideoID, func(v *client.Video) { seen[v.Status] = true })
		if err == nil && v.Status == "ready" {
			break
		}
		if !errors.As(err, &why) || time.Now().After(deadline) {
			t.Fatalf("waiting for the clip returned %v after the statuses %v, want a ready video", err, seen)
		}
		time.Sleep(200 * time.Millisecond) // a real system must be polled in real time
	}
	if _, err := c.PutCaptions(ctx, made.VideoID, "en", []byte("WEBVTT\n\n00:00.000 --> 00:01.000\nHi\n")); err != nil {
		t.Error(err)
	}
	if _, err := c.UpdateVideo(ctx, made.VideoID, client.VideoUpdate{Description: client.Set("Two seconds.")}); err != nil {
		t.Error(err)
	}
	if page, err := c.ListVideos(ctx, client.ListVideosQuery{Limit: 1}); err != nil || len(page.Data) != 1 || page.Data[0].Status != "ready" {
		t.Errorf("listing the videos returned %+v, %v; want one ready video", page, err)
	}
	if err := c.DeleteVideo(ctx, made.VideoID); err != nil {
		t.Error(err)
	}
}

// This test compares the Go client with the API document. It is not in the client's module, because
// that module must depend only on the standard library.
func TestGoClientTypesHoldEveryFieldOfTheDocument(t *testing.T) {
	t.Parallel()
	var doc map[string]any
	if err := json.Unmarshal(apispec.Load().JSON(), &doc); err != nil {
		t.Fatal(err)
	}
	for schema, v := range map[string]any{
		"LinkCreated": &client.LinkCreated{}, "LinkSummary": &client.LinkSummary{}, "Link": &client.Link{}, "LinkList": &client.LinkPage{},
		"LinkStats": &client.LinkStats{}, "Domain": &client.Domain{}, "VideoCreated": &client.VideoCreated{}, "VideoSummary": &client.VideoSummary{},
		"Video": &client.Video{}, "Rendition": &client.Rendition{}, "Account": &client.Account{}, "Key": &client.Key{}, "KeyCreated": &client.KeyCreated{},
	} {
		props := doc["components"].(map[string]any)["schemas"].(map[string]any)[schema].(map[string]any)["properties"].(map[string]any)
		given := map[string]any{}
		for name := range props {
			if name != "_id" || props["id"] == nil {
				given[name] = nil
			}
		}
		b, err := json.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.DisallowUnknownFields()
		if err := dec.Decode(v); err != nil {
			t.Errorf("the client's type lacks a field in %s: %v", schema, err)
		}
	}
}

// Users run the TypeScript client's example on several runtimes. The test runs it on each of
// them, over a network with every kind of failure. Nothing should be created twice or lost.
func TestTypeScriptTour(t *testing.T) {
	t.Parallel()
	needNode(t)
	client, err := filepath.Abs("../../libs/clients/typescript")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string][]string{"node": {"node", "tour.js"}}
	if os.Getenv("LINKREEL_FULL") != "" { // `make runtimes` installs the other runtimes
		programs["deno"] = []string{client + "/runtimes/node_modules/@deno/linux-x64-glibc/deno", "run", "-A", "tour.ts"}
		programs["bun"] = []string{client + "/runtimes/node_modules/@oven/bun-linux-x64/bin/bun", "tour.ts"}
	}
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			clip(t, filepath.Join(dir, "clip.mp4"))
			if err := os.MkdirAll(filepath.Join(dir, "node_modules", "@linkreel"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(client, filepath.Join(dir, "node_modules", "@linkreel", "client")); err != nil {
				t.Fatal(err)
			}
			for from, to := range map[string]string{"dist/examples/tour.js": "tour.js", "examples/tour.ts": "tour.ts"} {
				b, err := os.ReadFile(filepath.Join(client, from))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, to), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`), 0o600); err != nil {
				t.Fatal(err)
			}
			secret, _ := key(t, &http.Client{Timeout: 30 * time.Second}, "business", allScopes)
			storage := httptest.NewServer(&contract.Hostile{Target: running.UploadURL, Seed: 32})
			defer storage.Close()
			hostile := &contract.Hostile{Target: running.BaseURL, Seed: 32, Rewrite: strings.NewReplacer(running.UploadURL, storage.URL), Outage: 4 * time.Second}
			proxy := httptest.NewServer(hostile)
			defer proxy.Close()
			cmd := exec.CommandContext(t.Context(), program[0], append(program[1:], "clip.mp4")...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "LINKREEL_BASE_URL="+proxy.URL, "LINKREEL_API_KEY="+secret)
			var told bytes.Buffer
			cmd.Stderr = &told
			out, err := cmd.Output()
			t.Logf("%v: %s", hostile.Deeds, told.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if len(hostile.Deeds) != 10 {
				t.Errorf("the proxy injected the failures %v, want all 10 kinds", hostile.Deeds)
			}
			checkTour(t, out, secret, "webhook.test")
		})
	}
}

// allScopes are the scopes for the accounts that a tour runs on.
var allScopes = []string{"links:read", "links:write", "videos:read", "videos:write", "events:read", "webhooks:read", "webhooks:write"}

// checkTour compares the example's report with the account.
func checkTour(t *testing.T, report []byte, secret, message string) {
	t.Helper()
	var r struct {
		Made, Events   []string
		Refused        int
		Video, Message string
		Progress       int64
	}
	if err := json.Unmarshal(report, &r); err != nil {
		t.Fatalf("cannot parse the report: %v: %s", err, report)
	}
	if len(r.Made) != 991 || r.Refused != 10 || r.Message != message || r.Progress == 0 {
		t.Errorf("the report has %d created, %d rejected, the message %q and the progress %d; want 991, 10, %q and some progress", len(r.Made), r.Refused, r.Message, r.Progress, message)
	}
	slices.Sort(r.Made)
	slices.Sort(r.Events)
	if !slices.Equal(r.Made, r.Events) {
		t.Errorf("the %d created records in the feed differ from the %d in the report", len(r.Events), len(r.Made))
	}
	c, err := client.New(client.Config{BaseURL: running.BaseURL, Key: secret})
	if err != nil {
		t.Fatal(err)
	}
	links, videos := 0, 0
	for l, err := range c.Links(t.Context(), client.ListLinksQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(r.Made, l.ID) {
			t.Errorf("the account has link %s, which is missing from the report", l.ID)
		}
		links++
	}
	for _, err := range c.Videos(t.Context(), client.ListVideosQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		videos++
	}
	if links != 990 || videos != 1 {
		t.Errorf("the account has %d links and %d videos, want 990 and 1", links, videos)
	}
}
