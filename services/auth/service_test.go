package auth_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/signin"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

const (
	adminToken    = "operator-token"
	internalToken = "internal-token"
)

// world holds the servers that all replicas of the service share.
type world struct {
	*cloudtest.Cloud
	redis string
}

func newWorld(t testing.TB) world {
	t.Helper()
	return world{cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{auth.Indexes(), idempotency.Indexes, outbox.Indexes}, Complete: true, Rare: append(restoreTimes, "operatorTakedowns.at")}), redistest.Start(t)}
}

func (c world) config() auth.Config {
	cfg := auth.Config{AdminToken: adminToken, InternalToken: internalToken}
	cfg.Firestore = firestoredb.Config{Project: "test", Endpoint: c.Endpoint, Timeout: 10 * time.Second}
	cfg.Redis.URL = c.redis
	return cfg
}

// replica is a running service with a client for each of its listeners.
type replica struct {
	t       testing.TB
	service *boot.Service
	clients map[string]*http.Client
}

func start(t testing.TB, cfg auth.Config) replica {
	t.Helper()
	svc, err := auth.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	meet(t, svc)
	r := replica{t: t, service: svc, clients: map[string]*http.Client{}}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, loop := range svc.Loops {
		running.Go(func() { _ = loop.Run(ctx) })
	}
	for _, s := range svc.Servers {
		l := fasthttputil.NewInmemoryListener()
		srv := httpapi.NewServer(s.Handler)
		running.Go(func() { _ = srv.Serve(l) })
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return l.Dial() }, MaxIdleConnsPerHost: 64}
		r.clients[s.Name] = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		t.Cleanup(func() { transport.CloseIdleConnections(); _ = srv.Shutdown(); _ = l.Close() })
	}
	t.Cleanup(func() {
		stop()
		_ = boot.CloseAll(context.Background(), svc)
	})
	return r
}

// meet makes the service's first calls to its database, as [boot.Warm] does, so tests do not count
// them. If the database is down, the service makes these calls later.
func meet(t testing.TB, svc *boot.Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, call := range svc.WarmUp {
		if call.To == "Firestore" {
			_ = call.Do(ctx)
		}
	}
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) code() string {
	var e struct {
		Error struct{ Code string }
	}
	_ = json.Unmarshal(a.body, &e)
	return e.Error.Code
}

func (a answer) field(t testing.TB, name string) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(a.body, &m); err != nil {
		t.Fatalf("body %q: %v", a.body, err)
	}
	if m[name] == nil {
		t.Fatalf("the body has no %s field: %s", name, a.body)
	}
	return fmt.Sprint(m[name])
}

func (a answer) details(t testing.TB) []string {
	t.Helper()
	var e struct {
		Error struct {
			Details []struct{ Field, Code string }
		}
	}
	if err := json.Unmarshal(a.body, &e); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range e.Error.Details {
		out = append(out, d.Field+" "+d.Code)
	}
	slices.Sort(out)
	return out
}

// call sends a request. headers alternates between names and values.
func (r replica) call(server, method, path, token, body string, headers ...string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://test"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.clients[server].Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, text}
}

func (r replica) api(method, path, key, body string, headers ...string) answer {
	r.t.Helper()
	return r.call("api", method, path, key, body, headers...)
}

func (r replica) admin(method, path, body string) answer {
	r.t.Helper()
	return r.call("admin", method, path, adminToken, body)
}

// account creates an account with a key that has every scope.
func (r replica) account(plan string) (id, key string) {
	r.t.Helper()
	a := r.admin("POST", "/admin/v1/accounts", `{"name":"Test","plan":"`+plan+`"}`)
	if a.status != 201 {
		r.t.Fatalf("creating an account returned %d %s, want 201", a.status, a.body)
	}
	id = a.field(r.t, "id")
	return id, r.key(id, `{"name":"all"}`)
}

func (r replica) key(account, body string) string {
	r.t.Helper()
	k := r.admin("POST", "/admin/v1/accounts/"+account+"/keys", body)
	if k.status != 201 {
		r.t.Fatalf("creating a key returned %d %s, want 201", k.status, k.body)
	}
	return k.field(r.t, "key")
}

func want(t testing.TB, a answer, status int, code string) {
	t.Helper()
	if a.status != status || a.code() != code {
		t.Errorf("got status %d and code %q, want %d and %q; body %s", a.status, a.code(), status, code, a.body)
	}
}

func TestOperatorAPI(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	made := r.admin("POST", "/admin/v1/accounts", `{"name":"Acme","plan":"creator"}`)
	want(t, made, 201, "")
	id := made.field(t, "id")
	if made.field(t, "plan") != "creator" || made.field(t, "name") != "Acme" || made.field(t, "suspended") != "false" || made.field(t, "createdAt") == "0" {
		t.Errorf("the created account is %s, want the creator plan, name Acme and a creation time", made.body)
	}
	if got := r.admin("GET", "/admin/v1/accounts/"+id, ""); got.status != 200 || !bytes.Equal(got.body, made.body) {
		t.Errorf("GET returned %d %s, want 200 and %s", got.status, got.body, made.body)
	}
	changed := r.admin("PATCH", "/admin/v1/accounts/"+id, `{"name":"Acme 2","plan":"business","suspended":true,"id":"acc_x","state":"active"}`)
	want(t, changed, 200, "")
	if changed.field(t, "plan") != "business" || changed.field(t, "name") != "Acme 2" || changed.field(t, "suspended") != "true" || changed.field(t, "ignoredFields") != "[id state]" {
		t.Errorf("the changed account is %s, want all the new values and two ignored fields", changed.body)
	}
	want(t, r.admin("PATCH", "/admin/v1/accounts/"+id, `{"suspend":false}`), 400, "VALIDATION_ERROR")
	same := r.admin("PATCH", "/admin/v1/accounts/"+id, `{}`)
	if same.status != 200 || same.field(t, "plan") != "business" {
		t.Errorf("an empty PATCH returned %d %s, want 200 without a change", same.status, same.body)
	}
	key := r.admin("POST", "/admin/v1/accounts/"+id+"/keys", `{"name":"k","scopes":["links:read"],"expiresAt":"2099-01-01T00:00:00Z"}`)
	want(t, key, 201, "")
	if key.field(t, "scopes") != "[links:read]" || key.field(t, "expiresAt") != "4.0709088e+12" {
		t.Errorf("the created key is %s, want scope links:read and its expiry", key.body)
	}
	for range 2 {
		want(t, r.admin("DELETE", "/admin/v1/keys/"+key.field(t, "id"), ""), 204, "")
	}
}

func TestOperatorAPIRefuses(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, key := r.account("free")
	for _, tc := range []struct {
		name, method, path, token, body string
		status                          int
		code                            string
		details                         []string
	}{
		{name: "missing token", method: "POST", path: "/admin/v1/accounts", status: 401, code: "MISSING_API_KEY"},
		{name: "API key", method: "POST", path: "/admin/v1/accounts", token: key, status: 401, code: "INVALID_API_KEY"},
		{name: "token prefix", method: "GET", path: "/admin/v1/accounts/" + id, token: adminToken[:5], status: 401, code: "INVALID_API_KEY"},
		{name: "token checked before the body", method: "POST", path: "/admin/v1/accounts", body: "{", token: "x", status: 401, code: "INVALID_API_KEY"},
		{name: "unknown account", method: "GET", path: "/admin/v1/accounts/acc_none", token: adminToken, status: 404, code: "NOT_FOUND"},
		{name: "account id with a slash", method: "GET", path: "/admin/v1/accounts/x%2Fkeys", token: adminToken, status: 404, code: "NOT_FOUND"},
		{name: "account id with dots", method: "GET", path: "/admin/v1/accounts/..%2Fkeys", token: adminToken, status: 400, code: "BAD_REQUEST"},
		{name: "account checked before the body", method: "PATCH", path: "/admin/v1/accounts/acc_none", token: adminToken, body: "{", status: 404, code: "NOT_FOUND"},
		{name: "unknown key", method: "DELETE", path: "/admin/v1/keys/key_none", token: adminToken, status: 404, code: "NOT_FOUND"},
		{name: "broken JSON", method: "POST", path: "/admin/v1/accounts", token: adminToken, body: `{"name":`, status: 400, code: "INVALID_JSON"},
		{name: "all fields at once", method: "POST", path: "/admin/v1/accounts", token: adminToken, body: `{"plan":"gold"}`, status: 400, code: "VALIDATION_ERROR", details: []string{"name required", "plan invalid_value"}},
		{name: "blank name", method: "POST", path: "/admin/v1/accounts", token: adminToken, body: `{"name":"  ","plan":"free"}`, status: 400, code: "VALIDATION_ERROR", details: []string{"name too_short"}},
		{name: "wrong types", method: "PATCH", path: "/admin/v1/accounts/" + id, token: adminToken, body: `{"name":null,"plan":3,"suspended":"yes"}`, status: 400, code: "VALIDATION_ERROR", details: []string{"name invalid_type", "plan invalid_type", "suspended invalid_type"}},
		{name: "key fields", method: "POST", path: "/admin/v1/accounts/" + id + "/keys", token: adminToken, body: `{"scopes":["links:all"],"expiresAt":"soon"}`, status: 400, code: "VALIDATION_ERROR", details: []string{"expiresAt invalid_format", "name required", "scopes.0 invalid_value"}},
		{name: "public API route", method: "GET", path: "/api/v1/account", token: adminToken, status: 404, code: "NOT_FOUND"},
		{name: "wrong method", method: "PUT", path: "/admin/v1/accounts/" + id, token: adminToken, status: 405, code: "METHOD_NOT_ALLOWED"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := r.call("admin", tc.method, tc.path, tc.token, tc.body)
			want(t, a, tc.status, tc.code)
			if d := cmp.Diff(tc.details, a.details(t)); d != "" {
				t.Errorf("details (-want +got):\n%s", d)
			}
		})
	}
	want(t, r.api("GET", "/admin/v1/accounts/"+id, adminToken, ""), 404, "NOT_FOUND")
}

func TestWithoutAnAdminTokenNobodyIsTheOperator(t *testing.T) {
	t.Parallel()
	cfg := newWorld(t).config()
	cfg.AdminToken = ""
	r := start(t, cfg)
	for _, token := range []string{"", " ", "x"} {
		if a := r.call("admin", "GET", "/admin/v1/accounts/acc_1", "", "", "Authorization", "Bearer "+token); a.status != 401 {
			t.Errorf("a request with token %q returned %d, want 401", token, a.status)
		}
	}
}

func TestAccountShowsPlanLimitsAndUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config()
	cfg.QuotaLinks = map[string]int{"creator": 50}
	cfg.RateLimits = map[string]int{"creator": 700}
	r := start(t, cfg)
	id, key := r.account("creator")
	// Write the other services' records directly because those services are not running here.
	for path, record := range map[string]map[string]any{
		"links/lnk_1": {"accountId": id}, "domains/dom_1": {"accountId": id}, "links/lnk_2": {"accountId": "acc_other"},
		"videos/vid_1": {"accountId": id, "bytes": int64(4_000_000_000)}, "videos/vid_2": {"accountId": id, "bytes": int64(711)}, "videos/vid_3": {"accountId": "acc_other", "bytes": 5},
	} {
		if _, err := w.Client(t).Doc(path).Set(t.Context(), record); err != nil {
			t.Fatal(err)
		}
	}
	a := r.api("GET", "/api/v1/account", key, "")
	want(t, a, 200, "")
	var got map[string]any
	if err := json.Unmarshal(a.body, &got); err != nil {
		t.Fatal(err)
	}
	created := got["createdAt"]
	if d := cmp.Diff(map[string]any{
		"id": id, "name": "Test", "plan": "creator", "defaultDomainId": nil, "createdAt": created,
		"limits": map[string]any{"requestsPerMinute": 700., "bulkItems": 100., "links": 50., "videos": nil, "domains": nil, "storedBytes": nil},
		"usage":  map[string]any{"links": 1., "videos": 2., "domains": 1., "storedBytes": 4_000_000_711.},
	}, got); d != "" {
		t.Errorf("account (-want +got):\n%s", d)
	}
	for name, wanted := range map[string]string{"X-RateLimit-Limit": "700", "X-RateLimit-Remaining": "699", "RateLimit-Policy": `"default";q=700;w=60`} {
		if got := a.header.Get(name); got != wanted {
			t.Errorf("header %s is %q, want %q", name, got, wanted)
		}
	}
	if reset, err := strconv.ParseInt(a.header.Get("X-RateLimit-Reset"), 10, 64); err != nil || reset < time.Now().Unix() || reset > time.Now().Unix()+61 {
		t.Errorf("X-RateLimit-Reset is %q, want a time within the next minute", a.header.Get("X-RateLimit-Reset"))
	}
}

func TestKeysAreShownOnceAndListedWithoutTheirSecret(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	_, key := r.account("free")
	made := r.api("POST", "/api/v1/keys", key, `{"name":"Build","scopes":["links:read","keys:read"],"expiresAt":4102444800000}`)
	want(t, made, 201, "")
	secret, id := made.field(t, "key"), made.field(t, "id")
	if _, err := identity.ParseKey(secret, identity.KeyPrefix, identity.SessionPrefix); err != nil {
		t.Errorf("the key %q does not parse: %v", secret, err)
	}
	if got := made.header.Get("Location"); got != "/api/v1/keys/"+id {
		t.Errorf("Location is %q, want the path of key %s", got, id)
	}
	list := r.api("GET", "/api/v1/keys", secret, "")
	want(t, list, 200, "")
	if bytes.Contains(list.body, []byte(secret)) || bytes.Contains(list.body, []byte(`"key"`)) {
		t.Errorf("the list contains a secret, want none: %s", list.body)
	}
	var keys struct{ Data []map[string]any }
	if err := json.Unmarshal(list.body, &keys); err != nil || len(keys.Data) != 2 {
		t.Fatalf("the list is %s (error %v), want two keys", list.body, err)
	}
	if d := cmp.Diff(map[string]any{
		"id": id, "name": "Build", "prefix": secret[:12], "last4": secret[len(secret)-4:], "scopes": []any{"links:read", "keys:read"},
		"createdAt": keys.Data[0]["createdAt"], "lastUsedAt": nil, "expiresAt": 4102444800000., "revokedAt": nil,
	}, keys.Data[0]); d != "" {
		t.Errorf("first key in the list (-want +got):\n%s", d)
	}
}

func TestPublicAPIRefuses(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, key := r.account("enterprise")
	other, _ := r.account("enterprise")
	otherKey := r.admin("POST", "/admin/v1/accounts/"+other+"/keys", `{"name":"k"}`).field(t, "id")
	reader := r.key(id, `{"name":"r","scopes":["keys:read","links:read"]}`)
	writer := r.key(id, `{"name":"w","scopes":["keys:write","links:read"]}`)
	soon := r.key(id, `{"name":"s","expiresAt":`+fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())+`}`)
	full := r.api("POST", "/api/v1/keys", key, `{"name":"full"}`).field(t, "id")
	unknown := identity.NewKey(constant{})
	for _, tc := range []struct {
		name, method, path, key, body string
		status                        int
		code                          string
		details                       []string
	}{
		{name: "missing key", method: "GET", path: "/api/v1/account", status: 401, code: "MISSING_API_KEY"},
		{name: "key checked before the body", method: "POST", path: "/api/v1/keys", body: "{", status: 401, code: "MISSING_API_KEY"},
		{name: "malformed key", method: "GET", path: "/api/v1/account", key: "lr_live_x", status: 401, code: "INVALID_API_KEY"},
		{name: "unknown key", method: "GET", path: "/api/v1/account", key: unknown.Secret(), status: 401, code: "INVALID_API_KEY"},
		{name: "operator's token", method: "GET", path: "/api/v1/account", key: adminToken, status: 401, code: "INVALID_API_KEY"},
		{name: "missing scope", method: "POST", path: "/api/v1/keys", key: reader, body: `{"name":"x"}`, status: 403, code: "INSUFFICIENT_SCOPE"},
		{name: "list without the scope", method: "GET", path: "/api/v1/keys", key: writer, status: 403, code: "INSUFFICIENT_SCOPE"},
		{name: "scopes that the caller lacks", method: "POST", path: "/api/v1/keys", key: writer, body: `{"name":"x","scopes":["links:read","links:write"]}`, status: 403, code: "INSUFFICIENT_SCOPE"},
		{name: "all scopes by default", method: "POST", path: "/api/v1/keys", key: writer, body: `{"name":"x"}`, status: 403, code: "INSUFFICIENT_SCOPE"},
		{name: "403 takes precedence over 400", method: "POST", path: "/api/v1/keys", key: writer, body: `{"scopes":["links:write"]}`, status: 403, code: "INSUFFICIENT_SCOPE"},
		{name: "rolling a key with more scopes", method: "POST", path: "/api/v1/keys/" + full + "/roll", key: writer, status: 403, code: "INSUFFICIENT_SCOPE"},
		{name: "expiry later than the caller's", method: "POST", path: "/api/v1/keys", key: soon, body: `{"name":"x","expiresAt":"2099-01-01T00:00:00Z"}`, status: 400, code: "VALIDATION_ERROR", details: []string{"expiresAt out_of_range"}},
		{name: "all fields at once", method: "POST", path: "/api/v1/keys", key: key, body: `{"name":"","scopes":[],"expiresAt":true}`, status: 400, code: "VALIDATION_ERROR", details: []string{"expiresAt invalid_type", "name too_short", "scopes too_short"}},
		{name: "another account's key", method: "DELETE", path: "/api/v1/keys/" + otherKey, key: key, status: 404, code: "NOT_FOUND"},
		{name: "nonexistent key", method: "DELETE", path: "/api/v1/keys/key_0000000000000000000000", key: key, status: 404, code: "NOT_FOUND"},
		{name: "404 takes precedence over 400", method: "POST", path: "/api/v1/keys/" + otherKey + "/roll", key: key, body: "{", status: 404, code: "NOT_FOUND"},
		{name: "overlap out of range", method: "POST", path: "/api/v1/keys/" + full + "/roll", key: key, body: `{"overlapSeconds":604801}`, status: 400, code: "VALIDATION_ERROR", details: []string{"overlapSeconds out_of_range"}},
		{name: "wrong type", method: "POST", path: "/api/v1/keys", key: key, body: "name=x", status: 400, code: "INVALID_JSON"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := r.api(tc.method, tc.path, tc.key, tc.body)
			want(t, a, tc.status, tc.code)
			if d := cmp.Diff(tc.details, a.details(t)); d != "" {
				t.Errorf("details (-want +got):\n%s", d)
			}
			if a.status == 401 && !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("WWW-Authenticate is %q, want Bearer", a.header.Get("WWW-Authenticate"))
			}
		})
	}
	strip := func(a answer) string {
		return strings.ReplaceAll(string(a.body), a.header.Get("X-Request-Id"), "")
	}
	foreign, absent := r.api("DELETE", "/api/v1/keys/"+otherKey, key, ""), r.api("DELETE", "/api/v1/keys/key_0000000000000000000000", key, "")
	if strip(foreign) != strip(absent) {
		t.Errorf("another account's key returned %s and the nonexistent key %s, want identical bodies", foreign.body, absent.body)
	}
	inherited := r.api("POST", "/api/v1/keys", soon, `{"name":"x"}`)
	if inherited.status != 201 || inherited.field(t, "expiresAt") == "<nil>" {
		t.Errorf("creating a key with an expiring key returned %d %s, want 201 with an expiry", inherited.status, inherited.body)
	}
}

// constant is a source of randomness that generates a well-formed key that does not exist.
type constant struct{}

func (constant) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 7
	}
	return len(p), nil
}

func TestRevokedExpiredAndSuspended(t *testing.T) {
	t.Parallel()
	var late atomic.Int64 // how far the clock is ahead
	cfg := newWorld(t).config()
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	r := start(t, cfg)
	id, key := r.account("creator")
	victim := r.api("POST", "/api/v1/keys", key, `{"name":"victim"}`)
	secret := victim.field(t, "key")
	want(t, r.api("GET", "/api/v1/account", secret, ""), 200, "")
	want(t, r.api("DELETE", "/api/v1/keys/"+victim.field(t, "id"), key, ""), 204, "")
	want(t, r.api("GET", "/api/v1/account", secret, ""), 401, "API_KEY_REVOKED")
	short := r.api("POST", "/api/v1/keys", key, fmt.Sprintf(`{"name":"short","expiresAt":%d}`, cfg.Now().Add(time.Minute).UnixMilli()))
	want(t, short, 201, "")
	want(t, r.api("GET", "/api/v1/account", short.field(t, "key"), ""), 200, "")
	late.Store(int64(time.Minute))
	want(t, r.api("GET", "/api/v1/account", short.field(t, "key"), ""), 401, "API_KEY_EXPIRED")
	far := r.api("POST", "/api/v1/keys", key, `{"name":"far","expiresAt":8640000000000000}`)
	want(t, far, 201, "")
	want(t, r.api("GET", "/api/v1/account", far.field(t, "key"), ""), 200, "")
	want(t, r.admin("PATCH", "/admin/v1/accounts/"+id, `{"suspended":true}`), 200, "")
	want(t, r.api("GET", "/api/v1/account", key, ""), 403, "ACCOUNT_SUSPENDED")
	want(t, r.admin("PATCH", "/admin/v1/accounts/"+id, `{"suspended":false}`), 200, "")
	want(t, r.api("GET", "/api/v1/account", key, ""), 200, "")
}

// A key cannot be created with an expiry in the past, or with a time that has no zone.
func TestTheEndOfAKeyLiesInTheFuture(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, key := r.account("creator")
	now := time.Now()
	for when, wanted := range map[string]string{
		fmt.Sprint(now.Add(time.Hour).UnixMilli()):                                              "",
		`"` + now.Add(time.Hour).UTC().Format(time.RFC3339) + `"`:                               "",
		`"` + now.Add(time.Hour).In(time.FixedZone("", 5*3600+1800)).Format(time.RFC3339) + `"`: "",
		`"2099-01-01T00:00Z"`:                   "",
		"null":                                  "",
		"8640000000000000":                      "",
		"0":                                     "out_of_range",
		"1":                                     "out_of_range",
		"-62135596800000":                       "out_of_range",
		"-8640000000000000":                     "out_of_range",
		"8640000000000001":                      "out_of_range",
		fmt.Sprint(now.Unix() + 3600):           "out_of_range", // a time in seconds is interpreted as a time in 1970
		fmt.Sprint(now.UnixMilli() - 1):         "out_of_range",
		`"` + now.Format(time.DateOnly) + `"`:   "invalid_format",
		`"2099-01-01"`:                          "invalid_format",
		`"2099-01-01T00:00:00"`:                 "invalid_format",
		`"2099-02-30T00:00:00Z"`:                "invalid_format",
		`"1 Jan 2099 00:00 UTC"`:                "invalid_format",
		`"-000001-01-01"`:                       "invalid_format",
		`"4102444800000"`:                       "invalid_format",
		"true":                                  "invalid_type",
		fmt.Sprint(now.UnixMilli()+1000) + ".5": "invalid_type",
	} {
		body := `{"name":"k","expiresAt":` + when + `}`
		for who, a := range map[string]answer{
			"account": r.api("POST", "/api/v1/keys", key, body), "operator": r.admin("POST", "/admin/v1/accounts/"+id+"/keys", body),
		} {
			switch {
			case wanted == "":
				want(t, a, 201, "")
			case a.status != 400 || !slices.Equal(a.details(t), []string{"expiresAt " + wanted}):
				t.Errorf("%s: creating a key that expires at %s got %d %s, want %s", who, when, a.status, a.body, wanted)
			}
		}
	}
	if a := r.api("POST", "/api/v1/keys", key, `{"name":"k","expiresAt":"2099-01-01"}`); !strings.Contains(string(a.body), "no time zone") {
		t.Errorf("the error is %s, want it to mention the missing time zone", a.body)
	}
}

func TestRoll(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	_, key := r.account("creator")
	old := r.api("POST", "/api/v1/keys", key, `{"name":"CI","scopes":["links:read"],"expiresAt":"2099-01-01T00:00:00Z"}`)
	want(t, r.api("GET", "/api/v1/account", old.field(t, "key"), ""), 200, "")

	second := r.api("POST", "/api/v1/keys/"+old.field(t, "id")+"/roll", key, `{"overlapSeconds":3600}`)
	want(t, second, 201, "")
	for _, field := range []string{"name", "scopes", "expiresAt"} {
		if second.field(t, field) != old.field(t, field) {
			t.Errorf("field %s of the rolled key changed from %s to %s, want no change", field, old.field(t, field), second.field(t, field))
		}
	}
	want(t, r.api("GET", "/api/v1/account", old.field(t, "key"), ""), 200, "")
	want(t, r.api("GET", "/api/v1/account", second.field(t, "key"), ""), 200, "")

	third := r.api("POST", "/api/v1/keys/"+second.field(t, "id")+"/roll", key, "")
	want(t, third, 201, "")
	want(t, r.api("GET", "/api/v1/account", second.field(t, "key"), ""), 401, "API_KEY_REVOKED")
	want(t, r.api("GET", "/api/v1/account", third.field(t, "key"), ""), 200, "")
	want(t, r.api("POST", "/api/v1/keys/"+second.field(t, "id")+"/roll", key, ""), 404, "NOT_FOUND")

	overlap := r.api("POST", "/api/v1/keys/"+third.field(t, "id")+"/roll", key, `{"overlapSeconds":1.0}`)
	want(t, overlap, 201, "")
	deadline := time.Now().Add(time.Minute)
	for r.api("GET", "/api/v1/account", third.field(t, "key"), "").code() != "API_KEY_EXPIRED" {
		if time.Now().After(deadline) {
			t.Fatal("the old key still works a minute after the roll, want API_KEY_EXPIRED")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestTheHundredthKeyIsTheLast(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	_, key := r.account("enterprise")
	last := ""
	for i := range 99 {
		a := r.api("POST", "/api/v1/keys", key, fmt.Sprintf(`{"name":"%d"}`, i))
		if a.status != 201 {
			t.Fatalf("creating key %d returned %d %s, want 201", i+2, a.status, a.body)
		}
		last = a.field(t, "id")
	}
	want(t, r.api("POST", "/api/v1/keys", key, `{"name":"x"}`), 403, "QUOTA_EXCEEDED")
	want(t, r.api("POST", "/api/v1/keys/"+last+"/roll", key, `{"overlapSeconds":60}`), 403, "QUOTA_EXCEEDED")
	want(t, r.api("POST", "/api/v1/keys/"+last+"/roll", key, ""), 201, "")
}

func TestIdempotentKeyCreation(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := start(t, c.config())
	_, key := r.account("enterprise")
	post := func() answer {
		return r.api("POST", "/api/v1/keys", key, `{"name":"once"}`, "Idempotency-Key", "only-once")
	}
	first := post()
	want(t, first, 201, "")
	second := post()
	if second.status != 201 || !bytes.Equal(first.body, second.body) || second.header.Get("Idempotent-Replayed") != "true" || second.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("the replay returned %d %s with header %v, want the first response %s", second.status, second.body, second.header, first.body)
	}
	want(t, r.api("POST", "/api/v1/keys", key, `{"name":"twice"}`, "Idempotency-Key", "only-once"), 422, "IDEMPOTENCY_KEY_REUSED")
	want(t, r.api("POST", "/api/v1/keys", key, `{"name":"x"}`, "Idempotency-Key", strings.Repeat("k", 256)), 400, "VALIDATION_ERROR")
	want(t, r.api("GET", "/api/v1/account", second.field(t, "key"), ""), 200, "")
}

// The first attempt stores its key but not its response. A retry must return the stored key.
func TestARetryAfterALostAnswerGivesTheSameKey(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := start(t, c.config())
	_, key := r.account("enterprise")
	// The request's third commit stores the response (after the record and the key).
	undo := c.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Every: 3, Times: 1, Code: 7})
	first := r.api("POST", "/api/v1/keys", key, `{"name":"once"}`, "Idempotency-Key", "k")
	undo()
	want(t, first, 201, "")
	deadline := time.Now().Add(time.Minute)
	for {
		again := r.api("POST", "/api/v1/keys", key, `{"name":"once"}`, "Idempotency-Key", "k")
		if again.code() == "IDEMPOTENCY_IN_PROGRESS" && time.Now().Before(deadline) {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		if !bytes.Equal(first.body, again.body) {
			t.Errorf("the retry returned %d %s, want the first response %s", again.status, again.body, first.body)
		}
		break
	}
	var keys struct{ Data []any }
	if err := json.Unmarshal(r.api("GET", "/api/v1/keys", key, "").body, &keys); err != nil || len(keys.Data) != 2 {
		t.Errorf("the list has %d keys, want 2", len(keys.Data))
	}
}

func TestAHundredTwinsMakeOneKey(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	_, key := r.account("enterprise")
	var mu sync.Mutex
	bodies := map[string]int{}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			a := r.api("POST", "/api/v1/keys", key, `{"name":"once"}`, "Idempotency-Key", "k")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case a.status == 201:
				bodies[string(a.body)]++
			case a.code() != "IDEMPOTENCY_IN_PROGRESS" || a.header.Get("Retry-After") == "":
				t.Errorf("a concurrent request returned %d %s, want 201 or IDEMPOTENCY_IN_PROGRESS with Retry-After", a.status, a.body)
			}
		})
	}
	wg.Wait()
	if len(bodies) != 1 {
		t.Errorf("%d different keys were created, want 1", len(bodies))
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	_, key := r.account("free")
	began := time.Now()
	allowed := 0
	var refused answer
	for range 100 {
		if a := r.api("GET", "/api/v1/account", key, ""); a.status == 200 {
			allowed++
		} else {
			refused = a
		}
	}
	if back := int(time.Since(began)/time.Second) + 1; allowed < 60 || allowed > 60+back {
		t.Errorf("%d of 100 requests in %v were allowed, want about 60", allowed, time.Since(began))
	}
	want(t, refused, 429, "RATE_LIMITED")
	if refused.header.Get("Retry-After") != "1" || refused.header.Get("X-RateLimit-Remaining") != "0" || !strings.HasPrefix(refused.header.Get("RateLimit"), `"default";r=0;t=`) {
		t.Errorf("the 429 response has header %v, want Retry-After and the exhausted limit", refused.header)
	}
}

func TestLastUsedAtIsWrittenOnceAMinuteAndOffTheRequest(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := start(t, c.config())
	_, key := r.account("creator")
	made := r.api("POST", "/api/v1/keys", key, `{"name":"used"}`)
	before := time.Now().Truncate(time.Minute)
	want(t, r.api("GET", "/api/v1/account", made.field(t, "key"), ""), 200, "")
	deadline := time.Now().Add(time.Minute)
	for {
		var keys struct {
			Data []struct {
				ID         string
				LastUsedAt *int64
			}
		}
		if err := json.Unmarshal(r.api("GET", "/api/v1/keys", key, "").body, &keys); err != nil {
			t.Fatal(err)
		}
		if used := keys.Data[0].LastUsedAt; used != nil {
			if keys.Data[0].ID != made.field(t, "id") || *used%60_000 != 0 || *used < before.UnixMilli() {
				t.Errorf("lastUsedAt = %d, want the whole minute %d or later", *used, before.UnixMilli())
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the use of the key was not written within a minute")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestSite(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	for _, tc := range []struct {
		path, accept string
		status       int
		contentType  string
		contains     string
	}{
		{"/", "text/html", 200, "text/html; charset=utf-8", "/docs"},
		{"/", "*/*", 200, "text/html; charset=utf-8", "Linkreel"},
		{"/docs", "text/html", 200, "text/html; charset=utf-8", "links:write"},
		{"/docs/try", "text/html", 200, "text/html; charset=utf-8", "try.js"},
		{"/docs/guides/api", "text/html", 200, "text/html; charset=utf-8", "<h1"},
		{"/docs/guides/cli.md", "*/*", 200, "text/markdown; charset=utf-8", "# "},
		{"/llms.txt", "*/*", 200, "text/plain; charset=utf-8", "/api/v1/links"},
		{"/openapi.json", "*/*", 200, "application/json", `"openapi"`},
		{"/openapi.yaml", "*/*", 200, "application/yaml", "openapi:"},
		{"/favicon.ico", "*/*", 200, "image/svg+xml", "<svg"},
		{"/robots.txt", "*/*", 200, "text/plain; charset=utf-8", "Disallow"},
		{"/nothing", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", 404, "text/html; charset=utf-8", "Nothing here"},
		{"/nothing", "application/json", 404, "application/json", `"NOT_FOUND"`},
		{"/nothing", "*/*", 404, "application/json", `"NOT_FOUND"`},
		{"/nothing", "", 404, "application/json", `"NOT_FOUND"`},
		{"/api/v1/nothing", "text/html", 404, "application/json", `"NOT_FOUND"`},
		{"/api", "text/html", 404, "application/json", `"NOT_FOUND"`},
		{"/internal/v1/keys/verify", "text/html", 404, "application/json", `"NOT_FOUND"`},
	} {
		t.Run(tc.path+" "+tc.accept, func(t *testing.T) {
			var headers []string
			if tc.accept != "" {
				headers = []string{"Accept", tc.accept}
			}
			a := r.api("GET", tc.path, "", "", headers...)
			if a.status != tc.status || a.header.Get("Content-Type") != tc.contentType || !bytes.Contains(a.body, []byte(tc.contains)) {
				t.Errorf("got %d, Content-Type %q and body %.200s; want the status, type and text in the table", a.status, a.header.Get("Content-Type"), a.body)
			}
			if a.header.Get("X-Request-Id") == "" {
				t.Error("the response has no X-Request-Id, want one")
			}
			if head := r.api("HEAD", tc.path, "", "", headers...); head.status != a.status || len(head.body) != 0 || head.header.Get("Content-Type") != tc.contentType {
				t.Errorf("HEAD returned %d, %d bytes and Content-Type %q; want GET's headers and no body", head.status, len(head.body), head.header.Get("Content-Type"))
			}
		})
	}
	for _, path := range []string{"/openapi.yaml", "/openapi.json", "/docs", "/docs/try", "/docs/try.js", "/docs/reference.css", "/docs/guides/api"} {
		plain := r.api("GET", path, "", "", "Accept-Encoding", "gzip;q=0, br")
		packed := r.api("GET", path, "", "", "Accept-Encoding", "br, gzip;q=0.5")
		unasked := r.api("GET", path, "", "", "Accept-Encoding", "") // an empty header counts as absent
		if plain.header.Get("Content-Encoding") != "" || packed.header.Get("Content-Encoding") != "gzip" || len(packed.body)*2 > len(plain.body) || !bytes.Equal(unasked.body, plain.body) {
			t.Errorf("%s is %d bytes uncompressed, %d compressed and %d without Accept-Encoding; want at most half the size when compressed", path, len(plain.body), len(packed.body), len(unasked.body))
		}
		for name, a := range map[string]answer{"plain": plain, "packed": packed, "unasked": unasked} {
			if a.header.Get("Vary") != "Accept-Encoding" || (name == "packed") == (a.header.Get("ETag") == plain.header.Get("ETag")) {
				t.Errorf("%s, %s: got Vary %q and ETag %s, want Accept-Encoding and an ETag that differs from %s only if compressed", path, name, a.header.Get("Vary"), a.header.Get("ETag"), plain.header.Get("ETag"))
			}
		}
		again := r.api("GET", path, "", "", "Accept-Encoding", "gzip", "If-None-Match", packed.header.Get("ETag"))
		if again.status != 304 || len(again.body) != 0 || again.header.Get("Content-Encoding") != "" {
			t.Errorf("%s, compressed, with If-None-Match returned %d with header %v, want 304 without a body", path, again.status, again.header)
		}
	}
	docs := r.api("GET", "/openapi.yaml", "", "")
	if again := r.api("GET", "/openapi.yaml", "", "", "If-None-Match", docs.header.Get("ETag")); again.status != 304 || len(again.body) != 0 {
		t.Errorf("a request with If-None-Match returned %d, want 304 without a body", again.status)
	}
}

func TestTheStyleBlockIsWhatThePolicyAllows(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	a := r.api("GET", "/", "", "")
	_, rest, _ := strings.Cut(string(a.body), "<style>")
	block, _, _ := strings.Cut(rest, "</style>")
	if policy := a.header.Get("Content-Security-Policy"); !strings.Contains(policy, hash(block)) || strings.Contains(policy, "unsafe") {
		t.Errorf("policy is %q, want it to allow the style block by its hash", policy)
	}
}

func TestInternalVerification(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	_, key := r.account("business")
	parsed, _ := identity.ParseKey(key, identity.KeyPrefix, identity.SessionPrefix)
	body := `{"hash":"` + parsed.Hash() + `"}`
	for _, token := range []string{"", "x", adminToken, key} {
		if a := r.call("internal", "POST", "/internal/v1/keys/verify", token, body); a.status != 401 {
			t.Errorf("verification with token %q returned %d, want 401", token, a.status)
		}
	}
	a := r.call("internal", "POST", "/internal/v1/keys/verify", internalToken, body)
	if a.status != 200 || bytes.Contains(a.body, []byte(key)) || !bytes.Contains(a.body, []byte(`"Plan":2,`)) {
		t.Errorf("verification returned %d %s, want 200 with the plan and without the key", a.status, a.body)
	}
	for _, bad := range []string{`{}`, `{"hash":"../x"}`, `x`, ``} {
		if a := r.call("internal", "POST", "/internal/v1/keys/verify", internalToken, bad); a.status != 400 {
			t.Errorf("verification with body %q returned %d, want 400", bad, a.status)
		}
	}
}

func TestEachServiceHasATokenOfItsOwn(t *testing.T) {
	t.Parallel()
	cfg := newWorld(t).config()
	cfg.LinksToken, cfg.VideosToken, cfg.ConsoleToken = "links, old-links", "videos", "console"
	r := start(t, cfg)
	verify, rights := "/internal/v1/keys/verify", "/internal/v1/rights"
	for _, tt := range []struct {
		token, path string
		status      int
	}{
		{"links", verify, 400}, {"old-links", verify, 400}, {"videos", verify, 400}, {"videos", rights, 400}, {"console", signin.OpMethods, 200},
		{"links", rights, 403}, {"links", signin.OpMethods, 403}, {"videos", signin.OpMethods, 403}, {"console", verify, 403}, {"console", rights, 403},
		{internalToken, verify, 400}, // events does not have its own token here, so it uses this one
		{internalToken, rights, 403}, {internalToken, signin.OpMethods, 403}, {"links, old-links", verify, 401},
	} {
		if a := r.call("internal", "POST", tt.path, tt.token, `{}`); a.status != tt.status {
			t.Errorf("token %q on %s returned %d, want %d", tt.token, tt.path, a.status, tt.status)
		}
	}
}

func TestTenThousandMalformedKeysCostNoCall(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := start(t, c.config())
	c.Firestore.ResetStats()
	for i := range 10_000 {
		if a := r.api("GET", "/api/v1/account", fmt.Sprintf("lr_live_%038d", i), ""); a.status != 401 {
			t.Fatalf("a request with a malformed key returned %d %s, want 401", a.status, a.body)
		}
	}
	calls := c.Firestore.Stats().Calls
	delete(calls, "RunQuery") // only the loops run queries; a key is read by its document's name
	if len(calls) != 0 {
		t.Errorf("got Firestore calls %v, want none", calls)
	}
}

func TestFirestoreDownIsACleanRefusal(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	_, key := start(t, c.config()).account("creator")
	cfg := c.config()
	cfg.Firestore.Timeout = time.Second
	r := start(t, cfg)
	eventually(t, "request succeeds while Firestore is up", func() bool { return r.api("GET", "/api/v1/account", key, "").status == 200 })
	c.Firestore.Faults().Add(firestore.Fault{Code: 14})
	a := r.api("GET", "/api/v1/account", key, "")
	want(t, a, 503, "UNAVAILABLE")
	if a.header.Get("Retry-After") == "" || strings.Contains(strings.ToLower(string(a.body)), "firestore") {
		t.Errorf("got header %v and body %s, want Retry-After and no mention of Firestore", a.header, a.body)
	}
	want(t, r.admin("POST", "/admin/v1/accounts", `{"name":"x","plan":"free"}`), 503, "UNAVAILABLE")
	want(t, r.api("GET", "/docs", "", ""), 200, "")
	unknown := identity.NewKey(constant{})
	want(t, r.api("GET", "/api/v1/account", unknown.Secret(), ""), 503, "UNAVAILABLE")
}

// This test checks revocation, downgrade and suspension with real servers: two replicas, one
// Redis, one Firestore, and an internal client like the ones in the other services.
func TestAuthorityThatWasTakenIsGoneEverywhere(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	a, b := start(t, c.config()), start(t, c.config())
	trials := 100
	if os.Getenv("LINKREEL_FULL") == "1" {
		trials = 1000
	}
	id, key := a.account("enterprise")
	accepted := 0
	for i := range trials {
		made := a.api("POST", "/api/v1/keys", key, `{"name":"victim"}`)
		for made.code() == "RATE_LIMITED" {
			time.Sleep(20 * time.Millisecond)
			made = a.api("POST", "/api/v1/keys", key, `{"name":"victim"}`)
		}
		secret := made.field(t, "key")
		for _, r := range []replica{a, b} {
			if got := r.api("GET", "/api/v1/keys", secret, ""); got.status != 200 && got.status != 429 {
				t.Fatalf("before the revocation, a request with the key returned %d %s, want 200 or 429", got.status, got.body)
			}
		}
		path := "/admin/v1/keys/" + made.field(t, "id")
		if got := []replica{a, b}[i%2].admin("DELETE", path, ""); got.status != 204 {
			t.Fatalf("revoking the key returned %d %s, want 204", got.status, got.body)
		}
		for _, r := range []replica{a, b} {
			if got := r.api("GET", "/api/v1/keys", secret, ""); got.code() != "API_KEY_REVOKED" {
				accepted++
				t.Errorf("trial %d: a request with the revoked key returned %d %s, want 401", i, got.status, got.body)
			}
		}
	}
	t.Logf("%d revocations on 2 replicas: revoked keys were accepted %d times", trials, accepted)
	for i, plan := range []string{"free", "enterprise", "creator"} {
		a.admin("PATCH", "/admin/v1/accounts/"+id, `{"plan":"`+plan+`"}`)
		for _, r := range []replica{a, b} {
			want := strconv.Itoa(map[string]int{"free": 60, "enterprise": 3000, "creator": 600}[plan])
			if got := r.api("GET", "/api/v1/account", key, ""); got.header.Get("X-RateLimit-Limit") != want {
				t.Errorf("after change %d to plan %s, the limit is %s, want %s", i, plan, got.header.Get("X-RateLimit-Limit"), want)
			}
		}
	}
}

func TestRoutesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	for _, route := range apispec.Load().Routes() {
		var server string
		switch {
		case strings.HasPrefix(route.Path, "/api/v1/account"), strings.HasPrefix(route.Path, "/api/v1/keys"):
			server = "api"
		case strings.HasPrefix(route.Path, "/admin/"):
			server = "admin"
		default:
			continue
		}
		a := r.call(server, route.Method, strings.ReplaceAll(route.Path, "{id}", "x"), "", "")
		if a.status != 401 {
			t.Errorf("%s %s without a key returned %d, want 401", route.Method, route.Path, a.status)
		}
	}
}

func TestBootstrapAndDemoKeys(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := start(t, c.config())
	db, err := firestoredb.Open(t.Context(), c.config().Firestore)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	id, key, err := auth.Bootstrap(t.Context(), db, "First", identity.Enterprise)
	if err != nil {
		t.Fatal(err)
	}
	if a := r.api("GET", "/api/v1/account", key.Secret(), ""); a.status != 200 || a.field(t, "id") != id {
		t.Errorf("a request with the first account's key returned %d %s, want 200 with the account", a.status, a.body)
	}
	demo, err := auth.EnsureDemo(t.Context(), db, identity.Creator, "")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := auth.EnsureDemo(t.Context(), db, identity.Creator, demo); err != nil || again != demo {
		t.Errorf("EnsureDemo returned a different key or error %v, want the same key", err)
	}
	account := r.api("GET", "/api/v1/account", demo, "").field(t, "id")
	want(t, r.admin("PATCH", "/admin/v1/accounts/"+account, `{"plan":"free"}`), 200, "")
	if again, err := auth.EnsureDemo(t.Context(), db, identity.Creator, demo); err != nil || again == demo {
		t.Errorf("EnsureDemo returned the same key or error %v, want a new key after the plan changed", err)
	}
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	badRedis := auth.Config{InternalToken: "x"}
	badRedis.Firestore = firestoredb.Config{Project: "p", Endpoint: "127.0.0.1:1"}
	badRedis.Redis.URL = "http://x"
	for name, cfg := range map[string]auth.Config{
		"missing internal token": {},
		"unknown plan":           {InternalToken: "x", RateLimits: map[string]int{"gold": 1}},
		"negative quota":         {InternalToken: "x", QuotaLinks: map[string]int{"free": -1}},
		"invalid Redis address":  badRedis,
	} {
		if _, err := auth.New(t.Context(), cfg); err == nil {
			t.Errorf("%s: New returned no error, want one", name)
		}
	}
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}
