package storage_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gcs "cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// sharedKey is the key for all servers. They share it because generating a key is slow.
var sharedKey = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "key")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s, err := storage.Open(storage.Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	return s.ServiceAccountKey()
})

// env is a running server with both listeners and Google's client.
type env struct {
	dir         string
	srv         *storage.Server
	public, api *httptest.Server
	client      *gcs.Client
	email, pem  string
	ahead       atomic.Int64 // how far the server's clock is ahead, in nanoseconds
}

func start(t testing.TB, o storage.Options) *env {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Buckets == nil {
		o.Buckets = []string{"b-1"}
	}
	if o.Key == nil {
		o.Key = sharedKey()
	}
	e := &env{dir: o.Dir}
	if o.Clock == nil {
		o.Clock = func() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) }
	}
	srv, err := storage.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	e.srv = srv
	e.public, e.api = httptest.NewServer(srv.PublicHandler()), httptest.NewServer(srv.APIHandler())
	var key struct {
		Email string `json:"client_email"`
		PEM   string `json:"private_key"`
	}
	if err := json.Unmarshal(srv.ServiceAccountKey(), &key); err != nil {
		t.Fatal(err)
	}
	e.email, e.pem = key.Email, key.PEM
	e.client, err = gcs.NewClient(context.Background(), option.WithEndpoint(e.api.URL+"/storage/v1/"), option.WithoutAuthentication(), gcs.WithJSONReads())
	if err != nil {
		t.Fatal(err)
	}
	e.client.SetRetry(gcs.WithPolicy(gcs.RetryNever))
	t.Cleanup(e.stop)
	return e
}

func (e *env) stop() {
	if e.srv == nil {
		return
	}
	e.client.Close()
	e.public.CloseClientConnections()
	e.public.Close()
	e.api.CloseClientConnections()
	e.api.Close()
	e.srv.Close()
	e.srv = nil
}

func (e *env) object(name string) *gcs.ObjectHandle { return e.client.Bucket("b-1").Object(name) }

// sign returns a URL signed by Google's client. The URL is valid for an hour unless edit changes
// this.
func (e *env) sign(t testing.TB, method, object string, edit func(*gcs.SignedURLOptions)) string {
	t.Helper()
	u, err := url.Parse(e.public.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := &gcs.SignedURLOptions{GoogleAccessID: e.email, PrivateKey: []byte(e.pem), Method: method, Expires: time.Now().Add(time.Hour),
		Scheme: gcs.SigningSchemeV4, Insecure: true, Hostname: u.Host}
	if edit != nil {
		edit(o)
	}
	s, err := gcs.SignedURL("b-1", object, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type answer struct {
	status int
	header http.Header
	body   string
}

// call sends a request. headers contains alternating names and values.
func call(t testing.TB, method, address string, body []byte, headers ...string) answer {
	t.Helper()
	a, err := tryCall(t.Context(), method, address, bytes.NewReader(body), headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var plainClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func tryCall(ctx context.Context, method, address string, body io.Reader, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := plainClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

func (a answer) want(t testing.TB, status int, code string) {
	t.Helper()
	if a.status != status || !strings.Contains(a.body, code) {
		t.Errorf("the response is %d %s, want %d %s", a.status, a.body, status, code)
	}
}

// put stores an object with Google's client.
func (e *env) put(t testing.TB, name, body string) *gcs.ObjectAttrs {
	t.Helper()
	w := e.object(name).NewWriter(t.Context())
	if _, err := io.WriteString(w, body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.Attrs()
}

// read returns the object's bytes, or the error text if the object cannot be read.
func (e *env) read(t testing.TB, name string) string {
	t.Helper()
	r, err := e.object(name).NewReader(t.Context())
	if err != nil {
		return "error: " + err.Error()
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(b)
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// startSession starts a resumable upload with a signed POST.
func (e *env) startSession(t testing.TB, object string, headers ...string) string {
	t.Helper()
	signed := []string{"x-goog-resumable:start"}
	for i := 0; i+1 < len(headers); i += 2 {
		if strings.HasPrefix(strings.ToLower(headers[i]), "x-goog-") {
			signed = append(signed, headers[i]+":"+headers[i+1])
		}
	}
	address := e.sign(t, "POST", object, func(o *gcs.SignedURLOptions) { o.Headers = signed })
	a := call(t, "POST", address, nil, append(headers, "x-goog-resumable", "start")...)
	if a.status != 201 {
		t.Fatalf("starting a session returned %d, want 201: %s", a.status, a.body)
	}
	return a.header.Get("Location")
}

func span(first, last int, total string) string {
	return fmt.Sprintf("bytes %d-%d/%s", first, last, total)
}

// eventually waits until ok returns true. It fails the test if this takes more than a minute.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met within a minute: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
