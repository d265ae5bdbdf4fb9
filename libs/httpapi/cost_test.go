package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/httpapi"
)

// fill repeats item, separated by commas, to create a body of just under 1 MiB.
func fill(before, item, after string) string {
	n := (1<<20 - len(before) - len(after) - 1) / (len(item) + 1)
	return before + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + after
}

func unknownFields() string {
	var b strings.Builder
	b.WriteString(`{"name":"x"`)
	for i := 0; b.Len() < 1<<20-40; i++ {
		fmt.Fprintf(&b, `,"f%d":0`, i)
	}
	return b.String() + "}"
}

// wrongBodies returns 1 MiB bodies that took seconds to decode in an earlier version, or that
// might be slow to decode.
func wrongBodies() map[string]string {
	return map[string]string{
		"unknown scopes":               fill(`{"name":"x","scopes":[`, `"a"`, `]}`),
		"numbers as scopes":            fill(`{"name":"x","scopes":[`, `0`, `]}`),
		"long scopes":                  fill(`{"name":"x","scopes":[`, `"`+strings.Repeat("a", 200)+`"`, `]}`),
		"unknown fields":               unknownFields(),
		"long unknown name":            `{"name":"x","` + strings.Repeat("n", 1<<20-20) + `":0}`,
		"long name":                    `{"name":"` + strings.Repeat("é", 1<<19-10) + `"}`,
		"long name made of escapes":    `{"name":"` + strings.Repeat(`\u00e9`, (1<<20-20)/6) + `"}`,
		"number with a million digits": `{"name":"x","expiresAt":` + strings.Repeat("9", 1<<20-30) + `}`,
		"numbers out of range":         fill(`{"name":"x","scopes":[`, `1e999999`, `]}`),
		"single number out of range":   `{"name":"x","expiresAt":1e999999999}`,
		"very small number":            `{"name":"x","expiresAt":1e-999999999}`,
		"empty objects":                fill(`{"name":"x","scopes":[`, `{}`, `]}`),
		"unclosed arrays":              `{"name":` + strings.Repeat("[", 1<<20-10),
		"trailing white space":         `{"name":"x"` + strings.Repeat(" ", 1<<20-14) + `}`,
		"repeated field":               fill(`{`, `"name":"x"`, `}`),
		"overlong valid fields":        `{"name":"x","x":"` + strings.Repeat("y", 1<<20-30) + `"}`,
	}
}

func TestOneMiBOfWrongFieldsCostsLittle(t *testing.T) {
	t.Parallel()
	schema := apispec.Load().Operation("POST", "/api/v1/keys").Schema
	dial := serve(t, httpapi.Options{}, func(a *httpapi.API) {
		a.Public("POST", "/api/v1/keys", func(c *fiber.Ctx) error {
			var dst struct {
				Name      string   `json:"name"`
				Scopes    []string `json:"scopes"`
				ExpiresAt any      `json:"expiresAt"`
			}
			fields, err := httpapi.Decode(c, &dst)
			if err != nil {
				return err
			}
			if err := fields.Err(); err != nil {
				return err
			}
			return httpapi.JSON(c, 200, map[string]any{"ignoredFields": fields.Unknown})
		})
	})
	list := fill(`[`, `"a"`, `]`)
	for name, body := range wrongBodies() {
		t.Run(name, func(t *testing.T) {
			if len(body) > 1<<20 {
				t.Fatalf("the body is %d bytes, want at most 1 MiB", len(body))
			}
			// Machines differ and are shared, so compare with how long the standard library
			// currently takes to decode an ordinary 1 MiB list. Quadratic decoding would take a
			// thousand times as long.
			best, ordinary := time.Hour, time.Hour
			for try := 0; try < 5 && best > 5*ordinary || try == 0; try++ {
				began := time.Now()
				var walked any
				if err := json.Unmarshal([]byte(list), &walked); err != nil {
					t.Fatal(err)
				}
				ordinary = min(ordinary, time.Since(began))
				began = time.Now()
				var dst struct {
					Name      string   `json:"name"`
					Scopes    []string `json:"scopes"`
					ExpiresAt any      `json:"expiresAt"`
				}
				_, _ = httpapi.DecodeObject([]byte(body), schema, &dst)
				best = min(best, time.Since(began))
			}
			if best > 5*ordinary {
				t.Errorf("decoding took %s, want at most five times the %s for an ordinary list of that size", best, ordinary)
			}
			c := dial()
			defer func() { _ = c.Close() }()
			go func() { _, _ = c.Write([]byte(request("POST", "/api/v1/keys", "", "", body))) }()
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(res.Body)
			if err != nil || len(answer) >= 64<<10 {
				t.Errorf("the response is %d bytes, error %v; want less than 64 kB", len(answer), err)
			}
		})
	}
}

func TestFiftyDetailsAreNamedAndTheRestCounted(t *testing.T) {
	t.Parallel()
	f := &httpapi.Fields{}
	for i := range 90_000 {
		f.Add(apierr.Detail{Field: fmt.Sprintf("scopes.%d", i), Code: apierr.InvalidValue})
		f.Add(apierr.Detail{Field: fmt.Sprintf("scopes.%d", i), Code: apierr.TooLong}) // a second violated rule for the same field
	}
	if !f.HasError("scopes.89999") {
		t.Error("HasError = false for a field whose error is only counted, want true")
	}
	var body struct {
		Error struct {
			Details     []apierr.Detail
			MoreDetails int
			Message     string
		}
	}
	if err := json.Unmarshal(httpapi.ErrorBody(apierr.From(f.Err()), "id"), &body); err != nil {
		t.Fatal(err)
	}
	if len(body.Error.Details) != 50 || body.Error.MoreDetails != 89_950 || body.Error.Details[0].Code != apierr.InvalidValue {
		t.Errorf("got %d details and %d more, want 50 and 89,950", len(body.Error.Details), body.Error.MoreDetails)
	}
}

func TestAListThatIsTooLongIsOneBrokenRule(t *testing.T) {
	t.Parallel()
	var dst struct {
		Name   string   `json:"name"`
		Scopes []string `json:"scopes"`
	}
	body := `{"name":"x","scopes":[` + strings.TrimSuffix(strings.Repeat(`"nothing",`, 500), ",") + `]}`
	fields, err := httpapi.DecodeObject([]byte(body), apispec.Load().Operation("POST", "/api/v1/keys").Schema, &dst)
	if err != nil {
		t.Fatal(err)
	}
	if d := apierr.From(fields.Err()).Details; len(d) != 1 || d[0].Field != "scopes" || d[0].Code != apierr.TooLong {
		t.Errorf("details = %+v, want only scopes too_long", d)
	}
}

func TestNumbersKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		number string
		want   float64
		ok     bool
	}{
		{"1700000000000", 1.7e12, true}, {"1.7e12", 1.7e12, true}, {"1700000000000.000000000000000000000000000000000000000", 1.7e12, true},
		{"-0", 0, true}, {"1e400", 0, false}, {"-1e400", 0, false}, {"1e-400", 0, true},
	} {
		var dst struct {
			ExpiresAt float64 `json:"expiresAt"`
		}
		fields, err := httpapi.DecodeObject([]byte(`{"expiresAt":`+tt.number+`}`), nil, &dst)
		if err != nil || (fields.Err() == nil) != tt.ok || dst.ExpiresAt != tt.want {
			t.Errorf("%s: ExpiresAt = %v with errors %v and %v, want ok = %v with %v", tt.number, dst.ExpiresAt, err, fields.Err(), tt.ok, tt.want)
		}
	}
}

func TestPagesOfConfiguredOriginsMayCallTheAPI(t *testing.T) {
	t.Parallel()
	dial := serve(t, httpapi.Options{CORSOrigins: []string{"https://app.example.com"}}, func(a *httpapi.API) {
		a.Handle("GET", "/api/v1/links/:id", httpapi.Access{}, ok)
		a.Handle("PATCH", "/api/v1/links/:id", httpapi.Access{}, ok)
		a.Public("GET", "/v/:slug", ok)
	})
	const allowed, preflight = "Origin: https://app.example.com\r\n", "Access-Control-Request-Method: PATCH\r\n"
	for _, tt := range []struct {
		name, method, path, key, headers string
		status                           int
		origin                           string
	}{
		{"read", "GET", "/api/v1/links/1", "free", allowed, 200, "https://app.example.com"},
		{"error response", "GET", "/api/v1/links/1", "", allowed, 401, "https://app.example.com"},
		{"preflight", "OPTIONS", "/api/v1/links/1", "", allowed + preflight, 204, "https://app.example.com"},
		{"preflight from another origin", "OPTIONS", "/api/v1/links/1", "", "Origin: https://evil.example\r\n" + preflight, 405, ""},
		{"read from another origin", "GET", "/api/v1/links/1", "free", "Origin: https://evil.example\r\n", 200, ""},
		{"preflight for an unknown path", "OPTIONS", "/api/v1/nothing", "", allowed + preflight, 404, "https://app.example.com"},
		{"public page", "GET", "/v/x", "", allowed, 200, ""},
		{"request without an origin", "GET", "/api/v1/links/1", "free", "", 200, ""},
	} {
		res, _ := ask(t, dial, request(tt.method, tt.path, tt.key, tt.headers, ""))
		if got := res.Header.Get("Access-Control-Allow-Origin"); res.StatusCode != tt.status || got != tt.origin {
			t.Errorf("%s: status %d with allowed origin %q, want %d with %q", tt.name, res.StatusCode, got, tt.status, tt.origin)
		}
		if tt.status == 204 && (res.Header.Get("Access-Control-Allow-Methods") != "GET, HEAD, PATCH" || !strings.Contains(res.Header.Get("Access-Control-Allow-Headers"), "Idempotency-Key")) {
			t.Errorf("%s: preflight headers = %v, want the route's methods and Idempotency-Key", tt.name, res.Header)
		}
	}
	none := serve(t, httpapi.Options{}, func(a *httpapi.API) { a.Handle("GET", "/api/v1/links/:id", httpapi.Access{}, ok) })
	if res, _ := ask(t, none, request("OPTIONS", "/api/v1/links/1", "", allowed+preflight, "")); res.StatusCode != 405 || res.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("without configuration: status %d with headers %v, want 405 without an allowed origin", res.StatusCode, res.Header)
	}
}
