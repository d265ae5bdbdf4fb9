// Package idempotency stores the responses to POST requests with an Idempotency-Key, so that a
// repeated request gets the first response instead of being executed again.
//
// A request that takes effect in one commit writes its record and its response in that commit
// ([Receipt]). The commit is atomic, so no record is needed beforehand.
//
// Any other request opens its record before it acts and closes it with its response
// ([Firestore.Begin]). A first attempt that died leaves an open record. The next attempt takes this
// record over, with the same nonce and time. Creates derive their ids from these, so the next
// attempt creates the same records instead of new ones. For the same reason, it is harmless to take
// over from an attempt that is only slow.
//
// Records live in Firestore, because Redis may lose its data at any time, and without its record a
// repeated request would be executed twice.
package idempotency

import (
	"time"

	"github.com/linkreel/linkreel/libs/identity"
)

// Request identifies a request. Secret is the caller's bearer key. It encrypts responses that
// contain a secret, and is not stored. Only a keyed hash of the body is stored.
type Request struct {
	Account, Route, Key, Secret string
	Body                        []byte
}

// Record is the record of an open or finished request.
type Record struct {
	identity.Origin
	Replay *Response

	r       Request
	written time.Time // when this attempt last wrote the record; a later write means that another attempt took over
}

// Response is a response as sent to the caller. Header contains only the headers of the response
// itself, without headers of one exchange, such as request id, date or rate limit.
type Response struct {
	Status int
	Header map[string]string
	Body   []byte
	// Changed lists the keys under which replicas may have cached the old state. If the first
	// attempt died, it may not have announced these keys.
	Changed []string `json:",omitempty"`
}
