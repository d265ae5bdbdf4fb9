package httpserver_test

import (
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/httpserver"
)

// The redirect listener sends pages to clients that name neither form, and the base address
// JSON. Whatever a client names means the same to both.
func TestEachClientGetsTheFormThatItNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, contentType, accept string
		json, page                bool
	}{
		{"curl", "", "*/*", false, false},
		{"no header", "", "", false, false},
		{"a browser", "", "text/html,application/xhtml+xml,*/*;q=0.8", false, true},
		{"HTML before JSON", "", "text/html, application/json;q=0.9", false, true},
		{"JSON before HTML", "", "application/json, text/html;q=0.5", true, false},
		{"JSON in capitals", "", "Application/JSON", true, false},
		{"HTML in capitals", "", "TEXT/HTML", false, true},
		{"a body of JSON", "application/json", "*/*", true, false},
		{"a body of JSON in capitals, from a page", "Application/JSON; charset=utf-8", "text/html", true, false},
		{"a form", "application/x-www-form-urlencoded", "text/html", false, true},
	} {
		var req fasthttp.Request
		req.Header.SetContentType(tt.contentType)
		if tt.accept != "" {
			req.Header.Set("Accept", tt.accept)
		}
		if json, page := httpserver.WantsJSON(&req), httpserver.WantsPage(&req); json != tt.json || page != tt.page {
			t.Errorf("%s: JSON %v, page %v; want %v, %v", tt.name, json, page, tt.json, tt.page)
		}
	}
}
