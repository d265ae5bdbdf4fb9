package httpserver

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

var (
	jsonType = []byte("application/json")
	htmlType = []byte("text/html")
)

// SendsJSON reports whether the body of the request is JSON, as its Content-Type says.
func SendsJSON(req *fasthttp.Request) bool {
	return bytes.HasPrefix(bytes.ToLower(req.Header.ContentType()), jsonType)
}

// WantsJSON reports whether an error at an address that people visit should be JSON instead
// of a page. It should if the request has a JSON body, or if its Accept names JSON and does
// not name HTML first, as browsers do.
func WantsJSON(req *fasthttp.Request) bool {
	js, html := named(req)
	return SendsJSON(req) || js >= 0 && (html < 0 || js < html)
}

// WantsPage reports whether the error of an address that is mostly called by programs should be
// a page. It should if the Accept header names HTML and WantsJSON is false. If neither
// WantsJSON nor WantsPage is true, as for curl, the address decides.
func WantsPage(req *fasthttp.Request) bool {
	_, html := named(req)
	return html >= 0 && !WantsJSON(req)
}

// named returns the positions at which Accept names JSON and HTML, or -1.
func named(req *fasthttp.Request) (js, html int) {
	accept := bytes.ToLower(req.Header.Peek("Accept"))
	return bytes.Index(accept, jsonType), bytes.Index(accept, htmlType)
}
