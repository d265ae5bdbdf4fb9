// Command authority tests the certificates of custom domains on the test cluster. It acts as the
// certificate authority (Pebble, Let's Encrypt's ACME server for tests), the domains' name server,
// their owner and their visitors.
//
//	authority --listen 10.213.0.1:14000 --cert FILE --key FILE --dns 10.213.0.1:53 \
//	  --edge ADDRESS --pods ADDRESS,ADDRESS --base URL --ingress HOST:PORT --operator URL --kill COMMAND
//
// It prints a line for each successful check and stops at the first failure.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

type world struct {
	listen, cert, key, dns, edge, pods, base, ingress, operator, kill string
	under                                                             string
	domains                                                           int
	life                                                              uint64

	roots  *x509.CertPool
	orders atomic.Int64
	broken atomic.Bool
	hold   atomic.Pointer[chan struct{}] // finalizing an order waits for this channel

	mu   sync.Mutex
	zone map[string]string // TXT records by name

	api    *http.Client
	bearer string
}

func main() {
	log.SetFlags(0)
	var w world
	flag.StringVar(&w.listen, "listen", "", "address of the ACME server")
	flag.StringVar(&w.cert, "cert", "", "certificate of the ACME server")
	flag.StringVar(&w.key, "key", "", "key of the ACME server")
	flag.StringVar(&w.dns, "dns", "", "address of the name server")
	flag.StringVar(&w.edge, "edge", "", "address of the Service that visitors reach; all domains resolve to it")
	flag.StringVar(&w.pods, "pods", "", "addresses of the Service's pods")
	flag.StringVar(&w.base, "base", "", "address of the API")
	flag.StringVar(&w.ingress, "ingress", "", "HOST:PORT to connect to for the API")
	flag.StringVar(&w.operator, "operator", "", "address of the operator API")
	flag.StringVar(&w.kill, "kill", "", "command that kills one of the pods")
	flag.StringVar(&w.under, "under", "customers.example.com", "parent name of the domains; each domain can be claimed only once")
	flag.IntVar(&w.domains, "domains", 50, "number of domains that get certificates")
	flag.Uint64Var(&w.life, "life", 240, "lifetime of certificates in seconds")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if err := w.run(ctx); err != nil {
		log.Fatal("authority: ", err)
	}
}

func (w *world) run(ctx context.Context) error {
	if err := w.serve(); err != nil {
		return err
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	w.api = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if "http://"+addr == w.base {
			addr = w.ingress
		}
		return dialer.DialContext(ctx, network, addr)
	}}}
	if err := w.account(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{w.firstVisits, w.strangers, w.shared, w.failing, w.killed, w.renewed} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func ok(format string, args ...any) { fmt.Printf("ok   "+format+"\n", args...) }

// serve starts the certificate authority and the name server.
func (w *world) serve() error {
	// By default, Pebble sleeps for up to 15 seconds before it validates, and it rejects every
	// twentieth nonce to test clients' retries.
	for name, value := range map[string]string{"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0", "PEBBLE_AUTHZREUSE": "0"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	w.zone = map[string]string{}
	packets, err := net.ListenPacket("udp", w.dns)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", w.dns)
	if err != nil {
		return err
	}
	go func() { _ = (&dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(w.answer)}).ActivateAndServe() }()
	go func() { _ = (&dns.Server{Listener: listener, Handler: dns.HandlerFunc(w.answer)}).ActivateAndServe() }()

	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	authorities := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "default", ValidityPeriod: w.life}})
	front := wfe.New(quiet, store, va.New(quiet, 80, 443, false, w.dns, store), authorities, []string{"pebble.test"}, false, false, 1, 1)
	handler := front.Handler()
	secure, err := net.Listen("tcp", w.listen)
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.broken.Load() {
			rw.WriteHeader(http.StatusInternalServerError)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/order-plz") && r.Method == http.MethodPost {
			w.orders.Add(1)
		}
		if hold := w.hold.Load(); hold != nil && strings.HasPrefix(r.URL.Path, "/finalize-order/") {
			<-*hold
		}
		handler.ServeHTTP(rw, r)
	})}
	go func() { log.Fatal(server.ServeTLS(secure, w.cert, w.key)) }()
	w.roots = x509.NewCertPool()
	w.roots.AddCert(authorities.GetRootCert(0).Cert)
	return nil
}

// answer resolves every name to the edge. It answers TXT queries with the proofs in the zone.
func (w *world) answer(rw dns.ResponseWriter, q *dns.Msg) {
	r := new(dns.Msg)
	r.SetReply(q)
	name := q.Question[0].Name
	header := dns.RR_Header{Name: name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET}
	switch q.Question[0].Qtype {
	case dns.TypeA:
		r.Answer = append(r.Answer, &dns.A{Hdr: header, A: net.ParseIP(w.edge)})
	case dns.TypeTXT:
		w.mu.Lock()
		if value := w.zone[strings.ToLower(strings.TrimSuffix(name, "."))]; value != "" {
			r.Answer = append(r.Answer, &dns.TXT{Hdr: header, Txt: []string{value}})
		}
		w.mu.Unlock()
	}
	_ = rw.WriteMsg(r)
}

func (w *world) call(ctx context.Context, status int, method, address, bearer string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	res, err := w.api.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != status {
		return fmt.Errorf("%s %s = %d, want %d: %.300s", method, address, res.StatusCode, status, got)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(got, into)
}

func (w *world) account(ctx context.Context) error {
	token := os.Getenv("LINKREEL_ADMIN_TOKEN")
	var made struct{ ID, Key string }
	if err := w.call(ctx, 201, "POST", w.operator+"/admin/v1/accounts", token, map[string]string{"name": "domains", "plan": "enterprise"}, &made); err != nil {
		return err
	}
	if err := w.call(ctx, 201, "POST", w.operator+"/admin/v1/accounts/"+made.ID+"/keys", token, map[string]string{"name": "domains"}, &made); err != nil {
		return err
	}
	w.bearer = made.Key
	return nil
}

// domain claims a host. If verified is set, it also verifies the host and creates a link on it.
func (w *world) domain(ctx context.Context, host string, verified bool) (id string, err error) {
	var made struct {
		ID, Status string
		Records    []struct{ Value string }
	}
	if err := w.call(ctx, 201, "POST", w.base+"/api/v1/domains", w.bearer, map[string]string{"hostname": host}, &made); err != nil {
		return "", err
	}
	if !verified {
		return made.ID, nil
	}
	w.mu.Lock()
	w.zone["_linkreel."+host] = made.Records[0].Value
	w.mu.Unlock()
	if err := w.call(ctx, 200, "POST", w.base+"/api/v1/domains/"+made.ID+"/verify", w.bearer, map[string]string{}, &made); err != nil {
		return "", err
	}
	if made.Status != "verified" {
		return "", fmt.Errorf("%s has status %s after the verification, want verified", host, made.Status)
	}
	return made.ID, w.call(ctx, 201, "POST", w.base+"/api/v1/links", w.bearer, map[string]string{"url": "https://example.com/" + host, "slug": "x", "domainId": made.ID}, nil)
}

// shown returns the certificate status from a domain's record.
func (w *world) shown(ctx context.Context, id string) (status, problem string, err error) {
	var d struct {
		Certificate struct{ Status, Error string }
	}
	err = w.call(ctx, 200, "GET", w.base+"/api/v1/domains/"+id, w.bearer, nil, &d)
	return d.Certificate.Status, d.Certificate.Error, err
}

// visit follows the host's link over TLS and returns the certificate's serial number.
func (w *world) visit(ctx context.Context, addr, host string) (serial string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{ServerName: host, RootCAs: w.roots}}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	serial = c.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	if _, err := fmt.Fprintf(c, "GET /x HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host); err != nil {
		return "", err
	}
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	got, err := io.ReadAll(c)
	if err == nil && !strings.HasPrefix(string(got), "HTTP/1.1 302") {
		err = fmt.Errorf("visiting %s returned %.100q, want a 302", host, got)
	}
	return serial, err
}

func (w *world) secure() string { return w.edge + ":443" }

func (w *world) name(i int) string { return fmt.Sprintf("go%d.%s", i, w.under) }

// each calls f for 0 to n-1, eight at a time.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	room := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			errs[i] = f(i)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (w *world) firstVisits(ctx context.Context) error {
	ids := make([]string, w.domains)
	if err := each(w.domains, func(i int) (err error) { ids[i], err = w.domain(ctx, w.name(i), true); return err }); err != nil {
		return err
	}
	serials := make([]string, 10)
	began := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, 10)
	for i := range serials {
		wg.Go(func() { serials[i], errs[i] = w.visit(ctx, w.secure(), w.name(0)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("ten concurrent visits: %w", err)
	}
	for _, s := range serials {
		if s != serials[0] {
			return fmt.Errorf("ten concurrent visits got different certificates: %v", serials)
		}
	}
	if n := w.orders.Load(); n != 1 {
		return fmt.Errorf("ten concurrent visits caused %d orders, want 1", n)
	}
	ok("ten concurrent first visits caused one order and got one certificate, after %.1f s", time.Since(began).Seconds())
	began = time.Now()
	if err := each(w.domains-1, func(i int) error { _, err := w.visit(ctx, w.secure(), w.name(i+1)); return err }); err != nil {
		return err
	}
	took := time.Since(began)
	if n := w.orders.Load(); n != int64(w.domains) {
		return fmt.Errorf("%d domains needed %d orders, want one for each", w.domains, n)
	}
	for i, id := range ids {
		if status, problem, err := w.shown(ctx, id); err != nil || status != "issued" {
			return fmt.Errorf("the record of %s has the certificate status %s %s, want issued: %w", w.name(i), status, problem, err)
		}
	}
	ok("%d verified domains got certificates on their first visit, with %d orders, in %.1f s; their records have the status issued", w.domains, w.domains, took.Seconds())
	return nil
}

func (w *world) strangers(ctx context.Context) error {
	before := w.orders.Load()
	if _, err := w.domain(ctx, "claimed."+w.under, false); err != nil {
		return err
	}
	for _, host := range []string{"claimed." + w.under, "nobodys.example.com", "deep." + w.name(0)} {
		if s, err := w.visit(ctx, w.secure(), host); err == nil {
			return fmt.Errorf("the unverified host %s got the certificate %s", host, s)
		}
	}
	if n := w.orders.Load(); n != before {
		return fmt.Errorf("visits to unverified hosts caused %d orders, want 0", n-before)
	}
	ok("unverified hosts get no certificate and cause no order")
	return nil
}

func (w *world) shared(ctx context.Context) error {
	first, err := w.visit(ctx, w.secure(), w.name(1))
	if err != nil {
		return err
	}
	pods := strings.Split(w.pods, ",")
	for _, pod := range pods {
		if s, err := w.visit(ctx, pod+":8443", w.name(1)); err != nil || s != first {
			return fmt.Errorf("the pod %s uses the certificate %s, want the shared certificate %s: %w", pod, s, first, err)
		}
	}
	ok("%d pods share a certificate", len(pods))
	return nil
}

func (w *world) failing(ctx context.Context) error {
	id, err := w.domain(ctx, "late."+w.under, true)
	if err != nil {
		return err
	}
	w.broken.Store(true)
	if s, err := w.visit(ctx, w.secure(), "late."+w.under); err == nil {
		return fmt.Errorf("a failing authority issued the certificate %s", s)
	}
	if _, err := w.visit(ctx, w.secure(), w.name(2)); err != nil {
		return fmt.Errorf("cannot visit another domain while the authority is failing: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.edge+"/x", nil)
	if err != nil {
		return err
	}
	req.Host = "late." + w.under
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusFound {
		return fmt.Errorf("a visit over HTTP while the authority is failing returned %d, want 302", res.StatusCode)
	}
	if err := within(ctx, time.Minute, "the record contains the reason", func() error {
		status, problem, err := w.shown(ctx, id)
		if err == nil && (status != "failed" || problem == "") {
			err = fmt.Errorf("the certificate status is %s %s, want failed with a reason", status, problem)
		}
		return err
	}); err != nil {
		return err
	}
	w.broken.Store(false)
	began := time.Now()
	if err := within(ctx, 3*time.Minute, "a certificate is issued after the authority has recovered", func() error {
		_, err := w.visit(ctx, w.secure(), "late."+w.under)
		return err
	}); err != nil {
		return err
	}
	ok("a failing authority did not affect other domains or redirects over HTTP; the record contained the reason; the certificate was issued %.0f s after the authority recovered", time.Since(began).Seconds())
	return nil
}

func (w *world) killed(ctx context.Context) error {
	const n = 4
	host := func(i int) string { return fmt.Sprintf("mid%d.%s", i, w.under) }
	ids := make([]string, n)
	for i := range n {
		var err error
		if ids[i], err = w.domain(ctx, host(i), true); err != nil {
			return err
		}
	}
	hold := make(chan struct{})
	w.hold.Store(&hold)
	var visits sync.WaitGroup
	for i := range n {
		visits.Go(func() { _, _ = w.visit(ctx, w.secure(), host(i)) }) // the visit may succeed or fail
	}
	if err := within(ctx, time.Minute, "the orders are pending", func() error {
		for _, id := range ids {
			if status, _, err := w.shown(ctx, id); err != nil || status != "pending" {
				return fmt.Errorf("the certificate status is %s, want pending: %w", status, err)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "bash", "-c", w.kill).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot kill a pod: %w: %s", err, out)
	}
	w.hold.Store(nil)
	close(hold)
	began := time.Now()
	visits.Wait()
	for i := range n {
		if err := within(ctx, 3*time.Minute, host(i), func() error { _, err := w.visit(ctx, w.secure(), host(i)); return err }); err != nil {
			return err
		}
	}
	ok("a pod was killed during %d orders; %.0f s later, every domain had its certificate", n, time.Since(began).Seconds())
	return nil
}

// renewed visits the domains until each certificate has been replaced. It fails if a certificate
// expires first.
func (w *world) renewed(ctx context.Context) error {
	n := min(10, w.domains)
	seen := make([]map[string]bool, n)
	for i := range seen {
		seen[i] = map[string]bool{}
	}
	visits := 0
	began := time.Now()
	for full := 0; full < n; {
		if time.Since(began) > 2*time.Duration(w.life)*time.Second {
			return fmt.Errorf("only %d of %d certificates were renewed within two lifetimes, want all", full, n)
		}
		full = 0
		for i := range n {
			s, err := w.visit(ctx, w.secure(), w.name(i))
			if err != nil {
				return fmt.Errorf("cannot visit %s after %d certificates: %w", w.name(i), len(seen[i]), err)
			}
			visits++
			if seen[i][s] = true; len(seen[i]) > 1 {
				full++
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	ok("certificates with a lifetime of %d s were renewed before they expired: all %d visits to %d domains succeeded", w.life, visits, n)
	return nil
}

// within calls f every half second until f succeeds.
func within(ctx context.Context, limit time.Duration, what string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("condition %q not met within %s: %w", what, limit, err)
		case <-time.After(500 * time.Millisecond):
		}
	}
}
