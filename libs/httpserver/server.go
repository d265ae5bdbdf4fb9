// Package httpserver is the listener's side of every HTTP port: limits of time
// and size, refusal of requests that two parsers could read differently or whose
// body would have to be unpacked, and whose address a client has. It knows
// nothing of routes; libs/httpapi builds on it.
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

// Limits of every request.
const (
	MaxBody    = 1 << 20  // bytes of a body; more is 413
	MaxHeaders = 16 << 10 // bytes of request line and headers; more is 431
)

// New makes a server for h. Every answer carries nosniff.
func New(h fasthttp.RequestHandler) *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                       checked(h),
		ErrorHandler:                  refuseUnreadable,
		NoDefaultServerHeader:         true,
		NoDefaultDate:                 false,
		ReadBufferSize:                MaxHeaders,
		MaxRequestBodySize:            MaxBody,
		ReadTimeout:                   15 * time.Second, // a whole request, headers and body
		WriteTimeout:                  30 * time.Second,
		IdleTimeout:                   75 * time.Second, // above the usual load balancer's 60 s, so that it closes first
		MaxConnsPerIP:                 0,                // the ingress is one address
		DisablePreParseMultipartForm:  true,
		DisableHeaderNamesNormalizing: false,
		CloseOnShutdown:               true,
		LogAllErrors:                  false,
	}
}

// checked serves what [framing] lets through.
func checked(h fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if e := framing(&ctx.Request); e != nil {
			refuse(ctx, e)
			return
		}
		h(ctx)
		// Set last, so that no handler can remove it, not even by resetting the response.
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
		// Browsers and Go clients open connections in reserve. An answer there would
		// belong to no request, or, worse, be taken for that of the next.
		_ = ctx.Conn().Close() // it is closed after this in any case
		return
	}
	e := apierr.New(apierr.BadRequest, "The request is not valid HTTP.")
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &small):
		e = apierr.New(apierr.HeadersTooLarge, "The request's headers are larger than 16 KiB.")
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		drain(ctx.Conn())
		e = apierr.New(apierr.BodyTooLarge, "The body is larger than 1 MiB.")
	}
	refuse(ctx, e)
}

// refuse answers before any route is asked, and closes the connection: what comes
// next on it may be part of this request.
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

// drain reads what the client is still sending. A connection that is closed with
// unread bytes is reset, and the client sees a broken pipe in place of the 413.
func drain(conn net.Conn) {
	const most, longest, pause = 16 << 20, 5 * time.Second, 200 * time.Millisecond
	buf := make([]byte, 32<<10)
	for read, end := 0, time.Now().Add(longest); read < most && time.Now().Before(end); {
		if conn.SetReadDeadline(time.Now().Add(pause)) != nil {
			return
		}
		n, err := conn.Read(buf)
		if err != nil {
			return // it paused, or is gone
		}
		read += n
	}
}

// framing says why a request must not be served: because another parser on its
// way here (a balancer, a proxy) could have read it as a different request or as
// one for a different path, or because its body would have to be unpacked. nil is
// a plain request.
//
// It reads the raw header since the parsed one no longer shows what was odd:
// fasthttp keeps the last of several Hosts, prefers one of two framings, and files
// `Host :` under a name of its own.
func framing(req *fasthttp.Request) *apierr.Error {
	refuse := func(message string) *apierr.Error { return apierr.New(apierr.BadRequest, message) }
	path, _, _ := bytes.Cut(req.Header.RequestURI(), []byte("?"))
	if bytes.ContainsAny(path, ".%") && dotted(path) {
		return refuse(`The path has the segment "." or "..". Proxies resolve such paths to other ones, so they are refused. ` +
			`Send the path that you mean.`)
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
		// A blank before the colon, and a line that continues the one before it
		// (RFC 9112 §5.1, §5.2), are where parsers differ most. Nothing below a blank
		// belongs into a name either.
		if colon <= 0 || line[0] <= ' ' || line[colon-1] <= ' ' {
			return refuse("A header line has a blank where none may be.")
		}
		// The length first: this runs for every redirect, and most names end here.
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
					return refuse("The only Transfer-Encoding that is accepted is chunked.")
				}
			}
		}
	}
	switch {
	case hosts != 1:
		return refuse("A request has exactly one Host header.")
	case transfers > 1, transfers == 1 && lengths > 0:
		return refuse("A body has either one Content-Length or one Transfer-Encoding.")
	case transfers > 0 && !req.Header.IsHTTP11():
		return refuse("HTTP/1.0 has no Transfer-Encoding.")
	case coded && len(req.Body()) > 0:
		return apierr.New(apierr.UnsupportedMediaType, "Send the body without a Content-Encoding.")
	}
	return nil
}

// dotted reports whether a segment of a path is "." or "..", plain or
// percent-encoded. A slash that is encoded or leans back separates segments too,
// since it does so for some proxies.
func dotted(path []byte) bool {
	dots, others := 0, 0 // of the segment so far
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

// validHost accepts what can be a host and port, and nothing that a parser could
// take for two hosts or for more of an address.
func validHost(host []byte) bool {
	for _, c := range host {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.', c == '-', c == '_', c == ':', c == '[', c == ']', c == '%', c == '~':
		default:
			return false
		}
	}
	return len(host) > 0 && len(host) <= 300 // a DNS name has 253 at most
}
