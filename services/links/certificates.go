package links

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/seal"
	"github.com/linkreel/linkreel/services/links/internal/certificate"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// KeyIDs returns the IDs of the keys in a LINKREEL_CERTIFICATE_KEY value. Backups identify keys by
// these IDs.
func KeyIDs(certificateKey string) ([]string, error) {
	keys, err := seal.New(certificate.SealPurpose, certificateKey)
	if err != nil {
		return nil, fmt.Errorf("LINKREEL_CERTIFICATE_KEY: %w", err)
	}
	return keys.IDs(), nil
}

// certificates builds the service that provides certificates to the TLS listener.
func (b *building) certificates() (*certificate.Service, error) {
	c := b.Config
	if c.CertificateKey == "" {
		return nil, errors.New("LINKREEL_TLS_ADDR requires LINKREEL_CERTIFICATE_KEY, which seals private keys")
	}
	keys, err := seal.New(certificate.SealPurpose, c.CertificateKey)
	if err != nil {
		return nil, fmt.Errorf("LINKREEL_CERTIFICATE_KEY: %w", err)
	}
	kept := b.store.Certificates()
	account := &certificate.Account{Store: kept, ID: c.ACMEDirectory + " " + c.ACMEEmail, Seal: keys, Now: c.Now}
	issuer, err := certificate.NewIssuer(certificate.ACME{
		Directory: c.ACMEDirectory, Email: c.ACMEEmail, CAFile: c.ACMECAFile, Account: account,
	})
	if err != nil {
		return nil, err
	}
	own := b.own.Names()
	return certificate.NewService(certificate.Options{
		Store: kept, Issuer: issuer, Account: account, Seal: keys, Limiter: ratelimit.New(b.stores.Redis, c.Now),
		PerHour: c.ACMEOrdersPerHour,
		Owner:   b.memory.Owner,
		Own:     func(host string) bool { return slices.Contains(own, host) },
		// Unknown names in TLS handshakes and unknown links share one budget.
		Misses: b.misses, Now: c.Now,
	}), nil
}

var challengePath = []byte("/.well-known/acme-challenge/")

// challenges answers the authority's HTTP challenges on the plain listener and passes all
// other requests to next.
func (c Config) challenges(certificates *certificate.Service, next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		token, asked := bytes.CutPrefix(ctx.Request.Header.RequestURI(), challengePath)
		if asked && ctx.IsGet() {
			host := link.ParseHost(string(ctx.Request.Header.Host())).Name
			// fasthttp's context is not cancelled until the server stops. Answer sets a deadline.
			if answer, ok := certificates.Answer(context.Background(), host, string(token), c.client(ctx)); ok {
				ctx.SetContentType("text/plain")
				ctx.SetBodyString(answer)
				return
			}
		}
		next(ctx)
	}
}
