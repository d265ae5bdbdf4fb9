package auth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/wire"
	"github.com/linkreel/linkreel/services/auth"
)

// holder is a fake links service. It has one link, lnk_1, at https://go.example/x.
type holder struct {
	mu        sync.Mutex
	states    []string
	down      bool
	erased    bool
	takedowns map[string]tenant.Takedown
	stay      chan struct{} // if not nil, exports keep running until this channel is closed
}

func (h *holder) SetState(_ context.Context, id string, s tenant.Standing) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return apierr.Down(io.ErrUnexpectedEOF)
	}
	h.states = append(h.states, string(s.State))
	return nil
}

func (h *holder) Erased(context.Context, string) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.erased, nil
}

func (h *holder) Export(_ context.Context, id string, w io.Writer) error {
	line := fmt.Sprintf("{\"type\":\"link\",\"data\":{\"id\":\"lnk_1\",\"account\":%q}}\n", id)
	if h.stay != nil {
		// Write more than the connection's buffers can hold.
		if _, err := io.WriteString(w, strings.Repeat(line, 3_000)); err != nil {
			return err
		}
		<-h.stay
	}
	_, err := io.WriteString(w, line)
	return err
}

func (h *holder) TakeDown(_ context.Context, o tenant.Order) (tenant.Takedown, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return tenant.Takedown{}, apierr.Down(io.ErrUnexpectedEOF)
	}
	if o.Target.ID != "lnk_1" && o.Target.URL != "https://go.example/x" {
		return tenant.Takedown{}, apierr.New(apierr.LinkNotFound, "no")
	}
	for _, t := range h.takedowns {
		return t, nil
	}
	t := tenant.Takedown{ID: o.ID, Kind: tenant.KindLink, RecordID: "lnk_1", AccountID: "acc_x", URL: "https://go.example/x", Reason: o.Reason, At: o.At}
	h.takedowns[o.ID] = t
	return t, nil
}

// Failing returns three webhooks, in pages of at most two.
func (h *holder) Failing(_ context.Context, after string, limit int) (page tenant.FailingPage, err error) {
	for _, id := range []string{"whk_1", "whk_2", "whk_3"} {
		switch {
		case id <= after:
		case len(page.Webhooks) == min(limit, 2):
			page.Next = page.Webhooks[len(page.Webhooks)-1].ID
			return page, nil
		default:
			page.Webhooks = append(page.Webhooks, tenant.FailingWebhook{
				ID: id, AccountID: "acc_x", Host: "hooks.example", Since: time.UnixMilli(1000), Reason: "dns", Waiting: 7,
			})
		}
	}
	return page, nil
}

func (h *holder) Lift(_ context.Context, t tenant.Takedown) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.takedowns, t.ID)
	return nil
}

func (h *holder) set(fn func()) { h.mu.Lock(); defer h.mu.Unlock(); fn() }

func (h *holder) told() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.states, " ")
}

// withHolder starts auth together with a fake links service.
func withHolder(t *testing.T) (replica, *holder) {
	t.Helper()
	return beside(t, func(cfg *auth.Config, address string) { cfg.LinksURL = address })
}

// beside starts auth together with a holder. as sets the holder's address in the configuration,
// and so determines which service it replaces.
func beside(t *testing.T, as func(cfg *auth.Config, address string)) (replica, *holder) {
	t.Helper()
	h := &holder{takedowns: map[string]tenant.Takedown{}}
	serve := func(h tenant.Holder) string {
		api := httpapi.New(httpapi.Options{Name: "holder"})
		wire.Routes(api, internalToken, h)
		srv := httpapi.NewServer(api.Handler())
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); _ = srv.Serve(l) }()
		t.Cleanup(func() { _ = srv.Shutdown(); <-done })
		return "http://" + l.Addr().String()
	}
	cfg := newWorld(t).config()
	as(&cfg, serve(h))
	return start(t, cfg), h
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("condition not met within a minute: %s", what)
		}
	}
}

func TestSuspensionIsToldBeforeItIsAnsweredAndHealsWhenAHolderWasAway(t *testing.T) {
	t.Parallel()
	r, h := withHolder(t)
	id, key := r.account("creator")
	if got := r.admin("PATCH", "/admin/v1/accounts/"+id, `{"suspended":true}`); got.status != 200 || got.field(t, "state") != "suspended" || h.told() != "suspended" {
		t.Fatalf("suspending returned %d %s and the holder was sent %q, want 200 and one suspension", got.status, got.body, h.told())
	}
	if got := r.api("GET", "/api/v1/account", key, ""); got.code() != "ACCOUNT_SUSPENDED" {
		t.Errorf("a request with the suspended account's key returned %d %s, want ACCOUNT_SUSPENDED", got.status, got.body)
	}
	if got := r.admin("PATCH", "/admin/v1/accounts/"+id, `{"name":"Renamed"}`); got.status != 200 || h.told() != "suspended" {
		t.Errorf("renaming returned %d and the holder was sent %q, want 200 and no further call", got.status, h.told())
	}
	h.set(func() { h.down = true })
	if got := r.admin("PATCH", "/admin/v1/accounts/"+id, `{"suspended":false}`); got.status != 503 {
		t.Errorf("with the holder unreachable, the change returned %d %s, want 503", got.status, got.body)
	}
	if got := r.admin("GET", "/admin/v1/accounts/"+id, ""); got.field(t, "state") != "active" {
		t.Errorf("the account is %s, want it active", got.body)
	}
	h.set(func() { h.down = false })
	eventually(t, "holder notified", func() bool { return h.told() == "suspended active" })
}

func TestErasureEndsInATombstone(t *testing.T) {
	t.Parallel()
	r, h := withHolder(t)
	id, key := r.account("creator")
	other, otherKey := r.account("creator")
	path := "/admin/v1/accounts/" + id
	if got := r.admin("DELETE", path, ""); got.status != 409 || got.code() != "ACCOUNT_NOT_SUSPENDED" {
		t.Errorf("deleting an active account returned %d %s, want 409 ACCOUNT_NOT_SUSPENDED", got.status, got.body)
	}
	r.admin("PATCH", path, `{"suspended":true}`)
	if got := r.admin("DELETE", path, ""); got.status != 202 || got.field(t, "state") != "deleting" || h.told() != "suspended deleting" {
		t.Fatalf("deleting returned %d %s and the holder was sent %q, want 202 and the deleting state", got.status, got.body, h.told())
	}
	for name, got := range map[string]answer{
		"resuming":  r.admin("PATCH", path, `{"suspended":false}`),
		"new key":   r.admin("POST", path+"/keys", `{"name":"x"}`),
		"new owner": r.admin("POST", path+"/sign-in-links", `{"name":"x","role":"owner"}`),
	} {
		if got.status != 409 || got.code() != "ACCOUNT_DELETING" {
			t.Errorf("%s: got %d %s, want 409 ACCOUNT_DELETING", name, got.status, got.body)
		}
	}
	if got := r.admin("GET", path, ""); got.status != 200 || got.field(t, "state") != "deleting" {
		t.Errorf("during the erasure, GET returned %d %s, want 200 and the deleting state", got.status, got.body)
	}
	h.set(func() { h.erased = true })
	eventually(t, "account erased", func() bool { return r.admin("GET", path, "").status == 404 })
	if got := r.api("GET", "/api/v1/account", key, ""); got.status != 401 {
		t.Errorf("a request with the erased account's key returned %d %s, want 401", got.status, got.body)
	}
	if got := r.admin("GET", "/admin/v1/accounts/"+other, ""); got.status != 200 || r.api("GET", "/api/v1/account", otherKey, "").status != 200 {
		t.Error("the other account or its key no longer works, want both unaffected")
	}
}

func TestAccountsAreListedAndSearched(t *testing.T) {
	t.Parallel()
	r, _ := withHolder(t)
	var ids []string
	for i := range 5 {
		ids = append(ids, r.admin("POST", "/admin/v1/accounts", fmt.Sprintf(`{"name":"Müller & Söhne %d","plan":"free"}`, i)).field(t, "id"))
	}
	seen, cursor := map[string]bool{}, ""
	for range 10 {
		var page struct {
			Data       []struct{ ID, State string }
			HasMore    bool
			NextCursor *string
		}
		got := r.admin("GET", "/admin/v1/accounts?limit=2&q=m%C3%9Cller&cursor="+cursor, "")
		if err := json.Unmarshal(got.body, &page); err != nil || got.status != 200 || len(page.Data) > 2 {
			t.Fatalf("the list returned %d %s, want 200 and at most two accounts", got.status, got.body)
		}
		for _, a := range page.Data {
			if seen[a.ID] || a.State != "active" {
				t.Errorf("account %+v is listed twice or is not active, want each active account once", a)
			}
			seen[a.ID] = true
		}
		if page.HasMore != (page.NextCursor != nil) {
			t.Errorf("hasMore is %v with nextCursor %v, want a cursor if and only if there are more accounts", page.HasMore, page.NextCursor)
		}
		if !page.HasMore {
			break
		}
		cursor = *page.NextCursor
	}
	if len(seen) != 5 {
		t.Errorf("found %d accounts, want 5", len(seen))
	}
	if got := r.admin("GET", "/admin/v1/accounts?q="+strings.ToLower(ids[0][5:]), ""); !strings.Contains(string(got.body), ids[0]) {
		t.Errorf("the search by id found %s, want the account", got.body)
	}
	for _, query := range []string{"limit=0", "cursor=x", "limit=abc"} {
		if got := r.admin("GET", "/admin/v1/accounts?"+query, ""); got.status != 400 {
			t.Errorf("the list with %s returned %d, want 400", query, got.status)
		}
	}
}

func TestLimitsAreTheOperatorsThenThePlans(t *testing.T) {
	t.Parallel()
	r, _ := withHolder(t)
	id, key := r.account("creator")
	path := "/admin/v1/accounts/" + id
	if got := r.admin("PATCH", path, `{"limits":{"links":5,"storedBytes":1000}}`); got.status != 200 {
		t.Fatalf("setting the limits returned %d %s, want 200", got.status, got.body)
	}
	if got := r.api("GET", "/api/v1/account", key, ""); !strings.Contains(string(got.body), `"links":5,"videos":null,"domains":null,"storedBytes":1000`) {
		t.Errorf("the account is %s, want the operator's limits", got.body)
	}
	if got := r.admin("PATCH", path, `{"limits":{"links":null,"videos":7}}`); !strings.Contains(string(got.body), `"limits":{"links":null,"videos":7,"domains":null,"storedBytes":1000}`) {
		t.Errorf("after resetting one limit, the account is %s, want the plan's limit for links", got.body)
	}
	if got := r.admin("PATCH", path, `{"limits":null}`); !strings.Contains(string(got.body), `"limits":{"links":null,"videos":null,"domains":null,"storedBytes":null}`) {
		t.Errorf("after resetting all limits, the account is %s, want no limits of its own", got.body)
	}
	for _, body := range []string{`{"limits":{"links":0}}`, `{"limits":{"links":-1}}`, `{"limits":{"links":"5"}}`, `{"limits":5}`} {
		if got := r.admin("PATCH", path, body); got.status != 400 {
			t.Errorf("PATCH with %s returned %d %s, want 400", body, got.status, got.body)
		}
	}
}

func TestTakedowns(t *testing.T) {
	t.Parallel()
	r, h := withHolder(t)
	made := r.admin("POST", "/admin/v1/takedowns", `{"url":"https://go.example/x","reason":"phishing"}`)
	if made.status != 201 || made.field(t, "linkId") != "lnk_1" || made.field(t, "reason") != "phishing" || made.header.Get("Location") != "/admin/v1/takedowns/"+made.field(t, "id") {
		t.Fatalf("the takedown returned %d %s, want 201 with its link, reason and Location", made.status, made.body)
	}
	if again := r.admin("POST", "/admin/v1/takedowns", `{"linkId":"lnk_1","reason":"again"}`); again.status != 201 || again.field(t, "id") != made.field(t, "id") {
		t.Errorf("a second takedown of the same link returned %d %s, want 201 with the first takedown", again.status, again.body)
	}
	if got := r.admin("GET", "/admin/v1/takedowns", ""); strings.Count(string(got.body), `"id":`) != 1 {
		t.Errorf("the list is %s, want one takedown", got.body)
	}
	for body, want := range map[string]int{
		`{"linkId":"lnk_2","reason":"x"}`: 404, `{"videoId":"vid_1","reason":"x"}`: 404, `{"url":"https://go.example/y","reason":"x"}`: 404,
		`{"reason":"x"}`: 400, `{"url":"https://go.example/x"}`: 400, `{"url":"https://go.example/x","linkId":"lnk_1","reason":"x"}`: 400, `{"linkId":"lnk_1","reason":" "}`: 400,
	} {
		if got := r.admin("POST", "/admin/v1/takedowns", body); got.status != want {
			t.Errorf("takedown with %s returned %d %s, want %d", body, got.status, got.body, want)
		}
	}
	if got := r.admin("DELETE", "/admin/v1/takedowns/"+made.field(t, "id"), ""); got.status != 204 || len(h.takedowns) != 0 {
		t.Errorf("lifting the takedown returned %d, want 204 and no takedown at the holder", got.status)
	}
	if got := r.admin("DELETE", "/admin/v1/takedowns/"+made.field(t, "id"), ""); got.status != 404 {
		t.Errorf("lifting the takedown again returned %d, want 404", got.status)
	}
	h.set(func() { h.down = true })
	if got := r.admin("POST", "/admin/v1/takedowns", `{"linkId":"lnk_1","reason":"later"}`); got.status != 503 {
		t.Errorf("with the holder unreachable, a takedown returned %d, want 503", got.status)
	}
	h.set(func() { h.down = false })
	eventually(t, "takedown in force", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.takedowns) == 1 })
}

func TestTheOperatorSeesWebhooksThatFail(t *testing.T) {
	t.Parallel()
	r, _ := beside(t, func(cfg *auth.Config, address string) { cfg.EventsURL = address })
	first := r.admin("GET", "/admin/v1/webhooks?failing=true&limit=2", "")
	const one = `{"id":"whk_1","accountId":"acc_x","host":"hooks.example","failingSince":1000,"reason":"dns","waiting":7}`
	if first.status != 200 || !strings.Contains(string(first.body), one) || first.field(t, "nextCursor") != "whk_2" {
		t.Errorf("the first page returned %d %s, want 200 with two webhooks and cursor whk_2", first.status, first.body)
	}
	last := r.admin("GET", "/admin/v1/webhooks?failing=true&cursor=whk_2", "")
	if last.status != 200 || strings.Count(string(last.body), `"id"`) != 1 || !strings.Contains(string(last.body), `"hasMore":false,"nextCursor":null`) {
		t.Errorf("the last page returned %d %s, want 200 with one webhook and no cursor", last.status, last.body)
	}
	for query, code := range map[string]string{
		"": "VALIDATION_ERROR", "?failing=false": "VALIDATION_ERROR", "?failing=true&limit=0": "VALIDATION_ERROR",
		"?failing=true&cursor=acc_1": "INVALID_CURSOR", "?failing=true&cursor=whk_a/b": "INVALID_CURSOR",
	} {
		want(t, r.admin("GET", "/admin/v1/webhooks"+query, ""), 400, code)
	}
}

func TestOnlyABadCursorIsAnInvalidCursor(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := start(t, c.config())
	at := time.Now()
	for id, doc := range map[string]map[string]any{
		"tkd_newer": {"kind": "link", "phase": "in force", "at": at},
		"tkd_older": {"kind": 5, "at": at.Add(-time.Minute)}, // cannot be decoded
	} {
		if _, err := c.Client(t).Collection("operatorTakedowns").Doc(id).Set(t.Context(), doc); err != nil {
			t.Fatal(err)
		}
	}
	want(t, r.admin("GET", "/admin/v1/takedowns?cursor=tkd_newer", ""), 500, "INTERNAL")
	for _, cursor := range []string{"tkd_gone", "nonsense"} {
		want(t, r.admin("GET", "/admin/v1/takedowns?cursor="+cursor, ""), 400, "INVALID_CURSOR")
	}
}

func TestExportHasEveryLineAndNeedsEveryReadScope(t *testing.T) {
	t.Parallel()
	r, _ := withHolder(t)
	id, key := r.account("creator")
	if got := r.api("GET", "/api/v1/account/export", key, ""); got.status != 403 || got.code() != "INSUFFICIENT_SCOPE" {
		t.Errorf("an export by a key with the default scopes returned %d %s, want 403 INSUFFICIENT_SCOPE", got.status, got.body)
	}
	reader := r.exporter(id)
	got := r.api("GET", "/api/v1/account/export", reader, "")
	types := map[string]int{}
	for line := range strings.Lines(string(got.body)) {
		var l struct {
			Type string
			Data map[string]any
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Data["id"] == nil {
			t.Fatalf("the export has line %q (error %v), want a record with an id", line, err)
		}
		types[l.Type]++
	}
	if got.status != 200 || types["account"] != 1 || types["key"] != 2 || types["link"] != 1 {
		t.Errorf("the export returned %d with types %v, want 200 with one account, two keys and one link", got.status, types)
	}
	if strings.Contains(string(got.body), reader) || strings.Contains(string(got.body), key) {
		t.Error("the export contains a key's secret, want none")
	}
}

// exporter creates a key that may export the account.
func (r replica) exporter(account string) string {
	var scopes []string
	for _, s := range identity.AllScopes.Names() {
		if strings.HasSuffix(s, ":read") {
			scopes = append(scopes, s)
		}
	}
	list, _ := json.Marshal(scopes)
	return r.key(account, `{"name":"export","scopes":`+string(list)+`}`)
}

// An export above the limit is rejected with Retry-After before auth writes anything, including
// the event.
func TestAnAccountRunsTwoExportsAndAReplicaSixteen(t *testing.T) {
	t.Parallel()
	r, h := withHolder(t)
	h.stay = make(chan struct{})
	letGo := sync.OnceFunc(func() { close(h.stay) })
	defer letGo()
	var running []*http.Response
	begin := func(key string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api/api/v1/account/export", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := r.clients["api"].Do(req)
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		running = append(running, res)
	}
	refused := func(what, key string) {
		t.Helper()
		if got := r.api("GET", "/api/v1/account/export", key, ""); got.status != 429 || got.code() != "RATE_LIMITED" || got.header.Get("Retry-After") != "30" {
			t.Errorf("%s: got %d %s and Retry-After %q, want 429 RATE_LIMITED and 30", what, got.status, got.body, got.header.Get("Retry-After"))
		}
	}
	for range 8 {
		id, _ := r.account("creator")
		key := r.exporter(id)
		begin(key)
		begin(key)
		refused("third export for the account", key)
	}
	id, _ := r.account("creator")
	last := r.exporter(id)
	refused("seventeenth export on the replica", last)
	letGo()
	for _, res := range running {
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "new export accepted after the others have ended", func() bool { return r.api("GET", "/api/v1/account/export", last, "").status == 200 })
	got := r.api("GET", "/api/v1/account/export", last, "")
	if n := strings.Count(string(got.body), `"type":"link"`); got.status != 200 || n != 3_001 {
		t.Errorf("the export returned %d with %d links, want 200 with 3,001", got.status, n)
	}
}
