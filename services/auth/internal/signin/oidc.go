package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// OIDCConfig is the configuration for an identity provider.
type OIDCConfig struct {
	Issuer       string
	ClientID     string
	ClientSecret string
	Name         string // the name on the button; "" means the issuer's host
	Scopes       []string
	GroupsClaim  string
	RedirectURL  string
}

// OIDC signs in with the authorization code flow and PKCE. The provider's URLs and keys are
// fetched when they are first needed, so the service can start even while the provider is down.
type OIDC struct {
	cfg    OIDCConfig
	sealer *Sealer
	client *http.Client
	now    func() time.Time

	mu       sync.Mutex
	provider *oidc.Provider
	tried    time.Time // time of the last failed discovery
}

// NewOIDC returns the sign-in for cfg's provider. If client is nil, a client with a timeout
// of five seconds is used.
func NewOIDC(cfg OIDCConfig, sealer *Sealer, client *http.Client, now func() time.Time) *OIDC {
	if client == nil {
		client = &http.Client{Timeout: 5 * time.Second}
	}
	return &OIDC{cfg: cfg, sealer: sealer, client: client, now: now}
}

// Name returns the provider's display name.
func (o *OIDC) Name() string {
	if o.cfg.Name != "" {
		return o.cfg.Name
	}
	_, rest, _ := strings.Cut(o.cfg.Issuer, "://")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// Purpose is the purpose of a sign-in. It is sealed into the flow, so the second step cannot be
// used for a different purpose.
type Purpose struct {
	Link    string `json:"l,omitempty"` // accept this invitation
	Name    string `json:"n,omitempty"`
	Connect string `json:"c,omitempty"` // add the identity to this session's person, by hash
	Next    string `json:"x,omitempty"`
}

type oidcFlow struct {
	State    string  `json:"s"`
	Nonce    string  `json:"n"`
	Verifier string  `json:"v"`
	Purpose  Purpose `json:"p"`
}

// Begin returns the URL to redirect the browser to, and the flow that the browser must store.
func (o *OIDC) Begin(ctx context.Context, p Purpose) (url, flow string, err error) {
	cfg, _, err := o.setup(ctx)
	if err != nil {
		return "", "", err
	}
	f := oidcFlow{State: identity.NewNonce(), Nonce: identity.NewNonce(), Verifier: oauth2.GenerateVerifier(), Purpose: p}
	if flow, err = o.sealer.seal("oidc", f); err != nil {
		return "", "", err
	}
	return cfg.AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), flow, nil
}

// Return holds the parameters that the provider passed when it redirected the browser back.
type Return struct{ Flow, State, Code, Issuer, Error string }

// errRefused returns the same error for every fault in the provider's response. The reason is
// only logged, because the person who sees the error may have forged the response.
func errRefused(ctx context.Context, why string, err error) error {
	slog.WarnContext(ctx, "sign-in rejected", "reason", why, "error", err)
	return apierr.New(apierr.Forbidden, "The identity provider's response could not be verified. Start over.")
}

// Finish verifies the provider's response.
func (o *OIDC) Finish(ctx context.Context, r Return) (member.Proof, Purpose, error) {
	var f oidcFlow
	if err := o.sealer.open("oidc", r.Flow, &f); err != nil {
		return member.Proof{}, Purpose{}, err
	}
	// The state binds the response to the browser that began the flow. Without it, a link
	// could sign a visitor in as somebody else.
	if subtle.ConstantTimeCompare([]byte(r.State), []byte(f.State)) != 1 {
		return member.Proof{}, Purpose{}, ErrFlow
	}
	// RFC 9207: the response need not contain its issuer, but if it does, the issuer must be
	// the configured one.
	if r.Issuer != "" && r.Issuer != o.cfg.Issuer {
		return member.Proof{}, Purpose{}, errRefused(ctx, "response from a different issuer", nil)
	}
	if r.Error != "" || r.Code == "" {
		slog.InfoContext(ctx, "sign-in not completed at the identity provider", "error", r.Error)
		return member.Proof{}, Purpose{}, apierr.New(apierr.Forbidden, "The identity provider did not sign you in. Start over.")
	}
	cfg, provider, err := o.setup(ctx)
	if err != nil {
		return member.Proof{}, Purpose{}, err
	}
	token, err := cfg.Exchange(oidc.ClientContext(ctx, o.client), r.Code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		// A rejection is final for this code. Server errors and lost connections may be
		// temporary.
		var refused *oauth2.RetrieveError
		if errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError {
			return member.Proof{}, Purpose{}, errRefused(ctx, "code", err)
		}
		return member.Proof{}, Purpose{}, apierr.Down(fmt.Errorf("exchange code: %w", err))
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return member.Proof{}, Purpose{}, errRefused(ctx, "no ID token", nil)
	}
	// Verify checks the signature, issuer, audience and times.
	id, err := provider.Verifier(&oidc.Config{ClientID: o.cfg.ClientID, Now: o.now}).Verify(ctx, raw)
	if err != nil {
		return member.Proof{}, Purpose{}, errRefused(ctx, "ID token", err)
	}
	// The nonce binds the token to this flow: a token from another sign-in proves nothing.
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(f.Nonce)) != 1 {
		return member.Proof{}, Purpose{}, errRefused(ctx, "nonce", nil)
	}
	proof, err := o.proof(id)
	if err != nil {
		return member.Proof{}, Purpose{}, errRefused(ctx, "claims", err)
	}
	return proof, f.Purpose, nil
}

func (o *OIDC) proof(id *oidc.IDToken) (member.Proof, error) {
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return member.Proof{}, fmt.Errorf("read claims: %w", err)
	}
	// With several audiences, the token's authorized party must be our client.
	if azp, has := claims["azp"].(string); has && azp != o.cfg.ClientID || !has && len(id.Audience) > 1 {
		return member.Proof{}, errors.New("token for a different party")
	}
	if id.Subject == "" || len(id.Subject) > 255 {
		return member.Proof{}, errors.New("no usable subject")
	}
	p := member.Proof{Issuer: id.Issuer, Subject: id.Subject, Groups: texts(claims[o.cfg.GroupsClaim])}
	for _, name := range []string{"name", "preferred_username"} {
		if text, ok := claims[name].(string); ok && p.Name == "" {
			p.Name = short(text)
		}
	}
	// Some providers send the string "true". Any other value means not verified. An unverified
	// address is not shown either.
	if v := claims["email_verified"]; v == true || v == "true" {
		if text, ok := claims["email"].(string); ok {
			p.Email = short(text)
		}
	}
	return p, nil
}

// short truncates a provider's text to the maximum length of a name.
func short(s string) string {
	r := []rune(strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "")))
	return string(r[:min(len(r), 100)])
}

func texts(v any) []string {
	list, ok := v.([]any)
	if !ok {
		if one, ok := v.(string); ok {
			return []string{one}
		}
		return nil
	}
	var out []string
	// A token may list any number of groups. Stop after 1000.
	for _, x := range list[:min(len(list), 1000)] {
		if text, ok := x.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

// setup discovers the provider once. After a failure, it returns an error without retrying for
// a second, to avoid flooding a provider that is down.
func (o *OIDC) setup(ctx context.Context) (*oauth2.Config, *oidc.Provider, error) {
	// Hold the lock during discovery: one sign-in queries the provider, and the others
	// wait for its response.
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.provider == nil {
		if o.now().Sub(o.tried) < time.Second {
			return nil, nil, apierr.Down(errors.New("identity provider was unreachable less than a second ago"))
		}
		// p keeps this context to fetch keys later, so it must not end with the request. The
		// client's timeout bounds each call.
		p, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), o.client), o.cfg.Issuer)
		if err != nil {
			o.tried = o.now()
			slog.WarnContext(ctx, "cannot discover the identity provider", "issuer", o.cfg.Issuer, "error", err)
			return nil, nil, apierr.Down(fmt.Errorf("discover identity provider: %w", err))
		}
		o.provider = p
	}
	scopes := o.cfg.Scopes
	if !slices.Contains(scopes, oidc.ScopeOpenID) {
		scopes = append([]string{oidc.ScopeOpenID}, scopes...)
	}
	return &oauth2.Config{
		ClientID: o.cfg.ClientID, ClientSecret: o.cfg.ClientSecret, Endpoint: o.provider.Endpoint(),
		RedirectURL: o.cfg.RedirectURL, Scopes: scopes,
	}, o.provider, nil
}
