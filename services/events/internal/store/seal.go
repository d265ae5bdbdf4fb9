package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
)

// Sealer encrypts webhooks' secrets: unlike API keys they must be read again, to
// sign with. Whoever reads the database alone learns none.
type Sealer struct{ keys []cipher.AEAD }

// minKey is how long a sealing key must be, so that it cannot be guessed.
const minKey = 32

// NewSealer reads one or more keys, separated by commas. The first one seals; all
// of them open, so that a key can be replaced: put the new one in front, and
// drop the old one when every secret has been rolled.
func NewSealer(text string) (*Sealer, error) {
	s := &Sealer{}
	for key := range strings.SplitSeq(text, ",") {
		key = strings.TrimSpace(key)
		if len(key) < minKey {
			return nil, fmt.Errorf("a key has %d characters; use at least %d random ones", len(key), minKey)
		}
		derived, err := hkdf.Key(sha256.New, []byte(key), nil, "linkreel webhook secret 1", 32)
		if err != nil {
			return nil, fmt.Errorf("derive sealing key: %w", err)
		}
		block, err := aes.NewCipher(derived)
		if err != nil {
			return nil, fmt.Errorf("sealing key: %w", err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("sealing key: %w", err)
		}
		s.keys = append(s.keys, aead)
	}
	return s, nil
}

// seal binds text to id: copied to another webhook it does not open.
func (s *Sealer) seal(id, text string) []byte {
	nonce := make([]byte, s.keys[0].NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return s.keys[0].Seal(nonce, nonce, []byte(text), []byte(id))
}

func (s *Sealer) open(id string, sealed []byte) (string, error) {
	for _, key := range s.keys {
		if len(sealed) < key.NonceSize() {
			break
		}
		text, err := key.Open(nil, sealed[:key.NonceSize()], sealed[key.NonceSize():], []byte(id))
		if err == nil {
			return string(text), nil
		}
	}
	return "", errors.New("a webhook's secret does not open: LINKREEL_WEBHOOK_SECRET_KEY is not the key it was sealed with")
}
