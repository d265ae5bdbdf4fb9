package storage

import (
	"crypto/rsa"
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

// fuzzKey makes a key in a directory of its own, once per process.
var fuzzKey = sync.OnceValue(func() *serviceAccount {
	dir, err := os.MkdirTemp("", "key")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	k, err := loadKey(dir, "key.json", "")
	if err != nil {
		panic(err)
	}
	return k
})

// FuzzSignedURL holds verify to its promise: whatever is done to a signed address, it is accepted only while method,
// host, decoded path and query are those that were signed.
func FuzzSignedURL(f *testing.F) {
	now := time.Now()
	key := fuzzKey()
	signed, err := gcs.SignedURL("b-1", "videos/ä b", &gcs.SignedURLOptions{GoogleAccessID: key.Email, PrivateKey: []byte(key.PEM), Method: "PUT",
		Expires: now.Add(time.Hour), Scheme: gcs.SigningSchemeV4, Insecure: true, Hostname: "localhost:8083"})
	if err != nil {
		f.Fatal(err)
	}
	want, err := url.Parse(signed)
	if err != nil {
		f.Fatal(err)
	}
	keys := map[string]*rsa.PublicKey{key.Email: &key.private.PublicKey}
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
		if verify(r, now, keys) != nil {
			return
		}
		name := host
		if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
			name = strings.Trim(host[:i], "[]")
		}
		if method != "PUT" || name != "localhost" || u.Path != want.Path || u.Query().Encode() != want.Query().Encode() {
			t.Errorf("accepted %s %q %q %q", method, host, path, query)
		}
	})
}

// FuzzContentRange holds the parser of resumable uploads to what its caller relies on.
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
			t.Errorf("%q = %+v: negative", s, c)
		case c.first > maxObject || c.last > maxObject || c.total > maxObject:
			t.Errorf("%q = %+v: beyond the largest object", s, c)
		case c.last >= 0 && c.last < c.first:
			t.Errorf("%q = %+v: ends before it starts", s, c)
		case c.total >= 0 && c.last >= c.total:
			t.Errorf("%q = %+v: ends after the end", s, c)
		case c.query && (c.first != 0 || c.last != -1):
			t.Errorf("%q = %+v: a question with bytes", s, c)
		}
	})
}
