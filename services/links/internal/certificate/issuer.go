package certificate

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
	"go.uber.org/zap"
)

// ErrNoOrder says that an order failed before the authority had anything validated.
// Up to there nothing depends on the host or on whoever has it. What fails later may
// be made to fail, by name servers that never answer for example.
var ErrNoOrder = errors.New("the authority has no order")

// begunKey is where the context of an order has an atomic.Bool that [Storage] sets
// when a challenge is made ready. The ACME client hands on nothing else by which the
// two could be brought together.
type begunKey struct{}

// Issuer is an authority.
type Issuer interface {
	// Issue gets a chain for the request, in PEM. The error is ErrNoOrder as well when
	// it failed before the authority had anything validated.
	Issue(ctx context.Context, csr *x509.CertificateRequest) (chain []byte, err error)
	// Challenge is the certificate that answers a TLS-ALPN challenge.
	Challenge(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
	// ServeChallenge answers an HTTP challenge; false when there is none like it.
	ServeChallenge(w http.ResponseWriter, r *http.Request) bool
	Close()
}

// ACME says which authority to ask.
type ACME struct {
	Directory string
	Email     string
	// CAFile has the certificates that the authority's own is checked with; empty
	// means the system's.
	CAFile string
}

// The client insists on listeners for challenges. Ours answer them, so it gets two
// on loopback that nobody calls. Given our own ports it would dial them to see that
// they are open, within 250 ms, and fail the order when the machine is busy.
const idleHTTP, idleTLS = 8091, 8092

type acmeIssuer struct {
	config *certmagic.Config
	cache  *certmagic.Cache
	acme   *certmagic.ACMEIssuer
}

// NewIssuer makes a client of an ACME authority. It does not call it yet.
func NewIssuer(a ACME, storage certmagic.Storage) (Issuer, error) {
	var roots *x509.CertPool
	if a.CAFile != "" {
		text, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, fmt.Errorf("LINKREEL_ACME_CA_FILE: %w", err)
		}
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("LINKREEL_ACME_CA_FILE: %s has no certificate in PEM", a.CAFile)
		}
	}
	i := &acmeIssuer{}
	// The cache and its loop stay empty: certificates are not certmagic's here.
	i.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return i.config, nil },
		Logger:           zap.NewNop(),
	})
	i.config = certmagic.New(i.cache, certmagic.Config{Storage: storage, Logger: zap.NewNop()})
	i.acme = certmagic.NewACMEIssuer(i.config, certmagic.ACMEIssuer{
		CA: a.Directory, Email: a.Email, Agreed: true, TrustedRoots: roots, ListenHost: "127.0.0.1", AltHTTPPort: idleHTTP, AltTLSALPNPort: idleTLS,
		CertObtainTimeout: longestOrder / 2, Logger: zap.NewNop(),
	})
	i.config.Issuers = []certmagic.Issuer{i.acme}
	return i, nil
}

func (i *acmeIssuer) Issue(ctx context.Context, csr *x509.CertificateRequest) (chain []byte, err error) {
	var begun atomic.Bool
	ctx = context.WithValue(ctx, begunKey{}, &begun)
	defer func() {
		if err != nil && !begun.Load() {
			err = fmt.Errorf("%w: %w", ErrNoOrder, err)
		}
	}()
	// PreCheck makes the client use our address. Without one it must not be called: it
	// would take that of an account it finds stored, for all of this process's life, and
	// reads one that another replica has stored half as of an address named "default".
	if i.acme.Email != "" {
		if err := i.acme.PreCheck(ctx, csr.DNSNames, false); err != nil {
			return nil, err
		}
	}
	issued, err := i.acme.Issue(ctx, csr)
	if err != nil {
		return nil, err
	}
	return issued.Certificate, nil
}

func (i *acmeIssuer) Challenge(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return i.config.GetCertificate(hello)
}

func (i *acmeIssuer) ServeChallenge(w http.ResponseWriter, r *http.Request) bool {
	return i.acme.HandleHTTPChallenge(w, r)
}

func (i *acmeIssuer) Close() { i.cache.Stop() }

// newKey makes a key and a request to certify it for host.
func newKey(host string) (crypto.Signer, *x509.CertificateRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	// The common name is limited to 64 characters, and nobody reads it any more.
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{}, DNSNames: []string{host}}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate request: %w", err)
	}
	csr, err := x509.ParseCertificateRequest(der)
	return key, csr, err
}

// parse makes what TLS serves of a chain and its key, and checks that it is for
// host.
func parse(host string, chain, pkcs8 []byte) (*tls.Certificate, error) {
	c, err := tls.X509KeyPair(chain, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", host, err)
	}
	if c.Leaf == nil {
		if c.Leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
			return nil, fmt.Errorf("certificate of %s: %w", host, err)
		}
	}
	if err := c.Leaf.VerifyHostname(host); err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", host, err)
	}
	return &c, nil
}

// failureOf says in words why an order failed.
func failureOf(host string, err error) Failure {
	var p acme.Problem
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Failure{Words: "The certificate authority did not finish in time. The order is repeated.", Away: true}
	case !errors.As(err, &p):
		return Failure{Words: "The certificate authority cannot be reached. The order is repeated.", Away: true}
	case p.Type == acme.ProblemTypeRateLimited:
		return Failure{Words: "The certificate authority allows no more certificates for now: " + bounded(p.Detail), Limited: true}
	case p.Status >= http.StatusInternalServerError:
		return Failure{Words: "The certificate authority has a problem of its own: " + bounded(p.Detail), Away: true}
	}
	return Failure{Words: fmt.Sprintf("The certificate authority could not validate %s. Check that the name's CNAME, A or AAAA record is the one shown in records, and that no CAA record forbids it. It said: %s", host, bounded(problemDetail(p)))}
}

// problemDetail is what the authority said about the name, else about the order.
func problemDetail(p acme.Problem) string {
	for _, sub := range p.Subproblems {
		if sub.Detail != "" {
			return sub.Detail
		}
	}
	return p.Detail
}

// bounded keeps what others wrote short.
func bounded(text string) string {
	const most = 300
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// lifeOf is when a leaf begins and ends. Authorities date certificates back, which
// must not count as life that is over.
func lifeOf(leaf *x509.Certificate, now time.Time) (from, to time.Time) {
	from = leaf.NotBefore
	if from.Before(now) && now.Before(leaf.NotAfter) {
		from = now
	}
	return from, leaf.NotAfter
}
