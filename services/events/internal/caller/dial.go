package caller

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

const connectTime = 5 * time.Second

// dial connects to a receiver. ControlContext checks each address after name resolution and
// before connecting.
func (c *Caller) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", address, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", address, err)
	}
	if err := CheckPort(uint16(port)); err != nil {
		return nil, err
	}
	if c.proxy != nil {
		return c.tunnel(ctx, host, uint16(port))
	}
	// Check the address that is about to be dialled. Checking the name beforehand would require
	// two lookups, and for the second one, the name's owner could return an address in our network.
	d := net.Dialer{Timeout: connectTime, Resolver: c.resolver}
	d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("dial %q: %w", address, err)
		}
		return c.cfg.checkDial(to)
	}
	conn, err := d.DialContext(ctx, network, address)
	return conn, c.cfg.conceal(err)
}

// conceal replaces the error from a refused connection to this machine with the error for our own
// ports. Otherwise, a user who tries all ports could find out which ones are ours.
func (p Policy) conceal(err error) error {
	var failed *net.OpError
	if len(p.Own) == 0 || !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &failed) || failed.Addr == nil {
		return err
	}
	if to, bad := netip.ParseAddrPort(failed.Addr.String()); bad != nil || onThisMachine(to.Addr()) {
		return &BlockedError{failed.Addr.String(), "the port is closed"}
	}
	return err
}

// tunnel connects through the egress proxy. It passes an address instead of a name because the
// proxy would look up the name again and might get an address that was not checked.
func (c *Caller) tunnel(ctx context.Context, host string, port uint16) (net.Conn, error) {
	addrs, err := c.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	last := error(&net.DNSError{Err: "no address", Name: host, IsNotFound: true})
	for _, addr := range addrs {
		to := netip.AddrPortFrom(addr.Unmap(), port)
		if last = c.cfg.checkDial(to); last != nil {
			continue
		}
		var conn net.Conn
		if conn, last = c.connect(ctx, to.String()); last == nil {
			return conn, nil
		}
	}
	return nil, last
}

// proxyError is an error between the caller and the egress proxy.
type proxyError struct{ error }

func (e *proxyError) Error() string { return "egress proxy: " + e.error.Error() }
func (e *proxyError) Unwrap() error { return e.error }

// connect asks the proxy to connect to an address.
func (c *Caller) connect(ctx context.Context, target string) (_ net.Conn, err error) {
	conn, err := (&net.Dialer{Timeout: connectTime}).DialContext(ctx, "tcp", c.proxy.Host)
	if err != nil {
		return nil, &proxyError{err}
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	if err := conn.SetDeadline(time.Now().Add(connectTime)); err != nil {
		return nil, &proxyError{err}
	}
	var login string
	if u := c.proxy.User; u != nil {
		password, _ := u.Password()
		login = "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)) + "\r\n"
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, target, login); err != nil {
		return nil, &proxyError{err}
	}
	r := bufio.NewReaderSize(conn, 4096)
	res, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, &proxyError{err}
	}
	defer res.Body.Close()
	// Bytes that follow the proxy's response would be from the receiver, and r would swallow
	// them. Receivers never send first, so a proxy that sends such bytes is faulty.
	if res.StatusCode != http.StatusOK || r.Buffered() > 0 {
		return nil, &proxyError{fmt.Errorf("it returned %d", res.StatusCode)}
	}
	return conn, conn.SetDeadline(time.Time{})
}
