package identity

import (
	"context"
	"time"
)

// Origin is what a create derives its identifiers from. A try that finds its own
// record in place knows that an earlier one succeeded. Two tries of one request under
// one Idempotency-Key have the same Nonce and At, unless the request is one commit.
type Origin struct {
	Nonce string
	At    time.Time
}

type originKey struct{}

// WithOrigin puts o into ctx.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginFrom is the origin of the request in ctx; outside one it is a new one.
func OriginFrom(ctx context.Context) Origin {
	if o, ok := ctx.Value(originKey{}).(Origin); ok {
		return o
	}
	return Origin{Nonce: NewNonce(), At: time.Now()}
}
