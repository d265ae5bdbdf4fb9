package gateway

import "testing"

func TestServiceOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/api/v1/links":               "links",
		"/api/v1/links/bulk":          "links",
		"/api/v1/linksx":              "auth",
		"/api/v1/domains/d/verify":    "links",
		"/api/v1/tags":                "links",
		"/api/v1/videos/v":            "videos",
		"/api/v1/account":             "auth",
		"/app":                        "console",
		"/app/links/lnk_1":            "console",
		"/apple":                      "auth",
		"/v/abc":                      "videos",
		"/video":                      "auth",
		"/embed/abc":                  "videos",
		"/oembed":                     "videos",
		"/":                           "auth",
		"/docs":                       "auth",
		"/api/v2/links":               "auth",
		"/internal/v1/keys/verify":    "auth",
		"/admin/v1/accounts":          "auth",
		"/hooks/storage":              "videos",
		"//v/abc":                     "auth",
		"/api/v1/links/../../admin/x": "links",
	} {
		if got := serviceOf(path); got != want {
			t.Errorf("serviceOf(%q) = %q, want %q", path, got, want)
		}
	}
}
