package httpapi_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
)

// strictAPI serves routes from the real contract. It appends the method of each request that made a
// change to acted.
func strictAPI(t *testing.T, acted *[]string) func() net.Conn {
	t.Helper()
	find := func(c *fiber.Ctx) error {
		if c.Params("id") != "mine" {
			return apierr.New(apierr.LinkNotFound, "There is no such link.")
		}
		c.Set(fiber.HeaderETag, `"r1"`)
		return httpapi.JSON(c, 200, map[string]string{"secret": "of the record"})
	}
	act := func(c *fiber.Ctx) error {
		if err := find(c); err != nil {
			return err
		}
		*acted = append(*acted, c.Method())
		return httpapi.NoContent(c)
	}
	decode := func(dst any) fiber.Handler {
		return func(c *fiber.Ctx) error {
			fields, err := httpapi.Decode(c, dst)
			if err != nil {
				return err
			}
			if err := fields.Err(); err != nil {
				return err
			}
			*acted = append(*acted, c.Method())
			return httpapi.JSON(c, 200, map[string]any{"ignoredFields": fields.Unknown})
		}
	}
	return serve(t, httpapi.Options{}, func(a *httpapi.API) {
		a.Handle("GET", "/api/v1/links", httpapi.Access{}, ok)
		a.Handle("GET", "/api/v1/links/:id", httpapi.Access{}, find)
		a.Handle("DELETE", "/api/v1/links/:id", httpapi.Access{}, act)
		a.Finds("DELETE", "/api/v1/links/:id", find)
		a.Handle("POST", "/api/v1/domains/:id/verify", httpapi.Access{}, act)
		a.Finds("POST", "/api/v1/domains/:id/verify", find)
		a.Handle("POST", "/api/v1/keys", httpapi.Access{}, decode(&struct {
			Name   string   `json:"name"`
			Scopes []string `json:"scopes"`
		}{}))
		a.Handle("POST", "/api/v1/links", httpapi.Access{}, decode(&struct {
			URL string `json:"url"`
		}{}))
		a.Handle("PATCH", "/api/v1/links/:id", httpapi.Access{}, decode(&struct {
			Title httpapi.Optional[string] `json:"title"`
		}{}))
		a.Public("GET", "/v/:slug", ok)
	})
}

func detailsOf(body map[string]any) (out []string) {
	e, _ := body["error"].(map[string]any)
	list, _ := e["details"].([]any)
	for _, d := range list {
		m := d.(map[string]any)
		out = append(out, fmt.Sprint(m["field"], " ", m["code"], " ", m["message"]))
	}
	return out
}

func TestUnknownNamesAreNeverDroppedInSilence(t *testing.T) {
	t.Parallel()
	const parameter, field = " unknown There is no such parameter here.", " unknown There is no such field here."
	tests := []struct {
		name, method, target, body string
		status                     int
		details                    []string
	}{
		{"misspelt filter", "GET", "/api/v1/links?limit=1&tags=zzz", "", 400, []string{"tags" + parameter + " Did you mean tag?"}},
		{"unknown filter", "GET", "/api/v1/links?page=2", "", 400, []string{"page" + parameter + " The parameters are archived, cursor, domainId, externalId, limit, q, slug and tag."}},
		{"repeated single value", "GET", "/api/v1/links?limit=1&limit=2", "", 400, []string{"limit unknown Send this parameter once. It accepts only one value."}},
		{"repeated list parameter", "GET", "/api/v1/links?tag=a&tag=b", "", 200, nil},
		{"stray ampersand", "GET", "/api/v1/links?&limit=1&", "", 200, nil},
		{"misspelt filter on a HEAD", "HEAD", "/api/v1/links?tags=zzz", "", 400, nil},
		{"unknown parameter on a read", "GET", "/api/v1/links/mine?fields=slug", "", 400, []string{"fields" + parameter}},
		{"missing record and unknown parameter on a read", "GET", "/api/v1/links/other?fields=slug", "", 404, nil},
		{"missing record and unknown parameter on a delete", "DELETE", "/api/v1/links/other?force=1", "", 404, nil},
		{"unknown parameter on a delete", "DELETE", "/api/v1/links/mine?force=1", "", 400, []string{"force" + parameter}},
		{"body for an operation without a body", "POST", "/api/v1/domains/mine/verify", `{"force":true}`, 400, []string{"force" + field}},
		{"empty body for an operation without a body", "POST", "/api/v1/domains/mine/verify", `{}`, 204, nil},
		{"unknown parameter on a page", "GET", "/v/x?fbclid=1", "", 200, nil},
		{"unknown fields in a key", "POST", "/api/v1/keys", `{"name":"ci","scope":["links:read"],"expires_at":1}`, 400,
			[]string{"expires_at" + field + " Did you mean expiresAt?", "scope" + field + " Did you mean scopes?"}},
		{"unknown names in body and query", "POST", "/api/v1/keys?dryRun=1", `{"nam":"ci"}`, 400,
			[]string{"name required This field is required. The body has \"nam\". Did you mean name?", "nam" + field + " Did you mean name?", "dryRun" + parameter}},
		{"create with unknown fields", "POST", "/api/v1/links", `{"url":"https://example.com","tite":"x"}`, 200, nil},
		{"create without a required field", "POST", "/api/v1/links", `{"destinationUrl":"https://example.com"}`, 400,
			[]string{"url required This field is required. The body has \"destinationUrl\". Did you mean url?"}},
		{"change with only unknown fields", "PATCH", "/api/v1/links/mine", `{"tittle":"x","destinationUrl":"y"}`, 400,
			[]string{"destinationUrl" + field + " Did you mean url?", "tittle" + field + " Did you mean title?"}},
		{"change to a read-only field", "PATCH", "/api/v1/links/mine", `{"slug":"x"}`, 200, nil},
		{"change to a known field", "PATCH", "/api/v1/links/mine", `{"title":"x","tittle":"y"}`, 200, nil},
		{"empty change", "PATCH", "/api/v1/links/mine", `{}`, 200, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var acted []string
			res, body := ask(t, strictAPI(t, &acted), request(tt.method, tt.target, "creator", "Connection: close\r\n", tt.body))
			if res.StatusCode != tt.status || tt.status == 400 && tt.method != "HEAD" && codeOf(body) != "VALIDATION_ERROR" {
				t.Errorf("status %d with body %v, want %d", res.StatusCode, body, tt.status)
			}
			if diff := cmp.Diff(tt.details, detailsOf(body)); diff != "" {
				t.Errorf("details (-want +got):\n%s", diff)
			}
			if tt.status >= 400 && (len(acted) > 0 || res.Header.Get("ETag") != "" || body["secret"] != nil) {
				t.Errorf("acted = %v, ETag = %q, body %v; want no effect, no ETag and no secret", acted, res.Header.Get("ETag"), body)
			}
		})
	}
}

// The response repeats only a limited part of a hostile body or query.
func TestManyLongUnknownNamesMakeAShortAnswer(t *testing.T) {
	t.Parallel()
	var acted []string
	dial := strictAPI(t, &acted)
	var many, query strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&many, `,"%sn%d":0`, strings.Repeat("ü", 20), i)
	}
	for i := range 500 {
		fmt.Fprintf(&query, "&x%d=", i)
	}
	for name, raw := range map[string]string{
		"many names":             request("POST", "/api/v1/keys", "creator", "", `{"name":"k"`+many.String()+`}`),
		"one long name":          request("POST", "/api/v1/keys", "creator", "", `{"name":"k","`+strings.Repeat("é", 400_000)+`":0}`),
		"many parameters":        request("GET", "/api/v1/links?limit=1"+query.String(), "creator", "", ""),
		"many fields in a PATCH": request("PATCH", "/api/v1/links/mine", "creator", "", `{`+many.String()[1:]+`}`),
	} {
		res, body := ask(t, dial, raw)
		if res.StatusCode != 400 || res.ContentLength > 16<<10 || len(detailsOf(body)) > apierr.MaxDetails {
			t.Errorf("%s: status %d, %d bytes, %d details; want 400 with at most 16 KiB and MaxDetails details", name, res.StatusCode, res.ContentLength, len(detailsOf(body)))
		}
	}
}
