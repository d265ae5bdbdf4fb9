// Package idempotency stores the responses to POST requests with an Idempotency-Key, so a repeated
// request gets the first response instead of being executed again.
//
// A request that takes effect in one commit writes its record, with the response, in that commit
// ([Receipt]). The commit is atomic, so the request does not need a record before it runs.
//
// Any other request opens its record before it acts, and closes it with its response
// ([Firestore.Begin]). If the first attempt dies, its record remains open. The next attempt takes
// over this record, with the same nonce and time. The ids of created records are derived from
// these, so the next attempt creates the same records, not new ones. For the same reason, it is
// harmless to take over from an attempt that is only slow.
//
// Records are stored in Firestore because Redis may lose its data at any time, and a repeated
// request without a record would be executed again.
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

// Record is the record for an open or finished request.
type Record struct {
	identity.Origin
	Replay *Response

	r       Request
	written time.Time // this attempt's last write; a later write means that another attempt took over
}

// Response is a response as sent to the caller. Header omits the headers that belong to a single
// exchange, such as the request id, the date and the rate limit.
type Response struct {
	Status int
	Header map[string]string
	Body   []byte
	// Changed lists the keys under which replicas may have cached the old state. A replay announces
	// them because the first attempt may have died before it did.
	Changed []string `json:",omitempty"`
}
