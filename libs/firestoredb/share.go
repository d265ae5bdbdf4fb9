package firestoredb

import (
	"context"
	"errors"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/turns"
)

// inLine runs do when it is the turn of the account for which ctx acts. What acts for
// no account, and a call within a call, which would wait for itself, run at once.
func inLine(ctx context.Context, q *turns.Queue, do func() error) error {
	p := identity.FromContext(ctx)
	if p == nil || ctx.Value(heardKey{}) != nil {
		return do()
	}
	if err := ctx.Err(); err != nil {
		return Map(err) // the time went elsewhere
	}
	release, err := q.Enter(ctx, p.AccountID)
	if errors.Is(err, context.DeadlineExceeded) {
		return contended(err) // only the account's own work was before it
	}
	if err != nil {
		return err
	}
	defer release()
	return do()
}
