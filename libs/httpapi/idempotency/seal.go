package idempotency

import (
	"bytes"
	"compress/flate"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/linkreel/linkreel/libs/identity"
)

// seals are the two keys under which an answer may be kept. Both are derived
// from the Idempotency-Key, of which only a hash is stored. The bound one needs
// the caller's API key too: it is for answers that hold a new API key, which
// nobody who reads the database may learn.
type seals struct{ bound, plain []byte }

const sealKeySize = 32

func newSeals(r BeginRequest, id string) (seals, error) {
	derive := func(secret, info string) ([]byte, error) {
		return hkdf.Key(sha256.New, []byte(secret+"\x00"+r.Key), []byte(id), "linkreel idempotency 1 "+info, sealKeySize)
	}
	bound, err := derive(r.Secret, "bound")
	if err != nil {
		return seals{}, fmt.Errorf("derive seal: %w", err)
	}
	plain, err := derive(r.Account, "plain")
	if err != nil {
		return seals{}, fmt.Errorf("derive seal: %w", err)
	}
	return seals{bound: bound, plain: plain}, nil
}

// documentID names a request's record by hash, so that a caller's text is never
// a document path and a guessed key cannot be read back.
func documentID(r BeginRequest) string {
	h := sha256.New()
	for _, part := range []string{r.Account, r.Route, r.Key} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// holdsSecret reports whether an answer hands out an API key, a one-time link, or
// a webhook's signing secret.
func holdsSecret(r Response) bool {
	for _, prefix := range []string{identity.KeyPrefix, identity.LinkPrefix, webhookSecretPrefix} {
		if bytes.Contains(r.Body, []byte(prefix)) {
			return true
		}
	}
	return false
}

// webhookSecretPrefix starts the secrets of Standard Webhooks.
const webhookSecretPrefix = "whsec_"

var errOtherSecret = errors.New("sealed for another API key")

// close compresses and encrypts an answer. bound says which key was used.
func (s seals) close(id string, answer Response) (text []byte, bound bool, err error) {
	plain, err := json.Marshal(answer)
	if err != nil {
		return nil, false, fmt.Errorf("encode answer: %w", err)
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		return nil, false, fmt.Errorf("compress answer: %w", err)
	}
	if _, err := w.Write(plain); err != nil {
		return nil, false, fmt.Errorf("compress answer: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, false, fmt.Errorf("compress answer: %w", err)
	}
	bound = holdsSecret(answer)
	aead, err := newAEAD(s.key(bound))
	if err != nil {
		return nil, false, err
	}
	nonce := make([]byte, aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, false, fmt.Errorf("seal answer: %w", err)
	}
	return aead.Seal(nonce, nonce, packed.Bytes(), []byte(id)), bound, nil
}

func (s seals) open(id string, text []byte, bound bool) (*Response, error) {
	aead, err := newAEAD(s.key(bound))
	if err != nil {
		return nil, err
	}
	if len(text) < aead.NonceSize() {
		return nil, errors.New("sealed answer is too short")
	}
	packed, err := aead.Open(nil, text[:aead.NonceSize()], text[aead.NonceSize():], []byte(id))
	if err != nil && bound {
		return nil, errOtherSecret
	}
	if err != nil {
		return nil, fmt.Errorf("open sealed answer: %w", err)
	}
	plain, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
	if err != nil {
		return nil, fmt.Errorf("open sealed answer: %w", err)
	}
	var answer Response
	if err := json.Unmarshal(plain, &answer); err != nil {
		return nil, fmt.Errorf("open sealed answer: %w", err)
	}
	return &answer, nil
}

func (s seals) key(bound bool) []byte {
	if bound {
		return s.bound
	}
	return s.plain
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return aead, nil
}
