package httpserver

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

var (
	jsonType = []byte("application/json")
	htmlType = []byte("text/html")
)

// SendsJSON reports whether the request's Content-Type is JSON.
func SendsJSON(req *fasthttp.Request) bool {
	return bytes.HasPrefix(bytes.ToLower(req.Header.ContentType()), jsonType)
}

// WantsJSON reports whether an error at a URL meant for people should be JSON instead of a page. It
// returns true if the request has a JSON body, or if its Accept header names JSON and does not name
// HTML first, as browsers do.
func WantsJSON(req *fasthttp.Request) bool {
	js, html := named(req)
	return SendsJSON(req) || js >= 0 && (html < 0 || js < html)
}

// WantsPage reports whether an error at a URL meant for programs should be a page. It returns true
// if the Accept header names HTML and WantsJSON is false. If both are false, as for curl, the kind
// of URL determines the result.
func WantsPage(req *fasthttp.Request) bool {
	_, html := named(req)
	return html >= 0 && !WantsJSON(req)
}

// named returns the positions of JSON and HTML in the Accept header, or -1 for a format that it
// does not name.
func named(req *fasthttp.Request) (js, html int) {
	accept := bytes.ToLower(req.Header.Peek("Accept"))
	return bytes.Index(accept, jsonType), bytes.Index(accept, htmlType)
}
