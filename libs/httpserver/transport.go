package httpserver

import (
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"
)

// strictTransport is a year. It has no includeSubDomains, because other services may
// run on subdomains of the host.
const strictTransport = "max-age=31536000"

// StrictTransport makes browsers stay on https for the host of baseURL, if that is an
// https address. It leaves the header out for other hosts that reach this server, such as
// an account's custom domain: the owner of a host decides whether it stays on https.
func StrictTransport(baseURL string, h fasthttp.RequestHandler) fasthttp.RequestHandler {
	u, err := url.Parse(baseURL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return h
	}
	host := u.Hostname()
	return func(ctx *fasthttp.RequestCtx) {
		h(ctx)
		if strings.EqualFold(hostname(ctx), host) {
			ctx.Response.Header.Set("Strict-Transport-Security", strictTransport)
		}
	}
}

func hostname(ctx *fasthttp.RequestCtx) string {
	host := string(ctx.Host())
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return strings.Trim(host, "[]")
}
