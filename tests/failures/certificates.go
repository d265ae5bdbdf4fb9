package main

import (
	"bufio"
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
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

// domains holds the custom domains that the traffic visits. Their certificates come from Pebble,
// Let's Encrypt's ACME server for tests. Every name resolves to this machine.
type domains struct {
	roots  *x509.CertPool
	dns    string
	caFile string

	mu     sync.Mutex
	proofs map[string]string // TXT records by name
	served map[string]bool   // whether a domain has had a certificate
}

// startAuthority starts the name server and, behind a proxy, the certificate authority. The
// authority checks the challenges on one of the two pods because both can answer them.
func (s *stack) startAuthority(addrs map[string]string) error {
	// By default, Pebble sleeps before it validates, and rejects some nonces.
	for name, value := range map[string]string{"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	d := &s.domains
	d.proofs, d.served = map[string]string{}, map[string]bool{}
	if err := d.serveNames(); err != nil {
		return err
	}
	var ports [2]int
	for i, name := range []string{"links-1.redirect", "links-1.tls"} {
		addr, err := net.ResolveTCPAddr("tcp", addrs[name])
		if err != nil {
			return err
		}
		ports[i] = addr.Port
	}
	quiet, store := log.New(io.Discard, "", 0), db.NewMemoryStore()
	issuer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "default", ValidityPeriod: 90 * 24 * 3600}})
	handler := wfe.New(quiet, store, va.New(quiet, ports[0], ports[1], false, d.dns, store), issuer, []string{"pebble.test"}, false, false, 1, 1)
	server := httptest.NewUnstartedServer(handler.Handler())
	server.Config.ErrorLog = quiet
	server.StartTLS()
	s.servers = append(s.servers, server)
	d.roots = x509.NewCertPool()
	d.roots.AddCert(issuer.GetRootCert(0).Cert)
	d.caFile = filepath.Join(s.dir, "authority.pem")
	if err := os.WriteFile(d.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		return err
	}
	return s.addProxy("authority", server.Listener.Addr().String())
}

// serveNames starts a name server on the same port for UDP and TCP.
func (d *domains) serveNames() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.dns = l.Addr().String()
	packets, err := net.ListenPacket("udp", d.dns)
	if err != nil {
		return err
	}
	for _, server := range []*dns.Server{{Listener: l}, {PacketConn: packets}} {
		server.Handler = dns.HandlerFunc(d.answer)
		go func() { _ = server.ActivateAndServe() }()
	}
	return nil
}

func (d *domains) answer(w dns.ResponseWriter, q *dns.Msg) {
	r := new(dns.Msg)
	r.SetReply(q)
	header := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET}
	switch q.Question[0].Qtype {
	case dns.TypeA:
		r.Answer = append(r.Answer, &dns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)})
	case dns.TypeTXT:
		d.mu.Lock()
		if proof := d.proofs[strings.ToLower(strings.TrimSuffix(header.Name, "."))]; proof != "" {
			r.Answer = append(r.Answer, &dns.TXT{Hdr: header, Txt: []string{proof}})
		}
		d.mu.Unlock()
	}
	_ = w.WriteMsg(r)
}

// addDomain claims and verifies a domain and creates a link on it. From then on, the traffic visits
// the link.
func (s *stack) addDomain(ctx context.Context, host string) error {
	var claimed struct {
		ID, Status string
		Records    []struct{ Value string }
	}
	if _, err := s.pod(ctx, 0, http.MethodPost, "api", "/api/v1/domains", map[string]any{"hostname": host}, &claimed); err != nil {
		return err
	}
	s.domains.mu.Lock()
	s.domains.proofs["_linkreel."+host] = claimed.Records[0].Value
	s.domains.mu.Unlock()
	if _, err := s.pod(ctx, 0, http.MethodPost, "api", "/api/v1/domains/"+claimed.ID+"/verify", struct{}{}, &claimed); err != nil {
		return err
	}
	if claimed.Status != "verified" {
		return fmt.Errorf("%s has status %s, want verified", host, claimed.Status)
	}
	if _, err := s.pod(ctx, 0, http.MethodPost, "api", "/api/v1/links", map[string]any{
		"url": "https://example.com/", "slug": "x", "domainId": claimed.ID,
	}, &struct{}{}); err != nil {
		return err
	}
	s.domains.mu.Lock()
	defer s.domains.mu.Unlock()
	s.domains.served[host] = false
	return nil
}

// visitDomains visits the link on each custom domain over HTTPS. If a domain does not have a
// certificate yet, the visit orders one.
func (s *stack) visitDomains(ctx context.Context, turn int) {
	s.domains.mu.Lock()
	defer s.domains.mu.Unlock()
	for host, served := range s.domains.served {
		go func() {
			begin, what := time.Now(), "https"
			if !served {
				what = "https without a certificate yet"
			}
			status, err := s.visitDomain(ctx, turn, host)
			if ctx.Err() != nil {
				return
			}
			s.counts.add(what, status, err, time.Since(begin))
			s.domains.mu.Lock()
			defer s.domains.mu.Unlock()
			if err == nil && !s.domains.served[host] {
				s.domains.served[host] = true
				s.say("%s has a certificate", host)
			}
		}()
	}
}

// visitDomain visits a custom domain on one of the two pods, or on the other if the first does not
// accept connections.
func (s *stack) visitDomain(ctx context.Context, turn int, host string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.Timeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{ServerName: host, RootCAs: s.domains.roots}}
	var conn net.Conn
	for _, pod := range s.pods(turn) {
		if conn, err = dialer.DialContext(ctx, "tcp", s.counts.addrs[pod+".tls"]); err == nil {
			break
		}
	}
	if err != nil {
		return 0, err
	}
	defer conn.Close() // the response has been read
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return 0, err
		}
	}
	if _, err := fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// oldDomain is the custom domain that already has its certificate when the failure starts.
const oldDomain = "go.example.com"

// startDomain adds oldDomain and waits for its certificate.
func (s *stack) startDomain(ctx context.Context) error {
	if err := s.addDomain(ctx, oldDomain); err != nil {
		return err
	}
	status, err := s.visitDomain(ctx, 0, oldDomain)
	if err != nil {
		return fmt.Errorf("cannot visit %s: %w", oldDomain, err)
	}
	if status != http.StatusFound {
		return fmt.Errorf("visiting %s returned %d, want 302", oldDomain, status)
	}
	s.domains.mu.Lock()
	defer s.domains.mu.Unlock()
	s.domains.served[oldDomain] = true
	return nil
}
