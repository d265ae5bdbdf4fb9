// Package idempotency keeps the answers of POST requests that carry an
// Idempotency-Key, so that a repeated request is answered and not done again.
//
// A record is opened before the request acts and closed with its answer. A first
// try that died leaves an open record; the next try takes it over with the same
// nonce and time, from which creates derive their identifiers, so it makes the
// same records and not new ones. That is also why taking over from a try that is
// merely slow does no harm.
//
// Records live in Firestore, because Redis may be emptied at any moment and a
// forgotten record means a thing done twice.
package idempotency

import (
	"context"
	"time"
)

// Store keeps records for 24 hours per account and route.
type Store interface {
	// Begin opens or finds the record of a request. A finished one has Replay
	// set. The errors are IDEMPOTENCY_IN_PROGRESS (its first try still runs) and
	// IDEMPOTENCY_KEY_REUSED (the same key came with another body). A record
	// whose first try died is handed out again with the same Nonce and At.
	Begin(ctx context.Context, r BeginRequest) (Record, error)
	// Finish keeps the answer.
	Finish(ctx context.Context, rec Record, answer Response) error
	// Abandon lets the next try run at once; it keeps Nonce and At.
	Abandon(ctx context.Context, rec Record) error
	// Known reports whether Begin would find a record of this very request. It
	// opens none.
	Known(ctx context.Context, r BeginRequest) (bool, error)
}

// BeginRequest names a request. Secret is the caller's bearer key: it seals an
// answer that holds a secret itself, and is not stored. Nor is the body, of which
// a keyed hash remains.
type BeginRequest struct {
	Account, Route, Key, Secret string
	Body                        []byte
}

// Record is an open or finished request.
type Record struct {
	Nonce  string
	At     time.Time
	Replay *Response

	id      string
	written time.Time // the document as this try left it; a later write means another try took over
	seals   seals
}

// Response is an answer as the caller saw it. Header has what belongs to the
// answer and not to one exchange: no request id, date or rate limit.
type Response struct {
	Status int
	Header map[string]string
	Body   []byte
}
