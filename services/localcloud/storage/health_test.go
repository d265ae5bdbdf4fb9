package storage_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// TestBalancersGetTheirAnswer checks that a load balancer's health check, which requests "/" on the
// public port, is the only request that does not need a signature.
func TestBalancersGetTheirAnswer(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{Buckets: []string{"media"}})
	for request, want := range map[string]int{"GET /": 200, "HEAD /": 200, "GET /?prefix=": 400, "POST /": 400, "PUT /": 400, "DELETE /": 400, "GET //": 400, "GET /media": 400} {
		method, path, _ := strings.Cut(request, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, e.public.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := plainClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := res.StatusCode; got != want && (want == 200 || got < 400) {
			t.Errorf("%s returned %d, want %d or another error", request, got, want)
		}
	}
}
