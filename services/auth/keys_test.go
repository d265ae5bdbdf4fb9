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
		t.Fatalf("roll: %d %s", first.status, first.body)
	}
	successor := first.field(t, "key")
	if got := r.api("GET", "/api/v1/account", key, ""); got.code() != "API_KEY_REVOKED" {
		t.Fatalf("the rolled key: %d %s", got.status, got.body)
	}
	again := r.api("POST", path, key, `{}`, "Idempotency-Key", "roll-1")
	if again.status != 201 || again.field(t, "key") != successor || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same request with the revoked key: %d %s, want the first response", again.status, again.body)
	}
	if got := r.api("GET", "/api/v1/account", successor, ""); got.status != 200 {
		t.Errorf("the successor: %d %s", got.status, got.body)
	}
	for name, got := range map[string]answer{
		"without an Idempotency-Key": r.api("POST", path, key, `{}`),
		"another Idempotency-Key":    r.api("POST", path, key, `{}`, "Idempotency-Key", "roll-2"),
		"another body":               r.api("POST", path, key, `{"overlapSeconds":5}`, "Idempotency-Key", "roll-1"),
		"another route":              r.api("POST", "/api/v1/keys", key, `{}`, "Idempotency-Key", "roll-1"),
		"a read":                     r.api("GET", "/api/v1/keys", key, "", "Idempotency-Key", "roll-1"),
	} {
		if got.status != 401 || got.code() != "API_KEY_REVOKED" {
			t.Errorf("%s: %d %s, want 401 API_KEY_REVOKED", name, got.status, got.body)
		}
	}
	// A key that was revoked in another way cannot be rolled.
	if got := r.api("POST", path, other, `{}`, "Idempotency-Key", "roll-3"); got.status != 404 {
		t.Errorf("rolling a revoked key: %d %s", got.status, got.body)
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
		t.Errorf("roll by a key that expires at %d: %d %s", end, rolled.status, rolled.body)
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
		t.Errorf("GET %s: %d %s", at, got.status, got.body)
	}
	for name, got := range map[string]answer{"another account": r.api("GET", at, stranger, ""), "no such key": r.api("GET", "/api/v1/keys/key_none", key, "")} {
		if got.status != 404 || got.code() != "NOT_FOUND" {
			t.Errorf("%s: %d %s", name, got.status, got.body)
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
		t.Errorf("accounts %s and %s, want one", first.body, again.body)
	}
	if other := post("/admin/v1/accounts", `{"name":"B","plan":"free"}`); other.status != 422 {
		t.Errorf("another body: %d %s", other.status, other.body)
	}
	path := "/admin/v1/accounts/" + first.field(t, "id") + "/keys"
	key, twin := post(path, `{"name":"first"}`), post(path, `{"name":"first"}`)
	if key.status != 201 || key.field(t, "key") != twin.field(t, "key") {
		t.Errorf("keys %s and %s, want one", key.body, twin.body)
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
		t.Errorf("answers to 330 guesses: %v; %s", statuses, limited.body)
	}
	if got := r.api("GET", "/api/v1/account", key, ""); got.status != 200 {
		t.Errorf("a known key from the same network: %d %s", got.status, got.body)
	}
}

type randomReader struct{}

func (randomReader) Read(p []byte) (int, error) { return copy(p, identity.NewNonce()), nil }
