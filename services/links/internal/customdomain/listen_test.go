package customdomain

import (
	"net"
	"testing"
)

// listenBoth listens on one free loopback port over both TCP and UDP.
func listenBoth(t *testing.T) (net.Listener, net.PacketConn) {
	t.Helper()
	var lc net.ListenConfig
	for range 20 {
		tcp, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		udp, err := lc.ListenPacket(t.Context(), "udp", tcp.Addr().String())
		if err == nil {
			return tcp, udp
		}
		_ = tcp.Close()
	}
	t.Fatal("no port is free for both TCP and UDP")
	return nil, nil
}
