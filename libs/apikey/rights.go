package apikey

import (
	"context"

	"github.com/linkreel/linkreel/libs/identity"
)

// Rights knows what keys and members may do now, by their public ids. It is for
// what was given out on somebody's behalf and must end with their right to it.
type Rights interface {
	// Scopes are what the key or the member with this id may do in the account. A
	// key that was revoked or has expired, a member who was removed, and an id that
	// is not of this account have none. The answer holds every change that was
	// committed before the call began.
	Scopes(ctx context.Context, accountID, id string) (identity.ScopeSet, error)
}
