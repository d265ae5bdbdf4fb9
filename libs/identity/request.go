package identity

import (
	"context"
	"sync/atomic"
	"time"
)

type requestKey struct{}

type request struct {
	id     string
	queued atomic.Int64 // nanoseconds
}

// WithRequestID puts the request's id, which the caller sees in X-Request-Id,
// into ctx.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, &request{id: id})
}

// RequestID is the id of the request in ctx; "" outside of one.
func RequestID(ctx context.Context) string {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.id
	}
	return ""
}

// AddQueued notes that the request in ctx waited for d in a queue of this process.
func AddQueued(ctx context.Context, d time.Duration) {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		r.queued.Add(int64(d))
	}
}

// Queued is how long the request in ctx has waited in queues of this process.
func Queued(ctx context.Context) time.Duration {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return time.Duration(r.queued.Load())
	}
	return 0
}

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
