// Package caller sends messages to URLs that users supply. Nothing else in Linkreel calls such
// URLs.
//
// It checks the address of each connection after name resolution, just before the socket
// connects. A host name that resolves to a different address on a second lookup is therefore
// useless to an attacker. Our own listeners are always blocked, and calling one gives the same
// result as calling an unused port.
//
// It ignores proxy settings in the environment and does not follow redirects. It reads at most 64
// KiB of a response and never decompresses it. It aborts a call after 15 seconds, whatever the
// receiver does.
package caller

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Timeout limits a call, from the host name lookup to the last byte of the response.
const Timeout = 15 * time.Second

const (
	maxAnswer = 64 << 10
	keptBytes = 1 << 10
	// drainTime limits how long the caller reads a response's body. It can be short because only
	// the status decides whether the call succeeded.
	drainTime = 2 * time.Second
)

// Config configures a Caller.
type Config struct {
	Policy
	// Resolver is the host:port of a DNS server. If it is empty, the caller uses the system's
	// resolver.
	Resolver string
	// Proxy is the http:// URL of a proxy that accepts CONNECT. Even with a proxy, the caller
	// resolves names and checks addresses itself.
	Proxy string
	// Roots are the trusted root certificates. If Roots is nil, the caller uses the system's.
	Roots *x509.CertPool
	// Timeout overrides the Timeout constant in tests.
	Timeout time.Duration
}

// Caller sends messages. It is safe for concurrent use.
type Caller struct {
	cfg      Config
	resolver *net.Resolver
	proxy    *url.URL
	client   *http.Client
}

// New returns a caller.
func New(cfg Config) (*Caller, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = Timeout
	}
	c := &Caller{cfg: cfg, resolver: net.DefaultResolver}
	if cfg.Resolver != "" {
		if _, _, err := net.SplitHostPort(cfg.Resolver); err != nil {
			return nil, fmt.Errorf("resolver %q must be host:port: %w", cfg.Resolver, err)
		}
		c.resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, cfg.Resolver)
		}}
	}
	if cfg.Proxy != "" {
		proxy, err := url.Parse(cfg.Proxy)
		if err != nil || proxy.Scheme != "http" || proxy.Host == "" {
			return nil, errors.New("the egress proxy must be an http:// address")
		}
		if proxy.Port() == "" {
			proxy.Host = net.JoinHostPort(proxy.Hostname(), "80")
		}
		c.proxy = proxy
	}
	c.client = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  nil, // ignore the environment
			DialContext:            c.dial,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.Roots},
			TLSHandshakeTimeout:    5 * time.Second,
			DisableCompression:     true, // so that a small response cannot expand to gigabytes
			MaxResponseHeaderBytes: 32 << 10,
			// Do not set MaxConnsPerHost: with a limit, accounts that call the same host would
			// wait for each other. No limit is needed, because a webhook has few concurrent
			// calls and an account has few webhooks.
			MaxIdleConns:        500,
			MaxIdleConnsPerHost: 2,
			IdleConnTimeout:     30 * time.Second,
		},
	}
	return c, nil
}

// Close closes idle connections.
func (c *Caller) Close() { c.client.CloseIdleConnections() }

// Send makes one call and returns the result. A failed call is a normal result, so Send does not
// return an error.
func (c *Caller) Send(ctx context.Context, target string, header map[string]string, body []byte) webhook.Result {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	r := c.send(ctx, target, header, body)
	r.Duration = time.Since(started)
	return r
}

func (c *Caller) send(ctx context.Context, target string, header map[string]string, body []byte) (r webhook.Result) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		r.Error, r.Cause = "The address is not a valid URL.", webhook.CauseForbidden
		return r
	}
	// AllowHTTP may have been disabled since the webhook was created.
	if req.URL.Scheme != "https" && (req.URL.Scheme != "http" || !c.cfg.AllowHTTP) {
		r.Error, r.Cause = "The address must start with https://.", webhook.CauseForbidden
		return r
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Linkreel-Webhooks/1")
	res, err := c.client.Do(req)
	if err != nil {
		r.Error, r.Cause = c.cfg.explain(err)
		return r
	}
	defer res.Body.Close()
	r.Status = res.StatusCode
	r.RetryAfter = retryAfter(res.Header.Get("Retry-After"), time.Now())
	r.Answer = c.read(ctx, res.Body)
	if r.Status < 200 || r.Status > 299 {
		r.Cause = webhook.CauseStatus
	}
	switch {
	case r.Status >= 300 && r.Status < 400:
		r.Error = fmt.Sprintf("The receiver answered %d. Redirects are not followed. Change the webhook to the address that the receiver redirects to.", r.Status)
	case r.Status < 200 || r.Status > 299:
		r.Error = fmt.Sprintf("The receiver answered %d.", r.Status)
	}
	return r
}

// read returns the start of a response. It reads more than it returns because the connection can be
// reused only after the whole response has been read.
func (c *Caller) read(ctx context.Context, body io.ReadCloser) string {
	stop := time.AfterFunc(drainTime, func() { _ = body.Close() })
	defer stop.Stop()
	var kept bytes.Buffer
	n, _ := io.Copy(&kept, io.LimitReader(body, keptBytes)) // if reading fails, keep the bytes that have arrived
	if n == keptBytes && ctx.Err() == nil {
		_, _ = io.CopyN(io.Discard, body, maxAnswer-keptBytes)
	}
	return printable(kept.Bytes())
}

// explain returns a sentence that tells the webhook's owner what went wrong, and the cause for the
// operator. The sentence reveals neither addresses in our network nor error messages from
// libraries.
func (p Policy) explain(err error) (sentence string, cause webhook.Cause) {
	sentence, cause = p.sentence(err)
	if proxied := (*proxyError)(nil); errors.As(err, &proxied) {
		cause = webhook.CauseProxy
	}
	return sentence, cause
}

// closedIdle is the text of an error that net/http does not export: the receiver closed the
// connection before receiving any of the request.
const closedIdle = "http: server closed idle connection"

func (p Policy) sentence(err error) (string, webhook.Cause) {
	var (
		blocked *BlockedError
		dns     *net.DNSError
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		timeout net.Error
	)
	switch {
	case errors.As(err, &blocked) && len(p.Own) > 0:
		return "The host's address is not public, or the port is closed, so nothing was sent.", webhook.CauseForbidden // see conceal
	case errors.As(err, &blocked):
		return "The host's address is not public, so nothing was sent.", webhook.CauseForbidden
	case errors.As(err, &dns) && dns.IsNotFound:
		return "The host name does not resolve to an address.", webhook.CauseDNS
	case errors.As(err, &dns) && dns.IsTimeout: // the owner cannot tell which server was slow
		return "The receiver did not answer in time.", webhook.CauseDNS
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "The receiver did not answer in time.", webhook.CauseTimeout
	case errors.As(err, &dns):
		return "The host name could not be looked up.", webhook.CauseDNS
	case errors.As(err, &unknown), errors.As(err, &name), errors.As(err, &invalid), errors.As(err, &record):
		return "The receiver's certificate is not valid for this address.", webhook.CauseTLS
	case errors.As(err, &alert):
		return "The receiver could not be reached.", webhook.CauseTLS
	case errors.Is(err, syscall.ECONNREFUSED):
		return "The receiver refused the connection.", webhook.CauseRefused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		strings.HasSuffix(err.Error(), closedIdle):
		return "The receiver closed the connection before it answered.", webhook.CauseClosed
	}
	return "The receiver could not be reached.", webhook.CauseOther
}
