package api

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
)

// StorageHookPath takes the pushes of storage's notifications.
const StorageHookPath = "/hooks/storage"

// Uploads looks for a finished upload at an object name.
type Uploads interface {
	Uploaded(ctx context.Context, object string) error
}

// Hooks adds the route that storage's notifications are pushed to. With a nil
// verifier they are refused.
func Hooks(a *httpapi.API, uploads Uploads, push *Verifier, log *slog.Logger) {
	h := hooks{uploads, push, log}
	a.Public(fiber.MethodPost, StorageHookPath, h.storageEvent)
}

type hooks struct {
	uploads Uploads
	push    *Verifier
	log     *slog.Logger
}

// storageEvent takes a Pub/Sub push about an object. Whatever it says, it only
// makes the pipeline look; a refusal makes Pub/Sub send it again later.
func (h hooks) storageEvent(c *fiber.Ctx) error {
	token, ok := strings.CutPrefix(c.Get(fiber.HeaderAuthorization), "Bearer ")
	if !ok || h.push == nil {
		return apierr.New(apierr.MissingAPIKey, "Send the identity token of the push subscription.")
	}
	if err := h.push.Verify(c.UserContext(), token); err != nil {
		// Not the sender's fault. Pub/Sub sends it again.
		if errors.Is(err, errKeys) {
			return apierr.Down(err)
		}
		h.log.DebugContext(c.UserContext(), "storage notification refused", "error", err)
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
		if err := h.uploads.Uploaded(c.UserContext(), attr["objectId"]); err != nil {
			return err
		}
	}
	return httpapi.NoContent(c)
}

// Verifier checks the identity tokens of one push subscription: signed with
// RS256 by a key the issuer publishes, for our audience, by the subscription's
// account, and of now.
type Verifier struct {
	Audience string
	Account  string // the e-mail address of the service account that pushes; "" for any that the issuer knows
	Issuers  []string
	CertsURL string // where the issuer publishes its keys (JWK set)
	Client   *http.Client
	Now      func() time.Time

	mu      sync.Mutex
	keys    map[string]*rsa.PublicKey
	fetched time.Time // when keys were
	tried   time.Time // the last fetch, also one that failed
	failure error     // of the last fetch
}

// GoogleIssuers and GoogleCerts are those of Google's identity tokens.
var GoogleIssuers = []string{"https://accounts.google.com", "accounts.google.com"}

// GoogleCerts is where Google publishes its keys.
const GoogleCerts = "https://www.googleapis.com/oauth2/v3/certs"

var (
	errToken = errors.New("identity token")
	errKeys  = errors.New("fetch the issuer's keys")
)

const clockSkew = time.Minute

// Verify answers nil for a token of the subscription.
func (v *Verifier) Verify(ctx context.Context, token string) error {
	parts := strings.Split(token, ".")
	if len(token) > 8192 || len(parts) != 3 {
		return fmt.Errorf("%w: not a signed token", errToken)
	}
	var header struct{ Alg, Kid string }
	var claims struct {
		Iss, Aud, Email string
		EmailVerified   bool `json:"email_verified"`
		Exp, Iat        int64
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err = errors.Join(err, part(parts[0], &header), part(parts[1], &claims)); err != nil {
		return fmt.Errorf("%w: %w", errToken, err)
	}
	if header.Alg != "RS256" {
		return fmt.Errorf("%w: algorithm %q", errToken, header.Alg)
	}
	// Claims are judged before the key is looked up: a token that is not for us must not make us
	// call the issuer.
	now := v.Now()
	switch {
	case claims.Aud != v.Audience, !contains(v.Issuers, claims.Iss), v.Account != "" && (claims.Email != v.Account || !claims.EmailVerified):
		return fmt.Errorf("%w: for another audience or by another account", errToken)
	case !now.Before(time.Unix(claims.Exp, 0).Add(clockSkew)), now.Before(time.Unix(claims.Iat, 0).Add(-clockSkew)):
		return fmt.Errorf("%w: not of now", errToken)
	}
	key, err := v.key(ctx, header.Kid)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature); err != nil {
		return fmt.Errorf("%w: %w", errToken, err)
	}
	return nil
}

// fetchPause is between two fetches of the issuer's keys, also when one has failed:
// pushes would otherwise wait one after the other for an issuer that does not answer.
const fetchPause = 5 * time.Second

// key finds a published key. Keys are fetched when one is not known, at most
// every few seconds, and once an hour.
func (v *Verifier) key(ctx context.Context, kid string) (*rsa.PublicKey, error) {
	// Held while fetching: one push asks the issuer, the others wait for its answer.
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.Now()
	key, age := v.keys[kid], now.Sub(v.fetched)
	if key != nil && age < time.Hour {
		return key, nil
	}
	if v.tried.IsZero() || now.Sub(v.tried) > fetchPause {
		// The sender may hang up, but the others wait for the same answer.
		keys, err := v.fetch(context.WithoutCancel(ctx))
		v.tried, v.failure = v.Now(), err
		if err == nil {
			v.keys, v.fetched = keys, now
			key = keys[kid]
		}
	}
	switch {
	case key != nil:
		return key, nil // while the issuer is away an older one counts; its keys change over days
	case v.failure != nil:
		return nil, v.failure
	}
	return nil, fmt.Errorf("%w: signed with an unknown key", errToken)
}

func (v *Verifier) fetch(ctx context.Context) (map[string]*rsa.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.CertsURL, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errKeys, err)
	}
	resp, err := v.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errKeys, err)
	}
	defer resp.Body.Close()
	var set struct {
		Keys []struct{ Kty, Kid, N, E string }
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err = errors.Join(err, json.Unmarshal(body, &set)); err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: status %d: %w", errKeys, resp.StatusCode, errors.Join(err, errToken))
	}
	keys := map[string]*rsa.PublicKey{}
	for _, k := range set.Keys {
		n, errN := base64.RawURLEncoding.DecodeString(k.N)
		e, errE := base64.RawURLEncoding.DecodeString(k.E)
		// Keys of other kinds, or below 2048 bits, are passed over and not an error of the whole set.
		if k.Kty != "RSA" || errN != nil || errE != nil || len(n) < 256 || len(e) == 0 || len(e) > 4 {
			continue
		}
		keys[k.Kid] = &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	}
	return keys, nil
}

func part(s string, dst any) error {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, dst)
}

func contains(set []string, s string) bool {
	for _, x := range set {
		if x == s {
			return true
		}
	}
	return false
}
