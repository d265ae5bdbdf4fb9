package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// port is one of the stack's public ports. It listens on both loopback addresses if the machine has
// both, since "localhost" may resolve to either.
type port struct {
	number    int
	listeners []net.Listener
}

func (p port) url() string { return "http://localhost:" + strconv.Itoa(p.number) }

func (p port) close() {
	for _, l := range p.listeners {
		_ = l.Close() // the server may have closed it already
	}
}

// listen listens on port number, or on any free port if number is 0. If the port is in use, the
// error says how to choose another one.
func listen(ctx context.Context, number int) (port, error) {
	p := port{number: number}
	for _, host := range []string{"127.0.0.1", "::1"} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(p.number)))
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			p.close()
			return port{}, fmt.Errorf(
				"port %d is in use by another program; stop it, or choose four other ports with LINKREEL_PORT_BASE=%d", p.number,
				p.number+1000,
			)
		case err != nil && host == "127.0.0.1":
			return port{}, fmt.Errorf("listen on port %d: %w", p.number, err)
		case err != nil:
			continue // this machine has no IPv6
		}
		// If number was 0, listen on the same port for ::1.
		p.number = l.Addr().(*net.TCPAddr).Port
		p.listeners = append(p.listeners, l)
	}
	return p, nil
}

// listenAll listens on four consecutive ports from base, or on any four free ports if base is 0.
func listenAll(ctx context.Context, base int) (ports [4]port, err error) {
	for i := range ports {
		number := 0
		if base > 0 {
			number = base + i
		}
		if ports[i], err = listen(ctx, number); err != nil {
			for _, p := range ports[:i] {
				p.close()
			}
			return ports, err
		}
	}
	return ports, nil
}
