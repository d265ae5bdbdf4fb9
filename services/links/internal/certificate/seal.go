package certificate

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Sealer encrypts private keys. Whoever reads the database alone learns none.
//
// What is sealed names its key, so that keys can be rotated without guessing and
// so that the sweep finds what an old key still seals.
type Sealer struct {
	keys map[string]cipher.AEAD
	id   string // of the key that seals
}

const (
	minKey = 32 // characters, so that a key cannot be guessed
	idLen  = 4  // bytes
)

// ErrSealed says that no key opens what was sealed.
var ErrSealed = errors.New("LINKREEL_CERTIFICATE_KEY does not have the key that this was sealed with")

// NewSealer reads one or more keys, separated by commas. The first one seals; all
// of them open.
func NewSealer(text string) (*Sealer, error) {
	s := &Sealer{keys: map[string]cipher.AEAD{}}
	for key := range strings.SplitSeq(text, ",") {
		key = strings.TrimSpace(key)
		if len(key) < minKey {
			return nil, fmt.Errorf("LINKREEL_CERTIFICATE_KEY: a key has %d characters; use at least %d random ones", len(key), minKey)
		}
		derived, err := hkdf.Key(sha256.New, []byte(key), nil, "linkreel certificate 1", 32)
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
		// The id tells nothing about the key: it comes from the derived one by a hash.
		sum := sha256.Sum256(append([]byte("id"), derived...))
		id := string(sum[:idLen])
		if s.id == "" {
			s.id = id
		}
		s.keys[id] = aead
	}
	return s, nil
}

// KeyID names the key that seals.
func (s *Sealer) KeyID() string { return hex.EncodeToString([]byte(s.id)) }

// KeyOf names the key that something was sealed with; "" when nothing was.
func KeyOf(sealed []byte) string {
	if len(sealed) < idLen {
		return ""
	}
	return hex.EncodeToString(sealed[:idLen])
}

// Has reports whether a key is there for what was sealed.
func (s *Sealer) Has(sealed []byte) bool {
	return len(sealed) >= idLen && s.keys[string(sealed[:idLen])] != nil
}

// Seal binds plain to name: copied to another record it does not open.
func (s *Sealer) Seal(name string, plain []byte) []byte {
	aead := s.keys[s.id]
	out := append([]byte(s.id), make([]byte, aead.NonceSize())...)
	nonce := out[idLen:]
	_, _ = rand.Read(nonce) // never fails
	return aead.Seal(out, nonce, plain, []byte(name))
}

// Open is the inverse of Seal.
func (s *Sealer) Open(name string, sealed []byte) ([]byte, error) {
	if len(sealed) < idLen {
		return nil, ErrSealed
	}
	aead, ok := s.keys[string(sealed[:idLen])]
	if !ok {
		return nil, fmt.Errorf("%w (%s)", ErrSealed, KeyOf(sealed))
	}
	if sealed = sealed[idLen:]; len(sealed) < aead.NonceSize() {
		return nil, ErrSealed
	}
	plain, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], []byte(name))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return plain, nil
}
