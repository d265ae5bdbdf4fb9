package storage

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// serviceAccount is a key file in Google's format together with its parsed key.
type serviceAccount struct {
	Type      string `json:"type"`
	Project   string `json:"project_id"`
	KeyID     string `json:"private_key_id"`
	PEM       string `json:"private_key"`
	Email     string `json:"client_email"`
	ClientID  string `json:"client_id"`
	TokenURI  string `json:"token_uri,omitempty"`
	Universe  string `json:"universe_domain,omitempty"`
	private   *rsa.PrivateKey
	fileBytes []byte
}

// ServiceAccountKey returns the server's service account key file. The server accepts everything
// signed with this key. The first Open generates the key and stores it in Dir.
func (s *Server) ServiceAccountKey() []byte { return append([]byte(nil), s.key.fileBytes...) }

func ownKey(o Options) (*serviceAccount, error) {
	if o.Key != nil {
		return parseKey(o.Key)
	}
	token := ""
	if o.APIURL != "" {
		token = strings.TrimSuffix(o.APIURL, "/") + "/token"
	}
	return loadKey(o.Dir, "service-account.json", token)
}

// loadKey reads a key file in dir or generates it. If the token URL has changed, it updates the
// file because ports may change between runs.
func loadKey(dir, name, tokenURI string) (*serviceAccount, error) {
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newKey(path, tokenURI)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the key file: %w", err)
	}
	k, err := parseKey(b)
	if err != nil || tokenURI == "" || k.TokenURI == tokenURI {
		return k, err
	}
	k.TokenURI = tokenURI
	return k, k.save(path)
}

func newKey(path, tokenURI string) (*serviceAccount, error) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("cannot generate a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the key: %w", err)
	}
	k := &serviceAccount{Type: "service_account", Project: "local", KeyID: randomHex(20), private: private,
		PEM:   string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		Email: "storage@local.iam.gserviceaccount.com", ClientID: "100000000000000000000", TokenURI: tokenURI, Universe: "googleapis.com"}
	return k, k.save(path)
}

// save writes a temporary file and renames it, so a crash leaves either the complete file or none.
func (k *serviceAccount) save(path string) (err error) {
	if k.fileBytes, err = json.MarshalIndent(k, "", "  "); err != nil { //nolint:gosec // the file is there to hold the key
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write the key file: %w", err)
	}
	_, err = f.Write(k.fileBytes)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("cannot write the key file: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

func parseKey(b []byte) (*serviceAccount, error) {
	k := &serviceAccount{fileBytes: b}
	if err := json.Unmarshal(b, k); err != nil {
		return nil, fmt.Errorf("cannot parse the key file: %w", err)
	}
	block, _ := pem.Decode([]byte(k.PEM))
	if block == nil || k.Email == "" {
		return nil, errors.New("cannot parse the key file: it has no private_key or no client_email")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		// Also accept the older format, PKCS #1. Google's clients can also read it, and helm
		// generates it.
		var pkcs1Err error
		if key, pkcs1Err = x509.ParsePKCS1PrivateKey(block.Bytes); pkcs1Err != nil {
			return nil, fmt.Errorf("cannot parse the key file: %w", err)
		}
	}
	private, ok := key.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("cannot parse the key file: it has no RSA key")
	}
	k.private = private
	return k, nil
}

// jwt signs claims with RS256.
func (k *serviceAccount) jwt(claims map[string]any) (string, error) {
	part := func(v any) string {
		b, _ := json.Marshal(v) // strings and numbers can always be encoded
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(map[string]string{"alg": "RS256", "kid": k.KeyID, "typ": "JWT"}) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(nil, k.private, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("cannot sign a token: %w", err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}

// certs responds with the public key for push tokens as a JWK set.
func (s *Server) certs(w http.ResponseWriter, r *http.Request) {
	k, err := s.oidc()
	if err != nil {
		writeJSONError(w, s.asAPIError(r, err))
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=300")
	_ = writeJSON(w, map[string]any{"keys": []map[string]string{{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": k.KeyID,
		"n": base64.RawURLEncoding.EncodeToString(k.private.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(k.private.E)).Bytes())}}})
}

// token exchanges an assertion signed with the service account's key for the access token. The
// access token is Options.Token, or an arbitrary string if callers do not need one. Google's
// clients request the token automatically if they have the key file.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	refuse := func(why string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "error_description": why})
	}
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	head, rest, ok := strings.Cut(r.PostFormValue("assertion"), ".")
	claims, sig64, ok2 := strings.Cut(rest, ".")
	sig, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(sig64, "="))
	if !ok || !ok2 || err != nil {
		refuse("no assertion")
		return
	}
	sum := sha256.Sum256([]byte(head + "." + claims))
	if rsa.VerifyPKCS1v15(&s.key.private.PublicKey, crypto.SHA256, sum[:], sig) != nil {
		refuse("the assertion is not signed by the service account's key")
		return
	}
	// The same key also signs this server's push tokens. Their issuer is different, so they are
	// rejected here.
	var c struct {
		Iss string
		Exp int64
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(claims, "="))
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || c.Iss != s.key.Email || s.clock().After(time.Unix(c.Exp, 0)) {
		refuse("the assertion is malformed or expired")
		return
	}
	token := s.tokens.First()
	if token == "" {
		token = "local-" + randomHex(16)
	}
	_ = writeJSON(w, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
}
