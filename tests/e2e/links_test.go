package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestALinkFromCreateToDelete(t *testing.T) {
	t.Parallel()
	c := as(t, "creator")
	made := c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/a?b=c#d", "title": "Näme <b>"})
	id, slug := made.str("id"), made.str("slug")
	if got, want := made.str("shortUrl"), stack.ShortBaseURL+"/"+slug; got != want {
		t.Errorf("shortUrl is %q, want %q", got, want)
	}
	if got, want := made.header.Get("Location"), "/api/v1/links/"+id; !strings.HasSuffix(got, want) {
		t.Errorf("Location is %q, want a suffix of %q", got, want)
	}
	if _, err := time.Parse(time.RFC3339, made.str("createdAt")); err != nil {
		t.Errorf("createdAt in the response to a create is not ISO 8601: %v", err)
	}

	first := visit(t, made.str("shortUrl"))
	if first.status != 302 || first.header.Get("Location") != "https://example.com/a?b=c#d" || first.header.Get("Cache-Control") != "private, no-store" {
		t.Fatalf("the redirect is %d to %q with Cache-Control %q, want 302 to the destination with private, no-store", first.status, first.header.Get("Location"), first.header.Get("Cache-Control"))
	}
	upper := visit(t, stack.ShortBaseURL+"/"+strings.ToUpper(slug))
	if upper.status != 302 {
		t.Errorf("the slug in upper case returned %d, want 302", upper.status)
	}
	eventually(t, 10*time.Second, "both clicks are counted", func() bool {
		return c.want(200, "GET", "/api/v1/links/"+id, nil).json["clicks"] == 2.0
	})

	c.want(200, "PATCH", "/api/v1/links/"+id, map[string]any{"url": "https://example.org/", "title": nil})
	if next := visit(t, made.str("shortUrl")); next.header.Get("Location") != "https://example.org/" {
		t.Errorf("after the change, the link redirects to %q, want https://example.org/", next.header.Get("Location"))
	}
	got := c.want(200, "GET", "/api/v1/links/"+id, nil)
	if got.json["title"] != "" || got.json["status"] != "active" || got.json["destinationUrl"] != "https://example.org/" {
		t.Errorf("the changed link is %s, want an active one without a title", got.raw)
	}

	c.want(200, "PATCH", "/api/v1/links/"+id, map[string]any{"expiresAt": "2020-01-01"})
	if gone := visit(t, made.str("shortUrl")); gone.status != 410 {
		t.Errorf("an expired link returned %d, want 410", gone.status)
	}
	c.want(200, "PATCH", "/api/v1/links/"+id, map[string]any{"expiresAt": nil})
	if back := visit(t, made.str("shortUrl")); back.status != 302 {
		t.Errorf("after its expiry was removed, the link returned %d, want 302", back.status)
	}

	if gone := c.want(204, "DELETE", "/api/v1/links/"+id, nil); len(gone.raw) != 0 {
		t.Errorf("a delete returned the body %q, want none", gone.raw)
	}
	if dead := visit(t, made.str("shortUrl")); dead.status != 404 {
		t.Errorf("a deleted link returned %d, want 404", dead.status)
	}
	if again := c.do("DELETE", "/api/v1/links/"+id, nil); again.code() != "LINK_NOT_FOUND" {
		t.Errorf("a second delete returned %d, want LINK_NOT_FOUND: %s", again.status, again.raw)
	}
}

func TestBulkAnswersInInputOrder(t *testing.T) {
	t.Parallel()
	c := as(t, "business")
	taken := fmt.Sprintf("taken-%d", time.Now().UnixNano())
	c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/", "slug": taken})
	all := c.want(201, "POST", "/api/v1/links/bulk", map[string]any{"urls": []any{
		map[string]any{"url": "https://example.com/1"}, map[string]any{"url": "https://example.com/2", "title": "two"}}})
	if got := statuses(all); !cmp.Equal(got, []int{201, 201}) {
		t.Errorf("the statuses are %v, want 201 and 201", got)
	}
	mixed := c.want(207, "POST", "/api/v1/links/bulk", map[string]any{"urls": []any{
		map[string]any{"url": "https://example.com/3"},
		map[string]any{"url": "ftp://example.com/"},
		map[string]any{"url": "https://example.com/4", "slug": strings.ToUpper(taken)},
		map[string]any{"url": "https://example.com/5"},
	}})
	if got := statuses(mixed); !cmp.Equal(got, []int{201, 400, 409, 201}) {
		t.Errorf("the statuses are %v, want 201, 400, 409 and 201", got)
	}
	third := mixed.json["results"].([]any)[2].(map[string]any)["error"].(map[string]any)
	if third["code"] != "SLUG_TAKEN" || third["url"] != "https://example.com/4" {
		t.Errorf("the taken slug's error is %v, want SLUG_TAKEN for https://example.com/4", third)
	}
}

func statuses(a *answer) (out []int) {
	for _, r := range a.json["results"].([]any) {
		out = append(out, int(r.(map[string]any)["status"].(float64)))
	}
	return out
}

func TestListPagesByCursor(t *testing.T) {
	t.Parallel()
	c := newAccount(t, "creator")
	var want []string
	for i := range 7 {
		want = append([]string{c.want(201, "POST", "/api/v1/links", map[string]any{"url": fmt.Sprintf("https://example.com/%d", i)}).str("id")}, want...)
	}
	var got []string
	for path := "/api/v1/links?limit=3"; path != ""; {
		page := c.want(200, "GET", path, nil)
		for _, item := range page.json["data"].([]any) {
			got = append(got, item.(map[string]any)["_id"].(string))
		}
		path = ""
		if page.json["hasMore"] == true {
			path = fmt.Sprintf("/api/v1/links?limit=3&cursor=%.0f", page.json["nextCursor"])
		} else if page.json["nextCursor"] != nil {
			t.Errorf("the last page has the nextCursor %v, want null", page.json["nextCursor"])
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the pages list the wrong links (-want +got):\n%s", d)
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	body := map[string]any{"url": "https://example.com/"}
	bulk := map[string]any{"urls": []any{body}}
	for _, tt := range []struct {
		plan, path string
		body       any
		status     int
		code       string
	}{
		{"free", "/api/v1/links", body, 403, "PLAN_REQUIRED"},
		{"creator", "/api/v1/links", body, 201, ""},
		{"creator", "/api/v1/links/bulk", bulk, 403, "PLAN_REQUIRED"},
		{"business", "/api/v1/links/bulk", bulk, 201, ""},
		{"enterprise", "/api/v1/links/bulk", bulk, 201, ""},
		{"free", "/api/v1/videos", map[string]any{}, 403, "PLAN_REQUIRED"},
		{"creator", "/api/v1/videos", map[string]any{}, 201, ""},
		{"free", "/api/v1/links", "not json", 403, "PLAN_REQUIRED"},
	} {
		t.Run(tt.plan+tt.path+" "+tt.code, func(t *testing.T) {
			t.Parallel()
			a := as(t, tt.plan).do("POST", tt.path, tt.body)
			if a.status != tt.status || a.code() != tt.code {
				t.Errorf("the response is %d %s, want %d %s", a.status, a.raw, tt.status, tt.code)
			}
		})
	}
}

func TestForeignAndMissingRecordsAnswerAlike(t *testing.T) {
	t.Parallel()
	mine, other := newAccount(t, "creator"), newAccount(t, "creator")
	link := mine.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/"}).str("id")
	video := mine.want(201, "POST", "/api/v1/videos", map[string]any{"title": "mine"}).str("videoId")
	for _, tt := range []struct{ method, foreign, missing string }{
		{"GET", "/api/v1/links/" + link, "/api/v1/links/lnk_0000000000000000000000"},
		{"PATCH", "/api/v1/links/" + link, "/api/v1/links/lnk_0000000000000000000000"},
		{"DELETE", "/api/v1/links/" + link, "/api/v1/links/x"},
		{"GET", "/api/v1/videos/" + video, "/api/v1/videos/vid_0000000000000000000000"},
		{"PATCH", "/api/v1/videos/" + video, "/api/v1/videos/vid_0000000000000000000000"},
		{"DELETE", "/api/v1/videos/" + video, "/api/v1/videos/x"},
	} {
		t.Run(tt.method+" "+tt.foreign, func(t *testing.T) {
			t.Parallel()
			var body any
			if tt.method == http.MethodPatch {
				body = map[string]any{"title": 1} // 404 takes precedence over 400
			}
			other := *other
			other.t = t
			a, b := other.do(tt.method, tt.foreign, body), other.do(tt.method, tt.missing, body)
			if a.status != 404 || b.status != 404 {
				t.Fatalf("another account's record returned %d %s and a missing one %d %s, want 404 for both", a.status, a.raw, b.status, b.raw)
			}
			strip := func(x *answer) string {
				return strings.ReplaceAll(string(x.raw), x.header.Get("X-Request-Id"), "")
			}
			if strip(a) != strip(b) {
				t.Errorf("another account's record returned %s and a missing one %s, want the same error", a.raw, b.raw)
			}
		})
	}
}

// newAccount creates an account through the operator API and returns a caller for it.
func newAccount(t testing.TB, plan string) *caller {
	t.Helper()
	op := as(t, plan)
	op.base, op.key = stack.AdminURL, stack.AdminToken
	account := op.want(201, "POST", "/admin/v1/accounts", map[string]any{"name": t.Name(), "plan": plan})
	key := op.want(201, "POST", "/admin/v1/accounts/"+account.str("id")+"/keys", map[string]any{"name": "test"})
	c := as(t, plan)
	c.key = key.str("key")
	return c
}

func TestASuspendedAccountsAddressesAnswer410(t *testing.T) {
	t.Parallel()
	op := as(t, "enterprise")
	op.base, op.key = stack.AdminURL, stack.AdminToken
	acct := op.want(201, "POST", "/admin/v1/accounts", map[string]any{"name": "Suspended", "plan": "creator"}).str("id")
	c := as(t, "creator")
	c.key = op.want(201, "POST", "/admin/v1/accounts/"+acct+"/keys", map[string]any{"name": "k"}).str("key")
	short := c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/"}).str("shortUrl")
	share := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": "T"}).str("shareUrl")
	for range 2 {
		// Fill the caches first because the later responses must be correct even though a replica
		// has cached the records.
		if a, b := visit(t, short).status, visit(t, share).status; a != 302 || b != 200 {
			t.Fatalf("before the suspension, the link returned %d and the page %d, want 302 and 200", a, b)
		}
		op.want(200, "PATCH", "/admin/v1/accounts/"+acct, map[string]any{"suspended": true})
		for _, address := range []string{short, share} {
			if got := visit(t, address); got.status != 410 {
				t.Errorf("%s for a suspended account returned %d, want 410", address, got.status)
			}
			if got := visit(t, address, "Accept", "application/json"); got.status != 410 || got.code() != "ACCOUNT_SUSPENDED" {
				t.Errorf("%s as JSON returned %d, want 410 ACCOUNT_SUSPENDED: %s", address, got.status, got.raw)
			}
		}
		if got := c.do("GET", "/api/v1/links", nil); got.status != 403 || got.code() != "ACCOUNT_SUSPENDED" {
			t.Errorf("the API returned %d, want 403 ACCOUNT_SUSPENDED: %s", got.status, got.raw)
		}
		op.want(200, "PATCH", "/admin/v1/accounts/"+acct, map[string]any{"suspended": false})
	}
	if a, b := visit(t, short).status, visit(t, share).status; a != 302 || b != 200 {
		t.Errorf("after the suspension, the link returned %d and the page %d, want 302 and 200", a, b)
	}
}

// The transport checks each response against the API document.
func TestATakenExternalIDIsRefusedAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	c := as(t, "creator")
	id := fmt.Sprint("taken-", time.Now().UnixNano())
	c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/", "externalId": id})
	other := c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/"})
	for _, a := range []*answer{
		c.want(409, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/", "externalId": id}),
		c.want(409, "PATCH", "/api/v1/links/"+other.str("id"), map[string]any{"externalId": id}),
	} {
		if a.code() != "EXTERNAL_ID_TAKEN" {
			t.Errorf("the status is %d, want EXTERNAL_ID_TAKEN: %s", a.status, a.raw)
		}
	}
}
