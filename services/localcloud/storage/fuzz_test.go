package storage

import (
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	gcs "cloud.google.com/go/storage"
)

// fuzzCase is shared by all processes in a fuzzing run, so mutations start from a valid signature.
type fuzzCase struct {
	Key []byte
	URL string
	Now time.Time
}

// fuzzEnv passes the first process's case to its workers.
const fuzzEnv = "LOCALCLOUD_FUZZ_CASE"

var theFuzzCase = sync.OnceValue(func() (c fuzzCase) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	if v := os.Getenv(fuzzEnv); v != "" {
		must(json.Unmarshal([]byte(v), &c))
		return c
	}
	dir, err := os.MkdirTemp("", "key")
	must(err)
	defer os.RemoveAll(dir)
	k, err := loadKey(dir, "key.json", "")
	must(err)
	c.Key, c.Now = k.fileBytes, time.Now()
	c.URL, err = gcs.SignedURL("b-1", "videos/ä b", &gcs.SignedURLOptions{GoogleAccessID: k.Email, PrivateKey: []byte(k.PEM), Method: "PUT",
		Expires: c.Now.Add(time.Hour), Scheme: gcs.SigningSchemeV4, Insecure: true, Hostname: "localhost:8083"})
	must(err)
	b, err := json.Marshal(c)
	must(err)
	must(os.Setenv(fuzzEnv, string(b)))
	return c
})

// FuzzSignedURL changes a signed URL at random. verify must accept it only if the method, host,
// decoded path and query still match what was signed.
func FuzzSignedURL(f *testing.F) {
	c := theFuzzCase()
	key, err := parseKey(c.Key)
	if err != nil {
		f.Fatal(err)
	}
	want, err := url.Parse(c.URL)
	if err != nil {
		f.Fatal(err)
	}
	keys := map[string]*rsa.PublicKey{key.Email: &key.private.PublicKey}
	r := httptest.NewRequest(http.MethodPut, c.URL, nil)
	if err := verify(r, c.Now, keys); err != nil {
		f.Fatalf("verify of the unchanged URL returned %v, want no error", err)
	}
	f.Add("PUT", "localhost:8083", want.EscapedPath(), want.RawQuery)
	f.Add("GET", "localhost:8083", want.EscapedPath(), want.RawQuery)
	f.Add("PUT", "localhost", "/b-1/videos/%c3%a4+b", want.RawQuery+"&x=1")
	f.Add("PUT", "localhost", "/b-1%2Fvideos/%C3%A4%20b", strings.ToLower(want.RawQuery))
	f.Add("PUT", "localhost:8083", want.EscapedPath(), want.RawQuery+";a=b")
	f.Add("PUT", "[::1]:80", "/", "X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Expires=-1&X-Goog-SignedHeaders=host;;")
	f.Fuzz(func(t *testing.T, method, host, path, query string) {
		u, err := url.Parse("http://localhost" + path)
		if err != nil || !strings.HasPrefix(path, "/") || method == "" {
			return
		}
		u.RawQuery = query
		r := httptest.NewRequest(http.MethodPut, "http://localhost/", nil)
		r.Method, r.Host, r.URL = method, host, u
		if verify(r, c.Now, keys) != nil {
			return
		}
		name := host
		if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
			name = strings.Trim(host[:i], "[]")
		}
		if method != "PUT" || name != "localhost" || u.Path != want.Path || u.Query().Encode() != want.Query().Encode() {
			t.Errorf("verify accepted the changed request %s %q %q %q", method, host, path, query)
		}
	})
}

// FuzzContentRange checks the properties of parseContentRange that its caller relies on.
func FuzzContentRange(f *testing.F) {
	for _, s := range []string{"", "bytes 0-9/10", "bytes 0-9/*", "bytes 5-*/10", "bytes 0-*/*", "bytes */10", "bytes */*", "bytes 9-0/10", "bytes 0-10/10", "bytes -0-1/2", "bytes 0-9223372036854775807/*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseContentRange(s)
		if err != nil {
			return
		}
		switch {
		case c.first < 0 || c.total < -1 || c.last < -1:
			t.Errorf("parseContentRange(%q) = %+v, want no negative value", s, c)
		case c.first > maxObject || c.last > maxObject || c.total > maxObject:
			t.Errorf("parseContentRange(%q) = %+v, want at most the size of the largest object", s, c)
		case c.last >= 0 && c.last < c.first:
			t.Errorf("parseContentRange(%q) = %+v, want an end not before the start", s, c)
		case c.total >= 0 && c.last >= c.total:
			t.Errorf("parseContentRange(%q) = %+v, want an end within the total", s, c)
		case c.query && (c.first != 0 || c.last != -1):
			t.Errorf("parseContentRange(%q) = %+v, want a status query without bytes", s, c)
		}
	})
}
