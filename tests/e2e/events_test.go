package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/events"
)

// told is an event as the feed returns it.
type told struct {
	ID, Type, Object string
	Actor            struct{ Type, ID, Name string }
	RequestID        *string
	Data             json.RawMessage
}

// feed reads all of the account's events, oldest first.
func (a *tenantOf) feed() (out []told) {
	a.t.Helper()
	for cursor := ""; ; {
		var page struct {
			Data       []told
			HasMore    bool
			NextCursor string
		}
		got := a.surely(200, "GET", "/api/v1/events?limit=100&after="+url.QueryEscape(cursor), nil)
		if err := json.Unmarshal(got.raw, &page); err != nil {
			a.t.Fatal(err)
		}
		out = append(out, page.Data...)
		if cursor = page.NextCursor; !page.HasMore {
			return out
		}
	}
}

// change is one action on an account, with exactly the events that it must write. An event consists
// of its type, a space, and its object's ID. An event without an ID matches any object.
type change struct {
	routes string // the API document's "METHOD path"; commas separate several routes
	do     func(a *tenantOf, its *made) []string
}

// made holds the IDs of records that earlier changes in the table created.
type made struct {
	link, domain, video, key, hook string
	many                           []string
	receiver                       string
}

var idOf = regexp.MustCompile(`"id":"((?:lnk|vid|dom|key|whk|mem|inv|tkd)_[A-Za-z0-9]+)"`)

func idsIn(raw []byte) (out []string) {
	for _, m := range idOf.FindAllSubmatch(raw, -1) {
		out = append(out, string(m[1]))
	}
	return out
}

func each(what string, ids []string) (out []string) {
	for _, id := range ids {
		out = append(out, what+" "+id)
	}
	return out
}

// readyOr waits until a video has the final status.
func (a *tenantOf) readyOr(id, status string) {
	a.t.Helper()
	eventually(a.t, 3*time.Minute, "the video is "+status, func() bool {
		return a.want(200, "GET", "/api/v1/videos/"+id, nil).str("status") == status
	})
}

// signIn opens a one-time link and signs in with it.
func (a *tenantOf) signIn(link string) (*plainBrowser, page) {
	a.t.Helper()
	b := newPlainBrowser(a.t)
	opened := b.get(link)
	u, err := url.Parse(link)
	check(a.t, err)
	req, err := http.NewRequestWithContext(a.t.Context(), "POST", a.base+"/app/sign-in",
		strings.NewReader(url.Values{"csrf": {opened.csrf()}, "link": {u.Query().Get("link")}, "name": {"Person"}}.Encode()))
	check(a.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	home := b.do(req)
	if home.status != 200 || home.url.Path != "/app" {
		a.t.Fatalf("after signing in, the status is %d at %s, want 200 at /app", home.status, home.url)
	}
	return b, home
}

// everyChange lists the routes that change something, with their events. The test fails if a route
// that changes something is in neither this list nor changesNothing.
var everyChange = []change{
	{"POST /api/v1/links", func(a *tenantOf, its *made) []string {
		body := map[string]any{"url": "https://example.com/"}
		its.link = a.want(201, "POST", "/api/v1/links", body, "Idempotency-Key", "once").str("id")
		a.want(201, "POST", "/api/v1/links", body, "Idempotency-Key", "once") // a replay, which does not create anything
		a.want(400, "POST", "/api/v1/links", map[string]any{"url": "nonsense"})
		return []string{"link.created " + its.link}
	}},
	{"PATCH /api/v1/links/{id}", func(a *tenantOf, its *made) []string {
		a.want(200, "PATCH", "/api/v1/links/"+its.link, map[string]any{"title": "One", "tags": []string{"x"}})
		a.want(200, "PATCH", "/api/v1/links/"+its.link, map[string]any{"archived": true})
		a.want(412, "PATCH", "/api/v1/links/"+its.link, map[string]any{"title": "Two"}, "If-Match", `"0"`)
		return []string{"link.updated " + its.link, "link.updated " + its.link}
	}},
	{"POST /api/v1/links/bulk", func(a *tenantOf, its *made) []string {
		got := a.want(207, "POST", "/api/v1/links/bulk", map[string]any{"urls": []map[string]any{{"url": "https://example.com/1"}, {"url": "nonsense"}, {"url": "https://example.com/2"}, {"url": "https://example.com/3"}}})
		its.many = idsIn(a.want(200, "GET", "/api/v1/links?limit=3&archived=false", nil).raw)
		if len(its.many) == 0 {
			for _, m := range regexp.MustCompile(`lnk_[A-Za-z0-9]+`).FindAll(a.want(200, "GET", "/api/v1/links?limit=3&archived=false", nil).raw, -1) {
				its.many = append(its.many, string(m))
			}
		}
		if len(its.many) != 3 {
			a.t.Fatalf("the bulk request created %v, want 3 links: %s", its.many, got.raw)
		}
		return each("link.created", its.many)
	}},
	{"PATCH /api/v1/links/bulk", func(a *tenantOf, its *made) []string {
		a.want(200, "PATCH", "/api/v1/links/bulk", map[string]any{"ids": its.many, "set": map[string]any{"addTags": []string{"bulk"}}})
		return each("link.updated", its.many)
	}},
	{"POST /api/v1/links/bulk-delete", func(a *tenantOf, its *made) []string {
		a.want(200, "POST", "/api/v1/links/bulk-delete", map[string]any{"ids": its.many[:2]})
		return each("link.deleted", its.many[:2])
	}},
	{"POST /admin/v1/takedowns,DELETE /admin/v1/takedowns/{id}", func(a *tenantOf, its *made) []string {
		t := a.admin.want(201, "POST", "/admin/v1/takedowns", map[string]any{"linkId": its.link, "reason": "test"})
		a.admin.want(201, "POST", "/admin/v1/takedowns", map[string]any{"linkId": its.link, "reason": "again"}) // already in force
		a.admin.want(204, "DELETE", "/admin/v1/takedowns/"+t.str("id"), nil)
		return []string{"link.updated " + its.link, "link.updated " + its.link}
	}},
	{"DELETE /api/v1/links/{id}", func(a *tenantOf, its *made) []string {
		a.want(204, "DELETE", "/api/v1/links/"+its.link, nil)
		a.want(404, "DELETE", "/api/v1/links/"+its.link, nil)
		return []string{"link.deleted " + its.link}
	}},
	{"POST /api/v1/domains,PATCH /api/v1/domains/{id},POST /api/v1/domains/{id}/verify,DELETE /api/v1/domains/{id}", func(a *tenantOf, its *made) []string {
		its.domain = a.want(201, "POST", "/api/v1/domains", map[string]any{"hostname": strings.ToLower(a.id[4:]) + ".example.net"}).str("id")
		a.do("POST", "/api/v1/domains/"+its.domain+"/verify", nil) // without a resolver, the domain remains pending, so any status is fine
		a.want(200, "PATCH", "/api/v1/domains/"+its.domain, map[string]any{"homeUrl": "https://example.com/"})
		a.want(204, "DELETE", "/api/v1/domains/"+its.domain, nil)
		return []string{"domain.created " + its.domain, "domain.updated " + its.domain, "domain.deleted " + its.domain}
	}},
	{"POST /api/v1/videos,PATCH /api/v1/videos/{id}", func(a *tenantOf, its *made) []string {
		v := a.want(201, "POST", "/api/v1/videos", map[string]any{"title": "Clip"})
		its.video = v.str("videoId")
		a.want(200, "PATCH", "/api/v1/videos/"+its.video, map[string]any{"title": "Better", "tags": []string{"x"}})
		put(a.t, v.str("uploadUrl"), clip(a.t, 1, "160x120"), "video/mp4")
		a.readyOr(its.video, "ready")
		return []string{"video.created " + its.video, "video.updated " + its.video, "video.processing " + its.video, "video.ready " + its.video}
	}},
	{"PUT /api/v1/videos/{id}/access", func(a *tenantOf, its *made) []string {
		a.want(200, "PUT", "/api/v1/videos/"+its.video+"/access", map[string]any{"privacy": "password", "password": "very secret words"})
		a.want(200, "PUT", "/api/v1/videos/"+its.video+"/access", map[string]any{"privacy": "public"})
		return []string{"video.updated " + its.video, "video.updated " + its.video}
	}},
	{"PUT /api/v1/videos/{id}/captions/{lang},DELETE /api/v1/videos/{id}/captions/{lang}", func(a *tenantOf, its *made) []string {
		if got := a.do("PUT", "/api/v1/videos/"+its.video+"/captions/en", "WEBVTT\n\n00:00.000 --> 00:00.900\nHello\n", "Content-Type", "text/vtt"); got.status/100 != 2 {
			a.t.Fatalf("setting the captions returned %d, want success: %s", got.status, got.raw)
		}
		if got := a.do("DELETE", "/api/v1/videos/"+its.video+"/captions/en", nil); got.status/100 != 2 {
			a.t.Fatalf("deleting the captions returned %d, want success: %s", got.status, got.raw)
		}
		return []string{"video.updated " + its.video, "video.updated " + its.video}
	}},
	{"PUT /api/v1/videos/{id}/thumbnail", func(a *tenantOf, its *made) []string {
		if got := a.do("PUT", "/api/v1/videos/"+its.video+"/thumbnail", map[string]any{"time": 0.5}); got.status/100 != 2 {
			a.t.Fatalf("setting the thumbnail returned %d, want success: %s", got.status, got.raw)
		}
		return []string{"video.updated " + its.video}
	}},
	{"POST /admin/v1/takedowns", func(a *tenantOf, its *made) []string {
		t := a.admin.want(201, "POST", "/admin/v1/takedowns", map[string]any{"videoId": its.video, "reason": "test"})
		a.admin.want(204, "DELETE", "/admin/v1/takedowns/"+t.str("id"), nil)
		return []string{"video.updated " + its.video, "video.updated " + its.video}
	}},
	{"DELETE /api/v1/videos/{id}", func(a *tenantOf, its *made) []string {
		a.want(204, "DELETE", "/api/v1/videos/"+its.video, nil)
		broken := a.want(201, "POST", "/api/v1/videos", map[string]any{"title": "Not a video"})
		text := a.t.TempDir() + "/text.mp4"
		check(a.t, os.WriteFile(text, bytes.Repeat([]byte("this is not a video\n"), 1000), 0o600))
		put(a.t, broken.str("uploadUrl"), text, "video/mp4")
		id := broken.str("videoId")
		a.readyOr(id, "failed")
		return []string{"video.deleted " + its.video, "video.created " + id, "video.processing " + id, "video.failed " + id}
	}},
	{"POST /api/v1/keys,POST /api/v1/keys/{id}/roll,DELETE /api/v1/keys/{id}", func(a *tenantOf, its *made) []string {
		its.key = a.want(201, "POST", "/api/v1/keys", map[string]any{"name": "Second"}, "Idempotency-Key", "key").str("id")
		next := a.want(201, "POST", "/api/v1/keys/"+its.key+"/roll", map[string]any{"overlapSeconds": 60}).str("id")
		a.want(204, "DELETE", "/api/v1/keys/"+next, nil)
		a.want(204, "DELETE", "/api/v1/keys/"+next, nil) // already revoked
		return []string{"key.created " + its.key, "key.rolled " + its.key, "key.revoked " + next}
	}},
	{"POST /admin/v1/accounts/{id}/keys,DELETE /admin/v1/keys/{id}", func(a *tenantOf, _ *made) []string {
		id := a.admin.want(201, "POST", "/admin/v1/accounts/"+a.id+"/keys", map[string]any{"name": "By the operator"}).str("id")
		a.admin.want(204, "DELETE", "/admin/v1/keys/"+id, nil)
		return []string{"key.created " + id, "key.revoked " + id}
	}},
	{"PATCH /admin/v1/accounts/{id}", func(a *tenantOf, _ *made) []string {
		a.admin.want(200, "PATCH", "/admin/v1/accounts/"+a.id, map[string]any{"name": "Renamed"})
		a.admin.want(200, "PATCH", "/admin/v1/accounts/"+a.id, map[string]any{"name": "Renamed"}) // no change
		a.admin.want(200, "PATCH", "/admin/v1/accounts/"+a.id, map[string]any{"suspended": true})
		a.admin.want(200, "PATCH", "/admin/v1/accounts/"+a.id, map[string]any{"suspended": false})
		return []string{"account.changed " + a.id, "account.changed " + a.id, "account.changed " + a.id}
	}},
	{"POST /api/v1/webhooks,PATCH /api/v1/webhooks/{id},POST /api/v1/webhooks/{id}/roll-secret,DELETE /api/v1/webhooks/{id}", func(a *tenantOf, its *made) []string {
		its.hook = a.want(201, "POST", "/api/v1/webhooks", map[string]any{"url": its.receiver, "events": []string{"video.failed"}}).str("id")
		path := "/api/v1/webhooks/" + its.hook
		a.want(200, "PATCH", path, map[string]any{"description": "x"})
		a.want(200, "POST", path+"/roll-secret", map[string]any{"overlapSeconds": 10})
		a.do("POST", path+"/test", nil) // only the receiver gets this event, and its 410 response disables the webhook
		a.readyHook(its.hook)
		a.want(204, "DELETE", path, nil)
		return []string{"webhook.created " + its.hook, "webhook.updated " + its.hook, "webhook.updated " + its.hook, "webhook.disabled " + its.hook, "webhook.deleted " + its.hook}
	}},
	{"POST /api/v1/invitations,DELETE /api/v1/invitations/{id}", func(a *tenantOf, _ *made) []string {
		id := a.want(201, "POST", "/api/v1/invitations", map[string]any{"name": "Nobody", "role": "viewer"}).str("id")
		a.want(204, "DELETE", "/api/v1/invitations/"+id, nil)
		guest := a.want(201, "POST", "/api/v1/invitations", map[string]any{"name": "Guest", "role": "viewer"})
		a.signIn(guest.str("url"))
		return []string{"invitation.created " + id, "invitation.revoked " + id, "invitation.created " + guest.str("id"), "invitation.accepted " + guest.str("id"), "member.added", "session.created"}
	}},
	{"POST /admin/v1/accounts/{id}/sign-in-links,POST /api/v1/members/{id}/sign-in-links,PATCH /api/v1/members/{id},DELETE /api/v1/members/{id}", func(a *tenantOf, _ *made) []string {
		enter := func(name, role string) (string, *plainBrowser) {
			link := a.admin.want(201, "POST", "/admin/v1/accounts/"+a.id+"/sign-in-links", map[string]any{"name": name, "role": role})
			b, _ := a.signIn(link.str("url"))
			return link.str("memberId"), b
		}
		id, _ := enter("Second", "member")
		ownerID, browser := enter("Third", "owner")
		owner := *a.caller
		owner.key = browser.session()
		a.signIn(owner.want(201, "POST", "/api/v1/members/"+id+"/sign-in-links", nil).str("url"))
		a.want(200, "PATCH", "/api/v1/members/"+id, map[string]any{"role": "viewer"})
		a.want(204, "DELETE", "/api/v1/members/"+id, nil)
		entered := []string{"sign_in_link.created", "sign_in_link.used", "session.created"}
		return slices.Concat(entered, entered, entered, []string{
			"member.added " + id, "member.added " + ownerID, "member.changed " + id, "session.ended", "session.ended", "member.removed " + id,
		})
	}},
	{"PATCH /api/v1/account", func(a *tenantOf, _ *made) []string {
		a.want(200, "PATCH", "/api/v1/account", map[string]any{"name": "Each change"})
		a.want(200, "PATCH", "/api/v1/account", map[string]any{"name": "Each change", "defaultDomainId": nil}) // does not change anything
		a.want(404, "PATCH", "/api/v1/account", map[string]any{"name": "No change", "defaultDomainId": "dom_none"})
		return []string{"account.changed " + a.id}
	}},
	{"GET /api/v1/account/export", func(a *tenantOf, _ *made) []string {
		a.want(200, "GET", "/api/v1/account/export", nil)
		return []string{"account.exported " + a.id}
	}},
}

// changesNothing lists the routes that do not change any record that the account can read through
// the API, and those that delete the account.
var changesNothing = map[string]string{
	"POST /api/v1/webhooks/{id}/test": "sends a message", "POST /api/v1/webhooks/{id}/replay": "sends messages",
	"POST /api/v1/webhooks/{id}/deliveries/{delivery}/retry": "sends a message",
	"POST /api/v1/device-codes":                              "does not belong to an account until it is approved", "POST /api/v1/device-codes/token": "returns the key that the approval created",
	"POST /admin/v1/recovery/resume": "does not belong to any account",
	"POST /admin/v1/accounts":        "a new account has no feed yet", "DELETE /admin/v1/accounts/{id}": "nobody can read the feed afterwards",
}

// readyHook waits until the receiver's 410 response has disabled a webhook.
func (a *tenantOf) readyHook(id string) {
	a.t.Helper()
	eventually(a.t, time.Minute, "the 410 response disables the webhook", func() bool {
		return a.want(200, "GET", "/api/v1/webhooks/"+id, nil).json["enabled"] == false
	})
}

// The test calls every route that changes something and compares the feed with the expected events.
func TestEveryChangeWritesItsEvent(t *testing.T) {
	t.Parallel()
	covered := map[string]bool{}
	for route := range changesNothing {
		covered[route] = true
	}
	for _, c := range everyChange {
		for route := range strings.SplitSeq(c.routes, ",") {
			covered[route] = true
		}
	}
	for _, r := range apispec.Load().Routes() {
		if r.Method != "GET" && (strings.HasPrefix(r.Path, "/api/") || strings.HasPrefix(r.Path, "/admin/")) && !covered[r.Method+" "+r.Path] {
			t.Errorf("%s %s is in neither everyChange nor changesNothing; add it to everyChange with the events that it writes", r.Method, r.Path)
		}
	}
	goner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(goner.Close)

	a := newTenant(t, stackFile{BaseURL: stack.BaseURL, ShortBaseURL: stack.ShortBaseURL, AdminURL: stack.AdminURL, AdminToken: stack.AdminToken}, "Every change")
	want := []string{"key.created " + a.ids[1]}
	its := &made{receiver: goner.URL}
	for _, c := range everyChange {
		wrote := c.do(a, its)
		want = append(want, wrote...)
		// Check immediately because an event must be in the feed when the response arrives.
		if got := a.feed(); len(got) < len(want) {
			t.Errorf("after %s, the feed has %d events, want at least %d", c.routes, len(got), len(want))
		}
		if t.Failed() {
			break
		}
	}
	got := a.feed()
	if problems := compare(got, want); len(problems) > 0 {
		t.Errorf("the feed differs from the expected events:\n%s", strings.Join(problems, "\n"))
	}
	seen := map[events.Type]bool{}
	for _, e := range got {
		seen[events.Type(e.Type)] = true
		for _, secret := range []string{"very secret words", "whsec_", "lr_sess_", "X-Goog-Signature", "?link="} {
			if strings.Contains(string(e.Data), secret) {
				t.Errorf("the %s event contains %s: %s", e.Type, secret, e.Data)
			}
		}
		if e.Actor.Type == "" || e.Actor.ID == "" {
			t.Errorf("the %s event has no actor: %+v", e.Type, e.Actor)
		}
		if kind := events.Type(e.Type); (kind == events.VideoProcessing || kind == events.VideoReady || kind == events.VideoFailed || kind == events.WebhookDisabled) && e.Actor.Type != "system" {
			t.Errorf("the %s event has the actor %+v, want the system", e.Type, e.Actor)
		}
		if e.Actor.Type != "system" && e.RequestID == nil {
			t.Errorf("the %s event caused by a %s has no request ID", e.Type, e.Actor.Type)
		}
	}
	for _, kind := range events.Types() {
		// These two events need DNS, which this stack does not use.
		if !seen[kind] && kind != events.DomainVerified && kind != events.DomainLapsed {
			t.Errorf("none of the changes wrote the %s event", kind)
		}
	}
}

// compare checks that got and want have the same events in the same order for each
// object, and no other events.
func compare(got []told, want []string) (problems []string) {
	byObject, anyOf := map[string][]string{}, map[string]int{}
	for _, w := range want {
		kind, object, ok := strings.Cut(w, " ")
		if !ok {
			anyOf[kind]++
			continue
		}
		byObject[object] = append(byObject[object], kind)
	}
	seen := map[string][]string{}
	extra := 0
	for _, e := range got {
		if e.Type == "video.updated" && e.Actor.Type == "system" {
			// The system writes one update when the download is ready and one when the requested
			// thumbnail is ready. Both only change URLs, which events do not contain.
			if extra++; extra > 2 {
				problems = append(problems, fmt.Sprintf("%s: the system wrote %s a third time", e.Object, e.Type))
			}
			continue
		}
		if byObject[e.Object] == nil && anyOf[e.Type] > 0 {
			anyOf[e.Type]--
			continue
		}
		seen[e.Object] = append(seen[e.Object], e.Type)
	}
	for object, list := range byObject {
		if !slices.Equal(seen[object], list) {
			problems = append(problems, fmt.Sprintf("%s: the events are %v, want %v", object, seen[object], list))
		}
	}
	for object, list := range seen {
		if byObject[object] == nil {
			problems = append(problems, fmt.Sprintf("%s: unexpected events %v", object, list))
		}
	}
	for kind, n := range anyOf {
		if n > 0 {
			problems = append(problems, fmt.Sprintf("%d events of type %s are missing", n, kind))
		}
	}
	slices.SortFunc(problems, cmp.Compare[string])
	return problems
}
