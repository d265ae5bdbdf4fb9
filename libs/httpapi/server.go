package httpapi

import (
	"errors"
	"net"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
)

// NewServer is the listener's side of every HTTP port: time and size limits, and
// refusals of unreadable requests in the API's error shape.
func NewServer(name string, h fasthttp.RequestHandler) *fasthttp.Server {
	return &fasthttp.Server{
		Name:                          name,
		Handler:                       h,
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

func refuseUnreadable(ctx *fasthttp.RequestCtx, err error) {
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		// Browsers and Go clients open connections in reserve. An answer there would
		// belong to no request, or, worse, be taken for that of the next.
		_ = ctx.Conn().Close() // it is closed after this in any case
		return
	}
	e := apierr.New(apierr.InvalidJSON, "The request is not valid HTTP.")
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &small):
		e = apierr.New(apierr.HeadersTooLarge, "The request's headers are larger than 16 KiB.")
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		drain(ctx.Conn())
		e = apierr.New(apierr.BodyTooLarge, "The body is larger than 1 MiB.")
	}
	id := strings.ToLower(identity.NewNonce())
	ctx.Response.Reset()
	ctx.SetStatusCode(e.Code.Status())
	ctx.SetContentType("application/json")
	ctx.Response.Header.Set("X-Request-Id", id)
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
