package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/identity"
)

// Anyone with a video's upload URL can replace its file, and anyone with a session's URL can end
// the recording. The API therefore only returns these URLs to callers with the videos:write scope.
func TestReadersGetNoAddressThatWrites(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var delivered strings.Builder
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&delivered, r.Body) // the sender retries an interrupted request
	}))
	t.Cleanup(receiver.Close)
	account, people := colleagues(t)
	base, err := url.Parse(stack.BaseURL)
	check(t, err)
	with := func(key string) *caller {
		c := as(t, plan)
		c.key, c.http = key, &http.Client{Timeout: patience} // an export is not the JSON document that the contract's transport expects
		return c
	}
	session := func(role string) *caller {
		for _, cookie := range people[role].http.Jar.Cookies(base) {
			if cookie.Name == "linkreel_session" {
				return with(cookie.Value)
			}
		}
		t.Fatalf("the member with the %s role has no session", role)
		return nil
	}
	owner := session("owner")
	var reading []string
	for _, s := range identity.AllScopes.Names() {
		if strings.HasSuffix(s, ":read") {
			reading = append(reading, s)
		}
	}
	type m = map[string]any
	hook := owner.want(201, "POST", "/api/v1/webhooks", m{"url": receiver.URL, "events": []string{"*"}}).str("id")
	made := owner.want(201, "POST", "/api/v1/keys", m{"name": "analytics", "scopes": reading})

	empty := filepath.Join(t.TempDir(), "empty")
	check(t, os.WriteFile(empty, nil, 0o600))

	// Create a video without its file, a recording, and a failed video.
	var ids []string
	for _, body := range []m{{"title": "Waiting"}, {"title": "Recording", "recording": true}, {"title": "Failed"}} {
		v := owner.want(201, "POST", "/api/v1/videos", body)
		if v.str("uploadUrl") == "" || v.str("resumableUploadUrl") == "" {
			t.Fatalf("the owner's response does not contain an upload URL: %s", v.raw)
		}
		ids = append(ids, v.str("videoId"))
		if body["title"] == "Failed" {
			put(t, v.str("uploadUrl"), empty, "")
		}
	}
	eventually(t, patience, "the failed video has new URLs for the owner", func() bool {
		v := owner.want(200, "GET", "/api/v1/videos/"+ids[2], nil)
		return v.str("status") == "failed" && v.str("uploadUrl") != "" && v.str("resumableUploadUrl") != ""
	})
	link := owner.want(201, "POST", "/api/v1/links", m{"url": "https://example.com/"}).str("id")
	domain := owner.want(201, "POST", "/api/v1/domains", m{"hostname": "readers." + account[4:10] + ".example.com"}).str("id")
	eventually(t, patience, "the events are delivered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(delivered.String(), "video.failed") && strings.Contains(delivered.String(), "domain.created")
	})

	clean := func(where, text string) {
		t.Helper()
		for _, id := range ids {
			for _, writes := range []string{"uploads/" + id, "uploads%2F" + id, "upload_id=", `"uploadUrl"`, `"resumableUploadUrl"`, `"uploadUrlExpiresAt"`} {
				// The API document contains the field names.
				if strings.Contains(text, writes) && !(strings.HasPrefix(writes, `"`) && strings.Contains(where, "openapi")) {
					t.Errorf("%s contains %s, want no URLs that permit writes", where, writes)
					return
				}
			}
		}
	}
	ofKind := map[string][]string{
		"links": {link}, "videos": ids, "domains": {domain}, "webhooks": {hook}, "keys": {made.str("id")},
	}
	readers := map[string]*caller{"a key with read scopes": with(made.str("key")), "a viewer": session("viewer")}
	asked := 0
	for _, route := range apispec.Load().Routes() {
		if route.Method != http.MethodGet || strings.HasPrefix(route.Path, "/admin/") {
			continue
		}
		paths := []string{route.Path}
		if kind, _, _ := strings.Cut(strings.TrimPrefix(route.Path, "/api/v1/"), "/"); strings.Contains(route.Path, "{id}") {
			paths = nil
			for _, id := range ofKind[kind] {
				paths = append(paths, strings.Replace(route.Path, "{id}", id, 1))
			}
			if paths == nil {
				t.Errorf("%s: add the ID of a record to read", route.Path)
			}
		}
		for _, path := range paths {
			for who, c := range readers {
				got := c.do(http.MethodGet, path, nil)
				clean(who+": GET "+path, string(got.raw))
				if got.status == 200 {
					asked++
				}
			}
			clean("the owner's "+path, func() string {
				if strings.HasPrefix(path, "/api/v1/videos/") && strings.Count(path, "/") == 4 {
					return "" // only this operation returns the URLs
				}
				return string(owner.do(http.MethodGet, path, nil).raw)
			}())
		}
	}
	if asked < 20 {
		t.Errorf("only %d responses were checked, want at least 20", asked)
	}
	for _, path := range []string{"/app/videos", "/app/videos/" + ids[0], "/app/videos/" + ids[1], "/app/videos/" + ids[2], "/app/videos/" + ids[2] + "/status", "/app/activity", "/app"} {
		clean("a viewer's page "+path, people["viewer"].get(stack.BaseURL+path).html)
	}
	mu.Lock()
	defer mu.Unlock()
	clean("a webhook's payload", delivered.String())
}
