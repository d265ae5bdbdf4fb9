package httpserver

import (
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"
)

// strictTransport is a year. It has no includeSubDomains, because other services may
// run on subdomains of the host.
const strictTransport = "max-age=31536000"

// StrictTransport makes browsers use only https for the host of baseURL, if baseURL is an https
// address. It omits the header for other hosts of this server, such as an account's custom domain,
// because the owner of the domain must make that decision.
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
