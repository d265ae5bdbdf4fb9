package httpserver

import (
	"net/netip"
	"strings"

	"github.com/valyala/fasthttp"
)

// Proxies describes the proxies between clients and the service. It determines which entries of
// X-Forwarded-For are trusted. The zero value does not trust any entries.
type Proxies struct {
	// Trusted lists the proxies' networks. The client is the rightmost address outside these
	// networks.
	Trusted []netip.Prefix
	// Hops is how many addresses the proxies append to X-Forwarded-For. If it is set, the client is
	// the entry at this position, counted from the right, and Trusted is not used. A proxy usually
	// appends one address, that of its peer. Google's load balancers append two: the addresses of
	// the client and of the forwarding rule. The latter is a public address, so Trusted cannot
	// distinguish it from a client's address.
	Hops int
}

const forwardedFor = "X-Forwarded-For"

// Believed reports whether the request came through the proxies. If it did, other headers that they
// set, such as the client's country, can be trusted too.
func (p Proxies) Believed(ctx *fasthttp.RequestCtx) bool {
	if p.Hops > 0 {
		return len(addresses(ctx.Request.Header.PeekAll(forwardedFor))) >= p.Hops
	}
	peer, _ := netip.AddrFromSlice(ctx.RemoteIP())
	return p.trusts(peer.Unmap())
}

// Client returns the request's client address. It never uses an address that the client
// could have forged. If the peer is not a trusted proxy, it returns the peer's address.
func (p Proxies) Client(ctx *fasthttp.RequestCtx) netip.Addr {
	addr, _ := netip.AddrFromSlice(ctx.RemoteIP())
	addr = addr.Unmap()
	forwarded := ctx.Request.Header.PeekAll(forwardedFor)
	if len(forwarded) == 0 {
		return addr
	}
	list := addresses(forwarded)
	if p.Hops > 0 {
		// A request with fewer entries did not come through the proxies.
		if at := len(list) - p.Hops; at >= 0 {
			if client, ok := parseAddr(list[at]); ok {
				return client
			}
		}
		return addr
	}
	// Read from the end because each proxy appends the address of its peer. The first address that
	// is not a proxy's is the client's. The client may have forged all entries before it.
	for i := len(list) - 1; i >= 0 && p.trusts(addr); i-- {
		next, ok := parseAddr(list[i])
		if !ok {
			return addr
		}
		addr = next
	}
	return addr
}

func (p Proxies) trusts(addr netip.Addr) bool {
	for _, network := range p.Trusted {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// addresses returns the entries of X-Forwarded-For. Multiple header lines are treated as one list.
func addresses(lines [][]byte) []string {
	var out []string
	for _, line := range lines {
		out = append(out, strings.Split(string(line), ",")...)
	}
	return out
}

// parseAddr parses an address with or without a port, and IPv6 with or without brackets, because
// proxies use all of these formats.
func parseAddr(s string) (netip.Addr, bool) {
	s = strings.TrimSpace(s)
	if addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		return addr.Unmap().WithZone(""), true
	}
	if both, err := netip.ParseAddrPort(s); err == nil {
		return both.Addr().Unmap().WithZone(""), true
	}
	return netip.Addr{}, false
}
