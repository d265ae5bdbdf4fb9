// Package seal encrypts values that must not be readable in a database or a browser, but that the
// services must be able to decrypt: private keys for certificates, signing secrets for webhooks,
// responses that are stored for replay, and the state of a sign-in between two steps.
//
// It uses AES-256-GCM with keys that HKDF (RFC 5869) derives from secret strings. A sealed value is
// bound to a name, so a copy in another record cannot be opened. [Key] is a single key. [Keys]
// holds several keys. It adds the key's id to each sealed value, so the key can be identified after
// a rotation. A [Rotation] finds the values that are still sealed with an old key.
package seal

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

// Key seals and opens. It is safe for concurrent use.
type Key struct {
	id   string
	aead cipher.AEAD
}

// Derive derives a key from a secret. A separate purpose gives each part of the program its own key
// from the same secret. A separate salt gives each record its own key; salt may be nil.
func Derive(secret string, salt []byte, purpose string) (*Key, error) {
	derived, err := hkdf.Key(sha256.New, []byte(secret), salt, purpose, 32)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	// The id is a hash of the derived key, so it reveals nothing about the key.
	sum := sha256.Sum256(append([]byte("id"), derived...))
	return &Key{string(sum[:idLen]), aead}, nil
}

// Seal encrypts plain and binds it to name. The result is a nonce and the ciphertext.
func (k *Key) Seal(name string, plain []byte) []byte { return k.seal("", name, plain) }

// seal is like Seal, but prepends before to the result.
func (k *Key) seal(before, name string, plain []byte) []byte {
	n := len(before) + k.aead.NonceSize()
	out := make([]byte, n, n+len(plain)+k.aead.Overhead())
	nonce := out[copy(out, before):]
	_, _ = rand.Read(nonce) // never fails
	return k.aead.Seal(out, nonce, plain, []byte(name))
}

// Open is the inverse of Seal. It fails if the value was changed, sealed with another key, or
// sealed under another name.
func (k *Key) Open(name string, sealed []byte) ([]byte, error) {
	n := k.aead.NonceSize()
	if len(sealed) < n {
		return nil, errors.New("the sealed value is too short")
	}
	plain, err := k.aead.Open(nil, sealed[:n], sealed[n:], []byte(name))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return plain, nil
}

// Keys seals and opens values with several keys. It is safe for concurrent use.
type Keys struct {
	keys []*Key // the first one seals
}

const (
	minKey = 32 // minimum length of a key's text in characters, so that it cannot be guessed
	idLen  = 4  // bytes
)

// ErrKey means that none of the keys can open a sealed value.
var ErrKey = errors.New("sealed with an unknown key")

// New derives a key from each part of text, which contains one or more comma-separated parts. The
// first key is used to seal, and all keys are used to open. Repeated parts count once. purpose is
// as for [Derive].
func New(purpose, text string) (*Keys, error) {
	k := &Keys{}
	for secret := range strings.SplitSeq(text, ",") {
		secret = strings.TrimSpace(secret)
		if len(secret) < minKey {
			return nil, fmt.Errorf("a key is %d characters long; use at least %d random characters", len(secret), minKey)
		}
		key, err := Derive(secret, nil, purpose)
		if err != nil {
			return nil, err
		}
		if !k.Has([]byte(key.id)) {
			k.keys = append(k.keys, key)
		}
	}
	return k, nil
}

// ID returns the id of the first key, which seals.
func (k *Keys) ID() string { return k.IDs()[0] }

// OlderIDs returns the ids of the other keys, which only open.
func (k *Keys) OlderIDs() []string { return k.IDs()[1:] }

// IDs returns the ids of all keys. The first id is the sealing key's.
func (k *Keys) IDs() (ids []string) {
	for _, key := range k.keys {
		ids = append(ids, hex.EncodeToString([]byte(key.id)))
	}
	return ids
}

// IDOf returns the id of the key that sealed a value, or "" if sealed is too short.
func IDOf(sealed []byte) string {
	if len(sealed) < idLen {
		return ""
	}
	return hex.EncodeToString(sealed[:idLen])
}

// Has reports whether k contains a sealed value's key.
func (k *Keys) Has(sealed []byte) bool { return k.find(sealed) != nil }

func (k *Keys) find(sealed []byte) *Key {
	for _, key := range k.keys {
		if strings.HasPrefix(string(sealed[:min(idLen, len(sealed))]), key.id) {
			return key
		}
	}
	return nil
}

// Seal encrypts plain and binds it to name. The result is the key's id and the result
// of [Key.Seal].
func (k *Keys) Seal(name string, plain []byte) []byte {
	first := k.keys[0]
	return first.seal(first.id, name, plain)
}

// Open is the inverse of Seal. It returns ErrKey if the value's key is missing, and a different
// error if the value was changed or sealed under another name.
func (k *Keys) Open(name string, sealed []byte) ([]byte, error) {
	key := k.find(sealed)
	if key == nil {
		return nil, fmt.Errorf("%w (%s)", ErrKey, IDOf(sealed))
	}
	return key.Open(name, sealed[idLen:])
}
