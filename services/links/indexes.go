package links

import _ "embed"

// Indexes are the composite indexes, exemptions and TTL fields that the
// service's documents need, in the form the Firebase tools deploy.
//
//go:embed firestore.indexes.json
var Indexes []byte
