package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
)

// StorageHookPath is the path that Pub/Sub pushes storage notifications to.
const StorageHookPath = "/hooks/storage"

// Hooks adds the route for storage notifications. If push is nil, the route rejects every
// notification. uploaded checks whether the object with that name is a finished upload.
func Hooks(a *httpapi.API, uploaded func(ctx context.Context, object string) error, push *Verifier, log *slog.Logger) {
	h := hooks{uploaded, push, log}
	a.Public(fiber.MethodPost, StorageHookPath, h.storageEvent)
}

type hooks struct {
	uploaded func(ctx context.Context, object string) error
	push     *Verifier
	log      *slog.Logger
}

// storageEvent receives a Pub/Sub push about an object. The message only makes the pipeline check
// that object. If storageEvent returns an error, Pub/Sub will redeliver the message later.
func (h hooks) storageEvent(c *fiber.Ctx) error {
	token, ok := strings.CutPrefix(c.Get(fiber.HeaderAuthorization), "Bearer ")
	if !ok || h.push == nil {
		return apierr.New(apierr.MissingAPIKey, "Send the identity token from the push subscription.")
	}
	if err := h.push.Verify(c.UserContext(), token); err != nil {
		// If the key could not be fetched, the token may still be valid. Pub/Sub will retry.
		if errors.Is(err, errKeys) {
			return apierr.Down(err)
		}
		h.log.DebugContext(c.UserContext(), "storage notification rejected", "error", err)
		return apierr.New(apierr.InvalidAPIKey, "The identity token is not valid here.")
	}
	var push struct {
		Message struct {
			Attributes map[string]string `json:"attributes"`
		} `json:"message"`
	}
	if err := json.Unmarshal(c.Request().Body(), &push); err != nil {
		return apierr.New(apierr.InvalidJSON, "The body is not a push message.")
	}
	attr := push.Message.Attributes
	if attr["eventType"] == "OBJECT_FINALIZE" {
		if err := h.uploaded(c.UserContext(), attr["objectId"]); err != nil {
			return err
		}
	}
	return httpapi.NoContent(c)
}

// Verifier checks the identity tokens from one push subscription. A valid token is
// signed with RS256 by a key that Google publishes, names our audience and the
// subscription's account, and has not expired.
type Verifier struct {
	audience, account string
	claims, signed    *oidc.IDTokenVerifier
	fetch             *sparing
}

// GoogleCerts is the URL where Google publishes its keys.
const GoogleCerts = "https://www.googleapis.com/oauth2/v3/certs"

// google is the issuer. Its tokens may omit the scheme, which go-oidc accepts.
const google = "https://accounts.google.com"

var (
	errToken = errors.New("identity token")
	errKeys  = errors.New("fetch the issuer's keys")
)

const (
	clockSkew = time.Minute
	// fetchPause is the minimum time between fetches of the issuer's keys, even after a failed one.
	// Without this pause, pushes would queue up while the issuer is not responding, and every
	// forged token would trigger a fetch.
	fetchPause = 5 * time.Second
)

// NewVerifier returns a verifier for an audience's tokens. account is the e-mail address of the
// service account that sends the pushes; "" accepts any of the issuer's accounts. certsURL is where
// the issuer publishes its keys.
func NewVerifier(audience, account, certsURL string, now func() time.Time) *Verifier {
	v := &Verifier{audience: audience, account: account, fetch: &sparing{now: now}}
	client := &http.Client{Timeout: 3 * time.Second, Transport: v.fetch}
	keys := oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), client), certsURL)
	cfg := oidc.Config{ClientID: audience, Now: func() time.Time { return now().Add(-clockSkew) }}
	v.signed = oidc.NewVerifier(google, keys, &cfg)
	unsigned := cfg
	unsigned.InsecureSkipSignatureCheck = true
	v.claims = oidc.NewVerifier(google, keys, &unsigned)
	return v
}

// Verify returns nil if the token is valid and belongs to the subscription.
func (v *Verifier) Verify(ctx context.Context, token string) error {
	if len(token) > 8192 {
		return fmt.Errorf("%w: too long", errToken)
	}
	// Check the claims before looking up the key: a token for a different audience must not trigger
	// a request to the issuer.
	id, err := v.claims.Verify(ctx, token)
	if err != nil {
		return fmt.Errorf("%w: %w", errToken, err)
	}
	var by struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
	}
	if err := id.Claims(&by); err != nil {
		return fmt.Errorf("%w: %w", errToken, err)
	}
	switch {
	case !slices.Equal(id.Audience, []string{v.audience}), v.account != "" && (by.Email != v.account || !by.Verified):
		return fmt.Errorf("%w: it is for a different audience or account", errToken)
	case v.fetch.now().Before(id.IssuedAt.Add(-clockSkew)):
		return fmt.Errorf("%w: it was issued in the future", errToken)
	}
	if _, err := v.signed.Verify(ctx, token); err != nil {
		// If the keys could not be fetched, the token may still be valid.
		if v.fetch.failed() {
			return fmt.Errorf("%w: %w", errKeys, err)
		}
		return fmt.Errorf("%w: %w", errToken, err)
	}
	return nil
}

// sparing fetches the issuer's keys and pauses after each fetch. It is an [http.RoundTripper]
// because go-oidc sends a request for every unknown key ID.
type sparing struct {
	now func() time.Time

	mu    sync.Mutex
	tried time.Time // time of the last fetch
	err   error     // error from the last fetch, or nil
}

// RoundTrip implements [http.RoundTripper].
func (s *sparing) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Sub(s.tried) <= fetchPause {
		return nil, cmp.Or(s.err, errors.New("the keys were fetched less than five seconds ago"))
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
		_ = resp.Body.Close()
	}
	s.tried, s.err = s.now(), err
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (s *sparing) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}
