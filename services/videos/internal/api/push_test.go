package api

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// issuer is a fake token issuer. It signs tokens and serves its public key.
type issuer struct {
	key     *rsa.PrivateKey
	server  *httptest.Server
	fetches atomic.Int64
	down    atomic.Bool
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	i.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.fetches.Add(1)
		if i.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		enc := base64.RawURLEncoding.EncodeToString
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{
			map[string]string{"kty": "AKP", "kid": "other", "alg": "ML-DSA-65", "pub": "AAAA"},
			map[string]string{"kty": "RSA", "kid": "k1", "alg": "RS256", "n": enc(key.N.Bytes()), "e": enc(big.NewInt(int64(key.E)).Bytes())},
		}})
	}))
	t.Cleanup(i.server.Close)
	return i
}

func (i *issuer) token(t *testing.T, header, claims map[string]any) string {
	t.Helper()
	part := func(m map[string]any) string {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	signed := part(header) + "." + part(claims)
	sum := sha256.Sum256([]byte(signed))
	sig, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func TestVerifier(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	header := map[string]any{"alg": "RS256", "kid": "k1", "typ": "JWT"}
	claims := map[string]any{
		"iss": "https://accounts.google.com", "aud": "https://app.example.com/hooks/storage", "email": "push@example.iam.gserviceaccount.com",
		"email_verified": true, "iat": now.Unix(), "exp": now.Unix() + 3600,
	}
	with := func(m map[string]any, key string, value any) map[string]any {
		m = maps.Clone(m)
		m[key] = value
		return m
	}
	good := i.token(t, header, claims)
	none := strings.Join([]string{base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"k1"}`)), strings.Split(good, ".")[1], ""}, ".")
	for name, tc := range map[string]struct {
		token string
		ok    bool
	}{
		"valid token":                {good, true},
		"issuer without a scheme":    {i.token(t, header, with(claims, "iss", "accounts.google.com")), true},
		"wrong audience":             {i.token(t, header, with(claims, "aud", "https://other.example.com")), false},
		"wrong account":              {i.token(t, header, with(claims, "email", "someone@example.iam.gserviceaccount.com")), false},
		"unverified account":         {i.token(t, header, with(claims, "email_verified", false)), false},
		"wrong issuer":               {i.token(t, header, with(claims, "iss", "https://evil.example")), false},
		"expired token":              {i.token(t, header, with(claims, "exp", now.Unix()-61)), false},
		"token issued in the future": {i.token(t, header, with(claims, "iat", now.Unix()+61)), false},
		"unknown key":                {i.token(t, with(header, "kid", "k2"), claims), false},
		"wrong algorithm":            {i.token(t, with(header, "alg", "HS256"), claims), false},
		"algorithm none":             {none, false},
		"tampered signature":         {good[:len(good)-4] + "AAAA", false},
		"tampered claim":             {strings.Replace(good, strings.Split(good, ".")[1], strings.Split(i.token(t, header, with(claims, "aud", "x")), ".")[1], 1), false},
		"empty token":                {"", false},
		"token with two parts":       {"a.b", false},
		"token that is too long":     {strings.Repeat("a", 10_000) + ".b.c", false},
		"token that is not base64":   {"*.*.*", false},
		"list of audiences":          {i.token(t, header, with(claims, "aud", []string{"https://app.example.com/hooks/storage", "x"})), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := NewVerifier("https://app.example.com/hooks/storage", "push@example.iam.gserviceaccount.com", i.server.URL,
				func() time.Time { return now })
			if err := v.Verify(context.Background(), tc.token); (err == nil) != tc.ok {
				t.Errorf("Verify returned error %v, want success = %v", err, tc.ok)
			}
		})
	}
}

func TestVerifierKeepsKeysAndFetchesSparingly(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	v := NewVerifier("a", "", i.server.URL, func() time.Time { return now })
	token := func(kid string) string {
		return i.token(t, map[string]any{"alg": "RS256", "kid": kid}, map[string]any{"iss": google, "aud": "a", "iat": now.Unix(), "exp": now.Unix() + 3600})
	}
	i.down.Store(true)
	if err := v.Verify(t.Context(), token("k1")); !errors.Is(err, errKeys) {
		t.Errorf("Verify without keys returned %v, want %v", err, errKeys)
	}
	for range 20 {
		if err := v.Verify(t.Context(), token("k1")); !errors.Is(err, errKeys) {
			t.Errorf("Verify right after a failed fetch returned %v, want %v", err, errKeys)
		}
	}
	if n := i.fetches.Load(); n != 1 {
		t.Errorf("got %d fetches from an unreachable issuer in five seconds, want 1", n)
	}
	i.down.Store(false)
	i.fetches.Store(0)
	// Repeat the call because it may join the failed fetch until the library has discarded that
	// fetch.
	for tries := 0; i.fetches.Load() == 0 && tries < 1000; tries++ {
		now = now.Add(fetchPause + time.Second)
		_ = v.Verify(t.Context(), token("k1"))
	}
	for range 20 {
		if err := v.Verify(t.Context(), token("k1")); err != nil {
			t.Fatal(err)
		}
		_ = v.Verify(t.Context(), token("forged"))
	}
	if n := i.fetches.Load(); n != 1 {
		t.Errorf("got %d fetches for 40 tokens, want 1", n)
	}
	now = now.Add(2 * time.Hour)
	i.down.Store(true)
	if err := v.Verify(t.Context(), token("k1")); err != nil {
		t.Errorf("Verify with a cached key and an unreachable issuer returned %v, want nil", err)
	}
}
