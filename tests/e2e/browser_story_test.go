package e2e

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
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-rod/rod/lib/proto"
)

// issuer is an identity provider that signs everybody in as subject. The auth service's own tests
// cover the errors on both sides.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu      sync.Mutex
	subject string
	nonces  map[string]string // by code
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	i := &issuer{key: key, nonces: map[string]string{}}
	b64 := base64.RawURLEncoding.EncodeToString
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"}, "response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		code := rand.Text()
		i.mu.Lock()
		i.nonces[code] = q.Get("nonce")
		i.mu.Unlock()
		back := url.Values{"code": {code}, "state": {q.Get("state")}}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		claims, _ := json.Marshal(map[string]any{
			"iss": i.URL, "sub": i.subject, "aud": "linkreel", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
			"nonce": i.nonces[r.FormValue("code")], "name": "Ada Obi", "email": "ada@example.com", "email_verified": true,
		})
		text := b64([]byte(`{"alg":"RS256","kid":"one"}`)) + "." + b64(claims)
		sum := sha256.Sum256([]byte(text))
		signature, _ := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		answer(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": text + "." + b64(signature)})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) as(subject string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.subject = subject
}

// The story starts with an empty installation. The program prints a sign-in link. A person signs in
// with the link, shortens and copies a URL, uploads and shares a file, and records and shares a
// clip. A colleague then signs in through the company's identity provider. The test logs the time
// of each step.
func TestFromNothingToARecording(t *testing.T) {
	t.Parallel()
	provider := newIssuer(t)
	began := time.Now()
	step := func(name string) {
		t.Logf("%6.1f s  %s", time.Since(began).Seconds(), name)
		began = time.Now()
	}
	i := install(t)
	i.env = []string{"LINKREEL_OIDC_ISSUER=" + provider.URL, "LINKREEL_OIDC_CLIENT_ID=linkreel", "LINKREEL_OIDC_CLIENT_SECRET=hush", "LINKREEL_OIDC_NAME=Harbour ID"}
	p, s := i.up()
	link := ""
	eventually(t, patience, "the program prints a sign-in link", func() bool {
		link = regexp.MustCompile(regexp.QuoteMeta(s.BaseURL) + `/app/sign-in\?link=\S+`).FindString(p.out.String())
		return link != ""
	})
	step("from starting the program to a printed sign-in link")

	v := visitor(t, look{})
	page := v.Timeout(4 * patience) // for all steps in total
	press := func(v *viewer, name string) { v.Timeout(patience).MustElementR("button", name).MustClick() }
	heading := func(v *viewer, text string) { v.t.Helper(); v.Timeout(patience).MustElementR("h1", text) }
	v.open(link)
	press(v, "^Sign in$")
	heading(v, "Shorten a link")
	step("from the link to the first page")

	check(t, proto.BrowserGrantPermissions{Permissions: []proto.BrowserPermissionType{proto.BrowserPermissionTypeClipboardSanitizedWrite}, BrowserContextID: v.Browser().BrowserContextID}.Call(v.Browser()))
	page.MustElement("#url").MustInput("https://go.dev/doc/")
	press(v, "Shorten")
	page.MustElement(".short button").MustClick()
	page.MustElementR(".short button", "Copied")
	short := page.MustElement(".short a").MustText()
	step("from the first page to a copied short URL")
	if got := visit(t, short); got.header.Get("Location") != "https://go.dev/doc/" {
		t.Errorf("%s redirects to %q, want https://go.dev/doc/", short, got.header.Get("Location"))
	}

	file := scenery(t, 5)
	began = time.Now()
	v.open(s.BaseURL + "/app/upload")
	page.MustElement("input[type=file]:not([disabled])").MustSetFiles(file)
	page.MustElementR("#uploads li", "Ready to watch")
	page.MustElementR("#uploads a", "Open").MustClick()
	shared := page.MustElement(".short a").MustText()
	guest := visitor(t, look{})
	plays(t, guest, shared)
	step("from choosing a file to playback on the share page")

	v.open(s.BaseURL + "/app/record")
	page.MustElement("input[name=what][value=both]").MustClick()
	press(v, "Start recording")
	page.MustElement("#stop").MustWaitVisible()
	step("from the recorder's page to a running recording")
	v.recorded(4)
	began = time.Now()
	page.MustElement("#stop").MustClick()
	plays(t, guest, page.MustElement("#share a").MustText())
	step("from Stop to playback on the share page")

	v.open(s.BaseURL + "/app/members")
	press(v, "Create invitation")
	invitation := page.MustElement(".short a").MustText()
	if !strings.HasPrefix(invitation, s.BaseURL+"/app/sign-in?link=") {
		t.Fatalf("the invitation is %s, want a URL for the sign-in page", invitation)
	}
	began = time.Now()
	provider.as("ada")
	ada := visitor(t, look{})
	ada.open(s.BaseURL + "/app/sign-in")
	press(ada, "Continue with Harbour ID")
	heading(ada, "You are not signed in") // the provider accepts her, but she is not a member here
	if n := len(ada.MustElements("nav.nav")); n != 0 {
		t.Errorf("a page for an unknown identity has %d navigation bars, want 0", n)
	}
	ada.open(invitation)
	press(ada, "Accept with Harbour ID")
	heading(ada, "Shorten a link")
	press(ada, "Sign out")
	heading(ada, "^Sign in$")
	press(ada, "Continue with Harbour ID")
	heading(ada, "Shorten a link")
	step("from an invitation until the identity provider has signed a colleague in twice")
	v.clean("404", "networkError") // the player requests a storyboard that does not exist yet
	ada.clean("status of 403")
	guest.clean("404", "networkError")
}
