package caller

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// closed lists addresses in every block of IANA's special-purpose registries, addresses that
// clouds use for their own services, and other ways of writing such addresses.
var closed = []string{
	"0.0.0.0", "0.1.2.3", "0.255.255.255", "169.254.0.1", "169.254.169.254", "192.0.0.1", "192.0.0.8", "192.0.0.170", "192.0.2.1", "168.63.129.16", "192.31.196.1", "192.52.193.1",
	"192.88.99.1", "192.175.48.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
	"::", "::2", "::7f00:1", "::ffff:169.254.169.254", "::ffff:0.0.0.0", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "100:0:0:1::1",
	"2001::1", "2001:0:53aa:64c:0:0:0:1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1", "2620:4f:8000::1", "3fff::1", "3ffe::1",
	"5f00::1", "4000::1", "e000::1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "ff02::1", "ff0e::1",
}

// privates lists addresses that webhooks may call if the installation allows private addresses.
var privates = []string{
	"10.0.0.1", "10.255.255.255", "34.118.224.1", "34.118.239.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255",
	"::1", "fc00::1", "fdff::1", "::ffff:127.0.0.1", "::ffff:10.1.2.3", "::ffff:192.168.1.1",
}

var public = []string{"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.255.255", "172.32.0.1", "192.0.1.1", "192.169.0.1", "198.17.255.255", "198.20.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "::ffff:8.8.8.8"}

func TestCheck(t *testing.T) {
	t.Parallel()
	strict, open := Policy{}, Policy{AllowHTTP: true, AllowPrivate: true}
	for _, text := range closed {
		addr := netip.MustParseAddr(text)
		if strict.Check(addr) == nil || open.Check(addr) == nil {
			t.Errorf("Check(%s) returned no error, want one under every policy", text)
		}
	}
	for _, text := range privates {
		addr := netip.MustParseAddr(text)
		if strict.Check(addr) == nil {
			t.Errorf("Check(%s) returned no error without AllowPrivate, want one", text)
		}
		if err := open.Check(addr); err != nil {
			t.Errorf("Check(%s) with AllowPrivate returned %v, want no error", text, err)
		}
	}
	for _, text := range public {
		if err := strict.Check(netip.MustParseAddr(text)); err != nil {
			t.Errorf("Check(%s) returned %v, want no error", text, err)
		}
	}
	for _, b := range blocks {
		for _, addr := range []netip.Addr{b.prefix.Addr(), last(b.prefix)} {
			if strict.Check(addr) == nil {
				t.Errorf("Check(%s) in the block %s returned no error, want one", addr, b.prefix)
			}
		}
	}
	for port, ok := range map[uint16]bool{0: false, 22: false, 25: false, 53: false, 79: false, 80: true, 443: true, 445: false, 1023: false, 1024: true, 8080: true, 65535: true} {
		if (CheckPort(port) == nil) != ok {
			t.Errorf("CheckPort(%d) allowed = %v, want %v", port, !ok, ok)
		}
	}
}

func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

func TestParse(t *testing.T) {
	t.Parallel()
	strict, open := Policy{}, Policy{AllowHTTP: true, AllowPrivate: true}
	for text, want := range map[string]string{
		"https://example.com/a?b=c#d": "https://example.com/a?b=c", "HTTPS://EXAMPLE.com": "https://example.com/", "https://example.com:8443/": "https://example.com:8443/",
		"https://bücher.example/": "https://xn--bcher-kva.example/", "https://8.8.8.8/": "https://8.8.8.8/",
	} {
		if got, bad := strict.Parse(text); bad != nil || got.Target != want || got.Given != text {
			t.Errorf("Parse(%s) = %+v, %v; want %s", text, got, bad, want)
		}
	}
	for _, text := range []string{
		"", "example.com", "http://example.com/", "https://", "https:///x", "https:example.com", "ftp://example.com/", "https://u:p@example.com/", "https://u@example.com/", "https://example.com:25/",
		"https://example.com:0/", "https://127.0.0.1/", "https://2130706433/", "https://0x7f.1/", "https://0177.0.0.1/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[64:ff9b::7f00:1]/",
		"https://169.254.169.254/latest", "https://１２７.0.0.1/", "https://exa\tmple.com/", "https://example.com/" + strings.Repeat("x", 2048), "javascript://example.com/%0a", "https://[fe80::1%25eth0]/",
	} {
		if got, bad := strict.Parse(text); bad == nil {
			t.Errorf("Parse(%q) returned %q, want an error", text, got.Target)
		}
	}
	for _, text := range []string{"http://127.0.0.1:3000/", "http://localhost:3000/in", "http://[::1]:3000/", "http://10.0.0.5/"} {
		if _, bad := open.Parse(text); bad != nil {
			t.Errorf("Parse(%q) returned %v, want no error", text, bad)
		}
	}
	for _, text := range []string{"http://0.0.0.0:3000/", "http://169.254.169.254/", "http://[fe80::1]/", "http://224.0.0.1/"} {
		if _, bad := open.Parse(text); bad == nil {
			t.Errorf("Parse(%q) returned no error, want one", text)
		}
	}
}

// resolver starts a DNS server that responds with the addresses that answer returns.
func resolver(t *testing.T, answer func(name string, n int64) netip.Addr) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var n atomic.Int64
	go func() {
		buf := make([]byte, 1500)
		for {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.RecursionAvailable = true, true
			m.Additionals = nil
			addr := answer(q.Name.String(), n.Add(1))
			h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type}
			switch {
			case q.Type == dnsmessage.TypeA && addr.Is4():
				m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: addr.As4()}}}
			case q.Type == dnsmessage.TypeAAAA && addr.Is6():
				m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	return conn.LocalAddr().String()
}

// TestNames calls about 200 names that resolve to blocked addresses, and a name whose address
// keeps changing. None of the calls should connect.
func TestNames(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	rec := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(rec.Close)
	var connected atomic.Int64
	rec.Config.ConnState = func(net.Conn, http.ConnState) { connected.Add(1) }
	port := netip.MustParseAddrPort(rec.Listener.Addr().String()).Port()

	var addrs []netip.Addr
	for _, text := range append(append([]string{}, closed...), privates...) {
		if addr := netip.MustParseAddr(text); addr.Zone() == "" {
			addrs = append(addrs, addr)
		}
	}
	for _, b := range blocks {
		addrs = append(addrs, b.prefix.Addr(), last(b.prefix))
		for _, near := range []netip.Addr{b.prefix.Addr().Next(), last(b.prefix).Prev()} {
			if b.prefix.Contains(near) {
				addrs = append(addrs, near)
			}
		}
	}
	server := resolver(t, func(name string, _ int64) netip.Addr {
		i, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(name, "n"), ".bad.example."))
		if err != nil || i >= len(addrs) {
			return netip.Addr{}
		}
		return addrs[i]
	})
	c, err := New(Config{Policy: Policy{AllowHTTP: true}, Resolver: server, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	t.Logf("%d names", len(addrs))
	if len(addrs) < 200 {
		t.Fatalf("the test has only %d names, want at least 200", len(addrs))
	}
	for i, addr := range addrs {
		r := c.Send(t.Context(), fmt.Sprintf("http://n%d.bad.example:%d/", i, port), nil, []byte("{}"))
		if r.OK() || r.Status != 0 || !strings.Contains(r.Error, "not public") {
			t.Errorf("the call to %s returned %+v, want an error about the address", addr, r)
		}
	}

	t.Run("a name that resolves to different addresses", func(t *testing.T) {
		flip := resolver(t, func(_ string, n int64) netip.Addr {
			if n%2 == 0 {
				return netip.MustParseAddr("192.0.2.1")
			}
			return netip.MustParseAddr("127.0.0.1")
		})
		c, err := New(Config{Policy: Policy{AllowHTTP: true}, Resolver: flip, Timeout: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		for range 40 {
			if r := c.Send(t.Context(), fmt.Sprintf("http://flip.example:%d/", port), nil, nil); r.OK() {
				t.Errorf("the call returned %+v, want an error", r)
			}
		}
	})
	if reached.Load() != 0 || connected.Load() != 0 {
		t.Errorf("got %d connections and %d requests, want 0 and 0", connected.Load(), reached.Load())
	}
	t.Run("a private address that the policy allows", func(t *testing.T) {
		home := resolver(t, func(string, int64) netip.Addr { return netip.MustParseAddr("127.0.0.1") })
		c, err := New(Config{Policy: Policy{AllowHTTP: true, AllowPrivate: true}, Resolver: home})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		if r := c.Send(t.Context(), fmt.Sprintf("http://home.example:%d/", port), nil, nil); !r.OK() {
			t.Errorf("the call returned %+v, want success", r)
		}
	})
}

// TestOurOwnListenersStayClosed calls one of our listeners with every form of this machine's
// addresses, with the most permissive policy, and also through a proxy. The results must be the
// same as for an unused port.
func TestOurOwnListenersStayClosed(t *testing.T) {
	t.Parallel()
	var connected atomic.Int64
	own, outside := httptest.NewUnstartedServer(http.NotFoundHandler()), httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(own.Close)
	t.Cleanup(outside.Close)
	everywhere, err := net.Listen("tcp", ":0") // on all addresses, so that every host below reaches it
	if err != nil {
		t.Fatal(err)
	}
	_ = own.Listener.Close()
	own.Listener = everywhere
	own.Config.ConnState = func(net.Conn, http.ConnState) { connected.Add(1) }
	own.Start()
	gone := httptest.NewServer(nil)
	gone.Close()
	port := func(addr net.Addr) uint16 { return uint16(addr.(*net.TCPAddr).Port) }
	ours, closedPort := port(everywhere.Addr()), port(gone.Listener.Addr())

	hosts := []string{"127.0.0.1", "127.0.0.2", "127.255.255.254", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]"}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		addr := netip.MustParsePrefix(a.String()).Addr()
		if addr.Is4() {
			hosts = append(hosts, addr.String(), "[::ffff:"+addr.String()+"]")
		} else {
			hosts = append(hosts, "["+addr.String()+"]")
		}
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the proxy got a request for %s, want none", r.Host)
	}))
	t.Cleanup(proxy.Close)
	policy := Policy{AllowHTTP: true, AllowPrivate: true, Own: []uint16{1, ours}}
	home := resolver(t, func(string, int64) netip.Addr { return netip.MustParseAddr("127.0.0.1") })
	for name, cfg := range map[string]Config{"directly": {Policy: policy}, "by name": {Policy: policy, Resolver: home}, "through a proxy": {Policy: policy, Proxy: proxy.URL}} {
		cfg.Timeout = 20 * time.Second
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		targets := hosts
		if name == "by name" {
			targets = []string{"home.example"}
		}
		for _, host := range targets {
			for _, scheme := range []string{"http", "https"} {
				r := c.Send(t.Context(), fmt.Sprintf("%s://%s:%d/", scheme, host, ours), nil, []byte("{}"))
				if r.Status != 0 || !strings.Contains(r.Error, "not public") {
					t.Errorf("the call to our own %s://%s, %s, returned %+v, want an error about the address", scheme, host, name, r)
				}
				if name == "through a proxy" {
					continue
				}
				if nobody := c.Send(t.Context(), fmt.Sprintf("%s://%s:%d/", scheme, host, closedPort), nil, []byte("{}")); nobody.Error != r.Error {
					t.Errorf("%s://%s, %s: our port returned %q and an unused one %q, want the same error", scheme, host, name, r.Error, nobody.Error)
				}
			}
		}
		if name == "directly" {
			if r := c.Send(t.Context(), outside.URL, nil, nil); !r.OK() {
				t.Errorf("the call to a receiver on this machine returned %+v, want success", r)
			}
		}
	}
	if n := connected.Load(); n != 0 {
		t.Errorf("got %d connections to our own listener, want 0", n)
	}
	// Creating a webhook must succeed because an error would reveal our ports.
	if _, bad := policy.Parse(fmt.Sprintf("http://127.0.0.1:%d/", ours)); bad != nil {
		t.Errorf("Parse for an address with our port returned %v, want no error", bad)
	}
	// Webhooks may call the same port on another machine.
	if err := policy.checkDial(netip.AddrPortFrom(netip.MustParseAddr("1.1.1.1"), ours)); err != nil {
		t.Errorf("checkDial to the same port on another machine returned %v, want no error", err)
	}
}

func TestProxyVariablesAreNotUsed(t *testing.T) {
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(proxy.Close)
	rec := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(rec.Close)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("ALL_PROXY", proxy.URL)
	c, err := New(Config{Policy: Policy{AllowHTTP: true, AllowPrivate: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if r := c.Send(t.Context(), rec.URL, nil, nil); !r.OK() || asked.Load() != 0 {
		t.Errorf("the call returned %+v with %d requests to the proxy, want success with 0", r, asked.Load())
	}
}

func TestEgressProxy(t *testing.T) {
	t.Parallel()
	rec := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(rec.Close)
	var targets atomic.Value
	targets.Store("")
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		targets.Store(r.Method + " " + r.Host)
		up, err := net.Dial("tcp", rec.Listener.Addr().String())
		if err != nil {
			return
		}
		down, _, _ := w.(http.Hijacker).Hijack()
		_, _ = down.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
		go func() { _, _ = copyAll(up, down) }()
		_, _ = copyAll(down, up)
	}))
	t.Cleanup(proxy.Close)
	names := resolver(t, func(name string, _ int64) netip.Addr {
		if strings.HasPrefix(name, "good") {
			return netip.MustParseAddr("1.1.1.1")
		}
		return netip.MustParseAddr("10.0.0.1")
	})
	c, err := New(Config{Policy: Policy{AllowHTTP: true}, Proxy: proxy.URL, Resolver: names, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if r := c.Send(t.Context(), "http://good.example:8080/", nil, []byte("{}")); !r.OK() || targets.Load() != "CONNECT 1.1.1.1:8080" {
		t.Errorf("the call returned %+v with the proxy request %v, want success through CONNECT 1.1.1.1:8080", r, targets.Load())
	}
	targets.Store("")
	if r := c.Send(t.Context(), "http://bad.example:8080/", nil, []byte("{}")); r.OK() || targets.Load() != "" {
		t.Errorf("the call returned %+v with the proxy request %v, want an error and no requests", r, targets.Load())
	}
	if _, err := New(Config{Proxy: "socks5://x"}); err == nil {
		t.Error("New accepted a SOCKS proxy, want an error")
	}
}

func copyAll(dst net.Conn, src net.Conn) (int64, error) {
	defer dst.Close()
	buf := make([]byte, 4096)
	var n int64
	for {
		k, err := src.Read(buf)
		n += int64(k)
		if _, werr := dst.Write(buf[:k]); werr != nil || err != nil {
			return n, err
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		//nolint:gocritic // the spaces are what is being tested
		"": 0, "7": 7 * time.Second, " 120 ": 2 * time.Minute, "-5": 0, "soon": 0, "99999999999999999999": 0,
		now.Add(time.Hour).Format(http.TimeFormat): time.Hour, now.Add(-time.Hour).Format(http.TimeFormat): 0,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("retryAfter(%q) = %v, want %v", value, got, want)
		}
	}
}

// Two accounts have receivers on the same host. One account's calls must not wait for the other's
// slow calls.
func TestSlowCallsToAHostHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	released, begun := make(chan struct{}), make(chan struct{}, 64)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			begun <- struct{}{}
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(srv.Close)
	c, err := New(Config{Policy: Policy{AllowHTTP: true, AllowPrivate: true}, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var wg sync.WaitGroup
	for range cap(begun) {
		wg.Go(func() { c.Send(t.Context(), srv.URL+"/slow", nil, nil) })
	}
	for range cap(begun) {
		select {
		case <-begun:
		case <-time.After(10 * time.Second):
			t.Error("a slow call did not start within 10s, want all to run concurrently")
		}
		if t.Failed() {
			break
		}
	}
	if r := c.Send(t.Context(), srv.URL+"/fast", nil, nil); !r.OK() {
		t.Errorf("a fast call during the slow ones returned %+v, want success", r)
	}
	close(released)
	wg.Wait()
}

func TestFailuresHaveACause(t *testing.T) {
	t.Parallel()
	listen := func(answer func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go answer(conn)
			}
		}()
		return l.Addr().String()
	}
	closes := listen(func(c net.Conn) { _ = c.Close() })
	hangs := listen(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	refuses := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
	says403, selfSigned := httptest.NewServer(http.HandlerFunc(refuses)), httptest.NewTLSServer(http.HandlerFunc(refuses))
	t.Cleanup(says403.Close)
	t.Cleanup(selfSigned.Close)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	names := resolver(t, func(name string, _ int64) netip.Addr {
		if strings.HasPrefix(name, "good") {
			return netip.MustParseAddr("127.0.0.1")
		}
		return netip.Addr{}
	})
	open := Policy{AllowHTTP: true, AllowPrivate: true}
	for name, tt := range map[string]struct {
		cfg    Config
		target string
		want   webhook.Cause
	}{
		"a non-2xx response":            {Config{Policy: open}, says403.URL, webhook.CauseStatus},
		"an untrusted certificate":      {Config{Policy: open}, selfSigned.URL, webhook.CauseTLS},
		"an unknown name":               {Config{Policy: open, Resolver: names}, "http://bad.example:8080/", webhook.CauseDNS},
		"an unreachable resolver":       {Config{Policy: open, Resolver: "127.0.0.1:1"}, "http://good.example:8080/", webhook.CauseDNS},
		"an unused port":                {Config{Policy: open}, "http://" + gone.Addr().String(), webhook.CauseRefused},
		"a closed connection":           {Config{Policy: open}, "http://" + closes, webhook.CauseClosed},
		"a hanging receiver":            {Config{Policy: open, Timeout: 100 * time.Millisecond}, "http://" + hangs, webhook.CauseTimeout},
		"a private address":             {Config{Policy: Policy{AllowHTTP: true}}, says403.URL, webhook.CauseForbidden},
		"http when it is not allowed":   {Config{Policy: Policy{AllowPrivate: true}}, says403.URL, webhook.CauseForbidden},
		"an unreachable proxy":          {Config{Policy: open, Resolver: names, Proxy: "http://" + gone.Addr().String()}, "http://good.example:8080/", webhook.CauseProxy},
		"a proxy that returns an error": {Config{Policy: open, Resolver: names, Proxy: says403.URL}, "http://good.example:8080/", webhook.CauseProxy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := New(tt.cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			calls := 1
			if tt.want == webhook.CauseClosed {
				calls = 1000 // net/http returns a different error if the connection closes before the request is written, so try many times
			}
			for range calls {
				if r := c.Send(t.Context(), tt.target, nil, nil); r.Cause != tt.want || r.OK() {
					t.Fatalf("the call returned %+v, want the cause %s", r, tt.want)
				}
			}
		})
	}
}
