package auth_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/signin"
	"github.com/linkreel/linkreel/services/auth"
)

// issuer is a fake identity provider. spoil, if set, edits the claims in its tokens.
type issuer struct {
	*httptest.Server
	key, other *rsa.PrivateKey

	mu         sync.Mutex
	challenges map[string]string // code → PKCE challenge
	nonces     map[string]string
	subject    string
	claims     map[string]any
	spoil      func(claims map[string]any)
	wrongKey   bool
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{challenges: map[string]string{}, nonces: map[string]string{}, claims: map[string]any{}}
	for _, k := range []**rsa.PrivateKey{&i.key, &i.other} {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		*k = key
	}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"}, "response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		b64 := base64.RawURLEncoding.EncodeToString
		answer(w, map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": b64(i.key.N.Bytes()), "e": b64(big.NewInt(int64(i.key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		code := r.FormValue("code")
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		id, secret, _ := r.BasicAuth()
		if id == "" {
			id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
		}
		if i.challenges[code] == "" || base64.RawURLEncoding.EncodeToString(sum[:]) != i.challenges[code] || id != "linkreel" || secret != "hush" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
			return
		}
		delete(i.challenges, code) // a code works only once
		answer(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": i.token(i.nonces[code])})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

// token returns an ID token with the claims that spoil has edited.
func (i *issuer) token(nonce string) string {
	claims := map[string]any{
		"iss": i.URL, "sub": i.subject, "aud": "linkreel", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "nonce": nonce,
	}
	for k, v := range i.claims {
		claims[k] = v
	}
	if i.spoil != nil {
		i.spoil(claims)
	}
	body, _ := json.Marshal(claims)
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"one"}`)) + "." + base64.RawURLEncoding.EncodeToString(body)
	sum := sha256.Sum256([]byte(text))
	key := i.key
	if i.wrongKey {
		key = i.other
	}
	signature, _ := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func (i *issuer) config(c world) auth.Config {
	cfg := c.config()
	cfg.OIDC = auth.OIDC{Issuer: i.URL, ClientID: "linkreel", ClientSecret: "hush", Scopes: []string{"openid", "email"}, GroupsClaim: "groups"}
	return cfg
}

// trip is the state of a sign-in just before the provider redirects the browser back.
type trip struct {
	flow, state, code string
}

func (i *issuer) begin(r replica, in signin.BeginOIDC) trip {
	r.t.Helper()
	begun := decode[signin.Begun](r.t, r.signin(signin.OpBeginOIDC, in))
	u, err := url.Parse(begun.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	q := u.Query()
	if q.Get("code_challenge_method") != "S256" || q.Get("redirect_uri") != "http://localhost:8080/app/sign-in/callback" || q.Get("response_type") != "code" {
		r.t.Errorf("the authorization URL is %s, want PKCE, our redirect_uri and the code flow", u)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	code := "code-" + q.Get("state")
	i.challenges[code], i.nonces[code] = q.Get("code_challenge"), q.Get("nonce")
	return trip{begun.Flow, q.Get("state"), code}
}

func (t trip) finish(r replica, session string) answer {
	r.t.Helper()
	return r.signin(signin.OpFinishOIDC, signin.FinishOIDC{
		Browser: signin.Browser{Address: "192.0.2.1", Session: session}, Flow: t.flow, State: t.state, Code: t.code,
	})
}

func (i *issuer) as(subject string, claims map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.subject, i.claims = subject, claims
}

func TestSignInByIdentityProvider(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	c := newWorld(t)
	r := start(t, i.config(c))
	other := start(t, i.config(c)) // any replica can handle the second step because the browser stores the flow
	id, _ := r.account("business")
	owner := r.join(id, "Olu", "owner")

	// A person with an unknown identity cannot sign in, even if the configured issuer confirms
	// it.
	i.as("ada", map[string]any{"email": "ada@example.com", "email_verified": true, "name": "Ada Obi"})
	want(t, i.begin(r, signin.BeginOIDC{}).finish(other, ""), 403, "FORBIDDEN")

	// Once she has accepted an invitation with the identity, it is known.
	invitation := owner.invite("admin")
	s := decode[signin.Session](t, i.begin(r, signin.BeginOIDC{Link: tokenOf(t, invitation)}).finish(other, ""))
	p := decode[signin.Profile](t, r.signin(signin.OpProfile, signin.OnSession{Browser: signin.Browser{Session: s.Secret}}))
	if p.Member.Name != "Ada Obi" || p.Member.Email != "ada@example.com" || p.Member.Role != "admin" || len(p.Identities) != 1 {
		t.Errorf("got profile %+v, want admin Ada Obi with her address and one identity", p)
	}
	again := decode[signin.Session](t, i.begin(r, signin.BeginOIDC{Next: "/app/links"}).finish(other, ""))
	if again.MemberID != s.MemberID || again.Next != "/app/links" {
		t.Errorf("the second sign-in returned %+v, want member %s and page /app/links", again, s.MemberID)
	}

	// Another account with the same address at the provider is a different person. Ada also becomes
	// a different person if the provider gives her a new subject.
	i.as("mallory", map[string]any{"email": "ada@example.com", "email_verified": true})
	want(t, i.begin(r, signin.BeginOIDC{}).finish(r, ""), 403, "FORBIDDEN")
	i.as("ada-2", map[string]any{"email": "ada@example.com", "email_verified": true})
	want(t, i.begin(r, signin.BeginOIDC{}).finish(r, ""), 403, "FORBIDDEN")

	// An unverified address is not stored, but the person can still sign in.
	kofi := owner.invite("viewer")
	i.as("kofi", map[string]any{"email": "olu@example.com", "email_verified": false, "name": "Kofi"})
	s = decode[signin.Session](t, i.begin(r, signin.BeginOIDC{Link: tokenOf(t, kofi)}).finish(r, ""))
	p = decode[signin.Profile](t, r.signin(signin.OpProfile, signin.OnSession{Browser: signin.Browser{Session: s.Secret}}))
	if p.Member.Email != "" || p.Member.Name != "Kofi" {
		t.Errorf("got profile %+v, want Kofi with no address", p.Member)
	}

	// A signed-in person connects an identity. It must not belong to anyone else, and the browser
	// must be the one that began the sign-in.
	i.as("olu", nil)
	connect := signin.BeginOIDC{Browser: signin.Browser{Session: owner.session}, Connect: true}
	want(t, i.begin(r, connect).finish(r, ""), 403, "FORBIDDEN")
	want(t, i.begin(r, connect).finish(r, s.Secret), 403, "FORBIDDEN")
	want(t, i.begin(r, connect).finish(r, owner.session), 200, "")
	if got := decode[signin.Session](t, i.begin(r, signin.BeginOIDC{}).finish(r, "")); got.MemberID != owner.id {
		t.Errorf("Olu signed in as member %s, want %s", got.MemberID, owner.id)
	}
	i.as("ada", nil)
	owner.session = decode[signin.Session](t, i.begin(r, signin.BeginOIDC{}).finish(r, "")).Secret // Ada's identity
	i.as("olu", nil)
	want(t, i.begin(r, signin.BeginOIDC{Browser: signin.Browser{Session: owner.session}, Connect: true}).finish(r, owner.session), 409, "IDENTITY_TAKEN")
}

func TestWhatIsWrongWithTheProvidersAnswerIsRefused(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	r := start(t, i.config(newWorld(t)))
	id, _ := r.account("business")
	owner := r.join(id, "Olu", "owner")
	i.as("ada", nil)
	decode[signin.Session](t, i.begin(r, signin.BeginOIDC{Link: tokenOf(t, owner.invite("admin"))}).finish(r, ""))
	set := func(name string, v any) func(map[string]any) {
		return func(claims map[string]any) { claims[name] = v }
	}
	for name, c := range map[string]struct {
		spoil    func(map[string]any)
		wrongKey bool
		edit     func(*trip)
	}{
		"wrong state":                     {edit: func(t *trip) { t.state = "guess" }},
		"missing state":                   {edit: func(t *trip) { t.state = "" }},
		"missing flow":                    {edit: func(t *trip) { t.flow = "" }},
		"modified flow":                   {edit: func(t *trip) { t.flow = t.flow[:len(t.flow)-4] + "AAAA" }},
		"wrong code":                      {edit: func(t *trip) { t.code = "stolen" }},
		"wrong nonce":                     {spoil: set("nonce", "replayed")},
		"missing nonce":                   {spoil: func(c map[string]any) { delete(c, "nonce") }},
		"wrong audience":                  {spoil: set("aud", "other")},
		"two audiences without azp":       {spoil: set("aud", []string{"linkreel", "other"})},
		"wrong authorized party":          {spoil: set("azp", "other")},
		"wrong issuer":                    {spoil: set("iss", "https://evil.example")},
		"expired token":                   {spoil: set("exp", time.Now().Add(-time.Hour).Unix())},
		"missing subject":                 {spoil: set("sub", "")},
		"token signed with the wrong key": {wrongKey: true},
		"state with an extra character":   {edit: func(t *trip) { t.state += "x" }},
	} {
		i.mu.Lock()
		i.spoil, i.wrongKey = c.spoil, c.wrongKey
		i.mu.Unlock()
		trip := i.begin(r, signin.BeginOIDC{})
		if c.edit != nil {
			c.edit(&trip)
		}
		if got := trip.finish(r, ""); got.status != 403 || got.code() != "FORBIDDEN" {
			t.Errorf("%s: got %d %s, want 403 FORBIDDEN", name, got.status, got.body)
		}
	}
	i.mu.Lock()
	i.spoil, i.wrongKey = nil, false
	i.mu.Unlock()
	good := i.begin(r, signin.BeginOIDC{})
	want(t, good.finish(r, ""), 200, "")
	want(t, good.finish(r, ""), 403, "FORBIDDEN") // a code works only once
}

func TestGroupsGiveRoles(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	c := newWorld(t)
	first := start(t, c.config())
	id, _ := first.account("business")
	cfg := i.config(c)
	cfg.OIDC.Account, cfg.OIDC.Roles = id, map[string]string{"staff": "member", "ops": "admin"}
	r := start(t, cfg)
	role := func() string {
		got := i.begin(r, signin.BeginOIDC{}).finish(r, "")
		if got.status != 200 {
			return got.code()
		}
		s := decode[signin.Session](t, got)
		return decode[signin.Profile](t, r.signin(signin.OpWho, signin.OnSession{Browser: signin.Browser{Session: s.Secret}})).Member.Role
	}
	for _, step := range []struct {
		groups []any
		want   string
	}{
		{nil, "FORBIDDEN"}, {[]any{"visitors"}, "FORBIDDEN"}, {[]any{"staff"}, "member"}, {[]any{"staff", "ops"}, "admin"},
		{[]any{"staff"}, "member"}, {[]any{"visitors"}, "FORBIDDEN"}, {[]any{"ops"}, "admin"},
	} {
		i.as("ada", map[string]any{"groups": step.groups, "name": "Ada"})
		if got := role(); got != step.want {
			t.Errorf("with groups %v, the role is %s, want %s", step.groups, got, step.want)
		}
	}
}
