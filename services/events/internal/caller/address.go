package caller

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Policy says which calls are allowed beyond public addresses over https.
type Policy struct {
	// AllowHTTP lets webhooks use plain http.
	AllowHTTP bool
	// AllowPrivate lets webhooks reach loopback and private networks: RFC 1918, RFC 6598 and
	// unique local addresses. All other special addresses stay blocked.
	AllowPrivate bool
	// Own lists the ports that Linkreel itself listens on, if it runs as one process on this
	// machine. They are always blocked, because databases and the operator's API are behind
	// them.
	Own []uint16
}

// block is an entry of IANA's special-purpose address registries, or another block in which
// no receiver can be.
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

// blocks are IANA's complete IPv4 and IPv6 Special-Purpose Address Registries, plus
// multicast, the former class E, and blocks taken out of use. They include the blocks that
// the registries call globally reachable: those hold anycast addresses of protocols, and no
// receiver has one. Two blocks are in no registry: clouds use them for themselves inside
// every customer's network. Check refuses all IPv6 addresses outside 2000::/3 in any case,
// so most IPv6 entries only supply the reason for the error.
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

// unicast is the range that all public IPv6 addresses come from. Check refuses addresses
// outside it, even those of a new special block that is not listed here yet.
var unicast = netip.MustParsePrefix("2000::/3")

// BlockedError says why the caller does not call an address.
type BlockedError struct{ Addr, Why string }

func (e *BlockedError) Error() string {
	return fmt.Sprintf("the address %s is not public (%s)", e.Addr, e.Why)
}

// Check refuses an address that no webhook may reach. It treats a mapped IPv4 address as
// IPv4, because sockets do so. It always refuses other IPv6 forms that contain an IPv4
// address.
func (p Policy) Check(addr netip.Addr) error {
	if addr.Zone() != "" {
		return &BlockedError{addr.String(), "it names an interface"}
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

// checkDial refuses a connection to an address that no webhook may reach, or to a
// listener of our own. [Policy.Parse] uses only [Policy.Check]: if creating a webhook
// failed for such a port, the error would reveal which ports are ours.
func (p Policy) checkDial(to netip.AddrPort) error {
	if err := p.Check(to.Addr()); err != nil {
		return err
	}
	if slices.Contains(p.Own, to.Port()) && onThisMachine(to.Addr()) {
		return &BlockedError{to.Addr().String(), "Linkreel itself listens there"}
	}
	return nil
}

// onThisMachine reports whether addr leads back to this machine. Interfaces can change, so it
// lists them each time. If that fails, it treats every address as ours.
func onThisMachine(addr netip.Addr) bool {
	addr = addr.Unmap()
	if addr.IsLoopback() || addr.IsUnspecified() {
		return true
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	// Drop the zone, since interface addresses are listed without one.
	return slices.ContainsFunc(interfaces, func(a net.Addr) bool {
		own, err := netip.ParsePrefix(a.String())
		return err == nil && own.Addr().Unmap() == addr.WithZone("")
	})
}

// CheckPort allows 80, 443 and all ports above 1023. It thereby refuses the ports of mail,
// DNS, SSH and similar services.
func CheckPort(port uint16) error {
	if port == 80 || port == 443 || port > 1023 {
		return nil
	}
	return fmt.Errorf("port %d is not allowed: use 80, 443 or one above 1023", port)
}
