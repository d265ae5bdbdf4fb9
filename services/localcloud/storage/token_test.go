package storage_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	gcs "cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// TestWithoutTheTokenTheAPIAnswersNothing tries every kind of request that the private listener
// supports, and some that it does not support. Only health checks, the public keys and the exchange
// of a signed assertion work without a token.
func TestWithoutTheTokenTheAPIAnswersNothing(t *testing.T) {
	t.Parallel()
	token := strings.Repeat("t", 40)
	e := start(t, storage.Options{Buckets: []string{"media"}, Token: token + "," + strings.Repeat("o", 32)})
	const b = "/storage/v1/b/media"
	requests := []string{
		"GET /storage/v1/b", "POST /storage/v1/b?project=p", "GET " + b, "PATCH " + b, "PUT " + b, "DELETE " + b,
		"GET " + b + "/o", "GET " + b + "/o/x", "GET " + b + "/o/x?alt=media", "GET /download" + b + "/o/x?alt=media", "PATCH " + b + "/o/x", "PUT " + b + "/o/x", "DELETE " + b + "/o/x",
		"POST " + b + "/o/y/compose", "POST " + b + "/o/x/copyTo/b/media/o/y", "POST " + b + "/o/x/rewriteTo/b/media/o/y",
		"POST /upload" + b + "/o?uploadType=media&name=y", "POST /upload" + b + "/o?uploadType=multipart", "POST /upload" + b + "/o?uploadType=resumable&name=y", "PUT /upload" + b + "/o?upload_id=1",
		"GET /media/x", "HEAD /media/x", "PUT /media/x", "DELETE /media/x", "OPTIONS /media/x", "GET /", "POST /", "GET /batch", "POST /batch/storage/v1", "GET /token", "GET /nowhere", "POST /readyz", "POST /livez", "POST /healthz", "POST /oauth2/v3/certs",
		"GET //storage/v1/b", "GET /livez/../storage/v1/b", "GET /livez/%2e%2e/storage/v1/b", "GET /storage/v1/b/", "GET /%2fstorage/v1/b",
	}
	headers := map[string]http.Header{
		"no token": {}, "a wrong token": {"Authorization": {"Bearer " + strings.Repeat("x", 40)}}, "the emulator's token": {"Authorization": {"Bearer owner"}}, "Basic": {"Authorization": {"Basic " + token}},
		"bare": {"Authorization": {token}}, "two tokens, the wrong one first": {"Authorization": {"Bearer owner", "Bearer " + token}}, "the token in a proxy's header": {"Proxy-Authorization": {"Bearer " + token}, "X-Authorization": {"Bearer " + token}},
	}
	send := func(method, path string, header http.Header) (status int, challenge string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, e.api.URL+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header.Clone()
		r, err := plainClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		return r.StatusCode, r.Header.Get("WWW-Authenticate")
	}
	for _, request := range requests {
		method, path, _ := strings.Cut(request, " ")
		for kind, header := range headers {
			if status, challenge := send(method, path, header); (status != 401 || challenge != "Bearer") && status/100 != 3 {
				t.Errorf("%s, %s: the status is %d with the challenge %q, want 401", request, kind, status, challenge)
			}
		}
		if status, _ := send(method, path, http.Header{"Authorization": {"Bearer " + strings.Repeat("o", 32)}}); status == 401 {
			t.Errorf("%s with the previous token returned 401", request)
		}
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/healthz": 200, "/oauth2/v3/certs": 200} {
		if status, _ := send("GET", path, http.Header{}); status != want {
			t.Errorf("GET %s returned %d, want %d", path, status, want)
		}
	}
}

// TestSignedAddressesAndTheirSessionsNeedNoToken tests that signed URLs are credentials. Browsers
// have no other credentials.
func TestSignedAddressesAndTheirSessionsNeedNoToken(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{Token: strings.Repeat("t", 40)})
	if a := call(t, "PUT", e.sign(t, "PUT", "a", nil), []byte("bytes")); a.status != 200 {
		t.Errorf("a signed PUT returned %d, want 200: %s", a.status, a.body)
	}
	if a := call(t, "GET", e.sign(t, "GET", "a", nil), nil); a.status != 200 || a.body != "bytes" {
		t.Errorf("a signed GET returned %d, want 200 with the bytes: %s", a.status, a.body)
	}
	resumable := func(o *gcs.SignedURLOptions) { o.Headers = []string{"x-goog-resumable:start"} }
	session := call(t, "POST", e.sign(t, "POST", "b", resumable), nil, "x-goog-resumable", "start").header.Get("Location")
	if session == "" {
		t.Fatal("a signed POST did not return a session")
	}
	if a := call(t, "PUT", session, nil, "Content-Range", "bytes */*"); a.status != 308 {
		t.Errorf("querying the session returned %d, want 308: %s", a.status, a.body)
	}
	if a := call(t, "PUT", session, []byte("whole")); a.status != 200 {
		t.Errorf("uploading to the session returned %d, want 200: %s", a.status, a.body)
	}
}

// TestWhoHoldsTheKeyFileIsGivenTheToken tests that Google's clients automatically request a token
// from the key file's token_uri.
func TestWhoHoldsTheKeyFileIsGivenTheToken(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{Token: strings.Repeat("t", 40)})
	var file map[string]string
	if err := json.Unmarshal(e.srv.ServiceAccountKey(), &file); err != nil {
		t.Fatal(err)
	}
	file["token_uri"] = e.api.URL + "/token"
	key, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	client, err := gcs.NewClient(t.Context(), option.WithEndpoint(e.api.URL+"/storage/v1/"), option.WithAuthCredentialsJSON(option.ServiceAccount, key), gcs.WithJSONReads())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Bucket("b-1").Attrs(t.Context()); err != nil {
		t.Errorf("a client with the key file returned %v, want no error", err)
	}
	if a := call(t, "POST", e.api.URL+"/token", nil); a.status != 400 || strings.Contains(a.body, strings.Repeat("t", 40)) {
		t.Errorf("requesting the token without an assertion returned %d, want 400: %s", a.status, a.body)
	}
}

func TestAStorageDoesNotOpenWithAMistakenToken(t *testing.T) {
	t.Parallel()
	if s, err := storage.Open(storage.Options{Dir: t.TempDir(), Token: "short"}); err == nil {
		_ = s.Close()
		t.Error("Open accepted an invalid token, want an error")
	}
}
