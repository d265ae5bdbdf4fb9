package apikey

import (
	"context"
	"errors"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
)

// ErrUnknownKey is the answer of a [Source] that has looked and found no key.
// Any other error means that it could not look.
var ErrUnknownKey = errors.New("unknown API key")

// Source knows the keys.
type Source interface {
	// Verify finds the key with the hash that [identity.Key.Hash] gives, with
	// its account. The record must hold every change that was committed before
	// the call began, and its parts must fit together: a version belongs to all
	// changes up to it. Revoked and expired keys and suspended accounts are
	// records too. A key that does not exist is ErrUnknownKey.
	Verify(ctx context.Context, hash string) (*Record, error)
}

// Record is what is known of a key and its account. It is shared between
// requests and never changed.
type Record struct {
	identity.Principal
	Revoked bool
	// ExpiresAt is in milliseconds since 1970, or [Never]. Callers may name the end of a
	// key in a year that JSON's form of a time cannot hold.
	ExpiresAt int64

	// Version grows with each change of what the account or any of its keys may do.
	Version int64
}

// Never is the ExpiresAt of a key without an end: what [time.Time.UnixMilli] gives for the
// zero time.
const Never = -62135596800000

// refusal is why a known key is not accepted at now; nil if it is. Both reasons
// are final: a revoked or expired key never comes back, so nothing newer has to
// be asked to refuse it.
func (r *Record) refusal(now time.Time) error {
	switch {
	case r.Revoked:
		if r.Session {
			return apierr.New(apierr.APIKeyRevoked, "This session has ended. Sign in again.")
		}
		return apierr.New(apierr.APIKeyRevoked, "This API key has been revoked.")
	case r.ExpiresAt != Never && now.UnixMilli() >= r.ExpiresAt:
		if r.Session {
			return apierr.New(apierr.APIKeyExpired, "This session has expired. Sign in again.")
		}
		return apierr.New(apierr.APIKeyExpired, "This API key has expired.")
	}
	return nil
}

func (r *Record) check() error {
	if r.KeyID == "" || r.AccountID == "" || r.Version < 1 || r.PerMinute < 1 || r.Plan < identity.Free || r.Plan > identity.Enterprise {
		return errors.New("incomplete key record")
	}
	// The session of somebody who was removed is revoked, and has no role any more.
	if r.Session && (r.MemberID == "" || !r.Revoked && !r.Role.AtLeast(identity.Viewer)) {
		return errors.New("session record without a member")
	}
	return nil
}
