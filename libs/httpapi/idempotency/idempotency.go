// Package idempotency stores the responses to POST requests with an Idempotency-Key, so
// that a repeated request gets the first response and is not executed again.
//
// A request that takes effect in one commit writes its record and its response in that
// commit ([Receipt]). Either all of it exists or nothing does, so nothing has to be
// stored beforehand.
//
// Any other request opens its record before it acts and closes it with its response
// ([Firestore.Begin]). A first attempt that died leaves an open record. The next attempt takes
// it over with the same nonce and time. Creates derive their identifiers from these, so
// the next attempt makes the same records and not new ones. For the same reason it does no
// harm to take over from an attempt that is merely slow.
//
// Records live in Firestore, because Redis may be emptied at any moment, and without
// its record a repeated request would be executed twice.
package idempotency

import (
	"time"

	"github.com/linkreel/linkreel/libs/identity"
)

// Request identifies a request. Secret is the caller's bearer key. It seals answers
// that contain a secret, and is not stored. Only a keyed hash of the body is stored.
type Request struct {
	Account, Route, Key, Secret string
	Body                        []byte
}

// Record is an open or finished request.
type Record struct {
	identity.Origin
	Replay *Response

	r       Request
	written time.Time // when this attempt last wrote it; a later write means that another attempt took over
}

// Response is a response as the caller saw it. Header has only the headers of the response
// itself. It leaves out headers of one exchange, such as request id, date or rate limit.
type Response struct {
	Status int
	Header map[string]string
	Body   []byte
	// Changed are the keys under which replicas may have cached the old state. If the
	// first attempt died, it may not have announced them.
	Changed []string `json:",omitempty"`
}
