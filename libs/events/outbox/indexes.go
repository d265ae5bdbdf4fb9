package outbox

import _ "embed"

// Indexes lists the composite indexes, exemptions and TTL field for the events' documents, in the
// format that the Firebase tools deploy.
//
//go:embed firestore.indexes.json
var Indexes []byte
