package contract_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/tests/contract"
)

// imitation responds with the document's examples. With it, the fuzzer can be tested without the
// services.
type imitation struct {
	doc   map[string]any
	spoil func(operation string, status int, body []byte) (int, []byte)
}

func newImitation(t *testing.T) *imitation {
	t.Helper()
	m := &imitation{}
	if err := json.Unmarshal(apispec.Load().JSON(), &m.doc); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *imitation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	x := &contract.Exchange{Method: r.Method, URL: r.URL, Header: r.Header, Body: body, Answer: http.Header{}}
	_ = contract.Load().Check(x) // Check sets OperationID
	h := w.Header()
	for k, v := range answer("Location", "/x", "ETag", `"r1"`) {
		h[k] = v
	}
	var op map[string]any
	for _, route := range apispec.Load().Routes() {
		if route.OperationID == x.OperationID {
			op = m.doc["paths"].(map[string]any)[route.Path].(map[string]any)[strings.ToLower(route.Method)].(map[string]any)
		}
	}
	auth := r.Header.Get("Authorization")
	var (
		status int
		out    []byte
	)
	switch {
	case contract.Dotted(r.URL):
		status, out = 400, []byte(fault("BAD_REQUEST", ""))
	case op == nil:
		h.Set("Allow", "GET")
		status, out = 404, []byte(fault("NOT_FOUND", ""))
	case auth != "Bearer good" && auth != "Bearer operator" || strings.HasPrefix(r.URL.Path, "/admin/") != (auth == "Bearer operator"):
		h.Set("WWW-Authenticate", "Bearer")
		status, out = 401, []byte(fault("INVALID_API_KEY", ""))
	case contract.Load().Wrong(x) != nil && op["responses"].(map[string]any)["400"] == nil:
		status, out = 503, []byte(fault("UNAVAILABLE", ""))
	case contract.Load().Wrong(x) != nil:
		status, out = 400, []byte(fault("VALIDATION_ERROR", ""))
	default:
		status, out = m.success(op)
	}
	if key, ok := strings.CutPrefix(r.URL.Path, "/admin/v1/accounts/"); ok && strings.HasSuffix(key, "/keys") && status == 201 {
		made := "good"
		if strings.Contains(string(body), "expiresAt") { // only the key that must expire has an expiry
			made = "bad"
		}
		out = []byte(strings.Replace(string(out), `"key":"lr_live_`, `"key":"`+made+`","was":"`, 1))
	}
	if m.spoil != nil {
		status, out = m.spoil(x.OperationID, status, out)
	}
	w.WriteHeader(status)
	if status != 204 {
		_, _ = w.Write(out)
	}
}

func (m *imitation) success(op map[string]any) (int, []byte) {
	for _, status := range []string{"200", "201", "204"} {
		res, ok := op["responses"].(map[string]any)[status].(map[string]any)
		if !ok {
			continue
		}
		var n int
		_, _ = fmt.Sscan(status, &n)
		content, _ := res["content"].(map[string]any)
		media, _ := content["application/json"].(map[string]any)
		examples, _ := media["examples"].(map[string]any)
		for _, e := range examples {
			b, _ := json.Marshal(e.(map[string]any)["value"])
			return n, b
		}
		return n, []byte(`{"id":"acc_1","name":"a","plan":"free","suspended":false,"createdAt":1}`)
	}
	return 503, []byte(fault("UNAVAILABLE", ""))
}

func fuzz(t *testing.T, m *imitation, n int) *contract.FuzzReport {
	t.Helper()
	s := httptest.NewServer(m)
	defer s.Close()
	r, err := contract.Fuzz(t.Context(), contract.FuzzConfig{BaseURL: s.URL, AdminURL: s.URL, AdminToken: "operator", Requests: n, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The imitation does not know which IDs exist, or which other requests Go's HTTP server rejects.
// For all other requests, the fuzzer must not report any faults.
func TestFuzzReachesEveryOperationWithRightAndWrongRequests(t *testing.T) {
	t.Parallel()
	r := fuzz(t, newImitation(t), 1500)
	if len(r.Operations) != len(apispec.Load().Routes()) {
		t.Errorf("the fuzzer called %d operations, want %d", len(r.Operations), len(apispec.Load().Routes()))
	}
	if r.Wrong < 150 || r.Wrong > 1000 {
		t.Errorf("the document does not allow %d of %d requests, want 150 to 1000", r.Wrong, r.Requests)
	}
	for _, status := range []int{200, 201, 204, 400, 401, 404} {
		if r.Statuses[status] < 10 {
			t.Errorf("status %d occurred %d times, want at least 10: %s", status, r.Statuses[status], r)
		}
	}
}

func TestFuzzFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		spoil func(op string, status int, body []byte) (int, []byte)
		want  string
	}{
		{"a server error", func(op string, s int, b []byte) (int, []byte) {
			if op == "createLink" && s >= 400 {
				return 500, []byte(fault("INTERNAL", ""))
			}
			return s, b
		}, "createLink"},
		{"a leaked field", func(op string, s int, b []byte) (int, []byte) {
			if op == "getLink" && s == 200 {
				return s, []byte(strings.Replace(string(b), "{", `{"ownerEmail":"x",`, 1))
			}
			return s, b
		}, "getLink"},
		{"a success without a key", func(op string, s int, b []byte) (int, []byte) {
			if strings.HasPrefix(op, "delete") && s == 401 {
				return 204, nil
			}
			return s, b
		}, "delete"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newImitation(t)
			m.spoil = tt.spoil
			for _, f := range fuzz(t, m, 1400).Faults {
				if strings.HasPrefix(f, tt.want) {
					return
				}
			}
			t.Error("the planted fault is missing from the report")
		})
	}
}
