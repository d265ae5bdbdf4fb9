package httpserver_test

import (
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/httpserver"
)

// If a client names neither format, the redirect listener sends pages and the base URL sends JSON.
// For all other clients, both follow the same rules.
func TestEachClientGetsTheFormThatItNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, contentType, accept string
		json, page                bool
	}{
		{"curl", "", "*/*", false, false},
		{"no header", "", "", false, false},
		{"browser", "", "text/html,application/xhtml+xml,*/*;q=0.8", false, true},
		{"HTML before JSON", "", "text/html, application/json;q=0.9", false, true},
		{"JSON before HTML", "", "application/json, text/html;q=0.5", true, false},
		{"JSON in capitals", "", "Application/JSON", true, false},
		{"HTML in capitals", "", "TEXT/HTML", false, true},
		{"JSON body", "application/json", "*/*", true, false},
		{"JSON body with the type in capitals, HTML accepted", "Application/JSON; charset=utf-8", "text/html", true, false},
		{"form", "application/x-www-form-urlencoded", "text/html", false, true},
	} {
		var req fasthttp.Request
		req.Header.SetContentType(tt.contentType)
		if tt.accept != "" {
			req.Header.Set("Accept", tt.accept)
		}
		if json, page := httpserver.WantsJSON(&req), httpserver.WantsPage(&req); json != tt.json || page != tt.page {
			t.Errorf("%s: WantsJSON = %v, WantsPage = %v; want %v, %v", tt.name, json, page, tt.json, tt.page)
		}
	}
}
