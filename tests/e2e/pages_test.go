package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// list is one of the API's lists.
type list struct {
	path string
	// field is the record field that contains the value returned by create.
	field string
	// create creates record n. remove deletes the record that create returned. It is nil if records
	// cannot be deleted.
	create func(n int) string
	remove func(record string)
}

// lists creates records for every list that has a cursor in its body.
func (a *tenantOf) lists() map[string]list {
	type m = map[string]any
	under := func(path string) func(string) {
		return func(record string) { a.want(204, "DELETE", path+record, nil) }
	}
	hook := func(n int) string {
		return a.want(201, "POST", "/api/v1/webhooks", m{"url": fmt.Sprintf("https://receiver.example/%d", n), "events": []string{"key.rolled"}}).str("id")
	}
	video := "/api/v1/videos/" + a.want(201, "POST", "/api/v1/videos", m{"title": "With captions"}).str("videoId")
	deliveries := "/api/v1/webhooks/" + hook(99)
	languages := []string{"de", "fr", "nl", "sv", "da", "fi", "it", "es", "pt", "pl", "cs", "sk", "hu", "ro", "bg", "el"}
	return map[string]list{
		"links": {"/api/v1/links", "id", func(n int) string {
			return a.want(201, "POST", "/api/v1/links", m{"url": fmt.Sprintf("https://example.com/%d", n)}).str("id")
		}, under("/api/v1/links/")},
		"tags": {"/api/v1/tags", "name", func(n int) string {
			name := fmt.Sprintf("tag %d of %s", n*7%10, a.id)
			a.want(201, "POST", "/api/v1/links", m{"url": "https://example.com/tags", "tags": []string{name}})
			return name
		}, nil},
		"domains": {"/api/v1/domains", "id", func(n int) string {
			return a.want(201, "POST", "/api/v1/domains", m{"hostname": fmt.Sprintf("d%d.%s.example.org", n, strings.ToLower(a.id[4:12]))}).str("id")
		}, under("/api/v1/domains/")},
		"keys": {"/api/v1/keys", "id", func(n int) string {
			return a.want(201, "POST", "/api/v1/keys", m{"name": fmt.Sprint(n), "scopes": []string{"links:read"}}).str("id")
		}, under("/api/v1/keys/")},
		"members": {"/api/v1/members", "id", func(n int) string {
			return a.admin.want(201, "POST", "/admin/v1/accounts/"+a.id+"/sign-in-links", m{"name": fmt.Sprint(n), "role": "viewer"}).str("memberId")
		}, under("/api/v1/members/")},
		"invitations": {"/api/v1/invitations", "id", func(int) string {
			return a.want(201, "POST", "/api/v1/invitations", m{"role": "viewer"}).str("id")
		}, under("/api/v1/invitations/")},
		"webhooks": {"/api/v1/webhooks", "id", hook, under("/api/v1/webhooks/")},
		"deliveries": {deliveries + "/deliveries", "id", func(int) string {
			return a.want(202, "POST", deliveries+"/test", nil).str("id")
		}, nil},
		"captions": {video + "/captions", "language", func(n int) string {
			track := "WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n"
			return a.want(200, "PUT", video+"/captions/"+languages[n%len(languages)], track, "Content-Type", "text/vtt").str("language")
		}, under(video + "/captions/")},
	}
}

// page reads a page of two records. cursor is nil for the first page.
func (c *caller) page(l list, cursor any) (records []string, next any) {
	c.t.Helper()
	q := url.Values{"limit": {"2"}}
	if cursor != nil {
		q.Set("cursor", cursorText(cursor))
	}
	a := c.want(200, "GET", l.path+"?"+q.Encode(), nil)
	for _, r := range a.json["data"].([]any) {
		record, _ := r.(map[string]any)
		id, ok := record[l.field].(string)
		if !ok {
			c.t.Fatalf("%s: a record lacks %s: %v", l.path, l.field, record)
		}
		records = append(records, id)
	}
	next = a.json["nextCursor"]
	if more := a.json["hasMore"]; more != (next != nil) {
		c.t.Errorf("%s: hasMore is %v and nextCursor is %v, want a cursor only if hasMore is true", l.path, more, next)
	}
	if next != nil && len(records) != 2 {
		c.t.Errorf("%s: a page that is not the last has %d records, want 2", l.path, len(records))
	}
	return records, next
}

// cursorText formats a cursor as a query parameter. Link cursors are integers.
func cursorText(cursor any) string {
	if n, ok := cursor.(float64); ok {
		return fmt.Sprintf("%.0f", n)
	}
	return cursor.(string)
}

// The test adds and removes records while it reads pages. Each record that exists throughout the
// test must appear once.
func TestEveryListComesInPages(t *testing.T) {
	t.Parallel()
	file := stackFile{BaseURL: stack.BaseURL, AdminURL: stack.AdminURL, AdminToken: stack.AdminToken}
	mine, other := newTenant(t, file, "Pages"), newTenant(t, file, "Other pages")
	mine.http.Transport = as(t, plan).http.Transport // checks each exchange against the contract
	others := other.lists()
	cursors := map[string]string{}
	lists := mine.lists()
	for name, l := range lists {
		stay, seen, n := map[string]bool{}, map[string]int{}, 0
		create := func() string { n++; return l.create(n) }
		var gone []string
		for range 4 {
			stay[create()] = true
			if l.remove != nil {
				gone = append(gone, create())
			}
		}
		var cursor any
		for {
			records, next := mine.page(l, cursor)
			for _, r := range records {
				seen[r]++
			}
			if next == nil {
				break
			}
			if cursor = next; cursors[name] == "" {
				cursors[name] = cursorText(next)
			}
			if len(gone) > 0 {
				l.remove(gone[0])
				gone = gone[1:]
			}
			if len(gone) > 1 { // otherwise the list would grow forever
				create()
			}
		}
		for r := range stay {
			if seen[r] != 1 {
				t.Errorf("%s: %s was listed %d times, want 1", name, r, seen[r])
			}
		}
		if cursors[name] == "" {
			t.Errorf("%s: the list has only one page", name)
		}
	}
	for name, l := range lists {
		refused := func(code, why, query string) {
			t.Helper()
			if a := mine.do("GET", l.path+"?"+query, nil); a.status != http.StatusBadRequest || a.code() != code {
				t.Errorf("%s with %s: %d %s, want 400 %s", name, why, a.status, a.raw, code)
			}
		}
		for _, limit := range []string{"0", "101", "-1", "1.5", "all", ""} {
			refused("VALIDATION_ERROR", "an invalid limit", "limit="+limit)
		}
		refused("INVALID_CURSOR", "an empty cursor", "cursor=")
		refused("INVALID_CURSOR", "a made-up cursor", "cursor=nonsense")
		for of, cursor := range cursors {
			if of != name {
				refused("INVALID_CURSOR", "a cursor of "+of, "cursor="+cursor)
			}
		}
		if name == "links" {
			continue // the cursor is an integer that is valid in every account's list
		}
		theirs := others[name]
		for n := range 3 {
			theirs.create(n)
		}
		_, next := other.page(theirs, nil)
		refused("INVALID_CURSOR", "another account's cursor", "cursor="+cursorText(next))
	}
}
