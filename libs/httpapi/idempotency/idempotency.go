// Package idempotency keeps the answers of POST requests that carry an
// Idempotency-Key, so that a repeated request is answered and not done again.
//
// A request that is done in one commit has its record in that commit, with the
// answer ([Receipt]). Either all of it is there or nothing is, so nothing has to be
// noted before.
//
// For any other request a record is opened before it acts and closed with its answer
// ([Firestore.Begin]). A first try that died leaves an open record; the next try takes
// it over with the same nonce and time, from which creates derive their identifiers,
// so it makes the same records and not new ones. That is also why taking over from a
// try that is merely slow does no harm.
//
// Records live in Firestore, because Redis may be emptied at any moment and a
// forgotten record means a thing done twice.
package idempotency

import (
	"time"

	"github.com/linkreel/linkreel/libs/identity"
)

// Request names a request. Secret is the caller's bearer key: it seals an
// answer that holds a secret itself, and is not stored. Nor is the body, of which
// a keyed hash remains.
type Request struct {
	Account, Route, Key, Secret string
	Body                        []byte
}

// Record is an open or finished request.
type Record struct {
	identity.Origin
	Replay *Response

	r       Request
	written time.Time // the document as this try left it; a later write means another try took over
}

// Response is an answer as the caller saw it. Header has what belongs to the
// answer and not to one exchange: no request id, date or rate limit.
type Response struct {
	Status int
	Header map[string]string
	Body   []byte
	// Changed are the keys under which replicas may remember what was there before. A
	// first try that died may not have announced them.
	Changed []string `json:",omitempty"`
}
