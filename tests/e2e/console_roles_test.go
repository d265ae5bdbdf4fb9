package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// The test checks each cell of the role table through the API, with a session for each role. An
// allowed call succeeds. Any other call gets a 403 that names the missing scope.
func TestRoleTableThroughTheAPI(t *testing.T) {
	t.Parallel()
	account, all := colleagues(t)
	roles := []string{"viewer", "member", "admin", "owner"}
	people := map[string]*caller{}
	for role, who := range all {
		c := as(t, plan)
		c.http = &http.Client{Timeout: patience} // an export is not the JSON document that the contract's transport expects
		c.key = who.session()
		people[role] = c
	}
	owner := people["owner"]
	link := "/api/v1/links/" + owner.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/"}).str("id")
	video := "/api/v1/videos/" + owner.want(201, "POST", "/api/v1/videos", map[string]any{"title": "Cell"}).str("videoId")
	domain := "/api/v1/domains/" + owner.want(201, "POST", "/api/v1/domains", map[string]any{"hostname": "roles." + account[4:10] + ".example.com"}).str("id")
	hook := "/api/v1/webhooks/" + owner.want(201, "POST", "/api/v1/webhooks", map[string]any{"url": "http://127.0.0.1:19999/", "events": []string{"link.created"}}).str("id")
	spare := operator(t).want(201, "POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"name": "Spare", "role": "viewer"}).str("memberId")
	// made creates the record that a cell deletes.
	made := func(path, field string, body map[string]any) func(string) string {
		return func(string) string { return path + "/" + owner.want(201, "POST", path, body).str(field) }
	}
	type m = map[string]any
	for _, row := range []struct {
		lowest, method string
		path           any // a string, or a function that makes one for a role
		body           any
	}{
		{"viewer", "GET", "/api/v1/account", nil},
		{"viewer", "GET", "/api/v1/links", nil},
		{"viewer", "GET", "/api/v1/tags", nil},
		{"viewer", "GET", link, nil},
		{"viewer", "GET", link + "/stats", nil},
		{"viewer", "GET", link + "/qr", nil},
		{"viewer", "GET", "/api/v1/videos", nil},
		{"viewer", "GET", video, nil},
		{"viewer", "GET", video + "/access", nil},
		{"viewer", "GET", video + "/captions", nil},
		{"viewer", "GET", "/api/v1/domains", nil},
		{"viewer", "GET", domain, nil},
		{"member", "POST", "/api/v1/links", m{"url": "https://example.com/x"}},
		{"member", "POST", "/api/v1/links/bulk", m{"urls": []m{{"url": "https://example.com/b"}}}},
		{"member", "PATCH", "/api/v1/links/bulk", m{"ids": []string{link[len("/api/v1/links/"):]}, "set": m{"addTags": []string{"t"}}}},
		{"member", "PATCH", link, m{"title": "T"}},
		{"member", "DELETE", made("/api/v1/links", "id", m{"url": "https://example.com/d"}), nil},
		{"member", "POST", "/api/v1/videos", m{"title": "V"}},
		{"member", "PATCH", video, m{"title": "V"}},
		{"member", "PUT", video + "/access", m{"privacy": "unlisted"}},
		{"member", "PUT", video + "/captions/en", "WEBVTT\n\n00:00.000 --> 00:01.000\nWind\n"},
		{"member", "DELETE", made("/api/v1/videos", "videoId", m{}), nil},
		{"admin", "POST", func(role string) string { return "/api/v1/domains?of=" + role }, nil},
		{"admin", "POST", domain + "/verify", nil},
		{"admin", "DELETE", func(role string) string {
			return made("/api/v1/domains", "id", m{"hostname": role + ".gone." + account[4:10] + ".example.com"})(role)
		}, nil},
		{"admin", "GET", "/api/v1/webhooks", nil},
		{"admin", "GET", hook, nil},
		{"admin", "GET", hook + "/deliveries", nil},
		{"admin", "POST", "/api/v1/webhooks", m{"url": "http://127.0.0.1:19999/", "events": []string{"*"}}},
		{"admin", "PATCH", hook, m{"description": "d"}},
		{"admin", "POST", hook + "/test", nil},
		{"admin", "POST", hook + "/roll-secret", m{"overlapSeconds": 0}},
		{"admin", "GET", "/api/v1/events", nil},
		{"admin", "GET", "/api/v1/keys", nil},
		{"admin", "POST", "/api/v1/keys", m{"name": "k", "scopes": []string{"links:read"}}},
		{"admin", "DELETE", made("/api/v1/keys", "id", m{"name": "gone", "scopes": []string{"links:read"}}), nil},
		{"admin", "GET", "/api/v1/members", nil},
		{"admin", "PATCH", "/api/v1/members/" + spare, m{"name": "Part"}},
		{"admin", "POST", "/api/v1/members/" + spare + "/sign-in-links", nil},
		{"admin", "GET", "/api/v1/invitations", nil},
		{"admin", "POST", "/api/v1/invitations", m{"role": "admin"}},
		{"admin", "DELETE", made("/api/v1/invitations", "id", m{"role": "viewer"}), nil},
		{"owner", "POST", "/api/v1/invitations", m{"role": "owner"}},
		{"owner", "DELETE", made("/api/v1/invitations", "id", m{"role": "owner"}), nil},
		{"owner", "PATCH", "/api/v1/members/" + all["owner"].id, m{"role": "owner"}},
		{"owner", "GET", "/api/v1/account/export", nil},
	} {
		may := false
		for _, role := range roles {
			may = may || role == row.lowest
			path, body := "", row.body
			switch p := row.path.(type) {
			case string:
				path = p
			case func(string) string:
				path = p(role)
			}
			if of, found := strings.CutPrefix(path, "/api/v1/domains?of="); found {
				path, body = "/api/v1/domains", m{"hostname": of + "." + account[4:10] + ".example.com"}
			}
			var headers []string
			if strings.Contains(path, "/captions/") {
				headers = []string{"Content-Type", "text/vtt"}
			}
			got := people[role].do(row.method, path, body, headers...)
			// The domain has no DNS records, so its verification may fail. The role still allows
			// the call.
			done := got.status < 300 || strings.HasSuffix(path, "/verify") && got.status != http.StatusForbidden && got.status < 500
			if done != may || !may && got.code() != "INSUFFICIENT_SCOPE" {
				t.Errorf("%s: %s", role, fmt.Sprintf("%s %s: %d %.200s", row.method, path, got.status, got.raw))
			}
		}
	}
}
