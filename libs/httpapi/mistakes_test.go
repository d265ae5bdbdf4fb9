package httpapi

import (
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/apierr"
)

// The error names the line and column that an editor would show.
func TestAWrongBodyIsToldWhereItIsWrong(t *testing.T) {
	for body, want := range map[string]string{
		"":                          "The body is empty. Send a JSON object.",
		" \n":                       "The body is empty. Send a JSON object.",
		"\ufeff{}":                  "The body begins with a byte order mark. Send it as UTF-8 without one.",
		`{"a":1,}`:                  "Line 1, column 8 has } where a field name in double quotes belongs. Remove the comma before it.",
		"{\n  \"ä\": 1,\n  'b': 2}": "Line 3, column 3 has a single quote where a field name in double quotes belongs. JSON uses double quotes.",
		`{"ä": 'x'}`:                "Line 1, column 7 has a single quote where a value belongs. JSON uses double quotes.",
		"{\n// why\n}":              "Line 2, column 1 has / where a field name in double quotes belongs. JSON has no comments.",
		`{"a":[1,2,]}`:              "Line 1, column 11 has ] where a value belongs. Remove the comma before it.",
		`{"a" 1}`:                   "Line 1, column 6 has 1 where a colon belongs.",
		`{"a":1 "b":2}`:             `Line 1, column 8 has " where a comma or } belongs.`,
		`{"a":[1 2]}`:               "Line 1, column 9 has 2 where a comma or ] belongs.",
		`{"a":1} x`:                 "Line 1, column 9 has x where the end of the body belongs.",
		`{"a":1}{}`:                 "Line 1, column 8 has { where the end of the body belongs.",
		"{\"a\":\"x\ny\"}":          `Line 1, column 8 has a line break where an escape such as \n belongs.`,
		`{"a":"\x"}`:                `Line 1, column 8 has x where one of " \ / b f n r t u belongs.`,
		`{"a":"\u12g4"}`:            "Line 1, column 11 has g where a hexadecimal digit belongs.",
		`{a:1}`:                     "Line 1, column 2 has a where a field name in double quotes belongs.",
		`{"a":True}`:                "Line 1, column 6 has T where a value belongs.",
		`{"a":tru}`:                 "Line 1, column 9 has }, which does not belong there.",
		`{"a":"x`:                   "The body is not valid JSON. It ends too early: a quote, a bracket or a brace is not closed.",
		`{"a":[1,2`:                 "The body is not valid JSON. It ends too early: a quote, a bracket or a brace is not closed.",
		`url=https://example.com`:   "Line 1, column 1 has u where a value belongs.",
		`[]`:                        "The body must be a JSON object.",
	} {
		_, err := parseObject([]byte(body))
		if apierr.CodeOf(err) != apierr.InvalidJSON {
			t.Errorf("body %q: got %v, want INVALID_JSON with a message", body, err)
			continue
		}
		if got := strings.TrimPrefix(apierr.From(err).Message, "The body is not valid JSON. "); got != strings.TrimPrefix(want, "The body is not valid JSON. ") {
			t.Errorf("body %q: message = %q, want %q", body, got, want)
		}
	}
}

// Every rejected body gets an INVALID_JSON error with a message and never causes a panic.
func FuzzSyntaxError(f *testing.F) {
	f.Add([]byte(`{"a":1,}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := parseObject(body); err != nil && (apierr.CodeOf(err) != apierr.InvalidJSON || apierr.From(err).Message == "") {
			t.Fatalf("body %q: got %v, want INVALID_JSON with a message", body, err)
		}
	})
}

func TestAPathThatIsNearlyRightIsNamed(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/links/":                "/api/v1/links",
		"/api/links":                    "/api/v1/links",
		"/v1/links":                     "/api/v1/links",
		"/links":                        "/api/v1/links",
		"/api/v2/links/lnk_1":           "/api/v1/links/lnk_1",
		"/api/v1/link":                  "/api/v1/links",
		"/api/v1//links":                "/api/v1/links",
		"/api/v1/webhook/wh_1/delivery": "",
		"/api/v1/links/lnk_1/statistic": "",
		"/api/v1/Links":                 "/api/v1/links",
		"/api/v1/linsk/bulk":            "/api/v1/links/bulk",
		"/api/v1/links/lnk_1/stat":      "/api/v1/links/lnk_1/stats",
		"/api/v1/links":                 "",
		"/api/v1":                       "",
		"/":                             "",
		"/wp-login.php":                 "",
		"/api/v1/" + strings.Repeat("links/", 100): "",
	} {
		if got := nearPath(path); got != want {
			t.Errorf("nearPath(%s) = %q, want %q", path, got, want)
		}
	}
}

// Vulnerability scanners request thousands of paths that do not exist.
func BenchmarkNearPath(b *testing.B) {
	long := strings.Repeat("w", 60)
	for name, path := range map[string]string{
		"path from a scanner": "/wp-login.php", "misspelt words": "/api/v1/webhookz/x/deliveriez/x/retrz", "long words": "/api/v1/" + long + "/" + long + "/" + long,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				nearPath(path)
			}
		})
	}
}
