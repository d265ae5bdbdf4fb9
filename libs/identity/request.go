package identity

import "context"

type requestIDKey struct{}

// WithRequestID puts the request's id, which the caller sees in X-Request-Id,
// into ctx.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID is the id of the request in ctx; "" outside of one.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
