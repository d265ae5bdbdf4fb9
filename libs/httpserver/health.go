package httpserver

import "github.com/valyala/fasthttp"

// AsksForHealth reports whether a request may be a load balancer's health check: GET or HEAD of
// "/". By default, a load balancer sends this check to every port that it forwards requests to. The
// check's Host is the pod's address or a name that the load balancer chooses.
func AsksForHealth(ctx *fasthttp.RequestCtx) bool {
	return (ctx.IsGet() || ctx.IsHead()) && string(ctx.Request.Header.RequestURI()) == "/"
}

// Healthy answers a health check on a port, or for a host, that has no page at "/". The 200 means
// only that the process is running and that its port is open. Kubernetes checks readiness on the
// admin port.
func Healthy(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.Response.Header.Set("Cache-Control", "no-store")
	ctx.SetBodyString("ok\n")
}
