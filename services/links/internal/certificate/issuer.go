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
	"sync"
	"time"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"
)

// ErrNoOrder means that an order failed before the authority started validation. Until then, the
// host's owner cannot cause a failure. After that, the owner can, for example with name servers
// that never answer.
var ErrNoOrder = errors.New("the authority did not start to validate")

// Issuer is a certificate authority.
type Issuer interface {
	// Issue requests a certificate chain and returns it in PEM. Before validation, Issue calls
	// present to store the challenge where the authority can get it.
	Issue(ctx context.Context, csr *x509.CertificateRequest, present Present) (chain []byte, err error)
}

// Present is an order's [acmez.Solver].
type Present func(ctx context.Context, c acme.Challenge) error

// Present implements [acmez.Solver].
func (p Present) Present(ctx context.Context, c acme.Challenge) error { return p(ctx, c) }

// CleanUp implements [acmez.Solver]. It does nothing because writing the next challenge or the
// order's outcome also removes this challenge from the record.
func (p Present) CleanUp(context.Context, acme.Challenge) error { return nil }

// ACME is an authority with the account that all replicas share.
type ACME struct {
	Directory string
	Email     string
	// CAFile is a file with CA certificates that verify the authority's own certificate. If it is
	// empty, the system's CA certificates are used.
	CAFile string

	Account *Account
}

type acmeIssuer struct {
	acme   ACME
	client *acme.Client

	mu      sync.Mutex
	account acme.Account // the account with the authority; zero before registration
}

// callTimeout bounds one request to the authority.
const callTimeout = 30 * time.Second

// NewIssuer returns a client for an ACME authority, without calling the authority.
func NewIssuer(a ACME) (Issuer, error) {
	var roots *x509.CertPool
	if a.CAFile != "" {
		text, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, fmt.Errorf("LINKREEL_ACME_CA_FILE: %w", err)
		}
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("LINKREEL_ACME_CA_FILE: %s contains no PEM certificate", a.CAFile)
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return &acmeIssuer{acme: a, client: &acme.Client{
		Directory: a.Directory, UserAgent: "linkreel", PollTimeout: longestOrder / 2,
		HTTPClient: &http.Client{Transport: transport, Timeout: callTimeout},
	}}, nil
}

// Issue implements [Issuer].
func (i *acmeIssuer) Issue(ctx context.Context, csr *x509.CertificateRequest, present Present) ([]byte, error) {
	chain, err := i.obtain(ctx, csr, present)
	var p acme.Problem
	if errors.As(err, &p) && p.Type == acme.ProblemTypeAccountDoesNotExist {
		// The authority has lost the account, as happens when a test authority is reinstalled.
		// Register the same key again.
		i.mu.Lock()
		i.account = acme.Account{}
		i.mu.Unlock()
		chain, err = i.obtain(ctx, csr, present)
	}
	return chain, err
}

func (i *acmeIssuer) obtain(ctx context.Context, csr *x509.CertificateRequest, present Present) ([]byte, error) {
	account, err := i.registered(ctx)
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	order, err := acmez.OrderParametersFromCSR(account, csr)
	if err != nil {
		return nil, err
	}
	// Each order needs its own client because the solver is part of the client.
	client := acmez.Client{Client: i.client, ChallengeSolvers: map[string]acmez.Solver{
		acme.ChallengeTypeHTTP01: present, acme.ChallengeTypeTLSALPN01: present,
	}}
	chains, err := client.ObtainCertificate(ctx, order)
	if err != nil {
		return nil, err
	}
	if len(chains) == 0 {
		return nil, errors.New("the authority returned no certificate")
	}
	// The first chain is the authority's default; the others are alternatives.
	return chains[0].ChainPEM, nil
}

// registered returns the account. The first call registers it, and concurrent calls wait.
func (i *acmeIssuer) registered(ctx context.Context) (acme.Account, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.account.Location != "" {
		return i.account, nil
	}
	key, err := i.acme.Account.key(ctx)
	if err != nil {
		return acme.Account{}, err
	}
	account := acme.Account{TermsOfServiceAgreed: true, PrivateKey: key}
	if i.acme.Email != "" {
		account.Contact = []string{"mailto:" + i.acme.Email}
	}
	if account, err = i.client.NewAccount(ctx, account); err == nil {
		i.account = account
	}
	return account, err
}

// newKey returns a new key and a request to certify it for host.
func newKey(host string) (crypto.Signer, *x509.CertificateRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	// Leave out the common name: it is limited to 64 characters, and clients no longer read it.
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{}, DNSNames: []string{host}}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate request: %w", err)
	}
	csr, err := x509.ParseCertificateRequest(der)
	return key, csr, err
}

// parse builds a TLS certificate from a chain and its key, and checks that it is valid for host.
func parse(host string, chain, pkcs8 []byte) (*tls.Certificate, error) {
	// X509KeyPair also checks that the key matches the chain, and sets Leaf.
	c, err := tls.X509KeyPair(chain, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", host, err)
	}
	if err := c.Leaf.VerifyHostname(host); err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", host, err)
	}
	return &c, nil
}

// failureOf explains to the owner why an order failed.
func failureOf(host string, err error) Failure {
	var p acme.Problem
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Failure{Words: "The certificate authority did not finish in time. We will try again.", Away: true}
	case !errors.As(err, &p):
		return Failure{Words: "The certificate authority cannot be reached. We will try again.", Away: true}
	case p.Type == acme.ProblemTypeRateLimited:
		return Failure{Words: "The certificate authority is not issuing any more certificates for now: " + bounded(p.Detail), Limited: true}
	case p.Status >= http.StatusInternalServerError:
		return Failure{Words: "The certificate authority reports an error on its side: " + bounded(p.Detail), Away: true}
	}
	return Failure{Words: fmt.Sprintf("The certificate authority could not validate %s. "+
		"Check that the name's CNAME, A or AAAA record is the one shown in records, and that no CAA record forbids it. The authority said: %s",
		host, bounded(problemDetail(p)))}
}

// problemDetail returns the authority's message about the name or, if there is none, its
// message about the order.
func problemDetail(p acme.Problem) string {
	for _, sub := range p.Subproblems {
		if sub.Detail != "" {
			return sub.Detail
		}
	}
	return p.Detail
}

// bounded limits the length of a message from the authority.
func bounded(text string) string {
	const most = 300
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// lifeOf returns the start and the end of a leaf's validity. Authorities backdate certificates, so
// it replaces a start in the past with now.
func lifeOf(leaf *x509.Certificate, now time.Time) (from, to time.Time) {
	from = leaf.NotBefore
	if from.Before(now) && now.Before(leaf.NotAfter) {
		from = now
	}
	return from, leaf.NotAfter
}
