package redistest

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy forwards connections between a process and a server. It can delay the server's responses,
// as if the server were far away. While it is stalled, it forwards no responses.
type Proxy struct {
	addr, upstream string
	delay          atomic.Int64
	mu             sync.Mutex
	gate           chan struct{} // nil if the proxy is not stalled
}

// NewProxy returns a proxy that listens on a loopback address until the test ends.
func NewProxy(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	p := &Proxy{addr: l.Addr().String(), upstream: upstream}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

// Addr returns the address on which the proxy listens.
func (p *Proxy) Addr() string { return p.addr }

// Delay delays every later response by d, with microsecond precision. A round trip within a zone
// takes 1 to 2 ms.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Stall holds back all responses until the caller calls end.
func (p *Proxy) Stall() (end func()) {
	gate := make(chan struct{})
	p.mu.Lock()
	p.gate = gate
	p.mu.Unlock()
	return sync.OnceFunc(func() {
		p.mu.Lock()
		p.gate = nil
		p.mu.Unlock()
		close(gate)
	})
}

func (p *Proxy) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.upstream)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	go func() { _, _ = io.Copy(up, c); _ = up.Close() }()
	type part struct {
		b   []byte
		due time.Time
	}
	// Keep reading while earlier parts are delayed: distance adds latency but does not reduce
	// bandwidth.
	parts := make(chan part, 1024)
	go func() {
		defer close(parts)
		for {
			b := make([]byte, 32<<10)
			n, err := up.Read(b)
			if err != nil {
				return
			}
			parts <- part{b[:n], time.Now().Add(time.Duration(p.delay.Load()))}
		}
	}()
	for x := range parts {
		p.mu.Lock()
		gate := p.gate
		p.mu.Unlock()
		if gate != nil {
			<-gate
		}
		time.Sleep(time.Until(x.due))
		if _, err := c.Write(x.b); err != nil {
			// Make the reader stop too. Otherwise it would wait forever for space in the channel.
			_ = up.Close()
			for range parts {
			}
			return
		}
	}
}
