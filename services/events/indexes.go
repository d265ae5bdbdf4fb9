package events

import _ "embed"

// Indexes are the composite indexes, exemptions and TTL fields that the
// service's own documents need, in the form the Firebase tools deploy. Those of
// the events themselves are in libs/events.
//
//go:embed firestore.indexes.json
var Indexes []byte
