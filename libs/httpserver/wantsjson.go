package httpserver

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

var (
	jsonType = []byte("application/json")
	htmlType = []byte("text/html")
)

// WantsJSON reports whether an error at an address that people visit should be JSON instead
// of a page. It should if the request has a JSON body, or if its Accept names JSON and does
// not name HTML first, as browsers do.
func WantsJSON(req *fasthttp.Request) bool {
	if bytes.HasPrefix(bytes.ToLower(req.Header.ContentType()), jsonType) {
		return true
	}
	accept := bytes.ToLower(req.Header.Peek("Accept"))
	js, html := bytes.Index(accept, jsonType), bytes.Index(accept, htmlType)
	return js >= 0 && (html < 0 || js < html)
}
