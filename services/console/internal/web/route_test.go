package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/linkreel/linkreel/libs/apierr"
)

func TestEachPathGoesToTheServiceThatAnswersIt(t *testing.T) {
	t.Parallel()
	serve := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `%q`, name+" "+r.RequestURI+r.Header.Get("Idempotency-Key"))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	c, err := NewAPI(map[string]string{"/api/v1/links": serve("links"), "/": serve("auth"), "/api/v1": serve("rest") + "/below"})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/api/v1/links?q=a":      "links /api/v1/links?q=a",
		"/api/v1/links/lnk%2F1":  "links /api/v1/links/lnk%2F1",
		"/api/v1/linksets/lnk_1": "rest /below/api/v1/linksets/lnk_1",
		"/docs":                  "auth /docs",
	} {
		var got string
		// Calls that are not retried do not have an Idempotency-Key. With one, the service would
		// store a record that is never read.
		if err := c.WithKey("k").Request(t.Context(), http.MethodPost, path, nil, &got); err != nil || got != want {
			t.Errorf("request to %s returned %q and error %v, want %q", path, got, err, want)
		}
	}
	for _, bad := range []map[string]string{nil, {"/api": "http://a"}, {"/": "nothing"}, {"api": "http://a", "/": "http://a"}} {
		if _, err := NewAPI(bad); err == nil {
			t.Errorf("NewAPI accepted routes %v, want an error", bad)
		}
	}
}

func TestAnIDThatNoPathCanHoldIsNotFound(t *testing.T) {
	t.Parallel()
	c, err := NewAPI(map[string]string{"/": "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := refusal("GET", c.Request(t.Context(), http.MethodGet, "/api/v1/links/..", nil, nil)); apierr.CodeOf(err) != apierr.NotFound {
		t.Errorf("a request with an invalid id returned %v, want NOT_FOUND", err)
	}
}
