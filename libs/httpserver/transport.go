package httpserver

import (
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"
)

// strictTransport is valid for a year. It omits includeSubDomains because other services may run on
// the host's subdomains.
const strictTransport = "max-age=31536000"

// StrictTransport tells browsers to use only https for the host of baseURL, if baseURL begins with
// https://. It omits the header for other hosts on this server, such as an account's custom domain,
// because that decision is up to the domain's owner.
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
