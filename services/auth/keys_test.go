package auth_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/identity"
)

func TestALostAnswerToRollingTheCallingKeyIsReplayedToIt(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	acct, key := r.account("creator")
	other := r.key(acct, `{"name":"other"}`)
	id := strings.Split(strings.Split(string(r.api("GET", "/api/v1/keys", key, "").body), `"name":"all"`)[0], `"id":"`)
	own := strings.Split(id[len(id)-1], `"`)[0]
	path := "/api/v1/keys/" + own + "/roll"

	first := r.api("POST", path, key, `{}`, "Idempotency-Key", "roll-1")
	if first.status != 201 {
		t.Fatalf("roll returned %d %s, want 201", first.status, first.body)
	}
	successor := first.field(t, "key")
	if got := r.api("GET", "/api/v1/account", key, ""); got.code() != "API_KEY_REVOKED" {
		t.Fatalf("a request with the rolled key returned %d %s, want API_KEY_REVOKED", got.status, got.body)
	}
	again := r.api("POST", path, key, `{}`, "Idempotency-Key", "roll-1")
	if again.status != 201 || again.field(t, "key") != successor || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repeated request with the revoked key returned %d %s, want the first response", again.status, again.body)
	}
	if got := r.api("GET", "/api/v1/account", successor, ""); got.status != 200 {
		t.Errorf("a request with the successor returned %d %s, want 200", got.status, got.body)
	}
	for name, got := range map[string]answer{
		"no Idempotency-Key":        r.api("POST", path, key, `{}`),
		"different Idempotency-Key": r.api("POST", path, key, `{}`, "Idempotency-Key", "roll-2"),
		"different body":            r.api("POST", path, key, `{"overlapSeconds":5}`, "Idempotency-Key", "roll-1"),
		"different route":           r.api("POST", "/api/v1/keys", key, `{}`, "Idempotency-Key", "roll-1"),
		"GET request":               r.api("GET", "/api/v1/keys", key, "", "Idempotency-Key", "roll-1"),
	} {
		if got.status != 401 || got.code() != "API_KEY_REVOKED" {
			t.Errorf("%s: got %d %s, want 401 API_KEY_REVOKED", name, got.status, got.body)
		}
	}
	// A key that was revoked by another operation cannot be rolled.
	if got := r.api("POST", path, other, `{}`, "Idempotency-Key", "roll-3"); got.status != 404 {
		t.Errorf("rolling a revoked key returned %d %s, want 404", got.status, got.body)
	}
}

func TestASuccessorEndsWithTheKeyThatRolls(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	acct, _ := r.account("creator")
	end := time.Now().Add(time.Hour).UnixMilli()
	short := r.admin("POST", "/admin/v1/accounts/"+acct+"/keys", fmt.Sprintf(`{"name":"short","expiresAt":%d}`, end))
	lasting := r.admin("POST", "/admin/v1/accounts/"+acct+"/keys", `{"name":"lasting"}`)
	rolled := r.api("POST", "/api/v1/keys/"+lasting.field(t, "id")+"/roll", short.field(t, "key"), `{"overlapSeconds":60}`)
	if rolled.status != 201 || rolled.field(t, "expiresAt") != fmt.Sprint(float64(end)) {
		t.Errorf("rolling with a key that expires at %d returned %d %s, want 201 with the same expiry", end, rolled.status, rolled.body)
	}
}

func TestAKeyCanBeReadAtItsLocation(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	_, key := r.account("creator")
	_, stranger := r.account("creator")
	made := r.api("POST", "/api/v1/keys", key, `{"name":"ci"}`)
	at := made.header.Get("Location")
	if got := r.api("GET", at, key, ""); got.status != 200 || got.field(t, "name") != "ci" || strings.Contains(string(got.body), made.field(t, "key")) {
		t.Errorf("GET %s returned %d %s, want 200 with the name and without the secret", at, got.status, got.body)
	}
	for name, got := range map[string]answer{"another account": r.api("GET", at, stranger, ""), "unknown key": r.api("GET", "/api/v1/keys/key_none", key, "")} {
		if got.status != 404 || got.code() != "NOT_FOUND" {
			t.Errorf("%s: got %d %s, want 404 NOT_FOUND", name, got.status, got.body)
		}
	}
}

func TestOperatorPostsTakeAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	post := func(path, body string) answer {
		return r.call("admin", http.MethodPost, path, adminToken, body, "Idempotency-Key", "once")
	}
	first, again := post("/admin/v1/accounts", `{"name":"A","plan":"free"}`), post("/admin/v1/accounts", `{"name":"A","plan":"free"}`)
	if first.status != 201 || again.field(t, "id") != first.field(t, "id") || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repeated request created %s after %s, want the same account and a replay", first.body, again.body)
	}
	if other := post("/admin/v1/accounts", `{"name":"B","plan":"free"}`); other.status != 422 {
		t.Errorf("the same Idempotency-Key with a different body returned %d %s, want 422", other.status, other.body)
	}
	path := "/admin/v1/accounts/" + first.field(t, "id") + "/keys"
	key, twin := post(path, `{"name":"first"}`), post(path, `{"name":"first"}`)
	if key.status != 201 || key.field(t, "key") != twin.field(t, "key") {
		t.Errorf("the repeated requests returned keys %s and %s, want the same key", key.body, twin.body)
	}
}

func TestANetworkThatTriesKeysIsSlowedDownAndKnownKeysAreNot(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	_, key := r.account("enterprise")
	if got := r.api("GET", "/api/v1/account", key, ""); got.status != 200 {
		t.Fatal(got.status)
	}
	statuses := map[int]int{}
	var limited answer
	for range 330 {
		guess := identity.NewKey(randomReader{})
		got := r.api("GET", "/api/v1/account", guess.Secret(), "")
		if statuses[got.status]++; got.status == 429 {
			limited = got
		}
	}
	if statuses[401] < 300 || statuses[429] == 0 || limited.code() != "RATE_LIMITED" || limited.header.Get("Retry-After") == "" {
		t.Errorf("330 guesses returned statuses %v, and the last limited response was %s; want at least 300 401s, then 429 with Retry-After", statuses, limited.body)
	}
	if got := r.api("GET", "/api/v1/account", key, ""); got.status != 200 {
		t.Errorf("a request with a known key from the same network returned %d %s, want 200", got.status, got.body)
	}
}

type randomReader struct{}

func (randomReader) Read(p []byte) (int, error) { return copy(p, identity.NewNonce()), nil }
