package firestoredb

import "context"

type (
	afterCommit    []func()
	afterCommitKey struct{}
)

// AfterCommit leaves something to be done once the transaction that ctx belongs
// to has committed. It is for hints only (a wake-up, a log line): a process that
// dies in between, or that never learns of its commit, does not run them. It
// reports false when ctx is not one that [DB.Tx] gave to its function.
func AfterCommit(ctx context.Context, do func()) bool {
	after, ok := ctx.Value(afterCommitKey{}).(*afterCommit)
	if ok {
		*after = append(*after, do)
	}
	return ok
}
