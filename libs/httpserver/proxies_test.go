package httpserver_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/httpserver"
)

// The headers from Google's and Amazon's load balancers come from their documentation. The others
// were recorded.
func TestTheClientIsFoundBehindProxies(t *testing.T) {
	t.Parallel()
	private := httpserver.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}
	google := httpserver.Proxies{Trusted: append(private.Trusted, netip.MustParsePrefix("35.191.0.0/16"), netip.MustParsePrefix("34.111.20.30/32"))}
	hops := func(n int) httpserver.Proxies { return httpserver.Proxies{Trusted: private.Trusted, Hops: n} }
	for _, tt := range []struct {
		name      string
		proxies   httpserver.Proxies
		peer      string
		forwarded []string
		want      string
	}{
		{"header from an untrusted peer", private, "203.0.113.9", []string{"6.6.6.6"}, "203.0.113.9"},
		{"ingress-nginx", private, "10.0.0.1", []string{"203.0.113.9"}, "203.0.113.9"},
		{"ingress-nginx, spoofed header", private, "10.0.0.1", []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9"},
		{"two trusted proxies", private, "10.0.0.1", []string{"6.6.6.6, 203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		{"Envoy, one header line per address", private, "10.0.0.1", []string{"6.6.6.6", "203.0.113.9"}, "203.0.113.9"},
		{"Traefik, IPv6", private, "fd00::1", []string{"2001:db8::7"}, "2001:db8::7"},
		{"peer with an IPv4-mapped IPv6 address", private, "::ffff:10.0.0.1", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		{"Azure Application Gateway, with ports", private, "10.0.0.1", []string{"203.0.113.9:51234"}, "203.0.113.9"},
		{"IPv6 with a port", private, "10.0.0.1", []string{"[2001:db8::7]:443"}, "2001:db8::7"},
		{"invalid entry left of the proxies", private, "10.0.0.1", []string{"x, 10.0.0.3"}, "10.0.0.3"},
		{"no header", private, "10.0.0.1", nil, "10.0.0.1"},
		{"only trusted proxies", private, "10.0.0.1", []string{"10.0.0.9, 10.0.0.2"}, "10.0.0.9"},

		{"Google, networks without the forwarding rule's address", private, "10.0.0.1", []string{"203.0.113.9,34.111.20.30"}, "34.111.20.30"},
		{"Google, networks with the forwarding rule's address", google, "35.191.8.9", []string{"203.0.113.9,34.111.20.30"}, "203.0.113.9"},
		{"Google, hops", hops(2), "35.191.8.9", []string{"203.0.113.9,34.111.20.30"}, "203.0.113.9"},
		{"Google, hops and a spoofed header", hops(2), "35.191.8.9", []string{"6.6.6.6, 7.7.7.7,203.0.113.9,34.111.20.30"}, "203.0.113.9"},
		{"Google, hops and IPv6", hops(2), "35.191.8.9", []string{"2001:db8::7,2600:1901::1"}, "2001:db8::7"},
		{"Google in front of ingress-nginx, hops", hops(3), "10.0.0.1", []string{"6.6.6.6,203.0.113.9,34.111.20.30, 35.191.8.9"}, "203.0.113.9"},
		{"Amazon load balancer, hops", hops(1), "10.0.0.1", []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9"},
		{"Cloudflare in front of ingress-nginx, hops", hops(2), "10.0.0.1", []string{"203.0.113.9, 172.68.1.2"}, "203.0.113.9"},
		{"fewer addresses than hops", hops(2), "10.0.0.1", []string{"6.6.6.6"}, "10.0.0.1"},
		{"hops and no header, as in a probe", hops(2), "10.0.0.1", nil, "10.0.0.1"},
		{"hops and an invalid entry", hops(2), "10.0.0.1", []string{"unknown, 34.111.20.30"}, "10.0.0.1"},
		{"unknown peer", private, "@", []string{"6.6.6.6"}, "invalid IP"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var ctx fasthttp.RequestCtx
			ctx.Init(&fasthttp.Request{}, &net.TCPAddr{IP: net.ParseIP(tt.peer)}, nil)
			for _, f := range tt.forwarded {
				ctx.Request.Header.Add("X-Forwarded-For", f)
			}
			if got := tt.proxies.Client(&ctx); got.String() != tt.want {
				t.Errorf("Client = %s, want %s", got, tt.want)
			}
		})
	}
}
