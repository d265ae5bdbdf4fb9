package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	randv2 "math/rand/v2"
	"slices"
	"strings"
)

// KeyPrefix is the prefix of API keys. People and secret scanners recognise keys by this prefix.
const KeyPrefix = "lr_live_"

// SessionPrefix is the prefix of session keys, which the console receives at sign-in. They have the
// same format and checks as API keys.
const SessionPrefix = "lr_sess_" // same length as KeyPrefix

// LinkPrefix is the prefix of the token in a one-time link, for sign-in or an invitation.
const LinkPrefix = "lr_link_" // same length as KeyPrefix

const (
	keyRandom   = 32 // Base62 characters: 190 bits
	keyChecksum = 6  // CRC32 of the preceding characters, in Base62
	keyLength   = len(KeyPrefix) + keyRandom + keyChecksum
)

// ErrMalformedKey means that a string cannot be a key because its prefix, length, alphabet or
// checksum is wrong. Detecting this does not require I/O.
var ErrMalformedKey = errors.New("malformed API key")

// Key is the full text of an API key. It is formatted as [redacted], to keep the text out of log
// lines and errors. Use Secret to get the text.
type Key struct{ text string }

// NewKey generates a key from random (crypto/rand.Reader in production).
func NewKey(random io.Reader) Key { return newKey(KeyPrefix, random) }

// NewSession generates a session key.
func NewSession(random io.Reader) Key { return newKey(SessionPrefix, random) }

// NewLink generates the token for a one-time link.
func NewLink(random io.Reader) Key { return newKey(LinkPrefix, random) }

func newKey(prefix string, random io.Reader) Key {
	text := prefix + randomText(random, Base62, keyRandom)
	return Key{text + checksum(text)}
}

// ParseLink parses the token from a one-time link.
func ParseLink(s string) (Key, error) { return ParseKey(s, LinkPrefix) }

// ParseKey parses a key that starts with one of the prefixes. It detects malformed keys without
// I/O.
func ParseKey(s string, prefixes ...string) (Key, error) {
	if len(s) != keyLength || !slices.Contains(prefixes, s[:len(KeyPrefix)]) {
		return Key{}, ErrMalformedKey
	}
	for i := len(KeyPrefix); i < len(s); i++ {
		if strings.IndexByte(Base62, s[i]) < 0 {
			return Key{}, ErrMalformedKey
		}
	}
	if cut := keyLength - keyChecksum; checksum(s[:cut]) != s[cut:] {
		return Key{}, ErrMalformedKey
	}
	return Key{s}, nil
}

// IsSession reports whether the key belongs to a session.
func (k Key) IsSession() bool { return strings.HasPrefix(k.text, SessionPrefix) }

// Secret returns the full text, to be shown once or sent as a bearer token.
func (k Key) Secret() string { return k.text }

// Hash returns the hex SHA-256 under which a key is stored. A fast hash is sufficient because the
// key has 190 random bits.
func (k Key) Hash() string {
	sum := sha256.Sum256([]byte(k.text))
	return hex.EncodeToString(sum[:])
}

// Prefix returns the start of the key, which is safe to show: the fixed part and four characters.
func (k Key) Prefix() string { return k.text[:len(KeyPrefix)+4] }

// Last4 returns the last four characters of the key, which are safe to show.
func (k Key) Last4() string { return k.text[len(k.text)-4:] }

func (k Key) String() string { return "[redacted]" }

// GoString prevents %#v from printing the key.
func (k Key) GoString() string { return "identity.Key{[redacted]}" }

func checksum(s string) string {
	n := crc32.ChecksumIEEE([]byte(s))
	out := make([]byte, keyChecksum)
	for i := keyChecksum - 1; i >= 0; i-- {
		out[i] = Base62[n%62]
		n /= 62
	}
	return string(out)
}

const (
	// Base62 is the alphabet of identifiers, in byte order.
	Base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	// slugAlphabet has no characters that look or sound alike.
	slugAlphabet = "23456789abcdefghjkmnpqrstuvwxyz"
)

// NewID returns a random identifier such as lnk_4fK…: 22 base62 characters, 131 bits. It is not
// ordered by time, so new records are not all written to the end of an index.
func NewID(prefix string) string {
	return prefix + "_" + randomText(rand.Reader, Base62, 22)
}

// IDFrom derives an id from seed. The same seed gives the same id, so a repeated request finds the
// record of its first attempt.
func IDFrom(prefix string, seed string) string {
	return prefix + "_" + textFrom("id\x00"+prefix+"\x00"+seed, Base62, 22)
}

// maxID is longer than any id that Linkreel creates.
const maxID = 64

// ValidID reports whether a string has the form of an id. Check every id from a caller before using
// it as a document name: Firestore reserves names between double underscores, and a slash would
// address another document.
func ValidID(id string) bool {
	if id == "" || len(id) > maxID || strings.HasPrefix(id, "__") {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// NewSlug returns n random characters from a lower-case alphabet without look-alikes.
func NewSlug(n int) string { return randomText(rand.Reader, slugAlphabet, n) }

// SlugFrom derives a slug from seed; see [IDFrom].
func SlugFrom(seed string, n int) string { return textFrom("slug\x00"+seed, slugAlphabet, n) }

// NewNonce returns at least 128 random bits as text.
func NewNonce() string { return randomText(rand.Reader, Base62, 22) }

func textFrom(seed, alphabet string, n int) string {
	return randomText(randv2.NewChaCha8(sha256.Sum256([]byte(seed))), alphabet, n)
}

// randomText generates n characters without bias: it drops bytes past the largest multiple of the
// alphabet's length. It panics if the source fails. crypto/rand.Reader never fails.
func randomText(r io.Reader, alphabet string, n int) string {
	limit := 256 / len(alphabet) * len(alphabet)
	out := make([]byte, 0, n)
	buf := make([]byte, n+8)
	for len(out) < n {
		if _, err := io.ReadFull(r, buf); err != nil {
			panic(err)
		}
		for _, b := range buf {
			if int(b) < limit && len(out) < n {
				out = append(out, alphabet[int(b)%len(alphabet)])
			}
		}
	}
	return string(out)
}
