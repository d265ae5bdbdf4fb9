package httpserver

import "github.com/valyala/fasthttp"

// AsksForHealth reports whether a request may be a load balancer's health check: GET or HEAD
// of "/". By default, a balancer sends this check to each port that it sends requests to.
// Its Host is the pod's address or a name of the balancer's own.
func AsksForHealth(ctx *fasthttp.RequestCtx) bool {
	return (ctx.IsGet() || ctx.IsHead()) && string(ctx.Request.Header.RequestURI()) == "/"
}

// Healthy answers such a request on a port, or for a host, that has no page of its own at
// "/". A 200 only says that the process is up and its port is open. Kubernetes asks on the
// operator's port whether the pod is ready.
func Healthy(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.Response.Header.Set("Cache-Control", "no-store")
	ctx.SetBodyString("ok\n")
}
