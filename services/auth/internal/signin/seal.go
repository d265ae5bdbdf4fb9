// Package signin authenticates people with an identity provider (OpenID Connect) or a passkey. It
// does not know about members: package member takes the proof and decides whether the person can
// sign in.
//
// Both methods have two steps. The browser stores the data between the steps (state, nonce,
// PKCE verifier, challenge) in sealed form, so any replica can handle the second step.
package signin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/seal"
)

// flowLife is how long a person may take between the two steps.
const flowLife = 10 * time.Minute

// ErrFlow is returned by the second step if the data from the first step is missing, expired,
// modified or from a different browser.
var ErrFlow = apierr.New(apierr.Forbidden, "This sign-in has expired or was started elsewhere. Start over.")

// Sealer encrypts the data that a browser stores between the two steps.
type Sealer struct {
	key *seal.Key
	now func() time.Time
}

// NewSealer derives the sealing key from a secret that all replicas share.
func NewSealer(secret string, now func() time.Time) (*Sealer, error) {
	key, err := seal.Derive(secret, nil, "linkreel sign-in flow 1")
	if err != nil {
		return nil, fmt.Errorf("sign-in flows: %w", err)
	}
	return &Sealer{key: key, now: now}, nil
}

type sealed struct {
	Until time.Time `json:"u"`
	Value any       `json:"v"`
}

// seal encrypts v for the second step of the given kind of flow.
func (s *Sealer) seal(kind string, v any) (string, error) {
	text, err := json.Marshal(sealed{s.now().Add(flowLife), v})
	if err != nil {
		return "", fmt.Errorf("seal: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(s.key.Seal(kind, text)), nil
}

func (s *Sealer) open(kind, flow string, v any) error {
	// Every failure returns the same error, so someone who tampers with the text learns nothing.
	raw, err := base64.RawURLEncoding.DecodeString(flow)
	if err != nil {
		return ErrFlow
	}
	text, err := s.key.Open(kind, raw)
	if err != nil {
		return ErrFlow
	}
	in := sealed{Value: v} // read into v
	if err := json.Unmarshal(text, &in); err != nil || !s.now().Before(in.Until) {
		return ErrFlow
	}
	return nil
}
