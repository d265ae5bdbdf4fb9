package storage

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAReadOnlyServerServesObjectsAndChangesNone(t *testing.T) {
	t.Parallel()
	s, err := Open(Options{Dir: t.TempDir(), Buckets: []string{"media"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	api := httptest.NewServer(s.APIHandler())
	defer api.Close()
	call := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, api.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	const insert, object = "/upload/storage/v1/b/media/o?uploadType=media&name=film", "/storage/v1/b/media/o/film"
	if code, text := call("POST", insert, "one"); code != 200 {
		t.Fatal(code, text)
	}
	if err := s.SetReadOnly(true); err != nil {
		t.Fatal(err)
	}
	// Services also read through this API. A 503 would make them stop reading.
	for _, try := range [][]string{{"POST", insert, "two"}, {"DELETE", object, ""}, {"PATCH", object, `{"contentType":"a/b"}`}} {
		if code, text := call(try[0], try[1], try[2]); code != http.StatusForbidden || !strings.Contains(text, "read-only") {
			t.Errorf("%s %s returned %d %s, want 403 with \"read-only\"", try[0], try[1], code, text)
		}
	}
	if code, text := call("GET", object+"?alt=media", ""); code != 200 || text != "one" {
		t.Errorf("reading the object returned %d %s, want 200 with its content", code, text)
	}
	// A client that uploads through a signed URL waits and retries.
	w := httptest.NewRecorder()
	writeXMLError(w, httptest.NewRequestWithContext(t.Context(), "PUT", "/media/film", http.NoBody), errReadOnly)
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("an upload returned %d, want 503", w.Code)
	}
	if err := s.SetReadOnly(false); err != nil {
		t.Fatal(err)
	}
	if code, text := call("POST", insert, "two"); code != 200 {
		t.Errorf("a write after read-only mode ended returned %d, want 200: %s", code, text)
	}
}
