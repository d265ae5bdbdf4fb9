package httpserver

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

var (
	jsonType = []byte("application/json")
	htmlType = []byte("text/html")
)

// WantsJSON reports whether the error of an address that people visit should be JSON and not
// a page: the request has a body of JSON, or its Accept names JSON, and not after HTML.
// Browsers name HTML first.
func WantsJSON(req *fasthttp.Request) bool {
	if bytes.HasPrefix(bytes.ToLower(req.Header.ContentType()), jsonType) {
		return true
	}
	accept := bytes.ToLower(req.Header.Peek("Accept"))
	js, html := bytes.Index(accept, jsonType), bytes.Index(accept, htmlType)
	return js >= 0 && (html < 0 || js < html)
}
