package auth

import _ "embed"

//go:embed firestore.indexes.json
var indexes []byte

// Indexes returns the composite indexes, exemptions and TTL fields that the service's
// documents need, in the format that the Firebase tools deploy.
func Indexes() []byte { return indexes }
