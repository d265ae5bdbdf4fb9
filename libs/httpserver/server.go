// Package httpserver implements the server behind every HTTP port. It limits the time and size of
// requests, rejects requests that two parsers could read differently or that have a compressed
// body, and determines the client's address. It has no routes; libs/httpapi builds on it.
package httpserver

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	ids "github.com/linkreel/linkreel/libs/identity"
)

// Limits on every request.
const (
	MaxBody    = 1 << 20  // maximum bytes in a body; a larger body gets a 413
	MaxHeaders = 16 << 10 // maximum bytes in the request line and headers; larger ones get a 431
)

// New returns a server for h. Every response has an X-Content-Type-Options: nosniff header.
func New(h fasthttp.RequestHandler) *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                       checked(h),
		ErrorHandler:                  refuseUnreadable,
		NoDefaultServerHeader:         true,
		NoDefaultDate:                 false,
		ReadBufferSize:                MaxHeaders,
		MaxRequestBodySize:            MaxBody,
		ReadTimeout:                   15 * time.Second, // for a whole request: headers and body
		WriteTimeout:                  30 * time.Second,
		IdleTimeout:                   75 * time.Second, // longer than the 60 s of most load balancers, so they close first
		MaxConnsPerIP:                 0,                // no limit, because all requests come from the ingress
		DisablePreParseMultipartForm:  true,
		DisableHeaderNamesNormalizing: false,
		CloseOnShutdown:               true,
		LogAllErrors:                  false,
	}
}

// checked returns a handler that serves only requests that [framing] accepts.
func checked(h fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if e := framing(&ctx.Request); e != nil {
			refuse(ctx, e)
			return
		}
		h(ctx)
		// Set last, so handlers cannot remove it by resetting the response.
		ctx.Response.Header.SetCanonical(nosniffName, nosniff)
	}
}

var (
	nosniffName = []byte("X-Content-Type-Options")
	nosniff     = []byte("nosniff")
)

func refuseUnreadable(ctx *fasthttp.RequestCtx, err error) {
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		// Browsers and Go clients open spare connections. A response on such a connection would not
		// belong to any request, or might be mistaken for the response to the next request.
		_ = ctx.Conn().Close() // the server closes it anyway
		return
	}
	e := apierr.New(apierr.BadRequest, "The request is not valid HTTP.")
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &small):
		e = apierr.New(apierr.HeadersTooLarge, "The request's headers are larger than 16 KiB.")
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		drain(ctx.Conn())
		e = apierr.New(apierr.BodyTooLarge, "The body is larger than 1 MiB. Send fewer items per request, and send files to their upload address.")
	}
	refuse(ctx, e)
}

// refuse sends an error response before any route runs. It closes the connection because the
// following bytes may be part of this request.
func refuse(ctx *fasthttp.RequestCtx, e *apierr.Error) {
	id := strings.ToLower(ids.NewNonce())
	ctx.Response.Reset()
	ctx.SetStatusCode(e.Code.Status())
	ctx.SetContentType("application/json")
	ctx.Response.Header.Set("X-Request-Id", id)
	ctx.Response.Header.SetCanonical(nosniffName, nosniff)
	ctx.Response.Header.Set("Cache-Control", "no-store")
	ctx.Response.SetBodyRaw(ErrorBody(e, id))
	ctx.SetConnectionClose()
}

// drain reads the bytes that the client is still sending. Closing a connection with unread bytes
// would reset it, and the client would see a broken pipe instead of the 413.
func drain(conn net.Conn) {
	const most, longest, pause = 16 << 20, 5 * time.Second, 200 * time.Millisecond
	buf := make([]byte, 32<<10)
	for read, end := 0, time.Now().Add(longest); read < most && time.Now().Before(end); {
		if conn.SetReadDeadline(time.Now().Add(pause)) != nil {
			return
		}
		n, err := conn.Read(buf)
		if err != nil {
			return // the client has paused or disconnected
		}
		read += n
	}
}

// framing returns an error for a request that must not be served, and nil for a normal request. A
// request is rejected if a load balancer or proxy in front of this server could have read it as a
// different request or path, or if its body is compressed.
//
// It checks the raw header because parsing hides such problems: fasthttp keeps only the last of
// several Host headers, chooses one of two framings, and stores `Host :` under a different name.
func framing(req *fasthttp.Request) *apierr.Error {
	refuse := func(message string) *apierr.Error { return apierr.New(apierr.BadRequest, message) }
	path, _, _ := bytes.Cut(req.Header.RequestURI(), []byte("?"))
	if bytes.ContainsAny(path, ".%") && dotted(path) {
		if visits(req, path) {
			return apierr.New(apierr.NotFound, `There is nothing at this address: its path has the segment "." or "..".`)
		}
		return refuse(`The path has the segment "." or "..". Proxies resolve such paths to other paths, so they are rejected. ` +
			`Send the resolved path.`)
	}
	var hosts, lengths, transfers int
	coded := false
	for raw := req.Header.RawHeaders(); len(raw) > 0; {
		var line []byte
		line, raw, _ = bytes.Cut(raw, []byte("\n"))
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
			continue // the end of the header
		}
		colon := bytes.IndexByte(line, ':')
		// Parsers differ most in their handling of a space before the colon and of continuation
		// lines (RFC 9112 §5.1, §5.2). Names that begin or end with a control character are
		// rejected too.
		if colon <= 0 || line[0] <= ' ' || line[colon-1] <= ' ' {
			return refuse("A header line contains white space or a control character where it is not allowed.")
		}
		// Compare lengths first because this code runs for every redirect and most names have a
		// different length.
		switch name, value := line[:colon], line[colon+1:]; colon {
		case len("Host"):
			if bytes.EqualFold(name, hostName) {
				if hosts++; !validHost(bytes.TrimSpace(value)) {
					return refuse("The Host header is not valid.")
				}
			}
		case len("Content-Length"):
			if bytes.EqualFold(name, lengthName) {
				lengths++
			}
		case len("Content-Encoding"):
			if bytes.EqualFold(name, encodingName) {
				value = bytes.TrimSpace(value)
				coded = coded || len(value) > 0 && !bytes.EqualFold(value, identity)
			}
		case len("Transfer-Encoding"):
			if bytes.EqualFold(name, transferName) {
				if transfers++; !bytes.EqualFold(bytes.TrimSpace(value), chunked) {
					return refuse("The only accepted Transfer-Encoding is chunked.")
				}
			}
		}
	}
	switch {
	case hosts != 1:
		return refuse("Send exactly one Host header.")
	case transfers > 1, transfers == 1 && lengths > 0:
		return refuse("Send either one Content-Length or one Transfer-Encoding.")
	case transfers > 0 && !req.Header.IsHTTP11():
		return refuse("An HTTP/1.0 request cannot have a Transfer-Encoding.")
	case coded && len(req.Body()) > 0:
		return apierr.New(apierr.UnsupportedMediaType, "Send the body without a Content-Encoding.")
	}
	return nil
}

// visits reports whether the request comes from a visitor to a page or a short URL. If the path is
// rejected, visitors get the same response as for a path that does not exist.
func visits(req *fasthttp.Request, path []byte) bool {
	if !req.Header.IsGet() && !req.Header.IsHead() {
		return false
	}
	for _, calls := range [][]byte{[]byte("/api/"), []byte("/admin/"), []byte("/internal/")} {
		if bytes.HasPrefix(path, calls) {
			return false
		}
	}
	return true
}

// dotted reports whether a segment of a path is "." or "..", plain or percent-encoded. Encoded
// slashes and backslashes also separate segments because some proxies treat them as separators.
func dotted(path []byte) bool {
	dots, others := 0, 0 // number of dots and other characters in the segment so far
	for len(path) > 0 {
		c := path[0]
		path = path[1:]
		if c == '%' && len(path) >= 2 {
			if v, err := strconv.ParseUint(string(path[:2]), 16, 8); err == nil {
				c, path = byte(v), path[2:]
			}
		}
		switch c {
		case '.':
			dots++
		case '/', '\\':
			if others == 0 && (dots == 1 || dots == 2) {
				return true
			}
			dots, others = 0, 0
		default:
			others++
		}
	}
	return others == 0 && (dots == 1 || dots == 2)
}

var (
	hostName     = []byte("Host")
	lengthName   = []byte("Content-Length")
	encodingName = []byte("Content-Encoding")
	transferName = []byte("Transfer-Encoding")
	chunked      = []byte("chunked")
	identity     = []byte("identity")
)

// validHost reports whether host contains only characters allowed in a host and port. Parsers
// cannot read any of them as the start of a second host or of another part of a URL.
func validHost(host []byte) bool {
	for _, c := range host {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.', c == '-', c == '_', c == ':', c == '[', c == ']', c == '%', c == '~':
		default:
			return false
		}
	}
	return len(host) > 0 && len(host) <= 300 // a DNS name has at most 253
}
