package httpserver

import "github.com/valyala/fasthttp"

// AsksForHealth reports whether a request may be a load balancer's health check: GET or HEAD
// of "/". Unless somebody configures them, balancers ask this of each port that they send
// requests to, by the pod's address or with a name of their own as Host.
func AsksForHealth(ctx *fasthttp.RequestCtx) bool {
	return (ctx.IsGet() || ctx.IsHead()) && string(ctx.Request.Header.RequestURI()) == "/"
}

// Healthy answers such a request on a port, or for a host, that has no page of its own at
// "/". The process is up and its port is open; whether the pod is ready is for Kubernetes to
// ask, on the operator's port.
func Healthy(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.Response.Header.Set("Cache-Control", "no-store")
	ctx.SetBodyString("ok\n")
}
