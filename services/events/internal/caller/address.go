package caller

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Policy defines which calls are allowed besides https calls to public addresses.
type Policy struct {
	// AllowHTTP lets webhooks use plain http.
	AllowHTTP bool
	// AllowPrivate lets webhooks reach loopback and private networks: RFC 1918, RFC 6598 and unique
	// local addresses. All other special addresses remain blocked.
	AllowPrivate bool
	// Own lists the ports of Linkreel's own listeners if Linkreel runs as a single process on
	// this machine. Webhooks can never reach these ports, because they include databases and
	// the operator's API.
	Own []uint16
}

// block is an entry in IANA's special-purpose address registries, or another block that does not
// contain any receivers.
type block struct {
	prefix  netip.Prefix
	name    string
	private bool // allowed if Policy.AllowPrivate is set
}

func special(prefix, name string) block {
	return block{prefix: netip.MustParsePrefix(prefix), name: name}
}

func private(prefix, name string) block {
	return block{prefix: netip.MustParsePrefix(prefix), name: name, private: true}
}

// blocks contains IANA's complete IPv4 and IPv6 Special-Purpose Address Registries, plus multicast,
// the former class E, and retired blocks. It includes the blocks that the registries call globally
// reachable: they contain protocol anycast addresses, which receivers never have. Two blocks are
// not in any registry: cloud providers use them for their own services inside every customer's
// network. Check rejects all IPv6 addresses outside 2000::/3 anyway, so most IPv6 entries only
// supply the reason for the error.
var blocks = []block{
	special("0.0.0.0/8", "this network"),
	private("10.0.0.0/8", "private"),
	private("100.64.0.0/10", "shared address space"),
	private("127.0.0.0/8", "loopback"),
	private("34.118.224.0/20", "services of a GKE cluster"),
	special("168.63.129.16/32", "Azure's platform"),
	special("169.254.0.0/16", "link-local"),
	private("172.16.0.0/12", "private"),
	special("192.0.0.0/24", "IETF protocol assignments"),
	special("192.0.2.0/24", "documentation"),
	special("192.31.196.0/24", "AS112"),
	special("192.52.193.0/24", "AMT"),
	special("192.88.99.0/24", "6to4 relay anycast"),
	private("192.168.0.0/16", "private"),
	special("192.175.48.0/24", "AS112"),
	special("198.18.0.0/15", "benchmarking"),
	special("198.51.100.0/24", "documentation"),
	special("203.0.113.0/24", "documentation"),
	special("224.0.0.0/4", "multicast"),
	special("240.0.0.0/4", "reserved"),

	private("::1/128", "loopback"),
	special("::/96", "unspecified or IPv4-compatible"),
	special("::ffff:0:0:0/96", "IPv4-translated"),
	special("64:ff9b::/96", "NAT64"),
	special("64:ff9b:1::/48", "NAT64, local"),
	special("100::/64", "discard only"),
	special("100:0:0:1::/64", "dummy prefix"),
	special("2001::/23", "IETF protocol assignments, Teredo and ORCHID"),
	special("2001:db8::/32", "documentation"),
	special("2002::/16", "6to4"),
	special("2620:4f:8000::/48", "AS112"),
	special("3ffe::/16", "6bone"),
	special("3fff::/20", "documentation"),
	special("5f00::/16", "segment routing"),
	private("fc00::/7", "unique local"),
	special("fe80::/10", "link-local"),
	special("fec0::/10", "site-local"),
	special("ff00::/8", "multicast"),
}

// unicast is the range of all public IPv6 addresses. Check rejects every address outside it,
// including new special blocks that are missing from blocks.
var unicast = netip.MustParsePrefix("2000::/3")

// BlockedError is returned for an address that the caller must not call. Why is the reason.
type BlockedError struct{ Addr, Why string }

func (e *BlockedError) Error() string {
	return fmt.Sprintf("the address %s is not public (%s)", e.Addr, e.Why)
}

// Check rejects an address that webhooks must not reach. It treats a mapped IPv4 address as IPv4
// because sockets do the same. It always rejects other IPv6 forms with an embedded IPv4 address.
func (p Policy) Check(addr netip.Addr) error {
	if addr.Zone() != "" {
		return &BlockedError{addr.String(), "it contains an interface name"}
	}
	addr = addr.Unmap()
	for _, b := range blocks {
		if b.prefix.Contains(addr) {
			if b.private && p.AllowPrivate {
				return nil
			}
			return &BlockedError{addr.String(), b.name}
		}
	}
	if addr.Is6() && !unicast.Contains(addr) {
		return &BlockedError{addr.String(), "not global unicast"}
	}
	return nil
}

// checkDial rejects a connection to an address that webhooks must not reach, or to one of our own
// listeners. [Policy.Parse] uses only [Policy.Check] because an error when creating a webhook would
// reveal our ports.
func (p Policy) checkDial(to netip.AddrPort) error {
	if err := p.Check(to.Addr()); err != nil {
		return err
	}
	if slices.Contains(p.Own, to.Port()) && onThisMachine(to.Addr()) {
		return &BlockedError{to.Addr().String(), "Linkreel itself listens there"}
	}
	return nil
}

// onThisMachine reports whether addr is an address of this machine. It lists the interfaces on each
// call because they can change. If listing fails, it treats every address as ours.
func onThisMachine(addr netip.Addr) bool {
	addr = addr.Unmap()
	if addr.IsLoopback() || addr.IsUnspecified() {
		return true
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	// Remove the zone because interface addresses are listed without one.
	return slices.ContainsFunc(interfaces, func(a net.Addr) bool {
		own, err := netip.ParsePrefix(a.String())
		return err == nil && own.Addr().Unmap() == addr.WithZone("")
	})
}

// CheckPort allows 80, 443 and all ports above 1023. This excludes the ports for mail, DNS, SSH and
// similar services.
func CheckPort(port uint16) error {
	if port == 80 || port == 443 || port > 1023 {
		return nil
	}
	return fmt.Errorf("port %d is not allowed; use 80, 443 or a port above 1023", port)
}
