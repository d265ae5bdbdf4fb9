package signin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// Passkeys signs in with WebAuthn: the device finds the key without a user name, and asks its
// owner for a PIN or a fingerprint. Passkeys does not request attestation, because it accepts
// every kind of device.
type Passkeys struct {
	w      *webauthn.WebAuthn
	sealer *Sealer
}

// NewPasskeys returns the passkey sign-in for the pages under baseURL.
func NewPasskeys(baseURL string, sealer *Sealer) (*Passkeys, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("base URL %q cannot be used for passkeys", baseURL)
	}
	w, err := webauthn.New(&webauthn.Config{
		RPID: u.Hostname(), RPDisplayName: "Linkreel", RPOrigins: []string{u.Scheme + "://" + u.Host},
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, RequireResidentKey: protocol.ResidentKeyRequired(),
			UserVerification: protocol.VerificationRequired,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("passkeys: %w", err)
	}
	return &Passkeys{w: w, sealer: sealer}, nil
}

// Work reports whether browsers allow passkeys at the base URL. They do so only on https and
// on localhost.
func Work(baseURL string) bool {
	u, err := url.Parse(baseURL)
	if err != nil {
		return false
	}
	host := u.Hostname()
	return u.Scheme == "https" || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// holder represents a person for the WebAuthn library.
type holder struct {
	id, name    string
	credentials []webauthn.Credential
}

func (h holder) WebAuthnID() []byte                         { return []byte(h.id) }
func (h holder) WebAuthnName() string                       { return h.name }
func (h holder) WebAuthnDisplayName() string                { return h.name }
func (h holder) WebAuthnCredentials() []webauthn.Credential { return h.credentials }

type passkeyFlow struct {
	Session webauthn.SessionData `json:"s"`
	Holder  string               `json:"h,omitempty"` // hash of the session, when adding a passkey
}

// BeginAdd returns the options for a new passkey for the person. sessionHash binds the flow to
// the session that began it.
func (p *Passkeys) BeginAdd(person, name, sessionHash string, has []member.Passkey) (options []byte, flow string, err error) {
	h := holder{id: person, name: name}
	for _, k := range has {
		c, err := credential(k)
		if err != nil {
			return nil, "", err
		}
		h.credentials = append(h.credentials, c)
	}
	exclude := make([]protocol.CredentialDescriptor, len(h.credentials))
	for i, c := range h.credentials {
		exclude[i] = c.Descriptor()
	}
	creation, session, err := p.w.BeginRegistration(h, webauthn.WithExclusions(exclude))
	if err != nil {
		return nil, "", fmt.Errorf("begin passkey: %w", err)
	}
	return p.begun("add", creation.Response, passkeyFlow{*session, sessionHash})
}

// FinishAdd verifies a new passkey.
func (p *Passkeys) FinishAdd(ctx context.Context, person, name, sessionHash, flow string, response []byte) (member.Passkey, error) {
	var f passkeyFlow
	if err := p.sealer.open("passkey add", flow, &f); err != nil {
		return member.Passkey{}, err
	}
	// If the flow began in another session, an attacker may have planted it in this browser.
	if f.Holder != sessionHash {
		return member.Passkey{}, ErrFlow
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return member.Passkey{}, RefusedPasskey(ctx, err)
	}
	c, err := p.w.CreateCredential(holder{id: person, name: name}, f.Session, parsed)
	if err != nil {
		return member.Passkey{}, RefusedPasskey(ctx, err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return member.Passkey{}, fmt.Errorf("encode passkey: %w", err)
	}
	return member.Passkey{Hash: credentialHash(c.ID), Credential: text}, nil
}

// BeginSignIn returns the options for signing in with any passkey that the device
// has for this site.
func (p *Passkeys) BeginSignIn() (options []byte, flow string, err error) {
	assertion, session, err := p.w.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return nil, "", fmt.Errorf("begin passkey: %w", err)
	}
	return p.begun("sign-in", assertion.Response, passkeyFlow{Session: *session})
}

func (p *Passkeys) begun(kind string, options any, f passkeyFlow) ([]byte, string, error) {
	text, err := json.Marshal(options)
	if err != nil {
		return nil, "", fmt.Errorf("begin passkey: %w", err)
	}
	// The kind is part of the seal, so a flow for adding a passkey cannot be finished as a
	// sign-in.
	flow, err := p.sealer.seal("passkey "+kind, f)
	return text, flow, err
}

// FinishSignIn verifies the device's signature. find looks up a passkey by its credential's
// hash. The returned challenge can only be used once.
func (p *Passkeys) FinishSignIn(
	ctx context.Context,
	flow string,
	response []byte,
	find func(hash string) (member.Passkey, error),
) (member.Passkey, string, error) {
	var f passkeyFlow
	if err := p.sealer.open("passkey sign-in", flow, &f); err != nil {
		return member.Passkey{}, "", err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return member.Passkey{}, "", RefusedPasskey(ctx, err)
	}
	var found member.Passkey
	// Keep the error that find returns because the library turns every error into a bad
	// request. A store outage must not look like a wrong passkey.
	var failed error
	c, err := p.w.ValidateDiscoverableLogin(func(rawID, userHandle []byte) (webauthn.User, error) {
		if found, failed = find(credentialHash(rawID)); failed != nil {
			return nil, failed
		}
		if found.PersonID != string(userHandle) {
			return nil, errors.New("the user handle belongs to another person")
		}
		c, err := credential(found)
		return holder{id: found.PersonID, credentials: []webauthn.Credential{c}}, err
	}, f.Session, parsed)
	switch {
	case failed != nil && !errors.Is(failed, member.ErrNoPasskey):
		return member.Passkey{}, "", failed
	case err != nil:
		return member.Passkey{}, "", RefusedPasskey(ctx, err)
	case c.Authenticator.CloneWarning:
		return member.Passkey{}, "", RefusedPasskey(ctx, errors.New("the signature counter decreased, so a copy of the key may be in use"))
	}
	if found.Credential, err = json.Marshal(c); err != nil {
		return member.Passkey{}, "", fmt.Errorf("encode passkey: %w", err)
	}
	return found, f.Session.Challenge, nil
}

// RefusedPasskey returns the same error for every rejected passkey. The reason is only logged.
func RefusedPasskey(ctx context.Context, err error) error {
	var detail *protocol.Error
	if errors.As(err, &detail) {
		err = fmt.Errorf("%w (%s)", err, detail.DevInfo)
	}
	slog.WarnContext(ctx, "passkey rejected", "error", err)
	return apierr.New(apierr.Forbidden, "This passkey is not recognized or could not be verified. Try again, or sign in another way.")
}

func credential(k member.Passkey) (c webauthn.Credential, err error) {
	if err := json.Unmarshal(k.Credential, &c); err != nil {
		return c, fmt.Errorf("read passkey %s: %w", k.ID, err)
	}
	return c, nil
}

func credentialHash(id []byte) string {
	sum := sha256.Sum256(id)
	return hex.EncodeToString(sum[:])
}
