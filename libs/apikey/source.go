package apikey

import (
	"context"
	"errors"
	"fmt"
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
	KeyID     string
	KeyName   string
	Scopes    identity.ScopeSet
	ExpiresAt time.Time // zero: never
	RevokedAt time.Time // zero: not revoked

	// Session is set for a session of the member below; for an API key the
	// member is who made it, if a member did.
	Session    bool
	MemberID   string
	MemberName string
	Role       identity.Role

	AccountID   string
	AccountName string
	Plan        identity.Plan
	Suspended   bool

	PerMinute int // requests a minute; 0: the plan's usual rate
	Quotas    identity.Quotas

	// Version grows with each change of what the account or any of its keys may do.
	Version int64
}

// Rate is a plan's usual number of requests a minute.
func Rate(p identity.Plan) int {
	switch p {
	case identity.Enterprise:
		return 3000
	case identity.Business:
		return 1200
	case identity.Creator:
		return 600
	default:
		return 60
	}
}

func (r *Record) rate() int {
	if r.PerMinute > 0 {
		return r.PerMinute
	}
	return Rate(r.Plan)
}

// refusal is why a known key is not accepted at now; nil if it is. Both reasons
// are final: a revoked or expired key never comes back, so nothing newer has to
// be asked to refuse it.
func (r *Record) refusal(now time.Time) error {
	switch {
	case !r.RevokedAt.IsZero() && !now.Before(r.RevokedAt):
		if r.Session {
			return apierr.New(apierr.APIKeyRevoked, "This session has ended. Sign in again.")
		}
		return apierr.New(apierr.APIKeyRevoked, "This API key has been revoked.")
	case !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt):
		if r.Session {
			return apierr.New(apierr.APIKeyExpired, "This session has expired. Sign in again.")
		}
		return apierr.New(apierr.APIKeyExpired, "This API key has expired.")
	}
	return nil
}

func (r *Record) refused(now time.Time) bool { return r.refusal(now) != nil }

func (r *Record) check() error {
	if r.KeyID == "" || r.AccountID == "" || r.Version < 1 || r.Plan < identity.Free || r.Plan > identity.Enterprise {
		return fmt.Errorf("incomplete key record")
	}
	if r.Session && (r.MemberID == "" || !r.Role.AtLeast(identity.Viewer)) {
		return fmt.Errorf("session record without a member")
	}
	return nil
}
