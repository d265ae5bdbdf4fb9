// Package gateway is the local substitute for the ingress. It passes each request for the base host
// to the service in the route table.
//
// It forwards requests in memory, so it adds no network hop and no limits of its own. The
// listener's limits (httpapi.NewServer) apply to all services behind it.
package gateway

import (
	"strings"

	"github.com/valyala/fasthttp"
)

// Route sends a path prefix on the base host to a service. A prefix matches whole segments: "/v"
// matches "/v" and "/v/abc" but not "/video".
type Route struct {
	Prefix  string
	Service string
}

// Routes is the route table for the base host. The Helm chart renders the same table into its
// Ingress and HTTPRoute. The first match wins. Requests that do not match any row go to auth, which
// serves documents, the landing page and unknown paths.
var Routes = []Route{
	{"/api/v1/links", "links"},
	{"/api/v1/domains", "links"},
	{"/api/v1/tags", "links"},
	{"/api/v1/videos", "videos"},
	{"/api/v1/events", "events"},
	{"/api/v1/webhooks", "events"},
	{"/app", "console"},
	{"/v", "videos"},
	{"/embed", "videos"},
	{"/oembed", "videos"},
	{"/hooks/storage", "videos"},
	{"/", "auth"},
}

// New returns a handler that routes requests to the given handlers, by service name.
func New(handlers map[string]fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		handlers[serviceOf(string(ctx.Path()))](ctx)
	}
}

func serviceOf(path string) string {
	for _, r := range Routes {
		// The prefix "/" becomes "", which matches every path.
		rest, ok := strings.CutPrefix(path, strings.TrimSuffix(r.Prefix, "/"))
		if ok && (rest == "" || rest[0] == '/') {
			return r.Service
		}
	}
	return "auth" // unreachable because fasthttp gives every path a leading slash
}
