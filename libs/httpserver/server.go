// Package httpserver is the listener's side of every HTTP port: limits of time
// and size, refusal of requests that two parsers could read differently or whose
// body would have to be unpacked, and whose address a client has. It knows
// nothing of routes; libs/httpapi builds on it.
package httpserver

import (
	"errors"
	"net"
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
