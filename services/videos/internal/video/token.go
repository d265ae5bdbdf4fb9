package video

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"
)

// Kind defines what a grant allows.
type Kind byte

// The kinds of grant.
const (
	// Unlocked is the grant in the cookie of a viewer who has entered the password.
	Unlocked Kind = 'u'
	// Returning is the grant in the longer-lived cookie of a viewer who has entered the video's
	// password before. It only gives access to a separate budget of password guesses.
	Returning Kind = 'r'
	// Watch lets a viewer's player fetch playlists. It is short-lived because the page's
	// player renews it during playback.
	Watch Kind = 'w'
	// WatchLong is like Watch, but for players that cannot renew it, so it is valid for the
	// whole video. Its playlists contain our own media URLs, which check access again.
	WatchLong Kind = 'l'
	// Own is the owner's grant, which the API returns. It does not need a password, and it ignores
	// the video's privacy and expiry. It is valid while the key or member that it was created for
	// may read videos.
	Own Kind = 'o'
)

// Grant is the permission in a token. It is valid for one video, at one revision of its access
// rule, until a given time.
type Grant struct {
	Kind    Kind
	Video   ID
	Access  int64
	Expires time.Time
	By      string // the key or member for whom an Own grant was created
}

// ErrToken means that we did not sign the token, or that it has been altered.
var ErrToken = errors.New("video: not a valid token")

// Keyring signs and verifies grants. It signs with the first secret and verifies with all of
// them, so a secret can be replaced without invalidating the tokens signed with it.
type Keyring struct{ keys [][]byte }

// MinSecret is the minimum length of a secret, in bytes.
const MinSecret = 32

// NewKeyring derives keys from secrets of at least MinSecret bytes.
func NewKeyring(secrets ...[]byte) (*Keyring, error) {
	if len(secrets) == 0 {
		return nil, errors.New("no token secret is configured")
	}
	k := &Keyring{}
	for _, s := range secrets {
		if len(s) < MinSecret {
			return nil, errors.New("a token secret is shorter than 32 bytes")
		}
		// The label keeps a grant from being valid elsewhere if another component uses the same
		// secret.
		k.keys = append(k.keys, mac(s, []byte("linkreel videos grant 1")))
	}
	return k, nil
}

const tagSize = 16

// Cursor returns the cursor that continues a list after a position. It is signed and bound to
// the account, so only cursors from the account's own lists are accepted.
func (k *Keyring) Cursor(account string, p Position) string {
	b := binary.AppendVarint(nil, p.Created.UnixMicro())
	b = append(b, p.ID...)
	// The account is signed too, so a cursor cannot continue another account's list. The prefix is
	// different from every kind of grant, so a cursor is never accepted as a token.
	b = append(b, mac(k.keys[0], []byte("cursor "+account), b)[:cursorTag]...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// Position parses a cursor returned by [Keyring.Cursor] for the account.
func (k *Keyring) Position(account, cursor string) (Position, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) <= cursorTag || len(b) > 256 {
		return Position{}, false
	}
	body, tag := b[:len(b)-cursorTag], b[len(b)-cursorTag:]
	ours := false
	for _, key := range k.keys {
		ours = hmac.Equal(mac(key, []byte("cursor "+account), body)[:cursorTag], tag) || ours
	}
	us, n := binary.Varint(body)
	if !ours || n <= 0 {
		return Position{}, false
	}
	return Position{Created: time.UnixMicro(us).UTC(), ID: ID(body[n:])}, true
}

const cursorTag = 8

// Sign returns the token for g. A token fits in a path segment or a cookie.
func (k *Keyring) Sign(g Grant) string {
	b := make([]byte, 0, 96)
	b = append(b, byte(g.Kind))
	b = binary.AppendVarint(b, g.Expires.UnixMilli())
	b = binary.AppendVarint(b, g.Access)
	b = binary.AppendUvarint(b, uint64(len(g.By)))
	b = append(b, g.By...)
	b = append(b, g.Video...)
	b = append(b, mac(k.keys[0], b)[:tagSize]...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// Verify parses a token and checks that we signed it. [Grant.Allows] reports whether it is
// still valid.
func (k *Keyring) Verify(token string) (Grant, error) {
	// Our own tokens are shorter. The limit bounds how much an attacker can make us decode and
	// hash.
	if len(token) > 256 {
		return Grant{}, ErrToken
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) <= tagSize {
		return Grant{}, ErrToken
	}
	body, tag := b[:len(b)-tagSize], b[len(b)-tagSize:]
	ours := false
	// Try all keys so that the timing does not reveal which key signed the token.
	for _, key := range k.keys {
		ours = hmac.Equal(mac(key, body)[:tagSize], tag) || ours
	}
	if !ours {
		return Grant{}, ErrToken
	}
	// The MAC covers body, so the checks below only prevent a panic on a malformed body.
	g := Grant{Kind: Kind(body[0])}
	body = body[1:]
	ms, n := binary.Varint(body)
	if n <= 0 {
		return Grant{}, ErrToken
	}
	body = body[n:]
	access, n := binary.Varint(body)
	if n <= 0 {
		return Grant{}, ErrToken
	}
	body = body[n:]
	by, n := binary.Uvarint(body)
	if n <= 0 || by > uint64(len(body)-n) {
		return Grant{}, ErrToken
	}
	body = body[n:]
	g.Expires, g.Access, g.By, g.Video = time.UnixMilli(ms), access, string(body[:by]), ID(body[by:])
	return g, nil
}

// Pseudonym returns a keyed hash of facts about a viewer. The hash changes every day and
// reveals nothing about the viewer, so a view can be counted once without storing who
// watched.
func (k *Keyring) Pseudonym(day time.Time, facts ...string) string {
	daily := mac(k.keys[0], []byte("viewer "+day.UTC().Format(time.DateOnly)))
	h := hmac.New(sha256.New, daily)
	for _, f := range facts {
		// The lengths distinguish ("ab", "c") from ("a", "bc").
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(f)))
		h.Write(size[:])
		h.Write([]byte(f))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

// Allows reports whether g allows watching v at now. A change to the access rule invalidates
// every grant except the owner's.
func (g Grant) Allows(v *Video, now time.Time) bool {
	if g.Video != v.ID || !now.Before(g.Expires) || g.Kind == Returning {
		return false
	}
	return g.Kind == Own || g.Access == v.Access && !v.Expired(now)
}

// GrantFor returns a grant for v with the given lifetime. A viewer's grant never outlives the
// video.
func GrantFor(v *Video, kind Kind, life time.Duration, now time.Time) Grant {
	until := now.Add(life)
	if kind != Own && !v.ExpiresAt.IsZero() && until.After(v.ExpiresAt) {
		until = v.ExpiresAt
	}
	return Grant{Kind: kind, Video: v.ID, Access: v.Access, Expires: until}
}

func mac(key []byte, message ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, m := range message {
		h.Write(m)
	}
	return h.Sum(nil)
}
