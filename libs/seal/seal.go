// Package seal encrypts the few values that must be read again and that whoever
// reads a database, or a browser, must not learn: private keys of certificates,
// secrets that webhooks are signed with, what a sign-in keeps between two steps.
//
// It is AES-256-GCM under keys that are derived from long texts by HKDF (RFC 5869).
// What is sealed is bound to a name: copied to another record it does not open. It
// names its key too, so that keys are rotated without guessing, and a sweep finds
// what an old key still seals.
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

// Keys seal and open. They are safe for concurrent use.
type Keys struct {
	aeads []keyed // the first one seals
}

type keyed struct {
	id string
	cipher.AEAD
}

const (
	// MinKey is how many characters a key needs, so that it cannot be guessed.
	MinKey = 32
	idLen  = 4 // bytes
)

// ErrKey says that none of the keys opens what was sealed.
var ErrKey = errors.New("sealed with a key that is not here")

// New reads one or more keys, separated by commas: the first one seals, all of them
// open. purpose keeps apart what different parts seal with one text.
func New(purpose, text string) (*Keys, error) {
	k := &Keys{}
	for key := range strings.SplitSeq(text, ",") {
		key = strings.TrimSpace(key)
		if len(key) < MinKey {
			return nil, fmt.Errorf("a key has %d characters; use at least %d random ones", len(key), MinKey)
		}
		derived, err := hkdf.Key(sha256.New, []byte(key), nil, purpose, 32)
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
		// The id tells nothing about the key: it comes from the derived one by a hash.
		sum := sha256.Sum256(append([]byte("id"), derived...))
		k.aeads = append(k.aeads, keyed{string(sum[:idLen]), aead})
	}
	return k, nil
}

// ID names the key that seals.
func (k *Keys) ID() string { return hex.EncodeToString([]byte(k.aeads[0].id)) }

// IDOf names the key that something was sealed with; "" when nothing was.
func IDOf(sealed []byte) string {
	if len(sealed) < idLen {
		return ""
	}
	return hex.EncodeToString(sealed[:idLen])
}

// Has reports whether the key is there for what was sealed.
func (k *Keys) Has(sealed []byte) bool { return k.find(sealed) != nil }

func (k *Keys) find(sealed []byte) cipher.AEAD {
	for _, a := range k.aeads {
		if strings.HasPrefix(string(sealed[:min(idLen, len(sealed))]), a.id) {
			return a
		}
	}
	return nil
}

// Seal encrypts plain and binds it to name.
func (k *Keys) Seal(name string, plain []byte) []byte {
	first := k.aeads[0]
	out := append([]byte(first.id), make([]byte, first.NonceSize())...)
	nonce := out[idLen:]
	_, _ = rand.Read(nonce) // never fails
	return first.AEAD.Seal(out, nonce, plain, []byte(name))
}

// Open is the inverse of Seal. What lacks its key is ErrKey; what was changed, or
// sealed under another name, is another error.
func (k *Keys) Open(name string, sealed []byte) ([]byte, error) {
	aead := k.find(sealed)
	if aead == nil {
		return nil, fmt.Errorf("%w (%s)", ErrKey, IDOf(sealed))
	}
	if sealed = sealed[idLen:]; len(sealed) < aead.NonceSize() {
		return nil, errors.New("what was sealed is not whole")
	}
	plain, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], []byte(name))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return plain, nil
}
