package links_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"

	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/links"
)

const sealingKey = "a key of thirty-two characters or more"

// edge is a TCP load balancer in front of the replicas' listeners. It passes connections to its
// targets in turn and closes them if it has no targets.
type edge struct {
	addr string
	port int

	mu      sync.Mutex
	targets []string
	next    int
	open    map[net.Conn]bool
}

func newEdge(t testing.TB, targets ...string) *edge {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	e := &edge{addr: l.Addr().String(), port: l.Addr().(*net.TCPAddr).Port, targets: targets, open: map[net.Conn]bool{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go e.pass(c)
		}
	}()
	return e
}

func (e *edge) pass(c net.Conn) {
	defer func() { _ = c.Close() }()
	e.mu.Lock()
	if len(e.targets) == 0 {
		e.mu.Unlock()
		return
	}
	e.next++
	target := e.targets[e.next%len(e.targets)]
	e.open[c] = true
	e.mu.Unlock()
	defer func() { e.mu.Lock(); delete(e.open, c); e.mu.Unlock() }()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() { _, _ = io.Copy(to, c); _ = to.(*net.TCPConn).CloseWrite() }()
	_, _ = io.Copy(c, to)
}

func (e *edge) lead(targets ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.targets = targets
}

// authority runs Pebble, the ACME server that Let's Encrypt provides for testing clients.
type authority struct {
	url, file string
	roots     *x509.CertPool
	orders    atomic.Int64
	refused   atomic.Int64 // requests received while broken
	broken    atomic.Bool
	hold      atomic.Pointer[chan struct{}] // blocks finalize requests
	held      atomic.Int64                  // blocked finalize requests
	front     atomic.Pointer[http.Handler]
	accounts  sync.Map // keyed by account URL

	plain, tls *edge
	dns        string
	// begin restarts the authority with no accounts or orders.
	begin func(t testing.TB)
}

// registered returns the URLs of all accounts that clients have registered.
func (a *authority) registered() (urls []any) {
	a.accounts.Range(func(url, _ any) bool { urls = append(urls, url); return true })
	return urls
}

// newAuthority starts Pebble. Certificates are valid for life seconds. Connections for the
// challenges listed in dead ("http", "tls") are closed without a response.
func newAuthority(t testing.TB, life uint64, dead ...string) *authority {
	t.Helper()
	a := &authority{plain: newEdge(t), tls: newEdge(t), dns: serveAddresses(t)}
	plain, secure := a.plain.port, a.tls.port
	for _, d := range dead {
		switch d {
		case "http":
			plain = newEdge(t).port
		case "tls":
			secure = newEdge(t).port
		}
	}
	quiet := log.New(io.Discard, "", 0)
	a.roots = x509.NewCertPool()
	a.begin = func(t testing.TB) {
		t.Helper()
		store := db.NewMemoryStore()
		authorities := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "default", ValidityPeriod: life}})
		front := wfe.New(quiet, store, va.New(quiet, plain, secure, false, a.dns, store), authorities, []string{"pebble.test"}, false, false, 1, 1)
		handler := front.Handler()
		a.roots.AddCert(authorities.GetRootCert(0).Cert)
		a.front.Store(&handler)
	}
	a.begin(t)
	// Pebble stores a new account before completing it. A concurrent request with the same key,
	// such as one from another replica, would read the incomplete account.
	var registering sync.Mutex
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.broken.Load() {
			a.refused.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/order-plz") && r.Method == http.MethodPost {
			a.orders.Add(1)
		}
		if hold := a.hold.Load(); hold != nil && strings.HasPrefix(r.URL.Path, "/finalize-order/") {
			a.held.Add(1)
			<-*hold
		}
		if !strings.HasPrefix(r.URL.Path, "/sign-me-up") {
			(*a.front.Load()).ServeHTTP(w, r)
			return
		}
		registering.Lock()
		defer registering.Unlock()
		(*a.front.Load()).ServeHTTP(w, r)
		if account := w.Header().Get("Location"); account != "" {
			a.accounts.Store(account, true)
		}
	}))
	server.Config.ErrorLog = quiet
	t.Cleanup(server.Close)
	a.url = server.URL + "/dir"
	a.file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// serveAddresses starts the authority's name server. It resolves every name to 127.0.0.1.
func serveAddresses(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	s := &dns.Server{Listener: l, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg)
		r.SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			r.Answer = append(r.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)})
		}
		_ = w.WriteMsg(r)
	})}
	go func() { _ = s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = s.Shutdown() })
	return l.Addr().String()
}

// town is a world with an ACME authority and with replicas behind edges.
type town struct {
	*world
	*authority
	zone *zone
	key  string

	plain, secure []string
}

func newTown(t *testing.T, a *authority) *town {
	t.Helper()
	c := newWorld(t)
	z, addr := newZone(t)
	c.dns = addr
	return &town{world: c, authority: a, zone: z, key: c.keys.Key(t, "acc_a", identity.Creator)}
}

// add starts a replica with a plain listener and a TLS listener. It returns the replica and the
// address of its TLS listener.
func (w *town) add(t testing.TB, edit ...func(*links.Config)) (*replica, string) {
	t.Helper()
	r := w.replica(t, append([]func(*links.Config){func(cfg *links.Config) {
		cfg.RedirectAddr, cfg.TLSAddr = w.authority.plain.addr, w.authority.tls.addr
		cfg.ACMEDirectory, cfg.ACMECAFile, cfg.CertificateKey, cfg.CertificateSweep = w.url, w.file, sealingKey, 100*time.Millisecond
		cfg.ACMEOrdersPerHour = 1000
	}}, edit...)...)
	var secure string
	for _, s := range r.service.Servers {
		if s.Name != "redirect" && s.Name != "tls" {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		if s.TLS != nil {
			l, secure = tls.NewListener(l, s.TLS), addr
			w.secure = append(w.secure, addr)
		} else {
			w.plain = append(w.plain, addr)
		}
		srv := httpserver.New(s.Handler)
		go func() { _ = srv.Serve(l) }()
		t.Cleanup(func() { _ = l.Close() })
	}
	w.authority.plain.lead(w.plain...)
	w.authority.tls.lead(w.secure...)
	return r, secure
}

// domain claims and verifies a host. It returns the domain's API path.
func (w *town) domain(t testing.TB, r *replica, host string) (path string) {
	t.Helper()
	made := r.api(w.key, "POST", "/api/v1/domains", map[string]string{"hostname": host})
	if made.status != 201 {
		t.Fatalf("claim %s: %v, want 201", host, made)
	}
	w.zone.set("_linkreel."+host, made.json["records"].([]any)[0].(map[string]any)["value"].(string))
	path = "/api/v1/domains/" + made.str("id")
	if a := r.api(w.key, "POST", path+"/verify", nil); a.str("status") != "verified" {
		t.Fatalf("verify %s: %v, want status verified", host, a)
	}
	return path
}

// shown returns the certificate's state as the API reports it for the domain.
func (w *town) shown(r *replica, path string) (status string, expires time.Time, problem string) {
	c, _ := r.api(w.key, "GET", path, nil).json["certificate"].(map[string]any)
	status, _ = c["status"].(string)
	problem, _ = c["error"].(string)
	if ms, ok := c["expiresAt"].(float64); ok {
		expires = time.UnixMilli(int64(ms))
	}
	return status, expires, problem
}

// hello performs a TLS handshake and returns the certificate that the server presents.
func (w *town) hello(addr, host string) (*x509.Certificate, error) {
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 20 * time.Second}, Config: &tls.Config{ServerName: host, RootCAs: w.roots}}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

func serial(c *x509.Certificate) string {
	if c == nil {
		return ""
	}
	return c.SerialNumber.String()
}

func TestTenVisitsAtOnceOrderOneCertificateForAllReplicas(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, one := w.add(t)
	other, two := w.add(t, func(cfg *links.Config) { cfg.Flush = false })
	path := w.domain(t, r, "ten.example.com")
	if status, _, _ := w.shown(r, path); status != "none" {
		t.Errorf("certificate status before the first visit = %q, want none", status)
	}
	var visits sync.WaitGroup
	serials := make([]string, 10)
	for i := range serials {
		visits.Go(func() {
			c, err := w.hello([]string{one, two}[i%2], "ten.example.com")
			if err != nil {
				t.Errorf("TLS handshake %d: %v", i, err)
			}
			serials[i] = serial(c)
		})
	}
	visits.Wait()
	for _, s := range serials {
		if s != serials[0] {
			t.Errorf("serial numbers = %v, want the same certificate for all visitors", serials)
			break
		}
	}
	if n := w.orders.Load(); n != 1 {
		t.Errorf("got %d orders, want 1", n)
	}
	status, expires, problem := w.shown(other, path)
	if status != "issued" || problem != "" || time.Until(expires) < 89*24*time.Hour || time.Until(expires) > 91*24*time.Hour {
		t.Errorf("status %q until %v, error %q; want issued for 90 days, no error", status, expires, problem)
	}
	if c, err := w.hello(one, "stranger.ten.example.com"); err == nil {
		t.Errorf("handshake for an unverified host got a certificate for %v, want none", c.DNSNames)
	}
	if c, err := w.hello(one, ""); err == nil {
		t.Errorf("handshake without a server name got a certificate for %v, want none", c.DNSNames)
	}
	if n := w.orders.Load(); n != 1 {
		t.Errorf("got %d orders after handshakes for unknown hosts, want 1", n)
	}

	// Visits over TLS are counted. Their headers are not trusted, because they do not come from a
	// proxy.
	made := r.create(w.key, map[string]any{"url": "https://example.com/x", "slug": "x", "domainId": strings.TrimPrefix(path, "/api/v1/domains/")})
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.roots}, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, two)
		}},
	}
	res, err := client.Get("https://ten.example.com/x")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 302 || res.Header.Get("Location") != "https://example.com/x" || res.ProtoMajor != 1 {
		t.Errorf("visit over TLS: %d %s %s, want 302 to https://example.com/x over HTTP/1.1", res.StatusCode, res.Header.Get("Location"), res.Proto)
	}
	eventually(t, "the visit over TLS is counted", func() bool {
		return r.api(w.key, "GET", "/api/v1/links/"+made.str("id"), nil).json["clicks"] == 1.0
	})

	// Deleting the domain also removes its certificate and key.
	r.api(w.key, "DELETE", "/api/v1/links/"+made.str("id"), nil)
	if a := r.api(w.key, "DELETE", path, nil); a.status != 204 {
		t.Fatalf("delete: %v, want 204", a)
	}
	c, err := w.hello(one, "ten.example.com")
	if err == nil {
		t.Errorf("handshake for a deleted domain got a certificate for %v, want none", c.DNSNames)
	}
}

func TestHeadersOverTLSAreTheVisitorsOwn(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, secure := w.add(t, func(cfg *links.Config) { cfg.TrustedProxyHops, cfg.CountryHeader = 1, "CF-IPCountry" })
	path := w.domain(t, r, "headers.example.com")
	made := r.create(w.key, map[string]any{"url": "https://example.com/x", "slug": "x", "domainId": strings.TrimPrefix(path, "/api/v1/domains/")})
	if _, err := w.hello(secure, "headers.example.com"); err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", secure, &tls.Config{ServerName: "headers.example.com", RootCAs: w.roots})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: headers.example.com\r\nUser-Agent: Mozilla/5.0\r\nX-Forwarded-For: 203.0.113.9\r\nCF-IPCountry: FI\r\nConnection: close\r\n\r\n")
	if answer, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 302") {
		t.Fatalf("visit: %s, %v; want HTTP 302", answer, err)
	}
	var stats answer
	eventually(t, "the click is counted", func() bool {
		stats = r.api(w.key, "GET", "/api/v1/links/"+made.str("id")+"/stats", nil)
		return stats.json["total"] == 1.0
	})
	if strings.Contains(stats.text, `"FI"`) {
		t.Errorf("a visitor's country header was counted: %v", stats)
	}
}

func TestEitherChallengeIsEnough(t *testing.T) {
	t.Parallel()
	for _, dead := range []string{"http", "tls"} {
		t.Run(dead+" challenge unreachable", func(t *testing.T) {
			t.Parallel()
			w := newTown(t, newAuthority(t, 90*24*3600, dead))
			r, secure := w.add(t)
			w.domain(t, r, dead+".either.example.com")
			var c *x509.Certificate
			eventually(t, "a certificate is served", func() (ok bool) {
				var err error
				c, err = w.hello(secure, dead+".either.example.com")
				return err == nil
			})
			if err := c.VerifyHostname(dead + ".either.example.com"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAllReplicasHaveOneAccountAtTheAuthority(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, one := w.add(t)
	_, two := w.add(t, func(cfg *links.Config) { cfg.Flush = false })
	w.domain(t, r, "one.account.example.com")
	w.domain(t, r, "two.account.example.com")
	var visits sync.WaitGroup
	for host, addr := range map[string]string{"one.account.example.com": one, "two.account.example.com": two} {
		visits.Go(func() {
			if _, err := w.hello(addr, host); err != nil {
				t.Errorf("%s: %v", host, err)
			}
		})
	}
	visits.Wait()
	if n := len(w.registered()); n != 1 {
		t.Errorf("got %d accounts, want 1", n)
	}
	// If the authority has lost the account, the service must register it again.
	w.begin(t)
	w.domain(t, r, "three.account.example.com")
	if _, err := w.hello(one, "three.account.example.com"); err != nil {
		t.Error(err)
	}
}

func TestAFailingAuthorityLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, secure := w.add(t)
	w.domain(t, r, "old.failing.example.com")
	path := w.domain(t, r, "new.failing.example.com")
	before, err := w.hello(secure, "old.failing.example.com")
	if err != nil {
		t.Fatal(err)
	}
	w.broken.Store(true)
	if c, err := w.hello(secure, "new.failing.example.com"); err == nil {
		t.Errorf("handshake while the authority fails got a certificate for %v, want none", c.DNSNames)
	}
	eventually(t, "the record shows the error", func() bool {
		status, _, problem := w.shown(r, path)
		return status == "failed" && strings.Contains(problem, "authority")
	})
	// The next visit must fail immediately, without another request to the authority.
	asked := w.refused.Load()
	if c, err := w.hello(secure, "new.failing.example.com"); err == nil {
		t.Errorf("second handshake got a certificate for %v, want none", c.DNSNames)
	}
	if n := w.refused.Load() - asked; n != 0 {
		t.Errorf("the second handshake sent %d requests to the authority, want 0", n)
	}
	if c, err := w.hello(secure, "old.failing.example.com"); err != nil || serial(c) != serial(before) {
		t.Errorf("handshake for another domain: %v, want its existing certificate", err)
	}
	link := r.create(w.key, map[string]any{"url": "https://example.com/y", "slug": "y", "domainId": strings.TrimPrefix(path, "/api/v1/domains/")})
	if v := r.visit("/y", "Host", "new.failing.example.com"); v.status != 302 {
		t.Errorf("visit to %s over HTTP: %v, want 302", link.str("shortUrl"), v)
	}
	w.broken.Store(false)
	w.forward(2 * time.Minute)
	if _, err := w.hello(secure, "new.failing.example.com"); err != nil {
		t.Errorf("handshake after the authority recovers: %v", err)
	}
	if status, _, problem := w.shown(r, path); status != "issued" || problem != "" {
		t.Errorf("status %q, error %q; want issued, no error", status, problem)
	}
}

func TestCertificatesAreRenewedBeforeTheirEnd(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, secure := w.add(t)
	other, second := w.add(t, func(cfg *links.Config) { cfg.Flush = false })
	path := w.domain(t, r, "renewed.example.com")
	first, err := w.hello(secure, "renewed.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.hello(second, "renewed.example.com"); err != nil {
		t.Fatal(err)
	}
	w.forward(50 * 24 * time.Hour)
	time.Sleep(250 * time.Millisecond) // leave time for two sweeps, which should not order anything
	if n := w.orders.Load(); n != 1 {
		t.Fatalf("got %d orders before the renewal is due, want 1", n)
	}
	w.forward(12 * 24 * time.Hour)
	eventually(t, "both replicas serve the new certificate", func() bool {
		a, err1 := w.hello(secure, "renewed.example.com")
		b, err2 := w.hello(second, "renewed.example.com")
		return err1 == nil && err2 == nil && serial(a) != serial(first) && serial(a) == serial(b)
	})
	if n := w.orders.Load(); n != 2 {
		t.Errorf("got %d orders, want 2", n)
	}
	if status, _, problem := w.shown(other, path); status != "issued" || problem != "" {
		t.Errorf("status %q, error %q; want issued, no error", status, problem)
	}
}

// A replica is killed while its order is in flight. From then on, it can't reach the database or
// the authority.
func TestAnOrderOfAKilledReplicaIsContinued(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	line := newEdge(t, w.Endpoint)
	r, alive := w.add(t)
	_, dying := w.add(t, func(cfg *links.Config) {
		cfg.Flush, cfg.Firestore.Endpoint, cfg.Firestore.Timeout = false, line.addr, time.Second
	})
	path := w.domain(t, r, "killed.example.com")
	hold := make(chan struct{})
	w.hold.Store(&hold)
	gone := make(chan error, 1)
	go func() { _, err := w.hello(dying, "killed.example.com"); gone <- err }()
	eventually(t, "the order is in flight", func() bool {
		status, _, _ := w.shown(r, path)
		return status == "pending" && w.orders.Load() == 1
	})
	line.kill()
	w.authority.plain.lead(w.plain[0])
	w.authority.tls.lead(w.secure[0])
	w.hold.Store(nil)
	w.forward(time.Minute)
	c, err := w.hello(alive, "killed.example.com")
	if err != nil {
		t.Fatalf("handshake with the other replica: %v", err)
	}
	// The killed replica now receives the certificate for its order. It must not store it.
	close(hold)
	line.lead(w.Endpoint)
	<-gone
	eventually(t, "both replicas serve the same certificate", func() bool {
		again, err := w.hello(dying, "killed.example.com")
		return err == nil && serial(again) == serial(c)
	})
	if status, _, problem := w.shown(r, path); status != "issued" || problem != "" {
		t.Errorf("status %q, error %q; want issued, no error", status, problem)
	}
}

func TestFiftyDomainsGetCertificatesAtTheirFirstVisit(t *testing.T) {
	t.Parallel()
	n := 4
	if os.Getenv("LINKREEL_FULL") != "" {
		n = 50
	}
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, one := w.add(t)
	_, two := w.add(t, func(cfg *links.Config) { cfg.Flush = false })
	paths := make([]string, n)
	for i := range paths {
		paths[i] = w.domain(t, r, fmt.Sprintf("go%d.fifty.example.com", i))
	}
	began := time.Now()
	var visits sync.WaitGroup
	room := make(chan struct{}, 8)
	for i := range n {
		visits.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			if _, err := w.hello([]string{one, two}[i%2], fmt.Sprintf("go%d.fifty.example.com", i)); err != nil {
				t.Errorf("first handshake for go%d: %v", i, err)
			}
		})
	}
	visits.Wait()
	t.Logf("%d certificates at first visits in %v, %d orders", n, time.Since(began).Round(time.Millisecond), w.orders.Load())
	for i, path := range paths {
		if status, _, problem := w.shown(r, path); status != "issued" {
			t.Errorf("go%d: status %q, error %q; want issued", i, status, problem)
		}
	}
	if got := w.orders.Load(); got != int64(n) {
		t.Errorf("got %d orders, want %d", got, n)
	}
}

// The authority issues short-lived certificates, and the test runs in real time.
func TestShortLivedCertificatesNeverRunOut(t *testing.T) {
	t.Parallel()
	if os.Getenv("LINKREEL_FULL") == "" {
		t.Log("skipped: other tests advance the clock instead; set LINKREEL_FULL=1 to wait in real time")
		return
	}
	w := newTown(t, newAuthority(t, 30))
	r, secure := w.add(t)
	w.domain(t, r, "short.example.com")
	seen := map[string]bool{}
	for end := time.Now().Add(75 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		c, err := w.hello(secure, "short.example.com")
		if err != nil {
			t.Fatalf("handshake after %d certificates: %v", len(seen), err)
		}
		seen[serial(c)] = true
	}
	if t.Logf("%d certificates in 75 s, each valid for 30 s", len(seen)); len(seen) < 3 {
		t.Errorf("%d certificates in 75 s, each valid for 30 s; want at least 3", len(seen))
	}
}

func TestTLSNeedsASealingKey(t *testing.T) {
	t.Parallel()
	cfg := newWorld(t).config(t)
	cfg.RedirectAddr, cfg.TLSAddr = ":8081", ":8443"
	for _, key := range []string{"", "short"} {
		cfg.CertificateKey = key
		if _, err := links.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "LINKREEL_CERTIFICATE_KEY") {
			t.Errorf("New with the key %q: %v, want an error about LINKREEL_CERTIFICATE_KEY", key, err)
		}
	}
}

// kill stops all traffic, including the traffic on open connections.
func (e *edge) kill() {
	e.lead()
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.open {
		_ = c.Close()
	}
}

// This test rotates the sealing key by following the steps in operations.md. Once the sweep has
// resealed everything that the old key sealed, the old key can be removed.
func TestTheSealingKeyIsRotatedWithoutNewOrders(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, secure := w.add(t)
	w.domain(t, r, "rotated.example.com")
	before, err := w.hello(secure, "rotated.example.com")
	if err != nil {
		t.Fatal(err)
	}
	const next = "the next key of thirty-two characters or more"
	_, both := w.add(t, func(cfg *links.Config) { cfg.Flush, cfg.CertificateKey = false, next+","+sealingKey })
	if c, err := w.hello(both, "rotated.example.com"); err != nil || serial(c) != serial(before) {
		t.Fatalf("handshake with both keys: %v, want the existing certificate", err)
	}
	eventually(t, "a replica with only the new key serves the certificate", func() bool {
		_, alone := w.add(t, func(cfg *links.Config) { cfg.Flush, cfg.CertificateKey = false, next })
		c, err := w.hello(alone, "rotated.example.com")
		return err == nil && serial(c) == serial(before)
	})
	if n := w.orders.Load(); n != 1 {
		t.Errorf("got %d orders, want 1", n)
	}
	if _, stranger := w.add(t, func(cfg *links.Config) {
		cfg.Flush, cfg.CertificateKey = false, "a key that has never sealed any certificate"
	}); true {
		if _, err := w.hello(stranger, "rotated.example.com"); err == nil {
			t.Error("a replica without the key served the certificate, want an error")
		}
	}
	if n := w.orders.Load(); n != 1 {
		t.Errorf("got %d orders after a handshake with a replica without the key, want 1", n)
	}
}

// An account with many verified names cannot use up the orders that other accounts need for first
// certificates and renewals.
func TestOneAccountsOrdersLeaveOthersTheirs(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, secure := w.add(t, func(cfg *links.Config) { cfg.ACMEOrdersPerHour = 10 })
	greedy, other := w.key, w.keys.Key(t, "acc_b", identity.Creator)
	w.key = other
	w.domain(t, r, "old.share.example.com")
	first, err := w.hello(secure, "old.share.example.com")
	if err != nil {
		t.Fatal(err)
	}
	w.key = greedy
	for i := range 5 {
		host := fmt.Sprintf("greedy%d.share.example.com", i)
		path := w.domain(t, r, host)
		_, _ = w.hello(secure, host)
		if a := r.api(w.key, "DELETE", path, nil); a.status != 204 {
			t.Fatal(a)
		}
	}
	// If Redis does not respond in time, only half of the budget is available.
	if n := w.orders.Load(); n < 2 || n > 3 {
		t.Errorf("got %d orders, want 2 or 3: one for the other account, and at most two (a fifth of ten) for the greedy account", n)
	}
	w.key = w.keys.Key(t, "acc_c", identity.Creator)
	w.domain(t, r, "new.share.example.com")
	if _, err := w.hello(secure, "new.share.example.com"); err != nil {
		t.Errorf("first handshake for a third account: %v", err)
	}
	w.forward(62 * 24 * time.Hour) // Redis uses the real clock, so this hour's budget is still used up
	eventually(t, "the other account's certificate is renewed", func() bool {
		c, err := w.hello(secure, "old.share.example.com")
		return err == nil && serial(c) != serial(first)
	})
}

func TestAnOutageOfTheAuthoritySpendsNoOrders(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, secure := w.add(t, func(cfg *links.Config) { cfg.ACMEOrdersPerHour = 1 })
	w.domain(t, r, "a.outage.example.com")
	w.domain(t, r, "b.outage.example.com")
	w.broken.Store(true)
	if c, err := w.hello(secure, "a.outage.example.com"); err == nil {
		t.Fatalf("handshake while the authority fails got a certificate for %v, want none", c.DNSNames)
	}
	w.broken.Store(false)
	if _, err := w.hello(secure, "b.outage.example.com"); err != nil {
		t.Errorf("handshake after the outage: %v", err)
	}
}

// After the authority has started to validate a name, a failure may be the name owner's fault, so
// the order counts.
func TestAnOrderThatFailsInTheMiddleCounts(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, secure := w.add(t, func(cfg *links.Config) { cfg.ACMEOrdersPerHour = 1 })
	w.domain(t, r, "a.middle.example.com")
	w.domain(t, r, "b.middle.example.com")
	hold := make(chan struct{})
	w.hold.Store(&hold)
	gone := make(chan error, 1)
	go func() { _, err := w.hello(secure, "a.middle.example.com"); gone <- err }()
	eventually(t, "the name is validated", func() bool { return w.held.Load() == 1 })
	w.broken.Store(true)
	close(hold)
	if err := <-gone; err == nil {
		t.Fatal("the handshake succeeded even though the authority failed; want an error")
	}
	w.broken.Store(false)
	if c, err := w.hello(secure, "b.middle.example.com"); err == nil {
		t.Errorf("handshake after a failed order got a certificate for %v, want a refusal because the order counts", c.DNSNames)
	}
}

// The pause after a failed order belongs to the name. It lasts even if the domain is deleted and
// verified again.
func TestADeletedDomainKeepsItsPause(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600, "http", "tls"))
	r, secure := w.add(t)
	const host = "x.pause.example.com"
	var after int64
	for i := range 3 {
		path := w.domain(t, r, host)
		if c, err := w.hello(secure, host); err == nil {
			t.Fatalf("handshake for a name that cannot be validated got a certificate for %v, want none", c.DNSNames)
		}
		if status, _, problem := w.shown(r, path); status != "failed" || !strings.Contains(problem, "could not validate") {
			t.Errorf("round %d: status %q, error %q; want failed, could not validate", i, status, problem)
		}
		if i == 0 {
			after = w.orders.Load()
		}
		if a := r.api(w.key, "DELETE", path, nil); a.status != 204 {
			t.Fatal(a)
		}
	}
	if n := w.orders.Load(); n != after {
		t.Errorf("got %d orders, want no more than the first round's %d", n, after)
	}
	kept := func() *firestore.DocumentSnapshot {
		t.Helper()
		snaps, err := w.Client(t).GetAll(t.Context(), []*firestore.DocumentRef{w.Client(t).Collection("certificates").Doc(host)})
		if err != nil {
			t.Fatal(err)
		}
		return snaps[0]
	}
	if !kept().Exists() {
		t.Error("the record with the pause was deleted, want it kept")
	}
	w.forward(16 * time.Minute)
	eventually(t, "the sweep removes the expired pause", func() bool { return !kept().Exists() })
	if n := w.orders.Load(); n != after {
		t.Errorf("got %d orders after the sweep, want %d", n, after)
	}
}

// An account that takes over a name waits only for the pause after a first failure, even if the
// previous account's pause was longer.
func TestAnotherAccountInheritsAShortPause(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, secure := w.add(t)
	const host = "x.inherited.example.com"
	path := w.domain(t, r, host)
	w.broken.Store(true)
	if c, err := w.hello(secure, host); err == nil {
		t.Fatalf("handshake while the authority fails got a certificate for %v, want none", c.DNSNames)
	}
	w.broken.Store(false)
	// Change the record as if renewals had failed for days.
	set := []firestore.Update{
		{Path: "failures", Value: 9}, {Path: "nextAt", Value: w.now().Add(12 * time.Hour)}, {Path: "chain", Value: []byte("chain")}, {Path: "key", Value: []byte("key")},
		{Path: "keyId", Value: "x"}, {Path: "notAfter", Value: w.now().Add(time.Hour)},
	}
	if _, err := w.Client(t).Collection("certificates").Doc(host).Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if a := r.api(w.key, "DELETE", path, nil); a.status != 204 {
		t.Fatal(a)
	}
	snap, err := w.Client(t).Collection("certificates").Doc(host).Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var kept struct{ Chain, Key []byte }
	if err := snap.DataTo(&kept); err != nil || len(kept.Chain)+len(kept.Key) > 0 {
		t.Errorf("record for the deleted domain: chain %q, key %q, %v; want neither", kept.Chain, kept.Key, err)
	}
	w.key = w.keys.Key(t, "acc_b", identity.Creator)
	w.domain(t, r, host)
	if _, err := w.hello(secure, host); err == nil {
		t.Error("the new owner's first handshake succeeded, want it to wait for the pause")
	}
	w.forward(16 * time.Minute)
	if _, err := w.hello(secure, host); err != nil {
		t.Errorf("handshake after a quarter of an hour: %v", err)
	}
}

// A failed order counts even if its domain was deleted while the order was in flight.
func TestAFailureCountsThoughTheDomainIsDeleted(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, secure := w.add(t)
	const host = "x.gone.example.com"
	path := w.domain(t, r, host)
	hold := make(chan struct{})
	w.hold.Store(&hold)
	gone := make(chan struct{})
	go func() { defer close(gone); _, _ = w.hello(secure, host) }()
	eventually(t, "the name is validated", func() bool { return w.held.Load() == 1 })
	if a := r.api(w.key, "DELETE", path, nil); a.status != 204 {
		t.Fatal(a)
	}
	w.domain(t, r, host)
	w.broken.Store(true)
	close(hold)
	<-gone
	w.broken.Store(false)
	if _, err := w.hello(secure, host); err == nil {
		t.Error("the next handshake succeeded, want a pause")
	}
}

func TestASuspendedAccountGetsNoNewCertificates(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, secure := w.add(t)
	auth := r.holder()
	w.domain(t, r, "old.suspended.example.com")
	w.domain(t, r, "new.suspended.example.com")
	first, err := w.hello(secure, "old.suspended.example.com")
	if err != nil {
		t.Fatal(err)
	}
	set := func(state tenant.State, version int64) {
		t.Helper()
		if err := auth.SetState(t.Context(), "acc_a", tenant.Standing{State: state, Version: version}); err != nil {
			t.Fatal(err)
		}
	}
	set(tenant.Suspended, 1)
	if c, err := w.hello(secure, "new.suspended.example.com"); err == nil {
		t.Errorf("handshake for a suspended account got a certificate for %v, want none", c.DNSNames)
	}
	if n := w.orders.Load(); n != 1 {
		t.Errorf("got %d orders, want 1", n)
	}
	// The other host's existing certificate is renewed because its visitors must see the suspension
	// page rather than a TLS error.
	w.forward(62 * 24 * time.Hour)
	eventually(t, "the existing certificate is renewed", func() bool {
		c, err := w.hello(secure, "old.suspended.example.com")
		return err == nil && serial(c) != serial(first)
	})
	set(tenant.Active, 2)
	if _, err := w.hello(secure, "new.suspended.example.com"); err != nil {
		t.Errorf("handshake after the suspension is lifted: %v", err)
	}
}

// Certificates that cannot be resealed must not block later certificates.
func TestTheRotationPassesOverDamagedCertificates(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, secure := w.add(t)
	const host = "zz.rotation.example.com"
	w.domain(t, r, host)
	if _, err := w.hello(secure, host); err != nil {
		t.Fatal(err)
	}
	certificates := w.Client(t).Collection("certificates")
	keyID := func(id string) (keyID string) {
		t.Helper()
		snap, err := certificates.Doc(id).Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		keyID, _ = snap.Data()["keyId"].(string)
		return keyID
	}
	old := keyID(host)
	batch := w.Client(t).BulkWriter(t.Context())
	for i := range 110 {
		for name, doc := range map[string]map[string]any{
			"damaged":    {"key": []byte("damaged, and sealed with another key"), "notAfter": w.now().Add(time.Hour)},
			"unreadable": {"failures": "many"},
		} {
			doc["keyId"] = old
			if _, err := batch.Set(certificates.Doc(fmt.Sprintf("%s%d.rotation.example.com", name, i)), doc); err != nil {
				t.Fatal(err)
			}
		}
	}
	batch.End()
	w.add(t, func(cfg *links.Config) {
		cfg.Flush, cfg.CertificateKey = false, "the next key of thirty-two characters or more,"+sealingKey
	})
	eventually(t, "the certificate is resealed", func() bool { return keyID(host) != old })
}

// The certificate's bucket holds more records with an earlier due time than one sweep reads. All of
// them are unreadable or have lost their key. The sweep must still renew the certificate.
func TestRecordsThatCannotBeReadHideNoCertificateFromTheSweep(t *testing.T) {
	t.Parallel()
	w := newTown(t, newAuthority(t, 90*24*3600))
	r, secure := w.add(t)
	const host = "zz.hidden.example.com"
	w.domain(t, r, host)
	first, err := w.hello(secure, host)
	if err != nil {
		t.Fatal(err)
	}
	certificates := w.Client(t).Collection("certificates")
	snap, err := certificates.Doc(host).Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bucket := snap.Data()["due"].(map[string]any)["bucket"]
	batch := w.Client(t).BulkWriter(t.Context())
	for i := range 130 {
		doc := map[string]any{"failures": "many"}
		if i%5 == 0 { // sealed with a lost key
			doc = map[string]any{"key": []byte("sealed with another key"), "keyId": "other", "notBefore": w.now().Add(-80 * 24 * time.Hour), "notAfter": w.now().Add(63 * 24 * time.Hour)}
		}
		doc["due"] = map[string]any{"bucket": bucket, "at": w.now().Add(24 * time.Hour)}
		if _, err := batch.Set(certificates.Doc(fmt.Sprintf("unreadable%d.hidden.example.com", i)), doc); err != nil {
			t.Fatal(err)
		}
	}
	batch.End()
	w.forward(62 * 24 * time.Hour)
	eventually(t, "the certificate is renewed", func() bool {
		c, err := w.hello(secure, host)
		return err == nil && serial(c) != serial(first)
	})
}
